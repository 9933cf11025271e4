/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * info_local.c - the connections and messages of this process, as neutral records.
 *
 * The snapshot is taken connection by connection and socket by socket.  Each is consistent in
 * itself, the whole is not.  No lock is held for longer than one of them needs.
 *
 * This file must not know which process asks.
 */
#include "engine/calls/info.h"

#include "engine/conn/incoming.h"
#include "engine/conn/outgoing.h"
#include "engine/conn/shown.h"

#include <stdlib.h>

bool rds_info_push(struct rds_info_list *list, const struct rds_info_rec *rec)
{
	if (list->full)
		return false;
	if (list->n == list->cap) {
		size_t cap = list->cap ? list->cap * 2 : 64;
		struct rds_info_rec *recs = realloc(list->recs, cap * sizeof(*recs));

		if (!recs) {
			list->full = true;
			return false;
		}
		list->recs = recs;
		list->cap = cap;
	}
	list->recs[list->n++] = *rec;
	return true;
}

struct collect {
	enum rds_info_kind kind;
	struct rds_info_list *out;
	size_t room;
	struct rds_info_member_process member; /* what adds up */
};

static void collect_push(struct collect *c, const struct rds_info_rec *rec)
{
	if (!c->room)
		return;
	if (--c->room == 0 && c->kind != RDS_INFO_MEMBER)
		rds_warn("more than %u messages or connections to show: the rest is left out of rds-info",
			 RDS_INFO_MAX_RECS);
	rds_info_push(c->out, rec);
}

static struct rds_info_rec conn_rec(const struct rds_conn *conn)
{
	struct rds_info_rec rec = {
		.laddr = conn->id.laddr,
		.faddr = conn->id.faddr,
		.tos = conn->id.tos,
	};

	return rec;
}

static uint16_t node_paths(const struct rds_conn *conn)
{
	uint16_t paths;

	rx_lock();
	paths = conn->seldom ? conn->seldom->peer_paths : 0;
	rx_unlock();
	return paths;
}

/* What MEMBER has beside the rest.  tx held. */
static void fill_member_conn(struct rds_conn *conn, struct rds_info_rec *rec, struct collect *c)
{
	struct rds_ep_tcp tcp = {0};

	rec->is = RDS_PRELOAD_IS_CONNECTION;
	rec->queued = conn->queue_len;
	rec->unacked = conn->count;
	rec->breaks = conn->history.breaks;
	rec->peer_pid = conn->kind == RDS_CONN_PEER ? rds_conn_peer_pid(conn) : 0;
	if (conn->ep && rds_transport_ep_ops(conn->ep)->describe_tcp)
		rds_transport_ep_ops(conn->ep)->describe_tcp(conn->ep, &tcp);
	rec->retrans = tcp.retrans;
	c->member.conns++;
	c->member.memory += sizeof(*conn) + conn->cap * sizeof(struct rds_queue_unacked);
}

static void collect_state(struct rds_conn *conn, struct collect *c)
{
	struct rds_info_rec rec = conn_rec(conn);
	enum rds_conn_state state = atomic_load(&conn->state);

	if (state == RDS_CONN_DEAD)
		return;
	if (c->kind == RDS_INFO_MEMBER)
		fill_member_conn(conn, &rec, c);
	if (state == RDS_CONN_UP && !rds_conn_is_held(conn))
		rec.flags = RDS_INFO_CONNECTION_FLAG_CONNECTED;
	else if (state != RDS_CONN_DOWN)
		rec.flags = RDS_INFO_CONNECTION_FLAG_CONNECTING;
	strncpy(rec.transport, conn->t ? conn->t->ops->name : "none", sizeof(rec.transport) - 1);
	if (rds_conn_is_node(conn))
		rec.paths = node_paths(conn);
	rec.seq = conn->next_tx;
	rec.next_rx = atomic_load(&conn->next_rx);
	rec.attempt_at = conn->history.attempt_at;
	rec.up_at = conn->history.up_at;
	rec.down_at = conn->history.down_at;
	rec.attempts = conn->history.attempts;
	rec.reason = conn->history.reason;
	collect_push(c, &rec);
}

