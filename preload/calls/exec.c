/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * exec.c - new programs: sockets that an exec keeps are left to whoever has the numbers afterwards (engine/share/handoff_out.c), and taken
 * back if the exec fails.
 *
 * A child of vfork() or posix_spawn() leaves nothing: the process whose memory it shares goes on carrying them.  That process only has to
 * know that others may have its sockets.  But if that has no helper yet nobody would answer the new program, and vfork's child is the only one
 * that can do something about it (engine/share/handoff_unbound.c).
 *
 * What libc calls inside itself passes no wrapper and no atfork handler: where it starts a program (system(), popen(), wordexp()), the name of that
 * is wrapped.  Not so pidfd_spawn(): where libc lacks the name, a program that looks for it must not find it.  Its
 * children are known when they make a call on a socket, or when this process ends.
 */
#include "preload/fdtable/fdtable.h"
#include "preload/calls/calls.h"

#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>

extern char **environ;

/* control is held: look, and no more.  Does a number of it outlive an exec, or has somebody else one, perhaps? */
static bool exec_keeps_sock(struct rds_sock *sk)
{
	if (rds_share_is_possible())
		return true;
	for (int fd = 0; fd < rds_fds_top(); fd++) {
		int flags;

		if (rds_fds_peek(fd) != (uintptr_t)sk)
			continue;
		flags = libc_real.fcntl(fd, F_GETFD, NULL);
		if (flags >= 0 && !(flags & FD_CLOEXEC))
			return true;
	}
	return false;
}

static unsigned exec_begin(void)
{
	int saved = errno;
	unsigned left = 0;

	if (likely(!rds_fds_on()))
		return 0;
	if (rds_fds_is_ours()) {
		reentry_call_begin();
		rds_fds_exec_begin();
		left = rds_handoff_out(exec_keeps_sock);
		if (!left)
			rds_fds_exec_end(false);
		rds_fds_park_orphans();
		rds_progress_exit(); /* what others, or sockets that end here, have sent goes first, as at an exit */
		reentry_call_end();
	} else {
		atomic_store(&rds_share_possible, true); /* of the process that we share our memory with */
		rds_fds_handoff_kept();
	}
	errno = saved;
	return left;
}

/* It has failed. */
static int exec_failed(int rc, unsigned left)
{
	int saved = errno;

	if (left) {
		reentry_call_begin();
		rds_handoff_cancel();
		rds_fds_exec_end(true);
		reentry_call_end();
	}
	errno = saved;
	return rc;
}

int execve(const char *path, char *const argv[], char *const envp[])
{
	unsigned left = exec_begin();

	return exec_failed(libc_real.execve(path, argv, envp), left);
}

int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

int execvpe(const char *file, char *const argv[], char *const envp[])
{
	unsigned left = exec_begin();

	return exec_failed(libc_real.execvpe(file, argv, envp), left);
}

int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

int fexecve(int fd, char *const argv[], char *const envp[])
{
	unsigned left = exec_begin();

	return exec_failed(libc_real.fexecve(fd, argv, envp), left);
}

int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
	unsigned left = exec_begin();

	return exec_failed(libc_real.execveat(dir, path, argv, envp, flags), left);
}

/* ---- arguments one by one ---- */

static size_t exec_args_count(va_list ap)
{
	size_t n = 1;

	while (va_arg(ap, char *))
		n++;
	return n;
}

static void exec_args_collect(char **argv, const char *arg, size_t n, va_list ap)
{
	argv[0] = (char *)(uintptr_t)arg;
	for (size_t i = 1; i <= n; i++)
		argv[i] = va_arg(ap, char *);
}

/* On the stack: between fork and exec there may be no malloc. */
#define EXEC_ARGUMENTS(argv, arg, ap)                                                                                  \
	va_list ap;                                                                                                    \
	__asm__("" : "+r"(arg)); /* it may be NULL, whatever libc's headers say */                                     \
	va_start(ap, arg);                                                                                             \
	size_t n_ = arg ? exec_args_count(ap) : 0;                                                                     \
	va_end(ap);                                                                                                    \
	char **argv = __builtin_alloca((n_ + 1) * sizeof(char *));                                                     \
	va_start(ap, arg);                                                                                             \
	if (arg)                                                                                                       \
		exec_args_collect(argv, arg, n_, ap);                                                                  \
	else                                                                                                           \
		argv[0] = NULL

int execl(const char *path, const char *arg, ...)
{
	EXEC_ARGUMENTS(argv, arg, ap);
	va_end(ap);
	return execve(path, argv, environ);
}

int execlp(const char *file, const char *arg, ...)
{
	EXEC_ARGUMENTS(argv, arg, ap);
	va_end(ap);
	return execvpe(file, argv, environ);
}

int execle(const char *path, const char *arg, ...)
{
	EXEC_ARGUMENTS(argv, arg, ap);
	char **envp = va_arg(ap, char **);

	va_end(ap);
	return execve(path, argv, envp);
}

/* ---- with a fork inside ---- */

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
		char *const argv[], char *const envp[])
{
	calls_process_share();
	return libc_real.posix_spawn(pid, path, actions, attr, argv, envp);
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
		 char *const argv[], char *const envp[])
{
	calls_process_share();
	return libc_real.posix_spawnp(pid, file, actions, attr, argv, envp);
}

int system(const char *command)
{
	calls_process_share();
	return libc_real.system(command);
}

FILE *popen(const char *command, const char *mode)
{
	calls_process_share();
	return libc_real.popen(command, mode);
}

/* It has the shell expand $(commands). */
int wordexp(const char *words, wordexp_t *to, int flags)
{
	if (!(flags & WRDE_NOCMD))
		calls_process_share();
	return libc_real.wordexp(words, to, flags);
}
