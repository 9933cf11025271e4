/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * exec.c - new programs. Sockets that an exec keeps are handed off to the process that has the
 * numbers afterwards (share/handoff_out.c), and taken back if the exec fails.
 *
 * A child of vfork() or posix_spawn() hands nothing off: the process whose memory it shares stays
 * the owner. That process only has to know that others may have its sockets. But if it has no
 * helper yet, nothing would answer the new program, and vfork's child is the only process that can
 * do something about it (share/handoff_unbound.c).
 *
 * A program that has become another user passes the registry to the next one (node/inherited.c).
 * posix_spawn() does not: libc makes its child's calls, in which no wrapper takes part.
 *
 * Calls inside libc go through no wrapper and no fork handler. Where libc starts a program
 * (system(), popen(), wordexp()), its function is wrapped. pidfd_spawn() is not: where libc lacks
 * the name, a program that looks for it must not find it. Its children are noticed when they make a
 * call on a socket, or when this process ends.
 */
#include "preload/fdtable/fdtable.h"
#include "preload/calls/calls.h"

#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sys/log.h"
#include "engine/sys/os.h"

extern char **environ;

/*
 * The lock `control` is held: this function only looks. Does a number of the socket outlive an
 * exec, or may another process have one?
 */
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

static int exec_keeps_number(int fd, void *unused)
{
	int flags = libc_real.fcntl(fd, F_GETFD, NULL);

	(void)unused;
	return flags >= 0 && !(flags & FD_CLOEXEC) && rds_share_is_standin(fd);
}

/*
 * The next program needs the registry of its sockets, and cannot open it. Returns the descriptor
 * that carries it, or -1.
 */
static int exec_pass_registry(void)
{
	int keeps, carrier;

	if (likely(!rds_node_is_away()))
		return -1;
	keeps = os_fds_each(exec_keeps_number, NULL);
	if (keeps < 0)
		keeps = os_fds_probe(exec_keeps_number, NULL);
	if (keeps <= 0)
		return -1;
	carrier = rds_node_pass_on();
	if (carrier < 0)
		rds_warn("the next program cannot use the RDS sockets of this one alone: their registry cannot be "
			 "passed on: %s",
			 strerror(-carrier));
	return carrier < 0 ? -1 : carrier;
}

/* What exec_failed() undoes. */
struct exec_begun {
	unsigned left;
	bool ended;
	int carrier;
};

static struct exec_begun exec_begin(void)
{
	int saved = errno;
	struct os_limits limits;
	struct exec_begun b = {.carrier = -1};

	if (likely(!rds_fds_on()))
		return b;
	os_limits_raise(&limits);
	if (rds_fds_is_ours()) {
		reentry_call_begin();
		rds_fds_exec_begin();
		b.left = rds_handoff_out(exec_keeps_sock);
		if (!b.left)
			rds_fds_exec_end(false);
		rds_fds_park_orphans();
		/*
		 * What other processes, or sockets that end here, have sent goes first, as at an
		 * exit.
		 */
		rds_progress_exit();
		b.ended = true;
		reentry_call_end();
	} else {
		/* The variable is that of the process whose memory this one shares. */
		atomic_store(&rds_share_possible, true);
		rds_fds_handoff_kept();
	}
	b.carrier = exec_pass_registry();
	os_limits_restore(&limits); /* the new program inherits them */
	errno = saved;
	return b;
}

/* The exec has failed. */
static int exec_failed(int rc, struct exec_begun b)
{
	int saved = errno;

	if (b.carrier >= 0)
		libc_real.close(b.carrier);
	if (b.ended) {
		reentry_call_begin();
		rds_progress_exit_failed();
		reentry_call_end();
	}
	if (b.left) {
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
	struct exec_begun b = exec_begin();

	return exec_failed(libc_real.execve(path, argv, envp), b);
}

int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

int execvpe(const char *file, char *const argv[], char *const envp[])
{
	struct exec_begun b = exec_begin();

	return exec_failed(libc_real.execvpe(file, argv, envp), b);
}

int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

int fexecve(int fd, char *const argv[], char *const envp[])
{
	struct exec_begun b = exec_begin();

	return exec_failed(libc_real.fexecve(fd, argv, envp), b);
}

int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
	struct exec_begun b = exec_begin();

	return exec_failed(libc_real.execveat(dir, path, argv, envp, flags), b);
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

/*
 * The vector is on the stack: between fork and exec malloc may not be used. The asm statement hides
 * the value of `arg` from the compiler: it may be NULL, whatever libc's headers say.
 */
#define EXEC_ARGUMENTS(argv, arg, ap)                                                                                  \
	va_list ap;                                                                                                    \
	__asm__("" : "+r"(arg));                                                                                       \
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

/* libc starts a shell to expand $(commands). */
int wordexp(const char *words, wordexp_t *to, int flags)
{
	if (!(flags & WRDE_NOCMD))
		calls_process_share();
	return libc_real.wordexp(words, to, flags);
}
