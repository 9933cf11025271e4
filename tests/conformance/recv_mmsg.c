/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* recvmmsg: batches, the error that ends one, timeouts. */
#include "rdsconf.h"

#include <time.h>

#define N 5

static char bufs[N][16];
static struct iovec iovs[N];
static struct mmsghdr m[N];

static void reset(void)
{
	int i;

	memset(m, 0, sizeof(m));
	for (i = 0; i < N; i++) {
		iovs[i] = (struct iovec){ bufs[i], sizeof(bufs[i]) };
		m[i].msg_hdr.msg_iov = &iovs[i];
		m[i].msg_hdr.msg_iovlen = 1;
		m[i].msg_len = 77;
	}
}

static void fill(int s, int d, int count)
{
	static const char data[] = "abcdefgh";
	int i;

	for (i = 1; i <= count; i++)
		if (send_to(s, d, data, i, 0) != i)
			conf_die("send");
	wait_queued(d, count);
}

static const char *lens(void)
{
	return text("%u,%u,%u,%u,%u", m[0].msg_len, m[1].msg_len, m[2].msg_len, m[3].msg_len, m[4].msg_len);
}

static int so_error(int fd)
{
	int value = -1;
	socklen_t len = sizeof(value);

	getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len);
	return value;
}

static const char *error_name(int error)
{
	return error ? strerrorname_np(error) : "0";
}

static int state(int fd)
{
	struct pollfd pfd = { .fd = fd };

	poll(&pfd, 1, 0);
	return pfd.revents;
}

static void batches(int s, int d)
{
	struct timespec ts = { 0, 0 };
	int r;

	reset();
	check("empty-nonblocking", "-1 EAGAIN", "%s", rc(recvmmsg(d, m, N, MSG_DONTWAIT, NULL)));
	check("vlen-0", "0", "%s", rc(recvmmsg(d, m, 0, MSG_DONTWAIT, NULL)));
	fill(s, d, 3);
	reset();
	r = recvmmsg(d, m, N, MSG_DONTWAIT, NULL);
	check("three-of-five", "3 1,2,3,77,77", "%s %s", rc(r), lens());
	check("eagain-not-stored", "0", "%s", error_name(so_error(d)));
	fill(s, d, 3);
	reset();
	r = recvmmsg(d, m, 2, MSG_DONTWAIT, NULL);
	check("two-of-three", "2 1,2,77,77,77", "%s %s", rc(r), lens());
	reset();
	r = recvmmsg(d, m, N, MSG_WAITFORONE, NULL);
	check("waitforone", "1 3,77,77,77,77", "%s %s", rc(r), lens());
	fill(s, d, 3);
	reset();
	r = recvmmsg(d, m, 2, 0, NULL);
	check("blocking-vlen-2", "2 1,2,77,77,77", "%s %s", rc(r), lens());
	reset();
	r = recvmmsg(d, m, N, 0, &ts);
	check("timeout-0-takes-one", "1 3,77,77,77,77", "%s %s", rc(r), lens());
	ts.tv_nsec = 1000000000;
	check("timeout-invalid", "-1 EINVAL", "%s", rc(recvmmsg(d, m, N, MSG_DONTWAIT, &ts)));
	check("bad-vector", "-1 EFAULT", "%s", rc(recvmmsg(d, conf_bad, N, MSG_DONTWAIT, NULL)));
}

/* An error other than EAGAIN behind some messages is kept for later. */
static void stored_error(int s, int d)
{
	int r;

	timeouts(d, SO_RCVTIMEO, 100);
	fill(s, d, 2);
	reset();
	r = recvmmsg(d, m, N, 0, NULL);
	check("batch-ended-by-timeout", "2 1,2,77,77,77", "%s %s", rc(r), lens());
	check("poll-says-error", "ERR", "%s", poll_bits(state(d) & POLLERR));
	check("next-call-returns-it", "-1 ETIMEDOUT", "%s", rc(recvmmsg(d, m, N, MSG_DONTWAIT, NULL)));
	check("error-gone", "0", "%s", poll_bits(state(d) & POLLERR));
	check("after-that", "-1 EAGAIN", "%s", rc(recvmmsg(d, m, N, MSG_DONTWAIT, NULL)));
	fill(s, d, 1);
	reset();
	r = recvmmsg(d, m, N, 0, NULL);
	check("batch-of-one-ended-by-timeout", "1 1,77,77,77,77", "%s %s", rc(r), lens());
	check("so-error-shows-it", "ETIMEDOUT", "%s", error_name(so_error(d)));
	check("so-error-cleared", "0", "%s", error_name(so_error(d)));
	fill(s, d, 1);
	reset();
	r = recvmmsg(d, m, N, 0, NULL);
	check("once-more", "1", "%s", rc(r));
	check("recv-ignores-it", "-1 EAGAIN", "%s", rc(recv(d, bufs, 1, MSG_DONTWAIT)));
	check("and-send-too", "1", "%s", rc(send_to(d, s, "x", 1, 0)));
	check("it-is-still-there", "ETIMEDOUT", "%s", error_name(so_error(d)));
	check("empty-timeout", "-1 ETIMEDOUT", "%s", rc(recvmmsg(d, m, N, 0, NULL)));
	check("empty-timeout-not-stored", "0", "%s", error_name(so_error(d)));
}

int main(int argc, char **argv)
{
	int s, d;

	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	batches(s, d);
	stored_error(s, d);
	return conf_end();
}
