/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cleanup.h - cleanup when a thread leaves a call from inside its sleep. A thread leaves a sleep
 * when it is cancelled, or when a signal handler calls siglongjmp().
 *
 * pthread_cleanup_push() serves cancelled threads alone. glibc still has the cleanup buffers from
 * before NPTL, and longjmp() looks through them. They serve both cases and cost less. Where
 * libc has none (musl), a handler must not leave a sleep.
 *
 * The pushed functions run innermost first, in the thread that leaves and on its stack. No lock of
 * the engine is held in a sleep, so a pushed function may take any lock. As with
 * pthread_cleanup_push(), push and pop are braces, and the code between them must not return.
 */
#ifndef ENGINE_SYS_CLEANUP_H
#define ENGINE_SYS_CLEANUP_H

#include <pthread.h>

#ifdef __GLIBC__
extern void _pthread_cleanup_push(struct _pthread_cleanup_buffer *buf, void (*fn)(void *), void *arg);
extern void _pthread_cleanup_pop(struct _pthread_cleanup_buffer *buf, int run);

#define rds_cleanup_push(fn, arg)                                                                                      \
	{                                                                                                              \
		struct _pthread_cleanup_buffer cleanup_;                                                               \
		_pthread_cleanup_push(&cleanup_, fn, arg);
#define rds_cleanup_pop(run)                                                                                           \
	_pthread_cleanup_pop(&cleanup_, run);                                                                          \
	}
#else
#define rds_cleanup_push(fn, arg) pthread_cleanup_push(fn, arg)
#define rds_cleanup_pop(run) pthread_cleanup_pop(run)
#endif

#endif
