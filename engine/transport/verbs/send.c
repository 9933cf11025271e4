/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * send.c - messages on their way out (conn->tx, unless said otherwise).
 *
 * A message is copied once, into a registered block where it stays until the peer has acknowledged it *and* the device is done with
 * it.  It is cut into frames, and these into segments where the peer's next buffer is smaller (segment.c); as many as the send queue and the
 * peer's credits allow are chained at once, the rest follows when there is room (verbs_push), and no other message is taken meanwhile.  The chain goes to the device in flush(), or when it is full.
 *
 * Several may share a frame (group.c): such a group is the last of `out` while others may be put behind, and not yet given to the chain.
 *
 * Signaling: one work request in SIGNAL_EVERY, or per SIGNAL_BYTES, asks for a completion, which retires all before it; and each congestion
 * map, or a thousand idle connections would keep 8 KiB each.  On some devices, large ones (caps.signal_from).
 *
 * When to acknowledge is the receiver's business (recv.c); who waits for room asks for it, and is answered at once.  Every frame carries ours.
 * Only what the peer must not leave lying is *solicited*: questions, answers to them, credits, congestion maps.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "engine/copy.h"
#include "engine/transport/verbs/verbs.h"

#define SIGNAL_EVERY 16u
#define SIGNAL_BYTES (256u << 10) /* each interrupts a program that does not wait for it */
#define OUT_START 64u

/* ---- room ---- */

static inline uint32_t in_flight(const struct verbs_ep *ep)
{
	return ep->wr_posted - atomic_load_explicit(&ep->wr_done, memory_order_acquire);
}

static inline bool queue_room(const struct verbs_ep *ep, uint32_t reserve)
{
	return in_flight(ep) + reserve < atomic_load_explicit(&ep->dev->sq_each, memory_order_relaxed);
}

