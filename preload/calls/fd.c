/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fd.c - numbers that are copied and closed.
 *
 * The kernel does the work on the stand-in, so flags, limits and errors are its own. The table
 * follows. Only O_ASYNC means something else on a stand-in.
 *
 * The engine's internal descriptors do not exist for the program: closing or copying one is EBADF,
 * closing a range leaves them out, and a dup2() onto one moves it away first.
 */
#include "preload/fdtable/fdtable.h"

#include <stdarg.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "preload/libc/early.h"
#include "engine/sys/os.h"
#include "preload/calls/calls.h"

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2U
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4U
#endif

/* ---- close ---- */

int close(int fd)
{
	return likely(!rds_fds_on()) ? libc_real.close(fd) : rds_fds_close(fd);
}
RDS_ALIAS(__close, close);

/* For a kernel older than 5.9: closes one by one, as far as numbers can reach. */
static int close_each_number(unsigned first, unsigned last)
{
	struct rlimit rl = {.rlim_max = 65536};

	getrlimit(RLIMIT_NOFILE, &rl);
	if (rl.rlim_max < 65536)
		/* a number may have been opened before the limit was lowered */
		rl.rlim_max = 65536;
	for (unsigned fd = first; fd <= last && fd < rl.rlim_max; fd++)
		libc_real.close((int)fd);
	return 0;
}

static int close_range_piece(unsigned first, unsigned last, int flags)
{
	int rc = libc_real.close_range(first, last, flags);

	return rc < 0 && errno == ENOSYS && !flags ? close_each_number(first, last) : rc;
}

struct close_walk {
	unsigned next; /* first number not yet dealt with */
	int rc;
};

static void close_range_up_to(int fd, void *arg)
{
	struct close_walk *walk = arg;

	if (!rds_fds_is_hidden(fd))
		return;
	if ((unsigned)fd > walk->next && walk->rc == 0)
		walk->rc = close_range_piece(walk->next, (unsigned)fd - 1, 0);
	walk->next = (unsigned)fd + 1;
}

/* Closes all numbers of the range but the internal descriptors. */
static int close_range_around(unsigned first, unsigned last)
{
	struct close_walk walk = {.next = first};

	os_fd_each_internal(first, last, close_range_up_to, &walk);
	if (walk.rc == 0 && walk.next > first && walk.next - 1 >= last)
		return 0; /* the last number was an internal one */
	return walk.rc ? walk.rc : close_range_piece(walk.next, last, 0);
}

static int close_range_here(unsigned first, unsigned last)
{
	reentry_call_begin();
	rds_fds_close_begin(first, last);
	int rc = close_range_around(first, last);
	int saved = errno;

	rds_fds_close_end(first, last);
	reentry_call_end();
	errno = saved;
	return rc;
}

/*
 * UNSHARE gives the calling thread a descriptor table of its own before it closes, unless no other
 * thread uses that table. If the program has no other thread, the result is the same without
 * UNSHARE; the helper thread must go on having the table, if it has the same one. With other
 * threads, the library's table goes on to describe their numbers. A child that does not share our
 * descriptors leaves out the internal ones, too, but does not touch the table. CLOEXEC closes
 * nothing (and internal descriptors have that flag anyway).
 */
int close_range(unsigned first, unsigned last, int flags)
{
	bool helper = false, mine;

	if (likely(!rds_fds_on()) || first > last || (flags & ~(int)(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)))
		return libc_real.close_range(first, last, flags);
	mine = rds_fds_is_ours();
	if (mine && (flags & (int)CLOSE_RANGE_UNSHARE)) {
		mine = rds_helper_program_is_single(&helper);
		if (mine && helper)
			flags &= ~(int)CLOSE_RANGE_UNSHARE;
	}
	if (flags & (int)CLOSE_RANGE_CLOEXEC)
		return libc_real.close_range(first, last, flags);
	/* The range holds no number: nothing is closed by this call. */
	if (flags && libc_real.close_range(~0U, ~0U, (int)CLOSE_RANGE_UNSHARE))
		return -1;
	return mine ? close_range_here(first, last) : close_range_around(first, last);
}

void closefrom(int low)
{
	if (likely(!rds_fds_on()))
		libc_real.closefrom(low);
	else
		close_range(low < 0 ? 0 : (unsigned)low, ~0U, 0);
}

/* ---- copies ---- */

/*
 * The program must not get at a descriptor that it has not opened. Copies in a vfork child do no
 * harm.
 */
static bool fd_is_hidden(int fd)
{
	return rds_fds_on() && unlikely(os_fd_is_internal(fd)) && rds_fds_is_ours() && os_fd_is_internal(fd) &&
	       !os_library_depth;
}

/* The kernel made `to` a copy of `from`: updates the table. */
static int fd_copied(int from, int to, struct rds_sock *sk)
{
	int saved = errno;

	if (to >= 0 && rds_fds_on()) {
		int rc = rds_fds_copied(from, to, sk);

		if (unlikely(rc < 0)) {
			libc_real.close(to);
			saved = -rc;
			to = -1;
		}
	}
	rds_fds_unref(sk);
	errno = saved;
	return to;
}

int dup(int fd)
{
	if (fd_is_hidden(fd))
		return (int)libc_result(-EBADF);
	if (likely(!rds_fds_on()))
		return libc_real.dup(fd);
	reentry_call_begin();
	struct rds_sock *sk = rds_fds_ref(fd);
	int to = fd_copied(fd, libc_real.dup(fd), sk);

	reentry_call_end();
	return to;
}

