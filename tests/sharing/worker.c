/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * worker.c - a process of the player: it obeys orders and answers with the results.  Plain PF_RDS;
 * it compares nothing.  It waits only where an order says so, for what has to come (slow.h).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "../slow.h"
#include "sharing.h"

#ifndef AF_RDS
#define AF_RDS 21
#endif
#define SOL_RDS 276
#define RDS_RECVERR 5
#define NEWS (2 * PLACES)

const char *program;
int patience;
static const char *address;
static int place;
static char bytes[BIG];

union name {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static socklen_t name_of_port(union name *name, int port)
{
	memset(name, 0, sizeof(*name));
	if (strchr(address, ':')) {
		name->in6.sin6_family = AF_INET6;
		name->in6.sin6_port = htons(port);
		inet_pton(AF_INET6, address, &name->in6.sin6_addr);
		return sizeof(name->in6);
	}
	name->in.sin_family = AF_INET;
	name->in.sin_port = htons(port);
	inet_pton(AF_INET, address, &name->in.sin_addr);
	return sizeof(name->in);
}

static int port_of(const union name *name)
{
	switch (name->sa.sa_family) {
	case AF_INET:
		return ntohs(name->in.sin_port);
	case AF_INET6:
		return ntohs(name->in6.sin6_port);
	default:
		return 0;
	}
}

/* ---- messages: an id, then bytes that follow from it ---- */

static char byte_of(uint32_t id, size_t at)
{
	return (char)(id * 7 + at * 13 + at / 251);
}

static int send_one(const struct order *o)
{
	union name to;
	socklen_t len = o->arg ? name_of_port(&to, o->arg) : 0;
	size_t i;

	memcpy(bytes, &o->id, sizeof(o->id));
	for (i = sizeof(o->id); i < o->len; i++)
		bytes[i] = byte_of(o->id, i);
	return sendto(o->fd, bytes, o->len, 0, o->arg ? &to.sa : NULL, len);
}

static int recv_one(const struct order *o, int flags, struct answer *a)
{
	union name from;
	socklen_t len = sizeof(from);
	size_t i;
	int r;

	memset(&from, 0, sizeof(from));
	r = recvfrom(o->fd, bytes, sizeof(bytes), flags, &from.sa, &len);
	if (r < (int)sizeof(a->id))
		return r;
	memcpy(&a->id, bytes, sizeof(a->id));
	a->value = port_of(&from);
	a->whole = 1;
	for (i = sizeof(a->id); i < (size_t)r; i++)
		a->whole &= bytes[i] == byte_of(a->id, i);
	return r;
}

/* ---- readiness ---- */

static int by_select(int fd, int ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	fd_set in;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	return select(fd + 1, &in, NULL, NULL, &tv) < 0 ? -1 : FD_ISSET(fd, &in) != 0;
}

static int by_epoll(int fd, int ms)
{
	struct epoll_event event = {.events = EPOLLIN};
	int ep = epoll_create1(EPOLL_CLOEXEC), r;

	r = epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event);
	if (!r)
		r = epoll_wait(ep, &event, 1, ms);
	close(ep);
	return r;
}

static int readable(int fd, int way, int ms)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};

	switch (way) {
	case BY_SELECT:
		return by_select(fd, ms);
	case BY_EPOLL:
		return by_epoll(fd, ms);
	default:
		return poll(&pfd, 1, ms) < 0 ? -1 : pfd.revents == POLLIN;
	}
}

static int look(const struct order *o)
{
	int tries, r = 1;

	if (o->arg)
		return readable(o->fd, o->way, patience);
	/*
	 * Where no message is expected, the socket may show a congestion update as readable, once
	 * for each connection that comes up meanwhile.  A message would be shown each time.
	 */
	for (tries = 0; r == 1 && tries < NEWS; tries++)
		r = readable(o->fd, o->way, 0);
	return r;
}

/* ---- options ---- */

