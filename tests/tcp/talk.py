#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""talk.py ask|answer|again|bye|alone|block|collect|full|waits|gather|closed|near|hold|tell OWN PEER [ARG]: a plain
PF_RDS program.

ask and answer are the two ends of a dialogue: messages of all lengths, pings, congestion, what rds-info shows.
answer says "bound" when it is: what comes before is dropped.
again: a process that is killed and started again.  block, collect: many sockets that send, and who gets it all.
full, waits: nobody answers yet, and what is sent fills SO_SNDBUF.  gather: who gets it in the end.
hold: the first process of its address, through which the others reach other hosts, until it is told to end.
Environment: TALK_KERNEL, the peer is kernel RDS; TALK_USER, the user to become first."""

import errno
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

RDS = 21
SOL_RDS = 276
CONNECTIONS, TCP_SOCKETS = 10001, 10007
CONNECTIONS6, TCP_SOCKETS6 = 10011, 10016
UNSENT, UNSENT6 = 10003, 10013
RDMA_ARGS = 1
PORT = 4000
SLOW = int(os.environ.get("TEST_SLOW", "1"))
PATIENCE = 20 * min(SLOW, 5)
LENGTH, ROOM = 1000, 65536  # of a message; of messages that wait
FILLS = -(-ROOM // LENGTH)  # as many messages as find room


def name(text, port):
    address, _, device = text.partition("%")
    if ":" in address:
        return address, port, 0, socket.if_nametoindex(device) if device else 0
    return address, port


def bound(own, port):
    at = name(own, port)
    s = socket.socket(RDS, socket.SOCK_SEQPACKET)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        s.setsockopt(socket.SOL_SOCKET, option, 2 << 20)
    # Python knows no address of this family with four parts
    if len(at) == 4:
        bind6(s, at)
    else:
        s.bind(at)
    return s


def sockaddr6(at):
    return struct.pack("=HHI16sI", socket.AF_INET6, socket.htons(at[1]), 0, socket.inet_pton(socket.AF_INET6, at[0]), at[3])


class Libc:
    """What Python's sockets cannot do: IPv6 names of this family."""
    import ctypes
    c = ctypes.CDLL(None, use_errno=True)

    @classmethod
    def call(cls, fn, *args):
        result = getattr(cls.c, fn)(*args)
        if result < 0:
            err = cls.ctypes.get_errno()
            raise OSError(err, os.strerror(err))
        return result


def bind6(s, at):
    raw = sockaddr6(at)
    Libc.call("bind", s.fileno(), raw, len(raw))


def wait(s, events, seconds):
    p = select.poll()
    p.register(s, events)
    if not p.poll(int(seconds * 1000)):
        raise TimeoutError(f"nothing in {seconds} s")


def send(s, data, to):
    """Waits while the port is congested, or the buffer is full."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return send_now(s, data, to)
        except OSError as e:
            if e.errno not in (errno.EAGAIN, errno.ENOBUFS) or time.monotonic() > end:
                raise
            time.sleep(0.005)


def send_now(s, data, to):
    if len(to) == 4:
        raw = sockaddr6(to)
        return Libc.call("sendto", s.fileno(), data, Libc.ctypes.c_size_t(len(data)), socket.MSG_DONTWAIT, raw, len(raw))
    return s.sendto(data, socket.MSG_DONTWAIT, to)


def receive(s, seconds=PATIENCE):
    """poll() also says that there is input when some congestion has ended."""
    end = time.monotonic() + seconds
    while True:
        wait(s, select.POLLIN, max(end - time.monotonic(), 0))
        try:
            return s.recv(2 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue


def if_any(s):
    try:
        return s.recv(2 << 20, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None


def pattern(length, seed):
    return bytes((seed + i * 7 + (i >> 8)) & 255 for i in range(4096)) * (length // 4096 + 1)


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got!r:.200} instead of {wanted!r:.200}")


def info(s, option, at):
    buf = s.getsockopt(SOL_RDS, option, 41 * 24 if at == 41 else at * 15)
    return [buf[i:i + at] for i in range(0, len(buf) // at * at, at)]


def check_info(s, own):
    if ":" in own:
        rows = [r for r in info(s, CONNECTIONS6, 65) if b"tcp" in r]
        socks = info(s, TCP_SOCKETS6, 64)
    else:
        rows = [r for r in info(s, CONNECTIONS, 41) if b"tcp" in r]
        socks = [(r, struct.unpack("!4sH4sH", r[:12])) for r in info(s, TCP_SOCKETS, 41)]
        if not any(16385 in (t[1], t[3]) for _, t in socks):
            sys.exit(f"no TCP socket of the port: {socks}")
    if len(rows) != 1 or not socks:
        sys.exit(f"rds-info shows {len(rows)} connections and {len(socks)} sockets")


def is_empty(s, option):
    try:
        return not s.getsockopt(SOL_RDS, option, 1024)
    except OSError as e:
        expect("rds-info", e.errno, errno.ENOSPC)
        return False


def leave(s):
    """The kernel's RDS drops with a socket what it has not sent yet: the last message, for which the peer waits."""
    end = time.monotonic() + PATIENCE
    while not os.environ.get("LD_PRELOAD") and not (is_empty(s, UNSENT) and is_empty(s, UNSENT6)):
        if time.monotonic() > end:
            sys.exit("messages wait on and on")
        time.sleep(0.005)


