/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * caller.c - addresses in what a call was given, when the call may be another process's (rds_caller in foreign_memory.h): of the program's own they are tried
 * here, of another one's they have been.
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
 * Nothing is changed by locking no bytes; but the kernel looks first whether this thread might, which it alone knows: not every user of the number
 * 0, or with the capability, is one that counts (a user namespace's is none).
 */
static bool thread_may_pin(void)
{
	struct rlimit lim;

	if (os_syscall(SYS_prlimit64, 0, RLIMIT_MEMLOCK, 0, (long)&lim, 0, 0) || lim.rlim_cur)
		return true;
	return os_syscall(SYS_mlock, 0, 0, 0, 0, 0, 0) != -EPERM;
}

/*
 * A thread that asks much within one tick of the coarse clock believes a yes until that is over, as with addresses (sys/uaccess.h): one that takes away
 * its own right between two calls of such a loop is told a tick later, and anybody else who does has no order with its calls.
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
