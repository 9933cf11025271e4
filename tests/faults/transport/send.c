/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * send.c - faults on the way out: breaks, no room, messages held back or swallowed.
 *
 * A message that is held back or swallowed is copied, so that retained() finds it until the peer
 * has acknowledged it.  The order of messages never changes: while one message is held back, all
 * later ones are held back, too.
 *
 * Must not know any particular transport.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/faults/transport/fault.h"

#define POS_HELD (1ull << 63) /* the rest of the position is the address of a copy */
#define DROP_NS (20 * 1000000ull)
#define ROOM_NS 200000ull

/* A copy of a message that the inner transport did not get when it was sent. */
struct fault_msg {
	struct fault_msg *next;
	uint64_t seq; /* 0: control traffic, which is never sent again */
	size_t len;
	struct rds_wire_hdr hdr;
	unsigned char data[];
};

static void fault_room_timer(struct rds_timer *tm)
{
	struct fault_ep *f = container_of(tm, struct fault_ep, room);

	rx_lock();
	f->head.t->up->writable(f->head.conn);
	rx_unlock();
}

/*
 * The delay is over, or there is room for the rest.  Sends the held-back messages in order.  After
 * the last one, new messages go directly again.
 */
static void fault_late_timer(struct rds_timer *tm)
{
	struct fault_ep *f = container_of(tm, struct fault_ep, late);
	const struct rds_transport_ops *ops = fault_inner_ops(f);
	bool waits = false;
	struct iovec iov;
	struct fault_msg *h;
	uint64_t pos;
	int err;

	pthread_mutex_lock(&f->lock);
	if (atomic_load(&f->swallow))
		goto out;
	while ((h = f->waiting)) {
		iov = (struct iovec){.iov_base = h->data, .iov_len = h->len};
		err = ops->send(f->inner, &h->hdr, &iov, h->len, &pos);
		if (err == -EMSGSIZE) { /* the endpoint that takes the place of this one gets it */
			f->head.t->up->outgrown(f->head.conn);
			break;
		}
		if (err) {
			if (waits) /* want_room() was called, so up->writable comes */
				break;
			waits = true;
			ops->want_room(f->inner, ops->acked(f->inner));
			continue;
		}
		f->waiting = h->next;
	}
	f->holding = f->waiting != NULL;
	ops->flush(f->inner, true);
out:
	pthread_mutex_unlock(&f->lock);
}

void fault_drop_copies(struct fault_ep *f, uint64_t acked)
{
	struct fault_msg *h;

	while ((h = f->copies) && h != f->waiting && h->seq <= acked) {
		f->copies = h->next;
		if (!f->copies)
			f->copies_tail = &f->copies;
		free(h);
	}
}

static int fault_hold(struct fault_ep *f, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		      uint64_t *pos)
{
	struct fault_msg *h = malloc(sizeof(*h) + len);
	struct rds_hdr dec = {0};
	unsigned char *to;
	size_t n;

	if (!h || rds_wire_hdr_decode(hdr, &dec)) {
		free(h);
		return -ENOMEM;
	}
	h->next = NULL;
	h->seq = dec.seq;
	h->hdr = *hdr;
	h->len = len;
	for (to = h->data; len; iov++) {
		n = iov->iov_len < len ? iov->iov_len : len;
		memcpy(to, iov->iov_base, n);
		to += n;
		len -= n;
	}
	*f->copies_tail = h;
	f->copies_tail = &h->next;
	if (!f->waiting)
		f->waiting = h;
	*pos = POS_HELD | (uint64_t)(uintptr_t)h;
	return 0;
}

/* Draws the faults of this endpoint from this message on. */
static void fault_choose(struct fault *fl, struct fault_ep *f)
{
	if (!atomic_load(&f->swallow) && fault_chance(fl, fl->spec.drop)) {
		atomic_store(&f->swallow, true);
		fault_after(fl, &f->breaks, DROP_NS);
	}
	if (!f->holding && fault_chance(fl, fl->spec.delay)) {
		f->holding = true;
		fault_after(fl, &f->late, fl->spec.delay_us * 1000);
	}
}

static int fault_send(struct rds_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		      uint64_t *pos)
{
	struct fault_ep *f = (struct fault_ep *)ep;
	struct fault *fl = fault_of(f);
	bool cut = fault_cuts(f), before = cut && fault_draw(fl) % 2;
	int err;

	if (before)
		fault_break(f);
	if (atomic_load(&f->broken))
		return -ENOTCONN;
	if (fault_chance(fl, fl->spec.send)) {
		fault_after(fl, &f->room, ROOM_NS);
		return -EAGAIN;
	}
	pthread_mutex_lock(&f->lock);
	fault_choose(fl, f);
	if (f->holding || atomic_load(&f->swallow))
		err = fault_hold(f, hdr, iov, len, pos);
	else
		err = fault_inner_ops(f)->send(f->inner, hdr, iov, len, pos);
	f->sent += !err;
	pthread_mutex_unlock(&f->lock);
	if (cut)
		fault_break(f);
	return err;
}

static void fault_flush(struct rds_ep *ep, bool service)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	pthread_mutex_lock(&f->lock);
	fault_inner_ops(f)->flush(f->inner, service);
	pthread_mutex_unlock(&f->lock);
}

