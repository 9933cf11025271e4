#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""rdsrun --node: what it shows of processes that talk, are stopped, die, have names that are no text, or are asked for
anything by anybody; as text, JSON, a live screen, and metrics. Each test is a function test_*; $RDSRUN is the command."""

import json
import os
import pty
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

RDSRUN = os.environ["RDSRUN"]
SLOW = int(os.environ.get("TEST_SLOW", 1))  # as tests/slow.h has it
COMES = 120 * SLOW  # what has to come
LATE = 75
HOST = "127.0.0.1"
# Who asks waits as long as it takes, but where somebody is stopped.
PATIENT = dict(os.environ, RDS_PRELOAD_PATIENCE="100")
# In the background of a shell without job control SIGINT is ignored, which children inherit: rdsrun then does so, too.
signal.signal(signal.SIGINT, signal.SIG_DFL)
late = []

# A member: binds a port, sends so many messages there and to itself, and says so; then sends one more every 20 ms if it is
# to go on. Its name is set before the library reads it.
MEMBER = r"""
import socket, sys, time
name, port, to, count, goes_on = sys.argv[1:6]
if name:
    open("/proc/self/comm", "wb").write(name.encode("latin-1"))
s = socket.socket(21, socket.SOCK_SEQPACKET, 0)
if int(port):
    s.bind(("127.0.0.1", int(port)))
for i in range(int(count)):
    assert s.sendto(b"x" * (i + 1), ("127.0.0.1", int(to))) == i + 1
print("ready", flush=True)
while goes_on == "1":
    time.sleep(0.02)
    s.sendto(b"", ("127.0.0.1", int(to)))
