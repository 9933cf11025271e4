/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * requeue.c - takes messages of sockets out of a connection (send_queue.c): for another one, by port or
 * because no transport ever had them, or because the program cancels them.
 *
 * They are taken in order, without a number, as if they had just come from their sockets.  Of a
 * message that lies with the endpoint a copy is taken; its entry stays, without a socket, until it
 * is acknowledged.  The message of an operation is taken if the operation is known to have ended
 * well (rds_ops_judge(), when the connection breaks, or before): then only the message is left to
 * send.  Otherwise it stays, and is given up with the operation.  Must not know where the messages
 * go.  conn->tx held.
 */

#include <stdlib.h>

#include "engine/conn/client.h"

static bool unacked_may_go(const struct rds_queue_unacked *u)
{
	return rds_unacked_has_sender(u) && !u->cancelled && (!u->once || u->again) && !rds_unacked_aborted(u);
}

static bool unacked_is_to_port(const struct rds_queue_unacked *u, uint16_t port, uint64_t from)
{
	return unacked_may_go(u) && u->dport == port && u->seq >= from;
}

static bool unacked_is_for(const struct rds_queue_unacked *u, uint16_t port, uint32_t sock)
{
	return unacked_is_to_port(u, port, 0) && (!sock || !u->sock || u->sock == sock);
}

bool rds_queue_has_port(const struct rds_conn *conn, uint16_t port, uint32_t sock)
{
	const struct rds_queue_item *q;
	unsigned i;

	for (i = 0; i < conn->count; i++)
		if (unacked_is_for(rds_queue_unacked_at(conn, i), port, sock))
			return true;
	for (q = conn->queue; q; q = q->next)
		if (unacked_is_for(&q->u, port, sock))
			return true;
	return false;
}

/* As if the message had just come from its socket. */
static void item_make_new(struct rds_queue_item *q)
{
	q->next = NULL;
	q->u.given |= q->u.counted && q->was_sent;
	q->was_sent = false;
	q->hdr.flags = q->u.flags = 0;
	q->u.once = q->u.again = false;
	if (!(q->u.report & RDS_REPORT_END)) /* else u.async is the report of the message */
		q->u.op = 0;
}

/* Selects the messages that leave the queue. */
struct queue_wanted {
	bool (*is)(const struct rds_queue_item *q, const struct queue_wanted *w);
	bool (*is_unacked)(const struct rds_queue_unacked *u, const struct queue_wanted *w);
	struct rds_sock *sk;
	uint64_t from;
	uint16_t port;
};

static bool item_is_for_port(const struct rds_queue_item *q, const struct queue_wanted *w)
{
	return unacked_is_to_port(&q->u, w->port, w->from);
}

static bool item_is_unsent(const struct rds_queue_item *q, const struct queue_wanted *w)
{
	(void)w;
	return rds_unacked_has_sender(&q->u) && !q->was_sent && !q->u.once && !rds_unacked_aborted(&q->u);
}

static bool item_is_handoff(const struct rds_queue_item *q, const struct queue_wanted *w)
{
	return item_is_unsent(q, w) && q->u.sk == w->sk && !q->u.cancelled && !q->u.given && !q->op &&
	       !rds_queue_item_is_piece(q);
}

/* Moves the selected messages to *tail; returns the new tail. */
static struct rds_queue_item **queue_unlink_wanted(struct rds_conn *conn, struct rds_queue_item **tail,
						   const struct queue_wanted *w)
{
	struct rds_queue_item **p, *q;

	for (p = &conn->queue; (q = *p);) {
		if (!w->is(q, w)) {
			p = &q->next;
			continue;
		}
		*p = q->next;
		conn->queue_len--;
		item_make_new(q);
		*tail = q;
		tail = &q->next;
	}
	conn->queue_tail = p;
	return tail;
}

static bool item_may_go(const struct rds_queue_item *q, const struct queue_wanted *w)
{
	(void)w;
	return unacked_may_go(&q->u);
}

static bool unacked_is_for_port(const struct rds_queue_unacked *u, const struct queue_wanted *w)
{
	return unacked_is_to_port(u, w->port, w->from);
}

static bool unacked_is_any(const struct rds_queue_unacked *u, const struct queue_wanted *w)
{
	(void)w;
	return unacked_may_go(u);
}

