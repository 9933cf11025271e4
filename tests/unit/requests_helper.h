/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * requests_helper.h - a bound socket, and a channel to its owner that the test itself speaks over.
 */
#ifndef TESTS_UNIT_REQUESTS_HELPER_H
#define TESTS_UNIT_REQUESTS_HELPER_H

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/share/owner.h"
#include "engine/calls/start.h"
#include "tests/slow.h"
#include "tests/unit/suite.h"

static struct rds_sock *sock;
static int standin, line = -1;
static uint64_t seed = 1;

static inline uint32_t any(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 16);
}

static inline uint32_t below(uint32_t n)
{
	return any() % n;
}

static inline void attach(void)
{
	const struct rds_share_attach hello = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	struct timeval patience = {.tv_sec = TEST_COMES / 1000};
	struct rds_share_reply a;
	int pair[2], pass[2];

	if (line >= 0)
		close(line);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pass[0] = pair[1];
	pass[1] = standin;
	ck_assert_int_eq(os_pass_send(standin, &hello, sizeof(hello), pass, 2, 0), 0);
	close(pair[1]);
	line = pair[0];
	setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	ck_assert_int_eq(recv(line, &a, sizeof(a), 0), sizeof(a));
	ck_assert_int_eq(a.kind, RDS_SHARE_HELLO);
}

static char packet[RDS_SHARE_PACKET];

/* True: it has been answered, and not by hanging up. */
static inline bool ask(const struct rds_share_request *q, const void *bytes, size_t len, int memfd,
		       struct rds_share_reply *a)
{
	ssize_t n;

	memcpy(packet, q, sizeof(*q));
	memcpy(packet + sizeof(*q), bytes, len);
	if (os_pass_send(line, packet, sizeof(*q) + len, &memfd, memfd >= 0, 0))
		return false;
	if (q->op == RDS_SHARE_CANCEL || q->op == RDS_SHARE_PUT_BACK)
		return true;
	n = recv(line, packet, sizeof(packet), 0);
	ck_assert(n >= 0 || errno == ECONNRESET);
	if (n < (ssize_t)sizeof(*a))
		return false;
	memcpy(a, packet, sizeof(*a));
	ck_assert_uint_eq(a->magic, RDS_SHARE_MAGIC);
	ck_assert_uint_eq(a->seq, q->seq);
	return a->kind == RDS_SHARE_REPLY;
}

/* It is there still, and knows itself. */
static inline void ck_lives(void)
{
	struct rds_share_request q = {.magic = RDS_SHARE_MAGIC, .op = RDS_SHARE_SOCKNAME, .seq = 7};
	struct rds_share_reply a;

	attach();
	ck_assert(ask(&q, "", 0, -1, &a));
	ck_assert_int_eq(a.result, 0);
}

static inline void setup(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	ck_assert_int_eq(rds_call_start_engine(), 0);
	standin = rds_call_socket(SOCK_SEQPACKET, 0, &sock);
	ck_assert_int_ge(standin, 0);
	ck_assert_int_eq(rds_call_bind(sock, (struct sockaddr *)&sin, sizeof(sin)), 0);
	attach();
}

#endif
