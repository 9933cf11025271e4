/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_names.c - bind, connect, getsockname, getpeername: each of the kernel's checks in its order,
 * the table of bound sockets, and two threads that bind at once.
 */
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/socket/socket.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

#define BAD ((void *)8)

static struct rds_sock *sk;
static int skfd;

static struct rds_sock *sock_make(int *fd)
{
	struct rds_sock *s = NULL;

	*fd = rds_call_socket(SOCK_SEQPACKET, 0, &s);
	ck_assert_int_ge(*fd, 0);
	return s;
}

static void sock_end(struct rds_sock *s, int fd)
{
	os_close(fd);
	rds_call_number_closed(s);
}

static void setup(void)
{
	sk = sock_make(&skfd);
}

static void teardown(void)
{
	sock_end(sk, skfd);
}

static struct sockaddr_in in4(const char *ip, unsigned port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	ck_assert_int_eq(inet_pton(AF_INET, ip, &a.sin_addr), 1);
	return a;
}

static struct sockaddr_in6 in6(const char *ip, unsigned port, unsigned scope)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_scope_id = scope};

	ck_assert_int_eq(inet_pton(AF_INET6, ip, &a.sin6_addr), 1);
	return a;
}

static int bind4(struct rds_sock *s, const char *ip, unsigned port)
{
	struct sockaddr_in a = in4(ip, port);

	return rds_call_bind(s, (struct sockaddr *)&a, sizeof(a));
}

static int bind6(struct rds_sock *s, const char *ip, unsigned port, unsigned scope)
{
	struct sockaddr_in6 a = in6(ip, port, scope);

	return rds_call_bind(s, (struct sockaddr *)&a, sizeof(a));
}

static int connect4(const char *ip, unsigned port)
{
	struct sockaddr_in a = in4(ip, port);

	return rds_call_connect(sk, (struct sockaddr *)&a, sizeof(a));
}

static int connect6(const char *ip, unsigned port, unsigned scope)
{
	struct sockaddr_in6 a = in6(ip, port, scope);

	return rds_call_connect(sk, (struct sockaddr *)&a, sizeof(a));
}

static void preset(struct rds_sock *s, int fd, int type)
{
	ck_assert_int_eq(rds_call_setsockopt(s, fd, SOL_RDS, SO_RDS_TRANSPORT, &type, sizeof(type)), 0);
}

static int transport(struct rds_sock *s, int fd)
{
	int v = -7;
	socklen_t len = sizeof(v);

	ck_assert_int_eq(rds_call_getsockopt(s, fd, SOL_RDS, SO_RDS_TRANSPORT, &v, &len), 0);
	return v;
}

static unsigned port_of(struct rds_sock *s)
{
	struct sockaddr_in a;
	socklen_t len = sizeof(a);

	ck_assert_int_eq(rds_call_getsockname(s, (struct sockaddr *)&a, &len), 0);
	return ntohs(a.sin_port);
}

START_TEST(bind_refuses_bad_form)
{
	struct sockaddr_in a = in4("127.0.0.1", 4000);
	struct sockaddr *sa = (struct sockaddr *)&a;

	ck_assert_int_eq(rds_call_bind(sk, sa, -1), -EINVAL);
	ck_assert_int_eq(rds_call_bind(sk, sa, 129), -EINVAL);
	ck_assert_int_eq(rds_call_bind(sk, BAD, 129), -EINVAL);
	ck_assert_int_eq(rds_call_bind(sk, BAD, 16), -EFAULT);
	ck_assert_int_eq(rds_call_bind(sk, NULL, 16), -EFAULT);
	ck_assert_int_eq(rds_call_bind(sk, NULL, 0), -EINVAL);
	ck_assert_int_eq(rds_call_bind(sk, sa, 1), -EINVAL);
	ck_assert_int_eq(rds_call_bind(sk, sa, 15), -EINVAL);
	ck_assert_int_eq(bind4(sk, "0.0.0.0", 4000), -EINVAL);
	ck_assert_int_eq(bind4(sk, "255.255.255.255", 4000), -EINVAL);
	ck_assert_int_eq(bind4(sk, "224.0.0.1", 4000), -EINVAL);
	ck_assert_int_eq(bind6(sk, "::", 4000, 0), -EINVAL);
	ck_assert_int_eq(bind6(sk, "ff02::1", 4000, 1), -EINVAL);
	ck_assert_int_eq(bind6(sk, "::ffff:0.0.0.0", 4000, 0), -EINVAL);
	ck_assert_int_eq(bind6(sk, "fe80::1", 4000, 0), -EINVAL);
	a.sin_family = AF_UNIX;
	ck_assert_int_eq(rds_call_bind(sk, sa, 16), -EINVAL);
	ck_assert_int_eq(port_of(sk), 0);
}
END_TEST

