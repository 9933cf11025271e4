/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * relay.c - several processes of this host, and one connection for all of them to another host as a
 * whole.
 *
 * Such a host sees one connection for each pair of addresses.  So one process of this host, the *owner*
 * of local address A, has the connection to host K.  The others, *members*, reach K through it: over an
 * ordinary connection of this host, whose addresses are A and K.  The owner's end of that one is called
 * relayed.  To a member the owner looks like a process that has all ports of K.
 *
 * What the owner has taken outlives it (relay_kept.c), and the next owner goes on with it (relay_heir.c).
 *
 * What is relayed gets a header of its own, with the ports, and towards a member K's number (relay_had.c):
 * neither side believes what is of this library alone.  It is received under rx, and waits in one list for a
 * thread without locks, which moves it with `control` held from end to end.  So it stays in order.  It is sent behind
 * that, without the lock, all together.
 *
 * Until K answers, messages wait in the member that sends them, count against SO_SNDBUF there, and are dropped with
 * its sockets, as if it had the connection.  It is told by the header of each map, and by its first message, a map,
 * asks the owner to connect.
 *
 * A member whose messages K does not take then is held up when they reach a limit, and goes on a tick later.
 * But nothing that K sends holds up the TCP connection: what a member does not take waits here, and K
 * is told that the port is congested.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "engine/conn/client.h"
#include "engine/conn/relay.h"
#include "engine/node/local_address.h"

#define WAITING_MAX ((uint64_t)1 << 20)
#define SHARE_MIN 4096u

static struct rds_queue_item *relay_list, **relay_tail = &relay_list; /* rx */
static _Atomic unsigned relay_waiting;
/* This process ends: members are taken nothing from, then nodes are not connected to.  0: it does not. */
static _Atomic uint64_t leaving_until, left_until;

/* ---- which connections; control held ---- */

static bool peer_is_of_this_user(const struct rds_conn_id *id)
{
	return id->peer_slot != RDS_SLOT_REMOTE && id->peer_slot != REGISTRY_NOBODY &&
	       !registry_slot_is_others(id->peer_slot);
}

static bool addr_is_bound_here(const struct in6_addr *addr)
{
	const struct rds_cong_map *map;
	bool is;

	rx_lock();
	map = rds_cong_map_find(addr);
	is = map && map->bound;
	rx_unlock();
	return is;
}

static bool addr_is_elsewhere(const struct in6_addr *addr, uint32_t scope)
{
	return !rds_ip_is_loopback(addr) && !IN6_IS_ADDR_UNSPECIFIED(addr) && !IN6_IS_ADDR_MULTICAST(addr) &&
	       !addr_is_bound_here(addr) && rds_node_addr_is_local(addr, scope) == -EADDRNOTAVAIL;
}

/*
 * It is, or it was and has ended: also then what it has sent is relayed, and what was to go over it goes to the
 * next owner.  It may be as well when nobody is known to be the owner: on a busy machine the registry cannot always
 * tell at once.
 */
static bool peer_is_owner(const struct rds_conn_id *id)
{
	struct rds_conn_id owner = {0};

	if (!registry_proc_alive(rds_node_registry, id->peer_slot, &id->peer))
		return true;
	if (rds_transport_node_has(&id->laddr, id->scope))
		return false;
	return !rds_relay_owner(&id->laddr, id->scope, &owner) || !memcmp(&owner.peer, &id->peer, sizeof(id->peer));
}

enum rds_conn_relay rds_relay_of(enum rds_conn_kind kind, const struct rds_conn_id *id)
{
	if (kind != RDS_CONN_PEER || (!rds_transport_node_serves(&id->laddr) && !rds_transport_node_serves(&id->faddr)))
		return RDS_RELAY_NONE;
	if (rds_conn_id_is_node(id))
		return RDS_RELAY_NODE;
	if (!peer_is_of_this_user(id))
		return RDS_RELAY_NONE;
	if (rds_transport_node_has(&id->faddr, id->scope))
		return addr_is_elsewhere(&id->laddr, id->scope) ? RDS_RELAY_MEMBER : RDS_RELAY_NONE;
	return peer_is_owner(id) && addr_is_elsewhere(&id->faddr, id->scope) ? RDS_RELAY_OWNER : RDS_RELAY_NONE;
}

