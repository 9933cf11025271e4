/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * send_queue.c - messages that a connection keeps: sent and not acknowledged (the transport retains
 * their bytes), and waiting (on the heap) because no endpoint takes them now.
 *
 * Sequence order always holds: every unacknowledged message is older than every waiting one, and
 * while any message waits, no other one overtakes it.  When the connection breaks, the
 * unacknowledged messages go back to the head of the queue, marked as retransmissions.  Without
 * memory for that they stay where they are, and the connection stays down until there is some.
 *
 * A message that was accepted from a program is given up only if it was cancelled, if the peer
 * process is gone, or if it belongs to an operation that has failed: no part of an operation is
 * sent twice, so the parts that the broken endpoint had are over.  Messages that no endpoint ever
 * had may still get later numbers (rdma/op_order.c).
 *
 * Must not know how bytes move, nor which thread waits.
 */

#include <stdlib.h>
#include <string.h>

#include "engine/conn/client.h"
#include "engine/conn/relay.h"

#define REAP_EVERY 32
/*
 * Many connections carry a few messages and no more.  A busy one has place for so many that a full
 * ring is no reason to look for acknowledgements more often than REAP_EVERY.
 */
#define UNACKED_START 1
#define UNACKED_BUSY 64

_Static_assert(RDS_SOCK_MESSAGE_COST >= sizeof(struct rds_queue_item), "as socket/refcount.c counts");

/* ---- sent, not acknowledged ---- */

static void unacked_compact(struct rds_conn *conn)
{
	unsigned i, n = 0;

	for (i = 0; i < conn->count; i++)
		if (!rds_queue_unacked_at(conn, i)->cancelled)
			*rds_queue_unacked_at(conn, n++) = *rds_queue_unacked_at(conn, i);
	conn->count = n;
}

/*
 * What is over stays behind a message that waits for an answer.  If that is half of the ring, there
 * is room without it.
 */
static int unacked_grow(struct rds_conn *conn)
{
	unsigned cap = conn->cap ? conn->cap * 2 : UNACKED_START, i, n = conn->count;
	struct rds_queue_unacked *a;

	unacked_compact(conn);
	if (conn->count < n && n - conn->count >= n / 2)
		return 0;
	a = malloc(cap * sizeof(*a));
	if (!a)
		return conn->count < n ? 0 : -ENOMEM;
	for (i = 0; i < conn->count; i++)
		a[i] = *rds_queue_unacked_at(conn, i);
	free(conn->unacked);
	conn->unacked = a;
	conn->cap = cap;
	conn->head = 0;
	return 0;
}

int rds_queue_unacked_more(struct rds_conn *conn)
{
	if (conn->cap < UNACKED_BUSY && !unacked_grow(conn))
		return 0;
	rds_queue_reap(conn);
	return conn->count < conn->cap ? 0 : unacked_grow(conn);
}

void rds_queue_unacked_pushed(struct rds_conn *conn)
{
	conn->count++;
	rds_queue_busy_add(conn);
	if (++conn->since_reap >= REAP_EVERY)
		rds_queue_reap(conn);
}

static void sock_zcopy_done(struct rds_sock *sk, uint32_t cookie)
{
	struct rds_sock_zcopy *z;

	rx_lock();
	z = sk->zhead && sk->ztail != &sk->zhead ? container_of(sk->ztail, struct rds_sock_zcopy, next) : NULL;
	if (!z || z->cookies.num == RDS_MAX_ZCOOKIES) {
		z = calloc(1, sizeof(*z));
		if (!z) {
			rx_unlock();
			rds_error("out of memory: zero-copy completion %u is not reported", cookie);
			return;
		}
		*sk->ztail = z;
		sk->ztail = &z->next;
	}
	z->cookies.cookies[z->cookies.num++] = cookie;
	rds_sock_wake(sk, POLLIN | POLLRDNORM);
	rx_unlock();
}

void rds_queue_unacked_release(struct rds_queue_unacked *u)
{
	struct rds_sock *sk = u->sk;

	if (!sk)
		return;
	if (unlikely(u->report)) {
		rds_unacked_report_end(u, RDS_RDMA_SUCCESS);
		if ((u->report & RDS_REPORT_ZCOPY) && atomic_load(&sk->open))
			sock_zcopy_done(sk, u->zcookie);
	}
	u->sk = NULL;
	rds_sock_snd_sub(sk, 1, u->len);
}

