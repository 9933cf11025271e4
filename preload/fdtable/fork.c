/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fork.c - fork handlers, and what is set up once before the first RDS socket.
 *
 * A forked child has a copy of the memory, but neither the threads nor a right to the connections.
 * rds_fds_fork_child() puts it in order: all RDS sockets become borrowed ones, and the engine is
 * forgotten (rds_engine_fork_child()). The child's next call on such a socket asks the parent, and
 * its next socket() starts a fresh engine.
 *
 * The fork handler calls that function. A child that no handler sees (_Fork, clone) calls it from
 * its first call on an RDS number, where rds_fds_is_ours() notices that the table is the parent's
 * (table_process.c). A child that shares the memory (vfork) must not change anything in it; that
 * question tells it, too.
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

/* Not epoll sets: the parent's engine feeds the parent's, as long as the parent lives. */
static void fork_borrow_all(void)
{
	for (unsigned c = 0; c < FDS_CHUNKS; c++) {
		struct fds_chunk *chunk = atomic_load_explicit(&rds_fds_root[c], memory_order_acquire);

		for (unsigned i = 0; chunk && i < FDS_CHUNK; i++) {
			uintptr_t word = atomic_load_explicit(&chunk->word[i], memory_order_relaxed);

			if (word && !rds_fds_word_is_epoll(word))
				atomic_store_explicit(&chunk->word[i], FDS_BORROWED, memory_order_relaxed);
		}
	}
}

void rds_fds_fork_child(void)
{
	rds_borrower_forget(); /* it looks up which sockets have numbers */
	fork_borrow_all();
	rds_fds_claim();
	rds_fds_exec_reset();
	atomic_store(&rds_fds_sharing_clones, 0);
	rds_fds_call_refs.n = 0; /* references on the parent's sockets */
	reentry_state =
		(struct reentry_state){.late_handlers = reentry_state.late_handlers, .async = reentry_state.async};
	rds_engine_fork_child();
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
