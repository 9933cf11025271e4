/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * unsent.c - messages on the heap, answers to operations, and writes that a device carries out: all would be
 * lost if this process ended now.  And what peers have to be told then.
 *
 * Must not know why the process ends, nor how long it waits.
 */
#include <time.h>

#include "engine/conn/client.h"
#include "engine/conn/relay.h"
#include "engine/conn/conn.h"
#include "engine/sys/patience.h"

/* This process has given up the connection to the node.  What members have sent is in the next owner's hands. */
static unsigned left_behind(const struct rds_conn *conn)
{
	const struct rds_queue_item *q;
	unsigned n = 0;

	for (q = conn->queue; q; q = q->next)
		n += q->u.sk != NULL;
	return n;
}

/*
 * Of the messages for a member, from that number on: those that the trunk keeps, so that the next owner of the address
 * sends them again.  tx held.
 */
static unsigned kept_for_member(const struct rds_conn *conn, uint64_t from)
{
	if (likely(conn->relay != RDS_RELAY_MEMBER) || atomic_load(&conn->seldom->wants_box))
		return 0; /* nobody has the box, perhaps */
	return rds_trunk_refs_count(&conn->seldom->refs, from);
}

/*
 * What no endpoint was offered: messages, and answers to operations, of which a thread that has taken
 * the connection off the list of work may have sent none yet.
 */
static unsigned unoffered(const struct rds_conn *conn)
{
	if (unlikely(rds_conn_is_node(conn) && rds_relay_has_left()))
		return left_behind(conn);
	return conn->queue_len - (conn->queue ? kept_for_member(conn, conn->queue->u.seq) : 0) +
	       atomic_load(&conn->nanswers);
}

/*
 * Number of those that an endpoint was offered, and of writes that a device carries out, which would be
 * lost if we ended now.  survives: the transport keeps what it has taken.  tx held.
 */
static unsigned offered_all(const struct rds_conn *conn, bool survives)
{
	if (conn->kind != RDS_CONN_PEER)
		return 0;
	/* the peer may have closed its end of the one that is up */
	if (unlikely(conn->pending && conn->ep))
		survives = false;
	if (conn->stale) /* neither on the heap nor where a peer would look */
		survives = false;
	if (survives && conn->ep && conn->count && !conn->t->ops->settled(conn->ep))
		survives = false;
	if (conn->offered_seq > conn->acked) /* the memory that it lends ends with us */
		survives = false;
	/*
	 * The peer was killed a moment ago, and no thread has noticed: messages that it has not
	 * accepted are for the next owner of its sockets, or for none.
	 */
	if (survives && conn->count && conn->id.peer_slot != RDS_SLOT_REMOTE &&
	    !registry_proc_alive(rds_node_registry, conn->id.peer_slot, &conn->id.peer))
		survives = false;
	/* What the owner of an address has not taken is for the next owner, and nobody else has it. */
	if (unlikely(conn->relay == RDS_RELAY_OWNER))
		survives = false;
	if (survives)
		return rds_conn_count_rerouted(conn) + atomic_load(&conn->device_writes);
	/*
	 * It is not enough that a redirect has arrived: if it refused a message, the peer has to
	 * acknowledge it.
	 */
	return conn->count - rds_queue_count_redirects(conn) + rds_conn_redirect_owed(conn) +
	       atomic_load(&conn->device_writes);
}

/* The same without those that are kept for a member. */
static unsigned offered_of(const struct rds_conn *conn, bool survives)
{
	unsigned n = offered_all(conn, survives), kept = n ? kept_for_member(conn, 0) : 0;

	if (likely(!kept))
		return n;
	if (conn->queue)
		kept -= kept_for_member(conn, conn->queue->u.seq);
	return n < conn->count - kept ? n : conn->count - kept;
}

/*
 * To a host as a whole, which was never reached and has refused for a while, or which the network does not reach.
 * Such a message need not be a mistake: the kernel's RDS drops it with its socket, and no program's end waits
 * for it.  No answer at all is something else: one packet was lost, perhaps, and comes again.  Of a member's
 * connection that is down nothing follows for the host: the owner may have ended, and only who is the owner knows.
 * tx held.
 */
static bool node_is_absent(const struct rds_conn *conn)
{
	const uint8_t node = atomic_load(&conn->node);

	if (!rds_conn_waits_for_node(conn) || !conn->unreachable_since || (node & (RDS_NODE_SILENT | RDS_NODE_MET)))
		return false;
	if (conn->relay == RDS_RELAY_OWNER && (!(node & RDS_NODE_FAILED) || atomic_load(&conn->state) != RDS_CONN_UP))
		return false;
	return os_now_ns() - conn->unreachable_since > rds_patience_ns(RDS_PATIENCE_TCP_EXIT);
}

