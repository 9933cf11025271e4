/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * leader.h - the descriptors on which the process's leader sleeps.  The leader is the thread of the
 * program that is woken for arrivals on behalf of all threads.
 */
#ifndef ENGINE_HELPER_LEADER_H
#define ENGINE_HELPER_LEADER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/helper/fd_exchange.h"

struct rds_helper_leader {
	/*
	 * The leader sleeps on a pipe.  A pipe's wake-up tells the scheduler that the waker is
	 * about to sleep itself (sync), an eventfd's does not.  A kernel socket's wake-up is quick
	 * for the same reason.
	 */
	_Atomic int fd;	   /* the reading end; program's table only; -1: none */
	struct os_fd post; /* the writing end */
	/*
	 * The leader may also sleep on an eventfd, to which the kernel adds when a message arrives
	 * on a far transport (sys/poll_eventfd.h), or the helper.  -1: none
	 */
	struct os_fd relay;
	/*
	 * Or on a datagram socket of a transport, which peers find by its name: they have no descriptor of
	 * this process.  named_fd: where the program's table has it; NULL: there is none.  post_named wakes
	 * the leader there.  by_name: what came last is of such a peer (rx).
	 */
	_Atomic int *_Atomic named_fd;
	void (*post_named)(void);
	bool by_name;
};

extern struct rds_helper_leader rds_helper_leader;

/*
 * A write of 8 bytes to this descriptor wakes the leader.  Transports give copies of it to peers.
 */
int rds_helper_leader_fd(void);
/*
 * For far transports: the eventfd on which the leader sleeps after the transports have been told
 * LEADER, in this thread's table.  The transport has the eventfd added to at each arrival, if possible
 * without the helper.
 */
int rds_helper_relay_fd(void);

int rds_helper_leader_open(void);	   /* control held: 0 or -errno */
/* A thread of the program, no lock held; again: nothing.  False: there is none, the helper wakes the leader. */
bool rds_helper_relay_open(void);
void rds_helper_relay_exported(int fd); /* helper */
void rds_helper_leader_forget(void); /* forked child */

#endif
