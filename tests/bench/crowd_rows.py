# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The rows about many processes: a crowd that exchanges messages all to all, and one server of many clients.

Both sides are the same program: one non-blocking socket and poll; unix is SOCK_DGRAM there, not a pair."""

from procs import Fault, Side, Worker, workers
from rows import rds

CROWDS = (16, 64, 200)
PROBE = 24  # processes of the small crowd that tells what a larger one will take
KERNEL = ("Slab", "KernelStack", "Percpu")


def meminfo(*kinds):
    """MiB of the whole machine."""
    with open("/proc/meminfo", encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f if line.split(":")[0] in kinds) / 1024


def limit(bench, processes):
    """Seconds; a crowd has pairs as the square of its processes, and a measurement has an end however slow it is."""
    return max(bench.setup.limit, processes * processes // 1000)


def exchange(bench, side, processes, each):
    """One crowd: start, first contact, so many messages from each to each, with the memory that all of it takes: of
    its processes, which they know exactly, and of the kernel for sockets and files, in which other jobs show."""
    pairs = processes * (processes - 1)
    before = meminfo(*KERNEL)
    memory = []

    def part(worker, word):
        values = worker.values(word)
        memory.append(values["kib"] / 1024 + max(0, meminfo(*KERNEL) - before))
        worker.tell("go")
        return values

    with workers() as started:
        w = Worker(bench.setup, side, "crowd", idle=processes, window=each, files=bench.files, cpus=bench.both_cpus(),
                   limit=limit(bench, processes))
        started.append(w)
        start = w.values("ready")
        memory.append(start["kib"] / 1024 + max(0, meminfo(*KERNEL) - before))
        w.tell("go")
        contact, rate = part(w, "contact"), part(w, "rate")
        cpu = w.result()
    return {"msgs": pairs * each * 1e9 / rate["ns"], "cpu": cpu["rate_ns"] / (pairs * each),
            "s_start": start["ns"] / 1e9, "s_contact": contact["ns"] / 1e9,
            "us_start": cpu["start_ns"] / processes / 1e3, "us_contact": cpu["contact_ns"] / pairs / 1e3,
            "MiB_start": memory[0], "MiB_contact": memory[1], "MiB_peak": max(memory),
            "KiB_each": max(memory) * 1024 / processes, "KiB_pair": (memory[1] - memory[0]) * 1024 / pairs,
            "fds": rate["fds"]}


def enough_memory(bench, row, side, processes):
    """Whether this machine can hold the crowd, by what a small one takes for each pair.  It says so if not."""
    try:
        small = exchange(bench, side, PROBE, 2)
    except Fault as e:
        bench.report.fault(row, e)
        return False
    pair = (small["MiB_peak"] - small["MiB_start"]) / (PROBE * (PROBE - 1))
    need = small["MiB_start"] / PROBE * processes + pair * processes * (processes - 1)
    have = meminfo("MemAvailable")
    if need > 0.8 * have:
        bench.report.skip(row, f"{processes} processes would take some {need:.0f} MiB, and {have:.0f} are available")
    return need <= 0.8 * have


def one_crowd(bench, n):
    row = f"crowd{n}"
    bench.report.heading(row, f"{n} {row_crowd.__doc__}" + (f"; ulimit -n {bench.files}" if bench.files else ""))
    each = max(2, int(bench.seconds * 300000 / (n * n)))
    mine, other = rds(name=f"rds-{n}"), Side(f"unix-{n}")
    if not bench.baseline and not enough_memory(bench, row, mine, n):
        return
    data = bench.interleave(row, [other] if bench.baseline else [mine, other],
                            lambda side: exchange(bench, side, n, each))
    bench.report.ratio(row, data, "msgs", mine.name, other.name, ">=", 2)
    for metric, most in (("us_contact", 30), ("fds", 40)):
        bench.report.median(row, data, metric, mine.name, "<=", most)
    if n in (200, 1000):
        seconds, mib = (1.5, 100) if n < 1000 else (60, 2048)
        bench.report.median(row, data, "s_contact", mine.name, "<=", seconds)
        bench.report.median(row, data, "MiB_contact", mine.name, "<=", mib)


def row_crowd(bench):
    """processes all to all, 64 B: first contact (a message of each to each, us per directed pair), then the rate"""
    for n in bench.crowds or (CROWDS[:1] if bench.quick else CROWDS):
        one_crowd(bench, n)


def served(bench, side, clients, files):
    with workers() as started:
        w = Worker(bench.setup, side, "clients", idle=clients + 1, files=files, cpus=bench.both_cpus(),
                   seconds=10000 * bench.setup.slow)
        started.append(w)
        w.expect("ready")
        w.tell("go")
        r = w.result()
    return {"served": r["served"], "s_wall": r["ns"] / 1e9, "fds": r["fds"], "us_client": r["cpu_ns"] / clients / 1e3}


def row_clients(bench):
    """one server and many clients, one message each at once and its answer: who has it within 10 s of an idle machine"""
    for clients, files in ((40, 64),) if bench.quick else ((400, 1024), (1000, 256)):
        row = f"clients{clients}"
        bench.report.heading(row, f"{row_clients.__doc__}; {clients} clients, ulimit -n {files}")
        data = bench.interleave(row, bench.sides(Side("unix"), outer=False),
                                lambda side, clients=clients, files=files: served(bench, side, clients, files),
                                min(bench.rounds, 3))
        bench.report.median(row, data, "served", "rds", ">=", clients)


ROWS = {"crowd": row_crowd, "clients": row_clients}
