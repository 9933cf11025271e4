/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Generic options on an RDS socket: accepted, refused, without effect; timeouts. */
#include "rdsconf.h"

static int fd;

static const char *set(int option, int value)
{
	return rc(setsockopt(fd, SOL_SOCKET, option, &value, sizeof(value)));
}

static const char *get(int option)
{
	int value = -7;
	socklen_t len = sizeof(value);
	int r = getsockopt(fd, SOL_SOCKET, option, &value, &len);

	return r < 0 ? rc(r) : text("%d value %d", r, value);
}

static void flags(void)
{
	static const struct {
		const char *name;
		int option;
	} rows[] = {
		{ "reuseaddr", SO_REUSEADDR }, { "keepalive", SO_KEEPALIVE }, { "broadcast", SO_BROADCAST },
		{ "dontroute", SO_DONTROUTE }, { "oobinline", SO_OOBINLINE }, { "debug", SO_DEBUG },
	};
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		check(text("%s-1", rows[i].name), "0", "%s", set(rows[i].option, 1));
		check(text("%s-is-1", rows[i].name), "0 value 1", "%s", get(rows[i].option));
		check(text("%s-0", rows[i].name), "0", "%s", set(rows[i].option, 0));
		check(text("%s-is-0", rows[i].name), "0 value 0", "%s", get(rows[i].option));
	}
	check("reuseport-1", "-1 EOPNOTSUPP", "%s", set(SO_REUSEPORT, 1));
	check("reuseport-get", "0 value 0", "%s", get(SO_REUSEPORT));
	check("peek-off", "-1 EOPNOTSUPP", "%s", set(SO_PEEK_OFF, 1));
	check("peek-off-get", "-1 EOPNOTSUPP", "%s", get(SO_PEEK_OFF));
	check("priority-3", "0", "%s", set(SO_PRIORITY, 3));
	check("priority-get", "0 value 3", "%s", get(SO_PRIORITY));
	check("rcvlowat-5", "0", "%s", set(SO_RCVLOWAT, 5));
	check("rcvlowat-get", "0 value 5", "%s", get(SO_RCVLOWAT));
	check("rcvlowat-0", "0", "%s", set(SO_RCVLOWAT, 0));
	check("rcvlowat-0-get", "0 value 1", "%s", get(SO_RCVLOWAT));
	check("sndlowat", "-1 ENOPROTOOPT", "%s", set(SO_SNDLOWAT, 5));
	check("sndlowat-get", "0 value 1", "%s", get(SO_SNDLOWAT));
	check("type-set", "-1 ENOPROTOOPT", "%s", set(SO_TYPE, 5));
	check("domain-set", "-1 ENOPROTOOPT", "%s", set(SO_DOMAIN, 5));
	check("error-set", "-1 ENOPROTOOPT", "%s", set(SO_ERROR, 5));
	check("acceptconn-set", "-1 ENOPROTOOPT", "%s", set(SO_ACCEPTCONN, 1));
	check("unknown-set", "-1 ENOPROTOOPT", "%s", set(9999, 1));
	check("unknown-get", "-1 ENOPROTOOPT", "%s", get(9999));
	check("passcred", "0", "%s", set(SO_PASSCRED, 1));
}

static void linger(void)
{
	struct linger value = { 1, 5 };
	socklen_t len = sizeof(value);
	int r;

	check("linger", "0", "%s", rc(setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof(value))));
	memset(&value, 0, sizeof(value));
	r = getsockopt(fd, SOL_SOCKET, SO_LINGER, &value, &len);
	check("linger-get", "0 1 5 len 8", "%s %d %d len %u", rc(r), value.l_onoff, value.l_linger, len);
	check("linger-short", "-1 EINVAL", "%s", rc(setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, 4)));
}

static const char *set_time(int which, long sec, long usec, socklen_t size)
{
	struct timeval tv = { sec, usec };

	return rc(setsockopt(fd, SOL_SOCKET, which, &tv, size));
}

static const char *get_time(int which)
{
	struct timeval tv = { 9, 9 };
	socklen_t len = sizeof(tv);
	int r = getsockopt(fd, SOL_SOCKET, which, &tv, &len);

	return text("%s %ld.%06ld len %u", rc(r), (long)tv.tv_sec, (long)tv.tv_usec, len);
}

static void times(int which, const char *name)
{
	check(text("%s-2.5", name), "0", "%s", set_time(which, 2, 500000, 16));
	check(text("%s-2.5-get", name), "0 2.500000 len 16", "%s", get_time(which));
	check(text("%s-usec-1000000", name), "-1 EDOM", "%s", set_time(which, 0, 1000000, 16));
	check(text("%s-usec-negative", name), "-1 EDOM", "%s", set_time(which, 0, -1, 16));
	check(text("%s-kept-after-edom", name), "0 2.500000 len 16", "%s", get_time(which));
	check(text("%s-short", name), "-1 EINVAL", "%s", set_time(which, 1, 0, 8));
	check(text("%s-bad-pointer", name), "-1 EFAULT", "%s",
	      rc(setsockopt(fd, SOL_SOCKET, which, conf_bad, sizeof(struct timeval))));
	check(text("%s-0", name), "0", "%s", set_time(which, 0, 0, 16));
	check(text("%s-0-get", name), "0 0.000000 len 16", "%s", get_time(which));
	check(text("%s-negative", name), "0", "%s", set_time(which, -5, 0, 16));
}

/* A negative timeout means: do not wait. */
static void negative(void)
{
	char byte;
	int s = fd;

	fd = rds_bound();
	set_time(SO_RCVTIMEO, -5, 0, 16);
	check("negative-does-not-wait", "-1 ETIMEDOUT", "%s", rc(recv(fd, &byte, 1, 0)));
	close(fd);
	fd = s;
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	fd = rds_socket();
	flags();
	linger();
	times(SO_RCVTIMEO, "rcvtimeo");
	times(SO_SNDTIMEO, "sndtimeo");
	negative();
	return conf_end();
}
