/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * relay_left.c - what another host has sent for the sockets of members, and what they leave of it.
 *
 * It goes to the member that has the port, and waits there, on its connection.  Or the socket has no owner
 * just now: then it waits in the list of what has no route (UNROUTED), and what is behind it for the same port as well,
 * until that list has been handed over (route.c).  The host is told which of these ports are congested.  One that does
 * not heed that is not read from while more than LEFT_MAX waits.
 *
 * Must not know what members send.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/conn/client.h"
#include "engine/conn/relay.h"

/* As much as 512 sockets with buffers of 2 MiB send before they are told.  A trunk keeps a part of it (engine/trunk). */
#define LEFT_MAX ((uint64_t)1 << 30)

_Static_assert(sizeof(struct rds_port_set) == RDS_CONG_MAP_BYTES, "a bit for each port, in the same order");

bool rds_relay_is_flood(const struct rds_conn *node)
{
	return node->seldom && unlikely(atomic_load(&node->seldom->left) > LEFT_MAX);
}

/* ---- which ports are congested; rx held ---- */

/* None is any more. */
void rds_relay_ports_let_go(struct rds_conn_seldom *s)
{
	free(s->held);
	s->held = NULL;
}

static bool room_is_again(struct rds_conn *conn)
{
	if (!conn->seldom->held || atomic_load(&conn->answer_bytes) > conn->seldom->held_below)
		return false;
	rds_relay_ports_let_go(conn->seldom);
	return true;
}

void rds_relay_room(struct rds_conn *conn)
{
	rx_lock();
	if (room_is_again(conn))
		rds_relay_ports_changed(conn);
	rx_unlock();
}

/* To a member of this node, or to sockets of this address that nobody owns. */
static bool is_for_members_of(const struct rds_conn *conn, const struct rds_conn *node)
{
	if (conn->kind != RDS_CONN_UNROUTED)
		return conn->relay == RDS_RELAY_MEMBER && conn->seldom->node == node;
	return conn->seldom && rds_ip_equal(&conn->id.faddr, &node->id.laddr) && conn->id.scope == node->id.scope;
}

/* A member may have ended, or taken what it had left. */
static void node_trims(const struct rds_conn *node)
{
	if (node->seldom && node->seldom->trunk)
		rds_trunk_trim(node->seldom->trunk);
}

void rds_relay_map_add(const struct rds_conn *node, unsigned char bytes[RDS_CONG_MAP_BYTES])
{
	const struct rds_cong_map *map = rds_cong_map_find(&node->id.faddr);
	const struct rds_conn *conn;
	unsigned i;

	for (conn = map ? map->conns : NULL; conn; conn = conn->map_next) {
		if (!is_for_members_of(conn, node))
			continue;
		rds_cong_far_add(&conn->fcong, bytes);
		for (i = 0; conn->seldom->held && i < RDS_CONG_MAP_BYTES; i++)
			bytes[i] |= conn->seldom->held->bits[i];
	}
	node_trims(node);
}

/* control as well */
static void node_of_unrouted_told(const struct rds_conn *unrouted, bool changed)
{
	struct rds_conn_id id = {.laddr = unrouted->id.faddr,
				 .faddr = unrouted->id.laddr,
				 .scope = unrouted->id.scope,
				 .peer_slot = RDS_SLOT_REMOTE};
	struct rds_conn *node = rds_conn_find(RDS_CONN_PEER, &id);

	if (!node)
		return;
	node_trims(node);
	node->want_map |= changed;
	if (changed)
		rds_conn_work_add(node);
}

/* ---- control held ---- */

/* Is so much left here?  What has not been offered to the member yet does not count. */
static bool relay_is_left(struct rds_conn *to, uint32_t limit)
{
	if (likely(atomic_load(&to->answer_bytes) <= limit))
		return false;
	rds_lock(&to->tx);
	rds_queue_flush(to);
	rds_unlock(&to->tx);
	return atomic_load(&to->answer_bytes) > limit;
}

/* The host is told that the port is congested, until half of that has gone. */
static void relay_hold(struct rds_conn *to, uint16_t port, uint32_t limit)
{
	struct rds_conn_seldom *s;

	if (!relay_is_left(to, limit))
		return;
	rx_lock();
	s = rds_conn_seldom_get(to);
	if (s && !s->held)
		s->held = calloc(1, sizeof(*s->held));
	if (s && s->held && rds_port_set_add(s->held, port)) {
		s->held_below = limit / 2;
		if (to->kind == RDS_CONN_UNROUTED)
			node_of_unrouted_told(to, true);
		else
			rds_relay_ports_changed(to);
	}
	rx_unlock();
}

/* What waited for that port has gone to the member that has it now. */
static void port_is_held_there(const struct rds_conn *unrouted, uint16_t port)
{
	struct rds_conn_id id = unrouted->id;
	struct registry_mailbox room = {0};
	struct registry_owner own;
	struct rds_conn *to;

	if (registry_lookup(rds_node_registry, &id.faddr, port, id.scope, &own) || own.proc == REGISTRY_NOBODY)
		return;
	registry_sock_mailbox(rds_node_registry, own.sock, &room);
	id.peer = own.procid;
	id.peer_slot = own.proc;
	to = rds_conn_find(RDS_CONN_PEER, &id);
	if (to && to->relay == RDS_RELAY_MEMBER)
		relay_hold(to, port, room.rcvbuf);
}

