/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * route.c - which connection does a message take?
 *
 * The connection to the process that has bound the port (PEER).  If that is this process, or if no
 * process has the port although the address is this host's, the loop connection (LOOP), which drops
 * messages without a socket as the kernel does.  A message to an address that no host we reach has
 * waits (UNROUTED), as in the kernel, and the helper checks from time to time whether the address
 * has appeared.
 *
 * Which process of another host has a port is asked for there (locate.c), and the process is
 * reached by a PEER connection of its own.
 *
 * A socket's messages to one address stay in order, also when the route changes.  The first sender
 * that learns the new route requeues the older messages onto it, then sends its own.  The route may
 * change at any time, and differ for each of them: a message to a port for which older messages
 * still wait goes behind these.  So it is with an address that another host was to have, and that
 * appears on this one.
 *
 * A route is a process.  Which transport leads to it is chosen in connection.c
 * (conn_transport_for()).  Must not know what a message contains, nor how an endpoint sends.
 */
#include "engine/conn/client.h"
#include "engine/wire/port_set.h"
#include "engine/conn/port_cache.h"
#include "engine/conn/relay.h"
#include "engine/node/local_address.h"

#include <string.h>

_Atomic uint64_t rds_route_gen;

static void conn_id_clear_peer(struct rds_conn_id *id)
{
	memset(&id->peer, 0, sizeof(id->peer));
	id->peer_slot = 0;
	id->peer_port = 0;
}

/*
 * Does a message from that address to another host go to that host as a whole?  Completes id: over a
 * connection of this process, or of the one that is the owner of the address.  far: a device has the
 * address.  control held.
 */
static bool route_to_node(struct rds_conn_id *id, bool far)
{
	if (far || !rds_transport_node_serves(&id->laddr))
		return false;
	id->tos = 0; /* there is one connection for all */
	if (!rds_transport_node_has(&id->laddr, id->scope) && !rds_relay_owner(&id->laddr, id->scope, id) &&
	    !rds_conn_client.claim_node(&id->laddr, id->scope))
		return false;
	if (rds_transport_node_has(&id->laddr, id->scope)) {
		conn_id_clear_peer(id);
		id->peer_slot = RDS_SLOT_REMOTE;
	}
	if (!rds_relay_still_held(id))
		return true;
	conn_id_clear_peer(id); /* it waits with the older ones */
	return false;
}

/* The socket that has a port of this host. */
struct port_owner {
	uint32_t sock; /* as in struct rds_queue_unacked; 0: no socket has it, or one of another user */
	bool moved;    /* the socket has had another owner */
};

/*
 * Finds the owner of the port and completes id.  far: our address reaches other hosts.  -ENOENT: no
 * process of this host has the port.
 */
static int port_owner_of(const struct rds_addr *dst, bool far, struct rds_conn_id *id, enum rds_conn_kind *kind,
			 struct port_owner *has)
{
	struct registry_owner own;
	int err;

	id->faddr = dst->ip;
	id->scope = dst->scope;
	conn_id_clear_peer(id);
	*kind = RDS_CONN_LOOP;
	*has = (struct port_owner){0};
	err = dst->port ? registry_lookup_all(rds_node_registry, &dst->ip, dst->port, dst->scope, &own) : -ENOENT;
	if (!err)
		*has = (struct port_owner){.sock = own.others ? 0 : (uint32_t)(own.order + 1), .moved = own.moved};
	/* the socket changes its owner, unless its last copy has been closed */
	if (!err && own.proc == REGISTRY_NOBODY) {
		id->peer_slot = REGISTRY_NOBODY;
		*kind = RDS_CONN_UNROUTED;
		return 0;
	}
	if (!err && memcmp(&own.procid, registry_self(rds_node_registry), sizeof(own.procid)) != 0) {
		if (unlikely(rds_transport_set.alone)) {
			*kind = RDS_CONN_UNROUTED; /* another process has it, but is out of reach */
			return 0;
		}
		*kind = RDS_CONN_PEER;
		id->peer = own.procid;
		id->peer_slot = own.proc;
		if (far && rds_transport_set.prefer_remote && own.transport == RDS_TRANS_IB)
			id->peer_port = own.others ? own.cm_port
						   : registry_proc_cm_port(rds_node_registry, own.proc, &own.procid);
	}
	return err;
}

/*
 * Are messages for that port under way to that process, over the connection with these addresses?
 */
static bool port_under_way(const struct rds_conn_id *id, uint16_t port)
{
	struct rds_conn *conn = rds_conn_find(RDS_CONN_PEER, id);
	bool has;

	if (!conn)
		return false;
	rds_lock(&conn->tx);
	rds_queue_reap(conn);
	has = rds_queue_has_port(conn, port, 0);
	rds_unlock(&conn->tx);
	return has;
}

