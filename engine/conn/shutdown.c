/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * shutdown.c - a connection goes down: its endpoint broke, or the peer process has ended.
 *
 * Whatever the reason, the same holds afterwards.  Unacknowledged messages are in the queue again,
 * or stay where they lie until there is memory (stale), or are dropped because no process is left
 * to get them.  A connection whose peer is gone leaves the tables at once and is kept in the
 * graveyard until no part of it is in use.  How connections come up again: attempt.c.  All of
 * this runs in the helper, except what others ask of a connection (rds_conn_peer_pid(),
 * rds_conn_count_rerouted()).  Must not know why a transport reports a break.
 */
#include "engine/conn/client.h"
#include "engine/conn/incoming.h"
#include "engine/wire/port_set.h"
#include "engine/conn/port_cache.h"
#include "engine/conn/relay.h"

#include <stdlib.h>
#include <string.h>

static struct rds_conn *conn_graveyard; /* control */
/*
 * Ports that the registry was asked about, and ports whose messages are rerouted; both empty
 * between two uses.  control held.
 */
static struct rds_port_set ports_asked RDS_TABLE, ports_rerouted RDS_TABLE;

/*
 * Logs what the kernel's RDS prints of its connections, and over which transport and to which
 * process; failed attempts only for debugging.
 */
void rds_conn_log_state(const struct rds_conn *conn, pid_t pid, bool worth, const char *what, const char *why)
{
	char a[RDS_ADDR_STRLEN], b[RDS_ADDR_STRLEN], peer[32] = "";
	const char *over = conn->t->ops->name;

	rds_ip_str(&conn->id.laddr, a);
	rds_ip_str(&conn->id.faddr, b);
	if (pid)
		snprintf(peer, sizeof(peer), ", process %d", (int)pid);
	if (worth)
		rds_info("connection %s to %s, tos %u, over %s%s, %s: %s", a, b, conn->id.tos, over, peer, what, why);
	else
		rds_debug("connection %s to %s, tos %u, over %s%s, %s: %s", a, b, conn->id.tos, over, peer, what, why);
}

pid_t rds_conn_peer_pid(const struct rds_conn *conn)
{
	if (conn->id.peer_slot == RDS_SLOT_REMOTE)
		return 0;
	return registry_proc_pid(rds_node_registry, conn->id.peer_slot, &conn->id.peer);
}

static void conn_bury(struct rds_conn *conn)
{
	rds_conn_unlist(conn);
	conn->next = conn_graveyard;
	conn_graveyard = conn;
}

/*
 * Operations that were under way are not done again, and answers to the peer's operations are not
 * needed.  tx held.
 */
static void conn_end_operations(struct rds_conn *conn, bool broken, bool all)
{
	if (!broken && !all)
		return;
	rx_lock();
	rds_conn_client.ops_broken(conn, all);
	rx_unlock();
	if (!all) /* else the whole queue ends in its order (rds_queue_drop_all()) */
		rds_queue_purge(conn, true);
}

/*
 * A port of the dead process: does its socket have another owner, or none for the moment
 * (share/handoff_out.c)?  While the kernel has not released the process's lock, it may still get
 * one: then its messages are routed anew.  But if the last copy of the socket is closed by now,
 * newer messages may have been dropped for that, and older ones must not outlive them: they could
 * meet another socket there.  To check that takes the registry's lock (ask).  sock: of the port's
 * sockets only the one with that number (rds_queue_unacked.sock) is asked for, 0: any.
 */
static bool port_has_left(const struct rds_conn *conn, uint16_t port, uint32_t sock, bool ask)
{
	struct registry_owner own;

	if (!port || registry_lookup(rds_node_registry, &conn->id.faddr, port, conn->id.scope, &own))
		return false;
	if (sock && sock != (uint32_t)(own.order + 1))
		return false;
	if (memcmp(&own.procid, &conn->id.peer, sizeof(own.procid)) == 0)
		return conn->peer_ending;
	if (ask && own.proc == REGISTRY_NOBODY && registry_sock_is_gone(rds_node_registry, own.sock, &own.procid))
		return false;
	return own.moved;
}

