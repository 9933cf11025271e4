#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""As the kernel's selftests/net/rds/test.py: two sockets in one process, made there, and then each by a child that passes it
and is gone before it is bound; the transport pinned before bind, non-blocking sends until EAGAIN, receiving driven by epoll
with EPOLLRDNORM and nothing else, many messages both ways, and digests of what was sent and received at the end.
(The kernel's test has its children in other network namespaces: librdspreload(7), Sockets of several processes.)"""

import ctypes
import errno
import hashlib
import os
import select
import socket
import sys

MESSAGES = 20000
HOST = "127.0.0.1"
SOL_RDS, SO_RDS_TRANSPORT = 276, 8
LATER = (errno.EAGAIN, errno.ENOBUFS, errno.ECONNRESET, errno.EPIPE)


def own_socket():
    return socket.socket(socket.PF_RDS, socket.SOCK_SEQPACKET, 0)


def childs_socket():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        s = own_socket()
        socket.send_fds(theirs, [b"x"], [s.fileno()])
        sys.exit(0)
    theirs.close()
    _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    assert os.waitpid(pid, 0)[1] == 0, "the child"
    ours.close()
    return socket.socket(socket.PF_RDS, socket.SOCK_SEQPACKET, 0, fds[0])


def rds_socket(make, transport):
    s = make()
    if transport is not None:
        s.setsockopt(SOL_RDS, SO_RDS_TRANSPORT, ctypes.c_int(transport))
    s.bind((HOST, 0))
    s.setblocking(False)
    return s


def message(number):
    return number.to_bytes(4, "big") + bytes([number & 255]) * (number * 37 % 1400)


class End:
    def __init__(self, sock, peer):
        self.sock, self.peer = sock, peer
        self.sent = self.received = 0
        self.out, self.came = hashlib.sha256(), hashlib.sha256()

    def send_burst(self):
        """Until the socket says later, or all is sent."""
        while self.sent < MESSAGES:
            data = message(self.sent)
            try:
                assert self.sock.sendto(data, self.peer) == len(data)
            except OSError as e:
                assert e.errno in LATER, e
                return
            self.out.update(data)
            self.sent += 1

    def receive_burst(self, sender):
        while True:
            try:
                data, address = self.sock.recvfrom(2048)
            except BlockingIOError:
                return
            assert address == sender, (address, sender)
            assert data == message(self.received), f"message {self.received} differs"
            self.came.update(data)
            self.received += 1


def run(make, transport):
    a, b = rds_socket(make, transport), rds_socket(make, transport)
    ends = {a.fileno(): End(a, b.getsockname()), b.fileno(): End(b, a.getsockname())}
    first, second = ends.values()
    watch = select.epoll()
    for fd in ends:
        watch.register(fd, select.EPOLLRDNORM)
    while first.received < MESSAGES or second.received < MESSAGES:
        for end in ends.values():
            end.send_burst()
        events = watch.poll(5)
        assert events, f"no event for 5 s: {[(e.sent, e.received) for e in ends.values()]}"
        for fd, mask in events:
            assert mask == select.EPOLLRDNORM, hex(mask)
            ends[fd].receive_burst(ends[fd].peer)
    assert first.out.digest() == second.came.digest() and second.out.digest() == first.came.digest(), "digests differ"
    assert watch.poll(0) == [], "readable although all is read"
    for s in (a, b):
        s.close()
    watch.close()


def main():
    transport = int(sys.argv[1]) if len(sys.argv) > 1 else None
    descriptors = len(os.listdir("/proc/self/fd"))
    run(own_socket, transport)
    run(childs_socket, transport)
    left = len(os.listdir("/proc/self/fd")) - descriptors
    print(f"2 times {MESSAGES} messages each way by EPOLLRDNORM, {left} descriptors more than before")


if __name__ == "__main__":
    sys.exit(main())
