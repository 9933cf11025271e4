/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_sockopt.c - socket options and ioctls: order of checks, exact errnos, what is read back.
 */
#include <arpa/inet.h>
#include <asm/ioctls.h>
#include <check.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <asm/socket.h>

#include "engine/abi/revisions.h"
#include "engine/conn/outgoing.h"
#include "engine/socket/socket.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

#define BAD ((void *)8)

static struct rds_sock *sk;
static int fd;

static void setup(void)
{
	fd = rds_call_socket(SOCK_SEQPACKET, 0, &sk);
	ck_assert_int_ge(fd, 0);
}

static void teardown(void)
{
	os_close(fd);
	rds_call_number_closed(sk);
}

static void bind_to(const char *ip, unsigned port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	ck_assert_int_eq(inet_pton(AF_INET, ip, &a.sin_addr), 1);
	ck_assert_int_eq(rds_call_bind(sk, (struct sockaddr *)&a, sizeof(a)), 0);
}

static int set(int level, int opt, int v)
{
	return rds_call_setsockopt(sk, fd, level, opt, &v, sizeof(v));
}

static int get(int level, int opt)
{
	int v = 0;
	socklen_t len = sizeof(v);
	int ret = rds_call_getsockopt(sk, fd, level, opt, &v, &len);

	return ret < 0 ? ret : v;
}

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

START_TEST(recverr_and_monitor)
{
	int64_t wide = 1ll << 40;
	socklen_t len = 3;
	int v;

	ck_assert_int_eq(get(SOL_RDS, RDS_RECVERR), 0);
	ck_assert_int_eq(set(SOL_RDS, RDS_RECVERR, 77), 0);
	ck_assert_int_eq(get(SOL_RDS, RDS_RECVERR), 1);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_RECVERR, &v, 3), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_RECVERR, BAD, 4), -EFAULT);
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_RDS, RDS_RECVERR, &v, &len), -EINVAL);
	len = 64;
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_RDS, RDS_RECVERR, &v, &len), 0);
	ck_assert_uint_eq(len, 4);
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_RDS, RDS_RECVERR, &v, BAD), -EFAULT);
	ck_assert_int_eq(rds_call_getsockopt(sk, fd, SOL_RDS, RDS_RECVERR, BAD, &len), -EFAULT);

	ck_assert_int_eq(set(SOL_RDS, RDS_CONG_MONITOR, 1), 0);
	ck_assert(sk->cong_monitor);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_INQ, 2), 0);
	ck_assert(sk->inq);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_INQ, &v, 3), -EINVAL);
	/* only the first four bytes are looked at */
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONG_MONITOR, &wide, 8), 0);
	ck_assert(!sk->cong_monitor);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONG_MONITOR, &wide, 2), -EINVAL);
	ck_assert_int_eq(get(SOL_RDS, RDS_CONG_MONITOR), -ENOPROTOOPT);
}
END_TEST

START_TEST(cancel_sent_to)
{
	struct sockaddr_storage ss = {.ss_family = AF_INET};

	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &ss, 3), -ENOTCONN);
	bind_to("127.0.0.1", 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, NULL, 0), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &ss, 15), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, BAD, 16), -EFAULT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &ss, 16), 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &ss, 28), 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &ss, sizeof(ss)), 0);
}
END_TEST

/*
 * The flags of the messages that wait for an address that no socket has, one byte each, oldest
 * first.
 */
static void ck_waits(const char *flags, unsigned n)
{
	const struct rds_queue_item *q = NULL;
	const struct rds_conn *conn;

	rds_lock(&rds_lock_control);
	for (conn = rds_conn_list; conn; conn = conn->next)
		if (conn->kind == RDS_CONN_UNROUTED)
			q = conn->queue;
	for (; n; n--, q = q->next) {
		ck_assert_ptr_nonnull(q);
		ck_assert_uint_eq(q->hdr.flags, (uint8_t)*flags++);
	}
	ck_assert_ptr_null(q);
	rds_unlock(&rds_lock_control);
}

static void send_to(const struct sockaddr_in *to)
{
	char byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {
		.msg_name = (void *)(uintptr_t)to, .msg_namelen = sizeof(*to), .msg_iov = &iov, .msg_iovlen = 1};

	ck_assert_int_eq(rds_call_sendmsg(sk, fd, &msg, MSG_DONTWAIT), 1);
}

/* What was another process's socket says so once; again if what says so is cancelled. */
START_TEST(cancel_of_what_follows)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7777)};

	ck_assert_int_eq(inet_pton(AF_INET, "10.99.0.77", &to.sin_addr), 1);
	bind_to("127.0.0.1", 0);
	sk->owner_since = 1;
	send_to(&to);
	send_to(&to);
	ck_waits((char[]){RDS_FLAG_NEW_OWNER, 0}, 2);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &to, sizeof(to)), 0);
	ck_waits("", 0);
	send_to(&to);
	ck_waits((char[]){RDS_FLAG_NEW_OWNER}, 1);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CANCEL_SENT_TO, &to, sizeof(to)), 0);
}
END_TEST