/*
 * Unaccepted messages can go to another process, except those that belong to this connection (as in
 * requeue.c).
 */
static bool unacked_can_reroute(const struct rds_queue_unacked *u)
{
	return rds_unacked_has_sender(u) && !u->cancelled && (!u->once || u->again) && !rds_unacked_aborted(u);
}

/* Each port is asked for once. */
static bool port_asked_left(const struct rds_conn *conn, uint16_t port)
{
	return rds_port_set_add(&ports_asked, port) && port_has_left(conn, port, 0, true);
}

static bool conn_next_left(const struct rds_conn *conn, uint16_t *port)
{
	const struct rds_queue_item *q;
	unsigned i;

	for (i = 0; i < conn->count; i++) {
		const struct rds_queue_unacked *u = rds_queue_unacked_at(conn, i);

		*port = u->dport;
		if (unacked_can_reroute(u) && port_asked_left(conn, *port))
			return true;
	}
	for (q = conn->queue; q; q = q->next) {
		*port = q->u.dport;
		if (unacked_can_reroute(&q->u) && port_asked_left(conn, *port))
			return true;
	}
	return false;
}

/* May run in a signal handler that has interrupted a thread with the registry's lock. */
unsigned rds_conn_count_rerouted(const struct rds_conn *conn)
{
	struct rds_queue_unacked last = {.dport = 0};
	unsigned i, n = 0;
	bool left = false;

	for (i = 0; i < conn->count; i++) {
		const struct rds_queue_unacked *u = rds_queue_unacked_at(conn, i);

		if (u->dport != last.dport || u->sock != last.sock) {
			last = *u;
			left = port_has_left(conn, u->dport, u->sock, false);
		}
		n += left && unacked_can_reroute(u);
	}
	return n;
}

/*
 * What a process had accepted when it ended is known exactly only from memory that outlives it.
 * Over a device its last acknowledgements may be lost, so sent messages are not sent again to the
 * next owner of the socket: they may be in the saved state.  The same holds if our side had dropped
 * the endpoint: the process may have gone on to accept what lay there.
 */
static bool conn_acks_exact(const struct rds_conn *conn)
{
	return conn->id.peer_slot != RDS_SLOT_REMOTE && (conn->t->ops->caps & RDS_TCAP_SURVIVES) && !conn->ack_unknown;
}

static void ports_unmark(const struct rds_queue_item *q)
{
	for (; q; q = q->next) {
		rds_port_set_del(&ports_asked, q->u.dport);
		rds_port_set_del(&ports_rerouted, q->u.dport);
	}
}

/*
 * A process of this host has ended, and has handed off sockets: messages that it had not accepted
 * for them follow.  tx held.
 */
static struct rds_queue_item *conn_take_left(struct rds_conn *conn)
{
	struct rds_queue_item *all = NULL, **tail = &all, *some;
	uint16_t port;
	unsigned i;

	while (conn_next_left(conn, &port)) {
		/* what it had received has gone with the sockets */
		if (!rds_queue_take_port(conn, port, conn->received + 1, &some))
			break;
		for (*tail = some; *tail; tail = &(*tail)->next)
			;
	}
	ports_unmark(all);
	ports_unmark(conn->queue);
	for (i = 0; i < conn->count; i++)
		rds_port_set_del(&ports_asked, rds_queue_unacked_at(conn, i)->dport);
	return all;
}

/*
 * The same where only unsent messages can follow: the others are dropped, as for sockets that have
 * ended with their process.  All messages of a port follow or none, though the registry may give
 * another answer meanwhile: so the next owner of the port finds no gap.  tx held.
 */
