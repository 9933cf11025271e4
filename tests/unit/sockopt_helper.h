/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * sockopt_helper.h - one socket, and a number as its option.
 */
#ifndef TESTS_UNIT_SOCKOPT_HELPER_H
#define TESTS_UNIT_SOCKOPT_HELPER_H

#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/socket/socket.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

#define BAD ((void *)8)

static struct rds_sock *sk;
static int fd;

static inline void setup(void)
{
	fd = rds_call_socket(SOCK_SEQPACKET, 0, &sk);
	ck_assert_int_ge(fd, 0);
}

static inline void teardown(void)
{
	os_close(fd);
	rds_call_number_closed(sk);
}

static inline void bind_to(const char *ip, unsigned port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	ck_assert_int_eq(inet_pton(AF_INET, ip, &a.sin_addr), 1);
	ck_assert_int_eq(rds_call_bind(sk, (struct sockaddr *)&a, sizeof(a)), 0);
}

static inline int set(int level, int opt, int v)
{
	return rds_call_setsockopt(sk, fd, level, opt, &v, sizeof(v));
}

static inline int get(int level, int opt)
{
	int v = 0;
	socklen_t len = sizeof(v);
	int ret = rds_call_getsockopt(sk, fd, level, opt, &v, &len);

	return ret < 0 ? ret : v;
}

#endif
