/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * busy_conns.c - the connections that may hold messages: their peers are asked for
 * acknowledgements, all of them or one.
 *
 * A connection that may hold messages is on the busy list, so that asking all peers for
 * acknowledgements costs nothing for the idle ones.  List lock order: queue_busy_walk, conn->tx,
 * queue_busy_lock.  Must not know what the messages are, nor which thread waits.
 */

#include "engine/conn/client.h"

#include <stdlib.h>

/* by a program that does not sleep, before busy peers are asked for deferred work */
#define LOOKS_IN_VAIN 64

/* peers have to carry out operations of ours, and were not woken for them */
static _Atomic bool queue_unasked;

static pthread_mutex_t queue_busy_walk = PTHREAD_MUTEX_INITIALIZER, queue_busy_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rds_conn *queue_busy_list;

void rds_queue_busy_add(struct rds_conn *conn)
{
	if (likely(conn->busy))
		return;
	conn->busy = true;
	pthread_mutex_lock(&queue_busy_lock);
	conn->busy_next = queue_busy_list;
	queue_busy_list = conn;
	pthread_mutex_unlock(&queue_busy_lock);
}

void rds_queue_forget(void)
{
	queue_busy_list = NULL;
	atomic_store(&queue_unasked, false);
	pthread_mutex_init(&queue_busy_walk, NULL);
	pthread_mutex_init(&queue_busy_lock, NULL);
}

/* fn is called with conn->tx held.  Connections that hold no messages any more leave the list. */
static bool queue_busy_each(bool (*fn)(struct rds_conn *conn))
{
	struct rds_conn *conn, *list;
	bool any = false;

	pthread_mutex_lock(&queue_busy_walk);
	pthread_mutex_lock(&queue_busy_lock);
	list = queue_busy_list;
	queue_busy_list = NULL;
	pthread_mutex_unlock(&queue_busy_lock);
	while ((conn = list)) {
		list = conn->busy_next;
		rds_lock(&conn->tx);
		any |= fn(conn);
		conn->busy = false;
		if (conn->count || conn->queue || conn->room_sought)
			rds_queue_busy_add(conn);
		rds_unlock(&conn->tx);
	}
	pthread_mutex_unlock(&queue_busy_walk);
	return any;
}

static bool queue_reap_one(struct rds_conn *conn)
{
	uint64_t before = conn->acked;

	rds_queue_reap(conn);
	rds_queue_flush(conn);
	return conn->acked != before;
}

bool rds_queue_reap_is_free(void)
{
	if (pthread_mutex_trylock(&queue_busy_walk))
		return false;
	pthread_mutex_unlock(&queue_busy_walk);
	return true;
}

void rds_queue_reap_all(void)
{
	queue_busy_each(queue_reap_one);
}

/*
 * One request for service per acknowledgement seen: a thread that is about to sleep must not depend
 * on calls of the receiver's program.
 */
static void conn_ask_acks(struct rds_conn *conn)
{
	conn->t->ops->flush(conn->ep, true);
	conn->t->ops->want_room(conn->ep, conn->acked);
}

void rds_queue_ask_acks(struct rds_conn *conn)
{
	rds_queue_reap(conn);
	if (!conn->ep || !conn->count)
		return;
	conn_ask_acks(conn);
	rds_queue_reap(conn); /* acknowledgements that came before the peer knew that we wait */
}

static bool queue_want_room_one(struct rds_conn *conn)
{
	bool moved = queue_reap_one(conn);

	if (conn->ep && (conn->count || conn->queue || conn->room_sought)) {
		conn_ask_acks(conn);
		/* acknowledgements that came before the peer knew that we wait */
		moved |= queue_reap_one(conn);
	}
	return moved;
}

/*
 * Acknowledgements came, but perhaps not yet for the threads that sleep: the next ones must be
 * announced, too.  tx held.
 */
void rds_queue_rearm(struct rds_conn *conn)
{
	unsigned i;

	if (!conn->ep)
		return;
	for (i = 0; i < conn->count; i++) {
		const struct rds_queue_unacked *u = rds_queue_unacked_at(conn, i);
		struct rds_sock *sk = u->sk;

		if (unlikely(u->report & RDS_REPORT_END)) {
			rds_queue_ask_acks(conn);
			return;
		}
		if (!sk || (!atomic_load(&sk->waiters) && !sk->hidden_out))
			continue;
		conn->t->ops->want_room(conn->ep, conn->acked);
		rds_queue_reap(conn); /* those that came before */
		return;
	}
}

bool rds_queue_want_room_all(void)
{
	return queue_busy_each(queue_want_room_one);
}

/* Nothing is kept for the peer, and it is not looked at until the next message: what that needs is made anew. */
static void conn_rest(struct rds_conn *conn)
{
	free(conn->unacked);
	conn->unacked = NULL;
	conn->head = conn->cap = 0;
	if (conn->ep && conn->t->ops->rest)
		conn->t->ops->rest(conn->ep);
}

bool rds_conn_awaited(struct rds_conn *conn)
{
	bool yes;

	rds_lock(&conn->tx);
	rds_queue_reap(conn);
	yes = conn->count || conn->queue || conn->room_sought || atomic_load(&conn->fcong.few);
	if (!yes) {
		rx_lock();
		yes = rds_conn_client.ops_unfinished(conn);
		rx_unlock();
	}
	if (!yes)
		conn_rest(conn);
	rds_unlock(&conn->tx);
	return yes;
}

bool rds_queue_ask_later(struct rds_conn *conn)
{
	if (!(conn->t->ops->caps & RDS_TCAP_PATIENT))
		return false;
	atomic_store_explicit(&queue_unasked, true, memory_order_relaxed);
	return true;
}

bool rds_queue_ask_deferred(void)
{
	if (likely(!atomic_load_explicit(&queue_unasked, memory_order_relaxed)))
		return false;
	atomic_store_explicit(&queue_unasked, false, memory_order_relaxed);
	return rds_queue_want_room_all();
}

void rds_queue_looked_in_vain(void)
{
	static __thread unsigned looks __attribute__((tls_model("initial-exec")));

	if (unlikely(atomic_load_explicit(&queue_unasked, memory_order_relaxed)) && ++looks % LOOKS_IN_VAIN == 0)
		rds_queue_ask_deferred();
}
