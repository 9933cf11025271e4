# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The rows of RDS's RDMA interface on one host, and the measurements that they share with those over a device.

They run with a process on each core (where there are two) and not where the scheduler likes."""

import statistics

from procs import Fault, Side, Worker, start_pair, workers
from rows import UNIX, rds

MESSAGE, WINDOW = 64, 8


def operations(setup, side, cpus, size, seconds, window=WINDOW, **options):
    """One measurement of operations with an immediate message each."""
    with workers() as started:
        target, initiator = start_pair(setup, side, "rdmaop", ("target", "initiator"), started, cpus, size=size,
                                       window=window, seconds=seconds, **options)
        initiator.tell("go")
        i, t = initiator.result(), target.result()
    if i["msgs"] != t["msgs"]:
        raise Fault(f"{i['msgs']:.0f} operations begun, {t['msgs']:.0f} arrived")
    return {"msgs": i["msgs"] * 1e9 / i["ns"], "mbs": i["msgs"] * size * 1e3 / i["ns"],
            "ns_mean": i["ns"] / i["msgs"]}


def copies(setup, side, cpus, size, seconds, what, read):
    """One process copies to or from another's memory, without RDS."""
    with workers() as started:
        target, copier = start_pair(setup, side, "copy", ("target", "copier"), started, cpus, size=size, window=WINDOW,
                                    seconds=seconds, what=what, read=int(read))
        copier.tell("go")
        c = copier.result()
        target.tell(f"go {c['last']:.0f}")
        target.result()
    return {"msgs": c["msgs"] * 1e9 / c["ns"], "mbs": c["msgs"] * size * 1e3 / c["ns"]}


def calls(setup, side, cpu, what, seconds, size=MESSAGE):
    """Time of one call that moves nothing, and the system call that it made where it must not (-1: none)."""
    with workers() as started:
        w = Worker(setup, side, "call", what=what, cpus=cpu, seconds=seconds, size=size)
        started.append(w)
        w.expect("ready")
        w.tell("go")
        r = w.result()
    return {"call": r["ps"] / 1e3, "forbidden": r["forbidden"]}


def without(bench, row):
    """Kernel RDS has no RDMA between two addresses of a host without a device."""
    if bench.setup.native:
        bench.report.skip(row, "no RDMA on one host in the kernel")
    return bench.setup.native


def bandwidth(bench, row, size, read, text, judged):
    bench.report.heading(row, text)
    if without(bench, row):
        return
    place, cpus = next(bench.placements())
    vm, memcpy = Side("vm-readv" if read else "vm-writev"), Side("memcpy")

    def measure(side):
        if side.rds:
            return operations(bench.setup, side, cpus, size, bench.ms(), read=int(read))
        return copies(bench.setup, side, cpus, size, bench.ms(), "vm" if side is vm else "memcpy", read)

    data = bench.interleave(row, bench.sides(vm, memcpy, outer=False), measure)
    bench.report.ratio(row, data, "mbs", "rds", vm.name, ">=", 0.8, judged and bench.judged(place))
    bench.report.ratio(row, data, "mbs", "rds", memcpy.name, ">=", 0.8, False)


def row_write64k(bench):
    """RDMA writes of 64 KiB, each with a message of 64 B, 8 in flight"""
    bandwidth(bench, "write64k", 65536, False, row_write64k.__doc__, True)


def row_write1m(bench):
    """RDMA writes of 1 MiB, each with a message of 64 B, 8 in flight"""
    bandwidth(bench, "write1m", 1 << 20, False, row_write1m.__doc__, True)


def row_read64k(bench):
    """RDMA reads of 64 KiB, each with a message of 64 B, 8 in flight"""
    bandwidth(bench, "read64k", 65536, True, row_read64k.__doc__, False)


def row_read1m(bench):
    """RDMA reads of 1 MiB, each with a message of 64 B, 8 in flight"""
    bandwidth(bench, "read1m", 1 << 20, True, row_read1m.__doc__, False)


def row_op4k(bench):
    """RDMA write of 4 KiB with a message of 64 B, and an answer of 64 B (others: 4 KiB + 64 B in one message)"""
    bench.report.heading("op4k", row_op4k.__doc__)
    if without(bench, "op4k"):
        return
    place, cpus = next(bench.placements())
    message = rds(name="rds-message")
    sides = bench.sides(*([] if bench.baseline else [message]), UNIX, outer=False)
    data = bench.interleave("op4k", sides, lambda side: {
        "ns_mean": operations(bench.setup, side, cpus, 4096, bench.ms(), window=1,
                              what="message" if side is message else "")["ns_mean"]})
    bench.report.ratio("op4k", data, "ns_mean", "rds", "unix", "<=", 1 / 20, bench.judged(place))
    bench.report.ratio("op4k", data, "ns_mean", "rds", "rds-message", "<=", 2, bench.judged(place))


def alone(bench, row, heading):
    """The processors for a row without another side; None: not this time"""
    if bench.baseline:
        return None
    bench.report.heading(row, heading)
    return None if without(bench, row) else next(bench.placements())[1]


def row_getmr(bench):
    """RDS_GET_MR and RDS_FREE_MR of 64 KiB that were a region before"""
    cpus = alone(bench, "getmr", row_getmr.__doc__)
    if not cpus:
        return
    bench.interleave("getmr", [rds()], lambda side: {
        "call": calls(bench.setup, side, cpus[0], "getmr", bench.ms(0.3), 65536)["call"]})


def row_barrier(bench):
    """RDS_BARRIER with nothing outstanding, and poll(2) of a socket that has nothing"""
    cpus = alone(bench, "barrier", row_barrier.__doc__)
    if not cpus:
        return
    for what in ("barrier", "poll"):
        entered = set()

        def measure(side, what=what, entered=entered):
            values = calls(bench.setup, side, cpus[0], what, bench.ms(0.3))
            entered.update({int(values["forbidden"])} - {-1})
            return {"call": values["call"]}

        data = bench.interleave("barrier", [rds(name=what)], measure)
        if what not in data:
            continue
        values = data[what]["call"]
        bench.report.value("barrier", f"ns per call: {what}", statistics.median(values), "<=", 100,
                           spread=f"{min(values):.1f} .. {max(values):.1f} ns")
        numbers = " (number " + ", ".join(map(str, sorted(entered))) + ")" if entered else ""
        bench.report.value("barrier", f"system calls: {what}{numbers}", len(entered), "<=", 0)


ROWS = {"write64k": row_write64k, "write1m": row_write1m, "read64k": row_read64k, "read1m": row_read1m,
        "op4k": row_op4k, "getmr": row_getmr, "barrier": row_barrier}
