/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_leaving.c - sockets that this process hands off accept nothing (conn/port_moved.c): each
 * message is refused, and the peer is told once for all.  test_reach_fake.h plays the other host.
 */
#include "tests/unit/redirect_helper.h"

static void notice_is_at(unsigned i, uint64_t seq, uint16_t port)
{
	uint64_t said;

	await(locked(&fake.nsent) > i);
	ck_assert_uint_eq(fake.sent[i].hdr.len, RDS_REDIRECT_BYTES);
	ck_assert_uint_eq(fake.sent[i].hdr.flags & RDS_FLAG_REDIRECT, RDS_FLAG_REDIRECT);
	memcpy(&said, fake.sent[i].text, sizeof(said));
	ck_assert_uint_eq(be64toh(said), seq);
	ck_assert_uint_eq((unsigned char)fake.sent[i].text[8] << 8 | (unsigned char)fake.sent[i].text[9], port);
}

static void notice_is(unsigned i, uint64_t seq, uint16_t port)
{
	notice_is_at(i, seq, port);
	ck_assert_uint_eq(locked(&fake.nsent), i + 1);
}

static void leaves(bool on)
{
	rx_lock();
	atomic_store(&fake.sk->accepts_nothing, on);
	rx_unlock();
}

/*
 * A socket that is being handed off: nothing is accepted any more, each message is refused, and no
 * more redirects are sent than are needed.
 */
START_TEST(test_leaves)
{
	struct rds_hdr hdr = {.sport = 9, .dport = 4000, .seq = 1};
	struct fake_ep *e;

	far_connects();
	e = fake.eps[0];
	far_sends(0, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 1);
	leaves(true);
	/* sent before the peer has acknowledged any redirect */
	for (hdr.seq = 2; hdr.seq <= 4; hdr.seq++) {
		far_sends(0, &hdr, "", 0);
		/* it goes on after all: what comes back must not be accepted as well */
		leaves(false);
	}
	leaves(true);
	ck_assert_ptr_null(fake.sk->rx_head->next); /* the first alone has been accepted */
	notice_is(0, 2, 4000);
	far_acks(0, fake.sent[0].hdr.seq);
	nothing_for(20);
	ck_assert_uint_eq(atomic_load(&e->ack), 1);
	ck_assert_uint_eq(rds_conn_redirect_owed(e->head.conn), 1);
	ck_assert_uint_ge(rds_progress_count_unsent(), 1); /* an exit waits for that */
	heeded(0, 5, 0);
	ck_assert_uint_eq(rds_conn_redirect_owed(e->head.conn), 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 5);
	/* Sent after that: that redirect does not cover it. */
	hdr.seq = 6;
	far_sends(0, &hdr, "", 0);
	notice_is(1, 6, 4000);
	ck_assert_uint_eq(atomic_load(&e->ack), 5);
	hdr.seq = 7;
	hdr.dport = 6; /* another port, which no socket has: taken, and acknowledged after it */
	far_sends(0, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 5);
	heeded(0, 8, 0); /* once more, after a break: it is known */
	ck_assert_uint_eq(atomic_load(&e->ack), 5);
	heeded(0, 9, 1);
	ck_assert_uint_eq(atomic_load(&e->ack), 9);
	ck_assert_uint_eq(locked(&fake.nsent), 2);
}
END_TEST

/*
 * ... and the peer is told before any message comes: the redirect covers the first one that has not
 * been accepted.  That alone holds no acknowledgement back.
 */
