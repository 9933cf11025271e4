/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_send.c - operations on their way out (conn->tx held).
 *
 * An operation is cut into pieces of 64 KiB.  They go before the message that belongs to it, in the
 * same sequence.  Pieces that find no room wait in the connection's queue.  A queued piece holds
 * its header only: the bytes stay in the program's memory, and are read when the piece goes.  Where
 * the peer can read our memory itself (fetch), a write that goes at once is one piece, which says
 * where its bytes are.
 *
 * Peers must not have to keep any number of answers.  So at most READ_AHEAD bytes of reads are
 * under way on a connection.  Further reads wait, and so does what comes after them.
 */
#include "engine/rdma/op_device.h"

#include <stdlib.h>
#include <string.h>

#include "engine/abi/user_copy.h"

#define READ_AHEAD ((uint64_t)8 << 20)
#define SLICES 16u
#define OFFER_AHEAD ((uint64_t)8 << 20)
#define FETCH_LEAST (RDS_OP_PIECE + 1) /* a write that is one piece costs less if its bytes are sent */

/* ---- pieces ---- */

static void piece_encode_header(const struct rds_op *op, enum rds_wire_op_kind kind, uint64_t at, size_t len,
				unsigned char to[RDS_OP_HDR])
{
	struct rds_wire_op_hdr h = {
		.kind = (uint8_t)kind,
		.last = at + len == op->total,
		.rkey = op->rkey,
		.id = op->id,
		.message = op->message,
		.offset = op->remote + at,
		.len = op->total,
		.compare = op->atomic.compare,
		.compare_mask = op->atomic.compare_mask,
		.value = op->atomic.value,
		.value_mask = op->atomic.value_mask,
	};

	rds_wire_op_encode(&h, to);
}

/*
 * rx held.  The operation is about to be given to a transport, and may be answered before that call
 * returns.  If another thread has ended it just now, it goes all the same, as if it had ended a
 * moment later.
 */
static void op_start(struct rds_conn *conn, struct rds_op *op)
{
	op->started = true;
	if (unlikely(op->over))
		rds_op_strays_note(conn);
	if (op->kind != RDS_OP_READ || op->over || op->reading)
		return;
	op->reading = true;
	op->conn->rdma->reading += op->total;
}

/* Undoes op_start(), if that was the start of the operation. */
static void op_unstart(struct rds_op *op, bool began)
{
	if (!began)
		return;
	rx_lock();
	op->started = false;
	rx_unlock();
}

static bool op_may_start(const struct rds_conn *conn, const struct rds_op *op)
{
	return op->kind != RDS_OP_READ || op->reading || !conn->rdma->reading ||
	       conn->rdma->reading + op->total <= READ_AHEAD;
}

/* Bytes at .. at+len of its memory, as at most `max` elements.  0: more are needed. */
static unsigned op_slice_local(const struct rds_op *op, uint64_t at, size_t len, struct iovec *out, unsigned max)
{
	unsigned i, n = 0;

	for (i = 0; len; i++) {
		size_t part = op->local[i].iov_len;

		if (at >= part) {
			at -= part;
			continue;
		}
		if (n == max)
			return 0;
		part = part - at < len ? part - at : len;
		out[n++] = (struct iovec){(char *)op->local[i].iov_base + at, part};
		len -= part;
		at = 0;
	}
	return n;
}

int rds_op_send_once(struct rds_conn *conn, const struct rds_hdr *hdr, const struct iovec *iov, uint64_t refused)
{
	struct rds_queue_unacked u = {.seq = hdr->seq,
				      .len = hdr->len,
				      .sport = hdr->sport,
				      .dport = hdr->dport,
				      .flags = hdr->flags,
				      .once = true,
				      .refused = refused};
	struct rds_wire_hdr wire;
	int err;

	if (unlikely(rds_queue_unacked_room(conn)))
		return -ENOMEM;
	rds_wire_hdr_encode(hdr, &wire, false);
	rds_conn_note_sending(conn, hdr->seq);
	err = rds_conn_xmit_ep(conn, &wire, iov, hdr->len, &u.pos);
	if (!err && !(conn->t->ops->caps & RDS_TCAP_DIRECT))
		rds_queue_unacked_push(conn, &u);
	return err;
}

