# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=bash
# What the runners of the fault suites share: did as many connections break as the faults imply that
# were asked for?  A suite whose faults do not come any more would pass for ever.  Sourced, behind
# tests/verdict.bash.
breaks=0 due=0

# breaks_in LOG: how many "messages" has counted there, each at both ends of a connection
breaks_in()
{
	sed -n 's/.* \([0-9]*\) disconnects.*/\1/p' "$1" | tail -n 1
}

# breaks_case LOG SPEC PROGRAM ARG...: it has run, and all went well.  "messages" has six sockets;
# whenever one of them sends, the connection breaks with a chance of one in the number behind
# "disconnect=" (when it is received, too: that is not counted on).
breaks_case()
{
	local log=$1 rate messages=0

	[[ $2 =~ (^|,)disconnect=([0-9]+) && ${3##*/} = messages ]] || return 0
	rate=${BASH_REMATCH[2]}
	shift 3
	while [ $# -gt 1 ]; do
		[ "$1" != -n ] || messages=$2
		shift
	done
	breaks=$((breaks + $(breaks_in "$log")))
	due=$(awk -v due="$due" -v n="$messages" -v rate="$rate" 'BEGIN { print due + 6 * n / rate }')
}

# breaks_judged: a line, and a failure if there were too few; chance may take away two standard
# deviations of what is due.
breaks_judged()
{
	local least

	least=$(awk -v due="$due" 'BEGIN { n = due - 2 * sqrt(due); print (n > 0 ? int(n) : 0) }')
	echo "disconnects that were asked for: $breaks, at least $least must have come"
	[ "$breaks" -lt "$least" ] || return 0
	verdict_start disconnects
	echo "fewer than the faults imply" >"$verdict_log"
	verdict_of 1
}
