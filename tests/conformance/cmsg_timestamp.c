/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Receive timestamps: the option at both levels, the control message, truncated control buffers. */
#include "rdsconf.h"

#ifndef SO_TIMESTAMP_NEW
#define SO_TIMESTAMP_NEW 63
#endif
#ifndef SO_TIMESTAMPNS_NEW
#define SO_TIMESTAMPNS_NEW 64
#endif

static int s, d;

static int option(int level, int which, int value)
{
	return setsockopt(d, level, which, &value, sizeof(value));
}

static int enabled(int which)
{
	int value = -7;
	socklen_t len = sizeof(value);

	getsockopt(d, SOL_SOCKET, which, &value, &len);
	return value;
}

/*
 * One message, then all that came with it. A time is shown as "now" if it is within a minute of
 * now.
 */
static void arrives(const char *name, size_t controllen, const char *want)
{
	char control[256] __attribute__((aligned(8))), buf[8], out[256] = "";
	struct iovec iov = { buf, sizeof(buf) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = controllen };
	struct timeval tv, now;
	struct cmsghdr *c;
	long r;

	r = recvmsg(d, &m, MSG_DONTWAIT);
	if (r < 0) {
		check(name, want, "%s", rc(r));
		return;
	}
	gettimeofday(&now, NULL);
	for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		const char *when = "cut";

		if (c->cmsg_len >= CMSG_LEN(sizeof(tv))) {
			memcpy(&tv, CMSG_DATA(c), sizeof(tv));
			when = labs(tv.tv_sec - now.tv_sec) < 60 && tv.tv_usec < 1000000 ? "now" : "bad";
		}
		snprintf(out + strlen(out), sizeof(out) - strlen(out), " [%d %d len %zu %s]", c->cmsg_level,
			 c->cmsg_type, (size_t)c->cmsg_len, when);
	}
	check(name, want, "%s flags %s controllen %zu%s", rc(r), msg_flags(m.msg_flags), (size_t)m.msg_controllen,
	      out);
}

static void send_one(void)
{
	if (send_to(s, d, "t", 1, 0) != 1 || !wait_message(d))
		conf_die("send");
}

static void one(const char *name, size_t controllen, const char *want)
{
	send_one();
	arrives(name, controllen, want);
}

#define STAMP(type) "1 flags 0 controllen 32 [1 " #type " len 32 now]"

int main(int argc, char **argv)
{
	int value = 1;

	conf_begin(argc, argv);
	s = rds_bound();
	d = rds_bound();
	one("off", 256, "1 flags 0 controllen 0");
	check("socket-level", "0", "%s", rc(option(SOL_SOCKET, SO_TIMESTAMP, 1)));
	check("socket-level-get", "1", "%d", enabled(SO_TIMESTAMP));
	one("stamp", 256, STAMP(29));
	one("exact-control", 32, STAMP(29));
	one("control-31", 31, "1 flags CTRUNC controllen 31 [1 29 len 31 cut]");
	one("control-24", 24, "1 flags CTRUNC controllen 24 [1 29 len 24 cut]");
	one("control-16", 16, "1 flags CTRUNC controllen 16 [1 29 len 16 cut]");
	one("control-15", 15, "1 flags CTRUNC controllen 0");
	one("control-0", 0, "1 flags CTRUNC controllen 0");
	send_one();
	option(SOL_SOCKET, SO_TIMESTAMP, 0);
	arrives("turned-off-after-arrival", 256, "1 flags 0 controllen 0");
	send_one();
	option(SOL_SOCKET, SO_TIMESTAMP, 1);
	arrives("turned-on-after-arrival", 256, "1 flags 0 controllen 0");
	option(SOL_SOCKET, SO_TIMESTAMP, 0);

	check("rds-level", "0", "%s", rc(option(SOL_RDS, SO_TIMESTAMP, 1)));
	check("rds-level-same-flag", "1", "%d", enabled(SO_TIMESTAMP));
	one("rds-level-stamp", 256, STAMP(29));
	check("rds-level-len-3", "-1 EFAULT", "%s", rc(setsockopt(d, SOL_RDS, SO_TIMESTAMP, &value, 3)));
	check("rds-level-len-8", "-1 EFAULT", "%s", rc(setsockopt(d, SOL_RDS, SO_TIMESTAMP, &value, 8)));
	check("rds-level-bad-pointer", "-1 EFAULT", "%s", rc(setsockopt(d, SOL_RDS, SO_TIMESTAMP, conf_bad, 4)));
	one("kept-after-errors", 256, STAMP(29));
	check("rds-level-off", "0", "%s", rc(option(SOL_RDS, SO_TIMESTAMP, 0)));
	one("rds-level-off-no-stamp", 256, "1 flags 0 controllen 0");
	check("rds-level-get", "-1 ENOPROTOOPT", "%s",
	      rc(getsockopt(d, SOL_RDS, SO_TIMESTAMP, &value, &(socklen_t){ 4 })));

	check("new-socket-level", "0", "%s", rc(option(SOL_SOCKET, SO_TIMESTAMP_NEW, 1)));
	one("new-stamp", 256, STAMP(63));
	check("new-shows-at-old", "0 1", "%d %d", enabled(SO_TIMESTAMP), enabled(SO_TIMESTAMP_NEW));
	check("new-off", "0", "%s", rc(option(SOL_SOCKET, SO_TIMESTAMP_NEW, 0)));
	check("new-rds-level", "0", "%s", rc(option(SOL_RDS, SO_TIMESTAMP_NEW, 1)));
	one("new-rds-level-stamp", 256, STAMP(63));
	option(SOL_SOCKET, SO_TIMESTAMP_NEW, 0);
	check("ns", "0", "%s", rc(option(SOL_SOCKET, SO_TIMESTAMPNS, 1)));
	one("ns-stamp-is-a-timeval", 256, STAMP(29));
	return conf_end();
}
