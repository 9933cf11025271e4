/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fence.h - a full barrier between the earlier stores and the later loads of this thread.
 *
 * Each of two threads publishes its own value, calls the fence, and then reads the value of the
 * other: at least one of them sees the other's value. All accesses before and after the fence must
 * be atomic by themselves. A fence alone never hands over data.
 *
 * ThreadSanitizer does not support fences (gcc refuses to compile them with it). It does know
 * read-modify-write operations, which are full barriers on x86. So the fence is then such an
 * operation on a thread-local word. The word is thread-local so that the operation creates no order
 * between threads that would hide a race.
 */
#ifndef ENGINE_SYS_FENCE_H
#define ENGINE_SYS_FENCE_H

#include <stdatomic.h>

#if defined(__SANITIZE_THREAD__)
#define RDS_FENCE_BY_RMW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RDS_FENCE_BY_RMW 1
#endif
#endif

static inline void rds_fence(void)
{
#ifdef RDS_FENCE_BY_RMW
	static __thread _Atomic int here;

	atomic_fetch_add(&here, 1);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif
