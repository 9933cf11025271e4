/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * keepalive.c - are silent peers still there?
 *
 * A queue pair notices that its peer is gone only when it sends.  So an endpoint that has heard nothing for RDS_PRELOAD_KEEPALIVE_MS
 * writes nothing into the peer's memory, or reads nothing from it (caps.probe_reads): an operation of no bytes, which the peer's device
 * answers and its program never sees, not even if it is stopped.  If there is no answer, the device says so by a completion with an
 * error, which breaks the endpoint as any other does; a device that only reads can probe with leaves that to us.
 *
 * One timer for all, set while any endpoint is up.  The receive side zeroes quiet_since with each frame; the first look after that
 * writes the time into it.  Probes are posted by whoever may use the send side (verbs_push), never among messages that are still being given to the device.
 */
#include "engine/transport/verbs/verbs.h"

#define MS 1000000ull
#define PATIENCE_NS (2000 * MS)

static void tick(struct rds_timer *tm);

static struct rds_timer timer = {.fn = tick};

static uint64_t interval(void)
{
	return (uint64_t)rds_options()->keepalive_ms * MS;
}

static void arm(void)
{
	rds_timer_need(&timer, os_now_ns() + interval() / 2 + MS);
}

/* How long a probe may take where nobody else sees to it: TCP would go on for a quarter of an hour. */
static uint64_t patience(void)
{
	return interval() > PATIENCE_NS ? interval() : PATIENCE_NS;
}

/* rx.  One probe at a time. */
static void look(struct verbs_ep *ep, uint64_t now)
{
	uint32_t done = atomic_load(&ep->wr_done);
	bool probing = (int32_t)(done - atomic_load(&ep->probe_wr)) < 0;

	if (!ep->quiet_since) {
		ep->quiet_since = now;
		atomic_store(&ep->probe_wr, done);
	} else if (probing && ep->dev->caps.probe_reads && now - ep->quiet_since >= patience()) {
		verbs_broken(ep, -ETIMEDOUT);
	} else if (!probing && now - ep->quiet_since >= interval()) {
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
	if (interval())
		arm();
}

void verbs_keepalive_forget(void)
{
	timer.queued = false;
}
