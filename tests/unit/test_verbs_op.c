/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_op.c - operations that the device carries out (engine/transport/verbs/ep/rdma.c):
 * their bytes are there before their message, and when they are over.
 */
#include "tests/unit/verbs_op_helper.h"

static const size_t sizes[] = {1, 2, 128, 129, 4096, 65535, 65536, 65537, 200000, RDS_MAX_MSG};

/* The bytes are there when the message comes, and no other is touched; it is told once. */
START_TEST(test_write)
{
	size_t len = sizes[_i];
	unsigned before = b->nmsgs;

	ck_assert_int_eq(post(7, 4000, len), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	while (b->nmsgs == before && mock_step())
		world_look();
	ck_assert_uint_eq(b->nmsgs, before + 1);
	ck_assert(there(4000, len));
	world_run();
	ck_assert(world_all_came(a, b));
	ck_assert(untouched(0, 4000) && untouched(4000 + len, REGION - 4000 - len));
	ck_assert_uint_eq(a->novers, 1);
	is_over(0, 7, 0);
}
END_TEST

/* Nothing comes behind it. */
START_TEST(test_write_alone)
{
	alone = true;
	ck_assert_int_eq(post(7, 0, 100000), 0);
	verbs_ep_flush(a->ep, true);
	world_run();
	ck_assert(there(0, 100000));
	ck_assert_uint_eq(a->novers, 1);
	is_over(0, 7, 0);
}
END_TEST

/* That it is there is not enough: it is over together with its message, which may still be lost. */
START_TEST(test_over_with_its_message)
{
	unsigned before = b->nmsgs;

	ck_assert_int_eq(post(7, 0, 100000), 0);
	verbs_ep_flush(a->ep, true);
	world_run();
	ck_assert(there(0, 100000));
	ck_assert_uint_eq(a->novers, 0);
	alone = true; /* ends, but not what is before it */
	ck_assert_int_eq(post(8, 200000, 100), 0);
	verbs_ep_flush(a->ep, true);
	world_run();
	ck_assert(there(200000, 100));
	ck_assert_uint_eq(a->novers, 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	world_run();
	ck_assert_uint_eq(b->nmsgs, before + 1);
	ck_assert_uint_eq(a->novers, 2);
	is_over(0, 7, 0);
	is_over(1, 8, 0);
}
END_TEST

/*
 * A quiet operation costs no further work request and no completion.  It is over when its message
 * is acknowledged, or together with others.
 */
START_TEST(test_quiet)
{
	struct verbs_ep *ep = world_ep(a);
	uint32_t posted = ep->wr_posted, unsignaled = ep->wr_unsignaled;
	uint64_t seq = a->tx_seq + 1;

	quiet = true;
	ck_assert_int_eq(post(1, 0, 4096), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	ck_assert_uint_eq(ep->wr_posted, posted + 2);
	ck_assert_uint_eq(ep->wr_unsignaled, unsignaled + 2);
	while (mock_step())
		world_look();
	ck_assert(there(0, 4096));
	ck_assert_uint_eq(a->novers, 0);
	if (_i) {
		rx_lock();
		verbs_rdma_acked(ep, seq);
		rx_unlock();
		ck_assert_uint_eq(a->novers, 1);
	}
	quiet = false;
	ck_assert_int_eq(post(2, 0, 4096), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	world_run();
	ck_assert_uint_eq(a->novers, 2);
	is_over(0, 1, 0);
	is_over(1, 2, 0);
	ck_assert_uint_eq(ep->op_count, 0);
}
END_TEST

/* Nor do they keep their memory for long, where only an answer says that they have arrived. */
START_TEST(test_quiet_for_long)
{
	unsigned i;

	quiet = true;
	for (i = 0; i < 5; i++) {
		ck_assert_int_eq(post(i, i * 70000, 65536), 0);
		ck_assert_int_eq(world_send(a, 64, 0), 0);
		while (mock_step())
			world_look();
	}
	ck_assert_uint_ge(a->novers, 3);
	for (i = 0; i < a->novers; i++)
		is_over(i, i, 0);
}
END_TEST

/*
 * Lets the endpoint learn that its sender sends runs of messages, so that all but the first are
 * held.  Operations overtake held messages, and small operations wait until these go.  The message
 * of a large operation is not held.
 */
static void learn_runs(void)
{
	unsigned i, j;

	for (i = 0; i < 6; i++) {
		for (j = 0; j < 6; j++)
			ck_assert_int_eq(world_send(a, 64, 0), 0);
		world_run();
		ck_assert_int_eq(world_send(b, 8, 0), 0);
		world_run();
	}
	world_large(a, b);
}

START_TEST(test_held)
{
	static const size_t lens[] = {100, 4096, 70000};
	size_t len = lens[_i];
	struct verbs_ep *ep = world_ep(a);
	unsigned i, posts, before;

	learn_runs();
	before = b->nmsgs;
	ck_assert_int_eq(post(0, 0, len), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	ck_assert(!ep->held);
	posts = mock_calls(MOCK_ibv_post_send);
	for (i = 1; i < 6; i++) {
		ck_assert_int_eq(post(i, i * 100000, len), 0);
		ck_assert_int_eq(world_send(a, 64, 0), 0);
		ck_assert_int_eq(ep->held, len < 65536);
	}
	ck_assert_uint_eq(mock_calls(MOCK_ibv_post_send) - posts, len < 65536 ? 0 : 5);
	world_run();
	ck_assert(world_all_came(a, b));
	ck_assert_uint_eq(b->nmsgs, before + 6);
	for (i = 0; i < 6; i++)
		ck_assert(there(i * 100000, len < 100000 ? len : 100000));
	ck_assert_uint_eq(a->novers, 6);
	for (i = 0; i < 6; i++)
		is_over(i, i, 0);
}
END_TEST

/* An acknowledgement may be heard before the device says that it is done. */
START_TEST(test_acknowledged_first)
{
	uint64_t seq = a->tx_seq + 1;
	unsigned i;

	for (i = 0; i < 3; i++)
		ck_assert_int_eq(post(i, i * 70000, 70000), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	ck_assert_int_eq(post(3, 0, 70000), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	rx_lock();
	verbs_rdma_acked(world_ep(a), seq - 1);
	ck_assert_uint_eq(a->novers, 0);
	verbs_rdma_acked(world_ep(a), seq);
	ck_assert_uint_eq(a->novers, 3);
	verbs_rdma_acked(world_ep(a), seq);
	rx_unlock();
	ck_assert_uint_eq(a->novers, 3);
	world_run();
	ck_assert_uint_eq(a->novers, 4);
	for (i = 0; i < 4; i++)
		is_over(i, i, 0);
}
END_TEST

/* On its way is not there: over iWARP only what comes back behind it says so. */
START_TEST(test_over_when_there)
{
	ck_assert_int_eq(post(1, 0, 300000), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	do {
		world_look();
		if (a->novers)
			ck_assert(there(0, 300000));
	} while (mock_step());
	world_run();
	ck_assert_uint_eq(a->novers, 1);
	is_over(0, 1, 0);
}
END_TEST

/*
 * ... and a completion or an answer of something that was posted behind it does not say so: siw
 * does not wait for answers.
 */
START_TEST(test_answer_is_late)
{
	struct verbs_ep *ep = world_ep(a);
	uint32_t done;

	world.ours->cut = true;
	ck_assert_int_eq(post(1, 0, 300000), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	verbs_ep_flush(a->ep, true);
	done = ep->wr_posted;
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	atomic_store(&ep->signal_due, true);
	verbs_ep_push(a->ep);
	do
		world_look();
	while (mock_step());
	ck_assert_int_gt((int32_t)(atomic_load(&ep->wr_done) - done), 0);
	ck_assert_uint_eq(a->novers, 0);
	world.ours->cut = false;
	do {
		world_look();
		if (a->novers)
			ck_assert(there(0, 300000));
	} while (mock_step());
	world_run();
	ck_assert_uint_eq(a->novers, 1);
	is_over(0, 1, 0);
	ck_assert_int_gt((int32_t)(atomic_load(&ep->wr_done) - done), 0);
}
END_TEST

/* As many as there is room for, each whole or not at all; then more. */
START_TEST(test_room)
{
	unsigned i, n = 0, full = 0;
	int err;

	while (n < 200) {
		err = post(n, (n % 4) * 200000, 200000);
		if (!err) {
			ck_assert_int_eq(world_send(a, 64, 0), 0);
			n++;
			continue;
		}
		ck_assert_int_eq(err, -EAGAIN);
		full++;
		world_run();
		ck_assert_uint_eq(a->novers, n);
	}
	ck_assert_uint_gt(full, 1);
	world_run();
	ck_assert(world_all_came(a, b));
	ck_assert_uint_eq(a->novers, n);
	for (i = 0; i < n; i++)
		is_over(i, i, 0);
	ck_assert_uint_eq(a->downs, 0);
}
END_TEST

/* There is no memory to copy it to: nothing of it goes, and nothing is kept. */
START_TEST(test_no_memory)
{
	mock_fail_from(MOCK_ibv_reg_mr, 1, ENOMEM);
	ck_assert_int_lt(post(1, 0, RDS_MAX_MSG), 0);
	mock_fail_from(MOCK_ibv_reg_mr, 0, 0);
	ck_assert_int_eq(post(2, 0, RDS_MAX_MSG), 0);
	ck_assert_int_eq(world_send(a, 1, 0), 0);
	world_run();
	ck_assert_uint_eq(a->novers, 1);
	is_over(0, 2, 0);
}
END_TEST

/* ---- reads ---- */

/* All of it comes, in order, and nobody is told anything else. */
START_TEST(test_read)
{
	size_t len = sizes[_i];

	world_fill(5, region, REGION);
	ck_assert_int_eq(post_read(7, 4000, len), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	world_run();
	ck_assert(world_all_came(a, b));
	ck_assert_uint_eq(a->read_bytes, len);
	ck_assert_mem_eq(mine, region + 4000, len);
	ck_assert_uint_eq(a->novers, 0);
	ck_assert(!(world_ep(a)->wr[1].send_flags & IBV_SEND_FENCE));
}
END_TEST

/* An acknowledgement does not mean that it has come; a fence waits for it. */
START_TEST(test_read_and_message)
{
	ck_assert_int_eq(post_read(7, 0, 100), 0);
	verbs_ep_fence(a->ep);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	/* the last chain was the second message alone */
	ck_assert(!(world_ep(a)->wr[0].send_flags & IBV_SEND_FENCE));
	rx_lock();
	verbs_rdma_acked(world_ep(a), 1);
	rx_unlock();
	ck_assert_uint_eq(a->read_bytes, 0);
	world_run();
	ck_assert_uint_eq(a->read_bytes, 100);
	ck_assert_int_eq(post_read(8, 0, 100), 0);
	verbs_ep_fence(a->ep);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	ck_assert(!(world_ep(a)->wr[0].send_flags & IBV_SEND_FENCE));
	ck_assert(world_ep(a)->wr[1].send_flags & IBV_SEND_FENCE);
	world_run();
	ck_assert_uint_eq(a->read_bytes, 100);
}
END_TEST

/*
 * If a fence bars reads, no read is posted until the fenced request is done: the engine carries it
 * out.
 */
START_TEST(test_fence_bars)
{
	verbs_ep_fence(a->ep);
	ck_assert_int_eq(post_read(7, 0, 100), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	world_run();
	world_ep(a)->dev->caps.fence_bars_reads = true;
	ck_assert_int_eq(post_read(8, 0, 100), 0);
	verbs_ep_fence(a->ep);
	ck_assert_int_eq(post(9, 0, 100), 0);
	ck_assert(world_ep(a)->wr[1].send_flags & IBV_SEND_FENCE);
	ck_assert(world_ep(a)->wr[1].send_flags & IBV_SEND_SIGNALED);
	ck_assert_int_eq(post_read(10, 0, 100), -EAGAIN);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	world_run();
	is_over(0, 9, 0);
	ck_assert_int_eq(post_read(11, 0, 100), 0);
	verbs_ep_fence(a->ep);
	ck_assert_int_eq(post_read(12, 0, 100), -EAGAIN); /* it would be what waits */
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	world_run();
	ck_assert_int_eq(post_read(13, 0, 100), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	world_run();
	ck_assert_uint_eq(a->read_bytes, 100);
}
END_TEST

START_TEST(test_read_not_reached)
{
	ck_assert_int_eq(post_read(2, REGION - 99, 70000), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	world_run();
	ck_assert_uint_eq(a->novers, 1);
	is_over(0, 2, -EACCES);
	ck_assert_uint_eq(a->read_bytes, 0);
	ck_assert_uint_eq(b->nmsgs, 0);
	ck_assert_uint_eq(a->downs, 1);
}
END_TEST

/* What a device may still write to is not given to anybody before its queue pair is quiet. */
START_TEST(test_read_closed)
{
	unsigned i;

	for (i = 0; i < 10; i++)
		ck_assert_int_eq(post_read(i, 0, 100000), 0);
	close_after(_i);
	ck_assert_uint_eq(a->read_bytes, 0);
}
END_TEST

/* The engine has to do that. */
START_TEST(test_iwarp_reads)
{
	ck_assert_int_eq(post_read(1, 0, 100), -EINVAL);
}
END_TEST

static void write_tests(TCase *tc)
{
	tcase_add_loop_test(tc, test_write, 0, sizeof(sizes) / sizeof(sizes[0]));
	tcase_add_test(tc, test_write_alone);
	tcase_add_test(tc, test_over_with_its_message);
	tcase_add_loop_test(tc, test_quiet, 0, 2);
	tcase_add_test(tc, test_quiet_for_long);
	tcase_add_loop_test(tc, test_held, 0, 3);
	tcase_add_test(tc, test_acknowledged_first);
	tcase_add_test(tc, test_over_when_there);
	tcase_add_test(tc, test_room);
	tcase_add_test(tc, test_no_memory);
}

int main(void)
{
	Suite *s = suite_create("verbs_op");
	TCase *tc = suite_case(s, "writes over iWARP", setup_iwarp, teardown);

	write_tests(tc);
	tcase_add_test(tc, test_answer_is_late);
	tcase_add_test(tc, test_iwarp_reads);
	write_tests(suite_case(s, "writes", setup, teardown));
	tc = suite_case(s, "reads", setup, teardown);
	tcase_add_loop_test(tc, test_read, 0, sizeof(sizes) / sizeof(sizes[0]));
	tcase_add_test(tc, test_read_and_message);
	tcase_add_test(tc, test_fence_bars);
	tcase_add_test(tc, test_read_not_reached);
	tcase_add_loop_test(tc, test_read_closed, 0, 12);
	return suite_run(s);
}
