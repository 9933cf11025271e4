/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cq_notify.c - decides when a device wakes a thread, and which thread (rx held).
 *
 * A completion queue that is *armed* makes its channel readable once, for the next completion.
 * Arming is a system call on some devices, and a completion that came before it causes no event.
 * So the queue is armed only by a thread that is about to stop looking, and that thread looks once
 * more afterwards (verbs_dev_pending):
 *
 *   attention HELPER   armed for everything; the event goes to the helper
 *   LEADER             armed for everything; the kernel wakes the leader (relay), and the helper
 *                      does not watch the channel.  Without a relay the helper gets the event and
 *                      wakes the leader
 *   LAZY               the program is expected back at once: nothing is armed.  If LAZY is set
 *                      again (at every tick that it lasts), or a wake-up of the helper has led to
 *                      it, armed for solicited frames, and the event goes to the helper
 *   POLLING            not armed; an arming that is still in force stays, with its receiver
 *
 * At most one event waits in the channel: a thread that arms again has taken it, or does not know
 * of it and need not arm.
 */
#include "engine/transport/verbs/dev/dev.h"

#define ACK_EVENTS 32 /* events acknowledged together: each acknowledgement takes a lock */

static enum verbs_armed cq_wanted_arming(enum rds_attention who)
{
	switch (who) {
	case RDS_ATT_LEADER:
	case RDS_ATT_NAMED: /* not told to this transport */
	case RDS_ATT_HELPER:
		return VERBS_ALL;
	case RDS_ATT_LAZY:
		return VERBS_SOLICITED;
	case RDS_ATT_POLLING:
		break;
	}
	return VERBS_UNARMED;
}

static void cq_arm(struct verbs_dev *dev)
{
	enum verbs_armed want = cq_wanted_arming(verbs_devs.attention);

	if (dev->armed >= want || dev->dead)
		return;
	if (verbs_err(ibv_req_notify_cq(dev->cq, want == VERBS_SOLICITED)) == 0)
		dev->armed = want;
	else
		rds_error("the RDMA device %s: completions cannot be reported (ibv_req_notify_cq): messages may be "
			  "noticed late",
			  dev->name);
}

static void cq_take_event(struct verbs_dev *dev)
{
	struct ibv_cq *cq;
	void *arg;

	if (vb.ibv_get_cq_event(dev->channel, &cq, &arg))
		return;
	dev->armed = VERBS_UNARMED;
	if (++dev->unacked_events >= ACK_EVENTS) {
		vb.ibv_ack_cq_events(dev->cq, dev->unacked_events);
		dev->unacked_events = 0;
	}
}

static void helper_watch_cq(struct verbs_dev *dev, bool on)
{
	if (dev->helper_deaf == !on)
		return;
	dev->helper_deaf = !on;
	/* removed from the epoll set: with an empty event mask the helper would still be woken */
	if (!on)
		rds_helper_event_del(dev->channel->fd);
	else if (rds_helper_event_add(&dev->comp_ev, os_fd_adopted_slot(&dev->channel->fd), EPOLLIN))
		rds_error("the RDMA device %s: the helper cannot watch for completions: messages may be noticed late",
			  dev->name);
}

/* The queue is armed already: chooses the receiver of the event. */
static void cq_route_event(struct verbs_dev *dev)
{
	enum rds_attention who = verbs_devs.attention;
	int efd = rds_helper_relay_fd();

	if (who == RDS_ATT_POLLING || dev->dead)
		return;
	helper_watch_cq(dev,
			who != RDS_ATT_LEADER || efd < 0 || os_poll_eventfd_arm(&dev->relay, dev->channel->fd, efd));
}

void verbs_dev_attention(enum rds_attention who)
{
	bool at_once = who != RDS_ATT_LAZY || verbs_devs.attention == RDS_ATT_LAZY;
	struct verbs_dev *dev;

	verbs_devs.attention = who;
	for (dev = atomic_load(&verbs_devs.all); dev; dev = dev->next) {
		if (os_poll_eventfd_fired(&dev->relay))
			cq_take_event(dev);
		if (at_once) {
			cq_arm(dev);
			cq_route_event(dev);
		}
	}
}

bool verbs_dev_pending(struct rds_transport *t)
{
	struct verbs_dev *dev;
	int n;

	(void)t;
	for (dev = atomic_load(&verbs_devs.all); dev; dev = dev->next) {
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

/* Helper, no lock held.  A round of progress follows, as after every event. */
void verbs_dev_comp_event(struct rds_helper_event *ev, uint32_t events)
{
	struct verbs_dev *dev = container_of(ev, struct verbs_dev, comp_ev);

	(void)events;
	rx_lock();
	cq_take_event(dev);
	rds_transport_wakes.helper_woken();
	cq_arm(dev);
	rx_unlock();
}
