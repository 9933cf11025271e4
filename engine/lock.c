/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lock.c - the contended side of lock.h: spin a little, then sleep on the word.
 */
#include "engine/lock.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "engine/os.h"

#define SPINS 200

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

void rds_lock_slow(rds_lock_t *l)
{
	uint32_t word;
	int i;

	for (i = 0; i < SPINS; i++) {
		relax();
		word = 0;
		if (atomic_load_explicit(&l->word, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_weak_explicit(&l->word, &word, 1, memory_order_acquire, memory_order_relaxed))
			return;
	}
	/* From here on the word says that somebody may sleep, also when we are the one who gets it. */
	while (atomic_exchange_explicit(&l->word, 2, memory_order_acquire) != 0)
		os_syscall(SYS_futex, (long)&l->word, FUTEX_WAIT_PRIVATE, 2, 0, 0, 0);
}

void rds_unlock_slow(rds_lock_t *l)
{
	os_syscall(SYS_futex, (long)&l->word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}
