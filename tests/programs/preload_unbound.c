/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_unbound - a socket that has no name yet, in a process that has never bound one, goes to a
 * child, in every way that runs no fork handlers.  Its parent sits in waitpid() while the child
 * finds the options that were set, binds the socket and leaves a message in its queue; then it goes
 * on with the socket itself.  Each way in a process of its own: what the first bind has started
 * would help the next one.  Last: a receive with a timeout on such a socket, which ends.
 */
#include "program.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/rds.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/time.h>

#ifndef SOL_RDS
#define SOL_RDS 276
#endif

extern char **environ;

enum { SNDBUF = 70000, SECONDS = 7, PEER = 4711 };

static int *usual; /* how many descriptors are open at the end; of all processes */
static char self[] = "/proc/self/exe";
static char number[16];
static char *to_child[] = {"preload_unbound", "child", number, NULL};

/* ---- the socket ---- */

static void set_options(int fd)
{
	struct sockaddr_in peer = loopback(htons(PEER));
	struct timeval tv = {.tv_sec = SECONDS};
	int size = SNDBUF, one = 1;

	check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0, "SO_SNDBUF");
	check(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0, "SO_RCVTIMEO");
	check(setsockopt(fd, SOL_RDS, RDS_RECVERR, &one, sizeof(one)) == 0, "RDS_RECVERR");
	check(connect(fd, (struct sockaddr *)&peer, sizeof(peer)) == 0, "connect");
}

static void look_at_options(int fd)
{
	struct sockaddr_in peer;
	struct timeval tv = {0};
	int size = 0, one = 0;
	socklen_t len = sizeof(size);

	check(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &len) == 0 && size == 2 * SNDBUF, "SO_SNDBUF: %d", size);
	len = sizeof(tv);
	check(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, &len) == 0 && tv.tv_sec == SECONDS, "SO_RCVTIMEO");
	len = sizeof(one);
	check(getsockopt(fd, SOL_RDS, RDS_RECVERR, &one, &len) == 0 && one == 1, "RDS_RECVERR");
	len = sizeof(peer);
	check(getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sin_port == htons(PEER), "getpeername");
}

static void speak(int fd, const char *text)
{
	struct sockaddr_in me;
	socklen_t len = sizeof(me);

	check(getsockname(fd, (struct sockaddr *)&me, &len) == 0 && me.sin_port, "its name: port %d",
	      ntohs(me.sin_port));
	check(sendto(fd, text, strlen(text), 0, (struct sockaddr *)&me, len) == (ssize_t)strlen(text), "sendto");
}

static void expect(int fd, const char *want)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char text[64] = "";

	check(poll(&p, 1, TEST_COMES) == 1 && p.revents == POLLIN, "no '%s': %#x", want, (unsigned)p.revents);
	check(recv(fd, text, sizeof(text), 0) == (ssize_t)strlen(want) && !strcmp(text, want), "'%s', not '%s'", text,
	      want);
}

static int unnamed(int fd)
{
	struct sockaddr_in me = {0};
	socklen_t len = sizeof(me);

	return getsockname(fd, (struct sockaddr *)&me, &len) == 0 && me.sin_port == 0;
}

/* ---- the child ---- */

static int child(int fd)
{
	struct sockaddr_in any = loopback(0);

	alarm(test_alarm(60));
	look_at_options(fd);
	check(unnamed(fd), "it has a name");
	check(bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0, "bind");
	speak(fd, "between");
	expect(fd, "between");
	speak(fd, "left");
	return 0;
}

static int copy(void *fd)
{
	_exit(child(*(int *)fd));
}

/* ---- the ways there ---- */

static _Alignas(16) char stack[1 << 16];
static volatile int failed;

static pid_t by_vfork(int fd)
{
	pid_t pid = vfork();

	(void)fd;
	if (pid == 0) {
		execv(self, to_child);
		_exit(9);
	}
	return pid;
}

/* As programs look through PATH. */
static pid_t by_second_exec(int fd)
{
	pid_t pid = vfork();

	(void)fd;
	if (pid == 0) {
		failed = execve("/nowhere/there", to_child, environ);
		failed &= execve("/etc/hostname", to_child, environ);
		execve(self, to_child, environ);
		_exit(9);
	}
	check(failed == -1, "a program that does not exist");
	return pid;
}

