/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cancel_type.c - threads that may be cancelled anywhere (PTHREAD_CANCEL_ASYNCHRONOUS).
 *
 * A cancelled thread does not leave a call of the kernel in the middle. Here a call may hold locks
 * that no thread would give back. So a thread of this type has the deferred type while it is inside
 * (reentry.h). Its sleeps are cancellation points all the same, and it is cancelled when the call
 * is over at the latest. Other threads pay a look at a flag.
 */
#include "preload/signals/reentry.h"

static void cancel_type_set(int type)
{
	int before;

	libc_real.pthread_setcanceltype(type, &before);
}

/*
 * The type is changed before the call is marked as begun. Otherwise a cancellation clean-up handler
 * of the program would take the call for one that goes on. It is changed again after that, since a
 * signal handler's call may have ended in between and set the type back.
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
	/* A handler has interrupted a call: the type takes effect at the end of that call. */
	if (reentry_state.depth) {
		reentry_state.async = type == PTHREAD_CANCEL_ASYNCHRONOUS;
		return 0;
	}
	/*
	 * The deferred type is set before the flag says so, and set again after: a handler's call
	 * in between may have set the type back.
	 */
	if (type == PTHREAD_CANCEL_DEFERRED)
		cancel_type_set(type);
	reentry_state.async = type == PTHREAD_CANCEL_ASYNCHRONOUS;
	cancel_type_set(type);
	return 0;
}
