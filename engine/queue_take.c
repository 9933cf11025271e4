/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * queue_take.c - what a connection keeps (queue.c) and another one is to have: messages of sockets, by their ports or because no transport ever
 * had them.
 *
 * They are taken in order, as if they had just come from their sockets, without a number; what of them lies with the endpoint is copied, and its
 * entry stays until it is acknowledged, for nobody.  The message of an operation is taken if that has been found to have ended well (rds_ops_judge, when the
 * connection breaks, or before): then nothing else of it is left to do.  Otherwise it stays, and is given up with the operation.
 * Must not know where they go.  conn->tx held.
 */
#include "engine/rdma.h"

#include <stdlib.h>

static bool to_port(const struct rds_unacked *u, uint16_t port, uint64_t from)
{
	return u->sk && !u->cancelled && (!u->once || u->again) && !rds_unacked_given_up(u) && u->dport == port &&
	       u->seq >= from;
}

static struct rds_unacked *nth_unacked(const struct rds_conn *conn, unsigned i)
{
	return &conn->unacked[(conn->head + i) & (conn->cap - 1)];
}

bool rds_queue_has(const struct rds_conn *conn, uint16_t port)
{
	const struct rds_queued *q;
	unsigned i;

	for (i = 0; i < conn->count; i++)
		if (to_port(nth_unacked(conn, i), port, 0))
			return true;
	for (q = conn->queue; q; q = q->next)
		if (to_port(&q->u, port, 0))
			return true;
	return false;
}

/* As if it had just come from its socket. */
static void made_new(struct rds_queued *q)
{
	q->next = NULL;
	q->was_sent = false;
	q->hdr.flags = q->u.flags = q->hdr.flags & RDS_FLAG_NEW_OWNER;
	q->u.once = q->u.again = false;
	if (!(q->u.told & RDS_TOLD_END)) /* else it says what becomes of the message */
		q->u.op = 0;
}

/* Which messages leave the queue. */
struct wanted {
	bool (*is)(const struct rds_queued *q, const struct wanted *w);
	struct rds_sock *sk;
	uint64_t from;
	uint16_t port;
};

static bool is_for_port(const struct rds_queued *q, const struct wanted *w)
{
	return to_port(&q->u, w->port, w->from);
}

static bool is_unsent(const struct rds_queued *q, const struct wanted *w)
{
	(void)w;
	return q->u.sk && !q->was_sent && !q->u.once && !rds_unacked_given_up(&q->u);
}

static bool goes_along(const struct rds_queued *q, const struct wanted *w)
{
	return is_unsent(q, w) && q->u.sk == w->sk && !q->u.cancelled && !q->op && !(q->hdr.flags & RDS_FLAG_OP);
}

/* They leave it for *tail; returns the new tail. */
static struct rds_queued **unqueue(struct rds_conn *conn, struct rds_queued **tail, const struct wanted *w)
{
	struct rds_queued **p, *q;

	for (p = &conn->queue; (q = *p);) {
		if (!w->is(q, w)) {
			p = &q->next;
			continue;
		}
		*p = q->next;
		conn->queue_len--;
		made_new(q);
		*tail = q;
		tail = &q->next;
	}
	conn->queue_tail = p;
	return tail;
}

bool rds_queue_take(struct rds_conn *conn, uint16_t port, uint64_t from, struct rds_queued **list)
{
	struct rds_ep *ep = conn->ep ? conn->ep : conn->stale;
	struct rds_queued **tail = list, *q;
	unsigned i;

	*list = NULL;
	for (i = 0; i < conn->count; i++) {
		if (!to_port(nth_unacked(conn, i), port, from))
			continue;
		q = rds_queued_again(conn, ep, nth_unacked(conn, i));
		if (!q) {
			while ((q = *list)) {
				*list = q->next;
				free(q);
			}
			return false;
		}
		made_new(q);
		*tail = q;
		tail = &q->next;
	}
	for (i = 0; i < conn->count; i++) {
		struct rds_unacked *u = nth_unacked(conn, i);

		if (!to_port(u, port, from))
			continue;
		u->sk = NULL; /* the copy counts for the socket now, and says what becomes of it */
		u->told = 0;
		u->op = 0;
		u->cancelled = true;
	}
	unqueue(conn, tail, &(struct wanted){.is = is_for_port, .port = port, .from = from});
	return true;
}

unsigned rds_queue_notices(const struct rds_conn *conn)
{
	const struct rds_queued *q;
	unsigned i, n = 0;

	for (i = 0; i < conn->count; i++)
		n += (nth_unacked(conn, i)->flags & RDS_FLAG_REDIRECT) != 0;
	for (q = conn->queue; q; q = q->next)
		n += (q->hdr.flags & RDS_FLAG_REDIRECT) != 0;
	return n;
}

void rds_queue_done(struct rds_conn *conn, uint16_t port, uint64_t before)
{
	struct rds_queued **p, *q;
	unsigned i;

	for (i = 0; i < conn->count; i++) {
		struct rds_unacked *u = nth_unacked(conn, i);

		if (u->seq >= before || !to_port(u, port, 0))
			continue;
		rds_release_unacked(u);
		u->cancelled = true;
	}
	for (p = &conn->queue; (q = *p);) {
		if (q->u.seq < before && to_port(&q->u, port, 0))
			rds_queue_drop_at(conn, p);
		else
			p = &q->next;
	}
	conn->queue_tail = p;
}

struct rds_queued *rds_queue_take_unsent(struct rds_conn *conn)
{
	struct rds_queued *list = NULL;

	unqueue(conn, &list, &(struct wanted){.is = is_unsent});
	return list;
}

void rds_queue_take_along(struct rds_conn *conn, struct rds_sock *sk, struct rds_queued **list)
{
	struct rds_queued *q;

	while (*list)
		list = &(*list)->next;
	unqueue(conn, list, &(struct wanted){.is = goes_along, .sk = sk});
	for (q = *list; q; q = q->next)
		q->going = (struct rds_going){.to = {.ip = conn->id.faddr, .scope = conn->id.scope, .port = q->u.dport},
					      .tos = conn->id.tos};
}
