/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * recv.c - from a received segment to the engine (rx held throughout).
 *
 * Frames of one endpoint are handled strictly in order.  A message of one frame is handed over in
 * place while buffers are plentiful, otherwise as a copy: so at least half of the buffers is
 * always with the device, whatever programs leave unread.  A message of several frames is
 * assembled in a block that the engine then owns.
 *
 * A frame that cannot be handled now (no memory, or the endpoint is not up yet) waits in
 * ep->later, and all later frames wait behind it; they are copied when buffers are not plentiful.
 * The cause may be the peer's own behaviour, and must not keep other peers' frames from being
 * received.  Only the acknowledgement in a waiting frame is used at once: a frame may be waiting
 * for room that this acknowledgement gives.
 *
 * Every frame is hostile until checked; an invalid frame breaks its own connection and nothing
 * else.
 *
 * When to acknowledge is decided in ack.c.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/transport/verbs/ep/rdma.h"

#define COPY_BELOW 192u /* below this size a copy costs less than keeping the buffer */
/*
 * Limit of what may wait.  Waiting messages are not acknowledged, so a peer can have no more of
 * them under way than its RDS_PRELOAD_VERBS_MEMORY allows; our own value is used for that of the
 * peer.  This much is added for frames that nothing acknowledges, such as congestion maps.
 */
#define LATER_BESIDE ((uint64_t)64 << 20)

enum took { TOOK, LATER };

void verbs_recv_nonsense(struct verbs_ep *ep, const char *what)
{
	rds_warn("a peer sent invalid data over %s (%s): connection closed (another version of this library?)",
		 ep->dev->name, what);
	verbs_ep_protocol_error(ep);
}

/*
 * True: nothing more is received from this endpoint.  (What came before a connection broke is still
 * received, as long as it was valid.)
 */
static bool recv_is_over(const struct verbs_ep *ep, enum verbs_state state)
{
	return state == VERBS_CLOSED || (state == VERBS_BROKEN && ep->why == -EPROTO);
}

/* ---- one frame ---- */

/*
 * False: the peer acknowledges what was never sent.  Such an acknowledgement must not get any
 * further, since memory is freed by it.
 */
static bool recv_take_ack(struct verbs_ep *ep, uint64_t ack)
{
	if (ack <= atomic_load_explicit(&ep->seen_ack, memory_order_relaxed))
		return true;
	if (unlikely(ack > ep->head.t->up->sent(ep->head.conn)))
		return false;
	atomic_store_explicit(&ep->seen_ack, ack, memory_order_release);
	if (unlikely(atomic_load_explicit(&ep->op_count, memory_order_relaxed)))
		verbs_rdma_acked(ep, ack);
	rds_fence();
	if (verbs_ep_flag_take(&ep->wants_room))
		ep->head.t->up->writable(ep->head.conn);
	return true;
}

/*
 * A message may wait in place as long as half of the buffers are with the device, or about to be.
 */
static bool bufs_plentiful(const struct verbs_dev *dev, const struct verbs_buf *buf, uint32_t len)
{
	if (unlikely(dev->caps.credits || buf->heap))
		return verbs_credit_buf_may_stay(dev, buf, len);
	return dev->posted + dev->nrefill > dev->nbufs / 2;
}

static inline enum took message_give(struct verbs_ep *ep, struct rds_rx *rx)
{
	enum rds_rx_verdict v = ep->head.t->up->message(ep->head.conn, (struct rds_ep *)ep, rx);

	if (unlikely(v >= RDS_RX_LATER))
		return LATER;
	if (rx->hdr.flags & RDS_FLAG_ACK_REQUIRED)
		verbs_ack_now(ep, true);
	else
		verbs_ack_owe(ep, rx->hdr.len);
	rds_transport_batch_received(&ep->batch);
	if (v == RDS_RX_TAKEN)
		return TOOK;
	free(rx->owned);
	rx->token = NULL;
	return TOOK;
}

/*
 * The buffer goes back to the device with its last message, and not before all of it has been
 * looked at.
 */
static void buf_unref(struct verbs_dev *dev, struct verbs_buf *buf)
{
	if (--buf->users == 0)
		verbs_recv_buf_put(dev, buf);
}

