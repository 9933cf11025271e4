/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cleanup.h - what is done if a thread leaves a call from inside its sleep: cancelled, or by siglongjmp() out of a signal handler.
 *
 * pthread_cleanup_push() serves cancelled threads alone.  The buffers of before NPTL, which glibc has still and longjmp() looks through, serve
 * both, and cost less.  Where there are none (musl) a handler must not leave a sleep.
 *
 * What is pushed is run innermost first, in the thread, on the stack of whoever leaves; no lock of the engine is held in a sleep, so it may take any.
 * As with pthread_cleanup_push(), push and pop are braces, and nothing between them may return.
 */
#ifndef ENGINE_CLEANUP_H
#define ENGINE_CLEANUP_H

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
