# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The rows between two hosts over TCP: the preload against plain TCP sockets (TCP_NODELAY) with the same calls.

The hosts are two network namespaces of this machine that a pair of veth devices joins. CPU time is user and system time
of all threads of the two processes."""

import contextlib
import os
import subprocess

from procs import Fault, Side, workers
from rows import one_way, round_trips, start_poll_pair

HOSTS = ("10.97.0.1", "10.97.0.2")
WAYS = (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"])  # only one who is no root needs the latter
PORT = 16385
ESTABLISHED = "01"


class NoNetwork(Exception):
    """This machine has no such namespaces."""


def hold(command, then="true"):
    """A process that keeps its new namespace until its input ends."""
    p = subprocess.Popen([*command, "sh", "-c", f"{then} && echo there && exec cat"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if p.stdout.readline() == "there\n":
        return p
    raise NoNetwork(p.communicate()[1].strip().rpartition("\n")[2])


def end(p):
    p.communicate()


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Fault(f"{' '.join(command)}: {done.stderr.strip()}")


def first_host(stack):
    """Its process, and the command that enters it."""
    for way in WAYS:
        try:
            p = hold(way, "ip link add va type veth peer name vb")
        except (NoNetwork, OSError) as e:
            why = e
            continue
        stack.callback(end, p)
        user = [f"--user=/proc/{p.pid}/ns/user", "--preserve-credentials"] if "--user" in way else []
        return p, ["nsenter", *user]
    raise NoNetwork(f"no network namespaces with veth devices here: {why}")


@contextlib.contextmanager
def two_hosts():
    """Commands that begin so run on the one, and on the other."""
    with contextlib.ExitStack() as stack:
        a, user = first_host(stack)
        first = [*user, f"--net=/proc/{a.pid}/ns/net"]
        b = hold([*first, "unshare", "--net"])
        stack.callback(end, b)
        enter = (first, [*user, f"--net=/proc/{b.pid}/ns/net"])
        run([*first, "ip", "link", "set", "vb", "netns", str(b.pid)])
        for command, device, address in zip(enter, ("va", "vb"), HOSTS):
            for words in (["link", "set", "lo", "up"], ["link", "set", device, "up"],
                          ["addr", "add", f"{address}/24", "dev", device]):
                run([*command, "ip", *words])
        yield enter


def plain(enter, name="tcp", spin=False):
    return Side(name, tcp=True, spin=spin, host=HOSTS[0], peer=HOSTS[1], enter=enter)


def mine(enter, name="rds", spin=False):
    return Side(name, rds=True, preload=True, spin=spin, host=HOSTS[0], peer=HOSTS[1], enter=enter,
                env={"RDS_PRELOAD_TRANSPORT": "tcp"})


def connections(pid):
    """Inodes of the connections of RDS that its host has."""
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f][1:]
    return {words[9] for words in rows if words[3] == ESTABLISHED and
            PORT in (int(words[1].partition(":")[2], 16), int(words[2].partition(":")[2], 16))}


def has(pid, inodes):
    """One of its threads may have a table of descriptors of its own."""
    for task in os.listdir(f"/proc/{pid}/task"):
        directory = f"/proc/{pid}/task/{task}/fd"
        for fd in os.listdir(directory):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.readlink(f"{directory}/{fd}").strip("socket:[]") in inodes:
                    return True
    return False


def one_connection(owners, members):
    """One connection, and it is the owners'; else this would be no figure of members."""
    for owner, member in zip(owners, members):
        inodes = connections(owner.pid)
        if len(inodes) != 1:
            raise Fault(f"{len(inodes)} connections of one host to another")
        if not has(owner.pid, inodes) or has(member.pid, inodes):
            raise Fault("the connection is not the owner's")


def over_tcp(row_function):
    """A row of this file: with two hosts, or skipped."""
    def row(bench):
        name = f"tcp-{row_function.__name__}"
        if bench.baseline:
            return
        try:
            with two_hosts() as enter:
                row_function(bench, name, enter)
        except NoNetwork as e:
            bench.report.skip(name, str(e))
    row.__doc__ = row_function.__doc__
    return row


def each_place(bench, name, doc):
    for place, cpus in bench.placements():
        row = f"{name}.{place}"
        bench.report.heading(row, f"{doc}, {place}")
        yield row, cpus, bench.judged(place)


@over_tcp
def rtt(bench, name, enter):
    """round trip of 64 B between two hosts; member: the connection is another process's, on both"""
    member = mine(enter, "rds-member")

    def measure(side, cpus):
        if side is not member:
            return round_trips(bench, side, cpus)
        with workers() as owners:
            pair = start_poll_pair(bench, owners, side)
            return round_trips(bench, side, cpus, look=lambda *members: one_connection(pair, members))

    for row, cpus, judged in each_place(bench, name, rtt.__doc__):
        data = bench.interleave(row, [plain(enter), plain(enter, "tcp-spin", True), mine(enter),
                                      mine(enter, "rds-spin", True), member],
                                lambda side, cpus=cpus: measure(side, cpus))
        bench.report.ratio(row, data, "ns_mean", "rds", "tcp", "<=", 1.25, judged)
        bench.report.ratio(row, data, "ns_mean", "rds-spin", "tcp-spin", "<=", 1.25, judged)
        bench.report.ratio(row, data, "ns_mean", "rds-member", "tcp", "<=", 1.6, judged)


@over_tcp
def rate(bench, name, enter):
    """64 B one way between two hosts, 32 in flight, an acknowledgement by the program every 16"""
    for row, cpus, judged in each_place(bench, name, rate.__doc__):
        data = bench.interleave(row, [plain(enter), mine(enter)], lambda side, cpus=cpus: one_way(
            bench, side, cpus, size=64, window=32))
        bench.report.ratio(row, data, "msgs", "rds", "tcp", ">=", 4, judged)


@over_tcp
def bandwidth(bench, _, enter):
    """one way between two hosts"""
    for size in (64 << 10, 1 << 20):
        for row, cpus, judged in each_place(bench, f"tcp-bw{size >> 10}k", f"{size >> 10} KiB {bandwidth.__doc__}"):
            # RDS has buffers of 4 MiB; those of TCP grow by themselves, unless a program sets them
            data = bench.interleave(row, [plain(enter), mine(enter)], lambda side, cpus=cpus, size=size: one_way(
                bench, side, cpus, size=size, window=0, buffer=4 << 20 if side.rds else 0))
            bench.report.ratio(row, data, "mbs", "rds", "tcp", ">=", 0.9, judged)
            bench.report.ratio(row, data, "cpu", "rds", "tcp", "<=", 1.3, judged)


ROWS = {"tcp-rtt": rtt, "tcp-rate": rate, "tcp-bandwidth": bandwidth}
