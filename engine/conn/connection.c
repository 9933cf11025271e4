/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * connection.c - connections between this process and others: how they are made, and found.
 *
 * How they come up is in attempt.c, what a peer asks for in accept.c, going down in shutdown.c.
 *
 * A loop connection has no process behind it but this one, and is UP from the start.  An UNROUTED
 * connection keeps messages for an address that no host we reach has, or whose host has not yet
 * told which process has the port (route.c).  Must not know how bytes move, nor which threads
 * receive.
 */
#include "engine/conn/incoming.h"
#include "engine/conn/port_cache.h"
#include "engine/conn/client.h"
#include "engine/conn/relay.h"

#include <stdlib.h>
#include <string.h>

#define RDS_CONN_BUCKETS 1024
#define RDS_PEER_BUCKETS 256 /* ids are random: by their first byte */

struct rds_conn_client rds_conn_client;

static struct rds_conn *conn_free; /* control */
static struct rds_conn *conn_table[RDS_CONN_BUCKETS];
struct rds_conn *rds_conn_list;
static unsigned conn_by_peer[RDS_PEER_BUCKETS]; /* how many there are */

static unsigned conn_hash(const struct rds_conn_id *id)
{
	uint32_t h = id->laddr.s6_addr32[3] * 2654435761u ^ id->faddr.s6_addr32[3] * 40503u ^ id->tos, p;

	memcpy(&p, id->peer.b, sizeof(p));
	return (h ^ p) % RDS_CONN_BUCKETS;
}

static bool conn_id_equal(const struct rds_conn_id *a, const struct rds_conn_id *b)
{
	return rds_ip_equal(&a->laddr, &b->laddr) && rds_ip_equal(&a->faddr, &b->faddr) && a->tos == b->tos &&
	       a->scope == b->scope && memcmp(&a->peer, &b->peer, sizeof(a->peer)) == 0;
}

struct rds_conn *rds_conn_find(enum rds_conn_kind kind, const struct rds_conn_id *id)
{
	struct rds_conn *conn;

	for (conn = conn_table[conn_hash(id)]; conn; conn = conn->hash_next)
		if (conn->kind == kind && conn_id_equal(&conn->id, id))
			return conn;
	return NULL;
}

const struct rds_conn_id *rds_conn_id(const struct rds_conn *conn)
{
	return &conn->id;
}

/* They are counted one by one only if there may be so many. */
bool rds_conn_peer_has(const struct rds_procid *peer, unsigned n)
{
	const struct rds_conn *conn = rds_conn_list;
	unsigned has = 0;

	if (conn_by_peer[peer->b[0]] < n)
		return false;
	for (; conn && has < n; conn = conn->next)
		has += memcmp(&conn->id.peer, peer, sizeof(*peer)) == 0;
	return has == n;
}

/*
 * Which transport a connection takes.  This is the only place that chooses.  It is asked once, when
 * the connection is made: a process that ends and starts again has another id, and so a connection
 * of its own.  The choice is made anew only where the peer asks for a connection:
 * rds_conn_accept() takes the transport by which it asks.
 *
 * Another host as a whole is reached by the transport for nodes.  A process of another host is reached by the remote transport, and so is one of this host for
 * which the route has named a port of that transport (port_owner_of() in route.c).
 */
static struct rds_transport *conn_transport_for(enum rds_conn_kind kind, const struct rds_conn_id *id)
{
	if (kind == RDS_CONN_LOOP)
		return rds_transport_set.loop;
	if (kind == RDS_CONN_PEER && rds_conn_id_is_node(id))
		return rds_transport_set.node;
	if (kind == RDS_CONN_PEER && rds_transport_set.remote && (id->peer_slot == RDS_SLOT_REMOTE || id->peer_port))
		return rds_transport_set.remote;
	return rds_transport_set.shm;
}

static struct rds_conn *conn_alloc(void)
{
	struct rds_conn *conn = conn_free;

	if (conn) {
		conn_free = conn->next;
		return conn;
	}
	conn = calloc(1, sizeof(*conn));
	if (conn)
		rds_lock_init(&conn->tx, RDS_LOCK_CONN_TX);
	return conn;
}

void rds_conn_free(struct rds_conn *conn)
{
	conn->next = conn_free;
	conn_free = conn;
}

/* control held */
static struct rds_conn *conn_new(enum rds_conn_kind kind, const struct rds_conn_id *id, int *err)
{
	enum rds_conn_relay relay = rds_relay_of(kind, id);
	struct rds_conn *node = relay == RDS_RELAY_MEMBER ? rds_relay_node_conn(id, err) : NULL;
	uint8_t told = relay == RDS_RELAY_OWNER ? rds_relay_owner_tells(id) : 0;
	struct rds_conn *conn = conn_alloc();
	unsigned h = conn_hash(id);

