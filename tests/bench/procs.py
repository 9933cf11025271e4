# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Processes of a measurement: starting workers on either side, talking to them, and ending them by pid.

A worker that dies, answers nonsense or exceeds its time raises Fault: a fault is never a figure.  If nothing but the
time is wrong, it is Late."""

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
SOURCES = ["worker.c", "sock.c", "measure.c", "rtt.c", "stream.c", "paced.c", "other.c", "idle.c", "first.c", "slots.c",
           "rdmaop.c", "copy.c", "call.c", "starts.c", "members.c", "crowd.c", "clients.c"]
WATCHED, HANG, QUIET = "BENCH_WATCHED", 124, 20  # set below a watch; the watch's status; its seconds without progress


class Fault(Exception):
    """Something went wrong in a measurement."""


class Late(Fault):
    """A limit has passed, and nothing wrong was seen."""


class Side:
    """What is compared: a family of sockets, with or without the preload, blocking or spinning."""

    def __init__(self, name, rds=False, preload=False, spin=False, host="127.0.0.1", peer=None, env=None, tcp=False,
                 enter=((), ())):
        self.name, self.rds, self.preload, self.spin, self.host = name, rds, preload, spin, host
        self.peer = peer or host  # where the one that begins has its socket
        self.env, self.tcp = env or {}, tcp
        self.enter = enter  # commands that begin so run where host is, and where peer is


class Setup:
    """What all measurements of one run share.  `limit`: seconds of an idle machine for a worker; `slow`: TEST_SLOW."""

    def __init__(self, library, worker, cpus, native, slow, limit=60):
        self.library, self.worker, self.cpus, self.native = library, worker, cpus, native
        self.slow, self.limit = slow, limit * slow

    def environment(self, preload, more=None):
        env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        if preload and not self.native:
            if not self.library:
                raise Fault("no preload library")
            env["LD_PRELOAD"] = self.library
        env.update(more or {})
        return env


def find_library(given, build):
    """The library that was named, or the one that a build in the tree (or in `build`) has made, or None."""
    if given:
        if not os.path.exists(given):
            raise SystemExit(f"{given}: no such file")
        return os.path.abspath(given)
    for top in filter(None, [build, TOP, os.getcwd()]):
        for place in (".libs", "preload/.libs", "", "preload"):
            path = os.path.join(top, place, "librdspreload.so")
            if os.path.exists(path):
                return os.path.abspath(path)
    return None


def build_worker(directory):
    """The worker needs libc and nothing else, so that it is compiled on the spot."""
    worker = os.path.join(directory, "worker")
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-pthread", "-o", worker]
    subprocess.run(command + [os.path.join(HERE, name) for name in SOURCES], check=True)
    return worker


def build_watch(directory):
    """The program of tests/watch, which measures the machine."""
    watch = os.path.join(directory, "watch")
    sources = [os.path.join(TOP, "tests", "watch", name) for name in ("watch.c", "tree.c", "stacks.c")]
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-o", watch, *sources], check=True)
    return watch


def slowness(watch=None):
    """TEST_SLOW (tests/verdict.bash): how many times slower this machine is than an idle one; known below a watch."""
    if os.environ.get("TEST_SLOW"):
        return int(os.environ["TEST_SLOW"])
    measured = subprocess.run([watch, "--measure"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return int(measured) * int(os.environ.get("TEST_TIMES", "1"))


def watched(name, watch, seconds):
    """This program once more, below a watch: what hangs is wrong, not late.  `seconds`: of a measurement that sleeps."""
    command = [watch, "--name", name, "--quiet", str(QUIET + seconds), "--", sys.executable, *sys.argv]
    # If it is killed, what it has left is in our directory, which goes with us.
    env = {**os.environ, "TEST_SLOW": str(slowness(watch)), WATCHED: "yes", "TMPDIR": os.path.dirname(watch)}
    status = subprocess.run(command, check=False, env=env).returncode
    if status != HANG:
        return status
    print(f"WRONG {name}: it hangs")
    return 1


def two_cores():
    """Two processors that are not threads of one core, or None."""
    mine = sorted(os.sched_getaffinity(0))
    with contextlib.suppress(OSError):
        with open(f"/sys/devices/system/cpu/cpu{mine[0]}/topology/core_id", encoding="ascii") as f:
            first = f.read()
        for cpu in mine[1:]:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/core_id", encoding="ascii") as f:
                if f.read() != first:
                    return mine[0], cpu
    return (mine[0], mine[1]) if len(mine) > 1 else None


def outer_address():
    """The IPv4 address of the first interface that is up and not the loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            with contextlib.suppress(OSError):
                flags = struct.unpack("H", fcntl.ioctl(s, 0x8913, request)[16:18])[0]  # SIOCGIFFLAGS
                if flags & 1 and not flags & 8:  # IFF_UP, IFF_LOOPBACK
                    return socket.inet_ntoa(fcntl.ioctl(s, 0x8915, request)[20:24])  # SIOCGIFADDR
    return None


