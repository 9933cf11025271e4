/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* connect: every address form, on a fresh socket each, then the peer that the socket has. */
#include "rdsconf.h"

static struct name peer_of(int fd)
{
	struct name name;

	memset(&name, 0, sizeof(name));
	name.len = sizeof(name.ss);
	if (getpeername(fd, &name.sa, &name.len))
		name.len = 0;
	return name;
}

static void row_len(const char *name, const struct name *at, socklen_t len, const char *want)
{
	int fd = rds_socket();
	int ret = connect(fd, &at->sa, len);
	const char *result = rc(ret);
	struct name peer = peer_of(fd);

	check(name, want, "%s %s", result, peer.len ? who(&peer) : rc(-1));
	close(fd);
}

static void row(const char *name, const char *address, unsigned port, const char *want)
{
	struct name at = name_at(address, port);

	row_len(name, &at, at.len, want);
}

static void addresses(void)
{
	row("v4-loopback", "127.0.0.1", 4020, "0 inet 127.0.0.1 port 4020 len 16");
	row("v4-foreign", "192.0.2.1", 4020, "0 inet 192.0.2.1 port 4020 len 16");
	row("v4-port-0", "192.0.2.1", 0, "0 inet 192.0.2.1 port 0 len 16");
	row("v4-port-1", "192.0.2.1", 1, "0 inet 192.0.2.1 port 1 len 16");
	row("v4-any", "0.0.0.0", 4020, "-1 EDESTADDRREQ -1 ENOTCONN");
	row("v4-broadcast", "255.255.255.255", 4020, "-1 EINVAL -1 ENOTCONN");
	row("v4-multicast", "224.0.0.1", 4020, "-1 EINVAL -1 ENOTCONN");
	row("v6-loopback", "::1", 4020, "0 inet6 ::1 port 4020 scope 0 flow 0 len 28");
	row("v6-foreign", "2001:db8::1", 4020, "0 inet6 2001:db8::1 port 4020 scope 0 flow 0 len 28");
	row("v6-any", "::", 4020, "-1 EPROTOTYPE -1 ENOTCONN");
	row("v6-multicast", "ff02::1", 4020, "-1 EPROTOTYPE -1 ENOTCONN");
	row("v6-link-local-no-scope", "fe80::1", 4020, "-1 EINVAL -1 ENOTCONN");
	row("mapped", "::ffff:192.0.2.1", 4020, "0 inet 192.0.2.1 port 4020 len 16");
	row("mapped-any", "::ffff:0.0.0.0", 4020, "-1 EPROTOTYPE -1 ENOTCONN");
	row("mapped-broadcast", "::ffff:255.255.255.255", 4020, "-1 EPROTOTYPE -1 ENOTCONN");
	row("mapped-multicast", "::ffff:224.0.0.1", 4020, "-1 EPROTOTYPE -1 ENOTCONN");
}

static void lengths(void)
{
	struct name four = name_at("192.0.2.1", 4020), six = name_at("2001:db8::1", 4020);

	row_len("len-0", &four, 0, "-1 EINVAL -1 ENOTCONN");
	row_len("len-1", &four, 1, "-1 EINVAL -1 ENOTCONN");
	row_len("len-2", &four, 2, "-1 EINVAL -1 ENOTCONN");
	row_len("v4-len-15", &four, 15, "-1 EINVAL -1 ENOTCONN");
	row_len("v4-len-28", &four, 28, "0 inet 192.0.2.1 port 4020 len 16");
	row_len("v4-len-128", &four, 128, "0 inet 192.0.2.1 port 4020 len 16");
	row_len("v4-len-129", &four, 129, "-1 EINVAL -1 ENOTCONN");
	row_len("v6-len-16", &six, 16, "-1 EINVAL -1 ENOTCONN");
	row_len("v6-len-27", &six, 27, "-1 EINVAL -1 ENOTCONN");
	row_len("len-negative", &four, (socklen_t)-1, "-1 EINVAL -1 ENOTCONN");
}

