/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What a send checks: the destination's name, its family, pointers, lengths, control messages. */
#include "rdsconf.h"

#include <limits.h>

static int sender, target;

static void row_len(const char *name, const struct name *at, socklen_t len, const char *want)
{
	check(name, want, "%s", rc(sendto(sender, "x", 1, MSG_DONTWAIT, &at->sa, len)));
}

static void row(const char *name, const char *address, unsigned port, const char *want)
{
	struct name at = name_at(address, port);

	row_len(name, &at, at.len, want);
}

static void addresses(void)
{
	const char *other = conf_v6 ? "-1 EOPNOTSUPP" : "1";
	const char *same6 = conf_v6 ? "1" : "-1 EOPNOTSUPP";

	row("v4-any", "0.0.0.0", 4050, "-1 EINVAL");
	row("v4-broadcast", "255.255.255.255", 4050, "-1 EINVAL");
	row("v4-multicast", "224.0.0.1", 4050, "-1 EINVAL");
	row("v4-loopback", "127.0.0.1", 4050, other);
	row("v4-foreign", "192.0.2.1", 4050, other);
	row("v6-any", "::", 4050, "-1 EINVAL");
	row("v6-multicast", "ff02::1", 4050, "-1 EINVAL");
	row("v6-link-local-no-scope", "fe80::1", 4050, "-1 EINVAL");
	row("v6-loopback", "::1", 4050, same6);
	row("v6-foreign", "2001:db8::1", 4050, same6);
	row("mapped", "::ffff:127.0.0.1", 4050, other);
	row("mapped-any", "::ffff:0.0.0.0", 4050, "-1 EINVAL");
	row("mapped-broadcast", "::ffff:255.255.255.255", 4050, "-1 EINVAL");
	row("mapped-multicast", "::ffff:224.0.0.1", 4050, "-1 EINVAL");
	row("port-1", conf_text, 1, "1");
}

static void lengths(void)
{
	struct name four = name_at("127.0.0.1", 4050), six = name_at("::1", 4050), to = name_of(target);
	static const socklen_t shorts[] = { 1, 2, 8, 15 };
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(shorts); i++)
		row_len(text("len-%u", shorts[i]), &to, shorts[i], "-1 EINVAL");
	row_len("v6-len-16", &six, 16, "-1 EINVAL");
	row_len("v6-len-27", &six, 27, "-1 EINVAL");
	row_len("v4-len-28", &four, 28, conf_v6 ? "-1 EOPNOTSUPP" : "1");
	row_len("len-128", &to, 128, "1");
	row_len("len-129", &to, 129, "-1 EINVAL");
	row_len("len-negative", &to, (socklen_t)-1, "-1 EINVAL");
	row_len("len-0-not-connected", &to, 0, "-1 ENOTCONN");
	check("no-name-not-connected", "-1 ENOTCONN", "%s", rc(send(sender, "x", 1, MSG_DONTWAIT)));
}

static void families(void)
{
	static const int families[] = { AF_UNSPEC, AF_UNIX, AF_RDS, 255 };
	struct name at = name_at("127.0.0.1", 4050);
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(families); i++) {
		at.sa.sa_family = families[i];
		row_len(text("family-%d", families[i]), &at, at.len, "-1 EINVAL");
	}
}

static long send_message(struct msghdr *m)
{
	struct name to = name_of(target);

	m->msg_name = &to.ss;
	m->msg_namelen = to.len;
	return sendmsg(sender, m, MSG_DONTWAIT);
}

