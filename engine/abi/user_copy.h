/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * user_copy.h - copying to and from the program's memory when it is not a program's call that does it: a region that a peer
 * writes to, or the local memory of an operation, may have been unmapped since it was checked, by a program that is free to do so.
 */
#ifndef ENGINE_USER_COPY_H
#define ENGINE_USER_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "engine/abi/foreign_memory.h"

/*
 * All of it, or -EFAULT (of a range that ends in the middle the beginning may have been written). Any thread.  m: whose memory that is; NULL:
 * this process's.
 */
int rds_ucopy_to(struct rds_foreign_memory *m, uint64_t to, const void *from, size_t len);
int rds_ucopy_from(struct rds_foreign_memory *m, void *to, uint64_t from, size_t len);
/* The same for bytes at .. at+len of a vector of the program's. */
int rds_ucopy_to_vec(struct rds_foreign_memory *m, const struct iovec *to, unsigned n, uint64_t at, const void *from,
		     size_t len);
int rds_ucopy_from_vec(struct rds_foreign_memory *m, void *to, const struct iovec *from, unsigned n, uint64_t at,
		       size_t len);

#endif