/* The same for a port of another host, from the cache.  control held.  False: not known. */
static bool far_port_owner_of(const struct rds_addr *dst, struct rds_conn_id *id)
{
	struct rds_route_port_owner own;

	if (rds_route_port_get(dst, &own) != RDS_PORT_FOUND)
		return false;
	id->peer = own.proc;
	id->peer_slot = RDS_SLOT_REMOTE;
	id->peer_port = own.cm_port;
	return true;
}

/*
 * The port has moved, but messages are still under way to the old process: those that it refuses
 * (port_moved.c) are older than a new one.
 */
static bool far_port_still_goes_to(const struct rds_addr *dst, struct rds_conn_id *id)
{
	id->peer_slot = RDS_SLOT_REMOTE;
	if (unlikely(rds_route_port_previous(dst, &id->peer)) && port_under_way(id, dst->port))
		return true;
	conn_id_clear_peer(id);
	return false;
}

/*
 * What another host has sent for a member is counted on that one's connection.  The connection that it has left may be
 * gone before the message is.
 */
static void route_count(struct rds_conn *to, struct rds_queue_item *q)
{
	if (to->relay == RDS_RELAY_MEMBER)
		rds_queue_answer_add(to, q);
	else
		rds_queue_answer_end(q);
}

static void route_queue(struct rds_conn *to, struct rds_queue_item *q, bool flush)
{
	bool start;

	rds_lock(&to->tx);
	q->port_asked = false;
	if (rds_unacked_is_relayed(&q->u))
		route_count(to, q);
	if (unlikely(to->relay == RDS_RELAY_OWNER) && !q->u.counted)
		rds_relay_count(&q->u, &q->hdr);
	if (unlikely(q->u.counted) && rds_relay_was_taken(to, q)) {
		rds_unlock(&to->tx);
		rds_queue_unacked_release(&q->u);
		rds_queue_item_free(q);
		return;
	}
	if (to->relay == RDS_RELAY_NODE)
		q->u.given = false;
	rds_conn_client.queue_insert(to, q);
	if (unlikely(q->ref))
		rds_relay_is_queued(to, q);
	rds_queue_item_mean(to, q, NULL);
	if (flush && to->kind != RDS_CONN_UNROUTED)
		rds_queue_flush(to);
	start = rds_conn_start_locked(to);
	rds_unlock(&to->tx);
	if (start)
		rds_timer_set(&to->retry, os_now_ns());
}

void rds_route_append(struct rds_conn *to, struct rds_queue_item *q)
{
	route_queue(to, q, true);
}

void rds_route_queue(struct rds_conn *to, struct rds_queue_item *q)
{
	route_queue(to, q, false);
}

static struct rds_queue_item *queue_set_aside(struct rds_conn *conn, unsigned *n)
{
	struct rds_queue_item *list;

	rds_lock(&conn->tx);
	list = conn->queue;
	*n = conn->queue_len;
	conn->queue = NULL;
	conn->queue_tail = &conn->queue;
	conn->queue_len = 0;
	rds_unlock(&conn->tx);
	return list;
}

static void queue_put_behind(struct rds_conn *conn, struct rds_queue_item *list, unsigned n)
{
	rds_lock(&conn->tx);
	for (*conn->queue_tail = list; *conn->queue_tail; conn->queue_tail = &(*conn->queue_tail)->next)
		;
	conn->queue_len += n;
	rds_unlock(&conn->tx);
}

/* It gets no route. */
static void item_drop(struct rds_queue_item *q)
{
	if (q->op)
		rds_conn_client.item_unrouted(q);
	rds_unacked_report_end(&q->u, RDS_RDMA_DROPPED);
	rds_queue_unacked_release(&q->u);
	rds_queue_item_free(q);
}

void rds_route_requeue(const struct rds_conn_id *from, struct rds_queue_item *list, bool before)
{
	struct rds_conn_id id = *from;
	struct rds_conn *unrouted = NULL;
	struct rds_queue_item *q, *newer = NULL;
	unsigned n = 0;
	int err;

	conn_id_clear_peer(&id);
	if (list)
		unrouted = rds_conn_get_locked(RDS_CONN_UNROUTED, &id, &err);
	if (unrouted && before)
		newer = queue_set_aside(unrouted, &n);
	/* other hosts are not asked for a port of this host, unless a device was used anyway */
	if (unrouted) {
		unrouted->far |= !before || from->peer_port;
		unrouted->handoff_pending |= before;
	} else if (list) {
		rds_error("out of memory: messages are lost that have to look for their port anew");
	}
	while ((q = list)) {
		list = q->next;
		if (unrouted)
			rds_route_append(unrouted, q);
		else
			item_drop(q);
	}
	if (newer)
		queue_put_behind(unrouted, newer, n);
}

