/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * bell.c - the leader sleeps in read() on the completion channel itself, and whoever else has to wake it has the device do it.
 *
 * The shortest way there is where every step is a system call: no eventfd between, nothing to set, and the read that ends the sleep
 * takes the event.  Others cannot write to a channel.  They post to a queue pair of our own that is in error, the *bell*: the request is
 * flushed, its completion comes to the same queue, and makes an event as any other does.
 *
 * No wake-up is lost.  Whoever rings has found the sleeper marked as such (wait.c: armed), and before that the completion queue was armed,
 * whatever attention says, even if other threads poll.  So there was an event before the bell's completion, or that makes one, whoever polls
 * it; if the bell cannot be posted, as the send queue is full, the completions of those that are in it do.  As long as the sleeper is there
 * nobody else reads the channel, so the event is its own.  One that was left there by an earlier arming only makes one more look.
 *
 * The channel is blocking for that, so everybody else asks whether there is an event before it is read (wake.c), under rx.  Only one device
 * is slept on, and only if there is no other: all of it is undone, and the relay used, as soon as there is.
 *
 * Must not know what is waited for.
 */
#include "engine/transport/verbs/verbs.h"

#define RINGS 8u  /* under way */
#define LOOKS 100 /* a device that flushes later than that does not do so in the call that posts */

/* Leaf.  Those who ring against the end of the device. */
static rds_lock_t lock = RDS_LOCK_INIT(RDS_LOCK_PLAIN);

static void ring(struct ibv_qp *qp)
{
	struct ibv_send_wr wr = {.wr_id = VERBS_WR_SEND, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	(void)ibv_post_send(qp, &wr, &bad);
}

/* It is asked, rather than believed, whether a queue pair that never worked flushes what it is given, at once. */
static bool heard(struct verbs_dev *dev)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_wc wc;
	int i, n = 0;

	if (vb.ibv_modify_qp(dev->bell.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return false;
	attr.qp_state = IBV_QPS_ERR; /* to which there is no way from the state it is made in */
	if (vb.ibv_modify_qp(dev->bell.qp, &attr, IBV_QP_STATE))
		return false;
	ring(dev->bell.qp);
	for (i = 0; i < LOOKS && !n; i++)
		n = ibv_poll_cq(dev->cq, 1, &wc);
	return n == 1 && wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == dev->bell.qp->qp_num;
}

void verbs_bell_new(struct verbs_dev *dev)
{
	struct ibv_qp_init_attr attr = {.send_cq = dev->cq, .recv_cq = dev->cq, .qp_type = IBV_QPT_RC};

	if (!dev->caps.bell)
		return;
	attr.cap = (struct ibv_qp_cap){.max_send_wr = RINGS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
	dev->bell.qp = vb.ibv_create_qp(dev->pd, &attr);
	if (dev->bell.qp && !heard(dev)) {
		rds_debug("%s: nobody sleeps on its completion channel: it does not flush at once", dev->name);
		verbs_bell_free(dev);
	}
}

void verbs_bell_free(struct verbs_dev *dev)
{
	struct ibv_qp *qp = dev->bell.qp;

	if (!qp)
		return;
	rds_lock(&lock);
	dev->bell.qp = NULL;
	rds_unlock(&lock);
	vb.ibv_destroy_qp(qp);
}

bool verbs_bell_gone(struct verbs_dev *dev)
{
	if (atomic_load(&rds_verbs.slept_on) != dev)
		return false;
	verbs_ring(&rds_verbs.t);
	return true;
}

_Atomic int *verbs_sleep_on(struct rds_transport *t)
{
	struct verbs_dev *dev = atomic_load(&rds_verbs.devs);

	(void)t;
	if (!dev || dev->next || dev->gone || !dev->bell.qp || dev->bell.unsure || !verbs_arm_all(dev))
		return NULL;
	atomic_store(&rds_verbs.slept_on, dev);
	return (_Atomic int *)&dev->channel->fd;
}

void verbs_slept(struct rds_transport *t, enum rds_slept how)
{
	struct verbs_dev *dev = atomic_load(&rds_verbs.slept_on);

	(void)t;
	if (how == RDS_SLEPT_READ)
		verbs_event_taken(dev);
	if (how == RDS_SLEPT_UNSURE) { /* cancelled, perhaps with an event in hand; or an error */
		dev->armed = VERBS_UNARMED;
		dev->bell.unsure = true;
	}
	atomic_store(&rds_verbs.slept_on, NULL);
}

/* Any thread, whatever it has locked.  The sleeper may just be leaving: then this is one completion that means nothing. */
void verbs_ring(struct rds_transport *t)
{
	struct verbs_dev *dev;

	(void)t;
	rds_lock(&lock);
	dev = atomic_load(&rds_verbs.slept_on);
	if (dev && dev->bell.qp)
		ring(dev->bell.qp);
	rds_unlock(&lock);
}

void verbs_bell_forget(void)
{
	rds_lock_init(&lock, RDS_LOCK_PLAIN);
}
