/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * thread_record.c - the threads' records and the barrier of thread_record.h.
 *
 * Records come from an array of fixed size, so that a look at all of them is a walk over those ever
 * used. A thread for which no record is left works all the same, only slower.
 */
#include "engine/sys/thread_record.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "engine/sys/compiler.h"
#include "engine/sys/fence.h"
#include "engine/sys/log.h"
#include "engine/sys/os.h"

#define RECORDS 512
#define RECORDS_FIRST 4
#define CPUS 4096

#if defined(__SANITIZE_THREAD__)
#define POSSIBLE false /* ThreadSanitizer does not know membarrier(2) */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define POSSIBLE false
#endif
#endif
#ifndef POSSIBLE
#define POSSIBLE true
#endif

struct rds_thread rds_thread_none = {.ncalls = RDS_THREAD_CALLS};
__thread struct rds_thread *rds_thread __attribute__((tls_model("initial-exec"))) = &rds_thread_none;
static __thread bool never __attribute__((tls_model("initial-exec")));

/* Most processes have no more than the first ones, which need no page of their own. */
static struct rds_thread records_first[RECORDS_FIRST], records_more[RECORDS - RECORDS_FIRST] RDS_TABLE;
static _Atomic unsigned used; /* records 0..used-1 have been given to a thread */
static struct rds_thread *free_list;
static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool on, refused;
static pthread_key_t key;
static bool key_made;

static struct rds_thread *record_at(unsigned i)
{
	return i < RECORDS_FIRST ? &records_first[i] : &records_more[i - RECORDS_FIRST];
}

/* ---- the barrier ---- */

static long membarrier_call(int cmd)
{
	return os_syscall(SYS_membarrier, cmd, 0, 0, 0, 0, 0);
}

/*
 * The program has installed a filter of system calls that refuses membarrier(2), after the engine
 * began to rely on it. To run for a moment on each processor has the same effect: any other thread
 * that ran there has been switched away. This is slow, and a few tens of lines for a rare case, but
 * without a barrier two threads would be inside a lock.
 */
static void visit_processors(void)
{
	unsigned long all[CPUS / 64] = {0}, one[CPUS / 64] = {0};
	long len = os_syscall(SYS_sched_getaffinity, 0, sizeof(all), (long)all, 0, 0, 0);
	unsigned cpu, visited = 0;

	atomic_store(&refused, true);

	for (cpu = 0; len > 0 && cpu < CPUS; cpu++) {
		one[cpu / 64] = 1ul << cpu % 64;
		visited += os_syscall(SYS_sched_setaffinity, 0, sizeof(one), (long)one, 0, 0, 0) == 0;
		one[cpu / 64] = 0;
	}
	if (visited)
		os_syscall(SYS_sched_setaffinity, 0, len, (long)all, 0, 0, 0);
	else {
		/*
		 * Waiting is all that is left: the stores of a processor are visible within
		 * microseconds, and no bias is given from now on.
		 */
		os_nap_ns(1000000);
		rds_warn_once("membarrier(2) has been taken away from the RDS engine by a filter of system calls: "
			      "allow it, or put "
			      "up the filter before the first RDS socket");
	}
}

void rds_thread_barrier(void)
{
	rds_fence();
	if (membarrier_call(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
		return;
	/*
	 * The registration can only be lost with the address space. It is repeated here to be safe.
	 */
	membarrier_call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
	if (membarrier_call(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 && membarrier_call(MEMBARRIER_CMD_GLOBAL) != 0)
		visit_processors();
	rds_fence();
}

bool rds_thread_barrier_is_cheap(void)
{
	return !atomic_load_explicit(&refused, memory_order_relaxed);
}

bool rds_thread_records_on(void)
{
	return atomic_load_explicit(&on, memory_order_relaxed);
}

/* ---- records ---- */

static bool record_is_outside(const struct rds_thread *s)
{
	unsigned i;

	for (i = 0; i < RDS_LOCK_KINDS; i++)
		if (atomic_load_explicit(&s->in[i], memory_order_relaxed))
			return false;
	return s->ncalls == 0;
}

/*
 * The thread ends. If it was cancelled in a call, another destructor takes the mark of that call
 * back, perhaps one that runs later: then libc calls this one again. A record that never gets clear
 * is not used again.
 */
static void record_thread_exit(void *arg)
{
	struct rds_thread *s = arg;

	if (!record_is_outside(s)) {
		pthread_setspecific(key, s);
		return;
	}
	rds_thread = &rds_thread_none;
	pthread_mutex_lock(&records_lock);
	s->next_free = free_list;
	free_list = s;
	pthread_mutex_unlock(&records_lock);
}

void rds_thread_records_start(void)
{
	pthread_mutex_lock(&records_lock);
	if (!key_made)
		key_made = pthread_key_create(&key, record_thread_exit) == 0;
	/*
	 * This is cheap in a process of one thread. With more threads the kernel waits for a grace
	 * period, once.
	 */
	if (POSSIBLE && key_made && membarrier_call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0)
		atomic_store(&on, true);
	pthread_mutex_unlock(&records_lock);
}

static void record_clear(struct rds_thread *s)
{
	unsigned i;

	for (i = 0; i < RDS_LOCK_KINDS; i++)
		atomic_store(&s->in[i], NULL);
	for (i = 0; i < RDS_THREAD_CALLS; i++)
		atomic_store(&s->call[i], NULL);
	s->ncalls = 0;
}

void rds_thread_records_forget(void)
{
	unsigned i, n = atomic_load(&used);

	atomic_store(&on, false);
	pthread_mutex_init(&records_lock, NULL);
	free_list = NULL;
	for (i = 0; i < n; i++) {
		struct rds_thread *s = record_at(i);

		record_clear(s);
		if (s == rds_thread)
			continue;
		s->next_free = free_list;
		free_list = s;
	}
}

static struct rds_thread *record_get(void)
{
	struct rds_thread *s;
	unsigned n;

	pthread_mutex_lock(&records_lock);
	s = free_list;
	n = atomic_load(&used);
	if (s) {
		free_list = s->next_free;
	} else if (n < RECORDS) {
		s = record_at(n);
		atomic_store(&used, n + 1);
	}
	pthread_mutex_unlock(&records_lock);
	return s;
}

struct rds_thread *rds_thread_record_get(void)
{
	struct rds_thread *s;

	if (rds_thread != &rds_thread_none || never || !rds_thread_records_on())
		return rds_thread;
	s = record_get();
	/* A record that no destructor returns is lost, with no other harm. */
	if (!s || pthread_setspecific(key, s))
		never = true;
	else
		rds_thread = s;
	return rds_thread;
}

void rds_thread_record_refuse(void)
{
	never = true;
}

bool rds_thread_any_calls(const void *what)
{
	unsigned i, k, n = atomic_load(&used);

	for (i = 0; i < n; i++)
		for (k = 0; k < RDS_THREAD_CALLS; k++)
			if (atomic_load_explicit(&record_at(i)->call[k], memory_order_acquire) == what)
				return true;
	return false;
}
