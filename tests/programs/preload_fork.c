/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_fork - processes made in every way, before and after the first RDS socket.  A child talks
 * over sockets of its own; the parent's go on as if nothing had happened; a socket that a child has
 * inherited is the parent's as well.
 */
#include "program.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>

#define BIG 8192 /* short messages need no connection between two processes */

extern char **environ;

static struct sockaddr_in here;

static void expect(int fd, const char *want)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char text[BIG + 1] = "";

	check(poll(&p, 1, TEST_COMES) == 1, "no '%s'", want);
	check(recv(fd, text, sizeof(text), 0) == (ssize_t)strlen(want), "wanted '%s', got '%s'", want, text);
	check(strcmp(text, want) == 0, "wanted '%s', got '%s'", want, text);
}

static void say(int fd, const struct sockaddr_in *to, const char *text)
{
	check(sendto(fd, text, strlen(text), 0, (const struct sockaddr *)to, sizeof(*to)) == (ssize_t)strlen(text),
	      "sendto");
}

static void speak(const char *text)
{
	struct sockaddr_in me;
	int fd = bound(&me);

	say(fd, &here, text);
	close(fd);
}

/* The parent's socket, empty, which the child uses and closes. */
static void inherited(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
	struct timeval none = {0};
	struct sockaddr_in name;
	socklen_t len = sizeof(name);
	fd_set set;
	char c;
	int copy, n = (int)recv(fd, &c, 1, MSG_DONTWAIT);

	check(n == -1 && errno == EAGAIN, "recv on the parent's socket: %d", n);
	n = poll(&p, 1, TEST_COMES);
	check(n == 1 && p.revents == POLLOUT, "poll of the parent's socket: %d, %#x", n, (unsigned)p.revents);
	FD_ZERO(&set);
	FD_SET(fd, &set);
	n = select(fd + 1, &set, NULL, NULL, &none);
	check(n == 0, "select of the parent's socket: %d", n);
	check(getsockname(fd, (struct sockaddr *)&name, &len) == 0 && name.sin_port == here.sin_port, "name of it");
	say(fd, &here, "to itself");
	expect(fd, "to itself");
	copy = dup(fd);
	check(copy >= 0 && fcntl(copy, F_GETFL) >= 0 && fcntl(copy, F_SETFD, FD_CLOEXEC) == 0, "copy of it");
	check(close(fd) == 0, "close of it");
	say(copy, &here, "by a copy");
	expect(copy, "by a copy");
	check(close(copy) == 0, "close of the copy");
	check(close(fd) == -1 && errno == EBADF, "second close of it");
}

static void by_fork(int fd, pid_t (*make)(void), const char *text)
{
	pid_t pid = make();

	check(pid >= 0, "fork");
	if (pid == 0) {
		inherited(fd);
		speak(text);
		exit(0);
	}
	finished(pid);
	expect(fd, text);
}

/* The child shares our memory: it closes and replaces numbers, and the parent must not notice. */
static void by_vfork(int fd)
{
	pid_t pid = vfork();

	if (pid == 0) {
		dup2(fd, 200);
		dup2(fd, 1);
		for (int i = 3; i < 1024; i++)
			close(i);
		if (open("/dev/null", O_RDONLY) != 3 || dup2(3, fd) != fd)
			_exit(9);
		_exit(close_range(3, ~0U, 0) ? 8 : 0);
	}
	finished(pid);
}

static int in_clone(void *arg)
{
	char buf[8];

	(void)!recv(*(int *)arg, buf, sizeof(buf), MSG_DONTWAIT);
	return 0;
}

/*
 * The child shares our numbers and has a copy of our memory: what it makes of the latter must not
 * harm the former.
 */
static void by_clone(int fd)
{
	static _Alignas(16) char stack[1 << 16];

	finished(clone(in_clone, stack + sizeof(stack), CLONE_FILES | SIGCHLD, &fd));
	speak("after the child with our numbers");
	expect(fd, "after the child with our numbers");
}

