/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_close - numbers that are copied, replaced and closed in bulk.  Whatever a program does to
 * all numbers it sees, sockets that it makes afterwards work; the last close, by any way, frees the
 * port at once.
 */
#include "program.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static void sharing(void)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	int fd = bound(&at), copy = dup(fd), far = fcntl(fd, F_DUPFD_CLOEXEC, 100), over = dup2(fd, 60);
	struct stat one, two;
	char c;

	check(far >= 100 && over == 60 && (fcntl(far, F_GETFD) & FD_CLOEXEC), "copies");
	check(fcntl(copy, F_SETFL, O_NONBLOCK) == 0 && (fcntl(far, F_GETFL) & O_NONBLOCK), "O_NONBLOCK is shared");
	check(recv(over, &c, 1, 0) == -1 && errno == EAGAIN, "O_NONBLOCK acts on a copy");
	check(fstat(fd, &one) == 0 && fstat(far, &two) == 0 && one.st_ino == two.st_ino && S_ISSOCK(one.st_mode), "inode");
	check(close(fd) == 0 && close(copy) == 0 && close(over) == 0, "close");
	check(getsockname(far, (struct sockaddr *)&at, &len) == 0 && at.sin_port, "the last copy lives");
	check(close(far) == 0, "close");
	close(rebind(&at));
}

static int is_free(const struct sockaddr_in *at)
{
	int fd = socket(PF_RDS, SOCK_SEQPACKET, 0), rc = bind(fd, (const struct sockaddr *)at, sizeof(*at));

	check(rc == 0 || errno == EADDRINUSE || errno == EBADF, "bind");
	close(fd);
	return rc == 0;
}

/* Ways to close that never come past close(). */
static void other_ways(void)
{
	struct sockaddr_in at;
	int fd = bound(&at), null = open("/dev/null", O_RDWR), tries;
	FILE *f = fdopen(fd, "r");

	check(f && fclose(f) == 0, "fclose");
	test_await(is_free(&at), "for the port, after fclose()"); /* only the kernel can tell of it: not at once */

	fd = bound(&at);
	for (tries = 0; tries < 300; tries++) {
		check(dup2(null, fd) == fd && write(fd, "x", 1) == 1, "dup2 of a file over a socket");
		close(fd);
		fd = rebind(&at);
	}
	close(fd);
	close(null);
}

static int highest(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *d;
	int top = 0;

	check(dir, "/proc/self/fd");
	while ((d = readdir(dir)))
		if (atoi(d->d_name) > top)
			top = atoi(d->d_name);
	closedir(dir);
	return top;
}

/* Every number in sight, also those that the program has never opened. */
static void all_numbers(void)
{
	struct sockaddr_in at;
	int fd, null, top;

	fd = bound(&at);
	check(close_range(3, ~0U, 0) == 0, "close_range");
	check(fcntl(fd, F_GETFD) == -1 && errno == EBADF, "closed by close_range");
	close(rebind(&at));
	works();
	fd = bound(&at);
	closefrom(3);
	close(rebind(&at));
	works();
	fd = bound(&at);
	check(close_range(3, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */) == 0, "close_range");
	check(fcntl(fd, F_GETFD) == FD_CLOEXEC, "close-on-exec by close_range");
	works();
	check(close_range(3, ~0U, 8) == -1 && errno == EINVAL, "close_range with a flag that there is not");
	works();
	top = highest();
	for (int i = 3; i <= top; i++)
		close(i);
	close(rebind(&at));
	works();

	fd = bound(&at);
	null = open("/dev/null", O_RDWR);
	top = highest();
	for (int i = null + 1; i <= top; i++)
		check(dup2(null, i) == i, "dup2 onto %d", i);
	works();
	for (int i = null + 1; i <= top; i++)
		check(write(i, "x", 1) == 1 && close(i) == 0, "%d is the file that was put there", i);
	works();
	close(null);
	close(fd);
}

int main(void)
{
	check(close_range(3, ~0U, 0) == 0, "close_range before any RDS socket");
	works();
	sharing();
	other_ways();
	all_numbers();
	works();
	printf("dup, dup2, close_range, closefrom, fclose\n");
	return 0;
}
