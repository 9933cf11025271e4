/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * connection.c - connections between this process and others: how they are found, come up, break and come up again.
 *
 * The story of one connection:
 *
 *   DOWN        made by the first send to that process, or by the peer's request.  A send starts it:
 *   CONNECTING  the helper asks the transport; a failure waits a random time below a limit that doubles from
 *               reconnect_min to reconnect_max, and tries again, for ever (a peer that is alive will answer some day).
 *   UP          the congestion map goes first, then what had to be sent again, then what waited, then new messages.
 *   DOWN        it broke: unacknowledged messages go back to the queue.  If the peer lives, straight to CONNECTING again.
 *   DEAD        the peer process is gone: everything for it is dropped (its sockets are gone too) and the object leaves the tables.
 *
 * Sequence numbers belong to the connection and survive all of it but DEAD.  Two processes that connect to each other at the
 * same moment: the attempt of the one with the smaller process id wins.  A request for a connection that is UP is
 * refused once: two attempts that cross may arrive in any order, and the peer may already have sent, over the one that won,
 * the last messages of its life.  If the peer asks again, it has lost the connection: the old endpoint is closed, the new one
 * taken.
 *
 * A loop connection has no process behind it but this one, and is UP from the start.  A NOWHERE connection keeps messages
 * for an address that nobody on this host can reach, and looks from time to time whether that has changed.
 */
#include "engine/message.h"
#include "engine/wait.h"

#include <stdlib.h>
#include <string.h>

static struct rds_conn *conn_free, *conn_graveyard; /* control */

static unsigned conn_hash(const struct rds_conn_id *id)
{
	uint32_t h = id->laddr.s6_addr32[3] * 2654435761u ^ id->faddr.s6_addr32[3] * 40503u ^ id->tos, p;

	memcpy(&p, id->peer.b, sizeof(p));
	return (h ^ p) % RDS_CONN_BUCKETS;
}

static bool id_equal(const struct rds_conn_id *a, const struct rds_conn_id *b)
{
	return rds_ip_equal(&a->laddr, &b->laddr) && rds_ip_equal(&a->faddr, &b->faddr) && a->tos == b->tos &&
	       a->scope == b->scope && memcmp(&a->peer, &b->peer, sizeof(a->peer)) == 0;
}

static struct rds_conn *conn_find(enum rds_conn_kind kind, const struct rds_conn_id *id)
{
	struct rds_conn *conn;

	for (conn = rds_eng->conns[conn_hash(id)]; conn; conn = conn->hash_next)
		if (conn->kind == kind && id_equal(&conn->id, id))
			return conn;
	return NULL;
}

static void conn_retry(struct rds_timer *tm);

static struct rds_conn *conn_alloc(void)
{
	struct rds_conn *conn = conn_free;

	if (conn) {
		conn_free = conn->next_free;
		return conn;
	}
	conn = calloc(1, sizeof(*conn));
	if (conn)
		rds_lock_init(&conn->tx);
	return conn;
}

/* control held */
static struct rds_conn *conn_new(enum rds_conn_kind kind, const struct rds_conn_id *id, int *err)
{
	struct rds_conn *conn = conn_alloc();
	unsigned h = conn_hash(id);

	*err = -ENOMEM;
	if (!conn)
		return NULL;
	rds_lock(&conn->tx);
	conn->id = *id;
	conn->kind = kind;
	conn->t = kind == RDS_CONN_LOOP ? rds_eng->loop : rds_eng->shm;
	conn->retry.fn = conn_retry;
	conn->next_tx = 1;
	conn->acked = 0;
	conn->queue_tail = &conn->queue;
	conn->backoff_ms = 0;
	conn->was_up = conn->doubted = false;
	conn->mirror = NULL;
	atomic_store(&conn->next_rx, 1);
	atomic_store(&conn->state, RDS_CONN_DOWN);
	rx_lock();
	*err = rds_cong_attach(conn);
	rx_unlock();
	rds_unlock(&conn->tx);
	if (*err) {
		conn->next_free = conn_free;
		conn_free = conn;
		return NULL;
	}
	conn->hash_next = rds_eng->conns[h];
	rds_eng->conns[h] = conn;
	conn->next = rds_eng->conn_list;
	rds_eng->conn_list = conn;
	return conn;
}

/* Both directions of a loop connection, UP at once.  control held. */
static struct rds_conn *loop_pair(const struct rds_conn_id *id, int *err)
{
	struct rds_conn_id back = *id;
	struct rds_conn *a, *b;

