/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * linger.c - the process ends: its messages are handed over first, within RDS_PRELOAD_LINGER_MS.
 *
 * A receiver on this host that runs comes to our messages, even if the machine is so busy, or there are so many
 * senders, that this takes longer.  So the limit begins anew as long as receivers have used the processor since.
 *
 * Any thread of the program may be in here, also in a signal handler that has interrupted a thread
 * with a lock.  Must not know how messages are sent.
 */
#include <poll.h>

#include "engine/conn/relay.h"
#include "engine/conn/client.h"
#include "engine/progress/progress.h"
#include "engine/progress/wait.h"
#include "engine/sys/patience.h"
#include "engine/sys/process.h"

#define EXIT_NAP_NS 200000
#define EXIT_NAP_MAX_NS 10000000
#define EXIT_LIMITS 10 /* one after another */

static _Atomic bool linger_asks;
static _Atomic uint64_t linger_until;
/* one limit for all waits at the end of the process; 0: it does not end yet */
static _Atomic uint64_t exit_by_ns;
static _Atomic unsigned exit_limits; /* that have passed */
_Atomic bool rds_progress_exiting;

unsigned rds_progress_count_unsent(void)
{
	rds_queue_reap_all();
	rds_progress_round();
	rds_conn_client.mailbox_deliver_all();
	return rds_conn_unsent();
}

uint64_t rds_progress_exit_deadline(void)
{
	uint64_t by = atomic_load(&exit_by_ns);

	return by ? by : os_now_ns() + (uint64_t)rds_options()->linger_ms * 1000000;
}

/* A wait for receivers. */
struct exit_limit {
	uint64_t until;
	uint64_t ran; /* what they had run when it began, or at its last limit */
	bool began;
};

static bool limit_is_over(struct exit_limit *l, uint64_t now)
{
	const uint64_t limit = (uint64_t)rds_options()->linger_ms * 1000000;
	uint64_t ran;

	if (!l->began) {
		l->began = true;
		l->ran = rds_conn_receivers_ran_ns();
	}
	if (likely(now < l->until))
		return false;
	ran = rds_conn_receivers_ran_ns();
	if (!limit || !ran || ran == l->ran || atomic_fetch_add(&exit_limits, 1) >= EXIT_LIMITS - 1)
		return true;
	l->ran = ran;
	l->until = now + limit;
	if (atomic_load(&exit_by_ns))
		atomic_store(&exit_by_ns, l->until);
	return false;
}

/* The last wait, when messages are not waited for any more: the process ends then. */
static void progress_exit_wait(void)
{
	unsigned i;

	for (i = 0; unlikely(i < rds_transport_set.nfar); i++)
		if (rds_transport_set.far[i]->ops->exit_wait)
			rds_transport_set.far[i]->ops->exit_wait(rds_transport_set.far[i]);
}

/*
 * Messages that no transport has taken would be lost.  For those that it has taken, its
 * capabilities tell whether they outlive the process.  In the end peers are told what has been
 * received.
 */
static void progress_linger_until(uint64_t until)
{
	struct exit_limit l = {.until = until};
	struct rds_wait *w = NULL;
	struct pollfd p;
	bool begin = true;
	unsigned n;

	rds_relay_leave(until);
	for (;;) {
		n = rds_progress_count_unsent();
		if ((!n && rds_conn_leave(begin)) || limit_is_over(&l, os_now_ns()))
			break;
		begin &= n > 0;
		if (!w)
			w = rds_wait_begin(0);
		if (!w || rds_queue_want_room_all() || !rds_wait_arm(w))
			continue;
		p = (struct pollfd){.fd = rds_wait_fd(w), .events = POLLIN};
		os_poll(&p, 1, 10);
		rds_wait_disarm(w);
	}
	if (w)
		rds_wait_end(w);
	rds_relay_kept_leave();
	if (n)
		rds_warn("%u messages could not be handed over within RDS_PRELOAD_LINGER_MS and are lost", n);
	progress_exit_wait();
}

void rds_progress_exit(void)
{
	uint64_t by;

	if (!os_process_is_started())
		return;
	/* if this is an exec, which may fail, the next end has time of its own */
	by = atomic_exchange(&linger_until, 0);
	if (atomic_load(&rds_helper_up))
		progress_linger_until(by ? by : rds_progress_exit_deadline());
	/*
	 * The helper still runs and may use everything, so the kernel does the rest.  A process
	 * that needs our place in the registry finds our lock released and clears the place.
	 */
}

void rds_progress_exit_failed(void)
{
	if (os_process_is_started() && !atomic_load(&rds_progress_exiting))
		rds_relay_stay();
}

void rds_progress_exit_begin(bool interrupted)
{
	uint64_t none = 0, by = rds_progress_exit_deadline();

	if (interrupted)
		os_end_begin(rds_patience_ns(RDS_PATIENCE_EXIT_LOCK));
	if (!os_process_is_started())
		return;
	atomic_compare_exchange_strong(&exit_by_ns, &none, by);
	atomic_store(&rds_progress_exiting, true);
	if (interrupted ? !rds_trylock(&rds_lock_rx) : !rds_lock_until(&rds_lock_rx, by))
		return;
	rds_progress_attention_update();
	rx_unlock();
}

void rds_progress_linger(void)
{
	progress_linger_until(rds_progress_exit_deadline());
}

void rds_progress_exit_now(bool interrupted)
{
	struct exit_limit l = {.until = rds_progress_exit_deadline()};
	uint64_t now, looked, nap = EXIT_NAP_NS;
	int n;

	if (!os_process_is_started() || !atomic_load(&rds_helper_up))
		return;
	looked = os_now_ns();
	while ((n = rds_conn_unsent_now()) != 0) {
		now = os_now_ns();
		if (n > 0)
			looked = now;
		if (limit_is_over(&l, now) || (interrupted && now - looked > rds_patience_ns(RDS_PATIENCE_EXIT_LOCK)))
			/* no look for so long: the interrupted call itself has the lock */
			break;
		atomic_store(&linger_asks, true); /* asking takes locks, too, so the helper asks */
		rds_helper_kick();
		os_nap_ns(nap);
		/*
		 * many processes that end at once must leave the processor to the receivers of
		 * their messages
		 */
		if (nap < EXIT_NAP_MAX_NS)
			nap *= 2;
	}
	if (n > 0)
		rds_warn("messages could not be handed over within RDS_PRELOAD_LINGER_MS and are lost");
	else if (n < 0)
		rds_warn("the process ends in the middle of an RDS call%s: what it has sent may be lost",
			 interrupted ? ", in a signal handler" : " of another thread");
	progress_exit_wait();
}

void rds_progress_exit_by(uint64_t until_ns)
{
	atomic_store(&linger_until, until_ns);
}

bool rds_progress_asks_at_exit(void)
{
	return atomic_load_explicit(&linger_asks, memory_order_relaxed);
}

void rds_progress_linger_forget(void)
{
	atomic_store(&rds_progress_exiting, false);
	atomic_store(&exit_by_ns, 0);
	atomic_store(&exit_limits, 0);
	atomic_store(&linger_until, 0);
	atomic_store(&linger_asks, false);
}
