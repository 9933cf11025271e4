/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * segment.c - joins frames that came in several segments (caps.credits; rx held throughout).
 *
 * A frame that does not fit the next buffer of the peer's queue goes in *segments*.  The first
 * segment begins with the frame's header, whose padding holds the length of the whole frame.  The
 * other segments begin with VERBS_MARK bytes of ones, which no header has.  Between the segments
 * of a frame only control frames may come.  This file joins the segments on the heap.
 *
 * Everything is hostile until checked.  Must not know what is in a frame, beyond its first header.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "engine/transport/verbs/ep/ep.h"

static const struct rds_wire_hdr *segment_header(const struct verbs_buf *buf)
{
	return (const void *)buf->mem;
}

bool verbs_segment_continues(const struct verbs_buf *buf)
{
	return buf->len >= VERBS_MARK && segment_header(buf)->sequence == UINT64_MAX;
}

bool verbs_segment_is_control(const struct verbs_buf *buf)
{
	const struct rds_wire_hdr *h = segment_header(buf);

	return buf->len == VERBS_HDR && !h->sequence && !h->len && !h->sport && !h->dport &&
	       !(h->flags & RDS_FLAG_CONG_BITMAP);
}

static uint32_t segment_total(const struct verbs_buf *buf)
{
	uint32_t total = 0;

	if (buf->len >= VERBS_HDR)
		memcpy(&total, segment_header(buf)->padding, sizeof(total));
	return be32toh(total);
}

uint32_t verbs_segment_frame_len(const struct verbs_buf *buf)
{
	uint32_t total = segment_total(buf);

	return total ? total : buf->len;
}

static struct verbs_buf *segment_part_new(struct verbs_ep *ep, uint32_t total)
{
	struct verbs_buf *part = malloc(sizeof(*part) + total);

	if (!part)
		return NULL;
	*part = (struct verbs_buf){.mem = (unsigned char *)(part + 1), .users = 1, .heap = true};
	ep->part = part;
	ep->part_len = total;
	return part;
}

enum verbs_segment_result verbs_segment_join(struct verbs_ep *ep, struct verbs_buf **buf)
{
	struct verbs_buf *came = *buf, *part = ep->part;
	uint32_t total, skip = 0;

	if (came->heap)
		return VERBS_WHOLE;
	if (verbs_segment_continues(came)) {
		if (!part)
			return VERBS_NONSENSE;
		skip = VERBS_MARK;
	} else {
		total = segment_total(came);
		if (!total)
			return part && !verbs_segment_is_control(came) ? VERBS_NONSENSE : VERBS_WHOLE;
		if (part || total <= came->len || total > VERBS_HDR + ep->frame)
			return VERBS_NONSENSE;
		part = segment_part_new(ep, total);
		if (!part)
			return VERBS_NO_MEMORY;
	}
	if (came->len - skip > ep->part_len - part->len)
		return VERBS_NONSENSE;
	memcpy(part->mem + part->len, came->mem + skip, came->len - skip);
	part->len += came->len - skip;
	verbs_recv_buf_put(ep->dev, came);
	if (part->len < ep->part_len)
		return VERBS_PART;
	ep->part = NULL;
	*buf = part;
	return VERBS_WHOLE;
}
