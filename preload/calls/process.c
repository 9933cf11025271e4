/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * process.c - children that somebody starts, and the end of the process.  What fork does is fdtable/fork.c's, exec is exec.c's.
 *
 * The parent has to know as well that somebody else may have its sockets: from the handler, or from the wrapper of what starts the child.  Of
 * one that was started by a bare system call it hears when that makes its first call on a socket, or it finds it among its children when it ends.
 */
#include "preload/fdtable/fdtable.h"

#include "engine/sys/os.h"
#include "preload/calls/calls.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

/* errno stays. */
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
		atomic_store(&rds_share_possible, true); /* of the process that we share our memory with */
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
 * Signal handlers may start children by these two, and may have interrupted malloc(): no helper is started, which there is
 * from the first bind on; before that, sockets are left to whoever makes the next call.
 * If it is in the middle of something that is waited for, as by fork(): a lock of malloc() that it
 * has would be held in the child for ever.  True: begun.
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

	if (pid) /* the child makes that lock anew */
		clone_end(begun);
	return pid;
}

/*
 * Threads share numbers and memory.  Who shares the former only must not close what it has a copy of, and sees by the
 * count that it is such a child; one of _Fork() by another thread in this very moment takes itself for one, too, and
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
	rds_progress_exit_begin(false);
	if (rds_share_is_possible())
		rds_handoff_out(NULL);
	rds_fds_park_orphans();
	rds_progress_exit();
}

/* interrupted: out of a signal handler, over a call that could not be rolled forward. */
static void process_end_now(bool interrupted)
{
	rds_progress_exit_begin(interrupted);
	if (rds_share_is_possible())
		rds_handoff_out_now(interrupted);
	rds_fds_park_orphans();
	rds_progress_exit_now(interrupted);
}

/* After the program's own exit handlers: what it has sent is still handed over, within a bound. */
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
 * No handler runs here, and kernel RDS would have the messages by now: a child that sends and leaves this way (Python's
 * os._exit, shells) must not take its last message along.
 */
void calls_process_exit_now(void)
{
	if (rds_fds_on() && rds_fds_is_ours()) {
		reentry_call_begin();
		process_end_now(reentry_state.depth > 1);
	}
}

/* By quick_exit(), after the program's own handlers, and before those that came earlier than ours. */
void calls_process_quick_exit(void)
{
	calls_process_exit_now();
	reentry_call_end();
}

/* libc's own ends the parent by a call of its own, past our _exit(), and what the child is to have would end with it. */
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
	calls_process_exit_now();
	libc_real._exit(status);
	__builtin_unreachable();
}

void _Exit(int status)
{
	calls_process_exit_now();
	libc_real._Exit(status);
	__builtin_unreachable();
}
