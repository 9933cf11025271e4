/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * init.c - start of the library in a program: looks the real functions up, and finds the RDS
 * sockets that came by exec.
 *
 * Everything works without it, too: constructors of the program's libraries run earlier.
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
	/* Registered first, so called after the program's own. */
	at_quick_exit(calls_process_quick_exit);
	errno = saved;
}
