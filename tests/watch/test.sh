#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# For `make check`: does the watch tell a hang from a slow program, and wrong from late?
set -u
unset VERDICT_SECTION VERDICT_AGAIN VERDICT_INSIDE
here=$TOP_BUILDDIR/tests/watch
out=$(mktemp -d) || exit 99
trap 'rm -rf "$out"' EXIT
failed=0

# What is 20 seconds elsewhere is half of one here, and a second for sanitizers.
export TEST_SLOW=1
quiet=0.5
[ -z "${SANITIZERS:-}" ] || quiet=1

wrong()
{
	echo "FAIL $*"
	sed 's/^/     /' "$out/log"
	failed=$((failed + 1))
}

# watched HOW STATUS PATTERN OPTION...: a line of that pattern must be there; without a debugger,
# which takes a second each time
watched()
{
	local how=$1 wanted=$2 pattern=$3 status
	shift 3
	PATH=$out "$here/watch" --name "it-$how" --quiet $quiet "$@" -- "$here/hangs" "$how" >"$out/log" 2>&1
	status=$?
	[ $status -eq "$wanted" ] || wrong "$how: status $status, wanted $wanted"
	[ -z "$pattern" ] || grep -qE "$pattern" "$out/log" || wrong "$how: wanted $pattern"
	! grep -qF "$here/hangs" /proc/[0-9]*/cmdline 2>/dev/null || [ "$how" = leaves ] || wrong "$how: something is left"
}

watched poll 124 '^watch: it-poll: HANG: '
grep -qE 'thread [0-9]+ hangs: state S, wchan ' "$out/log" || wrong "poll: not where"
case ${SANITIZERS:-} in
*thread*) ;; # its runtime keeps signals back
*) grep -qE 'hangs\(.*0x' "$out/log" || wrong "poll: has not said itself where" ;;
esac
watched grandchild 124 '^process [0-9]+ \(hangs\), parent '
[ "$(grep -c '^process ' "$out/log")" = 2 ] || wrong "grandchild: not all of it is shown"
watched ticks 124 '^watch: it-ticks: HANG: '
watched stops 124 ': state T'
watched burns 75 '^LATE it-burns [0-9.]+ s busy, TEST_SLOW 1$' --limit 1
watched says 0 '^29$'
watched works 0 ''
watched killed 137 '^watch: it-killed: signal 9 \(SIGKILL\)'
watched late 75 '^LATE a message'
watched waits 75 '^LATE a child of it'
# What was late before is another test's.
(echo "LATE before" && exec "$here/watch" --quiet $quiet -- "$here/hangs" poll) >"$out/log" 2>&1
[ $? -eq 124 ] || wrong "poll: its hang is hidden by the late one of another test"
watched other 3 ''
watched dies 0 '' --alone
watched leaves 0 ''
watched leaves 1 'is left behind$' --alone
# The nearer one has the word: it gives up later than the other one would.
PATH=$out "$here/watch" --quiet $quiet -- "$here/watch" --name nearer --quiet 2 -- "$here/hangs" poll >"$out/log" 2>&1
[ $? -eq 124 ] && grep -q '^watch: nearer: HANG: nothing for 2' "$out/log" || wrong "nearer: the other one was quicker"
if command -v gdb >/dev/null; then
	"$here/watch" --quiet $quiet -- "$here/hangs" poll >"$out/log" 2>&1
	grep -q '^#0 .*poll' "$out/log" || wrong "no word of the debugger"
elif [ "${CI-}" = true ]; then
	wrong "there is no debugger (package gdb)"
