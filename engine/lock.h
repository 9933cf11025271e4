/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lock.h - the engine's lock: one word, taken and given back by one locked instruction each, inline.
 *
 * A send takes two of these and a receive one; with libc's mutexes they were a fifth of a 64-byte round trip (measured).
 * Contended, it spins for about the length of the longest short section and then sleeps on a futex, so that a holder
 * which lost the processor is not waited for by burning it.  0 free, 1 held, 2 held and somebody may sleep.
 * Not recursive; may be initialised anew in a forked child, whatever its state was.
 */
#ifndef ENGINE_LOCK_H
#define ENGINE_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct {
	_Atomic uint32_t word;
} rds_lock_t;

#define RDS_LOCK_INIT {0}

void rds_lock_slow(rds_lock_t *l);   /* lock.c */
void rds_unlock_slow(rds_lock_t *l); /* wake one sleeper */

static inline void rds_lock_init(rds_lock_t *l)
{
	atomic_store_explicit(&l->word, 0, memory_order_relaxed);
}

static inline void rds_lock(rds_lock_t *l)
{
	uint32_t free_word = 0;

	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&l->word, &free_word, 1, memory_order_acquire,
								      memory_order_relaxed),
			     0))
		rds_lock_slow(l);
}

/* For code that may have interrupted the holder. */
static inline int rds_trylock(rds_lock_t *l)
{
	uint32_t free_word = 0;

	return atomic_compare_exchange_strong_explicit(&l->word, &free_word, 1, memory_order_acquire,
						       memory_order_relaxed);
}

static inline void rds_unlock(rds_lock_t *l)
{
	if (__builtin_expect(atomic_exchange_explicit(&l->word, 0, memory_order_release) == 2, 0))
		rds_unlock_slow(l);
}

#endif
