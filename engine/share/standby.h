/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * standby.h - the table of standbys, which standby.c, standby_fork.c and standby_sleep.c share.
 *
 * All functions but standby_next() need standby_lock.
 */
#ifndef ENGINE_SHARE_STANDBY_H
#define ENGINE_SHARE_STANDBY_H

#include <pthread.h>
#include <stdbool.h>

#include "engine/share/lease.h"

enum { FREE, HELD, TAKEN };
enum { PAIR, HANGUP, MAILBOX, LEASE, PARTS };

struct standby {
	_Atomic uint32_t state;
	_Atomic uint64_t inode;
	_Atomic int fd[PARTS];
	bool hung_up; /* rds_standby_hangup_note() */
};

extern pthread_mutex_t standby_lock;

/* for (at = 0; (h = standby_next(&at));): all entries, FREE ones too. With or without the lock. */
struct standby *standby_next(unsigned *at);
struct standby *standby_find(uint64_t inode);
struct standby *standby_add(uint64_t inode); /* NULL: no memory */
void standby_set(struct standby *h, uint32_t state);
void standby_drop(struct standby *h); /* with its descriptors */

#endif
