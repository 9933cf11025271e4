/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* RDS_CONG_MONITOR: the notification after an ENOBUFS, how it is received and how it is lost. */
#include "rdsconf.h"

#include <sys/epoll.h>

static char data[8192];
static int s, d;

static void monitor(int on)
{
	if (setsockopt(s, SOL_RDS, RDS_CONG_MONITOR, &on, sizeof(on)))
		conf_die("RDS_CONG_MONITOR");
}

/*
 * Congest the receiver. That is news for everybody, too; it must be over before a sender is
 * refused, or it counts as the update that the sender waits for.
 */
static void congest(int from)
{
	if (send_to(from, d, data, 5000, MSG_DONTWAIT) != 5000)
		conf_die("send");
	wait_queued(d, 1);
	cong_told(d, from);
	cong_all_told(name_of(d));
}

static const char *refused(void)
{
	congest(s);
	return rc(send_to(s, d, data, 1, MSG_DONTWAIT));
}

static void drain(void)
{
	if (recv(d, data, sizeof(data), MSG_DONTWAIT) != 5000)
		conf_die("recv");
}

/* Congest the receiver, see ENOBUFS, drain it: an update is on its way to the sender. */
static const char *provoke(void)
{
	const char *result = refused();

	drain();
	return result;
}

static const char *ready(int ms)
{
	struct pollfd pfd = { .fd = s, .events = POLLIN | POLLRDNORM | POLLWRBAND };

	poll(&pfd, 1, ms);
	return poll_bits(pfd.revents);
}

/* recvmsg with all there is to see. */
static void arrives(const char *name, int flags, size_t controllen, const char *want)
{
	char control[256] __attribute__((aligned(8))), buf[8], out[128] = "";
	struct iovec iov = { buf, sizeof(buf) };
	struct name from, to = name_of(d);
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = controllen,
		.msg_name = &from.ss, .msg_namelen = sizeof(from.ss),
	};
	struct cmsghdr *c;
	uint64_t mask;
	long r;

	r = recvmsg(s, &m, flags | MSG_DONTWAIT);
	if (r < 0) {
		check(name, want, "%s", rc(r));
		return;
	}
	for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		bool whole = c->cmsg_len >= CMSG_LEN(sizeof(mask));

		if (whole)
			memcpy(&mask, CMSG_DATA(c), sizeof(mask));
		snprintf(out + strlen(out), sizeof(out) - strlen(out), " [%d %d len %zu %s]", c->cmsg_level,
			 c->cmsg_type, (size_t)c->cmsg_len,
			 !whole ? "cut" : mask == 1ULL << name_port(&to) % 64 ? "its port" : "other ports");
	}
	check(name, want, "%s namelen %s flags %s controllen %zu%s", rc(r), m.msg_namelen ? "some" : "0",
	      msg_flags(m.msg_flags), (size_t)m.msg_controllen, out);
}

static void delivered(void)
{
	const char *update = "0 namelen 0 flags 0 controllen 24 [276 5 len 24 its port]";

	monitor(1);
	check("nothing-pending", "0", "%s", ready(0));
	check("refused", "-1 ENOBUFS", "%s", provoke());
	check("readable", "IN|RDNORM", "%s", ready(TEST_COMES));
	check("still-readable", "IN|RDNORM", "%s", ready(0));
	arrives("update", 0, 256, update);
	check("not-readable", "0", "%s", ready(0));
	arrives("update-once", 0, 256, "-1 EAGAIN");
	provoke();
	ready(TEST_COMES);
	arrives("peek-consumes-it", MSG_PEEK, 256, update);
	arrives("after-peek", 0, 256, "-1 EAGAIN");
	provoke();
	ready(TEST_COMES);
	arrives("exact-control", 0, CMSG_SPACE(8), update);
	provoke();
	ready(TEST_COMES);
	arrives("short-control", 0, 20, "0 namelen 0 flags CTRUNC controllen 20 [276 5 len 20 cut]");
	arrives("lost-after-short-control", 0, 256, "-1 EAGAIN");
	provoke();
	ready(TEST_COMES);
	arrives("no-control", 0, 0, "0 namelen 0 flags CTRUNC controllen 0");
	arrives("lost-after-no-control", 0, 256, "-1 EAGAIN");
	provoke();
	ready(TEST_COMES);
	check("read-consumes-it", "0", "%s", rc(read(s, data, 10)));
	arrives("lost-after-read", 0, 256, "-1 EAGAIN");
}

