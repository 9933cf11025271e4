/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_sockopt.c - levels, the options of SOL_SOCKET, ioctls (calls/sockopt.c, ioctl.c): order of
 * checks, exact errnos, what is read back.  The options of SOL_RDS are in test_sockopt_rds.c.
 */
#include <asm/ioctls.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>

#include <asm/socket.h>

#include "engine/abi/revisions.h"
#include "tests/unit/sockopt_helper.h"

START_TEST(levels)
{
	ck_assert_int_eq(set(6, 1, 1), -ENOPROTOOPT);
	ck_assert_int_eq(get(6, 1), -ENOPROTOOPT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, 6, 1, NULL, (socklen_t)-1), -EINVAL);
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, 6, 1, BAD, BAD), -ENOPROTOOPT);
	ck_assert_int_eq(rds_sock_level(sk), SOL_RDS);
	ck_assert_int_eq(set(SOL_RDS_HISTORIC, RDS_RECVERR, 1), 0);
	ck_assert_int_eq(rds_sock_level(sk), SOL_RDS_HISTORIC);
	ck_assert_int_eq(get(SOL_RDS, RDS_RECVERR), 1);
	ck_assert_int_eq(rds_sock_level(sk), SOL_RDS);
	ck_assert_int_eq(get(SOL_RDS_2006, RDS_RECVERR), 1);
	ck_assert_int_eq(rds_sock_level(sk), SOL_RDS_2006);
	/* RDS_SNDBUF, the only option of that time */
	ck_assert_int_eq(set(SOL_RDS_2006, RDS_GET_MR, 6789), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_SNDBUF), 2 * 6789);
	ck_assert_int_eq(set(SOL_RDS_2006, 999, 1), -ENOPROTOOPT);
	ck_assert_int_eq(set(SOL_RDS_2006 - 1, RDS_GET_MR, 1), -ENOPROTOOPT);
	ck_assert_int_eq(get(SOL_RDS_2006 + 1, RDS_RECVERR), -ENOPROTOOPT);
	ck_assert_int_eq(rds_sock_level(sk), SOL_RDS_2006);
}
END_TEST

START_TEST(buffers)
{
	ck_assert_int_eq(get(SOL_SOCKET, SO_SNDBUF), (int)rds_options()->wmem_default);
	ck_assert_int_eq(get(SOL_SOCKET, SO_RCVBUF), (int)rds_options()->rmem_default);
	ck_assert_int_eq(set(SOL_SOCKET, SO_SNDBUF, 10000), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_SNDBUF), 20000);
	ck_assert_uint_eq(rds_sock_sndbuf(sk), 10000);
	ck_assert_int_eq(set(SOL_SOCKET, SO_SNDBUF, 1), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_SNDBUF), 4608);
	ck_assert_int_eq(set(SOL_SOCKET, SO_RCVBUF, 1), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_RCVBUF), 2304);
	/* negative is a huge unsigned number and meets the maximum */
	ck_assert_int_eq(set(SOL_SOCKET, SO_RCVBUF, -1), 0);
	ck_assert_int_ge(get(SOL_SOCKET, SO_RCVBUF) + 2ll,
			 rds_options()->rmem_max * 2 > INT32_MAX ? INT32_MAX - 2ll : rds_options()->rmem_max * 2);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, SO_SNDBUF, &(short){1}, 2), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, SO_SNDBUF, BAD, 4), -EFAULT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, SO_SNDBUF, BAD, 2), -EINVAL);
	/* the RDS_SNDBUF of 2006 */
	ck_assert_int_eq(set(SOL_RDS, RDS_GET_MR, 12345), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_SNDBUF), 24690);
}
END_TEST

