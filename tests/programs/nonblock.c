/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * nonblock - O_NONBLOCK belongs to the open file.  When it is set or cleared, by any process,
 * number or call, the next receive obeys, and one that already waits goes on waiting.
 */
#include "program.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

static int fd, copy;
static char byte;

static void by_fcntl(int on)
{
	check(fcntl(fd, F_SETFL, on ? O_NONBLOCK : 0) == 0, "fcntl");
}

static void by_copy(int on)
{
	check(fcntl(copy, F_SETFL, on ? O_NONBLOCK : 0) == 0, "fcntl of a copy");
}

static void by_ioctl(int on)
{
	check(ioctl(fd, FIONBIO, &on) == 0, "ioctl");
}

/* As a library does that has its own system calls. */
static void by_system_call(int on)
{
	check(syscall(SYS_fcntl, fd, F_SETFL, on ? O_NONBLOCK : 0) == 0, "system call");
}

static void by_child(int on)
{
	pid_t pid = fork();

	check(pid >= 0, "fork");
	if (pid == 0)
		_exit(syscall(SYS_fcntl, fd, F_SETFL, on ? O_NONBLOCK : 0) == 0 ? 0 : 1);
	finished(pid);
}

static void (*const ways[])(int) = {by_fcntl, by_copy, by_ioctl, by_system_call, by_child};
#define WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void timeout(long ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};

	check(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0, "SO_RCVTIMEO");
}

/* An empty socket: how a receive ends tells what it took the socket for. */
static void takes_it_for(int nonblocking, int way)
{
	double begin = seconds();

	timeout(nonblocking ? TEST_COMES : 20);
	errno = 0;
	check(recv(fd, &byte, 1, 0) == -1, "received something");
	check(errno == (nonblocking ? EAGAIN : ETIMEDOUT), "way %d", way);
	if (nonblocking && seconds() - begin > test_bound_ms(3000) / 1000.0)
		test_late("way %d: waited for %.1f s", way, seconds() - begin);
}

static _Atomic pid_t receiver;

static void *receive(void *arg)
{
	receiver = (pid_t)syscall(SYS_gettid);
	*(ssize_t *)arg = recv(fd, &byte, 1, 0);
	return NULL;
}

/* Its call began while the socket was blocking. */
static void goes_on(int way)
{
	struct sockaddr_in me;
	socklen_t len = sizeof(me);
	pthread_t thread;
	ssize_t got = -2;

	check(getsockname(fd, (struct sockaddr *)&me, &len) == 0, "getsockname");
	receiver = 0;
	check(pthread_create(&thread, NULL, receive, &got) == 0, "thread");
	test_until(receiver);
	check(test_sleeps(receiver), "way %d: does not wait", way);
	ways[way](1);
	check(test_sleeps(receiver), "way %d: does not go on waiting", way);
	check(sendto(fd, "x", 1, 0, (struct sockaddr *)&me, len) == 1, "send");
	pthread_join(thread, NULL);
	check(got == 1, "way %d: %zd", way, got);
	ways[way](0);
}

int main(void)
{
	struct sockaddr_in me;
	int way;

	alarm(test_alarm(60));
	fd = bound(&me);
	copy = dup(fd);
	check(copy >= 0, "dup");
	for (way = 0; way < WAYS; way++) {
		takes_it_for(0, way);
		ways[way](1);
		takes_it_for(1, way);
		takes_it_for(1, way);
		ways[way](0);
		takes_it_for(0, way);
	}
	timeout(0);
	for (way = 0; way < WAYS; way++)
		goes_on(way);
	close(copy);
	close(fd);
	return 0;
}