static struct rds_queue_item *conn_take_left_unsent(struct rds_conn *conn)
{
	struct rds_queue_item *list = rds_queue_take_unsent(conn), *q, *left = NULL, **tail = &left;

	while ((q = list)) {
		list = q->next;
		q->next = NULL;
		if (port_asked_left(conn, q->u.dport))
			rds_port_set_add(&ports_rerouted, q->u.dport);
		if (rds_port_set_has(&ports_rerouted, q->u.dport)) {
			*tail = q;
			tail = &q->next;
		} else {
			rds_queue_append(conn, q);
		}
	}
	ports_unmark(left);
	ports_unmark(conn->queue);
	return left;
}

/*
 * The peer process has ended: takes out the messages that other processes are to get.  tx held;
 * called while the endpoint is there, which may have their bytes.
 */
static struct rds_queue_item *conn_take_rerouted(struct rds_conn *conn)
{
	struct rds_queue_item *all;

	if (conn->id.peer_slot == RDS_SLOT_REMOTE)
		return rds_queue_take_unsent(conn);
	/* in their order, whatever it had received: the next owner knows what it had taken (relay_kept.c) */
	if (conn->relay == RDS_RELAY_OWNER)
		return rds_queue_take_all(conn, &all) ? all : NULL;
	all = conn_acks_exact(conn) ? conn_take_left(conn) : conn_take_left_unsent(conn);
	if (unlikely(conn->relay == RDS_RELAY_MEMBER))
		rds_relay_is_taken(conn, all);
	return all;
}

/*
 * The endpoint was up, and its messages go into the queue again, unless the peer is gone.  tx held.
 */
static void conn_lose_endpoint(struct rds_conn *conn, struct rds_ep *ep, bool peer_gone, bool replaced)
{
	/*
	 * The peer may receive more over a FIRST endpoint after it has told what it has: if it ends,
	 * these messages are not for the next owner of its sockets.
	 */
	conn->replaces = replaced;
	if (replaced && conn->count)
		conn->received = rds_queue_unacked_at(conn, conn->count - 1)->seq;
	if (!peer_gone && !rds_queue_requeue(conn, ep)) {
		rds_error("out of memory: a connection that broke stays down until %u messages can be kept", conn->count);
		rds_transport_ep_ops(ep)->keep(ep, true);
		conn->stale = ep;
	}
	conn->ep = NULL;
	atomic_store(&conn->ack_lied, false);
	atomic_store(&conn->outgrown, false);
	conn->ack_unknown = atomic_exchange(&conn->reset, false);
	if (!replaced)
		RDS_STAT_INC(conn_reset);
}

/* Wakes threads that wait for a port of the dead process, or for room in a ring to it. */
static void conn_release_waiters(uint64_t congested)
{
	if (congested) {
		rx_lock();
		rds_cong_updated(congested);
		rx_unlock();
	}
	rds_conn_client.room_made();
}

/* The peer process has ended.  tx held.  Returns a broken endpoint that kept messages for it. */
static struct rds_ep *conn_set_dead(struct rds_conn *conn)
{
	struct rds_ep *stale = conn->stale;

	atomic_store(&conn->state, RDS_CONN_DEAD);
	atomic_fetch_add(&rds_route_gen, 1);
	rds_queue_drop_all(conn);
	conn->stale = NULL;
	return stale;
}

/*
 * The peer process has ended, and its ports may have other owners.  control held.  Returns which
 * ports were congested.
 */
static uint64_t conn_end_peer(struct rds_conn *conn, struct rds_queue_item *unsent)
{
	uint64_t congested = rds_cong_ports(conn);

	conn_bury(conn);
	rds_relay_end(conn);
	rds_route_ports_drop_proc(&conn->id.peer);
	/*
	 * By now another process may have the port.  Newer messages for a socket of this host were
	 * held back.
	 */
	rds_route_requeue(&conn->id, unsent, conn->id.peer_slot != RDS_SLOT_REMOTE);
	return congested;
}