static int piece_queue(struct rds_conn *conn, struct rds_op *op, const struct rds_hdr *hdr, uint64_t at,
		       const unsigned char head[RDS_OP_HDR])
{
	struct rds_queue_item *q = calloc(1, sizeof(*q) + RDS_OP_HDR);

	if (!q)
		return -ENOMEM;
	q->hdr = *hdr;
	q->u = (struct rds_queue_unacked){
		.seq = hdr->seq, .sport = hdr->sport, .dport = hdr->dport, .flags = hdr->flags};
	q->u.len = hdr->len;
	q->u.once = true;
	q->op = op;
	q->op_at = at;
	memcpy(q->data, head, RDS_OP_HDR);
	rx_lock();
	op->refs++;
	rx_unlock();
	rds_queue_append(conn, q);
	return 0;
}

/*
 * The memory is the caller's own, and was checked in this call: only another thread can have
 * unmapped it since.
 */
static int piece_send_local(struct rds_conn *conn, const struct rds_op *op, const struct rds_hdr *hdr, uint64_t at,
			    unsigned char *head)
{
	size_t len = hdr->len - RDS_OP_HDR;
	struct iovec iov[1 + SLICES] = {{head, RDS_OP_HDR}};
	unsigned char *copy;
	int err;

	if (!len || op_slice_local(op, at, len, iov + 1, SLICES))
		return rds_op_send_once(conn, hdr, iov, 0);
	copy = malloc(len);
	if (!copy)
		return -ENOMEM;
	err = rds_ucopy_from_vec(NULL, copy, op->local, op->nlocal, at, len);
	iov[1] = (struct iovec){copy, len};
	if (!err)
		err = rds_op_send_once(conn, hdr, iov, 0);
	free(copy);
	return err;
}

static int piece_xmit(struct rds_conn *conn, struct rds_op *op, uint64_t at, size_t len)
{
	struct rds_hdr hdr = {
		.seq = conn->next_tx, .flags = RDS_FLAG_OP, .sport = op->sk->laddr.port, .dport = op->dport};
	unsigned char head[RDS_OP_HDR];
	bool go = !conn->queue && atomic_load_explicit(&conn->state, memory_order_relaxed) == RDS_CONN_UP,
	     began = false;
	int err = -EAGAIN;

	hdr.len = (uint32_t)(RDS_OP_HDR + len);
	piece_encode_header(op, op->kind, at, len, head);
	if (go) {
		rx_lock();
		go = op_may_start(conn, op);
		began = go && !op->started;
		if (go)
			op_start(conn, op);
		rx_unlock();
	}
	if (go)
		err = piece_send_local(conn, op, &hdr, at, head);
	if (err == -EAGAIN || err == -ENOTCONN) {
		op_unstart(op, began);
		err = piece_queue(conn, op, &hdr, at, head);
	}
	if (!err)
		conn->next_tx++;
	return err;
}

/* ---- writes that the peer fetches ---- */

/* A random base for fetch words, so that no other memory looks like a fetch word of ours. */
static uint64_t fetch_word_base(void)
{
	static uint64_t base; /* rx */

	while (base < UINT64_MAX / 2) /* so no id makes the word 0 */
		os_random(&base, sizeof(base));
	return base;
}

static bool op_fetchable(const struct rds_conn *conn, const struct rds_op *op)
{
	const struct rds_transport_ops *ops = conn->t->ops;

	/* The limit is for the peer's sake: it copies all that it finds at once. */
	if (conn->rdma->offered_bytes + op->total > OFFER_AHEAD)
		return false;
	return op->total >= FETCH_LEAST && op->nlocal <= RDS_FETCH_VECS && !conn->queue &&
	       atomic_load_explicit(&conn->state, memory_order_relaxed) == RDS_CONN_UP && ops->fetchable &&
	       ops->fetchable(conn->ep);
}

