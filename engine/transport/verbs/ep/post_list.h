/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * post_list.h - work requests on their way to the send queue, used by send.c (messages) and
 * control_frame.c (control frames).  conn->tx.
 *
 * Work requests are chained in ep->wr and go to the device together.  A work request has its place
 * in the send queue from the moment it is in the chain.  The functions are inline, since every
 * message passes through them.
 */
#ifndef ENGINE_TRANSPORT_VERBS_EP_POST_LIST_H
#define ENGINE_TRANSPORT_VERBS_EP_POST_LIST_H

#include <endian.h>
#include <string.h>

#include "engine/transport/verbs/ep/ep.h"

#define VERBS_SIGNAL_EVERY 16u
/* each completion interrupts a program that does not wait for it */
#define VERBS_SIGNAL_BYTES (256u << 10)

/* send.c */
/* gives the chain to the device; operations in it may end */
void verbs_wr_post_all(struct verbs_ep *ep);
/* gives the chain to the device; operations do not end, more work requests follow */
void verbs_wr_post_part(struct verbs_ep *ep);
/* gives back blocks that neither the device nor the peer needs */
void verbs_out_reclaim(struct verbs_ep *ep);
int verbs_out_grow(struct verbs_ep *ep); /* `out` is full: makes it larger */

static inline uint32_t verbs_wr_in_flight(const struct verbs_ep *ep)
{
	return atomic_load_explicit(&ep->wr_posted, memory_order_relaxed) -
	       atomic_load_explicit(&ep->wr_done, memory_order_acquire);
}

static inline bool verbs_sq_has_room(const struct verbs_ep *ep, uint32_t reserve)
{
	uint32_t each = atomic_load_explicit(&ep->dev->sq_each, memory_order_relaxed);

	return verbs_wr_in_flight(ep) + reserve < (each < ep->sq ? each : ep->sq);
}

/*
 * On devices where reads may go behind a fence only when it is complete, the fenced request asks
 * for a completion.
 */
static inline unsigned verbs_wr_fence(struct verbs_ep *ep)
{
	ep->fence_due = false;
	if (likely(!ep->dev->caps.fence_bars_reads))
		return IBV_SEND_FENCE;
	ep->fenced = true;
	ep->fence_wr = ep->wr_posted;
	return IBV_SEND_FENCE | IBV_SEND_SIGNALED;
}

/* Called often enough that the numbers do not wrap around in between. */
static inline void verbs_wr_fence_update(struct verbs_ep *ep, uint32_t done)
{
	if (unlikely(ep->fenced) && (int32_t)(done - ep->fence_wr) >= 0)
		ep->fenced = false;
}

/*
 * Adds a work request to the chain; its place in the send queue is taken.  Fields that a send does
 * not use are left as they were: clearing them for each frame would cost more than the rest of this
 * function.
 */
static inline struct ibv_send_wr *verbs_wr_next(struct verbs_ep *ep, uint32_t bytes, bool signal)
{
	unsigned flags = bytes <= ep->max_inline ? IBV_SEND_INLINE : 0;
	struct ibv_send_wr *wr;
	uint32_t posted;

	if (unlikely(ep->nwr_listed == VERBS_POST_LIST))
		verbs_wr_post_part(ep);
	wr = &ep->wr[ep->nwr_listed];
	if (ep->nwr_listed)
		ep->wr[ep->nwr_listed - 1].next = wr;
	ep->wr_unsignaled++;
	ep->bytes_unsignaled += bytes;
	if (signal || ep->wr_unsignaled >= VERBS_SIGNAL_EVERY || ep->bytes_unsignaled >= VERBS_SIGNAL_BYTES ||
	    unlikely(bytes >= ep->dev->caps.signal_from)) {
		flags |= IBV_SEND_SIGNALED;
		ep->wr_unsignaled = ep->bytes_unsignaled = 0;
	}
	posted = atomic_load_explicit(&ep->wr_posted, memory_order_relaxed) + 1;
	atomic_store_explicit(&ep->wr_posted, posted, memory_order_relaxed);
	wr->wr_id = VERBS_WR_SEND | posted;
	if (unlikely(ep->fence_due))
		flags |= verbs_wr_fence(ep);
	wr->opcode = IBV_WR_SEND;
	wr->sg_list = ep->sge[ep->nwr_listed++];
	wr->num_sge = 1;
	wr->send_flags = flags;
	return wr;
}

/*
 * Writes the current acknowledgement and credits into the header that goes out next, the first of a
 * frame.  Also the frame's number, from 1, where a frame is one request.  (Where it is not, the
 * frame's length may be in that field, segment.c; and iWARP is carried by TCP.)  True: the peer
 * waits for the acknowledgement.
 */
static inline bool verbs_wr_fill_header(struct verbs_ep *ep, struct rds_wire_hdr *h, bool grants)
{
	bool asked = false;
	uint32_t number;
	uint64_t ack;

	if (unlikely(atomic_load_explicit(&ep->ack_due, memory_order_relaxed))) {
		asked = atomic_exchange(&ep->ack_asked, false);
		/* before the value is read: a message that comes now makes it due again */
		atomic_store(&ep->ack_due, false);
	}
	ack = atomic_load(&ep->rx_ack);
	h->ack = htobe64(ack);
	atomic_store_explicit(&ep->rx_ack_sent, ack, memory_order_relaxed);
	if (unlikely(ep->dev->caps.credits)) {
		if (grants)
			h->credit = verbs_credit_grant(ep);
	} else {
		number = htobe32(++ep->frames_numbered);
		memcpy(h->padding, &number, sizeof(number));
	}
	return asked;
}

#endif