/* Hands over a whole message, at buf->at.  The engine copies it if the buffer cannot be spared. */
static enum took message_whole(struct verbs_ep *ep, struct verbs_buf *buf, struct rds_rx *rx)
{
	rx->data = buf->mem + buf->at + VERBS_HDR;
	if (rx->hdr.len >= COPY_BELOW && bufs_plentiful(ep->dev, buf, rx->hdr.len))
		rx->token = buf; /* otherwise the engine copies it */
	if (message_give(ep, rx) == LATER)
		return LATER;
	if (rx->token) {
		buf->users++;
		ep->inplace++;
	}
	return TOOK;
}

static bool message_is_same(const struct rds_hdr *a, const struct rds_hdr *b)
{
	return a->seq == b->seq && a->len == b->len && a->sport == b->sport && a->dport == b->dport &&
	       a->flags == b->flags;
}

/* Adds one frame of a message of several frames; the last frame hands the message over. */
static enum took message_piece(struct verbs_ep *ep, struct verbs_buf *buf, const struct rds_hdr *hdr)
{
	uint32_t n = buf->len - VERBS_HDR, want;
	struct rds_rx rx = {0};

	if (!ep->asm_data) {
		ep->asm_data = malloc(hdr->len);
		if (!ep->asm_data)
			return LATER;
		ep->asm_hdr = *hdr;
		ep->asm_got = 0;
	}
	want = ep->asm_hdr.len - ep->asm_got;
	if (want > ep->frame)
		want = ep->frame;
	if (want && (n != want || !message_is_same(hdr, &ep->asm_hdr))) {
		verbs_recv_nonsense(ep, "pieces that do not fit together");
		return TOOK;
	}
	if (want) { /* want == 0: the message is complete, and was refused for lack of memory */
		memcpy(ep->asm_data + ep->asm_got, buf->mem + VERBS_HDR, n);
		ep->asm_got += n;
	}
	if (ep->asm_got == ep->asm_hdr.len) {
		rx.hdr = ep->asm_hdr;
		rx.data = rx.owned = ep->asm_data;
		if (message_give(ep, &rx) == LATER)
			return LATER;
		ep->asm_data = NULL;
	}
	return TOOK;
}

/*
 * A control frame: only its acknowledgement, and its request for one, matter.  An empty list of
 * congested ports is none.
 */
static bool hdr_is_control(const struct rds_hdr *hdr)
{
	return !hdr->seq && !hdr->len && !hdr->sport && !hdr->dport && !(hdr->flags & RDS_FLAG_CONG_BITMAP);
}

/*
 * Checks all messages of a frame.  Returns what is wrong, or NULL.  All are checked before any is
 * handed over: a frame whose lengths do not add up did not arrive as the peer sent it, and perhaps
 * neither did its first message.  (Soft RoCE that retransmits too early may send a packet twice as
 * if it were two; what comes behind it is in the wrong place, and the frame is longer by that
 * much.)
 */
static const char *batch_find_wrong(const struct verbs_buf *buf, uint32_t at)
{
	struct rds_hdr hdr;
	uint32_t left;

	for (;; at += VERBS_HDR + VERBS_ALIGN(hdr.len)) {
		left = buf->len - at;
		if (left < VERBS_HDR || rds_wire_hdr_decode(buf->mem + at, &hdr))
			return "message header";
		left -= VERBS_HDR;
		if (hdr.len == left)
			return NULL;
		if (hdr.len > left || VERBS_ALIGN(hdr.len) + VERBS_HDR > left)
			return "message length";
		if (hdr_is_control(&hdr)) /* a control header is never followed by a message */
			return "message header";
	}
}

/*
 * Handles the message at buf->at.  *next: offset of the following message; buf->len: there is none.
 */
static enum took message_take_next(struct verbs_ep *ep, struct verbs_buf *buf, uint32_t *next)
{
	uint32_t left = buf->len - buf->at;
	const char *wrong = NULL;
	struct rds_rx rx = {0};

