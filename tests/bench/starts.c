/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * starts.c - how long until a new process has its first answer, and until a forked one has sent its
 * first message.
 *
 * A start is what "rds-ping" does: a program of its own with eight sockets, which sends a message
 * without bytes to port 0 of an address and waits for the answer.  The implementation of RDS at
 * that address answers.  The time is measured in the process that starts it, from before the fork
 * to the answer.  A forked process sends over a socket that its parent opened and still has.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKETS 8

static struct sockaddr_in port_zero(const char *host)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};

	if (inet_pton(AF_INET, host, &sin.sin_addr) != 1)
		die("an IPv4 address is needed, not '%s'", host);
	return sin;
}

/* What the child of a start does: writes a byte when the first answer is here. */
void run_ping(const struct options *o)
{
	struct sockaddr_in to = port_zero(o->host);
	int fds[SOCKETS], i;
	char answer[8];

	for (i = 0; i < SOCKETS; i++) {
		fds[i] = sock_rds(o->host);
		if (fds[i] < 0)
			die("socket: %s", strerror(errno));
	}
	if (sendto(fds[0], "", 0, 0, (struct sockaddr *)&to, sizeof(to)) != 0)
		die("ping: %s", strerror(errno));
	if (recv(fds[0], answer, sizeof(answer), 0) != 0)
		die("the answer to a ping: %s", strerror(errno));
	if (write(o->fd, "", 1) != 1)
		die("write: %s", strerror(errno));
}

static void ended_well(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status != 0)
		die("a process that was started ended with status %#x", (unsigned)status);
}

static void start(const struct options *o, char *self, struct samples *times)
{
	char host[80], fd[16], byte;
	char *argv[] = {self, (char *)"ping", (char *)"rds=1", host, fd, NULL};
	uint64_t begin = now_ns();
	int pipefd[2];
	pid_t pid;

	if (pipe(pipefd) < 0)
		die("pipe: %s", strerror(errno));
	snprintf(host, sizeof(host), "host=%s", o->host);
	snprintf(fd, sizeof(fd), "fd=%d", pipefd[1]);
	pid = fork();
	if (pid == 0) {
		close(pipefd[0]);
		execv(self, argv);
		_exit(127);
	}
	close(pipefd[1]);
	if (pid < 0 || read(pipefd[0], &byte, 1) != 1)
		die("a process that was started has no answer");
	samples_add(times, now_ns() - begin);
	close(pipefd[0]);
	ended_well(pid);
}

static void told(struct samples *times, unsigned n)
{
	say("result n=%u p50=%llu p99=%llu", n, (unsigned long long)samples_percentile(times, 50),
	    (unsigned long long)samples_percentile(times, 99));
	samples_free(times);
}

/* One after the other.  The starter has no RDS socket itself. */
void run_starts(const struct options *o)
{
	struct samples times = {0};
	char self[4096];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	unsigned i;

	if (len < 0)
		die("/proc/self/exe: %s", strerror(errno));
	self[len] = '\0';
	say("ready");
	hear("go", NULL, 0);
	for (i = 0; i < o->idle; i++)
		start(o, self, &times);
	told(&times, o->idle);
}

/* A child's first message, from before its call to after it; and who gets it is the parent. */
static uint64_t child_sends(int from, const struct sockaddr_storage *to, socklen_t tolen, uint64_t number)
{
	uint64_t took = 0, t;
	int pipefd[2];
	pid_t pid;

	if (pipe(pipefd) < 0)
		die("pipe: %s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		t = now_ns();
		if (sendto(from, &number, sizeof(number), 0, (const struct sockaddr *)to, tolen) != sizeof(number))
			_exit(1);
		t = now_ns() - t;
		_exit(write(pipefd[1], &t, sizeof(t)) != sizeof(t));
	}
	close(pipefd[1]);
	if (pid < 0 || read(pipefd[0], &took, sizeof(took)) != sizeof(took))
		die("a forked process could not send");
	close(pipefd[0]);
	ended_well(pid);
	return took;
}

void run_forked(const struct options *o)
{
	struct samples times = {0};
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);
	int from = sock_rds(o->host), to = sock_rds(o->host);
	uint64_t i, got;

	if (from < 0 || to < 0 || getsockname(to, (struct sockaddr *)&name, &len) < 0)
		die("socket: %s", strerror(errno));
	say("ready");
	hear("go", NULL, 0);
	for (i = 0; i < o->idle; i++) {
		samples_add(&times, child_sends(from, &name, len, i));
		if (recv(to, &got, sizeof(got), 0) != sizeof(got) || got != i)
			die("message %llu of a forked process did not come", (unsigned long long)i);
	}
	told(&times, o->idle);
}