static void families(void)
{
	static const int families[] = { AF_UNSPEC, AF_UNIX, AF_RDS, 255 };
	struct name at = name_at("192.0.2.1", 4020);
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(families); i++) {
		at.sa.sa_family = families[i];
		row_len(text("family-%d", families[i]), &at, at.len, "-1 EAFNOSUPPORT -1 ENOTCONN");
	}
}

static void again(void)
{
	struct name a = name_at("192.0.2.1", 4021), b = name_at("192.0.2.2", 4022), unspec = a, peer;
	struct name other = name_at(conf_v6 ? "192.0.2.3" : "2001:db8::3", 4023);
	int fd = rds_bound();

	check("first", "0", "%s", rc(connect(fd, &a.sa, a.len)));
	check("second", "0", "%s", rc(connect(fd, &b.sa, b.len)));
	peer = peer_of(fd);
	check("last-wins", "inet 192.0.2.2 port 4022 len 16", "%s", who(&peer));
	unspec.sa.sa_family = AF_UNSPEC;
	check("dissolve", "-1 EAFNOSUPPORT", "%s", rc(connect(fd, &unspec.sa, unspec.len)));
	peer = peer_of(fd);
	check("not-dissolved", "inet 192.0.2.2 port 4022 len 16", "%s", who(&peer));
	a = name_at("0.0.0.0", 0);
	check("to-any", "-1 EDESTADDRREQ", "%s", rc(connect(fd, &a.sa, a.len)));
	peer = peer_of(fd);
	check("kept-after-error", "inet 192.0.2.2 port 4022 len 16", "%s", who(&peer));
	check("other-family-than-bound", "0", "%s", rc(connect(fd, &other.sa, other.len)));
	peer = peer_of(fd);
	check("other-family-peer", NULL, "%s", who(&peer));
	check("null-address", "-1 EFAULT", "%s", rc(connect(fd, NULL, 16)));
	check("bad-address", "-1 EFAULT", "%s", rc(connect(fd, conf_bad, 16)));
	close(fd);
	check("closed", "-1 EBADF", "%s", rc(connect(fd, &a.sa, a.len)));
}

/* A default destination does not filter what is received. */
static void no_filter(void)
{
	int a = rds_bound(), b = rds_bound(), c = rds_bound();
	struct name to_b = name_of(b), to_a = name_of(a);
	char byte = 0;

	check("connect-a-to-b", "0", "%s", rc(connect(a, &to_b.sa, to_b.len)));
	check("c-sends-to-a", "1", "%s", rc(sendto(c, "c", 1, 0, &to_a.sa, to_a.len)));
	check("a-receives-from-c", "1", "%s", rc(receive(a, &byte, 1, 0)));
	check("a-received", "c", "%c", byte);
	check("a-sends-to-peer", "1", "%s", rc(send(a, "a", 1, 0)));
	check("b-receives", "1", "%s", rc(receive(b, &byte, 1, 0)));
	check("a-sends-elsewhere", "1", "%s", rc(send_to(a, c, "x", 1, 0)));
	check("c-receives", "1", "%s", rc(receive(c, &byte, 1, 0)));
	check("c-received", "x", "%c", byte);
	close(a);
	close(b);
	close(c);
}

/* connect before bind is kept by bind. */
static void before_bind(void)
{
	struct name at = name_here(4024), here = name_here(0), peer;
	int fd = rds_socket();

	check("connect-unbound", "0", "%s", rc(connect(fd, &at.sa, at.len)));
	check("send-unbound", "-1 ENOTCONN", "%s", rc(send(fd, "x", 1, MSG_DONTWAIT)));
	check("bind-connected", "0", "%s", rc(bind(fd, &here.sa, here.len)));
	peer = peer_of(fd);
	check("peer-kept", NULL, "%s", who(&peer));
	check("send-bound", "1", "%s", rc(send(fd, "x", 1, 0)));
	close(fd);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	addresses();
	lengths();
	families();
	again();
	no_filter();
	before_bind();
	return conf_end();
}
