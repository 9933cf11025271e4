/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * verbs_op_helper.h - a carries out operations on b's memory by the device.  Both are in this
 * process, on a device each.
 */
#ifndef TESTS_UNIT_VERBS_OP_HELPER_H
#define TESTS_UNIT_VERBS_OP_HELPER_H

#include <stdlib.h>
#include <string.h>

#include "engine/transport/verbs/ep/rdma.h"
#include "tests/mock/world.h"

#define REGION (RDS_MAX_MSG + 8192u)

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];
static unsigned char *region, *mine;
static struct rds_device_mr *shown;
static struct rds_device_key far;
static bool alone, quiet; /* what is posted has no message behind it; nobody waits for it */

static inline void begin(void)
{
	world_pair();
	alone = quiet = false;
	ck_assert_int_eq(posix_memalign((void **)&region, 4096, REGION), 0);
	ck_assert_int_eq(posix_memalign((void **)&mine, 4096, REGION), 0);
	memset(region, 0, REGION);
	world_fill(99, mine, REGION);
	ck_assert_int_eq(verbs_ep_mr_register(b->ep, region, REGION, &shown), 0);
	ck_assert(verbs_ep_mr_key(b->ep, shown, &far));
}

static inline void setup(void)
{
	world_ib();
	begin();
}

static inline void setup_iwarp(void)
{
	world_iwarp();
	begin();
}

static inline void teardown(void)
{
	if (shown)
		verbs_mr_deregister(shown);
	shown = NULL;
	world_end();
	free(region);
	free(mine);
}

static inline int post(uint64_t id, uint64_t at, size_t len)
{
	struct iovec iov[4] = {{mine, len / 3}, {NULL, 0}, {mine + len / 3, len / 2}, {mine + len / 3 + len / 2, len}};
	struct rds_device_op op = {.id = id,
				   .seq = alone ? 0 : a->tx_seq + 1,
				   .quiet = quiet,
				   .key = far.key,
				   .at = far.at + at,
				   .len = len,
				   .local = iov};

	return verbs_ep_post(a->ep, &op);
}

static inline int post_read(uint64_t id, uint64_t at, size_t len)
{
	struct rds_device_op op = {
		.id = id, .seq = a->tx_seq + 1, .read = true, .key = far.key, .at = far.at + at, .len = len};

	a->read = mine;
	a->read_bytes = 0;
	return verbs_ep_post(a->ep, &op);
}

static inline bool there(uint64_t at, size_t len)
{
	return memcmp(region + at, mine, len) == 0;
}

static inline bool untouched(uint64_t at, size_t len)
{
	while (len && !region[at + len - 1])
		len--;
	return len == 0;
}

static inline void is_over(unsigned i, uint64_t id, int err)
{
	ck_assert_uint_gt(a->novers, i);
	ck_assert_uint_eq(a->over[i].id, id);
	ck_assert_int_eq(a->over[i].err, err);
}

/* Closes the connection a when the device has done so many steps of what is under way. */
static inline void close_after(int steps)
{
	verbs_ep_flush(a->ep, true);
	while (steps--)
		mock_step();
	world_close(a);
	world_run();
}

#endif