START_TEST(buffers_clamped)
{
	setenv("RDS_PRELOAD_WMEM_MAX", "212992", 1);
	setenv("RDS_PRELOAD_RMEM_MAX", "212992", 1);
	rds_options_reset();
	ck_assert_int_eq(set(SOL_SOCKET, SO_SNDBUF, 1 << 20), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_SNDBUF), 425984);
	ck_assert_int_eq(set(SOL_SOCKET, SO_RCVBUF, 1 << 20), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_RCVBUF), 425984);
	if (set(SOL_SOCKET, SO_SNDBUFFORCE, 1 << 20) == 0)
		ck_assert_int_eq(get(SOL_SOCKET, SO_SNDBUF), 1 << 21);
	else
		ck_assert_int_eq(set(SOL_SOCKET, SO_SNDBUFFORCE, 1 << 20), -EPERM);
}
END_TEST

START_TEST(timeouts)
{
	static const int opts[] = {SO_SNDTIMEO_OLD, SO_RCVTIMEO_OLD, SO_SNDTIMEO_NEW, SO_RCVTIMEO_NEW};
	struct timeval tv;
	socklen_t len;

	for (unsigned i = 0; i < 4; i++) {
		const _Atomic uint64_t *ns = i % 2 ? &sk->rcvtimeo_ns : &sk->sndtimeo_ns;

		tv = (struct timeval){2, 500000};
		ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, opts[i], &tv, sizeof(tv)), 0);
		ck_assert_uint_eq(*ns, 2500000000ull);
		memset(&tv, 0, sizeof(tv));
		len = 100;
		ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_SOCKET, opts[i], &tv, &len), 0);
		ck_assert_uint_eq(len, sizeof(tv));
		ck_assert_int_eq(tv.tv_sec, 2);
		ck_assert_int_eq(tv.tv_usec, 500000);
		tv = (struct timeval){0, 1000000};
		ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, opts[i], &tv, sizeof(tv)), -EDOM);
		tv = (struct timeval){0, -1};
		ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, opts[i], &tv, sizeof(tv)), -EDOM);
		tv = (struct timeval){-1, 0};
		ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, opts[i], &tv, sizeof(tv)), 0);
		ck_assert_uint_eq(*ns, 0);
		tv = (struct timeval){0, 0};
		ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, opts[i], &tv, sizeof(tv)), 0);
		ck_assert_uint_eq(*ns, RDS_NO_TIMEOUT);
		tv = (struct timeval){INT64_MAX, 999999};
		ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, opts[i], &tv, sizeof(tv)), 0);
		ck_assert_uint_eq(*ns, RDS_NO_TIMEOUT);
		ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, opts[i], &tv, 15), -EINVAL);
		ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, opts[i], BAD, 16), -EFAULT);
	}
}
END_TEST

START_TEST(timestamps)
{
	ck_assert_int_eq(set(SOL_SOCKET, SO_TIMESTAMP_OLD, 1), 0);
	ck_assert_int_eq(sk->timestamp, SO_TIMESTAMP_OLD);
	ck_assert_int_eq(get(SOL_SOCKET, SO_TIMESTAMP_OLD), 1);
	ck_assert_int_eq(get(SOL_SOCKET, SO_TIMESTAMPNS_OLD), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_TIMESTAMP_NEW), 0);
	ck_assert_int_eq(set(SOL_SOCKET, SO_TIMESTAMPNS_NEW, 1), 0);
	ck_assert_int_eq(sk->timestamp, SO_TIMESTAMP_NEW);
	ck_assert_int_eq(get(SOL_SOCKET, SO_TIMESTAMPNS_NEW), 1);
	ck_assert_int_eq(get(SOL_SOCKET, SO_TIMESTAMP_NEW), 1);
	ck_assert_int_eq(get(SOL_SOCKET, SO_TIMESTAMP_OLD), 0);
	ck_assert_int_eq(set(SOL_SOCKET, SO_TIMESTAMPNS_OLD, 1), 0);
	ck_assert_int_eq(sk->timestamp, SO_TIMESTAMP_OLD);
	ck_assert_int_eq(get(SOL_SOCKET, SO_TIMESTAMPNS_OLD), 1);
	ck_assert_int_eq(get(SOL_SOCKET, SO_TIMESTAMP_OLD), 0);
	ck_assert_int_eq(set(SOL_SOCKET, SO_TIMESTAMP_OLD, 0), 0);
	ck_assert_int_eq(sk->timestamp, 0);
	/* level SOL_RDS: a wrong length is EFAULT */
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_TIMESTAMP_OLD, &(int64_t){1}, 8), -EFAULT);
	ck_assert_int_eq(set(SOL_RDS, SO_TIMESTAMP_NEW, 1), 0);
	ck_assert_int_eq(sk->timestamp, SO_TIMESTAMP_NEW);
	ck_assert_int_eq(set(SOL_RDS, SO_TIMESTAMP_NEW, 0), 0);
	ck_assert_int_eq(sk->timestamp, 0);
}
END_TEST

