#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# rdsrun: what it does to the environment, its exit statuses, and every verdict of --check.
set -u
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
failed=0 done=0

# expect WHAT WANTED GOT
expect()
{
	done=$((done + 1))
	case $3 in
	$2) ;;
	*)
		echo "FAIL: $1: wanted '$2', got '$3'"
		failed=$((failed + 1))
		;;
	esac
}

# check WHAT STATUS PATTERN PROGRAM: one verdict of --check
check()
{
	out=$("$RDSRUN" --check "$4" 2>&1)
	expect "$1: status" "$2" $?
	expect "$1: text" "$3" "$out"
}

library=$("$RDSRUN" --library)
expect "library found" "*/librdspreload.so" "$library"
"$RDSRUN" --help >/dev/null
expect "--help" 0 $?
# Alone in a directory it has only the place of installation left to look at.
mkdir "$tmp/bin"
cp "$RDSRUN" "$tmp/bin/rdsrun"
out=$("$tmp/bin/rdsrun" true 2>&1)
case $? in
0) echo "note: the library is installed here, its absence not tried" ;;
*) expect "no library: what to do" "*librdspreload.so is neither in *make install*" "$out" ;;
esac
expect "--version" "rdsrun (rdspreload) [0-9]*" "$("$RDSRUN" --version)"
"$RDSRUN" >/dev/null 2>&1
expect "no program: status" 2 $?
"$RDSRUN" --nonsense true >/dev/null 2>&1
expect "bad option: status" 2 $?

# Runs the program in its own place, with its status.
expect "same process" "$$" "$(exec "$RDSRUN" sh -c 'echo $PPID')"
"$RDSRUN" sh -c 'exit 7'
expect "exit status" 7 $?
"$RDSRUN" "$tmp/nothing" 2>/dev/null
expect "not found" 127 $?
"$RDSRUN" "$tmp" 2>/dev/null
expect "not executable" 126 $?
expect "arguments stay whole" "<a b><-l><>" "$("$RDSRUN" printf '<%s>' 'a b' -l '')"

# Environment.
expect "LD_PRELOAD set" "*librdspreload.so*" "$("$RDSRUN" sh -c 'echo "$LD_PRELOAD"')"
expect "LD_PRELOAD kept" "*librdspreload.so*:$tmp/other.so" \
	"$(LD_PRELOAD=$tmp/other.so "$RDSRUN" sh -c 'echo "$LD_PRELOAD"' 2>/dev/null)"
expect "set once only" 1 "$("$RDSRUN" "$RDSRUN" sh -c 'echo "$LD_PRELOAD"' | grep -o librdspreload | wc -l)"
# RDS_PRELOAD_DLSYM: the second object, once, also where the library is there already; what else
# there is stays.
expect "no DLSYM" 0 "$("$RDSRUN" sh -c 'echo "$LD_PRELOAD"' | grep -c librdsdlsym)"
expect "DLSYM=0" 0 "$(RDS_PRELOAD_DLSYM=0 "$RDSRUN" sh -c 'echo "$LD_PRELOAD"' | grep -c librdsdlsym)"
expect "DLSYM=yes" "rdsrun: warning: RDS_PRELOAD_DLSYM=yes is not one of 0|1: using 0 0" \
	"$(RDS_PRELOAD_DLSYM=yes "$RDSRUN" sh -c 'echo "$LD_PRELOAD"' 2>&1 | grep "RDS_PRELOAD_DLSYM=" ) $(
	RDS_PRELOAD_DLSYM=yes "$RDSRUN" sh -c 'echo "$LD_PRELOAD"' 2>/dev/null | grep -c librdsdlsym)"
expect "DLSYM=1" "*librdspreload.so*:$tmp/other.so:*/librdsdlsym.so" \
	"$(LD_PRELOAD=$tmp/other.so RDS_PRELOAD_DLSYM=1 "$RDSRUN" sh -c 'echo "$LD_PRELOAD"' 2>/dev/null)"
expect "DLSYM=1 later" "*librdspreload.so*:*/librdsdlsym.so" \
	"$("$RDSRUN" env RDS_PRELOAD_DLSYM=1 "$RDSRUN" sh -c 'echo "$LD_PRELOAD"')"
expect "DLSYM=1 once only" "1 1" "$(RDS_PRELOAD_DLSYM=1 "$RDSRUN" "$RDSRUN" sh -c 'echo "$LD_PRELOAD"' | tr : '\n' |
	awk '/librdspreload/ { p++ } /librdsdlsym/ { d++ } END { print p, d }')"
