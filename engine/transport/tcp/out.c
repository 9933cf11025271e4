/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * out.c - messages on their way out, as pieces of the stream.
 *
 * A message is copied once, header and payload, behind the one before it.  So any number of small
 * messages goes to the kernel by one call, as one piece of memory.  A block is used again, or freed,
 * when the peer's TCP has acknowledged all of it, with the next message: until then the connection
 * above may want its messages back.
 *
 * This file must not know sockets or endpoints.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/transport/tcp/tcp.h"

/* A block of 32 KiB holds a few hundred small messages; a large message has one of its own. */
#define BLOCK 32768u
/* what is acknowledged is kept for the next messages: malloc() would have new pages for each large one */
#define KEPT_MAX (2u << 20)

static uint64_t frame_number(const unsigned char *frame)
{
	uint64_t n;

	memcpy(&n, frame + offsetof(struct rds_wire_hdr, sequence), sizeof(n));
	return be64toh(n);
}

static uint32_t frame_size(const unsigned char *frame)
{
	uint32_t len;

	memcpy(&len, frame + offsetof(struct rds_wire_hdr, len), sizeof(len));
	return RDS_WIRE_HDR + be32toh(len);
}

/* The one that was used last, if it is not far too large. */
static struct tcp_block *done_take(struct tcp_out *out, size_t size)
{
	struct tcp_block **p, *b;

	for (p = &out->done; (b = *p); p = &b->next)
		if (b->size >= size && b->size / 2 <= size) {
			*p = b->next;
			out->kept -= b->size;
			return b;
		}
	return NULL;
}

static void done_free(struct tcp_out *out, size_t most)
{
	struct tcp_block *b;

	while (out->kept > most) {
		b = out->done;
		out->done = b->next;
		out->kept -= b->size;
		free(b);
	}
}

static struct tcp_block *block_get(struct tcp_out *out, size_t size)
{
	struct tcp_block *b;

	size = size < BLOCK ? BLOCK : size;
	b = done_take(out, size);
	if (unlikely(out->kept > KEPT_MAX))
		done_free(out, KEPT_MAX);
	if (!b) {
		b = malloc(sizeof(*b) + size);
		if (!b)
			return NULL;
		b->size = (uint32_t)size;
	}
	b->next = NULL;
	b->used = 0;
	return b;
}

static void block_put(struct tcp_out *out, struct tcp_block *b)
{
	b->next = out->done;
	out->done = b;
	out->kept += b->size;
}

unsigned char *tcp_out_add(struct tcp_out *out, size_t len)
{
	size_t size = RDS_WIRE_HDR + len;
	struct tcp_block *b = out->last;

	if (!b || b->size - b->used < size) {
		b = block_get(out, size);
		if (!b)
			return NULL;
		if (out->last)
			out->last->next = b;
		else
			out->first = b;
		out->last = b;
		if (!out->next)
			out->next = b;
	}
	b->used += (uint32_t)size;
	out->queued += size;
	return b->mem + b->used - size;
}

unsigned tcp_out_next(const struct tcp_out *out, struct iovec *iov, unsigned most)
{
	const struct tcp_block *b = out->next;
	uint32_t at = out->next_at;
	unsigned n = 0;

	for (; b && n < most; b = b->next, at = 0)
		if (b->used > at)
			iov[n++] =
				(struct iovec){.iov_base = (void *)(uintptr_t)(b->mem + at), .iov_len = b->used - at};
	return n;
}

void tcp_out_written(struct tcp_out *out, size_t n)
{
	uint32_t there;

	atomic_store_explicit(&out->written, atomic_load_explicit(&out->written, memory_order_relaxed) + n,
			      memory_order_release);
	while (n) {
		there = out->next->used - out->next_at;
		if (there > n)
			there = (uint32_t)n;
		out->next_at += there;
		n -= there;
		if (n) {
			out->next = out->next->next;
			out->next_at = 0;
		}
	}
}

/* All of the first block is acknowledged. */
static void out_first_done(struct tcp_out *out)
{
	struct tcp_block *b = out->first;

	out->at = 0;
	if (out->next == b) {
		out->next = b->next;
		out->next_at = 0;
	}
	out->first = b->next;
	if (!out->first)
		out->last = NULL;
	block_put(out, b);
}

void tcp_out_acked(struct tcp_out *out, uint64_t bytes)
{
	const unsigned char *frame;
	uint64_t seq;
	uint32_t size;

	while (out->first) {
		if (out->at == out->first->used) {
			out_first_done(out);
			continue;
		}
		frame = out->first->mem + out->at;
		size = frame_size(frame);
		if (out->acked + size > bytes)
			return;
		out->at += size;
		out->acked += size;
		seq = frame_number(frame);
		if (seq > atomic_load_explicit(&out->acked_seq, memory_order_relaxed))
			atomic_store_explicit(&out->acked_seq, seq, memory_order_release);
	}
}

void tcp_out_rest(struct tcp_out *out)
{
	done_free(out, 0);
}

void tcp_out_free(struct tcp_out *out)
{
	struct tcp_block *b;

	tcp_out_rest(out);
	while ((b = out->first)) {
		out->first = b->next;
		free(b);
	}
	out->last = out->next = NULL;
	out->at = out->next_at = 0;
}
