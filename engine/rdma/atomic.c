/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * atomic.c - compare and swap, fetch and add, with masks (net/rds/rdma.c: rds_cmsg_atomic()).  The
 * target's engine carries them out, on every transport.
 *
 * Atomics are atomic with respect to each other, as those of a device are (IBV_ATOMIC_HCA): all
 * atomics of a process run under its receive lock.  The program's own instructions are not held
 * off.
 */
#include "engine/rdma/atomic.h"

#include "engine/abi/user_copy.h"

/* A set bit of the mask is the highest bit of a field: no carry leaves the field. */
static uint64_t atomic_add_fields(uint64_t a, uint64_t b, uint64_t ends)
{
	uint64_t low = ~ends, sum = (a & low) + (b & low);

	/*
	 * Below these highest bits a sum cannot overflow into the next field.  The highest bits
	 * themselves are added without carry.
	 */
	return sum ^ ((a ^ b) & ends);
}

uint64_t rds_atomic_value(const struct rds_atomic_request *req, uint64_t old)
{
	if (!req->swap)
		return atomic_add_fields(old, req->value, req->value_mask);
	if ((old ^ req->compare) & req->compare_mask)
		return old;
	return (old & ~req->value_mask) | (req->value & req->value_mask);
}

int rds_atomic_run(struct rds_foreign_memory *m, const struct rds_atomic_request *req, uint64_t at, uint64_t *old)
{
	uint64_t now;
	int err = rds_ucopy_from(m, old, at, sizeof(*old));

	if (err)
		return err;
	now = rds_atomic_value(req, *old);
	return rds_ucopy_to(m, at, &now, sizeof(now));
}