	back.laddr = id->faddr;
	back.faddr = id->laddr;
	a = conn_find(RDS_CONN_LOOP, id);
	if (!a)
		a = conn_new(RDS_CONN_LOOP, id, err);
	if (!a)
		return NULL;
	b = conn_find(RDS_CONN_LOOP, &back);
	if (!b)
		b = conn_new(RDS_CONN_LOOP, &back, err);
	if (!b)
		return NULL;
	a->mirror = b;
	b->mirror = a;
	if (!a->ep)
		*err = a->t->ops->connect(a->t, id, b, 0, &a->ep);
	if (!*err && !b->ep)
		*err = b->t->ops->connect(b->t, &back, a, 0, &b->ep);
	if (*err)
		return NULL;
	atomic_store(&a->state, RDS_CONN_UP);
	atomic_store(&b->state, RDS_CONN_UP);
	rx_lock();
	rds_cong_updated(~0ull); /* the kernel's loopback connection "sends" its map when it comes up */
	rx_unlock();
	return a;
}

struct rds_conn *rds_conn_get(enum rds_conn_kind kind, const struct rds_conn_id *id, int *err)
{
	struct rds_conn *conn;

	*err = 0;
	rds_lock(&rds_eng->control);
	conn = conn_find(kind, id);
	if (!conn || (kind == RDS_CONN_LOOP && !conn->ep))
		conn = kind == RDS_CONN_LOOP ? loop_pair(id, err) : conn_new(kind, id, err);
	rds_unlock(&rds_eng->control);
	return conn;
}

static int resolve(const struct rds_conn_id *from, const struct rds_addr *dst, struct rds_conn **out)
{
	struct rds_conn_id id = *from;
	enum rds_conn_kind kind = RDS_CONN_LOOP;
	struct registry_owner own;
	int err;

	id.faddr = dst->ip;
	id.scope = dst->scope;
	memset(&id.peer, 0, sizeof(id.peer));
	err = dst->port ? registry_lookup(rds_eng->reg, &dst->ip, dst->port, dst->scope, &own) : -ENOENT;
	if (!err && memcmp(&own.procid, registry_self(rds_eng->reg), sizeof(own.procid)) != 0) {
		kind = RDS_CONN_PEER;
		id.peer = own.procid;
		id.peer_slot = own.proc;
	} else if (err && err != -ENOENT) {
		return err;
	} else if (err && rds_addr_is_local(&dst->ip, dst->scope)) {
		kind = RDS_CONN_NOWHERE; /* no such port here is silently dropped; no such host waits */
	}
	*out = rds_conn_get(kind, &id, &err);
	return *out ? 0 : err;
}

int rds_conn_resolve(struct rds_sock *sk, const struct rds_addr *dst, struct rds_conn **out)
{
	struct rds_conn_id id = {.laddr = sk->laddr.ip, .tos = atomic_load(&sk->tos)};

	return resolve(&id, dst, out);
}

void rds_conn_each(void (*fn)(struct rds_conn *conn, void *arg), void *arg)
{
	struct rds_conn *conn;

	rds_lock(&rds_eng->control);
	for (conn = rds_eng->conn_list; conn; conn = conn->next)
		fn(conn, arg);
	rds_unlock(&rds_eng->control);
}

void rds_conn_work(struct rds_conn *conn)
{
	if (conn->work_queued)
		return;
	conn->work_queued = true;
	conn->work_next = rds_eng->work;
	rds_eng->work = conn;
	atomic_store(&rds_eng->work_pending, true);
}

/* ---- coming up ---- */

void rds_conn_start(struct rds_conn *conn)
{
	bool start = false;

	rds_lock(&rds_eng->control);
	rds_lock(&conn->tx);
	if (atomic_load(&conn->state) == RDS_CONN_DOWN && conn->kind != RDS_CONN_LOOP) {
		atomic_store(&conn->state, RDS_CONN_CONNECTING);
		start = true;
	}
	rds_unlock(&conn->tx);
	rds_unlock(&rds_eng->control);
	if (start)
		rds_timer_set(&conn->retry, os_now_ns());
}

static void backoff(struct rds_conn *conn)
{
	const struct rds_options *o = rds_options();
	uint64_t limit = conn->backoff_ms ? conn->backoff_ms : (uint64_t)o->reconnect_min_ms, r;

	os_random(&r, sizeof(r));
	rds_timer_set(&conn->retry, os_now_ns() + r % (limit * 1000000 + 1));
	conn->backoff_ms = limit * 2 > (uint64_t)o->reconnect_max_ms ? (uint64_t)o->reconnect_max_ms : limit * 2;
}

