/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * locate.c - the helper looks for routes of messages that wait (UNROUTED): which process of another
 * host has a port?
 *
 * For a local address that reaches other hosts, the helper asks the other host which of its
 * processes has the port (transport/transport.h: locate).  The answer is cached (port_cache.h), and
 * the process is reached by a PEER connection of its own.  If no process has the port, messages are
 * dropped, as a kernel would there; but only those that were queued when the question was asked.
 * The answer is about the time before it came, and a later message may be the reply to one that the
 * port, bound since, has sent us.  Without an answer the messages wait, unless the address has
 * become one of this host.
 *
 * Must not know what a message contains, nor how a question travels.
 */
#include "engine/conn/client.h"
#include "engine/conn/port_cache.h"
#include "engine/conn/relay.h"
#include "engine/node/local_address.h"

#include <string.h>

#define HANDOVER_MS 16 /* interval of the checks of a port of this host that changes its owner */
#define HANDOVER_PER_MS 4096u /* ... and of so many messages each a millisecond more: a check looks at all of them */
#define ASK_AT_ONCE 16 /* ports of one address; more when these are answered */

bool rds_route_may_come(const struct rds_conn *conn)
{
	if ((conn->far || conn->handoff_pending) && !atomic_load(&conn->silent))
		return true;
	return rds_transport_node_serves(&conn->id.laddr) &&
	       (rds_transport_node_has(&conn->id.laddr, conn->id.scope) || rds_relay_is_passed_on());
}

void rds_route_retry_from(const struct in6_addr *laddr)
{
	struct rds_conn *conn;

	for (conn = rds_conn_list; conn; conn = conn->next)
		if (conn->kind == RDS_CONN_UNROUTED && rds_ip_equal(&conn->id.laddr, laddr))
			rds_timer_set(&conn->retry, os_now_ns());
}

static bool port_is_among(const uint16_t *ports, unsigned n, uint16_t port)
{
	while (n--)
		if (ports[n] == port)
			return true;
	return false;
}

/*
 * Collects the ports that messages wait for and that were not asked for yet, and marks them as
 * asked.  The answer does not count for messages that come before it, nor for those of other
 * connections: if no process has the port, these ask again.  control held.
 */
static unsigned ports_to_ask(struct rds_conn *conn, uint16_t ports[ASK_AT_ONCE])
{
	struct rds_addr dst = {.ip = conn->id.faddr, .scope = conn->id.scope};
	struct rds_route_port_owner own;
	struct rds_queue_item *q;
	unsigned n = 0;

	rds_lock(&conn->tx);
	for (q = conn->queue; q; q = q->next) {
		dst.port = q->u.dport;
		if (!port_is_among(ports, n, dst.port)) {
			if (n == ASK_AT_ONCE || rds_route_port_get(&dst, &own) != RDS_PORT_UNKNOWN ||
			    !rds_route_port_ask(&dst))
				continue;
			ports[n++] = dst.port;
		}
		q->port_asked = true;
	}
	rds_unlock(&conn->tx);
	return n;
}

static void route_ask_ports(struct rds_conn *conn, const uint16_t *ports, unsigned n)
{
	struct rds_conn_id id = conn->id;
	unsigned i;
	int err;

	id.peer_slot = RDS_SLOT_REMOTE;
	for (i = 0; i < n; i++) {
		err = rds_transport_set.remote->ops->locate(rds_transport_set.remote, &id, ports[i]);
		if (err)
			rds_route_located(rds_transport_set.remote, &id, ports[i], err);
	}
}

/* control held.  Logged once per connection: it is not an error that a host is down. */
static void host_is_silent(struct rds_conn *conn, int err)
{
	char a[RDS_ADDR_STRLEN];

	atomic_store(&conn->silent, true);
	rds_conn_history_unreachable(conn, err);
	if (conn->unrouted_logged)
		return;
	conn->unrouted_logged = true;
	rds_ip_str(&conn->id.faddr, a);
	rds_info("%s does not answer (%s): messages to it wait", a, strerror(-err));
}

