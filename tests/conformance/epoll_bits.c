/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* epoll: bits, level and edge triggering, one-shot, what wakes a sleeper. */
#include "rdsconf.h"

#include <sys/epoll.h>

static int s, d, ep;

static void message(void)
{
	if (send_to(s, d, "x", 1, 0) != 1 || !wait_message(d))
		conf_die("send");
}

static void take(void)
{
	char byte;

	recv(d, &byte, 1, MSG_DONTWAIT);
}

static void level(void)
{
	check("add", "0", "%s", rc(epoll_set(ep, EPOLL_CTL_ADD, d, EPOLLIN)));
	check("add-again", "-1 EEXIST", "%s", rc(epoll_set(ep, EPOLL_CTL_ADD, d, EPOLLIN)));
	check("empty", "0", "%s", epoll_said(ep, 0));
	message();
	check("message", "1 IN data 5", "%s", epoll_said(ep, TEST_COMES));
	check("message-level", "1 IN data 5", "%s", epoll_said(ep, 0));
	take();
	check("taken", "0", "%s", epoll_said(ep, 0));
	check("modify-out", "0", "%s", rc(epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLIN | EPOLLOUT)));
	check("out", "1 OUT data 5", "%s", epoll_said(ep, 0));
	check("modify-rdnorm", "0", "%s", rc(epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLRDNORM)));
	check("rdnorm-empty", "0", "%s", epoll_said(ep, 0));
	message();
	check("rdnorm-message", "1 RDNORM data 5", "%s", epoll_said(ep, TEST_COMES));
	take();
}

static void edge(void)
{
	epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLIN | EPOLLET);
	check("edge-empty", "0", "%s", epoll_said(ep, 0));
	message();
	check("edge-message", "1 IN data 5", "%s", epoll_said(ep, TEST_COMES));
	check("edge-once", "0", "%s", epoll_said(ep, 0));
	message();
	check("edge-next-message", "1 IN data 5", "%s", epoll_said(ep, TEST_COMES));
	take();
	take();
	check("edge-drained", "0", "%s", epoll_said(ep, 0));
	message();
	check("edge-after-drain", "1 IN data 5", "%s", epoll_said(ep, TEST_COMES));
	take();
}

static void once(void)
{
	epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLIN | EPOLLONESHOT);
	message();
	check("oneshot", "1 IN data 5", "%s", epoll_said(ep, TEST_COMES));
	check("oneshot-disarmed", "0", "%s", epoll_said(ep, 0));
	epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLIN | EPOLLONESHOT);
	check("oneshot-rearmed", "1 IN data 5", "%s", epoll_said(ep, TEST_COMES));
	take();
}

static long sleeper(void *arg)
{
	struct epoll_event event = { 0 };
	int r = epoll_wait(*(int *)arg, &event, 1, TEST_COMES);

	return r == 1 ? (long)event.events : -1;
}

static void wakes(void)
{
	struct helper helper;

	epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLIN);
	helper_start(&helper, sleeper, &ep);
	check("sleeps", "1", "%d", helper_asleep(&helper));
	send_to(s, d, "x", 1, 0);
	check("woken", "IN", "%s", poll_bits(helper_result(&helper)));
	take();
}

/* The set itself is a descriptor that can be polled. */
static void nested(void)
{
	struct pollfd pfd = { .fd = ep, .events = POLLIN };
	int r;

	epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLIN);
	r = poll(&pfd, 1, 0);
	check("nested-empty", "0 0", "%d %s", r, poll_bits(pfd.revents));
	message();
	r = poll(&pfd, 1, TEST_COMES);
	check("nested-message", "1 IN", "%d %s", r, poll_bits(pfd.revents));
	take();
	epoll_said(ep, 0);
	r = poll(&pfd, 1, 0);
	check("nested-taken", "0 0", "%d %s", r, poll_bits(pfd.revents));
}

static void leaves(void)
{
	check("delete", "0", "%s", rc(epoll_set(ep, EPOLL_CTL_DEL, d, 0)));
	message();
	check("deleted-says-nothing", "0", "%s", epoll_said(ep, 0));
	check("delete-again", "-1 ENOENT", "%s", rc(epoll_set(ep, EPOLL_CTL_DEL, d, 0)));
	check("modify-deleted", "-1 ENOENT", "%s", rc(epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLIN)));
	epoll_set(ep, EPOLL_CTL_ADD, d, EPOLLIN);
	check("added-with-message", "1 IN data 5", "%s", epoll_said(ep, TEST_COMES));
	close(d);
	check("closed-leaves-the-set", "0", "%s", epoll_said(ep, 0));
	check("modify-closed", "-1 EBADF", "%s", rc(epoll_set(ep, EPOLL_CTL_MOD, d, EPOLLIN)));
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	warm_up(s, d);
	ep = epoll_create1(0);
	level();
	edge();
	once();
	wakes();
	nested();
	leaves();
	return conf_end();
}