/* False: the operation is over already. */
static bool op_offer_fetch(struct rds_conn *conn, struct rds_op *op)
{
	bool offered;

	rx_lock();
	if (!op->over) {
		op->started = op->fetch_offered = true;
		op->atomic.compare = (uintptr_t)&op->fetch_word;
		op->atomic.value = op->id ^ fetch_word_base();
		atomic_store(&op->fetch_word, op->atomic.value);
		conn->rdma->offered_bytes += op->total;
	}
	offered = op->fetch_offered;
	rx_unlock();
	return offered;
}

/* It was not given to the transport after all. */
static void op_withdraw_fetch(struct rds_op *op)
{
	rx_lock();
	rds_op_fetch_end(op, false);
	op->started = false;
	op->atomic.compare = op->atomic.value = 0;
	rx_unlock();
}

/* 0: it has gone.  Otherwise nothing has gone, and it can go in pieces. */
static int op_xmit_fetch(struct rds_conn *conn, struct rds_op *op)
{
	unsigned char bytes[RDS_OP_HDR + RDS_FETCH_VECS * RDS_OP_VEC];
	struct rds_hdr hdr = {.seq = conn->next_tx,
			      .flags = RDS_FLAG_OP,
			      .sport = op->sk->laddr.port,
			      .dport = op->dport,
			      .len = RDS_OP_HDR + op->nlocal * RDS_OP_VEC};
	struct iovec iov = {bytes, hdr.len};
	int err;

	if (!op_offer_fetch(conn, op))
		return -ECANCELED;
	piece_encode_header(op, RDS_OP_FETCH, 0, op->total, bytes);
	rds_wire_op_vec_encode(op->local, op->nlocal, bytes + RDS_OP_HDR);
	err = rds_op_send_once(conn, &hdr, &iov, 0);
	if (err)
		op_withdraw_fetch(op);
	else
		conn->offered_seq = conn->next_tx++;
	return err;
}

static int op_xmit(struct rds_conn *conn, struct rds_op *op)
{
	bool carries = op->kind == RDS_OP_WRITE;
	uint64_t at = 0;
	int err;

	RDS_STAT_INC(send_rdma);
	if (carries)
		RDS_STAT_ADD(send_rdma_bytes, op->total);
	rds_op_fence_conflict(conn, op);
	if (!rds_op_device_post(conn, op))
		return 0;
	if (!carries)
		return piece_xmit(conn, op, 0, 0);
	if (op_fetchable(conn, op) && !op_xmit_fetch(conn, op))
		return 0;
	do {
		uint64_t len = op->total - at < RDS_OP_PIECE ? op->total - at : RDS_OP_PIECE;

		err = piece_xmit(conn, op, at, len);
		at += len;
	} while (!err && at < op->total);
	return err;
}

/*
 * There is no memory, and the call fails.  What a device or the peer's engine already has of the
 * operations may be carried out all the same, as for cancelled operations: the contents of their
 * target are undefined until the program sends them again.  Repeated operations come behind the
 * earlier ones: a device's work is on the same queue pair, and what the engine has are strays
 * (op_device.c).
 */
void rds_ops_take_back(struct rds_op *ops)
{
	struct rds_op *op;

	rx_lock();
	for (op = ops; op; op = op->message_next) {
		rds_op_async_detach(op);
		if (op->done) /* and reported, if the program asked for it */
			continue;
		op->notify = op->recverr = false;
		rds_op_barrier_end(op, true);
		op->barrier_id = 0;
		rds_op_complete(op, RDS_RDMA_CANCELED);
	}
	rx_unlock();
}

