/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * retire.c - rdma_destroy_id() without waiting for it.
 *
 * It returns when the kernel has nothing of the id on its way any more.  That is an instant; but whoever has accepted a request and then
 * hears of the peer's disconnect before the peer's "ready to use" (two processors may swap them, and one may be lost) goes on
 * repeating its yes, and its id is not to be had before that has ended: after 68 s (seen with Linux 6.1 over soft RoCE).  Meanwhile the
 * helper would see no event, no timer and no broken connection, and the receive buffers that wait for it would stop all others.
 *
 * So it is done by a thread, which is gone when there is nothing to do; by further ones, as long as one does not return.  Without threads the
 * helper does it and waits.  A fork waits for them for a moment, as it does for the helper: they use librdmacm's locks.
 */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "engine/transport/verbs/verbs.h"

#define LOOK_NS (20 * 1000000ull)
#define THREADS_MAX 16u
#define STACK (PTHREAD_STACK_MIN + (64u << 10))

struct retired {
	struct retired *next;
	struct rdma_cm_id *cm;
};

static void look(struct rds_timer *tm);

static struct {
	pthread_mutex_t lock;
	struct retired *first, **last;
	unsigned threads;
	struct retired *seen;  /* helper: was the first one at the last look */
	struct rds_timer look; /* as long as there may be some that wait */
} rt = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = &rt.first, .look.fn = look};

/* NULL: there is none, and this thread is not counted any more. */
static struct retired *next_one(void)
{
	struct retired *r;

	pthread_mutex_lock(&rt.lock);
	r = rt.first;
	if (r) {
		rt.first = r->next;
		if (!rt.first)
			rt.last = &rt.first;
	} else {
		rt.threads--;
	}
	pthread_mutex_unlock(&rt.lock);
	return r;
}

static void *retire_all(void *arg)
{
	struct retired *r;

	(void)arg;
	rds_self_never();
	os_library_begin(); /* for good */
	while ((r = next_one())) {
		vb.rdma_destroy_id(r->cm);
		free(r);
	}
	atomic_fetch_sub(&rds_fork_waits, 1);
	atomic_fetch_sub(&rds_more_threads, 1);
	return NULL;
}

static bool start(void)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	atomic_fetch_add(&rds_more_threads, 1);
	atomic_fetch_add(&rds_fork_waits, 1);
	err = pthread_create(&thread, &attr, retire_all, NULL);
	if (err) {
		atomic_fetch_sub(&rds_fork_waits, 1);
		atomic_fetch_sub(&rds_more_threads, 1);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return !err;
}

/* One more, if there may be.  False: there is none at all, and nobody else will do it. */
static bool another(void)
{
	bool may, any;

	pthread_mutex_lock(&rt.lock);
	may = rt.threads < THREADS_MAX;
	rt.threads += may;
	pthread_mutex_unlock(&rt.lock);
	if (may && start())
		return true;
	pthread_mutex_lock(&rt.lock);
	rt.threads -= may;
	any = rt.threads > 0;
	pthread_mutex_unlock(&rt.lock);
	return any;
}

/* Helper: is the same one still the first in the queue? Then all threads are in calls that do not return. */
static void look(struct rds_timer *tm)
{
	struct retired *first;

	pthread_mutex_lock(&rt.lock);
	first = rt.first;
	pthread_mutex_unlock(&rt.lock);
	if (first && first == rt.seen) {
		rds_debug("rdma_cm: the kernel keeps an id that is to go");
		another();
	}
	rt.seen = first;
	if (first)
		rds_timer_set(tm, os_now_ns() + LOOK_NS);
}

void verbs_cm_retire(struct rdma_cm_id *cm)
{
	struct retired *r = malloc(sizeof(*r));
	bool idle;

	cm->context = NULL;
	if (!r) {
		vb.rdma_destroy_id(cm);
		return;
	}
	*r = (struct retired){.cm = cm};
	pthread_mutex_lock(&rt.lock);
	*rt.last = r;
	rt.last = &r->next;
	idle = !rt.threads;
	pthread_mutex_unlock(&rt.lock);
	if (!idle) {
		rds_timer_need(&rt.look, os_now_ns() + LOOK_NS);
		return;
	}
	if (another())
		return;
	pthread_mutex_lock(&rt.lock);
	rt.threads++; /* by ourselves */
	pthread_mutex_unlock(&rt.lock);
	while ((r = next_one())) {
		vb.rdma_destroy_id(r->cm);
		free(r);
	}
}

void verbs_retire_forget(void)
{
	pthread_mutex_init(&rt.lock, NULL);
	rt.first = rt.seen = NULL;
	rt.last = &rt.first;
	rt.threads = 0;
	rt.look.queued = false;
	atomic_store(&rds_fork_waits, 0);
}
