/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * control_frame.c - control frames: acknowledgements, credits, requests for an acknowledgement,
 * probes (conn->tx).
 *
 * Code that finds something to be sent sets a flag (ack_due, probe_due ...) and has the engine
 * call verbs_ep_push, through up->push_later.  Control frames have entries of their own in the send
 * queue (VERBS_SQ_RESERVE), so a queue full of messages does not keep them back.  They go before
 * messages that wait for room: a peer may need their content before it can make room.
 *
 * A control frame has no sequence number, and no acknowledgement covers it.  It is solicited if it
 * asks for an acknowledgement, answers such a request, or grants credits.  Must not know what is
 * in a message, nor how messages are cut into frames (send.c).
 */
#include "engine/transport/verbs/ep/post_list.h"

/*
 * Gets memory for a header that the device does not copy, and an entry of `out` that keeps it until
 * it has been sent.
 */
static bool control_header_get(struct verbs_ep *ep, struct verbs_block *block)
{
	if ((ep->out_count < ep->out_cap || !verbs_out_grow(ep)) && !verbs_block_get_header(ep->dev->arena, block))
		return true;
	verbs_dev_want_memory(ep->dev);
	return false;
}

/*
 * The control frame has been sent completely: its place in `out` is before the entries that have
 * not.
 */
static void control_header_keep(struct verbs_ep *ep, const struct verbs_out *o)
{
	uint32_t i = ep->out_count++;

	for (; i > ep->out_count - 1 - ep->unfinished; i--)
		*verbs_out_at(ep, i) = *verbs_out_at(ep, i - 1);
	*verbs_out_at(ep, i) = *o;
}

/*
 * Sends a frame with an acknowledgement and perhaps (ask) a request for one, or (grants) with
 * credits as well: only then may it use the last credit of ours.  False: there is no room for it
 * now.
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
	verbs_wr_post_all(ep); /* control_hdr can be reused: the post below copies it */
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
 * Sends as many control frames as are needed: one header may not hold all credits, and perhaps no
 * other event causes another push.  False: no room, no memory, or no credits (which cause a call of
 * verbs_ep_push when they come).
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

/*
 * Sends an empty write behind what was sent, if anything was; a full queue has more to send anyway.
 */
static void control_urge(struct verbs_ep *ep)
{
	struct ibv_send_wr *wr;

	if (!ep->wr_posted || !verbs_sq_has_room(ep, 1))
		return;
	wr = verbs_wr_next(ep, 0, false);
	wr_empty_write(wr);
	verbs_wr_post_all(ep);
}

/* Asks the peer for an acknowledgement, which it sends at once. */
static void control_ask_ack(struct verbs_ep *ep)
{
	uint32_t i = ep->out_count;

	while (i > 0 && !verbs_out_at(ep, i - 1)->seq)
		i--;
	if (!i || verbs_out_at(ep, i - 1)->seq <= atomic_load(&ep->seen_ack))
		return;
	if (!ep->since_asked) /* the newest message has asked already */
		return;
	if (control_send(ep, true, false))
		ep->since_asked = 0;
}

/*
 * Another endpoint waits for blocks: asks for what gives back the blocks of this one, which may be
 * silent from now on.  On every device an empty write is enough: it only has to show that our own
 * device is done with the work requests before it.  (A full queue has more to complete anyway.)
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

void verbs_ep_push(struct rds_ep *rep)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	if (atomic_load(&ep->state) != VERBS_UP)
		return;
	verbs_out_reclaim(ep);
	verbs_send_pending(ep);
	verbs_wr_post_all(ep);
	while (!control_send_due(ep) && !atomic_exchange(&ep->control_stuck, true))
		; /* try again: a completion before control_stuck was set caused no push */
	if (verbs_ep_flag_take(&ep->probe_due))
		verbs_control_probe(ep);
	if (verbs_ep_flag_take(&ep->urge_due))
		control_urge(ep);
	if (verbs_ep_flag_take(&ep->signal_due))
		control_free_memory(ep);
}

bool verbs_ep_want_room(struct rds_ep *rep, uint64_t seen_ack)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	atomic_store(&ep->wants_room, true);
	rds_fence();
	if (atomic_load(&ep->state) != VERBS_UP)
		return false;
	rds_transport_batch_run_end(&ep->batch);
	verbs_send_pending(ep);
	verbs_wr_post_all(ep);
	if (atomic_load(&ep->seen_ack) > seen_ack)
		return true;
	control_ask_ack(ep);
	return false;
}

/*
 * Also sent between the frames of a message that waits for credits: the credits may be missing
 * because the peer is gone.
 */
int verbs_control_probe(struct verbs_ep *ep)
{
	struct ibv_send_wr *wr;

	if (atomic_load(&ep->state) != VERBS_UP)
		return -ENOTCONN;
	verbs_wr_post_all(ep);
	/* the queue itself is the probe: its last request that asks for a completion */
	if (!verbs_sq_has_room(ep, 1)) {
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
