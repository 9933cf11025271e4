/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* getsockname, getpeername, SO_PEERNAME: states, truncation, bad arguments. */
#include "rdsconf.h"

static void show(const char *name, int fd, int (*call)(int, struct sockaddr *, socklen_t *), const char *want)
{
	struct name got;
	int ret;

	memset(&got, 0xff, sizeof(got));
	got.len = sizeof(got.ss);
	ret = call(fd, &got.sa, &got.len);
	check(name, want, "%s", ret ? rc(ret) : who(&got));
}

static int getsockname_(int fd, struct sockaddr *sa, socklen_t *len)
{
	return getsockname(fd, sa, len);
}

static int getpeername_(int fd, struct sockaddr *sa, socklen_t *len)
{
	return getpeername(fd, sa, len);
}

static int peername_option(int fd, struct sockaddr *sa, socklen_t *len)
{
	if (*len > 28)
		*len = 16;
	return getsockopt(fd, SOL_SOCKET, SO_PEERNAME, sa, len);
}

static void states(void)
{
	struct name four = name_at("192.0.2.1", 4030), six = name_at("2001:db8::1", 4030), here = name_here(4031);
	int fd = rds_socket();

	show("unbound", fd, getsockname_, "family 0 len 16");
	show("unbound-peer", fd, getpeername_, "-1 ENOTCONN");
	show("unbound-peername-option", fd, peername_option, "-1 ENOTCONN");
	connect(fd, &four.sa, four.len);
	show("unbound-connected-v4", fd, getsockname_, "inet 0.0.0.0 port 0 len 16");
	show("peer-v4", fd, getpeername_, "inet 192.0.2.1 port 4030 len 16");
	show("peername-option", fd, peername_option, "inet 192.0.2.1 port 4030 len 16");
	connect(fd, &six.sa, six.len);
	show("unbound-connected-v6", fd, getsockname_, "inet6 :: port 0 scope 0 flow 0 len 28");
	show("peer-v6", fd, getpeername_, "inet6 2001:db8::1 port 4030 scope 0 flow 0 len 28");
	bind(fd, &here.sa, here.len);
	show("bound-connected", fd, getsockname_, NULL);
	show("bound-peer", fd, getpeername_, NULL);
	close(fd);
	here = name_here(4032);
	fd = rds_socket();
	bind(fd, &here.sa, here.len);
	show("bound", fd, getsockname_, NULL);
	show("bound-not-connected-peer", fd, getpeername_, "-1 ENOTCONN");
	close(fd);
	show("closed", fd, getsockname_, "-1 EBADF");
	show("closed-peer", fd, getpeername_, "-1 EBADF");
}

static void padding(void)
{
	struct name at = name_at("127.0.0.1", 0), now;
	static const char zero[8];
	int fd = rds_socket();

	memset(at.in.sin_zero, 0x55, sizeof(at.in.sin_zero));
	check("bind-with-garbage-padding", "0", "%s", rc(bind(fd, &at.sa, at.len)));
	memset(&now, 0x55, sizeof(now));
	now.len = sizeof(now.ss);
	getsockname(fd, &now.sa, &now.len);
	check("padding-cleared", "1", "%d", !memcmp(now.in.sin_zero, zero, sizeof(zero)));
	close(fd);
}

/*
 * How far a name is written.  A byte of it may be what lay there before (a port may have any
 * value), but not twice.
 */
static unsigned extent(int fd, int peers, socklen_t *len, int *ret)
{
	static const unsigned char before[] = {0xee, 0x11};
	socklen_t room = *len;
	unsigned char buf[64];
	unsigned i, j, most = 0;

	for (i = 0; i < ARRAY_SIZE(before); i++) {
		memset(buf, before[i], sizeof(buf));
		*len = room;
		*ret = peers ? getpeername(fd, (struct sockaddr *)buf, len) :
			       getsockname(fd, (struct sockaddr *)buf, len);
		for (j = sizeof(buf); j && buf[j - 1] == before[i]; j--)
			;
		most = j > most ? j : most;
	}
	return most;
}

static void truncation(void)
{
	static const socklen_t lens[] = { 0, 1, 2, 4, 8, 15, 16, 28, 64 };
	struct name peer = name_at("192.0.2.1", 4030);
	int fd = rds_bound();
	unsigned i, written;

	connect(fd, &peer.sa, peer.len);
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		socklen_t len = lens[i];
		int ret;

		written = extent(fd, 0, &len, &ret);
		check(text("getsockname-len-%u", lens[i]), NULL, "%s len %u written %u", rc(ret), len, written);
		len = lens[i];
		written = extent(fd, 1, &len, &ret);
		check(text("getpeername-len-%u", lens[i]), text("0 len 16 written %u", lens[i] < 16 ? lens[i] : 16),
		      "%s len %u written %u", rc(ret), len, written);
	}
	close(fd);
}

static void bad(void)
{
	int fd = rds_bound();
	struct name name = name_at("192.0.2.1", 4030);
	socklen_t len = (socklen_t)-1;
	int ret;

	connect(fd, &name.sa, name.len);
	check("getsockname-len-negative", "-1 EINVAL", "%s", rc(getsockname(fd, &name.sa, &len)));
	len = (socklen_t)-1;
	check("getpeername-len-negative", "-1 EINVAL", "%s", rc(getpeername(fd, &name.sa, &len)));
	check("getsockname-null-len", "-1 EFAULT", "%s", rc(getsockname(fd, &name.sa, NULL)));
	check("getpeername-null-len", "-1 EFAULT", "%s", rc(getpeername(fd, &name.sa, NULL)));
	len = 16;
	check("getsockname-null-address", "-1 EFAULT", "%s", rc(getsockname(fd, NULL, &len)));
	len = 16;
	check("getpeername-null-address", "-1 EFAULT", "%s", rc(getpeername(fd, NULL, &len)));
	len = 0;
	ret = getsockname(fd, NULL, &len);
	check("getsockname-null-address-len-0", conf_v6 ? "0 len 28" : "0 len 16", "%s len %u", rc(ret), len);
	len = 8;
	ret = getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &name.sa, &len);
	check("peername-option-len-8", "0 len 8", "%s len %u", rc(ret), len);
	len = 64;
	check("peername-option-len-64", "-1 EINVAL", "%s",
	      rc(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &name.ss, &len)));
	close(fd);
}

int main(int argc, char **argv)
{
	conf_begin(argc, argv);
	states();
	padding();
	truncation();
	bad();
	return conf_end();
}