struct rds_conn *rds_relay_node_conn(const struct rds_conn_id *id, int *err)
{
	struct rds_conn_id node = {
		.laddr = id->faddr, .faddr = id->laddr, .scope = id->scope, .peer_slot = RDS_SLOT_REMOTE};

	return rds_conn_get_locked(RDS_CONN_PEER, &node, err);
}

/* ---- this process ends ---- */

static bool is_before(const _Atomic uint64_t *until)
{
	uint64_t ns = atomic_load_explicit(until, memory_order_relaxed);

	return unlikely(ns) && os_now_ns() < ns;
}

void rds_relay_leave(uint64_t until)
{
	atomic_store(&leaving_until, until);
}

void rds_relay_leave_nodes(void)
{
	atomic_store(&left_until, atomic_load(&leaving_until));
	rds_relay_kept_leave();
}

bool rds_relay_has_left(void)
{
	return is_before(&left_until);
}

/* Members wait, and so do hosts that are refused meanwhile. */
void rds_relay_stay(void)
{
	struct rds_conn *conn;

	atomic_store(&left_until, 0);
	atomic_store(&leaving_until, 0);
	rds_lock(&rds_lock_control);
	for (conn = rds_conn_list; conn; conn = conn->next) {
		if (!rds_conn_is_node(conn))
			continue;
		if (conn->seldom && conn->seldom->trunk)
			rds_trunk_left(conn->seldom->trunk, false);
		rds_timer_set(&conn->retry, os_now_ns());
	}
	rds_unlock(&rds_lock_control);
}

/* ---- received; rx held ---- */

static struct rds_queue_item *relay_item(const struct rds_rx *rx)
{
	struct rds_queue_item *q = malloc(sizeof(*q) + rx->hdr.len);

	if (!q)
		return NULL;
	memset(q, 0, sizeof(*q));
	q->hdr = (struct rds_hdr){.len = rx->hdr.len, .sport = rx->hdr.sport, .dport = rx->hdr.dport};
	q->u = (struct rds_queue_unacked){.len = rx->hdr.len, .sport = rx->hdr.sport, .dport = rx->hdr.dport};
	memcpy(q->data, rx->data, rx->hdr.len);
	return q;
}

/* The member may have had it (relay_had.c). */
static void item_number(struct rds_queue_item *q, const struct rds_conn *node, const struct rds_hdr *hdr)
{
	q->u.ext_type = q->hdr.ext_type = RDS_EXTHDR_RELAYED;
	q->u.ext_rkey = q->hdr.ext_rkey = node->seldom ? node->seldom->peer_gen : 0;
	q->u.ext_offset = q->hdr.ext_offset = rds_relay_number(hdr);
}

/* From a member to the node, or from there.  Nothing is kept before there is memory for all of it. */
static enum rds_rx_verdict relay_add(struct rds_conn *node, const struct rds_conn *from, const struct rds_rx *rx)
{
	struct rds_queue_item *q = relay_item(rx);
	struct rds_trunk_ref *ref;

	if (!q) {
		rds_error("out of memory for a message of %u bytes: its sender has to wait", rx->hdr.len);
		return RDS_RX_LATER;
	}
	if (!rds_relay_keep(node, from, rx, &ref) && from != node) {
		free(q);
		return RDS_RX_PAUSE;
	}
	if (from != node)
		rds_queue_answer_add(node, q);
	else
		item_number(q, node, &rx->hdr);
	q->node = node;
	q->ref = ref;
	*relay_tail = q;
	relay_tail = &q->next;
	atomic_fetch_add(&relay_waiting, 1);
	atomic_store(&rds_conn_work_pending, true);
	return RDS_RX_DONE;
}

