#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""scripted.py CASE OWN PEER LOG: one end of a conversation between the library and a node that is played by hand.

The library's side is a plain PF_RDS program, which sends back what it gets ("talk.py answer", or one of PROGRAMS below).
Its log says "bound" when it is.
What it says over TCP is judged in every case (node.py)."""

import errno
import functools
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time

import talk
from node import GEN_NUM, MARKED, NPATHS, Node, Wrong, check, frame, map_of

ASIDE = talk.PORT + 1  # where the program is told to stop reading, and to go on
CONGESTED = 500
FLOOD = 1 << 20
ORPHANS = 20  # of these: more than a socket holds
MANY = range(5000, 5040)  # ports of one process


def echoes(node, link, texts):
    """All that has come so far."""
    link.until(lambda: len(node.got) >= len(texts), texts[-1])
    check(node.texts() == texts, "echoes:", node.texts(), "instead of", texts)


def marked(f):
    return f[:24] + bytes([MARKED]) + f[25:]


def refused(node):
    try:  # a refusal may be seen by connect() already
        with node.dial() as sock:
            check(not sock.recv(1), "a further connection is not refused")
    except (ConnectionResetError, BrokenPipeError):
        pass


def lanes(node):
    """It offers 8 paths, and connects 8 times: one is kept, and goes on."""
    link = node.link()
    link.say(node.message(b"", sport=1, dport=0, ext=struct.pack("!BH", NPATHS, 8)))
    link.until(lambda: node.answers == 1, "the answer to a probe")
    link.say(node.message(b"a"))
    for _ in range(7):
        refused(node)
        link.say(node.message(b"a"))
    echoes(node, link, [b"a"] * 8)
    return link


def makes_way(node, link):
    """For another one of the node's connections, of which the first ones are refused."""
    new = node.link()
    link.goes_down()
    return new


def mute(node):
    """It has had 8 paths, and has something to say on one of those that it connects now."""
    node.offers = 8
    link = node.link()
    for _ in range(3):
        link = makes_way(node, link)
    for i in range(1, 4):
        link.say(node.message(b"a"))
        echoes(node, link, [b"a"] * i)
        refused(node)
        time.sleep(1.1)  # so often the library looks
    return link


def numbers(node):
    """Which numbers are duplicates; a node that has forgotten its numbers begins at 1 again."""
    link = node.link()
    rows = ((100, 0, 1), (50, MARKED, 0), (50, 0, 1), (51, MARKED, 1), (60, MARKED, 1), (60, MARKED, 0), (60, 0, 1),
            (1, MARKED, 0), (0, 0, 1), (200, 0, 1))
    for i, (seq, flags, _) in enumerate(rows):
        link.say(frame(b"%d" % i, seq=seq, flags=flags))
    wanted = [b"%d" % i for i, row in enumerate(rows) if row[2]]
    echoes(node, link, wanted)
    link.sock.close()
    link = node.link()
    for i, (seq, flags) in enumerate(((1, 0), (1, MARKED), (2, 0), (1, MARKED), (3, 0))):
        link.say(frame(b"again %d" % i, seq=seq, flags=flags))
    wanted += [b"again 0", b"again 2", b"again 4"]
    echoes(node, link, wanted)
    node.seq = 1000
    return link


def anew(node):
    """It begins anew while its connection stays, and is refused: what it says then is marked.  Its generation is not."""
    def probe(gen, seq):
        return frame(seq=seq, sport=1, dport=0, ext=struct.pack("!BHBI", NPATHS, 1, GEN_NUM, gen))

    node.seq = 99
    link = node.link()
    link.say(probe(7, node.number()), node.message(b"a"))
    echoes(node, link, [b"a"])
    link.resets()
    node.seq = 2
    said = marked(probe(8, 1)), marked(frame(b"b", seq=2))
    link = node.link(said)
    echoes(node, link, [b"a", b"b"])
    link.resets()
    link = node.link(said)
    link.say(node.message(b"c"))
    echoes(node, link, [b"a", b"b", b"c"])
    return link


def strange(node):
    """Fields and extensions that mean nothing."""
    link = node.link()
    wanted = []

    def say(**how):
        wanted.append(b"%d" % len(wanted))
        link.say(node.message(wanted[-1], **how))

    for flags in (0x02, 0x08, 0x10, 0x20, 0x40, 0x80, 0xf0, 0x41, 0xf9):
        say(flags=flags)
    for ext in (b"\1\0\0\0\5", b"\2\0\0\0\7", b"\3\0\0\0\7\0\0\0\1", b"\4\0\0\0\0\0\0\0\1", b"\7\5\0\10", b"\10\1", b"\11",
                b"\17\5\0\10", b"\20\5\0\10", b"\377" * 16, b"\5\0\10\6\0\0\0\1"):
        say(ext=ext)
    say(ack=1 << 63, credit=255, pad=b"\377" * 4, csum=0xffff)
    echoes(node, link, wanted)
    return link


