/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * state.h - state of progress that progress.c, wait.c and transports.c share.  All of it under rx,
 * except atomic fields.
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
	uint64_t tick_due; /* coarse clock: when the helper looks next, with lazy_tick_on */
	/* until when threads sleep for a helper whose look is late; 0: not yet */
	uint64_t way_until;
	uint64_t led_at;   /* coarse clock: when a relayed leader was woken */
	uint64_t activity; /* counts calls: LAZY goes on while it changes */
	unsigned calls;	   /* since the helper took over (attention HELPER) */
	/*
	 * sends_look: sends look for input.  watched: a program may sleep for a socket in the
	 * kernel, or in another process.  wakes: how often a device has woken the helper while the
	 * program sent.
	 */
	bool sends_look, watched;
	unsigned wakes;
	uint64_t woken_at; /* coarse clock */
	_Atomic bool sent; /* a message was sent since the last wake-up (RDS_AT_SEND_NOTE) */
	bool remote_leads; /* the last input came over the remote transport */
	bool vain;	   /* calls have looked in vain since the last tick */
	bool pressure;	   /* a transport's memory fills up with unread messages */
};

extern struct progress_state progress_state;

#endif