fi
# Check's own limits are off.
bash "$TOP_SRCDIR/scripts/run-test" "$here/checked" >"$out/log" 2>&1 || wrong "checked: Check has judged it by time"
# A unit test says itself where it hangs.
CK_TIMEOUT_MULTIPLIER=0 PATH=$out "$here/watch" --quiet $quiet -- "$here/checked" hangs >"$out/log" 2>&1
case $?${SANITIZERS:-} in
124*thread*) ;;
124*) grep -qE 'checked\(.*0x' "$out/log" || wrong "checked: has not said itself where" ;;
*) wrong "checked: no hang" ;;
esac
# What runners make of it.
says()
{
	. "$TOP_SRCDIR/tests/verdict.bash"
	verdict_begin these "run it"
	PATH=$out:$PATH
	verdict_run good 20 "$here/hangs" says
	verdict_run bad 20 "$here/hangs" killed
	verdict_run slow 1 "$here/hangs" burns
	verdict_run waited 20 "$here/hangs" late
	verdict_case not-here sh -c 'echo "no such thing"; exit 77'
	verdict_summary
	echo "status $?"
}
(unset VERDICT_INSIDE; says) >"$out/log" 2>&1
while IFS= read -r pattern; do
	grep -qxE "$pattern" "$out/log" || wrong "verdicts: wanted $pattern"
done <<'END'
PASS good [0-9.]+ s: 29
WRONG bad [0-9.]+ s: status 137: watch: bad: signal 9 \(SIGKILL\)
 *again: run it bad
LATE slow [0-9.]+ s \(limit 1\): [0-9.]+ s busy, TEST_SLOW 1
LATE waited [0-9.]+ s \(limit 20\): a message that was sent
SKIP not-here: no such thing
LATE these-slow: run it slow
LATE these-waited: run it waited
1 passed, 1 failed, 2 late
status 1
END
# What the driver of sections makes of that: a build whose test is late unless it has ten times the
# time; runners that were late in other ways; more late ones than there may be.
mkdir -p "$out/main/tests/watch" "$out/scripts" "$out/logs"
ln -s "$here/watch" "$out/main/tests/watch/"
printf '%s\n' '[ "${TEST_TIMES:-1}" = 1 ] || exit 0' 'echo "LATE words: of the test itself"' "exec '$here/hangs' burns" >"$out/main/tests/busy.sh"
cat >"$out/main/Makefile" <<END
check:
	TEST_TIMEOUT=1 bash '$TOP_SRCDIR/scripts/run-test' \$(CURDIR)/tests/busy.sh >tests/busy.log 2>&1; \\
	status=\$\$?; echo "\$\$TEST_MEASURED" >>slow; \\
	if [ \$\$status = 0 ]; then echo "# PASS:  1"; echo "# FAIL:  0"; else echo "# PASS:  0"; echo "# FAIL:  1"; fi >test-suite.log; \\
	[ \$\$status != 0 ] || exit 0; echo ":global-test-result: FAIL" >tests/busy.trs; exit 1
END
# driven SECTION...
driven()
(
	unset CI TEST_SLOW TEST_MEASURED TEST_TIMES
	top=$TOP_SRCDIR work=$out logs=$out/logs scale=gate seed=1 beside= optional=
	sections="check conformance guest section wrong many broken broken-counted siw two-guests rdma-answers"
	. "$top/scripts/drive.bash"
	. "$top/scripts/sections.bash"
	section_check() { check_in main; }
	section_conformance()
	{
		printf '%s\n' "LATE ping 61.5 s (limit 60): a message, at ::1" "LATE ping 62.5 s (limit 60): a message, at 10.99.0.1" \
			"LATE conformance-ping: true" "9 passed, 0 failed"
		return 75
	}
	section_guest()
	{
		. "$top/tests/verdict.bash"
		echo "PASS all 1.0 s" >"$out/guest"
		verdict_guest 124 "$out/guest" false
	}
	section_section() { SECTION_TIMEOUT=1 top=$out delivered scripts/sleeps; }
	section_wrong()
	{
		printf '%s\n' "WRONG first 1.0 s: status 1" "2 passed, 0 failed"
		SECTION_TIMEOUT=1 top=$out delivered scripts/sleeps
	}
	section_many() { printf 'LATE many-%s: true\n' 1 2 3 4; return 75; }
	section_broken()
	{
		status=0
		printf '%s\n' "LATE broken-first: true" "the rest does not build"
		worse 75
		worse 2
		worse 75
		return $status
	}
	section_broken-counted() { echo "9 passed, 0 failed" && section_broken; }
	made() { :; }
	drive "$@"
	conclude
	echo "status $?"
)
printf '#!/bin/sh\n[ -n "${TEST_TIMES-}" ] || exec sleep 30\n' >"$out/scripts/sleeps"
chmod +x "$out/scripts/sleeps"
driven check conformance guest >"$out/log" 2>&1
[[ $(head -n 1 "$out/main/slow") =~ ^[0-9]+$ ]] || wrong "check: the machine was not measured"
while IFS= read -r pattern; do
	grep -qxE "$pattern" "$out/log" || wrong "driver: wanted $pattern"