static void free_done(struct verbs_ep *ep)
{
	uint32_t done = atomic_load_explicit(&ep->wr_done, memory_order_acquire);
	uint64_t acked = atomic_load_explicit(&ep->seen_ack, memory_order_acquire);

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

static int out_grow(struct verbs_ep *ep)
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

static inline int give(struct verbs_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
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
static void post_chain(struct verbs_ep *ep)
{
	struct ibv_send_wr *bad = NULL;
	int err;

	if (!ep->nchain)
		return;
	ep->wr[ep->nchain - 1].next = NULL;
	ep->nchain = 0;
	if (atomic_load(&ep->state) != VERBS_UP)
		return;
	err = give(ep, ep->wr, &bad);
	if (likely(!err && !bad))
		return;
	rds_debug("%s: posting a send failed: %s", ep->dev->name, strerror(err ? -err : ENOMEM));
	rx_lock();
	verbs_broken(ep, err ? err : -ENOMEM);
	rx_unlock();
}

/*
 * The next work request of the chain; its place in the queue is taken.  What a send does not look at is left as it was: clearing all of
 * it for each frame would cost more than the rest of this.
 */
static inline struct ibv_send_wr *chain_next(struct verbs_ep *ep, uint32_t bytes, bool signal)
{
	struct ibv_send_wr *wr;
	unsigned flags = bytes <= ep->max_inline ? IBV_SEND_INLINE : 0;

	if (unlikely(ep->nchain == VERBS_CHAIN))
		post_chain(ep);
	wr = &ep->wr[ep->nchain];
	if (ep->nchain)
		ep->wr[ep->nchain - 1].next = wr;
	ep->wr_unsignaled++;
	ep->bytes_unsignaled += bytes;
	if (signal || ep->wr_unsignaled >= SIGNAL_EVERY || ep->bytes_unsignaled >= SIGNAL_BYTES ||
	    unlikely(bytes >= ep->dev->caps.signal_from)) {
		flags |= IBV_SEND_SIGNALED;
		ep->wr_unsignaled = ep->bytes_unsignaled = 0;
	}
	wr->wr_id = VERBS_WR_SEND | ++ep->wr_posted;
	wr->opcode = IBV_WR_SEND;
	wr->sg_list = ep->sge[ep->nchain++];
	wr->num_sge = 1;
	wr->send_flags = flags;
	return wr;
}

/* Acknowledgement and credits as of now, in whatever header goes out next.  True: the peer waits for it. */
static inline bool say_in(struct verbs_ep *ep, struct rds_wire_hdr *h, bool grants)
{
	bool asked = false;
	uint64_t ack;

	if (unlikely(atomic_load_explicit(&ep->ack_due, memory_order_relaxed))) {
		asked = atomic_exchange(&ep->ack_asked, false);
		atomic_store(&ep->ack_due, false); /* before the value is read: what comes now is due again */
	}
	ack = atomic_load(&ep->rx_ack);
	h->ack = htobe64(ack);
	atomic_store_explicit(&ep->told, ack, memory_order_relaxed);
	if (grants)
		h->credit = verbs_credit_tell(ep);
	return asked;
}

static void map_goes(struct verbs_ep *ep, const struct verbs_out *o)
{
	atomic_store(&ep->map_wr, o->wr_end);
	atomic_store(&ep->map_out, true);
}

/* The only frame of its message, in one segment: header and bytes lie in one piece. */
static inline void frame_whole(struct verbs_ep *ep, struct verbs_out *o)
{
	struct ibv_send_wr *wr = chain_next(ep, VERBS_HDR + o->len, o->map);

	if (unlikely(say_in(ep, (struct rds_wire_hdr *)(void *)o->block.mem, o->grants)) || o->solicited)
		wr->send_flags |= IBV_SEND_SOLICITED;
	wr->sg_list[0] =
		(struct ibv_sge){.addr = (uintptr_t)o->block.mem, .length = VERBS_HDR + o->len, .lkey = o->block.lkey};
	o->given = 1;
	o->wr_end = ep->wr_posted;
	if (unlikely(o->map))
		map_goes(ep, o);
}

/* The first segment of a frame, or all of it: len bytes.  Only if there are more does the header say how many there will be. */
static void first_out(struct verbs_ep *ep, struct verbs_out *o, struct ibv_send_wr *wr, uint32_t len, uint32_t whole)
{
	unsigned char *hdr = o->block.mem + (size_t)o->given * VERBS_HDR;
	struct rds_wire_hdr *h = (struct rds_wire_hdr *)(void *)hdr;
	struct ibv_sge *sge = wr->sg_list;
	uint32_t total = htobe32(whole);

	if (unlikely(len < whole))
		memcpy(h->padding, &total, sizeof(total));
	if (unlikely(say_in(ep, h, o->grants)))
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
static void next_out(struct verbs_ep *ep, struct verbs_out *o, struct ibv_send_wr *wr, uint32_t len)
{
	size_t at = (size_t)o->nframes * VERBS_HDR + (size_t)o->given * ep->frame + o->gone - VERBS_HDR;

	wr->sg_list[0] = (struct ibv_sge){
		.addr = (uintptr_t)ep->dev->mark, .length = VERBS_MARK, .lkey = ep->dev->recv_mr->lkey};
	wr->sg_list[1] = (struct ibv_sge){.addr = (uintptr_t)(o->block.mem + at), .length = len, .lkey = o->block.lkey};
	wr->num_sge = 2;
}

/* The next segment, of so many bytes at most. */
static void segment_out(struct verbs_ep *ep, struct verbs_out *o, uint32_t most)
{
	uint32_t at = o->given * ep->frame, whole = VERBS_HDR + (o->len - at < ep->frame ? o->len - at : ep->frame);
	uint32_t mark = o->gone ? VERBS_MARK : 0, len = whole - o->gone;
	struct ibv_send_wr *wr;
	bool last;

	if (likely(o->nframes == 1 && !mark && whole <= most)) {
		frame_whole(ep, o);
		return;
	}
	if (unlikely(len > most - mark))
		len = most - mark;
	last = o->gone + len == whole && o->given + 1u == o->nframes;
	wr = chain_next(ep, mark + len, last && (o->map || o->nframes > SIGNAL_EVERY / 2));
	if (likely(!mark))
		first_out(ep, o, wr, len, whole);
	else
		next_out(ep, o, wr, len);
	if (last && o->solicited)
		wr->send_flags |= IBV_SEND_SOLICITED;
	o->gone += len;
	if (o->gone == whole) {
		o->gone = 0;
		o->given++;
	}
	o->wr_end = ep->wr_posted;
	if (unlikely(last && o->map))
		map_goes(ep, o);
}

/* What is left of messages that have been taken, but for what is held. */
static inline void pump(struct verbs_ep *ep)
{
	uint32_t most;

	while (ep->unfinished > ep->held) {
		struct verbs_out *o = verbs_out_at(ep, ep->out_count - ep->unfinished);

		while (o->given < o->nframes) {
			if (queue_room(ep, VERBS_SQ_RESERVE) && (most = verbs_credit_take(ep, false))) {
				segment_out(ep, o, most);
				continue;
			}
			if (atomic_exchange(&ep->backlog, true))
				return; /* else once more: what came before it was set told nobody */
		}
		ep->unfinished--;
	}
	atomic_store_explicit(&ep->backlog, false, memory_order_relaxed);
}

/* ---- a message ---- */

/* Every frame has the whole header: they differ in acknowledgement and credit only, which are filled in when it goes. */
static void headers(struct verbs_ep *ep, struct verbs_out *o, const struct rds_wire_hdr *hdr)
{
	unsigned i;

	ep->since_asked = hdr->flags & RDS_FLAG_ACK_REQUIRED ? 0 : ep->since_asked + 1;
	o->solicited = hdr->flags & (RDS_FLAG_ACK_REQUIRED | RDS_FLAG_CONG_BITMAP);
	o->map = hdr->flags & RDS_FLAG_CONG_BITMAP;
	for (i = 0; i < o->nframes; i++)
		memcpy(o->block.mem + (size_t)i * VERBS_HDR, hdr, sizeof(*hdr));
}

void verbs_let_go(struct verbs_ep *ep)
{
	ep->held = false;
	pump(ep);
}

/* What is done with has not been given back since the last flush. */
static int block_get(struct verbs_ep *ep, size_t size, struct verbs_block *block)
{
	int err = verbs_block_get(ep->dev->arena, size, block);

	if (likely(!err))
		return 0;
	free_done(ep);
	err = verbs_block_get(ep->dev->arena, size, block);
	if (err)
		verbs_dev_memory(ep->dev);
	return err;
}

int verbs_send(struct rds_ep *rep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;
	uint32_t nframes = likely(len <= ep->frame) ? 1 : (uint32_t)((len + ep->frame - 1) / ep->frame);
	struct verbs_out *o;
	enum verbs_company with = verbs_company(ep, hdr, len);
	int err;

	if (unlikely(atomic_load_explicit(&ep->state, memory_order_relaxed) != VERBS_UP))
		return -ENOTCONN;
	if (ep->unfinished) {
		if (with != VERBS_ALONE && verbs_group_add(ep, hdr, iov, len, pos))
			return 0;
		verbs_let_go(ep);
	}
	if (unlikely(ep->unfinished || !queue_room(ep, VERBS_SQ_RESERVE)))
		return -EAGAIN;
	if (unlikely(ep->out_count == ep->out_cap))
		free_done(ep);
	if (unlikely(ep->out_count == ep->out_cap) && out_grow(ep))
		return -ENOMEM;
	if ((with == VERBS_PIECE || (with == VERBS_SMALL && verbs_collect(ep))) &&
	    verbs_group_new(ep, hdr, iov, len, pos) == 0)
		return 0;
	o = verbs_out_at(ep, ep->out_count);
	*o = (struct verbs_out){
		.seq = be64toh(hdr->sequence), .len = (uint32_t)len, .nframes = (uint16_t)nframes, .grants = true};
	err = block_get(ep, (size_t)nframes * VERBS_HDR + len, &o->block);
	if (unlikely(err))
		return err;
	headers(ep, o, hdr);
	rds_gather(o->block.mem + (size_t)nframes * VERBS_HDR, iov, len);
	*pos = (uintptr_t)(o->block.mem + (size_t)nframes * VERBS_HDR);
	ep->out_count++;
	if (likely(nframes == 1 && !ep->dev->caps.credits)) { /* there is room, and nothing before it */
		frame_whole(ep, o);
		return 0;
	}
	ep->unfinished++;
	pump(ep);
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
		verbs_let_go(ep);
	if (!ep->nchain)
		return;
	if (service)
		ep->wr[ep->nchain - 1].send_flags |= IBV_SEND_SOLICITED;
	post_chain(ep);
	free_done(ep); /* now that the device is at it: before, the peer would have waited for that */
}

/* ---- without a message ---- */

/*
 * A frame with nothing but acknowledgement and perhaps the wish for one, or (grants) credits as well: only then may it use the last credit
 * that we have.  False: no place for it now.
 */
static bool say(struct verbs_ep *ep, bool ask, bool grants)
{
	struct verbs_out o = {.nframes = 1, .grants = grants};
	struct rds_wire_hdr h = {.flags = ask ? RDS_FLAG_ACK_REQUIRED : 0};
	struct ibv_send_wr *wr;
	bool asked;

	if (!queue_room(ep, 1))
		return false;
	if (ep->max_inline < VERBS_HDR &&
	    ((ep->out_count == ep->out_cap && out_grow(ep)) || verbs_block_get(ep->dev->arena, VERBS_HDR, &o.block))) {
		verbs_dev_memory(ep->dev);
		return false;
	}
	if (!verbs_credit_take(ep, grants)) {
		if (o.block.chunk)
			verbs_block_put(ep->dev->arena, &o.block);
		return false;
	}
	if (ep->max_inline < VERBS_HDR) {
		memcpy(o.block.mem, &h, sizeof(h));
		o.solicited = ask || grants;
		segment_out(ep, &o, VERBS_BUF_SMALL);
		/* It has gone whole: its place is before those that have not. */
		if (ep->unfinished) {
			uint32_t i = ep->out_count++;

			for (; i > ep->out_count - 1 - ep->unfinished; i--)
				*verbs_out_at(ep, i) = *verbs_out_at(ep, i - 1);
			*verbs_out_at(ep, i) = o;
		} else {
			*verbs_out_at(ep, ep->out_count++) = o;
		}
		post_chain(ep);
		return true;
	}
	post_chain(ep); /* the header is one per endpoint, and inline: it is copied by the post below */
	asked = say_in(ep, &h, grants);
	ep->said = h;
	wr = chain_next(ep, VERBS_HDR, false);
	wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)&ep->said, .length = VERBS_HDR};
	if (asked || ask || grants)
		wr->send_flags |= IBV_SEND_SOLICITED;
	post_chain(ep);
	return true;
}

/*
 * One header may not tell of all credits, and perhaps nothing else makes us speak again: as many frames as it takes.
 * False: no place, no memory, or no credits (which come with a call of verbs_push).
 */
static bool say_due(struct verbs_ep *ep)
{
	bool grants;

	while ((grants = verbs_credit_due(ep)) || atomic_load(&ep->ack_due))
		if (!say(ep, false, grants))
			return false;
	return true;
}

static void to_nowhere(struct ibv_send_wr *wr)
{
	wr->wr.rdma.remote_addr = 0;
	wr->wr.rdma.rkey = 0;
}

static void write_nothing(struct ibv_send_wr *wr)
{
	wr->opcode = IBV_WR_RDMA_WRITE;
	to_nowhere(wr);
	wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
	wr->num_sge = 0;
	wr->sg_list = NULL;
}

/* Behind what has gone, if anything has; a full queue has more to come anyway. */
static void send_nothing(struct verbs_ep *ep)
{
	struct ibv_send_wr *wr;

	if (!ep->wr_posted || !queue_room(ep, 1))
		return;
	wr = chain_next(ep, 0, false);
	write_nothing(wr);
	post_chain(ep);
}

/* The peer answers at once, which makes the acknowledgement move. */
static void ask(struct verbs_ep *ep)
{
	uint32_t i = ep->out_count;

	while (i > 0 && !verbs_out_at(ep, i - 1)->seq)
		i--;
	if (!i || verbs_out_at(ep, i - 1)->seq <= atomic_load(&ep->seen_ack))
		return;
	if (!ep->since_asked) /* the newest has asked already */
		return;
	if (say(ep, true, false))
		ep->since_asked = 0;
}

/*
 * Somebody else waits for blocks: what would give back those of this one, which may be silent from now on.  A write on every
 * device: that our own is done with what went before is all that is asked.  (A full queue has more to complete anyway.)
 */
static void memory_wanted(struct verbs_ep *ep)
{
	struct ibv_send_wr *wr;

	ask(ep);
	if (!ep->wr_unsignaled || !queue_room(ep, 1))
		return;
	wr = chain_next(ep, 0, true);
	write_nothing(wr);
	post_chain(ep);
}

void verbs_push(struct rds_ep *rep)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	if (atomic_load(&ep->state) != VERBS_UP)
		return;
	free_done(ep);
	verbs_let_go(ep);
	post_chain(ep);
	while (!say_due(ep) && !atomic_exchange(&ep->unsaid, true))
		; /* once more: what completed before it was set told nobody */
	if (unlikely(atomic_load_explicit(&ep->probe_due, memory_order_relaxed)) &&
	    atomic_exchange(&ep->probe_due, false))
		verbs_send_probe(ep);
	if (unlikely(atomic_load_explicit(&ep->urge_due, memory_order_relaxed)) &&
	    atomic_exchange(&ep->urge_due, false))
		send_nothing(ep);
	if (unlikely(atomic_load_explicit(&ep->signal_due, memory_order_relaxed)) &&
	    atomic_exchange(&ep->signal_due, false))
		memory_wanted(ep);
}

