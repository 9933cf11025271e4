/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lend.c - receive buffers of devices that cannot make a sender wait (caps.credits; rx held throughout).
 *
 * Each endpoint has a receive queue of its own there.  The buffers are the device's: a *lent* one lies in the queue of one endpoint, in
 * the order in which it was lent, until something has come into it or the queue pair is gone.  Large ones take a whole frame, and there
 * are few.  Of the small ones VERBS_OWN belong to each endpoint: whatever others do, it can have as many.
 *
 * A completion names the buffer and the turn at which it was lent.  So what a device says of a queue pair that is gone, or says twice, is
 * recognised, and the queue pair's number, which may be another one's by then, is not asked.
 *
 * Must not know what is in them, nor who deserves how many (credit.c).
 */
#include "engine/transport/verbs/verbs.h"

#define TURNS 0x7fffffffu /* VERBS_WR_SEND is above them */

static uint32_t lacks(const struct verbs_ep *ep)
{
	return ep->member && ep->nsmall < VERBS_OWN ? VERBS_OWN - ep->nsmall : 0;
}

static void count_small(struct verbs_ep *ep, uint32_t n)
{
	struct verbs_dev *dev = ep->dev;

	dev->owed -= lacks(ep);
	ep->nsmall = n;
	dev->owed += lacks(ep);
}

bool verbs_lend_join(struct verbs_ep *ep)
{
	struct verbs_dev *dev = ep->dev;

	if (dev->nsmall < dev->owed + VERBS_OWN)
		return false;
	ep->member = true;
	dev->owed += lacks(ep);
	return true;
}

void verbs_lend_leave(struct verbs_ep *ep)
{
	ep->dev->owed -= lacks(ep);
	ep->member = false;
}

static bool may_have(const struct verbs_ep *ep, bool large)
{
	const struct verbs_dev *dev = ep->dev;

	if (!ep->qp || !ep->member || dev->gone || ep->nlent == VERBS_RQ)
		return false;
	if (large)
		return dev->nlarge;
	return lacks(ep) || dev->nsmall > dev->owed;
}

static bool post(struct verbs_ep *ep, struct verbs_buf *buf)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buf->mem,
			      .length = buf->large ? VERBS_BUF(ep->dev->caps.frame) : VERBS_BUF_SMALL,
			      .lkey = buf->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad = NULL;

	buf->turn = (buf->turn + 1) & TURNS;
	wr.wr_id = (uint64_t)buf->turn << 32 | buf->index;
	return !verbs_err(ibv_post_recv(ep->qp, &wr, &bad)) && !bad;
}

bool verbs_lend(struct verbs_ep *ep, bool large)
{
	struct verbs_dev *dev = ep->dev;
	struct verbs_buf **list = large ? &dev->large : &dev->small, *buf = *list;

	if (!may_have(ep, large) || !post(ep, buf))
		return false;
	*list = buf->next;
	if (large) {
		dev->nlarge--;
		ep->nlarge++;
	} else {
		dev->nsmall--;
		count_small(ep, ep->nsmall + 1);
	}
	buf->ep = ep;
	buf->lent = true;
	buf->next = NULL;
	if (!ep->lent)
		ep->lent_tail = &ep->lent;
	*ep->lent_tail = buf;
	ep->lent_tail = &buf->next;
	ep->nlent++;
	dev->posted++;
	return true;
}

/* It is in its endpoint's queue no more. */
static void taken_out(struct verbs_buf *buf)
{
	struct verbs_ep *ep = buf->ep;
	struct verbs_buf **p = &ep->lent;

	while (*p != buf) /* the first, unless the device loses some or mixes them up */
		p = &(*p)->next;
	*p = buf->next;
	if (!buf->next)
		ep->lent_tail = p;
	buf->lent = false;
	ep->nlent--;
	if (buf->large)
		ep->nlarge--;
	ep->dev->posted--;
}

struct verbs_buf *verbs_lent_came(struct verbs_dev *dev, uint64_t wr_id)
{
	uint32_t index = (uint32_t)wr_id;
	struct verbs_buf *buf;

	if (index >= dev->nbufs)
		return NULL;
	buf = &dev->bufs[index];
	if (!buf->lent || buf->turn != wr_id >> 32)
		return NULL;
	taken_out(buf);
	return buf;
}

void verbs_lend_back(struct verbs_dev *dev, struct verbs_buf *buf)
{
	struct verbs_buf **list = buf->large ? &dev->large : &dev->small;
	struct verbs_ep *ep = buf->ep;

	buf->ep = NULL;
	buf->next = *list;
	*list = buf;
	if (buf->large) {
		dev->nlarge++;
		return;
	}
	dev->nsmall++;
	if (!ep)
		return;
	count_small(ep, ep->nsmall - 1);
	if (ep->member) /* it may have been all that it could be lent */
		verbs_credit_hungry(ep);
}

void verbs_lend_end(struct verbs_ep *ep)
{
	struct verbs_buf *buf;

	while ((buf = ep->lent)) {
		taken_out(buf);
		verbs_lend_back(ep->dev, buf);
	}
}

/* As long as half of the large ones are free, a message that fills much of one may wait there for its reader. */
bool verbs_lend_in_place(const struct verbs_dev *dev, const struct verbs_buf *buf, uint32_t len)
{
	if (buf->heap)
		return len >= buf->len / 4;
	return buf->large && len >= VERBS_FRAME && dev->nlarge > dev->all_large / 2;
}
