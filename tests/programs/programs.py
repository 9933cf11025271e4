# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Called by "run", which has the options: lists, or runs, real programs under the preload: Debian's qperf and CPython's
own RDS tests, unmodified, and small programs of this directory in the pattern of public RDS programs. None may leave a
process behind. A program whose package is missing is skipped with the reason (--no-skip: it is wrong)."""

import argparse
import copy
import glob
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "bench")]

import qperf_tool  # noqa: E402
from procs import find_library  # noqa: E402

LIMIT = 60
LATE = 75
SIZES = (1, 64, 1024, 8192, 65536)
CC = os.environ.get("CC", "cc")
PYTHON = "/usr/bin/python3"  # Debian's: its tests are in the package libpython3.11-testsuite
RDS_TESTS = 8
C_PROGRAMS = ("namelen", "last_words", "heartbeat", "sink", "workers", "preload_fork", "preload_close",
              "nonblock", "preload_info", "preload_fortify", "preload_epoll", "preload_threads", "preload_cancel", "preload_nothing",
              "preload_early", "main_leaves", "descriptors", "churn", "bare_child", "bare_holder", "handler_forks",
              "preload_reset", "preload_unbound", "preload_ages", "preload_pin", "preload_spin",
              "preload_atfork", "preload_async", "preload_cancel_async", "preload_unshare", "preload_outlived",
              "preload_paths", "preload_crowd", "preload_getfd", "preload_rights", "preload_setuid", "preload_users",
              "preload_sandbox", "preload_stdio", "preload_mlock", "crowd", "killed_unused", "port_again",
              "preload_class", "preload_starved", "preload_address")
# What a sanitizer's runtime breaks by itself.  Both have mappings and an allocator of their own.
# Their threads are threads of the program, which has several then.  The search for leaks needs the
# rights that the process had at its start.  ThreadSanitizer holds signals back while a call is
# restarted, reports races of a forked child with threads that are gone, and has a thread that never
# ends.  It sees no synchronisation inside calls that it intercepts and that may block (recv, poll):
# with more than one thread in them it reports races that are none.
NOT_BESIDE = {"preload_nothing": "san", "preload_early": "san", "handler_forks": "san", "preload_threads": "tsan",
              "preload_cancel": "tsan", "preload_cancel_async": "san", "preload_fork": "tsan", "main_leaves": "tsan", "churn": "tsan", "bare_child": "tsan",
              "preload_second": "tsan", "preload_unbound": "tsan", "preload_unshare": "tsan", "preload_crowd": "san", "preload_mlock": "san",
              "preload_sandbox": "san", "preload_address": "san"}
PYTHON_PROGRAMS = ("ping", "epoll", "leave")


class Skip(Exception):
    """The program is not on this machine."""


class Failed(Exception):
    """It ran and was not right."""


class Late(Exception):
    """A limit has passed, and nothing wrong was seen."""


class Context:
    def __init__(self, environment, directory, args):
        self.environment, self.directory, self.limit, self.name = environment, directory, args.limit, args.one
        self.watch, self.host, self.launcher, self.seconds = args.watch, args.host, args.launcher, args.seconds


def environment_of(args):
    """What the programs get: as rdsrun sets it, or just the preload, or (--native) nothing. None: no library."""
    plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    if args.native:
        return plain
    rdsrun = os.environ.get("RDSRUN")
    if rdsrun and not args.lib:
        done = subprocess.run([rdsrun, "env", "-0"], env=plain, stdout=subprocess.PIPE, text=True, check=True)
        return dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair)
    library = find_library(args.lib, args.build)
    return {**plain, "LD_PRELOAD": library} if library else None


def run_program(context, command):
    """Runs a command, watched, which leaves nothing behind; returns (status, output)."""
    preload = context.environment.get("LD_PRELOAD")
    plain = {k: v for k, v in context.environment.items() if k != "LD_PRELOAD"}
    command = [context.watch, "--name", context.name, "--limit", str(context.limit), "--alone", "--",
               *(["env", f"LD_PRELOAD={preload}"] if preload else []), *command]
    with tempfile.TemporaryFile() as out:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                              env=plain, cwd=context.directory, check=False)
        out.seek(0)
        text = out.read().decode(errors="replace").strip()
    if done.returncode == LATE:
        raise Late(text)
    return done.returncode, text


def run_own(context, command):
    status, text = run_program(context, command)
    if status:
        raise Failed(f"status {status}; said: {text}")
    return text.splitlines()[-1] if text else ""


def beside_sanitizer(context, name):
    return re.search(rf"lib[a-z]*{NOT_BESIDE.get(name, 'none')}\.so", context.environment.get("LD_PRELOAD", ""))


def compiled(context, name, *options, shared=False):
    program = os.path.join(context.directory, name + (".so" if shared else ""))
    kind = ("-shared", "-fPIC") if shared else ()
    top = os.path.join(HERE, "..", "..")
    subprocess.run([CC, "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-I", top, *kind, *options, "-o", program,
                    os.path.join(HERE, name + ".c")], check=True)
    return program


def own_c(context, name, *arguments):
    if beside_sanitizer(context, name):
        raise Skip("cannot run beside a sanitizer's runtime")
    return run_own(context, [compiled(context, name), *arguments])


def own_python(context, name, *arguments):
    if not os.path.exists(PYTHON):
        raise Skip(f"{PYTHON} is missing (package python3)")
    return run_own(context, [PYTHON, os.path.join(HERE, name + ".py"), *arguments])


def preloaded(context, *objects, first=False):
    """The same with more preloaded objects, in front of the library or behind it."""
    have = [p for p in context.environment.get("LD_PRELOAD", "").split(":") if p]
    at = next((i for i, p in enumerate(have) if p.endswith("/librdspreload.so")), 0) if first else len(have)
    more = copy.copy(context)
    more.environment = {**context.environment, "LD_PRELOAD": ":".join(have[:at] + list(objects) + have[at:])}
    return more


def dlsym_object(context):
    """What RDS_PRELOAD_DLSYM=1 makes rdsrun add; None: nothing is preloaded."""
    library = re.search(r"[^:]*/librdspreload\.so", context.environment.get("LD_PRELOAD", ""))
    return os.path.join(os.path.dirname(library.group()), "librdsdlsym.so") if library else None


def lookup(context, where):
    dlsym = dlsym_object(context)
    if where == "through" and dlsym:
        context = preloaded(context, dlsym)
    return own_python(context, "lookup", where if dlsym else "native")


def no_gnu_hash(context):
    """The object for look-ups where it cannot read libc's table: it finds the next dlsym(), and nothing is ours."""
    if not dlsym_object(context):
        raise Skip("nothing is preloaded")
    return lookup(preloaded(context, compiled(context, "no_gnu_hash", "-fvisibility=hidden", shared=True)), "past")


