/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_flush_answers.c - at a break (test_flush.c) the answer to an operation and the
 * acknowledgement of its message are two things: either may be lost, or come first, and a target
 * that refuses an operation acknowledges less than it has (op_flush.c, op_serve.c).
 */
#include "tests/unit/flush_helper.h"

/* It has received an operation, too, whose answer is lost: it may have refused it. */
START_TEST(test_answer_is_lost)
{
	message(1);
	operation(&sk, 2);
	message(3);
	ck_assert(breaks());
	comes_up_with(seq[1], seq[3]);
	expect(&sk, 1, RDS_RDMA_SUCCESS, false);
	expect(&sk, 2, RDS_RDMA_OTHER_ERROR, true);
	ck_assert_uint_eq(conn.queue->u.seq, seq[3]);
	ck_assert_ptr_null(conn.queue->next);
}
END_TEST

/*
 * Acknowledged before it is answered: that tells nothing of the operation, and its end comes with
 * the answer.  What is behind it and needs no answer is over.
 */
START_TEST(test_acknowledged_first)
{
	const bool good = _i;
	uint64_t id, other;

	message(1);
	id = operation(&sk, 2);
	other = operation(&plain, 3);
	acknowledged(3);
	expect(&sk, 1, RDS_RDMA_SUCCESS, true);
	ck_assert_uint_eq(atomic_load(&plain.snd), 0);
	ck_assert_uint_ne(atomic_load(&sk.snd), 0);
	answered(id, good ? RDS_RDMA_SUCCESS : RDS_RDMA_REMOTE_ERROR);
	expect(&sk, 2, good ? RDS_RDMA_SUCCESS : RDS_RDMA_REMOTE_ERROR, true);
	ck_assert_uint_eq(atomic_load(&sk.snd), 0);
	ck_assert_uint_eq(conn.count, 0);
	answered(other, RDS_RDMA_SUCCESS);
	expect(&plain, 3, RDS_RDMA_SUCCESS, true);
}
END_TEST

/*
 * ... and not answered before it breaks: the peer has refused it if it acknowledges less by then.
 * reaped: we have seen before what it had acknowledged.  The operation itself is over at the break.
 */
START_TEST(test_acknowledged_and_lost)
{
	const bool reaped = _i & 1, refuses = _i & 2;

	message(1);
	operation(&sk, 2);
	message(3);
	operation(&sk, 4);
	if (reaped)
		acknowledged(3);
	has_acked = seq[3];
	ck_assert(breaks());
	ck_assert_uint_eq(sk.nops, 0);
	expect(&sk, 1, RDS_RDMA_SUCCESS, false);
	expect(&sk, 3, RDS_RDMA_SUCCESS, true);
	ck_assert(refused());
	comes_up_with(refuses ? seq[1] : seq[4], seq[4]);
	expect(&sk, 2, refuses ? RDS_RDMA_OTHER_ERROR : RDS_RDMA_SUCCESS, false);
	expect(&sk, 4, refuses ? RDS_RDMA_OTHER_ERROR : RDS_RDMA_SUCCESS, true);
	ck_assert_ptr_null(conn.queue);
}
END_TEST

/* What a read or an atomic brings is lost.  Its message has arrived, and is not to be sent again. */
START_TEST(test_result_is_lost)
{
	const bool early = _i & 1;

	RDS_SOCK_SET(&sk, had_async_sends, true);
	operation_of(&sk, 1, _i & 2 ? RDS_OP_READ : RDS_OP_ADD);
	operation_of(&sk, 2, _i & 2 ? RDS_OP_READ : RDS_OP_ADD);
	if (early)
		acknowledged(1);
	ck_assert(breaks());
	ck_assert_ptr_null(sk.reports);
	comes_up(seq[1]);
	expect(&sk, 1, RDS_RDMA_OTHER_ERROR, false);
	expect(&sk, 2, RDS_RDMA_DROPPED, true);
}
END_TEST

