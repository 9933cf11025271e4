/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Two things wrong at once: which error a send reports. */
#include "rdsconf.h"

static char large[200000];

/* One send that may have everything wrong. */
struct attempt {
	int fd;
	const struct name *to;
	socklen_t namelen;
	size_t len;
	bool bad_payload;
	int cmsg_type;		/* 0: none */
	bool bad_cmsg;		/* its length is below the header's */
	int flags;
	int iovlen;		/* 0: one */
};

static long attempt(const struct attempt *a)
{
	static struct iovec many[1025];
	char control[CMSG_SPACE(8)] __attribute__((aligned(8)));
	struct iovec iov = { a->bad_payload ? conf_bad : large, a->len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c = (struct cmsghdr *)control;

	memset(control, 0, sizeof(control));
	if (a->to) {
		m.msg_name = (void *)&a->to->ss;
		m.msg_namelen = a->namelen ? a->namelen : a->to->len;
	}
	if (a->iovlen) {
		m.msg_iov = many;
		m.msg_iovlen = a->iovlen;
	}
	if (a->cmsg_type || a->bad_cmsg) {
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		c->cmsg_level = SOL_RDS;
		c->cmsg_type = a->cmsg_type;
		c->cmsg_len = a->bad_cmsg ? 5 : CMSG_LEN(8);
	}
	return sendmsg(a->fd, &m, MSG_DONTWAIT | a->flags);
}

#define ORDER(name, want, ...) check(name, want, "%s", rc(attempt(&(struct attempt){ __VA_ARGS__ })))

int main(int argc, char **argv)
{
	struct name to, other, any = name_at("0.0.0.0", 9);
	int unbound, s, d;

	conf_begin(argc, argv);
	unbound = rds_socket();
	s = rds_bound();
	d = rds_bound();
	to = name_of(d);
	other = name_at(conf_v6 ? "127.0.0.1" : "::1", 4060);

	ORDER("vector-before-flags", "-1 EMSGSIZE", .fd = unbound, .iovlen = 1025, .flags = MSG_OOB);
	ORDER("flags-before-name", "-1 EOPNOTSUPP", .fd = s, .to = &any, .flags = MSG_OOB);
	ORDER("flags-before-size", "-1 EOPNOTSUPP", .fd = s, .to = &to, .len = sizeof(large), .flags = MSG_EOR);
	ORDER("name-before-unbound", "-1 EINVAL", .fd = unbound, .to = &any);
	ORDER("short-name-before-unbound", "-1 EINVAL", .fd = unbound, .to = &to, .namelen = 7);
	ORDER("name-before-size", "-1 EINVAL", .fd = s, .to = &any, .len = sizeof(large));
	ORDER("unbound-before-family", "-1 ENOTCONN", .fd = unbound, .to = &other);
	ORDER("unbound-before-size", "-1 ENOTCONN", .fd = unbound, .to = &to, .len = sizeof(large));
	ORDER("unbound-before-cmsg", "-1 ENOTCONN", .fd = unbound, .to = &to, .bad_cmsg = true);
	ORDER("unbound-before-payload", "-1 ENOTCONN", .fd = unbound, .to = &to, .len = 5, .bad_payload = true);
	ORDER("no-peer-before-size", "-1 ENOTCONN", .fd = s, .len = sizeof(large));
	ORDER("no-peer-before-cmsg", "-1 ENOTCONN", .fd = s, .bad_cmsg = true);
	ORDER("family-before-cmsg", "-1 EOPNOTSUPP", .fd = s, .to = &other, .bad_cmsg = true);
	ORDER("family-before-size", "-1 EOPNOTSUPP", .fd = s, .to = &other, .len = sizeof(large));
	ORDER("cmsg-before-size", "-1 EINVAL", .fd = s, .to = &to, .len = sizeof(large), .bad_cmsg = true);
	ORDER("size-before-unknown-cmsg", "-1 EMSGSIZE", .fd = s, .to = &to, .len = sizeof(large), .cmsg_type = 99);
	ORDER("size-before-payload", "-1 EMSGSIZE", .fd = s, .to = &to, .len = sizeof(large), .bad_payload = true);
	ORDER("unknown-cmsg-before-payload", "-1 EINVAL", .fd = s, .to = &to, .len = 5, .bad_payload = true,
	      .cmsg_type = 99);
	ORDER("payload-before-dest-cookie", "-1 EFAULT", .fd = s, .to = &to, .len = 5, .bad_payload = true,
	      .cmsg_type = RDS_CMSG_RDMA_DEST);
	ORDER("dest-cookie", "-1 EINVAL", .fd = s, .to = &to, .len = 5, .cmsg_type = RDS_CMSG_RDMA_DEST);
	ORDER("nothing-wrong", "5", .fd = s, .to = &to, .len = 5);
	check("only-that-one-arrives", "5", "%s", rc(receive(d, large, sizeof(large), 0)));
	check("and-no-other", "-1 EAGAIN", "%s", rc(recv(d, large, sizeof(large), MSG_DONTWAIT)));
	return conf_end();
}