mkdir "$tmp/alone"
cp "$RDSRUN" "$library" "$tmp/alone"
out=$(RDS_PRELOAD_DLSYM=1 "$tmp/alone/rdsrun" true 2>&1)
case $?:$out in
126:*) expect "DLSYM=1, no such object" "rdsrun: RDS_PRELOAD_DLSYM: librdsdlsym.so is not beside */librdspreload.so: *" "$out" ;;
*) echo "note: the library is installed here, the absence of librdsdlsym.so not tried" ;;
esac
expect "--log" debug "$("$RDSRUN" --log debug sh -c 'echo "$RDS_PRELOAD_LOG"')"
expect "--spin" 17 "$("$RDSRUN" -s 17 sh -c 'echo "$RDS_PRELOAD_SPIN_US"')"
expect "--registry-dir" "$tmp" "$("$RDSRUN" --registry-dir="$tmp" sh -c 'echo "$RDS_PRELOAD_REGISTRY_DIR"')"
for bad in --log=bogus --spin=x --spin=1000001 --registry-dir=relative; do
	out=$("$RDSRUN" "$bad" echo ran 2>&1)
	expect "$bad: status" 2 $?
	expect "$bad: names the option" "rdsrun: ${bad%%=*}: '${bad#*=}' is not *" "$out"
done
expect "really loaded" "*librdspreload.so*" "$("$RDSRUN" cat /proc/self/maps | tr '\n' ' ')"
expect "--options shows a value and its origin" "*RDS_PRELOAD_SPIN_US*23*environment*" \
	"$(RDS_PRELOAD_SPIN_US=23 "$RDSRUN" --options | grep SPIN_US)"

for alone in "--options" "--check cat"; do
	# shellcheck disable=SC2086
	out=$("$RDSRUN" $alone echo ran 2>&1)
	expect "$alone with a program: status" 2 $?
	expect "$alone with a program" "rdsrun: nothing is run with ${alone%% *}*" "$out"
done

# --hold, --check-peer: what they say when there is nothing to do; tests/tcp/run has the rest
# refuses STATUS PATTERN ARGUMENTS...
refuses()
{
	status=$1 pattern=$2
	shift 2
	out=$(RDS_PRELOAD_TRANSPORT='' "$RDSRUN" "$@" 2>&1)
	expect "$*: status" "$status" $?
	expect "$*: text" "$pattern" "$out"
}
refuses 2 "rdsrun: --hold needs addresses*" --hold
refuses 2 "rdsrun: --check-peer needs the address of one other host" --check-peer
refuses 2 "rdsrun: --check-peer needs the address of one other host" --check-peer 10.0.0.1 10.0.0.2
refuses 2 "rdsrun: --from is for --check-peer or --ping" --from 10.0.0.1 true
refuses 2 "rdsrun: --hold and --check-peer do not go together" --hold --check-peer 10.0.0.1
refuses 2 "rdsrun: nothing is run with --node: what is \"true\" for?" --node true
refuses 2 "rdsrun: --json is for --node" --json true
refuses 2 "rdsrun: --watch is for --node" --watch true
refuses 2 "rdsrun: --metrics is for --node" --metrics file true
refuses 2 "rdsrun: --json and --metrics do not go together" --node --json --metrics file
for bad in 0 0.05 86401 nan x ''; do
	refuses 2 "rdsrun: --watch: '$bad' is not a number from 0.1 to 86400" --node "--watch=$bad"
done
refuses 2 "rdsrun: --count is for --ping" --count 1 true
refuses 2 "rdsrun: --ping needs one address" --ping
refuses 2 "rdsrun: --ping needs one address" --ping 127.0.0.1 127.0.0.2
for bad in 0 -1 x 1x ''; do
	refuses 2 "rdsrun: --ping: --count: '$bad' is not a number from 1 to *" --ping --count "$bad" 127.0.0.1
done
refuses 1 "rdsrun: --ping: 192.0.2.1: Cannot assign requested address" --ping --from 192.0.2.1 --count 1 127.0.0.1
refuses 0 "   1: [0-9]* usec
   2: [0-9]* usec
