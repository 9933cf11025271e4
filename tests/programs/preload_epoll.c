/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_epoll - RDS sockets in the kernel's epoll sets: level and edge triggered, one-shot,
 * nested, together with other descriptors; watched by a thread that sleeps; fed by another process,
 * or filled because that is stopped.
 */
#include "program.h"

#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

static struct sockaddr_in at;
static int to_feeder[2], from_stopper[2];

/* The other process: for every byte in the pipe a message. */
static void feeder(void *arg)
{
	struct sockaddr_in me, to;
	char c;
	int fd;

	(void)arg;
	close(to_feeder[1]);
	check(read(to_feeder[0], &to, sizeof(to)) == sizeof(to), "address");
	fd = bound(&me);
	while (read(to_feeder[0], &c, 1) == 1)
		check(sendto(fd, &c, 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1, "sendto");
}

static void feed(char c)
{
	tell(to_feeder[1], &c, 1);
}

static void add(int ep, int fd, unsigned events)
{
	struct epoll_event ev = { .events = events, .data.fd = fd };

	check(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "EPOLL_CTL_ADD");
}

static void modify(int ep, int fd, unsigned events)
{
	struct epoll_event ev = { .events = events, .data.fd = fd };

	check(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev) == 0, "EPOLL_CTL_MOD");
}

static void ready(int ep, int ms, int fd, unsigned events)
{
	struct epoll_event ev[4];
	int n = epoll_wait(ep, ev, 4, ms);

	check(n == 1, "%d events instead of 1", n);
	check(ev[0].data.fd == fd && ev[0].events == events, "events %#x of %d", ev[0].events, ev[0].data.fd);
}

static void quiet(int ep, int ms)
{
	struct epoll_event ev[4];
	int n = epoll_wait(ep, ev, 4, ms);

	check(n == 0, "%d events (%#x) instead of none", n, ev[0].events);
}

static void take(int fd, char want)
{
	char c = 0;

	check(recv(fd, &c, 1, MSG_DONTWAIT) == 1 && c == want, "got %#x instead of '%c'", c, want);
}

/* A fresh socket's poll may once say that a congestion map has arrived; let that be over. */
static void settle(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	poll(&p, 1, 0);
}

static void level(int fd)
{
	int ep = epoll_create1(0);

	add(ep, fd, EPOLLIN);
	quiet(ep, 20);
	feed('a');
	ready(ep, 10000, fd, EPOLLIN);
	ready(ep, 10000, fd, EPOLLIN);
	take(fd, 'a');
	quiet(ep, 20);
	modify(ep, fd, EPOLLIN | EPOLLOUT);
	ready(ep, 10000, fd, EPOLLOUT);
	modify(ep, fd, EPOLLRDNORM);
	quiet(ep, 20);
	feed('b');
	ready(ep, 10000, fd, EPOLLRDNORM);
	take(fd, 'b');
	close(ep);
}

static void edge(int fd)
{
	int ep = epoll_create1(0);

	add(ep, fd, EPOLLIN | EPOLLET);
	quiet(ep, 20);
	feed('a');
	ready(ep, 10000, fd, EPOLLIN);
	quiet(ep, 20);
	feed('b'); /* a new edge, though the first message is still there */
	ready(ep, 10000, fd, EPOLLIN);
	take(fd, 'a');
	take(fd, 'b');
	feed('c');
	ready(ep, 10000, fd, EPOLLIN);
	take(fd, 'c');
	quiet(ep, 20);
	close(ep);
}

/*
 * There is always something left, and each arrival is an event all the same, however many there
 * have been.  Some readings of what came before are events as well (poll.c, show_less), so the last
 * event may be one of these, and the last message still be on its way.
 */
static void edges(int fd)
{
	struct pollfd last = {.fd = fd, .events = POLLIN};
	int ep = epoll_create1(0), i;

	add(ep, fd, EPOLLIN | EPOLLET);
	feed('a');
	ready(ep, 10000, fd, EPOLLIN);
	for (i = 0; i < 1000; i++) {
		feed('a');
		ready(ep, 10000, fd, EPOLLIN);
		take(fd, 'a');
	}
	check(poll(&last, 1, TEST_COMES) == 1, "the last message");
	take(fd, 'a');
	quiet(ep, 20);
	close(ep);
}

static void one_shot(int fd)
{
	int ep = epoll_create1(0);

	add(ep, fd, EPOLLIN | EPOLLONESHOT);
	feed('a');
	ready(ep, 10000, fd, EPOLLIN);
	quiet(ep, 20);
	modify(ep, fd, EPOLLIN | EPOLLONESHOT);
	ready(ep, 10000, fd, EPOLLIN);
	take(fd, 'a');
	close(ep);
}

