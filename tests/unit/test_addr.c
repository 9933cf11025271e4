/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_addr.c - the three tables of refused addresses, the way back to a sockaddr, what is local to
 * this host.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/node/local_address.h"
#include "engine/wire/addr.h"
#include "engine/sys/uaccess.h"
#include "tests/unit/suite.h"

static struct sockaddr_storage make(int family, const char *text, uint16_t port, uint32_t scope)
{
	struct sockaddr_storage ss = {0};
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;

	ss.ss_family = (sa_family_t)family;
	if (family == AF_INET6) {
		ck_assert_int_eq(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
		in6->sin6_port = htons(port);
		in6->sin6_scope_id = scope;
	} else {
		ck_assert_int_eq(inet_pton(AF_INET, text, &in->sin_addr), 1);
		in->sin_port = htons(port);
	}
	return ss;
}

static struct in6_addr ip(const char *text)
{
	struct in6_addr a;

	ck_assert_int_eq(inet_pton(AF_INET6, text, &a), 1);
	return a;
}

/* One address and what each call says of it. */
static const struct row {
	int family;
	const char *text;
	uint32_t scope;
	int len, bind, connect, send;
} rows[] = {
	{AF_INET, "10.0.0.1", 0, 16, 0, 0, 0},
	{AF_INET, "10.0.0.1", 0, 128, 0, 0, 0},
	/* the generic layer has cut or refused what is sent to */
	{AF_INET, "10.0.0.1", 0, 129, -EINVAL, -EINVAL, 0},
	{AF_INET, "10.0.0.1", 0, 15, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET, "10.0.0.1", 0, 2, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET, "10.0.0.1", 0, 1, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET, "10.0.0.1", 0, 0, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET, "10.0.0.1", 0, -1, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET, "127.0.0.1", 0, 16, 0, 0, 0},
	{AF_INET, "240.0.0.1", 0, 16, 0, 0, 0},
	{AF_INET, "0.0.0.1", 0, 16, 0, 0, 0},
	{AF_INET, "0.0.0.0", 0, 16, -EINVAL, -EDESTADDRREQ, -EINVAL},
	{AF_INET, "0.0.0.0", 0, 15, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET, "255.255.255.255", 0, 16, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET, "224.0.0.1", 0, 16, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET, "239.255.255.255", 0, 16, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET6, "2001:db8::1", 0, 28, 0, 0, 0},
	{AF_INET6, "2001:db8::1", 7, 28, 0, 0, 0},
	{AF_INET6, "2001:db8::1", 0, 27, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET6, "2001:db8::1", 0, 16, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET6, "::1", 0, 28, 0, 0, 0},
	{AF_INET6, "::", 0, 28, -EINVAL, -EPROTOTYPE, -EINVAL},
	{AF_INET6, "::", 0, 27, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET6, "ff02::1", 1, 28, -EINVAL, -EPROTOTYPE, -EINVAL},
	{AF_INET6, "::ffff:10.0.0.1", 0, 28, 0, 0, 0},
	{AF_INET6, "::ffff:0.0.0.0", 0, 28, -EINVAL, -EPROTOTYPE, -EINVAL},
	{AF_INET6, "::ffff:255.255.255.255", 0, 28, -EINVAL, -EPROTOTYPE, -EINVAL},
	{AF_INET6, "::ffff:224.1.1.1", 0, 28, -EINVAL, -EPROTOTYPE, -EINVAL},
	{AF_INET6, "fe80::1", 0, 28, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET6, "fe80::1", 3, 28, 0, 0, 0},
	{AF_INET6, "febf::1", 0, 28, -EINVAL, -EINVAL, -EINVAL},
	{AF_INET6, "fec0::1", 0, 28, 0, 0, 0},
	{AF_UNSPEC, "10.0.0.1", 0, 16, -EINVAL, -EAFNOSUPPORT, -EINVAL},
	{AF_UNSPEC, "10.0.0.1", 0, 2, -EINVAL, -EAFNOSUPPORT, -EINVAL},
	{AF_UNIX, "10.0.0.1", 0, 16, -EINVAL, -EAFNOSUPPORT, -EINVAL},
	{21, "10.0.0.1", 0, 16, -EINVAL, -EAFNOSUPPORT, -EINVAL},
};

START_TEST(tables)
{
	const struct row *r = &rows[_i];
	struct sockaddr_storage ss = make(r->family, r->text, 4000, r->scope);
	struct rds_addr a;

	ck_assert_msg(rds_addr_for_bind((void *)&ss, r->len, &a) == r->bind, "bind %s len %d", r->text, r->len);
	ck_assert_msg(rds_addr_for_connect((void *)&ss, r->len, 0, &a) == r->connect, "connect %s len %d", r->text,
		      r->len);
	ck_assert_msg(rds_addr_for_send((void *)&ss, r->len, &a) == r->send, "send %s len %d", r->text, r->len);
}
END_TEST

START_TEST(values)
{
	struct sockaddr_storage ss = make(AF_INET, "10.1.2.3", 4000, 0);
	struct in6_addr want = ip("::ffff:10.1.2.3");
	struct rds_addr a;
	char odd[40];

	ck_assert_int_eq(rds_addr_for_bind((void *)&ss, 16, &a), 0);
	ck_assert(rds_ip_equal(&a.ip, &want) && rds_ip_is_v4(&a.ip));
	ck_assert_uint_eq(a.port, 4000);
	ck_assert_uint_eq(a.scope, 0);
	/* the same address in its other spelling, at an odd place in memory */
	ss = make(AF_INET6, "::ffff:10.1.2.3", 65535, 9);
	memcpy(odd + 1, &ss, 28);
	ck_assert_int_eq(rds_addr_for_send((void *)(odd + 1), 28, &a), 0);
	ck_assert(rds_ip_equal(&a.ip, &want));
	ck_assert_uint_eq(a.port, 65535);
	ck_assert_uint_eq(a.scope, 0);
	/* a scope stays only where it means something */
	ss = make(AF_INET6, "2001:db8::1", 1, 9);
	ck_assert_int_eq(rds_addr_for_connect((void *)&ss, 28, 0, &a), 0);
	ck_assert_uint_eq(a.scope, 0);
	ss = make(AF_INET6, "fe80::1", 1, 9);
	ck_assert_int_eq(rds_addr_for_connect((void *)&ss, 28, 0, &a), 0);
	ck_assert_uint_eq(a.scope, 9);
}
END_TEST

START_TEST(connect_scope)
{
	struct sockaddr_storage ll = make(AF_INET6, "fe80::1", 1, 3), global = make(AF_INET6, "2001:db8::1", 1, 3);
	struct rds_addr a;

	ck_assert_int_eq(rds_addr_for_connect((void *)&ll, 28, 3, &a), 0);
	ck_assert_int_eq(rds_addr_for_connect((void *)&ll, 28, 4, &a), -EINVAL);
	ck_assert_int_eq(rds_addr_for_connect((void *)&global, 28, 4, &a), 0);
}
END_TEST

START_TEST(way_back)
{
	struct in6_addr v4 = ip("::ffff:10.1.2.3"), v6 = ip("fe80::5");
	struct sockaddr_storage out;
	struct sockaddr_in *in = (struct sockaddr_in *)&out;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&out;

	memset(&out, 0xee, sizeof(out));
	ck_assert_uint_eq(rds_addr_to_sockaddr(&v4, 4000, 0, &out), 16);
	ck_assert_int_eq(in->sin_family, AF_INET);
	ck_assert_uint_eq(ntohs(in->sin_port), 4000);
	ck_assert_uint_eq(ntohl(in->sin_addr.s_addr), 0x0a010203);
	ck_assert_mem_eq(in->sin_zero, "\0\0\0\0\0\0\0", 8);
	memset(&out, 0xee, sizeof(out));
	ck_assert_uint_eq(rds_addr_to_sockaddr(&v6, 1, 7, &out), 28);
	ck_assert_int_eq(in6->sin6_family, AF_INET6);
	ck_assert_uint_eq(in6->sin6_flowinfo, 0);
	ck_assert_uint_eq(in6->sin6_scope_id, 7);
	ck_assert(rds_ip_equal(&in6->sin6_addr, &v6));
}
END_TEST

START_TEST(to_user)
{
	struct sockaddr_storage ss = make(AF_INET, "10.1.2.3", 4000, 0);
	unsigned char buf[32];
	struct sockaddr *sa = (struct sockaddr *)buf;
	socklen_t len = sizeof(buf);

	memset(buf, 0xee, sizeof(buf));
	ck_assert_int_eq(rds_addr_to_user(&ss, 16, sa, &len), 0);
	ck_assert_uint_eq(len, 16);
	ck_assert_mem_eq(buf, &ss, 16);
	ck_assert_uint_eq(buf[16], 0xee);
	memset(buf, 0xee, sizeof(buf));
	len = 5; /* cut, but the real length is told */
	ck_assert_int_eq(rds_addr_to_user(&ss, 16, sa, &len), 0);
	ck_assert_uint_eq(len, 16);
	ck_assert_mem_eq(buf, &ss, 5);
	ck_assert_uint_eq(buf[5], 0xee);
	len = 0; /* then the address is not even looked at */
	ck_assert_int_eq(rds_addr_to_user(&ss, 16, NULL, &len), 0);
	ck_assert_uint_eq(len, 16);
	len = (socklen_t)-1;
	ck_assert_int_eq(rds_addr_to_user(&ss, 16, sa, &len), -EINVAL);
	len = 16;
	ck_assert_int_eq(rds_addr_to_user(&ss, 16, NULL, &len), -EFAULT);
	ck_assert_uint_eq(len, 16);
	ck_assert_int_eq(rds_addr_to_user(&ss, 16, sa, NULL), -EFAULT);
}
END_TEST

START_TEST(to_user_read_only_length)
{
	socklen_t *len = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sockaddr_storage ss = make(AF_INET, "10.1.2.3", 4000, 0);
	unsigned char buf[16] = {0};

	*len = 16;
	mprotect(len, 4096, PROT_READ);
	ck_assert_int_eq(rds_addr_to_user(&ss, 16, (void *)buf, len), -EFAULT);
	ck_assert_mem_eq(buf, &ss, 16);
}
END_TEST

START_TEST(as_text)
{
	struct in6_addr v4 = ip("::ffff:10.0.0.1"), v6 = ip("fe80::1"), any = ip("::"),
			longest = ip("1111:2222:3333:4444:5555:6666:7777:8888");
	char buf[RDS_ADDR_STRLEN];

	ck_assert_str_eq(rds_addr_str(&v4, 4000, 0, buf), "10.0.0.1:4000");
	ck_assert_str_eq(rds_addr_str(&v6, 4000, 2, buf), "[fe80::1%2]:4000");
	ck_assert_str_eq(rds_addr_str(&any, 0, 0, buf), "[::]:0");
	ck_assert_str_eq(rds_addr_str(&longest, 65535, UINT32_MAX, buf),
			 "[1111:2222:3333:4444:5555:6666:7777:8888%4294967295]:65535");
}
END_TEST

/* ---- local or not ---- */

static int local(const char *text)
{
	struct in6_addr a = ip(text);

	return rds_node_addr_is_local(&a, 0);
}

START_TEST(loopback)
{
	struct in6_addr a = ip("::ffff:127.255.0.9"), b = ip("::ffff:128.0.0.1"), c = ip("::1"), d = ip("::2");

	ck_assert(rds_ip_is_loopback(&a) && !rds_ip_is_loopback(&b));
	ck_assert(rds_ip_is_loopback(&c) && !rds_ip_is_loopback(&d));
	ck_assert_int_eq(local("::ffff:127.77.0.9"), 0);
	ck_assert_int_eq(local("::1"), 0);
}
END_TEST

START_TEST(own_addresses)
{
	struct ifaddrs *list, *i;
	struct rds_addr a;

	ck_assert_int_eq(getifaddrs(&list), 0);
	for (i = list; i; i = i->ifa_next) {
		int len = i->ifa_addr && i->ifa_addr->sa_family == AF_INET ? 16 : 28;

		if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
			continue;
		ck_assert_int_eq(rds_addr_for_bind(i->ifa_addr, len, &a), 0);
		ck_assert_int_eq(rds_node_addr_is_local(&a.ip, a.scope), 0);
		/* this time from memory */
		ck_assert_int_eq(rds_node_addr_is_local(&a.ip, a.scope), 0);
		if (len == 16 && (i->ifa_flags & IFF_BROADCAST) && i->ifa_broadaddr &&
		    !rds_addr_for_bind(i->ifa_broadaddr, 16, &a))
			ck_assert_int_eq(rds_node_addr_is_local(&a.ip, 0), -EADDRNOTAVAIL);
	}
	freeifaddrs(list);
	ck_assert_int_eq(local("::ffff:198.51.100.77"), -EADDRNOTAVAIL);
	ck_assert_int_eq(local("2001:db8::77"), -EADDRNOTAVAIL);
}
END_TEST

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void set_if(int fd, unsigned long req, const char *name, const char *addr)
{
	struct ifreq ifr = {0};
	struct sockaddr_storage ss = make(AF_INET, addr, 0, 0);

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	if (req == SIOCSIFFLAGS)
		ifr.ifr_flags = IFF_UP;
	else
		memcpy(&ifr.ifr_addr, &ss, sizeof(ifr.ifr_addr));
	ck_assert_int_eq(ioctl(fd, req, &ifr), 0);
}

/*
 * Addresses that a route leads to, on an interface that is not the loopback, while bind() believes
 * everything.
 */
static void beside_an_interface(int fd)
{
	struct ifreq ifr = {.ifr_name = "t0", .ifr_flags = IFF_TUN | IFF_NO_PI};
	int tun = open("/dev/net/tun", O_RDWR);

	if (tun < 0 || ioctl(tun, TUNSETIFF, &ifr)) {
		printf("beside_an_interface: not checked, no tunnel device (%s)\n", strerror(errno));
		return;
	}
	set_if(fd, SIOCSIFADDR, "t0", "10.97.0.1");
	set_if(fd, SIOCSIFNETMASK, "t0", "255.255.255.0");
	set_if(fd, SIOCSIFFLAGS, "t0", "0.0.0.0");
	/* the same subnet: the route to it has 10.97.0.1 as its source */
	set_if(fd, SIOCSIFADDR, "t0:1", "10.97.0.2");
	set_if(fd, SIOCSIFNETMASK, "t0:1", "255.255.255.0");
	ck_assert_int_eq(local("::ffff:10.97.0.1"), 0);
	ck_assert_int_eq(local("::ffff:10.97.0.2"), 0);
	ck_assert_int_eq(local("::ffff:10.97.0.77"), -EADDRNOTAVAIL);
	ck_assert_int_eq(local("::ffff:10.97.0.255"), -EADDRNOTAVAIL);
	close(tun);
}

/* In a network namespace of its own, where addresses can be added and nonlocal binds allowed. */
START_TEST(address_that_appears)
{
	int fd;

	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		printf("address_that_appears: not checked, no network namespace to be had (%s)\n", strerror(errno));
		return;
	}
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	ck_assert_int_eq(local("::ffff:10.99.0.1"), -EADDRNOTAVAIL);
	set_if(fd, SIOCSIFFLAGS, "lo", "0.0.0.0");
	set_if(fd, SIOCSIFADDR, "lo:1", "10.99.0.1");
	set_if(fd, SIOCSIFNETMASK, "lo:1", "255.255.255.0");
	set_if(fd, SIOCSIFBRDADDR, "lo:1", "10.99.0.255");
	ck_assert_int_eq(local("::ffff:10.99.0.1"), 0); /* at once: a no is not remembered */
	ck_assert_int_eq(local("::ffff:10.98.0.1"), -EADDRNOTAVAIL);
	set_if(fd, SIOCSIFADDR, "lo:2", "10.99.0.2"); /* a second one in the same subnet */
	set_if(fd, SIOCSIFNETMASK, "lo:2", "255.255.255.0");
	ck_assert_int_eq(local("::ffff:10.99.0.2"), 0);
	put("/proc/sys/net/ipv4/ip_nonlocal_bind", "1");
	ck_assert_int_eq(local("::ffff:10.98.0.1"), -EADDRNOTAVAIL);
	beside_an_interface(fd);
	if (!access("/proc/sys/net/ipv6/ip_nonlocal_bind", W_OK)) {
		put("/proc/sys/net/ipv6/ip_nonlocal_bind", "1");
		ck_assert_int_eq(local("::1"), 0);
	}
	close(fd);
}
END_TEST

static void *ask_often(void *arg)
{
	char text[40];

	for (int i = 0; i < 300; i++) {
		snprintf(text, sizeof(text), "::ffff:198.51.100.%d", i % 20 + 1);
		if (local(text) != -EADDRNOTAVAIL || local("::ffff:127.0.0.1"))
			return NULL;
	}
	return arg;
}

START_TEST(many_threads)
{
	pthread_t t[4];
	void *ok;

	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, ask_often, t);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &ok);
		ck_assert_ptr_eq(ok, t);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("addr");
	TCase *c = tcase_create("form"), *l = tcase_create("local");

	suite_add_tcase(s, c);
	suite_add_tcase(s, l);
	tcase_add_loop_test(c, tables, 0, sizeof(rows) / sizeof(rows[0]));
	tcase_add_test(c, values);
	tcase_add_test(c, connect_scope);
	tcase_add_test(c, way_back);
	tcase_add_test(c, to_user);
	tcase_add_test(c, to_user_read_only_length);
	tcase_add_test(c, as_text);
	tcase_add_test(l, loopback);
	tcase_add_test(l, own_addresses);
	tcase_add_test(l, address_that_appears);
	tcase_add_test(l, many_threads);
	return suite_run(s);
}
