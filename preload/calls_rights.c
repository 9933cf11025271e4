/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * calls_rights.c - a program that shuts itself in: namespaces, capabilities.
 *
 * The kernel keeps these by thread, and a process of one thread, which ours would be without the library's, expects them to be the process's.  What
 * the kernel grants to such a process only is made while the library's thread is out of the way; what changes the caller's rights is
 * made by that thread, too (engine/aside.c).  In a program of several threads all is as the kernel has it.
 *
 * Filters of system calls and Landlock are for the thread that puts them up: the library's could not do its work under any.
 */
#include "fds.h"

#include <linux/capability.h>
#include <linux/nsfs.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "engine/log.h"
#include "engine/os.h"

#define NSFS 0x6e736673
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#define UNSHARE_ALONE (CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM)
#define UNSHARE_ALL                                                                                                    \
	(UNSHARE_ALONE | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC |          \
	 CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWCGROUP | CLONE_NEWTIME)
#define SETNS_ALONE (CLONE_NEWUSER | CLONE_NEWNS)

static int enter(int fd, int what)
{
	return fd < 0 ? rds_real.unshare(what) : rds_real.setns(fd, what);
}

/*
 * The library's thread goes on in the network namespace that it was in, and in a new pid namespace there are no threads: so the rest comes when it is
 * back.  If that fails, which it does for want of something only, the first part has been done.
 */
static int enter_alone(int fd, int first, int rest)
{
	int rc, saved;

	rds_inside_enter();
	if (!rds_aside_begin()) {
		rc = enter(fd, first | rest);
	} else {
		rc = enter(fd, first);
		saved = errno;
		rds_aside_end();
		errno = saved;
		if (rc == 0 && rest)
			rc = enter(fd, rest);
	}
	saved = errno;
	rds_inside_leave();
	errno = saved;
	return rc;
}

int unshare(int flags)
{
	bool helper;

	if (likely(!rds_fds_on()) || (flags & ~UNSHARE_ALL) || !rds_fds_mine())
		return rds_real.unshare(flags);
	if ((flags & CLONE_FILES) && rds_table_alone(&helper) && helper) /* as close_range() */
		flags &= ~CLONE_FILES;
	if (!(flags & UNSHARE_ALONE))
		return rds_real.unshare(flags);
	return enter_alone(-1, flags & UNSHARE_ALONE, flags & ~UNSHARE_ALONE);
}

/* What of `type`, or the one that it is, it takes a process of one thread for. */
static int alone_of(int fd, int type)
{
	struct statfs fs;

	if (os_syscall(SYS_fstatfs, fd, (long)&fs, 0, 0, 0, 0))
		return 0;
	if (fs.f_type != NSFS) /* a pidfd */
		return type & SETNS_ALONE;
	return os_syscall(SYS_ioctl, fd, NS_GET_NSTYPE, 0, 0, 0, 0) & SETNS_ALONE ? type | SETNS_ALONE : 0;
}

int setns(int fd, int type)
{
	int alone;

	if (likely(!rds_fds_on()) || fd < 0 || !rds_fds_mine())
		return rds_real.setns(fd, type);
	alone = alone_of(fd, type);
	return alone ? enter_alone(fd, type & alone, type & ~alone) : rds_real.setns(fd, type);
}

static void follow(long nr, long a, long b, long c, long d, long e)
{
	const long args[5] = {a, b, c, d, e};
	int saved = errno;

	rds_inside_enter();
	rds_aside_follow(nr, args);
	rds_inside_leave();
	errno = saved;
}

int capset(void *header, const void *data)
{
	static struct __user_cap_header_struct who;
	static struct __user_cap_data_struct what[_LINUX_CAPABILITY_U32S_3];
	int rc = rds_real.capset(header, data);

	if (rc || likely(!rds_fds_on()) || !rds_fds_mine())
		return rc;
	who.version = ((const struct __user_cap_header_struct *)header)->version;
	memcpy(what, data, who.version == _LINUX_CAPABILITY_VERSION_1 ? sizeof(what[0]) : sizeof(what));
	follow(SYS_capset, (long)&who, (long)what, 0, 0, 0);
	return rc;
}

/* Of all that it does: rights of the thread. */
static bool is_right(int option)
{
	return option == PR_SET_NO_NEW_PRIVS || option == PR_CAPBSET_DROP || option == PR_CAP_AMBIENT ||
	       option == PR_SET_SECUREBITS || option == PR_SET_KEEPCAPS;
}

RDS_READS_GARBAGE int prctl(int option, ...)
{
	unsigned long a[4];
	va_list ap;
	int rc;

	va_start(ap, option);
	for (unsigned i = 0; i < 4; i++)
		a[i] = va_arg(ap, unsigned long);
	va_end(ap);
	rc = rds_real.prctl(option, a[0], a[1], a[2], a[3]);
	if (rc >= 0 && unlikely(is_right(option)) && rds_fds_on() && rds_fds_mine())
		follow(SYS_prctl, option, (long)a[0], (long)a[1], (long)a[2], (long)a[3]);
	return rc;
}

/* What is mapped already counts, whoever needs it. */
int mlockall(int flags)
{
	int rc = rds_real.mlockall(flags);

	if (rc && errno == ENOMEM && rds_fds_on() && rds_fds_mine())
		rds_warn("mlockall() has failed, and what the RDS engine has mapped counts, too: lock memory before "
			 "the first "
			 "message, set MALLOC_ARENA_MAX=1, or raise the limit (ulimit -l)");
	return rc;
}
