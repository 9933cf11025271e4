# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# sections.bash - the sections that scripts/test and scripts/soak run (drive.bash says how).  Each
# section builds what it needs in a directory of its own in $work.
#	scale, seed	gate or soak; the first seed of tests that have seeds

jobs=${JOBS:-2}
tests=$((2 * jobs)) # at a time: many wait most of their time
shm=
[ -d /dev/shm ] && [ -w /dev/shm ] && shm=/dev/shm

# Skips that are no failure in CI, as patterns of the reason.  All of these tests run in the plain
# build.  Keep this short.
# - the conformance programs are not built with a sanitizer, so a library with a sanitizer cannot be
#   preloaded into them
# - under ThreadSanitizer the traffic of two mock processes takes minutes
# - a sanitizer's runtime has a thread, mappings and signal handling of its own
# - this machine has no huge pages set aside, the guests have (section devices)
# - if both sides are in one process, neither can be stopped or killed alone
may_skip=("kinds-huge*: skipped, there is no huge page*"
	"*-inside: *: skipped, the other side must stand still meanwhile"
	"*-inside: *: skipped, the other side must be killed"
	"tests/conformance/native: skipped: the library needs its sanitizer's runtime*"
	"tests/conformance/held: skipped: the library needs its sanitizer's runtime*"
	"tests/unit/test_verbs_traffic: too many processes and messages for ThreadSanitizer"
	"tests/unit/test_reentry: no call is rolled forward under sanitizers*"
	"preload_* cannot run beside a sanitizer's runtime"
	"main_leaves cannot run beside a sanitizer's runtime"
	"bare_child cannot run beside a sanitizer's runtime"
	"handler_forks cannot run beside a sanitizer's runtime"
	"second-* cannot run beside a sanitizer's runtime"
	"jemalloc-* cannot run beside a sanitizer's runtime"
	"tcmalloc-* cannot run beside a sanitizer's runtime"
	"asan-* has that runtime already"
	"churn cannot run beside a sanitizer's runtime")

# size GATE SOAK: prints the one for this scale
size()
{
	[ "$scale" = gate ] && echo "$1" || echo "$2"
}

# ---- builds ----

# configured DIR ARG...: configure once in $work/DIR
configured()
{
	local dir=$work/$1
	shift
	mkdir -p "$dir" && cd "$dir" || return 1
	if [ ! -f Makefile ] || [ "$top/configure" -nt Makefile ]; then
		"$top/configure" --enable-silent-rules "$@"
	fi
}

# built DIR: compiles all that "make" and "make check" need there
built()
{
	cd "$work/$1" && make -j"$jobs" && make -j"$jobs" check TESTS=
}

# made DIR [TARGET...]: makes all products in $work/DIR, and these, where another section may do the
# same at this moment.  A section may be the only one that runs: each begins with this, or with a
# build of its own.
made()
{
	local dir=$work/$1
	[ "$1" != main ] || (flock 9 && configured main --enable-werror) 9>"$work/.configuring" || return 1
	shift
	# Not at once: `all` is a make of its own, and would make the same objects.
	flock "$dir" make -C "$dir" -j"$jobs" all || return 1
	[ $# -eq 0 ] || flock "$dir" make -C "$dir" -j"$jobs" "$@"
}

# ---- counts ----

# worse STATUS: of one more part of a section.  All parts run, also after one that is late; the
# section's status is that of the worst one: wrong, late, good.
worse()
{
	case $1 in
	0) [ $status != 77 ] || status=0 ;;
	75) [ $status = 1 ] || status=75 ;;
	*) status=1 ;;
	esac
}

# measured: how slow this machine is, for all tests of a build, before they slow each other down
measured()
{
	TEST_MEASURED=$(tests/watch/watch --measure) || return 1
	export TEST_MEASURED
	echo "TEST_MEASURED=$TEST_MEASURED"
}

