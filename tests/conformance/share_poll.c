/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * poll, select and epoll in a process that has another process's socket: they report the true
 * state, whichever process has caused it.
 */
#include "rdsconf.h"

#include <sys/epoll.h>
#include <sys/select.h>

static int s, d, ep;
static char data[8];

static const char *look(int events, int ms)
{
	struct pollfd pfd = {.fd = d, .events = events};
	int r = poll(&pfd, 1, ms);

	return text("%d %s", r, poll_bits(pfd.revents));
}

static const char *pick(int ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	fd_set in, out, odd;
	int r;

	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_ZERO(&odd);
	FD_SET(d, &in);
	FD_SET(d, &out);
	FD_SET(d, &odd);
	r = select(d + 1, &in, &out, &odd, &tv);
	return text("%d%s%s%s", r, FD_ISSET(d, &in) ? " in" : "", FD_ISSET(d, &out) ? " out" : "",
		    FD_ISSET(d, &odd) ? " except" : "");
}

static void take(void)
{
	if (recv(d, data, sizeof(data), MSG_DONTWAIT) < 0)
		conf_die("take");
}

/* The parent's part in every step: a message, and the word that it is there. */
static void message(const struct other *other)
{
	hear(other);
	send_to(s, d, "x", 1, 0);
	if (!wait_message(d))
		conf_die("message");
	say(other);
}

/* In the child: have a message sent. */
static void ask(const struct other *other)
{
	say(other);
	hear(other);
}

static void child_polls(const struct other *other)
{
	check("poll-empty", "1 OUT", "%s", look(POLLIN | POLLOUT, 0));
	check("poll-empty-in", "0 0", "%s", look(POLLIN | POLLRDNORM | POLLPRI, 0));
	check("select-empty", "1 out", "%s", pick(0));
	ask(other);
	check("poll-message", "1 IN|RDNORM", "%s", look(POLLIN | POLLRDNORM | POLLPRI, TEST_COMES));
	check("poll-all", "1 IN|RDNORM|OUT|WRNORM", "%s", look(POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM, 0));
	check("poll-rdnorm", "1 RDNORM", "%s", look(POLLRDNORM, 0));
	check("select-message", "2 in out", "%s", pick(0));
	take();
	check("poll-taken", "0 0", "%s", look(POLLIN, 0));
	check("select-taken", "1 out", "%s", pick(0));
	ask(other);
	check("poll-next", "1 IN", "%s", look(POLLIN, TEST_COMES));
	ask(other); /* the parent takes it, and has one sent, and takes that: none is left */
	check("poll-taken-by-parent", "0 0", "%s", look(POLLIN, 0));
	check("select-taken-by-parent", "1 out", "%s", pick(0));
}

static void polls(void)
{
	struct other other;

	if (fork_other(&other)) {
		child_polls(&other);
		_exit(0);
	}
	message(&other);
	message(&other);
	hear(&other);
	take();
	say(&other);
	check("polls-end", "exit 0", "%s", end_of(&other));
}

static void child_epolls(const struct other *other)
{
	check("add", "0", "%s", rc(epoll_set(ep, EPOLL_CTL_ADD, d, EPOLLIN)));
	check("add-again", "-1 EEXIST", "%s", rc(epoll_set(ep, EPOLL_CTL_ADD, d, EPOLLIN)));
	check("empty", "0", "%s", epoll_said(ep, 0));
	ask(other);
	check("message", "1 IN data 5", "%s", epoll_said(ep, TEST_COMES));
	check("message-level", "1 IN data 5", "%s", epoll_said(ep, 0));
	take();
	check("taken", "0", "%s", epoll_said(ep, 0));
	check("modify", "0", "%s", rc(epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLIN | EPOLLOUT)));
	check("out", "1 OUT data 5", "%s", epoll_said(ep, 0));
	check("modify-rdnorm", "0", "%s", rc(epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLRDNORM)));
	check("rdnorm-empty", "0", "%s", epoll_said(ep, 0));
	ask(other);
	check("rdnorm-message", "1 RDNORM data 5", "%s", epoll_said(ep, TEST_COMES));
	take();
	check("modify-edge", "0", "%s", rc(epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLIN | EPOLLET)));
	check("edge-empty", "0", "%s", epoll_said(ep, 0));
	ask(other);
	check("edge-message", "1 IN data 5", "%s", epoll_said(ep, TEST_COMES));
	check("edge-once", "0", "%s", epoll_said(ep, 0));
	ask(other);
	check("edge-next-message", "1 IN data 5", "%s", epoll_said(ep, TEST_COMES));
	take();
	take();
	check("edge-drained", "0", "%s", epoll_said(ep, 0));
	check("modify-once", "0", "%s", rc(epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLIN | EPOLLONESHOT)));
	ask(other);
	check("oneshot", "1 IN data 5", "%s", epoll_said(ep, TEST_COMES));
	check("oneshot-disarmed", "0", "%s", epoll_said(ep, 0));
	take();
	check("delete", "0", "%s", rc(epoll_set(ep, EPOLL_CTL_DEL, d, 0)));
	check("delete-again", "-1 ENOENT", "%s", rc(epoll_set(ep, EPOLL_CTL_DEL, d, 0)));
}