static void collect_message(const struct rds_conn *conn, const struct rds_queue_unacked *u, struct collect *c)
{
	struct rds_info_rec rec = conn_rec(conn);

	rec.seq = u->seq;
	rec.len = u->len;
	rec.lport = u->sport;
	rec.fport = u->dport;
	collect_push(c, &rec);
}

/* Connections that go over a device, even while they are down. */
static void collect_device(struct rds_conn *conn, struct collect *c)
{
	struct rds_info_rec rec = conn_rec(conn);

	if (!conn->t || !conn->t->ops->describe || atomic_load(&conn->state) == RDS_CONN_DEAD)
		return;
	rec.dev.qp_num = rec.dev.dst_qp_num = UINT32_MAX;
	if (conn->ep && rds_transport_ep_ops(conn->ep)->describe)
		rds_transport_ep_ops(conn->ep)->describe(conn->ep, &rec.dev);
	collect_push(c, &rec);
}

static void collect_stream(struct rds_conn *conn, struct collect *c)
{
	struct rds_info_rec rec = conn_rec(conn);

	if (!conn->ep || !rds_transport_ep_ops(conn->ep)->describe_tcp)
		return;
	rds_transport_ep_ops(conn->ep)->describe_tcp(conn->ep, &rec.tcp);
	collect_push(c, &rec);
}

/* Messages have waited there for somebody to own the local address (conn/relay.c).  tx held. */
static bool is_left_over(const struct rds_conn *conn)
{
	return rds_transport_node_serves(&conn->id.laddr) && conn->kind == RDS_CONN_UNROUTED && !conn->queue;
}

static void collect_conn(struct rds_conn *conn, void *arg)
{
	struct collect *c = arg;
	bool messages = c->kind == RDS_INFO_SENDING || c->kind == RDS_INFO_RETRANS;

	/* the owner lists the connection to the node, a member its messages */
	if (conn->relay == RDS_RELAY_MEMBER || (conn->relay == RDS_RELAY_OWNER && !messages))
		return;
	rds_lock(&conn->tx);
	if (c->kind == RDS_INFO_CONNS || c->kind == RDS_INFO_MEMBER) {
		if (!is_left_over(conn))
			collect_state(conn, c);
	} else if (c->kind == RDS_INFO_DEVICES) {
		collect_device(conn, c);
	} else if (c->kind == RDS_INFO_STREAMS) {
		collect_stream(conn, c);
	} else if (c->kind == RDS_INFO_SENDING) {
		/* a piece of an operation is no message */
		for (struct rds_queue_item *q = conn->queue; q; q = q->next)
			if (!rds_queue_item_is_piece(q))
				collect_message(conn, &q->u, c);
	} else {
		for (unsigned i = 0; i < conn->count; i++) {
			const struct rds_queue_unacked *u = rds_queue_unacked_at(conn, i);

			if (u->sk) /* NULL: cancelled */
				collect_message(conn, u, c);
		}
	}
	rds_unlock(&conn->tx);
}

static void collect_sock(struct rds_sock *sk, void *arg)
{
	struct collect *c = arg;
	struct rds_info_rec rec;

	if (!rds_sock_bound(sk))
		return;
	memset(&rec, 0, sizeof(rec));
	rec.laddr = sk->laddr.ip;
	rec.lport = sk->laddr.port;
	rx_lock();
	rds_inc_shown_settle(sk, -1);
	for (struct rds_inc *inc = sk->rx_head; inc && c->room; inc = inc->next) {
		rec.faddr = inc->saddr;
		rec.fport = inc->sport;
		rec.len = inc->len;
		rec.seq = inc->seq;
		rec.tos = inc->tos;
		collect_push(c, &rec);
	}
	rx_unlock();
}

/* ---- this process ---- */