/* Messages that waited for an address to appear: hand them to where they belong now. */
static void nowhere_retry(struct rds_conn *conn)
{
	struct rds_queued *q, *list;
	struct rds_conn *to;
	struct rds_addr dst = {.ip = conn->id.faddr, .scope = conn->id.scope};

	if (rds_addr_is_local(&dst.ip, dst.scope)) {
		rds_lock(&conn->tx);
		if (conn->queue) {
			conn->backoff_ms = (uint64_t)rds_options()->reconnect_max_ms;
			backoff(conn);
		} else {
			atomic_store(&conn->state, RDS_CONN_DOWN); /* the next send starts it again */
		}
		rds_unlock(&conn->tx);
		return;
	}
	rds_lock(&conn->tx);
	list = conn->queue;
	conn->queue = NULL;
	conn->queue_tail = &conn->queue;
	conn->queue_len = 0;
	atomic_store(&conn->state, RDS_CONN_DOWN);
	atomic_fetch_add(&rds_eng->conn_gen, 1); /* senders look the address up again */
	rds_unlock(&conn->tx);
	while ((q = list)) {
		list = q->next;
		dst.port = q->u.dport;
		if (resolve(&conn->id, &dst, &to) == 0) {
			rds_lock(&to->tx);
			q->next = NULL;
			q->hdr.seq = q->u.seq = to->next_tx++;
			*to->queue_tail = q;
			to->queue_tail = &q->next;
			to->queue_len++;
			rds_conn_busy(to);
			rds_queue_flush(to);
			rds_unlock(&to->tx);
			rds_conn_start(to);
		} else {
			rds_release_unacked(&q->u);
			free(q);
		}
	}
}

/* Helper: time to try. */
static void conn_retry(struct rds_timer *tm)
{
	struct rds_conn *conn = container_of(tm, struct rds_conn, retry);
	struct rds_ep *ep = NULL;
	int err;

	if (atomic_load(&conn->state) != RDS_CONN_CONNECTING || conn->pending)
		return;
	if (conn->kind == RDS_CONN_NOWHERE) {
		nowhere_retry(conn);
		return;
	}
	err = conn->t->ops->connect(conn->t, &conn->id, conn, atomic_load(&conn->next_rx) - 1, &ep);
	if (err == -EMFILE && rds_spare_use())
		err = conn->t->ops->connect(conn->t, &conn->id, conn, atomic_load(&conn->next_rx) - 1, &ep);
	if (!err) {
		conn->pending = ep;
		return;
	}
	if (err == -EMFILE || err == -ENFILE || err == -ENOMEM)
		rds_warn("cannot connect to another process: %s (ulimit -n, memory); messages to it wait", strerror(-err));
	if (!registry_proc_alive(rds_eng->reg, conn->id.peer_slot, &conn->id.peer))
		rds_conn_drop(conn, NULL, err, true);
	else
		backoff(conn);
}

static void conn_up(struct rds_conn *conn, struct rds_ep *ep, uint64_t ack)
{
	rds_lock(&rds_eng->control);
	rds_lock(&conn->tx);
	conn->pending = NULL;
	conn->ep = ep;
	conn->backoff_ms = 0;
	conn->was_up = true;
	conn->doubted = false;
	rds_queue_acked(conn, ack);
	atomic_store(&conn->state, RDS_CONN_UP);
	rds_unlock(&conn->tx);
	rds_unlock(&rds_eng->control);
	rx_lock();
	conn->want_map = conn->want_flush = true; /* senders may have gone to sleep while there was no endpoint to ask */
	rds_conn_work(conn); /* map first, then the queue */
	rx_unlock();
	rds_run_work();
}

static struct rds_conn *conn_accept(struct rds_transport *t, const struct rds_conn_id *id, uint64_t ack,
				    uint64_t *rx_seq, int *why)
{
	struct rds_conn *conn = rds_conn_get(RDS_CONN_PEER, id, why);

	(void)t;
	(void)ack;
	if (!conn)
		return NULL;
	if (conn->pending) {
		if (memcmp(registry_self(rds_eng->reg), &id->peer, sizeof(id->peer)) < 0) {
			*why = -EALREADY; /* crossing: ours wins */
			return NULL;
		}
		conn->t->ops->close(conn->pending);
		conn->pending = NULL;
	}
	if (conn->ep && !conn->doubted) {
		conn->doubted = true; /* most likely from before the crossing was settled: what the peer sends lies in our endpoint */
		*why = -EALREADY;
		return NULL;
	}
	if (conn->ep)
		rds_conn_drop(conn, conn->ep, -ECONNRESET, false);
	rds_timer_cancel(&conn->retry);
	rds_lock(&conn->tx);
	atomic_store(&conn->state, RDS_CONN_CONNECTING);
	rds_unlock(&conn->tx);
	*rx_seq = atomic_load(&conn->next_rx) - 1;
	return conn;
}

