/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_barrier.c - RDS_BARRIER (socket/op_marks.c): what a call answers, when it waits, and when a
 * socket is readable for it.
 */
#include "tests/unit/marks_helper.h"

static bool done(uint32_t daddr, uint64_t id)
{
	return rds_sock_marks_done(&b, &(struct rds_barrier_request){.daddr = daddr, .wait_id = id});
}

/* ---- the option ---- */

START_TEST(non_blocking)
{
	for (int i = 1; i <= 3; i++)
		begin(A);
	ck_assert_int_eq(call(A, 2, true, 0), -EAGAIN);
	rds_sock_marks_finish(&b, A, 1);
	ck_assert_int_eq(call(A, 1, true, 1), 0);
	ck_assert_int_eq(call(A, 2, true, 1), -EAGAIN);
	rds_sock_marks_finish(&b, A, 2);
	ck_assert_int_eq(call(A, 2, true, 2), 0);
	ck_assert_int_eq(call(A, 1, true, 2), 0);
	/* Above the last one, and to where nothing ever went: asked for again later. */
	ck_assert_int_eq(call(A, 4, true, 2), -EAGAIN);
	ck_assert_int_eq(call(B, 1, true, 0), -EAGAIN);
	/* The flag of the request is as good as O_NONBLOCK. */
	ck_assert_int_eq(
		rds_sock_marks_request(&b, &(struct rds_barrier_request){.daddr = A, .wait_id = 3, .nonblock = true},
				       false, &(uint64_t){0}),
		-EAGAIN);
}
END_TEST

START_TEST(blocking)
{
	/* nothing outstanding: it would sleep for ever */
	ck_assert_int_eq(call(A, 1, false, 0), -EAGAIN);
	ck_assert(rds_sock_marks_in_use(&b));
	begin(A);
	begin(A);
	begin(B);
	ck_assert_int_eq(call(A, 2, false, 0), 1);
	ck_assert(!done(A, 2));
	rds_sock_marks_finish(&b, B, 3); /* another destination's */
	rds_sock_marks_finish(&b, A, 1);
	ck_assert(!done(A, 2));
	ck_assert(done(A, 1));
	ck_assert(done(A, 0));
	ck_assert_int_eq(call(A, 2, false, 1), 1);
	rds_sock_marks_finish(&b, A, 2);
	ck_assert(done(A, 2));
	ck_assert_int_eq(call(A, 2, false, 2), 0);
	ck_assert(!rds_sock_marks_readable(&b)); /* it has been told by the call itself */
	ck_assert_int_eq(call(B, 4, false, 3), -EAGAIN);
}
END_TEST

/* Waiting for an id that is not out yet ends when nothing is outstanding, and it was not armed. */
START_TEST(blocking_above)
{
	begin(A);
	ck_assert_int_eq(call(A, 5, false, 0), 1);
	ck_assert(!done(A, 5));
	rds_sock_marks_finish(&b, A, 1);
	ck_assert(done(A, 5));
	ck_assert_int_eq(call(A, 5, false, 1), -EAGAIN);
	ck_assert(!b.armed);
	ck_assert(!rds_sock_marks_readable(&b));
}
END_TEST

/* Compared as the public macro does: by the sign of the difference. */
START_TEST(wrap)
{
	begin(A);
	/* what later rds-stress begins with */
	ck_assert_int_eq(call(A, UINT64_MAX, true, 0), 0);
	/* the farthest that is past */
	ck_assert_int_eq(call(A, (UINT64_C(1) << 63) + 1, true, 0), 0);
	ck_assert_int_eq(call(A, UINT64_C(1) << 63, true, 0), -EAGAIN);
}
END_TEST

/* ---- poll ---- */

