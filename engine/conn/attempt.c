/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * attempt.c - how a connection comes up, and after a break again: by an endpoint that is opened at once, or by
 * attempts of the helper.
 *
 * The states of a connection:
 *
 *  DOWN        made by the first send to that process, or by the peer's request.  A send starts it:
 *              it is UP at once if the transport can open an endpoint, else CONNECTING.
 *  CONNECTING  the helper asks the transport.  After a failure it waits a random time below a limit
 *              that doubles from reconnect_min to reconnect_max, and tries again, for ever: a peer
 *              that is alive will answer some day.  After a protocol error the limit is
 *              reconnect_max at once.
 *  UP          the congested ports go first, then retransmitted messages, then messages that
 *              waited, then new ones.
 *  DOWN        the endpoint broke: unacknowledged messages are queued again.  If the peer lives,
 *              CONNECTING follows at once; an attempt needs memory for all these messages first.
 *  DEAD        the peer process is gone: messages to it are dropped (so are its sockets), and
 *              the connection leaves the tables.  If the peer was on another host, unsent messages
 *              are routed anew.
 *
 * Sequence numbers belong to the connection and survive every state but DEAD.  If two processes
 * connect to each other at the same moment, the attempt of the one with the smaller process id
 * wins.  A request for a connection that is UP is refused once: two attempts that cross may arrive
 * in any order, and the peer may already have sent the last messages of its life over the attempt
 * that won.  If the peer asks again, it has lost the connection: the old endpoint is closed and the
 * new one is taken.
 *
 * There is one endpoint at a time: either `ep`, which is up, or `pending`, on its way up, whichever
 * side has asked for it.  While there is one, no attempt begins: the timer for an attempt is set by
 * any thread, after it has released its locks, and may fire late.  What a transport reports of any
 * other endpoint only closes that endpoint.
 *
 * The exception is an endpoint from open() (RDS_TCAP_FIRST): the next one may be on its way beside
 * it, and takes its place when it comes up, as after a break, but without one.  The side that is
 * asked closes its end first and then tells what it has received, so nothing arrives twice; the side
 * that asks sends again what the other has not got.  Without memory for that the new endpoint waits: the
 * peer may have begun operations over it, which a break would cost it.  A connection is opened only before
 * it was ever up: after that the helper alone makes and takes away endpoints.
 *
 * Must not know how connections are found, nor how bytes move.
 */
#include "engine/conn/incoming.h"
#include "engine/conn/client.h"
#include "engine/conn/relay.h"
#include "engine/node/local_address.h"

#include <string.h>

static bool conn_has_congested(const struct rds_conn *conn)
{
	const struct rds_cong_map *map;
	bool some;

	rx_lock();
	map = rds_cong_map_find(&conn->id.laddr);
	some = map && map->nports;
	rx_unlock();
	return some;
}

/*
 * Our congested ports go before all messages.  The peer takes it that a new connection has none, so
 * an empty list is not sent.
 */
static void conn_open_map(struct rds_conn *conn)
{
	bool some = conn_has_congested(conn);

	rx_lock();
	/* a member asks for the node by it, and is told of it */
	some |= conn->want_map || conn->relay == RDS_RELAY_OWNER || conn->relay == RDS_RELAY_MEMBER;
	conn->want_map = false;
	rx_unlock();
	if (!some || !rds_conn_xmit_map(conn))
		return;
	rx_lock();
	conn->want_map = true;
	rx_unlock();
}

void rds_conn_open_up(struct rds_conn *conn, struct rds_ep *ep)
{
	rds_conn_history_attempt(conn);
	rds_conn_history_up(conn);
	conn->t = ((struct rds_ep_head *)ep)->t;
	conn->ep = ep;
	conn->was_up = true;
	atomic_store(&conn->state, RDS_CONN_UP);
	rds_conn_log_state(conn, rds_conn_peer_pid(conn), true, "is up", "for the first time");
	conn_open_map(conn);
	rds_queue_flush(conn);
	/* senders may have gone to sleep while there was no endpoint to ask */
	rds_queue_rearm(conn);
}

/* control and tx held.  A connection that has been up is connected: the two sides compare what they have. */
static bool conn_open(struct rds_conn *conn)
{
	struct rds_ep *ep;

	if (conn->was_up || conn->kind != RDS_CONN_PEER || !conn->t->ops->open ||
	    conn->t->ops->open(conn->t, &conn->id, conn, &ep))
		return false;
	rds_conn_open_up(conn, ep);
	return true;
}

/* DOWN -> UP or CONNECTING, control and tx held.  True: the helper has to start an attempt. */
bool rds_conn_start_locked(struct rds_conn *conn)
{
	if (atomic_load(&conn->state) != RDS_CONN_DOWN || conn->kind == RDS_CONN_LOOP || conn_open(conn))
		return false;
	atomic_store(&conn->state, RDS_CONN_CONNECTING);
	return true;
}

