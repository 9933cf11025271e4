/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * resolve.c - which connection does a message take?
 *
 * To the process that has bound the port (PEER); if that is this one, or nobody although the address is this host's, round
 * to ourselves (LOOP), which drops what has no socket as the kernel does; to an address of no host that we can reach it waits
 * (NOWHERE), as in the kernel, and the helper looks from time to time whether the address has appeared.
 *
 * A socket's messages to one address stay in order, also when the answer changes from NOWHERE to another: whoever gets the
 * new answer first has the old messages go that way before its own.
 */
#include "engine/connection.h"

#include <string.h>

/* Whose is that port?  Completes id.  -ENOENT: nobody's on this host. */
static int owner_of(const struct rds_addr *dst, struct rds_conn_id *id, enum rds_conn_kind *kind)
{
	struct registry_owner own;
	int err;

	id->faddr = dst->ip;
	id->scope = dst->scope;
	memset(&id->peer, 0, sizeof(id->peer));
	*kind = RDS_CONN_LOOP;
	err = dst->port ? registry_lookup(rds_eng->reg, &dst->ip, dst->port, dst->scope, &own) : -ENOENT;
	if (!err && memcmp(&own.procid, registry_self(rds_eng->reg), sizeof(own.procid)) != 0) {
		if (unlikely(rds_eng->alone)) {
			*kind = RDS_CONN_NOWHERE; /* it is somebody's, but out of reach */
			return 0;
		}
		*kind = RDS_CONN_PEER;
		id->peer = own.procid;
		id->peer_slot = own.proc;
	}
	return err;
}

static void append(struct rds_conn *to, struct rds_queued *q)
{
	bool start;

	rds_lock(&to->tx);
	q->next = NULL;
	q->hdr.seq = q->u.seq = to->next_tx++;
	*to->queue_tail = q;
	to->queue_tail = &q->next;
	to->queue_len++;
	rds_conn_busy(to);
	rds_queue_flush(to);
	start = rds_conn_start_locked(to);
	rds_unlock(&to->tx);
	if (start)
		rds_timer_set(&to->retry, os_now_ns());
}

/*
 * Messages that waited for an address to appear go to where they belong now.  control is held from end to end: a sender that
 * looks the address up gets no answer in between, so nothing newer overtakes them.
 */
static void hand_over(struct rds_conn *nowhere, bool local)
{
	struct rds_addr dst = {.ip = nowhere->id.faddr, .scope = nowhere->id.scope};
	struct rds_conn_id id = nowhere->id;
	struct rds_queued *q, *list, *kept = NULL, **tail = &kept;
	enum rds_conn_kind kind;
	struct rds_conn *to;
	unsigned n = 0;
	int err;

	rds_lock(&nowhere->tx);
	list = nowhere->queue;
	nowhere->queue = NULL;
	nowhere->queue_tail = &nowhere->queue;
	nowhere->queue_len = 0;
	rds_unlock(&nowhere->tx);
	while ((q = list)) {
		list = q->next;
		dst.port = q->u.dport;
		err = owner_of(&dst, &id, &kind);
		to = kind != RDS_CONN_NOWHERE && (!err || (err == -ENOENT && local))
			     ? rds_conn_get_locked(kind, &id, &err)
			     : NULL;
		if (to) {
			append(to, q);
		} else {
			*tail = q;
			tail = &q->next;
			n++;
		}
	}
	if (!kept)
		return;
	rds_lock(&nowhere->tx);
	*tail = nowhere->queue;
	if (!nowhere->queue)
		nowhere->queue_tail = tail;
	nowhere->queue = kept;
	nowhere->queue_len += n;
	rds_conn_busy(nowhere);
	rds_unlock(&nowhere->tx);
}

/* Not an error, in the kernel neither, but most likely not what was meant. */
static void out_of_reach(const struct rds_addr *dst)
{
	char a[RDS_ADDR_STRLEN];

	*strrchr(rds_addr_str(&dst->ip, 0, 0, a), ':') = '\0';
	if (rds_eng->alone)
		rds_warn("messages to %s wait for ever: RDS_PRELOAD_TRANSPORT=loop reaches this process only", a);
	else
		rds_warn("messages to %s wait until that is an address of this host: other hosts are out of reach of "
			 "this version",
			 a);
}

static int resolve(const struct rds_conn_id *from, const struct rds_addr *dst, struct rds_conn **out)
{
	struct rds_conn_id id = *from, none;
	enum rds_conn_kind kind;
	struct rds_conn *nowhere;
	int err = owner_of(dst, &id, &kind);
	bool bound = !err, tell;

	if (err && err != -ENOENT)
		return err;
	if (err && rds_addr_is_local(&dst->ip, dst->scope))
		kind = RDS_CONN_NOWHERE; /* no such port here is silently dropped; no such host waits */
	none = id;
	memset(&none.peer, 0, sizeof(none.peer));
	rds_lock(&rds_eng->control);
	nowhere = kind == RDS_CONN_NOWHERE ? NULL : rds_conn_find(RDS_CONN_NOWHERE, &none);
	if (unlikely(nowhere))
		hand_over(nowhere, !bound);
	*out = rds_conn_get_locked(kind, &id, &err);
	tell = *out && kind == RDS_CONN_NOWHERE && !(*out)->told;
	if (tell)
		(*out)->told = true;
	rds_unlock(&rds_eng->control);
	if (unlikely(tell))
		out_of_reach(dst);
	return *out ? 0 : err;
}

int rds_conn_resolve(struct rds_sock *sk, const struct rds_addr *dst, struct rds_conn **out)
{
	struct rds_conn_id id = {.laddr = sk->laddr.ip, .tos = atomic_load(&sk->tos)};

	return resolve(&id, dst, out);
}

/* Helper: has the address appeared? */
void rds_nowhere_retry(struct rds_conn *conn)
{
	bool local = rds_addr_is_local(&conn->id.faddr, conn->id.scope) == 0;

	rds_lock(&rds_eng->control);
	if (local)
		hand_over(conn, true);
	rds_lock(&conn->tx);
	if (conn->queue) {
		conn->backoff_ms = (uint64_t)rds_options()->reconnect_max_ms;
		rds_conn_backoff(conn);
	} else {
		atomic_store(&conn->state, RDS_CONN_DOWN); /* the next send starts it again */
	}
	if (local)
		atomic_fetch_add(&rds_eng->conn_gen, 1); /* senders look the address up again */
	rds_unlock(&conn->tx);
	rds_unlock(&rds_eng->control);
}
