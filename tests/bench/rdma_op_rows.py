# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The rows of RDS's RDMA interface over an RDMA device: the preload, kernel RDS and perftest, in turn.

Regions are made by RDS_CMSG_RDMA_MAP on both sides: RDS_GET_MR ends in EOPNOTSUPP in the kernel."""

import os
import subprocess

from op_rows import WINDOW, calls, operations
from procs import HERE, Worker, workers
from rdma_rows import KERNEL, OURS, RAW


def measured(bench, side, size, read):
    values = operations(bench.setup, side, bench.cpus, size, bench.ms, read=int(read), map=1)
    return {"mbs": values["mbs"], "msgs": values["msgs"]}


def compared(bench, row, size, read, text):
    program = "ib_read_bw" if read else "ib_write_bw"
    bench.report.heading(row, text)
    return bench.interleave(row, [KERNEL, OURS, RAW], lambda side: bench.perftest.run(program, size, depth=WINDOW)
                            if side is RAW else measured(bench, side, size, read))


def row_write64k(bench):
    """RDMA writes of 64 KiB, each with a message of 64 B, 8 in flight (raw: ib_write_bw -t 8)"""
    data = compared(bench, "write64k", 65536, False, row_write64k.__doc__)
    bench.report.ratio("write64k", data, "mbs", "ours", "raw", ">=", 0.9)
    bench.report.ratio("write64k", data, "mbs", "ours", "kernel", ">=", 1.5)


def row_read64k(bench):
    """RDMA reads of 64 KiB, each with a message of 64 B, 8 in flight (raw: ib_read_bw -t 8)"""
    data = compared(bench, "read64k", 65536, True, row_read64k.__doc__)
    bench.report.ratio("read64k", data, "mbs", "ours", "raw", ">=", 0.9)
    bench.report.ratio("read64k", data, "mbs", "ours", "kernel", ">=", 1.5)


def row_op4k(bench):
    """RDMA writes of 4 KiB, each with a message of 64 B, 8 in flight (raw: ib_write_bw -t 8)"""
    data = compared(bench, "op4k", 4096, False, row_op4k.__doc__)
    bench.report.ratio("op4k", data, "msgs", "ours", "kernel", ">=", 2)
    bench.report.ratio("op4k", data, "msgs", "ours", "raw", ">=", 1, False)


class RegMr(Worker):
    """The program regmr in place of the worker: the same lines, no options."""

    def __init__(self, setup, device, size, milliseconds):
        super().__init__(setup, RAW, "regmr", command=[regmr(setup.worker), device, str(size), str(milliseconds)])


def regmr(worker):
    return os.path.join(os.path.dirname(worker), "regmr")


def build_regmr(directory):
    """Needs libibverbs' headers, which nothing else here does; without them the row getmr has no other side."""
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-o",
               os.path.join(directory, "regmr"), os.path.join(HERE, "regmr.c"), "-libverbs"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def registrations(bench, size):
    with workers() as started:
        w = RegMr(bench.setup, bench.perftest.device, size, bench.ms)
        started.append(w)
        w.expect("ready")
        w.tell("go")
        return {"call": w.result()["ps"] / 1e3}


def row_getmr(bench):
    """RDS_GET_MR and RDS_FREE_MR of 64 KiB that were a region before (raw: ibv_reg_mr and ibv_dereg_mr)"""
    bench.report.heading("getmr", row_getmr.__doc__)
    sides = [OURS]
    if os.path.exists(regmr(bench.setup.worker)):
        sides.append(RAW)
    else:
        bench.report.note("getmr", "no headers of libibverbs: nothing to compare with")
    data = bench.interleave("getmr", sides, lambda side: registrations(bench, 65536) if side is RAW else
                            {"call": calls(bench.setup, side, bench.cpus[0], "getmr", bench.ms, 65536)["call"]})
    bench.report.ratio("getmr", data, "call", "ours", "raw", "<=", 1 / 10)


ROWS = {"write64k": row_write64k, "read64k": row_read64k, "op4k": row_op4k, "getmr": row_getmr}