def ends(node):
    """An end in the middle of a message, and a reset behind whole ones."""
    link = node.link()
    a, b = node.message(b"a"), node.message(b"b" * 1000)
    wanted = [b"a", b"b" * 1000]
    link.say(a, b[:500])
    link.sock.shutdown(socket.SHUT_WR)
    link.goes_down()
    link = node.link([marked(a), marked(b)])
    echoes(node, link, wanted)
    # no echo is to be on its way when we reset: our TCP would have acknowledged it, and we not read it
    link.say(node.message(b"stop", sport=ASIDE, dport=ASIDE))
    wanted.append(b"stop")
    echoes(node, link, wanted)
    c = [node.message(b"c%d" % i) for i in range(50)]
    link.say(*c)
    link.resets()
    link = node.link([marked(f) for f in c])
    link.say(node.message(b"d"), node.message(b"go", sport=ASIDE, dport=ASIDE))
    echoes(node, link, wanted + [b"c%d" % i for i in range(50)] + [b"d"])
    return link


def resent(node):
    """What its TCP has not seen acknowledged comes again, marked and in order, and then the rest.

    Our TCP acknowledges what it takes, so that has to be less than a message."""
    texts = [bytes([i]) * 60000 for i in range(30)]
    node.receives(4096)
    for turn in range(3):
        link = node.link()
        sofar = len(node.got)
        link.say(*(node.message(t) for t in texts))
        link.until(lambda: len(node.got) > sofar + turn, "some echoes")
        link.resets()
    node.receives()
    link = node.link()
    echoes(node, link, texts * 3)
    return link


def lives(node):
    """A process that takes an address over from one that has ended counts anew, and says so."""
    link = node.link()
    link.say(node.message(b"a"))
    echoes(node, link, [b"a"])
    link.say(node.message(b"bye"))
    link.goes_down()
    known = len(node.gens)
    node.lives += 1
    link = node.link()
    check(node.gens[known] != node.gens[known - 1], "the same generation as before")
    link.say(node.message(b"b"))
    echoes(node, link, [b"a", b"b"])
    return link


def pours(node, link, most):
    """How many messages until it is not read from."""
    link.sock.settimeout(1)
    n = 0
    try:
        while n < most:
            link.sock.sendall(node.message(struct.pack("!I", n) + bytes(FLOOD - 4)))
            n += 1
    except (socket.timeout, ConnectionError):  # or it has ended by now
        pass
    return n


def takes(s):
    """All up to the end, in their order, once."""
    n = 0
    while True:
        text = talk.receive(s)
        if text == b"end":
            return n
        talk.expect("number", struct.unpack("!I", text[:4])[0], n)
        n += 1


def flood(node):
    """A map that comes behind more than the program reads: who waits for it in a send is not held up."""
    link = node.link()
    link.say(map_of(CONGESTED), node.message(b"go"))
    link.until(lambda: node.texts(), "the program's word")
    pid = int(node.texts()[0])
    n = pours(node, link, 200)
    check(64 <= n < 200, "messages until it is not read from:", n)  # the program reads some in the end
    link.until(lambda: b"sent" in node.texts(), "the end of a send")
    os.kill(pid, signal.SIGUSR1)
    return None


def is_set(bits, port):
    return bits[port >> 3] >> (port & 7) & 1


def is_stopped(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0] == "T"


def member(node):
    """What comes for a process that is stopped, and has another one for its owner, is read all the same."""
    link = node.link()
    link.say(node.message(b"go"))
    link.until(lambda: node.texts(), "the program's word")
    pid = int(node.texts()[0])
    while not is_stopped(pid):
        time.sleep(0.01)
    n = pours(node, link, 200)
    check(n == 200, "messages until it is not read from:", n)
    link.say(*(node.message(b"x", dport=port) for port in MANY))
    link.until(lambda: all(is_set(node.maps[-1], port) for port in MANY), "all ports told")
    os.kill(pid, signal.SIGCONT)
    link.until(lambda: b"read" in node.texts(), "the end")
    return None


