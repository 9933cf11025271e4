# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""perftest's ib_send_lat and ib_send_bw between two processes of this machine: what the device gives to a program that
does nothing else, so the limit for all others."""

import glob
import os
import subprocess
import time

from procs import Fault, Late

PORT = 18515
FIRST, LEAST, MOST = 60, 20, 20000  # iterations: of the first run, and bounds of those that follow


class Perftest:
    """Runs of about `seconds`; how many iterations that takes is learnt from the run before."""

    def __init__(self, device, address, cpus, seconds, limit=60):
        self.device, self.address, self.cpus, self.seconds, self.limit = device, address, cpus, seconds, limit
        self.takes = {}  # arguments -> seconds per iteration

    def arguments(self, program, size, events, depth):
        more = ["-R"] if self.device.startswith("siw") else ["-x", str(gid_index(self.device, self.address))]
        more += ["-e"] if events else []
        more += ["-t", str(depth)] if depth else []
        return [program, "-d", self.device, "-s", str(size), "-F", "-p", str(PORT)] + more

    def run(self, program, size, events=False, depth=0):
        key = (program, size, events, depth)
        seconds = self.takes.get(key)
        n = FIRST if seconds is None else int(min(MOST, max(LEAST, self.seconds / seconds)))
        fields = self.once(self.arguments(*key) + ["-n", str(n)], size)
        if program == "ib_send_lat":
            values = {"ns_mean": 2e3 * fields[5], "ns_p50": 2e3 * fields[4]}  # it prints half of a round trip, in us
            self.takes[key] = values["ns_mean"] / 1e9
        else:
            values = {"mbs": fields[3] * 1.048576, "msgs": fields[3] * 1048576 / size}
            self.takes[key] = 1 / values["msgs"] if values["msgs"] else 1
        return self.run(*key) if seconds is None else values

    def once(self, command, size):
        """The numbers of the line that begins with the size."""
        prefix = ["taskset", "-c"]
        pins = [prefix + [cpu] if cpu else [] for cpu in self.cpus]
        server = subprocess.Popen(pins[0] + command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.await_listener(server)
            client = subprocess.run(pins[1] + command + [self.address], stdin=subprocess.DEVNULL, capture_output=True,
                                    text=True, timeout=self.limit, check=False)
            if client.returncode:
                raise Fault(f"{' '.join(command)}: status {client.returncode} {client.stderr[-300:].strip()}")
        except subprocess.TimeoutExpired as e:
            raise Late(f"{' '.join(command)}: no end within {self.limit} s") from e
        else:
            self.await_end(server)
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()
        for line in client.stdout.splitlines():
            words = line.split()
            if words and words[0] == str(size):
                return [float(word) for word in words]
        raise Fault(f"{' '.join(command)}: prints no figures")

    def await_end(self, server):
        try:
            server.wait(self.limit)
        except subprocess.TimeoutExpired as e:
            raise Fault(f"{server.args}: its client has ended, and it does not") from e

    def await_listener(self, server):
        end = time.monotonic() + self.limit
        while time.monotonic() < end:
            if server.poll() is not None:
                raise Fault(f"{server.args}: ended with status {server.returncode} before anybody came")
            for name in ("/proc/net/tcp", "/proc/net/tcp6"):
                with open(name, encoding="ascii") as f:
                    for words in (line.split() for line in f):
                        if words[3] == "0A" and words[1].endswith(f":{PORT:04X}"):
                            return
            time.sleep(0.02)
        raise Late(f"{server.args}: does not listen")


def gid_index(device, address):
    parts = [int(part) for part in address.split(".")]
    wanted = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*parts)
    for path in glob.glob(f"/sys/class/infiniband/{device}/ports/1/gids/*"):
        with open(path, encoding="ascii") as f:
            if f.read().strip() == wanted:
                return int(os.path.basename(path))
    raise Fault(f"{device} has no GID of {address}")
