/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * calls_process.c - fork and exit.  No call is interposed for them.
 *
 * A forked child has a copy of our memory but neither our threads nor a right to our connections: its handler turns all
 * RDS sockets into inherited numbers and forgets the engine; the next socket() starts a fresh one.  Children that no
 * handler sees (_Fork, raw clone) are noticed at their first call on an RDS number; children that share our memory
 * (vfork) must not change anything in it (rds_fds_mine).  exec needs nothing: all internal descriptors are
 * close-on-exec.
 */
#include "fds.h"

static void process_child(void)
{
	int saved = errno;

	rds_fds_forget();
	errno = saved;
}

static void process_start(void)
{
	rds_fds_init();
	pthread_atfork(NULL, NULL, process_child);
}

void rds_process_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, process_start);
}

/* After the program's own exit handlers: what it has sent is still handed over, within a bound. */
static void __attribute__((destructor)) process_exit(void)
{
	if (rds_fds_on() && rds_fds_mine())
		rds_engine_exit();
}
