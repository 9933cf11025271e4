# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=bash
# verdict.bash - the verdicts that all runners of tests share, by exit statuses.  Sourced by bash.
#
#	0	PASS
#	75	LATE	a limit has passed and nothing wrong was seen: try it once more, alone, with
#			more time
#	77	SKIP	it cannot run here, and says why
#	else	WRONG	also a hang, or an end by a signal: never tried again
#
# One line for each case:
#	PASS name 3.2 s: its last line of output
#	LATE name 61.0 s (limit 60): what has not come
#	WRONG name 2.1 s: why		below it, indented: its output, and how to run it again
#	SKIP name: why
# At the end, for each that was late, "LATE section-name: command that runs it alone", then
# "N passed, N failed".
#
# Environment:
#	TEST_SLOW	how many times slower this machine is than an idle one (default: measured)
#	TEST_MEASURED	the same before it is multiplied, where who starts many tests has measured
#	TEST_TIMES	multiplies TEST_SLOW (default 1; 10 to try a late case again, without
#			TEST_SLOW, since in a guest it is measured there)
#	SANITIZERS
#	VERDICT_SECTION, VERDICT_AGAIN	for those last lines, set by the caller of the runner; names
#			of cases are appended to the latter
#	VERDICT_INSIDE	the runner is one test; its caller prints the verdict

verdict_source=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
verdict_passed=0 verdict_failed=0 verdict_late=0 verdict_skipped=0 verdict_began=$EPOCHREALTIME
verdict_lates=()

# verdict_begin SECTION AGAIN [BUILD]: AGAIN is the command to which the names of cases are
# appended, BUILD is where tests/watch was built
verdict_begin()
{
	local build=${3:-${TOP_BUILDDIR:-$PWD}}
	verdict_section=${VERDICT_SECTION:-$1}
	verdict_again=${VERDICT_AGAIN:-$2}
	verdict_dir=$(mktemp -d "${TMPDIR:-/tmp}/verdict.XXXXXX") || exit 99
	trap 'rm -rf "$verdict_dir"' EXIT
	verdict_log=$verdict_dir/log # what the case of now has said
	verdict_watch=$build/tests/watch/watch
	if [ ! -x "$verdict_watch" ]; then
		verdict_watch=$verdict_dir/watch
		"${CC:-cc}" -O1 -o "$verdict_watch" "$verdict_source"/watch/{watch,tree,stacks}.c || exit 99
	fi
}

# verdict_slow: sets TEST_SLOW; TEST_PATIENCE is the same for RDS_PRELOAD_PATIENCE.  Check has limits
# of its own, which tell neither a hang from a slow test nor late from wrong: 0 turns them off.
verdict_slow()
{
	if [ -z "${TEST_SLOW:-}" ]; then
		TEST_SLOW=${TEST_MEASURED:-$("$verdict_watch" --measure)}
		case ${SANITIZERS:-} in
		*thread*) TEST_SLOW=$((TEST_SLOW * 8)) ;;
		?*) TEST_SLOW=$((TEST_SLOW * 4)) ;;
		esac
		TEST_SLOW=$((TEST_SLOW * ${TEST_TIMES:-1}))
	fi
	export TEST_SLOW CK_TIMEOUT_MULTIPLIER=0
	TEST_PATIENCE=$((TEST_SLOW < 100 ? TEST_SLOW : 100))
}

# verdict_watched LIMIT COMMAND...: runs it; ends it if it hangs, or is busy for longer than LIMIT;
# its status, or that of watch
verdict_watched()
{
	verdict_limit=$1
	shift
	"$verdict_watch" --name "${verdict_name:-${1##*/}}" --limit "$verdict_limit" -- "$@"
}

# verdict_wait PID: adds how it ends to the caller's status: what is late hides nothing wrong
verdict_wait()
{
	local its=0
	wait "$1" || its=$?
	[ $its = 0 ] || [[ $status != @(0|75) ]] || status=$its
}

