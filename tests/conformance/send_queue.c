/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Send-queue accounting, with a destination that never answers: messages stay queued. */
#include "rdsconf.h"

#define CAP 8192

static char data[CAP + 1];

static long to_far(int fd, size_t len, int flags)
{
	struct name far = name_far(4070);

	return sendto(fd, data, len, flags, &far.sa, far.len);
}

static int writable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLOUT | POLLWRNORM };

	poll(&pfd, 1, 0);
	return pfd.revents;
}

static int queue(int snd)
{
	int fd = rds_bound();

	rds_bufs(fd, snd, 0);
	settle(fd);
	return fd;
}

static void overshoot(void)
{
	int fd = queue(CAP);

	check("one-short-of-the-limit", "8191", "%s", rc(to_far(fd, CAP - 1, MSG_DONTWAIT)));
	check("still-writable", "OUT|WRNORM", "%s", poll_bits(writable(fd)));
	check("size-before-queue", "-1 EMSGSIZE", "%s", rc(to_far(fd, CAP + 1, MSG_DONTWAIT)));
	check("overshoot-by-a-message", "8192", "%s", rc(to_far(fd, CAP, MSG_DONTWAIT)));
	check("not-writable", "0", "%s", poll_bits(writable(fd)));
	check("full", "-1 EAGAIN", "%s", rc(to_far(fd, 1, MSG_DONTWAIT)));
	check("full-zero-length", "-1 EAGAIN", "%s", rc(to_far(fd, 0, MSG_DONTWAIT)));
	check("size-before-full", "-1 EMSGSIZE", "%s", rc(to_far(fd, CAP + 1, MSG_DONTWAIT)));
	close(fd);
}

static void exactly_full(void)
{
	int fd = queue(CAP);

	check("half", "4096", "%s", rc(to_far(fd, CAP / 2, MSG_DONTWAIT)));
	check("other-half", "4096", "%s", rc(to_far(fd, CAP / 2, MSG_DONTWAIT)));
	check("exactly-full", "-1 EAGAIN", "%s", rc(to_far(fd, 1, MSG_DONTWAIT)));
	check("exactly-full-poll", "0", "%s", poll_bits(writable(fd)));
	close(fd);
}

static void zero_length_is_free(void)
{
	int fd = queue(CAP), i, sent = 0;

	for (i = 0; i < 200; i++)
		sent += to_far(fd, 0, MSG_DONTWAIT) == 0;
	check("zero-length-messages", "200", "%d", sent);
	check("zero-length-cost-nothing", "OUT|WRNORM", "%s", poll_bits(writable(fd)));
	check("then-a-full-one", "8192", "%s", rc(to_far(fd, CAP, MSG_DONTWAIT)));
	check("then-full", "-1 EAGAIN", "%s", rc(to_far(fd, 0, MSG_DONTWAIT)));
	close(fd);
}

static void limit_changes(void)
{
	int fd = queue(CAP);

	to_far(fd, CAP, MSG_DONTWAIT);
	check("full-before-raise", "-1 EAGAIN", "%s", rc(to_far(fd, 1, MSG_DONTWAIT)));
	rds_bufs(fd, 2 * CAP, 0);
	check("raised-poll", "OUT|WRNORM", "%s", poll_bits(writable(fd)));
	check("raised-send", "1", "%s", rc(to_far(fd, 1, MSG_DONTWAIT)));
	rds_bufs(fd, CAP / 2, 0);
	check("lowered-poll", "0", "%s", poll_bits(writable(fd)));
	check("lowered-send", "-1 EAGAIN", "%s", rc(to_far(fd, 1, MSG_DONTWAIT)));
	close(fd);
}

/* A full queue is the socket's, not the destination's; others are not affected. */
static void whose(void)
{
	int fd = queue(CAP), other = queue(CAP), here = rds_bound();

	to_far(fd, CAP, MSG_DONTWAIT);
	check("full-to-another-destination", "-1 EAGAIN", "%s", rc(send_to(fd, here, "x", 1, MSG_DONTWAIT)));
	check("another-socket", "1", "%s", rc(to_far(other, 1, MSG_DONTWAIT)));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	check("o-nonblock", "-1 EAGAIN", "%s", rc(to_far(fd, 1, 0)));
	check("receives-meanwhile", "3", "%s", rc(send_to(other, fd, "abc", 3, 0)));
	check("received", "3", "%s", rc(receive(fd, data, 10, 0)));
	close(fd);
	close(other);
	close(here);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	if (conf_loop)
		conf_skip("the loopback transport acknowledges everything at once");
	overshoot();
	exactly_full();
	zero_length_is_free();
	limit_changes();
	whose();
	return conf_end();
}
