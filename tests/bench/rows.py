# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The rows of the benchmark: what is measured, on which sides, against which target.

Each row takes a Bench, measures all its sides in turn, round by round, and hands figures and ratios to the report."""

import os
import time

from procs import Fault, Side, Worker, start_hogs, start_pair, workers

UNIX = Side("unix")
UNIX_SPIN = Side("unix-spin", spin=True)
PLAIN = Side("plain")
HERD = Side("herd", preload=True)  # has no RDS socket itself; its members inherit the environment


def rds(host="127.0.0.1", name="rds", spin=False):
    return Side(name, rds=True, preload=True, spin=spin, host=host)


class Bench:
    def __init__(self, setup, report, rounds, seconds, quick, outer, baseline, crowds=(), files=0):
        self.setup, self.report, self.rounds, self.seconds = setup, report, rounds, seconds
        self.quick, self.outer, self.baseline = quick, outer, baseline
        self.crowds, self.files = crowds, files  # of the row crowd: processes, and descriptors of each (0: as many as we)

    def ms(self, factor=1.0):
        return max(20, int(self.seconds * factor * 1000))

    def placements(self):
        """Where the two processes run: on a core each, and where the scheduler likes."""
        if self.setup.cpus:
            yield "pinned", tuple(str(c) for c in self.setup.cpus)
        yield "free", ("", "")

    def judged(self, place):
        """The targets are for two processes on two processors; where the scheduler puts them is not ours to answer for."""
        return place == "pinned" or not self.setup.cpus

    def both_cpus(self):
        return ",".join(str(c) for c in self.setup.cpus or ())

    def sides(self, *others, outer=True):
        """RDS on the loopback address and, if there is one, on another; then those it is compared with."""
        mine = [] if self.baseline else [rds()]
        if mine and outer and self.outer:
            mine.append(rds(self.outer, "rds-outer"))
        return mine + list(others)

    def interleave(self, row, sides, measure, rounds=None):
        """Runs measure(side) for all sides, then again. A side that fails is reported and left out."""
        data = {}
        sides = list(sides)
        for _ in range(rounds or self.rounds):
            for side in list(sides):
                try:
                    values = measure(side)
                except Fault as e:
                    self.report.fault(row, e)
                    sides.remove(side)
                    data.pop(side.name, None)
                    continue
                for metric, value in values.items():
                    data.setdefault(side.name, {}).setdefault(metric, []).append(value)
        self.report.figures(row, data)
        return data


def round_trips(bench, side, cpus, factor=1.0, before=None, look=None, **options):
    """One measurement of round trips; `before` may start others that share the machine or the server, `look` at the two."""
    with workers() as started:
        if before:
            before(started)
        server, client = start_pair(bench.setup, side, "rtt", ("server", "client"), started, cpus,
                                    seconds=bench.ms(factor), **options)
        if look:
            look(server, client)
        client.tell("go")
        c, s = client.result(), server.result()
    if c["msgs"] != s["msgs"]:
        raise Fault(f"{side.name}: {c['msgs']:.0f} round trips asked, {s['msgs']:.0f} answered")
    return {"ns_mean": c["ns"] / c["msgs"], "ns_p50": c["p50"], "ns_p99": c["p99"],
            "cpu": (c["cpu_ns"] + s["cpu_ns"]) / c["msgs"]}


def row_rtt(bench):
    """round trip of 64 B, sendto and recvfrom"""
    for place, cpus in bench.placements():
        row = f"rtt.{place}"
        bench.report.heading(row, row_rtt.__doc__ + f", {place}")
        sides = bench.sides(UNIX, UNIX_SPIN) + ([] if bench.baseline else [rds(name="rds-spin", spin=True)])
        data = bench.interleave(row, sides, lambda side, cpus=cpus: round_trips(bench, side, cpus))
        for mine in ("rds", "rds-outer"):
            bench.report.ratio(row, data, "ns_mean", mine, "unix", "<=", 1 / 50, bench.judged(place))
            bench.report.ratio(row, data, "ns_mean", mine, "unix-spin", "<=", 1 / 4, bench.judged(place))


def row_loaded(bench):
    """round trip of 64 B while two hogs take all the time they get"""
    for place, cpus in bench.placements():
        row = f"loaded.{place}"
        bench.report.heading(row, row_loaded.__doc__ + f", {place}")

        def measure(side, cpus=cpus):
            return round_trips(bench, side, cpus, 2, lambda started: start_hogs(bench.setup, started, cpus))

        data = bench.interleave(row, bench.sides(UNIX, UNIX_SPIN, outer=False), measure)
        bench.report.ratio(row, data, "ns_mean", "rds", "unix", "<=", 1 / 50, bench.judged(place))
        bench.report.ratio(row, data, "ns_mean", "rds", "unix-spin", "<=", 1 / 4, bench.judged(place))


def one_way(bench, side, cpus, **options):
    with workers() as started:
        receiver, sender = start_pair(bench.setup, side, "stream", ("receiver", "sender"), started, cpus,
                                      seconds=bench.ms(), **options)
        sender.tell("go")
        s, r = sender.result(), receiver.result()
    if s["msgs"] != r["msgs"]:
        raise Fault(f"{side.name}: {s['msgs']:.0f} messages sent, {r['msgs']:.0f} received")
    size = options["size"]
    return {"msgs": r["timed"] * 1e9 / r["ns"], "mbs": r["timed"] * size * 1e3 / r["ns"],
            "cpu": (s["cpu_ns"] + r["cpu_ns"]) / r["msgs"], "sndbuf": sender.ready["sndbuf"]}


def row_rate(bench):
    """64 B one way, 32 in flight, an acknowledgement by the program every 16"""
    for place, cpus in bench.placements():
        row = f"rate.{place}"
        bench.report.heading(row, row_rate.__doc__ + f", {place}")
        data = bench.interleave(row, bench.sides(UNIX, UNIX_SPIN),
                                lambda side, cpus=cpus: one_way(bench, side, cpus, size=64, window=32, buffer=1 << 20))
        for mine in ("rds", "rds-outer"):
            bench.report.ratio(row, data, "msgs", mine, "unix", ">=", 8, bench.judged(place))
            bench.report.ratio(row, data, "cpu", mine, "unix", "<=", 0.5, bench.judged(place))


def row_burst(bench):
    """64 B one way, bounded only by 1 MiB socket buffers (for information)"""
    for place, cpus in bench.placements():
        row = f"burst.{place}"
        bench.report.heading(row, row_burst.__doc__ + f", {place}")
        bench.interleave(row, bench.sides(UNIX, outer=False),
                         lambda side, cpus=cpus: one_way(bench, side, cpus, size=64, window=0, buffer=1 << 20))


def row_bandwidth(bench):
    """large messages one way, socket buffers of 4 MiB"""
    for place, cpus in bench.placements():
        for size, target, cpu in ((8192, 2.5, 0.5), (65536, 2.5, 0.5), (1 << 20, 1, 1)):
            row = f"bw{size >> 10}k.{place}"
            bench.report.heading(row, f"{size >> 10} KiB, " + row_bandwidth.__doc__ + f", {place}")
            data = bench.interleave(row, bench.sides(UNIX), lambda side, cpus=cpus, size=size: one_way(
                bench, side, cpus, size=size, window=0, buffer=4 << 20))
            for mine in ("rds", "rds-outer"):
                bench.report.ratio(row, data, "mbs", mine, "unix", ">=", target, bench.judged(place))
                bench.report.ratio(row, data, "cpu", mine, "unix", "<=", cpu, bench.judged(place))


def paced(bench, side, cpus, gap_us, reply, seconds):
    options = {"gap_us": gap_us, "reply": int(reply), "seconds": int(seconds * 1000), "size": 64}
    with workers() as started:
        if side is PLAIN:  # the rhythm alone, nothing sent
            w = Worker(bench.setup, side, "paced", role="pacer", cpus=cpus[1], **options)
            started.append(w)
            w.expect("ready")
            w.tell("go")
            r = w.result()
            return {"cpu": r["cpu_ns"] / r["msgs"]}
        receiver, sender = start_pair(bench.setup, side, "paced", ("receiver", "sender"), started, cpus, **options)
        sender.tell("go")
        s, r = sender.result(), receiver.result()
    if s["msgs"] != r["msgs"]:
        raise Fault(f"{side.name}: {s['msgs']:.0f} messages sent, {r['msgs']:.0f} received")
    values = {"us_oneway": r["p50"] / 1e3, "us_oneway99": r["p99"] / 1e3, "sleeps": r["sleeps"] / r["msgs"],
              "cpu": (s["cpu_ns"] + r["cpu_ns"]) / r["msgs"]}
    if reply:
        values.update({"us_trip": s["p50"] / 1e3, "us_trip99": s["p99"] / 1e3})
    return values


def row_paced(bench):
    """CPU time of a stream of 1000 messages of 64 B per second"""
    for place, cpus in bench.placements():
        row = f"paced.{place}"
        bench.report.heading(row, row_paced.__doc__ + f", {place} (plain: the sender's rhythm alone)")
        data = bench.interleave(row, bench.sides(UNIX, outer=False) + [PLAIN], lambda side, cpus=cpus: paced(
            bench, side, cpus, 1000, False, 0.3 if bench.quick else max(1, bench.seconds * 2)))
        bench.report.ratio(row, data, "cpu", "rds", "unix", "<=", 1, False)


def row_wake(bench):
    """waking a receiver that sleeps, one message of 64 B every 2 ms"""
    for place, cpus in bench.placements():
        for reply, metric in ((False, "us_oneway"), (True, "us_trip")):
            row = f"wake.{'trip' if reply else 'oneway'}.{place}"
            bench.report.heading(row, row_wake.__doc__ + f", {place}")
            data = bench.interleave(row, bench.sides(UNIX, outer=False), lambda side, cpus=cpus, reply=reply: paced(
                bench, side, cpus, 2000, reply, 0.3 if bench.quick else max(1, bench.seconds * 2)))
            for side, values in data.items():
                if min(values["sleeps"]) < 0.9:  # on a busy machine several messages may wait for one wake-up
                    (bench.report.note if bench.quick else bench.report.fault)(
                        row, f"{side}: the receiver slept only {min(values['sleeps']):.2f} times per message, so "
                             "this is no measurement of waking")
            bench.report.ratio(row, data, metric, "rds", "unix", "<=", 1, bench.judged(place))


def many_to_one(bench, side, senders, cpus):
    """Rate at the receiver, all senders together."""
    options = {"size": 64, "window": 32, "seconds": bench.ms(2), "buffer": 1 << 20}
    with workers() as started:
        receiver = Worker(bench.setup, side, "stream", role="receiver", cpus=cpus[0], senders=senders, **options)
        started.append(receiver)
        address = receiver.expect("addr")
        receiver.expect("ready")
        for i in range(senders):
            w = Worker(bench.setup, side, "stream", role="sender", cpus=cpus[1], id=i, **options)
            started.append(w)
            w.tell(f"peer {address}")
        for w in started[1:]:
            w.expect("ready")
        for w in started[1:]:
            w.tell("go")
        sent = [w.result()["msgs"] for w in started[1:]]
        r = receiver.result()
    if sum(sent) != r["msgs"]:
        raise Fault(f"{side.name}: {sum(sent):.0f} messages sent, {r['msgs']:.0f} received")
    return {"msgs": r["timed"] * 1e9 / r["ns"], "least": min(sent), "most": max(sent)}


def row_senders(bench):
    """64 B to one socket, 32 in flight per sender: many sending processes against one"""
    if bench.baseline:
        return
    many = 8 if bench.quick else 64
    for place, cpus in bench.placements():
        row = f"senders.{place}"
        bench.report.heading(row, row_senders.__doc__ + f", {place}")
        counts = {f"rds-{n}": n for n in (1, many)}
        data = bench.interleave(row, [rds(name=name) for name in counts],
                                lambda side, cpus=cpus: many_to_one(bench, side, counts[side.name], cpus))
        bench.report.ratio(row, data, "msgs", f"rds-{many}", "rds-1", ">=", 0.8, bench.judged(place))


def row_sockets(bench):
    """round trip of 64 B with idle bound sockets in both processes"""
    if bench.baseline:
        return
    many, row = 1000 if bench.quick else 10000, "sockets"
    bench.report.heading(row, row_sockets.__doc__)
    few = rds(name="rds-few")
    place, cpus = next(bench.placements())
    opened = []

    def measure(side):
        with workers() as started:
            server, client = start_pair(bench.setup, side, "rtt", ("server", "client"), started, cpus,
                                        seconds=bench.ms(), idle=0 if side is few else many)
            client.tell("go")
            c = client.result()
            server.result()
        if side is not few:
            opened.append(min(server.ready["idle"], client.ready["idle"]))
        return {"ns_mean": c["ns"] / c["msgs"], "ns_p99": c["p99"]}

    data = bench.interleave(row, [few, rds(name=f"rds-{many}")], measure)
    if opened and min(opened) < many:
        bench.report.note(row, f"only {min(opened):.0f} idle sockets in each process: out of descriptors ({place})")
    bench.report.ratio(row, data, "ns_mean", f"rds-{many}", "rds-few", "<=", 1.2)


def available_memory():
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("MemAvailable"))


def row_peers(bench):
    """round trip of 64 B with idle peers of the server, a process and a socket each"""
    if bench.baseline:
        return
    many, row = 50 if bench.quick else 1000, "peers"
    bench.report.heading(row, row_peers.__doc__)
    few = rds(name="rds-few")
    _, cpus = next(bench.placements())

    def measure(side):
        with workers() as started:
            free = available_memory()
            server = Worker(bench.setup, side, "rtt", role="server", cpus=cpus[0])
            started.append(server)
            address = server.expect("addr")
            server.expect("ready")
            seconds = 0
            if side is not few:
                begin = time.monotonic()
                herd = Worker(bench.setup, HERD, "herd", idle=many, host=side.host)
                started.append(herd)
                herd.tell(f"peer {address}")
                herd.expect("ready")
                seconds = time.monotonic() - begin
            client = Worker(bench.setup, side, "rtt", role="client", cpus=cpus[1], seconds=bench.ms())
            started.append(client)
            client.tell(f"peer {address}")
            client.expect("ready")
            used = free - available_memory()
            client.tell("go")
            c = client.result()
            server.result()
            if side is not few:
                herd.tell("go")
                herd.result()
        return {"ns_mean": c["ns"] / c["msgs"], "ns_p99": c["p99"], "start_s": seconds, "MiB_used": used}

    data = bench.interleave(row, [few, rds(name=f"rds-{many}")], measure)
    bench.report.ratio(row, data, "ns_mean", f"rds-{many}", "rds-few", "<=", 1.2)


def row_others(bench):
    """calls on descriptors that are no RDS sockets; target: 10 ns more than without the preload"""
    _, cpus = next(bench.placements())
    sides = [PLAIN] if bench.baseline else [PLAIN, Side("preload", preload=True),
                                            Side("preload+socket", rds=True, preload=True)]
    for what in ("null", "pipe", "poll"):
        row = f"others.{what}"
        bench.report.heading(row, row_others.__doc__)

        def measure(side, what=what):
            with workers() as started:
                w = Worker(bench.setup, side, "other", what=what, cpus=cpus[0], seconds=bench.ms(0.3))
                started.append(w)
                w.expect("ready")
                w.tell("go")
                return {"call": w.result()["ps"] / 1e3}

        data = bench.interleave(row, sides, measure, rounds=None if bench.quick else bench.rounds * 3)
        for name in ("preload", "preload+socket"):
            if name in data and "plain" in data:
                extra = sorted(a - b for a, b in zip(data[name]["call"], data["plain"]["call"]))
                bench.report.value(row, f"ns per call: {name} - plain", extra[len(extra) // 2], "<=", 10,
                                   spread=f"{extra[0]:.1f} .. {extra[-1]:.1f} ns")


def process_cost(pid):
    """(ticks, run time in ns, context switches) of all threads of a process."""
    ticks = run = switches = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        base = f"/proc/{pid}/task/{task}/"
        with open(base + "stat", encoding="utf-8") as f:
            fields = f.read().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        with open(base + "schedstat", encoding="ascii") as f:
            run += int(f.read().split()[0])
        with open(base + "status", encoding="utf-8") as f:
            switches += sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)
    return ticks, run, switches


def row_idle(bench):
    """two processes that have exchanged a message and now sleep in poll(-1)"""
    if bench.baseline:
        return
    row, seconds = "idle", 2 if bench.quick else max(10, bench.seconds)
    bench.report.heading(row, row_idle.__doc__ + f", watched for {seconds} s")
    try:
        with workers() as started:
            pair = start_poll_pair(bench, started, rds())
            time.sleep(1)  # not part of the claim: what is left over from starting
            before = [process_cost(w.pid) for w in pair]
            time.sleep(seconds)
            after = [process_cost(w.pid) for w in pair]
            for w in pair:
                if w.process.poll() is not None:
                    w.fault("did not go on sleeping")
    except Fault as e:
        bench.report.fault(row, e)
        return
    for i, name in enumerate(("ticks", "ns_run", "switches")):
        values = [b[i] - a[i] for a, b in zip(before, after)]
        bench.report.figures(row, {"receiver": {name: [values[0]]}, "sender": {name: [values[1]]}})
        if name != "ns_run":
            bench.report.value(row, f"{name} of both, all threads", sum(values), "<=", 0)


def start_poll_pair(bench, started, side):
    server = Worker(bench.setup, side, "poll", role="server", enter=side.enter[0])
    started.append(server)
    address = server.expect("addr")
    client = Worker(bench.setup, side, "poll", role="client", host=side.peer, enter=side.enter[1])
    started.append(client)
    client.tell(f"peer {address}")
    for w in (server, client):
        w.expect("ready")
    return server, client


def busy_pairs(bench, side, count):
    """Round trips per second of all pairs together, all on the same two processors."""
    cpus = bench.both_cpus()
    with workers() as started:
        pairs = [start_pair(bench.setup, side, "rtt", ("server", "client"), started, (cpus, cpus),
                            seconds=bench.ms(2)) for _ in range(count)]
        for _, client in pairs:
            client.tell("go")
        results = [client.result() for _, client in pairs]
        for server, _ in pairs:
            server.result()
    rates = [r["msgs"] * 1e9 / r["ns"] for r in results]
    return {"msgs": sum(rates), "msgs_least": min(rates)}


def row_pairs(bench):
    """busy pairs on two processors, round trips of 64 B per second in sum"""
    row = "pairs"
    bench.report.heading(row, row_pairs.__doc__)
    counts = {f"{kind}-{n}": n for kind in (["unix"] if bench.baseline else ["rds", "unix"]) for n in (1, 2, 4)}
    sides = [rds(name=n) if n.startswith("rds") else Side(n) for n in counts]
    data = bench.interleave(row, sides, lambda side: busy_pairs(bench, side, counts[side.name]))
    bench.report.ratio(row, data, "msgs", "rds-4", "rds-2", ">=", 1)
    bench.report.ratio(row, data, "msgs", "unix-4", "unix-2", ">=", 1, False)
    bench.report.ratio(row, data, "msgs", "rds-4", "unix-4", ">=", 1)


ROWS = {"rtt": row_rtt, "loaded": row_loaded, "rate": row_rate, "burst": row_burst, "bandwidth": row_bandwidth,
        "paced": row_paced, "wake": row_wake, "senders": row_senders, "sockets": row_sockets, "peers": row_peers,
        "others": row_others, "idle": row_idle, "pairs": row_pairs}
