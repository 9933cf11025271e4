/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_device.c - the initiator's side of operations that devices carry out (see op_device.h): what
 * is known of the peers' regions, and whether an operation can go to the device.
 *
 * It can, on three conditions:
 *   - The device can take the whole operation now.
 *   - The operation lies within the region.  Otherwise the engine has to refuse it, so that only
 *     the operation itself fails.
 *   - Nothing that the peer's engine has yet to carry out touches the same memory: a device does
 *     not wait for that.
 *
 * The opposite order needs no care: what goes to the peer's engine later is behind the device's
 * work on the same queue pair.  But an operation that changes bytes which are being read waits for
 * the read.
 *
 * What the peer's engine has yet to carry out belongs to listed operations, which know what they
 * touch, or it is *stray*: its operation has ended here (cancelled, its socket closed, ...) while
 * its pieces were with the transport or the peer.  As long as there may be strays, nothing goes to
 * the device.
 *
 * Reads into another process's memory (abi/foreign_memory.h) go by the engine.
 *
 * This file must not know how a device is given its work.
 */
#include "engine/rdma/op_device.h"

#include <stdlib.h>

#define REMOTE_MRS_MAX 1024u /* known regions of a peer */

struct rds_remote_mr {
	struct rds_remote_mr *next;
	uint32_t rkey;
	uint64_t len;
	struct rds_device_key far;
	bool read; /* our device has read from it, at some time */
};

/* ---- adverts of the peer (rx) ---- */

static struct rds_remote_mr **remote_mr_bucket(struct rds_conn *conn, uint32_t rkey)
{
	return &conn->rdma->remote_mrs[rkey % RDS_REMOTE_MR_BUCKETS];
}

static struct rds_remote_mr *remote_mr_find(struct rds_conn *conn, uint32_t rkey)
{
	struct rds_remote_mr *f = *remote_mr_bucket(conn, rkey);

	while (f && f->rkey != rkey)
		f = f->next;
	return f;
}

static void remote_mr_forget(struct rds_conn *conn, uint32_t rkey)
{
	struct rds_remote_mr **p = remote_mr_bucket(conn, rkey), *f;

	for (; (f = *p); p = &f->next)
		if (f->rkey == rkey) {
			*p = f->next;
			free(f);
			atomic_fetch_sub(&conn->rdma->nremote_mrs, 1);
			return;
		}
}

/*
 * A thread that is about to post has the lock that sending the acknowledgement needs: so the
 * acknowledgement goes behind all that was posted.  Without memory for it, none is sent, and the
 * peer waits.
 *
 * A device may receive what is sent behind a read before it has read all.  If the network then
 * loses a packet, it reads again: the region must still be there, or the whole connection breaks.
 * So the acknowledgement waits for reads, also for cancelled ones, which only the device still
 * knows.
 */
void rds_mr_remote_revoked(struct rds_conn *conn, const struct rds_wire_op_hdr *h)
{
	struct rds_wire_op_hdr ack = {.kind = RDS_OP_REVOKE_ACK, .rkey = h->rkey};
	struct rds_queue_item *q = rds_op_control_piece_new(&ack);
	const struct rds_remote_mr *f = remote_mr_find(conn, h->rkey);

	conn->rdma->fence_answers |= f && f->read;
	remote_mr_forget(conn, h->rkey);
	if (q)
		rds_op_answer_add(conn, q);
}

void rds_mr_remote_advertised(struct rds_conn *conn, const struct rds_wire_op_hdr *h)
{
	struct rds_remote_mr *f;

	if (!(conn->t->ops->caps & RDS_TCAP_DEVICE_OPS) || atomic_load(&conn->rdma->nremote_mrs) >= REMOTE_MRS_MAX)
		return;
	remote_mr_forget(conn, h->rkey);
	f = malloc(sizeof(*f));
	if (!f)
		return;
	*f = (struct rds_remote_mr){.next = *remote_mr_bucket(conn, h->rkey), .rkey = h->rkey, .len = h->len};
	f->far = (struct rds_device_key){.key = h->value, .at = h->compare};
	*remote_mr_bucket(conn, h->rkey) = f;
	atomic_fetch_add(&conn->rdma->nremote_mrs, 1);
}

void rds_mr_remote_drop_all(struct rds_conn *conn)
{
	struct rds_conn_rdma *r = conn->rdma;
	struct rds_remote_mr *f;
	unsigned i;

	if (!r)
		return;
	r->fence_answers = false;
	/* the peer takes none of them any more when it advertises a region again */
	atomic_store(&r->strays, 0);
	for (i = 0; i < RDS_REMOTE_MR_BUCKETS && atomic_load(&r->nremote_mrs); i++)
		while ((f = r->remote_mrs[i])) {
			r->remote_mrs[i] = f->next;
			free(f);
			atomic_fetch_sub(&r->nremote_mrs, 1);
		}
}

/* ---- whether an operation may go to the device (rx) ---- */

static bool ranges_overlap(uint64_t a, uint64_t alen, uint64_t b, uint64_t blen)
{
	return a < b ? b - a < alen : a - b < blen;
}

/*
 * Regions may overlap, so addresses in the peer's memory are compared.  They are known only of
 * regions that the peer has advertised.
 */