int rds_ops_xmit(struct rds_conn *conn, struct rds_op *ops, bool alone)
{
	struct rds_op *op;
	int err = 0;

	if (unlikely(atomic_load_explicit(&conn->nanswers, memory_order_relaxed)))
		rds_op_answers_flush(conn);
	rx_lock();
	for (op = ops; op; op = op->message_next) {
		op->refs++; /* until rds_ops_put() */
		op->alone = alone;
		op->sk->nops++;
		rds_op_list(conn, op);
		if (unlikely(op->has_id) && !err)
			err = rds_op_barrier_add(op);
	}
	rx_unlock();
	for (op = ops; op && !err; op = op->message_next)
		err = op_xmit(conn, op);
	if (err)
		rds_ops_take_back(ops);
	else
		rds_ops_fence(conn, ops);
	return err;
}

void rds_ops_put(struct rds_op *ops)
{
	struct rds_op *op, *next;

	rx_lock();
	for (op = ops; op; op = next) {
		next = op->message_next;
		rds_op_put(op);
	}
	rx_unlock();
}

/* ---- in the queue ---- */

void rds_op_attach_queued(struct rds_queue_item *q, struct rds_op *ops)
{
	struct rds_op *op;

	q->op = ops;
	if (!ops)
		return;
	rx_lock();
	for (op = ops; op; op = op->message_next)
		op->refs++;
	rx_unlock();
}

void rds_op_detach_queued(struct rds_queue_item *q)
{
	struct rds_op *op = q->op;

	q->op = NULL;
	if (!rds_queue_item_is_piece(q)) {
		rds_ops_put(op);
		return;
	}
	rx_lock();
	rds_op_put(op);
	rx_unlock();
}

bool rds_op_wanted(const struct rds_queue_item *q)
{
	const struct rds_op *op;
	bool wanted = true;

	rx_lock();
	for (op = q->op; op; op = rds_queue_item_is_piece(q) ? NULL : op->message_next)
		wanted &= op->status == RDS_RDMA_SUCCESS;
	rx_unlock();
	return wanted;
}

bool rds_op_may_send(struct rds_conn *conn, const struct rds_queue_item *q)
{
	bool may;

	rx_lock();
	if (rds_queue_item_is_piece(q)) {
		may = op_may_start(conn, q->op);
	} else {
		may = !rds_op_barrier_blocked(q->op);
		q->op->blocked_in = may ? NULL : conn;
	}
	rx_unlock();
	return may;
}

bool rds_ops_hold_message(struct rds_conn *conn, struct rds_op *ops)
{
	bool held;

	if (likely(!ops || !ops->has_id))
		return false;
	rx_lock();
	held = rds_op_barrier_blocked(ops);
	if (held)
		ops->blocked_in = conn;
	rx_unlock();
	return held;
}

void *rds_op_piece_gather(struct rds_conn *conn, struct rds_queue_item *q, bool *began)
{
	size_t len = q->hdr.len - RDS_OP_HDR;
	unsigned char *bytes = malloc(q->hdr.len);
	int err = bytes ? 0 : -ENOMEM;

	if (bytes) {
		memcpy(bytes, q->data, RDS_OP_HDR);
		err = rds_ucopy_from_vec(NULL, bytes + RDS_OP_HDR, q->op->local, q->op->nlocal, q->op_at, len);
	}
	rx_lock();
	if (err) {
		rds_op_end(q->op, RDS_RDMA_OTHER_ERROR);
	} else {
		*began = !q->op->started;
		op_start(conn, q->op);
	}
	rx_unlock();
	if (!err)
		return bytes;
	free(bytes);
	return NULL;
}

void rds_op_piece_unsent(struct rds_queue_item *q, bool began)
{
	op_unstart(q->op, began);
}

void rds_op_fail_unrouted(struct rds_queue_item *q)
{
	rx_lock();
	rds_op_complete(q->op, RDS_RDMA_REMOTE_ERROR);
	rx_unlock();
}