# check_in DIR [TEST...]: runs make check there, for all tests or for these only; prints skips and
# counts
check_in()
{
	local status late=0 failed logs_of trs
	cd "$work/$1" && rm -f test-suite.log || return 1
	shift
	export VERDICT_AGAIN="make -C '$PWD' check TESTS="
	if [ $# -eq 0 ]; then
		measured && make -j"$tests" check
	else
		# "make check" would build all tests first.
		logs_of=$(printf '%s.log\n' "${@%.sh}")
		rm -f $logs_of
		# The tests themselves need no optimizer: under sanitizers that is two thirds of their build.
		make -j"$jobs" all && make -j"$jobs" tests/watch/watch &&
			make -j"$jobs" CFLAGS="-O0 -g -fno-omit-frame-pointer" $(printf '%s\n' "$@" | grep -v '\.sh$') &&
			measured && make -j"$tests" test-suite.log TEST_LOGS="$(echo $logs_of)"
	fi
	status=$?
	[ -e test-suite.log ] || return 1 # nothing has run
	while read -r trs; do
		[ $# -eq 0 ] || has "$*" "${trs%.trs}" || has "$*" "${trs%.trs}.sh" || continue
		case $(sed -n 's/^:global-test-result: //p' "$trs") in
		SKIP) echo "SKIP: ${trs%.trs}: $(grep -av '^SKIP ' "${trs%.trs}.log" | tail -n 1)" ;;
		FAIL | ERROR | XPASS)
			echo "---- ${trs%.trs}.log"
			if tail -n 1 "${trs%.trs}.log" | grep -qaE "$is_late"; then
				# What the test itself says is none of drive's lines.
				late=$((late + 1))
				tail -n 60 "${trs%.trs}.log" | head -n -2 | sed 's/^/     /'
				tail -n 2 "${trs%.trs}.log"
			else
				tail -n 60 "${trs%.trs}.log"
			fi
			;;
		esac
	done < <(find . -name '*.trs' -printf '%P\n' | sort)
	sed -n 's/^# PASS:  *//p' test-suite.log >.passed
	sed -n 's/^# \(FAIL\|ERROR\|XPASS\):  *//p' test-suite.log >.failed
	# automake knows no late ones
	failed=$(awk -v n=-$late '{ n += $1 } END { print n + 0 }' .failed)
	echo "$(awk '{ n += $1 } END { print n + 0 }' .passed) passed, $failed failed"
	[ $late = 0 ] || [ "$failed" != 0 ] || return 75
	return $status
}

# counted: appends the line "N passed, N failed" to the comparison's own last line; a listed
# difference is a pass
counted()
{
	awk '{ print } /^[0-9]+ checks, [0-9]+ equal, / { printf "%d passed, %d failed\n", $3 + $5, $(NF - 1) }'
}

# added_up: appends the sum of all lines "N passed, N failed"
added_up()
{
	awk '{ print } /^[0-9]+ passed, [0-9]+ failed/ { n++; p += $1; f += $3 }
		END { if (n) printf "%d passed, %d failed\n", p, f }'
}

# ---- runners of the tree ----

# delivered SCRIPT ARG...: makes the build of this tree, and runs one of them on it
delivered()
{
	local script=$1 began
	shift
	if [ ! -x "$top/$script" ]; then
		echo "$script is missing"
		return 1
	fi
	made main && cd "$work/main" || return 1
	# a node of its own: the tests and a live node of the user must not disturb each other
	RDS_PRELOAD_REGISTRY_DIR=$(mktemp -d "${shm:-/tmp}/rdstest.XXXXXX") || return 1
	export RDS_PRELOAD_REGISTRY_DIR
	trap 'rm -rf "$RDS_PRELOAD_REGISTRY_DIR"' EXIT
	local run=(env "TOP_SRCDIR=$top" "TOP_BUILDDIR=$work/main" "RDSRUN=$work/main/rdsrun/rdsrun" "$top/$script" "$@") status=0
	began=$SECONDS
	timeout --kill-after=10 "${SECTION_TIMEOUT:-600}" "${run[@]}" || status=$?
	if [ $status = 124 ] || [ $status = 137 ]; then
		echo "LATE ${script//\//-} $((SECONDS - began)) s (limit ${SECTION_TIMEOUT:-600})"
		echo "LATE ${script//\//-}: cd '$work/main' && RDS_PRELOAD_REGISTRY_DIR=\$(mktemp -d) timeout --kill-after=10 $((10 * ${SECTION_TIMEOUT:-600}))" \
			"env $(env | sed -n "s/^\(FUZZ_[A-Z]*\|SHARING_[A-Z]*\|TEST_SEED\)=.*/'&'/p" | tr '\n' ' ')${run[*]@Q}"
		return 75
	fi
	return $status
}

