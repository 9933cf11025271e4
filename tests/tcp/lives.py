#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""lives.py stays|comes|answer|ask OWN PEER [ARG]: a process that goes on whatever becomes of the other host, and those
there, one after another, each of which is a life.

stays GATE, comes LIFE [FIRST [GATE]]: both send numbered messages and judge what comes.  stays must get each life's
from 0 on, a life those of stays from FIRST on if that is given, and both without a gap.
One named "lossy" may lose its first messages.

A life ends when it has had enough; with a GATE, when there is such a file.  One whose name begins with "quiet" asks
stays to send nothing then, so that nothing is under way, and prints which number comes next.  stays goes on when its
connection has gone, or there is a file GATE.on.  It ends when the life named "last" has had enough, or there is a
file GATE.end: then it tells who holds its address (talk.py) to end, and goes on for 5 s, in which it inherits.

answer, ask: a kernel socket of an address of an RDMA device, and what comes back from it."""

import errno
import os
import select
import socket
import sys
import time

from talk import CONNECTIONS, PATIENCE, PORT, RDS, SOL_RDS, bound, expect, if_any, info, name, receive, send, send_now

ENOUGH = 200
NOTICED = 5 + 5 * 5  # seconds: keepalive
SO_RDS_TRANSPORT, TRANS_TCP = 8, 2


def message(life, number):
    return b"%s %d " % (life, number) + bytes([number & 255]) * (number * 997 % 20000)


class Flow:
    def __init__(self, own, peer, life):
        self.s, self.to, self.life = bound(own, PORT), name(peer, PORT), life.encode()
        self.sent, self.had, self.next = 0, 0, {}
        self.p = select.poll()
        self.p.register(self.s, select.POLLIN)
        print("bound", flush=True)

    def step(self):
        """Sends one if there is room, and returns which word ends what has come."""
        try:
            send_now(self.s, message(self.life, self.sent), self.to)
            self.sent += 1
        except OSError as e:
            if e.errno not in (errno.EAGAIN, errno.ENOBUFS):
                raise
        return self.hear()

    def hear(self):
        self.p.poll(2)
        while (data := if_any(self.s)) is not None:
            life, _, number = data[:32].partition(b" ")
            if not number:
                return life
            may_lack = self.life != b"stays" or life.startswith(b"lossy")
            number = self.next.get(life, int(number.split(b" ")[0]) if may_lack else 0)
            expect(f"number {number} of {life}", data, message(life, number))
            self.next[life] = number + 1
            self.had += 1
        return None


def connected(s, peer):
    return any(r[20:24] == socket.inet_aton(peer) and r[40] & 4 for r in info(s, CONNECTIONS, 41))


def rests(f, peer, gate):
    send(f.s, b"%d" % f.sent, f.to)
    begin = time.monotonic()
    while connected(f.s, peer) and not os.path.exists(gate + ".on"):
        f.hear()
        time.sleep(0.05)
        if time.monotonic() - begin > 2 * NOTICED:
            sys.exit("it does not notice that the other host has gone")
    took = f"{time.monotonic() - begin:.1f} s"
    print("goes on after", took, flush=True)
    return took


def stays(own, peer, gate):
    f, rested = Flow(own, peer, "stays"), []
    while not os.path.exists(gate + ".end"):
        word = f.step()
        if (word or b"").startswith(b"quiet"):
            rested.append(rests(f, peer, gate))
        if word == b"last":
            break
    else:
        send(f.s, b"end", name(own, PORT - 1))
        end = time.monotonic() + 5
        while time.monotonic() < end:
            f.step()
    had = ", ".join(f"{n} from {life.decode()}" for life, n in sorted(f.next.items()))
    print(f"{f.sent} messages sent; {had}", *(f"; quiet for {took}" for took in rested))


def comes(own, peer, life, first="", gate=""):
    f = Flow(own, peer, life)
    if first:
        f.next[b"stays"] = int(first)
    end = time.monotonic() + 2 * PATIENCE
    while not os.path.exists(gate) if gate else f.had < ENOUGH or f.sent < ENOUGH:
        expect("a word", f.step(), None)
        if time.monotonic() > end:
            sys.exit(f"{f.sent} messages sent, {f.had} received")
    if not life.startswith(("quiet", "last")):
        return
    send(f.s, life.encode(), f.to)
    if life != "last":
        while (word := f.hear()) is None:
            pass
        expect("the next one", f.next[b"stays"], int(word))
        print("next", int(word))


def answer(own, peer, transport=None):
    s = socket.socket(RDS, socket.SOCK_SEQPACKET)
    if transport == "tcp":
        s.setsockopt(SOL_RDS, SO_RDS_TRANSPORT, TRANS_TCP)
    s.bind(name(own, PORT))
    print("bound by transport", s.getsockopt(SOL_RDS, SO_RDS_TRANSPORT), flush=True)
    while (word := receive(s)) != b"bye":
        s.sendto(word, socket.MSG_DONTWAIT, name(peer, PORT))
        print("heard", word.decode(), flush=True)


def ask(own, peer, comes_back):
    s = bound(own, PORT)
    for i in range(5):
        send(s, b"%d" % i, name(peer, PORT))
    try:
        for i in range(5):
            expect("answer", receive(s, PATIENCE if comes_back == "answered" else 3), b"%d" % i)
        got = "answered"
    except TimeoutError:
        got = "unanswered"
    send(s, b"bye", name(peer, PORT))  # not before: what its socket has not sent ends with it
    expect("messages", got, comes_back)
    print("heard, and", got)


if __name__ == "__main__":
    {f.__name__: f for f in (stays, comes, answer, ask)}[sys.argv[1]](*sys.argv[2:])
