/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * impl.h - what the files of the table of fdtable.h share: fdtable.c, which gives words their sockets, and close.c, which takes them away.
 */
#ifndef FDS_IMPL_H
#define FDS_IMPL_H

#include <sys/types.h>

#include "preload/fdtable/fdtable.h"

static inline struct rds_sock *fds_sock(uintptr_t word)
{
	return word < FDS_MARKS ? NULL : (struct rds_sock *)(word & ~(uintptr_t)FDS_CLOSING);
}

/* What was taken out of a word: its reference goes back. */
static inline void fds_drop(uintptr_t word)
{
	struct rds_sock *sk = fds_sock(word);

	if (sk)
		rds_call_number_closed(sk);
}

/* Is there another number, outside of those from first to last, of the socket with that inode? */
bool rds_fds_has_other_number(ino_t inode, unsigned first, unsigned last);

#endif