	*next = buf->len;
	if (unlikely(left < VERBS_HDR || rds_wire_hdr_decode(buf->mem + buf->at, &rx.hdr))) {
		verbs_recv_nonsense(ep, "message header");
		return TOOK;
	}
	if (unlikely(!recv_take_ack(ep, rx.hdr.ack))) {
		verbs_recv_nonsense(ep, "an acknowledgement of what was never sent");
		return TOOK;
	}
	left -= VERBS_HDR;
	if (unlikely(hdr_is_control(&rx.hdr))) {
		if (rx.hdr.flags & RDS_FLAG_ACK_REQUIRED)
			verbs_ack_now(ep, true);
		return TOOK;
	}
	if (unlikely(ep->asm_data || (rx.hdr.len > ep->frame && !buf->at)))
		return message_piece(ep, buf, &rx.hdr);
	if (rx.hdr.len != left) {
		if (!buf->at)
			wrong = batch_find_wrong(buf, 0);
		if (unlikely(wrong)) {
			verbs_recv_nonsense(ep, wrong);
			return TOOK;
		}
		*next = buf->at + VERBS_HDR + VERBS_ALIGN(rx.hdr.len);
	}
	return message_whole(ep, buf, &rx);
}

/* TOOK: the buffer belongs to the engine, or has been put back. */
static enum took frame_take(struct verbs_ep *ep, struct verbs_buf *buf)
{
	uint32_t next;

	do {
		if (message_take_next(ep, buf, &next) == LATER)
			return LATER;
		buf->at = next;
	} while (next < buf->len);
	buf_unref(ep->dev, buf);
	return TOOK;
}

/*
 * The buffer may hold a part of a frame.  LATER: *buf is the buffer that has to wait, which may be
 * another one than before.
 */
static enum took segment_take(struct verbs_ep *ep, struct verbs_buf **buf)
{
	if (likely(!ep->dev->caps.credits))
		return frame_take(ep, *buf);
	switch (verbs_segment_join(ep, buf)) {
	case VERBS_WHOLE:
		return frame_take(ep, *buf);
	case VERBS_PART:
		return TOOK;
	case VERBS_NO_MEMORY:
		return LATER;
	case VERBS_NONSENSE:
		break;
	}
	verbs_recv_nonsense(ep, "segments that do not fit together");
	verbs_recv_buf_put(ep->dev, *buf);
	return TOOK;
}

/* ---- frames that wait ---- */

/* Every look at the completion queue retries, and a timer makes sure that there is one. */
static void later_enqueue(struct verbs_ep *ep)
{
	if (ep->later_queued || atomic_load(&ep->state) != VERBS_UP)
		return;
	ep->later_queued = true;
	ep->later_next = verbs_eps.waiting;
	verbs_eps.waiting = ep;
	verbs_bufs_retry_later(ep->dev);
}

/*
 * Without memory for a copy the buffer itself waits.  Earlier messages of the buffer may be in
 * place.
 */
static struct verbs_buf *later_copy(struct verbs_dev *dev, struct verbs_buf *buf)
{
	struct verbs_buf *copy;

	if (dev->caps.credits || buf->heap || bufs_plentiful(dev, buf, buf->len))
		return buf;
	copy = malloc(sizeof(*copy) + buf->len);
	if (!copy)
		return buf;
	*copy = (struct verbs_buf){
		.mem = (unsigned char *)(copy + 1), .len = buf->len, .at = buf->at, .users = 1, .heap = true};
	memcpy(copy->mem, buf->mem, buf->len);
	buf_unref(dev, buf);
	return copy;
}

static uint64_t later_weight(const struct verbs_buf *buf)
{
	return sizeof(*buf) + buf->len;
}

static void later_add(struct verbs_ep *ep, struct verbs_buf *buf)
{
	if (unlikely(ep->later_bytes > (uint64_t)rds_options()->verbs_memory + LATER_BESIDE)) {
		rds_warn("a peer goes on sending over %s although nothing of it can be taken: connection closed",
			 ep->dev->name);
		verbs_ep_protocol_error(ep);
		buf_unref(ep->dev, buf);
		return;
	}
	buf = later_copy(ep->dev, buf);
	ep->later_bytes += later_weight(buf);
	buf->ep = ep;
	buf->next = NULL;
	if (!ep->later)
		ep->later_tail = &ep->later;
	*ep->later_tail = buf;
	ep->later_tail = &buf->next;
	later_enqueue(ep);
}

