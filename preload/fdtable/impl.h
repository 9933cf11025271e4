/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * impl.h - words of the table, for the files of this package: fdtable.c, which puts sockets into
 * words, and close.c, which takes them out.
 */
#ifndef PRELOAD_FDTABLE_IMPL_H
#define PRELOAD_FDTABLE_IMPL_H

#include <sys/types.h>

#include "preload/fdtable/fdtable.h"

static inline struct rds_sock *fds_sock(uintptr_t word)
{
	return word < FDS_MARKS ? NULL : (struct rds_sock *)(word & ~(uintptr_t)FDS_CLOSING);
}

/* Of a value that was taken out of a word: gives its reference back. */
static inline void fds_drop(uintptr_t word)
{
	struct rds_sock *sk = fds_sock(word);

	if (sk)
		rds_call_number_closed(sk);
}

/* Does the socket with that inode have another number, outside of those from first to last? */
bool rds_fds_has_other_number(ino_t inode, unsigned first, unsigned last);

#endif
