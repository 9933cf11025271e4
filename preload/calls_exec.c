/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * calls_exec.c - new programs: sockets that an exec keeps are left to whoever has the numbers afterwards (engine/leave.c), and taken
 * back if the exec fails.
 *
 * A child of vfork() or posix_spawn() leaves nothing: the process whose memory it shares goes on carrying them.  That process only has to
 * know that others may have its sockets.  But if that has no helper yet nobody would answer the new program, and vfork's child is the only one
 * that can do something about it (engine/leave_still.c).
 *
 * What libc calls inside itself passes no wrapper and no atfork handler: where it starts a program (system(), popen(), wordexp()), the name of that
 * is wrapped.  Not so pidfd_spawn(): where libc lacks the name, a program that looks for it must not find it.  Its
 * children are known when they make a call on a socket, or when this process ends.
 */
#include "fds.h"

#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>

extern char **environ;

/* control is held: look, and no more.  Does a number of it outlive an exec, or has somebody else one, perhaps? */
static bool kept(struct rds_sock *sk)
{
	if (rds_share_is_possible())
		return true;
	for (int fd = 0; fd < rds_fds_top(); fd++) {
		int flags;

		if (rds_fds_peek(fd) != (uintptr_t)sk)
			continue;
		flags = rds_real.fcntl(fd, F_GETFD, NULL);
		if (flags >= 0 && !(flags & FD_CLOEXEC))
			return true;
	}
	return false;
}

static unsigned before(void)
{
	int saved = errno;
	unsigned left = 0;

	if (likely(!rds_fds_on()))
		return 0;
	if (rds_fds_mine()) {
		rds_inside_enter();
		rds_fds_exec_begins();
		left = rds_handoff_out(kept);
		if (!left)
			rds_fds_exec_is_over(false);
		rds_fds_ending();
		rds_engine_exit(); /* what others, or sockets that end here, have sent goes first, as at an exit */
		rds_inside_leave();
	} else {
		atomic_store(&rds_share_possible, true); /* of the process that we share our memory with */
		rds_fds_leave_kept();
	}
	errno = saved;
	return left;
}

/* It has failed. */
static int after(int rc, unsigned left)
{
	int saved = errno;

	if (left) {
		rds_inside_enter();
		rds_handoff_cancel();
		rds_fds_exec_is_over(true);
		rds_inside_leave();
	}
	errno = saved;
	return rc;
}

int execve(const char *path, char *const argv[], char *const envp[])
{
	unsigned left = before();

	return after(rds_real.execve(path, argv, envp), left);
}

int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

int execvpe(const char *file, char *const argv[], char *const envp[])
{
	unsigned left = before();

	return after(rds_real.execvpe(file, argv, envp), left);
}

int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

int fexecve(int fd, char *const argv[], char *const envp[])
{
	unsigned left = before();

	return after(rds_real.fexecve(fd, argv, envp), left);
}

int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
	unsigned left = before();

	return after(rds_real.execveat(dir, path, argv, envp, flags), left);
}

/* ---- arguments one by one ---- */

static size_t count(va_list ap)
{
	size_t n = 1;

	while (va_arg(ap, char *))
		n++;
	return n;
}

static void collect(char **argv, const char *arg, size_t n, va_list ap)
{
	argv[0] = (char *)(uintptr_t)arg;
	for (size_t i = 1; i <= n; i++)
		argv[i] = va_arg(ap, char *);
}

/* On the stack: between fork and exec there may be no malloc. */
#define ARGUMENTS(argv, arg, ap)                                                                                       \
	va_list ap;                                                                                                    \
	__asm__("" : "+r"(arg)); /* it may be NULL, whatever libc's headers say */                                     \
	va_start(ap, arg);                                                                                             \
	size_t n_ = arg ? count(ap) : 0;                                                                               \
	va_end(ap);                                                                                                    \
	char **argv = __builtin_alloca((n_ + 1) * sizeof(char *));                                                     \
	va_start(ap, arg);                                                                                             \
	if (arg)                                                                                                       \
		collect(argv, arg, n_, ap);                                                                            \
	else                                                                                                           \
		argv[0] = NULL

int execl(const char *path, const char *arg, ...)
{
	ARGUMENTS(argv, arg, ap);
	va_end(ap);
	return execve(path, argv, environ);
}

int execlp(const char *file, const char *arg, ...)
{
	ARGUMENTS(argv, arg, ap);
	va_end(ap);
	return execvpe(file, argv, environ);
}

int execle(const char *path, const char *arg, ...)
{
	ARGUMENTS(argv, arg, ap);
	char **envp = va_arg(ap, char **);

	va_end(ap);
	return execve(path, argv, envp);
}

/* ---- with a fork inside ---- */

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
		char *const argv[], char *const envp[])
{
	rds_process_spreads();
	return rds_real.posix_spawn(pid, path, actions, attr, argv, envp);
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
		 char *const argv[], char *const envp[])
{
	rds_process_spreads();
	return rds_real.posix_spawnp(pid, file, actions, attr, argv, envp);
}

int system(const char *command)
{
	rds_process_spreads();
	return rds_real.system(command);
}

FILE *popen(const char *command, const char *mode)
{
	rds_process_spreads();
	return rds_real.popen(command, mode);
}

/* It has the shell expand $(commands). */
int wordexp(const char *words, wordexp_t *to, int flags)
{
	if (!(flags & WRDE_NOCMD))
		rds_process_spreads();
	return rds_real.wordexp(words, to, flags);
}
