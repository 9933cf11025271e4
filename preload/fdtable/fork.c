/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fork.c - fork handlers, and what is set up once before the first RDS socket.
 *
 * A forked child has a copy of the memory, but neither the threads nor a right to the connections.
 * Its fork handler turns all RDS sockets into borrowed ones and forgets the engine. The next
 * socket() starts a fresh engine. A child that no handler sees (_Fork, clone) notices it at its
 * first call on an RDS number. A child that shares the memory (vfork) must not change anything in
 * it (rds_fds_is_ours).
 */
#include "preload/fdtable/fdtable.h"

#include "engine/sys/os.h"

#include <pthread.h>

/*
 * State of the thread that forks. Signals are held from before the first lock is taken until the
 * last one is given back. A handler in between would first let the fork run to its end
 * (signals/reentry.h), and the fork ends twice, in the parent and in the child.
 */
static __thread struct {
	/*
	 * The prepare handler ran with RDS in use. Another thread may have opened the first socket
	 * since.
	 */
	bool prepared;
	struct os_signals signals;
} forking;

static void fork_end(void)
{
	reentry_call_end();
	forking.prepared = false;
	os_signals_release(&forking.signals);
}

static void fork_child(void)
{
	int saved = errno;

	rds_fds_fork_child();
	if (forking.prepared)
		fork_end();
	errno = saved;
}

static void fork_prepare(void)
{
	if (!rds_fds_on())
		return;
	os_signals_hold(&forking.signals);
	reentry_call_begin();
	forking.prepared = true;
	rds_borrower_fork_prepare();
	rds_share_begin();
	rds_helper_fork_prepare();
}

static void fork_parent(void)
{
	if (!forking.prepared)
		return;
	rds_helper_fork_parent();
	fork_end();
}

static void fork_init_once(void)
{
	rds_engine_join();
	rds_fds_init();
	reentry_init(rds_fds_is_ours);
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void rds_fds_process_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, fork_init_once);
}