/* Before a copy onto a given number: does all that can fail. */
static int dup_make_way(int from, int to, struct rds_sock *sk)
{
	if (!rds_fds_on() || to < 0)
		return 0;
	if (fd_is_hidden(from))
		return -EBADF;
	if (rds_fds_is_last_number(to, (unsigned)to, (unsigned)to))
		rds_borrower_close_begin(to);
	if (sk && rds_fds_reserve(to))
		return -EBADF; /* beyond every limit: EBADF, as from the kernel */
	if (likely(!os_fd_is_internal(to)) || !rds_fds_is_ours())
		return 0;
	return os_fd_move_internal(to);
}

#define AS_DUP2 (-1)

static int dup_onto_inside(int from, int to, int flags)
{
	struct rds_sock *sk = rds_fds_ref(from);
	uintptr_t before = 0;
	bool ahead;
	int rc = dup_make_way(from, to, sk), saved;

	if (unlikely(rc < 0)) {
		rds_borrower_close_wait();
		rds_fds_unref(sk);
		return (int)libc_result(rc);
	}
	ahead = unlikely(sk != NULL) && rds_fds_replace_begin(to, sk, &before);
	rc = flags == AS_DUP2 ? libc_real.dup2(from, to) : libc_real.dup3(from, to, flags);
	rds_borrower_close_wait();
	if (!ahead)
		return fd_copied(from, rc, sk);
	saved = errno;
	rds_fds_replace_end(from, to, sk, before, rc >= 0);
	rds_fds_unref(sk);
	errno = saved;
	return rc;
}

static int dup_onto(int from, int to, int flags)
{
	int rc, saved;

	if (likely(!rds_fds_on()))
		return flags == AS_DUP2 ? libc_real.dup2(from, to) : libc_real.dup3(from, to, flags);
	reentry_call_begin();
	rc = dup_onto_inside(from, to, flags);
	saved = errno;
	reentry_call_end();
	errno = saved;
	return rc;
}

int dup2(int from, int to)
{
	return from == to ? libc_real.dup2(from, to) : dup_onto(from, to, AS_DUP2);
}
RDS_ALIAS(__dup2, dup2);

int dup3(int from, int to, int flags)
{
	return from == to ? libc_real.dup3(from, to, flags) : dup_onto(from, to, flags);
}

/* ---- descriptors of other processes, and raw system calls ---- */

static inline long fd_received(long fd)
{
	if (fd >= 0)
		rds_fds_received((int)fd);
	return fd;
}

int pidfd_getfd(int pid, int fd, unsigned flags)
{
	return (int)fd_received(libc_real.pidfd_getfd(pid, fd, flags));
}

/* Only for system calls that libc may lack, or that programs make by number. */
RDS_READS_GARBAGE long syscall(long number, ...)
{
	long a[6], rc;
	va_list ap;

	va_start(ap, number);
	for (unsigned i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (unlikely(number == SYS_pidfd_getfd))
		return fd_received(libc_raw_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]));
	if (unlikely(number == SYS_close_range))
		return close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
	if (unlikely(number == SYS_unshare))
		return unshare((int)a[0]);
	if (unlikely(number == SYS_setns))
		return setns((int)a[0], (int)a[1]);
	if (unlikely(number == SYS_capset))
		return capset((void *)a[0], (const void *)a[1]);
	rc = libc_raw_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (unlikely(number == SYS_prctl) && rc >= 0)
		calls_prctl_follow(a);
	return rc;
}

/* ---- flags ---- */

/*
 * RDS wakes its wait queue and nothing else: O_ASYNC can be set, but a signal never comes. The
 * stand-in would send one. So the stand-in gets a flag that has no effect on it. The flag goes
 * wherever the file description goes: to copies, to children, to other programs.
 */
#define AS_O_ASYNC O_APPEND

int calls_fcntl_flags(int fd, int cmd, int flags)
{
	if (cmd == F_SETFL)
		flags = (flags & ~(O_ASYNC | AS_O_ASYNC)) | (flags & O_ASYNC ? AS_O_ASYNC : 0);
	flags = libc_real.fcntl(fd, cmd, (void *)(uintptr_t)(unsigned)flags);
	return flags >= 0 && (flags & AS_O_ASYNC) ? (flags & ~AS_O_ASYNC) | O_ASYNC : flags;
}

static int fcntl_flags(int fd, int cmd, void *arg)
{
	struct rds_sock *sk = rds_fds_get(fd);
	int rc, saved;

	if (likely(!sk))
		return libc_real.fcntl(fd, cmd, arg);
	/* A vfork child's number may be another file by now. */
	rc = rds_fds_is_ours() ? calls_fcntl_flags(fd, cmd, (int)(intptr_t)arg) : libc_real.fcntl(fd, cmd, arg);
	saved = errno;
	rds_fds_put(sk);
	errno = saved;
	return rc;
}

static int fcntl_dup(int fd, int cmd, void *arg)
{
	if (fd_is_hidden(fd))
		return (int)libc_result(-EBADF);
	reentry_call_begin();
	struct rds_sock *sk = rds_fds_ref(fd);
	int to = fd_copied(fd, libc_real.fcntl(fd, cmd, arg), sk);

	reentry_call_end();
	return to;
}

/* All other commands act on the stand-in's file description, which copies share. */
int fcntl(int fd, int cmd, ...)
{
	va_list ap;

	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	if (likely(!rds_fds_on()))
		return libc_real.fcntl(fd, cmd, arg);
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return fcntl_dup(fd, cmd, arg);
	if (cmd == F_GETFL || cmd == F_SETFL)
		return fcntl_flags(fd, cmd, arg);
	return libc_real.fcntl(fd, cmd, arg);
}
RDS_ALIAS(fcntl64, fcntl);
RDS_ALIAS(__fcntl, fcntl);