void rds_conn_start(struct rds_conn *conn)
{
	bool start;

	rds_lock(&rds_lock_control);
	rds_lock(&conn->tx);
	start = rds_conn_start_locked(conn);
	rds_unlock(&conn->tx);
	rds_unlock(&rds_lock_control);
	if (start)
		rds_timer_set(&conn->retry, os_now_ns());
}

/* Any thread, any lock held: the helper connects another endpoint beside the FIRST one. */
void rds_conn_outgrown(struct rds_conn *conn)
{
	if (!atomic_exchange(&conn->outgrown, true))
		rds_timer_set(&conn->retry, os_now_ns());
}

void rds_conn_backoff(struct rds_conn *conn)
{
	uint64_t limit = conn->backoff_ms ? conn->backoff_ms : (uint64_t)rds_options()->reconnect_min_ms, r;
	uint64_t longest = rds_conn_longest_pause_ms(conn);
	bool stranger = atomic_load(&conn->stranger);

	limit = limit > longest ? longest : limit;
	os_random(&r, sizeof(r));
	rds_timer_set(&conn->retry, os_now_ns() + r % (limit * 1000000 + 1));
	conn->backoff_ms = (uint32_t)(limit * 2 > longest ? longest : limit * 2);
	if (unlikely(stranger && !atomic_load(&conn->stranger)))
		rds_timer_set(&conn->retry, os_now_ns()); /* a send has set it meanwhile */
}

void rds_conn_retry_later(struct rds_conn *conn)
{
	rds_lock(&rds_lock_control);
	rds_lock(&conn->tx);
	if (atomic_load(&conn->state) == RDS_CONN_DOWN) /* else a send has opened it */
		atomic_store(&conn->state, RDS_CONN_CONNECTING);
	rds_unlock(&conn->tx);
	rds_unlock(&rds_lock_control);
	rds_conn_backoff(conn);
}

/*
 * Messages that a broken endpoint still holds go to the queue.  False: still no memory for all of
 * them.
 */
bool rds_conn_rescue_stale(struct rds_conn *conn)
{
	struct rds_ep *ep;
	bool done;

	rds_lock(&conn->tx);
	ep = conn->stale;
	done = !ep || rds_queue_requeue(conn, ep);
	if (done)
		conn->stale = NULL;
	rds_unlock(&conn->tx);
	if (done && ep)
		rds_transport_ep_ops(ep)->keep(ep, false);
	return done;
}

/*
 * Is it certain that the peer process has ended?  For another host only its transport knows, and
 * reports it.
 */
static bool conn_peer_is_gone(const struct rds_conn *conn)
{
	return conn->id.peer_slot != RDS_SLOT_REMOTE &&
	       !registry_proc_alive(rds_node_registry, conn->id.peer_slot, &conn->id.peer);
}

/* What the peer is told of its messages when a connection is made.  rx not held. */
struct rds_received rds_conn_received(struct rds_conn *conn)
{
	struct rds_received r;

	rx_lock();
	r.acked = rds_conn_recv_taken(conn);
	r.all = atomic_load_explicit(&conn->next_rx, memory_order_relaxed) - 1;
	if (conn->seldom && r.all == conn->seldom->refused.all && r.acked > conn->seldom->refused.acked)
		r.acked = conn->seldom->refused.acked;
	rx_unlock();
	return r;
}

static void conn_note_attempt(struct rds_conn *conn)
{
	rds_lock(&conn->tx);
	rds_conn_history_attempt(conn);
	rds_unlock(&conn->tx);
}

/*
 * An attempt has failed: there is another one, unless the peer is gone.  The transport may have noticed
 * that in the attempt, and reported it of the FIRST endpoint.
 */
static void conn_attempt_failed(struct rds_conn *conn, int err)
{
	if (atomic_load(&conn->state) == RDS_CONN_DEAD)
		return;
	if (conn_peer_is_gone(conn)) {
		rds_transport_meet_last();
		rds_conn_drop(conn, conn->ep, err, true);
		return;
	}
	rds_conn_history_unreachable(conn, err);
	rds_relay_node_changed(conn);
	rds_conn_drop_closed(conn);
	rds_conn_backoff(conn);
}