/*
 * The frame has to wait behind another, but its acknowledgement is used now.  Otherwise a frame
 * that waits because answers have no room (rdma/op_serve.c) would keep back the acknowledgement
 * that makes room.  Errors in the frame are found when its turn comes.  True: the frame has no
 * other content.
 *
 * A peer that asks for an acknowledgement is answered at once as well, and once more when the
 * waiting frames have been taken: the peer does not ask again for these.
 */
static bool later_take_control(struct verbs_ep *ep, struct verbs_buf *buf)
{
	struct rds_hdr hdr;

	if (atomic_load(&ep->state) != VERBS_UP || buf->len < VERBS_HDR ||
	    (ep->dev->caps.credits && verbs_segment_continues(buf)) || rds_wire_hdr_decode(buf->mem, &hdr) ||
	    !recv_take_ack(ep, hdr.ack))
		return false;
	if (!hdr_is_control(&hdr) || buf->len != VERBS_HDR)
		return false;
	if (hdr.flags & RDS_FLAG_ACK_REQUIRED) {
		verbs_ack_now(ep, true);
		ep->later_asked = true;
	}
	buf_unref(ep->dev, buf);
	return true;
}

bool verbs_recv_retry(struct verbs_ep *ep)
{
	struct verbs_buf *buf;
	bool any = false;

	while ((buf = ep->later)) {
		ep->later = buf->next;
		ep->later_bytes -= later_weight(buf);
		if (recv_is_over(ep, atomic_load(&ep->state))) {
			buf_unref(ep->dev, buf);
			continue;
		}
		if (segment_take(ep, &buf) == TOOK) {
			any = true;
			continue;
		}
		buf->next = ep->later;
		if (!ep->later)
			ep->later_tail = &buf->next;
		ep->later = buf;
		ep->later_bytes += later_weight(buf);
		later_enqueue(ep);
		break;
	}
	if (any && unlikely(ep->later_asked)) {
		ep->later_asked = ep->later;
		verbs_ack_now(ep, true);
	}
	return any;
}

bool verbs_recv_retry_all(void)
{
	struct verbs_ep **p = &verbs_eps.waiting, *ep;
	bool any = false;

	while ((ep = *p)) {
		any |= verbs_recv_retry(ep);
		if (ep->later) {
			verbs_bufs_retry_later(ep->dev);
			p = &ep->later_next;
			continue;
		}
		*p = ep->later_next;
		ep->later_queued = false;
	}
	return any;
}

void verbs_recv_drop(struct verbs_ep *ep)
{
	struct verbs_buf *buf;

	VERBS_EP_UNLIST(verbs_eps.waiting, ep, later_next);
	ep->later_queued = false;
	verbs_ack_cancel(ep);
	while ((buf = ep->later)) {
		ep->later = buf->next;
		buf_unref(ep->dev, buf);
	}
	ep->later_bytes = 0;
	free(ep->asm_data);
	ep->asm_data = NULL;
	free(ep->part);
	ep->part = NULL;
}

/* ---- a segment has come ---- */

void verbs_recv_segment(struct verbs_ep *ep, struct verbs_buf *buf)
{
	enum verbs_state state = atomic_load_explicit(&ep->state, memory_order_acquire);

	if (unlikely(recv_is_over(ep, state)))
		verbs_recv_buf_put(ep->dev, buf);
	else if (unlikely(ep->later || state < VERBS_UP)) {
		if (!ep->later || !later_take_control(ep, buf))
			later_add(ep, buf);
	} else if (unlikely(segment_take(ep, &buf) == LATER)) {
		later_add(ep, buf);
	}
}

/* ---- the engine's side ---- */

void verbs_ep_ack(struct rds_ep *rep, uint64_t seq)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	atomic_store_explicit(&ep->rx_ack, seq, memory_order_release);
}

void verbs_ep_release(struct rds_ep *rep, void *token)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;
	struct verbs_dev *dev = ep->dev;

	buf_unref(dev, token);
	ep->inplace--;
	if (unlikely(dev->nrefill >= VERBS_REFILL_BATCH || dev->urgent))
		verbs_recv_bufs_refill(dev);
	if (unlikely(ep->closed))
		verbs_ep_free_if_done(ep);
}
