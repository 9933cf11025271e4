# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The rows between two hosts over TCP: the preload against the kernel's rds_tcp, with the same calls.

For a kernel that has rds_tcp ("kernel" boots one): two network namespaces of it for either, each two joined by a pair of
veth devices. CPU time is that of the whole machine that was not idle: rds_tcp works in interrupts and a kernel thread."""

import contextlib

from procs import Side
from rdma_rows import one_way, round_trips
from tcp_rows import HOSTS, PORT, mine, run, two_hosts

BUFFER = 4 << 20


class KernelBench:
    """As much of a bench as the measurements of rdma_rows.py want, with one placement."""

    def __init__(self, bench, cpus):
        self.setup, self.ms, self.cpus = bench.setup, bench.ms(), cpus


@contextlib.contextmanager
def both():
    """The two sides, each with a network of its own."""
    with two_hosts() as there, two_hosts() as here:
        for command in here:  # the kernel listens in each namespace from its beginning
            run([*command, "ss", "-K", "-l", f"sport = {PORT}"])
        yield [Side("kernel", rds=True, host=HOSTS[0], peer=HOSTS[1], enter=there), mine(here)]


def compared(bench, row, text, metric, op, target, measure):
    for place, cpus in bench.placements():
        name = f"{row}.{place}"
        bench.report.heading(name, f"{text}, {place}")
        with both() as sides:
            data = bench.interleave(name, sides, lambda side, cpus=cpus: measure(KernelBench(bench, cpus), side))
        bench.report.ratio(name, data, metric, "rds", "kernel", op, target, bench.judged(place))
        bench.report.ratio(name, data, "cpu", "rds", "kernel", "<=", 1, False)


def rtt(bench):
    """round trip of 64 B between two hosts"""
    compared(bench, "kernel-rtt", rtt.__doc__, "ns_mean", "<=", 1, round_trips)


def rate(bench):
    """64 B one way between two hosts, 32 in flight, an acknowledgement by the program every 16"""
    compared(bench, "kernel-rate", rate.__doc__, "msgs", ">=", 2,
             lambda b, side: one_way(b, side, size=64, window=32, buffer=BUFFER))


def bandwidth(bench):
    """64 KiB one way between two hosts, bounded by socket buffers of 4 MiB"""
    compared(bench, "kernel-bandwidth", bandwidth.__doc__, "mbs", ">=", 1,
             lambda b, side: one_way(b, side, size=64 << 10, window=0, buffer=BUFFER))


ROWS = {"kernel-rtt": rtt, "kernel-rate": rate, "kernel-bandwidth": bandwidth}
