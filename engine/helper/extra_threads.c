/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * extra_threads.c - threads of a transport's, beside the helper, for calls into the kernel that may take long.
 *
 * They have all signals blocked and end when their call is over.  Who looks whether the program has any thread left (main_exit.c) must not take
 * them for the program's, nor a thread of the program's for one that is counted and not yet born: births says when not to believe the count.
 * Must not know what the calls are.
 */
#include "engine/helper/helper.h"
#include "engine/sys/compiler.h"
#include "engine/sys/fence.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/sys/process.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <limits.h>

#define STACK (PTHREAD_STACK_MIN + (64u << 10))

_Atomic unsigned rds_helper_extra_threads;
static _Atomic unsigned births; /* twice; odd: one is being born */

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

/* A small stack may not take what the program has in thread-local variables: then as large as any. */
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
