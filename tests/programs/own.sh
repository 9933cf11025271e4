#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The small programs of this directory under the preload, as part of `make check` (and so under each
# sanitizer). qperf and CPython's tests: tests/programs/run without --own.
[ -x /usr/bin/python3 ] || { echo "/usr/bin/python3 is missing (package python3)"; exit 77; }
exec "$TOP_SRCDIR/tests/programs/run" --own
