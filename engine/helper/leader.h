/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * leader.h - where a thread sleeps that is the process's leader.
 */
#ifndef ENGINE_HELPER_LEADER_H
#define ENGINE_HELPER_LEADER_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/helper/fd_exchange.h"

struct rds_helper_leader {
	/*
	 * The leader sleeps on a pipe: unlike an eventfd's, a pipe's wake-up tells the scheduler that the waker is about to
	 * sleep itself (sync), which is what makes a kernel socket's wake-up as quick as it is.
	 */
	_Atomic int fd; /* program's table only; -1: none */
	struct os_fd post;
	/* ... or on an eventfd that the kernel adds to when something arrives on the remote transport (sys/poll_eventfd.h). -1: none */
	_Atomic int relay_fd;
};

extern struct rds_helper_leader rds_helper_leader;

/* What wakes the leader when 8 bytes are written to it: transports hand copies of it to peers. */
int rds_helper_leader_fd(void);
/*
 * Remote transports: the eventfd that the leader sleeps on when they have been told LEADER.  Somebody has to add to it when
 * something arrives, without the helper's doing if possible.
 */
int rds_helper_relay_fd(void);

int rds_helper_leader_open(void);	   /* control held: 0 or -errno */
void rds_helper_leader_forget(void); /* forked child */

#endif