# over_each COMMAND ARG...: as delivered, over soft RoCE, then over soft iWARP; 77 only if all of it
# was skipped.  At once they would not take less time, since a guest keeps its two processors busy;
# and with one each, threads would not run at the same time.
over_each()
{
	local device status=77 ended
	for device in rxe siw; do
		echo "---- $device"
		ended=0
		(delivered "$@" --device $device) || ended=$?
		[ $ended = 77 ] || worse $ended
	done
	return $status
}

# again DIR SCRIPT: prints the command that runs one of its cases as it runs now; append the name
again()
{
	echo "cd '$work/$1' && env TOP_BUILDDIR='$work/$1' $(env | sed -n "s/^\(SANITIZERS\|FAULT_[A-Z]*\|RDMAOPS_[A-Z]*\|SHARING_[A-Z]*\)=.*/'&'/p" |
		tr '\n' ' ')'$top/$2'"
}

# fault_suite DIR CASE...: builds its programs there, then runs the suite (or these cases) on that
# library
fault_suite()
{
	local dir=$1
	shift
	made "$dir" fault-programs && cd "$work/$dir" || return 1
	TOP_BUILDDIR=$work/$dir VERDICT_AGAIN=$(again "$dir" tests/faults/run) "$top/tests/faults/run" "$@"
}

# rdma_suite DIR CASE...: the runner of tests/rdmaops, on that build
rdma_suite()
{
	local dir=$1
	shift
	made "$dir" rdma-programs && cd "$work/$dir" || return 1
	TOP_BUILDDIR=$work/$dir VERDICT_AGAIN=$(again "$dir" tests/rdmaops/run) "$top/tests/rdmaops/run" "$@"
}

# sharing_suite DIR CASE...: sequences of what several processes do with one socket
sharing_suite()
{
	local dir=$1
	shift
	made "$dir" tests/sharing/player && cd "$work/$dir" || return 1
	export SHARING_SEED=$seed
	TOP_BUILDDIR=$work/$dir VERDICT_AGAIN=$(again "$dir" tests/sharing/run) "$top/tests/sharing/run" "$@"
}

# ---- this host, the library as it is delivered ----

section_build() # products and tests without a warning, layers, exported symbols, manual
{
	configured main --enable-werror || return 1
	make -j"$jobs" clean && built main
}

section_check() # unit tests, tests under the preload, conformance on this host against what kernel RDS once said
{
	made main check TESTS= && check_in main
}

section_conformance() # plain PF_RDS programs under the preload, against what kernel RDS once said (oracle.txt)
{
	delivered tests/conformance/run --reference --build "$work/main" | counted
}

section_faults() # nothing lost while connections break and processes are killed, by seeds
{
	FAULT_SEED=$seed FAULT_ROUNDS=$(size 1 5) FAULT_CROWD=$(size 16 64) fault_suite main
}

# The conformance programs over TCP between this library and kernel RDS, each side in turn, in virtual
# time.
tcp_answers()
{
	local sides status=0
	for sides in library-kernel kernel-library library-library; do
		echo "---- $sides"
		(delivered tests/conformance/run --reference --two --tcp $sides --build "$work/main" | counted) || worse $?
	done
	return $status
}

section_tcp() # two hosts over TCP: between network namespaces; in the soak also against the kernel's rds_tcp in the guest
{
	made main fault-programs tcp-programs || return 1
	{
		status=0
		(TCP_MESSAGES=$(size 2000 20000) TCP_BREAKS=$(size 10 200) TCP_TROUBLES=$(size 4 100) TCP_HOSTILE=$(size 0 40) TCP_SEED=$seed delivered tests/tcp/run --build "$work/main") || worse $?
		[ "$(size 0 1)" = 0 ] || (delivered tests/tcp/kernel --build "$work/main") || worse $?
		[ "$(size 0 1)" = 0 ] || tcp_answers || worse $?
		exit $status
	} | added_up
	return "${PIPESTATUS[0]}"
}

section_crowd() # many processes of one host with 256 descriptors each: 1,000 clients of a server; 200, 500 and 1,000 that all talk to all
{
	FAULT_SEED=$seed FAULT_ROUNDS=1 fault_suite main clients-1000 crowd-200 crowd-500 crowd-1000
}

section_sharing() # sockets of several processes: random sequences of what programs do with them, compared with a model
{
	SHARING_SEEDS=$(size 150 2000) SHARING_LIMIT=$(size 100 600) sharing_suite main \
		broken-twice broken-lost forks leaves execs passes kills all crowd
}

