/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_marks.c - ids of RDMA operations and the marks that RDS_BARRIER reports.
 *
 * A destination keeps its operations in a ring, by rising id.  Each operation stores the previous
 * id to the same destination.  So the mark can always be read from the ring: it is the id before
 * the oldest unfinished operation, or the last id if all are finished.  An operation that finishes
 * out of order leaves a tombstone.  Always:
 *   - the ring is empty or its first operation is unfinished;
 *   - dest->mark is what the ring says, or 0 if there was no id yet.
 *
 * A full ring is swept of its tombstones if these are at least half of it, and doubled otherwise; a
 * large ring is freed when it is empty.  So its size follows the number of unfinished operations,
 * however long the oldest one takes.
 *
 * A destination stays as long as the socket: its mark can be asked for at any time.  Must not know
 * sockets, the program's memory, or how a thread sleeps.
 */
#include "engine/socket/op_marks.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define RING_MIN 8	/* operations; powers of two */
#define RING_KEPT 64	/* largest that an idle destination keeps */
#define DESTS_MIN 4	/* slots */
#define OP_TOMBSTONE UINT64_MAX /* in op->before: a tombstone */

struct op {
	uint64_t id;
	uint64_t before; /* previous id to this destination, 0 none */
};

struct rds_op_marks_dest {
	uint32_t daddr;
	bool used;
	uint32_t head, count; /* count includes tombstones */
	uint32_t unfinished;
	uint32_t cap; /* 0 or a power of two */
	uint64_t mark, last;
	struct op *ring;
};

/* i counts from the oldest. */
static struct op *ring_op_at(const struct rds_op_marks_dest *d, uint32_t i)
{
	return &d->ring[(d->head + i) & (d->cap - 1)];
}

/* ---- destinations ---- */

/* The slot of daddr, or the free slot where it belongs.  Some slots are always free. */
static struct rds_op_marks_dest *dest_slot(struct rds_op_marks_dest *dests, uint32_t slots, uint32_t daddr)
{
	uint32_t i = daddr * UINT32_C(0x9e3779b1);

	for (i ^= i >> 16;; i++) {
		struct rds_op_marks_dest *d = &dests[i & (slots - 1)];

		if (!d->used || d->daddr == daddr)
			return d;
	}
}

static struct rds_op_marks_dest *dest_find(const struct rds_op_marks *b, uint32_t daddr)
{
	struct rds_op_marks_dest *d = b->slots ? dest_slot(b->dests, b->slots, daddr) : NULL;

	return d && d->used ? d : NULL;
}

/* Makes room for one more.  At most half of the slots are used, so that a search is short. */
static int dests_room(struct rds_op_marks *b)
{
	uint32_t slots = b->slots ? b->slots * 2 : DESTS_MIN;
	struct rds_op_marks_dest *dests;

	if (b->ndests < b->slots / 2)
		return 0;
	dests = calloc(slots, sizeof(*dests));
	if (!dests)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->slots; i++)
		if (b->dests[i].used)
			*dest_slot(dests, slots, b->dests[i].daddr) = b->dests[i];
	free(b->dests);
	b->dests = dests;
	b->slots = slots;
	return 0;
}

static struct rds_op_marks_dest *dest_make(struct rds_op_marks *b, uint32_t daddr)
{
	struct rds_op_marks_dest *d = dest_find(b, daddr);

	if (d)
		return d;
	if (dests_room(b) < 0)
		return NULL;
	d = dest_slot(b->dests, b->slots, daddr);
	d->used = true;
	d->daddr = daddr;
	d->mark = d->last = b->base;
	b->ndests++;
	return d;
}

void rds_sock_marks_free(struct rds_op_marks *b)
{
	for (uint32_t i = 0; i < b->slots; i++)
		free(b->dests[i].ring);
	free(b->dests);
	memset(b, 0, sizeof(*b));
}

void rds_sock_marks_resume(struct rds_op_marks *b, uint64_t last_id)
{
	b->base = last_id;
	atomic_store_explicit(&b->last_id, last_id, memory_order_relaxed);
}

/* ---- the ring of a destination ---- */

static void ring_sweep(struct rds_op_marks_dest *d)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->count; i++)
		if (ring_op_at(d, i)->before != OP_TOMBSTONE)
			*ring_op_at(d, n++) = *ring_op_at(d, i);
	d->count = n;
}

/* Makes room for one more operation. */
static int ring_room(struct rds_op_marks_dest *d)
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
		ring[i] = *ring_op_at(d, i);
	free(d->ring);
	d->ring = ring;
	d->cap = cap;
	d->head = 0;
	return 0;
}

static void ring_release(struct rds_op_marks_dest *d)
{
	if (d->count || d->cap <= RING_KEPT)
		return;
	free(d->ring);
	d->ring = NULL;
	d->cap = d->head = 0;
}

/* Index of an unfinished id, or -1.  Nearly always it is the first. */
static int64_t ring_find(const struct rds_op_marks_dest *d, uint64_t id)
{
	uint32_t low = 0, high = d->count;

	if (!high)
		return -1;
	if (ring_op_at(d, 0)->id == id)
		return 0;
	while (high - low > 1) {
		uint32_t mid = low + (high - low) / 2;

		if (ring_op_at(d, mid)->id <= id)
			low = mid;
		else
			high = mid;
	}
	return ring_op_at(d, low)->id == id && ring_op_at(d, low)->before != OP_TOMBSTONE ? (int64_t)low : -1;
}