/*
 * Is the first message over?  The peer acknowledges it even if it has refused its operation.  So a
 * message that is reported with its operations is over when they have been answered.
 */
static bool queue_first_over(const struct rds_conn *conn, uint64_t acked)
{
	const struct rds_queue_unacked *u = &conn->unacked[conn->head];

	return conn->count && u->seq <= acked && !rds_unacked_unanswered(u);
}

/* A run of acknowledged messages of one socket: accounted for together. */
static void queue_release_run(struct rds_conn *conn, uint64_t acked)
{
	struct rds_sock *sk = conn->unacked[conn->head].sk;
	uint64_t bytes = 0;
	unsigned n = 0;

	do {
		struct rds_queue_unacked *u = &conn->unacked[conn->head];

		if (unlikely(u->report) && u->sk)
			rds_queue_unacked_release(u); /* has a report of its own */
		else if (u->sk) {
			bytes += u->len;
			n++;
		}
		conn->head = (conn->head + 1) & (conn->cap - 1);
		conn->count--;
	} while (queue_first_over(conn, acked) && conn->unacked[conn->head].sk == sk);
	if (n)
		rds_sock_snd_sub(sk, n, bytes);
}

static unsigned unacked_first_after(const struct rds_conn *conn, uint64_t seq)
{
	unsigned from = 0, to = conn->count, mid;

	while (from < to) {
		mid = from + (to - from) / 2;
		if (rds_queue_unacked_at(conn, mid)->seq > seq)
			to = mid;
		else
			from = mid + 1;
	}
	return from;
}

/*
 * The first message waits for an answer.  Messages behind it are over, except those that are
 * reported with operations: their reports keep the order.  Each is looked at once: not again those
 * up to `before`, which was acknowledged earlier.
 */
static void queue_release_behind(struct rds_conn *conn, uint64_t before, uint64_t acked)
{
	unsigned i = unacked_first_after(conn, before);

	for (i += !i; i < conn->count; i++) {
		struct rds_queue_unacked *u = rds_queue_unacked_at(conn, i);

		if (u->seq > acked)
			return;
		if (u->cancelled || (u->once && (u->report & RDS_REPORT_END)))
			continue;
		rds_queue_unacked_release(u);
		u->cancelled = true;
	}
}

/*
 * The endpoint is treated as broken, whatever else it has acknowledged.  No message is lost: all of
 * them are kept and sent again.
 */
static void conn_distrust_ack(struct rds_conn *conn, uint64_t ack)
{
	char to[RDS_ADDR_STRLEN];

	atomic_store(&conn->ack_lied, true);
	rds_timer_set(&conn->retry, os_now_ns());
	if (conn->ack_lie_logged)
		return;
	conn->ack_lie_logged = true;
	rds_ip_str(&conn->id.faddr, to);
	rds_warn("a process of %s acknowledges message %llu, %llu is the last that was sent to it: connection closed",
		 to, (unsigned long long)ack, (unsigned long long)atomic_load(&conn->sent));
}

uint64_t rds_queue_sent(struct rds_conn *conn)
{
	return atomic_load_explicit(&conn->sent, memory_order_relaxed);
}

void rds_queue_reap(struct rds_conn *conn)
{
	uint64_t acked, before = conn->acked;

	conn->since_reap = 0;
	if (conn->st_queued) {
		RDS_STAT_ADD(send_queued, conn->st_queued);
		RDS_STAT_ADD(copy_from_user, conn->st_bytes);
		conn->st_queued = conn->st_bytes = 0;
	}
	if (!conn->ep || !conn->count || unlikely(atomic_load_explicit(&conn->ack_lied, memory_order_relaxed)))
		return;
	acked = conn->t->ops->acked(conn->ep);
	if (unlikely(acked > rds_queue_sent(conn))) {
		conn_distrust_ack(conn, acked);
		return;
	}
	if (acked > before)
		conn->acked = acked;
	if (unlikely(conn->relay >= RDS_RELAY_MEMBER))
		rds_relay_acked(conn);
	while (queue_first_over(conn, acked))
		queue_release_run(conn, acked);
	if (unlikely(conn->count && conn->unacked[conn->head].seq <= acked))
		queue_release_behind(conn, before, acked);
}

