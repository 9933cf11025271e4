/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * send.c - outgoing messages (conn->tx, unless a comment names another lock).
 *
 * A message is copied once, into a registered block.  It stays there until the peer has
 * acknowledged it *and* the device is done with it.  The message is cut into frames, and a frame
 * into segments where the peer's next buffer is smaller (segment.c).  As many segments as the send
 * queue and the peer's credits allow are chained at once; the rest follows when there is room
 * (verbs_ep_push), and no other message is taken meanwhile.  The chain goes to the device in
 * verbs_ep_flush(), or when it is full.
 *
 * Several messages may share a frame, as a batch (batch.c).  While messages may still be added,
 * the batch is the last entry of `out` and is not in the chain.
 *
 * Signaling: one work request in VERBS_SIGNAL_EVERY, or per VERBS_SIGNAL_BYTES, asks for a
 * completion, which retires all before it.  So does each congestion message, or a thousand idle
 * connections would keep a block each; and on some devices each large request (caps.signal_from).
 *
 * When to acknowledge is decided by the receiver (ack.c), and control frames are made by
 * control_frame.c; but every frame carries an acknowledgement.  A frame is *solicited* only if the
 * peer must handle it soon: requests for an acknowledgement, answers to them, credits, congestion
 * maps.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sys/cpu.h"
#include "engine/transport/verbs/ep/post_list.h"
#include "engine/transport/verbs/ep/rdma.h"

#define OUT_START 64u

/* ---- room ---- */

void verbs_out_reclaim(struct verbs_ep *ep)
{
	uint32_t done = atomic_load_explicit(&ep->wr_done, memory_order_acquire);
	uint64_t acked = atomic_load_explicit(&ep->seen_ack, memory_order_acquire);

	verbs_wr_fence_update(ep, done);
	while (ep->out_count > ep->unfinished) {
		struct verbs_out *o = verbs_out_at(ep, 0);

		if ((int32_t)(done - o->wr_end) < 0 || (o->seq && o->seq > acked))
			return;
		if (unlikely(o->map))
			verbs_block_shed(ep->dev->arena, &o->block);
		else
			verbs_block_put(ep->dev->arena, &o->block);
		ep->out_head++;
		ep->out_count--;
	}
}

int verbs_out_grow(struct verbs_ep *ep)
{
	uint32_t cap = ep->out_cap ? ep->out_cap * 2 : OUT_START, i;
	struct verbs_out *o = malloc(cap * sizeof(*o));

	if (!o)
		return -ENOMEM;
	for (i = 0; i < ep->out_count; i++)
		o[i] = *verbs_out_at(ep, i);
	free(ep->out);
	ep->out = o;
	ep->out_cap = cap;
	ep->out_head = 0;
	return 0;
}

/* ---- the chain ---- */

static inline int wr_post(struct verbs_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct os_sigpipe s;
	int err;

	if (likely(!ep->dev->caps.sigpipe))
		return verbs_err(ibv_post_send(ep->qp, wr, bad));
	os_sigpipe_hold(&s);
	err = verbs_err(ibv_post_send(ep->qp, wr, bad));
	os_sigpipe_release(&s, true);
	return err;
}

/*
 * Gives the chain to the device.  How much of it was taken is read from the remaining list: if the
 * list overflows half-way the post may still be reported as a success.  A request that was not
 * taken can never be sent in its place any more: the endpoint breaks.
 */
void verbs_wr_post_part(struct verbs_ep *ep)
{
	struct ibv_send_wr *bad = NULL;
	int err;

	if (!ep->nwr_listed)
		return;
	ep->wr[ep->nwr_listed - 1].next = NULL;
	ep->nwr_listed = 0;
	ep->heavy = false;
	if (atomic_load(&ep->state) != VERBS_UP)
		return;
	err = wr_post(ep, ep->wr, &bad);
	if (likely(!err && !bad))
		return;
	rds_debug("%s: posting a send failed: %s", ep->dev->name, strerror(err ? -err : ENOMEM));
	rx_lock();
	verbs_ep_broken(ep, err ? err : -ENOMEM);
	rx_unlock();
}

void verbs_wr_post_all(struct verbs_ep *ep)
{
	if (unlikely(ep->end_due) && ep->nwr_listed)
		verbs_rdma_end(ep);
	verbs_wr_post_part(ep);
}

static void cong_map_sent(struct verbs_ep *ep, const struct verbs_out *o)
{
	atomic_store(&ep->map_wr, o->wr_end);
	atomic_store(&ep->map_out, true);
}