def check_rdma(s, to):
    memory = Libc.ctypes.create_string_buffer(64)
    vec = (Libc.ctypes.c_uint64 * 2)(Libc.ctypes.addressof(memory), 64)
    # a cookie, the peer's memory, one piece of ours, to write, and its name
    args = struct.pack("=QQQQQQQ", 77, 0, 64, Libc.ctypes.addressof(vec), 1, 1, 0)
    try:
        s.sendmsg([b"x"], [(SOL_RDS, RDMA_ARGS, args)], socket.MSG_DONTWAIT, to)
    except OSError as e:
        expect("RDMA", e.errno, errno.EOPNOTSUPP)
    else:
        sys.exit("an RDMA operation has been taken")


def ask(own, peer):
    s, to = bound(own, PORT), name(peer, PORT)
    end = time.monotonic() + PATIENCE
    while True:  # a message to a port that is not bound yet is lost
        send(s, b"hello", to)
        try:
            expect("greeting", receive(s, 0.5), b"hello")
            break
        except TimeoutError:
            if time.monotonic() > end:
                raise
    for seed, length in enumerate((0, 1, 47, 4095, 4096, 65536, 1 << 20, 3)):
        data = pattern(length, seed)[:length]
        send(s, data, to)
        answer = receive(s)
        while answer == b"hello" and data != answer:
            answer = receive(s)
        expect(f"{length} bytes", answer, data)
    for pings in (1, 200):
        for _ in range(pings):
            send(s, b"", name(peer, 0))
        for _ in range(pings):
            expect("pong", receive(s), b"")
    check_congestion(s, to, bound(own, PORT + 1), name(peer, PORT + 1))
    if not os.environ.get("TALK_KERNEL"):
        check_info(s, own)
        if ":" not in own:
            check_rdma(s, to)
    send(s, b"bye", to)
    leave(s)
    print("all said")


def check_congestion(s, to, aside, aside_to):
    """The other side stops reading, until it is told to go on, on another port."""
    send(aside, b"stop", aside_to)
    expect("stops", receive(aside), b"stop")
    sent, end = 0, time.monotonic() + PATIENCE
    while True:
        try:
            send_now(s, b"%07d" % sent + bytes(60000), to)
            sent += 1
        except OSError as e:
            if e.errno == errno.ENOBUFS:
                break
            expect("a send", e.errno, errno.EAGAIN)
            time.sleep(0.01)
        if time.monotonic() > end:
            sys.exit(f"never congested, after {sent} messages")
    send(aside, b"go", aside_to)
    for i in range(sent):
        expect("number", receive(s)[:7], b"%07d" % i)


def answer(own, peer, forever=False):
    s, to = bound(own, PORT), name(peer, PORT)
    aside, aside_to = bound(own, PORT + 1), name(peer, PORT + 1)
    print("bound", flush=True)
    while True:
        p = select.poll()
        p.register(s, select.POLLIN)
        p.register(aside, select.POLLIN)
        if not p.poll(3 * PATIENCE * 1000):
            sys.exit("nobody asks")
        word = if_any(aside)
        if word is not None:
            send(aside, word, aside_to)
            if word == b"stop":
                expect("told", receive(aside), b"go")
        word = if_any(s)
        if word == b"bye":
            return
        if word is not None:
            send(s, word, to)


def again(own, peer, turn):
    """A new process on the address of one that was killed: its first messages arrive."""
    s, to = bound(own, PORT), name(peer, PORT)
    for i in range(5):
        word = b"turn %s, %d" % (turn.encode(), i)
        send(s, word, to)
        got = receive(s)
        while not got.startswith(b"turn %s," % turn.encode()):
            got = receive(s)  # for the one before
        expect("echo", got, word)
    send(s, b"unread", to)
    os.kill(os.getpid(), signal.SIGKILL)


def bye(own, peer):
    send(bound(own, PORT), b"bye", name(peer, PORT))


def block(own, peer):
    """The first send of many sockets, each of which waits as long as it likes."""
    to = name(peer, PORT)
    socks = [bound(own, PORT + 100 + i) for i in range(16)]
    for i, s in enumerate(socks):
        s.settimeout(None)
        s.sendto(b"%d" % i, to)
    expect("the end", receive(socks[0]), b"all")
    print("all sent")