/* 0: the attempt is under way, over conn->pending. */
static int conn_attempt(struct rds_conn *conn)
{
	struct rds_received here;
	struct rds_ep *ep = NULL;
	struct rds_conn_id id;
	int err;

	rds_lock(&rds_lock_control);
	id = conn->id;
	rds_unlock(&rds_lock_control);
	here = rds_conn_received(conn);
	err = conn->t->ops->connect(conn->t, &id, conn, here, &ep);
	if (err == -EMFILE && rds_helper_reserve_release())
		err = conn->t->ops->connect(conn->t, &id, conn, here, &ep);
	if (err)
		return err;
	rds_lock(&conn->tx);
	if (unlikely(atomic_load(&conn->state) == RDS_CONN_DEAD)) {
		rds_unlock(&conn->tx);
		rds_transport_ep_ops(ep)->close(ep);
		return -ECONNREFUSED;
	}
	conn->pending = ep;
	conn->peer_asked = conn->pending_up = false;
	rds_unlock(&conn->tx);
	return 0;
}

/* Is an attempt wanted?  The timer may have been set before the peer's request came. */
static bool conn_wants_attempt(struct rds_conn *conn)
{
	bool wants;

	rds_lock(&conn->tx);
	wants = atomic_load(&conn->state) == RDS_CONN_CONNECTING ||
		(atomic_load(&conn->state) == RDS_CONN_UP && atomic_load(&conn->outgrown) && rds_conn_is_first(conn));
	rds_unlock(&conn->tx);
	return wants && !conn->pending;
}

/* There may be memory now.  The peer has told nothing new: it gets nothing meanwhile. */
static void conn_up_again(struct rds_conn *conn)
{
	struct rds_received there;

	rds_lock(&conn->tx);
	there = (struct rds_received){.acked = conn->acked, .all = conn->received};
	if (there.all < there.acked) /* a node tells nothing */
		there.all = there.acked;
	rds_unlock(&conn->tx);
	rds_conn_up(conn, conn->pending, there);
}

static bool conn_is_wanted(struct rds_conn *conn)
{
	bool wanted = conn->queue;

	rx_lock();
	wanted |= conn->seldom && conn->seldom->nmembers;
	rx_unlock();
	return wanted;
}

void rds_conn_retry_wanted(struct rds_conn *conn)
{
	rds_lock(&conn->tx);
	if (conn_is_wanted(conn)) {
		rds_conn_backoff(conn);
	} else {
		conn->backoff_ms = 0;
		atomic_store(&conn->state, RDS_CONN_DOWN); /* the next send starts it again */
	}
	rds_unlock(&conn->tx);
}

/* The address of the host that could not be reached is this host's by now. */
static bool conn_node_is_here(struct rds_conn *conn)
{
	if (rds_node_addr_is_local(&conn->id.faddr, conn->id.scope))
		return false;
	rds_lock(&rds_lock_control);
	atomic_fetch_add(&rds_route_gen, 1); /* first, as in rds_route_retry() */
	rds_route_leave_node(&conn->id);
	if (rds_conn_is_node(conn))
		rds_conn_retry_wanted(conn);
	rds_unlock(&rds_lock_control);
	return true;
}

/* The owner of the address tries to reach the node.  What follows from that is as if this process did. */
static void conn_follow_owner(struct rds_conn *conn)
{
	const uint8_t node = atomic_load(&conn->node);

	if (atomic_load(&conn->state) == RDS_CONN_DEAD)
		return;
	if (!rds_conn_is_held(conn) && atomic_load(&conn->state) == RDS_CONN_UP)
		rds_conn_history_reached(conn);
	if (!rds_conn_is_held(conn) || !(node & RDS_NODE_FAILED))
		return;
	rds_conn_history_unreachable(conn, node & RDS_NODE_SILENT ? -ETIMEDOUT : -EHOSTUNREACH);
	rds_conn_drop_closed(conn);
	conn_node_is_here(conn);
	rds_timer_need(&conn->retry, os_now_ns() + (uint64_t)rds_options()->reconnect_max_ms * 1000000);
}

/* Helper: it is time for an attempt. */
void rds_conn_retry(struct rds_timer *tm)
{
	struct rds_conn *conn = container_of(tm, struct rds_conn, retry);
	int err;

	if (unlikely(conn->relay == RDS_RELAY_OWNER))
		conn_follow_owner(conn);
	if (atomic_load(&conn->nredirects_out) ||
	    atomic_load(&conn->nredirects_in)) { /* redirects retry here after lack of memory */
		rx_lock();
		rds_conn_work_add(conn);
		rx_unlock();
	}
	if (atomic_load(&conn->ack_lied) && conn->ep) {
		rds_conn_down(conn, conn->ep, -EPROTO, false);
		return;
	}
	if (atomic_load(&conn->reset) && conn->ep) {
		if (rds_conn_is_node(conn))
			conn->t->ops->hang_up(conn->ep);
		else
			rds_conn_down(conn, conn->ep, -ECONNRESET, false);
		return;
	}
	if (conn->pending && conn->pending_up) {
		conn_up_again(conn);
		return;
	}
	if (!conn_wants_attempt(conn))
		return;
	if (rds_conn_is_node(conn) && rds_relay_has_left()) {
		rds_conn_backoff(conn);
		return;
	}
	if (rds_conn_is_node(conn) && conn_node_is_here(conn))
		return;
	if (conn->kind == RDS_CONN_UNROUTED) {
		conn_note_attempt(conn);
		rds_route_retry(conn);
		return;
	}
	if (!rds_conn_rescue_stale(conn)) {
		conn_attempt_failed(conn, -ENOMEM);
		return;
	}
	conn_note_attempt(conn);
	err = conn_attempt(conn);
	if (!err)
		return;
	if (err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -EFBIG)
		rds_warn("cannot connect to another process: %s (ulimit %s, memory); messages to it wait",
			 strerror(-err), err == -EFBIG ? "-f" : "-n, -v, after mlockall() -l");
	conn_attempt_failed(conn, err);
}

