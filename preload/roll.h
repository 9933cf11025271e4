/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * roll.h - calls of signal handlers that have interrupted another call in the same thread.
 *
 * The kernel never sees that: its handlers run between calls.  Here the interrupted call may hold locks that the handler's needs.  So the
 * handler's first call lets it go on: it is *rolled forward*, with signals blocked, to its end, and then the handler goes on, as if the signal had
 * come just then (roll.c says how).  The interrupted call does not sleep meanwhile; if it would, it ends as interrupted, and is made again
 * after the handler if the handler was installed with SA_RESTART.
 *
 * A thread is *inside* from rds_inside_enter() to rds_inside_leave(), but for its sleeps: there it holds nothing, and a handler may do what it
 * likes, leave by siglongjmp() included.  Only the outermost functions of preload/ enter and leave; what costs nothing else pays two stores.
 *
 * Where it cannot be done (roll.c) a handler's call finds things as they are, and may wait for the interrupted one for ever.
 * Must not know what calls do.
 */
#ifndef PRELOAD_ROLL_H
#define PRELOAD_ROLL_H

#include "preload.h"

#include <stdatomic.h>

struct roll;

struct rds_inside {
	unsigned depth;	      /* 0: outside, or asleep */
	bool cut;	      /* a sleep was left out, for the handler */
	char *top;	      /* nothing of the call lies above */
	struct roll *rolling; /* the handler that waits for the end of this call */
	struct roll *live;    /* ... those that run after it */
};
extern __thread struct rds_inside rds_inside __attribute__((tls_model("initial-exec")));

void rds_roll_init(void); /* once, before the first RDS socket exists */
void rds_roll_forward(void);
bool rds_roll_back(void);

/* A caller may end by a jump to another function, and have given its frame back by then. */
#define RDS_INSIDE_SLACK 256
/* Not to be inlined into what goes on after the call has ended: its caller's frame is where the call begins. */
#define rds_inside_enter()                                                                                             \
	do {                                                                                                           \
		if (unlikely(rds_inside.depth))                                                                        \
			rds_roll_forward();                                                                            \
		rds_inside.depth++;                                                                                    \
		atomic_signal_fence(memory_order_seq_cst);                                                             \
		if (likely(rds_inside.depth == 1))                                                                     \
			rds_inside.top = (char *)__builtin_dwarf_cfa() + RDS_INSIDE_SLACK;                             \
		atomic_signal_fence(memory_order_seq_cst);                                                             \
	} while (0)

/* True: the call, if it says that it was interrupted, is to be made again. */
static inline bool rds_inside_leave(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (unlikely(!rds_inside.depth)) /* left from a sleep: cancelled, or by siglongjmp() */
		return false;
	return likely(--rds_inside.depth == 0) && unlikely(rds_inside.rolling) && rds_roll_back();
}

/* The two sleeps; would they be none? */
bool rds_sleep_cut(void);
ssize_t rds_sleep_read(int fd, void *buf, size_t len);
int rds_sleep_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask);

#endif