/* ---- waiting ---- */

void rds_queue_append(struct rds_conn *conn, struct rds_queue_item *q)
{
	q->next = NULL;
	*conn->queue_tail = q;
	conn->queue_tail = &q->next;
	conn->queue_len++;
	rds_queue_busy_add(conn);
}

void rds_queue_answer_end(struct rds_queue_item *q)
{
	if (unlikely(q->answers))
		atomic_fetch_sub(&q->answers->answer_bytes, rds_queue_answer_weight(q));
	q->answers = NULL;
}

void rds_queue_answer_add(struct rds_conn *conn, struct rds_queue_item *q)
{
	rds_queue_answer_end(q);
	q->answers = conn;
	atomic_fetch_add(&conn->answer_bytes, rds_queue_answer_weight(q));
}

void rds_queue_item_free(struct rds_queue_item *q)
{
	if (unlikely(q->op))
		rds_conn_client.item_leaves(q);
	rds_queue_answer_end(q);
	if (unlikely(q->ref))
		rds_trunk_drop(q->ref);
	free(q);
}

static void queue_pop(struct rds_conn *conn)
{
	struct rds_queue_item *q = conn->queue;

	conn->queue = q->next;
	if (!conn->queue) {
		conn->queue_tail = &conn->queue;
		conn->pulled = false;
	}
	conn->queue_len--;
	rds_queue_item_free(q);
}

/*
 * For messages with a report of their end (rdma/async_send.c) the receiver decides: it drops them,
 * which is no failure.
 */
static bool queue_item_wanted(const struct rds_conn *conn, struct rds_queue_item *q)
{
	if (unlikely(q->holds))
		return !conn->acked;
	if (unlikely(q->op))
		return rds_conn_client.item_wanted(q);
	return q->u.op || q->u.report || likely(!rds_queue_item_outlived(conn, q));
}

static bool queue_item_may_go(struct rds_conn *conn, struct rds_queue_item *q)
{
	if (unlikely(q->holds))
		return !q->was_sent;
	if (unlikely(rds_conn_is_held(conn)))
		return q->was_sent || q->u.given || (q->hdr.flags & RDS_FLAG_REDIRECT); /* for the owner itself */
	return !q->op || rds_conn_client.item_may_send(conn, q);
}

/*
 * The first message that is still to be sent.  Messages of failed operations, and for sockets that
 * are gone, are dropped.  NULL: there is none, or it may not go now.
 */
static struct rds_queue_item *queue_first(struct rds_conn *conn)
{
	struct rds_queue_item *q;

	while ((q = conn->queue)) {
		if (likely(queue_item_wanted(conn, q)))
			return queue_item_may_go(conn, q) ? q : NULL;
		rds_queue_unacked_release(&q->u);
		queue_pop(conn);
	}
	return q;
}

bool rds_queue_blocked(struct rds_conn *conn)
{
	return conn->queue && atomic_load(&conn->state) == RDS_CONN_UP && !queue_first(conn) && conn->queue;
}

/* The same, or a message that may overtake it.  Nothing overtakes a node's first probe (node.c). */
static struct rds_queue_item *queue_next(struct rds_conn *conn)
{
	struct rds_queue_item *q;

	while (!(q = queue_first(conn)) && conn->queue)
		if (conn->queue->holds || rds_conn_is_held(conn) || !rds_conn_client.queue_pass(conn))
			return NULL;
	return q;
}

