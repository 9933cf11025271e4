/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * state.h - who makes progress now: what progress.c, wait.c and transports.c share.  All of it under rx, but for what is atomic.
 */
#ifndef ENGINE_PROGRESS_STATE_H
#define ENGINE_PROGRESS_STATE_H

#include <stdbool.h>
#include <stdint.h>

struct rds_wait;

struct progress_state {
	unsigned pollers, followers;
	struct rds_wait *_Atomic leader;
	bool lazy, lazy_tick_on;
	uint64_t led_at;   /* coarse clock: when a relayed leader was woken */
	uint64_t activity; /* counts calls: the lease goes on as long as it moves */
	unsigned calls;	   /* since the helper took over */
	/* Do sends look?  A device has woken the helper so many times while the program sent. */
	bool sends_look, watched; /* watched: somebody may sleep for a socket in the kernel, or in another process */
	unsigned wakes;
	uint64_t woken_at; /* coarse clock */
	_Atomic bool sent; /* something, since the last wake-up, as rds_progress_at_send wants it noted */
	bool remote_leads; /* what came last came over the remote transport */
	bool pressure;	   /* some transport's memory fills up with messages that nobody reads */
};

extern struct progress_state progress_state;

#endif