START_TEST(test_leaves_first)
{
	struct rds_hdr hdr = {.sport = 9, .dport = 4000, .seq = 1};
	struct rds_conn *conn;
	struct fake_ep *e;

	far_connects();
	e = fake.eps[0];
	conn = e->head.conn;
	far_sends(0, &hdr, "", 0);
	leaves(true);
	leave(conn, 4000);
	leave(conn, 4000);
	/* nothing of the peer's depends on it yet */
	ck_assert_uint_eq(rds_conn_redirect_owed(conn), 0);
	notice_is(0, 2, 4000);
	hdr.seq = 2;
	hdr.dport = 6;
	far_sends(0, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 2);
	hdr.seq = 3;
	hdr.dport = 4000;
	far_sends(0, &hdr, "", 0);
	nothing_for(20);
	ck_assert_uint_eq(atomic_load(&e->ack), 2);
	heeded(0, 4, 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 4);
	await(!atomic_load(&conn->nredirects_out));
	ck_assert_uint_eq(locked(&fake.nsent), 1);
}
END_TEST

/*
 * Both sides hand their sockets off, and each has refused a message that lies before the other's
 * redirect: neither waits for the other's acknowledgement.
 */
START_TEST(test_both_leave)
{
	struct rds_hdr hdr = {.sport = 5, .dport = 4000, .seq = 1};
	struct fake_ep *e;

	far_connects();
	e = fake.eps[0];
	far_sends(0, &hdr, "", 0);
	leaves(true);
	hdr.seq = 2;
	far_sends(0, &hdr, "", 0);
	notice_is(0, 2, 4000);
	notice(0, 3, 1, 5); /* the peer's own, behind what we have refused */
	heeds(1, 77, 1, 5);
	ck_assert_uint_eq(atomic_load(&e->ack), 1);
	heeded(0, 4, 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 4);
	await(!atomic_load(&e->head.conn->nredirects_out) && !atomic_load(&e->head.conn->nredirects_in));
}
END_TEST

/* Any number of ports. */
START_TEST(test_many_leave)
{
	struct rds_hdr hdr = {.sport = 9, .seq = 1};
	struct rds_conn *conn;
	unsigned i, n = 3 * RDS_REDIRECTS_MAX;

	far_connects();
	conn = fake.eps[0]->head.conn;
	for (i = 0; i < n; i++)
		leave(conn, (uint16_t)(5000 + i));
	for (i = 0; i < n; i++)
		notice_is_at(i, 1, (uint16_t)(5000 + i));
	hdr.dport = 6;
	far_sends(0, &hdr, "", 0);
	for (i = 0; i < n; i++)
		heeded(0, 2 + i, i);
	await(!atomic_load(&conn->nredirects_out));
	ck_assert_uint_eq(atomic_load(&fake.eps[0]->ack), 1 + n);
}
END_TEST

/* The peer's next redirect; its content does not matter. */
static enum rds_rx_verdict tells(struct rds_conn *conn, unsigned len)
{
	static const unsigned char bytes[RDS_REDIRECT_ACK_BYTES] = {[RDS_REDIRECT_BYTES] = 1};
	struct rds_hdr hdr = {.len = len, .flags = RDS_FLAG_REDIRECT};

	hdr.seq = atomic_load(&conn->next_rx);
	return comes(conn, &hdr, bytes);
}

static pthread_t second_runner;
static _Atomic bool second_runs;

static void *runs_redirects(void *conn)
{
	rds_conn_redirect_run(conn);
	return NULL;
}

/*
 * While a thread carries out a redirect, another one is about to, and waits for it.  A lock that
 * was waited for before does not tell that another thread waits.
 */
static void runs_second(void)
{
	const uint32_t word = atomic_load(&rds_lock_control.word);

	ck_assert_int_eq(pthread_create(&second_runner, NULL, runs_redirects, fake.eps[0]->head.conn), 0);
	for (unsigned looks = 0; word != 2 && atomic_load(&rds_lock_control.word) == word;)
		test_pause(&looks);
	atomic_store(&second_runs, true);
}

