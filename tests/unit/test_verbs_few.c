/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_few.c - endpoints that can get few credit buffers, or none for a while
 * (engine/transport/verbs/ep/credit_buffers.c, segment.c): no side waits for ever.
 */
#include "tests/unit/verbs_credit_helper.h"

/*
 * _i large buffers are free.  The last ones are for frames that have begun; with none at all
 * everything goes in small ones.
 */
START_TEST(test_few_large)
{
	struct verbs_dev *dev;
	uint32_t had;

	world_pair();
	dev = world_ep(b)->dev;
	leave_large(dev, (uint32_t)_i);
	had = (uint32_t)_i + world_ep(b)->nlarge;
	send_all(a, 50, 20000);
	send_all(b, 20, 20000);
	well();
	ck_assert_uint_eq(dev->nlarge + world_ep(b)->nlarge, had);
	idle_end();
}
END_TEST

/*
 * More credits than one header can tell: small ones, a large one behind them and more small ones,
 * or too many.  The receiver looks for a while and says nothing.  Then it has the first segment of
 * a frame that needs all of these credits: no other reason is left to tell them.
 */
START_TEST(test_more_than_a_header_tells)
{
	struct verbs_ep *ep;

	world_pair();
	ep = world_ep(b);
	ck_assert_int_eq(verbs_bufs_grow(ep->dev, 400), 0); /* for a full window */
	while (verbs_credit_count(world_ep(a)) > 2 + (unsigned)_i) {
		ck_assert_int_eq(world_send(a, 100, 0), 0);
		mock_run();
		world_look();
	}
	ck_assert_int_eq(world_send(a, RDS_CONG_MAP_BYTES, RDS_FLAG_CONG_BITMAP), 0);
	mock_run();
	world_look();
	ck_assert_ptr_nonnull(ep->part);
	ck_assert_uint_gt(atomic_load(&ep->offered) - atomic_load(&ep->offer_told), 16);
	world_run();
	ck_assert_ptr_null(ep->part);
	ck_assert(!verbs_credit_grant_due(ep));
	well();
}
END_TEST

/*
 * There are hundreds of idle endpoints, and others have all large buffers but two.  A frame that
 * has begun to come gets one of the two.
 */
START_TEST(test_begun_gets_one)
{
	struct verbs_dev *dev;
	uint32_t before;

	world_pair();
	dev = world_ep(b)->dev;
	leave_large(dev, 2);
	fill(dev);
	send_all(a, 3, 100);
	before = world_ep(a)->wr_posted;
	send_all(a, 10, 60000);
	well();
	ck_assert_uint_lt(world_ep(a)->wr_posted - before, 100); /* of 10 * 240 */
	idle_end();
}
END_TEST

START_TEST(test_unread_and_no_room)
{
	world_pair();
	fill(world_ep(b)->dev);
	world.keep_inplace = true;
	send_all(a, 100, 1000);
	send_all(a, 100, 30000);
	ck_assert_uint_gt(world.ninplace, 4);
	world_release();
	send_all(a, 100, 30000);
	well();
	idle_end();
}
END_TEST

/*
 * The engine keeps messages in place beyond the end of their endpoint: some in large buffers, some
 * put together on the heap.
 */
START_TEST(test_in_place_outlives)
{
	struct verbs_dev *dev;
	unsigned i, heap = 0;

	world_pair();
	dev = world_ep(b)->dev;
	world.keep_inplace = true;
	send_all(a, 3, 60000);
	for (i = 0; i < world.ninplace; i++)
		heap += ((const struct verbs_buf *)world.inplace[i].token)->heap;
	ck_assert_uint_gt(heap, 0);
	ck_assert_uint_gt(world.ninplace, heap);
	world_close(a);
	world_close(b);
	world_pass(5000 * MS);
	ck_assert_ptr_nonnull(verbs_eps.all);
	ck_assert_uint_eq(dev->nlarge, dev->all_large - (world.ninplace - heap));
	world_release();
	world_run();
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_uint_eq(dev->nlarge, dev->all_large);
}
END_TEST

