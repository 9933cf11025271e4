/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_getfd - a process takes another one's socket by pidfd_getfd(2), as sandboxes and
 * supervisors do, without the other one's knowledge; both have it then.  By libc's name, and by its
 * number, for libcs that have no name for it.
 */
#include "program.h"

#include <sys/syscall.h>

extern int pidfd_getfd(int pid, int fd, unsigned flags) __attribute__((weak));

struct given {
	struct sockaddr_in at;
	int fd;
};

static void owner(void *arg)
{
	int *ends = arg;
	struct given g;
	char c;

	g.fd = bound(&g.at);
	tell(ends[1], &g, sizeof(g));
	hear(ends[2], &c, 1);
}

static void expect(int fd, const char *what)
{
	char got[20];

	check(recv(fd, got, sizeof(got), 0) == (ssize_t)strlen(what) && memcmp(got, what, strlen(what)) == 0, "%s",
	      what);
}

static void say(int fd, const struct sockaddr_in *to, const char *what)
{
	check(sendto(fd, what, strlen(what), 0, (const struct sockaddr *)to, sizeof(*to)) == (ssize_t)strlen(what),
	      "%s", what);
}

static void take(void *by_number)
{
	int up[2], down[2], pid_fd, taken, mine;
	struct sockaddr_in me;
	struct given g;
	pid_t pid;

	check(pipe(up) == 0 && pipe(down) == 0, "pipe");
	pid = start(owner, (int[]){up[0], up[1], down[0]});
	hear(up[0], &g, sizeof(g));
	pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	check(pid_fd >= 0, "pidfd_open");
	taken = by_number ? (int)syscall(SYS_pidfd_getfd, pid_fd, g.fd, 0) : pidfd_getfd(pid_fd, g.fd, 0);
	check(taken >= 0, "pidfd_getfd");
	mine = bound(&me);
	say(mine, &g.at, "for the taker");
	expect(taken, "for the taker");
	say(taken, &me, "from the taker");
	expect(mine, "from the taker");
	tell(down[1], "x", 1);
	finished(pid);
	say(mine, &g.at, "after its end");
	expect(taken, "after its end");
	close(taken);
	close(mine);
	close(pid_fd);
}

int main(void)
{
	char by_number;

	finished(start(take, &by_number));
	if (pidfd_getfd)
		finished(start(take, NULL));
	printf("sockets that were taken from another process\n");
	return 0;
}
