/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_transport_loop.c - the engine in one process, over the loop transport, without any preload:
 * socket, bind, send, receive, readiness, congestion.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/helper/helper.h"
#include "engine/helper/leader.h"
#include "engine/node/registry.h"
#include "engine/node/stats.h"
#include "engine/progress/progress.h"
#include "engine/rds.h"
#include "engine/sys/os.h"
#include "engine/sys/process.h"
#include "engine/transport/transport.h"
#include "engine/wire/addr.h"
#include "tests/unit/suite.h"

struct end {
	struct rds_sock *sk;
	int fd;
	struct sockaddr_in name;
};

static struct end open_end(const char *ip)
{
	struct end e = {.name = {.sin_family = AF_INET}};
	socklen_t len = sizeof(e.name);

	inet_pton(AF_INET, ip, &e.name.sin_addr);
	e.fd = rds_call_socket(SOCK_SEQPACKET, 0, &e.sk);
	ck_assert_int_ge(e.fd, 0);
	ck_assert_int_eq(rds_call_bind(e.sk, (struct sockaddr *)&e.name, sizeof(e.name)), 0);
	ck_assert_int_eq(rds_call_getsockname(e.sk, (struct sockaddr *)&e.name, &len), 0);
	ck_assert_uint_ne(e.name.sin_port, 0);
	return e;
}

static void close_end(struct end *e)
{
	os_close(e->fd);
	rds_call_number_closed(e->sk);
}

static ssize_t give(struct end *from, struct end *to, const void *buf, size_t len)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
	struct msghdr msg = {.msg_name = &to->name, .msg_namelen = sizeof(to->name), .msg_iov = &iov, .msg_iovlen = 1};

	return rds_call_sendmsg(from->sk, from->fd, &msg, MSG_DONTWAIT);
}

static ssize_t take(struct end *e, void *buf, size_t len, struct sockaddr_in *from)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct msghdr msg = {.msg_name = from, .msg_namelen = sizeof(*from), .msg_iov = &iov, .msg_iovlen = 1};

	return rds_call_recvmsg(e->sk, e->fd, &msg, MSG_DONTWAIT);
}

START_TEST(test_there_and_back)
{
	struct end a = open_end("127.0.0.1"), b = open_end("127.0.0.1");
	struct sockaddr_in from;
	char buf[16];

	ck_assert_int_eq(take(&b, buf, sizeof(buf), &from), -EAGAIN);
	ck_assert_int_eq(give(&a, &b, "ping", 4), 4);
	ck_assert_int_eq(give(&a, &b, "", 0), 0);
	ck_assert_int_eq(take(&b, buf, sizeof(buf), &from), 4);
	ck_assert_mem_eq(buf, "ping", 4);
	ck_assert_uint_eq(from.sin_port, a.name.sin_port);
	ck_assert_int_eq(take(&b, buf, sizeof(buf), &from), 0);
	ck_assert_int_eq(take(&b, buf, sizeof(buf), &from), -EAGAIN);
	ck_assert_int_eq(give(&b, &a, "pong", 4), 4);
	ck_assert_int_eq(take(&a, buf, sizeof(buf), &from), 4);
	close_end(&a);
	close_end(&b);
}
END_TEST

START_TEST(test_order_and_sizes)
{
	struct end a = open_end("127.0.0.1"), b = open_end("127.0.0.1");
	static unsigned char out[65536], in[65536];
	struct sockaddr_in from;
	size_t len, i;

	for (i = 0; i < sizeof(out); i++)
		out[i] = (unsigned char)(i * 7 + (i >> 8));
	for (len = 0; len <= sizeof(out); len = len * 2 + 1) {
		ck_assert_int_eq(give(&a, &b, out, len), (ssize_t)len);
		memset(in, 0, sizeof(in));
		ck_assert_int_eq(take(&b, in, sizeof(in), &from), (ssize_t)len);
		ck_assert_mem_eq(in, out, len);
	}
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(give(&a, &b, &i, sizeof(i)), sizeof(i));
	for (i = 0; i < 100; i++) {
		ck_assert_int_eq(take(&b, &len, sizeof(len), &from), sizeof(len));
		ck_assert_uint_eq(len, i);
	}
	close_end(&a);
	close_end(&b);
}
END_TEST

START_TEST(test_readiness)
{
	struct end a = open_end("127.0.0.1"), b = open_end("127.0.0.1");
	struct sockaddr_in from;
	char c;

	rds_call_poll(b.sk, POLLIN); /* a map update when the connection came up counts once */
	ck_assert_int_eq(rds_call_poll(b.sk, POLLIN | POLLOUT) & (POLLIN | POLLOUT), POLLOUT);
	ck_assert_int_eq(give(&a, &b, "x", 1), 1);
	ck_assert_int_eq(rds_call_poll(b.sk, POLLIN) & POLLIN, POLLIN);
	ck_assert_int_eq(take(&b, &c, 1, &from), 1);
	rds_call_poll(b.sk, POLLIN);
	ck_assert_int_eq(rds_call_poll(b.sk, POLLIN) & POLLIN, 0);
	close_end(&a);
	close_end(&b);
}
END_TEST

START_TEST(test_nobody_there)
{
	struct end a = open_end("127.0.0.1"), b = open_end("127.0.0.1");

	close_end(&b);
	ck_assert_int_eq(give(&a, &b, "lost", 4), 4); /* as in the kernel: dropped, silently */
	close_end(&a);
}
END_TEST

START_TEST(test_limits)
{
	struct end a = open_end("127.0.0.1"), b = open_end("127.0.0.1");
	static char big[(1 << 20) + 1];

	ck_assert_int_eq(give(&a, &b, big, sizeof(big)), -EMSGSIZE);
	ck_assert_int_eq(give(&a, &b, big, 212992), -EMSGSIZE); /* above SNDBUF */
	close_end(&a);
	close_end(&b);
}
END_TEST

static enum rds_rx_verdict no_memory(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	(void)conn, (void)ep, (void)rx;
	return RDS_RX_LATER;
}

/* Nobody would offer it once more. */
START_TEST(test_no_memory)
{
	static const struct rds_transport_up up = {.message = no_memory};
	struct rds_transport t = {.ops = rds_loop_transport()->ops, .up = &up};
	const struct rds_hdr hdr = {.seq = 1, .len = 4, .sport = 1, .dport = 2};
	struct iovec iov = {.iov_base = (char[]){"lost"}, .iov_len = 4};
	struct rds_wire_hdr wire;
	struct rds_ep *ep;
	uint64_t pos;

	os_process_start();
	rds_wire_hdr_encode(&hdr, &wire, false);
	ck_assert_int_eq(t.ops->connect(&t, NULL, NULL, (struct rds_received){0}, &ep), 0);
	ck_assert_int_eq(t.ops->send(ep, &wire, &iov, 4, &pos), -ENOMEM);
	t.ops->close(ep);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transport_loop");
	TCase *tc = tcase_create("loop");

	tcase_add_test(tc, test_there_and_back);
	tcase_add_test(tc, test_order_and_sizes);
	tcase_add_test(tc, test_readiness);
	tcase_add_test(tc, test_nobody_there);
	tcase_add_test(tc, test_limits);
	tcase_add_test(tc, test_no_memory);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
