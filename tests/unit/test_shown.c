/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shown.c - unread messages as packets in the stand-in (conn/shown.h): who reads which, in which order, what is
 * left in the queue, and what another process may have written there.
 */
#include <arpa/inet.h>
#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "engine/conn/shown.h"
#include "engine/progress/progress.h"
#include "engine/progress/state.h"
#include "tests/unit/suite.h"

#define PORT 4000

static struct rds_transport_ops ops;
static struct rds_transport transport = {.ops = &ops};
static struct rds_ep_head endpoint = {.t = &transport};
static struct rds_conn conn;
static uint64_t seq;
static struct rds_sock sock;
static int standin;

static void no_ack(struct rds_ep *ep, uint64_t to)
{
	(void)ep;
	(void)to;
}

static bool no_progress(struct rds_transport *t)
{
	(void)t;
	return false;
}

static void sock_begin(struct rds_sock *sk, int pair)
{
	struct stat st;

	memset(sk, 0, sizeof(*sk));
	sk->set_laddr.ip = conn.id.laddr;
	sk->set_laddr.port = PORT;
	sk->rx_tail = &sk->rx_head;
	atomic_store(&sk->ref, 1);
	atomic_store(&sk->open, true);
	RDS_SOCK_SET(sk, bound, true);
	RDS_SOCK_SET(sk, rcvbuf, 1 << 20);
	atomic_store(&sk->pair.n[0], pair);
	atomic_store(&sk->pair.n[1], pair);
	ck_assert_int_eq(fstat(standin, &st), 0);
	sk->inode = st.st_ino;
	sk->shows_messages = true;
	atomic_store(&sk->watched, true);
}

static void setup(void)
{
	int pair[2];

	ops.ack = no_ack;
	ops.progress = no_progress;
	os_process_start();
	atomic_store(&rds_helper_up, true);
	rds_transport_set.shm = &transport;
	atomic_store(&rds_progress_attention, RDS_ATT_LAZY);
	memset(&conn, 0, sizeof(conn));
	inet_pton(AF_INET6, "::ffff:10.0.0.1", &conn.id.laddr);
	inet_pton(AF_INET6, "::ffff:10.0.0.2", &conn.id.faddr);
	atomic_store(&conn.next_rx, 1);
	seq = 0;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	standin = pair[0];
	sock_begin(&sock, pair[1]);
	rds_sock_bound_insert(&sock);
}

/* The first bytes of a message are its number, from 1 on. */
static void arrives(uint32_t len)
{
	static unsigned char bytes[RDS_SHOWN_LEN_MAX + 1];
	struct rds_rx rx = {.hdr = {.seq = ++seq, .len = len, .sport = 7, .dport = PORT}, .data = bytes};

	memcpy(bytes, &seq, sizeof(seq));
	rx_lock();
	ck_assert_int_eq(rds_conn_receive(&conn, (struct rds_ep *)&endpoint, &rx), RDS_RX_DONE);
	rx_unlock();
}

/* A borrower reads: the message's number, 0: a packet of no bytes, -1: there is nothing. */
static int borrowed(void)
{
	static char bytes[sizeof(struct rds_shown_packet) + RDS_SHOWN_LEN_MAX];
	struct rds_shown_packet *p = (void *)bytes;
	ssize_t n = recv(standin, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n <= 0)
		return n ? -1 : 0;
	ck_assert(rds_inc_shown_is_sound(p, n));
	ck_assert_uint_eq(p->sport, 7);
	return *(int *)(p + 1);
}

