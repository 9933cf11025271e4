/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * second_object - another preloaded library, as there are many: counts calls of names that the
 * library has, too, and finds the function behind itself by RTLD_NEXT when it is first called;
 * listen() does so through libc's handle.  Its constructor, which runs before the library's if it
 * is behind that, starts children in every way.
 */
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

unsigned second_calls, second_closes;
const char *second_failed = "its constructor has not run";

static void *next(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		abort();
	return found;
}

#define FORWARD(count, ret, name, types, ...)                                                                          \
	static ret(*real_##name) types;                                                                                \
	if (!real_##name)                                                                                              \
		real_##name = (ret(*) types)next(#name);                                                               \
	__atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);                                                               \
	return real_##name(__VA_ARGS__)

int socket(int domain, int type, int protocol)
{
	FORWARD(second_calls, int, socket, (int, int, int), domain, type, protocol);
}

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	FORWARD(second_calls, int, bind, (int, const struct sockaddr *, socklen_t), fd, addr, len);
}

ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr, socklen_t alen)
{
	FORWARD(second_calls, ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t), fd, buf,
		len, flags, addr, alen);
}

ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	FORWARD(second_calls, ssize_t, recv, (int, void *, size_t, int), fd, buf, len, flags);
}

ssize_t read(int fd, void *buf, size_t len)
{
	FORWARD(second_calls, ssize_t, read, (int, void *, size_t), fd, buf, len);
}

int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	FORWARD(second_calls, int, poll, (struct pollfd *, nfds_t, int), fds, n, timeout);
}

int close(int fd)
{
	FORWARD(second_closes, int, close, (int), fd);
}

/*
 * Through libc's handle: past everything that is preloaded, so only sound where nothing else
 * follows.
 */
int listen(int fd, int backlog)
{
	static int (*real)(int, int);

	if (!real) {
		void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

		real = libc ? (int (*)(int, int))dlsym(libc, "listen") : NULL;
		if (!real)
			abort();
	}
	__atomic_add_fetch(&second_calls, 1, __ATOMIC_RELAXED);
	return real(fd, backlog);
}

static int ended_with(pid_t pid, int status)
{
	int got = -1;

	return pid > 0 && waitpid(pid, &got, __WALL) == pid && WIFEXITED(got) && WEXITSTATUS(got) == status;
}

static int in_clone(void *arg)
{
	(void)arg;
	return 6;
}

static pid_t by_clone(void)
{
	static _Alignas(16) char stack[1 << 16];

	return clone(in_clone, stack + sizeof(stack), SIGCHLD, NULL);
}

static pid_t by_exec(char *const argv[], int with_environment)
{
	pid_t pid = fork();

	if (pid == 0) {
		with_environment ? execvpe(argv[0], argv, environ) : execvp(argv[0], argv);
		_exit(99);
	}
	return pid;
}

static pid_t by_own_fork(void)
{
	pid_t pid = _Fork();

	if (pid == 0)
		_exit(8);
	return pid;
}

/* The one that daemon() leaves behind is waited for: its end closes the last copy of the line. */
static int daemon_goes(void)
{
	int line[2], all_gone;
	pid_t pid;
	char byte;

	if (pipe(line))
		return 0;
	pid = fork();
	if (pid == 0)
		_exit(daemon(1, 1) ? 99 : 0); /* of the two only the child comes back */
	close(line[1]);
	all_gone = read(line[0], &byte, 1) == 0;
	close(line[0]);
	return ended_with(pid, 0) && all_gone;
}

static int popen_reads(void)
{
	FILE *from = popen("echo 5", "r");
	int got = from ? fgetc(from) : -1;

	return from && pclose(from) == 0 && got == '5';
}

static int wordexp_expands(void)
{
	wordexp_t words;
	int right = wordexp("$(echo 7) b", &words, 0) == 0;

	right = right && words.we_wordc == 2 && strcmp(words.we_wordv[0], "7") == 0;
	if (right)
		wordfree(&words);
	return right;
}

/* The first call that has failed, or NULL. */
static const char *children(void)
{
	char *argv[] = { "sh", "-c", "exit 4", NULL };
	pid_t pid = -1;

	if (system("exit 7") != 7 << 8)
		return "system";
	if (!popen_reads())
		return "popen";
	if (posix_spawnp(&pid, "sh", NULL, NULL, argv, environ) || !ended_with(pid, 4))
		return "posix_spawnp";
	if (posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) || !ended_with(pid, 4))
		return "posix_spawn";
	if (!wordexp_expands())
		return "wordexp";
	if (!ended_with(by_clone(), 6))
		return "clone";
	if (!ended_with(by_own_fork(), 8))
		return "_Fork";
	if (!ended_with(by_exec(argv, 0), 4))
		return "execvp";
	if (!ended_with(by_exec(argv, 1), 4))
		return "execvpe";
	return daemon_goes() ? NULL : "daemon";
}

static void __attribute__((constructor)) begin(void)
{
	char *preload = getenv("LD_PRELOAD");

	close(dup(0));
	if (preload)
		preload = strdup(preload);
	unsetenv("LD_PRELOAD"); /* else the programs have us, too */
	second_failed = children();
	if (preload)
		setenv("LD_PRELOAD", preload, 1);
	free(preload);
}
