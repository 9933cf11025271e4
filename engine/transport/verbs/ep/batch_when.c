/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * batch_when.c - decides whether a small message may wait, so that others go in the same frame.
 *
 * A frame costs much the same whether it carries one small message or many.  Many programs send a
 * few messages in a row, a *run*, and then look for the answers, or wait for room.  All messages
 * of a run but the first can go in few frames, and no program has to wait for them: they are held
 * (in one block, batch.c) until
 *
 *   - the frame is full, or something else is sent over this endpoint;
 *   - the program looks at the completion queue, waits for room, or is about to sleep;
 *   - the batch has been held for a pulse or two (PULSE_NS), and nothing was added meanwhile; or
 *     for LONGEST pulses, whatever the program does.
 *
 * The last case costs time.  If nothing was added meanwhile, holding was a mistake.  So runs are
 * learnt first.  An endpoint holds messages when its last TRUST runs were long.  After a mistake
 * that many more long runs are needed, each time twice as many; runs that go well reduce that
 * number, slowly (a busy machine may have kept the program from looking).  A run of many messages
 * counts as several.  A program that exchanges single messages, or that sends and then does
 * something else, is not affected by any of this.
 *
 * Waiting for a completion instead of a look would not work: where the device is software, a frame
 * travels all of its way within the call that posts it.  Must not know how messages lie in the
 * block.
 */
#include "engine/transport/verbs/ep/ep.h"

#define PULSE_NS 1000000ull
#define LONG_RUN 4u
#define TRUST 4
#define DISTRUST_MAX 4096
#define LONGEST 4u
#define GOOD_AGAIN 16u /* long runs after which the distrust is halved */
#define COUNTS_MOST 8u /* one run counts as so many runs at most */

static void batch_pulse(struct rds_timer *tm);

static struct rds_timer timer = {.fn = batch_pulse};
static uint32_t now;	    /* in pulses (rx) */
static bool timed, begun; /* rx; begun: a message has been held since the last pulse */

/* ---- tx ---- */

void verbs_batch_run_end(struct verbs_ep *ep)
{
	uint32_t run = atomic_load_explicit(&ep->run, memory_order_relaxed), runs = run / LONG_RUN;

	if (runs > COUNTS_MOST)
		runs = COUNTS_MOST;
	if (ep->trust == TRUST && ep->distrust && (ep->good += runs) >= GOOD_AGAIN) {
		ep->good = 0;
		ep->distrust /= 2;
	}
	if (runs && ep->trust < TRUST)
		ep->trust = ep->trust + (int)runs < TRUST ? ep->trust + (int)runs : TRUST;
	else if (run > 1 && run < LONG_RUN && ep->trust > 0)
		ep->trust--;
	atomic_store_explicit(&ep->run, 0, memory_order_relaxed);
}

static void batch_hold(struct verbs_ep *ep)
{
	rx_lock();
	ep->held_since = ep->stirred = now;
	ep->run_seen = atomic_load_explicit(&ep->run, memory_order_relaxed);
	begun = true;
	if (!ep->holding) {
		ep->holding = true;
		ep->holding_next = verbs_eps.holding;
		verbs_eps.holding = ep;
	}
	if (!timed) {
		timed = true;
		rds_timer_set(&timer, os_now_ns() + PULSE_NS);
	}
	rx_unlock();
}

static void batch_mistaken(struct verbs_ep *ep)
{
	ep->distrust = ep->distrust ? ep->distrust * 2 : TRUST;
	if (ep->distrust > DISTRUST_MAX)
		ep->distrust = DISTRUST_MAX;
	ep->trust = -ep->distrust;
	ep->good = 0;
}

bool verbs_batch_may_wait(struct verbs_ep *ep)
{
	uint32_t heard = atomic_load_explicit(&ep->messages_received, memory_order_relaxed);

	if (heard != ep->run_heard) {
		ep->run_heard = heard;
		if (atomic_load_explicit(&ep->run, memory_order_relaxed) > 1)
			verbs_batch_run_end(ep);
		else /* a single message tells nothing about runs */
			atomic_store_explicit(&ep->run, 0, memory_order_relaxed);
	}
	verbs_batch_run_add(ep);
	if (verbs_ep_flag_take(&ep->unattended))
		batch_mistaken(ep);
	if (atomic_load_explicit(&ep->run, memory_order_relaxed) == 1 || ep->trust < TRUST)
		return false;
	batch_hold(ep);
	return true;
}

/* ---- rx ---- */

void verbs_batch_flush(void)
{
	struct verbs_ep *ep;

	while (!rds_transport_looks_aside && (ep = verbs_eps.holding)) {
		verbs_eps.holding = ep->holding_next;
		ep->holding = false;
		ep->head.t->up->push_later(ep->head.conn);
	}
}

/* True: no message was added, and no thread looked, since before the last pulse. */
static bool batch_lies_idle(struct verbs_ep *ep)
{
	uint32_t run = atomic_load_explicit(&ep->run, memory_order_relaxed);

	if (run != ep->run_seen) {
		ep->run_seen = run;
		ep->stirred = now;
	}
	return ep->stirred != now;
}

static void batch_pulse(struct rds_timer *tm)
{
	struct verbs_ep **p, *ep;
	bool left;

	rds_transport_looks_aside = true;
	rx_lock();
	for (p = &verbs_eps.holding; (ep = *p);) {
		left = batch_lies_idle(ep);
		if (!left && now - ep->held_since < LONGEST) {
			p = &ep->holding_next;
			continue;
		}
		*p = ep->holding_next;
		ep->holding = false;
		if (left)
			atomic_store(&ep->unattended, true);
		ep->head.t->up->push_later(ep->head.conn);
	}
	now++;
	timed = begun || verbs_eps.holding;
	begun = false;
	if (timed)
		rds_timer_set(tm, os_now_ns() + PULSE_NS);
	rx_unlock();
}

void verbs_batch_cancel(struct verbs_ep *ep)
{
	VERBS_EP_UNLIST(verbs_eps.holding, ep, holding_next);
	ep->holding = false;
}

void verbs_batch_forget(void)
{
	timer.queued = timed = begun = rds_transport_looks_aside = false;
}