void rds_conn_forget(struct rds_conn *conn)
{
	rds_timer_cancel(&conn->retry);
	rds_lock(&conn->tx);
	atomic_store(&conn->state, RDS_CONN_DEAD);
	atomic_fetch_add(&rds_route_gen, 1);
	rds_queue_drop_all(conn); /* pongs, at most */
	rds_unlock(&conn->tx);
	conn_bury(conn);
}

/* No message comes over the endpoint any more. */
static void conn_end_refusals(struct rds_conn *conn)
{
	rds_lock(&conn->tx);
	rx_lock();
	rds_conn_client.refusals_note(conn, true);
	rx_unlock();
	rds_unlock(&conn->tx);
}

/*
 * Only ep is over: DOWN, unless another one is up, or comes up.  If the process is gone, that one is
 * over, too, and returned.  control and tx held.
 */
static struct rds_ep *conn_lose_other(struct rds_conn *conn, struct rds_ep *ep, bool peer_gone)
{
	struct rds_ep *other = conn->pending;

	if (ep && conn->pending == ep) {
		conn->pending = other = NULL;
		conn->peer_asked = false;
	}
	if (peer_gone)
		conn->pending = NULL;
	else if (!conn->ep)
		atomic_store(&conn->state, other ? RDS_CONN_CONNECTING : RDS_CONN_DOWN);
	return peer_gone ? other : NULL;
}

void rds_conn_drop(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone)
{
	struct rds_ep *other;
	bool replaced;
	struct rds_queue_item *unsent = NULL;
	struct rds_ep *stale = NULL;
	uint64_t congested = 0;
	pid_t pid = rds_conn_peer_pid(conn); /* the registry may forget it below */
	bool was_up, ending;

	/*
	 * Sockets that others share with the process lose their owner in the registry before it is
	 * decided here which messages follow them.  So ask in this order.
	 */
	ending = peer_gone && conn->id.peer_slot != RDS_SLOT_REMOTE &&
		 registry_proc_alive(rds_node_registry, conn->id.peer_slot, &conn->id.peer);
	if (peer_gone)
		registry_reap_proc(rds_node_registry, conn->id.peer_slot);
	rds_timer_cancel(&conn->retry);
	rds_lock(&rds_lock_control);
	rds_lock(&conn->tx);
	conn->peer_ending = ending;
	was_up = ep && conn->ep == ep;
	if (was_up)
		rds_queue_reap(conn); /* first: an operation that has ended counts as answered */
	/* another one takes its place, or does already on the other side */
	replaced = was_up && rds_conn_is_first(conn) && !peer_gone && (conn->pending || why == -EALREADY);
	conn_end_operations(conn, was_up && !rds_conn_is_first(conn), peer_gone);
	if (peer_gone)
		unsent = conn_take_rerouted(conn);
	if (was_up)
		conn_lose_endpoint(conn, ep, peer_gone, replaced);
	if (was_up && rds_conn_is_node(conn))
		(void)rds_conn_node_unprobe(conn);
	/* its senders look for a route again, perhaps to another connection */
	conn->room_sought = false;
	if (!replaced)
		rds_conn_history_down(conn, was_up, why);
	other = conn_lose_other(conn, ep, peer_gone);
	if (peer_gone)
		stale = conn_set_dead(conn);
	rds_unlock(&conn->tx);
	if (peer_gone)
		congested = conn_end_peer(conn, unsent);
	rds_unlock(&rds_lock_control);
	if (ep)
		rds_transport_ep_ops(ep)->close(ep);
	if (other)
		rds_transport_ep_ops(other)->close(other);
	if (was_up && !peer_gone)
		conn_end_refusals(conn);
	if (stale)
		rds_transport_ep_ops(stale)->keep(stale, false);
	rds_conn_log_state(conn, pid, was_up && !replaced, was_up ? "is down" : "did not come up",
			   peer_gone ? "the peer process has ended" : strerror(-why));
	if (peer_gone)
		conn_release_waiters(congested);
}

