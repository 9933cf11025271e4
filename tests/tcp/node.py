# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""node.py: an RDS node that a test plays by hand over TCP, and what the other side may say (check 43 of a judge)."""

import collections
import os
import socket
import struct
import time

TCP_PORT = 16385
MAP_BYTES = 8192
LONGEST = 1 << 20
MAP, MARKED = 1, 4
NPATHS, GEN_NUM = 5, 6
PATIENCE = 20 * min(int(os.environ.get("TEST_SLOW", "1")), 5)
LAYOUT = struct.Struct("!QQIHHBB4sH16s")
EMPTY_MAP = bytes(MAP_BYTES)

Frame = collections.namedtuple("Frame", "seq ack len sport dport flags credit pad csum ext data")


class Wrong(Exception):
    pass


def check(cond, what, *args):
    if not cond:
        raise Wrong(what + "".join(f" {a!r:.200}" for a in args))


def frame(data=b"", seq=0, sport=4000, dport=4000, flags=0, ext=b"", ack=0, credit=0, pad=bytes(4), csum=0, length=None):
    n = len(data) if length is None else length
    return LAYOUT.pack(seq, ack, n, sport, dport, flags, credit, pad, csum, ext.ljust(16, b"\0")) + data


def map_of(*ports):
    bits = bytearray(MAP_BYTES)
    for port in ports:
        bits[port >> 3] |= 1 << (port & 7)
    return frame(bytes(bits), sport=0, dport=0, flags=MAP)


def of_handshake(f):
    return (f.sport, f.dport) in ((1, 0), (0, 1))


def generation(f):
    """What a probe or an answer says: there is one path, and the generation."""
    kind, paths, kind_of_gen, gen, rest = struct.unpack("!BHBI8s", f.ext)
    check((kind, paths, kind_of_gen, rest) == (NPATHS, 1, GEN_NUM, bytes(8)) and gen, "a probe says", f.ext)
    return gen


class Begun:
    """A connection, as far as its judge needs it."""

    def __init__(self):
        self.first, self.marked, self.new = True, 0, False


class Judge:
    """What a node sends over its connections with one other node."""

    def __init__(self):
        self.most = 0  # the highest number so far
        self.gen = None

    def judge(self, f, conn):
        check(f.len <= LONGEST, "length", f)
        check((f.ack, f.credit, f.pad, f.csum) == (0, 0, bytes(4), 0), "fields that are not used", f)
        check(f.flags in (0, MAP, MARKED), "flags", f)
        check(f.flags == MAP or not conn.first, "the first one is no map", f)
        conn.first = False
        if f.flags == MAP:
            check((f.seq, f.len, f.sport, f.dport, f.ext) == (0, MAP_BYTES, 0, 0, bytes(16)), "a map", f)
            return
        if of_handshake(f):
            check(f.len == 0, "a handshake", f)
            gen = generation(f)
            if gen != self.gen:  # it counts anew
                self.gen, self.most, conn.marked, conn.new = gen, 0, 0, False
        else:
            check(f.ext == bytes(16), "extensions", f)
        self.judge_number(f, conn)

    def judge_number(self, f, conn):
        """What is sent again goes first, in order; it may be new to us."""
        if f.flags == MARKED:
            check(conn.marked < f.seq and not conn.new, "a marked number", f, conn.marked)
            conn.marked = f.seq
        elif (f.sport, f.dport) == (1, 0):  # it may have the number of the one before it
            check(f.seq >= self.most, "a probe's number", f, self.most)
        else:
            check(f.seq > self.most, "a number", f, self.most)
            conn.new = True
        self.most = max(self.most, f.seq)


class Stream:
    """From bytes to frames."""

    def __init__(self):
        self.bytes = bytearray()

    def frames(self, more):
        self.bytes += more
        at = 0
        while len(self.bytes) - at >= LAYOUT.size:
            head = LAYOUT.unpack_from(self.bytes, at)
            check(head[2] <= LONGEST, "length", head)
            if len(self.bytes) - at < LAYOUT.size + head[2]:
                break
            at += LAYOUT.size
            yield Frame(*head, bytes(self.bytes[at:at + head[2]]))
            at += head[2]
        del self.bytes[:at]