/*
 * A socket of this host has changed its owner, and some messages to the old owner are still here.
 * That process is about to end: then they are routed to the socket (shutdown.c), and until then no
 * newer message may be sent.  A message for another socket of that port, which is closed, gets
 * nowhere, and nothing waits for it.  control held.
 */
struct rds_conn *rds_route_still_holding(const struct rds_conn_id *id, uint16_t port, uint32_t sock)
{
	struct rds_conn *conn;
	bool has = false;

	for (conn = rds_conn_list; conn && !has; conn = has ? conn : conn->next) {
		if (!rds_conn_between(conn, id) || atomic_load(&conn->state) == RDS_CONN_DEAD ||
		    memcmp(&conn->id.peer, &id->peer, sizeof(id->peer)) == 0)
			continue;
		rds_lock(&conn->tx);
		rds_queue_reap(conn); /* what has been accepted is not here any more */
		has = rds_queue_has_port(conn, port, sock);
		rds_unlock(&conn->tx);
	}
	return has ? conn : NULL;
}

/*
 * Where new messages to the port go meanwhile.  Behind the older ones, if all of these get to the
 * next owner (memory that outlives the process).  Over a device only unsent ones will, so the new
 * ones wait beside them, UNROUTED.  NULL: no older message is in the way, or *beside is set.
 */
static struct rds_conn *route_behind(const struct rds_conn_id *id, uint16_t port, uint32_t sock, bool *beside)
{
	struct rds_conn *conn = rds_route_still_holding(id, port, sock);

	*beside = conn && !(conn->t->ops->caps & RDS_TCAP_SURVIVES);
	return *beside ? NULL : conn;
}

enum route_fate { GOES, WAITS, DROPPED };

/* The port of a socket without an owner: has the socket ended? */
static bool port_is_gone(const struct rds_addr *dst)
{
	struct registry_owner own;

	return registry_lookup(rds_node_registry, &dst->ip, dst->port, dst->scope, &own) == 0 &&
	       own.proc == REGISTRY_NOBODY && registry_sock_is_gone(rds_node_registry, own.sock, &own.procid);
}

/* Where does a waiting message go now?  dst and id have the addresses; GOES: *to. */
static enum route_fate route_decide(const struct rds_conn *unrouted, bool local, const struct rds_addr *dst,
				    struct rds_queue_item *q, struct rds_conn_id *id, struct rds_conn **to)
{
	struct rds_route_port_owner own;
	enum rds_conn_kind kind;
	struct port_owner has;
	bool beside;
	int err = port_owner_of(dst, unrouted->far, id, &kind, &has);

	id->tos = unrouted->id.tos;
	if (err && err != -ENOENT)
		return WAITS;
	/* asked last, so that a socket that was bound meanwhile does not get the message either */
	if (rds_queue_item_outlived(unrouted, q) || rds_queue_item_is_others(q, id))
		return DROPPED;
	if (!err && id->peer_slot == REGISTRY_NOBODY && kind == RDS_CONN_UNROUTED)
		return port_is_gone(dst) ? DROPPED : WAITS;
	if (err && !local && route_to_node(id, unrouted->far)) {
		if (q->op || q->u.ext_type)
			return DROPPED; /* operations and keys do not go there */
		kind = RDS_CONN_PEER;
	} else if (err && !local) {
		if (!unrouted->far)
			return WAITS;
		if (q->port_asked && rds_route_port_get(dst, &own) == RDS_PORT_ABSENT)
			return DROPPED;
		if (!far_port_owner_of(dst, id))
			return WAITS;
		kind = RDS_CONN_PEER;
	}
	if (unlikely(has.moved)) {
		*to = route_behind(id, dst->port, has.sock, &beside);
		if (*to || beside)
			return *to ? GOES : WAITS;
	}
	*to = kind == RDS_CONN_UNROUTED ? NULL : rds_conn_get_locked(kind, id, &err);
	return *to ? GOES : WAITS;
}

/* ports for which a message was found to wait; control held */
static struct rds_port_set ports_waiting RDS_TABLE;

static enum route_fate route_item(const struct rds_conn *unrouted, bool local, const struct rds_addr *dst,
				  struct rds_queue_item *q, struct rds_conn_id *id, struct rds_conn **to)
{
	enum route_fate fate =
		rds_port_set_has(&ports_waiting, dst->port) ? WAITS : route_decide(unrouted, local, dst, q, id, to);