def collect(own, peer):
    s = bound(own, PORT)
    expect("senders", sorted(int(receive(s)) for _ in range(16)), list(range(16)))
    send(s, b"all", name(peer, PORT + 100))


def fill(own, peer, port):
    """A socket whose buffer is full of messages to a host that does not answer."""
    s, to, sent = bound(own, port), name(peer, PORT), 0
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
    try:
        while sent <= FILLS:
            send_now(s, b"%05d %07d" % (port, sent) + bytes(LENGTH - 13), to)
            sent += 1
    except OSError as e:
        expect("a full buffer", e.errno, errno.EAGAIN)
    expect("messages in a full buffer", sent, FILLS)
    p = select.poll()
    p.register(s, select.POLLOUT)
    expect("poll with a full buffer", p.poll(0), [])
    print("full", flush=True)
    return s, to


def full(own, peer):
    begin = time.monotonic()
    fill(own, peer, PORT + 1)
    print(f"filled in {time.monotonic() - begin:.1f} s")


def waits(own, peer, port):
    """The rest as there is room: the messages of ten buffers."""
    s, to = fill(own, peer, int(port))
    s.settimeout(None)
    for i in range(FILLS, 10 * FILLS):
        s.sendto(b"%05d %07d" % (int(port), i) + bytes(LENGTH - 13), to)
    print("all sent")


def gather(own, peer, *ports):
    """All that `waits` sends from these ports, in order."""
    s, got = bound(own, PORT), dict.fromkeys(ports, 0)
    while min(got.values()) < 10 * FILLS:
        port, number = receive(s, 3 * PATIENCE)[:13].decode().split()
        expect(f"number from {port}", int(number), got[port])
        got[port] += 1
    expect("more", if_any(s), None)
    print("all has come")


def alone(own, peer):
    """Without the port the processes of the host reach each other; messages to others wait."""
    there, says = os.pipe()  # a message to a port that nobody has would be dropped
    pid = os.fork()
    s = bound(own, PORT + (not pid))
    if pid:
        os.write(says, b"bound")
        expect("near", receive(s), b"near")
        send(s, b"back", name(own, PORT + 1))
    else:
        os.read(there, 5)
        send(s, b"near", name(own, PORT))
        expect("back", receive(s), b"back")
    expect("far", send_now(s, b"far", name(peer, PORT)), 3)
    if pid:
        expect("the other one's status", os.waitpid(pid, 0)[1], 0)
        print("all said")


def hold(own, peer):
    s = bound(own, PORT - 1)
    print("holds", flush=True)
    for told in (b"look", b"end"):
        expect("word", receive(s, 5 * PATIENCE), told)
        if told == b"look":
            check_info(s, own)
        send(s, told, name(own, PORT - 2))


def tell(own, peer, word):
    """What the one that holds the address is to do now."""
    s = bound(own, PORT - 2)
    send(s, word.encode(), name(own, PORT - 1))
    expect("answer", receive(s), word.encode())


def is_open():
    listeners = subprocess.run(["ss", "-ltn"], stdout=subprocess.PIPE, check=True, env={"PATH": os.environ["PATH"]}).stdout
    return b":16385" in listeners


def closed(own, peer):
    s = bound(own, PORT)
    if is_open():
        sys.exit("the port is open")
    s.close()
    print("the port is closed")


def near(own, peer):
    """Processes of one host.  What descriptors one of them has then, in all tables."""
    pid = os.fork()
    s = bound(own, PORT + (not pid))
    if not pid:
        while True:
            try:
                send(s, b"near", name(own, PORT))
                expect("back", receive(s, 1), b"back")
                os._exit(0)
            except TimeoutError:
                pass
    expect("near", receive(s), b"near")
    opened = is_open()
    tables = [f"/proc/self/task/{t}/fd/" for t in os.listdir("/proc/self/task")]
    links = [os.readlink(t + n) for t in tables for n in os.listdir(t) if os.path.islink(t + n)]
    # a thread makes an eventfd when it first has to sleep, which not each one has
    kinds = sorted(link.rstrip("0123456789]") for link in links if link[0] != "/" and "eventfd" not in link)
    send(s, b"back", name(own, PORT + 1))
    os.waitpid(pid, 0)
    print("the port is", "open" if opened else "closed", "descriptors:", *kinds)


if __name__ == "__main__":
    if "TALK_USER" in os.environ:
        os.setgroups([])
        os.setgid(int(os.environ["TALK_USER"]))
        os.setuid(int(os.environ["TALK_USER"]))
    {f.__name__: f for f in (ask, answer, again, bye, alone, block, collect, full, waits, gather, closed, near, hold,
                             tell)}[sys.argv[1]](*sys.argv[2:])
