/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * reentry.h - calls of signal handlers that have interrupted another call in the same thread.
 *
 * The kernel never sees this: its handlers run between system calls. Here the interrupted call may
 * hold locks that the handler's call needs. So the handler's first call lets the interrupted call
 * run to its end, with signals blocked. Then the handler goes on, as if the signal had come just
 * then (reentry.c tells how). The interrupted call does not sleep meanwhile. Where it would, it
 * ends as interrupted, and is made again after the handler if the handler was installed with
 * SA_RESTART.
 *
 * A thread is *inside* from reentry_call_begin() to reentry_call_end(), except while it sleeps. In
 * a sleep the call holds nothing, and a handler may do anything, also leave by siglongjmp(). Only
 * the outermost functions of preload/ begin and end. A call that no handler interrupts pays four
 * stores.
 *
 * Where this is not possible (reentry.c) a handler's call finds things as they are, and may wait
 * for the interrupted call for ever.
 *
 * Must not know what calls do.
 */
#ifndef PRELOAD_SIGNALS_REENTRY_H
#define PRELOAD_SIGNALS_REENTRY_H

#include "preload/libc/preload.h"

#include <stdatomic.h>

struct reentry;

struct reentry_state {
	unsigned depth;	      /* 0: outside, or asleep */
	bool cut;	      /* a sleep was left out, because a handler waits */
	/* outside of calls the thread may be cancelled anywhere (cancel_type.c) */
	bool async;
	char *top;			 /* the call's stack top: no frame of the call lies above */
	struct reentry *waiting_handler; /* the handler that waits for the end of this call */
	/* handlers that have gone on after the end of their interrupted calls */
	struct reentry *late_handlers;
};
extern __thread struct reentry_state reentry_state __attribute__((tls_model("initial-exec")));

/*
 * Once, before the first RDS socket exists. is_ours: does this process have the descriptor table,
 * and not only the memory, or a copy of it?
 */
void reentry_init(bool (*is_ours)(void));
void reentry_call_finish(void);
bool reentry_handler_resume(void);

/*
 * The order of the stores matters. At any instant a handler finds the call's own stack top, or that
 * the thread is not inside, or a call that has not done anything yet.
 */
static inline void reentry_call_mark(char *top, unsigned depth)
{
	reentry_state.top = top;
	atomic_signal_fence(memory_order_seq_cst);
	reentry_state.depth = depth;
	atomic_signal_fence(memory_order_seq_cst);
	reentry_state.top = top; /* a handler's call may have changed it */
	atomic_signal_fence(memory_order_seq_cst);
}

/* For a thread with `async`. */
void signals_cancel_defer(char *top, unsigned depth);
void signals_cancel_restore(void);

/*
 * The function that uses this must not be inlined into one that goes on after the call has ended:
 * the call begins with the frame of that function.
 */
#define reentry_call_begin()                                                                                           \
	do {                                                                                                           \
		if (unlikely(reentry_state.depth))                                                                     \
			reentry_call_finish();                                                                         \
		if (unlikely(reentry_state.depth))                                                                     \
			reentry_state.depth++;                                                                         \
		else if (likely(!reentry_state.async))                                                                 \
			reentry_call_mark(__builtin_dwarf_cfa(), 1);                                                   \
		else                                                                                                   \
			signals_cancel_defer(__builtin_dwarf_cfa(), 1);                                                \
	} while (0)

/* True: the call is to be made again if its result says that it was interrupted. */
static inline bool reentry_call_end(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (unlikely(!reentry_state.depth))
		/* the call was left from a sleep: cancelled, or by siglongjmp() */
		return false;
	if (unlikely(--reentry_state.depth))
		return false;
	/*
	 * Not looked at earlier: a handler that has come until just now has found the thread
	 * inside.
	 */
	atomic_signal_fence(memory_order_seq_cst);
	bool again = unlikely(reentry_state.waiting_handler) && reentry_handler_resume();

	if (unlikely(reentry_state.async))
		signals_cancel_restore();
	return again;
}

/*
 * The engine's two sleeps. cut: a handler waits for the end of the call, so they would not sleep.
 */
bool reentry_sleep_is_cut(void);
ssize_t reentry_sleep_read(int fd, void *buf, size_t len);
int reentry_sleep_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask);

#endif
