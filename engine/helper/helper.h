/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * helper.h - the helper thread: events, timers, start and end, and what it does at forks, exits
 * and changes of credentials.
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
/*
 * At most so many packets or connections of one other process are taken in one go.  After that the
 * other descriptors have their turn.
 */
#define RDS_EVENT_MAX 32u
/*
 * Only from a thread that runs with the helper's table.  The number is read from the slot at the
 * last moment, because the program may want it (sys/os.h).  0 or -errno
 */
int rds_helper_event_add(struct rds_helper_event *ev, const _Atomic int *slot, uint32_t epoll_events);
void rds_helper_event_del(int fd); /* before fd is closed */
struct rds_timer {
	void (*fn)(struct rds_timer *tm);
	uint64_t due_ns;
	struct rds_timer *next;
	bool queued; /* under the timers' own lock */
};
void rds_timer_set(struct rds_timer *tm, uint64_t due_ns); /* (re)arm; any thread */
/* arm it unless it is armed; any thread */
void rds_timer_need(struct rds_timer *tm, uint64_t due_ns);
/* arm it unless it is armed for an earlier time; any thread.  True: it has been armed */
bool rds_timer_by(struct rds_timer *tm, uint64_t due_ns);
/*
 * In the function of a timer that looks again and again: the pause, in ns, after a look that is over now; at
 * least least_ns.  It is longer where looks are long, or come late because too many processes want a processor.
 */
uint64_t rds_timer_pause(uint64_t least_ns);
bool rds_timer_is_set(const struct rds_timer *tm); /* any thread; false as soon as tm->fn begins */
void rds_timer_cancel(struct rds_timer *tm);	   /* helper only: tm->fn does not run afterwards */
/* A write of 8 bytes to this descriptor wakes the helper. */
int rds_helper_kick_fd(void);

extern _Atomic bool rds_helper_up; /* written under control and rx */
/* this thread is the helper */
extern __thread bool rds_helper_is_self __attribute__((tls_model("initial-exec")));

/* reserve_fds.c; helper */
bool rds_helper_reserve_fill(void); /* false: too few descriptors for even one peer */
/* Called when no descriptor is left.  True: some were in reserve, and are free now. */
bool rds_helper_reserve_release(void);
void rds_helper_reserve_forget(void);

/* What the helper does for the packages above.  The root fills this in before any thread runs. */
struct rds_helper_client {
	/* The helper must run with the program's descriptor table.  Asked before it starts. */
	bool (*shares_table)(void);
	int (*start)(void); /* in the helper thread: 0, or -errno and nothing is left behind */
	void (*stop)(void);
	/*
	 * Exports what the helper needs before it does anything (rds_export_to_helper()).  0 or
	 * -errno
	 */
	int (*export_all)(void);
	void (*round)(void);	  /* in each round, after events, deferred calls and timers */
	bool (*has_unsent)(void); /* messages would be lost if the process ended now */
};
extern const struct rds_helper_client *rds_helper_client;

/* thread.c */
/* control held: 0 when it is up, or -errno and nothing is left behind */
int rds_helper_start(void);
void rds_helper_fork_child(void);
void rds_helper_kick(void);   /* have the helper thread look at timers, work and connections now */
void rds_helper_kick_exported(int in, int out, int clock); /* helper */
/* Sleeps until the end of a turn of the helper, at most for so long.  No lock held. */
void rds_helper_await_turn(uint64_t ns);
/* For step_aside.c, which knows that no thread needs the helper meanwhile. */
bool rds_helper_has_ended(void); /* the kernel no longer counts the thread */
int rds_helper_restart(void);	 /* 0, or -errno: there is no helper from now on */

/* schedule.c */
void rds_helper_schedule_self(void); /* the calling thread is the helper */

/* step_aside.c */
void rds_aside_exported(int fd);  /* helper */
bool rds_aside_stop_helper(void); /* helper, after a round.  True: the thread is to end now */
/*
 * A new helper starts with the program's table.  From now on it has the descriptors of the old
 * helper's table.  0 or -errno
 */
int rds_aside_restore_table(void);
void rds_aside_helper_started(void); /* the helper has been started, for the first time */
void rds_aside_forget(void);	     /* forked child */

/* main_exit.c */
void rds_helper_keeper_check(void);  /* the helper is up: has the main thread ended already? */
void rds_helper_keeper_forget(void); /* forked child */
/* The main thread has ended, and no other thread is left but `ours` and the extra threads. */
bool rds_helper_main_has_ended(unsigned ours);

/* extra_threads.c */
extern _Atomic unsigned rds_helper_extra_threads; /* threads of a transport, beside the helper */
/* Detached, not counted.  0 or errno */
int rds_helper_thread_create(void *(*fn)(void *), void *arg, size_t stack);
/* Helper: starts an extra thread, which is counted.  0 or -errno */
int rds_helper_thread_start(void *(*fn)(void *), void *arg);
void rds_helper_thread_end(void); /* the calling extra thread ends within a few instructions */
/*
 * An odd number, or a different number before and after: rds_helper_extra_threads could not be
 * trusted in between.
 */
unsigned rds_helper_thread_births(void);
void rds_helper_threads_forget(void); /* forked child */

/*
 * Activities other than the helper's round that a fork waits for, as long as for the round
 * (round.c).
 */
extern _Atomic unsigned rds_helper_fork_waits;
/* Not the helper.  Its round of now, if there is one, is over; false: it is not, at that time. */
bool rds_helper_await_round(uint64_t until);
/* Helper.  False: a fork took too long.  The round runs without excluding that fork. */
bool rds_helper_round_begin(void);
void rds_helper_round_end(bool begun);
void rds_helper_round_forget(void); /* forked child */

#endif
