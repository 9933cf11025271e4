/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* SO_ZEROCOPY and MSG_ZEROCOPY: which combinations are refused. */
#include "rdsconf.h"

static int s, d;

static int option(int value, socklen_t len)
{
	int values[2] = { value, 0 };

	return setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, values, len);
}

static int enabled(void)
{
	int value = -7;
	socklen_t len = sizeof(value);

	getsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &value, &len);
	return value;
}

static long zero_copy(int flags, socklen_t cookie_len, size_t payload)
{
	char control[CMSG_SPACE(4)] __attribute__((aligned(8)));
	static char data[64];
	struct iovec iov = { data, payload };
	struct name to = name_of(d);
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_name = &to.ss, .msg_namelen = to.len };
	struct cmsghdr *c;

	memset(control, 0, sizeof(control));
	if (cookie_len) {
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_RDS;
		c->cmsg_type = RDS_CMSG_ZCOPY_COOKIE;
		c->cmsg_len = CMSG_LEN(cookie_len);
	}
	return sendmsg(s, &m, flags | MSG_DONTWAIT);
}

int main(int argc, char **argv)
{
	const char *want;

	conf_begin(argc, argv);
	/* Only rds_tcp has it, so that nobody else looks further. */
	want = conf_transport == RDS_TRANS_TCP ? "-1 EINVAL" : "-1 EOPNOTSUPP";
	s = rds_bound();
	d = rds_bound();
	check("flag-without-option-or-cookie", "-1 EINVAL", "%s", rc(zero_copy(MSG_ZEROCOPY, 0, 8)));
	check("flag-without-option", "-1 EINVAL", "%s", rc(zero_copy(MSG_ZEROCOPY, 4, 8)));
	check("cookie-without-flag", "-1 EINVAL", "%s", rc(zero_copy(0, 4, 8)));
	check("option-2", "-1 EINVAL", "%s", rc(option(2, 4)));
	check("option-negative", "-1 EINVAL", "%s", rc(option(-1, 4)));
	check("option-len-3", "-1 EINVAL", "%s", rc(option(1, 3)));
	check("option-still-off", "0", "%d", enabled());
	check("option-on", "0", "%s", rc(option(1, 4)));
	check("option-is-on", "1", "%d", enabled());
	check("flag-without-cookie", want, "%s", rc(zero_copy(MSG_ZEROCOPY, 0, 8)));
	check("cookie-short", want, "%s", rc(zero_copy(MSG_ZEROCOPY, 2, 8)));
	check("no-payload", want, "%s", rc(zero_copy(MSG_ZEROCOPY, 4, 0)));
	check("plain-send-with-option", "8", "%s", rc(zero_copy(0, 0, 8)));
	check("option-off", "0", "%s", rc(option(0, 4)));
	check("option-is-off", "0", "%d", enabled());
	check("plain-send", "8", "%s", rc(zero_copy(0, 0, 8)));
	conf_arrives(d);
	conf_arrives(d);
	return conf_end();
}
