/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * calls_process.c - fork and exit.
 *
 * A forked child has a copy of our memory but neither our threads nor a right to our connections: its handler turns all
 * RDS sockets into inherited numbers and forgets the engine; the next socket() starts a fresh one.  Children that no
 * handler sees (_Fork, clone) notice it themselves, at their first call on an RDS number; children that share our memory
 * (vfork) must not change anything in it (rds_fds_mine).  exec is calls_exec.c's.
 *
 * The parent has to know as well that somebody else may have its sockets: from the handler, or from the wrapper of what starts the child.  Of
 * one that was started by a bare system call it hears when that makes its first call on a socket, or it finds it among its children when it ends.
 */
#include "fds.h"

#include "engine/os.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * Of the thread that forks.  Signals are held back from before the first lock is taken until the last one is given back: a handler in between
 * could not let the fork go on to its end, which comes twice.
 */
static __thread struct {
	bool prepared; /* before; another thread may have opened the first socket since */
	struct os_signals signals;
} forking;

static void fork_ends(void)
{
	rds_inside_leave();
	forking.prepared = false;
	os_signals_release(&forking.signals);
}

static void process_child(void)
{
	int saved = errno;

	rds_fds_forget();
	if (forking.prepared)
		fork_ends();
	errno = saved;
}

static void process_before(void)
{
	if (!rds_fds_on())
		return;
	os_signals_hold(&forking.signals);
	rds_inside_enter();
	forking.prepared = true;
	rds_borrower_fork_prepare();
	rds_share_begin();
	rds_helper_fork_prepare();
}

static void process_parent(void)
{
	if (!forking.prepared)
		return;
	rds_helper_fork_parent();
	fork_ends();
}

static void process_start(void)
{
	rds_fds_init();
	rds_roll_init();
	pthread_atfork(process_before, process_parent, process_child);
}

void rds_process_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, process_start);
}

/* errno stays. */
static void spreads(void (*how)(void))
{
	int saved = errno;

	if (likely(!rds_fds_on()))
		return;
	if (rds_fds_mine()) {
		rds_inside_enter();
		how();
		rds_inside_leave();
	} else {
		atomic_store(&rds_share_possible, true); /* of the process that we share our memory with */
	}
	errno = saved;
}

void rds_process_spreads(void)
{
	spreads(rds_share_begin);
}

static void spreads_now(void)
{
	rds_share_begin_now();
	rds_fds_leave_all();
}

/*
 * Signal handlers may start children by these two, and may have interrupted malloc(): no helper is started, which there is
 * from the first bind on; before that, sockets are left to whoever makes the next call.
 * If it is in the middle of something that is waited for, as by fork(): a lock of malloc() that it
 * has would be held in the child for ever.  True: begun.
 */
static bool copy_begins(void)
{
	if (likely(!rds_fds_on()))
		return false;
	spreads(spreads_now);
	if (!rds_fds_mine())
		return false;
	rds_helper_fork_prepare();
	return true;
}

static void copy_made(bool begun)
{
	if (begun)
		rds_helper_fork_parent();
}

pid_t _Fork(void)
{
	bool begun = copy_begins();
	pid_t pid = rds_real._Fork();

	if (pid) /* the child makes that lock anew */
		copy_made(begun);
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
		begun = copy_begins();
	else if (!(flags & CLONE_FILES))
		spreads(spreads_now);
	atomic_fetch_add(&rds_fds_sharing, sharing);
	pid = rds_real.clone(fn, stack, flags, arg, parent_tid, tls, child_tid);
	atomic_fetch_sub(&rds_fds_sharing, sharing);
	copy_made(begun);
	return pid;
}

static void ends(void)
{
	rds_engine_exit_begin(false);
	if (rds_share_is_possible())
		rds_handoff_out(NULL);
	rds_fds_ending();
	rds_engine_exit();
}

/* interrupted: out of a signal handler, over a call that could not be rolled forward. */
static void ends_now(bool interrupted)
{
	rds_engine_exit_begin(interrupted);
	if (rds_share_is_possible())
		rds_handoff_out_now(interrupted);
	rds_fds_ending();
	rds_engine_exit_now(interrupted);
}

/* After the program's own exit handlers: what it has sent is still handed over, within a bound. */
static void __attribute__((destructor)) process_exit(void)
{
	if (rds_fds_on() && rds_fds_mine()) {
		rds_inside_enter();
		if (unlikely(rds_inside.depth > 1))
			ends_now(true);
		else
			ends();
		rds_inside_leave();
	}
}

/*
 * No handler runs here, and kernel RDS would have the messages by now: a child that sends and leaves this way (Python's
 * os._exit, shells) must not take its last message along.
 */
void rds_process_leaves(void)
{
	if (rds_fds_on() && rds_fds_mine()) {
		rds_inside_enter();
		ends_now(rds_inside.depth > 1);
	}
}

/* By quick_exit(), after the program's own handlers, and before those that came earlier than ours. */
void rds_process_ends_quickly(void)
{
	rds_process_leaves();
	rds_inside_leave();
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
	null = rds_real.open("/dev/null", O_RDWR);
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
	return likely(!rds_fds_on()) ? rds_real.daemon(nochdir, noclose) : daemon_ours(nochdir, noclose);
}

void _exit(int status)
{
	rds_process_leaves();
	rds_real._exit(status);
	__builtin_unreachable();
}

void _Exit(int status)
{
	rds_process_leaves();
	rds_real._Exit(status);
	__builtin_unreachable();
}
