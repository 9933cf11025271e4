#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The checks that every build makes (scripts/check-symbols, check-layers) find each kind of offence
# that they are there for, and accept a clean tree.  Works on small trees of its own.
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

# header GUARD FILE
header()
{
	printf '#ifndef %s\n#define %s\n#endif\n' "$1" "$1" >"$tmp/tree/$2"
}

# A clean tree: a file or two per package.
clean()
{
	rm -rf "$tmp/tree"
	mkdir -p "$tmp/tree/include" "$tmp/tree/preload/libc" "$tmp/tree/preload/calls"
	cd "$tmp/tree" || exit 99
	mkdir -p engine/sys engine/socket engine/conn engine/transport/verbs/dev
	cat >engine/packages <<-EOF
		# a comment
		sys		: os_ rds_log :
		transport/verbs/dev : verbs_dev : sys
		transport/verbs	: rds_verbs : sys transport/verbs/dev
		socket		: rds_sock : sys
		conn		: rds_conn : sys socket
		root		: rds_eng : sys socket conn
		preload/libc	: libc :
		preload/calls	: : preload/libc
	EOF
	header ENGINE_RDS_H engine/rds.h
	header ENGINE_SYS_OS_H engine/sys/os.h
	header ENGINE_SOCKET_SOCKET_H engine/socket/socket.h
	header ENGINE_CONN_CONN_H engine/conn/conn.h
	header ENGINE_CONN_CONG_H engine/conn/cong.h
	header INCLUDE_RDS_ABI_H include/rds_abi.h
	header PRELOAD_LIBC_PRELOAD_H preload/libc/preload.h
	header PRELOAD_CALLS_CALLS_H preload/calls/calls.h
	printf '#include "preload/libc/symbols.def"\n#include "include/rds_abi.h"\n' >preload/libc/real.c
	printf '#include "preload/libc/preload.h"\n#include "engine/rds.h"\n#include "engine/sys/os.h"\n' >preload/calls/send.c
	printf '#include "engine/sys/os.h"\n#include "engine/socket/socket.h"\nint x;\n' >engine/socket/socket.c
	printf '#include "engine/socket/socket.h"\n#include "engine/conn/cong.h"\nint y;\n' >engine/conn/xmit.c
	header ENGINE_TRANSPORT_VERBS_DEV_DEV_H engine/transport/verbs/dev/dev.h
	echo '#include <infiniband/verbs.h>' >>engine/transport/verbs/dev/dev.h
	printf '#include "engine/transport/verbs/dev/dev.h"\n' >engine/transport/verbs/qp.c
	printf 'RDS_SYM(socket, int)\nRDS_SYM(read, int)\n' >preload/libc/symbols.def
}

# object PACKAGE FILE SOURCE: as libtool leaves them, beside where its .lo is
object()
{
	mkdir -p "$tmp/tree/$1/.libs"
	printf '%s\n' "$3" >"$tmp/object.c"
	case $1 in engine*) library_of=libengine ;; *) library_of=libpreload ;; esac
	${CC:-cc} -w -c -o "$tmp/tree/$1/.libs/${library_of}_la-$2.o" "$tmp/object.c" || exit 99
	objects="$objects $1/${library_of}_la-$2.lo"
}

# Of the objects, and of one that stands for all that are built with verbs.
objects_are()
{
	object engine/transport/verbs verbs 'int rds_verbs_ops;'
	# shellcheck disable=SC2086 # a list
	expect "$1" "$2" "$3" layers $objects
	objects=
}

clean
expect "clean tree" 0 '' layers
for case in \
	'preload/libc/real.c|engine/socket/socket.h|preload includes more' \
	'preload/libc/real.c|../engine/rds.h|relative path' \
	'preload/libc/real.c|symbols.def|relative path' \
	'preload/libc/real.c|preload/calls/calls.h|preload/libc must not see preload/calls' \
	'engine/socket/socket.c|preload/libc/preload.h|socket must not see preload/libc' \
	'engine/socket/socket.c|../preload/libc/preload.h|relative path' \
	'engine/socket/socket.c|infiniband/verbs.h|verbs headers' \
	'engine/conn/xmit.c|rdma/rdma_cma.h|verbs headers' \
	'engine/transport/verbs/qp.c|infiniband/verbs.h|verbs headers' \
	'engine/transport/verbs/qp.c|engine/socket/socket.h|transport/verbs must not see socket' \
	'engine/transport/verbs/dev/dev.h|engine/transport/verbs/verbs.h|transport/verbs/dev must not see transport/verbs' \
	'engine/conn/xmit.c|engine/root.h|conn must not see root' \
	'engine/socket/socket.c|engine/conn/conn.h|socket must not see conn'; do
	file=${case%%|*} rest=${case#*|}
	clean
	printf '  #  include "%s"\n' "${rest%%|*}" >>"$tmp/tree/$file"
	expect "$file includes ${rest%%|*}" 1 "${rest#*|}" layers
done
clean
sed -i 's/^socket.*/& conn/' "$tmp/tree/engine/packages"
expect "a table that points up" 1 'socket sees conn, which is not below' layers

clean
header ENGINE_CONN_CONN_H engine/conn/cong.h
expect "another header's guard" 1 'engine/conn/cong.h: not ENGINE_CONN_CONG_H' layers
clean
echo 'int z;' >"$tmp/tree/preload/calls/calls.h"
expect "no guard" 1 'preload/calls/calls.h: not PRELOAD_CALLS_CALLS_H' layers

clean
objects=
takes='int rds_sock_put(), strlen(); int rds_conn_x(void) { return rds_sock_put() + strlen("a"); }'
object engine/socket socket 'int rds_sock_put(void) { return 1; } int put(void) { return 2; }'
object engine/conn xmit "$takes"
objects_are "objects take what they may" 0 ''
object engine/socket socket 'int rds_conn_x(); int rds_sock_put(void) { return rds_conn_x(); }'
object engine/conn xmit "$takes"
objects_are "an object takes a name from above" 1 'name engine/socket/socket.c rds_conn_x: socket must not see conn'
object engine/transport/verbs/dev device 'int verbs_qp(); int verbs_dev_x(void) { return verbs_qp(); }'
object engine/transport/verbs qp 'int verbs_dev_x(); int verbs_qp(void) { return verbs_dev_x(); }'
objects_are "a part takes a name of the package around it" 1 'name engine/transport/verbs/dev/device.c verbs_qp: transport/verbs/dev must not see'
object engine/socket socket 'int put(void) { return 2; }'
object engine/conn xmit 'int put(); int rds_conn_x(void) { return put(); }'
objects_are "a name without its package's prefix" 1 'prefix engine/socket/socket.c put: taken by engine/conn/xmit.c'
object engine/socket socket 'int socket(); int f(void) { return socket(1); }'
objects_are "engine calls socket" 1 'socket.c: socket'
object engine/sys os 'int read(); int (*f)() = read;'
objects_are "engine hands out read" 1 'os.c: read'
object preload/libc early 'int socket(); int early_socket(void) { return socket(1); }'
objects_are "preload's ground calls socket" 1 'early.c: socket'
object preload/fdtable close 'int read(); int (*f)() = read;'
objects_are "preload's table hands out read" 1 'close.c: read'
object preload/calls socket 'int socket(void) { return 1; }'
object preload/calls send 'int socket(); int read(void) { return socket(); }'
objects_are "a wrapper makes another one's call" 0 ''
object preload/libc real 'int f(); int libc_f(void) { return f(); }'
object preload/calls send 'int f(void) { return 1; }'
objects_are "preload's ground takes a name of its calls" 1 'preload/libc must not see preload/calls'

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