START_TEST(memory_regions)
{
	struct rds_get_mr_args mr = {0};
	struct rds_get_mr_for_dest_args dest = {0};
	struct rds_free_mr_args fr = {0};
	char barrier[32] = {0};

	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR, &mr, 31), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR, BAD, 32), -EFAULT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR, &mr, 32), -ENOTCONN);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR_FOR_DEST, &dest, sizeof(dest)), -ENOTCONN);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_TCP), 0);
	bind_to("127.0.0.1", 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR, &mr, 32), -EOPNOTSUPP);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR_FOR_DEST, &dest, sizeof(dest)), -EOPNOTSUPP);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_GET_MR_FOR_DEST, &dest, 32), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_FREE_MR, &fr, 15), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_FREE_MR, BAD, 16), -EFAULT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_FREE_MR, &fr, 16), -EINVAL);
	fr.cookie = 5;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_FREE_MR, &fr, 16), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_BARRIER, barrier, 32), -ENOPROTOOPT);
}
END_TEST

START_TEST(transport)
{
	int64_t wide = RDS_TRANS_TCP;

	ck_assert_int_eq(get(SOL_RDS, SO_RDS_TRANSPORT), -1);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_TRANSPORT, &wide, 8), -EINVAL);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_TRANSPORT, BAD, 4), -EFAULT);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, -1), -EINVAL);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, 3), -EINVAL);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_GAP), -ENOPROTOOPT);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_IB), -ENOPROTOOPT);
	ck_assert_int_eq(set(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_TCP), 0);
	ck_assert_int_eq(get(SOL_RDS, SO_RDS_TRANSPORT), RDS_TRANS_TCP);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_TRANSPORT, BAD, 99), -EOPNOTSUPP);
}
END_TEST

/* Number 9 in Oracle's kernels, where 8 is RDS_CONN_RESET. */
START_TEST(transport_9)
{
	int64_t wide = RDS_TRANS_TCP;

	ck_assert_int_eq(get(SOL_RDS, 9), -1);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, 9, &wide, 8), -ENOPROTOOPT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, 9, &wide, 3), -ENOPROTOOPT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, 9, BAD, 4), -EFAULT);
	ck_assert_int_eq(set(SOL_RDS, 9, 3), -EINVAL);
	ck_assert_int_eq(set(SOL_RDS, 9, RDS_TRANS_TCP), 0);
	ck_assert_int_eq(get(SOL_RDS, 9), RDS_TRANS_TCP);
	ck_assert_int_eq(get(SOL_RDS, SO_RDS_TRANSPORT), RDS_TRANS_TCP);
	ck_assert_int_eq(set(SOL_RDS, 9, RDS_TRANS_TCP), -EOPNOTSUPP);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, 9, &wide, 8), -ENOPROTOOPT);
}
END_TEST

/*
 * Sets or clears CAP_NET_ADMIN in the thread's effective set.  False: this process cannot have it.
 */
static bool net_admin(bool on)
{
	struct __user_cap_header_struct hdr = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	ck_assert_int_eq(os_syscall(SYS_capget, (long)&hdr, (long)data, 0, 0, 0, 0), 0);
	if (on)
		data[0].effective |= CAP_TO_MASK(CAP_NET_ADMIN);
	else
		data[0].effective &= ~CAP_TO_MASK(CAP_NET_ADMIN);
	return os_syscall(SYS_capset, (long)&hdr, (long)data, 0, 0, 0, 0) == 0;
}

START_TEST(conn_reset)
{
	struct rds_reset r = {.src.s_addr = htonl(INADDR_LOOPBACK), .dst.s_addr = htonl(INADDR_LOOPBACK)};
	struct rds6_reset r6 = {.src = IN6ADDR_LOOPBACK_INIT};

	ck_assert(net_admin(false));
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, sizeof(r)), -EACCES);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, BAD, sizeof(r)), -EACCES);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, sizeof(r6)), -EACCES);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, 4), -ENOPROTOOPT);
	if (!net_admin(true))
		return;
	/* what matches no connection is no error: rds-stress --reset never has one */
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, sizeof(r)), 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, BAD, sizeof(r)), -EFAULT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, sizeof(r6)), 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, BAD, sizeof(r6)), -EFAULT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, 35), -ENOPROTOOPT);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS_HISTORIC, RDS_CONN_RESET, &r, sizeof(r)), 0);
	/* The socket has a transport now; with other lengths the number is another option. */
	bind_to("127.0.0.1", 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, sizeof(r)), 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, 11), -EOPNOTSUPP);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, 4), -EOPNOTSUPP);
}
END_TEST

