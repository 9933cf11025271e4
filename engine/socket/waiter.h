/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * waiter.h - where a thread sleeps that is the process's leader, and the number by which sleepers see that congestion has changed.
 */
#ifndef ENGINE_SOCKET_WAITER_H
#define ENGINE_SOCKET_WAITER_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/helper/fd_exchange.h"

struct rds_sock_leader {
	/*
	 * The leader sleeps on a pipe: unlike an eventfd's, a pipe's wake-up tells the scheduler that the waker is about to
	 * sleep itself (sync), which is what makes a kernel socket's wake-up as quick as it is.
	 */
	_Atomic int fd; /* program's table only; -1: none */
	struct os_fd post;
	/* ... or on an eventfd that the kernel adds to when something arrives on the remote transport (sys/poll_eventfd.h). -1: none */
	_Atomic int relay_fd;
};

extern struct rds_sock_leader rds_sock_leader;
extern _Atomic uint64_t rds_sock_cong_gen; /* changes with congestion anywhere */

int rds_sock_leader_open(void);	   /* control held: 0 or -errno */
void rds_sock_leader_forget(void); /* forked child */

#endif