static const void *fault_retained(struct rds_ep *ep, uint64_t pos)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	if (fault_chance(fault_of(f), fault_of(f)->spec.memory))
		return NULL;
	if (pos & POS_HELD)
		return ((const struct fault_msg *)(uintptr_t)(pos & ~POS_HELD))->data;
	return fault_inner_ops(f)->retained(f->inner, pos);
}

static uint64_t fault_acked(struct rds_ep *ep)
{
	struct fault_ep *f = (struct fault_ep *)ep;
	uint64_t acked;

	pthread_mutex_lock(&f->lock);
	acked = fault_inner_ops(f)->acked(f->inner);
	fault_drop_copies(f, acked);
	pthread_mutex_unlock(&f->lock);
	return acked;
}

static bool fault_leave(struct rds_ep *ep, bool begin)
{
	struct fault_ep *f = (struct fault_ep *)ep;
	bool left;

	if (atomic_load(&f->swallow) || atomic_load(&f->broken))
		return true;
	pthread_mutex_lock(&f->lock);
	left = fault_inner_ops(f)->leave(f->inner, begin);
	pthread_mutex_unlock(&f->lock);
	return left;
}

static bool fault_want_room(struct rds_ep *ep, uint64_t seen_ack)
{
	struct fault_ep *f = (struct fault_ep *)ep;
	bool moved;

	pthread_mutex_lock(&f->lock);
	moved = fault_inner_ops(f)->want_room(f->inner, seen_ack);
	pthread_mutex_unlock(&f->lock);
	return moved;
}

static void fault_push(struct rds_ep *ep)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	if (atomic_load(&f->swallow) || atomic_load(&f->broken))
		return;
	pthread_mutex_lock(&f->lock);
	if (fault_inner_ops(f)->push)
		fault_inner_ops(f)->push(f->inner);
	pthread_mutex_unlock(&f->lock);
}

static void fault_watch(struct rds_ep *ep)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	if (fault_inner_ops(f)->watch)
		fault_inner_ops(f)->watch(f->inner);
}

static void fault_rest(struct rds_ep *ep)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	if (fault_inner_ops(f)->rest)
		fault_inner_ops(f)->rest(f->inner);
}

static bool fault_fetchable(struct rds_ep *ep)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	return fault_inner_ops(f)->fetchable(f->inner);
}

static void fault_describe(struct rds_ep *ep, struct rds_ep_device *out)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	fault_inner_ops(f)->describe(f->inner, out);
}

/* ---- operations of devices ---- */

static int fault_mr_register(struct rds_ep *ep, void *mem, size_t len, struct rds_device_mr **out)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	if (fault_chance(fault_of(f), fault_of(f)->spec.show))
		return -ENOMEM;
	return fault_inner_ops(f)->mr_register(f->inner, mem, len, out);
}

static bool fault_mr_key(struct rds_ep *ep, const struct rds_device_mr *shown, struct rds_device_key *far)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	return fault_inner_ops(f)->mr_key(f->inner, shown, far);
}

/* An operation must not overtake messages that are held back. */
static int fault_post(struct rds_ep *ep, const struct rds_device_op *op)
{
	struct fault_ep *f = (struct fault_ep *)ep;
	struct fault *fl = fault_of(f);
	bool cut = fault_cuts(f);
	int err = -EAGAIN;

	if (atomic_load(&f->broken))
		return -ENOTCONN;
	if (fault_chance(fl, fl->spec.post))
		return -EAGAIN;
	pthread_mutex_lock(&f->lock);
	if (!f->holding && !atomic_load(&f->swallow))
		err = fault_inner_ops(f)->post(f->inner, op);
	pthread_mutex_unlock(&f->lock);
	if (cut)
		fault_break(f);
	return err;
}

static void fault_fence(struct rds_ep *ep)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	pthread_mutex_lock(&f->lock);
	fault_inner_ops(f)->fence(f->inner);
	pthread_mutex_unlock(&f->lock);
}

void fault_send_init(struct fault_ep *f)
{
	f->copies_tail = &f->copies;
	f->late.fn = fault_late_timer;
	f->room.fn = fault_room_timer;
	pthread_mutex_init(&f->lock, NULL);
}

void fault_send_ops(struct fault *fl)
{
	fl->ops.send = fault_send;
	fl->ops.flush = fault_flush;
	fl->ops.retained = fault_retained;
	fl->ops.acked = fault_acked;
	fl->ops.want_room = fault_want_room;
	fl->ops.leave = fl->inner->ops->leave ? fault_leave : NULL;
	if (fl->inner->ops->push)
		fl->ops.push = fault_push;
	if (fl->inner->ops->watch)
		fl->ops.watch = fault_watch;
	fl->ops.rest = fault_rest;
	if (fl->inner->ops->fetchable)
		fl->ops.fetchable = fault_fetchable;
	if (fl->inner->ops->describe)
		fl->ops.describe = fault_describe;
	if (!(fl->inner->ops->caps & RDS_TCAP_DEVICE_OPS))
		return;
	fl->ops.mr_register = fault_mr_register;
	fl->ops.mr_key = fault_mr_key;
	fl->ops.mr_deregister = fl->inner->ops->mr_deregister;
	fl->ops.post = fault_post;
	fl->ops.fence = fault_fence;
}
