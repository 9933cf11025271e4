/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * sink - as rds-gen and rds-sink: the generator sends messages of all sizes with blocking sendmsg
 * to two sinks in turn, each sink asks for the size first (MSG_PEEK|MSG_TRUNC into no room at all)
 * and then reads exactly that.  Both are interrupted by a timer whose handler was installed without
 * SA_RESTART: EINTR is the one error that they expect, and no message is lost by it.
 */
#include "program.h"

#include <signal.h>
#include <stdint.h>
#include <sys/time.h>

#define MESSAGES 2000
#define SINKS 2
#define LARGEST 100000

static int to_generator[2];
static volatile sig_atomic_t ticks;

static void on_alarm(int sig)
{
	(void)sig;
	ticks++;
}

static void set_timer(long usec)
{
	struct sigaction sa = {.sa_handler = on_alarm};
	struct itimerval it = {{0, usec}, {0, usec}};

	check(sigaction(SIGALRM, &sa, NULL) == 0 && setitimer(ITIMER_REAL, &it, NULL) == 0, "timer");
}

static size_t size_of(uint32_t number)
{
	static const size_t sizes[] = {4, 64, 1000, 4096, 4097, 16384, 65536, LARGEST};

	return sizes[number % 8];
}

static void fill(uint8_t *buf, uint32_t number)
{
	size_t i, len = size_of(number);

	memcpy(buf, &number, sizeof(number));
	for (i = sizeof(number); i < len; i++)
		buf[i] = (uint8_t)(number + i * 7);
}

static ssize_t receive(int fd, void *buf, size_t len, int flags)
{
	struct iovec iov = {buf, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	do
		n = recvmsg(fd, &msg, flags);
	while (n < 0 && errno == EINTR);
	check(n >= 0, "recvmsg");
	if (len == 0)
		check(msg.msg_flags & MSG_TRUNC, "flags %#x", (unsigned)msg.msg_flags);
	return n;
}

static void sink(void *arg)
{
	static uint8_t got[LARGEST], want[LARGEST];
	struct sockaddr_in me;
	uint32_t number = *(uint32_t *)arg;
	int fd = bound(&me);

	set_timer(3000);
	tell(to_generator[1], &me, sizeof(me));
	for (; number < MESSAGES; number += SINKS) {
		ssize_t size = receive(fd, NULL, 0, MSG_PEEK | MSG_TRUNC);

		check((size_t)size == size_of(number), "message %u: size %zd", number, size);
		check(receive(fd, got, (size_t)size, 0) == size, "message %u", number);
		fill(want, number);
		check(memcmp(got, want, (size_t)size) == 0, "message %u: content", number);
	}
	close(fd);
}

static void generate(int fd, const struct sockaddr_in *sinks)
{
	static uint8_t buf[LARGEST];
	uint32_t number;

	for (number = 0; number < MESSAGES; number++) {
		struct iovec iov = {buf, size_of(number)};
		struct sockaddr_in to = sinks[number % SINKS];
		struct msghdr msg = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &iov, .msg_iovlen = 1};
		ssize_t n;

		fill(buf, number);
		do
			n = sendmsg(fd, &msg, 0);
		while (n < 0 && errno == EINTR);
		check(n == (ssize_t)iov.iov_len, "sendmsg %u: %zd", number, n);
	}
}

int main(void)
{
	struct sockaddr_in me, sinks[SINKS];
	uint32_t i, first[SINKS];
	pid_t pids[SINKS];
	int fd;

	check(pipe(to_generator) == 0, "pipe");
	for (i = 0; i < SINKS; i++) {
		first[i] = i;
		pids[i] = start(sink, &first[i]);
		hear(to_generator[0], &sinks[i], sizeof(sinks[i]));
	}
	fd = bound(&me);
	set_timer(2000);
	generate(fd, sinks);
	setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
	for (i = 0; i < SINKS; i++)
		finished(pids[i]);
	close(fd);
	printf("%d messages to %d sinks, generator interrupted %d times\n", MESSAGES, SINKS, (int)ticks);
	return 0;
}
