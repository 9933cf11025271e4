/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * dev_users.c - what devices want of endpoints: the part of struct verbs_dev_users that is about
 * these.
 *
 * A device does not know its endpoints.  It calls these functions where all of them are concerned.
 * One more is in credit.c (verbs_ep_dev_starved).
 */
#include "engine/transport/verbs/ep/post_list.h"

/* ---- room in the completion queue ---- */

static bool ep_has_qp(const struct verbs_ep *ep, const struct verbs_dev *dev)
{
	return ep->dev == dev && !ep->qp_dead;
}

unsigned verbs_ep_dev_count(const struct verbs_dev *dev)
{
	const struct verbs_ep *ep;
	unsigned n = 0;

	for (ep = verbs_eps.all; ep; ep = ep->next)
		n += ep_has_qp(ep, dev);
	return n;
}

uint64_t verbs_ep_dev_in_flight(const struct verbs_dev *dev, uint32_t least)
{
	const struct verbs_ep *ep;
	uint64_t sum = 0;
	uint32_t n;

	for (ep = verbs_eps.all; ep; ep = ep->next) {
		if (!ep_has_qp(ep, dev))
			continue;
		n = verbs_wr_in_flight(ep);
		sum += n > least ? n : least;
	}
	return sum;
}

/* ---- memory ---- */

void verbs_ep_dev_memory_short(const struct verbs_dev *dev)
{
	struct verbs_ep *ep;

	for (ep = verbs_eps.all; ep; ep = ep->next) {
		if (ep->dev != dev || atomic_load(&ep->state) != VERBS_UP)
			continue;
		/* its blocks wait for a completion that no work request may have asked for */
		atomic_store(&ep->signal_due, true);
		ep->head.t->up->push_later(ep->head.conn);
		ep->head.t->up->writable(ep->head.conn);
	}
}

bool verbs_ep_dev_evacuate(const struct verbs_dev *dev)
{
	struct verbs_ep *ep;
	bool all = true;

	for (ep = verbs_eps.all; ep; ep = ep->next) {
		if (ep->dev != dev || !ep->inplace)
			continue;
		ep->head.t->up->evacuate(ep->head.conn, (struct rds_ep *)ep);
		all = all && !ep->inplace;
	}
	return all;
}

/* ---- the end ---- */

static struct verbs_ep *ep_find_qp(const struct verbs_dev *dev, uint32_t qpn)
{
	struct verbs_ep *ep;

	for (ep = verbs_eps.all; ep; ep = ep->next)
		if (ep->dev == dev && ep->qp && ep->qpn == qpn)
			return ep;
	return NULL;
}

void verbs_ep_dev_qp_event(const struct verbs_dev *dev, enum ibv_event_type type, uint32_t qpn)
{
	struct verbs_ep *ep = ep_find_qp(dev, qpn);

	if (ep && type == IBV_EVENT_QP_LAST_WQE_REACHED)
		verbs_ep_last_wqe(ep);
	if (!ep || ep->closed || type == IBV_EVENT_QP_LAST_WQE_REACHED)
		return;
	rds_debug("%s: %s", dev->name, vb.ibv_event_type_str(type));
	verbs_ep_down(ep, -ECONNRESET, false);
}

void verbs_ep_dev_removed(const struct verbs_dev *dev)
{
	struct verbs_ep *ep, *next;

	for (ep = verbs_eps.all; ep; ep = next) {
		next = ep->next; /* closing an endpoint does not take it off the list at once */
		if (ep->dev != dev)
			continue;
		/*
		 * the endpoint may be waiting for an answer that this device does not give any more
		 */
		if (ep->closed)
			verbs_ep_close_continue(ep);
		else
			verbs_ep_down(ep, -ENODEV, false);
	}
	verbs_cm_locate_dev_removed(dev);
}