section_rdma-ops() # RDMA between processes of this host, by hand-made cases and by a random player with a model
{
	RDMAOPS_SEED=$seed RDMAOPS_OPS=$(size 5000 100000) RDMAOPS_ROUNDS=1 rdma_suite main
}

section_programs() # unmodified programs of Debian under the preload
{
	delivered tests/programs/run --build "$work/main"
}

# ---- sanitizers ----

# The gate: clang, so that a second compiler checks all of the library.  Without the programs of
# "check", and without three unit tests, each of which takes half a minute to one here.
gate_asan()
{
	configured asan CC=clang --disable-lto --enable-werror --enable-sanitizers=address,undefined || return 1
	{
		status=0
		check_in asan $(unit_tests asan | tr ' ' '\n' | grep -v -E 'test_(verbs_pulled|verbs_traffic|closed_sockets)$') || worse $?
		SANITIZERS=address,undefined RDMAOPS_OPS=1500 RDMAOPS_ROUNDS=1 rdma_suite asan 'player-*' || worse $?
		SANITIZERS=address,undefined SHARING_SEEDS=10 SHARING_LIMIT=60 sharing_suite asan all || worse $?
		exit $status
	} | added_up
	return "${PIPESTATUS[0]}"
}

soak_asan()
{
	configured asan --disable-lto --enable-sanitizers=address,undefined && built asan || return 1
	{
		status=0
		check_in asan || worse $?
		SANITIZERS=address,undefined RDMAOPS_SEED=$seed RDMAOPS_OPS=3000 RDMAOPS_ROUNDS=1 rdma_suite asan || worse $?
		SANITIZERS=address,undefined SHARING_SEEDS=10 SHARING_LIMIT=60 sharing_suite asan all || worse $?
		exit $status
	} | added_up
	return "${PIPESTATUS[0]}"
}

section_asan() # AddressSanitizer and UndefinedBehaviorSanitizer: the gate has unit tests and players built by clang, the soak all tests built by gcc
{
	"${scale}_asan"
}

# unit_tests DIR: as make calls them
unit_tests()
{
	make -s -C "$work/$1" --eval='print-unit-tests: ; @echo $(UNIT_TESTS)' print-unit-tests
}

# The gate: tests of locks, queues and wake-ups.  The cases about limits (time to hand over at exit,
# descriptors) run at full speed only, in section faults.
section_tsan() # ThreadSanitizer: the gate has locks, queues, wake-ups and some traffic, the soak all tests
{
	local checks=() faults=(messages all-"$seed") ops=(player-calm-*)

	configured tsan --disable-lto --enable-sanitizers=thread || return 1
	if [ $scale = gate ]; then
		checks=(tests/unit/test_{lock,queue,progress,os,own_fds,timers,shm_wake,shm_recheck,recv,shown_race,poll_eventfd,meant_for} tests/programs/own.sh)
	else
		built tsan || return 1
		faults=(messages {disconnect,delay,drop,connect,room,memory,dup,all}-"$seed" last appears hostile hostile-asleep stopped)
		ops=('player-[cmdkl]*' 'notices-*' held-notices held-atomics held-barrier-A0 'held-player*')
	fi
	{
		status=0
		check_in tsan "${checks[@]}" || worse $?
		SANITIZERS=thread FAULT_SEED=$seed FAULT_MESSAGES=200 FAULT_ROUNDS=1 fault_suite tsan "${faults[@]}" || worse $?
		SANITIZERS=thread RDMAOPS_SEED=$seed RDMAOPS_OPS=600 RDMAOPS_ROUNDS=1 rdma_suite tsan "${ops[@]}" || worse $?
		exit $status
	} | added_up
	return "${PIPESTATUS[0]}"
}

# ---- hostile bytes, packaging ----

section_fuzz() # malformed bytes: the gate has those that were found to matter, the soak looks for others
{
	SECTION_TIMEOUT=3600 FUZZ_SEED=$seed FUZZ_SECONDS=$(size 0 600) FUZZ_BUILD=$work/fuzz delivered tests/fuzz/run
}

