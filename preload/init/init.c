/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * init.c - the library is loaded: the real entry points are looked up, and what came by exec is found.
 */
#include <stdlib.h>

#include "preload/calls/calls.h"
#include "preload/fdtable/fdtable.h"

static void __attribute__((constructor)) init_start(void)
{
	int saved = errno;

	rds_libc_init();
	rds_fds_scan();
	calls_stdio_start();
	at_quick_exit(calls_process_quick_exit); /* the first: it is called after the program's own */
	errno = saved;
}
