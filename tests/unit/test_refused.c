/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_refused.c - what a connection acknowledges when it comes up again, if an operation has been
 * refused over the one that broke (conn/attempt.c: rds_conn_received).  test_reach_fake.h plays
 * the other host.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/conn/incoming.h"
#include "engine/rdma/rdma.h"
#include "tests/unit/suite.h"
#include "tests/unit/test_reach_fake.h"

/* A write to a region that does not exist, and its message, which is not delivered. */
static void far_writes_badly(uint64_t seq, uint64_t id)
{
	struct rds_wire_op_hdr op = {.kind = RDS_OP_WRITE, .last = true, .rkey = 12345, .id = id, .message = id};
	struct rds_hdr hdr = {.sport = 9, .dport = 4000, .seq = seq, .flags = RDS_FLAG_OP, .len = RDS_OP_HDR + 1};
	unsigned char piece[RDS_OP_HDR + 1] = {0};

	rds_wire_op_encode(&op, piece);
	far_sends(0, &hdr, piece, sizeof(piece));
	hdr = (struct rds_hdr){.sport = 9, .dport = 4000, .seq = seq + 1, .op = id};
	far_sends(0, &hdr, "", 0);
	ck_assert_ptr_null(fake.sk->rx_head);
	ck_assert_uint_eq(atomic_load(&fake.eps[0]->ack), seq + 1);
}

/*
 * The message of an operation that was refused is acknowledged.  If the connection breaks before
 * the peer has the answer, that must not be said again when it comes up: the peer would take it for
 * a success.
 */
START_TEST(test_answer_is_lost)
{
	enum { HAS_IT, ON_ITS_WAY, WAITS } answer = (unsigned)_i;
	struct rds_hdr hdr = {.sport = 9, .seq = 3};
	const uint64_t acked = answer == HAS_IT ? 2 : 0;

	far_connects();
	atomic_store(&fake.stuck, answer == WAITS);
	far_writes_badly(1, 7);
	if (answer != WAITS)
		await(locked(&fake.nsent) == 1);
	if (answer == HAS_IT)
		far_acks(0, fake.sent[0].hdr.seq);
	ep_down(fake.eps[0], -ECONNRESET, false);
	atomic_store(&fake.stuck, false);
	far_up(1);
	ck_assert_uint_eq(fake.eps[1]->here.acked, acked);
	ck_assert_uint_eq(fake.eps[1]->here.all, 2);
	/* The same again, until it is known that the peer has heard it. */
	ep_down(fake.eps[1], -ECONNRESET, false);
	far_up(2);
	ck_assert_uint_eq(fake.eps[2]->here.acked, acked);
	far_sends(2, &hdr, "", 0);
	ep_down(fake.eps[2], -ECONNRESET, false);
	far_up(3);
	ck_assert_uint_eq(fake.eps[3]->here.acked, 3);
}
END_TEST

/* Answers that the peer has do not count any more.  Of the others the first one does. */
START_TEST(test_answer_was_heard)
{
	struct rds_hdr hdr = {.sport = 9, .dport = 6};

	far_connects();
	far_writes_badly(1, 7);
	await(locked(&fake.nsent) == 1);
	far_acks(0, fake.sent[0].hdr.seq);
	for (hdr.seq = 3; hdr.seq < 10; hdr.seq++)
		far_sends(0, &hdr, "", 0);
	far_writes_badly(10, 8);
	await(locked(&fake.nsent) == 2);
	atomic_store(&fake.stuck, true);
	far_writes_badly(12, 9);
	ep_down(fake.eps[0], -ECONNRESET, false);
	far_up(1);
	ck_assert_uint_eq(fake.eps[1]->here.acked, 9);
	ck_assert_uint_eq(fake.eps[1]->here.all, 13);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("refused");
	TCase *tc = suite_case(s, "refused", far_setup, NULL);

	tcase_add_loop_test(tc, test_answer_is_lost, 0, 3);
	tcase_add_test(tc, test_answer_was_heard);
	return suite_run(s);
}
