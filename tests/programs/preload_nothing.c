/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_nothing - a program without RDS sockets has the same threads, descriptors and mappings as
 * without the preload, but for the library itself.  It runs itself once more without LD_PRELOAD and
 * compares.
 */
#include "program.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/select.h>

struct count {
	int threads, fds, named, unnamed;
};

/* Ordinary life: every family of interposed calls, on other descriptors. */
static void live(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct timeval tv = { 0, 1000 };
	int p[2], sv[2], ep = epoll_create1(0), fd = open("/dev/null", O_RDWR), copy = dup(fd);
	struct pollfd pfd;
	char c;
	fd_set r;

	check(pipe(p) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, sv) == 0, "pipe, socketpair");
	check(write(p[1], "x", 1) == 1 && read(p[0], &c, 1) == 1, "pipe");
	check(send(sv[0], "x", 1, 0) == 1 && recv(sv[1], &c, 1, 0) == 1, "socketpair");
	pfd = (struct pollfd){ .fd = p[0], .events = POLLIN };
	check(poll(&pfd, 1, 1) == 0, "poll");
	FD_ZERO(&r);
	FD_SET(p[0], &r);
	check(select(p[0] + 1, &r, NULL, NULL, &tv) == 0, "select");
	check(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev) == 0 && epoll_wait(ep, &ev, 1, 1) == 0, "epoll");
	check(open("/no/such", O_RDONLY) == -1 && dup2(fd, copy) == copy, "open, dup2");
	for (int *i = (int[]){ ep, fd, copy, p[0], p[1], sv[0], sv[1], -1 }; *i >= 0; i++)
		check(close(*i) == 0, "close");
	finished(start((void (*)(void *))close, (void *)0));
}

static int entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	check(dir, "%s", path);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static struct count look(void)
{
	struct count c = { entries("/proc/self/task"), entries("/proc/self/fd"), 0, 0 };
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long begin, end, library_end = 0;
	char line[4352], path[4096];

	check(f, "maps");
	while (fgets(line, sizeof(line), f)) {
		int n = sscanf(line, "%lx-%lx %*s %*s %*s %*s %4095s", &begin, &end, path);

		if (n == 3 && strstr(path, "librdspreload"))
			library_end = end;
		else if (n == 2 && begin == library_end)
			continue; /* its zero-initialised data */
		else if (n == 3)
			c.named++;
		else
			c.unnamed++;
	}
	fclose(f);
	return c;
}

static int preloaded(void)
{
	const char *preload = getenv("LD_PRELOAD");

	return preload && strstr(preload, "librdspreload");
}

int main(int argc, char **argv)
{
	struct count with, without;
	int p[2];
	pid_t pid;

	live();
	with = look();
	if (argc == 2) {
		check(write(atoi(argv[1]), &with, sizeof(with)) == sizeof(with), "write");
		return 0;
	}
	if (!preloaded()) {
		printf("not under the preload: nothing to compare\n");
		return 0;
	}
	check(pipe(p) == 0, "pipe");
	pid = fork();
	check(pid >= 0, "fork");
	if (pid == 0) {
		char number[16];
		int fd = dup2(p[1], 200);

		close(p[0]);
		close(p[1]);
		snprintf(number, sizeof(number), "%d", fd);
		unsetenv("LD_PRELOAD");
		execl("/proc/self/exe", argv[0], number, (char *)NULL);
		_exit(127);
	}
	hear(p[0], &without, sizeof(without));
	finished(pid);
	check(with.threads == without.threads, "%d threads, %d without", with.threads, without.threads);
	check(with.fds == without.fds - 1, "%d descriptors, %d without", with.fds, without.fds - 1);
	check(with.named == without.named, "%d named mappings, %d without", with.named, without.named);
	check(with.unnamed <= without.unnamed, "%d unnamed mappings, %d without", with.unnamed, without.unnamed);
	printf("no thread, descriptor or mapping\n");
	return 0;
}
