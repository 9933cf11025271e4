/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * thread_record.h - what a thread shows to the others instead of telling them by locked instructions: the locks it is inside by way of
 * their bias (lock.h) and the sockets that it is in a call on (socket/socket.c).
 *
 * A thread writes its own record with plain stores.  Whoever wants to know first takes away what let the thread in (the lock's
 * bias, the socket's last reference), then calls rds_thread_barrier(), which makes every running thread of the process pass a full
 * memory barrier, then reads the records.  A thread that looked before the barrier and found itself let in had stored its mark
 * before that, so the mark is seen; one that looks later finds itself shut out and takes the mark back.
 *
 * Records are never given back, so a stale pointer to one can always be read; they are used again by later threads.
 * Must not know what locks protect or what sockets are.
 */
#ifndef ENGINE_SELF_H
#define ENGINE_SELF_H

#include <stdatomic.h>
#include <stdbool.h>

/* A thread is inside at most one lock of a kind at a time; more are possible, but only one without its word. */
enum rds_lock_kind {
	RDS_LOCK_CONTROL,
	RDS_LOCK_SOCK_TX,
	RDS_LOCK_CONN_TX,
	RDS_LOCK_RX,
	RDS_LOCK_WAIT,
	RDS_LOCK_MEMORY, /* of a transport: leaves, below all others */
	RDS_LOCK_PLAIN,	 /* never biased: may be given back by another thread than took it */
	RDS_LOCK_KINDS
};

#define RDS_THREAD_CALLS 6 /* nested calls; more are counted on the socket */

struct rds_thread {
	_Atomic(void *) in[RDS_LOCK_KINDS];
	_Atomic(void *) call[RDS_THREAD_CALLS];
	unsigned
		ncalls; /* of this thread alone; raised before a slot is filled, lowered after it is cleared (signals) */
	struct rds_thread *next_free;
} __attribute__((aligned(128)));

/* Of a thread that has no record: it never matches a bias and has no room for calls. */
extern struct rds_thread rds_thread_none;
extern __thread struct rds_thread *rds_thread __attribute__((tls_model("initial-exec")));

/* This thread's record, made on the first call; &rds_thread_none if there is none left, or the process has no barrier. */
struct rds_thread *rds_thread_record_get(void);
/* This thread shall have none: the helper, which is everywhere a little and would only take biases away from others. */
void rds_thread_record_refuse(void);
/* Is that thread still in a call on what? After rds_thread_barrier(). */
bool rds_thread_any_calls(const void *what);

/* From now on threads get records.  Without membarrier(2), or under ThreadSanitizer, they never do. */
void rds_thread_records_start(void);
void rds_thread_records_forget(void); /* forked child: the other threads are gone, this one is outside of everything */
bool rds_thread_records_on(void);
bool rds_thread_barrier_is_cheap(
	void); /* false: the barrier has become expensive, nothing should be made to need it any more */
void rds_thread_barrier(void);

#endif
