/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_order.c - the order of items in a connection's queue (conn->tx held).
 *
 * Answers are made under rx (op_serve.c) and go before anything else.  A program may read a message
 * that came with an operation, and confirm it to the sender: its message must not pass the result
 * of the operation.
 *
 * A message may have to wait for operations that went to other processes of its address
 * (barrier.c).  Two kinds of items pass such a waiting message:
 *   - An operation that it waits for, and that turns out to belong on its own connection after
 *     all: otherwise each would wait for the other.
 *   - What other sockets send: what they wait for may be in another queue, behind a message that
 *     waits for something in this one.
 *
 * Redirects of conn/port_moved.c go before items that wait for room: room may be what the peer
 * gives back when it has acknowledged the redirects.
 *
 * An item that no transport ever had can be passed: it gets a later number.  The peer remembers
 * only the last operation that has failed, so as not to deliver its message.  So if another
 * operation gets between an operation and its message, the message goes only when its own operation
 * is known not to have failed.  That happens when the other operation passes the message, or when
 * the first has passed the other operation.
 */
#include "engine/rdma/rdma.h"

/*
 * From this item on each has the next number: the number of `q` is free.  No device has been told
 * one of these numbers (op_device.c).
 */
static void queue_renumber_from(struct rds_conn *conn, struct rds_queue_item *q)
{
	for (; q; q = q->next)
		q->hdr.seq = ++q->u.seq;
	conn->next_tx++;
}

/* ---- items that change connections ---- */

static struct rds_sock *queued_sock(const struct rds_queue_item *q)
{
	return q->op ? q->op->sk : q->u.sk;
}

static bool queued_blocked_of(const struct rds_queue_item *q, const struct rds_sock *sk)
{
	return q->op && !rds_queue_item_is_piece(q) && q->op->sk == sk && rds_op_barrier_blocked(q->op);
}

/*
 * The place is before the first message of its socket that waits for operations.  But if that
 * message does not wait for q, q must not pass items of its own stream behind the message, which
 * are older.  NULL: at the end.
 */
static struct rds_queue_item **order_find_place(struct rds_conn *to, const struct rds_queue_item *q)
{
	struct rds_sock *sk = queued_sock(q);
	struct rds_queue_item **link, **before = NULL;

	if (!sk || !sk->ordered_ops)
		return NULL;
	for (link = &to->queue; *link; link = &(*link)->next) {
		if (!before && queued_blocked_of(*link, sk))
			before = link;
		if (!before)
			continue;
		if (q->op && q->op->barrier_id <= (*before)->op->after)
			return before;
		if ((*link)->u.dport == q->u.dport && queued_sock(*link) == sk)
			return NULL;
	}
	return before;
}

/* Marks the messages whose pieces have gone.  rx held. */
static void order_mark_overtaken(const struct rds_queue_item *q, const struct rds_queue_item *upto)
{
	struct rds_op *op;

	for (; q != upto; q = q->next)
		for (op = rds_queue_item_is_piece(q) ? NULL : q->op; op; op = op->message_next)
			op->overtaken |= op->started;
}

void rds_op_order_piece_sending(struct rds_conn *conn, const struct rds_queue_item *q)
{
	if (likely(!conn->pulled))
		return;
	rx_lock();
	order_mark_overtaken(q->next, NULL);
	rx_unlock();
}

/* Operations end in the order in which they go. */
static struct rds_op *order_first_op(const struct rds_conn *conn, const struct rds_queue_item *from)
{
	for (; from; from = from->next)
		if (rds_queue_item_is_piece(from) && from->op && from->op->conn == conn)
			return from->op;
	return NULL;
}