# verdict_case NAME COMMAND...: a command, or a function of the runner, and the verdict
verdict_case()
{
	verdict_name=$1 verdict_began=$EPOCHREALTIME verdict_limit=
	shift
	"$@" >"$verdict_log" 2>&1 </dev/null
	verdict_of $?
}

# verdict_run NAME LIMIT COMMAND...
verdict_run()
{
	verdict_case "$1" verdict_watched "${@:2}"
}

# verdict_start NAME; then a command with its output in $verdict_log; then verdict_of STATUS: the
# line
verdict_start()
{
	verdict_name=$1 verdict_began=$EPOCHREALTIME verdict_limit=
	: >"$verdict_log"
}

# verdict_took: how long the case has taken so far
verdict_took()
{
	awk -v from="$verdict_began" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", to - from }'
}

# verdict_why LOG: what a program, or its watch, has said about being late
verdict_why()
{
	local why
	why=$(grep -a -m 1 '^LATE ' "$1")
	why=${why#LATE }
	echo "${why#"$verdict_name "}"
}

# verdict_say_late [WHAT]: the line of a late case
verdict_say_late()
{
	echo "LATE $verdict_name $(verdict_took)${verdict_limit:+ (limit $verdict_limit)}${1:+: $1}"
}

# verdict_show [LINE]: the beginning and the end of the output
verdict_show()
{
	{
		head -n 100 "$verdict_log"
		tail -n +101 "$verdict_log" | tail -n 100
		[ $# = 0 ] || echo "$1"
	} | sed 's/^/     /'
}

verdict_of()
{
	local last took
	last=$(tail -n 1 "$verdict_log" | tr -d '\r')
	took=$(verdict_took)
	case $1 in
	0)
		verdict_passed=$((verdict_passed + 1))
		echo "PASS $verdict_name $took${last:+: $last}"
		;;
	75)
		verdict_late=$((verdict_late + 1))
		verdict_lates+=("$verdict_name")
		verdict_say_late "$(verdict_why "$verdict_log")"
		verdict_show # what it waits for
		;;
	77)
		verdict_skipped=$((verdict_skipped + 1))
		echo "SKIP $verdict_name: $last"
		;;
	*)
		verdict_failed=$((verdict_failed + 1))
		last=$(grep -a '^watch: ' "$verdict_log" | tail -n 1)
		[ -n "$last" ] || last=$(tail -n 1 "$verdict_log")
		echo "WRONG $verdict_name $took: status $1${last:+: $last}"
		verdict_show "again: $verdict_again $verdict_name"
		;;
	esac
	return "$1"
}

# verdict_guest STATUS LOG AGAIN: the last lines of a runner that has another runner in a guest.
# That one has printed its own, unless its limit has ended it (124), or the guest has failed.  The
# status.
verdict_guest()
{
	local wrong

	if grep -qa '^[0-9]* passed, [0-9]* failed' "$2"; then
		return "$1"
	fi
	wrong=$(grep -ac '^WRONG ' "$2")
	if [ "$1" -ne 124 ]; then
		echo "$(grep -ac '^PASS ' "$2") passed, $((wrong + 1)) failed"
		return 1
	fi
	verdict_name=guest verdict_say_late "the guest has not ended"
	echo "LATE ${VERDICT_SECTION:-guest}-guest: $3"
	echo "$(grep -ac '^PASS ' "$2") passed, $wrong failed, 1 late"
	[ "$wrong" -eq 0 ] && return 75 || return 1
}

# verdict_summary: the last lines; its status is the runner's
verdict_summary()
{
	local name
	for name in "${verdict_lates[@]}"; do
		[ -z "${VERDICT_INSIDE-}" ] || break
		echo "LATE $verdict_section-$name: $verdict_again $name"
	done
	if [ $((verdict_passed + verdict_failed + verdict_late + verdict_skipped)) = 0 ]; then
		echo "no case has such a name"
		verdict_failed=1
	fi
	echo "$verdict_passed passed, $verdict_failed failed$([ $verdict_late = 0 ] || echo ", $verdict_late late")"
	[ "$verdict_failed" -eq 0 ] || return 1
	[ "$verdict_late" -eq 0 ] || return 75
}
