/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lock.h - the engine's lock: a futex word, and in front of it a *bias* to the one thread that keeps taking it.
 *
 * A 64-byte message cost eleven locked instructions on its way out and five on its way in, and nearly all of its time went there
 * (measured).  Most programs use a socket from one thread, with the helper beside it a hundred times a second.  So a lock that one
 * thread has taken some dozen times in a row is biased to it: from then on that thread marks its record (thread_record.h) instead, by
 * plain stores.  Whoever else wants the lock takes the word, withdraws the bias and waits until the owner is outside.  A bias that
 * was soon withdrawn is given ever more reluctantly.
 *
 * Not recursive.  A signal handler that interrupts a holder finds the lock taken, with or without bias.  Contended, it spins for
 * about the length of the longest short section and then sleeps on a futex, so that a holder which lost the processor is not
 * waited for by burning it.  May be initialised anew in a forked child, whatever its state was.
 */
#ifndef ENGINE_LOCK_H
#define ENGINE_LOCK_H

#include <stddef.h>
#include <stdint.h>

#include "engine/sys/thread_record.h"

typedef struct {
	_Atomic(struct rds_thread *) bias; /* who may enter without the word; NULL nobody */
	_Atomic uint32_t word;		 /* 0 free, 1 held, 2 held and somebody may sleep */
	_Atomic uint32_t bias_exits;	 /* counts owners that left without bias: who withdrew it sleeps on this */
	enum rds_lock_kind kind;
	/* holder of the word */
	uint32_t streak, reluctance;
	struct rds_thread *last; /* who took the word last, `streak` times in a row */
	uint64_t since;	       /* when the bias was given */
} rds_lock_t;

#define RDS_LOCK_INIT(k)                                                                                               \
	{                                                                                                              \
		.kind = (k)                                                                                            \
	}

void rds_lock_slow(rds_lock_t *l);
void rds_unlock_slow(rds_lock_t *l);
void rds_lock_bias_exit(rds_lock_t *l); /* its owner is outside and finds the bias gone: wake who waits for that */
/* For code that may have interrupted the holder, or must not wait. */
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