2 of 2 answered" --ping --count 2 127.0.0.1
RDS_PRELOAD_PING_ENABLE=0 refuses 1 "   1: no answer
0 of 1 answered" --ping --count 1 127.0.0.1
refuses 2 "rdsrun: --info: 'kx' is not letters of ckrsntTI" --info=kx
refuses 2 "rdsrun: --info: '' is not letters of ckrsntTI" --info=
refuses 2 'rdsrun: nothing is run with --info: what is "k" for?' --info k
refuses 1 "rdsrun: --hold: 127.0.0.1 is a loopback address*" --hold 127.0.0.1
refuses 1 "no answer: 127.0.0.1 is this host itself*" --check-peer 127.0.0.1

# Completion for bash.  completes WANTED WORD...: of the last word
completes()
{
	wanted=$1
	shift
	expect "completion of $*" "$wanted" "$(bash -c '. "$0"; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _rdsrun; echo "${COMPREPLY[*]}"' \
		"$TOP_SRCDIR/rdsrun/completion.bash" "$@")"
}
completes "--hold" rdsrun --ho
completes "--version" rdsrun -l debug --spin 3 --ve
completes "debug" rdsrun --log de
completes "error warn info debug" rdsrun --log =
completes "warn" rdsrun --log = w
completes "" rdsrun --spin 1
completes "*printf*" rdsrun --log = warn prin
completes "" rdsrun printf --he # the program's own option

# --check
cat=$(command -v cat)
check "dynamic program" 0 "yes: *dynamically linked*" cat
check "by its path" 0 "yes: $cat:*" "$cat"
check "missing" 2 "*No such file*" "$tmp/nothing"
printf '#!/bin/sh\n' >"$tmp/script"
chmod 755 "$tmp/script"
check "script" 0 "yes: *sh:*" "$tmp/script"
printf '#!/usr/bin/env -S FOO=1 cat\n' >"$tmp/envscript"
chmod 755 "$tmp/envscript"
check "script through env" 0 "yes: *cat:*" "$tmp/envscript"
printf '#! %s\n' "$tmp/loop" >"$tmp/loop"
chmod 755 "$tmp/loop"
check "script that is its own interpreter" 2 "*too many levels*" "$tmp/loop"
printf 'echo\n' >"$tmp/noelf"
chmod 755 "$tmp/noelf"
check "no magic: the shell's" 0 "yes: *sh:*" "$tmp/noelf"

# patch FILE OFFSET BYTES(octal escapes): overwrite some bytes of an executable copy of cat
patch()
{
	cp "$cat" "$1"
	printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
	chmod 755 "$1"
}
patch "$tmp/machine" 18 '\001\000'
check "other machine" 1 "no: *another machine*" "$tmp/machine"
patch "$tmp/class" 4 '\001'
check "other word size" 1 "no: *another machine*" "$tmp/class"
patch "$tmp/headers" 32 '\377\377\377\377\377\377\377\177'
check "program headers beyond the file" 1 "no: *linked*" "$tmp/headers"
head -c 20 "$cat" >"$tmp/short"
chmod 755 "$tmp/short"
check "cut off" 1 "no: *" "$tmp/short"

# Debian's ldconfig is a static program.
static=
for p in /sbin/ldconfig /usr/sbin/ldconfig; do [ -x $p ] && static=$p && break; done
if [ -n "$static" ]; then
	check "static" 1 "no: *static*no dynamic loader*" "$static"
	expect "static: runs, with a warning" "*warning*no dynamic loader*" "$("$RDSRUN" "$static" --version 2>&1)"
else
	echo "note: no static program here, verdict not tried"
fi
if command -v objcopy >/dev/null && echo >"$tmp/note" &&
	objcopy --add-section .go.buildinfo="$tmp/note" "$cat" "$tmp/go" 2>/dev/null; then
	check "Go with cgo" 0 "partly: *Go*" "$tmp/go"
else
	echo "note: no objcopy here, Go not tried"
fi
# Set-user-ID counts only when the id changes; on a nosuid file system it never does.
if [ "$(id -u)" = 0 ] && ! findmnt -no OPTIONS -T "$tmp" | grep -q nosuid; then
	cp "$cat" "$tmp/suid"
	chown nobody "$tmp/suid"
	chmod 4755 "$tmp/suid"
	check "set-user-ID" 1 "no: *set-user-ID*" "$tmp/suid"
	chown root "$tmp/suid"
	chmod 4755 "$tmp/suid"
	check "set-user-ID of the caller" 0 "yes: *" "$tmp/suid"
else
	echo "note: not root, or nosuid: set-user-ID not tried"
fi

echo "$done checks, $failed failed"
[ $failed -eq 0 ]
