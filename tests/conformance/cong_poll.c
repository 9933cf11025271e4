/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Congestion updates without RDS_CONG_MONITOR: the one-shot POLLIN|POLLWRBAND, and who is woken. */
#include "rdsconf.h"

#define ALL (POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLWRBAND)

static char data[8192];
static int s, d;

static const char *bits(int fd, int events)
{
	struct pollfd pfd = { .fd = fd, .events = events };

	poll(&pfd, 1, 0);
	return poll_bits(pfd.revents);
}

/*
 * The congestion update must be over before the refusal.  Otherwise it wakes the thread that waits
 * for the end of the congestion.
 */
static long congest(void)
{
	if (send_to(s, d, data, 5000, MSG_DONTWAIT) != 5000)
		conf_die("send");
	wait_queued(d, 1);
	cong_told(d, s);
	cong_all_told(name_of(d));
	return send_to(s, d, data, 1, MSG_DONTWAIT);
}

static void drain(void)
{
	if (recv(d, data, sizeof(data), MSG_DONTWAIT) != 5000)
		conf_die("recv");
	cong_all_told(name_of(d));
}

static const char *eventually(int fd, int events)
{
	struct pollfd pfd = { .fd = fd, .events = events };

	poll(&pfd, 1, TEST_COMES);
	return poll_bits(pfd.revents);
}

static long poll_in(void *arg)
{
	struct pollfd pfd = { .fd = *(int *)arg, .events = POLLIN };

	return poll(&pfd, 1, TEST_COMES) < 0 ? -1 : pfd.revents;
}

int main(int argc, char **argv)
{
	struct helper helper;
	int other;

	conf_begin(argc, argv);
	if (conf_loop)
		conf_skip("loopback-bound sockets never congest");
	s = rds_bound();
	d = rds_bound();
	other = rds_bound();
	rds_bufs(d, 0, 4096);
	warm_up(s, d);
	cong_all_told(name_of(d));
	settle(s);
	settle(other);
	check("before", "OUT|WRNORM", "%s", bits(s, ALL));
	check("refused", "-1 ENOBUFS", "%s", rc(congest()));
	drain();
	check("update", "IN|WRBAND", "%s", eventually(s, POLLIN | POLLWRBAND));
	check("once", "0", "%s", bits(s, POLLIN | POLLWRBAND));
	check("nothing-to-read", "-1 EAGAIN", "%s", rc(recv(s, data, 1, MSG_DONTWAIT)));
	check("all-bits-again", "OUT|WRNORM", "%s", bits(s, ALL));
	check("uninvolved-socket-too", "IN|WRBAND", "%s", bits(other, POLLIN | POLLWRBAND));
	check("uninvolved-once", "0", "%s", bits(other, POLLIN | POLLWRBAND));

	check("refused-again", "-1 ENOBUFS", "%s", rc(congest()));
	settle(s);
	check("refused-once-more", "-1 ENOBUFS", "%s", rc(send_to(s, d, data, 1, MSG_DONTWAIT)));
	helper_start(&helper, poll_in, &s);
	check("poll-sleeps", "1", "%d", helper_asleep(&helper));
	drain();
	check("update-wakes-poll", "IN", "%s", poll_bits(helper_result(&helper)));
	check("woken-send", "1", "%s", rc(send_to(s, d, data, 1, MSG_DONTWAIT)));
	check("writable-while-congested", "OUT|WRNORM", "%s",
	      (receive(d, data, 1, 0), congest(), settle(s), bits(s, POLLOUT | POLLWRNORM)));
	return conf_end();
}
