/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * tcp.c - the transport's table of functions.
 */
#include <errno.h>

#include "engine/transport/tcp/tcp_transport.h"
#include "engine/transport/transport.h"

static int tcp_start(struct rds_transport *t)
{
	(void)t;
	return 0; /* tcp_claims() starts everything */
}

static void tcp_stop(struct rds_transport *t)
{
	(void)t; /* nothing was claimed: the helper's start failed */
}

static int tcp_claims(struct rds_transport *t, const struct in6_addr *laddr, uint32_t scope)
{
	(void)t;
	(void)laddr;
	(void)scope;
	return 0;
}

static const struct rds_transport_ops tcp_ops = {
	.name = "tcp",
	.caps = RDS_TCAP_REMOTE | RDS_TCAP_NODE,
	.start = tcp_start,
	.stop = tcp_stop,
	.claims = tcp_claims,
};

struct rds_transport rds_tcp = {.ops = &tcp_ops};

void rds_tcp_fork_child(void)
{
}
