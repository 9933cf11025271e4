/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * handoff_unsent.c - unsent messages: the program has sent them, but no transport was offered them
 * when the owner stops waiting and hands the socket off (handoff_out.c). They are parked with the
 * socket, and the next owner sends them before any newer message.
 *
 * A message is parked only if no endpoint ever had it. Of any other message this process can never
 * know that the receiver will not get it, and parking it would send it twice. A message in memory
 * that outlives this process arrives without it. Messages that wait for RDMA operations stay, and
 * end with these operations, because regions and memory are this process's.
 *
 * The messages are taken off the connections before another process can have them. They are kept
 * until this process ends, because it may yet go on (an exec that fails). Then it sends them
 * itself, unless another process has taken the socket. They are in the order of each connection.
 * Messages of connections that only wait for room come before those that wait for their port to be
 * found: for the same port, the latter are newer (conn/route.c).
 *
 * This may run in the _exit() of a signal handler: taking and writing messages needs no memory.
 * Must not know how a socket is handed off.
 */
#include "engine/share/handoff.h"

#include <stdlib.h>
#include <string.h>

#include "engine/conn/outgoing.h"
#include "engine/rdma/rdma.h"

/* ---- the process that hands off ---- */

static bool unsent_end_is_reported(const struct rds_queue_item *q)
{
	return q->u.report & RDS_REPORT_END;
}

unsigned rds_handoff_unsent_take(struct rds_sock *sk)
{
	struct rds_conn *conn;
	struct rds_queue_item *q;
	struct rds_op *op;
	unsigned n = 0;
	int last;

	if (!(atomic_load(&sk->snd) & ~RDS_SND_DEAD))
		return 0;
	for (last = 0; last < 2; last++)
		for (conn = rds_conn_list; conn; conn = conn->next) {
			if ((conn->kind == RDS_CONN_UNROUTED) != last)
				continue;
			rds_lock(&conn->tx);
			rds_queue_take_handoff(conn, sk, &sk->handoff);
			rds_unlock(&conn->tx);
		}
	rx_lock();
	for (q = sk->handoff; q; q = q->next, n++)
		if (unsent_end_is_reported(q)) {
			q->handoff.token = q->u.async->token;
			q->handoff.notify = q->u.async->notify;
			for (op = q->u.async; op; op = op->message_next)
				op->handed_off = true;
		}
	rx_unlock();
	return n;
}

static bool unsent_put_one(const struct rds_queue_item *q, int fd, off_t *size)
{
	struct rds_share_unsent m;

	memset(&m, 0, sizeof(m));
	m.to = q->handoff.to;
	m.tos = q->handoff.tos;
	m.len = q->hdr.len;
	m.sock = q->u.counted ? 0 : q->u.sock;
	m.told = q->u.report;
	if (q->u.report & RDS_REPORT_ZCOPY)
		m.zcookie = q->u.zcookie;
	m.token = q->handoff.token;
	m.notify = q->handoff.notify;
	m.has_cookie = q->hdr.ext_type == RDS_EXTHDR_RDMA_DEST;
	if (m.has_cookie)
		m.cookie = rds_cookie(q->hdr.ext_rkey, q->hdr.ext_offset);
	return rds_handoff_put(fd, size, &m, sizeof(m), q->data, m.len, "unsent messages");
}

uint32_t rds_handoff_unsent_put(const struct rds_sock *sk, int fd, off_t *size)
{
	const struct rds_queue_item *q;
	uint32_t n = 0;

	for (q = sk->handoff; q && unsent_put_one(q, fd, size); q = q->next)
		n++;
	return n;
}

/* ---- the process that takes over ---- */

static bool unsent_is_sound(const struct rds_share_unsent *m, size_t left)
{
	return m->len <= RDS_MAX_MSG && m->len <= left && !(m->told & ~(RDS_REPORT_ZCOPY | RDS_REPORT_END));
}

static struct rds_queue_item *unsent_make_queued(const struct rds_share_unsent *m, const void *bytes)
{
	struct rds_queue_item *q = calloc(1, sizeof(*q) + m->len);