/* The answer comes while the connection breaks: what is acknowledged is not sent again for that. */
START_TEST(test_answered_at_the_break)
{
	uint64_t id;

	RDS_SOCK_SET(&sk, had_async_sends, true);
	id = operation(&sk, 1);
	acknowledged(1);
	rds_lock(&conn.tx);
	rx_lock();
	rds_op_recv_answer(&conn, &(struct rds_wire_op_hdr){.kind = RDS_OP_RESULT, .id = id}, NULL, 0);
	rds_ops_conn_broken(&conn, false);
	rx_unlock();
	ck_assert_uint_eq(conn.count, 1);
	ck_assert(!rds_queue_unacked_at(&conn, 0)->again);
	rds_unlock(&conn.tx);
	rds_conn_work_run();
	expect(&sk, 1, RDS_RDMA_SUCCESS, true);
}
END_TEST

/*
 * Both messages are acknowledged, and the second operation has been answered first, as one may be
 * that a device carries out.  The reports keep the order.
 */
START_TEST(test_answered_out_of_order)
{
	uint64_t a, b;

	RDS_SOCK_SET(&sk, had_async_sends, true);
	a = operation(&sk, 1);
	b = operation(&sk, 2);
	acknowledged(2);
	answered(b, RDS_RDMA_SUCCESS);
	answered(a, RDS_RDMA_SUCCESS);
	expect(&sk, 1, RDS_RDMA_SUCCESS, false);
	expect(&sk, 2, RDS_RDMA_SUCCESS, true);
}
END_TEST

/*
 * The answer comes when acknowledgements have been looked at for the last time, and the peer
 * acknowledges less when it is back, because of an older operation that it has refused.
 */
START_TEST(test_answered_and_acknowledged)
{
	uint64_t id;

	RDS_SOCK_SET(&sk, had_async_sends, true);
	id = operation(&sk, 1);
	operation(&plain, 2);
	acknowledged(2);
	rds_lock(&conn.tx);
	rds_queue_reap(&conn);
	rx_lock();
	rds_op_recv_answer(&conn, &(struct rds_wire_op_hdr){.kind = RDS_OP_RESULT, .id = id}, NULL, 0);
	rds_ops_conn_broken(&conn, false);
	rx_unlock();
	rds_queue_requeue(&conn, conn.ep);
	conn.ep = NULL;
	rds_unlock(&conn.tx);
	comes_up_with(0, seq[2]);
	expect(&plain, 2, RDS_RDMA_DROPPED, true);
	expect(&sk, 1, RDS_RDMA_SUCCESS, true);
}
END_TEST

/* The peer never comes back: what it had acknowledged may have been read, or refused. */
START_TEST(test_stays_away)
{
	RDS_SOCK_SET(&sk, had_async_sends, true);
	operation(&sk, 1);
	acknowledged(1);
	operation(&sk, 2);
	ck_assert(breaks());
	ck_assert_ptr_null(sk.reports);
	peer_ends();
	expect(&sk, 1, RDS_RDMA_OTHER_ERROR, false);
	expect(&sk, 2, RDS_RDMA_DROPPED, true);
}
END_TEST

/*
 * The socket goes to another process, the connection stays: nobody knows what becomes of what has
 * begun.
 */
START_TEST(test_handed_off)
{
	RDS_SOCK_SET(&sk, had_async_sends, true);
	operation(&sk, 1);
	room = 0;
	operation(&sk, 2);
	rx_lock();
	rds_conn_list = &conn;
	rx_unlock();
	rds_ops_handoff(&sk);
	rds_conn_list = NULL;
	expect(&sk, 1, RDS_RDMA_OTHER_ERROR, false);
	expect(&sk, 2, RDS_RDMA_DROPPED, true);
	rds_queue_purge(&conn, false);
}
END_TEST

