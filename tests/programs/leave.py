#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Sockets that change hands: the process that bound one leaves (daemon, exec, a sender of SCM_RIGHTS that is gone), messages wait in its
queue and new ones come all the time; whoever has it then gets each of them once and in order."""

import ctypes
import os
import socket
import struct
import sys
import time

MESSAGES = 1000
PR_SET_CHILD_SUBREAPER = 36
ROUNDS = 3
HOST = "127.0.0.1"


def bound(port=0):
    s = socket.socket(socket.PF_RDS, socket.SOCK_SEQPACKET, 0)
    s.bind((HOST, port))
    return s


def child(role, *args):
    """A process that ends by _exit: 0 if the role came to its end."""
    pid = os.fork()
    if pid:
        return pid
    try:
        role(*args)
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def ended(pid):
    """Of the one child that there is, if pid is -1."""
    status = os.waitpid(pid, 0)[1]
    assert status == 0, f"a child ended with status {status:#x}"


def said(fd):
    return struct.unpack("H", os.read(fd, 2))[0]


def numbers(s):
    """All of them, in order; the answer goes to their sender."""
    for i in range(MESSAGES):
        data, sender = s.recvfrom(100)
        assert data == b"%d" % i, f"message {data} instead of {i}"
    s.sendto(b"all", sender)


def send_numbers(port):
    s = bound()
    for i in range(MESSAGES):
        s.sendto(b"%d" % i, (HOST, port))
        if i % 100 == 0:
            time.sleep(0.005)  # so that some are under way whatever the others do
    assert s.recv(10) == b"all"


def wait_gone(pid):
    """The parent: only a process that is really gone has left the socket to others."""
    while os.getppid() == pid:
        time.sleep(0.001)


def daemon():
    """bind, fork, the parent goes; its child has the socket, with what was in the queue."""
    told, tell = os.pipe()

    def server(s, port, parent):
        wait_gone(parent)
        assert s.getsockname() == (HOST, port)
        assert s.recv(100) == b"queued before"
        os.write(tell, struct.pack("H", port))
        numbers(s)

    def starter():
        s, q = bound(), bound()
        port = s.getsockname()[1]
        q.sendto(b"queued before", (HOST, port))
        child(server, s, port, os.getpid())

    ended(child(starter))
    send_numbers(said(told))
    ended(-1)  # the server, which is ours since its parent has gone


def keeps(program, s):
    os.set_inheritable(s.fileno(), True)
    os.execv(sys.executable, [sys.executable, __file__, program, str(s.fileno())])


def child_executes():
    """fork, exec in the child: the parent carries the socket on, and both use it."""
    s, p = bound(), bound()
    pid = child(keeps, "--echo", s)
    p.sendto(b"hello", s.getsockname())
    data, sender = p.recvfrom(100)
    assert data == b"hello from the new program" and sender == s.getsockname()
    ended(pid)
    p.sendto(b"for the parent", s.getsockname())
    assert s.recv(100) == b"for the parent"


def carrier_executes():
    """The process that has the socket becomes another program, at the second attempt."""
    told, tell = os.pipe()

    def role():
        s, q = bound(), bound()
        port = s.getsockname()[1]
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100000)
        q.sendto(b"first", (HOST, port))
        q.sendto(b"second", (HOST, port))
        assert s.recv(100) == b"first"
        os.write(tell, struct.pack("H", port))
        time.sleep(0.02)
        try:
            os.execv("/nonexistent", ["/nonexistent"])
        except FileNotFoundError:
            pass
        assert s.getsockname() == (HOST, port)
        keeps("--numbers", s)

    pid = child(role)
    send_numbers(said(told))
    ended(pid)


def passed():
    """By SCM_RIGHTS from a process that has ended before it is taken; the port is free with the last copy."""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def role():
        s = bound()
        socket.send_fds(a, [struct.pack("H", s.getsockname()[1])], [s.fileno()])

    ended(child(role))
    data, fds, _, _ = socket.recv_fds(b, 2, 1)
    port = struct.unpack("H", data)[0]
    p = bound()
    p.sendto(b"to one whom nobody has yet", (HOST, port))
    s = socket.socket(socket.PF_RDS, socket.SOCK_SEQPACKET, 0, fileno=fds[0])
    assert s.recv(100) == b"to one whom nobody has yet"
    assert s.getsockname()[1] == port
    s.close()
    bound(port).close()


def new_program(what, fd):
    s = socket.socket(socket.PF_RDS, socket.SOCK_SEQPACKET, 0, fileno=fd)
    if what == "--echo":
        data, sender = s.recvfrom(100)
        s.sendto(data + b" from the new program", sender)
    else:
        assert s.recv(100) == b"second"
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 200000
        numbers(s)


def main():
    if len(sys.argv) > 2:
        new_program(sys.argv[1], int(sys.argv[2]))
        return
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for _ in range(ROUNDS):
        passed()
        daemon()
        child_executes()
        carrier_executes()
    print(f"{ROUNDS} times: daemon, exec in a child, exec, SCM_RIGHTS; {MESSAGES} messages each")


main()
