/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * user_copy.c - copies by the kernel, which fails with EFAULT where memcpy() would crash.
 *
 * To the program's memory: the bytes are put into a file in memory, the *scratch file*, which is
 * mapped here, and preadv() copies them to where they belong.  From the program's memory, and where
 * the file cannot be used: process_vm_readv() and process_vm_writev() on this process itself.  They
 * are dear (0.9 us instead of 0.4 for a page), since they look up each page as if it were another
 * process's.  Where a filter of system calls forbids them (some containers), the range is probed as
 * for any call (sys/uaccess.h) and then copied with memcpy().  In this case a program that unmaps
 * the memory at the same moment crashes.
 *
 * Code of the program that makes system calls by itself may close the file's number, and the kernel
 * may give the number to another file.  So the bytes are the last ones of a file that is longer than
 * any other, and one more is asked for: no other file has any there, but for a device, which has that
 * one as well.  And the file is never written to by its number.
 *
 * Must not know what the memory is for.
 */
#include "engine/abi/user_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "engine/sys/os.h"
#include "engine/sys/uaccess.h"

#define SCRATCH_BYTES 65536u /* a piece of an operation */
#define SCRATCH_AT ((off_t)1 << 62)

/* Of the program's descriptor table: the helper, which has one of its own, does without. */
static struct {
	/* by a thread that copies; for ever, if there is no scratch file to be had */
	_Atomic bool taken;
	_Atomic int fd;
	unsigned char *at; /* taken; NULL: the file is not made yet */
} scratch = {.fd = -1};

static _Atomic bool vm_calls_forbidden;

static void *at_address(uint64_t at)
{
	return (void *)(uintptr_t)at;
}

static int scratch_map(int fd)
{
	int err = os_fallocate(fd, SCRATCH_AT, SCRATCH_BYTES);
	void *map;

	os_fcntl(fd, F_SETFL, O_NOATIME); /* 50 ns less */
	if (!err)
		err = os_mmap(SCRATCH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, SCRATCH_AT, &map);
	if (err)
		return err;
	madvise(map, SCRATCH_BYTES, MADV_DONTFORK);
	scratch.at = map;
	return 0;
}

static bool scratch_open(void)
{
	int fd = os_memfd("rdspreload-copy", MFD_CLOEXEC), err = fd < 0 ? fd : scratch_map(fd);

	if (!err)
		err = os_dup_high_slot(fd, &scratch.fd);
	else if (fd >= 0)
		os_close(fd);
	return !err;
}

void rds_ucopy_fork_child(void)
{
	scratch.at = NULL;
	atomic_store(&scratch.fd, -1);
	atomic_store(&scratch.taken, false);
}

/*
 * False: process_vm_writev() has to find out.  If the program wants the number, it changes before
 * the program's file gets it (sys/own_fds.c).
 */
static bool ucopy_by_scratch(void *user, const void *own, size_t len)
{
	unsigned char more;
	const struct iovec to[2] = {{user, len}, {&more, sizeof(more)}};
	bool done;
	int fd;

	if (os_fd_table || len > SCRATCH_BYTES || atomic_exchange(&scratch.taken, true))
		return false;
	if (!scratch.at && !scratch_open())
		return false;
	memcpy(scratch.at + SCRATCH_BYTES - len, own, len);
	fd = atomic_load(&scratch.fd);
	done = os_preadv(fd, to, 2, SCRATCH_AT + (off_t)(SCRATCH_BYTES - len)) == (ssize_t)len &&
	       fd == atomic_load(&scratch.fd);
	atomic_store(&scratch.taken, false);
	return done;
}

static int ucopy_probed(void *to, const void *from, size_t len, bool put)
{
	rds_user_forget(); /* memory that this thread has probed a moment ago may be gone */
	if (put ? rds_user_writable(to, len) : rds_user_readable(from, len))
		return -EFAULT;
	memcpy(to, from, len);
	return 0;
}

static long ucopy_by_kernel(pid_t thread, const struct iovec *here, const struct iovec *there, bool put)
{
	return os_syscall(put ? SYS_process_vm_writev : SYS_process_vm_readv, thread, (long)here, 1, (long)there, 1, 0);
}

static int ucopy_one(struct rds_foreign_memory *m, uint64_t user, void *own, size_t len, bool put)
{
	struct iovec here = {own, len}, there = {at_address(user), len};
	long n;

	if (!len)
		return 0;
	if (user + len < user)
		return -EFAULT;
	if (m)
		return rds_foreign_memory_copy(m, user, own, len, put);
	if (put && ucopy_by_scratch(at_address(user), own, len))
		return 0;
	if (!atomic_load_explicit(&vm_calls_forbidden, memory_order_relaxed)) {
		n = ucopy_by_kernel(os_getpid(), &here, &there, put);
		/* the main thread has ended and has no memory any more: by this thread */
		if (n == -ESRCH)
			n = ucopy_by_kernel((pid_t)os_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0), &here, &there, put);
		if (n != -ENOSYS && n != -EPERM)
			return n == (long)len ? 0 : -EFAULT;
		atomic_store(&vm_calls_forbidden, true);
	}
	return put ? ucopy_probed(at_address(user), own, len, true) : ucopy_probed(own, at_address(user), len, false);
}

int rds_ucopy_to(struct rds_foreign_memory *m, uint64_t to, const void *from, size_t len)
{
	return ucopy_one(m, to, (void *)(uintptr_t)from, len, true);
}

int rds_ucopy_from(struct rds_foreign_memory *m, void *to, uint64_t from, size_t len)
{
	return ucopy_one(m, from, to, len, false);
}

static int ucopy_vec(struct rds_foreign_memory *m, const struct iovec *vec, unsigned n, uint64_t at, unsigned char *own,
		     size_t len, bool put)
{
	unsigned i;
	int err;

	for (i = 0; len && i < n; i++) {
		size_t part = vec[i].iov_len;

		if (at >= part) {
			at -= part;
			continue;
		}
		part -= at;
		if (part > len)
			part = len;
		err = ucopy_one(m, (uintptr_t)vec[i].iov_base + at, own, part, put);
		if (err)
			return err;
		own += part;
		len -= part;
		at = 0;
	}
	return len ? -EFAULT : 0;
}

int rds_ucopy_to_vec(struct rds_foreign_memory *m, const struct iovec *to, unsigned n, uint64_t at, const void *from,
		     size_t len)
{
	return ucopy_vec(m, to, n, at, (unsigned char *)(uintptr_t)from, len, true);
}

int rds_ucopy_from_vec(struct rds_foreign_memory *m, void *to, const struct iovec *from, unsigned n, uint64_t at,
		       size_t len)
{
	return ucopy_vec(m, from, n, at, to, len, false);
}
