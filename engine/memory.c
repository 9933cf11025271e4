/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * memory.c - another process's memory, by a descriptor of its /proc/self/mem (memory.h).
 *
 * It comes to the helper, and whoever carries an operation out needs it: so the helper gives the program's table a number of its own (post.h),
 * before the other process is told that its memory is known; a program's thread that meets it sooner than the packet reads the post there and
 * then.  Whoever lets go of it last closes its own table's number, and leaves the other one, and the structure, to the other side.
 *
 * Must not know what the memory is for, nor whether it may be written: the kernel writes through this even where the program itself could not
 * (private mappings that are read-only), so the other process tries what it passes.
 */
#include "engine/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "engine/post.h"
#include "engine/uaccess.h"

#define PROC_MAGIC 0x9fa0
#define TAKES 1000 /* somebody else is reading the post: a few packets, no sleep */

struct rds_memory {
	struct os_fd fd;
	_Atomic unsigned refs;
	struct rds_chore burial;
};

__thread const struct rds_caller *rds_caller __attribute__((tls_model("initial-exec")));

/* ---- life ---- */

static void bury(struct rds_chore *c)
{
	struct rds_memory *m = (struct rds_memory *)(void *)((char *)c - offsetof(struct rds_memory, burial));

	os_close_slot(&m->fd.n[os_side]);
	free(m);
}

int rds_memory_open(void)
{
	return os_open("/proc/self/mem", O_RDWR | O_CLOEXEC, 0);
}

bool rds_memory_is(int fd)
{
	struct statfs fs;
	struct stat st;

	if (os_syscall(SYS_fstatfs, fd, (long)&fs, 0, 0, 0, 0) || fs.f_type != PROC_MAGIC)
		return false;
	return os_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (os_fcntl(fd, F_GETFL, 0) & O_ACCMODE) == O_RDWR;
}

struct rds_memory *rds_memory_new(int fd)
{
	struct rds_memory *m = rds_memory_is(fd) ? calloc(1, sizeof(*m)) : NULL;
	int number;

	if (!m) {
		os_close(fd);
		return NULL;
	}
	os_fd_init(&m->fd);
	m->burial.fn = bury;
	atomic_store(&m->refs, 1);
	if (os_dup_high_slot(fd, &m->fd.n[os_side])) {
		free(m);
		return NULL;
	}
	number = os_fd(&m->fd);
	if (rds_post_own() && rds_post_give(RDS_POST_MEMORY, m, &number, 1)) {
		rds_memory_put(m);
		return NULL;
	}
	return m;
}

void rds_memory_given(struct rds_memory *m, int fd)
{
	os_dup_high_slot(fd, &m->fd.n[0]);
}

struct rds_memory *rds_memory_hold(struct rds_memory *m)
{
	if (m)
		atomic_fetch_add(&m->refs, 1);
	return m;
}

void rds_memory_put(struct rds_memory *m)
{
	if (!m || atomic_fetch_sub(&m->refs, 1) != 1)
		return;
	os_close_slot(&m->fd.n[os_side]);
	if (!rds_post_own())
		free(m);
	else if (os_side)
		rds_chore_for_program(&m->burial);
	else
		rds_chore_for_helper(&m->burial);
}

int rds_memory_fd(struct rds_memory *m)
{
	unsigned tries;
	int fd = os_fd(&m->fd);

	for (tries = 0; fd < 0 && !os_side && tries < TAKES; tries++) {
		if (tries)
			os_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
		rds_post_take();
		fd = os_fd(&m->fd);
	}
	return fd;
}

/* ---- copying ---- */

int rds_memory_copy(struct rds_memory *m, uint64_t there, void *here, size_t len, bool put)
{
	char *at = here;
	ssize_t n;

	if (there > INT64_MAX || len > INT64_MAX - there)
		return -EFAULT;
	while (len) {
		int fd = rds_memory_fd(m);

		n = put ? os_pwrite(fd, at, len, (off_t)there) : os_pread(fd, at, len, (off_t)there);
		if (n == -EINTR || (n == -EBADF && fd >= 0 && fd != rds_memory_fd(m))) /* it has moved meanwhile */
			continue;
		if (n <= 0)
			return -EFAULT;
		at += n;
		there += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* ---- whoever calls ---- */

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
