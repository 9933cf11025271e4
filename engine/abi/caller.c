/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * caller.c - checks of addresses in the arguments of a call, which may be a borrower's call
 * (rds_caller in foreign_memory.h).  Addresses of the program are checked here.  A borrower has
 * checked its own.
 *
 * Must not know what calls do.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "engine/abi/foreign_memory.h"
#include "engine/sys/uaccess.h"

__thread const struct rds_caller *rds_caller __attribute__((tls_model("initial-exec")));

int rds_caller_readable(uint64_t at, size_t len)
{
	if (rds_caller)
		return rds_caller->fault ? -EFAULT : 0;
	return rds_user_readable((const void *)(uintptr_t)at, len);
}

int rds_caller_writable(uint64_t at, size_t len)
{
	if (rds_caller)
		return rds_caller->fault ? -EFAULT : 0;
	return rds_user_writable((void *)(uintptr_t)at, len);
}

int rds_caller_fetch(void *to, uint64_t from, size_t len)
{
	if (rds_caller)
		return rds_foreign_memory_copy(rds_caller->memory, from, to, len, false);
	memcpy(to, (const void *)(uintptr_t)from, len);
	return 0;
}

/*
 * mlock() of no bytes changes nothing, but the kernel first checks whether this thread may lock
 * memory.  Only the kernel knows that: user 0 or a capability does not count in a user namespace.
 */
static bool thread_may_pin(void)
{
	struct rlimit lim;

	if (os_syscall(SYS_prlimit64, 0, RLIMIT_MEMLOCK, 0, (long)&lim, 0, 0) || lim.rlim_cur)
		return true;
	return os_syscall(SYS_mlock, 0, 0, 0, 0, 0, 0) != -EPERM;
}

/*
 * A thread that asks often within one tick of the coarse clock takes a yes as valid until the tick
 * ends, as with addresses (sys/uaccess.h).  A thread that gives up its own right between two calls
 * of such a loop gets the no one tick later.  If another thread takes the right away, there is no
 * order between that and the calls.
 */
bool rds_caller_may_pin(void)
{
	static __thread struct {
		uint64_t tick;
		unsigned asked;
	} known __attribute__((tls_model("initial-exec")));
	uint64_t tick;

	if (rds_caller)
		return !rds_caller->no_pin;
	tick = os_now_coarse_ns();
	if (known.tick != tick) {
		known.tick = tick;
		known.asked = 0;
	}
	if (known.asked == RDS_UBUDGET)
		return true;
	if (!thread_may_pin())
		return false;
	known.asked++;
	return true;
}
