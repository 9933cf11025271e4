#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""crowd.py cross OWN PEER N, deaf OWN PEER PORT, either OWN PEER PORT...: plain PF_RDS programs with more than two ends.

cross: N pairs of addresses, the last number of OWN and PEER counted up; all say something at the same time.  The end that is
on kernel RDS, which would drop what it has not sent yet, waits for the other one's.
deaf: reads nothing from its port until it is told to.  either: fills such ports of a host, and sees that each of them is
congested until its own program has read."""

import errno
import os
import select
import sys
import time

from talk import PATIENCE, PORT, bound, expect, leave, name, receive, send, send_now

SIZE = 60000


def counted(address, i):
    net, _, host = address.rpartition(".")
    return f"{net}.{int(host) + i}"


def cross(own, peer, n):
    socks = {}
    p = select.poll()
    for i in range(int(n)):
        s = bound(counted(own, i), PORT)
        socks[s.fileno()] = s, name(counted(peer, i), PORT)
        p.register(s, select.POLLIN)
    lacking = {(fd, word) for fd in socks for word in (b"hello", b"heard")}
    first, native = next(iter(socks)), not os.environ.get("LD_PRELOAD")
    if native:
        lacking.add((first, b"over"))
    end, again = time.monotonic() + 3 * PATIENCE, 0
    while lacking:
        if time.monotonic() > end:
            sys.exit(f"{len(lacking)} words have not come")
        if time.monotonic() > again:  # a message to a port that is not bound yet is lost
            for fd in (fd for fd, word in lacking if word == b"heard"):
                send(socks[fd][0], b"hello", socks[fd][1])
            again = time.monotonic() + 1
        for fd, _ in p.poll(100):
            word = receive(socks[fd][0])
            lacking.discard((fd, word))
            if word == b"hello":
                send(socks[fd][0], b"heard", socks[fd][1])
    if not native:
        send(socks[first][0], b"over", socks[first][1])
    print(f"{len(socks)} pairs of addresses")


def deaf(own, peer, port):
    s, aside = bound(own, int(port)), bound(own, int(port) + 1)
    print("bound", flush=True)
    n = int(receive(aside, 3 * PATIENCE))
    for i in range(n):
        expect("number", receive(s)[:7], b"%07d" % i)
    send(aside, b"done", name(peer, PORT))
    expect("word", receive(s), b"last")


def is_congested(s, to, word):
    while True:
        try:
            send_now(s, word, to)
            return False
        except OSError as e:
            if e.errno == errno.ENOBUFS:
                return True
            expect("a send", e.errno, errno.EAGAIN)
            time.sleep(0.01)


def either(own, peer, *ports):
    s = bound(own, PORT)
    to = {port: name(peer, int(port)) for port in ports}
    sent = {}
    for port in ports:
        n, end = 0, time.monotonic() + PATIENCE
        while not is_congested(s, to[port], b"%07d" % n + bytes(SIZE)):
            n += 1
            if time.monotonic() > end:
                sys.exit(f"never congested, after {n} messages")
        sent[port] = n
    full = list(ports)
    while full:
        for port in full:
            if not is_congested(s, to[port], b"last"):
                sys.exit(f"port {port} is not congested any more, but those are: {full}")
        port = full.pop(0)
        send(s, b"%d" % sent[port], name(peer, int(port) + 1))
        expect("answer", receive(s), b"done")
        send(s, b"last", to[port])
    leave(s)
    print(f"congested after {list(sent.values())} messages")


if __name__ == "__main__":
    {f.__name__: f for f in (cross, deaf, either)}[sys.argv[1]](*sys.argv[2:])
