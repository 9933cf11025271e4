/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * incoming.c - received messages: where their bytes lie, and when the transport gets its room back.
 *
 * A message that is read soon is copied once, from the transport's memory to the program's.  A
 * message that is not read while its ring fills up behind it is copied to the heap, so that a slow
 * reader does not hold up the other sockets of the connection.  All of it under rx.  Must not know
 * sockets' queues, nor which call reads.
 */
#include "engine/conn/incoming.h"

#include <stdlib.h>
#include <string.h>

/*
 * Free structures; rx.  Bounded, so that the pool does not keep the memory of one burst for ever.
 */
#define INC_POOL_MAX 4096
static struct inc_pool {
	struct rds_inc *first;
	unsigned n;
} inc_tiny, inc_small;

static struct inc_pool *inc_pool_of(uint32_t len)
{
	return len <= RDS_INC_TINY ? &inc_tiny : &inc_small;
}

/* The caller fills in len, which does not change. */
static struct rds_inc *inc_alloc(uint32_t len)
{
	struct inc_pool *pool = inc_pool_of(len);
	struct rds_inc *inc = pool->first;

	if (likely(inc)) {
		pool->first = inc->next;
		pool->n--;
		return inc;
	}
	return malloc(offsetof(struct rds_inc, small) + (pool == &inc_tiny ? RDS_INC_TINY : RDS_INC_SMALL));
}

static void inc_unplace(struct rds_inc *inc)
{
	struct rds_conn *conn = inc->conn;

	if (inc->pl_prev)
		inc->pl_prev->pl_next = inc->pl_next;
	else
		conn->inplace = inc->pl_next;
	if (inc->pl_next)
		inc->pl_next->pl_prev = inc->pl_prev;
	else
		conn->inplace_last = inc->pl_prev;
}

static void inc_place(struct rds_inc *inc, struct rds_conn *conn)
{
	inc->conn = conn;
	inc->pl_next = NULL;
	inc->pl_prev = conn->inplace_last;
	if (inc->pl_prev)
		inc->pl_prev->pl_next = inc;
	else
		conn->inplace = inc;
	conn->inplace_last = inc;
}

static void inc_pool_put(struct rds_inc *inc)
{
	struct inc_pool *pool = inc_pool_of(inc->len);

	inc->next = pool->first;
	pool->first = inc;
	pool->n++;
}

/* Copies inc->len bytes, to `small` if they fit.  False: no memory, and inc is freed. */
static inline bool inc_copy_bytes(struct rds_inc *inc, const void *from)
{
	inc->ep = NULL;
	inc->heap = NULL;
	inc->data = inc->small;
	if (inc->len > RDS_INC_SMALL) {
		inc->data = inc->heap = malloc(inc->len);
		if (!inc->heap) {
			inc_pool_put(inc);
			return false;
		}
	}
	if (inc->len) /* without bytes there may be no address either */
		memcpy((void *)(uintptr_t)inc->data, from, inc->len);
	return true;
}

struct rds_inc *rds_inc_new(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	struct rds_inc *inc = inc_alloc(rx->hdr.len);

	if (!inc)
		return NULL;
	inc->next = NULL;
	inc->saddr = conn->id.faddr;
	inc->sport = rx->hdr.sport;
	inc->len = rx->hdr.len;
	inc->seq = rx->hdr.seq;
	inc->taken = inc->shown = 0;
	inc->tos = conn->id.tos;
	inc->cookie = rx->hdr.ext_type == RDS_EXTHDR_RDMA_DEST ? rds_cookie(rx->hdr.ext_rkey, rx->hdr.ext_offset) : 0;
	inc->real_ns = inc->trace_ns[0] = 0; /* not measured */
	if (rx->token) {
		inc->heap = NULL;
		inc->data = rx->data;
		inc->token = rx->token;
		inc->ep = ep;
		inc_place(inc, conn);
		return inc;
	}
	if (rx->owned) {
		inc->ep = NULL;
		inc->heap = rx->owned;
		inc->data = rx->data;
		return inc;
	}
	return inc_copy_bytes(inc, rx->data) ? inc : NULL;
}

struct rds_inc *rds_inc_copy(const void *from, uint32_t len)
{
	struct rds_inc *inc = inc_alloc(len);

	if (!inc)
		return NULL;
	memset(inc, 0, offsetof(struct rds_inc, small));
	inc->len = len;
	return inc_copy_bytes(inc, from) ? inc : NULL;
}

void rds_inc_free(struct rds_inc *inc)
{
	if (inc->ep) {
		struct rds_ep_head *head = (struct rds_ep_head *)inc->ep;

		inc_unplace(inc);
		head->t->ops->release(inc->ep, inc->token);
	} else if (unlikely(inc->heap)) {
		free(inc->heap);
	}
	if (inc_pool_of(inc->len)->n >= INC_POOL_MAX) {
		free(inc);
		return;
	}
	inc_pool_put(inc);
}

void rds_inc_evacuate(struct rds_conn *conn, struct rds_ep *ep)
{
	struct rds_inc *inc, *next;

	for (inc = conn->inplace; inc; inc = next) {
		void *copy = NULL;

		next = inc->pl_next;
		if (inc->ep != ep)
			continue;
		if (inc->len) {
			copy = malloc(inc->len);
			if (!copy)
				return; /* stays in place: the ring's limit holds the sender back */
			memcpy(copy, inc->data, inc->len);
		}
		inc_unplace(inc);
		((struct rds_ep_head *)ep)->t->ops->release(ep, inc->token);
		inc->ep = NULL;
		inc->data = inc->heap = copy;
	}
}

void rds_inc_forget(void)
{
	inc_tiny = inc_small = (struct inc_pool){0};
}
