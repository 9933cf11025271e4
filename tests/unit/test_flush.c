/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_flush.c - a connection breaks under a program that asks for the ends of its messages:
 * operations and messages end in the order in which they were sent, when it is known what the peer
 * has, and nothing goes meanwhile (op_flush.c, async_send.c).  What the peer's answers and
 * acknowledgements say of them is in test_flush_answers.c.
 */
#include "tests/unit/flush_helper.h"

/* Two that the transport never had among them. */
START_TEST(test_order)
{
	uint64_t id;

	message(1);
	id = operation(&sk, 2);
	operation(&sk, 3);
	message(4);
	room = 0;
	operation(&sk, 5);
	message(6);
	answered(id, RDS_RDMA_SUCCESS);
	ck_assert_ptr_null(sk.reports); /* its message may be dropped yet */
	ck_assert(breaks());
	ck_assert_ptr_null(sk.reports);
	ck_assert(refused());
	comes_up(seq[_i]); /* the peer has all up to that one; answers or not */
	for (uint64_t token = 1; token <= 6; token++) {
		ck_assert(refused());
		expect(&sk, token, token <= (uint64_t)_i ? RDS_RDMA_SUCCESS : RDS_RDMA_DROPPED, token == 6);
	}
	ck_assert(!refused());
	ck_assert_ptr_null(conn.queue);
}
END_TEST

/* Nothing is lost: it is over at once. */
START_TEST(test_all_arrived)
{
	message(1);
	operation(&sk, 2);
	ck_assert(breaks());
	ck_assert(refused());
	comes_up(seq[2]);
	ck_assert(!refused());
	expect(&sk, 1, RDS_RDMA_SUCCESS, false);
	expect(&sk, 2, RDS_RDMA_SUCCESS, true);
}
END_TEST

/* An operation that has failed by itself stays failed, no matter what has arrived. */
START_TEST(test_failed_before)
{
	uint64_t id;

	message(1);
	id = operation(&sk, 2);
	answered(id, RDS_RDMA_REMOTE_ERROR);
	ck_assert(breaks());
	comes_up(seq[_i]);
	expect(&sk, 1, _i ? RDS_RDMA_SUCCESS : RDS_RDMA_DROPPED, false);
	expect(&sk, 2, RDS_RDMA_REMOTE_ERROR, true);
}
END_TEST

/*
 * The peer has received more than it acknowledges, since it refuses one of the messages
 * (conn/port_moved.c).  None of those it has received is lost: each is reported when it is
 * acknowledged, after it was sent again, there or elsewhere.  The message behind them is lost.
 */
START_TEST(test_received_not_acknowledged)
{
	uint64_t id;

	message(1);
	id = operation(&sk, 2);
	message(3);
	message(4);
	answered(id, RDS_RDMA_SUCCESS);
	ck_assert(breaks());
	comes_up_with(seq[1], seq[3]);
	expect(&sk, 1, RDS_RDMA_SUCCESS, false);
	expect(&sk, 4, RDS_RDMA_DROPPED, true);
	ck_assert(refused()); /* what is new must not go before the others */
	ck_assert_uint_eq(conn.queue->u.seq, seq[2]);
	ck_assert_uint_eq(conn.queue->next->u.seq, seq[3]);
	ck_assert_ptr_null(conn.queue->next->next);
	comes_up(seq[3]); /* as an acknowledgement does it */
	expect(&sk, 2, RDS_RDMA_SUCCESS, false);
	expect(&sk, 3, RDS_RDMA_SUCCESS, true);
	ck_assert(!refused());
}
END_TEST

/* It is back, and ends before it has acknowledged what it had received. */
START_TEST(test_received_and_ended)
{
	message(1);
	message(2);
	ck_assert(breaks());
	comes_up_with(0, seq[1]);
	expect(&sk, 2, RDS_RDMA_DROPPED, true);
	peer_ends();
	expect(&sk, 1, RDS_RDMA_OTHER_ERROR, true);
}
END_TEST