void rds_conn_down(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone)
{
	bool crossing = why == -EALREADY, other;

	/*
	 * Even if the peer is gone: the transport will report that of the present endpoint as well.  A thread that
	 * opens a connection may have made this one just now (conn_open()): then it becomes the present one first.
	 */
	rds_lock(&rds_lock_control);
	other = ep && ep != conn->ep && ep != conn->pending;
	rds_unlock(&rds_lock_control);
	if (other) {
		rds_transport_ep_ops(ep)->close(ep);
		return;
	}
	if (peer_gone && conn->ep && ep == conn->pending) { /* beside a FIRST one, which ends as well */
		rds_conn_drop(conn, conn->ep, why, true);
		return;
	}
	rds_conn_drop(conn, ep, why, peer_gone);
	if (peer_gone)
		return;
	if (conn->pending) { /* that one is on its way already */
		if (conn->pending_up)
			rds_conn_backoff(conn);
		return;
	}
	if (!crossing)
		rds_conn_history_unreachable(conn, why);
	rds_relay_node_changed(conn);
	rds_conn_drop_closed(conn);
	if (crossing && conn->backoff_ms < 16)
		conn->backoff_ms = 16; /* the peer's own attempt is under way: give it time */
	if (why == -EPROTO)	       /* protocol error: no hurry with such a peer */
		conn->backoff_ms = (uint32_t)rds_options()->reconnect_max_ms;
	rds_conn_retry_later(conn);
}

/*
 * Gives back what it has grown: the next user may need none of it.  tx and rx held, since a thread
 * that has taken the connection off the work list may not have looked at it yet.  It must find nothing to do: a map
 * for a member would be made from what is freed here.
 */
static void conn_shed(struct rds_conn *conn)
{
	conn->relay = RDS_RELAY_NONE;
	conn->want_map = conn->want_flush = conn->want_push = false;
	atomic_store(&conn->nredirects_out, 0);
	atomic_store(&conn->nredirects_in, 0);
	if (conn->seldom) {
		free(conn->seldom->out);
		free(conn->seldom->pongs);
		free(conn->seldom->sources);
		free(conn->seldom->held);
		rds_trunk_refs_drop(&conn->seldom->refs, UINT64_MAX);
		rds_trunk_put(conn->seldom->trunk);
	}
	free(conn->seldom);
	conn->seldom = NULL;
	if (conn->rdma) /* what the endpoint received after its operations had ended */
		rds_conn_client.ops_broken(conn, true);
	free(conn->rdma);
	conn->rdma = NULL;
	free(conn->unacked);
	conn->unacked = NULL;
	conn->cap = conn->head = 0;
}

/*
 * Connections in the graveyard become reusable once no part of them is in use.  Helper, no event
 * pending.
 */
void rds_conn_reclaim(void)
{
	struct rds_conn **p, *conn;

	if (!__atomic_load_n(&conn_graveyard, __ATOMIC_RELAXED))
		return;
	rds_queue_reap_all(); /* takes dead connections off the busy list */
	rds_lock(&rds_lock_control);
	for (p = &conn_graveyard; (conn = *p);) {
		bool idle;

		rds_lock(&conn->tx);
		rx_lock();
		idle = !conn->work_queued && !conn->inplace && !conn->busy && !rds_timer_is_set(&conn->retry);
		if (idle) {
			rds_cong_detach(conn);
			conn_shed(conn);
		}
		rx_unlock();
		rds_unlock(&conn->tx);
		if (!idle) {
			p = &conn->next;
			continue;
		}
		*p = conn->next;
		rds_conn_free(conn);
	}
	rds_unlock(&rds_lock_control);
}

void rds_conn_forget_dead(void)
{
	conn_graveyard = NULL;
}