START_TEST(any_rise_is_readable)
{
	begin(A);
	begin(B);
	ck_assert(!rds_sock_marks_readable(&b));
	/* also if that was inside sendmsg: nothing had to be set up */
	rds_sock_marks_finish(&b, A, 1);
	ck_assert(rds_sock_marks_readable(&b));
	rds_sock_marks_recv_empty(&b);
	ck_assert(!rds_sock_marks_readable(&b));
	rds_sock_marks_finish(&b, B, 2);
	ck_assert(rds_sock_marks_readable(&b));
	ck_assert_int_eq(call(A, 0, true, 1), 0); /* to any destination */
	ck_assert(!rds_sock_marks_readable(&b));
}
END_TEST

START_TEST(armed)
{
	for (int i = 1; i <= 3; i++)
		begin(A);
	ck_assert_int_eq(call(A, 2, true, 0), -EAGAIN);
	ck_assert(!rds_sock_marks_readable(&b));
	rds_sock_marks_finish(&b, A, 1); /* a lower one wakes as well, and is taken back */
	ck_assert(rds_sock_marks_readable(&b));
	rds_sock_marks_recv_empty(&b);
	ck_assert(!rds_sock_marks_readable(&b));
	rds_sock_marks_finish(&b, A, 2);
	rds_sock_marks_recv_empty(&b); /* not this one */
	ck_assert(rds_sock_marks_readable(&b));
	ck_assert_int_eq(call(A, 2, true, 2), 0);
	ck_assert(!rds_sock_marks_readable(&b));
	rds_sock_marks_finish(&b, A, 3); /* nothing is armed any more */
	rds_sock_marks_recv_empty(&b);
	ck_assert(!rds_sock_marks_readable(&b));
}
END_TEST

START_TEST(armed_anew)
{
	for (int i = 1; i <= 5; i++)
		begin(i % 2 ? A : B); /* 1 3 5 A, 2 4 B */
	ck_assert_int_eq(call(A, 1, true, 0), -EAGAIN);
	ck_assert_int_eq(call(B, 4, true, 0), -EAGAIN);
	rds_sock_marks_finish(&b, A, 1); /* replaced */
	rds_sock_marks_finish(&b, B, 2);
	rds_sock_marks_recv_empty(&b);
	ck_assert(!rds_sock_marks_readable(&b));
	/* done is not armed, and fetching does not disarm */
	ck_assert_int_eq(call(A, 1, true, 1), 0);
	ck_assert_int_eq(call(A, 0, true, 1), 0);
	rds_sock_marks_finish(&b, A, 3);
	rds_sock_marks_finish(&b, A, 5); /* A's mark is no matter of B's id */
	rds_sock_marks_recv_empty(&b);
	ck_assert(!rds_sock_marks_readable(&b));
	rds_sock_marks_finish(&b, B, 4);
	rds_sock_marks_recv_empty(&b);
	ck_assert(rds_sock_marks_readable(&b));
	ck_assert_int_eq(call(A, 0, true, 5), 0);
	ck_assert(!rds_sock_marks_readable(&b));
}
END_TEST

/* Armed before the operation is sent. */
START_TEST(armed_ahead)
{
	ck_assert_int_eq(call(A, 2, true, 0), -EAGAIN);
	begin(A);
	begin(A);
	rds_sock_marks_finish(&b, A, 2);
	ck_assert(!rds_sock_marks_readable(&b));
	rds_sock_marks_finish(&b, A, 1);
	rds_sock_marks_recv_empty(&b);
	ck_assert(rds_sock_marks_readable(&b));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("barrier");
	TCase *t = suite_case(s, "call", start, end);

	tcase_add_test(t, non_blocking);
	tcase_add_test(t, blocking);
	tcase_add_test(t, blocking_above);
	tcase_add_test(t, wrap);
	t = suite_case(s, "poll", start, end);
	tcase_add_test(t, any_rise_is_readable);
	tcase_add_test(t, armed);
	tcase_add_test(t, armed_anew);
	tcase_add_test(t, armed_ahead);
	return suite_run(s);
}