static int set(const struct order *o)
{
	struct timeval tv = {.tv_sec = o->arg};
	int flags;

	switch (o->way) {
	case RECVERR:
		return setsockopt(o->fd, SOL_RDS, RDS_RECVERR, &o->arg, sizeof(o->arg));
	case RCVBUF:
		return setsockopt(o->fd, SOL_SOCKET, SO_RCVBUF, &o->arg, sizeof(o->arg));
	case SNDTIMEO:
		return setsockopt(o->fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	default:
		flags = fcntl(o->fd, F_GETFL);
		return fcntl(o->fd, F_SETFL, o->arg ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
	}
}

static int get(const struct order *o, struct answer *a)
{
	socklen_t len = sizeof(a->value);
	struct timeval tv = {0};
	int r;

	switch (o->way) {
	case RECVERR:
		return getsockopt(o->fd, SOL_RDS, RDS_RECVERR, &a->value, &len);
	case RCVBUF:
		return getsockopt(o->fd, SOL_SOCKET, SO_RCVBUF, &a->value, &len);
	case SNDTIMEO:
		len = sizeof(tv);
		r = getsockopt(o->fd, SOL_SOCKET, SO_SNDTIMEO, &tv, &len);
		a->value = tv.tv_sec;
		return r;
	default:
		r = fcntl(o->fd, F_GETFL);
		a->value = !!(r & O_NONBLOCK);
		return r < 0 ? r : 0;
	}
}

/* ---- descriptors ---- */

static int moved(int fd, int to)
{
	if (fd < 0 || fd == to)
		return fd;
	if (dup2(fd, to) < 0)
		return -1;
	close(fd);
	return to;
}

static int pass(int fd, int mail)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = "";
	struct iovec iov = {(char[]){"m"}, 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	return sendmsg(mail, &msg, MSG_DONTWAIT);
}

/* Without room for it the kernel drops the passed descriptor. */
static int take(int mail, int flags, bool want)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;
	int fd, r;

	if (want) {
		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
	}
	r = recvmsg(mail, &msg, flags | MSG_DONTWAIT);
	if (r < 0 || !want)
		return r;
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_type != SCM_RIGHTS) {
		errno = EBADMSG;
		return -1;
	}
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

static int take_to(const struct order *o)
{
	int fd = take(MAIL_OUT(place), o->arg, true), r;

	if (fd < 0)
		return -1;
	r = moved(fd, o->to);
	if (r >= 0 && o->arg)
		fcntl(r, F_SETFD, FD_CLOEXEC);
	return r;
}

/* ---- processes ---- */

static int split(const struct order *o, struct answer *a)
{
	pid_t pid = fork();

	if (!pid)
		worker(o->to, address, false); /* on top of its parent's stack, and its parent's */
	a->value = pid;
	return pid < 0 ? -1 : 0;
}

static int run_anew(void)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", place);
	execl(program, program, "--worker", number, address, (char *)NULL);
	return -1;
}

static int ask_name(const struct order *o, struct answer *a)
{
	union name name;
	socklen_t len = sizeof(name);
	int r;

	memset(&name, 0, sizeof(name));
	r = o->op == NAME ? getsockname(o->fd, &name.sa, &len) : getpeername(o->fd, &name.sa, &len);
	a->value = r ? 0 : port_of(&name);
	return r;
}

static int name_it(const struct order *o)
{
	union name name;
	socklen_t len = name_of_port(&name, o->arg);

	return o->op == BIND ? bind(o->fd, &name.sa, len) : connect(o->fd, &name.sa, len);
}

/* Nonblocking, but a message may still be under way: waits for it, as long as `patience`. */
static int recv_expected(const struct order *o, int flags, struct answer *a)
{
	struct pollfd pfd = {.fd = o->fd, .events = POLLIN};
	unsigned looks = 0;
	int r, waited = 0, turn = patience < test_deadline_ms(1000) ? patience : test_deadline_ms(1000);

	while ((r = recv_one(o, flags | MSG_DONTWAIT, a)) < 0 && errno == EAGAIN && waited < patience) {
		if (poll(&pfd, 1, turn))
			test_pause(&looks); /* a congestion update, or the message comes now */
		else
			waited += turn;
	}
	return r;
}

static int obey(const struct order *o, struct answer *a)
{
	switch (o->op) {
	case FORK:
		return split(o, a);
	case EXEC:
		return run_anew();
	case LEAVE:
		if (o->arg)
			_exit(0);
		exit(0);
	case OPEN:
		return moved(socket(AF_RDS, SOCK_SEQPACKET, 0), o->to);
	case DUP:
		return dup2(o->fd, o->to);
	case CLOSE:
		return close(o->fd);
	case CLOEXEC:
		return fcntl(o->fd, F_SETFD, o->arg ? FD_CLOEXEC : 0);
	case PASS:
		return pass(o->fd, MAIL_IN(o->to));
	case TAKE:
		return take_to(o);
	case DROP:
		return take(MAIL_OUT(o->to), 0, false);
	case BIND:
	case CONNECT:
		return name_it(o);
	case SEND:
		return send_one(o);
	case RECV:
		if (o->way) /* sleeps in the call itself */
			return recv_one(o, 0, a);
		return o->arg ? recv_expected(o, 0, a) : recv_one(o, MSG_DONTWAIT, a);
	case PEEK:
		return o->arg ? recv_expected(o, MSG_PEEK, a) : recv_one(o, MSG_PEEK | MSG_DONTWAIT, a);
	case POLL:
		return look(o);
	case NAME:
	case PEER:
		return ask_name(o, a);
	case SET:
		return set(o);
	case GET:
		return get(o, a);
	}
	errno = EINVAL;
	return -1;
}

void worker(int my_place, const char *my_address, bool arrived)
{
	struct answer a = {0};
	struct order o;

	place = my_place;
	address = my_address;
	signal(SIGCHLD, SIG_IGN);
	if (arrived && send(LINE(place), &a, sizeof(a), 0) != sizeof(a))
		_exit(1);
	for (;;) {
		if (recv(LINE(place), &o, sizeof(o), 0) != sizeof(o))
			_exit(1);
		memset(&a, 0, sizeof(a));
		a.result = obey(&o, &a);
		a.error = a.result < 0 ? errno : 0;
		if (send(LINE(place), &a, sizeof(a), 0) != sizeof(a))
			_exit(1);
	}
}
