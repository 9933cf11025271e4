/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_moved.c - ports of another host that move from one process to another (conn/port_moved.c):
 * messages that were sent to the old owner come back and go to the new one, in order.  For our own
 * ports see test_redirect.c.
 */
#include "tests/unit/moved_helper.h"

START_TEST(test_moved)
{
	say(5, "a");
	say(9, "other");
	await(locked(&fake.nasked) == 2);
	far_answers(5, 1, 0);
	far_answers(9, 1, 0);
	far_up(0);
	await(locked(&fake.nsent) == 2);
	say(5, "b");
	say(5, "c");
	say(9, "more");
	await(locked(&fake.nsent) == 5);
	/*
	 * "b" (3) came back: so will "c", which goes after it, and what is new behind both; "a" had
	 * been dealt with.
	 */
	notice(0, 1, 3, 5);
	await(locked(&fake.nasked) == 3);
	ck_assert_uint_eq(fake.asked[2], 5);
	await(atomic_load(&fake.eps[0]->ack) == 1); /* the redirect, once it was followed */
	heeds(5, 1, 3, 5);
	notice(0, 2, 4, 5);
	heeds(6, 1, 4, 5);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 2 + 2 + 6 + 5);
	far_acks(0, 5);
	say(5, "d");
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 6);
	far_answers(5, 2, 0);
	far_up(1);
	far_got(7, 2, "b");
	far_got(8, 2, "c");
	far_got(9, 2, "d");
	ck_assert_uint_eq(fake.sent[7].hdr.flags & RDS_FLAG_RETRANSMITTED, 0);
	say(9, "still");
	far_got(10, 1, "still");
	nothing_for(20);
	far_acks(0, 8);
	far_acks(1, 3);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
}
END_TEST

/*
 * "a" was received by the old process and is not acknowledged, when "b" comes back: it is under way
 * no more, and nothing new goes after it; what is new goes behind what has come back, as long as
 * that waits.
 */
START_TEST(test_moved_while_under_way)
{
	far_begins(1, "a");
	say(5, "b");
	notice(0, 1, 2, 5);
	await(locked(&fake.nasked) == 2);
	heeds(2, 1, 2, 5);
	say(5, "c");
	nothing_for(20);
	far_answers(5, 2, 0);
	far_up(1);
	far_got(3, 2, "b");
	far_got(4, 2, "c");
	say(5, "d");
	far_got(5, 2, "d");
	far_acks(1, 3);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
	far_acks(0, 3);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
}
END_TEST

/*
 * A redirect that covers no message: the next message asks for the port, and does not follow an old
 * answer.
 */
START_TEST(test_moved_nothing_there)
{
	far_begins(1, "a");
	notice(0, 1, 2, 5);
	heeds(1, 1, 2, 5);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
	say(5, "b");
	await(locked(&fake.nasked) == 2);
	nothing_for(20);
	far_answers(5, 2, 0);
	far_up(1);
	far_got(2, 2, "b");
}
END_TEST

static struct rds_queue_unacked *unacked(struct rds_conn *conn, uint64_t seq)
{
	unsigned i = 0;

	while (conn->unacked[(conn->head + i) & (conn->cap - 1)].seq != seq)
		ck_assert_uint_lt(++i, conn->count);
	return &conn->unacked[(conn->head + i) & (conn->cap - 1)];
}

static void of_operation(struct rds_conn *conn, uint64_t seq, uint64_t op)
{
	struct rds_queue_unacked *u = unacked(conn, seq);

	u->once = true;
	u->op = op;
}

/*
 * Messages that were refused and go with operations: the one of "b" has ended well, the one of "c"
 * has not.  "d" has none, but asks for a report of its own end, which comes from the new place.
 */
START_TEST(test_moved_with_operations)
{
	struct rds_conn *conn;

	far_begins(1, "a");
	say(5, "b");
	say(5, "c");
	say(5, "d");
	await(locked(&fake.nsent) == 4);
	for (conn = rds_conn_list; conn->ep != (struct rds_ep *)fake.eps[0]; conn = conn->next)
		;
	rds_lock(&conn->tx);
	rx_lock();
	of_operation(conn, 2, 101);
	of_operation(conn, 3, 102);
	ck_assert(rds_ops_prepare_rx(conn));
	conn->rdma->failed[0] = 102;
	conn->rdma->nfailed = 1;
	rx_unlock();
	unacked(conn, 4)->report = RDS_REPORT_END;
	unacked(conn, 4)->async = rds_op_async_new(fake.sk, 7, true);
	rds_unlock(&conn->tx);
	notice(0, 1, 2, 5);
	heeds(4, 1, 2, 5);
	far_answers(5, 2, 0);
	far_up(1);
	far_got(5, 2, "b");
	far_got(6, 2, "d");
	ck_assert_uint_eq(fake.sent[5].hdr.op, 0);
	nothing_for(20);
	far_acks(0, 5);
	ck_assert_ptr_null(fake.sk->reports);
	far_acks(1, 2);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
	await(fake.sk->reports);
	ck_assert_uint_eq(fake.sk->reports->token, 7);
	ck_assert_int_eq(fake.sk->reports->status, RDS_RDMA_SUCCESS);
}
END_TEST

/*
 * All room is taken.  The peer frees it by acknowledging, which it may not before its redirect is
 * acknowledged: so that goes before what waits for room.
 */
START_TEST(test_moved_without_room)
{
	far_begins(1, "a");
	say(9, "b");
	await(locked(&fake.nasked) == 2);
	far_answers(9, 1, 0);
	far_got(1, 1, "b");
	atomic_store(&fake.full, true);
	say(9, "c");
	say(5, "d");
	nothing_for(20);
	notice(0, 1, 1, 5);
	heeds(2, 1, 1, 5);
	await(locked(&fake.nasked) == 3);
	atomic_store(&fake.full, false);
	far_acks(0, fake.sent[2].hdr.seq);
	far_got(3, 1, "c");
	ck_assert_uint_gt(fake.sent[3].hdr.seq, fake.sent[2].hdr.seq);
	far_answers(5, 2, 0);
	far_up(1);
	far_got(4, 2, "a");
	far_got(5, 2, "d");
	far_acks(0, fake.sent[3].hdr.seq);
	far_acks(1, 2);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("moved");
	TCase *tc = suite_case(s, "moved", far_setup, NULL);

	tcase_add_test(tc, test_moved);
	tcase_add_test(tc, test_moved_while_under_way);
	tcase_add_test(tc, test_moved_nothing_there);
	tcase_add_test(tc, test_moved_with_operations);
	tcase_add_test(tc, test_moved_without_room);
	tcase_add_test(suite_case(s, "wrapped", far_setup_wrapped, NULL), test_moved);
	return suite_run(s);
}