static bool op_touches(struct rds_conn *conn, const struct rds_op *before, const struct rds_op *op,
		       const struct rds_remote_mr *f)
{
	const struct rds_remote_mr *other;

	if (before->rkey == op->rkey)
		return ranges_overlap(before->remote, before->total, op->remote, op->total);
	other = remote_mr_find(conn, before->rkey);
	return !other ||
	       ranges_overlap(other->far.at + before->remote, before->total, f->far.at + op->remote, op->total);
}

static bool op_has_conflict(struct rds_conn *conn, const struct rds_op *op, const struct rds_remote_mr *f)
{
	const struct rds_op *before;

	for (before = rds_ops_first(conn); before && before != op; before = before->next)
		if (!before->by_device && !before->over && op_touches(conn, before, op, f))
			return true;
	return false;
}

/*
 * rx not held.  tx is held: so nothing is being sent, and no stray has a higher number than what
 * was sent last.  The peer has carried out what it acknowledges (conn/receive.c).  An operation
 * that ends meanwhile is not missed.
 */
static void strays_check(struct rds_conn *conn)
{
	uint64_t found = atomic_load(&conn->rdma->strays), last = found;

	if (found == RDS_STRAYS_NEW)
		last = rds_queue_sent(conn);
	atomic_compare_exchange_strong(&conn->rdma->strays, &found, conn->t->ops->acked(conn->ep) < last ? last : 0);
}

static bool op_device_may_post(struct rds_conn *conn, struct rds_op *op, struct rds_device_op *n)
{
	struct rds_remote_mr *f = remote_mr_find(conn, op->rkey);

	/*
	 * The device is told the number of its message.  A message that waits for other operations
	 * may not keep its number (op_order.c).
	 */
	if (!f || op->over || rds_op_barrier_blocked(op) || !op->total || op->remote > f->len ||
	    op->total > f->len - op->remote || atomic_load_explicit(&conn->rdma->strays, memory_order_relaxed) ||
	    op_has_conflict(conn, op, f))
		return false;
	n->key = f->far.key;
	n->at = f->far.at + op->remote;
	op->started = op->by_device = true;
	f->read |= n->read;
	atomic_fetch_add(n->read ? &conn->rdma->device_reads : &conn->device_writes, 1);
	return true;
}

static void op_device_unpost(struct rds_conn *conn, struct rds_op *op)
{
	rx_lock();
	if (!op->over)
		atomic_fetch_sub(op->kind == RDS_OP_READ ? &conn->rdma->device_reads : &conn->device_writes, 1);
	op->started = op->by_device = false;
	rx_unlock();
}

int rds_op_device_post(struct rds_conn *conn, struct rds_op *op)
{
	struct rds_device_op n = {.id = op->id,
				  .seq = op->alone ? 0 : conn->next_tx,
				  .read = op->kind == RDS_OP_READ,
				  .quiet = rds_op_is_quiet(op),
				  .len = op->total,
				  .local = op->local};
	bool may;
	int err;

	if (likely(!atomic_load_explicit(&conn->rdma->nremote_mrs, memory_order_relaxed)) ||
	    (op->kind != RDS_OP_WRITE && op->kind != RDS_OP_READ) || (op->memory && op->kind == RDS_OP_READ) ||
	    conn->queue || atomic_load_explicit(&conn->state, memory_order_relaxed) != RDS_CONN_UP)
		return -EAGAIN;
	if (unlikely(atomic_load_explicit(&conn->rdma->strays, memory_order_relaxed)))
		strays_check(conn);
	rx_lock();
	may = op_device_may_post(conn, op, &n);
	rx_unlock();
	if (!may)
		return -EAGAIN;
	err = conn->t->ops->post(conn->ep, &n);
	if (err)
		op_device_unpost(conn, op);
	return err;
}

bool rds_ops_need_peer(const struct rds_op *ops)
{
	for (; ops; ops = ops->message_next)
		if (!ops->by_device)
			return true;
	return false;
}

/* ---- waiting for reads ---- */

/*
 * Are bytes to be changed that a device still reads?  It may read them again, if the network loses
 * a packet.
 */
static bool op_changes_read(struct rds_conn *conn, const struct rds_op *op)
{
	const struct rds_remote_mr *f = remote_mr_find(conn, op->rkey);
	const struct rds_op *read;

	for (read = rds_ops_first(conn); read && read != op; read = read->next)
		if (read->by_device && !read->over && read->kind == RDS_OP_READ &&
		    (!f || op_touches(conn, read, op, f)))
			return true;
	return false;
}

void rds_op_fence_conflict(struct rds_conn *conn, const struct rds_op *op)
{
	bool wait;

	if (likely(!atomic_load_explicit(&conn->rdma->device_reads, memory_order_relaxed)) || op->kind == RDS_OP_READ)
		return;
	rx_lock();
	wait = op_changes_read(conn, op);
	rx_unlock();
	if (wait && conn->ep)
		conn->t->ops->fence(conn->ep);
}

void rds_ops_fence(struct rds_conn *conn, const struct rds_op *ops)
{
	bool fence = false;

	if (likely(!atomic_load_explicit(&conn->rdma->device_reads, memory_order_relaxed)))
		return;
	for (; ops; ops = ops->message_next)
		fence |= ops->fence && ops->by_device && ops->kind == RDS_OP_READ;
	if (fence && conn->ep)
		conn->t->ops->fence(conn->ep);
}