section_tarball() # the tarball builds from a read-only tree, some of its tests pass, installs, works, uninstalls
{
	local dir=$work/tarball name status
	rm -rf "$dir" "$work"/main/rdspreload-*.tar.gz && mkdir -p "$dir/build" && made main dist-gzip && cd "$work/main" || return 1
	tar -xzf rdspreload-*.tar.gz -C "$dir" && chmod -R a-w "$dir"/rdspreload-* && name=$(echo "$dir"/rdspreload-*) || return 1
	cd "$dir/build" && "$name/configure" --enable-silent-rules --disable-lto --enable-werror CFLAGS=-O0 --prefix="$dir/root" &&
		make -j"$jobs" && make install || return 1
	(check_in tarball/build tests/unit/{test_wire,test_registry,test_options,test_mock,build_checks.sh})
	status=$?
	"$dir/root/bin/rdsrun" /usr/bin/python3 -c 'import socket; socket.socket(21, 5).bind(("127.0.0.1", 0))' || status=1
	make uninstall && [ -z "$(find "$dir/root" ! -type d)" ] || status=1
	chmod -R u+w "$name"
	return $status
}

section_distcheck() # the same by automake's own distcheck, with all tests
{
	configured dist || return 1
	# A test that fails there shows its log, because the tree is deleted.  One that is skipped
	# there runs in a working tree.
	make -j"$tests" distcheck VERBOSE=1 2>&1 | awk '
		{ print }
		/^SKIP: tests\// { print "SKIP " $2 " in the tarball" }
		/^# PASS: / { p += $3 }
		/^# (FAIL|ERROR|XPASS): / { f += $3 }
		END { printf "%d passed, %d failed\n", p, f }'
	return "${PIPESTATUS[0]}"
}

# ---- guests ----

section_devices() # over soft RoCE and soft iWARP, in virtual time: programs of two processes, RDMA, connections that break
{
	made main rdma-programs fault-programs || return 1
	# Longer than the limit of a guest, which reports itself that it is late.
	SECTION_TIMEOUT=1000 delivered tests/rdma/gate --build "$work/main"
}

# The stored answers of kernel RDS over soft RoCE, in one guest and between two, and over TCP between
# two network namespaces have to be those that it gives now.  And it has to agree with the model of the section sharing, in its first few
# sequences.  In one guest it is asked in virtual time.
section_oracle() # the conformance programs on kernel RDS now, compared line by line; random sequences against their model
{
	made main tests/sharing/player tests/watch/watch || return 1
	local there=(env SHARING_LIB=none SHARING_SEEDS=10 TOP_BUILDDIR="$work/main") file
	local guest=(scripts/guest/run --modules "rds rds_tcp" --icount)
	for file in "$work"/main/tests/{sharing/player,watch/watch} "$top"/tests/{sharing/run,verdict.bash}; do
		guest+=(--file "$file")
	done
	local again="cd '$top' && ${guest[*]@Q} --timeout 18000 -- ${there[*]@Q} TEST_TIMES=\${TEST_TIMES:-1} '$top/tests/sharing/run'"
	local -x SECTION_TIMEOUT=1900 CONFORMANCE_TIMEOUT=1800
	{
		status=0
		(delivered tests/conformance/compare --build "$work/main" | counted) || worse $?
		(delivered tests/conformance/run --verify --rdma rxe | counted) || worse $?
		(delivered tests/conformance/run --verify --two --rdma rxe | counted) || worse $?
		(delivered tests/conformance/run --verify --two --tcp kernel-kernel | counted) || worse $?
		(delivered "${guest[@]}" --timeout $CONFORMANCE_TIMEOUT -- "${there[@]}" VERDICT_AGAIN="$again" \
			"$top/tests/sharing/run") || worse $?
		exit $status
	} | added_up
	return "${PIPESTATUS[0]}"
}

