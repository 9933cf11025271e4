/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * control_frame.c - what goes out without a message: acknowledgements, credits, questions, probes (conn->tx).
 *
 * Who finds that something is to be said sets a flag (ack_due, probe_due ...) and has the engine call verbs_push, by up->speak.  Such
 * frames have places of their own in the send queue (VERBS_SQ_RESERVE), so that a queue full of messages does not silence us, and they go before
 * what waits for room: a peer may need what they say before it can make any.
 *
 * A frame of this kind has no sequence number, and no acknowledgement covers it.  It is solicited if it asks, answers or gives credits.
 * Must not know what is in a message, nor how it is cut (send.c).
 */
#include "engine/transport/verbs/post_list.h"

/* Memory for a header that the device will not copy, and a place to keep it until it has gone. */
static bool control_header_get(struct verbs_ep *ep, struct verbs_block *block)
{
	if ((ep->out_count < ep->out_cap || !verbs_out_grow(ep)) && !verbs_block_get_header(ep->dev->arena, block))
		return true;
	verbs_dev_want_memory(ep->dev);
	return false;
}

/* It has gone whole: its place is before those that have not. */
static void control_header_keep(struct verbs_ep *ep, const struct verbs_out *o)
{
	uint32_t i = ep->out_count++;

	for (; i > ep->out_count - 1 - ep->unfinished; i--)
		*verbs_out_at(ep, i) = *verbs_out_at(ep, i - 1);
	*verbs_out_at(ep, i) = *o;
}

/*
 * A frame with nothing but acknowledgement and perhaps the wish for one, or (grants) credits as well: only then may it use the last credit
 * that we have.  False: no place for it now.
 */
static bool control_send(struct verbs_ep *ep, bool ask, bool grants)
{
	struct verbs_out o = {.nframes = 1, .given = 1, .grants = grants};
	bool copied = ep->max_inline >= VERBS_HDR;
	struct rds_wire_hdr *h = &ep->control_hdr;
	struct ibv_send_wr *wr;

	if (!verbs_sq_has_room(ep, 1) || (!copied && !control_header_get(ep, &o.block)))
		return false;
	if (!verbs_credit_take(ep, grants)) {
		if (o.block.chunk)
			verbs_block_put(ep->dev->arena, &o.block);
		return false;
	}
	verbs_wr_post_all(ep); /* one header per endpoint will do where the post below copies it */
	if (!copied)
		h = (void *)o.block.mem;
	*h = (struct rds_wire_hdr){.flags = ask ? RDS_FLAG_ACK_REQUIRED : 0};
	wr = verbs_wr_next(ep, VERBS_HDR, false);
	wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)h, .length = VERBS_HDR, .lkey = o.block.lkey};
	if (verbs_wr_fill_header(ep, h, grants) || ask || grants)
		wr->send_flags |= IBV_SEND_SOLICITED;
	o.wr_end = ep->wr_posted;
	if (!copied)
		control_header_keep(ep, &o);
	verbs_wr_post_all(ep);
	return true;
}

/*
 * One header may not tell of all credits, and perhaps nothing else makes us speak again: as many frames as it takes.
 * False: no place, no memory, or no credits (which come with a call of verbs_push).
 */
static bool control_send_due(struct verbs_ep *ep)
{
	bool grants;

	while ((grants = verbs_credit_grant_due(ep)) || atomic_load(&ep->ack_due))
		if (!control_send(ep, false, grants))
			return false;
	return true;
}

static void wr_empty_write(struct ibv_send_wr *wr)
{
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->wr.rdma.remote_addr = 0;
	wr->wr.rdma.rkey = 0;
	wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
	wr->num_sge = 0;
	wr->sg_list = NULL;
}

/* Behind what has gone, if anything has; a full queue has more to come anyway. */
static void control_urge(struct verbs_ep *ep)
{
	struct ibv_send_wr *wr;

	if (!ep->wr_posted || !verbs_sq_has_room(ep, 1))
		return;
	wr = verbs_wr_next(ep, 0, false);
	wr_empty_write(wr);
	verbs_wr_post_all(ep);
}

/* The peer answers at once, which makes the acknowledgement move. */
static void control_ask_ack(struct verbs_ep *ep)
{
	uint32_t i = ep->out_count;

	while (i > 0 && !verbs_out_at(ep, i - 1)->seq)
		i--;
	if (!i || verbs_out_at(ep, i - 1)->seq <= atomic_load(&ep->seen_ack))
		return;
	if (!ep->since_asked) /* the newest has asked already */
		return;
	if (control_send(ep, true, false))
		ep->since_asked = 0;
}

/*
 * Somebody else waits for blocks: what would give back those of this one, which may be silent from now on.  A write on every
 * device: that our own is done with what went before is all that is asked.  (A full queue has more to complete anyway.)
 */
static void control_free_memory(struct verbs_ep *ep)
{
	struct ibv_send_wr *wr;

	control_ask_ack(ep);
	if (!ep->wr_unsignaled || !verbs_sq_has_room(ep, 1))
		return;
	wr = verbs_wr_next(ep, 0, true);
	wr_empty_write(wr);
	verbs_wr_post_all(ep);
}

void verbs_push(struct rds_ep *rep)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	if (atomic_load(&ep->state) != VERBS_UP)
		return;
	verbs_out_reclaim(ep);
	verbs_send_pending(ep);
	verbs_wr_post_all(ep);
	while (!control_send_due(ep) && !atomic_exchange(&ep->control_stuck, true))
		; /* once more: what completed before it was set told nobody */
	if (unlikely(atomic_load_explicit(&ep->probe_due, memory_order_relaxed)) &&
	    atomic_exchange(&ep->probe_due, false))
		verbs_control_probe(ep);
	if (unlikely(atomic_load_explicit(&ep->urge_due, memory_order_relaxed)) &&
	    atomic_exchange(&ep->urge_due, false))
		control_urge(ep);
	if (unlikely(atomic_load_explicit(&ep->signal_due, memory_order_relaxed)) &&
	    atomic_exchange(&ep->signal_due, false))
		control_free_memory(ep);
}

bool verbs_want_room(struct rds_ep *rep, uint64_t seen_ack)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	atomic_store(&ep->wants_room, true);
	rds_fence();
	if (atomic_load(&ep->state) != VERBS_UP)
		return false;
	verbs_batch_run_end(ep);
	verbs_send_pending(ep);
	verbs_wr_post_all(ep);
	if (atomic_load(&ep->seen_ack) > seen_ack)
		return true;
	control_ask_ack(ep);
	return false;
}

/* Also between the frames of a message that waits for credits: they may be waited for because nobody is there any more. */
int verbs_control_probe(struct verbs_ep *ep)
{
	struct ibv_send_wr *wr;

	if (atomic_load(&ep->state) != VERBS_UP)
		return -ENOTCONN;
	verbs_wr_post_all(ep);
	if (!verbs_sq_has_room(ep, 1)) { /* what is in it will do: the last of it that asks for a completion */
		atomic_store(&ep->probe_wr, ep->wr_posted - VERBS_SIGNAL_EVERY);
		return -EBUSY;
	}
	wr = verbs_wr_next(ep, 0, true);
	if (ep->dev->caps.probe_reads)
		verbs_keepalive_fill_read(ep, wr);
	else
		wr_empty_write(wr);
	atomic_store(&ep->probe_wr, ep->wr_posted);
	atomic_store(&ep->probe_read, atomic_load(&ep->reads));
	verbs_wr_post_all(ep);
	return 0;
}