/* The owner reads: the message's number, or -errno. */
static int owned(int flags)
{
	uint64_t number = 0;
	struct iovec iov = {.iov_base = &number, .iov_len = sizeof(number)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n = rds_call_recvmsg(&sock, standin, &msg, flags | MSG_DONTWAIT);

	return n < 0 ? (int)n : (int)number;
}

static bool readable(void)
{
	struct pollfd p = {.fd = standin, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

static void taken_back(void)
{
	rx_lock();
	rds_inc_shown_take_back(&sock, standin);
	ck_assert(!readable());
	rds_sock_show_rest(&sock);
	rx_unlock();
}

START_TEST(test_both_read)
{
	unsigned i;

	ck_assert(!readable());
	for (i = 0; i < 5; i++)
		arrives(100);
	ck_assert_int_eq(borrowed(), 1);
	ck_assert_int_eq(owned(0), 2);
	ck_assert_uint_eq(sock.rcv_count, 3);
	ck_assert_uint_eq(sock.rcv_bytes, 300);
	ck_assert_int_eq(owned(MSG_PEEK), 3);
	ck_assert_int_eq(borrowed(), 3);
	ck_assert_int_eq(borrowed(), 4);
	ck_assert_int_eq(owned(0), 5);
	ck_assert(!readable());
	ck_assert_int_eq(owned(0), -EAGAIN);
	ck_assert_uint_eq(sock.rcv_bytes, 0);
	arrives(0);
	arrives(100);
	ck_assert_int_eq(rds_call_poll(&sock, POLLIN), POLLIN);
	ck_assert_int_ne(borrowed(), -1);
	ck_assert_int_eq(borrowed(), 7);
	ck_assert_int_eq(rds_call_poll(&sock, POLLIN), 0);
	ck_assert_ptr_null(sock.rx_head);
}
END_TEST

START_TEST(test_taken_back)
{
	unsigned i;

	for (i = 0; i < 4; i++)
		arrives(100);
	ck_assert_int_eq(borrowed(), 1);
	taken_back();
	arrives(100);
	taken_back();
	for (i = 2; i <= 5; i++)
		ck_assert_int_eq(borrowed(), i);
	taken_back();
	ck_assert_ptr_null(sock.rx_head);
	arrives(100);
	ck_assert_int_eq(owned(0), 6);
}
END_TEST

/* Behind what only the owner can deliver nothing is shown. */
START_TEST(test_asks_the_owner)
{
	arrives(100);
	RDS_SOCK_SET(&sock, inq, true);
	arrives(100);
	arrives(100);
	RDS_SOCK_SET(&sock, inq, false);
	ck_assert_int_eq(borrowed(), 1);
	ck_assert_int_eq(borrowed(), 0);
	ck_assert_int_eq(owned(0), 2);
	taken_back();
	ck_assert_int_eq(borrowed(), 3);
	arrives(RDS_SHOWN_LEN_MAX);
	arrives(RDS_SHOWN_LEN_MAX + 1);
	arrives(1 + sizeof(seq));
	ck_assert_int_eq(borrowed(), 4);
	ck_assert_int_eq(borrowed(), 0);
	ck_assert_int_eq(borrowed(), -1);
	ck_assert_int_eq(owned(0), 5);
}
END_TEST

/* The buffer is bad: the message stays the next one, for everybody. */
START_TEST(test_bad_buffer)
{
	struct iovec iov = {.iov_base = (void *)8, .iov_len = 100};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int i;

	for (i = 0; i < 3; i++)
		arrives(100);
	ck_assert_int_eq(rds_call_recvmsg(&sock, standin, &msg, MSG_DONTWAIT), -EFAULT);
	for (i = 1; i <= 3; i++)
		ck_assert_int_eq(borrowed(), i);
}
END_TEST

/* There is room for some only; then for the others. */
START_TEST(test_full)
{
	const int small = 1;
	int i, last = 0, n;

	setsockopt(atomic_load(&sock.pair.n[0]), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	for (i = 0; i < 50; i++)
		arrives(100);
	ck_assert(sock.show_again);
	while (last < 50) {
		while ((n = borrowed()) > 0)
			ck_assert_int_eq(n, ++last);
		rx_lock();
		rds_inc_shown_settle(&sock, standin);
		ck_assert_uint_eq(sock.nshown, 0);
		ck_assert_uint_eq(sock.rcv_count, 50 - last);
		rds_sock_show_rest(&sock);
		rx_unlock();
	}
	ck_assert_ptr_null(sock.rx_head);
}
END_TEST

/* What the next owner finds: messages, and what others have written. */
START_TEST(test_inherited)
{
	static struct rds_sock next;
	struct rds_shown_packet bad[] = {{.magic = RDS_SHOWN_MAGIC, .len = 1, .number = 9}, {.len = 0, .number = 9}};
	int pair = atomic_load(&sock.pair.n[0]), i;
	const struct rds_inc *inc;

	ck_assert_int_eq(send(pair, &bad[0], sizeof(bad[0]), 0), sizeof(bad[0]));
	for (i = 0; i < 3; i++)
		arrives(100);
	ck_assert_int_eq(send(pair, &bad[1], sizeof(bad[1]), 0), sizeof(bad[1]));
	ck_assert_int_eq(recv(standin, bad, sizeof(bad), 0), sizeof(bad[0]));
	ck_assert_int_eq(borrowed(), 1);
	sock_begin(&next, pair);
	rx_lock();
	rds_inc_shown_inherit(&next, standin);
	rx_unlock();
	ck_assert(!readable());
	ck_assert_uint_eq(next.rcv_count, 2);
	ck_assert_uint_eq(next.rcv_bytes, 200);
	for (inc = next.rx_head, i = 2; inc; inc = inc->next, i++) {
		ck_assert_int_eq(*(const int *)inc->data, i);
		ck_assert_uint_eq(inc->sport, 7);
		ck_assert(rds_ip_equal(&inc->saddr, &conn.id.faddr));
	}
	ck_assert_int_eq(i, 4);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shown");
	TCase *t = suite_case(s, "shown", setup, NULL);

	tcase_add_test(t, test_both_read);
	tcase_add_test(t, test_taken_back);
	tcase_add_test(t, test_asks_the_owner);
	tcase_add_test(t, test_bad_buffer);
	tcase_add_test(t, test_full);
	tcase_add_test(t, test_inherited);
	return suite_run(s);
}
