/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * reentry.h - calls of signal handlers that have interrupted another call in the same thread.
 *
 * The kernel never sees that: its handlers run between calls.  Here the interrupted call may hold locks that the handler's needs.  So the
 * handler's first call lets it go on: it is *rolled forward*, with signals blocked, to its end, and then the handler goes on, as if the signal had
 * come just then (reentry.c says how).  The interrupted call does not sleep meanwhile; if it would, it ends as interrupted, and is made again
 * after the handler if the handler was installed with SA_RESTART.
 *
 * A thread is *inside* from reentry_call_begin() to reentry_call_end(), but for its sleeps: there it holds nothing, and a handler may do what it
 * likes, leave by siglongjmp() included.  Only the outermost functions of preload/ enter and leave; what costs nothing else pays four stores.
 *
 * Where it cannot be done (reentry.c) a handler's call finds things as they are, and may wait for the interrupted one for ever.
 * Must not know what calls do.
 */
#ifndef PRELOAD_ROLL_H
#define PRELOAD_ROLL_H

#include "preload/libc/preload.h"

#include <stdatomic.h>

struct reentry;

struct reentry_state {
	unsigned depth;	      /* 0: outside, or asleep */
	bool cut;	      /* a sleep was left out, for the handler */
	bool async;	      /* outside the thread may be cancelled anywhere (cancel_type.c) */
	char *top;	      /* nothing of the call lies above */
	struct reentry *waiting_handler; /* the handler that waits for the end of this call */
	struct reentry *late_handlers;	 /* ... those that run after it */
};
extern __thread struct reentry_state reentry_state __attribute__((tls_model("initial-exec")));

/* Once, before the first RDS socket exists.  is_ours: does this process have the descriptor table, and not only its memory, or a copy of it? */
void reentry_init(bool (*is_ours)(void));
void reentry_call_finish(void);
bool reentry_handler_resume(void);

/* At any instant a handler finds the call's own top, or that it is not inside, or nothing that the call has done yet. */
static inline void reentry_call_mark(char *top, unsigned depth)
{
	reentry_state.top = top;
	atomic_signal_fence(memory_order_seq_cst);
	reentry_state.depth = depth;
	atomic_signal_fence(memory_order_seq_cst);
	reentry_state.top = top; /* a handler's call may have come in between */
	atomic_signal_fence(memory_order_seq_cst);
}

/* Of a thread with `async`. */
void signals_cancel_defer(char *top, unsigned depth);
void signals_cancel_restore(void);

/* Not to be inlined into what goes on after the call has ended: its caller's frame is where the call begins. */
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

/* True: the call, if it says that it was interrupted, is to be made again. */
static inline bool reentry_call_end(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (unlikely(!reentry_state.depth)) /* left from a sleep: cancelled, or by siglongjmp() */
		return false;
	if (unlikely(--reentry_state.depth))
		return false;
	/* Not looked at earlier: a handler that has come until just now has found us inside. */
	atomic_signal_fence(memory_order_seq_cst);
	bool again = unlikely(reentry_state.waiting_handler) && reentry_handler_resume();

	if (unlikely(reentry_state.async))
		signals_cancel_restore();
	return again;
}

/* The two sleeps; would they be none? */
bool reentry_sleep_is_cut(void);
ssize_t reentry_sleep_read(int fd, void *buf, size_t len);
int reentry_sleep_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask);

#endif
