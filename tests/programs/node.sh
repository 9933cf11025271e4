#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# rdsrun --node, in all its forms: node.py.
[ -x /usr/bin/python3 ] || { echo "/usr/bin/python3 is missing (package python3)"; exit 77; }
exec /usr/bin/python3 "$TOP_SRCDIR/tests/programs/node.py"
