/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fd_table.c - a descriptor table for one thread alone (os.h: two tables of descriptors).
 *
 * Must not know which thread that is, nor what it does with its numbers.
 */
#include "engine/sys/os.h"

#include <fcntl.h>
#include <sys/syscall.h>

#define UNSHARE 2 /* CLOSE_RANGE_UNSHARE */

/* A sanitizer writes to descriptor 2 by itself, and its output must not be lost. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KEPT 3
#else
#define KEPT 0
#endif

__thread int os_fd_table __attribute__((tls_model("initial-exec")));

/*
 * Closing everything while unsharing makes the kernel create an empty table (before Linux 6.12 it
 * copies the first 64 numbers and closes the copies at once). The standard numbers are filled with
 * a descriptor that can be neither read nor written. Code that always writes to descriptor 2, such
 * as an allocator that has found damage, must not hit a descriptor of the engine.
 */
int os_fd_table_unshare(void)
{
	int fd, ret = (int)os_syscall(SYS_close_range, KEPT, (long)~0u, UNSHARE, 0, 0, 0);

	if (ret < 0)
		return ret;
	os_fd_table = 1;
	fd = os_epoll_create();
	while (fd >= 0 && fd < 2)
		fd = os_fcntl(fd, F_DUPFD, 0);
	if (fd > 2)
		os_close(fd);
	return 0;
}

/* Higher numbers are not copied; lower ones are closed at once. */
int os_fd_table_unshare_keep(int only)
{
	int ret = (int)os_syscall(SYS_close_range, only + 1, (long)~0u, UNSHARE, 0, 0, 0);

	if (ret < 0)
		return ret;
	os_fd_table = 1;
	return only ? (int)os_syscall(SYS_close_range, 0, only - 1, 0, 0, 0, 0) : 0;
}

int os_fd_dup_of_main(int n)
{
	long fd, pid = os_syscall(SYS_pidfd_open, os_getpid(), 0, 0, 0, 0, 0);

	if (pid < 0)
		return (int)pid;
	fd = os_syscall(SYS_pidfd_getfd, pid, n, 0, 0, 0, 0);
	os_close((int)pid);
	return (int)fd;
}