static unsigned unsent_of(const struct rds_conn *conn, bool survives)
{
	if (conn->kind == RDS_CONN_UNROUTED)
		return rds_route_may_come(conn) ? conn->queue_len : 0;
	return conn->kind == RDS_CONN_PEER && !node_is_absent(conn) ? unoffered(conn) + offered_of(conn, survives) : 0;
}

bool rds_conn_has_unsent(const struct rds_conn *conn)
{
	return offered_of(conn, conn->t->ops->caps & RDS_TCAP_SURVIVES) ||
	       (conn->queue && (conn->queue->was_sent || conn->queue->u.given));
}

static void unsent_add(struct rds_conn *conn, void *arg)
{
	unsigned *n = arg;

	rds_lock(&conn->tx);
	*n += unsent_of(conn, conn->t->ops->caps & RDS_TCAP_SURVIVES);
	rds_unlock(&conn->tx);
}

unsigned rds_conn_unsent(void)
{
	unsigned n = rds_relay_waits();

	rds_conn_each(unsent_add, &n);
	return n;
}

struct leave {
	bool begin, all;
};

static void leave_one(struct rds_conn *conn, void *arg)
{
	struct leave *l = arg;

	rds_lock(&conn->tx);
	if (rds_conn_is_node(conn) && conn->ep) { /* what it has acknowledged is received first, members' too */
		l->all = false;
		if (l->begin && !atomic_exchange(&conn->reset, true))
			rds_timer_set(&conn->retry, os_now_ns());
	}
	if (conn->kind == RDS_CONN_PEER && conn->ep && conn->t->ops->leave)
		l->all &= conn->t->ops->leave(conn->ep, l->begin);
	rds_unlock(&conn->tx);
}

bool rds_conn_leave(bool begin)
{
	struct leave l = {.begin = begin, .all = true};

	if (begin)
		rds_relay_leave_nodes();
	rds_conn_each(leave_one, &l);
	return l.all;
}

int rds_conn_unsent_now(void)
{
	struct rds_conn *conn;
	int n = (int)rds_relay_waits();

	if (!rds_trylock(&rds_lock_control))
		return -1;
	for (conn = rds_conn_list; conn && n >= 0; conn = conn->next) {
		if (!rds_trylock(&conn->tx)) {
			n = -1;
			break;
		}
		if (conn->kind == RDS_CONN_UNROUTED) {
			/* what it returns is not freed: a signal may have interrupted malloc() */
			rds_conn_client.mailbox_deliver(conn);
			n += (int)unsent_of(conn, false);
		} else if (conn->kind == RDS_CONN_PEER && atomic_load(&conn->state) != RDS_CONN_DEAD) {
			/*
			 * Without SURVIVES the transport can promise nothing, and to ask it takes
			 * locks.
			 */
			bool survives = conn->t->ops->caps & RDS_TCAP_SURVIVES;

			n += (int)(survives ? unsent_of(conn, true) : node_is_absent(conn) ? 0 : unoffered(conn));
			/* a transport with SURVIVES has none */
			n += (int)atomic_load(&conn->device_writes);
			if ((conn->t->ops->caps & RDS_TCAP_REMOTE) && conn->ep && conn->count)
				n += conn->t->ops->acked(conn->ep) < rds_queue_unacked_at(conn, conn->count - 1)->seq;
		}
		rds_unlock(&conn->tx);
	}
	rds_unlock(&rds_lock_control);
	return n;
}

/* 0: it has ended, or its process number is of a namespace that we do not see. */
static uint64_t processor_time_ns(pid_t pid)
{
	struct timespec ts;
	clockid_t clock;

	if (pid <= 0 || clock_getcpuclockid(pid, &clock) || rds_os_clock(clock, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

uint64_t rds_conn_receivers_ran_ns(void)
{
	struct rds_conn *conn;
	uint64_t sum = 0;

	if (!rds_trylock(&rds_lock_control))
		return UINT64_MAX;
	for (conn = rds_conn_list; conn; conn = conn->next) {
		if (conn->kind != RDS_CONN_PEER || conn->id.peer_slot == RDS_SLOT_REMOTE)
			continue;
		if (!rds_trylock(&conn->tx)) {
			sum = UINT64_MAX;
			break;
		}
		if (conn->count || (unoffered(conn) && !rds_conn_is_held(conn)))
			sum += processor_time_ns(
				registry_proc_pid(rds_node_registry, conn->id.peer_slot, &conn->id.peer));
		rds_unlock(&conn->tx);
	}
	rds_unlock(&rds_lock_control);
	return sum;
}
