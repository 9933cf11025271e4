/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * tcp.c - the transport's table of functions, and which addresses are its own.
 *
 * Nothing exists before the first bind of an address that other hosts may reach: no descriptor, no
 * open port.
 */
#include "engine/transport/tcp/tcp.h"

#define PORT 16385
#define STRANGERS_MEMORY ((size_t)64 << 20)
#define TCP_STATE_INIT                                                                                                 \
	{                                                                                                              \
		.port = PORT, .set.fd = OS_FD_NONE, .out_set.fd = OS_FD_NONE, .strangers.most = STRANGERS_MEMORY       \
	}

struct tcp_state rds_tcp_state = TCP_STATE_INIT;

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
	return rds_ip_is_loopback(laddr) ? 0 : tcp_listen_claims(t, laddr, scope);
}

/* Messages are given away where the next ones will be received: none waits in place. */
static void tcp_release(struct rds_ep *ep, void *token)
{
	(void)ep;
	(void)token;
}

static bool tcp_relieve(struct rds_transport *t, bool now)
{
	(void)t;
	(void)now;
	return false;
}

/* TCP has acknowledged it already. */
static void tcp_ack(struct rds_ep *ep, uint64_t seq)
{
	(void)ep;
	(void)seq;
}

static bool tcp_settled(struct rds_ep *ep)
{
	(void)ep;
	return true;
}

static const struct rds_transport_ops tcp_ops = {
	.name = "tcp",
	.caps = RDS_TCAP_REMOTE | RDS_TCAP_NODE,
	.start = tcp_start,
	.stop = tcp_stop,
	.claims = tcp_claims,
	.connect = tcp_connect,
	.hang_up = tcp_ep_hang_up,
	.close = tcp_ep_close,
	.send = tcp_send,
	.flush = tcp_flush,
	.retained = tcp_retained,
	.keep = tcp_ep_keep,
	.settled = tcp_settled,
	.acked = tcp_acked,
	.want_room = tcp_want_room,
	.describe_tcp = tcp_describe,
	.kept_begin = tcp_kept_begin,
	.kept_brought = tcp_kept_brought,
	.kept_adopt = tcp_kept_adopt,
	.rest = tcp_rest,
	.push = tcp_push,
	.progress = tcp_progress,
	.ack = tcp_ack,
	.release = tcp_release,
	.relieve = tcp_relieve,
	.attention = tcp_wake_attention,
	.pending = tcp_wake_pending,
};

struct rds_transport rds_tcp = {.ops = &tcp_ops};

/* The child's root closes the descriptors; the parent's connections need nothing else. */
void rds_tcp_fork_child(void)
{
	rds_tcp_state = (struct tcp_state)TCP_STATE_INIT;
	rds_transport_batch_forget();
}