bool verbs_want_room(struct rds_ep *rep, uint64_t seen_ack)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	atomic_store(&ep->wants_room, true);
	rds_fence();
	if (atomic_load(&ep->state) != VERBS_UP)
		return false;
	verbs_run_ends(ep);
	verbs_let_go(ep);
	post_chain(ep);
	if (atomic_load(&ep->seen_ack) > seen_ack)
		return true;
	ask(ep);
	return false;
}

uint64_t verbs_acked(struct rds_ep *rep)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	return atomic_load_explicit(&ep->seen_ack, memory_order_acquire);
}

/* Also between the frames of a message that waits for credits: they may be waited for because nobody is there any more. */
int verbs_send_probe(struct verbs_ep *ep)
{
	struct ibv_send_wr *wr;

	if (atomic_load(&ep->state) != VERBS_UP)
		return -ENOTCONN;
	post_chain(ep);
	if (!queue_room(ep, 1)) { /* what is in it will do: the last of it that asks for a completion */
		atomic_store(&ep->probe_wr, ep->wr_posted - SIGNAL_EVERY);
		return -EBUSY;
	}
	wr = chain_next(ep, 0, true);
	if (ep->dev->caps.probe_reads) {
		wr->opcode = IBV_WR_RDMA_READ;
		to_nowhere(wr);
		wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
		wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)ep->dev->recv_mem, .lkey = ep->dev->recv_mr->lkey};
	} else {
		write_nothing(wr);
	}
	atomic_store(&ep->probe_wr, ep->wr_posted);
	post_chain(ep);
	return 0;
}