# Two guests at a time. Messages of a program to itself cross the device if its sockets are in other
# processes (--apart), so on siw without it only the programs of two processes use the device, and
# the others would say what they say on rxe. The last guest uses the addresses of an RDMA device,
# but shared memory between processes: few programs could answer otherwise than in the section check,
# and none otherwise on siw.  Where the machine has two processors, each guest has one: the threads
# of its programs do not run at the same time there, as they do in the sections with one guest.
section_rdma-answers() # the conformance programs over soft RoCE and soft iWARP, against what kernel RDS once said over RoCE
{
	local programs=$work/conformance pids=() parts="rxe rxe-apart siw siw-apart shm" status=0 name
	local run="tests/conformance/run --reference --compiled $programs --build $work/main --rdma"
	local talkers="rdma_args rdma_atomic rdma_mr rdma_notify rdma_read rdma_write two_processes two_processes_calls
		two_processes_cong"
	for name in $parts; do
		rm -f "$logs/rdma-answers.$name"
	done
	# nothing is compiled beside guests
	mkdir -p "$programs" && (delivered tests/conformance/run --programs "$programs") && "$top/scripts/guest/siw" || return 1
	export GUESTS=2
	(
		(delivered $run rxe --some | counted) >"$logs/rdma-answers.rxe" 2>&1 || worse $?
		(delivered $run siw $talkers | counted) >"$logs/rdma-answers.siw" 2>&1 || worse $?
		(delivered $run rxe --shm bind_again info_sockets transport $talkers | counted) \
			>"$logs/rdma-answers.shm" 2>&1 || worse $?
		exit $status
	) &
	pids+=($!)
	(
		(delivered $run siw --apart --some | counted) >"$logs/rdma-answers.siw-apart" 2>&1 || worse $?
		(delivered $run rxe --apart --some | counted) >"$logs/rdma-answers.rxe-apart" 2>&1 || worse $?
		exit $status
	) &
	pids+=($!)
	for name in "${pids[@]}"; do
		wait "$name" || worse $?
	done
	for name in $parts; do
		echo "---- $name"
		cat "$logs/rdma-answers.$name"
	done | added_up
	return $status
}

section_rdma-programs() # qperf and CPython's RDS tests, unmodified, over soft RoCE and soft iWARP
{
	over_each tests/rdma/programs --build "$work/main" --seconds 1 | added_up
}

# Twice the usual time: it takes longer than other sections.
section_rdma-verbs() # RDMA between processes over soft RoCE and soft iWARP, 100,000 operations of the player on each
{
	made main rdma-programs || return 1
	SECTION_TIMEOUT=${SECTION_TIMEOUT:-1200} over_each tests/rdma/rdmaops --build "$work/main" --seed "$seed" | added_up
}

# The conformance programs between two hosts; over soft iWARP those of two processes, and some
# others. One after the other, because two guests keep two processors busy.
two_answers()
{
	local run="tests/conformance/run --two --reference --build $work/main --rdma" status=0
	(delivered $run rxe | counted) || worse $?
	(delivered $run siw rdma_mr rdma_notify rdma_read rdma_write two_processes two_processes_calls two_processes_cong ping \
		cong_poll ordering recv_data send_order send_size tos | counted) || worse $?
	return $status
}

# The limit of the faults is longer than that of their guests, which report themselves that they are
# late.
section_two-guests() # two hosts, over soft RoCE and soft iWARP: the conformance programs; qperf; a network that loses packets; sockets that change hands; a process, a host that dies
{
	made main fault-programs || return 1
	{
		status=0
		two_answers || worse $?
		over_each tests/rdma/programs --build "$work/main" --two --seconds 1 || worse $?
		SECTION_TIMEOUT=1900 TEST_SEED=$seed over_each tests/rdma/faults --build "$work/main" --messages 30 --two || worse $?
		exit $status
	} | added_up
	return "${PIPESTATUS[0]}"
}

section_rxe() # connections over soft RoCE in the guest, which break
{
	# the guest may take 900
	made main fault-programs && SECTION_TIMEOUT=1000 TEST_SEED=$seed delivered tests/rdma/faults --build "$work/main" --device rxe
}

section_siw() # the same over soft iWARP
{
	made main fault-programs || return 1
	export TEST_SEED=$seed SECTION_TIMEOUT=1000 # the guest may take 900
	{
		status=0
		(delivered tests/rdma/faults --build "$work/main" --device siw) || worse $?
		(delivered tests/rdma/faults --build "$work/main" --device siw deafened) || worse $?
		exit $status
	} | added_up
	return "${PIPESTATUS[0]}"
}

section_thousand() # a thousand connections that break under traffic, over each device
{
	made main fault-programs || return 1
	SECTION_TIMEOUT=1500 TEST_SEED=$seed over_each tests/rdma/faults --build "$work/main" --thousand | added_up
}

# ---- the gate's own strength, speed ----

section_mutations() # small faults in a copy of the product: each is found by the gate
{
	SECTION_TIMEOUT=7200 delivered tests/mutations/run
}

section_bench() # every row of the benchmark once; judges no times
{
	delivered tests/bench/run --quick --build "$work/main"
}

section_speed() # the whole benchmark, with its targets
{
	delivered tests/bench/run --build "$work/main"
}
