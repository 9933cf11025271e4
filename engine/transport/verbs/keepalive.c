/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * keepalive.c - are silent peers still there?
 *
 * A queue pair notices that its peer is gone only when it sends.  So an endpoint that has heard nothing for RDS_PRELOAD_KEEPALIVE_MS
 * writes nothing into the peer's memory: a remote write of no bytes, which the peer's device answers and its program never sees.
 * If there is no answer, a completion with an error breaks the endpoint, as any other does.
 *
 * One timer for all, set while any endpoint is up.  The receive side zeroes quiet_since with each frame; the first look after that
 * writes the time into it.  Probes are posted by whoever may use the send side (verbs_push), never among messages that are still being given to the device.
 */
#include "engine/transport/verbs/verbs.h"

#define MS 1000000ull

static void tick(struct rds_timer *tm);

static struct rds_timer timer = {.fn = tick};

static uint64_t interval(void)
{
	return (uint64_t)rds_options()->keepalive_ms * MS;
}

static void arm(void)
{
	rds_timer_set(&timer, os_now_ns() + interval() / 2 + MS);
}

/* rx.  One probe at a time: that there is no answer yet is the device's to judge. */
static void look(struct verbs_ep *ep, uint64_t now)
{
	uint32_t done = atomic_load(&ep->wr_done);

	if (!ep->quiet_since) {
		ep->quiet_since = now;
		atomic_store(&ep->probe_wr, done);
	} else if (now - ep->quiet_since >= interval() && (int32_t)(done - atomic_load(&ep->probe_wr)) >= 0) {
		ep->quiet_since = now;
		atomic_store(&ep->probe_due, true);
		ep->head.t->up->speak(ep->head.conn);
	}
}

static void tick(struct rds_timer *tm)
{
	uint64_t now = os_now_ns();
	struct verbs_ep *ep;
	bool any = false;

	(void)tm;
	rx_lock();
	for (ep = rds_verbs.eps; ep; ep = ep->next)
		if (atomic_load(&ep->state) == VERBS_UP) {
			look(ep, now);
			any = true;
		}
	rx_unlock();
	if (any)
		arm();
}

void verbs_keepalive_need(void)
{
	if (interval() && !timer.queued)
		arm();
}

void verbs_keepalive_forget(void)
{
	timer.queued = false;
}