START_TEST(bind_end_of_mapping)
{
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sockaddr_in a = in4("127.0.0.1", 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	ck_assert_int_eq(munmap(p + 4096, 4096), 0);
	memcpy(p + 4096 - 16, &a, 16);
	ck_assert_int_eq(rds_call_bind(sk, (void *)(p + 4096 - 16), 17), -EFAULT);
	ck_assert_int_eq(rds_call_bind(sk, (void *)(p + 4096 - 16), 16), 0);
	munmap(p, 4096);
}
END_TEST

START_TEST(bind_refuses_foreign_address)
{
	ck_assert_int_eq(bind4(sk, "192.0.2.77", 4000), -EADDRNOTAVAIL);
	ck_assert_int_eq(transport(sk, skfd), RDS_TRANS_NONE);
	preset(sk, skfd, RDS_TRANS_TCP);
	ck_assert_int_eq(bind4(sk, "192.0.2.77", 4000), -ENOPROTOOPT);
	/* an address that the transport does not have leaves the choice as it is */
	ck_assert_int_eq(transport(sk, skfd), RDS_TRANS_TCP);
	ck_assert_int_eq(bind4(sk, "127.0.0.1", 0), 0);
}
END_TEST

START_TEST(bind_probe_port_resets_transport)
{
	preset(sk, skfd, RDS_TRANS_TCP);
	ck_assert_int_eq(bind4(sk, "127.0.0.1", 1), -EINVAL);
	ck_assert_int_eq(transport(sk, skfd), RDS_TRANS_NONE); /* a bad port does not */
	ck_assert_int_eq(bind4(sk, "127.0.0.1", 0), 0);
	ck_assert_int_eq(transport(sk, skfd), RDS_TRANS_LOOP);
}
END_TEST

/* A test that asks for faults, or for a transport, must not pass for want of them. */
START_TEST(bind_without_transport)
{
	static const char *const asked[][2] = {{"RDS_PRELOAD_TRANSPORT", "pigeons"}, {"RDS_PRELOAD_FAULT", "seed=1"}};

	setenv(asked[_i][0], asked[_i][1], 1);
	rds_options_reset();
	setup();
	ck_assert_int_eq(bind4(sk, "127.0.0.1", 4000), -EADDRNOTAVAIL);
	teardown();
}
END_TEST

START_TEST(bind_once)
{
	struct rds_sock *found;

	ck_assert_int_eq(bind4(sk, "127.0.0.1", 4001), 0);
	ck_assert_int_eq(bind4(sk, "127.0.0.1", 4002), -EINVAL);
	ck_assert_int_eq(bind4(sk, "0.0.0.0", 4002), -EINVAL);
	ck_assert_int_eq(port_of(sk), 4001);
	rx_lock();
	found = rds_sock_bound_find(&sk->laddr.ip, 4001, 0);
	ck_assert_ptr_eq(found, sk);
	ck_assert_ptr_null(rds_sock_bound_find(&sk->laddr.ip, 4002, 0));
	ck_assert_ptr_null(rds_sock_bound_find(&sk->laddr.ip, 4001, 1));
	rx_unlock();
}
END_TEST

/* A failed bind says at level info what is in its way. */
START_TEST(bind_says_why)
{
	char said[1024] = "", line[100];
	FILE *lines = tmpfile();
	int fd;
	struct rds_sock *b = sock_make(&fd);

	ck_assert_ptr_nonnull(lines);
	ck_assert_int_eq(dup2(fileno(lines), 2), 2);
	rds_log_setup(RDS_LOG_INFO, NULL);
	ck_assert_int_eq(bind4(sk, "127.0.0.1", 4003), 0);
	ck_assert_int_eq(bind4(b, "127.0.0.1", 4003), -EADDRINUSE);
	ck_assert_int_eq(bind4(b, "192.0.2.1", 4003), -EADDRNOTAVAIL);
	ck_assert_int_gt(pread(fileno(lines), said, sizeof(said) - 1, 0), 0);
	snprintf(line, sizeof(line), "bind: port 4003 of 127.0.0.1 is in use by process %d\n", (int)getpid());
	ck_assert_msg(strstr(said, line), "%s", said);
	ck_assert_msg(strstr(said, "bind: 192.0.2.1 is no address of this host\n"), "%s", said);
	sock_end(b, fd);
	fclose(lines);
}
END_TEST

START_TEST(bind_is_unique)
{
	int fd, fd2;
	struct rds_sock *b = sock_make(&fd), *c;
	struct in6_addr ip;

	ck_assert_int_eq(bind4(sk, "127.0.0.1", 4003), 0);
	ip = sk->laddr.ip;
	ck_assert_int_eq(bind4(b, "127.0.0.1", 4003), -EADDRINUSE);
	ck_assert_int_eq(bind6(b, "::ffff:127.0.0.1", 4003, 0), -EADDRINUSE);
	ck_assert_int_eq(bind4(b, "127.0.0.2", 4003), 0); /* another address: another port space */
	sock_end(b, fd);
	sock_end(sk, skfd);
	rx_lock();
	ck_assert_ptr_null(rds_sock_bound_find(&ip, 4003, 0));
	rx_unlock();
	c = sock_make(&fd2);
	ck_assert_int_eq(bind4(c, "127.0.0.1", 4003), 0); /* free at once after the last close */
	sock_end(c, fd2);
	setup();
}
END_TEST

START_TEST(bind_port_zero)
{
	int fds[50];
	struct rds_sock *s[50];
	static bool seen[65536];

	for (int i = 0; i < 50; i++) {
		unsigned port;

		s[i] = sock_make(&fds[i]);
		ck_assert_int_eq(bind4(s[i], "127.0.0.1", 0), 0);
		port = port_of(s[i]);
		ck_assert_uint_ge(port, 2);
		ck_assert(!seen[port]);
		seen[port] = true;
	}
	for (int i = 0; i < 50; i++)
		sock_end(s[i], fds[i]);
}
END_TEST

START_TEST(bind_transport_choice)
{
	int fd;
	struct rds_sock *b = sock_make(&fd);

	ck_assert_int_eq(transport(sk, skfd), RDS_TRANS_NONE);
	ck_assert_int_eq(bind4(sk, "127.9.9.9", 0), 0);
	ck_assert_int_eq(transport(sk, skfd), RDS_TRANS_LOOP);
	preset(b, fd, RDS_TRANS_TCP);
	ck_assert_int_eq(bind4(b, "127.0.0.1", 0), 0);
	ck_assert_int_eq(transport(b, fd), RDS_TRANS_TCP);
	sock_end(b, fd);
}
END_TEST

static void *bind_thread(void *arg)
{
	pthread_barrier_wait(arg);
	return (void *)(intptr_t)bind4(sk, "127.0.0.1", 0);
}

START_TEST(bind_two_threads)
{
	pthread_barrier_t barrier;
	pthread_t t[2];
	void *r[2];

	pthread_barrier_init(&barrier, NULL, 2);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, bind_thread, &barrier), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], &r[i]);
	pthread_barrier_destroy(&barrier);
	ck_assert_int_eq((intptr_t)r[0] + (intptr_t)r[1], -EINVAL);
	ck_assert(r[0] == NULL || r[1] == NULL);
}
END_TEST