void rds_op_order_insert(struct rds_conn *to, struct rds_queue_item *q)
{
	struct rds_queue_item **before;

	rx_lock();
	before = order_find_place(to, q);
	if (q->op && rds_queue_item_is_piece(q) && !q->op->done && q->op->conn != to)
		rds_op_relist(to, q->op, before ? order_first_op(to, *before) : NULL);
	if (before && q->op && rds_queue_item_is_piece(q)) {
		order_mark_overtaken(*before, NULL);
		to->pulled = true;
	}
	rx_unlock();
	if (likely(!before)) {
		q->hdr.seq = q->u.seq = to->next_tx++;
		rds_queue_append(to, q);
		return;
	}
	q->hdr.seq = q->u.seq = (*before)->u.seq;
	queue_renumber_from(to, *before);
	q->next = *before;
	*before = q;
	to->queue_len++;
}

/* ---- redirects of conn/port_moved.c ---- */

/*
 * The peer may have it, a device has been told its number (op_device.c), or it is a redirect
 * itself.
 */
static bool queued_keeps_seq(const struct rds_queue_item *q)
{
	const struct rds_op *op;

	for (op = rds_queue_item_is_piece(q) ? NULL : q->op; op; op = op->message_next)
		if (op->by_device)
			return true;
	return q->was_sent || (q->hdr.flags & RDS_FLAG_REDIRECT);
}

void rds_op_order_insert_redirect(struct rds_conn *conn, struct rds_queue_item *q)
{
	struct rds_queue_item **at = &conn->queue, *behind;

	for (behind = conn->queue; behind; behind = behind->next)
		if (queued_keeps_seq(behind))
			at = &behind->next;
	if (!*at) {
		rds_queue_append(conn, q);
		return;
	}
	q->hdr.seq = q->u.seq = (*at)->u.seq;
	for (behind = *at; behind; behind = behind->next)
		behind->hdr.seq = ++behind->u.seq;
	q->next = *at;
	*at = q;
	conn->queue_len++;
	rds_queue_busy_add(conn);
}

/* ---- items that wait behind one that may not go ---- */

#define STREAMS 64 /* sockets that have to wait; if there are more of them, only answers pass */

/* Moves it to the head of the queue.  Its operation ends before those that it passes. */
static void queue_pull_first(struct rds_conn *conn, struct rds_queue_item **link)
{
	struct rds_queue_item *q = *link, *head = conn->queue, *i;
	uint64_t seq = head->u.seq;
	struct rds_op *next;

	for (i = head; i != q; i = i->next)
		i->hdr.seq = i->u.seq = i->next->u.seq;
	q->hdr.seq = q->u.seq = seq;
	rx_lock();
	if (q->op && rds_queue_item_is_piece(q)) {
		order_mark_overtaken(head, q);
		conn->pulled = true;
		next = order_first_op(conn, head);
		if (next && next != q->op && !q->op->done && q->op->conn == conn)
			rds_op_relist(conn, q->op, next);
	}
	rx_unlock();
	*link = q->next;
	if (!q->next)
		conn->queue_tail = link;
	q->next = head;
	conn->queue = q;
}

/*
 * Behind a waiting message, the first item of each other socket may go, unless it has to wait as
 * well.
 */
static bool order_may_pass(struct rds_conn *conn, struct rds_queue_item *q, struct rds_sock **waits, unsigned *n)
{
	struct rds_sock *sk = queued_sock(q);
	unsigned i;

	for (i = 0; i < *n; i++)
		if (waits[i] == sk)
			return false;
	if (*n == STREAMS)
		return false;
	if (!q->op || !rds_op_wanted(q) || rds_op_may_send(conn, q))
		return true;
	waits[(*n)++] = sk;
	return false;
}

bool rds_op_order_pass(struct rds_conn *conn)
{
	struct rds_queue_item *head = conn->queue, **link;
	bool held = !rds_queue_item_is_piece(head), answers = atomic_load(&conn->answer_bytes);
	struct rds_sock *waits[STREAMS] = {queued_sock(head)};
	unsigned n = 1;

	if (!held && !answers)
		return false;
	for (link = &head->next; *link; link = &(*link)->next)
		if ((*link)->answers || (held && order_may_pass(conn, *link, waits, &n))) {
			queue_pull_first(conn, link);
			return true;
		}
	return false;
}

