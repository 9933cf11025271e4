/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * uaccess.c - probes the program's pointers by system calls.
 *
 * Reading: rt_sigprocmask() with an impossible `how` copies eight bytes from the address before it
 * refuses. It is the cheapest call that does so (0.1 us a page, a fifth of MADV_POPULATE_READ). It
 * works on every kernel and mapping, because it is the same copy_from_user() that a real sendmsg()
 * would make.
 *
 * Writing: FUTEX_WAKE_OP with "add 0" is an atomic read-modify-write that changes nothing (0.3 us).
 * For more than a few pages at once MADV_POPULATE_WRITE is cheaper. Its success is taken as the
 * answer. After its failure (old kernel, odd mapping, or really bad memory) each page is probed.
 *
 * Filling: memory that will be overwritten anyway may be written to. So rt_sigprocmask() stores the
 * signal mask there, which costs as little as the reading probe (a third of the futex call).
 *
 * Invariant: a range enters the cache only when each of its pages was probed under the stamp that
 * is stored with it. A thread uses the cache only after it has spent its budget of probes in this
 * tick. This file must not know what the pointers are for.
 */
#include "engine/sys/uaccess.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "engine/sys/os.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define UPAGE ((uintptr_t)1 << RDS_UPAGE_SHIFT)
#define POPULATE_FROM 3 /* in pages; for fewer, one futex call for each is cheaper */

/*
 * The main thread's stack has no recorded bounds. But no mapping is ever placed within the kernel's
 * guard gap (1 MiB) below a stack that grows, so a thread whose stack pointer is this close to the
 * top of that stack runs on it.
 */
#define MAIN_STACK_SPAN ((uintptr_t)1 << 20)

/*
 * glibc's loader exports where the initial stack began. Weak: elsewhere this shortcut is not used.
 */
extern void *__libc_stack_end __attribute__((weak));

__thread struct rds_ucache rds_ucache;
_Atomic uint64_t rds_user_generation;

/* ---- the thread's own stack ---- */

static void stack_find_main(void)
{
	uintptr_t top = &__libc_stack_end ? (uintptr_t)__libc_stack_end : 0;

	if (top > MAIN_STACK_SPAN) {
		rds_ucache.stack_lo = top - MAIN_STACK_SPAN;
		rds_ucache.stack_hi = top;
	}
}

static void stack_find_thread(void)
{
	pthread_attr_t attr;
	void *lo;
	size_t size;

	if (pthread_getattr_np(pthread_self(), &attr))
		return;
	if (!pthread_attr_getstack(&attr, &lo, &size)) {
		rds_ucache.stack_lo = (uintptr_t)lo;
		rds_ucache.stack_hi = (uintptr_t)lo + size;
	}
	pthread_attr_destroy(&attr);
}

static void stack_find_bounds(void)
{
	int saved = errno;

	rds_ucache.stack_asked = true;
	if (os_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0) == os_getpid())
		stack_find_main();
	else
		stack_find_thread();
	errno = saved;
}

/* ---- one page ---- */

/* at: start of the page */
static bool page_readable(uintptr_t at)
{
	if (!at)
		at += OS_KERNEL_SIGSET; /* the call takes NULL for "no mask" and reads nothing */
	return os_syscall(SYS_rt_sigprocmask, -1, (long)at, 0, OS_KERNEL_SIGSET, 0, 0) != -EFAULT;
}

static bool page_writable(uintptr_t at)
{
	static uint32_t nobody_waits_here;
	long ret;

	ret = os_syscall(SYS_futex, (long)&nobody_waits_here, FUTEX_WAKE_OP_PRIVATE, 0, 0, (long)at,
			 FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 1));
	if (ret >= 0)
		return true;
	if (ret == -EFAULT)
		return false;
	/*
	 * The call itself is refused (seccomp, an emulated kernel). MADV_POPULATE_WRITE decides
	 * then; if that says nothing either, the page is taken for good.
	 */
	ret = os_syscall(SYS_madvise, (long)at, (long)UPAGE, MADV_POPULATE_WRITE, 0, 0, 0);
	return ret != -EFAULT && ret != -ENOMEM;
}

/*
 * Probes the part of [at, end) that lies in that page. Eight bytes of it, if it has so many, are
 * overwritten.
 */
static bool page_fillable(uintptr_t page, uintptr_t at, uintptr_t end)
{
	uintptr_t from = page << RDS_UPAGE_SHIFT;

	if (at < from)
		at = from;
	/* 0: the call would store nothing */
	if (end - at < OS_KERNEL_SIGSET || at + OS_KERNEL_SIGSET > from + UPAGE || !at)
		return page_writable(from);
	return os_syscall(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)at, OS_KERNEL_SIGSET, 0, 0) != -EFAULT;
}