START_TEST(connect_table)
{
	struct sockaddr_in a = in4("127.0.0.1", 1);
	struct sockaddr_in6 a6 = in6("::1", 1, 0);
	struct sockaddr *sa = (struct sockaddr *)&a;

	ck_assert_int_eq(rds_call_connect(sk, sa, -1), -EINVAL);
	ck_assert_int_eq(rds_call_connect(sk, BAD, 16), -EFAULT);
	ck_assert_int_eq(rds_call_connect(sk, sa, 1), -EINVAL);
	ck_assert_int_eq(rds_call_connect(sk, sa, 15), -EINVAL);
	ck_assert_int_eq(connect4("0.0.0.0", 5), -EDESTADDRREQ);
	ck_assert_int_eq(connect4("224.0.0.1", 5), -EINVAL);
	ck_assert_int_eq(connect4("255.255.255.255", 5), -EINVAL);
	ck_assert_int_eq(rds_call_connect(sk, (struct sockaddr *)&a6, 27), -EINVAL);
	ck_assert_int_eq(connect6("::", 5, 0), -EPROTOTYPE);
	ck_assert_int_eq(connect6("ff02::1", 5, 1), -EPROTOTYPE);
	ck_assert_int_eq(connect6("::ffff:0.0.0.0", 5, 0), -EPROTOTYPE);
	ck_assert_int_eq(connect6("fe80::1", 5, 0), -EINVAL);
	a.sin_family = AF_UNSPEC;
	ck_assert_int_eq(rds_call_connect(sk, sa, 16), -EAFNOSUPPORT);
	ck_assert_int_eq(rds_call_getpeername(sk, sa, &(socklen_t){16}), -ENOTCONN);
	ck_assert_int_eq(connect4("192.0.2.1", 0), 0); /* anywhere, port 0, before bind */
	ck_assert_int_eq(connect6("fe80::1", 5, 3), 0);
	ck_assert_int_eq(connect6("fe80::2", 5, 4), -EINVAL); /* another link than before */
	ck_assert_int_eq(bind6(sk, "fe80::9", 5, 4), -EINVAL);
}
END_TEST

