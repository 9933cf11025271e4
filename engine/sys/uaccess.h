/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * uaccess.h - is this pointer of the program usable? RDS promises EFAULT and not a crash, and
 * the library may own no signal handler. So address ranges are probed by system calls that touch
 * them as the kernel would: the probes fault pages in and change nothing but memory that is about
 * to be filled.
 *
 * A thread that probes a lot within one tick of the coarse clock (1 to 10 ms, by kernel) remembers
 * what it has probed until the tick is over. So a program that sends from the same buffers in a
 * loop pays next to nothing, and a thread that makes a call now and then always gets an exact
 * answer. The caller's own stack, from the stack pointer upwards, is always known to be good.
 *
 * Not covered is memory that another thread unmaps between the probe and the use, and memory that a
 * busy thread unmaps and passes again within the same tick. Both are a crash, as for memcpy().
 *
 * Probe what will be touched and no more. For a receive buffer of 1 MiB and a message of 64 bytes,
 * probe 64 bytes: only these have to be mapped for the kernel's recvmsg to succeed.
 */
#ifndef ENGINE_SYS_UACCESS_H
#define ENGINE_SYS_UACCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "engine/sys/os.h"

#define RDS_UPAGE_SHIFT 12 /* probing in smaller steps than a large page is only slower */
#define RDS_UPAGES 16	   /* direct mapped by page number */
#define RDS_URANGES 8
#define RDS_UBUDGET 16 /* pages probed in one tick (2 to 5 us) before remembered results are used */

/*
 * RDS_UFILL asks for the same as RDS_UWRITE, for memory that the caller then fills completely. So
 * the probe may leave any bytes there.
 */
enum { RDS_UREAD, RDS_UWRITE, RDS_UFILL };

/*
 * What one thread has probed. Apart from the stack bounds, an entry is valid only if its stamp is
 * the current one.
 */
struct rds_ucache {
	uintptr_t stack_lo, stack_hi; /* bounds of the thread's own stack; 0, 0: not known */
	bool stack_asked;
	unsigned next_range;
	unsigned spent; /* of the budget, in the tick `tick` */
	uint64_t tick;
	/* stamp of the tick whose budget is spent: entries of that tick may be used */
	uint64_t hot;
	struct {
		uintptr_t page; /* address >> RDS_UPAGE_SHIFT */
		uint64_t stamp;
	} page[2][RDS_UPAGES];
	struct {
		uintptr_t first, last; /* pages, inclusive */
		uint64_t stamp;
	} range[2][RDS_URANGES];
};

extern __thread struct rds_ucache rds_ucache __attribute__((tls_model("initial-exec")));
extern _Atomic uint64_t rds_user_generation;

int rds_user_probe(const void *p, size_t len, int how, uint64_t stamp);

/*
 * Changes with the coarse clock and with rds_user_forget(). A call that makes several checks may
 * take one stamp for all of them, but must not keep it across a sleep.
 */
static inline uint64_t rds_user_stamp(void)
{
	return os_now_coarse_ns() + atomic_load_explicit(&rds_user_generation, memory_order_relaxed);
}

/* Mappings are known to have changed: every thread probes again. */
static inline void rds_user_forget(void)
{
	atomic_fetch_add_explicit(&rds_user_generation, 1, memory_order_relaxed);
}

/*
 * All memory between this frame and the top of the thread's stack is mapped. On a stack that is not
 * the thread's own (signal stack, coroutine) only the rest of this frame's page is known.
 */
static inline bool rds_user_on_stack(uintptr_t p, size_t len)
{
	uintptr_t sp = (uintptr_t)__builtin_frame_address(0);
	uintptr_t top = (sp | (((uintptr_t)1 << RDS_UPAGE_SHIFT) - 1)) + 1;

	if (sp >= rds_ucache.stack_lo && sp < rds_ucache.stack_hi)
		top = rds_ucache.stack_hi;
	return p >= sp && p < top && len <= top - p;
}

static inline bool rds_user_page_known(uintptr_t p, size_t len, int how, uint64_t stamp)
{
	uintptr_t page = p >> RDS_UPAGE_SHIFT;
	unsigned slot = (unsigned)(page % RDS_UPAGES);

	return rds_ucache.hot == stamp && (p + len - 1) >> RDS_UPAGE_SHIFT == page &&
	       len <= (size_t)1 << RDS_UPAGE_SHIFT && rds_ucache.page[how][slot].page == page &&
	       rds_ucache.page[how][slot].stamp == stamp;
}

/*
 * 0 or -EFAULT. len 0 is always good. A range that wraps around is -EFAULT. stamp: rds_user_stamp()
 * of this call.
 */
static inline int rds_user_readable_at(const void *p, size_t len, uint64_t stamp)
{
	if (!len || rds_user_on_stack((uintptr_t)p, len) || rds_user_page_known((uintptr_t)p, len, RDS_UREAD, stamp))
		return 0;
	return rds_user_probe(p, len, RDS_UREAD, stamp);
}
static inline int rds_user_writable_at(void *p, size_t len, uint64_t stamp)
{
	if (!len || rds_user_on_stack((uintptr_t)p, len) || rds_user_page_known((uintptr_t)p, len, RDS_UWRITE, stamp))
		return 0;
	return rds_user_probe(p, len, RDS_UWRITE, stamp);
}

/*
 * For memory that the caller then fills completely, if the result is 0: it is cheaper to probe.
 * Memory that was known to be writable stays so.
 */
static inline int rds_user_fillable(void *p, size_t len)
{
	uint64_t stamp;

	if (!len || rds_user_on_stack((uintptr_t)p, len))
		return 0;
	stamp = rds_user_stamp();
	if (rds_user_page_known((uintptr_t)p, len, RDS_UWRITE, stamp))
		return 0;
	return rds_user_probe(p, len, RDS_UFILL, stamp);
}

/* The same, without a stamp: memory on the stack does not need a read of the clock. */
static inline int rds_user_readable(const void *p, size_t len)
{
	if (!len || rds_user_on_stack((uintptr_t)p, len))
		return 0;
	return rds_user_readable_at(p, len, rds_user_stamp());
}
static inline int rds_user_writable(void *p, size_t len)
{
	if (!len || rds_user_on_stack((uintptr_t)p, len))
		return 0;
	return rds_user_writable_at(p, len, rds_user_stamp());
}

/* Checks every element of a vector (the vector itself must already have been checked). */
int rds_user_iov_readable(const struct iovec *iov, size_t n);

#endif