/* As an inetd does it: standard input, and nothing else is open. */
static pid_t by_inetd(int fd)
{
	pid_t pid;

	number[0] = '0';
	number[1] = 0;
	pid = vfork();
	if (pid == 0) {
		dup2(fd, 0);
		for (int i = 3; i < 70000; i++)
			close(i);
		execve(self, to_child, environ);
		_exit(9);
	}
	return pid;
}

/* The same by other calls, of a socket that does not outlive an exec otherwise. */
static pid_t by_flags(int fd)
{
	pid_t pid;

	check(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0, "F_SETFD");
	pid = vfork();
	if (pid == 0) {
		fcntl(fd, F_SETFD, 0);
		close_range((unsigned)fd + 1, ~0U, 0);
		execve(self, to_child, environ);
		_exit(9);
	}
	return pid;
}

static pid_t by_spawn(int fd)
{
	pid_t pid = -1;

	(void)fd;
	check(posix_spawn(&pid, self, NULL, NULL, to_child, environ) == 0, "posix_spawn");
	return pid;
}

static pid_t by_bare_fork(int fd)
{
	pid_t pid = _Fork();

	if (pid == 0)
		copy(&fd);
	return pid;
}

static pid_t by_fork_and_exec(int fd)
{
	pid_t pid = _Fork();

	(void)fd;
	if (pid == 0) {
		execv(self, to_child);
		_exit(9);
	}
	return pid;
}

static pid_t by_clone(int fd)
{
	return clone(copy, stack + sizeof(stack), SIGCHLD, &fd);
}

static int execs(void *arg)
{
	(void)arg;
	execv(self, to_child);
	_exit(9);
}

static pid_t by_clone_of_memory(int fd)
{
	return clone(execs, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &fd);
}

static const struct {
	const char *name;
	pid_t (*start)(int fd);
} ways[] = {
	{"posix_spawn", by_spawn}, /* the first: it starts a helper */
	{"vfork", by_vfork},	   {"a failed exec", by_second_exec},
	{"inetd", by_inetd},	   {"flags", by_flags},
	{"_Fork", by_bare_fork},   {"_Fork and exec", by_fork_and_exec},
	{"clone", by_clone},	   {"clone with memory", by_clone_of_memory},
};

/* ---- the parent ---- */

static int unnamed_socket(void)
{
	int fd = socket(PF_RDS, SOCK_SEQPACKET, 0);

	check(fd >= 0, "socket");
	set_options(fd);
	snprintf(number, sizeof(number), "%d", fd);
	return fd;
}

/*
 * Where a helper was there from the start it is as many.  What goes with a close may go with the
 * next call, or that after it.
 */
static void nothing_left(void)
{
	int least = INT_MAX, tries, n;
	unsigned looks = 0;

	for (tries = 0; tries < (*usual ? 50 : 500) || (*usual && least > *usual); tries++) {
		close(socket(PF_RDS, SOCK_SEQPACKET, 0));
		n = descriptors();
		least = n < least ? n : least;
		if (tries == 500)
			fprintf(stderr, "still waits: %d descriptors are left, not %d\n", least, *usual);
		if (tries < 500)
			usleep(1000);
		else
			test_pause(&looks);
	}
	if (!*usual)
		*usual = least;
	check(least == *usual, "%d descriptors are left, not %d", least, *usual);
}

/* Also that it is ended for everybody by the last close. */
static void one(void *arg)
{
	pid_t (*start_child)(int fd) = *(pid_t(*const *)(int))arg;
	struct sockaddr_in name;
	socklen_t len = sizeof(name);
	int fd = unnamed_socket();

	alarm(test_alarm(60));
	finished(start_child(fd));
	look_at_options(fd);
	expect(fd, "left");
	speak(fd, "own");
	expect(fd, "own");
	check(getsockname(fd, (struct sockaddr *)&name, &len) == 0, "getsockname");
	check(close(fd) == 0 && fcntl(fd, F_GETFD) == -1, "close");
	check(close(bound_again(&name)) == 0, "close");
	nothing_left();
}

/* A program that uses no socket, or that does not exist. */
static void runs(const char *path)
{
	pid_t pid = vfork();

	if (pid == 0) {
		execl(path, "true", NULL);
		_exit(0);
	}
	finished(pid);
}

