/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * destroy_thread.c - rdma_destroy_id() without waiting for it.
 *
 * rdma_destroy_id() returns when the kernel has nothing under way for the id any more.  Usually
 * that is at once, but a minute was seen (Linux 6.1, soft RoCE, connections that break as soon as
 * they are established): the kernel went on repeating its acceptance of a request, it seems
 * because it had been told that the connection was established at the moment in which the peer
 * ended it.  The kernel is not told so early any more (ep/endpoint.c, ep_early_frame), but the two
 * events may still meet.  If the helper waited, it would handle no event, no timer and no broken
 * connection meanwhile, and the receive buffers that wait for the helper would stop all other
 * connections.
 *
 * So a thread makes the call, and ends when there is nothing left to destroy; further threads are
 * started as long as one call does not return.  If no thread can be started, the helper makes the
 * call and waits.  A fork waits for pending destroys, as it does for the helper, since they use
 * librdmacm's locks; but not for a call that hangs in the kernel.
 */
#include <stdlib.h>

#include "engine/transport/verbs/cm/cm.h"

#define SELDOM_NS (1000 * 1000000ull) /* interval of looks when no further thread can be started */
#define THREADS_MAX 16u

struct destroy_job {
	struct destroy_job *next;
	struct rdma_cm_id *cm;
	uint64_t number;
	_Atomic bool fork_waits;
};

static void destroy_timer(struct rds_timer *tm);

static struct {
	pthread_mutex_t lock;
	struct destroy_job *first, **last;
	struct destroy_job *calls; /* jobs whose rdma_destroy_id() is running */
	unsigned threads;
	uint64_t count;
	/* helper: numbers of the first job and of the last call at the last look; 0: none */
	uint64_t seen, called;
	/* set as long as there are jobs, except calls that are known to hang */
	struct rds_timer look;
} rt = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = &rt.first, .look.fn = destroy_timer};

/* Takes the next job.  NULL: there is none, and this thread is not counted any more. */
static struct destroy_job *destroy_next(void)
{
	struct destroy_job *r;

	pthread_mutex_lock(&rt.lock);
	r = rt.first;
	if (r) {
		rt.first = r->next;
		if (!rt.first)
			rt.last = &rt.first;
		r->next = rt.calls;
		rt.calls = r;
	} else {
		rt.threads--;
	}
	pthread_mutex_unlock(&rt.lock);
	return r;
}

static void destroy_fork_unwait(struct destroy_job *r)
{
	if (atomic_exchange(&r->fork_waits, false))
		atomic_fetch_sub(&rds_helper_fork_waits, 1);
}

static void destroy_done(struct destroy_job *r)
{
	struct destroy_job **p;

	pthread_mutex_lock(&rt.lock);
	for (p = &rt.calls; *p != r; p = &(*p)->next)
		;
	*p = r->next;
	destroy_fork_unwait(r);
	if (!rt.first && !rt.calls) /* no look is needed */
		rds_timer_cancel(&rt.look);
	pthread_mutex_unlock(&rt.lock);
	free(r);
}

static void destroy_all(void)
{
	struct destroy_job *r;

	while ((r = destroy_next())) {
		vb.rdma_destroy_id(r->cm);
		destroy_done(r);
	}
}

static void *destroy_thread(void *arg)
{
	(void)arg;
	rds_thread_record_refuse();
	os_library_begin(); /* until the thread ends */
	destroy_all();
	rds_helper_thread_end();
	return NULL;
}

/* False: no further thread was started. */
static bool destroy_thread_start(void)
{
	bool may;

	pthread_mutex_lock(&rt.lock);
	may = rt.threads < THREADS_MAX;
	rt.threads += may;
	pthread_mutex_unlock(&rt.lock);
	if (may && !rds_helper_thread_start(destroy_thread, NULL))
		return true;
	pthread_mutex_lock(&rt.lock);
	rt.threads -= may;
	pthread_mutex_unlock(&rt.lock);
	return false;
}

/* Helper: a job or a call that was there at the last look, too, takes long. */
static void destroy_timer(struct rds_timer *tm)
{
	uint64_t first, called; /* 0: none */
	struct destroy_job *r;
	bool young, stuck;

	pthread_mutex_lock(&rt.lock);
	first = rt.first ? rt.first->number : 0;
	called = rt.calls ? rt.calls->number : 0; /* the last call that was made */
	young = called && called != rt.called;
	for (r = rt.calls; r && !young; r = r->next)
		destroy_fork_unwait(r);
	pthread_mutex_unlock(&rt.lock);
	stuck = first && first == rt.seen;
	if (called && !young)
		rds_debug("rdma_cm: the kernel does not return ids that are being destroyed");
	rt.seen = first;
	rt.called = called;
	stuck = stuck && !destroy_thread_start();
	pthread_mutex_lock(&rt.lock);
	if (rt.first || (rt.calls && young))
		rds_timer_set(tm, os_now_ns() + (stuck ? SELDOM_NS : rds_patience_ns(RDS_PATIENCE_CM_DESTROY)));
	pthread_mutex_unlock(&rt.lock);
}

void verbs_cm_destroy(struct rdma_cm_id *cm)
{
	struct destroy_job *r;
	bool idle;

	cm->context = NULL;
	verbs_cm_dev_restore_ctx(cm);
	if (verbs_cm_dev_keep_id(cm))
		return;
	r = malloc(sizeof(*r));
	if (!r) {
		vb.rdma_destroy_id(cm);
		return;
	}
	*r = (struct destroy_job){.cm = cm, .number = ++rt.count, .fork_waits = true};
	atomic_fetch_add(&rds_helper_fork_waits, 1);
	pthread_mutex_lock(&rt.lock);
	*rt.last = r;
	rt.last = &r->next;
	idle = !rt.threads;
	rds_timer_need(&rt.look, os_now_ns() + rds_patience_ns(RDS_PATIENCE_CM_DESTROY));
	pthread_mutex_unlock(&rt.lock);
	if (!idle || destroy_thread_start())
		return;
	pthread_mutex_lock(&rt.lock);
	rt.threads++; /* this thread, which does the work itself */
	pthread_mutex_unlock(&rt.lock);
	destroy_all();
}

void verbs_cm_destroy_forget(void)
{
	pthread_mutex_init(&rt.lock, NULL);
	rt.first = rt.calls = NULL;
	rt.count = rt.seen = rt.called = 0;
	rt.last = &rt.first;
	rt.threads = 0;
	rt.look.queued = false;
}