static void pointers(void)
{
	static struct iovec many[1025];
	struct iovec iov = { conf_bad, 10 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct name to = name_of(target);
	unsigned i;
	int closed;

	check("bad-payload", "-1 EFAULT", "%s", rc(send_message(&m)));
	check("bad-payload-sendto", "-1 EFAULT", "%s",
	      rc(sendto(sender, conf_bad, 10, MSG_DONTWAIT, &to.sa, to.len)));
	iov.iov_len = 0;
	check("bad-payload-len-0", "0", "%s", rc(send_message(&m)));
	m.msg_iov = conf_bad;
	check("bad-vector", "-1 EFAULT", "%s", rc(send_message(&m)));
	m.msg_iov = NULL;
	m.msg_iovlen = 0;
	check("no-vector", "0", "%s", rc(send_message(&m)));
	m.msg_iov = many;
	for (i = 0; i < 1025; i++)
		many[i] = (struct iovec){ (void *)"y", 1 };
	m.msg_iovlen = 1025;
	check("vector-1025", "-1 EMSGSIZE", "%s", rc(send_message(&m)));
	m.msg_iovlen = 1024;
	check("vector-1024", "1024", "%s", rc(send_message(&m)));
	many[3].iov_len = (size_t)-1;
	m.msg_iovlen = 5;
	check("vector-negative-length", "-1 EINVAL", "%s", rc(send_message(&m)));
	check("null-message", "-1 EFAULT", "%s", rc(sendmsg(sender, NULL, 0)));
	check("bad-message", "-1 EFAULT", "%s", rc(sendmsg(sender, conf_bad, 0)));
	check("bad-name", "-1 EFAULT", "%s", rc(sendto(sender, "x", 1, 0, conf_bad, 16)));
	iov = (struct iovec){ (void *)"x", 1 };
	m = (struct msghdr){ .msg_iov = &iov, .msg_iovlen = 1, .msg_name = conf_bad, .msg_namelen = 16 };
	check("sendmsg-bad-name", "-1 EFAULT", "%s", rc(sendmsg(sender, &m, 0)));
	m.msg_name = NULL;
	check("sendmsg-null-name-with-length", "-1 ENOTCONN", "%s", rc(sendmsg(sender, &m, 0)));
	m.msg_name = &to.ss;
	m.msg_namelen = 200;
	check("sendmsg-name-length-200", "1", "%s", rc(sendmsg(sender, &m, 0)));
	m.msg_namelen = (socklen_t)-1;
	check("sendmsg-name-length-negative", "-1 EINVAL", "%s", rc(sendmsg(sender, &m, 0)));
	closed = dup(sender);
	close(closed);
	check("closed", "-1 EBADF", "%s", rc(sendto(closed, "x", 1, 0, &to.sa, to.len)));
}

static void control_lengths(void)
{
	static char big[40000] __attribute__((aligned(8)));
	struct iovec iov = { (void *)"x", 1 };
	struct cmsghdr *c = (struct cmsghdr *)big;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = big };

	c->cmsg_level = SOL_SOCKET + 7;
	c->cmsg_type = 1;
	c->cmsg_len = CMSG_LEN(0);
	m.msg_controllen = 16;
	check("other-level-ignored", "1", "%s", rc(send_message(&m)));
	c->cmsg_level = SOL_SOCKET;
	check("socket-level-ignored", "1", "%s", rc(send_message(&m)));
	c->cmsg_level = IPPROTO_IP;
	check("ip-level-ignored", "1", "%s", rc(send_message(&m)));
	c->cmsg_len = 3;
	check("length-below-header", "-1 EINVAL", "%s", rc(send_message(&m)));
	c->cmsg_len = 0;
	check("length-0", "-1 EINVAL", "%s", rc(send_message(&m)));
	c->cmsg_len = 17;
	check("length-above-control", "-1 EINVAL", "%s", rc(send_message(&m)));
	c->cmsg_len = (size_t)-1;
	check("length-huge", "-1 EINVAL", "%s", rc(send_message(&m)));
	m.msg_controllen = 15;
	check("control-15-bytes", "1", "%s", rc(send_message(&m)));
	c->cmsg_len = 16;
	m.msg_controllen = 20400;
	memset(big + 16, 0, 64);
	((struct cmsghdr *)big)[1].cmsg_len = 20384;
	check("control-20400-bytes", "1", "%s", rc(send_message(&m)));
	m.msg_controllen = 20481;
	check("control-20481-bytes", "-1 ENOBUFS", "%s", rc(send_message(&m)));
	m.msg_controllen = (size_t)INT_MAX + 1;
	check("control-2-gib", "-1 ENOBUFS", "%s", rc(send_message(&m)));
	m.msg_control = conf_bad;
	m.msg_controllen = 16;
	check("control-bad-pointer", "-1 EFAULT", "%s", rc(send_message(&m)));
	m.msg_control = NULL;
	check("control-null-with-length", "-1 EFAULT", "%s", rc(send_message(&m)));
	m.msg_control = NULL;
	m.msg_controllen = 0;
	check("no-control", "1", "%s", rc(send_message(&m)));
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	sender = rds_bound();
	target = rds_bound();
	addresses();
	lengths();
	families();
	pointers();
	control_lengths();
	return conf_end();
}
