/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * signals.c - holds signals back around a sleep that consists of several system calls but must
 * behave towards signals as one, and around a write that must raise no signal; and makes a pipe
 * that raises none.
 *
 * Around a sleep the pending signals are examined before they are let through: after an -EINTR
 * nothing tells whether the handler that has run wants calls to be restarted. Two groups are not
 * held back: signals of faults, which no other thread causes, and libc's own. Meanwhile, the kernel
 * gives a signal for the process to another thread, if one accepts it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "engine/sys/os.h"

#define NSIGNALS 64
#define SIGNAL_BIT(sig) (UINT64_C(1) << ((sig)-1))
/* 32 and 33: thread cancellation, set*id(). */
#define NOT_HELD                                                                                                       \
	(SIGNAL_BIT(SIGSEGV) | SIGNAL_BIT(SIGBUS) | SIGNAL_BIT(SIGFPE) | SIGNAL_BIT(SIGILL) | SIGNAL_BIT(SIGTRAP) |    \
	 SIGNAL_BIT(SIGSYS) | SIGNAL_BIT(32) | SIGNAL_BIT(33))

static uint64_t sigmask_change(int how, uint64_t set)
{
	uint64_t old = 0;

	os_syscall(SYS_rt_sigprocmask, how, (long)&set, (long)&old, OS_KERNEL_SIGSET, 0, 0);
	return old;
}

static uint64_t sigmask_set(uint64_t set)
{
	return sigmask_change(SIG_SETMASK, set);
}

void os_signals_hold(struct os_signals *s)
{
	s->old = sigmask_set(~NOT_HELD);
	if (s->old & NOT_HELD)
		sigmask_set(~NOT_HELD | s->old);
}

/* Does the signal have a handler? any false: one after which calls are not restarted. */
static bool signal_interrupts(int sig, bool any)
{
	struct {
		unsigned long handler, flags, rest[6];
	} sa;

	return os_syscall(SYS_rt_sigaction, sig, 0, (long)&sa, OS_KERNEL_SIGSET, 0, 0) == 0 &&
	       sa.handler > (unsigned long)SIG_IGN && (any || !(sa.flags & SA_RESTART));
}

static uint64_t signals_held_back(const struct os_signals *s)
{
	uint64_t pending = 0;

	os_syscall(SYS_rt_sigpending, (long)&pending, OS_KERNEL_SIGSET, 0, 0, 0, 0);
	return pending & ~s->old;
}

bool os_signals_pending(const struct os_signals *s)
{
	return signals_held_back(s);
}

static int signals_check(uint64_t pending, bool any)
{
	int sig;

	for (sig = 1; pending && sig <= NSIGNALS; sig++)
		if ((pending & SIGNAL_BIT(sig)) && signal_interrupts(sig, any))
			return -EINTR;
	return 0;
}

static int signals_release(const struct os_signals *s, bool any)
{
	int err = signals_check(signals_held_back(s), any);

	sigmask_set(s->old);
	return err;
}

int os_signals_pass(struct os_signals *s)
{
	uint64_t pending = signals_held_back(s);
	int err = signals_check(pending, false);

	if (pending && !err) {
		sigmask_set(s->old);
		os_signals_hold(s);
	}
	return err;
}

int os_signals_release(const struct os_signals *s)
{
	return signals_release(s, false);
}

int os_signals_release_any(const struct os_signals *s)
{
	return signals_release(s, true);
}

void os_signals_left(const struct os_signals *s)
{
	const uint64_t never = SIGNAL_BIT(SIGKILL) | SIGNAL_BIT(SIGSTOP);

	/* A handler's mask is another one. */
	if ((sigmask_change(SIG_BLOCK, 0) | never) == (~NOT_HELD | s->old | never))
		sigmask_set(s->old);
}

int os_signals_fd(const struct os_signals *s)
{
	uint64_t set = ~s->old & ~NOT_HELD;

	return (int)os_syscall(SYS_signalfd4, -1, (long)&set, OS_KERNEL_SIGSET, O_CLOEXEC | O_NONBLOCK, 0, 0);
}

/* ---- a write that raises no signal ---- */

#define PIPE_BIT SIGNAL_BIT(SIGPIPE)
#define SIZE_BIT SIGNAL_BIT(SIGXFSZ)
/* of a process in the background; if the signal is blocked, the write succeeds all the same */
#define TERMINAL_BIT SIGNAL_BIT(SIGTTOU)

static void sigquiet_hold(struct os_sigpipe *s, uint64_t set)
{
	s->old = sigmask_change(SIG_BLOCK, set);
	s->pending = 0;
	/* The program itself blocks it: a signal that was pending before belongs to the program. */
	if (s->old & set)
		os_syscall(SYS_rt_sigpending, (long)&s->pending, OS_KERNEL_SIGSET, 0, 0, 0, 0);
}

static void sigquiet_release(const struct os_sigpipe *s, uint64_t set, uint64_t raised)
{
	const struct timespec now = {0};

	if (raised && !(s->pending & raised))
		os_syscall(SYS_rt_sigtimedwait, (long)&raised, 0, (long)&now, OS_KERNEL_SIGSET, 0, 0);
	if (set & ~s->old)
		sigmask_set(s->old);
}

void os_sigpipe_hold(struct os_sigpipe *s)
{
	sigquiet_hold(s, PIPE_BIT);
}

void os_sigpipe_release(const struct os_sigpipe *s, bool raised)
{
	sigquiet_release(s, PIPE_BIT, raised ? PIPE_BIT : 0);
}

ssize_t os_write_quiet(int fd, const void *buf, size_t len)
{
	struct os_sigpipe s;
	ssize_t n;

	sigquiet_hold(&s, PIPE_BIT | SIZE_BIT | TERMINAL_BIT);
	n = os_write(fd, buf, len);
	sigquiet_release(&s, PIPE_BIT | SIZE_BIT | TERMINAL_BIT, n == -EPIPE ? PIPE_BIT : n == -EFBIG ? SIZE_BIT : 0);
	return n;
}

ssize_t os_pwrite_quiet(int fd, const void *buf, size_t len, off_t off)
{
	struct os_sigpipe s;
	ssize_t n;

	sigquiet_hold(&s, SIZE_BIT);
	n = os_pwrite(fd, buf, len, off);
	sigquiet_release(&s, SIZE_BIT, n == -EFBIG ? SIZE_BIT : 0);
	return n;
}

int os_wake_pipe(int fds[2], int flags)
{
	char path[40];
	int rw, err = os_pipe(fds, flags | O_CLOEXEC);

	if (err < 0)
		return err;
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fds[1]);
	rw = os_open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC, 0);
	if (rw < 0) {
		os_fcntl(fds[1], F_SETFL, O_NONBLOCK);
		return 0;
	}
	os_close(fds[1]);
	fds[1] = rw;
	return 0;
}