/* 0: sent; 1: its operation has failed; -errno: not now */
static int queue_give(struct rds_conn *conn, struct rds_queue_item *q)
{
	bool piece = q->op && rds_queue_item_is_piece(q);
	bool began = false;
	struct rds_wire_hdr wire;
	struct iovec iov;
	void *bytes;
	int err;

	if (piece)
		rds_conn_client.item_sending(conn, q);
	bytes = piece ? rds_conn_client.item_gather(conn, q, &began) : q->data;
	iov = (struct iovec){.iov_base = bytes, .iov_len = q->hdr.len};
	if (!bytes)
		return 1;
	rds_conn_hdr_fit(conn, &q->hdr, q->u.sk);
	q->hdr.sock = rds_queue_item_sock(conn, q);
	rds_wire_hdr_encode(&q->hdr, &wire, false);
	rds_conn_note_sending(conn, q->u.seq);
	err = rds_conn_xmit_ep(conn, &wire, &iov, q->hdr.len, &q->u.pos);
	if (likely(!err))
		rds_conn_hdr_given(conn, q->u.sk);
	if (piece) {
		free(bytes);
		if (err)
			rds_conn_client.item_unsent(q, began);
	}
	return err;
}

/* True: up to one that holds those behind it until it is acknowledged. */
static bool queue_flush_run(struct rds_conn *conn)
{
	const struct rds_transport_ops *ops = conn->t->ops;
	bool sent = false, told = false, held = false;
	struct rds_queue_item *q;
	int err;

	while ((q = queue_next(conn))) {
		if (rds_queue_unacked_room(conn))
			break;
		err = queue_give(conn, q);
		if (err < 0)
			break;
		if (err) {
			queue_pop(conn);
			continue;
		}
		q->u.flags = q->hdr.flags;
		told |= q->u.report & RDS_REPORT_END;
		if (ops->caps & RDS_TCAP_DIRECT)
			rds_queue_unacked_release(&q->u);
		else
			rds_queue_unacked_push(conn, &q->u);
		sent = true;
		if (unlikely(q->holds)) {
			q->was_sent = told = held = true;
			break;
		}
		queue_pop(conn);
	}
	if (sent)
		ops->flush(conn->ep, true);
	if (unlikely(told))
		rds_queue_ask_acks(conn);
	return held;
}

void rds_queue_flush(struct rds_conn *conn)
{
	if (!conn->queue || atomic_load(&conn->state) != RDS_CONN_UP)
		return;
	/* an acknowledgement that is there already is announced to nobody */
	while (unlikely(queue_flush_run(conn)) && queue_first(conn))
		;
}

struct rds_queue_item *rds_queue_item_copy(struct rds_conn *conn, struct rds_ep *ep, const struct rds_queue_unacked *u)
{
	/* Of one that is acknowledged only the end is still to be told: it is not sent again. */
	const bool gone = u->seq <= conn->acked;
	const uint32_t len = gone ? 0 : u->len;
	const void *bytes = gone ? "" : rds_transport_ep_ops(ep)->retained(ep, u->pos);
	struct rds_queue_item *q = bytes ? malloc(sizeof(*q) + len) : NULL;

	if (!q)
		return NULL;
	q->u = *u;
	if (unlikely(u->again) && !(u->report & RDS_REPORT_END))
		q->u.op = 0; /* already settled (rds_ops_judge()) */
	q->was_sent = true;
	q->port_asked = q->holds = false;
	q->meant_slot = rds_conn_others_slot(conn);
	q->meant_gen = 0;
	q->hdr = (struct rds_hdr){.seq = u->seq,
				  .len = len,
				  .sport = u->sport,
				  .dport = u->dport,
				  .flags = (uint8_t)(u->flags | RDS_FLAG_RETRANSMITTED | RDS_FLAG_ACK_REQUIRED),
				  .ext_type = u->ext_type,
				  .ext_rkey = u->ext_rkey,
				  .ext_offset = u->ext_offset};
	q->op = NULL;
	q->answers = NULL;
	q->ref = NULL;
	if (rds_conn_is_node(conn))
		q->hdr.flags = RDS_FLAG_RETRANSMITTED; /* the rest means nothing there */
	if (unlikely(u->flags & RDS_FLAG_REDIRECT) || rds_unacked_is_relayed(u))
		rds_queue_answer_add(conn, q);
	memcpy(q->data, bytes, len);
	return q;
}

/*
 * The endpoint broke: unacknowledged messages are sent again, before every waiting one, in order.
 * They are taken from the newest to the oldest, so that the order holds at any time.  False: no
 * memory, the rest is still in ep.  While there is memory for some, it is soon tried again: with a
 * pause that doubles each time, many messages would take minutes.
 */
