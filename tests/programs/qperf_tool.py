# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Runs Debian's qperf: a server and a client, two processes, figures parsed and checked. Both are here, on the loopback
address if no other is named, or the server is started on another host by a launcher (a command that runs its arguments
there, as ssh does).

qperf_tool.py TEST SIZE SECONDS HOST LAUNCHER: one test by itself, watched from outside (tests/watch)."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HOST = "127.0.0.1"
# qperf's server tells the port of its second TCP connection before it listens there, and now and
# then the client is faster (also without any preload). If both run on one processor, the client is
# faster nearly every time, and a second try at once would fail as well. So the next try waits until
# the scheduler has placed them anew.
RACE_SECONDS, RACE_PAUSE = 20, 0.05
REFUSED = "connect failed: Connection refused"
# qperf gives up if the other side has not answered for five seconds, or if its server cannot be
# reached for as long.  Both are options of it.
QPERF_PATIENCE = 5
UDP_LARGEST = 65507  # a UDP datagram cannot carry 64 KiB


class QperfFault(Exception):
    """qperf failed, or said something that cannot be true."""


class QperfLate(QperfFault):
    """It has not ended, or not begun."""


def deadline(seconds):
    """What an idle machine does in that time takes less than this here. A watch ends what hangs sooner (tests/watch)."""
    return seconds * int(os.environ.get("TEST_SLOW") or 1)


def installed():
    return shutil.which("qperf")


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.bind((HOST, 0))
        return s.getsockname()[1]


class Server:
    """A qperf server of our own on a private port, ended by its pid (or by the launcher that is ended)."""

    def __init__(self, environment, host=HOST, launcher=()):
        self.environment, self.host, self.launcher, self.port = environment, host, list(launcher), free_port()
        self.log = tempfile.TemporaryFile()
        command = [installed(), "-lp", str(self.port), "-lto", str(deadline(QPERF_PATIENCE))]
        if launcher:
            ours = [f"{k}={v}" for k, v in environment.items() if k.startswith(("LD_", "RDS_"))]
            command = [*launcher, "env", *ours, *command]
        # A launcher is no RDS program, and this directory may be here alone.
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env=None if launcher else environment, cwd="/" if launcher else None)
        try:
            self.await_listening()
        except QperfFault:
            self.end()
            raise

    def listening(self):
        """Looking, not connecting: the server takes a connection for a client."""
        tables = subprocess.run([*self.launcher, "cat", "/proc/net/tcp", "/proc/net/tcp6"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, text=True, check=True, cwd="/").stdout
        fields = (line.split() for line in tables.splitlines())
        return any(f[1].endswith(f":{self.port:04X}") and f[3] == "0A" for f in fields)

    def await_listening(self):
        end = time.monotonic() + deadline(30)
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise QperfFault(f"server ended with status {self.process.returncode}: {self.said()}")
            if self.listening():
                return
            time.sleep(0.01)
        raise QperfLate(f"server does not listen after {deadline(30)} s")

    def said(self):
        self.log.seek(0)
        return self.log.read()[-400:].decode(errors="replace").strip()

    def run(self, test, size, seconds=1, cpus=None):
        """Runs one test as a client; returns {'latency': ns} or {'bw': bytes per second} (what was received)."""
        if test.startswith("udp") and size > UDP_LARGEST:
            size = UDP_LARGEST
        command = [installed(), self.host, "-lp", str(self.port), "-t", str(seconds), "-m", str(size), "-uu", "-e", "6",
                   "-to", str(deadline(QPERF_PATIENCE)), "-ws", str(deadline(QPERF_PATIENCE))]
        if cpus:
            command += ["-lca", str(cpus[0]), "-rca", str(cpus[1])]
        end = time.monotonic() + deadline(RACE_SECONDS)
        while True:
            try:
                done = subprocess.run(command + [test], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                      timeout=seconds + deadline(60), env=self.environment, check=False)
            except subprocess.TimeoutExpired:
                raise QperfLate(f"{test} of {size} B: no end after {seconds + deadline(60)} s") from None
            if REFUSED not in done.stderr + done.stdout or self.process.poll() is not None:
                break
            if time.monotonic() > end:
                raise QperfLate(f"{test} of {size} B: {REFUSED} for {deadline(RACE_SECONDS)} s")
            time.sleep(RACE_PAUSE)
        if done.returncode or self.process.poll() is not None:
            raise QperfFault(f"{test} of {size} B: client status {done.returncode}, said "
                             f"'{(done.stdout + done.stderr).strip()}'; server said '{self.said()}'")
        return parse(test, size, done.stdout)

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


def parse(test, size, text):
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition("=")
        with contextlib.suppress(ValueError, IndexError):
            values[name.strip()] = float(rest.split()[0].replace(",", ""))
    if values.get("latency" if test.endswith("_lat") else "recv_bw") == 0:
        raise QperfLate(f"{test} of {size} B: nothing has come in the measured time")
    if test.endswith("_lat"):
        latency = values.get("latency", 0)
        if not 10 < latency < 1e9:  # faster than a cache line moves, or slower than a second
            raise QperfFault(f"{test} of {size} B: no plausible latency in '{text.strip()}'")
        return {"latency": latency}
    bandwidth = values.get("recv_bw", values.get("bw", 0))
    if not size < bandwidth < 1e12:  # less than one message in the second, or beyond any memory
        raise QperfFault(f"{test} of {size} B: no plausible bandwidth in '{text.strip()}'")
    return {"bw": bandwidth}


@contextlib.contextmanager
def server(environment, host=HOST, launcher=()):
    """A server that runs in this environment; so do its clients."""
    s = Server(environment, host, launcher)
    try:
        yield s
    finally:
        s.end()


def main():
    test, size, seconds, host, launcher = sys.argv[1:]
    environment = dict(os.environ)
    os.environ.pop("LD_PRELOAD", None)  # not for the launcher
    try:
        with server(environment, host, launcher.split()) as s:
            values = s.run(test, int(size), int(seconds))
    except QperfLate as e:
        print("LATE", e)
        return 75
    except QperfFault as e:
        print(e)
        return 1
    print(f"{values['latency']:.0f} ns" if "latency" in values else f"{values['bw'] / 1e6:.1f} MB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
