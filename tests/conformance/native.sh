#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# For `make check`: the conformance programs under the preload against the stored answers of kernel
# RDS.
if [ -n "${SANITIZERS:-}" ]; then
	echo "skipped: the library needs its sanitizer's runtime in front, which the programs do not have"
	exit 77
fi
exec "$TOP_SRCDIR/tests/conformance/run" --reference --build "$TOP_BUILDDIR"