/* Is the member's port its own?  A port that nobody has is no lie: a socket may have been closed since. */
static enum rds_rx_verdict relay_source(const struct rds_conn *conn, uint16_t port)
{
	struct registry_owner own;
	int err;

	if (port <= RDS_RELAY_ROLE_PORT)
		return RDS_RX_DONE;
	err = registry_lookup_nowait(rds_node_registry, &conn->id.faddr, port, conn->id.scope, &own);
	if (err && err != -ENOENT)
		return RDS_RX_LATER;
	if (err || own.moved || own.proc == REGISTRY_NOBODY || !memcmp(&own.procid, &conn->id.peer, sizeof(own.procid)))
		return RDS_RX_TAKEN;
	return RDS_RX_DONE;
}

/*
 * The node may take less than members send.  Half of the room is for whoever comes first, and of the
 * other half each has its share.  So one that waits for a tick finds some, although others have been
 * looked at all the time.
 */
static bool room_is_for(struct rds_conn *conn, struct rds_conn *node, uint32_t bytes)
{
	uint64_t waiting = atomic_load(&node->answer_bytes), share;
	struct rds_conn_seldom *s = conn->seldom, *n = node->seldom;

	if (likely(waiting <= WAITING_MAX / 2))
		n->roomy++;
	if (s->roomy != n->roomy) {
		s->roomy = n->roomy;
		s->taken = 0;
	}
	share = WAITING_MAX / 2 / n->nmembers;
	if (share < SHARE_MIN)
		share = SHARE_MIN;
	if (waiting > WAITING_MAX || (s->taken && s->taken + bytes > share))
		return false;
	s->taken += bytes;
	return true;
}

static enum rds_rx_verdict relay_from_member(struct rds_conn *conn, const struct rds_rx *rx)
{
	struct rds_conn *node = conn->seldom->node;
	enum rds_rx_verdict v = relay_source(conn, rx->hdr.sport);

	if (v == RDS_RX_LATER)
		return v;
	if (v == RDS_RX_DONE || rx->hdr.dport == RDS_RELAY_ROLE_PORT) {
		RDS_STAT_INC_RX(recv_drop_no_sock);
		return RDS_RX_DONE;
	}
	if (rds_relay_former_took(conn, rx)) {
		RDS_STAT_INC_RX(recv_drop_old_seq);
		return RDS_RX_DONE;
	}
	if (is_before(&leaving_until) ||
	    !room_is_for(conn, node, (uint32_t)sizeof(struct rds_queue_item) + rx->hdr.len))
		return RDS_RX_PAUSE;
	return relay_add(node, conn, rx);
}

enum rds_rx_verdict rds_relay_receive(struct rds_conn *conn, const struct rds_rx *rx)
{
	struct registry_owner own;

	if (conn->relay == RDS_RELAY_MEMBER)
		return relay_from_member(conn, rx);
	if (registry_lookup_nowait(rds_node_registry, &conn->id.laddr, rx->hdr.dport, conn->id.scope, &own) ==
		    -ENOENT ||
	    rx->hdr.dport == RDS_RELAY_ROLE_PORT) {
		RDS_STAT_INC_RX(recv_drop_no_sock);
		return RDS_RX_DONE;
	}
	return relay_add(conn, conn, rx);
}

/* ---- congestion; rx held ---- */

/* None is any more. */
static void ports_let_go(struct rds_conn_seldom *s)
{
	free(s->held);
	s->held = NULL;
}

void rds_relay_ports_changed(struct rds_conn *conn)
{
	conn->seldom->node->want_map = true;
	rds_conn_work_add(conn->seldom->node);
}

/* What the node says of its ports is what the owner's end of a relayed connection says of them. */
void rds_relay_map_came(struct rds_conn *node)
{
	struct rds_cong_map *map = rds_cong_map_find(&node->id.faddr);

	if (map && !map->bound)
		rds_cong_map_copy(map, &node->fcong);
}

/* ---- does the node answer?; rx held, unless a comment says otherwise ---- */

