# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""qperf's RDS tests under the preload against its UDP and TCP tests without it: rows of the benchmark.

Targets: rds_lat below a tenth of udp_lat, rds_bw above udp_bw (what was received) and tcp_bw, at every size. UDP cannot
carry 64 KiB: there it sends 65507 bytes."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "programs"))

import qperf_tool  # noqa: E402
from procs import Fault, Late  # noqa: E402

SIZES = (1, 64, 1024, 8192, 65536)


def run_test(server, test, size, seconds, cpus):
    try:
        return server.run(test, size, seconds, cpus)
    except qperf_tool.QperfLate as e:
        raise Late(str(e)) from None
    except qperf_tool.QperfFault as e:
        raise Fault(str(e)) from None


def measure(bench, row, servers, tests, size, seconds, cpus):
    """{test: {metric: values}} of all rounds; a test that fails is reported and left out."""
    data, tests = {}, list(tests)
    for _ in range(bench.rounds):
        for test in list(tests):
            try:
                values = run_test(servers["rds" if test.startswith("rds") else "plain"], test, size, seconds, cpus)
            except Fault as e:
                bench.report.fault(row, e)
                tests.remove(test)
                data.pop(test, None)
                continue
            name, value = ("ns", values["latency"]) if "latency" in values else ("mbs", values["bw"] / 1e6)
            data.setdefault(test, {}).setdefault(name, []).append(value)
    bench.report.figures(row, data)
    return data


def run_size(bench, servers, size, seconds, place, cpus):
    mine, report = ([] if bench.baseline else ["rds"]), bench.report
    row = f"qperf-lat{size}.{place}"
    report.heading(row, f"qperf latency one way, {size} B, {place}")
    data = measure(bench, row, servers, [f"{t}_lat" for t in mine + ["udp"]], size, seconds, cpus)
    report.ratio(row, data, "ns", "rds_lat", "udp_lat", "<=", 0.1)
    row = f"qperf-bw{size}.{place}"
    report.heading(row, f"qperf bandwidth, {size} B, {place}")
    data = measure(bench, row, servers, [f"{t}_bw" for t in mine + ["udp", "tcp"]], size, seconds, cpus)
    report.ratio(row, data, "mbs", "rds_bw", "udp_bw", ">=", 1)
    report.ratio(row, data, "mbs", "rds_bw", "tcp_bw", ">=", 1)


def row_qperf(bench, sizes=SIZES, seconds=1, places=("pinned", "free")):
    """qperf rds_lat and rds_bw against udp_lat, udp_bw and tcp_bw"""
    if not qperf_tool.installed():
        bench.report.skip("qperf", "qperf is missing (package qperf)")
        return
    if bench.quick:
        sizes, places = (sizes[0], sizes[-1]), ("free",)
    environment = bench.setup.environment(preload=False)
    mine = environment if bench.baseline else bench.setup.environment(preload=True)
    try:
        with qperf_tool.server(environment) as plain, qperf_tool.server(mine) as rds:
            for place, cpus in (("pinned", bench.setup.cpus), ("free", None)):
                if place not in places or (place == "pinned" and not cpus):
                    continue
                for size in sizes:
                    run_size(bench, {"plain": plain, "rds": rds}, size, seconds, place, cpus)
    except qperf_tool.QperfFault as e:
        bench.report.fault("qperf", str(e))