done <<'END'
LATE check-tests/busy.sh, then PASS alone in [0-9]+ s; first: LATE tests/busy.sh [0-9.]+ s \(limit 1\)
LATE conformance-ping, then PASS alone in [0-9]+ s; first: LATE ping 61.5 s \(limit 60\): a message, at ::1
FAILED guest-guest: late, and not good alone either after [0-9]+ s; first: LATE guest [0-9.]+ s: the guest has not ended
12 passed, 1 failed
status 1
END
driven section wrong >"$out/log" 2>&1
while IFS= read -r pattern; do
	grep -qxE "$pattern" "$out/log" || wrong "driver: wanted $pattern"
done <<'END'
LATE scripts-sleeps, then PASS alone in [0-9]+ s; first: LATE scripts-sleeps [0-9]+ s \(limit 1\)
wrong +FAILED +2 passed +1 failed .*
before the change, too\?  git worktree add .* wrong
status 1
END
driven many >"$out/log" 2>&1
grep -qx "machine too slow: 4 tests were late, 3 may be" "$out/log" && grep -qx "status 75" "$out/log" || wrong "driver: four late ones"
driven broken broken-counted >"$out/log" 2>&1
for name in broken broken-counted; do
	grep -qE "^$name +FAILED .* 1 failed " "$out/log" || wrong "driver: what is late hides what does not build ($name)"