/* As the target: the connection breaks before the answer has gone, even into the queue. */
START_TEST(test_refusal_unsent)
{
	struct rds_wire_op_hdr op = {.kind = RDS_OP_WRITE, .last = true, .rkey = 12345, .id = 7, .message = 7};
	unsigned char piece[RDS_OP_HDR + 1] = {0};
	struct rds_rx rx = {.hdr = {.seq = 2, .flags = RDS_FLAG_OP, .len = sizeof(piece)}, .data = piece};

	rds_wire_op_encode(&op, piece);
	rx_lock();
	ck_assert_int_eq(rds_op_recv_piece(&conn, conn.ep, &rx), RDS_RX_DONE);
	atomic_store(&conn.next_rx, 5);
	rx_unlock();
	ck_assert_ptr_nonnull(conn.rdma->answers);
	breaks();
	ck_assert_ptr_null(conn.rdma->answers);
	ck_assert_uint_eq(conn.seldom->refused.acked, 1);
	ck_assert_uint_eq(conn.seldom->refused.all, 4);
	rds_conn_work_run();
}
END_TEST

/* Messages arrive between that and the end of the endpoint: they do not void it. */
START_TEST(test_refusal_and_more)
{
	rds_conn_seldom_get(&conn)->refused = (struct rds_received){.acked = 1, .all = 4};
	atomic_store(&conn.next_rx, 5);
	comes_late = 8;
	breaks();
	ck_assert_uint_eq(conn.seldom->refused.acked, 1);
	ck_assert_uint_eq(conn.seldom->refused.all, 7);
}
END_TEST

/* The peer has sent more since, so it has heard of the refusal. */
START_TEST(test_refusal_is_old)
{
	rds_conn_seldom_get(&conn)->refused = (struct rds_received){.acked = 1, .all = 4};
	atomic_store(&conn.next_rx, 6);
	breaks();
	ck_assert_uint_eq(conn.seldom->refused.all, 0);
}
END_TEST

/*
 * As the target, and the process ends: a thread has received the operation, and has not come to send
 * the answer.  No list but that of the answers knows of it.
 */
START_TEST(test_answer_at_the_end)
{
	struct rds_queue_item *q = rds_op_answer_new(&(struct rds_hdr){.dport = PORT}, 0);

	ck_assert_ptr_nonnull(q);
	conn.kind = RDS_CONN_PEER;
	rds_conn_list = &conn;
	ck_assert_uint_eq(rds_conn_unsent(), 0);
	rx_lock();
	rds_op_answer_add(&conn, q);
	rx_unlock();
	ck_assert_uint_eq(rds_conn_unsent(), 1);
	ck_assert_int_eq(rds_conn_unsent_now(), 1);
	ck_assert(!rds_conn_has_unsent(&conn)); /* it goes by itself, within the time for all that is left */
	rds_conn_work_run();
	ck_assert_uint_eq(rds_conn_unsent(), 0);
	ck_assert_int_eq(rds_conn_unsent_now(), 0);
	rds_conn_list = NULL;
}
END_TEST

int main(void)
{
	Suite *s = suite_create("flush_answers");
	TCase *t = suite_case(s, "answers", setup, teardown);

	tcase_add_test(t, test_answer_is_lost);
	tcase_add_loop_test(t, test_acknowledged_first, 0, 2);
	tcase_add_loop_test(t, test_acknowledged_and_lost, 0, 4);
	tcase_add_loop_test(t, test_result_is_lost, 0, 4);
	tcase_add_test(t, test_answered_at_the_break);
	tcase_add_test(t, test_answered_out_of_order);
	tcase_add_test(t, test_answered_and_acknowledged);
	tcase_add_test(t, test_stays_away);
	tcase_add_test(t, test_handed_off);
	tcase_add_test(t, test_refusal_unsent);
	tcase_add_test(t, test_refusal_and_more);
	tcase_add_test(t, test_refusal_is_old);
	tcase_add_test(t, test_answer_at_the_end);
	return suite_run(s);
}
