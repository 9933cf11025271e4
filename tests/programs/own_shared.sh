#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# own.sh where the library's thread has to share the program's descriptor table.
RDS_PRELOAD_HELPER_FDS=shared
export RDS_PRELOAD_HELPER_FDS
exec "$TOP_SRCDIR/tests/programs/own.sh"
