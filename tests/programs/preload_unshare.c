/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_unshare - close_range() with CLOSE_RANGE_UNSHARE: in a program of one thread it closes as
 * it does without; a thread of several gets a table of its own, and closes its copies there.  By
 * libc's name, and by its number, for libcs that have no name for it.
 */
#include "program.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>

#define UNSHARE 2u /* CLOSE_RANGE_UNSHARE */
#define CLOEXEC 4u /* CLOSE_RANGE_CLOEXEC */

static int by_number(unsigned first, unsigned last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

static int (*range)(unsigned first, unsigned last, int flags) = close_range;

static void alone(void)
{
	struct sockaddr_in at;
	int fd = bound(&at);

	check(range(3, ~0U, UNSHARE | CLOEXEC) == 0, "close_range");
	check(fcntl(fd, F_GETFD) == FD_CLOEXEC, "close-on-exec by close_range");
	works();
	check(range(3, ~0U, UNSHARE) == 0, "close_range");
	check(fcntl(fd, F_GETFD) == -1 && errno == EBADF, "closed by close_range");
	close(rebind(&at));
	works();
}

struct pair {
	int from, to, file, told[2];
	struct sockaddr_in at;
};

static void sends(const struct pair *p)
{
	check(sendto(p->from, "!", 1, 0, (const struct sockaddr *)&p->at, sizeof(p->at)) == 1, "sendto");
}

static void receives(const struct pair *p)
{
	char c = 0;

	check(recv(p->to, &c, 1, 0) == 1 && c == '!', "recv");
}

static void *unsharing(void *arg)
{
	const struct pair *p = arg;
	pid_t thread;

	check(range((unsigned)p->file, ~0U, UNSHARE) == 0, "close_range");
	check(fcntl(p->file, F_GETFD) == -1 && errno == EBADF, "closed in this thread's table");
	sends(p);
	receives(p);
	thread = gettid();
	tell(p->told[1], &thread, sizeof(thread));
	receives(p); /* asleep */
	return NULL;
}

static void two_tables(void)
{
	struct sockaddr_in from;
	struct pair p;
	pthread_t thread;
	pid_t tid;

	p.from = bound(&from);
	p.to = bound(&p.at);
	check(pipe(p.told) == 0, "pipe");
	p.file = open("/dev/null", O_RDWR);
	check(pthread_create(&thread, NULL, unsharing, &p) == 0, "pthread_create");
	hear(p.told[0], &tid, sizeof(tid));
	check(test_sleeps(tid), "its receive returns");
	sends(&p);
	check(pthread_join(thread, NULL) == 0, "pthread_join");
	check(write(p.file, "x", 1) == 1, "still open here");
	sends(&p);
	receives(&p);
	check(range(3, ~0U, 0) == 0, "close_range");
	works();
}

static void all(void *arg)
{
	if (arg)
		range = by_number;
	alone();
	two_tables();
	works();
}

int main(void)
{
	char number;

	finished(start(all, NULL));
	finished(start(all, &number));
	printf("alone, and a thread of two\n");
	return 0;
}
