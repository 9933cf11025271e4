/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_op_fails.c - operations of a device that fail, or are cut short, what is told of them
 * (engine/transport/verbs/ep/rdma.c), and memory that the device cannot have any more, or at all
 * (dev/mr.c).
 */
#include <sys/resource.h>

#include "tests/unit/verbs_op_helper.h"

static void turn_away(void)
{
	world_ib();
	world_pair();
	shown = NULL;
	region = mine = NULL;
}

/*
 * One operation has failed.  Of those before and behind it, whose message is lost, nothing is
 * reported: the endpoint is down.
 */
START_TEST(test_not_reached)
{
	ck_assert_int_eq(post(1, 0, 100), 0);
	far.key ^= _i ? 0 : 0xff0000;
	ck_assert_int_eq(post(2, _i ? REGION - 99 : 0, 70000), 0);
	far.key ^= _i ? 0 : 0xff0000;
	ck_assert_int_eq(post(3, 200, 100), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	world_run();
	ck_assert_uint_eq(a->novers, 1);
	is_over(0, 2, -EACCES);
	ck_assert_uint_eq(b->nmsgs, 0);
	ck_assert(untouched(100, REGION - 100));
	ck_assert_uint_eq(a->downs, 1);
}
END_TEST

/* From the return on nobody reaches it. */
START_TEST(test_hidden)
{
	alone = true;
	ck_assert_int_eq(post(1, 0, 100), 0);
	verbs_ep_flush(a->ep, true);
	verbs_mr_deregister(shown);
	shown = NULL;
	world_run();
	ck_assert_uint_eq(a->novers, 1);
	is_over(0, 1, -EACCES);
	ck_assert(untouched(0, REGION));
}
END_TEST

/* Nobody says which one it was: the endpoint is over, and that is what is told. */
START_TEST(test_iwarp_not_reached)
{
	unsigned before = b->nmsgs;

	far.key ^= 0xff0000;
	ck_assert_int_eq(post(2, 0, 70000), 0);
	far.key ^= 0xff0000;
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	world_run();
	ck_assert_uint_eq(a->novers, 0);
	ck_assert_uint_eq(b->nmsgs, before);
	ck_assert(untouched(0, REGION));
	ck_assert_uint_eq(a->downs, 1);
}
END_TEST

static const struct {
	enum ibv_wc_status status;
	int err; /* 0: it is not told */
} failures[] = {
	{IBV_WC_REM_ACCESS_ERR, -EACCES}, {IBV_WC_REM_INV_REQ_ERR, -EACCES}, {IBV_WC_REM_OP_ERR, -EACCES},
	{IBV_WC_LOC_PROT_ERR, -EIO},	  {IBV_WC_FATAL_ERR, -EIO},	     {IBV_WC_RETRY_EXC_ERR, 0},
	{IBV_WC_WR_FLUSH_ERR, 0},	  {IBV_WC_LOC_QP_OP_ERR, -EIO},
};

/* One operation with its message; the device completes the first work request like this. */
static void post_failing(enum ibv_wc_status status)
{
	mock_fail_send(world_ep(a)->qp, status);
	ck_assert_int_eq(post(1, 0, 100000), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
}

START_TEST(test_failures)
{
	post_failing(failures[_i].status);
	world_run();
	ck_assert_uint_eq(a->novers, failures[_i].err ? 1 : 0);
	if (failures[_i].err)
		is_over(0, 1, failures[_i].err);
	ck_assert_uint_eq(a->downs, 1);
	ck_assert_uint_eq(b->nmsgs, 0);
}
END_TEST

/* siw says that of what TCP has not taken. */
START_TEST(test_iwarp_broken)
{
	post_failing(IBV_WC_LOC_QP_OP_ERR);
	world_run();
	ck_assert_uint_eq(a->novers, 0);
	ck_assert_uint_eq(a->downs, 1);
}
END_TEST

/*
 * A flushed operation counts as completed, but not as done, even if an acknowledgement of something
 * else is found afterwards.
 */
START_TEST(test_flushed_then_acked)
{
	static const enum ibv_wc_status how[] = {IBV_WC_WR_FLUSH_ERR, IBV_WC_RETRY_EXC_ERR};
	struct verbs_ep *ep = world_ep(a);

	post_failing(how[_i]);
	while (mock_step())
		;
	world_look();
	ck_assert_int_ge((int32_t)(atomic_load(&ep->wr_done) - ep->wr_posted), 0);
	rx_lock();
	verbs_rdma_acked(ep, 0);
	rx_unlock();
	ck_assert_uint_eq(a->novers, 0);
	ck_assert(untouched(0, REGION));
}
END_TEST

/* Closed with operations under way: no up-call any more (world.c), no block is lost. */
START_TEST(test_closed)
{
	unsigned i;

	for (i = 0; i < 10; i++)
		ck_assert_int_eq(post(i, 0, 100000), 0);
	close_after(_i);
	ck_assert_uint_eq(a->novers, 0);
}
END_TEST

START_TEST(test_not_up)
{
	mock_fail_send(world_ep(a)->qp, IBV_WC_FATAL_ERR);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	while (mock_step())
		;
	world_look();
	ck_assert_int_eq(post(1, 0, 100), -ENOTCONN);
}
END_TEST

/* A list that fails in the middle: the endpoint breaks, and nothing is told. */
START_TEST(test_post_fails)
{
	mock_post_fail((unsigned)_i, ENOMEM);
	ck_assert_int_eq(post(1, 0, 200000), 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	world_run();
	ck_assert_uint_eq(a->novers, 0);
	ck_assert_uint_eq(a->downs, 1);
}
END_TEST

/* ---- memory ---- */

/* The device goes first, or what it has been shown. */
START_TEST(test_device_gone)
{
	mock_dev_remove(world.ours2);
	world_run();
	ck_assert_uint_eq(b->downs, 1);
	if (_i) {
		verbs_mr_deregister(shown);
		shown = NULL;
	}
	world_run();
}
END_TEST

START_TEST(test_other_device)
{
	struct rds_device_key f;

	ck_assert(!verbs_ep_mr_key(a->ep, shown, &f));
	ck_assert_uint_eq(far.at, (uintptr_t)region);
}
END_TEST

START_TEST(test_refused)
{
	unsigned n = mock_count(MOCK_MR);

	struct rlimit l;

	region = calloc(1, 4096);
	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &l), 0);
	l.rlim_cur = 123456;
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &l), 0);
	world_listen();
	mock_fail(MOCK_ibv_reg_mr, 1, EIO);
	ck_assert_int_eq(verbs_ep_mr_register(b->ep, region, 4096, &shown), -EIO);
	ck_assert_str_eq(world_said(), "");
	mock_fail(MOCK_ibv_reg_mr, 1, ENOMEM);
	ck_assert_int_eq(verbs_ep_mr_register(b->ep, region, 4096, &shown), -ENOMEM);
	ck_assert_ptr_nonnull(strstr(world_said(), ": no 4096 bytes more of the program's memory can be locked, "));
	ck_assert_ptr_nonnull(strstr(world_said(), ": the limit of locked memory is 123456 bytes: raise it (ulimit -l"));
	mock.copies_on_fork = false;
	ck_assert_int_eq(verbs_ep_mr_register(b->ep, region, 4096, &shown), -EOPNOTSUPP);
	ck_assert_uint_eq(mock_count(MOCK_MR), n);
	ck_assert_ptr_null(shown);
	mock.copies_on_fork = true;
	ck_assert_int_eq(verbs_ep_mr_register(b->ep, region, 4096, &shown), 0);
	ck_assert_uint_eq(mock_count(MOCK_MR), n + 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_op_fails");
	TCase *tc = suite_case(s, "iwarp", setup_iwarp, teardown);

	tcase_add_test(tc, test_iwarp_not_reached);
	tcase_add_test(tc, test_iwarp_broken);
	tcase_add_loop_test(tc, test_closed, 0, 12);
	tcase_add_loop_test(tc, test_post_fails, 0, 5);
	tc = suite_case(s, "ib", setup, teardown);
	tcase_add_loop_test(tc, test_not_reached, 0, 2);
	tcase_add_test(tc, test_hidden);
	tcase_add_loop_test(tc, test_flushed_then_acked, 0, 2);
	tcase_add_loop_test(tc, test_failures, 0, sizeof(failures) / sizeof(failures[0]));
	tcase_add_loop_test(tc, test_closed, 0, 12);
	tcase_add_test(tc, test_not_up);
	tcase_add_loop_test(tc, test_post_fails, 0, 5);
	tc = suite_case(s, "memory", setup, teardown);
	tcase_add_loop_test(tc, test_device_gone, 0, 2);
	tcase_add_test(tc, test_other_device);
	tc = suite_case(s, "refused", turn_away, teardown);
	tcase_add_test(tc, test_refused);
	return suite_run(s);
}