class Link:
    """One connection.  What comes is judged, and goes to the node."""

    def __init__(self, node, sock):
        self.node, self.sock = node, sock
        self.stream = Stream()
        self.over = False
        self.begun = Begun()
        sock.settimeout(PATIENCE)

    def say(self, *frames):
        self.sock.sendall(b"".join(frames))

    def read_some(self, seconds=PATIENCE):
        """False: the connection is over."""
        self.sock.settimeout(seconds)
        try:
            more = self.sock.recv(1 << 20)
        except ConnectionResetError:
            more = b""
        for f in self.stream.frames(more):
            self.node.judge.judge(f, self.begun)
            self.node.take(self, f)
        self.over |= not more
        return not self.over

    def until(self, cond, what):
        end = time.monotonic() + PATIENCE
        while not cond():
            check(not self.over, "the connection is over before", what)
            check(time.monotonic() < end, "this does not come:", what)
            self.read_some()

    def goes_down(self):
        self.sock.settimeout(PATIENCE)
        while self.read_some():
            pass
        self.sock.close()

    def resets(self):
        """Behind all that it has said."""
        end = time.monotonic() + PATIENCE
        while outgoing(self.sock):
            check(time.monotonic() < end, "this is never acknowledged")
            time.sleep(0.005)
        cut(self.sock)


def outgoing(sock):
    """Bytes that the other side has not acknowledged (SIOCOUTQ)."""
    import fcntl
    return struct.unpack("i", fcntl.ioctl(sock, 0x5411, bytes(4)))[0]


def cut(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Node:
    """It keeps the numbers of both directions, and what has come."""

    def __init__(self, own, peer, log):
        self.own, self.peer, self.log = own, peer, log
        self.lives = 1  # programs that have begun on the other side
        self.smaller = socket.inet_aton(own) < socket.inet_aton(peer)
        self.judge = Judge()
        self.seq = self.next_rx = 0
        self.got, self.maps, self.gens = [], [], []
        self.answers = self.paths = 0
        self.offers = 1  # paths
        self.door = socket.create_server((own, TCP_PORT), backlog=64)
        self.receives()

    def receives(self, rcvbuf=1 << 17):
        """Into so small a buffer, from the next connection on."""
        self.rcvbuf = rcvbuf
        self.door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)

    def number(self):
        self.seq += 1
        return self.seq

    def message(self, text, **how):
        how.setdefault("seq", None)
        if how["seq"] is None:
            how["seq"] = self.number()
        return frame(text, **how)

    def dial(self):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.rcvbuf)
        sock.settimeout(PATIENCE)
        sock.bind((self.own, 0))
        sock.connect((self.peer, TCP_PORT))
        return sock

    def connected(self):
        """As the smaller: a connection that is not refused.  As the larger: the one that we ask for."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                sock = self.dial()
                if not self.smaller:
                    sock.close()
                    self.door.settimeout(1)
                    sock = self.door.accept()[0]
                    sock.settimeout(PATIENCE)
                    sock.sendall(map_of())  # it stands with our first byte
                if sock.recv(1, socket.MSG_PEEK):
                    return sock
                sock.close()
            except (ConnectionError, socket.timeout):
                pass
            time.sleep(0.01)
        raise Wrong("never connected")

    def wait_bound(self):
        """The port opens before the program is bound: what comes in between is dropped."""
        end = time.monotonic() + PATIENCE
        while self.said_bound() < self.lives:
            check(time.monotonic() < end, "the program is never bound")
            time.sleep(0.01)

    def said_bound(self):
        with open(self.log) as f:
            return f.read().split("\n").count("bound")

    def link(self, again=()):
        """A connection, on which the other side has introduced itself, and our map has gone; first what goes again."""
        self.wait_bound()
        link = Link(self, self.connected())
        link.say(*([map_of()] if self.smaller else []), *again)
        known = len(self.gens)
        link.until(lambda: len(self.gens) > known, "a probe")
        return link

    def take(self, link, f):
        if f.flags == MAP:
            self.maps.append(f.data)
            return
        if f.flags == MARKED and f.seq < self.next_rx:
            return
        self.next_rx = f.seq + 1
        if of_handshake(f):
            self.take_handshake(link, f)
        else:
            self.got.append(f)

    def take_handshake(self, link, f):
        self.gens.append(generation(f))
        if f.sport:
            link.say(self.message(b"", sport=0, dport=1, ext=struct.pack("!BH", NPATHS, self.offers)))
        else:
            self.answers += 1

    def texts(self):
        return [f.data for f in self.got]
