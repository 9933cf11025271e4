/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * process.c - children that the program starts, and the end of the process. fork() is handled in
 * fdtable/fork.c, exec in exec.c.
 *
 * The parent has to know that another process may have its sockets. It learns this from the fork
 * handler, or from the wrapper of the call that starts the child. If a bare system call has started
 * the child, the parent learns it when the child makes its first call on a socket, or finds the
 * child among its children when it ends.
 */
#include "preload/fdtable/fdtable.h"

#include "engine/sys/os.h"
#include "preload/calls/calls.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

/* Leaves errno as it is. */
static void process_share(void (*how)(void))
{
	int saved = errno;

	if (likely(!rds_fds_on()))
		return;
	if (rds_fds_is_ours()) {
		reentry_call_begin();
		how();
		reentry_call_end();
	} else {
		/* The variable is that of the process whose memory this one shares. */
		atomic_store(&rds_share_possible, true);
	}
	errno = saved;
}

void calls_process_share(void)
{
	process_share(rds_share_begin);
}

static void process_share_now(void)
{
	rds_share_begin_now();
	rds_fds_handoff_all();
}

/*
 * Signal handlers may call _Fork() and clone(), and may have interrupted malloc(). So no helper is
 * started. From the first bind on there is one; before that, sockets are handed off to the process
 * that makes the next call. The helper is waited for if it is in the middle of a round, as by
 * fork(): a lock of malloc() that it holds would stay locked in the child for ever. True: begun.
 */
static bool clone_begin(void)
{
	if (likely(!rds_fds_on()))
		return false;
	process_share(process_share_now);
	if (!rds_fds_is_ours())
		return false;
	rds_helper_fork_prepare();
	return true;
}

static void clone_end(bool begun)
{
	if (begun)
		rds_helper_fork_parent();
}

pid_t _Fork(void)
{
	bool begun = clone_begin();
	pid_t pid = libc_real._Fork();

	if (pid) /* the child makes the helper's lock anew */
		clone_end(begun);
	return pid;
}

/*
 * Threads share numbers and memory. A child that shares only the numbers must not close the
 * descriptors of which it has a copy in memory. It sees by the count that it is such a child. A
 * child of _Fork() that another thread starts at this very moment takes itself for one, too, and
 * its calls are system calls only.
 */
int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	const int more = CLONE_PARENT_SETTID | CLONE_PIDFD | CLONE_SETTLS | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
	void *parent_tid = NULL, *tls = NULL, *child_tid = NULL;
	unsigned sharing = (flags & CLONE_FILES) && !(flags & CLONE_VM);
	bool begun = false;
	va_list ap;
	int pid;

	if (flags & more) {
		va_start(ap, arg);
		parent_tid = va_arg(ap, void *);
		tls = va_arg(ap, void *);
		child_tid = va_arg(ap, void *);
		va_end(ap);
	}
	if (!(flags & CLONE_VM))
		begun = clone_begin();
	else if (!(flags & CLONE_FILES))
		process_share(process_share_now);
	atomic_fetch_add(&rds_fds_sharing_clones, sharing);
	pid = libc_real.clone(fn, stack, flags, arg, parent_tid, tls, child_tid);
	atomic_fetch_sub(&rds_fds_sharing_clones, sharing);
	clone_end(begun);
	return pid;
}

static void process_end(void)
{
	struct os_limits limits;

	os_limits_raise(&limits);
	rds_progress_exit_begin(false);
	if (rds_share_is_possible())
		rds_handoff_out(NULL);
	rds_fds_park_orphans();
	rds_progress_exit();
	os_limits_restore(&limits);
}

/* interrupted: called out of a signal handler, over a call that could not be finished first. */
static void process_end_now(bool interrupted)
{
	struct os_limits limits;

	os_limits_raise(&limits);
	rds_progress_exit_begin(interrupted);
	if (rds_share_is_possible())
		rds_handoff_out_now(interrupted);
	rds_fds_park_orphans();
	rds_progress_exit_now(interrupted);
	os_limits_restore(&limits);
}

/*
 * After the program's own exit handlers: the messages that it has sent are still handed over,
 * within a bound.
 */
static void __attribute__((destructor)) process_exit(void)
{
	if (rds_fds_on() && rds_fds_is_ours()) {
		reentry_call_begin();
		if (unlikely(reentry_state.depth > 1))
			process_end_now(true);
		else
			process_end();
		reentry_call_end();
	}
}

/*
 * No exit handler runs here, and kernel RDS would have the messages by now: a child that sends and
 * leaves this way (Python's os._exit, shells) must not lose its last message.
 */
static void process_exit_now(void)
{
	if (rds_fds_on() && rds_fds_is_ours()) {
		reentry_call_begin();
		process_end_now(reentry_state.depth > 1);
	}
}

/*
 * Called by quick_exit() after the program's own handlers, and before those registered earlier than
 * this one.
 */
void calls_process_quick_exit(void)
{
	process_exit_now();
	reentry_call_end();
}

/*
 * libc's daemon() ends the parent by a call inside libc, which does not go through our _exit().
 * What the child is to have would end with the parent.
 */
static int daemon_ours(int nochdir, int noclose)
{
	int null;

	switch (fork()) {
	case -1:
		return -1;
	case 0:
		break;
	default:
		_exit(0);
	}
	if (setsid() < 0)
		return -1;
	if (!nochdir && chdir("/"))
		return -1;
	if (noclose)
		return 0;
	null = libc_real.open("/dev/null", O_RDWR);
	if (null < 0)
		return -1;
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
	return 0;
}

int daemon(int nochdir, int noclose)
{
	return likely(!rds_fds_on()) ? libc_real.daemon(nochdir, noclose) : daemon_ours(nochdir, noclose);
}

void _exit(int status)
{
	process_exit_now();
	libc_real._exit(status);
	__builtin_unreachable();
}

void _Exit(int status)
{
	process_exit_now();
	libc_real._Exit(status);
	__builtin_unreachable();
}
