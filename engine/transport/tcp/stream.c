/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * stream.c - cuts the bytes of a stream into messages.
 *
 * A message that lies in the receive buffer as a whole is given away where it lies.  One of which a
 * part is missing gets a block of its own, into which the rest is received straight away, and which
 * the engine then owns.  A header in two pieces is put together in `raw`.
 *
 * Bytes are hostile.  A length is believed only up to RDS_MAX_MSG; other fields mean nothing here.
 * This file must not know sockets or endpoints.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/transport/tcp/tcp.h"

static bool stream_give(struct tcp_in *in, const void *data, void *owned, tcp_stream_give *give, void *arg)
{
	struct rds_rx rx = {.hdr = in->hdr, .data = data, .owned = owned};

	return give(arg, &rx);
}

static void stream_forget_block(struct tcp_in *in)
{
	if (in->from)
		in->from->held -= in->hdr.len;
	in->from = NULL;
	in->block = NULL;
	in->have = 0;
}

/* The message in `block`, if it is complete.  False: it was refused. */
static bool stream_give_block(struct tcp_in *in, tcp_stream_give *give, void *arg)
{
	if (!in->block || in->have < in->hdr.len)
		return true;
	if (!stream_give(in, in->block, in->block, give, arg))
		return false;
	stream_forget_block(in);
	return true;
}

/*
 * Completes the header at hand with some of n bytes.  Returns how many it has used; *whole: the header
 * is in in->hdr.  -EBADMSG
 */
static int stream_header(struct tcp_in *in, const unsigned char *bytes, size_t n, bool *whole)
{
	size_t take = RDS_WIRE_HDR - in->nraw;

	*whole = n >= take;
	if (!*whole)
		take = n;
	if (*whole && !in->nraw)
		return rds_wire_hdr_decode_node(bytes, &in->hdr) ? -EBADMSG : (int)RDS_WIRE_HDR;
	memcpy(in->raw + in->nraw, bytes, take);
	in->nraw += (uint32_t)take;
	return *whole && rds_wire_hdr_decode_node(in->raw, &in->hdr) ? -EBADMSG : (int)take;
}

static bool stream_may_begin(struct tcp_in *in)
{
	if (!in->budget || in->budget->held + in->hdr.len <= in->budget->most)
		return true;
	in->budget->wanted = true;
	return false;
}

/* A message of which some bytes are still to come.  False: no memory */
static bool stream_begin_block(struct tcp_in *in, const unsigned char *bytes, size_t n)
{
	in->block = stream_may_begin(in) ? malloc(in->hdr.len) : NULL;
	if (!in->block)
		return false;
	in->from = in->budget;
	if (in->from) {
		in->from->held += in->hdr.len;
		in->since = os_now_ns();
	}
	memcpy(in->block, bytes, n);
	in->have = (uint32_t)n;
	in->nraw = 0;
	return true;
}

/*
 * One message, or what there is of it.  Returns how many bytes were used, 0: nothing could be done,
 * which leaves everything as it was; -EBADMSG
 */
static ssize_t stream_one(struct tcp_in *in, const unsigned char *bytes, size_t n, tcp_stream_give *give, void *arg)
{
	uint32_t had = in->nraw;
	bool whole;
	int head = stream_header(in, bytes, n, &whole);

	if (head < 0 || !whole)
		return head;
	bytes += head;
	n -= (size_t)head;
	if (in->hdr.len > n) {
		if (stream_begin_block(in, bytes, n))
			return (ssize_t)n + head;
	} else if (stream_give(in, bytes, NULL, give, arg)) {
		in->nraw = 0;
		return (ssize_t)in->hdr.len + head;
	}
	in->nraw = had;
	return 0;
}

int tcp_stream_take(struct tcp_in *in, const unsigned char *bytes, size_t n, tcp_stream_give *give, void *arg,
		    size_t *used)
{
	unsigned char *to;
	ssize_t took;
	size_t room;

	*used = 0;
	for (;;) {
		room = tcp_stream_room(in, &to);
		if (room) {
			room = room < n - *used ? room : n - *used;
			memcpy(to, bytes + *used, room);
			tcp_stream_filled(in, room);
			*used += room;
		}
		if (!stream_give_block(in, give, arg))
			return -EAGAIN;
		if (*used == n)
			return 0;
		took = stream_one(in, bytes + *used, n - *used, give, arg);
		if (took <= 0)
			return took ? -EBADMSG : -EAGAIN;
		*used += (size_t)took;
	}
}

size_t tcp_stream_room(const struct tcp_in *in, unsigned char **to)
{
	if (!in->block)
		return 0;
	*to = in->block + in->have;
	return in->hdr.len - in->have;
}

void tcp_stream_filled(struct tcp_in *in, size_t n)
{
	in->have += (uint32_t)n;
}

uint64_t tcp_stream_missing(const struct tcp_in *in, uint64_t *of_header)
{
	*of_header = in->nraw ? RDS_WIRE_HDR - in->nraw : 0;
	return in->block ? in->hdr.len - in->have : 0;
}

void tcp_stream_reset(struct tcp_in *in)
{
	struct tcp_budget *budget = in->budget;

	free(in->block);
	stream_forget_block(in);
	*in = (struct tcp_in){.budget = budget};
}
