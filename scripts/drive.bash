# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# drive.bash - runs sections one after the other, or some beside each other, and prints how each
# ended.  For scripts/test and scripts/soak, which set
#	top, work, logs		the source tree; where builds go; where the output of each section
#				goes, as NAME.log
#	sections, optional	all sections; those that run only when they are named
#	beside			"a+b": these run at the same time
#	scale, seed		as for sections.bash
# A section is a function section_NAME, described by the comment behind its first line.  It may
# print
#	N passed, N failed	as its last such line: these are counted; without such a line the
#				section counts as one test
#	SKIP reason		for a test that cannot run here
#	LATE NAME: COMMAND	for a test that has passed a limit, while nothing wrong was seen
#				(tests/verdict.bash); the command runs it alone.  How long it took
#				is in the line "LATE CASE N s ..." before, where NAME is CASE, or
#				ends in -CASE
#	WRONG ...		for each wrong test
# Its status is 75 if tests were late and nothing was wrong, 77 if all of it was skipped.
#
# A wrong test stays wrong.  A late test is run once more at the end, alone and with ten times the
# time.  If it passes then, it counts as passed, and is listed with both times.  If it is late
# again, it has failed.  More than LATE_MOST late tests are the machine's fault: status 75. With
# CI=true a skip is a failure, unless it is one of may_skip.

# Where python3 is the script of a version manager, each start of it is a hundred processes.
python=$(command -v python3)
if [ -n "$python" ] && [ "$(head -c 2 "$python")" = '#!' ]; then
	PATH=$("$python" -c 'import os, sys; print(os.path.dirname(os.path.realpath(sys.executable)))'):$PATH
fi

# has LIST WORD
has()
{
	[[ " $(echo $1) " == *" $2 "* ]]
}

LATE_MOST=3

# section_list: prints the names and descriptions
section_list()
{
	local s
	for s in $sections $optional; do
		printf '%-15s%s\n' "$s" "$(described "$s")"
	done
}

described()
{
	sed -n "s/^section_$1() # //p" "$top/scripts/sections.bash"
}

# section_chosen NAME...: do these sections exist?
section_chosen()
{
	local s
	for s; do
		has "$sections $optional" "$s" && continue
		echo "there is no section $s; there are: $(echo $sections $optional)" >&2
		return 1
	done
}

# allowed REASON: is it one of may_skip?
allowed()
{
	local p
	for p in "${may_skip[@]}"; do
		# shellcheck disable=SC2053
		[[ $1 == $p ]] && return 0
	done
	return 1
}

is_late='^LATE [^ ]+: '

# Lines of a log that report a failure.  A log may contain any bytes (grep -a).
failing='^[[:space:]]*(FAIL:? |WRONG |not ok |ERROR |DIFFERENT )|: error:|:[FE]:|^==[0-9]+==ERROR|^WARNING: ThreadSanitizer'

# failures NAME LOG: the first such line and what follows, for readers who see only the end of the
# output
failures()
{
	echo "---- $1:"
	grep -aE -A 15 "$failing" "$2" |
		cut -c 1-300 | head -n 60
}

# idle: idle time of the processors so far, in ticks of 10 ms
idle()
{
	awk '/^cpu / { print $5 + $6 }' /proc/stat
}

# run_section NAME: runs it, with its output in its log.  A file beside that gets its status, the
# time that it took, and for how much of that the processors were idle (percent).
run_section()
{
	local start=$SECONDS before status took
	before=$(idle)
	rm -f "$logs/$1.ended"
	(set -o pipefail; "section_$1") >"$logs/$1.log" 2>&1 </dev/null
	status=$?
	took=$((SECONDS - start))
	echo "$status $took $((($(idle) - before) / ((took > 0 ? took : 1) * $(nproc))))" >"$logs/$1.ended"
}

headline()
{
	echo
	echo "==== $1: $(described "$1")"
}