/* Nobody reads: at most half of the large ones are with the engine, the rest is copied. */
START_TEST(test_half_stays)
{
	struct verbs_dev *dev;

	world_pair();
	dev = world_ep(b)->dev;
	world.keep_inplace = true;
	send_all(a, 100, 60000);
	well();
	ck_assert_uint_ge(dev->nlarge + world_ep(b)->nlarge, dev->all_large / 2);
	ck_assert_uint_gt(world.copies, 30);
}
END_TEST

/* No large ones from the very beginning, and a frame that comes before its endpoint is up. */
START_TEST(test_poor_from_the_start)
{
	struct verbs_dev *dev;

	ck_assert_int_eq(world_claim(US2), 1);
	for (dev = world_dev(); dev; dev = dev->next) {
		leave_large(dev, 0);
		fill(dev);
	}
	world_pair();
	ck_assert_uint_eq(world_ep(b)->nlarge, 0);
	send_all(a, 50, 20000);
	ck_assert_int_eq(world_send(b, 100, 0), 0);
	world_run();
	ck_assert_int_eq(world_send(b, 20000, 0), 0);
	world_run();
	ck_assert(world_all_came(b, a));
	well();
	idle_end();
}
END_TEST

/*
 * Frames that found no memory keep their buffers: all credits are used up, and none are given until
 * there is memory.
 */
START_TEST(test_no_memory_then_some)
{
	unsigned i;

	world_pair();
	leave_large(world_ep(b)->dev, 0);
	fill(world_ep(b)->dev);
	world.later = 100000;
	for (i = 0; i < 60; i++) {
		world_send(a, 100, 0);
		world_run();
	}
	ck_assert_uint_le(world_ep(b)->rq_len, 1);
	ck_assert_uint_eq(b->nmsgs, 1);
	world.later = 0;
	world_pass(100 * MS);
	ck_assert_uint_gt(world_ep(b)->rq_len, 1);
	send_all(a, 60, 1000);
	well();
	idle_end();
}
END_TEST

/* The device takes no receive for a while. */
START_TEST(test_posts_fail)
{
	unsigned i;

	world_pair();
	mock_fail_from(MOCK_ibv_post_recv, 1, ENOMEM);
	for (i = 0; i < 30; i++) {
		world_send(a, 3000, 0);
		world_run();
	}
	mock_fail_from(MOCK_ibv_post_recv, 0, 0);
	world_pass(100 * MS);
	send_all(a, 30, 3000);
	well();
}
END_TEST

/*
 * Receives of a closed endpoint that the device never gives back, and completions that come when
 * their queue pair is gone.
 */
START_TEST(test_late_completions)
{
	struct verbs_dev *dev = NULL;
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS, .byte_len = 100};
	struct verbs_buf *buf;

	world_pair();
	send_all(a, 20, 60000);
	dev = world_ep(b)->dev;
	buf = world_ep(b)->rq;
	wc.wr_id = (uint64_t)buf->turn << 32 | buf->index;
	wc.qp_num = world_ep(b)->qpn;
	world_close(a);
	world_close(b);
	world_pass(5000 * MS);
	rx_lock();
	ck_assert_ptr_null(verbs_credit_buf_completed(dev, wc.wr_id));
	ck_assert_ptr_null(verbs_credit_buf_completed(dev, dev->nbufs));
	rx_unlock();
	ck_assert_uint_eq(dev->posted, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_few");
	TCase *t = world_case(s, "iwarp", setup);

	tcase_add_loop_test(t, test_few_large, 0, 5);
	tcase_add_loop_test(t, test_more_than_a_header_tells, 0, 10);
	tcase_add_test(t, test_begun_gets_one);
	tcase_add_test(t, test_unread_and_no_room);
	tcase_add_test(t, test_in_place_outlives);
	tcase_add_test(t, test_half_stays);
	tcase_add_test(t, test_poor_from_the_start);
	tcase_add_test(t, test_no_memory_then_some);
	tcase_add_test(t, test_posts_fail);
	tcase_add_test(t, test_late_completions);
	return suite_run(s);
}
