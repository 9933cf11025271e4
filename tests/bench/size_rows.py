# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The rows that the pictures are drawn from (draw): round trip, rate and CPU time against the length of the message,
on one host and between two.  They have no targets: those are in the rows of single lengths."""

from rows import UNIX, one_way, round_trips
from tcp_rows import mine, over_tcp, plain

SIZES = (64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20)
BUFFER = 4 << 20  # two of the longest messages, and TCP's own buffers grow as far


def each_size(bench, name, what, sides):
    """Both processes where the targets are: on a core each, if there are two."""
    _, cpus = next(bench.placements())
    for size in SIZES[::3] if bench.quick else SIZES:
        bench.report.heading(f"{name}-trip.{size}", f"round trip of {size} B {what}")
        bench.interleave(f"{name}-trip.{size}", sides, lambda side, size=size: round_trips(
            bench, side, cpus, size=size, buffer=0 if side.tcp else BUFFER))
        bench.report.heading(f"{name}-rate.{size}", f"{size} B one way {what}")
        bench.interleave(f"{name}-rate.{size}", sides, lambda side, size=size: one_way(
            bench, side, cpus, size=size, window=0, buffer=0 if side.tcp else BUFFER))


def row_sizes(bench):
    """round trip and rate against the length of the message, one host"""
    each_size(bench, "sizes", "on one host", bench.sides(UNIX, outer=False))


@over_tcp
def sizes(bench, name, enter):
    """round trip and rate against the length of the message, two hosts"""
    each_size(bench, name, "between two hosts", [mine(enter), plain(enter)])


ROWS = {"sizes": row_sizes, "tcp-sizes": sizes}
