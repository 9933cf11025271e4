/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * marks_helper.h - one socket's ids and marks (socket/op_marks.h), to the addresses A and B.
 */
#ifndef TESTS_UNIT_MARKS_HELPER_H
#define TESTS_UNIT_MARKS_HELPER_H

#include <check.h>
#include <errno.h>
#include <string.h>

#include "engine/socket/op_marks.h"
#include "tests/unit/suite.h"

#define A 0x0100000au
#define B 0x0200000au
#define UNTOUCHED UINT64_C(0xa5a5a5a5a5a5a5a5)

static struct rds_op_marks b;

static inline void start(void)
{
	memset(&b, 0, sizeof(b));
}

static inline void end(void)
{
	struct rds_op_marks none = {0};

	rds_sock_marks_free(&b);
	ck_assert_mem_eq(&b, &none, sizeof(b)); /* as before its first operation */
}

static inline uint64_t begin(uint32_t daddr)
{
	uint64_t id = UNTOUCHED;

	ck_assert_int_eq(rds_sock_marks_begin(&b, daddr, &id), 0);
	return id;
}

static inline int call(uint32_t daddr, uint64_t id, bool nonblock, uint64_t expect)
{
	struct rds_barrier_request req = {.daddr = daddr, .wait_id = id};
	uint64_t mark = UNTOUCHED;
	int ret = rds_sock_marks_request(&b, &req, nonblock, &mark);

	ck_assert_uint_eq(mark, expect); /* always told */
	return ret;
}

#endif
