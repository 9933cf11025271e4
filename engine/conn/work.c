/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * work.c - work that the receive path leaves: it never takes conn->tx, so connections wait here
 * until its caller runs rds_conn_work_run().
 *
 * The list is guarded by rx.  Must not know why a connection is on it.
 */
#include <stdlib.h>

#include "engine/conn/client.h"
#include "engine/conn/conn.h"
#include "engine/conn/relay.h"

static struct rds_conn *conn_work; /* rx */
/*
 * How often the transport that opens endpoints has asked for meet() (rx), and up to which of these it
 * has been done.  Not before it has come to its end: who binds a socket relies on that.
 */
static struct rds_transport *_Atomic meet_transport;
static _Atomic uint64_t meets_wanted, meets_done;
_Atomic bool rds_conn_work_pending;

struct rds_conn_seldom *rds_conn_seldom_get(struct rds_conn *conn)
{
	if (!conn->seldom)
		conn->seldom = calloc(1, sizeof(*conn->seldom));
	return conn->seldom;
}

void rds_conn_work_add(struct rds_conn *conn)
{
	if (conn->work_queued)
		return;
	conn->work_queued = true;
	conn->work_next = conn_work;
	conn_work = conn;
	atomic_store(&rds_conn_work_pending, true);
}

/* rx held */
void rds_conn_meet_later(struct rds_transport *t)
{
	atomic_store(&meet_transport, t);
	atomic_fetch_add(&meets_wanted, 1);
	atomic_store(&rds_conn_work_pending, true);
}

static bool meet_is_wanted(void)
{
	return atomic_load_explicit(&meets_wanted, memory_order_relaxed) !=
	       atomic_load_explicit(&meets_done, memory_order_relaxed);
}

/*
 * Sends what the receive path left.  Without room now, `writable` puts the connection on the list
 * again.
 */
static bool conn_has_members(const struct rds_conn *conn)
{
	bool has;

	rx_lock();
	has = conn->seldom && conn->seldom->nmembers;
	rx_unlock();
	return has;
}

static void conn_work_one(struct rds_conn *conn)
{
	uint16_t *pongs = NULL;
	unsigned i, n = 0;
	bool map, flush, push, start;

	if (unlikely(atomic_load_explicit(&conn->nredirects_in, memory_order_relaxed)))
		rds_conn_redirect_run(conn);
	/*
	 * The work is read under tx, since a thread that puts a map back for the next `writable`
	 * does so under it, too.
	 */
	rds_lock(&conn->tx);
	rx_lock();
	if (unlikely(conn->seldom)) {
		n = conn->seldom->npongs;
		pongs = conn->seldom->pongs;
		conn->seldom->pongs = NULL;
		conn->seldom->npongs = conn->seldom->pongs_room = 0;
	}
	map = conn->want_map;
	flush = conn->want_flush;
	push = conn->want_push;
	conn->want_map = conn->want_flush = conn->want_push = false;
	rx_unlock();

	if (unlikely(atomic_load_explicit(&conn->nadvertise, memory_order_relaxed)))
		rds_conn_client.advertise(conn);
	if (unlikely(atomic_load_explicit(&conn->nanswers, memory_order_relaxed)))
		rds_conn_client.answers_flush(conn);
	if (flush)
		rds_queue_reap(conn);
	if (map && rds_conn_xmit_map(conn)) { /* no room, or no memory */
		rx_lock();
		conn->want_map = true; /* sent with the next `writable` or reconnect */
		rx_unlock();
	}
	if (push && conn->ep && conn->t->ops->push)
		conn->t->ops->push(conn->ep);
	rds_queue_flush(conn);
	if (unlikely(conn->relay == RDS_RELAY_MEMBER))
		rds_relay_room(conn);
	if (flush)
		rds_queue_rearm(conn);
	if (flush && !conn->queue)
		rds_conn_client.room_made();
	for (i = 0; i < n; i++)
		rds_conn_xmit_pong(conn, pongs[i]);
	free(pongs);
	if (unlikely(atomic_load_explicit(&conn->nredirects_out, memory_order_relaxed)))
		rds_conn_redirect_send(conn);
	start = unlikely(conn->relay == RDS_RELAY_NODE && atomic_load(&conn->state) == RDS_CONN_DOWN) &&
		conn_has_members(conn);
	rds_unlock(&conn->tx);
	if (unlikely(start)) /* a member asks for it */
		rds_conn_start(conn);
}

/* Several threads may do it at once: each comes to the end only when all that it saw has been met. */
static void conn_work_meet(void)
{
	struct rds_transport *t = atomic_load(&meet_transport);
	uint64_t wanted = atomic_load(&meets_wanted), done = atomic_load(&meets_done);

	t->ops->meet(t, false);
	while (done < wanted && !atomic_compare_exchange_weak(&meets_done, &done, wanted))
		;
}

void rds_conn_work_run(void)
{
	struct rds_conn *conn;

	if (unlikely(meet_is_wanted()))
		conn_work_meet();
	if (unlikely(rds_relay_waits()))
		rds_relay_run();
	for (;;) {
		rx_lock();
		conn = conn_work;
		if (conn) {
			conn_work = conn->work_next;
			conn->work_queued = false;
		} else {
			atomic_store(&rds_conn_work_pending, meet_is_wanted() || rds_relay_waits());
		}
		rx_unlock();
		if (!conn)
			return;
		conn_work_one(conn);
	}
}

void rds_conn_work_forget(void)
{
	conn_work = NULL;
	atomic_store(&meets_done, atomic_load(&meets_wanted));
	atomic_store(&rds_conn_work_pending, false);
}
