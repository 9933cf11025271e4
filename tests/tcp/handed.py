#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""handed.py send OWN PEER WAY PORT|collect OWN PEER PORTS...: a plain PF_RDS program.

send: half of its messages; then another process has the socket and sends the other half.  WAY is how it comes to that
one: fork, exec or pass.  The first process ends as soon as it has sent its half, and prints "full" before, when no more
finds room.  collect: gets all of them, in their order."""

import array
import errno
import os
import random
import select
import socket
import struct
import sys
import time

RDS = 21
PORT = 4000
COUNT, HALF, LONGEST, ROOM = 300, 150, 3000, 65536
SLOW = int(os.environ.get("TEST_SLOW", "1"))
PATIENCE = 30 * min(SLOW, 5)
HEAD = struct.Struct("=HH")


def bound(at):
    s = socket.socket(RDS, socket.SOCK_SEQPACKET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    s.bind(at)
    return s


def inherited(fd):
    return socket.socket(RDS, socket.SOCK_SEQPACKET, 0, fileno=fd)


def waited(s, events):
    p = select.poll()
    p.register(s, events)
    return p.poll(1000)


def send(s, peer, port, numbers):
    lengths = random.Random(port * COUNT + numbers[0])
    said = False
    for n in numbers:
        message = HEAD.pack(port, n) + bytes(lengths.randrange(LONGEST))
        end = time.monotonic() + 2 * PATIENCE
        while True:
            try:
                s.sendto(message, socket.MSG_DONTWAIT, (peer, PORT))
                break
            except OSError as e:
                if e.errno not in (errno.EAGAIN, errno.ENOBUFS) or time.monotonic() > end:
                    raise
            if not said:
                print("full", flush=True)
            said = True
            waited(s, select.POLLOUT)


def again(word, own, peer, port, fd):
    os.set_inheritable(fd, True)
    os.execv(sys.executable, [sys.executable, sys.argv[0], word, own, peer, str(port), str(fd)])


def sender(own, peer, way, port):
    s = bound((own, port))
    send(s, peer, port, range(HALF))
    if way == "exec":
        again("rest", own, peer, port, s.fileno())
    if way == "fork":
        if os.fork():
            os._exit(0)
        send(s, peer, port, range(HALF, COUNT))
        return
    ours, its = socket.socketpair()
    if os.fork() == 0:
        s.close()
        ours.close()
        again("got", own, peer, port, its.fileno())
    its.close()
    ours.recv(1)
    ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno()]))])
    ours.recv(1)


def rest(own, peer, port, fd):
    send(inherited(fd), peer, port, range(HALF, COUNT))


def got(own, peer, port, fd):
    link = socket.socket(fileno=fd)
    link.send(b"x")
    data = link.recvmsg(1, socket.CMSG_SPACE(4))[1][0][2]
    link.send(b"x")
    rest(own, peer, port, struct.unpack("=i", data)[0])


def collect(own, peer, *ports):
    s = bound((own, PORT))
    print("bound", flush=True)
    expected = {port: 0 for port in ports}
    wrong, last = 0, time.monotonic()
    while any(n < COUNT for n in expected.values()) and time.monotonic() < last + PATIENCE:
        waited(s, select.POLLIN)  # also true when a congestion map has come
        try:
            message = s.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        last = time.monotonic()
        port, n = HEAD.unpack(message[: HEAD.size])
        if n != expected[port]:
            print(f"port {port}: message {n}, not {expected[port]}")
            wrong += 1
        expected[port] = n + 1
    for port, n in expected.items():
        if n < COUNT:
            print(f"port {port}: {n} messages of {COUNT}")
            wrong += 1
    sys.exit(wrong > 0)


word, own, peer, *more = sys.argv[1:]
if word == "send":
    sender(own, peer, more[0], int(more[1]))
else:
    {"rest": rest, "got": got, "collect": collect}[word](own, peer, *map(int, more))
