# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The rows over an RDMA device: the preload, kernel RDS and perftest, in turn, in one boot of a guest.

CPU time is that of the whole machine that was not idle: a soft device works in interrupts, which belong to no process."""

import contextlib
import os
import time

from perftest import Perftest
from procs import Fault, Side, Worker, start_pair, workers

ADDRESSES = {"host": "10.98.0.1", "peer": "10.98.0.2"}
MANY, MANY_PROCESSES, FEW = 1000, 8, 10


def mine(name="ours", **env):
    return Side(name, rds=True, preload=True, env={"RDS_PRELOAD_TRANSPORT": "verbs", **env}, **ADDRESSES)


OURS = mine()
SLEEPING = mine("ours-sleep", RDS_PRELOAD_SPIN_US="0")
KERNEL = Side("kernel", rds=True, **ADDRESSES)
RAW, RAW_EVENTS = Side("raw"), Side("raw-events")


class RdmaBench:
    def __init__(self, setup, report, rounds, seconds, quick, device, cpus):
        self.setup, self.report, self.rounds, self.quick, self.cpus = setup, report, rounds, quick, cpus
        self.ms, self.has_kernel = max(20, int(seconds * 1000)), device == "rxe"
        self.perftest = Perftest(device + "0", ADDRESSES["host"], cpus, seconds, setup.limit)
        self.tos = 0

    def interleave(self, row, sides, measure):
        """Runs measure(side) for all sides, then again. A side that fails is reported and left out."""
        data, sides = {}, [side for side in sides if side is not KERNEL or self.has_kernel]
        for _ in range(self.rounds):
            for side in list(sides):
                try:
                    values = measure(side)
                except Fault as e:
                    self.report.fault(row, type(e)(f"{side.name}: {e}"))
                    sides.remove(side)
                    data.pop(side.name, None)
                    continue
                for metric, value in values.items():
                    data.setdefault(side.name, {}).setdefault(metric, []).append(value)
        self.report.figures(row, data)
        return data


def machine_idle():
    """Nanoseconds that all processors together have been idle."""
    with open("/proc/stat", encoding="ascii") as f:
        words = f.readline().split()
    return (int(words[4]) + int(words[5])) * 1e9 / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def busy_time():
    """A list that gets the time that processors were busy meanwhile."""
    result, idle, start = [], machine_idle(), time.monotonic_ns()
    yield result
    result.append(max(0, (time.monotonic_ns() - start) * os.cpu_count() - (machine_idle() - idle)))


def round_trips(bench, side, **options):
    with workers() as started:
        server, client = start_pair(bench.setup, side, "rtt", ("server", "client"), started, bench.cpus,
                                    seconds=bench.ms, **options)
        with busy_time() as busy:
            client.tell("go")
            c = client.result()
        s = server.result()
    if c["msgs"] != s["msgs"]:
        raise Fault(f"{c['msgs']:.0f} round trips asked, {s['msgs']:.0f} answered")
    return {"ns_mean": c["ns"] / c["msgs"], "ns_p50": c["p50"], "ns_p99": c["p99"], "cpu": busy[0] / c["msgs"]}


def one_way(bench, side, **options):
    with workers() as started:
        receiver, sender = start_pair(bench.setup, side, "stream", ("receiver", "sender"), started, bench.cpus,
                                      seconds=bench.ms, **options)
        with busy_time() as busy:
            sender.tell("go")
            s, r = sender.result(), receiver.result()
    if s["msgs"] != r["msgs"]:
        raise Fault(f"{s['msgs']:.0f} messages sent, {r['msgs']:.0f} received")
    rate = r["timed"] * 1e9 / r["ns"]
    return {"msgs": rate, "mbs": rate * options["size"] / 1e6, "cpu": busy[0] / r["msgs"]}


def row_rtt(bench):
    """round trip of 64 B"""
    bench.report.heading("rtt", row_rtt.__doc__)
    data = bench.interleave("rtt", [KERNEL, OURS, RAW], lambda side: bench.perftest.run("ib_send_lat", 64)
                            if side is RAW else round_trips(bench, side))
    bench.report.ratio("rtt", data, "ns_mean", "ours", "kernel", "<=", 1 / 4)
    bench.report.ratio("rtt", data, "ns_mean", "ours", "raw", "<=", 1.5)
    bench.report.ratio("rtt", data, "cpu", "ours", "kernel", "<=", 1)


def row_sleep(bench):
    """round trip of 64 B, both sides sleep while they wait (RDS_PRELOAD_SPIN_US=0; perftest: -e)"""
    bench.report.heading("sleep", row_sleep.__doc__)
    data = bench.interleave("sleep", [KERNEL, SLEEPING, RAW_EVENTS],
                            lambda side: bench.perftest.run("ib_send_lat", 64, events=True) if side is RAW_EVENTS
                            else round_trips(bench, side))
    bench.report.ratio("sleep", data, "ns_mean", "ours-sleep", "kernel", "<=", 1)
    bench.report.ratio("sleep", data, "cpu", "ours-sleep", "kernel", "<=", 1)
    bench.report.ratio("sleep", data, "ns_mean", "ours-sleep", "raw-events", "<=", 1, False)


def row_rate(bench):
    """messages one way, 32 in flight, an acknowledgement by the program every 16"""
    for name, size in (("rate64", 64), ("rate1k", 1024)):
        bench.report.heading(name, f"{size} B " + row_rate.__doc__)
        data = bench.interleave(name, [KERNEL, OURS, RAW], lambda side, size=size: bench.perftest.run(
            "ib_send_bw", size, depth=32) if side is RAW else one_way(bench, side, size=size, window=32,
                                                                      buffer=1 << 20))
        bench.report.ratio(name, data, "msgs", "ours", "kernel", ">=", 3)
        bench.report.ratio(name, data, "msgs", "ours", "raw", ">=", 1, False)
        bench.report.ratio(name, data, "cpu", "ours", "kernel", "<=", 1)


def row_bandwidth(bench):
    """messages one way, 1 MiB in flight, an acknowledgement by the program every half of that"""
    for size in (8192, 65536):
        name = f"bw{size >> 10}k"
        bench.report.heading(name, f"{size >> 10} KiB " + row_bandwidth.__doc__)
        data = bench.interleave(name, [KERNEL, OURS, RAW], lambda side, size=size: bench.perftest.run(
            "ib_send_bw", size) if side is RAW else one_way(bench, side, size=size, window=(1 << 20) // size,
                                                            buffer=4 << 20))
        bench.report.ratio(name, data, "mbs", "ours", "raw", ">=", 0.9)
        bench.report.ratio(name, data, "mbs", "ours", "kernel", ">=", 1, False)
        bench.report.ratio(name, data, "cpu", "ours", "kernel", "<=", 1)


def first_message(bench, side):
    """The kernel keeps connections, so each time is one of a type of service that was not used before."""
    bench.tos += 1
    with workers() as started:
        _, client = pair = start_pair(bench.setup, side, "rtt", ("server", "client"), started, bench.cpus,
                                      modes=("rtt", "first"), tos=bench.tos)
        client.tell("go")
        values = {"us_first": client.result()["ns"] / 1e3}
        pair[0].result()
    return values


def row_first(bench):
    """first message to a new peer and its answer, connecting included"""
    bench.report.heading("first", row_first.__doc__)
    data = bench.interleave("first", [KERNEL, OURS], lambda side: first_message(bench, side))
    bench.report.ratio("first", data, "us_first", "ours", "kernel", "<=", 1)


def status_kib(pid, key):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(key + ":"))


def connected(bench, connections, processes):
    """A busy connection of a server that has so many others."""
    with workers() as started:
        server = Worker(bench.setup, OURS, "rtt", role="server", cpus=bench.cpus[0])
        started.append(server)
        address = server.expect("addr")
        server.expect("ready")
        begin, others = time.monotonic(), []
        for _ in range(processes):
            w = Worker(bench.setup, OURS, "many", idle=connections // processes, host=OURS.peer, cpus=bench.cpus[1])
            started.append(w)
            others.append(w)
            w.tell(f"peer {address}")
            w.expect("ready")
        took = time.monotonic() - begin
        client = Worker(bench.setup, OURS, "rtt", role="client", cpus=bench.cpus[1], seconds=bench.ms, host=OURS.peer)
        started.append(client)
        client.tell(f"peer {address}")
        client.expect("ready")
        values = {key: status_kib(server.pid, name) / 1024  # now: it ends with the client
                  for key, name in (("MiB_pinned", "VmPin"), ("MiB_rss", "VmRSS"))}
        client.tell("go")
        c = client.result()
        values.update(ns_mean=c["ns"] / c["msgs"], s_connect=took)
        for w in others:
            w.tell("go")
            w.result()
    return values


def row_many(bench):
    """round trip of 64 B to a process that has many silent connections: types of service of several processes"""
    many = 100 if bench.quick else MANY
    bench.report.heading("many", row_many.__doc__)
    few, lots = mine(f"ours-{FEW}"), mine(f"ours-{many}")
    data = bench.interleave("many", [few, lots], lambda side: connected(
        bench, FEW if side is few else many, 2 if side is few else MANY_PROCESSES if not bench.quick else 4))
    bench.report.ratio("many", data, "MiB_pinned", lots.name, few.name, "<=", 1.2)
    bench.report.ratio("many", data, "ns_mean", lots.name, few.name, "<=", 1.2)


ROWS = {"rtt": row_rtt, "sleep": row_sleep, "rate": row_rate, "bandwidth": row_bandwidth, "first": row_first,
        "many": row_many}
