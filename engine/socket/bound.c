/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * bound.c - the table of the sockets of this process by address and port.
 *
 * rx is held in every call.  Must not know what a socket is used for.
 */
#include "engine/socket/socket.h"

/*
 * The port alone would do for most programs; the address spreads sockets that share one port on
 * many addresses.
 */
#define RDS_BOUND_BUCKETS 4096

static struct rds_sock *bound_table[RDS_BOUND_BUCKETS] RDS_TABLE;

static inline unsigned bound_hash(const struct in6_addr *ip, uint16_t port)
{
	return (port + (ip->s6_addr32[3] * 0x9e3779b1u >> 20)) & (RDS_BOUND_BUCKETS - 1);
}

struct rds_sock *rds_sock_bound_find(const struct in6_addr *ip, uint16_t port, uint32_t scope)
{
	struct rds_sock *sk = bound_table[bound_hash(ip, port)];

	for (; sk; sk = sk->hash_next)
		if (sk->laddr.port == port && rds_ip_equal(&sk->laddr.ip, ip) && sk->laddr.scope == scope)
			return sk;
	return NULL;
}

void rds_sock_bound_insert(struct rds_sock *sk)
{
	struct rds_sock **head = &bound_table[bound_hash(&sk->laddr.ip, sk->laddr.port)];

	sk->hash_next = *head;
	*head = sk;
}

void rds_sock_bound_remove(struct rds_sock *sk)
{
	struct rds_sock **p = &bound_table[bound_hash(&sk->laddr.ip, sk->laddr.port)];

	for (; *p; p = &(*p)->hash_next)
		if (*p == sk) {
			*p = sk->hash_next;
			sk->hash_next = NULL;
			return;
		}
}

void rds_sock_bound_forget(void)
{
	os_fork_zero(bound_table, sizeof(bound_table));
}
