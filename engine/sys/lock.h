/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lock.h - the engine's lock: a futex word, and a *bias* to the one thread that takes it
 * repeatedly.
 *
 * Without the bias a 64-byte message costs eleven locked instructions on its way out and five on
 * its way in, and nearly all of its time goes there (measured). Most programs use a socket from one
 * thread, and the helper uses it a hundred times a second. So a lock is biased to a thread that
 * takes it some dozen times in a row. From then on this thread, the bias owner, marks its thread
 * record (thread_record.h) by plain stores instead. Another thread that wants the lock takes the
 * word, withdraws the bias and waits until the bias owner is outside the lock. After a bias that
 * lasted only a short time, the next bias needs a longer streak.
 *
 * The lock is not recursive. A signal handler that interrupts the holder finds the lock taken, with
 * or without bias. A thread that finds the lock taken spins for about the length of the longest
 * short section and then sleeps on a futex. So it does not burn the processor while the holder is
 * not running. A forked child may initialise a lock anew, whatever its state was.
 */
#ifndef ENGINE_SYS_LOCK_H
#define ENGINE_SYS_LOCK_H

#include <stddef.h>
#include <stdint.h>

#include "engine/sys/thread_record.h"

typedef struct {
	/* the thread that may enter without the word; NULL: none */
	_Atomic(struct rds_thread *) bias;
	_Atomic uint32_t word; /* 0 free, 1 held, 2 held and another thread may sleep */
	/*
	 * counts exits of bias owners that found the bias withdrawn; the withdrawing thread sleeps
	 * on it
	 */
	_Atomic uint32_t bias_exits;
	uint8_t kind; /* enum rds_lock_kind */
	/* written by the holder of the word */
	uint8_t reluctance;
	uint32_t streak;
	struct rds_thread *last; /* the thread that took the word last, `streak` times in a row */
	uint64_t since;		 /* time at which the bias was given */
} rds_lock_t;

#define RDS_LOCK_INIT(k)                                                                                               \
	{                                                                                                              \
		.kind = (k)                                                                                            \
	}

void rds_lock_slow(rds_lock_t *l);
void rds_unlock_slow(rds_lock_t *l);
/* The bias owner has left the lock and finds the bias withdrawn: wakes the withdrawing thread. */
void rds_lock_bias_exit(rds_lock_t *l);
/* For code that may have interrupted the holder, or that must not wait. */
bool rds_trylock(rds_lock_t *l);

static inline void rds_lock_init(rds_lock_t *l, enum rds_lock_kind kind)
{
	*l = (rds_lock_t)RDS_LOCK_INIT(kind);
}

static inline void rds_lock(rds_lock_t *l)
{
	struct rds_thread *me = rds_thread;

	if (__builtin_expect(atomic_load_explicit(&l->bias, memory_order_relaxed) == me, 1) &&
	    __builtin_expect(!atomic_load_explicit(&me->in[l->kind], memory_order_relaxed), 1)) {
		atomic_store_explicit(&me->in[l->kind], l, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
		if (__builtin_expect(atomic_load_explicit(&l->bias, memory_order_acquire) == me, 1))
			return;
		atomic_store_explicit(&me->in[l->kind], NULL, memory_order_release);
		rds_lock_bias_exit(l);
	}
	rds_lock_slow(l);
}

static inline void rds_unlock(rds_lock_t *l)
{
	struct rds_thread *me = rds_thread;

	if (__builtin_expect(atomic_load_explicit(&me->in[l->kind], memory_order_relaxed) != l, 0)) {
		rds_unlock_slow(l);
		return;
	}
	atomic_store_explicit(&me->in[l->kind], NULL, memory_order_release);
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load_explicit(&l->bias, memory_order_relaxed) != me, 0))
		rds_lock_bias_exit(l);
}

#endif