sys.stdin.read()
"""


class Member:
    def __init__(self, port, to=0, count=0, goes_on=False, name="", more=(), rdsrun=RDSRUN, **how):
        self.process = subprocess.Popen(
            [rdsrun, "/usr/bin/python3", "-c", MEMBER, name, str(port), str(to or port), str(count), str(int(goes_on)), *more],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how)
        assert self.process.stdout.readline() == b"ready\n", "a member did not start"
        self.pid = self.process.pid
        self.port = port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        await_("stops", lambda: state_of(self.pid) == "T")


def state_of(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0]


def await_(what, cond):
    end = time.monotonic() + COMES
    while True:
        got = cond()
        if got:
            return got
        assert time.monotonic() < end, f"does not come: {what}"
        time.sleep(0.01)


def bound(what, seconds, limit):
    if seconds > limit * SLOW:
        late.append(f"{what} after {seconds:.2f} s")


def node(*options, status=0, env=PATIENT):
    r = subprocess.run([RDSRUN, "--node", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=COMES, env=env)
    assert r.returncode == status, (options, r.returncode, r.stderr)
    return r


def as_json(*options, **how):
    out = node("--json", *options, **how).stdout
    assert out.count(b"\n") == 1 and out.endswith(b"\n"), "one line"
    return json.loads(out)


def process(shown, pid):
    found = [p for p in shown["processes"] if p["pid"] == pid]
    assert len(found) <= 1, found
    return found[0] if found else None


# ---- fields, as rdsrun(1) has them ----

NUMBER, TEXT, FLAG, LIST = (int,), (str,), (bool,), (list,)
OR_NULL = (type(None),)
RATE = (float, int, type(None))
FIELDS = {
    "node": {"format": NUMBER, "time": (float,), "interval": RATE, "processes": LIST, "unowned_sockets": LIST},
    "process": {
        "pid": NUMBER + OR_NULL, "name": TEXT, "command": TEXT, "answer": TEXT, "answer_text": TEXT,
        "uid": NUMBER + OR_NULL, "threads": NUMBER + OR_NULL, "descriptors": NUMBER + OR_NULL, "version": TEXT + OR_NULL,
        "library_memory": NUMBER + OR_NULL, "library_descriptors": NUMBER + OR_NULL, "sockets_open": NUMBER + OR_NULL,
        "connections_open": NUMBER + OR_NULL, "sent": NUMBER + OR_NULL, "sent_bytes": NUMBER + OR_NULL,
        "received": NUMBER + OR_NULL, "received_bytes": NUMBER + OR_NULL, "sent_rate": RATE, "sent_bytes_rate": RATE,
        "received_rate": RATE, "received_bytes_rate": RATE, "sockets": LIST, "connections": LIST,
    },
    "socket": {
        "bound": TEXT + OR_NULL, "connected": TEXT + OR_NULL, "inode": NUMBER, "tos": NUMBER + OR_NULL,
        "send_bytes": NUMBER + OR_NULL, "send_messages": NUMBER + OR_NULL, "send_room": NUMBER,
        "receive_bytes": NUMBER + OR_NULL, "receive_messages": NUMBER + OR_NULL, "receive_room": NUMBER,
        "operations": NUMBER + OR_NULL, "last_operation": NUMBER + OR_NULL, "monitors_congestion": FLAG, "congested": FLAG,
    },
    "connection": {
        "local": TEXT, "peer": TEXT, "peer_pid": NUMBER + OR_NULL, "tos": NUMBER, "transport": TEXT, "state": TEXT,
        "since": NUMBER + OR_NULL, "attempts": NUMBER, "breaks": NUMBER, "next_tx_seq": NUMBER, "next_rx_seq": NUMBER,
        "sent_rate": RATE, "received_rate": RATE, "waiting": NUMBER, "unacknowledged": NUMBER, "retransmissions": NUMBER,
        "last_error_number": NUMBER, "last_error": TEXT,
    },
}


def check_fields(what, got):
    assert list(got) == list(FIELDS[what]), (what, set(got) ^ set(FIELDS[what]))
    for name, types in FIELDS[what].items():
        assert type(got[name]) in types, (what, name, got[name])


def check_all_fields(shown):
    check_fields("node", shown)
    for s in shown["unowned_sockets"]:
        check_fields("socket", s)
    for p in shown["processes"]:
        check_fields("process", p)
        for s in p["sockets"]:
            check_fields("socket", s)
        for c in p["connections"]:
            check_fields("connection", c)


def test_fields_are_in_the_manual():
    with open(os.environ["TOP_SRCDIR"] + "/docs/rdsrun.1") as f:
        page = f.read()
    for what, fields in FIELDS.items():
        for name in fields:
            assert re.search(rf"^\.It .*\b{name}\b", page, re.M), f"{name} of a {what} is not in rdsrun.1"


# ---- processes ----


def test_nobody():
    assert node().stdout == b"no RDS process of this user and registry\n"
    shown = as_json()
    check_all_fields(shown)
    assert shown["processes"] == [] and shown["format"] == 1


def test_talk():
    with Member(4000) as quiet, Member(4001, to=4000, count=4, goes_on=True) as busy, Member(0) as unbound:
        shown = as_json()
        check_all_fields(shown)
        p, q, r = (process(shown, m.pid) for m in (quiet, busy, unbound))
        assert p["answer"] == q["answer"] == "answered" and p["answer_text"] == ""
        assert r["answer"] == "unbound" and r["version"] is None and [s["bound"] for s in r["sockets"]] == [None]
        version = subprocess.run([RDSRUN, "--version"], stdout=subprocess.PIPE).stdout.split()[-1].decode()
        assert p["version"] == version and p["uid"] == os.getuid()
        assert p["threads"] >= 2 and p["descriptors"] > p["library_descriptors"] > 0
        assert p["library_memory"] > 0 and p["name"] == "python3"
        assert p["command"].split()[0] == "/usr/bin/python3"
        (s,) = p["sockets"]
        assert s["bound"] == f"{HOST}:4000" and s["connected"] is None and s["receive_messages"] >= 4
        assert s["receive_bytes"] == 1 + 2 + 3 + 4 and s["receive_room"] > 0 and not s["congested"]
        (c,) = q["connections"]
        assert (c["local"], c["peer"], c["peer_pid"]) == (HOST, HOST, quiet.pid)
        assert c["state"] == "up" and c["transport"] == "shm" and abs(c["since"] - time.time()) < COMES
        assert q["sent"] >= 5 and q["sent_rate"] > 0 and c["sent_rate"] > 0 and c["next_tx_seq"] > q["sent"]
        (c,) = p["connections"]
        assert c["peer_pid"] == busy.pid and c["received_rate"] > 0 and c["sent_rate"] == 0
        text = node().stdout.decode()
        assert re.search(rf"^process {quiet.pid}  /usr/bin/python3 ", text, re.M), text
        assert re.search(rf"^  socket {HOST}:4000  unread 10 of \d+K \(\d+\)  sending 0 of \d+K$", text, re.M), text
        assert re.search(rf"^  connection {HOST} -> {HOST} \({quiet.pid}\)  shm up since .* sent \d+ \(\d+/s\)", text, re.M), text
        assert re.search(rf"^process {unbound.pid} .*\n  has bound no socket\n  socket unbound$", text, re.M), text


def test_stopped():
    with Member(4010, count=2) as stopped, Member(4011) as other:
        stopped.stop()
        began = time.monotonic()
        shown = as_json(env=None)
        bound("a stopped process was shown", time.monotonic() - began, 5)
        check_all_fields(shown)
        p = process(shown, stopped.pid)
        assert p["answer"] == "stopped" and p["answer_text"] == "is stopped", p
        assert p["sent"] is None and p["connections"] == [] and p["threads"] >= 2
        (s,) = p["sockets"]
        assert s["bound"] == f"{HOST}:4010" and s["receive_bytes"] is None and s["receive_room"] > 0
        # it is waited for, and the other one has that time, too
        await_("the other one answers", lambda: process(as_json(env=None), other.pid)["answer"] == "answered")
        text = node(env=None).stdout.decode()
        assert re.search(rf"^process {stopped.pid} .*\n  is stopped\n  socket {HOST}:4010$", text, re.M), text
        stopped.process.send_signal(signal.SIGCONT)
        await_("goes on", lambda: process(as_json(), stopped.pid)["answer"] == "answered")


def test_killed_while_asked():
    """Members come and go while the node is asked: each answer is whole."""
    with Member(4020) as stays:
        watch = subprocess.Popen([RDSRUN, "--node", "--watch=0.1", "--json"], stdout=subprocess.PIPE, env=PATIENT)
        try:
            seen = 0
            for i in range(10):
                with Member(4021 + i, count=3, goes_on=True) as m:
                    for _ in range(3):
                        shown = json.loads(watch.stdout.readline())
                        check_all_fields(shown)
                        assert process(shown, stays.pid)["answer"] == "answered"
                        p = process(shown, m.pid)
                        seen += bool(p) and p["answer"] == "answered"
            assert seen > 0
            last = m.pid
            await_("the last one is gone", lambda: not process(json.loads(watch.stdout.readline()), last))
        finally:
            watch.send_signal(signal.SIGINT)
            assert watch.wait(COMES) == 0, "the end of --watch"


def test_names_that_are_no_text():
    """A name is what a process likes: no escape sequence reaches a terminal, and JSON stays JSON."""
    name = 'e\x1b]0;x\x07"\\\xff'
    with Member(4040, name=name, more=["\x1b[31m\"\\\n\u00fc", b"\xfe\xff"]) as m:
        shown = as_json()
        p = process(shown, m.pid)
        assert p["name"] == 'e\x1b]0;x\x07"\\\ufffd', repr(p["name"])
        text = node().stdout
        assert re.search(rb"^process %d " % m.pid, text, re.M)
        assert not re.search(rb"[^\n\x20-\x7e]", text), text
        with tempfile.TemporaryDirectory() as d:
            node("--metrics", d + "/m")
            with open(d + "/m", "rb") as f:
                assert f'name="e?]0;x?\\"\\\\?"'.encode() in f.read()


def listeners():
    with open("/proc/net/unix") as f:
        return set(re.findall(r"@(rdspreload-info-[0-9a-f]{32})$", f.read(), re.M))


def listener_of(pid, among):
    """Other tests run on this host, too: the kernel says whose it is."""
    for name in among:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            if s.connect_ex("\0" + name) == 0:
                cred = s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                if int.from_bytes(cred[:4], sys.byteorder) == pid:
                    return name
    raise AssertionError(f"process {pid} does not listen")


def test_hostile_askers():
    """Nonsense, halves, and more at a time than there are places for, from the same user."""
    before = listeners()
    rng = random.Random(int(os.environ.get("TEST_SEED", 30)))
    with Member(4050, count=3) as m:
        name = listener_of(m.pid, listeners() - before)
        fds = process(as_json(), m.pid)["library_descriptors"]
        for _ in range(20):
            askers = []
            for _ in range(30):
                s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                s.connect("\0" + name)
                ask = rng.choice([b"", b"\x69\x53\x44\x52", b"\x69\x53\x44\x52\x04\0\0\0"])
                try:
                    s.send(ask + bytes(rng.randrange(256) for _ in range(rng.randrange(64))))
                except (BrokenPipeError, ConnectionResetError):
                    pass  # all places were taken
                askers.append(s)
            p = process(as_json(), m.pid)
            assert p["answer"] in ("answered", "busy"), p["answer"]
            for s in askers:
                s.close()
        await_("answers again", lambda: process(as_json(), m.pid)["answer"] == "answered")
        p = process(as_json(), m.pid)
        assert p["library_descriptors"] <= fds and p["sockets"][0]["receive_messages"] == 3
        assert m.process.poll() is None


# ---- other users ----


def copy_for_all(directory):
    """Others must be able to read what they run, wherever it was built."""
    os.chmod(directory, 0o755)
    library = subprocess.run([RDSRUN, "--library"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    for path in RDSRUN, library:
        subprocess.run(["install", "-m", "0755", path, directory], check=True)
    return os.path.join(directory, os.path.basename(RDSRUN))


def test_other_users():
    """With RDS_PRELOAD_SHARE they are shown, asked, and may be stopped; without it they are another node."""
    if os.getuid():
        print("note: not root: other users not tried")
        return
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory(dir="/dev/shm") as registry:
        os.chmod(registry, 0o1777)
        rdsrun = copy_for_all(d)
        env = dict(os.environ, RDS_PRELOAD_SHARE="all", RDS_PRELOAD_REGISTRY_DIR=registry)
        how = {"env": env, "user": 70001, "group": 70001, "extra_groups": [], "cwd": "/"}
        with Member(4090, count=2, rdsrun=rdsrun, **how) as m, Member(4091, env=env) as own:
            shown = as_json(env=dict(env, RDS_PRELOAD_PATIENCE="100"))
            check_all_fields(shown)
            p = process(shown, m.pid)
            assert p and p["answer"] == "answered" and p["uid"] == 70001, shown
            assert p["sockets"][0]["receive_messages"] == 2 and process(shown, own.pid)["answer"] == "answered"
            assert p["sent_rate"] == 0, "the same one is found again"
            shown = as_json(env=dict(env, RDS_PRELOAD_SHARE="user"))
            assert not process(shown, m.pid), shown
            m.stop()
            assert process(as_json(env=env), m.pid)["answer"] == "stopped"


# ---- the live screen ----

BEGIN, END = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"


class Screen:
    def __init__(self, *options):
        self.got = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(RDSRUN, [RDSRUN, "--node", *options], PATIENT)

    def until(self, what):
        end = time.monotonic() + COMES
        while not re.search(what, self.got, re.S):
            assert time.monotonic() < end, (what, self.got)
            if select.select([self.fd], [], [], 1)[0]:
                try:
                    self.got += os.read(self.fd, 65536)
                except OSError:
                    assert re.search(what, self.got, re.S), (what, self.got)

    def end(self):
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


def test_screen():
    with Member(4060, to=4060, count=5) as m:
        for sig in signal.SIGINT, signal.SIGTERM:
            screen = Screen("--watch=0.1")
            screen.until(b"process %d .*process %d " % (m.pid, m.pid))
            assert screen.got.startswith(BEGIN) and END not in screen.got
            screen.until(rb"unread \[#\.{19}\] 15 of ")
            os.kill(screen.pid, sig)
            screen.until(re.escape(END) + b"$")
            assert screen.end() == 0, sig
        screen = Screen("--watch=0.1")
        screen.until(b"process %d " % m.pid)
        os.kill(screen.pid, signal.SIGTSTP)
        screen.until(re.escape(END) + b"$")
        await_("is stopped", lambda: state_of(screen.pid) == "T")
        os.kill(screen.pid, signal.SIGCONT)
        screen.until(re.escape(END) + b".*" + re.escape(BEGIN) + b".*process %d " % m.pid)
        os.kill(screen.pid, signal.SIGINT)
        screen.until(re.escape(END) + b"$")
        assert screen.end() == 0


def test_blocks():
    """Without a terminal: one block after the other, with rates from the second one on."""
    with Member(4070, goes_on=True) as m:
        watch = subprocess.Popen([RDSRUN, "--node", "--watch=0.2"], stdout=subprocess.PIPE, env=PATIENT)
        blocks = [b""]
        while len(blocks) < 4:
            line = watch.stdout.readline()
            blocks[-1] += line
            if line == b"\n":
                blocks.append(b"")
        watch.send_signal(signal.SIGINT)
        watch.stdout.read()
        assert watch.wait(COMES) == 0
        assert b"\x1b" not in b"".join(blocks) and all(b"process %d " % m.pid in b for b in blocks[:3])
        assert not re.search(rb"\d/s", blocks[0]) and re.search(rb"  sent \d+ \([^)]*\) \d+/s", blocks[1]), blocks


# ---- the tables of rds-info ----


def test_info():
    with Member(4100, count=3) as m:
        run = lambda *o: subprocess.run([RDSRUN, *o], stdout=subprocess.PIPE, env=PATIENT, check=True).stdout.decode()
        inode = process(as_json(), m.pid)["sockets"][0]["inode"]
        rows = run("--info=knr").splitlines()
        assert [r for r in rows if r.endswith(":")] == ["RDS Sockets:", "RDS Connections:", "Receive Message Queue:"]
        assert ["127.0.0.1", "4100", "0.0.0.0", "0", "106496", "106496", str(inode)] in [r.split() for r in rows], rows
        assert ["127.0.0.1", "127.0.0.1", "0", "4", "4", "--C-"] in [r.split() for r in rows], rows
        for seq in 1, 2, 3:
            assert ["127.0.0.1", "4100", "127.0.0.1", "4100", "0", str(seq), str(seq)] in [r.split() for r in rows], rows
        rows = run("--info").splitlines()
        assert len([r for r in rows if r.endswith(":")]) == 8
        (count,) = (int(r.split()[1]) for r in rows if r.split()[:1] == ["send_queued"])
        assert count >= 3, "of the node, and of all that have been there"


# ---- metrics ----

SAMPLE = re.compile(r'(rds_preload_[a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\} (\d+)$')


def test_metrics():
    with Member(4080, count=3) as m, Member(4081, to=4080, count=2), tempfile.TemporaryDirectory() as d:
        m.stop()
        m.process.send_signal(signal.SIGCONT)
        await_("goes on", lambda: process(as_json(), m.pid)["answer"] == "answered")
        assert node("--metrics", d + "/node.prom").stdout == b""
        assert os.listdir(d) == ["node.prom"] and os.stat(d + "/node.prom").st_mode & 0o777 == 0o644
        with open(d + "/node.prom") as f:
            lines = f.read().splitlines()
        kind, seen, values = None, set(), {}
        for line in lines:
            if line.startswith("# HELP "):
                kind = line.split()[2]
                assert kind not in values, f"{kind} is in two places"
                values[kind] = []
            elif line.startswith("# TYPE "):
                assert line.split()[2] == kind and line.split()[3] in ("counter", "gauge")
                assert (line.split()[3] == "counter") == (kind.endswith(("_total", "_seq"))), line
            else:
                found = SAMPLE.match(line)
                assert found and found[1] == kind, line
                assert (kind, found[2]) not in seen, f"twice: {line}"
                seen.add((kind, found[2]))
                values[kind].append((found[2], int(found[3])))
        of = f'pid="{m.pid}",member='
        pick = lambda name: [v for labels, v in values["rds_preload_" + name] if of in labels]
        assert pick("process_sent_messages_total") == [3] and pick("process_info") == [1]
        assert pick("socket_receive_messages") == [5] and pick("socket_receive_bytes") == [1 + 2 + 3 + 1 + 2]
        assert pick("connection_up") == [1, 1] and pick("socket_congested") == [0], values
        wrong = node("--metrics", d + "/no/node.prom", status=1)
        assert b"/no/node.prom: No such file" in wrong.stderr and os.listdir(d) == ["node.prom"]


def main():
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    for f in tests:
        if not sys.argv[1:] or f.__name__ in sys.argv[1:]:
            f()
            print(f"{f.__name__}: ok", flush=True)
    for line in late:
        print("LATE", line, file=sys.stderr)
    return LATE if late else 0


if __name__ == "__main__":
    sys.exit(main())