/* Sends the only frame of a message, in one segment: header and payload are contiguous. */
static inline __attribute__((always_inline)) void frame_out_whole(struct verbs_ep *ep, struct verbs_out *o)
{
	struct ibv_send_wr *wr = verbs_wr_next(ep, VERBS_HDR + o->len, o->map);

	if (unlikely(verbs_wr_fill_header(ep, (struct rds_wire_hdr *)(void *)o->block.mem, o->grants)) || o->solicited)
		wr->send_flags |= IBV_SEND_SOLICITED;
	wr->sg_list[0] =
		(struct ibv_sge){.addr = (uintptr_t)o->block.mem, .length = VERBS_HDR + o->len, .lkey = o->block.lkey};
	o->given = 1;
	o->wr_end = ep->wr_posted;
	if (unlikely(o->map))
		cong_map_sent(ep, o);
	if (unlikely(ep->ops_due))
		verbs_rdma_behind(ep, o->seq);
}

/*
 * Sends len bytes: the first segment of a frame, or all of it.  Only if more segments follow does
 * the header tell the length of the whole frame.
 */
static void segment_out_first(struct verbs_ep *ep, struct verbs_out *o, struct ibv_send_wr *wr, uint32_t len,
			      uint32_t whole)
{
	unsigned char *hdr = o->block.mem + (size_t)o->given * VERBS_HDR;
	struct rds_wire_hdr *h = (struct rds_wire_hdr *)(void *)hdr;
	struct ibv_sge *sge = wr->sg_list;
	uint32_t total = htobe32(whole);

	if (unlikely(len < whole))
		memcpy(h->padding, &total, sizeof(total));
	if (unlikely(verbs_wr_fill_header(ep, h, o->grants)))
		wr->send_flags |= IBV_SEND_SOLICITED;
	if (o->nframes == 1) {
		sge[0] = (struct ibv_sge){.addr = (uintptr_t)hdr, .length = len, .lkey = o->block.lkey};
		return;
	}
	sge[0] = (struct ibv_sge){.addr = (uintptr_t)hdr, .length = VERBS_HDR, .lkey = o->block.lkey};
	sge[1] = (struct ibv_sge){
		.addr = (uintptr_t)(o->block.mem + (size_t)o->nframes * VERBS_HDR + (size_t)o->given * ep->frame),
		.length = len - VERBS_HDR,
		.lkey = o->block.lkey};
	wr->num_sge = 2;
}

/* Sends a later segment: all of its bytes are payload. */
static void segment_out_next(struct verbs_ep *ep, struct verbs_out *o, struct ibv_send_wr *wr, uint32_t len)
{
	size_t at = (size_t)o->nframes * VERBS_HDR + (size_t)o->given * ep->frame + o->frame_sent - VERBS_HDR;

	wr->sg_list[0] = (struct ibv_sge){
		.addr = (uintptr_t)ep->dev->mark, .length = VERBS_MARK, .lkey = ep->dev->recv_mr->lkey};
	wr->sg_list[1] = (struct ibv_sge){.addr = (uintptr_t)(o->block.mem + at), .length = len, .lkey = o->block.lkey};
	wr->num_sge = 2;
}

/* Sends the next segment, of at most `most` bytes. */
static void segment_out(struct verbs_ep *ep, struct verbs_out *o, uint32_t most)
{
	uint32_t at = o->given * ep->frame, whole = VERBS_HDR + (o->len - at < ep->frame ? o->len - at : ep->frame);
	uint32_t mark = o->frame_sent ? VERBS_MARK : 0, len = whole - o->frame_sent;
	struct ibv_send_wr *wr;
	bool last;

	if (likely(o->nframes == 1 && !mark && whole <= most)) {
		frame_out_whole(ep, o);
		return;
	}
	if (unlikely(len > most - mark))
		len = most - mark;
	last = o->frame_sent + len == whole && o->given + 1u == o->nframes;
	wr = verbs_wr_next(ep, mark + len, last && (o->map || o->nframes > VERBS_SIGNAL_EVERY / 2));
	if (likely(!mark))
		segment_out_first(ep, o, wr, len, whole);
	else
		segment_out_next(ep, o, wr, len);
	if (last && o->solicited)
		wr->send_flags |= IBV_SEND_SOLICITED;
	o->frame_sent += len;
	if (o->frame_sent == whole) {
		o->frame_sent = 0;
		o->given++;
	}
	o->wr_end = ep->wr_posted;
	if (unlikely(last && o->map))
		cong_map_sent(ep, o);
}

/* Sends what is left of the messages that were taken, except a held batch. */
static inline void send_pump(struct verbs_ep *ep)
{
	uint32_t most;

	while (ep->unfinished > ep->held) {
		struct verbs_out *o = verbs_out_at(ep, ep->out_count - ep->unfinished);

		while (o->given < o->nframes) {
			if (verbs_sq_has_room(ep, VERBS_SQ_RESERVE) && (most = verbs_credit_take(ep, false))) {
				segment_out(ep, o, most);
				continue;
			}
			/*
			 * if backlog was not set, the loop tries again: room that came before it
			 * was set caused no push
			 */
			if (atomic_exchange(&ep->backlog, true))
				return;
		}
		ep->unfinished--;
		if (unlikely(ep->ops_due))
			verbs_rdma_behind(ep, o->seq);
	}
	atomic_store_explicit(&ep->backlog, false, memory_order_relaxed);
}

