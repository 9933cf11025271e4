/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * atomic.h - atomic operations on 64-bit words of a region.
 */
#ifndef ENGINE_RDMA_ATOMIC_H
#define ENGINE_RDMA_ATOMIC_H

#include "engine/abi/foreign_memory.h"
#include "engine/abi/rdma_args.h"

/* The new value of the word, if it was `old`. */
uint64_t rds_atomic_value(const struct rds_atomic_request *req, uint64_t old);
/* rx held, which makes it atomic.  -EFAULT: the word is not mapped, or not writable. */
int rds_atomic_run(struct rds_foreign_memory *m, const struct rds_atomic_request *req, uint64_t at, uint64_t *old);

#endif
