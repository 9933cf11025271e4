/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * accept.c - a peer asks for a connection: may it have one, and which endpoint is kept if there is
 * one already.
 *
 * The rules for attempts that cross are in attempt.c.  Must not know how a request comes.
 */
#include "engine/conn/relay.h"

#include <string.h>

#define CONNS_PER_PEER 1024u

static _Atomic bool conn_refuse_new;

/*
 * A peer may ask for any connection, and each one costs memory as long as it lives.  So it has to
 * be to an address of ours, or through this process to another host, and one process gets at most a
 * quarter of the connections that a process can have.  For hosts as a whole: strangers.c.  Helper,
 * control held.
 */
static int conn_may_connect(const struct rds_conn_id *id)
{
	static struct rds_procid warned_of;
	const struct rds_cong_map *map;
	bool ours;

	rx_lock();
	map = rds_cong_map_find(&id->laddr);
	ours = map && map->bound;
	rx_unlock();
	if (!ours && rds_relay_of(RDS_CONN_PEER, id) != RDS_RELAY_MEMBER)
		return -EADDRNOTAVAIL;
	if (rds_conn_id_is_node(id)) /* a former owner may have had a connection with it (relay_heir.c) */
		return rds_transport_node_has(&id->laddr, id->scope) ? rds_conn_strangers_room() : -EAGAIN;
	if (!rds_conn_peer_has(&id->peer, CONNS_PER_PEER))
		return 0;
	if (memcmp(&warned_of, &id->peer, sizeof(warned_of)))
		rds_warn("a process asks for more than %u connections with this one: refused", CONNS_PER_PEER);
	warned_of = id->peer;
	return -ENOSPC;
}

/*
 * While sockets are handed off, no new peer connects over a device: it would send to a process that
 * they leave.  Peers that are connected are told, and waited for (share/handoff_out.c).
 */
static int conn_may_come(const struct rds_transport *t, const struct rds_conn_id *id)
{
	if (unlikely(atomic_load(&conn_refuse_new)) && (t->ops->caps & RDS_TCAP_REMOTE))
		return -EAGAIN;
	return conn_may_connect(id);
}

/* control held */
static struct rds_conn *conn_for_peer(const struct rds_transport *t, const struct rds_conn_id *id, int *why)
{
	struct rds_conn *conn = rds_conn_find(RDS_CONN_PEER, id);

	*why = conn ? 0 : conn_may_come(t, id);
	/* a process of another user has got hold of the id of one that has ended */
	if (conn && registry_slot_is_others(id->peer_slot) && conn->id.peer_slot != id->peer_slot) {
		*why = -EACCES;
		return NULL;
	}
	if (conn || *why)
		return conn;
	conn = rds_conn_get_locked(RDS_CONN_PEER, id, why);
	if (conn && rds_conn_is_node(conn))
		atomic_store(&conn->stranger, true);
	return conn;
}

/* From here on no send opens it. */
struct rds_conn *rds_conn_for_request(const struct rds_transport *t, const struct rds_conn_id *id, int *why)
{
	struct rds_conn *conn;

	rds_lock(&rds_lock_control);
	conn = conn_for_peer(t, id, why);
	if (conn) {
		rds_lock(&conn->tx);
		if (atomic_load(&conn->state) == RDS_CONN_DOWN)
			atomic_store(&conn->state, RDS_CONN_CONNECTING);
		rds_unlock(&conn->tx);
	}
	rds_unlock(&rds_lock_control);
	return conn;
}

/* 0: ep is the endpoint of a connection that is UP. */
static int conn_attach_opened(struct rds_conn *conn, struct rds_ep *ep)
{
	if (rds_conn_is_first(conn))
		return -EEXIST;
	if (atomic_load(&conn->state) != RDS_CONN_DOWN || conn->was_up)
		return -EALREADY;
	rx_lock();
	rds_transport_ep_ops(ep)->attach(ep, conn);
	rx_unlock();
	rds_conn_open_up(conn, ep);
	return 0;
}

struct rds_conn *rds_conn_opened(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id, int *why)
{
	struct rds_conn *conn;

	rds_lock(&rds_lock_control);
	conn = conn_for_peer(t, id, why);
	if (conn) {
		rds_lock(&conn->tx);
		*why = conn_attach_opened(conn, ep);
		rds_unlock(&conn->tx);
	}
	rds_unlock(&rds_lock_control);
	return conn && !*why ? conn : NULL;
}

/*
 * Our end of a FIRST endpoint is closed before the peer is told what we have.  What it has sent over
 * it by now is received first: it may have ended since.
 */
static void conn_close_first(struct rds_conn *conn)
{
	rds_transport_meet_last();
	rds_conn_drop(conn, conn->ep, -EALREADY, false);
}

/*
 * Closes what is there, so that the peer's endpoint may take its place.  0, or an errno that
 * refuses the peer's.
 */
static int conn_make_way(struct rds_conn *conn, const struct rds_conn_id *id)
{
	bool first;

	/* its transport knows which of two attempts wins, and asks only if there is none */
	if (rds_conn_is_node(conn) && (conn->ep || conn->pending || rds_relay_has_left()))
		return -EALREADY;
	rds_lock(&conn->tx);
	first = rds_conn_is_first(conn);
	rds_unlock(&conn->tx);
	if (conn->pending && !conn->peer_asked &&
	    memcmp(registry_self(rds_node_registry), &id->peer, sizeof(id->peer)) < 0)
		return -EALREADY; /* crossing: our attempt wins */
	if (conn->pending) {	  /* our attempt loses, or the peer has given up its earlier one */
		struct rds_ep *old = conn->pending;

		rds_lock(&conn->tx);
		conn->pending = NULL;
		rds_unlock(&conn->tx);
		rds_transport_ep_ops(old)->close(old);
	}
	if (first) {
		conn_close_first(conn);
	} else if (conn->ep && !conn->peer_asked_again) {
		/*
		 * Most likely a request from before the crossing was settled: what the peer has
		 * sent lies in our endpoint.
		 */
		conn->peer_asked_again = true;
		return -EALREADY;
	}
	if (conn->ep)
		rds_conn_drop(conn, conn->ep, -ECONNRESET, false);
	if (rds_conn_rescue_stale(conn))
		return 0;
	rds_conn_retry_later(conn); /* both sides try again */
	return -ENOMEM;
}

struct rds_conn *rds_conn_accept(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id,
				 struct rds_received there, struct rds_received *here, int *why)
{
	struct rds_conn *conn = rds_conn_for_request(t, id, why);

	(void)there;
	if (!conn)
		return NULL;
	*why = conn_make_way(conn, id);
	if (*why)
		return NULL;
	rds_timer_cancel(&conn->retry);
	conn->pending = ep;
	rds_lock(&conn->tx);
	conn->peer_asked = true;
	conn->pending_up = false;
	rds_conn_history_attempt(conn);
	/*
	 * The sides may prefer different transports (conn_transport_for()): the first that comes
	 * up is used.
	 */
	conn->t = t;
	atomic_store(&conn->state, RDS_CONN_CONNECTING);
	rds_unlock(&conn->tx);
	*here = rds_conn_received(conn);
	return conn;
}

void rds_conn_refuse_new(bool refuse)
{
	atomic_store(&conn_refuse_new, refuse);
}