START_TEST(generic)
{
	struct sock_filter none = {0x06, 0, 0, 0}; /* drop everything */
	struct sock_fprog prog = {1, &none};
	struct ucred cred;
	socklen_t len = sizeof(cred);
	char byte;

	ck_assert_int_eq(get(SOL_SOCKET, SO_TYPE), SOCK_SEQPACKET);
	ck_assert_int_eq(get(SOL_SOCKET, SO_DOMAIN), 21);
	ck_assert_int_eq(get(SOL_SOCKET, SO_PROTOCOL), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_ACCEPTCONN), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_ERROR), 0);
	ck_assert_int_eq(set(SOL_SOCKET, SO_TYPE, 1), -ENOPROTOOPT);
	ck_assert_int_eq(set(SOL_SOCKET, SO_ERROR, 1), -ENOPROTOOPT);
	ck_assert_int_eq(set(SOL_SOCKET, SO_REUSEADDR, 1), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_REUSEADDR), 1);
	ck_assert_int_eq(set(SOL_SOCKET, SO_REUSEPORT, 1), -EOPNOTSUPP);
	ck_assert_int_eq(set(SOL_SOCKET, SO_REUSEPORT, 0), 0);
	ck_assert_int_eq(set(SOL_SOCKET, SO_PEEK_OFF, 1), -EOPNOTSUPP);
	ck_assert_int_eq(get(SOL_SOCKET, SO_PEEK_OFF), -EOPNOTSUPP);
	ck_assert_int_eq(set(SOL_SOCKET, SO_ZEROCOPY, 2), -EINVAL);
	ck_assert_int_eq(set(SOL_SOCKET, SO_ZEROCOPY, -1), -EINVAL);
	ck_assert_int_eq(set(SOL_SOCKET, SO_ZEROCOPY, 1), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_ZEROCOPY), 1);
	ck_assert_int_eq(set(SOL_SOCKET, SO_KEEPALIVE, 1), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_KEEPALIVE), 1);
	ck_assert_int_eq(set(SOL_SOCKET, SO_RCVLOWAT, 9), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_RCVLOWAT), 9);
	ck_assert_int_eq(set(SOL_SOCKET, SO_PASSCRED, 1), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_PASSCRED), 1);
	ck_assert_int_eq(set(SOL_SOCKET, SO_PASSCRED, 0), 0);
	ck_assert_int_eq(get(SOL_SOCKET, SO_PASSCRED), 0);
	ck_assert_int_eq(set(SOL_SOCKET, 9999, 1), -ENOPROTOOPT);
	ck_assert_int_eq(get(SOL_SOCKET, 9999), -ENOPROTOOPT);
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_SOCKET, SO_PEERCRED, &cred, &len), 0);
	ck_assert_int_eq(cred.pid, 0);
	ck_assert_int_eq((int)cred.uid, -1);
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_SOCKET, SO_TYPE, &cred, BAD), -EFAULT);
	len = (socklen_t)-1;
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_SOCKET, SO_TYPE, &cred, &len), -EINVAL);
	len = 1;
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_SOCKET, SO_TYPE, &byte, &len), 0);
	ck_assert_int_eq(byte, SOCK_SEQPACKET);
	ck_assert_uint_eq(len, 1);
	/* a filter is accepted and must not shut the stand-in */
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)), 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, 3), -EINVAL);
	ck_assert_int_eq(os_send(rds_sock_pair_fd(sk), "x", 1, MSG_DONTWAIT), 1);
	ck_assert_int_eq(os_recv(fd, &byte, 1, MSG_DONTWAIT), 1);
}
END_TEST