static bool pages_are_usable(uintptr_t first, uintptr_t last, int how)
{
	if (how == RDS_UWRITE && last - first + 1 >= POPULATE_FROM &&
	    !os_syscall(SYS_madvise, (long)(first << RDS_UPAGE_SHIFT), (long)((last - first + 1) << RDS_UPAGE_SHIFT),
			MADV_POPULATE_WRITE, 0, 0, 0))
		return true;
	for (uintptr_t page = first; page <= last; page++)
		if (how == RDS_UWRITE ? !page_writable(page << RDS_UPAGE_SHIFT)
				      : !page_readable(page << RDS_UPAGE_SHIFT))
			return false;
	return true;
}

/* ---- the cache ---- */

static bool range_known(uintptr_t first, uintptr_t last, int how, uint64_t stamp)
{
	for (unsigned i = 0; i < RDS_URANGES; i++)
		if (rds_ucache.range[how][i].stamp == stamp && rds_ucache.range[how][i].first <= first &&
		    rds_ucache.range[how][i].last >= last)
			return true;
	return false;
}

/* Adjacent buffers become one range: a ring of many buffers needs no more room than one buffer. */
static void remember_range(uintptr_t first, uintptr_t last, int how, uint64_t stamp)
{
	unsigned i;

	for (i = 0; i < RDS_URANGES; i++)
		if (rds_ucache.range[how][i].stamp == stamp && rds_ucache.range[how][i].first <= last + 1 &&
		    rds_ucache.range[how][i].last + 1 >= first)
			break;
	if (i < RDS_URANGES) {
		if (rds_ucache.range[how][i].first < first)
			first = rds_ucache.range[how][i].first;
		if (rds_ucache.range[how][i].last > last)
			last = rds_ucache.range[how][i].last;
	} else {
		i = rds_ucache.next_range++ % RDS_URANGES;
	}
	rds_ucache.range[how][i].first = first;
	rds_ucache.range[how][i].last = last;
	rds_ucache.range[how][i].stamp = stamp;
}

static void remember_page(uintptr_t page, int how, uint64_t stamp)
{
	rds_ucache.page[how][page % RDS_UPAGES].page = page;
	rds_ucache.page[how][page % RDS_UPAGES].stamp = stamp;
}

static void spend_budget(uintptr_t pages, uint64_t stamp)
{
	if (rds_ucache.tick != stamp) {
		rds_ucache.tick = stamp;
		rds_ucache.spent = 0;
	}
	rds_ucache.spent += pages < RDS_UBUDGET ? (unsigned)pages : RDS_UBUDGET;
	if (rds_ucache.spent >= RDS_UBUDGET)
		rds_ucache.hot = stamp;
}

static bool range_fillable(uintptr_t at, uintptr_t end, uintptr_t first, uintptr_t last)
{
	if (last - first + 1 >= POPULATE_FROM)
		return pages_are_usable(first, last, RDS_UWRITE);
	for (uintptr_t page = first; page <= last; page++)
		if (!page_fillable(page, at, end))
			return false;
	return true;
}

static void remember_probed(uintptr_t first, uintptr_t last, int how, uint64_t stamp)
{
	spend_budget(last - first + 1, stamp);
	remember_range(first, last, how, stamp);
	if (how == RDS_UWRITE) /* writable pages are readable as well */
		remember_range(first, last, RDS_UREAD, stamp);
}

int rds_user_probe(const void *p, size_t len, int how, uint64_t stamp)
{
	uintptr_t at = (uintptr_t)p, first = at >> RDS_UPAGE_SHIFT, last = (at + len - 1) >> RDS_UPAGE_SHIFT;
	int known = how == RDS_UFILL ? RDS_UWRITE : how;

	if (!len)
		return 0;
	if (at + (len - 1) < at)
		return -EFAULT;
	if (!rds_ucache.stack_asked) {
		stack_find_bounds();
		if (rds_user_on_stack(at, len))
			return 0;
	}
	if (rds_ucache.hot != stamp || !range_known(first, last, known, stamp)) {
		if (how == RDS_UFILL ? !range_fillable(at, at + len, first, last) : !pages_are_usable(first, last, how))
			return -EFAULT;
		remember_probed(first, last, known, stamp);
	}
	if (first == last)
		remember_page(first, known, stamp);
	return 0;
}

/* ---- vectors ---- */

int rds_user_iov_readable(const struct iovec *iov, size_t n)
{
	uint64_t stamp = n ? rds_user_stamp() : 0;

	for (size_t i = 0; i < n; i++)
		if (rds_user_readable_at(iov[i].iov_base, iov[i].iov_len, stamp))
			return -EFAULT;
	return 0;
}