/* ---- operations ---- */

/*
 * Compares like the macro of the public header: an id of all ones lies in the past, and 0 is always
 * reached.
 */
static bool mark_reaches(uint64_t mark, uint64_t id)
{
	return (int64_t)(mark - id) >= 0;
}

int rds_sock_marks_begin(struct rds_op_marks *b, uint32_t daddr, uint64_t *id)
{
	struct rds_op_marks_dest *d = dest_make(b, daddr);

	if (!d || ring_room(d) < 0)
		return -ENOMEM;
	*id = atomic_load_explicit(&b->last_id, memory_order_relaxed) + 1;
	atomic_store_explicit(&b->last_id, *id, memory_order_relaxed);
	d->count++;
	d->unfinished++;
	*ring_op_at(d, d->count - 1) = (struct op){.id = *id, .before = d->last};
	d->last = *id;
	return 0;
}

/* Updates the mark from the ring.  True: it has risen. */
static bool dest_settle_mark(struct rds_op_marks *b, struct rds_op_marks_dest *d)
{
	uint64_t old = d->mark;

	while (d->count && ring_op_at(d, 0)->before == OP_TOMBSTONE) {
		d->head++;
		d->count--;
	}
	d->mark = d->count ? ring_op_at(d, 0)->before : d->last;
	ring_release(d);
	if (d->mark == old)
		return false;
	b->risen = true;
	if (b->armed && b->armed_daddr == d->daddr && mark_reaches(d->mark, b->armed_id))
		b->armed_done = true;
	return true;
}

bool rds_sock_marks_finish(struct rds_op_marks *b, uint32_t daddr, uint64_t id)
{
	struct rds_op_marks_dest *d = dest_find(b, daddr);
	int64_t i = d ? ring_find(d, id) : -1;

	if (i < 0)
		return false;
	ring_op_at(d, i)->before = OP_TOMBSTONE;
	d->unfinished--;
	return i == 0 && dest_settle_mark(b, d);
}

/*
 * Only the first unfinished operation from index i on can still have `id` as its previous id:
 * replace it there.
 */
static void ring_rename_before(struct rds_op_marks_dest *d, uint32_t i, uint64_t id, uint64_t before)
{
	while (i < d->count && ring_op_at(d, i)->before == OP_TOMBSTONE)
		i++;
	if (i < d->count && ring_op_at(d, i)->before == id)
		ring_op_at(d, i)->before = before;
}

bool rds_sock_marks_cancel(struct rds_op_marks *b, uint32_t daddr, uint64_t id)
{
	struct rds_op_marks_dest *d = dest_find(b, daddr);
	int64_t i = d ? ring_find(d, id) : -1;
	uint64_t before;

	if (i < 0)
		return false;
	before = ring_op_at(d, i)->before;
	if (d->last == id)
		d->last = before;
	else
		ring_rename_before(d, i + 1, id, before);
	if (atomic_load_explicit(&b->last_id, memory_order_relaxed) == id)
		atomic_store_explicit(&b->last_id, id - 1, memory_order_relaxed);
	if (i + 1 == d->count)
		d->count--; /* so that ids still rise when this one is given out again */
	else
		ring_op_at(d, i)->before = OP_TOMBSTONE;
	d->unfinished--;
	return dest_settle_mark(b, d);
}

uint64_t rds_sock_marks_get(const struct rds_op_marks *b, uint32_t daddr)
{
	const struct rds_op_marks_dest *d = dest_find(b, daddr);

	return d ? d->mark : b->base;
}

uint64_t rds_sock_marks_oldest(const struct rds_op_marks *b, uint32_t daddr)
{
	const struct rds_op_marks_dest *d = dest_find(b, daddr);

	return d && d->count ? ring_op_at(d, 0)->id : 0;
}

bool rds_sock_marks_outstanding(const struct rds_op_marks *b, uint32_t daddr)
{
	return rds_sock_marks_oldest(b, daddr);
}

/* ---- the option ---- */

bool rds_sock_marks_done(const struct rds_op_marks *b, const struct rds_barrier_request *req)
{
	return mark_reaches(rds_sock_marks_get(b, req->daddr), req->wait_id) ||
	       !rds_sock_marks_outstanding(b, req->daddr);
}

int rds_sock_marks_request(struct rds_op_marks *b, const struct rds_barrier_request *req, bool nonblock, uint64_t *mark)
{
	*mark = rds_sock_marks_get(b, req->daddr);
	b->risen = false;
	if (b->armed_done)
		b->armed = b->armed_done = false;
	if (req->wait_id)
		b->waited = true;
	if (mark_reaches(*mark, req->wait_id))
		return 0;
	if (!nonblock && !req->nonblock)
		return rds_sock_marks_done(b, req) ? -EAGAIN : 1;
	b->armed = true;
	b->armed_daddr = req->daddr;
	b->armed_id = req->wait_id;
	return -EAGAIN;
}
