/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* SO_RDS_TRANSPORT: preset before bind, what bind makes of it, what it is afterwards. */
#include "rdsconf.h"

static int set_len(int fd, int value, socklen_t len)
{
	int values[2] = { value, 0 };

	return setsockopt(fd, SOL_RDS, SO_RDS_TRANSPORT, values, len);
}

static int set(int fd, int value)
{
	return set_len(fd, value, 4);
}

static const char *get(int fd, socklen_t len)
{
	int value[2] = { -7, -7 };
	int r = getsockopt(fd, SOL_RDS, SO_RDS_TRANSPORT, value, &len);

	return r < 0 ? rc(r) : text("%d value %d len %u", r, value[0], len);
}

static const char *bind_to(int fd, const char *address, unsigned port)
{
	struct name at = name_at(address, port);

	return rc(bind(fd, &at.sa, at.len));
}

/* Of InfiniBand and TCP: the one that is there. */
static int mine(void)
{
	return conf_ib ? RDS_TRANS_IB : RDS_TRANS_TCP;
}

static const char *is_mine(void)
{
	return text("0 value %d len 4", mine());
}

static void arguments(void)
{
	int fd = rds_socket();

	check("none", "0 value -1 len 4", "%s", get(fd, 4));
	check("get-len-3", "-1 EINVAL", "%s", get(fd, 3));
	check("get-len-8", "0 value -1 len 4", "%s", get(fd, 8));
	check("set-len-3", "-1 EINVAL", "%s", rc(set_len(fd, 2, 3)));
	check("set-len-8", "-1 EINVAL", "%s", rc(set_len(fd, 2, 8)));
	check("set-bad-pointer", "-1 EFAULT", "%s", rc(setsockopt(fd, SOL_RDS, SO_RDS_TRANSPORT, conf_bad, 4)));
	check("set-negative", "-1 EINVAL", "%s", rc(set(fd, -1)));
	check("set-3", "-1 EINVAL", "%s", rc(set(fd, 3)));
	check("set-77", "-1 EINVAL", "%s", rc(set(fd, 77)));
	check("set-gap", "-1 ENOPROTOOPT", "%s", rc(set(fd, 1)));
	if (!conf_ib)
		check("set-ib-without-device", "-1 ENOPROTOOPT", "%s", rc(set(fd, RDS_TRANS_IB)));
	check("still-none", "0 value -1 len 4", "%s", get(fd, 4));
	check(conf_ib ? "set-ib" : "set-tcp", "0", "%s", rc(set(fd, mine())));
	check(conf_ib ? "is-ib" : "is-tcp", is_mine(), "%s", get(fd, 4));
	check("set-again", "-1 EOPNOTSUPP", "%s", rc(set(fd, mine())));
	check("set-again-bad-length", "-1 EOPNOTSUPP", "%s", rc(set_len(fd, mine(), 3)));
	close(fd);
}

static void preset(void)
{
	int fd = rds_socket(), d = rds_socket();
	char byte;

	set(fd, mine());
	set(d, mine());
	check("foreign", "-1 ENOPROTOOPT", "%s", bind_to(fd, conf_v6 ? "2001:db8::1" : "192.0.2.1", 0));
	check("preset-kept", is_mine(), "%s", get(fd, 4));
	check("bind", "0", "%s", bind_to(fd, conf_text, 0));
	check(conf_ib ? "bound-is-ib" : "bound-is-tcp", is_mine(), "%s", get(fd, 4));
	check("bound-set", "-1 EOPNOTSUPP", "%s", rc(set(fd, mine())));
	check("bind-other", "0", "%s", bind_to(d, conf_text, 0));
	check("send", "1", "%s", rc(send_to(fd, d, "x", 1, 0)));
	check("receive", "1", "%s", rc(receive(d, &byte, 1, 0)));
	close(fd);
	close(d);
}

/* A port that cannot be had takes the transport away, a free one on the same socket is fine. */
static void failed_port(void)
{
	int first = rds_socket(), fd = rds_socket();

	bind_to(first, conf_text, 4080);
	check("in-use", "-1 EADDRINUSE", "%s", bind_to(fd, conf_text, 4080));
	check("no-transport-after-in-use", "0 value -1 len 4", "%s", get(fd, 4));
	check("bind-elsewhere", "0", "%s", bind_to(fd, conf_text, 4081));
	check("transport-of-address", text("0 value %d len 4", conf_transport), "%s", get(fd, 4));
	check("set-on-bound", "-1 EOPNOTSUPP", "%s", rc(set(fd, mine())));
	check("set-on-bound-invalid", "-1 EOPNOTSUPP", "%s", rc(set(fd, 55)));
	close(first);
	close(fd);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	arguments();
	preset();
	failed_port();
	return conf_end();
}