/* ---- going down ---- */

static void conn_bury(struct rds_conn *conn)
{
	struct rds_conn **p;

	for (p = &rds_eng->conns[conn_hash(&conn->id)]; *p; p = &(*p)->hash_next)
		if (*p == conn) {
			*p = conn->hash_next;
			break;
		}
	for (p = &rds_eng->conn_list; *p; p = &(*p)->next)
		if (*p == conn) {
			*p = conn->next;
			break;
		}
	conn->next_free = conn_graveyard;
	conn_graveyard = conn;
}

void rds_conn_drop(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone)
{
	char a[RDS_ADDR_STRLEN], b[RDS_ADDR_STRLEN];

	if (ep && conn->ep && conn->ep != ep) { /* one that was replaced long ago */
		conn->t->ops->close(ep);
		return;
	}
	rds_timer_cancel(&conn->retry);
	rds_lock(&rds_eng->control);
	rds_lock(&conn->tx);
	if (ep && conn->ep == ep) {
		rds_conn_reap(conn);
		rds_queue_requeue(conn, ep);
		conn->ep = NULL;
		RDS_STAT_INC(conn_reset);
	}
	if (ep && conn->pending == ep)
		conn->pending = NULL;
	if (peer_gone) {
		rds_queue_drop_all(conn);
		atomic_store(&conn->state, RDS_CONN_DEAD);
		atomic_fetch_add(&rds_eng->conn_gen, 1);
	} else {
		atomic_store(&conn->state, RDS_CONN_DOWN);
	}
	rds_unlock(&conn->tx);
	if (peer_gone)
		conn_bury(conn);
	rds_unlock(&rds_eng->control);
	if (ep)
		conn->t->ops->close(ep);
	rds_debug("connection %s -> %s: %s%s", rds_addr_str(&conn->id.laddr, 0, 0, a),
		  rds_addr_str(&conn->id.faddr, 0, 0, b), strerror(-why), peer_gone ? ", peer process gone" : "");
	if (peer_gone) {
		registry_reap(rds_eng->reg); /* its ports are free, senders must not find them again */
		rx_lock();
		rds_cong_updated(~0ull); /* whoever waits for a port of a dead process need not wait any longer */
		rx_unlock();
		rds_room_made(); /* nor for room in a ring to it */
	}
}

static void conn_down(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone)
{
	bool crossing = why == -EALREADY;

	rds_conn_drop(conn, ep, why, peer_gone);
	if (peer_gone)
		return;
	rds_lock(&conn->tx);
	atomic_store(&conn->state, RDS_CONN_CONNECTING);
	rds_unlock(&conn->tx);
	if (crossing && conn->backoff_ms < 16)
		conn->backoff_ms = 16; /* the peer's own attempt is under way: leave it time */
	backoff(conn);
}

/* rx held */
static void conn_writable(struct rds_conn *conn)
{
	conn->want_flush = true;
	rds_conn_work(conn);
}

/* Buried connections become reusable once nothing of theirs is in use.  Helper, no event pending. */
void rds_conn_reclaim(void)
{
	struct rds_conn **p, *conn;

	if (!__atomic_load_n(&conn_graveyard, __ATOMIC_RELAXED))
		return;
	rds_reap_all(); /* takes the dead ones off the busy list */
	rds_lock(&rds_eng->control);
	for (p = &conn_graveyard; (conn = *p);) {
		bool idle;

		rds_lock(&conn->tx);
		rx_lock();
		idle = !conn->work_queued && !conn->inplace && !conn->busy && !conn->retry.queued;
		if (idle)
			rds_cong_detach(conn);
		rx_unlock();
		rds_unlock(&conn->tx);
		if (!idle) {
			p = &conn->next_free;
			continue;
		}
		*p = conn->next_free;
		conn->next_free = conn_free;
		conn_free = conn;
	}
	rds_unlock(&rds_eng->control);
}

void rds_conn_forget(void)
{
	conn_free = conn_graveyard = NULL;
}

const struct rds_transport_up rds_transport_up = {
	.accept = conn_accept,
	.up = conn_up,
	.down = conn_down,
	.message = rds_recv_message,
	.pressure = rds_pressure,
	.evacuate = rds_inc_evacuate,
	.writable = conn_writable,
};
