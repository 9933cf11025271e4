/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * limits.c - a process that ends leaves messages and sockets to others, which takes descriptors and
 * files. The program may have lowered its soft limits of them, for its own work. So they are raised
 * to what the process may have, and put back before another program could inherit them.
 */
#include <sys/syscall.h>

#include "engine/sys/os.h"

static const int limited[OS_LIMITS] = {RLIMIT_NOFILE, RLIMIT_FSIZE};

static bool limit_get(unsigned i, struct rlimit *l)
{
	return !os_syscall(SYS_prlimit64, 0, limited[i], 0, (long)l, 0, 0);
}

static void limit_set(unsigned i, const struct rlimit *l)
{
	os_syscall(SYS_prlimit64, 0, limited[i], (long)l, 0, 0, 0);
}

void os_limits_raise(struct os_limits *l)
{
	struct rlimit most;
	unsigned i;

	for (i = 0; i < OS_LIMITS; i++) {
		l->raised[i] = limit_get(i, &l->was[i]) && l->was[i].rlim_cur < l->was[i].rlim_max;
		most = (struct rlimit){l->was[i].rlim_max, l->was[i].rlim_max};
		if (l->raised[i])
			limit_set(i, &most);
	}
}

/* A limit that another thread has set meanwhile stays. */
void os_limits_restore(const struct os_limits *l)
{
	struct rlimit now;
	unsigned i;

	for (i = 0; i < OS_LIMITS; i++)
		if (l->raised[i] && limit_get(i, &now) && now.rlim_cur == l->was[i].rlim_max &&
		    now.rlim_max == l->was[i].rlim_max)
			limit_set(i, &l->was[i]);
}