/*
 * A program that has never asked for ends gets its notifications at once, and what is not started
 * goes later.
 */
START_TEST(test_plain)
{
	operation(&plain, 1);
	room = 0;
	operation(&plain, 2);
	ck_assert(!breaks());
	expect(&plain, 1, RDS_RDMA_DROPPED, true);
	comes_up(0);
	ck_assert_ptr_nonnull(conn.queue);
	rx_lock();
	rds_ops_broken(&conn, true, false);
	rx_unlock();
	expect(&plain, 2, RDS_RDMA_REMOTE_ERROR, true);
	rds_queue_purge(&conn, false);
}
END_TEST

/* Nothing is under way: nothing is lost. */
START_TEST(test_only_waiting)
{
	room = 0;
	message(1);
	operation(&sk, 2);
	ck_assert(!breaks());
	ck_assert(!refused());
	comes_up(0);
	ck_assert_ptr_null(sk.reports);
	rx_lock();
	rds_ops_cancel(&conn, &sk, PORT);
	rx_unlock();
	rds_queue_purge(&conn, false);
}
END_TEST

/*
 * Messages of a closed socket are sent again, as no one else will, but none without its operation.
 */
START_TEST(test_closed)
{
	message(1);
	operation(&sk, 2);
	message(3);
	atomic_store(&sk.open, false);
	ck_assert(breaks());
	comes_up(0);
	ck_assert_uint_eq(conn.queue->u.seq, seq[1]);
	ck_assert_uint_eq(conn.queue->next->u.seq, seq[3]);
	ck_assert_ptr_null(conn.queue->next->next);
}
END_TEST

/* Over, but not its turn yet: what comes behind it waits all the same. */
START_TEST(test_not_its_turn)
{
	RDS_SOCK_SET(&sk, had_async_sends, true);
	operation(&plain, 1);
	answered(operation(&sk, 2), RDS_RDMA_SUCCESS);
	ck_assert_ptr_null(sk.async_sends);
	ck_assert(breaks());
	ck_assert(refused());
	expect(&plain, 1, RDS_RDMA_DROPPED, true);
	comes_up(0);
	expect(&sk, 2, RDS_RDMA_DROPPED, true);
	ck_assert(!refused());
}
END_TEST

/* Without a message behind it, and not begun: it does not go ahead of what is sent again. */
START_TEST(test_silent)
{
	struct rds_op *op;

	message(1);
	room = 0;
	op = rds_op_new(&sk, RDS_OP_WRITE, 1);
	ck_assert_ptr_nonnull(op);
	op->notify = true;
	op->token = 2;
	op->total = sizeof(mem);
	op->local[0] = (struct iovec){mem, sizeof(mem)};
	rds_lock(&conn.tx);
	ck_assert_int_eq(rds_ops_xmit(&conn, op, true), 0);
	rds_ops_put(op);
	rds_unlock(&conn.tx);
	ck_assert(breaks());
	expect(&sk, 2, RDS_RDMA_DROPPED, true);
	comes_up(0);
	expect(&sk, 1, RDS_RDMA_DROPPED, true);
	ck_assert_ptr_null(conn.queue);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("flush");
	TCase *t = suite_case(s, "flush", setup, teardown);

	tcase_add_loop_test(t, test_order, 1, 5);
	tcase_add_test(t, test_all_arrived);
	tcase_add_loop_test(t, test_failed_before, 0, 2);
	tcase_add_test(t, test_received_not_acknowledged);
	tcase_add_test(t, test_received_and_ended);
	tcase_add_test(t, test_plain);
	tcase_add_test(t, test_only_waiting);
	tcase_add_test(t, test_closed);
	tcase_add_test(t, test_not_its_turn);
	tcase_add_test(t, test_silent);
	return suite_run(s);
}