	*err = -ENOMEM;
	if (!conn || (relay == RDS_RELAY_MEMBER && !node)) {
		if (conn)
			rds_conn_free(conn);
		return NULL;
	}
	rds_lock(&conn->tx);
	conn->id = *id;
	conn->kind = (uint8_t)kind;
	conn->relay = (uint8_t)relay;
	atomic_store(&conn->node, told);
	conn->t = conn_transport_for(kind, id);
	conn->retry.fn = rds_conn_retry;
	conn->next_tx = rds_conn_first_number(id);
	conn->owners_told = 0;
	conn->acked = conn->received = 0;
	atomic_store(&conn->sent, 0);
	atomic_store(&conn->ack_lied, false);
	conn->ack_lie_logged = false;
	atomic_store(&conn->reset, false);
	conn->ack_unknown = conn->map_told = conn->replaces = conn->map_came = false;
	atomic_store(&conn->outgrown, false);
	conn->queue_tail = &conn->queue;
	atomic_store(&conn->nanswers, 0);
	atomic_store(&conn->answer_bytes, 0);
	conn->offered_seq = 0;
	conn->pulled = false;
	conn->backoff_ms = 0;
	conn->impatient = false;
	conn->closed_seq = 0;
	conn->was_up = conn->peer_asked_again = conn->peer_asked = conn->aborted = false;
	conn->history = (struct rds_conn_history){0};
	conn->unrouted_logged = conn->far = conn->handoff_pending = conn->peer_ending = false;
	conn->unreachable_since = 0;
	conn->unreachable_logged = false;
	atomic_store(&conn->silent, false);
	atomic_store(&conn->stranger, false);
	conn->nhandoff_said = 0;
	atomic_store(&conn->next_rx, 1);
	atomic_store(&conn->state, RDS_CONN_DOWN);
	rx_lock();
	*err = node && (!rds_conn_seldom_get(conn) || !rds_conn_seldom_get(node)) ? -ENOMEM : rds_cong_attach(conn);
	if (*err)
		conn->relay = RDS_RELAY_NONE;
	else if (node)
		rds_relay_begin(conn, node);
	rx_unlock();
	rds_unlock(&conn->tx);
	if (*err) {
		rds_conn_free(conn);
		return NULL;
	}
	conn->hash_next = conn_table[h];
	conn_table[h] = conn;
	conn->next = rds_conn_list;
	rds_conn_list = conn;
	conn_by_peer[id->peer.b[0]]++;
	return conn;
}

void rds_conn_unlist(struct rds_conn *conn)
{
	struct rds_conn **p;

	for (p = &conn_table[conn_hash(&conn->id)]; *p; p = &(*p)->hash_next)
		if (*p == conn) {
			*p = conn->hash_next;
			break;
		}
	for (p = &rds_conn_list; *p; p = &(*p)->next)
		if (*p == conn) {
			*p = conn->next;
			conn_by_peer[conn->id.peer.b[0]]--;
			break;
		}
}

static void conn_loop_up(struct rds_conn *conn)
{
	rds_lock(&conn->tx);
	if (atomic_load(&conn->state) != RDS_CONN_UP) {
		rds_conn_history_attempt(conn);
		rds_conn_history_up(conn);
	}
	atomic_store(&conn->state, RDS_CONN_UP);
	rds_unlock(&conn->tx);
}

/* Both directions of a loop connection, UP at once.  control held. */
static struct rds_conn *conn_loop_pair(const struct rds_conn_id *id, int *err)
{
	const struct rds_received none = {0};
	struct rds_conn_id back = *id;
	struct rds_conn *a, *b;

	back.laddr = id->faddr;
	back.faddr = id->laddr;
	a = rds_conn_find(RDS_CONN_LOOP, id);
	if (!a)
		a = conn_new(RDS_CONN_LOOP, id, err);
	if (!a)
		return NULL;
	b = rds_conn_find(RDS_CONN_LOOP, &back);
	if (!b)
		b = conn_new(RDS_CONN_LOOP, &back, err);
	if (!b)
		return NULL;
	if (!a->ep)
		*err = a->t->ops->connect(a->t, id, b, none, &a->ep);
	if (!*err && !b->ep)
		*err = b->t->ops->connect(b->t, &back, a, none, &b->ep);
	if (*err)
		return NULL;
	conn_loop_up(a);
	conn_loop_up(b);
	rx_lock();
	/* the kernel's loopback connection "sends" its map when it comes up */
	rds_cong_updated(~0ull);
	rx_unlock();
	return a;
}

struct rds_conn *rds_conn_get_locked(enum rds_conn_kind kind, const struct rds_conn_id *id, int *err)
{
	struct rds_conn *conn = rds_conn_find(kind, id);

	*err = 0;
	if (conn && id->peer_port)
		conn->id.peer_port = id->peer_port;
	if (!conn || (kind == RDS_CONN_LOOP && !conn->ep))
		conn = kind == RDS_CONN_LOOP ? conn_loop_pair(id, err) : conn_new(kind, id, err);
	else if (unlikely(atomic_load_explicit(&conn->stranger, memory_order_relaxed)))
		rds_conn_stranger_is_wanted(conn);
	return conn;
}

void rds_conn_each(void (*fn)(struct rds_conn *conn, void *arg), void *arg)
{
	struct rds_conn *conn;

	rds_lock(&rds_lock_control);
	for (conn = rds_conn_list; conn; conn = conn->next)
		fn(conn, arg);
	rds_unlock(&rds_lock_control);
}

void rds_conn_fork_child(void)
{
	rds_route_ports_forget();
	rds_queue_forget();
	rds_cong_forget();
	rds_conn_work_forget();
	rds_conn_receive_forget();
	rds_inc_forget();
	rds_conn_forget_dead();
	os_fork_zero(conn_table, sizeof(conn_table));
	os_fork_zero(conn_by_peer, sizeof(conn_by_peer));
	rds_conn_list = NULL;
	rds_conn_refuse_new(false);
	rds_conn_node_forget();
	rds_relay_forget();
	conn_free = NULL;
}
