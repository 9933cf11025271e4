#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# As native.sh, on sockets that another process has opened and carries.
if [ -n "${SANITIZERS:-}" ]; then
	echo "skipped: the library needs its sanitizer's runtime in front, which the programs do not have"
	exit 77
fi
exec "$TOP_SRCDIR/tests/conformance/run" --held --reference --build "$TOP_BUILDDIR"
