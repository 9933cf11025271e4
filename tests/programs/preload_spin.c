/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_spin - a signal comes while a call waits, and ends it: also if the library looks for
 * something to receive before it sleeps, and does so for long.
 */
#include "program.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

enum { SIGNALS = 10, PAUSE_MS = 20 };

static int fd, ep;
static volatile int waits, ended; /* waits: the thread's number */
static int result, error;

static void handler(int sig)
{
	(void)sig;
}

static int by_recv(void)
{
	char c;

	return (int)recv(fd, &c, 1, 0);
}

static int by_poll(void)
{
	struct pollfd p = {fd, POLLIN, 0};

	return poll(&p, 1, -1);
}

static int by_select(void)
{
	fd_set r;

	FD_ZERO(&r);
	FD_SET(fd, &r);
	return select(fd + 1, &r, NULL, NULL, NULL);
}

static int by_epoll(void)
{
	struct epoll_event e;

	return epoll_wait(ep, &e, 1, -1);
}

static const struct {
	const char *name;
	int (*wait)(void);
	int flags; /* of the handler: SA_RESTART means nothing to poll() and its kind */
} calls[] = {{"recv", by_recv, 0},
	     {"poll", by_poll, SA_RESTART},
	     {"select", by_select, SA_RESTART},
	     {"epoll_wait", by_epoll, SA_RESTART}};

/* A new thread has not learnt yet that looking is in vain. */
static void *waiter(void *arg)
{
	int (*wait)(void) = *(int (*const *)(void))arg;

	__atomic_store_n(&waits, gettid(), __ATOMIC_RELEASE);
	result = wait();
	error = errno;
	__atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

static int has_ended(void)
{
	return __atomic_load_n(&ended, __ATOMIC_ACQUIRE);
}

/* Processor time that the thread has had, in ms; LONG_MAX: it has ended, and its clock with it. */
static long had(pthread_t thread)
{
	struct timespec ts;
	clockid_t clock;

	if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &ts)) {
		check(has_ended(), "its clock");
		return LONG_MAX;
	}
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The first of them may come before the call; each next one, after some more of it. */
static void disturb(pthread_t thread)
{
	long before;

	test_until(__atomic_load_n(&waits, __ATOMIC_ACQUIRE));
	for (int i = 0; i < SIGNALS && !has_ended(); i++) {
		before = had(thread);
		pthread_kill(thread, SIGUSR1);
		poll(NULL, 0, PAUSE_MS);
		test_until(has_ended() || had(thread) > before || test_asleep(waits));
	}
}

/* The library reads its options when it is loaded. */
static void look_for_long(char **argv)
{
	static const char option[] = "RDS_PRELOAD_SPIN_US";

	if (getenv(option))
		return;
	setenv(option, "1000000", 1);
	execv("/proc/self/exe", argv);
	check(0, "execv");
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct epoll_event in = {.events = EPOLLIN};

	(void)argc;
	look_for_long(argv);
	fd = socket(PF_RDS, SOCK_SEQPACKET, 0);
	check(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "bind");
	ep = epoll_create1(0);
	check(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &in) == 0, "epoll_ctl");
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct sigaction act = {.sa_handler = handler, .sa_flags = calls[i].flags};
		pthread_t thread;

		waits = ended = 0;
		sigaction(SIGUSR1, &act, NULL);
		check(pthread_create(&thread, NULL, waiter, (void *)(uintptr_t)&calls[i].wait) == 0, "pthread_create");
		disturb(thread);
		test_await(has_ended(), "for %s, which goes on after a signal", calls[i].name);
		pthread_join(thread, NULL);
		check(result < 0 && error == EINTR, "%s returns %d, %s", calls[i].name, result, strerror(error));
	}
	return 0;
}
