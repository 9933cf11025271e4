/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_flush.c - queue pairs in error: what the device still has of the shared queue, and
 * room for all that is flushed (engine/transport/verbs/ep/endpoint.c, dev/device.c).
 */
#include "tests/mock/world.h"

/* of the completion queue: half of what the send queues of PAIRS connections have */
#define FEW_ENTRIES 600
#define PAIRS (CONNS / 2)

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];

static void setup_few(void)
{
	world_begin(MOCK_IB);
	world.ours->attr.max_cqe = FEW_ENTRIES;
	ck_assert_int_eq(world_claim(US), 1);
}

static unsigned queue_pairs(void)
{
	return mock_count(MOCK_QP);
}

/* ---- the last receive ---- */

/* The only queue pair that there still is. */
static struct ibv_qp *closing(void)
{
	struct verbs_ep *ep = verbs_eps.all;

	while (ep && !ep->qp)
		ep = ep->next;
	ck_assert_ptr_nonnull(ep);
	return ep->qp;
}

/*
 * The device does not report the last receive by itself.  The queue pair is destroyed when the
 * report comes after all, or after a tenth of a second.
 */
START_TEST(test_c2_waits_for_the_last)
{
	world_pair();
	world.ours->last_wqe = false; /* a's */
	world_close(a);
	world_pass(50 * MS);
	world_close(b);
	world_pass(1 * MS);
	ck_assert_uint_eq(queue_pairs(), 1);
	if (_i == 0)
		mock_async_qp(closing(), IBV_EVENT_QP_LAST_WQE_REACHED);
	world_pass(30 * MS);
	ck_assert_uint_eq(queue_pairs(), _i != 0);
	world_pass(100 * MS);
	ck_assert_uint_eq(queue_pairs(), 0);
}
END_TEST

/* Receives that no other queue pair could get are waited for with nothing else. */
START_TEST(test_own_receives)
{
	world_pair();
	world.ours->last_wqe = world.ours2->last_wqe = false;
	world_close(a);
	world_close(b);
	world_pass(50 * MS);
	ck_assert_uint_eq(queue_pairs(), 0);
}
END_TEST

/* One that never does is known after some times: then nothing waits. */
START_TEST(test_c2_silent_device)
{
	unsigned i;

	ck_assert_int_eq(world_claim(US2), 1);
	world.ours->last_wqe = world.ours2->last_wqe = false;
	for (i = 0; i < 10; i++) {
		a->ups = b->ups = 0;
		world_pair();
		world_close(a);
		world_close(b);
		world_pass(50 * MS);
		ck_assert_uint_eq(queue_pairs(), i < 8 ? 2 : 0);
		world_pass(1000 * MS);
		ck_assert_uint_eq(queue_pairs(), 0);
		*a = *b = (struct world_conn){0};
	}
}
END_TEST

/* ---- room for completions ---- */

static void pairs(void)
{
	struct world_conn *c;

	ck_assert_int_eq(world_claim(US2), 1);
	for (c = world.conn; c < world.conn + CONNS; c += 2) {
		world.next = c + 1;
		ck_assert_int_eq(world_connect(c, US, US2, verbs_cm.port, registry_self(rds_node_registry)), 0);
		world_run();
		ck_assert_uint_eq(c[0].ups, 1);
		ck_assert_uint_eq(c[1].ups, 1);
	}
}

/*
 * All that is under way fails at once, while nobody looks.  The mock fails the test if a queue
 * overflows.
 */
START_TEST(test_all_at_once)
{
	struct world_conn *c;
	unsigned sent = 0;

	pairs();
	world.ours2->cut = true;
	for (c = world.conn; c < world.conn + CONNS; c += 2)
		while (world_send(c, VERBS_FRAME, 0) == 0)
			sent++;
	ck_assert_uint_gt(sent, PAIRS * 16); /* and still each of them can send */
	mock_timeout();
	world_run();
	for (c = world.conn; c < world.conn + CONNS; c += 2) {
		ck_assert_uint_eq(c->downs, 1);
		ck_assert_int_eq(c->why, -ETIMEDOUT);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_flush");
	TCase *t;

	t = world_case(s, "ib", world_ib);
	tcase_add_loop_test(t, test_c2_waits_for_the_last, 0, 2);
	tcase_add_test(t, test_c2_silent_device);
	t = world_case(s, "iwarp", world_iwarp);
	tcase_add_test(t, test_own_receives);
	t = world_case(s, "few entries", setup_few);
	tcase_add_test(t, test_all_at_once);
	return suite_run(s);
}
