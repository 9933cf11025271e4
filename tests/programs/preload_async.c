/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_async - O_ASYNC can be set on an RDS socket by every way, is seen through every copy and
 * by children, and no signal ever comes: RDS wakes its wait queue and nothing else.
 */
#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

static struct sockaddr_in at;

static void flags_are(int fd, int want)
{
	int flags = fcntl(fd, F_GETFL);

	check((flags & (O_ASYNC | O_NONBLOCK | O_APPEND | O_ACCMODE)) == (want | O_RDWR), "flags %#o instead of %#o",
	      (unsigned)flags, (unsigned)want);
}

/* Seen by poll and by an epoll set, and taken; the signal would have come before that. */
static void quiet(int fd, int ep)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct epoll_event e;
	sigset_t came;
	char c;

	check(sendto(fd, "m", 1, 0, (struct sockaddr *)&at, sizeof(at)) == 1, "sendto");
	check(epoll_wait(ep, &e, 1, TEST_COMES) == 1 && poll(&p, 1, TEST_COMES) == 1, "nothing to receive");
	check(recv(fd, &c, 1, MSG_DONTWAIT) == 1, "recv");
	check(recv(fd, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "recv");
	check(sigpending(&came) == 0 && !sigismember(&came, SIGIO), "SIGIO");
}

/* The socket is its parent's. */
static void child(int fd, int ep)
{
	pid_t pid = fork();

	if (!pid) {
		flags_are(fd, O_ASYNC | O_NONBLOCK);
		check(fcntl(fd, F_SETOWN, getpid()) == 0, "F_SETOWN");
		quiet(fd, ep);
		check(fcntl(fd, F_SETFL, O_ASYNC) == 0, "F_SETFL");
		exit(0);
	}
	finished(pid);
	flags_are(fd, O_ASYNC);
}

int main(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	int fd = bound(&at), ep = epoll_create1(0), copy = dup(fd), on = 1, off = 0;
	sigset_t sigio;

	sigemptyset(&sigio);
	sigaddset(&sigio, SIGIO);
	sigprocmask(SIG_BLOCK, &sigio, NULL);
	check(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0, "EPOLL_CTL_ADD");
	check(fcntl(fd, F_SETOWN, getpid()) == 0 && fcntl(copy, F_GETOWN) == getpid(), "F_SETOWN");
	flags_are(fd, 0);
	quiet(fd, ep);

	check(fcntl(fd, F_SETFL, O_ASYNC) == 0, "F_SETFL");
	flags_are(copy, O_ASYNC);
	quiet(fd, ep);
	check(ioctl(copy, FIONBIO, &on) == 0, "FIONBIO");
	flags_are(fd, O_ASYNC | O_NONBLOCK);
	child(fd, ep);
	check(fcntl(fd, F_SETOWN, getpid()) == 0, "F_SETOWN");
	check(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "F_SETFL");
	flags_are(copy, O_NONBLOCK);

	check(ioctl(fd, FIOASYNC, &on) == 0, "FIOASYNC");
	flags_are(copy, O_ASYNC | O_NONBLOCK);
	quiet(fd, ep);
	check(ioctl(copy, FIOASYNC, &off) == 0, "FIOASYNC");
	flags_are(fd, O_NONBLOCK);
	check(ioctl(fd, FIOASYNC, NULL) == -1 && errno == EFAULT, "FIOASYNC of nothing");
	printf("O_ASYNC is set, and quiet\n");
	return 0;
}
