/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_closed_sockets.c - messages that sockets have sent to a peer that does not receive them, and that
 * are still queued when the sockets are closed (conn/closed_sockets.c).  test_reach_fake.h plays
 * the other host.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "tests/unit/test_reach_fake.h"

#define MOST (64u << 20)
#define LEN 100000u

static char bytes[LEN];

struct end {
	struct rds_sock *sk;
	int fd;
};

/* A socket that has sent n messages to port 5 of FAR. */
static struct end sender(unsigned n, size_t len)
{
	struct sockaddr_in from = name_of("127.0.0.1", 0), to = name_of(FAR, 5);
	struct iovec iov = {bytes, len};
	struct msghdr msg = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &iov, .msg_iovlen = 1};
	struct end e;

	e.fd = rds_call_socket(SOCK_SEQPACKET, 0, &e.sk);
	ck_assert_int_ge(e.fd, 0);
	ck_assert_int_eq(rds_call_bind(e.sk, (struct sockaddr *)&from, sizeof(from)), 0);
	RDS_SOCK_SET(e.sk, transport, RDS_TRANS_IB);
	RDS_SOCK_SET(e.sk, sndbuf, 4 * MOST);
	while (n--)
		ck_assert_int_eq(rds_call_sendmsg(e.sk, e.fd, &msg, MSG_DONTWAIT), (ssize_t)len);
	return e;
}

static void ends(struct end e)
{
	os_close(e.fd);
	rds_call_number_closed(e.sk);
}

static void sent_and_closed(unsigned n, size_t len)
{
	ends(sender(n, len));
}

/*
 * Messages to FAR wait: on a connection to a process that takes nothing, or until it is known who
 * has the port.
 */
static struct rds_conn *they_wait(bool known)
{
	struct rds_conn *conn;

	if (known)
		far_begins(1, "a");
	else
		say(5, "a");
	atomic_store(&fake.stuck, true);
	for (conn = rds_conn_list; conn; conn = conn->next)
		if (conn->kind == (known ? RDS_CONN_PEER : RDS_CONN_UNROUTED))
			return conn;
	ck_abort_msg("no connection");
	return NULL;
}

/* While the helper decides about messages they are somewhere else. */
static void all_dropped(struct rds_conn *conn)
{
	rds_lock(&rds_lock_control);
	rds_lock(&conn->tx);
	rds_queue_drop_all(conn);
	rds_unlock(&conn->tx);
	rds_unlock(&rds_lock_control);
}

static unsigned waiting(struct rds_conn *conn)
{
	unsigned n;

	rds_lock(&rds_lock_control);
	rds_lock(&conn->tx);
	n = conn->queue_len;
	rds_unlock(&conn->tx);
	rds_unlock(&rds_lock_control);
	return n;
}

static bool is_busy(struct rds_conn *conn)
{
	bool busy;

	rds_lock(&conn->tx);
	busy = conn->busy;
	rds_unlock(&conn->tx);
	return busy;
}

/*
 * Sockets that are closed at once: an end of it, but not before they have left much; and when that
 * is gone it begins anew.
 */
START_TEST(test_many)
{
	unsigned each = _i & 1 ? 1 : 1000;
	size_t len = _i & 1 ? LEN : 0;
	struct rds_conn *conn = they_wait(_i & 2);
	unsigned i, n = MOST / (each * (len + sizeof(struct rds_queue_item)) + sizeof(struct rds_sock));
	unsigned before = waiting(conn);

	for (i = 0; i < n; i++)
		sent_and_closed(each, len);
	ck_assert_uint_eq(waiting(conn), before + n * each);
	ck_assert_int_gt(atomic_load(&rds_sock_closed_bytes), (int64_t)(MOST - (1 << 20)));
	for (i = 0; i < n / 2; i++)
		sent_and_closed(each, len);
	ck_assert_uint_le(waiting(conn), before + (n + 2) * each);
	all_dropped(conn);
	ck_assert_int_eq(atomic_load(&rds_sock_closed_bytes), 0);
	sent_and_closed(1, len);
	ck_assert_uint_eq(waiting(conn), 1);
}
END_TEST

/*
 * What a closed socket leaves is limited by its own SNDBUF only.  Sockets that are open do not
 * count.
 */
START_TEST(test_much_of_one)
{
	struct rds_conn *conn = they_wait(true);
	unsigned n = MOST / LEN + 10;
	struct end open = sender(n, LEN);

	ck_assert_uint_eq(waiting(conn), n);
	sent_and_closed(n, LEN);
	ck_assert_uint_eq(waiting(conn), 2 * n);
	await(atomic_load(&rds_sock_closed_bytes) >
	      /* it counts when nobody has the socket any more, the helper neither */
	      (int64_t)MOST);
	sent_and_closed(3, 10);
	ck_assert_uint_eq(waiting(conn), 2 * n);
	ck_assert_uint_eq(rds_sock_snd_bytes(open.sk), n * LEN);
	ends(open);
	ck_assert_uint_eq(waiting(conn), n);
}
END_TEST

/* What a transport has had is sent again, whosoever it was: the peer may have it. */
START_TEST(test_had_been_sent)
{
	struct rds_conn *conn = they_wait(true);
	unsigned n = MOST / LEN + 10;
	struct end sent;

	atomic_store(&fake.stuck, false);
	sent = sender(2, 10);
	await(locked(&fake.nsent) == 3);
	atomic_store(&fake.stuck, true);
	sent_and_closed(n, LEN);
	ep_down(fake.eps[0], -ECONNRESET, false);
	await(waiting(conn) == n + 3);
	ends(sent);
	ck_assert_uint_eq(waiting(conn), n + 3);
}
END_TEST

/*
 * A sender has waited for room, and its peer dies: nothing will ever be sent there, and the engine
 * does not look there any more.
 */
START_TEST(test_room_was_sought)
{
	struct rds_conn *conn = they_wait(true);

	rds_lock(&conn->tx);
	conn->room_sought = true;
	rds_queue_busy_add(conn);
	rds_unlock(&conn->tx);
	ep_down(fake.eps[0], -EPIPE, true);
	await(atomic_load(&conn->state) == RDS_CONN_DEAD);
	await(!is_busy(conn));
	rds_queue_reap_all();
	ck_assert(!is_busy(conn));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("closed_sockets");
	TCase *tc = suite_case(s, "orphan", far_setup, NULL);

	tcase_add_loop_test(tc, test_many, 0, 4);
	tcase_add_test(tc, test_much_of_one);
	tcase_add_test(tc, test_had_been_sent);
	tcase_add_test(tc, test_room_was_sought);
	return suite_run(s);
}
