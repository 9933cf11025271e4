/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * barrier.c - ids of RDMA operations and the marks that RDS_BARRIER tells.
 *
 * A destination keeps its operations in a ring, by rising id.  Each knows the id before it to the same destination, so
 * that the mark is always there to be read: what lies before the oldest unfinished one, or the last id if all are
 * finished.  One that finishes out of turn leaves a tombstone.  Always:
 *	- the ring is empty or its first operation is unfinished;
 *	- dest->mark is what the ring says, or 0 if there was no id yet.
 * A full ring is swept of its tombstones if these are half of it, and doubled otherwise; a large one is freed when it
 * is empty.  So its size follows the number of unfinished operations, however long the oldest one takes.
 *
 * A destination stays as long as the socket: its mark must be told for ever.
 * Must not know sockets, the program's memory, or how one sleeps.
 */
#include "engine/barrier.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define RING_MIN 8	/* operations; powers of two */
#define RING_KEPT 64	/* largest that an idle destination keeps */
#define DESTS_MIN 4	/* slots */
#define DONE UINT64_MAX /* in op->before: a tombstone */

struct op {
	uint64_t id;
	uint64_t before; /* previous id to this destination, 0 none */
};

struct rds_barrier_dest {
	uint32_t daddr;
	bool used;
	uint32_t head, count; /* count: with tombstones */
	uint32_t unfinished;
	uint32_t cap; /* 0 or a power of two */
	uint64_t mark, last;
	struct op *ring;
};

/* Counted from the oldest. */
static struct op *op_at(const struct rds_barrier_dest *d, uint32_t i)
{
	return &d->ring[(d->head + i) & (d->cap - 1)];
}

/* ---- destinations ---- */

/* Its slot, or the free one where it belongs.  There are free ones. */
static struct rds_barrier_dest *slot_of(struct rds_barrier_dest *dests, uint32_t slots, uint32_t daddr)
{
	uint32_t i = daddr * UINT32_C(0x9e3779b1);

	for (i ^= i >> 16;; i++) {
		struct rds_barrier_dest *d = &dests[i & (slots - 1)];

		if (!d->used || d->daddr == daddr)
			return d;
	}
}

static struct rds_barrier_dest *dest_find(const struct rds_barrier *b, uint32_t daddr)
{
	struct rds_barrier_dest *d = b->slots ? slot_of(b->dests, b->slots, daddr) : NULL;

	return d && d->used ? d : NULL;
}

/* At most half full, so that a search is short. */
static int dests_room(struct rds_barrier *b)
{
	uint32_t slots = b->slots ? b->slots * 2 : DESTS_MIN;
	struct rds_barrier_dest *dests;

	if (b->ndests < b->slots / 2)
		return 0;
	dests = calloc(slots, sizeof(*dests));
	if (!dests)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->slots; i++)
		if (b->dests[i].used)
			*slot_of(dests, slots, b->dests[i].daddr) = b->dests[i];
	free(b->dests);
	b->dests = dests;
	b->slots = slots;
	return 0;
}

static struct rds_barrier_dest *dest_make(struct rds_barrier *b, uint32_t daddr)
{
	struct rds_barrier_dest *d = dest_find(b, daddr);

	if (d)
		return d;
	if (dests_room(b) < 0)
		return NULL;
	d = slot_of(b->dests, b->slots, daddr);
	d->used = true;
	d->daddr = daddr;
	d->mark = d->last = b->base;
	b->ndests++;
	return d;
}

void rds_barrier_free(struct rds_barrier *b)
{
	for (uint32_t i = 0; i < b->slots; i++)
		free(b->dests[i].ring);
	free(b->dests);
	memset(b, 0, sizeof(*b));
}

void rds_barrier_go_on(struct rds_barrier *b, uint64_t last_id)
{
	b->base = last_id;
	atomic_store_explicit(&b->last_id, last_id, memory_order_relaxed);
}

/* ---- the ring of a destination ---- */

static void ring_sweep(struct rds_barrier_dest *d)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->count; i++)
		if (op_at(d, i)->before != DONE)
			*op_at(d, n++) = *op_at(d, i);
	d->count = n;
}

