/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * closed_sockets.c - messages that are still queued here when their socket is closed.
 *
 * The kernel drops all of them (net/rds/send.c: rds_send_drop_to()).  Here they are still sent
 * (socket/refcount.c), within limits: otherwise a program that opens a socket for each message,
 * each with an SNDBUF of its own, would fill its memory.
 *
 * - Messages that no peer is there to take would wait for ever: they are dropped, as soon as that is known.
 * - For a peer that is stopped, or slower than the program, messages of closed sockets may take
 *   CLOSED_MAX, the sockets themselves included.  Above that, the unsent messages of the next
 *   closed socket are dropped.  Its own messages do not count.  So a program with few sockets loses
 *   none, whatever SNDBUF it has set.
 *
 * To find out how much waits, all of the queue has to be read.  So the memory of all closed sockets
 * is counted as it comes and goes (socket/refcount.c), and no queue is read while that is little.
 * Must not know why anything waits.
 */
#include "engine/conn/client.h"
#include "engine/node/local_address.h"

#define CLOSED_MAX ((uint64_t)64 << 20)

/* One that is handed off is another process's soon, with its messages. */
static bool sock_is_closed(const struct rds_sock *sk)
{
	return !atomic_load(&sk->open) && !atomic_load(&sk->handing_off);
}

/* conn->tx held */
static void queue_drop_sock(struct rds_conn *conn, const struct rds_sock *sk, bool sent)
{
	struct rds_queue_item **p, *q;

	for (p = &conn->queue; (q = *p);) {
		if (q->u.sk == sk && (sent || !q->was_sent)) {
			rds_unacked_report_end(&q->u, RDS_RDMA_CANCELED);
			rds_queue_drop_at(conn, p);
		} else {
			p = &q->next;
		}
	}
	conn->queue_tail = p;
	/* pieces have no socket; their operations have ended */
	if (atomic_load(&sk->had_ops))
		rds_queue_purge(conn, false);
}

/* Have closed sockets other than `but` left too much here? */
static bool queue_closed_too_much(const struct rds_conn *conn, const struct rds_sock *but)
{
	const struct rds_sock *sk, *last = NULL;
	const struct rds_queue_item *q;
	uint64_t n = 0;

	for (q = conn->queue; q && n <= CLOSED_MAX; q = q->next) {
		sk = q->u.sk;
		if (!sk || sk == but || atomic_load_explicit(&sk->open, memory_order_relaxed))
			continue;
		n += sizeof(*q) + q->hdr.len + (sk != last ? sizeof(*sk) : 0);
		last = sk;
	}
	return n > CLOSED_MAX;
}

/*
 * While the same message is first and no fewer are queued, none has left since the last look.
 * conn->tx held
 */
static bool queue_is_crowded(struct rds_conn *conn, const struct rds_sock *but)
{
	if (!conn->queue)
		return false;
	if (conn->queue->u.seq == conn->closed_seq && conn->queue_len >= conn->closed_len)
		return true;
	if (!queue_closed_too_much(conn, but))
		return false;
	conn->closed_seq = conn->queue->u.seq;
	conn->closed_len = conn->queue_len;
	return true;
}

/* conn->tx held */
static void queue_drop_if_crowded(struct rds_conn *conn, const struct rds_sock *sk)
{
	unsigned n = conn->queue_len;
	char to[RDS_ADDR_STRLEN];

	if (!queue_is_crowded(conn, sk))
		return;
	queue_drop_sock(conn, sk, false);
	if (conn->queue_len == n)
		return;
	if (conn->closed_len > conn->queue_len)
		conn->closed_len = conn->queue_len;
	rds_ip_str(&conn->id.faddr, to);
	rds_warn("closed sockets have left more than %u MiB for %s, where nothing is received (is a process stopped "
		 "there?): further messages are dropped when their socket is closed, as in the kernel",
		 (unsigned)(CLOSED_MAX >> 20), to);
}

/*
 * For all we know no host has the address: none was reached there ever, or, before the first attempt has ended,
 * there is no way.  tx held.
 */
static bool node_is_none(const struct rds_conn *conn)
{
	const uint8_t node = atomic_load(&conn->node);

	if (!conn->queue || !rds_conn_leads_to_node(conn))
		return false;
	if (node & (RDS_NODE_MET | RDS_NODE_FAILED))
		return !(node & RDS_NODE_MET);
	return !rds_node_addr_has_way(&conn->id.laddr, &conn->id.faddr, conn->id.scope);
}

void rds_conn_drop_closed(struct rds_conn *conn)
{
	struct rds_queue_item **p, *q;

	if ((atomic_load(&conn->node) & (RDS_NODE_MET | RDS_NODE_FAILED)) != RDS_NODE_FAILED)
		return;
	rds_lock(&conn->tx);
	for (p = &conn->queue; (q = *p);) {
		if (q->u.sk && sock_is_closed(q->u.sk))
			rds_queue_drop_at(conn, p);
		else
			p = &q->next;
	}
	conn->queue_tail = p;
	rds_unlock(&conn->tx);
}

void rds_conn_sock_closed(const struct rds_sock *sk)
{
	bool many = atomic_load(&rds_sock_closed_bytes) > (int64_t)CLOSED_MAX, nobody, node;
	struct rds_conn *conn;

	if (atomic_load(&sk->snd) < RDS_SND_MSG)
		return;
	for (conn = rds_conn_list; conn; conn = conn->next) {
		nobody = conn->kind == RDS_CONN_UNROUTED && !rds_route_may_come(conn);
		node = rds_conn_leads_to_node(conn);
		if (conn->kind == RDS_CONN_LOOP || !(nobody || many || node))
			continue;
		rds_lock(&conn->tx);
		if (nobody || node_is_none(conn))
			queue_drop_sock(conn, sk, true);
		else if (many)
			queue_drop_if_crowded(conn, sk);
		rds_unlock(&conn->tx);
	}
}