START_TEST(peername)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0xc0000201)}, b;
	socklen_t len = sizeof(b);

	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_SOCKET, SO_PEERNAME, &b, &len), -ENOTCONN);
	ck_assert_int_eq(rds_call_connect(sk, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_SOCKET, SO_PEERNAME, &b, &len), 0);
	ck_assert_uint_eq(len, 16);
	ck_assert_mem_eq(&a, &b, sizeof(a));
	len = 17;
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_SOCKET, SO_PEERNAME, &b, &len), -EINVAL);
	len = 8;
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_SOCKET, SO_PEERNAME, &b, &len), 0);
	ck_assert_uint_eq(len, 8);
}
END_TEST

START_TEST(tos)
{
	uint8_t v = 5;
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(page, MAP_FAILED);
	munmap(page + 4096, 4096);
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCRDSSETTOS, BAD), -EFAULT);
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCRDSSETTOS, page), -ENOTTY);
	/* without a transport the device layer copies 40 bytes first */
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCRDSSETTOS, page + 4095), -EFAULT);
	bind_to("127.0.0.1", 0);
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCRDSSETTOS, page), -ENOTTY); /* loopback transport */
	teardown();
	setup();
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_TCP), 0);
	page[4095] = 3;
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCRDSSETTOS, page + 4095), 0);
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCRDSGETTOS, &v), 0);
	ck_assert_uint_eq(v, 0);
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCRDSGETTOS, BAD), -EFAULT);
	RDS_SOCK_SET(sk, tos_fixed, true);
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCRDSSETTOS, &v), -EINVAL);
	munmap(page, 4096);
}
END_TEST

START_TEST(ioctls)
{
	struct ifreq ifr = {.ifr_name = "lo"};
	int v;

	ck_assert_int_eq(rds_call_ioctl(sk, FIONREAD, &v), -ENOTTY);
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCOUTQ, &v), -ENOTTY);
	ck_assert_int_eq(rds_call_ioctl(sk, 0xffffffff00000000ul | FIONREAD, &v), -ENOTTY);
	ck_assert_int_eq(rds_call_ioctl(sk, 0x8906 /* SIOCGSTAMP_OLD */, &v), -ENOTTY);
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCATMARK, &ifr), -ENOTTY);
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCATMARK, BAD), -EFAULT);
	ck_assert_int_eq(rds_call_ioctl(sk, FIONBIO, &v), -ENOIOCTLCMD);
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCGIFINDEX, &ifr), -ENOIOCTLCMD);
	/* what the stand-in makes of the rest is what RDS would make of it */
	ck_assert_int_eq(ioctl(fd, SIOCGIFINDEX, &ifr), 0);
	ck_assert_int_eq(ioctl(fd, SIOCGIFADDR, &ifr), -1);
	ck_assert_int_eq(errno, ENOTTY);
	ck_assert_int_eq(ioctl(fd, 0x89e5, &ifr), -1);
	ck_assert_int_eq(errno, ENOTTY);
	ck_assert_int_eq(ioctl(fd, TCGETS, &ifr), -1);
	ck_assert_int_eq(errno, ENOTTY);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sockopt");
	TCase *tc = tcase_create("sockopt");

	tcase_add_checked_fixture(tc, registry_setup, registry_teardown);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, levels);
	tcase_add_test(tc, buffers);
	tcase_add_test(tc, buffers_clamped);
	tcase_add_test(tc, timeouts);
	tcase_add_test(tc, timestamps);
	tcase_add_test(tc, generic);
	tcase_add_test(tc, peername);
	tcase_add_test(tc, tos);
	tcase_add_test(tc, ioctls);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
