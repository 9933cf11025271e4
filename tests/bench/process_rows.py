# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The rows about processes: how long a new one takes to its first answer, and a forked one over its parent's socket."""

import statistics

from procs import Worker, workers
from rows import rds


def processes(bench, mode, count):
    """So many processes one after the other; microseconds."""
    side = rds()
    with workers() as started:
        server = Worker(bench.setup, side, "rtt", role="server")  # the one that has RDS there
        started.append(server)
        server.expect("addr")
        server.expect("ready")
        w = Worker(bench.setup, side, mode, idle=count)
        started.append(w)
        w.expect("ready")
        w.tell("go")
        values = w.result()
    return {"us_p50": values["p50"] / 1e3, "us_p99": values["p99"] / 1e3}


def judged(bench, row, mode, count, limit_us):
    data = bench.interleave(row, bench.sides(outer=False), lambda side: processes(bench, mode, count))
    for values in data.values():
        bench.report.value(row, "us_p50", statistics.median(values["us_p50"]), "<=", limit_us,
                           spread=f"{min(values['us_p50']):.0f} .. {max(values['us_p50']):.0f} us")


def row_starts(bench):
    """528 times a new program with 8 sockets, like rds-ping: from its start to the first answer"""
    bench.report.heading("starts", row_starts.__doc__)
    judged(bench, "starts", "starts", 20 if bench.quick else 528, 20000)


def row_forked(bench):
    """a forked process's first message, over a socket that its parent opened"""
    bench.report.heading("forked", row_forked.__doc__)
    judged(bench, "forked", "forked", 20 if bench.quick else 200, 1000)


ROWS = {"starts": row_starts, "forked": row_forked}