/* Congested ports for which nothing waits any more.  No map says otherwise before the member's connection does. */
static bool ports_moved_on(struct rds_conn *unrouted, const struct rds_port_set *waiting)
{
	struct rds_port_set *held = unrouted->seldom->held; /* written under control */
	bool some = false;
	unsigned i, port;

	for (i = 0; held && i < sizeof(held->bits); i++)
		for (port = 8 * i; held->bits[i] & ~waiting->bits[i] && port < 8 * i + 8; port++)
			if (rds_port_set_has(held, (uint16_t)port) && !rds_port_set_has(waiting, (uint16_t)port)) {
				port_is_held_there(unrouted, (uint16_t)port);
				rx_lock();
				rds_port_set_del(held, (uint16_t)port);
				rx_unlock();
				some = true;
			}
	return some;
}

void rds_relay_moved_on(struct rds_conn *unrouted, const struct rds_port_set *waiting)
{
	struct rds_conn_seldom *s = unrouted->seldom;
	bool some;

	if (likely(!s))
		return;
	some = ports_moved_on(unrouted, waiting);
	rx_lock();
	if (s->waits)
		*s->waits = *waiting;
	node_of_unrouted_told(unrouted, room_is_again(unrouted) || some);
	rx_unlock();
}

/* Before the list has been handed over once, a message may wait for any port. */
void rds_relay_waits_there(struct rds_conn *unrouted, uint16_t port)
{
	struct rds_conn_seldom *s;

	rx_lock();
	s = rds_conn_seldom_get(unrouted);
	if (s && s->waits) {
		rds_port_set_add(s->waits, port);
	} else if (s) {
		s->waits = malloc(sizeof(*s->waits));
		if (s->waits)
			memset(s->waits, 0xff, sizeof(*s->waits));
	}
	rx_unlock();
}

/* May an older message wait there?  Each message would look for that in vain, so the list is not walked. */
static bool port_may_wait(struct rds_conn *unrouted, uint16_t port)
{
	const struct rds_conn_seldom *s;
	bool may;

	rds_lock(&unrouted->tx);
	rx_lock();
	s = unrouted->seldom;
	may = unrouted->queue && (!s || !s->waits || rds_port_set_has(s->waits, port));
	rx_unlock();
	rds_unlock(&unrouted->tx);
	return may;
}

/* There, or with a process that has had the socket before, and ends. */
static bool older_may_wait(const struct rds_conn_id *id, uint16_t port, const struct registry_owner *own)
{
	struct rds_conn *unrouted = rds_conn_find(RDS_CONN_UNROUTED, id);
	struct rds_conn_id now = *id;

	if (unlikely(unrouted) && port_may_wait(unrouted, port))
		return true;
	now.peer = own->procid;
	return unlikely(own->moved) && rds_route_still_holding(&now, port, 0);
}

static void relay_drop(struct rds_queue_item *q)
{
	const struct rds_conn *node = q->node;

	RDS_STAT_INC(recv_drop_no_sock);
	rds_queue_item_free(q);
	rx_lock();
	node_trims(node);
	rx_unlock();
}

/*
 * The socket changes its owner, or an older message waits for that.  While it has none a timer looks for one
 * (locate.c).  NULL: the message waits there no longer.
 */
static struct rds_conn *item_waits(const struct rds_conn_id *id, struct rds_queue_item *q, bool owned)
{
	const uint16_t port = q->u.dport;
	int err;
	struct rds_conn *unrouted = rds_conn_get_locked(RDS_CONN_UNROUTED, id, &err);

	if (!unrouted) {
		relay_drop(q);
		return NULL;
	}
	unrouted->handoff_pending = true;
	rds_route_append(unrouted, q);
	if (!owned)
		return unrouted;
	rds_route_hand_over(unrouted, true);
	if (port_may_wait(unrouted, port))
		return unrouted;
	port_is_held_there(unrouted, port);
	return NULL;
}

static struct rds_conn *item_goes(struct rds_conn_id *id, struct rds_queue_item *q, const struct registry_owner *own)
{
	struct rds_conn *to = NULL;
	int err;

	id->peer = own->procid;
	id->peer_slot = own->proc;
	if (memcmp(&id->peer, registry_self(rds_node_registry), sizeof(id->peer))) /* else bound here since */
		to = rds_conn_get_locked(RDS_CONN_PEER, id, &err);
	if (to)
		rds_relay_append(to, q);
	else
		relay_drop(q);
	return to && to->relay == RDS_RELAY_MEMBER ? to : NULL;
}

void rds_relay_to_member(struct rds_queue_item *q, const struct rds_conn_id *node)
{
	struct rds_conn_id id = {.laddr = node->faddr, .faddr = node->laddr, .scope = node->scope};
	const uint16_t port = q->u.dport;
	struct registry_mailbox room = {0};
	struct registry_owner own;
	struct rds_conn *to;

	if (registry_lookup(rds_node_registry, &id.faddr, port, id.scope, &own)) {
		relay_drop(q);
		return;
	}
	registry_sock_mailbox(rds_node_registry, own.sock, &room);
	if (own.proc == REGISTRY_NOBODY || older_may_wait(&id, port, &own))
		to = item_waits(&id, q, own.proc != REGISTRY_NOBODY);
	else
		to = item_goes(&id, q, &own);
	if (to)
		relay_hold(to, port, room.rcvbuf);
}