	return fate == GOES && unlikely(q->op) && !rds_conn_client.ops_prepare(*to) ? WAITS : fate;
}

/*
 * Waiting messages go to their new routes.  control is held from end to end: a sender that looks
 * the address up gets no answer in between, so no newer message overtakes them.  The registry may
 * change in between: messages behind one that has to wait, wait, too.
 */
void rds_route_hand_over(struct rds_conn *unrouted, bool local)
{
	struct rds_addr dst = {.ip = unrouted->id.faddr, .scope = unrouted->id.scope};
	struct rds_conn_id id = unrouted->id;
	struct rds_queue_item *q, *list, *kept = NULL, **tail = &kept;
	struct rds_conn *to = NULL;
	enum route_fate fate;
	bool counted = false; /* one waits that keeps its place among all of this process (relay_kept.c) */
	unsigned n = 0;

	list = queue_set_aside(unrouted, &n);
	n = 0;
	while ((q = list)) {
		list = q->next;
		dst.port = q->u.dport;
		fate = unlikely(counted) ? WAITS : route_item(unrouted, local, &dst, q, &id, &to);
		counted |= fate == WAITS && q->u.counted;
		switch (fate) {
		case GOES:
			rds_route_append(to, q);
			break;
		case DROPPED:
			item_drop(q);
			break;
		case WAITS:
			rds_port_set_add(&ports_waiting, dst.port);
			*tail = q;
			tail = &q->next;
			n++;
		}
	}
	*tail = NULL;
	for (q = kept; q; q = q->next)
		rds_port_set_del(&ports_waiting, q->u.dport);
	if (!kept)
		return;
	rds_lock(&unrouted->tx);
	*tail = unrouted->queue;
	if (!unrouted->queue)
		unrouted->queue_tail = tail;
	unrouted->queue = kept;
	unrouted->queue_len += n;
	rds_queue_busy_add(unrouted);
	rds_unlock(&unrouted->tx);
}

void rds_route_leave_node(const struct rds_conn_id *between)
{
	struct rds_conn_id id = {.laddr = between->laddr, .faddr = between->faddr, .scope = between->scope};
	struct rds_conn *node = rds_relay_way(&id), *unrouted;
	struct rds_queue_item *list = NULL;

	if (likely(!node))
		return;
	rds_lock(&node->tx);
	if (!node->ep || rds_conn_is_held(node))
		list = rds_queue_take_unsent(node);
	rds_unlock(&node->tx);
	if (!list)
		return;
	rds_route_requeue(&id, list, true);
	unrouted = rds_conn_find(RDS_CONN_UNROUTED, &id);
	if (unrouted)
		rds_route_hand_over(unrouted, true);
}

bool rds_route_send_list(const struct rds_conn_id *from, struct rds_queue_item *list, bool far)
{
	bool local = rds_node_addr_is_local(&from->faddr, from->scope) == 0;
	struct rds_conn_id id = *from;
	struct rds_conn *unrouted;
	struct rds_queue_item *q;
	int err;

	conn_id_clear_peer(&id);
	unrouted = rds_conn_get_locked(RDS_CONN_UNROUTED, &id, &err);
	if (!unrouted)
		return false;
	unrouted->far |= far;
	unrouted->handoff_pending |= local;
	while ((q = list)) {
		list = q->next;
		rds_route_append(unrouted, q);
	}
	/* a process that ends soon does not wait for messages that wait here */
	rds_route_hand_over(unrouted, local);
	return true;
}

/* Not an error, nor is it one in the kernel, but most likely not what was meant. */
static void warn_out_of_reach(const struct in6_addr *from, const struct rds_addr *dst)
{
	char a[RDS_ADDR_STRLEN];

	rds_ip_str(&dst->ip, a);
	if (rds_transport_set.alone)
		rds_warn("messages to %s wait for ever: RDS_PRELOAD_TRANSPORT=loop reaches this process only", a);
	else if (rds_transport_node_serves(from))
		rds_relay_warn_taken(from);
	else
		rds_warn("%s is no address of this host: messages to it wait, and end with their socket; other hosts "
			 "are reached from an address on an RDMA device (rdma link shows them), or, over TCP, from any "
			 "address but loopback%s",
			 a, rds_transport_set.node ? "" : ", unless RDS_PRELOAD_TCP or RDS_PRELOAD_TRANSPORT is set");
}

/*
 * Completes id.  0: a process has the port, -ENOENT: no process has it.  local: the address is this
 * host's, if no process has the port.  control held.
 */
