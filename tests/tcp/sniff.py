#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""sniff.py DEVICE ADDRESS...: judges what the nodes with these addresses say on RDS's TCP port, until its input ends."""

import select
import socket
import struct
import sys

from node import Begun, Judge, Stream, TCP_PORT, Wrong

FIN, SYN, RST = 1, 2, 4
SO_RCVBUFFORCE = 33
SOL_PACKET, STATISTICS = 263, 6


class Connection:
    """One direction of a TCP connection, from its beginning."""

    def __init__(self, first, judge):
        self.next = first
        self.judge = judge
        self.stream = Stream()
        self.later = {}
        self.begun = Begun()

    def take(self, seq, data):
        """What comes out of order waits; how many frames were whole."""
        n = 0
        if data:
            self.later[seq] = max(self.later.get(seq, b""), data, key=len)
        for at in sorted(self.later, key=lambda s: (s - self.next + (1 << 31)) % (1 << 32)):
            had = (self.next - at) % (1 << 32)
            if had >= 1 << 31:
                break
            data = self.later.pop(at)[had:]
            for f in self.stream.frames(data):
                self.judge.judge(f, self.begun)
                n += 1
            self.next = (self.next + len(data)) % (1 << 32)
        return n


def segment(packet):
    """Source, ports, number, flags and data of TCP."""
    kind = struct.unpack_from("!H", packet, 12)[0]
    if kind == 0x0800 and packet[23] == 6:
        at = 14 + (packet[14] & 15) * 4
        end = 14 + struct.unpack_from("!H", packet, 16)[0]
        source = socket.inet_ntop(socket.AF_INET, packet[26:30])
    elif kind == 0x86dd and packet[20] == 6:
        at, end = 54, 54 + struct.unpack_from("!H", packet, 18)[0]
        source = socket.inet_ntop(socket.AF_INET6, packet[22:38])
    else:
        return None
    if end in (14, 54):  # larger than its field
        end = len(packet)
    sport, dport, seq, _, offset, flags = struct.unpack_from("!HHIIBB", packet, at)
    return source, (sport, dport), seq, flags, packet[at + (offset >> 4) * 4:end]


class Sniffer:
    def __init__(self, addresses):
        self.judges = {a: Judge() for a in addresses}
        self.connections = {}
        self.frames = 0

    def take(self, packet):
        s = segment(packet)
        if not s or TCP_PORT not in s[1] or s[0] not in self.judges:
            return
        source, ports, seq, flags, data = s
        key = source, ports
        if flags & SYN:
            self.connections[key] = Connection((seq + 1) % (1 << 32), self.judges[source])
        elif key in self.connections:
            self.frames += self.connections[key].take(seq, data)
            if flags & RST:
                del self.connections[key]


def main(device, *addresses):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    except PermissionError:
        pass  # it may lose packets, and says so
    sock.bind((device, 0))
    sniffer = Sniffer(addresses)
    print("sniffs", flush=True)
    while True:
        ready = select.select([sock, sys.stdin], [], [])[0]
        if sock in ready:
            sniffer.take(sock.recv(1 << 17))
        elif ready:
            break
    lost = struct.unpack("II", sock.getsockopt(SOL_PACKET, STATISTICS, 8))[1]
    if not sniffer.frames:
        sys.exit("no message was seen")
    print(f"{sniffer.frames} messages judged on the wire" + (f"; {lost} packets are lost, and what came behind" if lost else ""))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Wrong as e:
        sys.exit(f"on the wire: {e}")