# judge_section NAME: adds to passed, failed, summary
judge_section()
{
	local name=$1 log=$logs/$1.log status=1 took=0 idle=0 counts p f i l=${#late[@]} skips=0 refused=0 reason verdict
	read -r status took idle <"$logs/$name.ended"
	while IFS= read -r reason; do
		echo "SKIP $reason"
		skips=$((skips + 1))
		if [ "${CI-}" = true ] && ! allowed "$reason"; then
			refused=$((refused + 1))
		fi
	done < <(sed -n 's/^SKIP:\{0,1\} \{1,\}//p' "$log" | grep -av '^tests/[^ ]*$') # automake's own line has no reason
	mapfile -t -O "$l" late < <(grep -aE "$is_late" "$log" | sort -u)
	for ((i = l; i < ${#late[@]}; i++)); do
		late_in[i]=$log
	done
	l=$((${#late[@]} - l))
	counts=$(grep -aE '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
	p=$(echo "$counts" | sed -n 's/^\([0-9]*\) passed.*/\1/p')
	f=$(echo "$counts" | sed -n 's/^[0-9]* passed, \([0-9]*\) failed.*/\1/p')
	if [ -z "$counts" ]; then
		p=0 f=0
		if [ "$status" -eq 0 ]; then
			p=1
		elif [ "$status" -eq 77 ] && [ $skips -gt 0 ] || [ "$status" -eq 75 ] && [ "$l" -gt 0 ]; then
			: # all of it skipped, reasons given; or late
		else
			f=1
		fi
	elif [ "$status" -ne 0 ] && [ "$f" = 0 ] && { [ "$status" -ne 75 ] || [ "$l" = 0 ]; }; then
		f=1 # the runner failed although its tests passed, or were late
	fi
	# Whatever has ended the rest.
	[ "$f" -gt 0 ] || ! grep -qaE '^WRONG ' "$log" || f=1
	[ $refused -gt 0 ] && echo "$refused skipped where nothing may be skipped (CI=true)"
	f=$((f + refused))
	verdict=ok
	[ "$l" -gt 0 ] && verdict=late
	[ "$f" -gt 0 ] && verdict=FAILED
	passed=$((passed + p))
	failed=$((failed + f))
	if [ $verdict = FAILED ]; then
		tail -n 80 "$log"
		recap+=$(failures "$name" "$log")$'\n'
		echo "---- $name FAILED (status $status), whole log: $log"
		echo "before the change, too?  git worktree add ../parent HEAD~ && ../parent/scripts/${0##*/} $([ "$scale" = gate ] || echo "--seed $seed ")$name"
	else
		echo "$p passed, $f failed, $skips skipped${l:+, $l late}"
	fi
	summary+=$(printf '%-15s %-7s %5s passed %4s failed %4s skipped %5s s, %2s %% idle' "$name" "$verdict" "$p" "$f" \
		"$skips" "$took" "$idle")$'\n'
	# some readers see only the summary
	[ $verdict != FAILED ] || summary+=$( (grep -a -m 4 -E "$failing" "$log" || tail -n 3 "$log") | cut -c 1-200 | sed 's/^[[:space:]]*/      /')$'\n'
}

# run_beside NAME...: runs them at the same time.  A single one stays in the foreground: a
# background job does not get an interrupt.
run_beside()
{
	local name pids=()
	if [ $# -eq 1 ]; then
		run_section "$1"
		return
	fi
	for name; do
		run_section "$name" &
		pids+=($!)
	done
	wait "${pids[@]}"
}

# The chosen ones that run at the same time as this one, itself included.
group_of()
{
	local names name
	for names in $beside; do
		has "${names//+/ }" "$1" || continue
		for name in ${names//+/ }; do
			! has "$chosen" "$name" || echo "$name"
		done
		return
	done
	echo "$1"
}

passed=0 failed=0 summary='' recap='' ran='' late=() late_in=()

# generated: makes configure, if it is missing or older than its sources
generated()
{
	mkdir -p "$logs" || return 1
	if [ -x configure ] && [ ! configure.ac -nt configure ] && [ -z "$(find m4 -name 'rds_*.m4' -newer configure)" ]; then
		return
	fi
	./autogen.sh >"$logs/autogen.log" 2>&1 && return
	cat "$logs/autogen.log"
	echo "autogen.sh failed (scripts/install-deps installs what it needs)"
	return 1
}

# drive NAME...: runs these sections; `until`: no section begins after so many seconds of this shell
drive()
{
	local s name group until=${until:-0}
	chosen=$*
	for s; do
		has "$ran" "$s" && continue
		if [ "$until" -gt 0 ] && [ "$SECONDS" -ge "$until" ]; then
			summary+=$(printf '%-15s not run: time was over' "$s")$'\n'
			continue
		fi
		mapfile -t group < <(group_of "$s")
		if [ ${#group[@]} -gt 1 ]; then
			printf '\n==== at the same time: %s\n' "${group[*]}"
		else
			headline "$s"
		fi
		run_beside "${group[@]}"
		for name in "${group[@]}"; do
			[ ${#group[@]} -eq 1 ] || headline "$name"
			judge_section "$name"
		done
		ran+=" ${group[*]}"
	done
}

# try_again LINE LOG: runs a late test again, alone
try_again()
{
	local name=${1#LATE } command began=$SECONDS first log=$logs/late.log
	command=${name#*: } name=${name%%: *}
	# Names of sections and of cases contain dashes, too: takes the line whose case is the end
	# of this name.
	first=$(awk -v name="-$name" '/^LATE [^ ]+ [0-9.]+ s/ && substr(name, length(name) - length($2)) == "-" $2 { print; exit }' "$2")
	[ "$command" != "$name" ] || return
	echo "once more, alone: $command"
	if (unset TEST_SLOW && TEST_TIMES=10 bash -c "$command") >"$log" 2>&1 </dev/null; then
		passed=$((passed + 1))
		summary+="LATE $name, then PASS alone in $((SECONDS - began)) s; first: ${first:-no time known}"$'\n'
	else
		failed=$((failed + 1))
		summary+="FAILED $name: late, and not good alone either after $((SECONDS - began)) s; first: ${first:-no time known}"$'\n'
		recap+=$(failures "$name" "$log")$'\n'$(tail -n 20 "$log")$'\n'
	fi
}

# conclude: prints the failures, the summary and the counts; status 0 only if nothing failed
conclude()
{
	local i
	if [ ${#late[@]} -gt $LATE_MOST ]; then
		summary+="machine too slow: ${#late[@]} tests were late, $LATE_MOST may be"$'\n'$(printf '  %s\n' "${late[@]}")$'\n'
	else
		for i in "${!late[@]}"; do
			try_again "${late[i]}" "${late_in[i]}"
		done
		late=()
	fi
	if [ -n "$recap" ]; then
		echo
		echo "==== what failed"
		printf '%s' "$recap"
	fi
	echo
	echo "==== summary"
	printf '%s' "$summary"
	printf '%d s in all\n' "$SECONDS"
	echo "$passed passed, $failed failed${late:+, ${#late[@]} late}"
	[ "$failed" -eq 0 ] || return 1
	[ ${#late[@]} -eq 0 ] || return 75
}