static int route_find_owner(const struct rds_addr *dst, bool far, bool local, struct rds_conn_id *id,
			    enum rds_conn_kind *kind, struct port_owner *has)
{
	int err = port_owner_of(dst, far, id, kind, has);

	if (err != -ENOENT || local)
		return err;
	/* without the port on this host: silently dropped; without such a host: waits */
	*kind = RDS_CONN_UNROUTED;
	if (route_to_node(id, far)) {
		*kind = RDS_CONN_PEER;
		return 0;
	}
	if (!far || !(far_port_still_goes_to(dst, id) || far_port_owner_of(dst, id)))
		return err;
	*kind = RDS_CONN_PEER;
	return 0;
}

/* Does a message for that port still wait?  Or one for any port that must not be overtaken (relay_kept.c)? */
static bool port_waits_there(struct rds_conn *unrouted, uint16_t port)
{
	const struct rds_queue_item *q;

	rds_lock(&unrouted->tx);
	for (q = unrouted->queue; q && q->u.dport != port && !q->u.counted; q = q->next)
		;
	rds_unlock(&unrouted->tx);
	return q;
}

/* A message is about to wait there.  control held.  True, once: the log has to say why. */
static bool unrouted_note(struct rds_conn *unrouted, bool far, bool handoff)
{
	bool tell = !far && !handoff && !unrouted->unrouted_logged && !rds_relay_is_passed_on();

	unrouted->unrouted_logged |= tell;
	unrouted->far |= far;
	unrouted->handoff_pending |= handoff;
	return tell;
}

static int route_find_conn(const struct rds_conn_id *from, const struct rds_addr *dst, bool far, struct rds_conn **out,
			   uint32_t *sock)
{
	struct rds_conn_id id = *from, none;
	bool local = true, behind_it = false, tell = false;
	struct rds_conn *unrouted;
	enum rds_conn_kind kind;
	struct port_owner has;
	int err = port_owner_of(dst, far, &id, &kind, &has);

	*out = NULL;
	if (err && err != -ENOENT)
		return err;
	/* makes system calls, so before the lock */
	if (err)
		local = rds_node_addr_is_local(&dst->ip, dst->scope) == 0;
	none = id;
	conn_id_clear_peer(&none);
	if (err && !local && !far && rds_transport_node_serves(&id.laddr))
		none.tos = 0; /* as route_to_node() does, and requeued messages have it: they wait in one place */
	rds_lock(&rds_lock_control);
	if (local && rds_transport_node_serves(&id.laddr))
		rds_route_leave_node(&id);
	err = route_find_owner(dst, far, local, &id, &kind, &has);
	if (err && err != -ENOENT)
		goto unlock;
	unrouted = kind == RDS_CONN_UNROUTED ? NULL : rds_conn_find(RDS_CONN_UNROUTED, &none);
	if (unlikely(unrouted)) {
		/*
		 * Look again afterwards: a socket may have got the last of the messages meanwhile.
		 * What the first look found about the address counts for both, so that this message
		 * and older ones get the same decision.  If the answer has changed in between, so
		 * that some of the older ones still wait, this message waits behind them.
		 */
		rds_route_hand_over(unrouted, local);
		behind_it = port_waits_there(unrouted, dst->port);
		id.tos = none.tos;
		if (likely(!behind_it))
			err = route_find_owner(dst, far, local, &id, &kind, &has);
	}
	if (err && err != -ENOENT)
		goto unlock;
	*sock = has.sock;
	if (unlikely(has.moved && !behind_it)) {
		*out = route_behind(&id, dst->port, has.sock, &behind_it);
		if (*out)
			goto unlock;
	}
	if (unlikely(behind_it)) {
		conn_id_clear_peer(&id);
		id.tos = none.tos;
		id.peer_slot = REGISTRY_NOBODY;
		kind = RDS_CONN_UNROUTED;
	}
	*out = rds_conn_get_locked(kind, &id, &err);
	if (*out && kind == RDS_CONN_UNROUTED)
		tell = unrouted_note(*out, far, id.peer_slot == REGISTRY_NOBODY);
unlock:
	rds_unlock(&rds_lock_control);
	if (unlikely(tell))
		warn_out_of_reach(&from->laddr, dst);
	return *out ? 0 : err;
}

int rds_route_find(struct rds_sock *sk, const struct rds_addr *dst, struct rds_conn **out, uint32_t *sock)
{
	struct rds_conn_id id = {.laddr = sk->laddr.ip, .tos = atomic_load(&sk->tos)};

	return route_find_conn(&id, dst, atomic_load(&sk->transport) == RDS_TRANS_IB, out, sock);
}
