/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * batch.c - several messages in one frame (conn->tx).
 *
 * A *batch* is one block, sent as one frame: the first message begins it, others are added as long
 * as there is room and it has not been sent.  There are two kinds.
 *
 * Small messages are collected while the batch is held (batch_when.c decides when), or has to wait
 * for room or credits.
 *
 * A piece of an operation always begins a batch.  Its message, the next piece or the next answer
 * is added, until the flush: a piece is never the last thing that its caller sends.  Small
 * retransmitted messages also always begin a batch: the first time they may have been collected,
 * and a message that the peer waits for may be behind them, so they must not need more memory than
 * they needed then.
 *
 * A full batch is sent; what else makes a batch go is decided in send.c.
 */
#include <endian.h>
#include <string.h>

#include "engine/sys/cpu.h"
#include "engine/transport/verbs/ep/ep.h"

/* room kept behind a piece of an operation, at least, for the message that follows */
#define PIECE_AND 320u
#define PIECES_ROOM 2048u /* room for several answers */
/* a batch has room for so many messages like its first, or for VERBS_FRAME */
#define GROUP_OF 8u

enum verbs_batch_kind verbs_batch_kind(const struct verbs_ep *ep, const struct rds_wire_hdr *hdr, size_t len)
{
	if (hdr->flags & RDS_FLAG_OP)
		return len + PIECE_AND <= ep->frame ? VERBS_PIECE : VERBS_ALONE;
	if (len > ep->frame / 4 || !hdr->sequence || (hdr->flags & RDS_FLAG_CONG_BITMAP))
		return VERBS_ALONE;
	if (unlikely(hdr->flags & RDS_FLAG_RETRANSMITTED))
		return VERBS_RESENT;
	return hdr->flags & RDS_FLAG_ACK_REQUIRED ? VERBS_ALONE : VERBS_SMALL;
}

/*
 * Counts a message of a batch.  A retransmitted one may ask for an acknowledgement, and does not
 * belong to a run.
 */
static void batch_count(struct verbs_ep *ep, struct verbs_out *o, uint8_t flags)
{
	ep->since_asked = flags & RDS_FLAG_ACK_REQUIRED ? 0 : ep->since_asked + 1;
	o->solicited |= (flags & RDS_FLAG_ACK_REQUIRED) != 0;
}

static void batch_put(struct verbs_out *o, uint32_t at, const struct rds_wire_hdr *hdr, const struct iovec *iov,
		      size_t len, uint64_t *pos)
{
	unsigned char *mem = o->block.mem + at;

	memcpy(mem, hdr, sizeof(*hdr));
	rds_copy_gather(mem + VERBS_HDR, iov, len);
	*pos = (uintptr_t)(mem + VERBS_HDR);
	o->seq = be64toh(hdr->sequence);
	o->len = at + (uint32_t)len;
}

/* Room in the block behind the first header. */
static uint32_t batch_room(const struct verbs_ep *ep, const struct verbs_out *o)
{
	return o->block.size - VERBS_HDR < ep->frame ? o->block.size - VERBS_HDR : ep->frame;
}

bool verbs_batch_add(struct verbs_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	struct verbs_out *o = ep->unfinished ? verbs_out_at(ep, ep->out_count - 1) : NULL;
	uint32_t end, at;

	if (!o || !o->batch || o->given || o->frame_sent)
		return false;
	end = VERBS_HDR + o->len;
	at = VERBS_ALIGN(end);
	if (at + len > batch_room(ep, o))
		return false;
	memset(o->block.mem + end, 0, at - end);
	batch_put(o, at, hdr, iov, len, pos);
	batch_count(ep, o, hdr->flags);
	/* a message behind its operation does not belong to a run */
	if (!o->pieces && !(hdr->flags & RDS_FLAG_RETRANSMITTED))
		rds_transport_batch_run_add(&ep->batch);
	/* no room for another message of that size */
	if (ep->held && VERBS_ALIGN(VERBS_HDR + o->len) + len > batch_room(ep, o))
		verbs_send_pending(ep);
	return true;
}

/*
 * Size of a new block without the first header.  The number of messages to be retransmitted is not
 * known: the first block is that of a single message, each further one is twice as large as the
 * last.
 */
static size_t batch_block_room(const struct verbs_ep *ep, const struct verbs_out *o, size_t len)
{
	const struct verbs_out *last = ep->out_count ? verbs_out_at(ep, ep->out_count - 1) : NULL;
	size_t room, least = o->pieces ? PIECES_ROOM : VERBS_FRAME;

	if (unlikely(o->resent)) {
		room = last && last->resent ? last->block.size : 0;
		if (room > least)
			room = least;
		/* a single message may need more room than messages that share a frame */
		return room > len ? room : len;
	}
	room = o->pieces ? len + PIECE_AND : GROUP_OF * VERBS_ALIGN(VERBS_HDR + len);
	return room < least ? least : room;
}

int verbs_batch_new(struct verbs_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		    uint64_t *pos)
{
	struct verbs_out o = {.nframes = 1,
			      .grants = true,
			      .batch = true,
			      .pieces = hdr->flags & RDS_FLAG_OP,
			      .resent =
				      (hdr->flags & (RDS_FLAG_OP | RDS_FLAG_RETRANSMITTED)) == RDS_FLAG_RETRANSMITTED};
	size_t room = batch_block_room(ep, &o, len);
	int err;

	err = verbs_block_get(ep->dev->arena, VERBS_HDR + (room < ep->frame ? room : ep->frame), &o.block);
	if (err)
		return err;
	batch_put(&o, 0, hdr, iov, len, pos);
	batch_count(ep, &o, hdr->flags);
	*verbs_out_at(ep, ep->out_count++) = o;
	ep->unfinished++;
	ep->held = true;
	return 0;
}