static void before_data(void)
{
	struct name from = { .len = sizeof(from.ss) };
	long r;

	refused();
	send_to(d, s, "abc", 3, 0);
	wait_queued(s, 1);
	drain();
	send_to(d, s, "behind", 6, 0);
	wait_queued(s, 2);
	cong_all_told(name_of(d));
	r = recvfrom(s, data, sizeof(data), MSG_DONTWAIT, &from.sa, &from.len);
	check("update-before-data", "0 namelen 0", "%s namelen %u", rc(r), from.len);
	arrives("then-data", 0, 256, "3 namelen some flags 0 controllen 0");
	recv(s, data, sizeof(data), MSG_DONTWAIT);
	arrives("then-nothing", 0, 256, "-1 EAGAIN");
}

static long blocking_receive(void *arg)
{
	(void)arg;
	return recv(s, data, sizeof(data), 0);
}

static void wakes_receiver(void)
{
	struct helper helper;

	congest(s);
	check("refused-before-sleep", "-1 ENOBUFS", "%s", rc(send_to(s, d, data, 1, MSG_DONTWAIT)));
	helper_start(&helper, blocking_receive, NULL);
	check("receiver-sleeps", "1", "%d", helper_asleep(&helper));
	recv(d, data, sizeof(data), MSG_DONTWAIT);
	check("update-wakes-receiver", "0", "%s", rc(helper_result(&helper)));
}

static long epoll_in(void *arg)
{
	struct epoll_event event = { 0 };
	int r = epoll_wait(*(int *)arg, &event, 1, TEST_COMES);

	return r == 1 ? (long)event.events : -1;
}

static void wakes_epoll(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct helper helper;
	int ep = epoll_create1(0);

	epoll_ctl(ep, EPOLL_CTL_ADD, s, &event);
	congest(s);
	check("refused-before-epoll", "-1 ENOBUFS", "%s", rc(send_to(s, d, data, 1, MSG_DONTWAIT)));
	helper_start(&helper, epoll_in, &ep);
	check("epoll-sleeps", "1", "%d", helper_asleep(&helper));
	recv(d, data, sizeof(data), MSG_DONTWAIT);
	check("update-wakes-epoll", "IN", "%s", poll_bits(helper_result(&helper)));
	check("epoll-update-read", "0", "%s", rc(recv(s, data, sizeof(data), MSG_DONTWAIT)));
	close(ep);
}

static void not_asked(void)
{
	monitor(0);
	provoke();
	cong_told(d, s);
	cong_all_told(name_of(d));
	ready(0);
	ready(0);
	arrives("monitor-off", 0, 256, "-1 EAGAIN");
	monitor(1);
	arrives("turned-on-later", 0, 256, "-1 EAGAIN");
	provoke();
	ready(TEST_COMES);
	monitor(0);
	monitor(1);
	arrives("turning-off-drops-it", 0, 256, "-1 EAGAIN");
}

/* Without an ENOBUFS of its own a socket is told nothing. */
static void others_refusal(void)
{
	int other = rds_bound();

	monitor(1);
	congest(other);
	check("other-is-refused", "-1 ENOBUFS", "%s", rc(send_to(other, d, data, 1, MSG_DONTWAIT)));
	drain();
	cong_told(d, s);
	cong_all_told(name_of(d));
	check("not-told", "0", "%s", ready(50));
	close(other);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	if (conf_loop)
		conf_skip("loopback-bound sockets never congest");
	s = rds_bound();
	d = rds_bound();
	rds_bufs(d, 0, 4096);
	warm_up(s, d);
	cong_all_told(name_of(d));
	delivered();
	before_data();
	wakes_receiver();
	wakes_epoll();
	not_asked();
	others_refusal();
	return conf_end();
}
