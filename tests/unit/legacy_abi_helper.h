/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * legacy_abi_helper.h - RDMA arguments of 2007 to today as words at offsets, read as in a process
 * of a given age.
 */
#ifndef TESTS_UNIT_LEGACY_ABI_HELPER_H
#define TESTS_UNIT_LEGACY_ABI_HELPER_H

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/abi/foreign_memory.h"
#include "engine/abi/revisions.h"
#include "engine/sys/options.h"
#include "tests/unit/suite.h"

#define LEN(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define NOTIFY 0x20u
#define L 0x3000u /* local bytes */

static inline void start(void)
{
	unsetenv("RDS_PRELOAD_ABI");
	rds_options_reset();
	rds_abi_reset();
}

static inline void override(const char *abi)
{
	setenv("RDS_PRELOAD_ABI", abi, 1);
	rds_options_reset();
}

/* Shows what a process of that epoch shows. */
static inline void enter(enum rds_abi_epoch epoch)
{
	char val[32] = {0};
	struct rds_barrier_request req;

	rds_abi_reset();
	if (epoch == RDS_EPOCH_24)
		ck_assert_int_eq(rds_abi_barrier_decode(val, 24, &req), 0);
	if (epoch == RDS_EPOCH_32)
		ck_assert_int_eq(rds_abi_barrier_decode(val, 32, &req), 0);
	if (epoch == RDS_EPOCH_LATER)
		rds_abi_note_modern();
	ck_assert_int_eq(rds_abi_epoch(), epoch);
}

/* What the caller knows as cookies of regions, and whether it was asked. */
static uint64_t known[2];
static unsigned asked_cookie;

static inline bool is_cookie(void *arg, uint64_t cookie)
{
	ck_assert_ptr_eq(arg, known);
	asked_cookie++;
	return cookie && (cookie == known[0] || cookie == known[1]);
}

static uint64_t word[16];
static struct rds_rdma_request args;

static inline int decode(size_t size)
{
	unsigned char *body = malloc(size ? size : 1);
	int ret;

	ck_assert_uint_le(size, sizeof(word));
	memcpy(body, word, size);
	memset(&args, 0xa5, sizeof(args));
	ret = rds_abi_rdma_decode(body, size, L, is_cookie, known, &args);
	free(body);
	return ret;
}

/* Words that differ in every byte, so that one read for another shows. */
static inline void distinct_words(void)
{
	for (unsigned i = 0; i < 16; i++)
		word[i] = UINT64_C(0x1000200030004000) + i * UINT64_C(0x0101010101010101);
	word[5] = UINT64_MAX;
}

/* Per revision: the size, the word of each field, the byte of the token. -1: it has none. */
static const struct {
	const char *abi;
	int size, cookie, addr, bytes, id, token_at, token_bytes;
	uint64_t flags; /* of all ones */
	bool notify_short;
} layout[] = {
	{"a0", 56, 2, 0, 1, 6, -1, 0, 0x03, false},	  {"a1", 56, 2, 0, 1, 6, -1, 0, 0x03, false},
	{"a2", 56, 0, 1, 2, 6, -1, 0, 0x03, false},	  {"b1", 56, 0, 1, 2, 6, -1, 0, 0x1f, false},
	{"b2", 64, 0, 1, 2, 6, 56, 4, 0x3f, true},	  {"c", 56, 0, 1, 2, -1, 48, 4, 0x3f, true},
	{"d", 56, 0, 1, 2, -1, 48, 8, UINT64_MAX, false},
};

#endif