static void nested_and_mixed(int fd)
{
	int inner = epoll_create1(0), outer = epoll_create1(0), p[2];
	struct pollfd pfd = { .fd = outer, .events = POLLIN };

	check(pipe(p) == 0, "pipe");
	add(outer, inner, EPOLLIN);
	add(inner, fd, EPOLLIN);
	add(inner, p[0], EPOLLIN);
	quiet(outer, 20);
	feed('a');
	ready(outer, 10000, inner, EPOLLIN);
	ready(inner, 0, fd, EPOLLIN);
	check(poll(&pfd, 1, TEST_COMES) == 1 && pfd.revents == POLLIN, "poll of an epoll set");
	take(fd, 'a');
	quiet(outer, 20);
	tell(p[1], "x", 1);
	ready(inner, 10000, p[0], EPOLLIN);
	close(p[0]);
	close(p[1]);
	close(inner);
	close(outer);
}

/*
 * The set holds a description, not a number: a copy is enough to keep it alive, the last close ends
 * it.
 */
static void closed(void)
{
	struct sockaddr_in me;
	int fd = bound(&me), copy = dup(fd), ep = epoll_create1(0);
	struct epoll_event ev;

	add(ep, fd, EPOLLOUT);
	close(fd);
	check(epoll_wait(ep, &ev, 1, TEST_COMES) == 1, "the copy keeps it");
	close(copy);
	quiet(ep, 20);
	close(ep);
}

struct told {
	pid_t pid;
	struct sockaddr_in at;
};

/* Stops itself when it has read something, and reads the rest when it goes on. */
static void stopper(void *arg)
{
	struct told me = {.pid = getpid()};
	int fd = bound(&me.at);
	char buf[1024];

	(void)arg;
	tell(from_stopper[1], &me, sizeof(me));
	check(recv(fd, buf, sizeof(buf), 0) == 1, "recv");
	raise(SIGSTOP);
	for (;;)
		check(recv(fd, buf, sizeof(buf), 0) >= 0, "recv");
}

static int writable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return poll(&p, 1, 0);
}

/*
 * A sender that stops as soon as its buffer is full is not told that it may go on, although no send
 * has failed; it is told when there is room again.  (If the network needs no process, as in the
 * kernel, the buffer does not get full.)
 */
static void filled(int by_name)
{
	int fd, size = 64 * 1024, level = epoll_create1(0), edge = epoll_create1(0), i, status;
	struct sockaddr_in me, *to;
	struct told peer;
	char some[1024] = "";
	pid_t pid;

	fd = bound(&me);
	hear(from_stopper[0], &peer, sizeof(peer));
	pid = peer.pid;
	to = &peer.at;
	check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0, "SO_SNDBUF");
	check(connect(fd, (struct sockaddr *)to, sizeof(*to)) == 0, "connect");
	check(send(fd, some, 1, 0) == 1, "send");
	check(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "waitpid");
	add(level, fd, EPOLLOUT);
	ready(level, 10000, fd, EPOLLOUT);
	add(edge, fd, EPOLLOUT | EPOLLET);
	ready(edge, 10000, fd, EPOLLOUT);
	for (i = 0; i < size / 1024 && writable(fd); i++)
		check((by_name ? sendto(fd, some, sizeof(some), MSG_DONTWAIT, (struct sockaddr *)to, sizeof(*to))
			       : send(fd, some, sizeof(some), MSG_DONTWAIT)) == sizeof(some),
		      "send");
	if (!writable(fd)) {
		quiet(level, 20);
		check(kill(pid, SIGCONT) == 0, "kill");
		ready(edge, 10000, fd, EPOLLOUT);
		ready(level, 10000, fd, EPOLLOUT);
	}
	check(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid, "kill");
	close(level);
	close(edge);
	close(fd);
}

int main(void)
{
	pid_t pid;
	int fd, i;

	check(pipe(to_feeder) == 0 && pipe(from_stopper) == 0, "pipe");
	for (i = 0; i < 2; i++)
		start(stopper, NULL);
	pid = start(feeder, NULL);
	close(to_feeder[0]);
	fd = bound(&at);
	tell(to_feeder[1], &at, sizeof(at));
	feed('0');
	{
		struct pollfd p = { .fd = fd, .events = POLLIN };
		char c;

		do /* the connection's first map comes along with it */
			check(poll(&p, 1, TEST_COMES) == 1, "first message");
		while (recv(fd, &c, 1, MSG_DONTWAIT) != 1);
		settle(fd);
	}
	level(fd);
	edge(fd);
	edges(fd);
	one_shot(fd);
	nested_and_mixed(fd);
	closed();
	for (i = 0; i < 2; i++)
		filled(i);
	close(to_feeder[1]);
	finished(pid);
	printf("level, edge, one-shot, nested, mixed, full\n");
	return 0;
}
