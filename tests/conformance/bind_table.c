/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* bind: every address form, on a fresh socket each, then the name that the socket has. */
#include "rdsconf.h"

static void row_len(const char *name, const struct name *at, socklen_t len, const char *want)
{
	int fd = rds_socket();
	int ret = bind(fd, &at->sa, len);
	const char *result = rc(ret);
	struct name now = name_of(fd);

	check(name, want, "%s %s", result, ret ? who(&now) : text("bound family %d", now.sa.sa_family));
	close(fd);
}

static void row(const char *name, const char *address, unsigned port, const char *want)
{
	struct name at = name_at(address, port);

	row_len(name, &at, at.len, want);
}

#define STILL_UNBOUND " family 0 len 16"

static void addresses(void)
{
	const char *einval = "-1 EINVAL" STILL_UNBOUND;
	const char *notavail = "-1 EADDRNOTAVAIL" STILL_UNBOUND;

	row("v4-any", "0.0.0.0", 0, einval);
	row("v4-broadcast", "255.255.255.255", 0, einval);
	row("v4-multicast", "224.0.0.1", 0, einval);
	row("v4-multicast-high", "239.255.255.255", 0, einval);
	row("v4-foreign", "192.0.2.1", 0, notavail);
	row("v4-class-e", "240.0.0.1", 0, notavail);
	row("v4-loopback", "127.0.0.1", 0, "0 bound family 2");
	row("v4-loopback-unconfigured", "127.0.0.2", 0, "0 bound family 2");
	row("v4-loopback-far", "127.255.1.2", 0, "0 bound family 2");
	row("v6-any", "::", 0, einval);
	row("v6-multicast", "ff02::1", 0, einval);
	row("v6-loopback", "::1", 0, "0 bound family 10");
	row("v6-foreign", "2001:db8::1", 0, notavail);
	row("v6-link-local-no-scope", "fe80::1", 0, einval);
	row("mapped-any", "::ffff:0.0.0.0", 0, einval);
	row("mapped-broadcast", "::ffff:255.255.255.255", 0, einval);
	row("mapped-multicast", "::ffff:224.0.0.1", 0, einval);
	row("mapped-loopback", "::ffff:127.0.0.1", 0, "0 bound family 2");
	row("mapped-foreign", "::ffff:192.0.2.1", 0, notavail);
}

static void lengths(void)
{
	struct name at = name_here(0), four = name_at("127.0.0.1", 0), six = name_at("::1", 0);
	const char *einval = "-1 EINVAL" STILL_UNBOUND;

	row_len("len-0", &at, 0, einval);
	row_len("len-1", &at, 1, einval);
	row_len("len-2", &at, 2, einval);
	row_len("v4-len-15", &four, 15, einval);
	row_len("v4-len-16", &four, 16, "0 bound family 2");
	row_len("v4-len-28", &four, 28, "0 bound family 2");
	row_len("v4-len-128", &four, 128, "0 bound family 2");
	row_len("v4-len-129", &four, 129, einval);
	row_len("v6-len-16", &six, 16, einval);
	row_len("v6-len-27", &six, 27, einval);
	row_len("v6-len-28", &six, 28, "0 bound family 10");
	row_len("v6-len-128", &six, 128, "0 bound family 10");
	row_len("len-negative", &at, (socklen_t)-1, einval);
}

static void families(void)
{
	static const int families[] = { AF_UNSPEC, AF_UNIX, AF_RDS, AF_NETLINK, 255 };
	struct name at = name_at("127.0.0.1", 0);
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(families); i++) {
		at.sa.sa_family = families[i];
		row_len(text("family-%d", families[i]), &at, at.len, "-1 EINVAL" STILL_UNBOUND);
	}
}

static void pointers(void)
{
	int fd = rds_socket();

	check("null-address", "-1 EFAULT", "%s", rc(bind(fd, NULL, 16)));
	check("bad-address", "-1 EFAULT", "%s", rc(bind(fd, conf_bad, 16)));
	check("null-address-len-0", "-1 EINVAL", "%s", rc(bind(fd, NULL, 0)));
	check("null-address-len-129", "-1 EINVAL", "%s", rc(bind(fd, NULL, 129)));
	close(fd);
	check("closed", "-1 EBADF", "%s", rc(bind(fd, NULL, 16)));
}

static void ports(void)
{
	struct name now, at;
	int fd;

	row("port-1", conf_text, 1, "-1 EINVAL" STILL_UNBOUND);
	row("port-2", conf_text, 2, conf_v6 ? "0 bound family 10" : "0 bound family 2");
	row("port-80", conf_text, 80, conf_v6 ? "0 bound family 10" : "0 bound family 2");
	row("port-65535", conf_text, 65535, conf_v6 ? "0 bound family 10" : "0 bound family 2");
	row("foreign-before-port-1", "192.0.2.1", 1, "-1 EADDRNOTAVAIL" STILL_UNBOUND);

	fd = rds_socket();
	at = name_here(1);
	check("port-1-first", "-1 EINVAL", "%s", rc(bind(fd, &at.sa, at.len)));
	at = name_here(4007);
	check("then-another-port", "0", "%s", rc(bind(fd, &at.sa, at.len)));
	now = name_of(fd);
	check("then-name", NULL, "%s", who(&now));
	close(fd);

	fd = rds_bound();
	now = name_of(fd);
	check("port-0-picks-one", "in range 1", "in range %d", name_port(&now) >= 2);
	close(fd);
}

static void scopes(void)
{
	struct name at = name_at("::1", 4008), now;
	int fd = rds_socket();

	at.in6.sin6_scope_id = 5;
	at.in6.sin6_flowinfo = htonl(77);
	check("scope-of-global-address", "0", "%s", rc(bind(fd, &at.sa, at.len)));
	now = name_of(fd);
	check("scope-not-stored", "inet6 ::1 port 4008 scope 0 flow 0 len 28", "%s", who(&now));
	close(fd);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	addresses();
	lengths();
	families();
	pointers();
	ports();
	scopes();
	return conf_end();
}
