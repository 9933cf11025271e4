/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_passed_on.c - messages to another host wait while the role of the address's owner passes on, and what a
 * process that ends waits for meanwhile.  test_reach_fake.h plays the other host.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/conn/client.h"
#include "engine/conn/relay.h"
#include "engine/progress/progress.h"
#include "tests/unit/suite.h"
#include "tests/unit/test_reach_fake.h"

#define SECOND 1000000000ull

static void is_unsent(unsigned n)
{
	ck_assert_uint_eq(rds_progress_count_unsent(), n);
}

static void begin(void)
{
	say(5, "first");
	far_up(0);
	far_acks(0, 1);
	await(locked(&fake.nsent) > 1);
	far_acks(0, 2);
	is_unsent(0);
}

static void sock_closes(void)
{
	atomic_store(&fake.sk->open, false);
	rds_lock(&rds_lock_control);
	rds_conn_sock_closed(fake.sk);
	rds_unlock(&rds_lock_control);
}

/* A host that was reached before, and refuses now, is waited for. */
START_TEST(test_met)
{
	begin();
	say(5, "b");
	ep_down(fake.eps[0], -ECONNRESET, false);
	await(locked(&fake.neps) == 2);
	ep_down(fake.eps[1], -ECONNREFUSED, false);
	sock_closes();
	mock_clock_pass(3 * SECOND);
	is_unsent(1);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 2);
	atomic_store(&fake.sk->open, true);
}
END_TEST

static struct rds_conn *node(void)
{
	struct rds_conn *conn;

	rds_lock(&rds_lock_control);
	conn = rds_conn_find(RDS_CONN_PEER, &fake.eps[0]->id);
	rds_unlock(&rds_lock_control);
	ck_assert_ptr_nonnull(conn);
	return conn;
}

/* The connection has been given up for the next owner: an answer that cannot be sent any more is none of ours. */
START_TEST(test_left)
{
	struct rds_conn *conn;

	begin();
	conn = node();
	rds_relay_leave(os_now_ns() + 100 * SECOND);
	rds_relay_leave_nodes();
	ep_down(fake.eps[0], -ECONNRESET, false);
	rds_lock(&conn->tx);
	rds_conn_xmit_pong(conn, 1);
	ck_assert_uint_eq(conn->queue_len, 1);
	rds_unlock(&conn->tx);
	is_unsent(0);
	say(5, "b");
	is_unsent(1);
}
END_TEST

/* An exec has failed: the connection is made again, and what waits goes over it, long before that time. */
START_TEST(test_stays)
{
	begin();
	rds_relay_leave(os_now_ns() + 100 * SECOND);
	rds_relay_leave_nodes();
	ep_down(fake.eps[0], -ECONNRESET, false);
	say(5, "b");
	mock_clock_pass(3 * SECOND);
	ck_assert_uint_eq(locked(&fake.neps), 1);
	rds_progress_exit_failed();
	await(locked(&fake.neps) == 2);
}
END_TEST

static void waits(uint16_t port)
{
	struct rds_queue_item *q = calloc(1, sizeof(*q) + 2);
	struct rds_conn_id id = {0};

	inet_pton(AF_INET6, "::ffff:192.0.2.9", &id.laddr);
	inet_pton(AF_INET6, "::ffff:" FAR, &id.faddr);
	q->u.sk = fake.sk;
	q->u.len = q->hdr.len = 2;
	q->u.dport = q->hdr.dport = port;
	rds_sock_snd_add(fake.sk, 2);
	rds_lock(&rds_lock_control);
	ck_assert(rds_route_send_list(&id, q, false));
	rds_unlock(&rds_lock_control);
}

/* The last owner has ended, and nobody has its port yet.  If that lasts, the port is somebody else's. */
START_TEST(test_nobody_has_it_yet)
{
	unsigned i;

	fake.claim = -EADDRINUSE;
	waits(5);
	sock_closes();
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 2);
	is_unsent(1);
	for (i = 0; i < 30 && rds_progress_count_unsent(); i++)
		mock_clock_pass(SECOND);
	is_unsent(0);
	sock_closes();
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
	atomic_store(&fake.sk->open, true);
}
END_TEST

/* It goes as soon as this process has the port, however long the pauses between looks are by then. */
START_TEST(test_goes_at_once)
{
	setenv("RDS_PRELOAD_RECONNECT_MIN_MS", "60000", 1);
	setenv("RDS_PRELOAD_RECONNECT_MAX_MS", "60000", 1);
	rds_options_reset();
	fake.claim = -EADDRINUSE;
	waits(5);
	mock_clock_pass(SECOND / 20);
	is_unsent(1);
	ck_assert_uint_eq(locked(&fake.neps), 0);
	fake.claim = 1;
	mock_clock_pass(SECOND / 20);
	is_unsent(1);
	await(locked(&fake.neps) == 1);
}
END_TEST

/* Nobody is waited for any longer who has found that the port is somebody else's. */
START_TEST(test_is_taken)
{
	fake.claim = -EADDRINUSE;
	waits(5);
	mock_clock_pass(SECOND / 10);
	is_unsent(1);
	mock_clock_pass(SECOND / 5);
	is_unsent(0);
}
END_TEST

static _Atomic bool sent;

static void sends(void *arg)
{
	(void)arg;
	rds_progress_send_made(1);
	atomic_store(&sent, true);
}

/* What the helper sends for another process does not hold it up, though this process ends. */
START_TEST(test_helper_sends_at_the_end)
{
	say(5, "a");
	await(locked(&fake.neps) == 1);
	rds_progress_exit_begin(false);
	in_helper(sends, NULL);
	ck_assert(atomic_load(&sent));
	is_unsent(1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("passed_on");
	TCase *tc = suite_case(s, "passed_on", far_setup_node, NULL);

	tcase_add_test(tc, test_met);
	tcase_add_test(tc, test_left);
	tcase_add_test(tc, test_stays);
	tcase_add_test(tc, test_nobody_has_it_yet);
	tcase_add_test(tc, test_goes_at_once);
	tcase_add_test(tc, test_is_taken);
	tcase_add_test(tc, test_helper_sends_at_the_end);
	return suite_run(s);
}