def second(context, where, with_dlsym):
    """Another preloaded object that has some of the same names, on either side of the library."""
    if not dlsym_object(context):
        raise Skip("nothing is preloaded")
    more = preloaded(context, compiled(context, "second_object", shared=True), first=where == "front")
    return own_c(preloaded(more, dlsym_object(context)) if with_dlsym else more, "preload_second", where)


def still_clock(context, where):
    """Another preloaded object, whose clock stands still."""
    if not dlsym_object(context):
        raise Skip("nothing is preloaded")
    still = compiled(context, "still_clock", shared=True)
    return own_c(preloaded(context, still, first=where == "front"), "preload_clock")


def unloaded(context):
    return own_c(context, "preload_dl", compiled(context, "dl_object", shared=True))


def allocator(context, library, where, name):
    """Another malloc(), preloaded on either side of the library."""
    found = glob.glob(f"/usr/lib/*/{library}")
    if not found:
        raise Skip(f"{library} is missing (packages libjemalloc2, libtcmalloc-minimal4)")
    if beside_sanitizer(context, "preload_early"):
        raise Skip("cannot run beside a sanitizer's runtime")
    return own_c(preloaded(context, found[0], first=where == "front"), name)


def asan(context, how, name, with_dlsym=False):
    """A program that was built with AddressSanitizer; its runtime has to be the first object, or is inside."""
    if beside_sanitizer(context, "preload_early"):
        raise Skip("has that runtime already")
    options = ("-fsanitize=address", "-static-libasan") if how == "inside" else ("-fsanitize=address",)
    try:
        program = compiled(context, name, *options)
    except subprocess.CalledProcessError:
        raise Skip("the compiler has no AddressSanitizer") from None
    if how == "front":
        ask = [CC, "-print-file-name=libasan.so"]
        runtime = subprocess.run(ask, stdout=subprocess.PIPE, text=True, check=True).stdout
        if not os.path.isabs(runtime):
            raise Skip("the compiler has no libasan.so")
        context = preloaded(context, runtime.strip(), first=True)
    if with_dlsym and dlsym_object(context):
        context = preloaded(context, dlsym_object(context))
    # A child cannot free what the library had in its parent (librdspreload(7), LIMITS).
    context = copy.copy(context)
    context.environment = {**context.environment, "ASAN_OPTIONS": "detect_leaks=0"}
    return run_own(context, [program])


