/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * completion.c - looks at completion queues, and tells from which endpoint a completion is (rx held
 * throughout).
 *
 * Completions of sends go to send.c.  A received segment goes to recv.c if it is what had to come:
 * the frame with the next number, or one that the peer had a credit for.  Frames are numbered,
 * since a reliable connection may not be one: soft RoCE that retransmits too early has delivered
 * packets twice, and a message in place of another was seen.
 *
 * Must not know what is in a message.
 */
#include <endian.h>
#include <string.h>

#include "engine/transport/verbs/ep/ep.h"

#define POLL_BATCH 16
#define ROUNDS 8 /* batches of completions in one call: the caller has other work to do */

/* ---- one completion ---- */

/* Credits are taken as soon as a segment has come, whether it can be handled or not. */
static bool frame_take_credits(struct verbs_ep *ep, const struct verbs_buf *buf)
{
	const char *wrong = verbs_credit_received(ep, buf);

	if (unlikely(wrong))
		verbs_recv_nonsense(ep, wrong);
	return !wrong;
}

/*
 * Has the frame the number that follows the last one (verbs_wr_fill_header)?  After the first error
 * none has, until there is a new connection, over which the peer sends again what was not
 * acknowledged.
 */
static bool frame_in_order(struct verbs_ep *ep, const struct verbs_buf *buf)
{
	const struct rds_wire_hdr *h = (const void *)buf->mem;
	uint32_t number;

	if (unlikely(buf->len < VERBS_HDR)) /* invalid anyway */
		return true;
	memcpy(&number, h->padding, sizeof(number));
	if (likely(number == htobe32(++ep->frames_received)))
		return true;
	/* a peer of another version, without numbers */
	if (!number && (ep->unnumbered || ep->frames_received == 1)) {
		ep->unnumbered = true;
		return true;
	}
	rds_warn("the RDMA device %s has lost or doubled something on its way from a peer (frame %u came as %u): "
		 "connected anew, nothing is lost",
		 ep->dev->name, be32toh(number), ep->frames_received);
	verbs_ep_protocol_error(ep);
	return false;
}

/* Checks number and credits of a frame, not its content.  False: the frame is not to be used. */
static inline bool frame_makes_sense(struct verbs_ep *ep, const struct verbs_buf *buf)
{
	if (likely(!ep->dev->caps.credits))
		return frame_in_order(ep, buf);
	/* closed: the endpoint has no credits, and its connection receives nothing */
	return ep->closed || frame_take_credits(ep, buf);
}

/*
 * Finds the buffer that was filled, and its endpoint.  NULL: the completion belongs to no posted
 * buffer.
 */
static struct verbs_buf *wc_recv_buf(struct verbs_dev *dev, const struct ibv_wc *wc, struct verbs_ep **ep)
{
	struct verbs_buf *buf;

	if (unlikely(dev->caps.credits)) {
		buf = verbs_credit_buf_completed(dev, wc->wr_id);
		*ep = buf ? buf->ep : NULL;
		return buf;
	}
	if (unlikely(wc->wr_id >= dev->nbufs))
		return NULL;
	*ep = verbs_ep_by_qpn(dev, wc->qp_num);
	dev->posted--;
	return &dev->bufs[wc->wr_id];
}

static void wc_received(struct verbs_dev *dev, const struct ibv_wc *wc)
{
	struct verbs_ep *ep;
	struct verbs_buf *buf = wc_recv_buf(dev, wc, &ep);

	if (unlikely(!buf))
		return;
	if (unlikely(wc->status != IBV_WC_SUCCESS || !ep)) {
		if (ep && wc->status != IBV_WC_WR_FLUSH_ERR)
			rds_debug("%s: a receive failed: %s", dev->name, vb.ibv_wc_status_str(wc->status));
		if (ep && wc->status != IBV_WC_SUCCESS)
			verbs_ep_broken(ep, -ECONNRESET);
		verbs_recv_buf_put(dev, buf);
		return;
	}
	buf->len = wc->byte_len < VERBS_BUF(dev->caps.frame) ? wc->byte_len : VERBS_BUF(dev->caps.frame);
	buf->at = 0;
	buf->users = 1;
	ep->quiet_since = 0;
	if (unlikely(!frame_makes_sense(ep, buf))) {
		verbs_recv_buf_put(dev, buf);
		return;
	}
	if (unlikely(!ep->heard)) {
		ep->heard = true;
		verbs_ep_first_frame(ep);
	}
	verbs_recv_segment(ep, buf);
}

static void wc_handle(struct verbs_dev *dev, const struct ibv_wc *wc)
{
	struct verbs_ep *ep;

	if (!(wc->wr_id & VERBS_WR_SEND)) {
		wc_received(dev, wc);
		return;
	}
	ep = verbs_ep_by_qpn(dev, wc->qp_num);
	if (likely(ep))
		verbs_send_completed(ep, wc);
}

/* ---- a look ---- */

/*
 * Posting returned buffers takes time, and no thread waits for it.  So it is done at a look that
 * finds nothing; or sooner, if an eighth of the buffers has been returned (with few buffers that
 * may be one), or a peer may soon be out of credits.
 */
static bool bufs_refill_due(const struct verbs_dev *dev, int found)
{
	if (unlikely(dev->caps.credits))
		return dev->credit_wait && (!found || dev->urgent);
	return dev->nrefill && (!found || dev->nrefill >= VERBS_REFILL_BATCH || dev->nrefill >= dev->nbufs / 8);
}

static bool dev_progress(struct verbs_dev *dev)
{
	struct ibv_wc wc[POLL_BATCH];
	bool any = false;
	int n, i, round;

	while (dev->stash_at < dev->nstash) {
		wc_handle(dev, &dev->stash[dev->stash_at++]);
		any = true;
	}
	for (round = 0; round < ROUNDS; round++) {
		n = ibv_poll_cq(dev->cq, POLL_BATCH, wc);
		for (i = 0; i < n; i++)
			wc_handle(dev, &wc[i]);
		any |= n > 0;
		if (bufs_refill_due(dev, n))
			verbs_recv_bufs_refill(dev);
		if (n < POLL_BATCH)
			break;
	}
	return any;
}

bool verbs_ep_progress(struct rds_transport *t)
{
	struct verbs_dev *dev;
	bool any = false;

	(void)t;
	if (unlikely(verbs_eps.waiting))
		any = verbs_recv_retry_all();
	for (dev = atomic_load_explicit(&verbs_devs.all, memory_order_acquire); dev; dev = dev->next)
		any |= dev_progress(dev);
	rds_transport_batch_look();
	return any;
}

/* Before this process stops looking, it sends what it owes. */
void verbs_ep_attention(struct rds_transport *t, enum rds_attention who)
{
	(void)t;
	verbs_dev_attention(who);
	if (who != RDS_ATT_LEADER && who != RDS_ATT_HELPER)
		return;
	rds_transport_batch_flush();
	verbs_ack_flush();
}

/* There is never any pressure: see bufs_plentiful() in recv.c. */
bool verbs_ep_relieve(struct rds_transport *t, bool now)
{
	(void)t;
	(void)now;
	return false;
}
