/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * user_copy.h - copies to and from the program's memory outside of a call of the program.  The
 * program may unmap a region that a peer writes to, or the local memory of an operation, after that
 * memory was checked.
 */
#ifndef ENGINE_ABI_USER_COPY_H
#define ENGINE_ABI_USER_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "engine/abi/foreign_memory.h"

/*
 * Copies all bytes, or -EFAULT.  If the memory ends in the middle of the range, the beginning may
 * have been written.  Any thread.  m: the memory of another process; NULL: this process's memory.
 */
int rds_ucopy_to(struct rds_foreign_memory *m, uint64_t to, const void *from, size_t len);
int rds_ucopy_from(struct rds_foreign_memory *m, void *to, uint64_t from, size_t len);
/* The same for the bytes at .. at+len of a vector of the program. */
int rds_ucopy_to_vec(struct rds_foreign_memory *m, const struct iovec *to, unsigned n, uint64_t at, const void *from,
		     size_t len);
int rds_ucopy_from_vec(struct rds_foreign_memory *m, void *to, const struct iovec *from, unsigned n, uint64_t at,
		       size_t len);
void rds_ucopy_fork_child(void);

#endif