bool rds_queue_requeue(struct rds_conn *conn, struct rds_ep *ep)
{
	const unsigned before = conn->count;

	conn->owners_told = 0; /* what has told the peer may not come */
	for (; conn->count; conn->count--) {
		struct rds_queue_unacked *u = rds_queue_unacked_at(conn, conn->count - 1);
		struct rds_queue_item *q;

		if (u->cancelled) /* the peer accepts gaps in sequence numbers */
			continue;
		if (unlikely(u->once) && !u->again && !(u->report & RDS_REPORT_END)) {
			rds_queue_unacked_release(u);
			continue;
		}
		q = rds_queue_item_copy(conn, ep, u);
		if (!q) {
			if (conn->count < before)
				conn->backoff_ms = 0;
			return false;
		}
		q->next = conn->queue;
		if (!conn->queue)
			conn->queue_tail = &q->next;
		conn->queue = q;
		conn->queue_len++;
		rds_queue_busy_add(conn);
	}
	conn->head = 0;
	return true;
}

/* Drops the message at *link. */
void rds_queue_drop_at(struct rds_conn *conn, struct rds_queue_item **link)
{
	struct rds_queue_item *q = *link;

	*link = q->next;
	conn->queue_len--;
	rds_queue_unacked_release(&q->u);
	rds_queue_item_free(q);
}

void rds_queue_purge(struct rds_conn *conn, bool answers)
{
	struct rds_queue_item **p = &conn->queue, *q;

	while ((q = *p)) {
		if (!rds_unacked_aborted(&q->u) && /* else it ends in its turn (rdma/op_flush.c) */
		    (q->op ? !rds_conn_client.item_wanted(q) : answers && rds_queue_item_is_piece(q)))
			rds_queue_drop_at(conn, p);
		else
			p = &q->next;
	}
	conn->queue_tail = p;
}

bool rds_queue_note_received(struct rds_conn *conn, struct rds_received there)
{
	if (unlikely(there.acked > there.all || there.all > rds_queue_sent(conn)))
		return false;
	if (there.acked > conn->acked)
		conn->acked = there.acked;
	if (there.all > conn->received)
		conn->received = there.all;
	return true;
}

/* The endpoint is up, and the peer has told what it has: these messages need not be sent again. */
void rds_queue_acked(struct rds_conn *conn, struct rds_received there)
{
	if (unlikely(!rds_queue_note_received(conn, there))) {
		conn_distrust_ack(conn, there.all);
		return;
	}
	while (conn->queue && conn->queue->u.seq <= there.acked) {
		rds_queue_unacked_release(&conn->queue->u);
		queue_pop(conn);
	}
	if (unlikely(conn->aborted))
		rds_conn_client.queue_drop_aborted(conn, there.all);
}

/*
 * The peer process has ended.  It may have accepted the messages that a transport had, and the next
 * owner of its socket may have them by now (shutdown.c).  Where endpoints are memory that outlives
 * the peer, it is known what it had accepted.
 */
static int queue_lost_as(const struct rds_conn *conn, const struct rds_queue_unacked *u)
{
	bool known = (conn->t->ops->caps & RDS_TCAP_SURVIVES) && !conn->ack_unknown;

	return known && u->seq > conn->acked && u->seq > conn->received ? RDS_RDMA_DROPPED : RDS_RDMA_OTHER_ERROR;
}

void rds_queue_drop_all(struct rds_conn *conn)
{
	while (conn->count) {
		struct rds_queue_unacked *u = &conn->unacked[conn->head];

		rds_unacked_report_end(u, queue_lost_as(conn, u));
		rds_queue_unacked_release(u);
		conn->head = (conn->head + 1) & (conn->cap - 1);
		conn->count--;
	}
	while (conn->queue) {
		struct rds_queue_item *q = conn->queue;

		rds_unacked_report_end(&q->u, q->was_sent ? queue_lost_as(conn, &q->u) : RDS_RDMA_DROPPED);
		rds_queue_unacked_release(&q->u);
		queue_pop(conn);
	}
}
