/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * round.c - the helper's rounds and the program's forks, and its end, wait for each other, for a bounded time.
 *
 * A round is everything that the helper does between two sleeps.  A fork waits for the end of the
 * round, so that the child does not inherit half-done work of the helper.  Most important is the
 * lock of an allocator: libc makes its own lock usable in the child, other allocators do not.  The
 * wait is bounded, because the forking thread may be in a signal handler that interrupted a thread
 * with a lock for which the helper waits.
 *
 * The next round waits for the fork.  This wait is bounded, too.  The program's fork handlers run
 * between the engine's handler and the fork.  One of them may wait for a lock, and the thread with
 * that lock may be in a call that needs the helper.
 *
 * Must not know what is done in a round.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/helper/helper.h"
#include "engine/rds.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/os.h"
#include "engine/sys/patience.h"
#include "engine/sys/process.h"

#define NAP_NS 50000

_Atomic unsigned rds_helper_fork_waits;
static rds_lock_t round_lock = RDS_LOCK_INIT(RDS_LOCK_PLAIN);
/*
 * forks: counts the forks that excluded rounds.  given_up: the fork for which no round waits any
 * more.
 */
static _Atomic unsigned forks = 1, given_up;
static __thread bool fork_waited;

void rds_helper_fork_prepare(void)
{
	uint64_t until = os_now_ns() + rds_patience_ns(RDS_PATIENCE_FORK);

	fork_waited = false;
	/* There is no helper.  And a child of this process would not initialise the lock again. */
	if (!os_process_is_started())
		return;
	while (!(fork_waited = rds_trylock(&round_lock)) && os_now_ns() < until)
		sched_yield();
	if (fork_waited)
		atomic_fetch_add(&forks, 1);
	/* No more are added: that is done by the helper, which waits for round_lock. */
	while (atomic_load(&rds_helper_fork_waits) && os_now_ns() < until)
		sched_yield();
}

void rds_helper_fork_parent(void)
{
	if (fork_waited)
		rds_unlock(&round_lock);
}

bool rds_helper_await_round(uint64_t until)
{
	bool over;

	if (!os_process_is_started())
		return true;
	while (!(over = rds_trylock(&round_lock)) && os_now_ns() < until)
		os_nap_ns(NAP_NS);
	if (over)
		rds_unlock(&round_lock);
	return over;
}

bool rds_helper_round_begin(void)
{
	uint64_t until = 0;

	while (!rds_trylock(&round_lock)) {
		if (!until)
			until = os_now_ns() + rds_patience_ns(RDS_PATIENCE_FORK_ROUND);
		if (os_now_ns() >= until)
			atomic_store(&given_up, atomic_load(&forks));
		if (atomic_load(&given_up) == atomic_load(&forks))
			return false;
		os_poll(NULL, 0, 1);
	}
	return true;
}

void rds_helper_round_end(bool begun)
{
	if (begun)
		rds_unlock(&round_lock);
}

void rds_helper_round_forget(void)
{
	rds_lock_init(&round_lock, RDS_LOCK_PLAIN);
	atomic_store(&forks, 1);
	atomic_store(&given_up, 0);
	atomic_store(&rds_helper_fork_waits, 0);
}