static void by_spawn(void)
{
	char *argv[] = { "sh", "-c", "exit 0", NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addclose(&actions, 0);
	check(posix_spawn(&pid, "/bin/sh", &actions, NULL, argv, environ) == 0, "posix_spawn");
	finished(pid);
	posix_spawn_file_actions_destroy(&actions);
	check(system("exit 0") == 0, "system");
}

/* A daemon's child: fork, close everything, exit; many times. */
static void churn(int fd)
{
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			if (close_range(3, ~0U, 0))
				_exit(1);
			_exit(0);
		}
		finished(pid);
		speak("again");
		expect(fd, "again");
	}
}

/*
 * The child has the last copy of a socket that its parent has closed.  The socket stays open, even
 * if the parent makes others meanwhile, and ends with the child.
 */
static void last_copy(void)
{
	struct sockaddr_in at, other;
	int ends[2], fd, more[8];
	char c;
	pid_t pid;

	check(pipe(ends) == 0, "pipe");
	fd = bound(&at);
	pid = fork();
	if (pid == 0) {
		close(ends[1]);
		(void)!read(ends[0], &c, 1);
		_exit(0);
	}
	close(fd);
	for (int i = 0; i < 8; i++) {
		more[i] = bound(&other);
		check(other.sin_port != at.sin_port, "a port that is in use");
		say(more[i], &at, "nobody reads this");
		say(more[i], &other, "own");
		expect(more[i], "own");
	}
	fd = socket(PF_RDS, SOCK_SEQPACKET, 0);
	check(bind(fd, (struct sockaddr *)&at, sizeof(at)) == -1 && errno == EADDRINUSE, "the child's copy is forgotten");
	close(ends[1]);
	finished(pid);
	close(fd);
	fd = bound_again(&at);
	say(fd, &at, "again");
	expect(fd, "again");
	for (int i = 0; i < 8; i++)
		close(more[i]);
	close(ends[0]);
	close(fd);
}

/* A short question, then a long one. */
static void ask(const struct sockaddr_in *whom)
{
	char text[BIG + 1] = "are you there";
	struct sockaddr_in me;
	int fd = bound(&me);

	say(fd, whom, text);
	expect(fd, text);
	memset(text, 'y', BIG);
	say(fd, whom, text);
	expect(fd, text);
	close(fd);
}

/* A child speaks to a process that its parent has spoken to. */
static void same_partner(void)
{
	struct sockaddr_in at, from;
	socklen_t len = sizeof(from);
	pid_t partner, pid;
	int ends[2], fd;
	char text[BIG];

	check(pipe(ends) == 0, "pipe");
	partner = fork();
	if (partner == 0) {
		fd = bound(&at);
		check(write(ends[1], &at, sizeof(at)) == sizeof(at), "write");
		for (int i = 0; i < 4; i++) {
			ssize_t n = recvfrom(fd, text, sizeof(text), 0, (struct sockaddr *)&from, &len);

			check(n > 0 && sendto(fd, text, (size_t)n, 0, (struct sockaddr *)&from, len) == n, "answer");
		}
		exit(0);
	}
	check(read(ends[0], &at, sizeof(at)) == sizeof(at), "read");
	ask(&at);
	pid = fork();
	if (pid == 0) {
		ask(&at);
		exit(0);
	}
	finished(pid);
	finished(partner);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	struct sockaddr_in me;
	int early, fd;
	pid_t pid = fork(); /* nothing of RDS has happened yet */

	if (pid == 0) {
		early = bound(&me);
		close(early);
		exit(0);
	}
	finished(pid);
	fd = bound(&here);
	by_fork(fd, fork, "from a forked child");
	by_fork(fd, _Fork, "from a child without fork handlers");
	by_vfork(fd);
	by_clone(fd);
	by_spawn();
	speak("the parent itself");
	expect(fd, "the parent itself");
	churn(fd);
	last_copy();
	same_partner();

	/* The parent ends first: the child's own sockets do not mind. */
	early = bound(&me);
	pid = fork();
	if (pid == 0) {
		int own = bound(&here);

		say(own, &here, "alone");
		expect(own, "alone");
		exit(0);
	}
	close(early);
	finished(pid);
	close(fd);
	printf("fork, _Fork, vfork, posix_spawn\n");
	return 0;
}
