/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * batch_when.c - decides whether a small message may wait, so that others go in the same frame, or to the kernel
 * by the same call.
 *
 * A frame, or a call, costs much the same whether it carries one small message or many.  Many programs send a
 * few messages in a row, a *run*, and then look for the answers, or wait for room.  All messages
 * of a run but the first can go together, and no program has to wait for them: they are held until
 *
 *   - there are many, or something is sent over this endpoint that may not wait;
 *   - the program looks for messages, waits for room, or is about to sleep;
 *   - the batch has been held for a pulse or two (PULSE_NS), and nothing was added meanwhile; or
 *     for LONGEST pulses, whatever the program does.
 *
 * The last case costs time: holding was a mistake.  So runs are
 * learnt first.  An endpoint holds messages when its last TRUST runs were long.  After a mistake
 * that many more long runs are needed, each time twice as many; runs that go well reduce that
 * number, slowly (a busy machine may have kept the program from looking).  A run of many messages
 * counts as several.  A program that exchanges single messages, or that sends and then does
 * something else, is not affected by any of this.
 *
 * Waiting for a completion instead of a look would not work: where the device is software, or both hosts are one
 * machine, a frame travels all of its way within the call that posts it.  Must not know how messages are held.
 */
#include "engine/transport/batch_when.h"

#include "engine/helper/helper.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/os.h"
#include "engine/transport/transport.h"

#define PULSE_NS 1000000ull
#define LONG_RUN 4u
#define TRUST 4
#define DISTRUST_MAX 4096
#define LONGEST 4u
#define GOOD_AGAIN 16u /* long runs after which the distrust is halved */
#define COUNTS_MOST 8u /* one run counts as so many runs at most */

static void batch_pulse(struct rds_timer *tm);

struct rds_transport_batch *rds_transport_batches;
static struct rds_timer timer = {.fn = batch_pulse};
static uint32_t now;	  /* in pulses (rx) */
static bool timed, begun; /* rx; begun: a message has been held since the last pulse */

/* ---- tx ---- */

void rds_transport_batch_run_end(struct rds_transport_batch *b)
{
	uint32_t run = atomic_load_explicit(&b->run, memory_order_relaxed), runs = run / LONG_RUN;

	if (runs > COUNTS_MOST)
		runs = COUNTS_MOST;
	if (b->trust == TRUST && b->distrust && (b->good += runs) >= GOOD_AGAIN) {
		b->good = 0;
		b->distrust /= 2;
	}
	if (runs && b->trust < TRUST)
		b->trust = b->trust + (int)runs < TRUST ? b->trust + (int)runs : TRUST;
	else if (run > 1 && run < LONG_RUN && b->trust > 0)
		b->trust--;
	atomic_store_explicit(&b->run, 0, memory_order_relaxed);
}

static void batch_hold(struct rds_transport_batch *b, struct rds_ep_head *ep)
{
	rx_lock();
	b->since = b->stirred = now;
	b->run_seen = atomic_load_explicit(&b->run, memory_order_relaxed);
	begun = true;
	b->ep = ep;
	if (!b->listed) {
		b->listed = true;
		b->next = rds_transport_batches;
		rds_transport_batches = b;
	}
	if (!timed) {
		timed = true;
		rds_timer_set(&timer, os_now_ns() + PULSE_NS);
	}
	rx_unlock();
}

static void batch_mistaken(struct rds_transport_batch *b)
{
	b->distrust = b->distrust ? b->distrust * 2 : TRUST;
	if (b->distrust > DISTRUST_MAX)
		b->distrust = DISTRUST_MAX;
	b->trust = -b->distrust;
	b->good = 0;
}

bool rds_transport_batch_may_wait(struct rds_transport_batch *b, struct rds_ep_head *ep)
{
	uint32_t heard = atomic_load_explicit(&b->received, memory_order_relaxed);

	if (heard != b->run_heard) {
		b->run_heard = heard;
		if (atomic_load_explicit(&b->run, memory_order_relaxed) > 1)
			rds_transport_batch_run_end(b);
		else /* a single message tells nothing about runs */
			atomic_store_explicit(&b->run, 0, memory_order_relaxed);
	}
	rds_transport_batch_run_add(b);
	if (unlikely(atomic_load_explicit(&b->unattended, memory_order_relaxed)) &&
	    atomic_exchange(&b->unattended, false))
		batch_mistaken(b);
	if (atomic_load_explicit(&b->run, memory_order_relaxed) == 1 || b->trust < TRUST)
		return false;
	batch_hold(b, ep);
	return true;
}

/* ---- rx ---- */

void rds_transport_batch_flush(void)
{
	struct rds_transport_batch *b;

	while (!rds_transport_looks_aside && (b = rds_transport_batches)) {
		rds_transport_batches = b->next;
		b->listed = false;
		b->ep->t->up->push_later(b->ep->conn);
	}
}

/* True: no message was added, and no thread looked, since before the last pulse. */
static bool batch_lies_idle(struct rds_transport_batch *b)
{
	uint32_t run = atomic_load_explicit(&b->run, memory_order_relaxed);

	if (run != b->run_seen) {
		b->run_seen = run;
		b->stirred = now;
	}
	return b->stirred != now;
}

static void batch_pulse(struct rds_timer *tm)
{
	struct rds_transport_batch **p, *b;

	rds_transport_looks_aside = true;
	rx_lock();
	for (p = &rds_transport_batches; (b = *p);) {
		if (!batch_lies_idle(b) && now - b->since < LONGEST) {
			p = &b->next;
			continue;
		}
		*p = b->next;
		b->listed = false;
		atomic_store(&b->unattended, true);
		b->ep->t->up->push_later(b->ep->conn);
	}
	now++;
	timed = begun || rds_transport_batches;
	begun = false;
	if (timed)
		rds_timer_set(tm, os_now_ns() + PULSE_NS);
	rx_unlock();
}

void rds_transport_batch_cancel(struct rds_transport_batch *b)
{
	struct rds_transport_batch **p;

	if (!b->listed)
		return;
	for (p = &rds_transport_batches; *p != b; p = &(*p)->next)
		;
	*p = b->next;
	b->listed = false;
}

void rds_transport_batch_forget(void)
{
	rds_transport_batches = NULL;
	timer.queued = timed = begun = rds_transport_looks_aside = false;
}