class Worker:
    """One worker process and the lines that it says."""

    def __init__(self, setup, side, mode, pass_fds=(), command=None, enter=(), **options):
        self.name = f"{side.name} {mode} {options.get('role', '')}".strip()
        options = {"rds": int(side.rds), "tcp": int(side.tcp), "spin": int(side.spin), "limit": setup.limit, **options}
        if side.rds or side.tcp:
            options.setdefault("host", side.host)
        arguments = [f"{k}={v}" for k, v in options.items()]
        self.errors = tempfile.TemporaryFile()
        self.deadline = time.monotonic() + options["limit"]
        self.heard, self.watched = b"", []
        environment = setup.environment(side.preload, side.env)
        if enter:  # the library is not for the command that enters
            enter = [*enter, "env", f"LD_PRELOAD={environment.pop('LD_PRELOAD', '')}"]
        self.process = subprocess.Popen(
            [*enter, *(command or [setup.worker, mode] + arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, env=environment, pass_fds=pass_fds)
        self.pid = self.process.pid

    def fault(self, text, kind=Fault):
        self.errors.seek(0)
        tail = self.errors.read()[-600:].decode(errors="replace").strip()
        raise kind(f"{self.name}: {text}" + (f" [stderr: {tail}]" if tail else ""))

    def line(self):
        """The next line; also the end of the wait if one of those that this one depends on has failed."""
        while b"\n" not in self.heard:
            waited = [self] + [w for w in self.watched if b"\n" not in w.heard]
            ready, _, _ = select.select([w.process.stdout for w in waited], [], [],
                                        max(0, self.deadline - time.monotonic()))
            if not ready:
                self.fault("no answer in time", Late)
            for w in waited:
                if w.process.stdout in ready:
                    w.hear_more()
                if w is not self and w.heard.startswith(b"error") and b"\n" in w.heard:
                    w.expect("result")
        text, self.heard = self.heard.split(b"\n", 1)
        return text.decode()

    def hear_more(self):
        part = os.read(self.process.stdout.fileno(), 4096)
        if not part:
            status = self.process.wait()
            if status == -signal.SIGALRM:  # its own limit, which is the same one
                self.fault("no end in time", Late)
            self.fault(f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}")
        self.heard += part

    def expect(self, word):
        text = self.line()
        first, _, rest = text.partition(" ")
        if first != word:
            self.fault(text.removeprefix("error ") if first == "error" else f"expected '{word}', heard '{text}'")
        return rest

    def values(self, word):
        return {k: float(v) for k, v in (pair.split("=") for pair in self.expect(word).split())}

    def tell(self, text):
        try:
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.line()
            self.fault("does not listen")

    def result(self):
        values = self.values("result")
        try:
            status = self.process.wait(max(0.1, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.fault("gave its result but does not end")
        if status:
            self.fault(f"gave its result, then ended with status {status}")
        return values

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for f in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(BrokenPipeError):
                f.close()


@contextlib.contextmanager
def workers():
    """A list to put workers in; whatever happens, all of them are gone afterwards."""
    started = []
    try:
        yield started
    finally:
        for w in started:
            w.end()


def start_pair(setup, side, mode, roles, started, cpus=("", ""), modes=None, **options):
    """Two connected workers, both ready to go: (the one that waits, the one that begins)."""
    ends = [None, None] if side.rds or side.tcp else socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pair = []
    for i, (role, end, cpu) in enumerate(zip(roles, ends, cpus)):
        more = {"host": (side.host, side.peer)[i]} if end is None else {"fd": end.fileno(), "pass_fds": [end.fileno()]}
        w = Worker(setup, side, modes[i] if modes else mode, role=role, cpus=cpu, enter=side.enter[i], **more, **options)
        started.append(w)
        pair.append(w)
        if end is not None:
            end.close()
        if len(pair) == 1:
            address = w.expect("addr")
            w.ready = w.values("ready")
        else:
            w.watched = pair[:1]
            w.tell(f"peer {address}")
            w.ready = w.values("ready")
    pair[0].address = address
    return pair


def start_hogs(setup, started, cpus):
    for cpu in cpus:
        w = Worker(setup, Side("hog"), "hog", cpus=cpu)
        started.append(w)
        w.expect("ready")
