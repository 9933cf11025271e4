/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lock.c - the slow path of lock.h: the word, and giving and withdrawing the bias.
 */
#include "engine/sys/lock.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "engine/sys/os.h"

#define SPINS 200
#define STREAK 64u		/* so many times in a row, then the lock is biased */
#define RELUCTANCE_MAX 12	/* ... times two to the power of this, at most */
#define WORTH_NS (1000 * 1000u) /* a bias that lasted this long was worth it */

static inline void lock_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

static void lock_futex(_Atomic uint32_t *word, int op, uint32_t val)
{
	os_syscall(SYS_futex, (long)word, op, val, 0, 0, 0);
}

/* ---- the word ---- */

static bool lock_try_word(rds_lock_t *l)
{
	uint32_t word = 0;

	return atomic_load_explicit(&l->word, memory_order_relaxed) == 0 &&
	       atomic_compare_exchange_strong_explicit(&l->word, &word, 1, memory_order_acquire, memory_order_relaxed);
}

static void lock_take_word(rds_lock_t *l)
{
	int i;

	for (i = 0; i < SPINS; i++) {
		if (lock_try_word(l))
			return;
		lock_relax();
	}
	/*
	 * From here on the word says that another thread may sleep, also while this thread holds
	 * the lock.
	 */
	while (atomic_exchange_explicit(&l->word, 2, memory_order_acquire) != 0)
		lock_futex(&l->word, FUTEX_WAIT_PRIVATE, 2);
}

static void lock_give_word(rds_lock_t *l)
{
	if (atomic_exchange_explicit(&l->word, 0, memory_order_release) == 2)
		lock_futex(&l->word, FUTEX_WAKE_PRIVATE, 1);
}

/* ---- the bias; word held ---- */

static bool owner_is_inside(const rds_lock_t *l, const struct rds_thread *owner)
{
	return atomic_load_explicit(&owner->in[l->kind], memory_order_acquire) == l;
}

static void lock_wait_owner(rds_lock_t *l, const struct rds_thread *owner)
{
	uint32_t bias_exits;
	int i;

	for (i = 0; i < SPINS; i++) {
		if (!owner_is_inside(l, owner))
			return;
		lock_relax();
	}
	for (;;) {
		bias_exits = atomic_load_explicit(&l->bias_exits, memory_order_acquire);
		if (!owner_is_inside(l, owner))
			return;
		lock_futex(&l->bias_exits, FUTEX_WAIT_PRIVATE, bias_exits);
	}
}

void rds_lock_bias_exit(rds_lock_t *l)
{
	atomic_fetch_add_explicit(&l->bias_exits, 1, memory_order_release);
	lock_futex(&l->bias_exits, FUTEX_WAKE_PRIVATE, 1);
}

/*
 * This thread's own bias needs no barrier. (If this thread is inside by its bias, then this is a
 * signal handler that interrupted the holder.)
 */
static void lock_withdraw_bias(rds_lock_t *l, struct rds_thread *owner)
{
	atomic_store_explicit(&l->bias, NULL, memory_order_relaxed);
	if (owner != rds_thread)
		rds_thread_barrier();
	lock_wait_owner(l, owner);
	if (owner == rds_thread)
		return;
	if (os_now_ns() - l->since > WORTH_NS)
		l->reluctance = 0;
	else if (l->reluctance < RELUCTANCE_MAX)
		l->reluctance++;
}

static void lock_count_streak(rds_lock_t *l, struct rds_thread *me)
{
	if (l->last != me) {
		l->last = me;
		l->streak = 0;
	}
	l->streak++;
}

void rds_lock_slow(rds_lock_t *l)
{
	struct rds_thread *owner;

	lock_take_word(l);
	owner = atomic_load_explicit(&l->bias, memory_order_relaxed);
	if (owner)
		lock_withdraw_bias(l, owner);
	lock_count_streak(l, rds_thread_record_get());
}

/*
 * The bias is given here and not on taking the lock: otherwise a signal handler would find the bias
 * and enter the lock beside the thread that it interrupted.
 */
void rds_unlock_slow(rds_lock_t *l)
{
	if (l->streak >= STREAK << l->reluctance && l->last != &rds_thread_none && l->kind != RDS_LOCK_PLAIN &&
	    rds_thread_barrier_is_cheap()) {
		l->streak = 0;
		l->since = os_now_ns();
		atomic_store_explicit(&l->bias, l->last, memory_order_relaxed);
	}
	lock_give_word(l);
}

bool rds_trylock(rds_lock_t *l)
{
	struct rds_thread *owner;

	if (!lock_try_word(l))
		return false;
	owner = atomic_load_explicit(&l->bias, memory_order_relaxed);
	if (owner) {
		atomic_store_explicit(&l->bias, NULL, memory_order_relaxed);
		if (owner != rds_thread)
			rds_thread_barrier();
		if (owner_is_inside(l, owner)) {
			atomic_store_explicit(&l->bias, owner, memory_order_relaxed);
			lock_give_word(l);
			return false;
		}
	}
	/* Makes no record: this may be a signal handler's _exit(). */
	lock_count_streak(l, rds_thread);
	return true;
}