/* conn->tx as well */
static uint8_t node_is(const struct rds_conn *node)
{
	uint8_t is = node->was_up ? RDS_NODE_MET : 0;

	if (atomic_load(&node->state) == RDS_CONN_UP)
		return is | RDS_NODE_UP;
	if (node->unreachable_since)
		is |= RDS_NODE_FAILED;
	return node->history.reason == RDS_REASON_TIMEOUT ? is | RDS_NODE_SILENT : is;
}

/* No lock held.  Each member is told by its next map. */
void rds_relay_node_changed(struct rds_conn *node)
{
	const struct rds_cong_map *map;
	struct rds_conn *conn;
	uint8_t is;

	if (!rds_conn_is_node(node))
		return;
	rds_lock(&node->tx);
	rx_lock();
	is = node_is(node);
	map = atomic_exchange(&node->node, is) == is ? NULL : rds_cong_map_find(&node->id.faddr);
	for (conn = map ? map->conns : NULL; conn; conn = conn->map_next) {
		if (conn->relay != RDS_RELAY_MEMBER || conn->seldom->node != node)
			continue;
		conn->want_map = true;
		rds_conn_work_add(conn);
	}
	rx_unlock();
	rds_unlock(&node->tx);
	rds_conn_work_run();
}

void rds_relay_node_told(struct rds_conn *conn, uint16_t told)
{
	const uint8_t node = told & RDS_NODE_TOLD ? (uint8_t)told : 0;

	if (atomic_exchange(&conn->node, node) == node)
		return;
	conn->want_flush = true;
	rds_conn_work_add(conn);
	rds_timer_set(&conn->retry, os_now_ns());
}

void rds_relay_map_add(const struct rds_conn *node, unsigned char bytes[RDS_CONG_MAP_BYTES])
{
	const struct rds_cong_map *map = rds_cong_map_find(&node->id.faddr);
	const struct rds_conn *conn;
	unsigned i;

	for (conn = map ? map->conns : NULL; conn; conn = conn->map_next) {
		if (conn->relay != RDS_RELAY_MEMBER || conn->seldom->node != node)
			continue;
		rds_cong_far_add(&conn->fcong, bytes);
		for (i = 0; conn->seldom->held && i < RDS_CONG_MAP_BYTES; i++)
			bytes[i] |= conn->seldom->held[i];
	}
	if (node->seldom && node->seldom->trunk)
		rds_trunk_trim(node->seldom->trunk); /* a member may have ended, or taken what it had left */
}

void rds_relay_begin(struct rds_conn *conn, struct rds_conn *node)
{
	conn->seldom->node = node;
	node->seldom->nmembers++;
	rds_relay_map_came(node);
	rds_relay_kept_begin(conn, node);
}

void rds_relay_room(struct rds_conn *conn)
{
	rx_lock();
	if (conn->seldom->held && atomic_load(&conn->answer_bytes) <= conn->seldom->held_below) {
		ports_let_go(conn->seldom);
		rds_relay_ports_changed(conn);
	}
	rx_unlock();
}

void rds_relay_end(struct rds_conn *conn)
{
	if (conn->relay == RDS_RELAY_OWNER)
		rds_relay_owner_seen();
	if (conn->relay != RDS_RELAY_MEMBER)
		return;
	rds_lock(&conn->tx);
	rds_trunk_refs_drop(&conn->seldom->refs, UINT64_MAX); /* nobody is there to get them */
	rds_unlock(&conn->tx);
	rx_lock();
	atomic_store(&conn->fcong.few, 0);
	ports_let_go(conn->seldom);
	conn->seldom->node->seldom->nmembers--;
	rds_relay_ports_changed(conn);
	rx_unlock();
}

/* ---- moved on; control held ---- */

static void relay_drop(struct rds_queue_item *q)
{
	RDS_STAT_INC(recv_drop_no_sock);
	rds_queue_item_free(q);
}

/*
 * rds_conn_work_run(), which has called, sends it as the next thing, without `control`: to send wakes another process.
 * That one may take this processor at once, and another thread that relays its answer would need the lock.
 */