/* ---- a message ---- */

/*
 * Every frame has the whole header.  The headers differ only in acknowledgement and credit, which
 * are filled in when the frame is sent.
 */
static void message_headers(struct verbs_ep *ep, struct verbs_out *o, const struct rds_wire_hdr *hdr)
{
	unsigned i;

	ep->since_asked = hdr->flags & RDS_FLAG_ACK_REQUIRED ? 0 : ep->since_asked + 1;
	o->solicited = hdr->flags & (RDS_FLAG_ACK_REQUIRED | RDS_FLAG_CONG_BITMAP);
	o->map = hdr->flags & RDS_FLAG_CONG_BITMAP;
	for (i = 0; i < o->nframes; i++)
		memcpy(o->block.mem + (size_t)i * VERBS_HDR, hdr, sizeof(*hdr));
}

void verbs_send_pending(struct verbs_ep *ep)
{
	ep->held = false;
	send_pump(ep);
}

/*
 * A held message may be sent after operations that the engine posted later: when the message is
 * delivered these may as well have been carried out, and each operation waits only for the message
 * behind it.
 */
bool verbs_send_room(struct verbs_ep *ep, uint32_t n)
{
	verbs_out_reclaim(ep);
	if (ep->unfinished > ep->held)
		verbs_send_pending(ep);
	return ep->unfinished == ep->held && verbs_sq_has_room(ep, VERBS_SQ_RESERVE + n + ep->held);
}

/*
 * Blocks that have become free since the last flush are still in `out`: if no block is available,
 * reclaim them first.
 */
static int send_block_get(struct verbs_ep *ep, size_t size, struct verbs_block *block)
{
	int err = verbs_block_get(ep->dev->arena, size, block);

	if (likely(!err))
		return 0;
	verbs_out_reclaim(ep);
	err = verbs_block_get(ep->dev->arena, size, block);
	if (err)
		verbs_dev_want_memory(ep->dev);
	return err;
}

/*
 * A redirect and its acknowledgement must be sent even if messages use all memory: until then the
 * peer may not acknowledge any of these messages, and they do not give the memory back.
 */
static int redirect_block_get(struct verbs_ep *ep, const struct rds_wire_hdr *hdr, size_t size,
			      struct verbs_block *block)
{
	return hdr->flags & RDS_FLAG_REDIRECT ? verbs_block_get_redirect(ep->dev->arena, size, block) : -EAGAIN;
}

int verbs_ep_send(struct rds_ep *rep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		  uint64_t *pos)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;
	uint32_t nframes = likely(len <= ep->frame) ? 1 : (uint32_t)((len + ep->frame - 1) / ep->frame);
	struct verbs_out *o;
	enum verbs_batch_kind with = verbs_batch_kind(ep, hdr, len);
	int err;

	if (unlikely(atomic_load_explicit(&ep->state, memory_order_relaxed) != VERBS_UP))
		return -ENOTCONN;
	if (ep->unfinished) {
		if (with != VERBS_ALONE && verbs_batch_add(ep, hdr, iov, len, pos))
			return 0;
		verbs_send_pending(ep);
	}
	if (unlikely(ep->unfinished || !verbs_sq_has_room(ep, VERBS_SQ_RESERVE)))
		return -EAGAIN;
	if (unlikely(ep->out_count == ep->out_cap))
		verbs_out_reclaim(ep);
	if (unlikely(ep->out_count == ep->out_cap) && verbs_out_grow(ep))
		return -ENOMEM;
	if ((with >= VERBS_PIECE ||
	     (with == VERBS_SMALL && !ep->heavy && rds_transport_batch_may_wait(&ep->batch, &ep->head))) &&
	    verbs_batch_new(ep, hdr, iov, len, pos) == 0)
		return 0;
	o = verbs_out_at(ep, ep->out_count);
	*o = (struct verbs_out){
		.seq = be64toh(hdr->sequence), .len = (uint32_t)len, .nframes = (uint16_t)nframes, .grants = true};
	err = send_block_get(ep, (size_t)nframes * VERBS_HDR + len, &o->block);
	if (unlikely(err) && redirect_block_get(ep, hdr, VERBS_HDR + len, &o->block))
		return err;
	message_headers(ep, o, hdr);
	rds_copy_gather(o->block.mem + (size_t)nframes * VERBS_HDR, iov, len);
	*pos = (uintptr_t)(o->block.mem + (size_t)nframes * VERBS_HDR);
	ep->out_count++;
	/* there is room, and no earlier message is unfinished */
	if (likely(nframes == 1 && !ep->dev->caps.credits)) {
		frame_out_whole(ep, o);
		return 0;
	}
	ep->unfinished++;
	send_pump(ep);
	return 0;
}