static int threads(void)
{
	struct dirent *e;
	DIR *dir = opendir("/proc/self/task");
	int n = 0;

	check(dir != NULL, "/proc/self/task");
	while ((e = readdir(dir)))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* It has not been used by who has it: it is as it was. */
static void unused(void *arg)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT};
	struct sockaddr_in any = loopback(0);
	int fd = unnamed_socket(), other = unnamed_socket(), ep = epoll_create1(0);
	struct pollfd p[2] = {{.fd = other, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	char c;

	(void)arg;
	alarm(test_alarm(60));
	/* the kernel tells each socket once of changes of congestion before its time */
	poll(p, 2, 0);
	check(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "epoll_ctl");
	runs("/nowhere/there");
	runs("/bin/true");
	check(epoll_wait(ep, &ev, 1, TEST_COMES) == 1 && ev.events == EPOLLOUT, "epoll: %#x", ev.events);
	check(poll(p, 1, 0) == 0, "poll: %#x", (unsigned)p[0].revents);
	check(recv(other, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "recv");
	check(bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0, "bind");
	speak(fd, "own");
	check(epoll_wait(ep, &ev, 1, TEST_COMES) == 1 && (ev.events & EPOLLIN), "epoll of what came: %#x", ev.events);
	expect(fd, "own");
	check(close(other) == 0 && close(fd) == 0 && close(ep) == 0, "close");
}

/* A child that executes nothing, or nothing that gets the socket: nothing has happened. */
static void untouched(void *arg)
{
	int fd = unnamed_socket(), before = descriptors();
	pid_t pid;

	(void)arg;
	alarm(test_alarm(60));
	pid = vfork();
	if (pid == 0)
		_exit(0);
	finished(pid);
	check(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0, "F_SETFD");
	runs("/bin/true");
	look_at_options(fd);
	check(threads() == 1, "it has a thread");
	check(unnamed(fd) && descriptors() == before, "%d descriptors were open, now %d", before, descriptors());
	close(fd);
}

/* The parent does nothing with it but close it. */
static void closed(void *arg)
{
	int before;

	(void)arg;
	alarm(test_alarm(60));
	close(unnamed_socket());
	before = descriptors();
	for (int i = 0; i < 3; i++) {
		int fd = unnamed_socket();

		runs("/bin/true");
		check(close(fd) == 0 && fcntl(fd, F_GETFD) == -1, "close");
	}
	check(threads() == 1, "it has a thread");
	check(descriptors() == before, "%d descriptors were open, now %d", before, descriptors());
}

/* Whoever is killed with it, the other one has it, once both have made a call on it. */
static void killed(void *arg)
{
	struct sockaddr_in any = loopback(0);
	int fd = unnamed_socket(), ends[2];
	pid_t pid;
	char c = 0;

	(void)arg;
	alarm(test_alarm(60));
	check(pipe(ends) == 0, "pipe");
	pid = _Fork();
	if (pid == 0) {
		if (bind(fd, (struct sockaddr *)&any, sizeof(any)) || write(ends[1], &c, 1) != 1)
			_exit(9);
		for (;;)
			pause();
	}
	hear(ends[0], &c, 1);
	check(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid, "kill");
	look_at_options(fd);
	speak(fd, "own");
	expect(fd, "own");
	close(fd);
}

static void timed(void *arg)
{
	struct timeval tv = {.tv_usec = 50000};
	int fd = socket(PF_RDS, SOCK_SEQPACKET, 0);
	char c;

	(void)arg;
	check(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0, "SO_RCVTIMEO");
	check(recv(fd, &c, 1, 0) == -1 && errno == ETIMEDOUT, "recv");
}

int main(int argc, char **argv)
{
	if (argc > 2)
		return child(atoi(argv[2]));
	usual = mmap(NULL, sizeof(*usual), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(usual != MAP_FAILED, "mmap");
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		printf("%s\n", ways[i].name);
		finished(start(one, (void *)(uintptr_t)&ways[i].start));
	}
	finished(start(unused, NULL));
	finished(start(untouched, NULL));
	finished(start(closed, NULL));
	finished(start(killed, NULL));
	finished(start(timed, NULL));
	printf("sockets without a name go to children of %zu kinds\n", sizeof(ways) / sizeof(ways[0]));
	return 0;
}
