#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""hostile.py victim|honest OWN PEER, attack PEER LOG: what one host with many addresses can do.

The victim answers the honest one, which stops when its standard input ends.  The attacker has all addresses of
10.8.0.0/16, which are smaller than the victim's and so connect, and of 10.10.0.0/16, which ask to be connected to.  It
goes on until the victim has had more of them at a time than it may have, and says so in its log.
Environment: TCP_HOSTILE, for how many seconds (times RDS_PRELOAD_PATIENCE) at least.  If these are enough, who says
nothing, or does not come to the end of a message, has to be disconnected."""

import functools
import os
import random
import select
import socket
import struct
import sys
import time

from talk import PORT, bound, expect, if_any, name, pattern, receive, send

DEAF = PORT + 9
HOSTS = 1000
PATIENCE = int(os.environ.get("RDS_PRELOAD_PATIENCE", "1"))
SECONDS = int(os.environ.get("TCP_HOSTILE", "0")) * PATIENCE or 2
SPEAK, MESSAGE = 30 * PATIENCE, 2 * PATIENCE  # as in engine/sys/patience.h
RCVBUF = 2 << 20
# KiB: messages that strangers do not end, queues that are not read, and what each may put behind these
MEMORY = (64 << 10) + (64 << 10) + (RCVBUF >> 10) + 256 * 256
SPARE = 48 << 10  # kernel's structures are not in it; connections, their maps, the heap's gaps


def status(field):
    with open("/proc/self/status") as f:
        return int(next(line for line in f if line.startswith(field)).split()[1])


def victim(own, peer):
    s, to = bound(own, PORT), name(peer, PORT)
    deaf = bound(own, DEAF)
    most = before = None
    while True:
        p = select.poll()
        p.register(s, select.POLLIN)
        if not p.poll(60000):
            sys.exit("nobody asks")
        word = if_any(s)
        if word == b"bye":
            break
        if word is not None:
            send(s, word, to)
            if before is None:
                before = status("VmHWM")
            most = max(most or 0, len(os.listdir("/proc/self/fd")))
    grown = status("VmHWM") - before
    print(f"the victim needed {grown >> 10} MiB, and {most} descriptors")
    if grown > MEMORY + SPARE:
        sys.exit(f"that is more than {MEMORY + SPARE >> 10} MiB")
    if most > 1024 // 4 + 100:
        sys.exit("those are too many descriptors")
    deaf.close()


def honest(own, peer):
    s, to = bound(own, PORT), name(peer, PORT)
    sizes = (100, 1 << 20, 5000, 200000)
    worst = turns = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        data = pattern(sizes[turns % 4], turns)[:sizes[turns % 4]]
        began = time.monotonic()
        send(s, data, to)
        expect("echo", receive(s), data)
        worst = max(worst, time.monotonic() - began)
        turns += 1
        if turns == 8:
            print("begins", flush=True)
    send(s, b"bye", to)
    print(f"{turns} turns, the longest took {1000 * worst:.0f} ms")


def header(length, seq, flags=0, sport=9, dport=DEAF):
    return struct.pack("!QQIHHBB4xH16x", seq, 0, length, sport, dport, flags, 0, 0)


MAP = header(8192, 0, 1, 0, 0) + bytes(8192)
PING = header(0, 1, 0, 4001, 0)
LONGEST = 1 << 20


@functools.lru_cache(None)
def words(kind):
    """What a host says, and whether it cuts the connection then."""
    if kind == 0:
        return b"", False
    if kind == 1:
        return MAP[:20], False
    if kind == 2:
        return MAP + PING + header(LONGEST, 2) + bytes(LONGEST - 1), False
    if kind == 3:
        return MAP + header(0xffffffff, 1), False
    if kind == 4:
        return header(100, 0, 1) + bytes(100) + header(LONGEST, 1) + bytes(1000), False
    if kind == 5:
        return MAP + header(5000, 1) + bytes(2000), True
    if kind == 6:
        return MAP + b"".join(header(1, seq, flags) + b"x" for seq, flags in ((100, 0), (50, 4), (50, 0), (1, 4))), False
    if kind == 7:
        return MAP + header(0, 1) * 20000, False
    return MAP + (header(100000, 1) + bytes(100000)) * 100, False


class Host:
    def __init__(self, i, to):
        self.i, self.to = i, to
        self.s = None

    def connect(self):
        self.began = time.monotonic()
        self.s = socket.socket()
        self.s.setblocking(False)
        self.s.bind((f"10.{10 if self.i % 10 == 9 else 8}.{self.i >> 8}.{self.i & 255}", 0))
        self.bytes, self.cuts = words(self.i % 10)
        self.bytes = memoryview(self.bytes)
        return self.s.connect_ex(self.to)

    def go_on(self):
        """False: it has to connect again."""
        try:
            if self.bytes:  # the others have their turns, too
                self.bytes = self.bytes[self.s.send(self.bytes):]
            if self.bytes:
                return True
            if not self.cuts:
                return bool(self.s.recv(1 << 16))
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        except BlockingIOError:
            return True
        except OSError:
            return False


class Ends:
    """Of those that have said all that they say: how many for each of two reasons."""

    def __init__(self):
        self.silent = self.unended = 0

    def count(self, host):
        took = time.monotonic() - host.began
        self.silent += not host.bytes and host.i % 10 < 2 and took >= SPEAK
        self.unended += not host.bytes and host.i % 10 == 2 and took >= MESSAGE

    def judge(self):
        if SECONDS > SPEAK + MESSAGE and not self.silent or SECONDS > 3 * MESSAGE and not self.unended:
            sys.exit(f"only {self.silent} that say nothing were disconnected, {self.unended} that do not come to an end")


def says_refused(log):
    with open(log) as f:
        return "another one is refused" in f.read()


def attack(peer, log):
    hosts, ends = {}, Ends()
    end = time.monotonic() + SECONDS
    waits = [Host(i, (peer, 16385)) for i in range(HOSTS)]
    p = select.poll()
    connects = refused = 0
    while time.monotonic() < end or (time.monotonic() < end + 60 * PATIENCE and not says_refused(log)):
        for host in waits[:50]:
            host.connect()
            connects += 1
            hosts[host.s.fileno()] = host
            p.register(host.s, select.POLLIN | select.POLLOUT)
        del waits[:50]
        events = p.poll(1)
        for fd, _ in random.sample(events, min(len(events), 50)):
            host = hosts[fd]
            if not host.go_on():
                refused += 1
                ends.count(host)
                p.unregister(fd)
                host.s.close()
                waits.append(hosts.pop(fd))
            elif not host.bytes:
                p.modify(fd, select.POLLIN)
    ends.judge()
    print(f"{connects} connections, {refused} refused or cut, {ends.silent} silent, {ends.unended} without end")


if __name__ == "__main__":
    {"victim": victim, "honest": honest, "attack": attack}[sys.argv[1]](*sys.argv[2:])
