/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * credit_buffers.c - receive buffers of devices that cannot make a sender wait (caps.credits; rx
 * held throughout).
 *
 * On such devices each endpoint has a receive queue of its own.  The buffers belong to the device.
 * A *posted* buffer lies in the queue of one endpoint, in the order of posting, until something
 * has been received into it or the queue pair is gone.  Large buffers hold a whole frame, and
 * there are few.  Of the small ones VERBS_OWN are reserved for each endpoint: whatever others do,
 * it can have as many.
 *
 * A completion names the buffer and the turn in which it was posted.  So a completion for a queue
 * pair that is gone, or a doubled completion, is recognised, and the queue pair's number, which
 * may belong to another queue pair by then, is not used.
 *
 * Must not know what is in the buffers, nor how many an endpoint deserves (credit.c).
 */
#include "engine/transport/verbs/ep/ep.h"

#define TURNS 0x7fffffffu /* VERBS_WR_SEND is above them */

static uint32_t reserve_lacks(const struct verbs_ep *ep)
{
	return ep->member && ep->nsmall < VERBS_OWN ? VERBS_OWN - ep->nsmall : 0;
}

static void reserve_count_small(struct verbs_ep *ep, uint32_t n)
{
	struct verbs_dev *dev = ep->dev;

	dev->small_reserved -= reserve_lacks(ep);
	ep->nsmall = n;
	dev->small_reserved += reserve_lacks(ep);
}

bool verbs_credit_buf_reserve(struct verbs_ep *ep)
{
	struct verbs_dev *dev = ep->dev;

	if (dev->nsmall < dev->small_reserved + VERBS_OWN)
		return false;
	ep->member = true;
	dev->small_reserved += reserve_lacks(ep);
	return true;
}

void verbs_credit_buf_unreserve(struct verbs_ep *ep)
{
	ep->dev->small_reserved -= reserve_lacks(ep);
	ep->member = false;
}

static bool credit_buf_allowed(const struct verbs_ep *ep, bool large)
{
	const struct verbs_dev *dev = ep->dev;

	if (!ep->qp || !ep->member || dev->dead || ep->rq_len == VERBS_RQ)
		return false;
	if (large)
		return dev->nlarge;
	return reserve_lacks(ep) || dev->nsmall > dev->small_reserved;
}

static bool rq_post(struct verbs_ep *ep, struct verbs_buf *buf)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buf->mem,
			      .length = buf->large ? VERBS_BUF(ep->dev->caps.frame) : VERBS_BUF_SMALL,
			      .lkey = buf->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad = NULL;

	buf->turn = (buf->turn + 1) & TURNS;
	wr.wr_id = (uint64_t)buf->turn << 32 | buf->index;
	return !verbs_err(ibv_post_recv(ep->qp, &wr, &bad)) && !bad;
}

bool verbs_credit_buf_post(struct verbs_ep *ep, bool large)
{
	struct verbs_dev *dev = ep->dev;
	struct verbs_buf **list = large ? &dev->large : &dev->small, *buf = *list;

	if (!credit_buf_allowed(ep, large) || !rq_post(ep, buf))
		return false;
	*list = buf->next;
	if (large) {
		dev->nlarge--;
		ep->nlarge++;
	} else {
		dev->nsmall--;
		reserve_count_small(ep, ep->nsmall + 1);
	}
	buf->ep = ep;
	buf->in_rq = true;
	buf->next = NULL;
	if (!ep->rq)
		ep->rq_tail = &ep->rq;
	*ep->rq_tail = buf;
	ep->rq_tail = &buf->next;
	ep->rq_len++;
	dev->posted++;
	return true;
}

/* Takes the buffer out of its endpoint's queue. */
static void rq_remove(struct verbs_buf *buf)
{
	struct verbs_ep *ep = buf->ep;
	struct verbs_buf **p = &ep->rq;

	while (*p != buf) /* it is the first, unless the device loses buffers or mixes them up */
		p = &(*p)->next;
	*p = buf->next;
	if (!buf->next)
		ep->rq_tail = p;
	buf->in_rq = false;
	ep->rq_len--;
	if (buf->large)
		ep->nlarge--;
	ep->dev->posted--;
}

struct verbs_buf *verbs_credit_buf_completed(struct verbs_dev *dev, uint64_t wr_id)
{
	uint32_t index = (uint32_t)wr_id;
	struct verbs_buf *buf;

	if (index >= dev->nbufs)
		return NULL;
	buf = &dev->bufs[index];
	if (!buf->in_rq || buf->turn != wr_id >> 32)
		return NULL;
	rq_remove(buf);
	return buf;
}

void verbs_credit_buf_put(struct verbs_dev *dev, struct verbs_buf *buf)
{
	struct verbs_ep *ep = buf->ep;
	bool counted = ep && !buf->large && !buf->heap;

	verbs_buf_put(dev, buf);
	if (!counted)
		return;
	reserve_count_small(ep, ep->nsmall - 1);
	if (ep->member) /* it may have been the only one that could be posted */
		verbs_credit_schedule(ep);
}

void verbs_credit_buf_put_all(struct verbs_ep *ep)
{
	struct verbs_buf *buf;

	while ((buf = ep->rq)) {
		rq_remove(buf);
		verbs_credit_buf_put(ep->dev, buf);
	}
}

/*
 * As long as half of the large buffers are free, a message that fills much of one may wait there
 * for its reader.
 */
bool verbs_credit_buf_may_stay(const struct verbs_dev *dev, const struct verbs_buf *buf, uint32_t len)
{
	if (buf->heap)
		return len >= buf->len / 4;
	return buf->large && len >= VERBS_FRAME && dev->nlarge > dev->all_large / 2;
}
