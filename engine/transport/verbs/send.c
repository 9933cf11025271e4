/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * send.c - messages on their way out (conn->tx, unless said otherwise).
 *
 * A message is copied once, into a registered block where it stays until the peer has acknowledged it *and* the device is done with
 * it.  It is cut into frames, and these into segments where the peer's next buffer is smaller (segment.c); as many as the send queue and the
 * peer's credits allow are chained at once, the rest follows when there is room (verbs_push), and no other message is taken meanwhile.  The chain goes to the device in flush(), or when it is full.
 *
 * Several may share a frame (batch.c): such a group is the last of `out` while others may be put behind, and not yet given to the chain.
 *
 * Signaling: one work request in VERBS_SIGNAL_EVERY, or per VERBS_SIGNAL_BYTES, asks for a completion, which retires all before it; and
 * each congestion map, or a thousand idle connections would keep 8 KiB each.  On some devices, large ones (caps.signal_from).
 *
 * When to acknowledge is the receiver's business (recv.c), and what is said without a message that of control_frame.c; but every frame carries an
 * acknowledgement.  Only what the peer must not leave lying is *solicited*: questions, answers to them, credits, congestion maps.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sys/cpu.h"
#include "engine/transport/verbs/post_list.h"
#include "engine/transport/verbs/rdma.h"

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
 * Gives the chain to the device.  How much of it was taken is read from what is left: a list that overflows half-way may still
 * be reported as a success.  What is not taken can never be sent in its place: the endpoint breaks.
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

/* The only frame of its message, in one segment: header and bytes lie in one piece. */
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

/* The first segment of a frame, or all of it: len bytes.  Only if there are more does the header say how many there will be. */
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

/* A later one: its bytes are payload. */
static void segment_out_next(struct verbs_ep *ep, struct verbs_out *o, struct ibv_send_wr *wr, uint32_t len)
{
	size_t at = (size_t)o->nframes * VERBS_HDR + (size_t)o->given * ep->frame + o->frame_sent - VERBS_HDR;

	wr->sg_list[0] = (struct ibv_sge){
		.addr = (uintptr_t)ep->dev->mark, .length = VERBS_MARK, .lkey = ep->dev->recv_mr->lkey};
	wr->sg_list[1] = (struct ibv_sge){.addr = (uintptr_t)(o->block.mem + at), .length = len, .lkey = o->block.lkey};
	wr->num_sge = 2;
}

/* The next segment, of so many bytes at most. */
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

/* What is left of messages that have been taken, but for what is held. */
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
			if (atomic_exchange(&ep->backlog, true))
				return; /* else once more: what came before it was set told nobody */
		}
		ep->unfinished--;
		if (unlikely(ep->ops_due))
			verbs_rdma_behind(ep, o->seq);
	}
	atomic_store_explicit(&ep->backlog, false, memory_order_relaxed);
}

/* ---- a message ---- */

/* Every frame has the whole header: they differ in acknowledgement and credit only, which are filled in when it goes. */
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
 * A message that is held may go after operations that are later: when it is delivered, they may as well have been carried out, and what they
 * wait for is the message behind each.
 */
bool verbs_send_room(struct verbs_ep *ep, uint32_t n)
{
	verbs_out_reclaim(ep);
	if (ep->unfinished > ep->held)
		verbs_send_pending(ep);
	return ep->unfinished == ep->held && verbs_sq_has_room(ep, VERBS_SQ_RESERVE + n + ep->held);
}

/* What is done with has not been given back since the last flush. */
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
 * That a port has moved, and that this has been heeded, must be said although messages have all memory: until then the peer may not acknowledge any of
 * these, and they do not give it back.
 */
static int redirect_block_get(struct verbs_ep *ep, const struct rds_wire_hdr *hdr, size_t size,
			      struct verbs_block *block)
{
	return hdr->flags & RDS_FLAG_REDIRECT ? verbs_block_get_redirect(ep->dev->arena, size, block) : -EAGAIN;
}

int verbs_send(struct rds_ep *rep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos)
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
	if ((with >= VERBS_PIECE || (with == VERBS_SMALL && !ep->heavy && verbs_batch_may_wait(ep))) &&
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
	if (likely(nframes == 1 && !ep->dev->caps.credits)) { /* there is room, and nothing before it */
		frame_out_whole(ep, o);
		return 0;
	}
	ep->unfinished++;
	send_pump(ep);
	return 0;
}

const void *verbs_retained(struct rds_ep *ep, uint64_t pos)
{
	(void)ep;
	return (const void *)(uintptr_t)pos;
}

void verbs_flush(struct rds_ep *rep, bool service)
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
	verbs_out_reclaim(ep); /* now that the device is at it: before, the peer would have waited for that */
}

uint64_t verbs_acked(struct rds_ep *rep)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	return atomic_load_explicit(&ep->seen_ack, memory_order_acquire);
}

/* ---- completions (rx), the end ---- */

/* Its block goes back with the next verbs_push. */
static bool cong_map_completed(struct verbs_ep *ep, uint32_t done)
{
	if (likely(!atomic_load(&ep->map_out)) || (int32_t)(done - atomic_load(&ep->map_wr)) < 0 ||
	    !atomic_exchange(&ep->map_out, false))
		return false;
	if ((int32_t)(done - atomic_load(&ep->map_wr)) < 0) /* another one has gone meanwhile: that was its mark */
		atomic_store(&ep->map_out, true);
	return true;
}

/* A read completes when it is answered, on siw; what was posted behind it may have completed before. */
static bool read_is_late(struct verbs_ep *ep, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RDMA_READ) {
		ep->reads_done++;
		ep->quiet_since = 0; /* the peer is there */
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
	    (unlikely(atomic_load_explicit(&ep->control_stuck, memory_order_relaxed)) &&
	     atomic_exchange(&ep->control_stuck, false)))
		ep->head.t->up->push_later(ep->head.conn);
	if (unlikely(atomic_load_explicit(&ep->wants_room, memory_order_relaxed)) &&
	    atomic_exchange(&ep->wants_room, false))
		ep->head.t->up->writable(ep->head.conn);
}

/* Unsignaled ones that were sent long ago count as in flight until something after them completes: the mark does. */
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