START_TEST(names_unbound)
{
	unsigned char buf[64], zero[64] = {0};
	socklen_t len = sizeof(buf);

	memset(buf, 0xaa, sizeof(buf));
	ck_assert_int_eq(rds_call_getsockname(sk, (struct sockaddr *)buf, &len), 0);
	ck_assert_uint_eq(len, 16);
	ck_assert_mem_eq(buf, zero, 16);
	ck_assert_uint_eq(buf[16], 0xaa);

	ck_assert_int_eq(connect4("127.0.0.1", 77), 0);
	len = sizeof(buf);
	ck_assert_int_eq(rds_call_getsockname(sk, (struct sockaddr *)buf, &len), 0);
	ck_assert_uint_eq(len, 16);
	ck_assert_int_eq(((struct sockaddr *)buf)->sa_family, AF_INET);
	ck_assert_mem_eq(buf + 2, zero, 14);

	ck_assert_int_eq(connect6("::1", 77, 0), 0);
	len = sizeof(buf);
	ck_assert_int_eq(rds_call_getsockname(sk, (struct sockaddr *)buf, &len), 0);
	ck_assert_uint_eq(len, 28);
	ck_assert_int_eq(((struct sockaddr *)buf)->sa_family, AF_INET6);
	ck_assert_mem_eq(buf + 2, zero, 26);
}
END_TEST

START_TEST(names_of_peer)
{
	struct sockaddr_storage ss;
	struct sockaddr_in *sin = (void *)&ss;
	struct sockaddr_in6 *sin6 = (void *)&ss;
	socklen_t len = sizeof(ss);

	ck_assert_int_eq(connect6("::ffff:192.0.2.9", 78, 0), 0);
	ck_assert_int_eq(rds_call_getpeername(sk, (void *)&ss, &len), 0);
	ck_assert_uint_eq(len, 16);
	ck_assert_int_eq(sin->sin_family, AF_INET);
	ck_assert_uint_eq(ntohs(sin->sin_port), 78);
	ck_assert_uint_eq(sin->sin_addr.s_addr, inet_addr("192.0.2.9"));
	ck_assert_int_eq(connect6("2001:db8::1", 79, 0), 0); /* the last one wins */
	len = sizeof(ss);
	ck_assert_int_eq(rds_call_getpeername(sk, (void *)&ss, &len), 0);
	ck_assert_uint_eq(len, 28);
	ck_assert_uint_eq(ntohs(sin6->sin6_port), 79);
	ck_assert_uint_eq(sin6->sin6_scope_id, 0);
}
END_TEST

START_TEST(names_truncation)
{
	unsigned char buf[64];
	socklen_t len = 4;

	ck_assert_int_eq(bind4(sk, "127.0.0.1", 4004), 0);
	memset(buf, 0xaa, sizeof(buf));
	ck_assert_int_eq(rds_call_getsockname(sk, (struct sockaddr *)buf, &len), 0);
	ck_assert_uint_eq(len, 16);
	ck_assert_uint_eq(buf[2] << 8 | buf[3], 4004);
	ck_assert_uint_eq(buf[4], 0xaa);
	len = (socklen_t)-1;
	ck_assert_int_eq(rds_call_getsockname(sk, (struct sockaddr *)buf, &len), -EINVAL);
	ck_assert_int_eq(rds_call_getsockname(sk, (struct sockaddr *)buf, BAD), -EFAULT);
	len = 16;
	ck_assert_int_eq(rds_call_getsockname(sk, BAD, &len), -EFAULT);
	len = 0;
	ck_assert_int_eq(rds_call_getsockname(sk, BAD, &len), 0);
	ck_assert_uint_eq(len, 16);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("names");
	TCase *tc = tcase_create("names");

	tcase_add_checked_fixture(tc, registry_setup, registry_teardown);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, bind_refuses_bad_form);
	tcase_add_test(tc, bind_end_of_mapping);
	tcase_add_test(tc, bind_refuses_foreign_address);
	tcase_add_test(tc, bind_probe_port_resets_transport);
	tcase_add_test(tc, bind_once);
	tcase_add_test(tc, bind_is_unique);
	tcase_add_test(tc, bind_says_why);
	tcase_add_test(tc, bind_port_zero);
	tcase_add_test(tc, bind_transport_choice);
	tcase_add_test(tc, bind_two_threads);
	tcase_add_test(tc, connect_table);
	tcase_add_test(tc, names_unbound);
	tcase_add_test(tc, names_of_peer);
	tcase_add_test(tc, names_truncation);
	suite_add_tcase(s, tc);
	tcase_add_loop_test(suite_case(s, "without", registry_setup, registry_teardown), bind_without_transport, 0, 2);
	return suite_run(s);
}
