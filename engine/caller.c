/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * caller.c - addresses in what a call was given, when the call may be another process's (rds_caller in memory.h): of the program's own they are tried
 * here, of another one's they have been.
 * Must not know what calls do.
 */
#include <errno.h>
#include <string.h>

#include "engine/memory.h"
#include "engine/uaccess.h"

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
		return rds_memory_copy(rds_caller->memory, from, to, len, false);
	memcpy(to, (const void *)(uintptr_t)from, len);
	return 0;
}
