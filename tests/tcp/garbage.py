#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""garbage.py ADDRESS PORT: says to an open port what is no stream of RDS messages, and cuts connections everywhere."""

import os
import socket
import struct
import sys


def header(length, flags=0, seq=1):
    return struct.pack("!QQIHHBB4xH16x", seq, 0, length, 9, 4000, flags, 0, 0)


WORDS = [
    b"",
    b"GET / HTTP/1.0\r\n\r\n",
    b"x" * 100,
    bytes(48),
    header(0xffffffff),
    header((1 << 20) + 1),
    header(100, 1) + bytes(100),  # a map of a wrong length
    header(8192, 1) + b"\xff" * 8192,  # this one is whole: every port is congested
    header(8192, 1)[:30],
    header(1 << 20) + bytes(1000),  # and no more comes
    os.urandom(48),
    os.urandom(5000),
]


def main():
    address = sys.argv[1], int(sys.argv[2])
    kept = []
    for turn in range(8):
        for word in WORDS:
            s = socket.socket()
            s.settimeout(5)
            try:
                s.connect(address)
                s.sendall(word)
                if turn % 2:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                pass  # refused at once
            kept.append(s)
        if turn % 3 == 2:
            for s in kept:
                s.close()
            kept = []
    return 0


if __name__ == "__main__":
    sys.exit(main())
