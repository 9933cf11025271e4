#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""As PCP's rds_ping: empty datagrams to port 0, one thread sends while another receives on the same socket by select;
settimeout and nothing else makes the socket non-blocking. The node answers for a process that sleeps."""

import os
import select
import signal
import socket
import sys
import threading
import time

PINGS = 50
SLOW = int(os.environ.get("TEST_SLOW", 1))  # as tests/slow.h has it
COMES = 120 * SLOW  # what has to come
LATE = 75
HOST = "127.0.0.1"


def rds_socket():
    s = socket.socket(socket.PF_RDS, socket.SOCK_SEQPACKET, 0)
    s.bind((HOST, 0))
    assert s.getsockname()[1] != 0, s.getsockname()
    return s


def sleeper():
    """Another process of this node that owns a socket and never looks at it; returns its pid."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        with rds_socket():
            os.write(tell, b"x")
            while True:
                signal.pause()
    os.close(tell)
    assert os.read(told, 1) == b"x", "the other process did not start"
    return pid


def receive(s, replies):
    while len(replies) < PINGS:
        ready, _, _ = select.select([s], [], [], COMES)
        assert ready, f"no reply for {COMES} s, {len(replies)} of {PINGS} came"
        data, sender = s.recvfrom(0)
        assert data == b"", data
        assert sender == (HOST, 0), sender
        replies.append(time.monotonic())


def main():
    pid = sleeper()
    try:
        s = rds_socket()
        s.settimeout(0.2)
        begin = time.monotonic()
        try:
            s.recvfrom(0)
            raise AssertionError("a message that nobody sent")
        except socket.timeout:
            waited = time.monotonic() - begin
            assert waited > 0.19, f"timeout of 0.2 s after {waited:.3f} s"
            if waited > 2 * SLOW / int(os.environ.get("TEST_TIMES", 1)):
                print(f"LATE timeout of 0.2 s after {waited:.3f} s", file=sys.stderr)
                return LATE
        s.settimeout(COMES)
        sent, replies, faults = [], [], []

        def receiver():
            try:
                receive(s, replies)
            except BaseException as e:  # the main thread must learn of it
                faults.append(e)

        thread = threading.Thread(target=receiver)
        thread.start()
        for _ in range(PINGS):
            sent.append(time.monotonic())
            assert s.sendto(b"", (HOST, 0)) == 0
            time.sleep(0.002)
        thread.join()
        if faults:
            raise faults[0]
        trips = sorted(b - a for a, b in zip(sent, replies))
        assert trips[0] >= 0, "a reply before its ping"
        s.close()
        print(f"{PINGS} pings, median {trips[len(trips) // 2] * 1e6:.0f} us")
        return 0
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main())