/* False: no memory, nothing was taken. */
static bool queue_take(struct rds_conn *conn, const struct queue_wanted *w, struct rds_queue_item **list)
{
	struct rds_ep *ep = conn->ep ? conn->ep : conn->stale;
	struct rds_queue_item **tail = list, *q;
	unsigned i;

	*list = NULL;
	for (i = 0; i < conn->count; i++) {
		if (!w->is_unacked(rds_queue_unacked_at(conn, i), w))
			continue;
		q = rds_queue_item_copy(conn, ep, rds_queue_unacked_at(conn, i));
		if (!q) {
			while ((q = *list)) {
				*list = q->next;
				rds_queue_item_free(q);
			}
			return false;
		}
		item_make_new(q);
		*tail = q;
		tail = &q->next;
	}
	for (i = 0; i < conn->count; i++) {
		struct rds_queue_unacked *u = rds_queue_unacked_at(conn, i);

		if (!w->is_unacked(u, w))
			continue;
		u->sk = NULL; /* the copy counts for the socket now, and has the report */
		u->report = 0;
		u->op = 0;
		u->cancelled = true;
	}
	queue_unlink_wanted(conn, tail, w);
	return true;
}

bool rds_queue_take_port(struct rds_conn *conn, uint16_t port, uint64_t from, struct rds_queue_item **list)
{
	return queue_take(
		conn,
		&(struct queue_wanted){
			.is = item_is_for_port, .is_unacked = unacked_is_for_port, .port = port, .from = from},
		list);
}

bool rds_queue_take_all(struct rds_conn *conn, struct rds_queue_item **list)
{
	return queue_take(conn, &(struct queue_wanted){.is = item_may_go, .is_unacked = unacked_is_any}, list);
}

unsigned rds_queue_count_redirects(const struct rds_conn *conn)
{
	const struct rds_queue_item *q;
	unsigned i, n = 0;

	for (i = 0; i < conn->count; i++)
		n += (rds_queue_unacked_at(conn, i)->flags & RDS_FLAG_REDIRECT) != 0;
	for (q = conn->queue; q; q = q->next)
		n += (q->hdr.flags & RDS_FLAG_REDIRECT) != 0;
	return n;
}

void rds_queue_done_port(struct rds_conn *conn, uint16_t port, uint64_t before)
{
	struct rds_queue_item **p, *q;
	unsigned i;

	for (i = 0; i < conn->count; i++) {
		struct rds_queue_unacked *u = rds_queue_unacked_at(conn, i);

		if (u->seq >= before || !unacked_is_to_port(u, port, 0))
			continue;
		rds_queue_unacked_release(u);
		u->cancelled = true;
	}
	for (p = &conn->queue; (q = *p);) {
		if (q->u.seq < before && unacked_is_to_port(&q->u, port, 0))
			rds_queue_drop_at(conn, p);
		else
			p = &q->next;
	}
	conn->queue_tail = p;
}

struct rds_queue_item *rds_queue_take_unsent(struct rds_conn *conn)
{
	struct rds_queue_item *list = NULL;

	queue_unlink_wanted(conn, &list, &(struct queue_wanted){.is = item_is_unsent});
	return list;
}

void rds_queue_take_handoff(struct rds_conn *conn, struct rds_sock *sk, struct rds_queue_item **list)
{
	struct rds_queue_item *q;

	while (*list)
		list = &(*list)->next;
	queue_unlink_wanted(conn, list, &(struct queue_wanted){.is = item_is_handoff, .sk = sk});
	for (q = *list; q; q = q->next)
		q->handoff = (struct rds_queue_handoff){
			.to = {.ip = conn->id.faddr, .scope = conn->id.scope, .port = q->u.dport}, .tos = conn->id.tos};
}

/*
 * RDS_CANCEL_SENT_TO: drop waiting messages.  What the transport already has may still arrive, but
 * counts for no socket.
 */
void rds_queue_cancel(struct rds_conn *conn, struct rds_sock *sk, const struct rds_addr *dst)
{
	struct rds_queue_item **p, *q;
	unsigned i;

	if (!rds_ip_equal(&conn->id.faddr, &dst->ip))
		return;
	rx_lock();
	rds_conn_client.ops_cancel(conn, sk, dst->port);
	rx_unlock();
	for (i = 0; i < conn->count; i++) {
		struct rds_queue_unacked *u = rds_queue_unacked_at(conn, i);

		if (u->sk == sk && u->dport == dst->port) {
			rds_unacked_report_end(u, RDS_RDMA_CANCELED);
			rds_queue_unacked_release(u);
			u->cancelled = true;
		}
	}
	for (p = &conn->queue; (q = *p);) {
		if (q->u.sk == sk && q->u.dport == dst->port) {
			rds_unacked_report_end(&q->u, RDS_RDMA_CANCELED);
			rds_queue_drop_at(conn, p);
		} else {
			p = &q->next;
		}
	}
	conn->queue_tail = p;
	rds_queue_purge(conn, false); /* pieces have no socket */
}
