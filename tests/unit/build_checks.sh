#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The checks that every build makes (scripts/check-symbols, check-layers) find each kind of offence that they are there
# for, and accept a clean tree.  Works on small trees of its own.
set -u
command -v "${CC:-cc}" >/dev/null || {
	echo "no C compiler"
	exit 77
}
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
failed=0 count=0

# expect WHAT STATUS PATTERN COMMAND...
expect()
{
	what=$1 status=$2 pattern=$3
	shift 3
	out=$("$@" 2>&1)
	got=$?
	count=$((count + 1))
	if [ $got -ne "$status" ] || ! echo "$out" | grep -q -e "$pattern"; then
		echo "FAIL: $what: status $got (wanted $status), wanted '$pattern' in:"
		echo "$out"
		failed=$((failed + 1))
	fi
}

layers()
{
	sh "$TOP_SRCDIR/scripts/check-layers" "$tmp/tree" "$@"
}

symbols()
{
	sh "$TOP_SRCDIR/scripts/check-symbols" "$tmp/tree/preload/libc/symbols.def" "$tmp/lib.so"
}

# A clean tree: one file per layer.
clean()
{
	rm -rf "$tmp/tree"
	mkdir -p "$tmp/tree/preload/libc" "$tmp/tree/engine/transport/shm" "$tmp/tree/engine/transport/verbs" "$tmp/tree/include"
	cd "$tmp/tree" || exit 99
	: >engine/rds.h >engine/log.h >engine/options.h >engine/os.h >engine/sock.h >engine/transport/transport.h
	: >engine/transport/shm/shm.h >include/rds_abi.h >preload/libc/preload.h
	printf '#include "preload/libc/preload.h"\n#include "preload/libc/symbols.def"\n#include "engine/rds.h"\n#include "include/rds_abi.h"\n' \
		>preload/libc/real.c
	printf '#include "engine/sock.h"\n#include "engine/transport/transport.h"\nint x;\n' >engine/sock.c
	printf '#include "engine/transport/shm/shm.h"\nint y;\n' >engine/transport/shm/ring.c
	printf '#include <infiniband/verbs.h>\n' >engine/transport/verbs/qp.c
	printf 'RDS_SYM(socket, int)\nRDS_SYM(read, int)\n' >preload/libc/symbols.def
}

# archive NAME SOURCE: an engine archive of one object
archive()
{
	printf '%s\n' "$2" >"$tmp/$1.c"
	rm -f "$tmp/libengine.a"
	${CC:-cc} -w -c -o "$tmp/$1.o" "$tmp/$1.c" && ar rc "$tmp/libengine.a" "$tmp/$1.o" || exit 99
}

clean
expect "clean tree" 0 '' layers
for case in \
	'preload/libc/real.c|engine/sock.h|preload includes more' \
	'preload/libc/real.c|../engine/rds.h|relative path' \
	'preload/libc/real.c|engine/transport/transport.h|preload includes more' \
	'engine/sock.c|preload/libc/preload.h|layer above' \
	'engine/sock.c|../preload/libc/preload.h|layer above' \
	'engine/sock.c|infiniband/verbs.h|verbs headers' \
	'engine/transport/shm/ring.c|rdma/rdma_cma.h|verbs headers' \
	'engine/transport/shm/ring.c|engine/sock.h|looks into a socket' \
	'engine/sock.c|engine/transport/shm/shm.h|particular transport'; do
	file=${case%%|*} rest=${case#*|}
	clean
	printf '  #  include "%s"\n' "${rest%%|*}" >>"$tmp/tree/$file"
	expect "$file includes ${rest%%|*}" 1 "${rest#*|}" layers
done

clean
archive sock 'int strlen(); int f(void) { return strlen("a"); }'
expect "engine imports what it may" 0 '' layers "$tmp/libengine.a"
archive sock 'int socket(); int f(void) { return socket(1); }'
expect "engine calls socket" 1 'sock.o: socket' layers "$tmp/libengine.a"
archive sock 'int read(); int f(void) { return read(1); }'
expect "engine calls read" 1 'sock.o: read' layers "$tmp/libengine.a"
archive os 'int read(); int (*f)() = read;'
expect "os.c hands out read" 0 '' layers "$tmp/libengine.a"
archive os 'int socket(); int (*f)() = socket;'
expect "os.c names socket" 1 'os.o: socket' layers "$tmp/libengine.a"

library()
{
	printf '%s\n' "$1" >"$tmp/lib.c"
	${CC:-cc} -w -shared -fPIC -nostartfiles -o "$tmp/lib.so" "$tmp/lib.c" || exit 99
}

library 'int socket(void) { return 1; } int read(void) { return 1; } static int own(void) { return 1; }'
expect "exported = listed" 0 '' symbols
library 'int socket(void) { return 1; } int read(void) { return 1; } int bind(void) { return 1; }'
expect "one name too many" 1 'exported by.*: bind' symbols
library 'int socket(void) { return 1; }'
expect "one name missing" 1 'not exported by.*: read' symbols
library 'int socket(void) { return 1; } int read(void) { return 1; }'
echo 'RDS_SYM(read, int)' >>"$tmp/tree/preload/libc/symbols.def"
expect "listed twice" 1 'listed twice.*: read' symbols
: >"$tmp/tree/preload/libc/symbols.def"
expect "empty table" 1 'no line' symbols

echo "$count checks, $failed failed"
[ $failed -eq 0 ]
