/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cancel_calls.h - every call that sleeps, on one socket that is received from and one that is sent
 * from (preload_cancel.c).
 */
#ifndef PROGRAM_CANCEL_CALLS_H
#define PROGRAM_CANCEL_CALLS_H

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <time.h>

#include "program.h"

enum { BIG = 4096 };

/* what is received from; its epoll set; what is sent from */
static int fd, ep, out;
static struct sockaddr_in *to; /* where a blocked send goes */
static char data[BIG];

static ssize_t c_recv(void) { char c[8]; return recv(fd, c, sizeof(c), 0); }
static ssize_t c_recvfrom(void)
{
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	char c[8];

	return recvfrom(fd, c, sizeof(c), 0, (struct sockaddr *)&from, &len);
}
static ssize_t c_read(void) { char c[8]; return read(fd, c, sizeof(c)); }
static ssize_t c_readv(void)
{
	char c[8];
	struct iovec iov[2] = { { c, 4 }, { c + 4, 4 } };

	return readv(fd, iov, 2);
}
static ssize_t c_preadv2(void)
{
	char c[8];
	struct iovec iov = { c, 8 };

	return preadv2(fd, &iov, 1, -1, 0);
}
static ssize_t c_recvmsg(void)
{
	char c[8];
	struct iovec iov = { c, 8 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return recvmsg(fd, &msg, 0);
}
static ssize_t c_recvmmsg(void)
{
	char c[8];
	struct iovec iov = { c, 8 };
	struct mmsghdr msg = { .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } };

	return recvmmsg(fd, &msg, 1, 0, NULL);
}
static ssize_t c_poll(void) { struct pollfd p = { fd, POLLIN, 0 }; return poll(&p, 1, -1); }
static ssize_t c_ppoll(void)
{
	struct pollfd p = { fd, POLLIN, 0 };
	struct timespec hour = { 3600, 0 };
	sigset_t none;

	sigemptyset(&none);
	return ppoll(&p, 1, &hour, &none);
}
static ssize_t c_select(void)
{
	fd_set r;

	FD_ZERO(&r);
	FD_SET(fd, &r);
	return select(fd + 1, &r, NULL, NULL, NULL);
}
static ssize_t c_pselect(void)
{
	struct timespec hour = { 3600, 0 };
	sigset_t none;
	fd_set r;

	sigemptyset(&none);
	FD_ZERO(&r);
	FD_SET(fd, &r);
	return pselect(fd + 1, &r, NULL, NULL, &hour, &none);
}
static ssize_t c_epoll_wait(void) { struct epoll_event e; return epoll_wait(ep, &e, 1, -1); }
static ssize_t c_epoll_pwait(void)
{
	struct epoll_event e;
	sigset_t none;

	sigemptyset(&none);
	return epoll_pwait(ep, &e, 1, 3600000, &none);
}

static struct iovec out_iov = { data, BIG };
static ssize_t c_sendto(void) { return sendto(out, data, BIG, 0, (struct sockaddr *)to, sizeof(*to)); }
static ssize_t c_sendmsg(void)
{
	struct msghdr msg = { .msg_name = to, .msg_namelen = sizeof(*to), .msg_iov = &out_iov, .msg_iovlen = 1 };

	return sendmsg(out, &msg, 0);
}
static ssize_t c_sendmmsg(void)
{
	struct mmsghdr msg = {
		.msg_hdr = { .msg_name = to, .msg_namelen = sizeof(*to), .msg_iov = &out_iov, .msg_iovlen = 1 }
	};

	return sendmmsg(out, &msg, 1, 0);
}
static ssize_t c_send(void) { return send(out, data, BIG, 0); }

struct call {
	const char *name;
	ssize_t (*make)(void);
};
#define CALL(name) { #name, c_##name }
static const struct call receives[] = { CALL(recv),   CALL(recvfrom), CALL(read), CALL(readv),
					CALL(preadv2), CALL(recvmsg),  CALL(recvmmsg) };
static const struct call waits[] = { CALL(poll),    CALL(ppoll),      CALL(select),
				     CALL(pselect), CALL(epoll_wait), CALL(epoll_pwait) };
static const struct call sends[] = { CALL(sendto), CALL(sendmsg), CALL(sendmmsg), CALL(send) };
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#endif
