/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rights.c - a program that confines itself: namespaces, capabilities.
 *
 * The kernel keeps these for each thread. A process of one thread expects them to be the process's,
 * and the program would have one thread without the helper. Two kinds of calls need help. What the
 * kernel grants only to a process of one thread is called while the helper is out of the way. What
 * changes the rights of the calling thread is repeated by the helper (helper/step_aside.c).
 * In a program of several threads all is as the kernel has it.
 *
 * Filters of system calls and Landlock apply to the thread that sets them up. The helper could not
 * do its work under any of them.
 */
#include "preload/fdtable/fdtable.h"

#include <linux/capability.h>
#include <linux/nsfs.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "preload/calls/calls.h"

#define NSFS 0x6e736673
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#define UNSHARE_ALONE (CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM)
#define UNSHARE_ALL                                                                                                    \
	(UNSHARE_ALONE | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC |          \
	 CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWCGROUP | CLONE_NEWTIME)
#define SETNS_ALONE (CLONE_NEWUSER | CLONE_NEWNS)
#define LATE (CLONE_NEWNET | CLONE_NEWPID)

static int namespace_enter(int fd, int what)
{
	return fd < 0 ? libc_real.unshare(what) : libc_real.setns(fd, what);
}

/*
 * A call that is made in two parts must not be half done. A child, of which the program notices
 * nothing, tries both parts in one call. 0 or -errno.
 */
static long namespace_try(int fd, int what)
{
	long pid = os_syscall(SYS_clone, 0, 0, 0, 0, 0, 0), err;
	int status = 0;

	if (!pid) {
		err = fd < 0 ? os_syscall(SYS_unshare, what, 0, 0, 0, 0, 0)
			     : os_syscall(SYS_setns, fd, what, 0, 0, 0, 0);
		os_syscall(SYS_exit_group, -err, 0, 0, 0, 0, 0);
	}
	if (pid < 0 || os_syscall(SYS_wait4, pid, (long)&status, __WALL, 0, 0, 0) != pid || !WIFEXITED(status))
		return 0; /* the real call will show */
	return -WEXITSTATUS(status);
}

static int namespace_enter_first(int fd, int first, int rest)
{
	long err = rest ? namespace_try(fd, first | rest) : 0;

	return err ? (int)libc_result(err) : namespace_enter(fd, first);
}

/*
 * The helper goes on in the network namespace in which it was, and in a new pid namespace there can
 * be no threads. So these two (LATE) are entered when the helper is back.
 */
static int namespace_enter_alone(int fd, int what)
{
	int rc, saved, rest = what & ~LATE ? what & LATE : 0;

	reentry_call_begin();
	if (!rds_aside_begin()) {
		rc = namespace_enter(fd, what);
	} else {
		rc = namespace_enter_first(fd, what & ~LATE, rest);
		saved = errno;
		rds_aside_end();
		errno = saved;
		if (rc == 0 && rest)
			rc = namespace_enter(fd, rest);
	}
	saved = errno;
	reentry_call_end();
	errno = saved;
	return rc;
}

int unshare(int flags)
{
	bool helper;

	if (likely(!rds_fds_on()) || (flags & ~UNSHARE_ALL) || !rds_fds_is_ours())
		return libc_real.unshare(flags);
	/* As in close_range(). */
	if ((flags & CLONE_FILES) && rds_helper_program_is_single(&helper) && helper)
		flags &= ~CLONE_FILES;
	if (!(flags & UNSHARE_ALONE))
		return libc_real.unshare(flags);
	return namespace_enter_alone(-1, flags);
}

/* Does the kernel grant this only to a process of one thread? */
static bool namespace_needs_one_thread(int fd, int type)
{
	struct statfs fs;
	long kind;

	if (os_syscall(SYS_fstatfs, fd, (long)&fs, 0, 0, 0, 0))
		return false;
	if (fs.f_type != NSFS) /* a pidfd */
		return type & SETNS_ALONE;
	kind = os_syscall(SYS_ioctl, fd, NS_GET_NSTYPE, 0, 0, 0, 0);
	return kind > 0 && (kind & SETNS_ALONE);
}

int setns(int fd, int type)
{
	if (likely(!rds_fds_on()) || fd < 0 || !rds_fds_is_ours())
		return libc_real.setns(fd, type);
	return namespace_needs_one_thread(fd, type) ? namespace_enter_alone(fd, type) : libc_real.setns(fd, type);
}

static bool helper_thread_follows(void)
{
	return rds_fds_is_ours() && rds_aside_can_repeat();
}

int capset(void *header, const void *data)
{
	static struct __user_cap_header_struct who;
	static struct __user_cap_data_struct what[_LINUX_CAPABILITY_U32S_3];
	const long args[5] = {(long)&who, (long)what};
	int rc = libc_real.capset(header, data), saved = errno;

	if (rc || likely(!rds_fds_on()))
		return rc;
	reentry_call_begin();
	if (helper_thread_follows()) {
		who.version = ((const struct __user_cap_header_struct *)header)->version;
		memcpy(what, data, who.version == _LINUX_CAPABILITY_VERSION_1 ? sizeof(what[0]) : sizeof(what));
		rds_aside_repeat_call(SYS_capset, args);
	}
	reentry_call_end();
	errno = saved;
	return rc;
}

/* Of all options of prctl(): the rights of the calling thread. */
static bool prctl_is_thread_right(int option)
{
	return option == PR_SET_NO_NEW_PRIVS || option == PR_CAPBSET_DROP || option == PR_CAP_AMBIENT ||
	       option == PR_SET_SECUREBITS || option == PR_SET_KEEPCAPS;
}

void calls_prctl_follow(const long args[5])
{
	int saved = errno;

	if (likely(!prctl_is_thread_right((int)args[0]) || !rds_fds_on()))
		return;
	reentry_call_begin();
	if (helper_thread_follows())
		rds_aside_repeat_call(SYS_prctl, args);
	reentry_call_end();
	errno = saved;
}

RDS_READS_GARBAGE int prctl(int option, ...)
{
	long a[5] = {option};
	va_list ap;
	int rc;

	va_start(ap, option);
	for (unsigned i = 1; i < 5; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	rc = libc_real.prctl(option, a[1], a[2], a[3], a[4]);
	if (rc >= 0)
		calls_prctl_follow(a);
	return rc;
}

/* What is mapped already counts, also what the engine has mapped. */
int mlockall(int flags)
{
	int rc = libc_real.mlockall(flags);

	if (rc && errno == ENOMEM && rds_fds_on() && rds_fds_is_ours())
		rds_warn("mlockall() has failed, and what the RDS engine has mapped counts, too: lock memory before "
			 "the first "
			 "message, set MALLOC_ARENA_MAX=1, or raise the limit (ulimit -l)");
	return rc;
}
