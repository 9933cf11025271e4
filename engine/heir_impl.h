/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* heir_impl.h - between heir.c and heir_fork.c: the entries. */
#ifndef ENGINE_HEIR_IMPL_H
#define ENGINE_HEIR_IMPL_H

#include <pthread.h>

#include "engine/will.h"

enum { FREE, HELD, TAKEN };
enum { PAIR, LINE, INBOX, PAGE, PARTS };

struct heir {
	_Atomic uint32_t state;
	_Atomic uint64_t inode;
	_Atomic int fd[PARTS];
};

extern pthread_mutex_t heir_lock;

/* for (at = 0; (h = heir_next(&at));): all there are, also those that are free.  Any time; all else here with the lock. */
struct heir *heir_next(unsigned *at);
struct heir *heir_add(uint64_t inode); /* NULL: no memory */
void heir_set(struct heir *h, uint32_t state);
void heir_drop(struct heir *h); /* with its descriptors */

#endif
