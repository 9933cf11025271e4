/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * bound_helper.h - a socket at 127.0.0.1, with a port that the engine chose; and one whose messages
 * to this process count in the receiver's room, which may be congested.
 */
#ifndef TESTS_UNIT_BOUND_HELPER_H
#define TESTS_UNIT_BOUND_HELPER_H

#include <arpa/inet.h>
#include <check.h>

#include "engine/rds.h"

static inline struct rds_sock *bound_here(int *fd, struct sockaddr_in *sin)
{
	socklen_t room = sizeof(*sin);
	struct rds_sock *sk;

	*sin = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	*fd = rds_call_socket(SOCK_SEQPACKET, 0, &sk);
	ck_assert_int_ge(*fd, 0);
	ck_assert_int_eq(rds_call_bind(sk, (struct sockaddr *)sin, sizeof(*sin)), 0);
	ck_assert_int_eq(rds_call_getsockname(sk, (struct sockaddr *)sin, &room), 0);
	return sk;
}

static inline struct rds_sock *bound_over_tcp(int *fd, struct sockaddr_in *sin)
{
	socklen_t room = sizeof(*sin);
	struct rds_sock *sk;

	*sin = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	*fd = rds_call_socket(SOCK_SEQPACKET, 0, &sk);
	ck_assert_int_eq(rds_call_setsockopt(sk, *fd, SOL_RDS, SO_RDS_TRANSPORT, &(int){RDS_TRANS_TCP}, 4), 0);
	ck_assert_int_eq(rds_call_bind(sk, (struct sockaddr *)sin, sizeof(*sin)), 0);
	ck_assert_int_eq(rds_call_getsockname(sk, (struct sockaddr *)sin, &room), 0);
	return sk;
}

#endif