/* Every connection to that address may have messages for the port. */
void rds_route_located(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port, int err)
{
	struct rds_addr dst = {.ip = id->faddr, .scope = id->scope, .port = port};
	struct rds_route_port_owner own = {.proc = id->peer, .cm_port = id->peer_port};
	struct rds_conn *conn;

	(void)t;
	rds_lock(&rds_lock_control);
	/* senders look the route up again from now on, and first move the messages that wait */
	if (!err) {
		rds_route_port_found(&dst, &own);
		atomic_fetch_add(&rds_route_gen, 1);
	} else if (err == -ENOENT) {
		rds_route_port_absent(&dst);
	} else {
		rds_route_port_failed(&dst);
	}
	for (conn = rds_conn_list; conn; conn = conn->next) {
		if (conn->kind != RDS_CONN_UNROUTED || !conn->far || conn->id.scope != id->scope ||
		    !rds_ip_equal(&conn->id.faddr, &id->faddr))
			continue;
		if (err && err != -ENOENT) {
			if (rds_ip_equal(&conn->id.laddr, &id->laddr))
				host_is_silent(conn, err);
			continue; /* tried again after its pause */
		}
		atomic_store(&conn->silent, false);
		rds_conn_history_reached(conn);
		conn->backoff_ms = 0;
		rds_timer_set(&conn->retry, os_now_ns());
	}
	rds_unlock(&rds_lock_control);
}

/*
 * Messages that wait beside a connection to an ended process need not wait until its device
 * notices: the registry knows.  Helper, no lock held.
 */
static void conn_drop_dead_beside(const struct rds_conn_id *id)
{
	struct rds_conn *conn;

	rds_lock(&rds_lock_control);
	for (conn = rds_conn_list; conn; conn = conn->next)
		if (conn->kind == RDS_CONN_PEER && conn->id.peer_slot != RDS_SLOT_REMOTE &&
		    !(conn->t->ops->caps & RDS_TCAP_SURVIVES) && atomic_load(&conn->state) != RDS_CONN_DEAD &&
		    rds_ip_equal(&conn->id.laddr, &id->laddr) && rds_ip_equal(&conn->id.faddr, &id->faddr) &&
		    !registry_proc_alive(rds_node_registry, conn->id.peer_slot, &conn->id.peer))
			break;
	rds_unlock(&rds_lock_control);
	if (conn)
		rds_conn_drop(conn, conn->ep ? conn->ep : conn->pending, -EPIPE, true);
}

/* control held */
static uint32_t handover_ms(struct rds_conn *conn)
{
	uint32_t ms;

	rds_lock(&conn->tx);
	ms = HANDOVER_MS + conn->queue_len / HANDOVER_PER_MS;
	rds_unlock(&conn->tx);
	return conn->backoff_ms < ms ? conn->backoff_ms : ms;
}

/* Helper: has the address appeared, or are the owners of the ports known? */
void rds_route_retry(struct rds_conn *conn)
{
	bool local = rds_node_addr_is_local(&conn->id.faddr, conn->id.scope) == 0;
	bool node = rds_transport_node_serves(&conn->id.laddr);
	uint16_t ports[ASK_AT_ONCE];
	unsigned n = 0;

	rds_lock(&rds_lock_control);
	/*
	 * first: senders look the route up again, and messages that they have sent before are
	 * queued here already
	 */
	if (local)
		atomic_fetch_add(&rds_route_gen, 1);
	if (local || conn->far || node)
		rds_route_hand_over(conn, local);
	if (conn->far && !local)
		n = ports_to_ask(conn, ports);
	if (local)
		conn->backoff_ms = handover_ms(conn);
	else if (!conn->far && !node)
		conn->backoff_ms = (uint32_t)rds_options()->reconnect_max_ms;
	rds_conn_retry_wanted(conn);
	rds_unlock(&rds_lock_control);
	if (local)
		conn_drop_dead_beside(&conn->id);
	route_ask_ports(conn, ports, n);
}
