/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * helper.h - the engine's own thread of a process: its life, what it does for the others, and what it does at forks, ends and changes of rights.
 */
#ifndef ENGINE_HELPER_HELPER_H
#define ENGINE_HELPER_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/helper/fd_exchange.h"
#include "engine/helper/leader.h"

/* Descriptor events and time. */
struct rds_helper_event {
	void (*fn)(struct rds_helper_event *ev, uint32_t epoll_events);
};
/* So much is taken at a time of what another process goes on saying: packets, connections.  In between it is the others' turn. */
#define RDS_EVENT_MOST 32u
/* Only from a thread that runs with the helper's table. */
int rds_helper_event_add(struct rds_helper_event *ev, int fd, uint32_t epoll_events); /* 0 or -errno */
void rds_helper_event_del(int fd);						      /* it is still open */
struct rds_timer {
	void (*fn)(struct rds_timer *tm);
	uint64_t due_ns;
	struct rds_timer *next;
	bool queued; /* under the timers' own lock */
};
void rds_timer_set(struct rds_timer *tm, uint64_t due_ns);  /* (re)arm; any thread */
void rds_timer_need(struct rds_timer *tm, uint64_t due_ns); /* arm it unless it is armed; any thread */
bool rds_timer_is_set(const struct rds_timer *tm);	    /* any thread; false as soon as it begins to run */
void rds_timer_cancel(struct rds_timer *tm);		    /* helper thread only: not running afterwards */
/* What wakes our helper, the same way. */
int rds_helper_kick_fd(void);

extern _Atomic bool rds_helper_up; /* written under control and rx */

/* reserve_fds.c; helper */
bool rds_helper_reserve_fill(void);    /* false: not even one peer can be talked to */
bool rds_helper_reserve_release(void); /* out of descriptors: true if some were kept back and are free now */
void rds_helper_reserve_forget(void);

/* What the helper does for the packages above, which fill this in before anything runs. */
struct rds_helper_client {
	bool (*shares_table)(void); /* it is to have the program's descriptor table, asked before it starts */
	int (*start)(void);	    /* in its thread: 0, or -errno and nothing is left */
	void (*stop)(void);
	int (*export_all)(void); /* what it has to know before it does anything: rds_export_to_helper().  0 or -errno */
	void (*round)(void);	 /* each time it is awake, no event pending */
	bool (*has_unsent)(void); /* messages would be lost if the process ended now */
};
extern const struct rds_helper_client *rds_helper_client;

/* thread.c */
int rds_helper_start(void);   /* control held: 0 when it is up, or -errno and nothing is left */
void rds_helper_forget(void); /* forked child */
void rds_helper_kick(void);   /* have the helper thread look at timers, work and connections now */
void rds_helper_kick_exported(int in, int out, int clock); /* helper */
/* For helper/step_aside.c, which is sure that nobody needs it meanwhile. */
bool rds_helper_has_ended(void); /* it has ended, in the kernel's eyes, too */
int rds_helper_restart(void);	 /* 0 or -errno: there is none from now on */

/* step_aside.c */
void rds_aside_exported(int fd);  /* helper */
bool rds_aside_stop_helper(void); /* helper, after a turn: this was the last one */
int rds_aside_restore_table(
	void); /* a new helper, with the program's table: it has the old one's from now on.  0 or -errno */
void rds_aside_helper_started(void); /* the helper has been started, for the first time */
void rds_aside_forget(void);	     /* forked child */

/* main_exit.c */
void rds_helper_keeper_check(void);  /* the helper is up: has the main thread ended already? */
void rds_helper_keeper_forget(void); /* forked child */
bool rds_helper_main_has_ended(
	unsigned ours); /* the main thread has ended, and no thread is left but so many of ours */

/* extra_threads.c */
extern _Atomic unsigned rds_helper_extra_threads; /* a transport's, beside the helper: not the program's either */
int rds_helper_thread_create(void *(*fn)(void *), void *arg, size_t stack); /* detached, not counted.  0 or errno */
int rds_helper_thread_start(void *(*fn)(void *), void *arg);		    /* helper: one of these. 0 or -errno */
void rds_helper_thread_end(void);					    /* this one, but for a few instructions */
unsigned rds_helper_thread_births(
	void); /* odd, or another number than before: rds_helper_extra_threads said nothing meanwhile */
void rds_helper_threads_forget(void); /* forked child */

extern _Atomic unsigned rds_helper_fork_waits; /* what a fork waits for, for a moment, as for the helper (round.c) */
bool rds_helper_round_begin(void); /* the helper's; false: a fork has held it up for too long, and goes on */
void rds_helper_round_end(bool begun);
void rds_helper_round_forget(void); /* forked child */

#endif
