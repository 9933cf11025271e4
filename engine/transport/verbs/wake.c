/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wake.c - when the device is to wake the helper (rx held).
 *
 * A completion queue that is *armed* makes its channel readable once, for the next completion.  Arming is a system call on some
 * devices and a lost race if one looks before it, so it is done only by who is about to stop looking, who looks once more
 * afterwards (pending):
 *
 *   attention HELPER, LEADER   armed for everything (the helper wakes the leader when something came for it)
 *   LAZY                       armed for what asks for an answer (solicited)
 *   POLLING                    not armed; an arming that is still in force is left alone
 */
#include "engine/transport/verbs/verbs.h"

static enum verbs_armed wanted(enum rds_attention who)
{
	switch (who) {
	case RDS_ATT_LEADER:
	case RDS_ATT_HELPER:
		return VERBS_ALL;
	case RDS_ATT_LAZY:
		return VERBS_SOLICITED;
	case RDS_ATT_POLLING:
		break;
	}
	return VERBS_UNARMED;
}

static void arm(struct verbs_dev *dev)
{
	enum verbs_armed want = wanted(rds_verbs.attention);

	if (dev->armed >= want || dev->gone)
		return;
	if (verbs_err(ibv_req_notify_cq(dev->cq, want == VERBS_SOLICITED)) == 0)
		dev->armed = want;
	else
		rds_error("%s: no notification to be had: messages may be noticed late", dev->name);
}

void verbs_attention(struct rds_transport *t, enum rds_attention who)
{
	struct verbs_dev *dev;

	(void)t;
	rds_verbs.attention = who;
	for (dev = atomic_load(&rds_verbs.devs); dev; dev = dev->next)
		arm(dev);
	if (who != RDS_ATT_LEADER && who != RDS_ATT_HELPER)
		return;
	verbs_collect_out();
	verbs_acks_due();
}

bool verbs_pending(struct rds_transport *t)
{
	struct verbs_dev *dev;
	int n;

	(void)t;
	for (dev = atomic_load(&rds_verbs.devs); dev; dev = dev->next) {
		if (dev->stash_at < dev->nstash)
			return true;
		n = ibv_poll_cq(dev->cq, (int)(sizeof(dev->stash) / sizeof(dev->stash[0])), dev->stash);
		dev->stash_at = 0;
		dev->nstash = n > 0 ? (unsigned)n : 0;
		if (dev->nstash)
			return true;
	}
	return false;
}

/* Helper, no lock held.  The round of progress follows, as after every event. */
void verbs_comp_event(struct rds_event *ev, uint32_t events)
{
	struct verbs_dev *dev = container_of(ev, struct verbs_dev, comp_ev);
	struct ibv_cq *cq;
	void *arg;

	(void)events;
	rx_lock();
	while (vb.ibv_get_cq_event(dev->channel, &cq, &arg) == 0)
		dev->unacked_events++;
	vb.ibv_ack_cq_events(dev->cq, dev->unacked_events);
	dev->unacked_events = 0;
	dev->armed = VERBS_UNARMED;
	arm(dev);
	rx_unlock();
}
