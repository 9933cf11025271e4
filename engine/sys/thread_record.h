/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * thread_record.h - one record per thread, written by plain stores instead of locked instructions.
 * It shows the locks that the thread entered by their bias (lock.h) and the sockets on which it is
 * in a call (socket/refcount.c).
 *
 * Only the thread itself writes its record. Another thread that wants to read it first removes what
 * let the owner of the record in (the lock's bias, the socket's last reference). It then calls
 * rds_thread_barrier(), which makes every running thread of the process execute a full memory
 * barrier, and then reads the records. If a thread checked before the barrier and was let in, it
 * had already stored its mark, so the mark is seen. If a thread checks after the barrier, it finds
 * that it is not let in and removes its mark.
 *
 * Records are never freed, so a stale pointer to one can always be read. Later threads use them
 * again. This file must not know what locks protect or what sockets are.
 */
#ifndef ENGINE_SYS_THREAD_RECORD_H
#define ENGINE_SYS_THREAD_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>

/*
 * A thread is inside at most one lock of a kind at a time. It may hold more than one, but it can
 * have entered only one of them by its bias.
 */
enum rds_lock_kind {
	RDS_LOCK_CONTROL,
	RDS_LOCK_SOCK_TX,
	RDS_LOCK_CONN_TX,
	RDS_LOCK_RX,
	RDS_LOCK_WAIT,
	RDS_LOCK_MEMORY, /* locks of a transport: leaf locks, below all others */
	RDS_LOCK_PLAIN,	 /* never biased: another thread may release it than the one that took it */
	RDS_LOCK_KINDS
};

#define RDS_THREAD_CALLS 6 /* depth of nested calls; further ones are counted on the socket */

struct rds_thread {
	_Atomic(void *) in[RDS_LOCK_KINDS];
	_Atomic(void *) call[RDS_THREAD_CALLS];
	/*
	 * Used by this thread alone. Raised before a slot is filled, lowered after it is cleared,
	 * because of signals.
	 */
	unsigned ncalls;
	struct rds_thread *next_free;
} __attribute__((aligned(128)));

/*
 * The record of a thread that has none of its own. It never matches a bias and has no room for
 * calls.
 */
extern struct rds_thread rds_thread_none;
extern __thread struct rds_thread *rds_thread __attribute__((tls_model("initial-exec")));

/*
 * This thread's record, which the first call makes. &rds_thread_none if no record is left, or if
 * the process has no barrier.
 */
struct rds_thread *rds_thread_record_get(void);
/*
 * This thread gets no record. For the helper: it uses every lock a little and would only take
 * biases away from other threads.
 */
void rds_thread_record_refuse(void);
/* Is any thread still in a call on what? To be called after rds_thread_barrier(). */
bool rds_thread_any_calls(const void *what);

/*
 * From now on threads get records. Without membarrier(2), or under ThreadSanitizer, they never do.
 */
void rds_thread_records_start(void);
/*
 * In a forked child: the other threads do not exist, and this thread is outside all locks and
 * calls.
 */
void rds_thread_records_forget(void);
bool rds_thread_records_on(void);
/* False: the barrier has become expensive, so callers must not create new needs for it. */
bool rds_thread_barrier_is_cheap(void);
void rds_thread_barrier(void);

#endif
