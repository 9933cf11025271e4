/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fence.h - a full barrier between what this thread stores before it and what it loads after it.
 *
 * Both sides publish, then fence, then look at what the other has published: at least one of them sees it.  Everything on both sides
 * of it must be atomic by itself; data is never handed over by a fence alone.  ThreadSanitizer takes no fences (gcc refuses to
 * compile them with it), but knows read-modify-write operations for the full barriers that they are on x86: one on a
 * word of the thread's own, so that it invents no order between threads that would hide a race.
 */
#ifndef ENGINE_FENCE_H
#define ENGINE_FENCE_H

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
