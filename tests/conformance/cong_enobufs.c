/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* A receiver over its limit: at which message senders get ENOBUFS, and when not any more. */
#include "rdsconf.h"

#define LIMIT 8192

static char data[LIMIT + 1];
static int sent;		/* messages in the receiver's queue */

/*
 * Each message is in the receiver's queue before the next is sent, and the sender has been told
 * what is congested.
 */
static long put(int s, int d, size_t len)
{
	long r = send_to(s, d, data, len, MSG_DONTWAIT);

	if (r >= 0) {
		wait_queued(d, ++sent);
		cong_told(d, s);
	}
	return r;
}

static long take(int s, int d)
{
	long r = recv(d, data, sizeof(data), MSG_DONTWAIT);

	if (r >= 0) {
		sent--;
		cong_told(d, s);
	}
	return r;
}

static int put_many(int s, int d, int count, size_t len)
{
	int i, n = 0;

	for (i = 0; i < count; i++)
		n += put(s, d, len) == (long)len;
	return n;
}

static long malformed(int s, int d)
{
	char control[CMSG_SPACE(8)] __attribute__((aligned(8)));
	struct name to = name_of(d);
	struct msghdr m = {
		.msg_name = &to.ss, .msg_namelen = to.len, .msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	memset(control, 0, sizeof(control));
	c->cmsg_level = SOL_RDS;
	c->cmsg_type = 99;
	c->cmsg_len = CMSG_LEN(8);
	return sendmsg(s, &m, MSG_DONTWAIT);
}

static void becomes(int s, int other, int d)
{
	int third = rds_bound();

	check("a-byte", "1", "%s", rc(put(s, d, 1)));
	check("seven-kib", "7", "%d", put_many(s, d, 7, 1024));
	check("to-one-below", "1022", "%s", rc(put(s, d, 1022)));
	check("not-yet-at-8191", "1", "%s", rc(put(s, d, 1)));
	check("not-yet-at-8192", "1", "%s", rc(put(s, d, 1)));
	check("congested-at-8193", "-1 ENOBUFS", "%s", rc(put(s, d, 1)));
	check("zero-length-too", "-1 ENOBUFS", "%s", rc(put(s, d, 0)));
	/* its first message */
	check("another-sender-too", "-1 ENOBUFS", "%s", rc(put(other, d, 0)));
	cong_told(d, other);
	check("another-sender-told", "-1 ENOBUFS", "%s", rc(put(other, d, 1)));
	check("size-before-congestion", "-1 EMSGSIZE", "%s", rc(put(s, d, LIMIT + 1)));
	check("cmsg-before-congestion", "-1 EINVAL", "%s", rc(malformed(s, d)));
	check("payload-before-congestion", "-1 EFAULT", "%s", rc(send_to(s, d, conf_bad, 5, MSG_DONTWAIT)));
	check("another-port-is-free", "1", "%s", rc(send_to(s, third, "x", 1, MSG_DONTWAIT)));
	check("congested-may-send", "1", "%s", rc(send_to(d, third, "x", 1, MSG_DONTWAIT)));
	fcntl(s, F_SETFL, O_NONBLOCK);
	check("o-nonblock", "-1 ENOBUFS", "%s", rc(send_to(s, d, data, 1, 0)));
	fcntl(s, F_SETFL, 0);
	close(third);
}

/* In the queue: 1, 7 * 1024, 1022, 1, 1 = 8193 bytes. Cleared strictly below 4096. */
static void ends(int s, int d)
{
	int i;

	check("peek-changes-nothing", "1", "%s", rc(recv(d, data, sizeof(data), MSG_PEEK | MSG_DONTWAIT)));
	check("after-peek", "-1 ENOBUFS", "%s", rc(put(s, d, 1)));
	check("take-a-byte", "1", "%s", rc(take(s, d)));
	check("at-8192", "-1 ENOBUFS", "%s", rc(put(s, d, 1)));
	for (i = 0; i < 3; i++)
		take(s, d);
	check("at-5120", "-1 ENOBUFS", "%s", rc(put(s, d, 1)));
	check("take-1024", "1024", "%s", rc(take(s, d)));
	check("at-4096", "-1 ENOBUFS", "%s", rc(put(s, d, 1)));
	check("take-1024-more", "1024", "%s", rc(take(s, d)));
	check("below-half", "1", "%s", rc(put(s, d, 1)));
	check("again", "1024", "%s", rc(put(s, d, 1024)));
	while (take(s, d) >= 0)
		;
}

/* A changed SO_RCVBUF is looked at with the next message only. */
static void limit_changes(int s, int d)
{
	check("fill", "6", "%d", put_many(s, d, 6, 1024));
	rds_bufs(d, 0, 3000);
	check("lowered-not-yet", "1", "%s", rc(put(s, d, 1)));
	check("lowered-then-congested", "-1 ENOBUFS", "%s", rc(put(s, d, 1)));
	rds_bufs(d, 0, 100000);
	check("raised-still-congested", "-1 ENOBUFS", "%s", rc(put(s, d, 1)));
	check("raised-take", "1024", "%s", rc(take(s, d)));
	check("raised-then-free", "1", "%s", rc(put(s, d, 1)));
	while (take(s, d) >= 0)
		;
	rds_bufs(d, 0, LIMIT);
}

/* A single message above the limit is taken, and congests. */
static void one_large(int s, int d)
{
	rds_bufs(d, 0, 2000);
	check("large", "8000", "%s", rc(put(s, d, 8000)));
	check("large-congests", "-1 ENOBUFS", "%s", rc(put(s, d, 1)));
	check("large-taken", "8000", "%s", rc(take(s, d)));
	check("large-free", "1", "%s", rc(put(s, d, 1)));
	take(s, d);
	rds_bufs(d, 0, LIMIT);
}

/* With its own queue full as well, a sender sees the congestion first. */
static void before_full(int d)
{
	struct name far = name_far(4090);
	int s = rds_bound();

	rds_bufs(s, 4096, 0);
	put_many(s, d, 9, 1024);
	check("congested", "-1 ENOBUFS", "%s", rc(put(s, d, 1)));
	sendto(s, data, 4096, MSG_DONTWAIT, &far.sa, far.len);
	check("full-elsewhere", "-1 EAGAIN", "%s", rc(sendto(s, data, 1, MSG_DONTWAIT, &far.sa, far.len)));
	check("congestion-before-full", "-1 ENOBUFS", "%s", rc(put(s, d, 1)));
	close(s);
}

int main(int argc, char **argv)
{
	int s, other, d;

	conf_begin(argc, argv);
	s = rds_bound();
	other = rds_bound();
	d = rds_bound();
	rds_bufs(s, LIMIT, 0);
	rds_bufs(d, 0, LIMIT);
	if (conf_loop) {
		check("loopback-never-congests", "100", "%d", put_many(s, d, 100, 1024));
		return conf_end();
	}
	becomes(s, other, d);
	ends(s, d);
	limit_changes(s, d);
	one_large(s, d);
	before_full(d);
	return conf_end();
}
