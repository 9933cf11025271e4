/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * extra_threads.c - threads of a transport, beside the helper, for system calls that may take long.
 *
 * An extra thread has all signals blocked and ends after its call.  main_exit.c counts whether the
 * program has any thread left.  It must not take an extra thread for a thread of the program.  Nor
 * must it take a thread of the program for an extra thread that is counted but does not exist yet.
 * `births` tells it when the count cannot be trusted.
 *
 * Must not know what the calls are.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "engine/helper/helper.h"

#define STACK (PTHREAD_STACK_MIN + (64u << 10))

_Atomic unsigned rds_helper_extra_threads;
static _Atomic unsigned births; /* two for each start; odd: a thread is being started */

static int create_detached(void *(*fn)(void *), void *arg, size_t stack)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (stack)
		pthread_attr_setstacksize(&attr, stack);
	err = pthread_create(&thread, &attr, fn, arg);
	pthread_attr_destroy(&attr);
	return err;
}

/*
 * The program's thread-local variables may not fit on a small stack.  Then the thread gets a stack
 * of the default size.
 */
int rds_helper_thread_create(void *(*fn)(void *), void *arg, size_t stack)
{
	int err = create_detached(fn, arg, stack);

	return err == EINVAL ? create_detached(fn, arg, 0) : err;
}

int rds_helper_thread_start(void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	atomic_fetch_add(&births, 1);
	atomic_fetch_add(&rds_helper_extra_threads, 1);
	err = rds_helper_thread_create(fn, arg, STACK);
	if (err)
		atomic_fetch_sub(&rds_helper_extra_threads, 1);
	atomic_fetch_add(&births, 1);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

void rds_helper_thread_end(void)
{
	atomic_fetch_sub(&rds_helper_extra_threads, 1);
}

unsigned rds_helper_thread_births(void)
{
	return atomic_load(&births);
}

void rds_helper_threads_forget(void)
{
	atomic_store(&births, 0);
	atomic_store(&rds_helper_extra_threads, 0);
}
