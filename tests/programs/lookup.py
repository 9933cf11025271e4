#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""As PCP's rds_info.py: socket calls that ctypes looks up, through handles.

lookup.py WHERE: the look-up through libc's own handle finds the preloaded functions (through: RDS_PRELOAD_DLSYM),
libc's (past: without it), or there is nothing preloaded (native)."""

import ctypes
import errno
import os
import struct
import sys

PF_RDS, SOCK_SEQPACKET, SOL_RDS = 21, 5, 276
COUNTERS, CONNECTIONS, SEND_MESSAGES, RECV_MESSAGES, SOCKETS = 10000, 10001, 10003, 10005, 10006
SIZES = {COUNTERS: 40, CONNECTIONS: 42, SEND_MESSAGES: 26, RECV_MESSAGES: 26, SOCKETS: 28}


def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def call(function, *args):
    value = function(*args)
    assert value >= 0, f"{function.__name__}: {os.strerror(ctypes.get_errno())}"
    return value


def info(libc, fd, option):
    """The records: ask for the size, then for so many bytes; an empty list succeeds at once."""
    length = ctypes.c_int(0)
    rc = libc.getsockopt(fd, SOL_RDS, option, None, ctypes.byref(length))
    if rc >= 0:
        return []
    assert ctypes.get_errno() == errno.ENOSPC and length.value > 0, (option, ctypes.get_errno(), length.value)
    buffer = ctypes.create_string_buffer(length.value)
    size = call(libc.getsockopt, fd, SOL_RDS, option, buffer, ctypes.byref(length))
    assert size >= SIZES[option] and length.value % size == 0, (option, size, length.value)
    return [buffer.raw[at : at + size] for at in range(0, length.value, size)]


def talk(libc):
    """A socket that sends to itself, all by calls of this handle, and what the node tells of it."""
    fd = call(libc.socket, PF_RDS, SOCK_SEQPACKET, 0)
    name = ctypes.create_string_buffer(struct.pack("=HH4s8x", 2, 0, bytes((127, 0, 0, 1))), 16)
    length = ctypes.c_int(16)
    call(libc.bind, fd, name, 16)
    call(libc.getsockname, fd, name, ctypes.byref(length))
    port = struct.unpack_from("!H", name.raw, 2)[0]
    assert length.value == 16 and port, (length.value, port)
    assert call(libc.sendto, fd, b"hello", 5, 0, name, 16) == 5

    buffer = ctypes.create_string_buffer(16)
    assert call(libc.read, fd, buffer, 16) == 5 and buffer.value == b"hello", buffer.raw
    ports = [struct.unpack_from("!H", record, 12)[0] for record in info(libc, fd, SOCKETS)]
    assert port in ports, (port, ports)
    counters = {r[:32].rstrip(b"\0"): struct.unpack_from("=Q", r, 32)[0] for r in info(libc, fd, COUNTERS)}
    assert counters.get(b"send_queued", 0) > 0, counters
    for option in (CONNECTIONS, SEND_MESSAGES, RECV_MESSAGES):
        info(libc, fd, option)
    call(libc.close, fd)
    assert libc.close(fd) == -1 and ctypes.get_errno() == errno.EBADF, "closed twice"


def main(where):
    linked = ctypes.CDLL(None, use_errno=True)
    libc = ctypes.CDLL("libc.so.6", use_errno=True)
    # A sanitizer's runtime may have functions of its own in front of the library's.
    preloaded = [p for p in os.environ.get("LD_PRELOAD", "").split(":") if p.endswith("/librdspreload.so")]
    library = ctypes.CDLL(preloaded[0]) if preloaded else linked
    for name in ("socket", "getsockopt", "close", "read", "poll", "ioctl"):
        same = address(libc[name]) == address(library[name])
        assert same == (where != "past"), f"{name}: {'the same' if same else 'another'} function as the library's"
    # Other libraries' handles reach libc's through what they need.
    other = ctypes.CDLL("libm.so.6", use_errno=True)
    assert (address(other.socket) == address(library.socket)) == (where != "past"), "through libm"
    # Nothing else has changed: names that are not ours, names that no library has, libc's own
    # functions by their version.
    assert address(libc.getpid) == address(linked.getpid)
    for name in ("pidfd_spawn", "pidfd_spawnp"):  # of a later libc, perhaps: the library must not add what that lacks
        assert hasattr(linked, name) == hasattr(libc, name), name
    try:
        libc["no_such_name_anywhere"]
        raise AssertionError("a name that is nobody's")
    except AttributeError as e:
        assert "no_such_name_anywhere" in str(e), e

    talk(linked)
    if where != "past":
        talk(libc)
        talk(other)
    print(f"calls by ctypes: of the program, {where if where == 'past' else 'and through'} libc's handle")


if __name__ == "__main__":
    main(sys.argv[1])