/* A redirect is carried out once. */
START_TEST(test_run_by_two)
{
	static const unsigned char bytes[RDS_REDIRECT_BYTES] = {[7] = 2, [9] = 5};
	const struct rds_hdr hdr = {.seq = 1, .len = sizeof(bytes), .flags = RDS_FLAG_REDIRECT};

	far_begins(1, "a");
	say(5, "b");
	atomic_store(&fake.sent_next, runs_second);
	ck_assert_int_eq(comes(fake.eps[0]->head.conn, &hdr, bytes), RDS_RX_DONE);
	await(atomic_load(&second_runs)); /* the helper may be the one that carries it out */
	ck_assert_int_eq(pthread_join(second_runner, NULL), 0);
	await(!atomic_load(&fake.eps[0]->head.conn->nredirects_in));
	heeds(2, 1, 2, 5);
	ck_assert_uint_eq(locked(&fake.nsent), 3);
	ck_assert_uint_eq(atomic_load(&fake.eps[0]->head.conn->nredirects_in), 0);
}
END_TEST

/*
 * A peer that takes nothing and goes on sending redirects is answered only while the answers do not
 * weigh too much.  Its acknowledgements of our redirects always count.
 */
START_TEST(test_tells_and_takes_nothing)
{
	struct rds_conn *conn;
	unsigned n, i, first;
	uint64_t weight;

	far_connects();
	conn = fake.eps[0]->head.conn;
	atomic_store(&fake.stuck, true);
	full_but_for(conn, 100);
	for (n = 0; tells(conn, RDS_REDIRECT_BYTES) == RDS_RX_DONE; n++)
		ck_assert_uint_lt(n, 1000);
	ck_assert_uint_ge(n, 90);
	await(!atomic_load(&conn->nredirects_in));
	ck_assert_uint_eq(conn->queue_len, n);
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(tells(conn, RDS_REDIRECT_ACK_BYTES), RDS_RX_DONE);
	ck_assert_int_eq(tells(conn, RDS_REDIRECT_BYTES), RDS_RX_LATER);
	/* Over a break they weigh what they did. */
	weight = atomic_load(&conn->answer_bytes);
	first = locked(&fake.nsent);
	atomic_store(&fake.stuck, false);
	rds_lock(&conn->tx);
	rds_queue_flush(conn);
	rds_unlock(&conn->tx);
	ck_assert_uint_eq(locked(&fake.nsent), first + n);
	atomic_store(&fake.stuck, true);
	ck_assert_int_eq(tells(conn, RDS_REDIRECT_BYTES), RDS_RX_DONE);
	ep_down(fake.eps[0], -ECONNRESET, false);
	await(atomic_load(&conn->answer_bytes) > weight);
	ck_assert_uint_eq(conn->queue_len, n + 1);
}
END_TEST

/* Its connection breaks and it asks anew, before we have asked: of two that cross ours may win. */
static void comes_back_at_once(void *arg)
{
	struct rds_conn_id id = far_id(77);
	struct fake_ep *e = arg;
	const struct rds_received none = {0};
	int err;

	fake.t.up->down(fake.eps[0]->head.conn, (struct rds_ep *)fake.eps[0], -ECONNRESET, false);
	e->head.conn = fake.t.up->accept(&fake.t, (struct rds_ep *)e, &id, none, &e->here, &err);
	ck_assert_int_eq(err, 0);
	ck_assert_ptr_nonnull(e->head.conn);
}

/* No peer is accepted that would send to sockets which are about to be handed off. */
START_TEST(test_leaving_lets_nobody_in)
{
	struct rds_conn_id id = far_id(78);

	far_connects(); /* 77 */
	rds_conn_refuse_new(true);
	far_asks(&id, -EAGAIN);
	/* it may have something of ours to say, or we of its */
	in_helper(comes_back_at_once, ep_new(NULL));
	rds_conn_refuse_new(false);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("leaving");
	TCase *tc = suite_case(s, "leaves", far_setup, NULL);

	tcase_add_test(tc, test_run_by_two);
	tcase_add_test(tc, test_leaves);
	tcase_add_test(tc, test_leaves_first);
	tcase_add_test(tc, test_both_leave);
	tcase_add_test(tc, test_many_leave);
	tcase_add_test(tc, test_leaving_lets_nobody_in);
	tcase_add_test(tc, test_tells_and_takes_nothing);
	return suite_run(s);
}
