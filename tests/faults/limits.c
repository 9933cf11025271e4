/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * limits.c soft|hard - a process shares a socket, and sets itself a limit of file sizes or of
 * descriptors after it has bound the socket. The library needs files and descriptors for what
 * processes leave to each other. No signal ends the process. With a soft limit nothing is lost, and
 * the next program has the same limit.
 *
 * hard: the process may not raise the limit. What fits is not lost then, and the socket is not.
 *
 * A plain PF_RDS program.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "faults.h"

#define PORT 29000
#define LONG 100000 /* in no packet */
#define FILE_SIZE 4096

static char buf[LONG];
static bool hard;

static void limit(__rlimit_resource_t what, rlim_t to)
{
	struct rlimit l;

	check(getrlimit(what, &l) == 0);
	l.rlim_cur = to;
	if (hard)
		l.rlim_max = to;
	check(setrlimit(what, &l) == 0);
}

static void ended(pid_t pid, const char *who)
{
	int status;

	check(waitpid(pid, &status, 0) == pid);
	if (status)
		fail("%s ended with %#x", who, (unsigned)status);
}

static pid_t begin(void)
{
	pid_t pid = fork();

	check(pid >= 0);
	if (!pid)
		alarm(test_alarm(60));
	return pid;
}

static ssize_t put(int fd, unsigned port, size_t len)
{
	struct sockaddr_in to = name_of(home(), port);

	return sendto(fd, buf, len, 0, (struct sockaddr *)&to, sizeof(to));
}

static ssize_t get(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, TEST_COMES) == 1 ? recv(fd, buf, sizeof(buf), MSG_DONTWAIT) : -1;
}

static void is_got(int fd, ssize_t len, const char *from)
{
	ssize_t n = get(fd);

	if (n != len)
		fail("%zd bytes instead of %zd, from %s: %s", n, len, from, n < 0 ? strerror(errno) : "");
}

/* Its message is too long for the channel. While it lives, its soft limit is not raised either. */
static void borrower(void)
{
	int fd = rds_bound(home(), PORT), to = rds_bound(home(), PORT + 1);
	pid_t pid = begin();

	if (!pid) {
		limit(RLIMIT_FSIZE, FILE_SIZE);
		check(put(fd, PORT + 1, LONG) == -1 && errno == EFBIG);
		check(put(fd, PORT + 1, 5) == 5);
		_exit(0);
	}
	ended(pid, "a borrower");
	is_got(to, 5, "a borrower");
	close(fd);
	close(to);
}

/* Its queue is long; another process has the socket, and goes on with it. */
static void owner(__rlimit_resource_t what, rlim_t to, unsigned port)
{
	int go[2], status;
	pid_t pid;
	char c;

	check(pipe(go) == 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	pid = begin();
	if (!pid) {
		int fd = rds_bound(home(), port);

		if (!begin()) {
			check(close(go[1]) == 0 && read(go[0], &c, 1) == 0); /* it has ended */
			is_got(fd, 5, "an owner");
			if (!hard)
				is_got(fd, LONG, "an owner");
			check(put(fd, port, 7) == 7);
			is_got(fd, 7, "the next owner");
			_exit(0);
		}
		check(put(fd, port, 5) == 5 && put(fd, port, LONG) == LONG);
		limit(what, to);
		exit(0);
	}
	close(go[0]);
	close(go[1]);
	ended(pid, "an owner");
	check(wait(&status) > 0);
	if (status)
		fail("the next owner ended with %#x", (unsigned)status);
}

/* With its socket, and so with one that is handed off. */
static void execs(void)
{
	pid_t pid = begin();
	int fd;

	if (!pid) {
		fd = rds_bound(home(), PORT + 4);
		check(put(fd, PORT + 4, 5) == 5);
		limit(RLIMIT_NOFILE, 50);
		execlp("sh", "sh", "-c", "test $(ulimit -Sn) = 50", NULL);
		_exit(99);
	}
	ended(pid, "a program with its limit");
}

int main(int argc, char **argv)
{
	hard = argc > 1 && !strcmp(argv[1], "hard");
	alarm(test_alarm(60));
	borrower();
	owner(RLIMIT_FSIZE, FILE_SIZE, PORT + 2);
	if (!hard) {
		owner(RLIMIT_NOFILE, 0, PORT + 3);
		execs();
	}
	printf("ok: nobody was ended by a limit\n");
	return 0;
}