/* Room for one more. */
static int ring_room(struct rds_barrier_dest *d)
{
	uint32_t cap = d->cap ? d->cap * 2 : RING_MIN;
	struct op *ring;

	if (d->count < d->cap)
		return 0;
	if (d->cap && d->unfinished <= d->cap / 2) {
		ring_sweep(d);
		return 0;
	}
	ring = malloc(cap * sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	for (uint32_t i = 0; i < d->count; i++)
		ring[i] = *op_at(d, i);
	free(d->ring);
	d->ring = ring;
	d->cap = cap;
	d->head = 0;
	return 0;
}

static void ring_release(struct rds_barrier_dest *d)
{
	if (d->count || d->cap <= RING_KEPT)
		return;
	free(d->ring);
	d->ring = NULL;
	d->cap = d->head = 0;
}

/* Place of an unfinished id, or -1.  Nearly always it is the first. */
static int64_t ring_find(const struct rds_barrier_dest *d, uint64_t id)
{
	uint32_t low = 0, high = d->count;

	if (!high)
		return -1;
	if (op_at(d, 0)->id == id)
		return 0;
	while (high - low > 1) {
		uint32_t mid = low + (high - low) / 2;

		if (op_at(d, mid)->id <= id)
			low = mid;
		else
			high = mid;
	}
	return op_at(d, low)->id == id && op_at(d, low)->before != DONE ? (int64_t)low : -1;
}

/* ---- operations ---- */

/* As the macro of the public header compares: an id of all ones lies in the past, and 0 is always reached. */
static bool reached(uint64_t mark, uint64_t id)
{
	return (int64_t)(mark - id) >= 0;
}

int rds_barrier_begin(struct rds_barrier *b, uint32_t daddr, uint64_t *id)
{
	struct rds_barrier_dest *d = dest_make(b, daddr);

	if (!d || ring_room(d) < 0)
		return -ENOMEM;
	*id = atomic_load_explicit(&b->last_id, memory_order_relaxed) + 1;
	atomic_store_explicit(&b->last_id, *id, memory_order_relaxed);
	d->count++;
	d->unfinished++;
	*op_at(d, d->count - 1) = (struct op){.id = *id, .before = d->last};
	d->last = *id;
	return 0;
}

/* The mark follows the ring.  True: it has risen. */
static bool settle(struct rds_barrier *b, struct rds_barrier_dest *d)
{
	uint64_t old = d->mark;

	while (d->count && op_at(d, 0)->before == DONE) {
		d->head++;
		d->count--;
	}
	d->mark = d->count ? op_at(d, 0)->before : d->last;
	ring_release(d);
	if (d->mark == old)
		return false;
	b->risen = true;
	if (b->armed && b->armed_daddr == d->daddr && reached(d->mark, b->armed_id))
		b->armed_done = true;
	return true;
}

bool rds_barrier_finish(struct rds_barrier *b, uint32_t daddr, uint64_t id)
{
	struct rds_barrier_dest *d = dest_find(b, daddr);
	int64_t i = d ? ring_find(d, id) : -1;

	if (i < 0)
		return false;
	op_at(d, i)->before = DONE;
	d->unfinished--;
	return i == 0 && settle(b, d);
}

/* Who names `id` as the one before it, if anybody still does, is the first unfinished one from place i on. */
static void rename_before(struct rds_barrier_dest *d, uint32_t i, uint64_t id, uint64_t before)
{
	while (i < d->count && op_at(d, i)->before == DONE)
		i++;
	if (i < d->count && op_at(d, i)->before == id)
		op_at(d, i)->before = before;
}

bool rds_barrier_cancel(struct rds_barrier *b, uint32_t daddr, uint64_t id)
{
	struct rds_barrier_dest *d = dest_find(b, daddr);
	int64_t i = d ? ring_find(d, id) : -1;
	uint64_t before;

	if (i < 0)
		return false;
	before = op_at(d, i)->before;
	if (d->last == id)
		d->last = before;
	else
		rename_before(d, i + 1, id, before);
	if (atomic_load_explicit(&b->last_id, memory_order_relaxed) == id)
		atomic_store_explicit(&b->last_id, id - 1, memory_order_relaxed);
	if (i + 1 == d->count)
		d->count--; /* so that ids go on rising when this one is given out again */
	else
		op_at(d, i)->before = DONE;
	d->unfinished--;
	return settle(b, d);
}

uint64_t rds_barrier_mark(const struct rds_barrier *b, uint32_t daddr)
{
	const struct rds_barrier_dest *d = dest_find(b, daddr);

	return d ? d->mark : b->base;
}

uint64_t rds_barrier_oldest(const struct rds_barrier *b, uint32_t daddr)
{
	const struct rds_barrier_dest *d = dest_find(b, daddr);

	return d && d->count ? op_at(d, 0)->id : 0;
}

bool rds_barrier_outstanding(const struct rds_barrier *b, uint32_t daddr)
{
	return rds_barrier_oldest(b, daddr);
}

/* ---- the option ---- */

bool rds_barrier_done(const struct rds_barrier *b, const struct rds_barrier_request *req)
{
	return reached(rds_barrier_mark(b, req->daddr), req->wait_id) || !rds_barrier_outstanding(b, req->daddr);
}

int rds_barrier_call(struct rds_barrier *b, const struct rds_barrier_request *req, bool nonblock, uint64_t *mark)
{
	*mark = rds_barrier_mark(b, req->daddr);
	b->risen = false;
	if (b->armed_done)
		b->armed = b->armed_done = false;
	if (req->wait_id)
		b->waited = true;
	if (reached(*mark, req->wait_id))
		return 0;
	if (!nonblock && !req->nonblock)
		return rds_barrier_done(b, req) ? -EAGAIN : 1;
	b->armed = true;
	b->armed_daddr = req->daddr;
	b->armed_id = req->wait_id;
	return -EAGAIN;
}
