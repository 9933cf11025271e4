/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * foreign_memory.c - another process's memory, by a descriptor of its /proc/self/mem
 * (foreign_memory.h).
 *
 * The descriptor is in the helper's table.  A thread of the program that meets an operation on such
 * memory leaves it undone and wakes the helper, which carries it out.
 *
 * Must not know what the memory is for, nor whether it may be written.  Through this descriptor the
 * kernel writes even where the program itself could not (read-only private mappings).  So the other
 * process checks the addresses that it passes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "engine/abi/foreign_memory.h"
#include "engine/helper/fd_exchange.h"
#include "engine/rds.h"
#include "engine/sys/compiler.h"
#include "engine/sys/os.h"

#define PROC_MAGIC 0x9fa0

struct rds_foreign_memory {
	_Atomic int fd;
	_Atomic unsigned refs;
	int pid;
	struct rds_deferred_call free_call;
};

_Atomic unsigned rds_foreign_memory_count;

/* ---- life ---- */

bool (*rds_foreign_memory_await)(void);

static void foreign_memory_free(struct rds_deferred_call *c)
{
	struct rds_foreign_memory *m = container_of(c, struct rds_foreign_memory, free_call);

	os_close_slot(&m->fd);
	free(m);
	atomic_fetch_sub(&rds_foreign_memory_count, 1);
}

int rds_foreign_memory_fd_open(void)
{
	return os_open("/proc/self/mem", O_RDWR | O_CLOEXEC, 0);
}

/*
 * Writes to other files of /proc use the credentials of this process: they must not be taken for
 * memory.
 */
bool rds_foreign_memory_fd_is(int fd, int pid)
{
	char path[40], want[40], is[64];
	struct statfs fs;
	struct stat st;
	long n;

	if (os_syscall(SYS_fstatfs, fd, (long)&fs, 0, 0, 0, 0) || fs.f_type != PROC_MAGIC || os_fstat(fd, &st) ||
	    (st.st_mode & ~(mode_t)S_IFMT) != 0600 || !S_ISREG(st.st_mode) ||
	    (os_fcntl(fd, F_GETFL, 0) & O_ACCMODE) != O_RDWR)
		return false;
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	snprintf(want, sizeof(want), "/proc/%d/mem", pid);
	n = os_syscall(SYS_readlinkat, AT_FDCWD, (long)path, (long)is, sizeof(is), 0, 0);
	return n == (long)strlen(want) && !memcmp(is, want, (size_t)n);
}

struct rds_foreign_memory *rds_foreign_memory_new(int fd, int pid)
{
	struct rds_foreign_memory *m = calloc(1, sizeof(*m));

	if (!m) {
		os_close(fd);
		return NULL;
	}
	m->free_call.fn = foreign_memory_free;
	m->pid = pid;
	atomic_store(&m->fd, -1);
	atomic_store(&m->refs, 1);
	if (os_dup_high_slot(fd, &m->fd)) {
		free(m);
		return NULL;
	}
	atomic_fetch_add(&rds_foreign_memory_count, 1);
	return m;
}

bool rds_foreign_memory_is_of(const struct rds_foreign_memory *m, int pid)
{
	return m->pid == pid;
}

bool rds_foreign_memory_same(const struct rds_foreign_memory *a, const struct rds_foreign_memory *b)
{
	return a->pid == b->pid;
}

struct rds_foreign_memory *rds_foreign_memory_get(struct rds_foreign_memory *m)
{
	if (m)
		atomic_fetch_add(&m->refs, 1);
	return m;
}

static void deferred_progress(struct rds_deferred_call *c)
{
	(void)c;
	rds_foreign_memory_await();
}

static struct rds_deferred_call left_to_helper = {.fn = deferred_progress};

void rds_abi_fork_child(void)
{
	atomic_store(&rds_foreign_memory_count, 0);
	atomic_store(&left_to_helper.queued, false);
}

static bool fd_is_in_reach(void)
{
	return os_fd_table || !rds_helper_has_own_table();
}

void rds_foreign_memory_put(struct rds_foreign_memory *m)
{
	if (!m || atomic_fetch_sub(&m->refs, 1) != 1)
		return;
	if (fd_is_in_reach())
		foreign_memory_free(&m->free_call);
	else
		rds_helper_defer(&m->free_call);
}

bool rds_foreign_memory_at_hand(struct rds_foreign_memory *m)
{
	if (!m || fd_is_in_reach())
		return true;
	rds_helper_defer(&left_to_helper);
	return false;
}

/* ---- copying ---- */

int rds_foreign_memory_copy(struct rds_foreign_memory *m, uint64_t there, void *here, size_t len, bool put)
{
	char *at = here;
	ssize_t n;

	if (there > INT64_MAX || len > INT64_MAX - there)
		return -EFAULT;
	while (len) {
		int fd = atomic_load(&m->fd);

		n = put ? os_pwrite(fd, at, len, (off_t)there) : os_pread(fd, at, len, (off_t)there);
		/* EBADF: the descriptor may have got another number meanwhile. */
		if (n == -EINTR || (n == -EBADF && fd >= 0 && fd != atomic_load(&m->fd)))
			continue;
		if (n <= 0)
			return -EFAULT;
		at += n;
		there += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}