def qperf(context, test, size):
    if not qperf_tool.installed():
        raise Skip("qperf is missing (package qperf)")
    # Server and client together: if they hang, the stacks of both are shown.
    return run_own(context, [PYTHON, qperf_tool.__file__, test, str(size), str(context.seconds), context.host,
                             context.launcher])


def cpython(context):
    """All eight tests of CPython run and pass; one that skips itself is a failure."""
    probe = subprocess.run([PYTHON, "-c", "import test.test_socket"], capture_output=True, text=True, check=False)
    if probe.returncode:
        raise Skip("test.test_socket is missing (package libpython3.11-testsuite)")
    status, text = run_program(context, [PYTHON, "-m", "test.test_socket", "-v", "BasicRDSTest", "RDSTest"])
    passed = len(re.findall(r"^test\w+ \(.*RDSTest\.test\w+\).*\bok$", text, re.MULTILINE | re.ASCII))
    ran = re.search(r"^Ran (\d+) tests? in", text, re.MULTILINE)
    if status or not ran or int(ran.group(1)) != RDS_TESTS or passed != RDS_TESTS or "skipped" in text:
        raise Failed(f"status {status}, {passed} of {RDS_TESTS} passed; said: {text[-3000:]}")
    return f"{passed} tests pass"


OWN = (own_c, own_python, lookup, no_gnu_hash, second, still_clock, unloaded, allocator, asan)


def programs():
    """(name, function, arguments) of all, in the order in which they run."""
    for name in C_PROGRAMS:
        yield name, own_c, (name,)
    for name in PYTHON_PROGRAMS:
        yield name, own_python, (name,)
    for where in ("past", "through"):
        yield f"lookup-{where}", lookup, (where,)
    yield "lookup-no_gnu_hash", no_gnu_hash, ()
    for where in ("front", "behind"):
        yield f"second-{where}", second, (where, False)
        yield f"second-{where}-dlsym", second, (where, True)
        yield f"still_clock-{where}", still_clock, (where,)
    yield "preload_dl", unloaded, ()
    for short, library in (("jemalloc", "libjemalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4")):
        for where in ("front", "behind"):
            yield f"{short}-{where}-workers", allocator, (library, where, "workers")
            yield f"{short}-{where}-preload_fork", allocator, (library, where, "preload_fork")
    for how in ("front", "inside"):
        for name in ("heartbeat", "preload_fork", "preload_threads"):
            yield f"asan-{how}-{name}", asan, (how, name)
        yield f"asan-{how}-dlsym", asan, (how, "heartbeat", True)
    yield "cpython", cpython, ()
    for test in ("rds_lat", "rds_bw"):
        for size in SIZES:
            yield f"qperf-{test}-{size}", qperf, (test, size)


def chosen(name, wanted):
    """A whole name stands for itself alone."""
    names = [n for n, _, _ in programs()]
    return any(w == name or (w not in names and w in name) for w in wanted)


def run_one(context, name):
    """The exit status is the verdict; the last line of output says more (tests/verdict.bash)."""
    function, arguments = next((f, a) for n, f, a in programs() if n == name)
    try:
        status, text = 0, function(context, *arguments)
    except Skip as e:
        status, text = 77, str(e)
    except Failed as e:
        status, text = 1, str(e)
    except Late as e:
        status, text = LATE, str(e)
    print(text)
    return status


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--lib")
    p.add_argument("--build", default=os.environ.get("TOP_BUILDDIR"))
    p.add_argument("--native", action="store_true")
    p.add_argument("--own", action="store_true")
    p.add_argument("--no-skip", action="store_true")
    p.add_argument("--limit", type=int, default=LIMIT)
    p.add_argument("--host", default=qperf_tool.HOST)
    p.add_argument("--seconds", type=int, default=1)
    p.add_argument("--launcher", default="")
    p.add_argument("--list", action="store_true", help="print the names of those that are chosen")
    p.add_argument("--one", metavar="NAME", help="run this one")
    p.add_argument("--watch", help="tests/watch as it was built")
    args = p.parse_args()
    if args.list:
        print("\n".join(name for name, function, _ in programs() if (not args.own or function in OWN) and
                        (not args.names or chosen(name, args.names))))
        return 0
    environment = environment_of(args)
    if environment is None:
        print("librdspreload.so not found: build it first, or name it by --lib", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="programs-") as directory:
        status = run_one(Context(environment, directory, args), args.one)
    return 1 if status == 77 and args.no_skip else status


if __name__ == "__main__":
    sys.exit(main())