done
# Each part of a section runs, also after one that is late.
mkdir "$out/scripts/guest" && printf '#!/bin/sh\n' >"$out/scripts/guest/siw" && chmod +x "$out/scripts/guest/siw"
# parts SECTION COUNT: runs it with parts that are late; so many
parts()
(
	top=$out work=$out logs=$out/logs scale=gate seed=1
	. "$TOP_SRCDIR/scripts/sections.bash"
	made() { :; }
	delivered()
	{
		[[ " $* " != *" --programs "* ]] || return 0
		echo "part $*" | tee -a "$out/parts"
		return 75
	}
	: >"$out/parts"
	echo "stale" >"$logs/rdma-answers.shm"
	(set -o pipefail; "section_$1") >"$out/log" 2>&1
	[ $? -eq 75 ] || wrong "$1: its parts are late, and it is not"
	[ "$(wc -l <"$out/parts")" -eq "$2" ] && [ "$(grep -c '^part ' "$out/log")" -eq "$2" ] || wrong "$1: not $2 parts"
	exit $failed
)
parts siw 2 && parts two-guests 6 && parts rdma-answers 5 || failed=$((failed + 1))
# A guest that has not ended is late; one that fails is wrong.
mkdir -p "$out/tests/conformance" "$out/programs" && : >"$out/programs/ping"
ln -s "$TOP_SRCDIR/tests/verdict.bash" "$out/tests/" && cp "$TOP_SRCDIR/tests/conformance/run" "$out/tests/conformance/"
: >"$out/tests/conformance/ping.c"
# answers GUEST STATUS PATTERN: what the conformance programs make of a guest that does this
answers()
{
	local status
	printf '#!/bin/sh\n%s\n' "$1" >"$out/scripts/guest/run" && chmod +x "$out/scripts/guest/run"
	"$out/tests/conformance/run" --oracle --compiled "$out/programs" ping >"$out/log" 2>&1
	status=$?
	[ $status -eq "$2" ] && grep -qxE "$3" "$out/log" || wrong "conformance: $1: status $status"
}
answers "echo ping/::1/recv: 1; exit 124" 75 "LATE conformance-guest: .*/tests/conformance/run --oracle ping"
answers "echo ping/::1/exit: 139; exit 124" 1 "WRONG guest: status 124"
answers "exit 125" 1 "WRONG guest: status 125"
# Kernel RDS alone in a guest is in virtual time, and waits for no file of this machine.
answers 'case "$*" in *--icount*--file*/inside*) echo ping/::1/recv: 1 ;; esac' 0 "1 checks, 0 failures"
# Behind send_checks, kernel RDS makes no connection on the device.
answers_last()
{
	printf '#!/bin/sh\ncase "$*" in *" tos zerocopy send_checks") echo tos/::1/recv: 1 ;; esac\n' >"$out/scripts/guest/run"
	"$out/tests/conformance/run" --oracle --rdma rxe --compiled "$out/programs" tos send_checks zerocopy >"$out/log" 2>&1 &&
		grep -q "^1 checks, 0 failures" "$out/log" || wrong "conformance: send_checks is not the last one"
}
answers_last
# What two/in_one names is not asked between two guests; its answers are those of one, with the addresses
# of two.  Over TCP a difference may be of some sides only.
(
	cd "$out/tests/conformance" && mkdir -p two && : >two/left_out && : >rdma_atomic.c && : >"$out/programs/rdma_atomic" &&
		echo "rdma_atomic	why" >two/in_one && echo "ping/10.97.0.1/recv: 1" >oracle.two.txt &&
		echo "rdma_atomic/10.98.0.1/key: from inet 10.98.0.1 port 4181 len 16" >oracle.rdma.txt &&
		echo "rdma_atomic/10.97.0.1/key: from inet 10.97.0.2 port 4181 len 16" >answers || exit 1
	printf '#!/bin/sh\nfor name; do case $name in ping | rdma_atomic) echo $name/10.97.0.1/recv: 1 ;; esac; done\n' \
		>"$out/scripts/guest/two" && chmod +x "$out/scripts/guest/two"
	./run --verify --two --rdma rxe --compiled "$out/programs" >"$out/log" 2>&1 && grep -q "^1 checks, 1 equal" "$out/log" ||
		wrong "conformance: --verify --two asks other programs"
	./run --verify --two --rdma rxe --compiled "$out/programs" rdma_atomic >"$out/log" 2>&1 && wrong "conformance: --verify asks nothing"
	./run --two --rdma rxe --answers answers rdma_atomic >"$out/log" 2>&1 && grep -q "^1 checks, 1 equal" "$out/log" ||
		wrong "conformance: other answers of one guest"
	echo "library-*:ping/*/recv	why" >differences.tcp && : >two/left_out.tcp && echo "ping/10.97.0.1/recv: 1" >oracle.tcp.txt &&
		echo "ping/10.97.0.1/recv: 2" >answers || exit 1
	./run --two --tcp library-kernel --answers answers ping >"$out/log" 2>&1 && grep -q "^1 checks, 0 equal, 1 listed" "$out/log" ||
		wrong "conformance: a difference of these sides"
	./run --two --tcp kernel-library --answers answers ping >"$out/log" 2>&1 && wrong "conformance: a difference of other sides"
	exit $failed
) || failed=$((failed + 1))
slow=$("$here/watch" --measure)
[ "$slow" -ge 1 ] && [ "$slow" -le 50 ] || wrong "--measure says $slow"
exit $((failed > 0))
