/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * source.c - does a message of another user's process come from where it says it does?
 *
 * A process that does not use this library can write any port into a message. Processes of one user
 * may do so. But no message may seem to come from a port that somebody else has. A port that nobody
 * has is no lie: a socket may have been closed since it sent. The answer is kept, because a sender
 * most often sends again; one that goes through many ports only slows its own messages down. rx
 * held.
 */
#include "engine/conn/incoming.h"
#include "engine/conn/conn.h"

enum rds_source rds_conn_source(struct rds_conn *conn, uint16_t port)
{
	struct rds_conn_seldom *s = rds_conn_seldom_get(conn);
	unsigned i;
	int is;

	if (!s)
		return RDS_SOURCE_UNKNOWN;
	for (i = 0; i < s->nsources; i++)
		if (s->sources[i] == port)
			return RDS_SOURCE_TRUE;
	is = registry_port_is_of(rds_node_registry, conn->id.peer_slot, &conn->id.peer, &conn->id.faddr, port,
				 conn->id.scope);
	if (is < 0)
		return RDS_SOURCE_UNKNOWN;
	if (!is) {
		rds_warn_once(
			"a process of another user sends RDS messages as if they came from ports that it does not "
			"have: they are dropped");
		return RDS_SOURCE_FALSE;
	}
	s->sources[s->next_source++ % RDS_SOURCES_MAX] = port;
	s->nsources += s->nsources < RDS_SOURCES_MAX;
	return RDS_SOURCE_TRUE;
}
