/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * program.h - what the small programs of this directory share.
 *
 * Each is a plain PF_RDS program in the pattern of a public one.  It uses nothing of the project
 * but slow.h, so that it runs on kernel RDS as well as under the preload, and checks what it sees:
 * the first wrong thing ends it with status 1 and a line that names file and line.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../slow.h"

#ifndef PF_RDS
#define PF_RDS 21
#endif

__attribute__((noreturn, format(printf, 3, 4))) static inline void program_fail(const char *file, int line,
										const char *fmt, ...)
{
	int err = errno;
	va_list ap;

	fprintf(stderr, "%s:%d: pid %d: ", file, line, (int)getpid());
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (errno %d, %s)\n", err, strerror(err));
	exit(1);
}

#define check(cond, ...)                                                                                               \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			program_fail(__FILE__, __LINE__, #cond ": " __VA_ARGS__);                                      \
	} while (0)

/* If it hangs. */
__attribute__((constructor)) static void shows_stacks(void)
{
	test_shows_stacks();
}

/*
 * Runs in a process of its own, as two programs on one node do; the caller has no RDS socket yet.
 */
static inline pid_t start(void (*role)(void *), void *arg)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	check(pid >= 0, "fork");
	if (pid == 0) {
		role(arg);
		exit(0);
	}
	return pid;
}

/* It has ended well, or is late, and so are we. */
static inline void finished(pid_t pid)
{
	int status = 0;

	check(waitpid(pid, &status, 0) == pid, "waitpid");
	if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_LATE)
		test_late("process %d", (int)pid);
	check(status == 0, "pid %d ended with status %#x", (int)pid, (unsigned)status);
}

static inline struct sockaddr_in loopback(unsigned short port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = port};

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return sin;
}

/* A socket bound to 127.0.0.1 and a port that the system chose; the address goes to *sin. */
static inline int bound(struct sockaddr_in *sin)
{
	socklen_t len = sizeof(*sin);
	int fd = socket(PF_RDS, SOCK_SEQPACKET, 0);

	check(fd >= 0, "socket");
	*sin = loopback(0);
	check(bind(fd, (struct sockaddr *)sin, sizeof(*sin)) == 0, "bind");
	check(getsockname(fd, (struct sockaddr *)sin, &len) == 0 && len == sizeof(*sin), "getsockname");
	check(sin->sin_family == AF_INET && sin->sin_port != 0, "family %d, port %d", sin->sin_family, sin->sin_port);
	return fd;
}

/* The two ends of a pipe pass what processes tell each other outside RDS. */
static inline void tell(int fd, const void *data, size_t len)
{
	check(write(fd, data, len) == (ssize_t)len, "pipe");
}

static inline void hear(int fd, void *data, size_t len)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	ssize_t n;

	check(poll(&p, 1, TEST_COMES) == 1, "the other process says nothing");
	n = read(fd, data, len);
	check(n == (ssize_t)len, "the other process said %zd bytes instead of %zu", n, len);
}

/* How many this process has open, and a few more. */
static inline int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	check(dir != NULL, "/proc/self/fd");
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Two new sockets do what sockets do. */
static inline void works(void)
{
	struct sockaddr_in a, b;
	int x = bound(&a), y = bound(&b);
	struct pollfd p = {.fd = y, .events = POLLIN};
	char c = 0;

	check(sendto(x, "!", 1, 0, (struct sockaddr *)&b, sizeof(b)) == 1, "sendto");
	check(poll(&p, 1, TEST_COMES) == 1 && recv(y, &c, 1, 0) == 1 && c == '!', "recv");
	close(x);
	close(y);
}

/* A socket at that port, as soon as no process has it any more. */
static inline int bound_again(const struct sockaddr_in *at)
{
	int fd = socket(PF_RDS, SOCK_SEQPACKET, 0), rc;

	check(fd >= 0, "socket");
	test_await((rc = bind(fd, (const struct sockaddr *)at, sizeof(*at))) == 0 || errno != EADDRINUSE,
		   "for port %d, which nobody has any more", ntohs(at->sin_port));
	check(rc == 0, "bind to port %d", ntohs(at->sin_port));
	return fd;
}

/* That port is free again. */
static inline int rebind(const struct sockaddr_in *at)
{
	int fd = socket(PF_RDS, SOCK_SEQPACKET, 0);

	check(fd >= 0, "socket");
	check(bind(fd, (const struct sockaddr *)at, sizeof(*at)) == 0, "port %d is not free", at->sin_port);
	return fd;
}

/* The library's helper thread; 0: there is none, as on kernel RDS. */
static inline int helper_thread(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *e;
	int found = 0;

	check(tasks != NULL, "/proc/self/task");
	while ((e = readdir(tasks))) {
		char path[300], name[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f) && strcmp(name, "rdspreload\n") == 0)
			found = atoi(e->d_name);
		if (f)
			fclose(f);
	}
	closedir(tasks);
	return found;
}

#endif