static void relay_append(struct rds_conn *to, struct rds_queue_item *q)
{
	rds_route_queue(to, q);
	rx_lock();
	rds_conn_work_add(to);
	rx_unlock();
}

/* Does the member leave so much here?  What has not been offered to it yet does not count. */
static bool relay_is_left(struct rds_conn *to, uint32_t limit)
{
	if (likely(atomic_load(&to->answer_bytes) <= limit))
		return false;
	rds_lock(&to->tx);
	rds_queue_flush(to);
	rds_unlock(&to->tx);
	return atomic_load(&to->answer_bytes) > limit;
}

/* K is told that the port is congested, until half of that has gone. */
static void relay_hold(struct rds_conn *to, uint16_t port, uint32_t limit)
{
	const unsigned char bit = (unsigned char)(1u << (port & 7));
	struct rds_conn_seldom *s;

	if (!relay_is_left(to, limit))
		return;
	rx_lock();
	s = rds_conn_seldom_get(to);
	if (s && !s->held)
		s->held = calloc(1, RDS_CONG_MAP_BYTES);
	if (s && s->held && !(s->held[port >> 3] & bit)) {
		s->held[port >> 3] |= bit;
		s->held_below = limit / 2;
		rds_relay_ports_changed(to);
	}
	rx_unlock();
}

/* With a process that has had the socket before, and has ended. */
static bool older_waits(const struct rds_conn_id *id, uint16_t port, const struct registry_owner *own)
{
	struct rds_conn_id now = *id;

	now.peer = own->procid;
	return unlikely(own->moved) && rds_route_still_holding(&now, port, 0);
}

static void relay_to_member(struct rds_queue_item *q, const struct rds_conn_id *node)
{
	struct rds_conn_id id = {.laddr = node->faddr, .faddr = node->laddr, .scope = node->scope};
	const uint16_t port = q->u.dport;
	struct registry_mailbox room = {0};
	struct registry_owner own;
	struct rds_conn *to;
	int err = registry_lookup(rds_node_registry, &id.faddr, port, id.scope, &own);

	if (err) {
		relay_drop(q);
		return;
	}
	if (own.proc == REGISTRY_NOBODY || rds_conn_find(RDS_CONN_UNROUTED, &id) || older_waits(&id, port, &own)) {
		/* it changes its owner, or an older message waits for that */
		if (!rds_route_send_list(&id, q, false))
			relay_drop(q);
		return;
	}
	id.peer = own.procid;
	id.peer_slot = own.proc;
	to = memcmp(&id.peer, registry_self(rds_node_registry), sizeof(id.peer))
		     ? rds_conn_get_locked(RDS_CONN_PEER, &id, &err)
		     : NULL; /* bound here since */
	if (!to) {
		relay_drop(q);
		return;
	}
	registry_sock_mailbox(rds_node_registry, own.sock, &room);
	relay_append(to, q);
	relay_hold(to, port, room.rcvbuf);
}

static void relay_one(struct rds_queue_item *q)
{
	q->next = NULL;
	if (q->answers)
		relay_append(q->node, q);
	else
		relay_to_member(q, &q->node->id);
}

unsigned rds_relay_waits(void)
{
	return atomic_load_explicit(&relay_waiting, memory_order_relaxed);
}

void rds_relay_run(void)
{
	struct rds_queue_item *list, *q;

	rds_lock(&rds_lock_control);
	rx_lock();
	list = relay_list;
	relay_list = NULL;
	relay_tail = &relay_list;
	rx_unlock();
	while ((q = list)) {
		list = q->next;
		relay_one(q);
		atomic_fetch_sub(&relay_waiting, 1);
	}
	rds_unlock(&rds_lock_control);
}

void rds_relay_forget(void)
{
	rds_relay_had_forget();
	rds_relay_kept_forget();
	rds_relay_heir_forget();
	relay_list = NULL;
	relay_tail = &relay_list;
	rds_relay_role_forget();
	atomic_store(&relay_waiting, 0);
	atomic_store(&leaving_until, 0);
	atomic_store(&left_until, 0);
}
