/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * open_fds.c - the descriptor table of this thread as the kernel has it: which numbers are open,
 * how many are left.
 *
 * The table may have any size, and numbers above a limit that was lowered later.  So the kernel
 * lists it.  Probing number by number is for where it cannot.
 */
#include "engine/sys/os.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define PROBE_MOST 65536 /* 10 ms; containers have limits of a billion */

bool os_fds_available(int fd, unsigned want)
{
	int spare[32];
	unsigned n = 0, got;

	while (n < want && n < 32 && (spare[n] = os_fcntl(fd, F_DUPFD_CLOEXEC, 0)) >= 0)
		n++;
	for (got = n; n--;)
		os_close(spare[n]);
	return got == want;
}

int os_fds_probe(int (*fn)(int fd, void *arg), void *arg)
{
	struct rlimit rl = {.rlim_cur = 0};
	int fd, ret = 0;

	os_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)&rl, 0, 0);
	for (fd = 0; (rlim_t)fd < rl.rlim_cur && fd < PROBE_MOST && !ret; fd++)
		if (os_fcntl(fd, F_GETFD, 0) >= 0)
			ret = fn(fd, arg);
	return ret;
}

int os_fds_each(int (*fn)(int fd, void *arg), void *arg)
{
	_Alignas(struct dirent64) char list[2048];
	int dir = os_open("/proc/thread-self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), ret = 0;
	const struct dirent64 *d;
	long n, at;

	if (dir < 0)
		return dir;
	while (!ret && (n = os_syscall(SYS_getdents64, dir, (long)list, sizeof(list), 0, 0, 0)) != 0) {
		if (n < 0)
			ret = (int)n;
		for (at = 0; at < n && !ret; at += d->d_reclen) {
			d = (const struct dirent64 *)(const void *)(list + at);
			if (d->d_name[0] != '.' && atoi(d->d_name) != dir)
				ret = fn(atoi(d->d_name), arg);
		}
	}
	os_close(dir);
	return ret;
}