static struct rds_conn *peer_conn(const char *src, const char *dst, uint8_t tos)
{
	struct rds_conn_id id = {.tos = tos, .peer_slot = RDS_SLOT_REMOTE};
	struct rds_conn *conn;
	int err;

	ck_assert_int_eq(inet_pton(AF_INET6, src, &id.laddr), 1);
	ck_assert_int_eq(inet_pton(AF_INET6, dst, &id.faddr), 1);
	rds_lock(&rds_lock_control);
	conn = rds_conn_get_locked(RDS_CONN_PEER, &id, &err);
	rds_unlock(&rds_lock_control);
	ck_assert_ptr_nonnull(conn);
	conn->ep = (struct rds_ep *)conn; /* is only looked at for being there */
	return conn;
}

/* Which of them are to be dropped, a digit each; after that, none. */
static const char *chosen(struct rds_conn **conns, unsigned n)
{
	static char text[16];

	for (unsigned i = 0; i < n; i++)
		text[i] = atomic_exchange(&conns[i]->reset, false) ? '1' : '0';
	text[n] = 0;
	return text;
}

/*
 * Which connections a reset covers: those of an address pair and a type of service, or all of an
 * address.  No helper runs here.
 */
START_TEST(conn_reset_which)
{
	struct rds_conn *c[] = {
		peer_conn("::ffff:127.0.0.1", "::ffff:10.0.0.2", 0), peer_conn("::ffff:127.0.0.1", "::ffff:10.0.0.2", 5),
		peer_conn("::ffff:127.0.0.1", "::ffff:10.0.0.3", 0), peer_conn("::ffff:127.0.0.9", "::ffff:10.0.0.2", 0),
		peer_conn("::1", "fd00::2", 0),
	};
	struct rds_reset r = {.src.s_addr = inet_addr("127.0.0.1"), .dst.s_addr = inet_addr("10.0.0.2")};
	struct rds6_reset r6 = {.src = IN6ADDR_LOOPBACK_INIT};

	if (!net_admin(true))
		return;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, sizeof(r)), 0);
	ck_assert_str_eq(chosen(c, 5), "10000");
	r.tos = 5;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, sizeof(r)), 0);
	ck_assert_str_eq(chosen(c, 5), "01000");
	r.dst.s_addr = 0;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS_CONN_RESET, &r, sizeof(r)), 0);
	ck_assert_str_eq(chosen(c, 5), "11100");
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, sizeof(r6)), 0);
	ck_assert_str_eq(chosen(c, 5), "00001");
	r6.dst = c[0]->id.faddr;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, sizeof(r6)), 0);
	ck_assert_str_eq(chosen(c, 5), "00000");
	r6.src = c[0]->id.laddr;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, sizeof(r6)), 0);
	ck_assert_str_eq(chosen(c, 5), "10000");
	for (unsigned i = 0; i < 5; i++)
		c[i]->ep = NULL;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, RDS6_CONN_RESET, &r6, sizeof(r6)), 0);
	ck_assert_str_eq(chosen(c, 5), "00000");
}
END_TEST

START_TEST(rxpath_latency)
{
	struct rds_rx_trace_so so = {2, {2, 0, 9}};

	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY, &so, 4), 0);
	ck_assert_uint_eq(sk->rx_trace, 2 | 2 << 8);
	so.rx_traces = 4;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY, &so, 4), -EFAULT);
	ck_assert_uint_eq(sk->rx_trace, 2 | 2 << 8);
	so.rx_traces = 3;
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY, &so, 4), -EFAULT);
	ck_assert_uint_eq(sk->rx_trace, 0);
	ck_assert_int_eq(rds_call_setsockopt(sk, fd, SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY, &so, 5), -EFAULT);
	ck_assert_int_eq(get(SOL_RDS, SO_RDS_MSG_RXPATH_LATENCY), -ENOPROTOOPT);
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
	ck_assert_int_eq(rds_call_ioctl(sk, SIOCGSTAMP_OLD, &v), -ENOTTY);
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
	tcase_add_test(tc, recverr_and_monitor);
	tcase_add_test(tc, cancel_sent_to);
	tcase_add_test(tc, cancel_of_what_follows);
	tcase_add_test(tc, memory_regions);
	tcase_add_test(tc, transport);
	tcase_add_test(tc, transport_9);
	tcase_add_test(tc, conn_reset);
	tcase_add_test(tc, conn_reset_which);
	tcase_add_test(tc, rxpath_latency);
	tcase_add_test(tc, tos);
	tcase_add_test(tc, ioctls);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