/* A set of the child's own. */
static void epolls(void)
{
	struct other other;
	int i;

	if (fork_other(&other)) {
		ep = epoll_create1(0);
		child_epolls(&other);
		_exit(0);
	}
	for (i = 0; i < 5; i++)
		message(&other);
	check("epolls-end", "exit 0", "%s", end_of(&other));
}

/* A set that both have, since it was made and filled before the fork. */
static void inherited_set(void)
{
	struct other other;

	ep = epoll_create1(0);
	epoll_set(ep, EPOLL_CTL_ADD, d, EPOLLIN);
	if (fork_other(&other)) {
		check("inherited-empty", "0", "%s", epoll_said(ep, 0));
		ask(&other);
		check("inherited-message", "1 IN data 5", "%s", epoll_said(ep, TEST_COMES));
		take();
		check("inherited-taken", "0", "%s", epoll_said(ep, 0));
		check("inherited-delete", "0", "%s", rc(epoll_set(ep, EPOLL_CTL_DEL, d, 0)));
		_exit(0);
	}
	message(&other);
	check("inherited-end", "exit 0", "%s", end_of(&other));
	check("deleted-by-child", "-1 ENOENT", "%s", rc(epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLIN)));
	close(ep);
}

static const char *sleep_in(int how)
{
	switch (how) {
	case 0:
		return look(POLLIN, TEST_COMES);
	case 1:
		return look(POLLIN, -1);
	case 2:
		return epoll_said(ep, TEST_COMES);
	case 3:
		return epoll_said(ep, -1);
	}
	return "?";
}

/* A process that sleeps in one of these, and is woken by what comes later. */
static void sleeper(const char *name, int how, unsigned events, const char *want)
{
	struct other other;

	if (fork_other(&other)) {
		ep = epoll_create1(0);
		epoll_set(ep, EPOLL_CTL_ADD, d, events);
		check(name, want, "%s", sleep_in(how));
		_exit(0);
	}
	check(text("%s-asleep", name), "1", "%d", process_asleep(other.pid));
	send_to(s, d, "x", 1, 0);
	check(text("%s-end", name), "exit 0", "%s", end_of(&other));
	take();
}

/* Two that only look: both see it, and it is there for either. */
static void lookers(void)
{
	struct other one, two;

	if (fork_other(&one)) {
		check("one-sees", "1 IN", "%s", look(POLLIN, TEST_COMES));
		_exit(0);
	}
	if (fork_other(&two)) {
		check("two-sees", "1 IN", "%s", look(POLLIN, TEST_COMES));
		_exit(0);
	}
	check("both-asleep", "1 1", "%d %d", process_asleep(one.pid), process_asleep(two.pid));
	send_to(s, d, "x", 1, 0);
	check("one-end", "exit 0", "%s", end_of(&one));
	check("two-end", "exit 0", "%s", end_of(&two));
	check("still-there", "1 IN", "%s", look(POLLIN, 0));
	take();
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	warm_up(s, d);
	polls();
	epolls();
	inherited_set();
	sleeper("poll-sleeps", 0, EPOLLIN, "1 IN");
	sleeper("poll-sleeps-for-ever", 1, EPOLLIN, "1 IN");
	sleeper("epoll-sleeps", 2, EPOLLIN, "1 IN data 5");
	sleeper("epoll-sleeps-for-rdnorm", 3, EPOLLRDNORM, "1 RDNORM data 5");
	sleeper("epoll-sleeps-for-edge", 3, EPOLLIN | EPOLLET, "1 IN data 5");
	lookers();
	return conf_end();
}