const void *verbs_ep_retained(struct rds_ep *ep, uint64_t pos)
{
	(void)ep;
	return (const void *)(uintptr_t)pos;
}

void verbs_ep_flush(struct rds_ep *rep, bool service)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	if (service && ep->held)
		verbs_send_pending(ep);
	if (!ep->nwr_listed)
		return;
	if (unlikely(ep->held && ep->ops_due) && !ep->heavy)
		return;
	if (service)
		ep->wr[ep->nwr_listed - 1].send_flags |= IBV_SEND_SOLICITED;
	verbs_wr_post_all(ep);
	verbs_out_reclaim(ep); /* after the post: done before it, this work would delay the peer */
}

uint64_t verbs_ep_acked(struct rds_ep *rep)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	return atomic_load_explicit(&ep->seen_ack, memory_order_acquire);
}

/* ---- completions (rx), the end ---- */

/* The block of the map is given back by the next verbs_ep_push. */
static bool cong_map_completed(struct verbs_ep *ep, uint32_t done)
{
	if (likely(!atomic_load(&ep->map_out)) || (int32_t)(done - atomic_load(&ep->map_wr)) < 0 ||
	    !atomic_exchange(&ep->map_out, false))
		return false;
	/* another map was sent meanwhile, and map_wr is its number */
	if ((int32_t)(done - atomic_load(&ep->map_wr)) < 0)
		atomic_store(&ep->map_out, true);
	return true;
}

/*
 * On siw a read completes when it is answered; work requests behind it may have completed before.
 */
static bool read_is_late(struct verbs_ep *ep, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RDMA_READ) {
		ep->reads_done++;
		ep->quiet_since = 0; /* the peer is alive */
	}
	return (int32_t)((uint32_t)wc->wr_id - atomic_load_explicit(&ep->wr_done, memory_order_relaxed)) < 0;
}

void verbs_send_completed(struct verbs_ep *ep, const struct ibv_wc *wc)
{
	if (likely(!ep->dev->caps.probe_reads) || !read_is_late(ep, wc)) {
		atomic_store_explicit(&ep->wr_done, (uint32_t)wc->wr_id, memory_order_release);
		if (likely(wc->status == IBV_WC_SUCCESS))
			ep->wr_good = (uint32_t)wc->wr_id;
	}
	if (unlikely(atomic_load_explicit(&ep->op_count, memory_order_relaxed)))
		verbs_rdma_completed(ep, (uint32_t)wc->wr_id, wc->status);
	if (unlikely(wc->status != IBV_WC_SUCCESS)) {
		if (wc->status != IBV_WC_WR_FLUSH_ERR)
			rds_debug("%s: a send failed: %s", ep->dev->name, vb.ibv_wc_status_str(wc->status));
		verbs_ep_broken(ep, wc->status == IBV_WC_RETRY_EXC_ERR ? -ETIMEDOUT : -ECONNRESET);
		return;
	}
	if (unlikely(atomic_load(&ep->state) != VERBS_UP))
		return;
	rds_fence();
	if (cong_map_completed(ep, (uint32_t)wc->wr_id) || unlikely(atomic_load(&ep->backlog)) ||
	    verbs_ep_flag_take(&ep->control_stuck))
		ep->head.t->up->push_later(ep->head.conn);
	if (verbs_ep_flag_take(&ep->wants_room))
		ep->head.t->up->writable(ep->head.conn);
}

/*
 * Unsignaled work requests that were sent long ago count as in flight until a later one completes.
 * This last one does.
 */
void verbs_send_mark(struct verbs_ep *ep)
{
	struct ibv_send_wr wr = {.wr_id = VERBS_WR_SEND | (ep->wr_posted + 1), .opcode = IBV_WR_SEND}, *bad = NULL;

	wr.send_flags = IBV_SEND_SIGNALED;
	ep->nwr_listed = 0;
	if (!wr_post(ep, &wr, &bad) && !bad)
		ep->wr_posted++;
}

bool verbs_send_idle(struct verbs_ep *ep)
{
	return verbs_wr_in_flight(ep) == 0;
}

void verbs_send_free(struct verbs_ep *ep)
{
	uint32_t i;

	for (i = 0; i < ep->out_count; i++)
		verbs_block_put(ep->dev->arena, &verbs_out_at(ep, i)->block);
	verbs_rdma_free(ep);
	free(ep->out);
	ep->out = NULL;
	ep->out_count = ep->out_cap = ep->out_head = ep->unfinished = 0;
	ep->held = false;
}
