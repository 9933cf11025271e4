/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_clock - beside a preloaded object whose clock stands still (still_clock.c): each timeout
 * ends, and not early, and a message has the kernel's time.  Only the program sees the other clock.
 */
#include "program.h"

#include <dlfcn.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#define WAIT_MS 50
#define LOOKS 3
#define CPU_SECONDS 5

static int64_t kernel_ms(clockid_t clock)
{
	struct timespec ts;

	check(syscall(SYS_clock_gettime, clock, &ts) == 0, "clock_gettime by number");
	return ts.tv_sec * INT64_C(1000) + ts.tv_nsec / 1000000;
}

static int by_rcvtimeo(int fd)
{
	struct timeval tv = {.tv_usec = WAIT_MS * 1000};
	char c;

	check(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0, "SO_RCVTIMEO");
	return recv(fd, &c, 1, 0) == -1 && errno == ETIMEDOUT ? 0 : -1;
}

static int by_poll(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, WAIT_MS);
}

static int by_poll_of_two(int fd)
{
	struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.events = POLLIN}};
	int line[2], ready;

	check(pipe(line) == 0, "pipe");
	p[1].fd = line[0];
	ready = poll(p, 2, WAIT_MS);
	close(line[0]);
	close(line[1]);
	return ready;
}

static int by_select(int fd)
{
	struct timeval tv = {.tv_usec = WAIT_MS * 1000};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, &set, NULL, NULL, &tv);
}

static int by_epoll(int fd)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int ep = epoll_create1(0), ready;

	check(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "epoll_ctl");
	ready = epoll_wait(ep, &ev, 1, WAIT_MS);
	close(ep);
	return ready;
}

static const struct {
	const char *name;
	int (*fn)(int fd);
} waits[] = {{"SO_RCVTIMEO", by_rcvtimeo},
	     {"poll", by_poll},
	     {"poll of two", by_poll_of_two},
	     {"select", by_select},
	     {"epoll", by_epoll}};

struct waiter {
	unsigned which;
	int line;
};

static void waits_once(void *arg)
{
	const struct rlimit busy = {CPU_SECONDS, CPU_SECONDS};
	const struct waiter *w = arg;
	struct sockaddr_in sin;
	int fd = bound(&sin);

	/* Who believes the other clock wakes again and again. */
	check(setrlimit(RLIMIT_CPU, &busy) == 0, "RLIMIT_CPU");
	for (int i = 0; i < LOOKS; i++) {
		int64_t begin = kernel_ms(CLOCK_MONOTONIC), took;

		check(waits[w->which].fn(fd) == 0, "%s", waits[w->which].name);
		took = kernel_ms(CLOCK_MONOTONIC) - begin;
		check(took >= WAIT_MS - 1, "%s has ended after %d ms", waits[w->which].name, (int)took);
	}
	tell(w->line, "", 1);
}

static void told_time(void *arg)
{
	struct sockaddr_in sin;
	int fd = bound(&sin), on = 1;
	char c, control[128];
	struct iovec iov = {&c, 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	int64_t begin = kernel_ms(CLOCK_REALTIME);
	struct cmsghdr *cm;
	struct timeval tv;

	(void)arg;
	check(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)) == 0, "SO_TIMESTAMP");
	check(sendto(fd, "!", 1, 0, (struct sockaddr *)&sin, sizeof(sin)) == 1, "sendto");
	check(recvmsg(fd, &msg, 0) == 1, "recvmsg");
	cm = CMSG_FIRSTHDR(&msg);
	check(cm && cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SO_TIMESTAMP, "no time in the message");
	memcpy(&tv, CMSG_DATA(cm), sizeof(tv));
	check(tv.tv_sec >= begin / 1000, "the message's time is %lld", (long long)tv.tv_sec);
}

/* This process has no RDS socket: its own timeouts are the kernel's. */
int main(void)
{
	unsigned *looks = dlsym(RTLD_DEFAULT, "still_looks");

	check(looks && time(NULL) == time(NULL) && *looks > 0, "still_clock is not preloaded");
	for (unsigned i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		int line[2];
		struct waiter w = {.which = i};
		pid_t pid;
		char c;

		check(pipe(line) == 0, "pipe");
		w.line = line[1];
		pid = start(waits_once, &w);
		close(line[1]);
		hear(line[0], &c, 1);
		finished(pid);
		close(line[0]);
	}
	finished(start(told_time, NULL));
	printf("timeouts beside a clock that stands still\n");
	return 0;
}