bool rds_op_order_head_ordered(const struct rds_conn *conn)
{
	const struct rds_queue_item *q = conn->queue;

	return q && q->op && q->op->has_id && !rds_queue_item_is_piece(q);
}

/* ---- answers ---- */

/* *fence: reads have to be over before it goes. */
static struct rds_queue_item *answer_take(struct rds_conn *conn, bool *fence)
{
	struct rds_queue_item *q = NULL;
	struct rds_conn_rdma *r;

	rx_lock();
	r = conn->rdma;
	*fence = r && r->fence_answers;
	if (r) {
		r->fence_answers = false;
		q = r->answers;
	}
	if (q) {
		r->answers = q->next;
		if (!r->answers)
			r->answers_tail = &r->answers;
		atomic_fetch_sub(&conn->nanswers, 1);
	}
	rx_unlock();
	return q;
}

static void answer_put_back(struct rds_conn *conn, struct rds_queue_item *q)
{
	struct rds_conn_rdma *r;

	rx_lock();
	r = conn->rdma;
	q->next = r->answers;
	if (!q->next)
		r->answers_tail = &q->next;
	r->answers = q;
	atomic_fetch_add(&conn->nanswers, 1);
	rx_unlock();
}

static int answer_send(struct rds_conn *conn, struct rds_queue_item *q, uint64_t seq)
{
	struct iovec iov = {.iov_base = q->data, .iov_len = q->hdr.len};

	q->hdr.seq = q->u.seq = seq;
	return rds_op_send_once(conn, &q->hdr, &iov, q->u.refused);
}

/*
 * An item that waits for room of the transport keeps its place.  But an item that waits for the
 * peer to answer, or for another peer, must not hold up our answers, or both sides wait for each
 * other: answers go before it.
 */
static bool answer_send_or_queue(struct rds_conn *conn, struct rds_queue_item *q)
{
	int err = -EAGAIN;

	if (rds_queue_blocked(conn)) { /* the first item was never given to a transport */
		if (answer_send(conn, q, conn->queue->u.seq)) {
			/* when there is room, rds_conn_work_run() is called */
			answer_put_back(conn, q);
			return false;
		}
		queue_renumber_from(conn, conn->queue);
		rds_queue_item_free(q);
		return true;
	}
	if (!conn->queue && atomic_load(&conn->state) == RDS_CONN_UP)
		err = answer_send(conn, q, conn->next_tx);
	q->hdr.seq = q->u.seq = conn->next_tx++;
	if (err)
		rds_queue_append(conn, q);
	else
		rds_queue_item_free(q);
	return true;
}

void rds_op_answers_flush(struct rds_conn *conn)
{
	struct rds_queue_item *q;
	bool any = false, fence;

	while ((q = answer_take(conn, &fence))) {
		if (atomic_load(&conn->state) == RDS_CONN_DEAD) {
			rds_queue_item_free(q);
			continue;
		}
		if (fence && conn->ep)
			conn->t->ops->fence(conn->ep);
		if (!answer_send_or_queue(conn, q))
			break;
		any = true;
	}
	/*
	 * Wakes a peer that waits for an answer.  If it is busy instead, its program looks by
	 * itself.
	 */
	if (any && conn->ep)
		conn->t->ops->flush(conn->ep, !(conn->t->ops->caps & RDS_TCAP_PATIENT));
}

void rds_op_answers_drop(struct rds_conn *conn)
{
	struct rds_conn_rdma *r = conn->rdma;
	struct rds_queue_item *q;

	if (!r)
		return;
	while ((q = r->answers)) {
		r->answers = q->next;
		rds_queue_item_free(q);
	}
	r->answers_tail = &r->answers;
	atomic_store(&conn->nanswers, 0);
}
