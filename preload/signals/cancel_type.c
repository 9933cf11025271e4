/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cancel_type.c - threads that may be cancelled anywhere (PTHREAD_CANCEL_ASYNCHRONOUS).
 *
 * The kernel's calls are not left in the middle by that.  Here a call may hold locks that nobody would give back: so such a thread is of
 * the other type while it is inside (reentry.h), where its sleeps are cancellation points all the same, and is cancelled when the call is
 * over at the latest.  Other threads pay a look at a flag.
 */
#include "preload/signals/reentry.h"

static void cancel_type_set(int type)
{
	int before;

	libc_real.pthread_setcanceltype(type, &before);
}

/*
 * Before the call is known to have begun, or what the thread calls when it is cancelled would take it for one that goes on; and after
 * that, since a signal handler's call may have ended in between.
 */
void signals_cancel_defer(char *top, unsigned depth)
{
	cancel_type_set(PTHREAD_CANCEL_DEFERRED);
	reentry_call_mark(top, depth);
	cancel_type_set(PTHREAD_CANCEL_DEFERRED);
}

/* The thread may end in here. */
void signals_cancel_restore(void)
{
	int saved = errno;

	cancel_type_set(PTHREAD_CANCEL_ASYNCHRONOUS);
	errno = saved;
}

int pthread_setcanceltype(int type, int *old)
{
	bool known = type == PTHREAD_CANCEL_ASYNCHRONOUS || type == PTHREAD_CANCEL_DEFERRED;
	int before = reentry_state.async ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;

	if (!known)
		return libc_real.pthread_setcanceltype(type, old);
	if (old)
		*old = before;
	/* A handler that has interrupted a call: it comes to be with the end of that. */
	if (reentry_state.depth) {
		reentry_state.async = type == PTHREAD_CANCEL_ASYNCHRONOUS;
		return 0;
	}
	/* What is to be deferred is so before the flag says it and after, whatever a handler's call makes of it in between. */
	if (type == PTHREAD_CANCEL_DEFERRED)
		cancel_type_set(type);
	reentry_state.async = type == PTHREAD_CANCEL_ASYNCHRONOUS;
	cancel_type_set(type);
	return 0;
}