static uint8_t member_sock_flags(struct rds_sock *sk)
{
	uint8_t flags = rds_sock_bound(sk) ? RDS_PRELOAD_SOCKET_BOUND : 0;

	flags |= atomic_load(&sk->connected) ? RDS_PRELOAD_SOCKET_CONNECTED : 0;
	flags |= sk->congested ? RDS_PRELOAD_SOCKET_CONGESTED : 0;
	return flags | (atomic_load(&sk->cong_monitor) ? RDS_PRELOAD_SOCKET_MONITOR : 0);
}

/* control held, under which a socket gets its names */
static void collect_member_sock(struct rds_sock *sk, void *arg)
{
	struct collect *c = arg;
	uint64_t snd = atomic_load_explicit(&sk->snd, memory_order_acquire) & ~RDS_SND_DEAD;
	struct rds_info_rec rec = {.is = RDS_PRELOAD_IS_SOCKET, .seq = sk->inode};

	rec.tos = atomic_load(&sk->tos);
	if (atomic_load(&sk->bound)) {
		rec.laddr = sk->laddr.ip;
		rec.lport = sk->laddr.port;
	}
	if (atomic_load(&sk->connected)) {
		rec.faddr = sk->caddr.ip;
		rec.fport = sk->caddr.port;
	}
	rec.sock.snd_bytes = snd % RDS_SND_MSG;
	rec.sock.snd_count = (uint32_t)(snd / RDS_SND_MSG);
	rec.sock.sndbuf = rds_sock_sndbuf(sk);
	rec.sock.rcvbuf = rds_sock_rcvbuf(sk);
	rec.sock.ops = atomic_load(&sk->nops);
	rec.sock.last_op = atomic_load(&sk->marks.last_id);
	rx_lock();
	rds_inc_shown_settle(sk, -1);
	rec.flags = member_sock_flags(sk);
	rec.sock.rcv_bytes = sk->rcv_bytes;
	rec.sock.rcv_count = sk->rcv_count;
	rx_unlock();
	c->member.socks++;
	c->member.memory += rec.sock.snd_bytes + rec.sock.snd_count * RDS_SOCK_MESSAGE_COST + rec.sock.rcv_bytes;
	collect_push(c, &rec);
}

static uint64_t counted(enum rds_stat s)
{
	return atomic_load_explicit(&registry_counters(rds_node_registry)[s], memory_order_relaxed);
}

/* The process comes first.  What there is no room for is counted at least. */
static void collect_member(struct collect *c)
{
	struct rds_info_rec rec = {.is = RDS_PRELOAD_IS_PROCESS, .version = PACKAGE_VERSION};
	int64_t bytes = atomic_load(&rds_transport_bytes);
	size_t first = c->out->n;

	c->room = RDS_INFO_MAX_MEMBER;
	rec.process.sent = counted(RDS_STAT_send_queued);
	rec.process.sent_bytes = counted(RDS_STAT_copy_from_user);
	rec.process.received = counted(RDS_STAT_recv_delivered);
	rec.process.received_bytes = counted(RDS_STAT_copy_to_user);
	rec.process.fds = os_fds_count();
	collect_push(c, &rec);
	rds_sock_each(collect_member_sock, c);
	rds_conn_each(collect_conn, c);
	if (c->out->n == first)
		return; /* no memory */
	c->out->recs[first].process.memory = c->member.memory + (bytes > 0 ? (uint64_t)bytes : 0);
	c->out->recs[first].process.socks = c->member.socks;
	c->out->recs[first].process.conns = c->member.conns;
}

void rds_info_collect(enum rds_info_kind kind, struct rds_info_list *out)
{
	struct collect c = {.kind = kind, .out = out, .room = RDS_INFO_MAX_RECS};

	/*
	 * This shows what peers have already sent or acknowledged, and brings the counters of sends
	 * up to date.
	 */
	rds_queue_reap_all();
	rds_progress_round();
	if (kind == RDS_INFO_COUNTED)
		return;
	if (kind == RDS_INFO_MEMBER)
		collect_member(&c);
	else if (kind == RDS_INFO_RECEIVED)
		rds_sock_each(collect_sock, &c);
	else
		rds_conn_each(collect_conn, &c);
}