/* ---- completions (rx), the end ---- */

/* Its block goes back with the next verbs_push. */
static bool map_gone(struct verbs_ep *ep, uint32_t done)
{
	if (likely(!atomic_load(&ep->map_out)) || (int32_t)(done - atomic_load(&ep->map_wr)) < 0 ||
	    !atomic_exchange(&ep->map_out, false))
		return false;
	if ((int32_t)(done - atomic_load(&ep->map_wr)) < 0) /* another one has gone meanwhile: that was its mark */
		atomic_store(&ep->map_out, true);
	return true;
}

void verbs_send_done(struct verbs_ep *ep, const struct ibv_wc *wc)
{
	atomic_store_explicit(&ep->wr_done, (uint32_t)wc->wr_id, memory_order_release);
	if (unlikely(wc->status != IBV_WC_SUCCESS)) {
		if (wc->status != IBV_WC_WR_FLUSH_ERR)
			rds_debug("%s: a send failed: %s", ep->dev->name, vb.ibv_wc_status_str(wc->status));
		verbs_broken(ep, wc->status == IBV_WC_RETRY_EXC_ERR ? -ETIMEDOUT : -ECONNRESET);
		return;
	}
	if (unlikely(atomic_load(&ep->state) != VERBS_UP))
		return;
	rds_fence();
	if (map_gone(ep, (uint32_t)wc->wr_id) || unlikely(atomic_load(&ep->backlog)) ||
	    (unlikely(atomic_load_explicit(&ep->unsaid, memory_order_relaxed)) && atomic_exchange(&ep->unsaid, false)))
		ep->head.t->up->speak(ep->head.conn);
	if (unlikely(atomic_load_explicit(&ep->wants_room, memory_order_relaxed)) &&
	    atomic_exchange(&ep->wants_room, false))
		ep->head.t->up->writable(ep->head.conn);
}

/* Unsignaled ones that were sent long ago count as in flight until something after them completes: the mark does. */
void verbs_send_mark(struct verbs_ep *ep)
{
	struct ibv_send_wr wr = {.wr_id = VERBS_WR_SEND | (ep->wr_posted + 1), .opcode = IBV_WR_SEND}, *bad = NULL;

	wr.send_flags = IBV_SEND_SIGNALED;
	ep->nchain = 0;
	if (!give(ep, &wr, &bad) && !bad)
		ep->wr_posted++;
}

bool verbs_send_idle(struct verbs_ep *ep)
{
	return in_flight(ep) == 0;
}

void verbs_send_free(struct verbs_ep *ep)
{
	uint32_t i;

	for (i = 0; i < ep->out_count; i++)
		verbs_block_put(ep->dev->arena, &verbs_out_at(ep, i)->block);
	free(ep->out);
	ep->out = NULL;
	ep->out_count = ep->out_cap = ep->out_head = ep->unfinished = 0;
	ep->held = false;
}