def orphaned(node):
    """A process is killed that has taken nothing; its child has the socket, too, and gets all."""
    link = node.link()
    link.say(node.message(b"go"))
    link.until(lambda: node.texts(), "the program's word")
    parent, pid = map(int, node.texts()[0].split())
    os.kill(parent, signal.SIGSTOP)
    while not is_stopped(parent):
        time.sleep(0.01)
    n = pours(node, link, ORPHANS)
    check(n == ORPHANS, "messages until it is not read from:", n)
    link.until(lambda: is_set(node.maps[-1], talk.PORT), "the port told")
    os.kill(parent, signal.SIGKILL)
    os.kill(pid, signal.SIGUSR1)
    link.say(node.message(b"end"))
    link.until(lambda: node.texts()[-1].startswith(b"had"), "the end")
    check(node.texts()[-1] == b"had %d" % n, "of", n, "it", node.texts()[-1])
    link.until(lambda: not is_set(node.maps[-1], talk.PORT), "the port told again")
    return link


def shared_memory():
    with open("/proc/self/status") as f:
        return int(re.search(r"RssShmem:\s+(\d+) kB", f.read())[1]) >> 10


def keeps(program, own, peer):
    """It has the connection, and another process the port, which leaves a part of what has come."""
    end, ends = os.pipe()
    s = talk.bound(own, talk.PORT - 1)
    status = subprocess.run([sys.executable, __file__, program, own, peer], pass_fds=[ends]).returncode
    os.close(ends)
    os.read(end, 1)  # its children have ended as well
    end = time.monotonic() + talk.PATIENCE
    while shared_memory() > 32:
        if time.monotonic() > end:
            sys.exit(f"{shared_memory()} MiB are kept")
        time.sleep(0.01)
    s.close()
    sys.exit(0 if status == -signal.SIGKILL else status)


def stops(own, peer):
    others = [talk.bound(own, port) for port in MANY]
    s = talk.bound(own, talk.PORT)
    print("bound", flush=True)
    talk.expect("word", talk.receive(s), b"go")
    talk.send(s, b"%d" % os.getpid(), talk.name(peer, talk.PORT))
    os.kill(os.getpid(), signal.SIGSTOP)
    for _ in range(100):
        talk.expect("length", len(talk.receive(s)), FLOOD)
    talk.send(s, b"read", talk.name(peer, talk.PORT))
    for other in others:
        other.close()


def shares(own, peer):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    s = talk.bound(own, talk.PORT)
    print("bound", flush=True)
    talk.expect("word", talk.receive(s), b"go")
    pid = os.fork()
    if pid:
        talk.send(s, b"%d %d" % (os.getpid(), pid), talk.name(peer, talk.PORT))
        signal.pause()
    signal.sigwait([signal.SIGUSR1])
    talk.send(s, b"had %d" % takes(s), talk.name(peer, talk.PORT))
    talk.expect("word", talk.receive(s), b"bye")


def waits(own, peer):
    """It sends to a port that is congested, and reads only behind that.  What comes for a closed socket is read, so it
    ends when it is told to."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    s = talk.bound(own, talk.PORT)
    print("bound", flush=True)
    talk.expect("word", talk.receive(s), b"go")
    try:
        talk.send_now(s, b"x", talk.name(peer, CONGESTED))
        sys.exit("the port is not congested")
    except OSError as e:
        talk.expect("errno", e.errno, errno.ENOBUFS)
    talk.send(s, b"%d" % os.getpid(), talk.name(peer, talk.PORT))
    s.sendto(b"x", talk.name(peer, CONGESTED))
    talk.send(s, b"sent", talk.name(peer, talk.PORT))
    for _ in range(64):
        talk.expect("length", len(talk.receive(s)), FLOOD)
    signal.sigwait([signal.SIGUSR1])


CASES = (lanes, mute, numbers, anew, strange, ends, resent, lives, flood, member, orphaned)

KEEPS = {f"keeps-{f.__name__}": functools.partial(keeps, f.__name__) for f in (stops, shares)}
PROGRAMS = {**KEEPS, "waits": waits, "stops": stops, "shares": shares}


def main(case, own, peer, log=None):
    if case in PROGRAMS:
        PROGRAMS[case](own, peer)
        return
    node = Node(own, peer, log)
    try:
        link = {f.__name__: f for f in CASES}[case](node)
        if link:
            link.say(node.message(b"bye"))
            link.goes_down()
    except Wrong as e:
        sys.exit(f"{case}: {e}")
    print(f"{case}: {len(node.got)} messages, judged")


if __name__ == "__main__":
    main(*sys.argv[1:])
