/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * source.c - does a message of another user's process come from where it says it does?
 *
 * A process that does not use this library can write any port into a message. Processes of one user
 * may do so. But no message may seem to come from a port that somebody else has. A port that nobody
 * has is no lie: a socket may have been closed since it sent.
 *
 * To ask takes system calls, and a sender most often sends again. So a port from which the process
 * may send is known for a while. The answer may become wrong meanwhile, when somebody binds a port
 * that nobody had: so the while is no longer than a message may be under way. For a
 * process that goes through many ports few questions are asked in one round, so that it does not hold
 * up the messages of others, and few in that while: then its next messages wait in its ring until all
 * answers are forgotten, and the receiver's helper sleeps. rx held.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/conn/conn.h"
#include "engine/wire/port_set.h"

#define KNOWN_NS (10 * 1000000ull)
/* with some system calls each, at most a fourth of that time */
#define ASKED_MAX 256
#define ASKED_ROUND 16

struct rds_conn_sources {
	uint64_t since_ns; /* coarse clock: empty at that time */
	unsigned asked;
	bool round_over;
	struct rds_port_set allowed;
};

static struct rds_conn_sources *sources_get(struct rds_conn *conn)
{
	struct rds_conn_seldom *s = rds_conn_seldom_get(conn);
	uint64_t now = os_now_coarse_ns();

	if (s && !s->sources)
		s->sources = calloc(1, sizeof(*s->sources));
	if (!s || !s->sources)
		return NULL;
	if (now - s->sources->since_ns >= KNOWN_NS) {
		memset(s->sources, 0, sizeof(*s->sources));
		s->sources->since_ns = now;
	}
	return s->sources;
}

/* RDS_RX_TAKEN: it may; RDS_RX_DONE: the message is to be dropped. */
enum rds_rx_verdict rds_conn_source(struct rds_conn *conn, uint16_t port)
{
	struct rds_conn_sources *s = sources_get(conn);
	int is;

	if (unlikely(!s))
		return RDS_RX_LATER;
	if (likely(rds_port_set_has(&s->allowed, port)))
		return RDS_RX_TAKEN;
	if (s->asked == ASKED_MAX)
		return RDS_RX_PAUSE;
	s->round_over = !s->round_over && s->asked && s->asked % ASKED_ROUND == 0;
	if (s->round_over)
		return RDS_RX_LATER;
	s->asked++;
	is = registry_port_is_of(rds_node_registry, conn->id.peer_slot, &conn->id.peer, &conn->id.faddr, port,
				 conn->id.scope);
	if (is < 0)
		return RDS_RX_LATER;
	if (!is) {
		rds_warn_once(
			"a process of another user sends RDS messages as if they came from ports that it does not "
			"have: they are dropped");
		return RDS_RX_DONE;
	}
	rds_port_set_add(&s->allowed, port);
	return RDS_RX_TAKEN;
}