/*
 * ep takes the place of a FIRST endpoint, whose messages the peer has not all acknowledged.  It got
 * no more of them since it has told what it has: there the endpoint was closed first (accept.c).
 * tx held.  Without memory they stay, and that endpoint, too, until it breaks.  True: *old is to be
 * closed, if there is one.
 */
static bool conn_take_place(struct rds_conn *conn, struct rds_ep *ep, struct rds_ep **old)
{
	struct rds_ep *first = conn->ep;

	if (conn->stale)
		return false;
	if (first) {
		rds_queue_reap(conn);
		if (!rds_queue_requeue(conn, first))
			return false;
		conn->replaces = true;
	}
	*old = first;
	conn->pending = NULL;
	conn->ep = ep;
	conn->t = ((struct rds_ep_head *)ep)->t;
	atomic_store(&conn->outgrown, false);
	return true;
}

/* The pending endpoint is up, and waits for memory, unless the peer has told what cannot be.  tx held. */
static void conn_wait_for_memory(struct rds_conn *conn, struct rds_received there, struct rds_ep **old)
{
	conn->pending_up = rds_queue_note_received(conn, there);
	if (conn->pending_up)
		return;
	*old = conn->pending;
	conn->pending = NULL;
}

void rds_conn_up(struct rds_conn *conn, struct rds_ep *ep, struct rds_received there)
{
	bool again = conn->was_up, taken, map = false;
	struct rds_ep *old = NULL;

	/* in the place of another endpoint it would lose that one's messages */
	if (ep != conn->pending) {
		rds_transport_ep_ops(ep)->close(ep);
		return;
	}
	/*
	 * What has come over the FIRST one is not taken any more when that is closed, and the peer may
	 * have ended since.
	 */
	if (conn->ep)
		rds_transport_meet_last();
	rds_conn_rescue_stale(conn); /* the first one may have broken since the attempt began */
	rds_lock(&rds_lock_control);
	rds_lock(&conn->tx);
	taken = conn_take_place(conn, ep, &old);
	if (unlikely(!taken)) {
		conn_wait_for_memory(conn, there, &old);
		goto unlock;
	}
	conn->backoff_ms = 0;
	conn->was_up = true;
	conn->peer_asked_again = conn->ack_unknown = false;
	/* each new list makes all polls of the peer return once: it is not sent to say nothing new */
	map = !conn->replaces || conn->map_told || conn_has_congested(conn);
	conn->replaces = false;
	rds_conn_history_up(conn);
	rds_queue_acked(conn, there);
	/* else no message goes to it, and the timer breaks it */
	if (likely(!atomic_load(&conn->ack_lied)))
		atomic_store(&conn->state, RDS_CONN_UP);
	if (rds_conn_is_node(conn)) {
		rds_conn_node_greet(conn);
		map = false;
	}
unlock:
	rds_unlock(&conn->tx);
	rds_unlock(&rds_lock_control);
	if (unlikely(old))
		rds_transport_ep_ops(old)->close(old);
	if (unlikely(!taken)) {
		rds_conn_backoff(conn);
		return;
	}
	rds_conn_history_reached(conn);
	rds_relay_node_changed(conn);
	rds_conn_log_state(conn, rds_conn_peer_pid(conn), true, "is up",
			   old	   ? "in place of its first endpoint"
			   : again ? "again"
				   : "for the first time");
	rx_lock();
	conn->want_push = true;
	/* flush: senders may have gone to sleep while there was no endpoint to ask */
	conn->want_map |= map;
	conn->want_flush = true;
	rds_conn_work_add(conn); /* map first, then the queue */
	rx_unlock();
	rds_conn_work_run();
}

/* rx held */
void rds_conn_writable(struct rds_conn *conn)
{
	conn->want_flush = true;
	rds_conn_work_add(conn);
}

/* rx held */
void rds_conn_push_later(struct rds_conn *conn)
{
	conn->want_push = true;
	rds_conn_work_add(conn);
}