	if (!q)
		return NULL;
	q->handoff = (struct rds_queue_handoff){.to = m->to, .token = m->token, .tos = m->tos, .notify = m->notify};
	q->u.sock = m->sock;
	q->u.report = m->told;
	q->u.len = q->hdr.len = m->len;
	q->u.dport = q->hdr.dport = m->to.port;
	if (m->told & RDS_REPORT_ZCOPY) {
		q->u.zcookie = m->zcookie;
	} else if (m->has_cookie) {
		q->u.ext_type = q->hdr.ext_type = RDS_EXTHDR_RDMA_DEST;
		q->u.ext_rkey = q->hdr.ext_rkey = rds_cookie_rkey(m->cookie);
		q->u.ext_offset = q->hdr.ext_offset = rds_cookie_offset(m->cookie);
	}
	memcpy(q->data, bytes, m->len);
	return q;
}

int rds_handoff_unsent_get(struct rds_sock *sk, const char **at, const char *end, uint32_t n)
{
	struct rds_queue_item **tail = &sk->handoff;
	struct rds_share_unsent m;

	for (; n; n--) {
		if ((size_t)(end - *at) < sizeof(m))
			return -EPROTO;
		memcpy(&m, *at, sizeof(m));
		*at += sizeof(m);
		if (!unsent_is_sound(&m, (size_t)(end - *at)))
			return -EPROTO;
		*tail = unsent_make_queued(&m, *at);
		if (!*tail)
			return -ENOMEM;
		tail = &(*tail)->next;
		*at += m.len;
	}
	return 0;
}

/* Without memory the program gets no notification of the message's end. */
static void unsent_report_end(struct rds_sock *sk, struct rds_queue_item *q)
{
	q->u.async = rds_op_async_new(sk, q->handoff.token, q->handoff.notify);
	if (q->u.async) {
		q->u.async->to = q->handoff.to.ip;
		return;
	}
	q->u.report &= (uint8_t)~RDS_REPORT_END;
	rds_error("out of memory: the outcome of a message is not reported");
}

static void unsent_set_sender(struct rds_sock *sk, struct rds_queue_item *q, bool counted)
{
	struct rds_op *op;

	q->u.sk = sk;
	q->u.sport = q->hdr.sport = sk->laddr.port;
	if (!counted)
		rds_sock_snd_add(sk, q->u.len);
	if (!unsent_end_is_reported(q))
		return;
	if (!counted) {
		unsent_report_end(sk, q);
		return;
	}
	rx_lock();
	for (op = q->u.async; op; op = op->message_next)
		op->handed_off = false;
	rx_unlock();
}

/* Removes the first messages from the list, as far as address and type of service are the same. */
static struct rds_queue_item *unsent_take_run(struct rds_queue_item **list)
{
	struct rds_queue_item *run = *list, *q = run;

	while (q->next && rds_ip_equal(&q->next->handoff.to.ip, &run->handoff.to.ip) &&
	       q->next->handoff.to.scope == run->handoff.to.scope && q->next->handoff.tos == run->handoff.tos)
		q = q->next;
	*list = q->next;
	q->next = NULL;
	return run;
}

static void unsent_lose_list(struct rds_queue_item *list)
{
	struct rds_queue_item *q;

	rds_error("out of memory: unsent messages of an RDS socket that was taken over are lost");
	while ((q = list)) {
		list = q->next;
		rds_unacked_report_end(&q->u, RDS_RDMA_DROPPED);
		rds_queue_unacked_release(&q->u);
		rds_queue_item_free(q);
	}
}

void rds_handoff_unsent_send(struct rds_sock *sk, bool counted)
{
	struct rds_queue_item *list = sk->handoff, *run, *q;

	sk->handoff = NULL;
	while (list) {
		struct rds_conn_id id = {.laddr = sk->laddr.ip,
					 .faddr = list->handoff.to.ip,
					 .scope = list->handoff.to.scope,
					 .tos = list->handoff.tos};

		run = unsent_take_run(&list);
		for (q = run; q; q = q->next)
			unsent_set_sender(sk, q, counted);
		if (!rds_route_send_list(&id, run, atomic_load(&sk->transport) == RDS_TRANS_IB))
			unsent_lose_list(run);
	}
}

static void unsent_discard_ops(struct rds_op *op)
{
	struct rds_op *next;

	for (; op; op = next) {
		next = op->message_next;
		rds_op_async_discard(op);
	}
}

void rds_handoff_unsent_drop(struct rds_sock *sk, bool counted)
{
	struct rds_queue_item *q;

	while ((q = sk->handoff)) {
		sk->handoff = q->next;
		if (counted) {
			if (unsent_end_is_reported(q))
				unsent_discard_ops(q->u.async);
			q->u.report = 0;
			rds_queue_unacked_release(&q->u);
		}
		rds_queue_item_free(q);
	}
}
