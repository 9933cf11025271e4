/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_timers.c - the helper's timers (helper/timers.c), by the real clock: set, needed, cancelled,
 * and all of that while the helper runs them.  A timer that could wait for nothing does not start.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/helper/helper.h"
#include "engine/helper/leader.h"
#include "engine/helper/timers.h"
#include "engine/node/registry.h"
#include "engine/node/stats.h"
#include "engine/progress/progress.h"
#include "engine/rds.h"
#include "engine/socket/socket.h"
#include "engine/sys/os.h"
#include "engine/transport/transport.h"
#include "engine/wire/addr.h"
#include "tests/refuse.h"
#include "tests/slow.h"
#include "tests/unit/suite.h"

#define RUNS 200
#define SPINS 10000000 /* longer than it takes */

static void never(struct rds_timer *tm)
{
	(void)tm;
	ck_abort_msg("no helper runs here");
}

START_TEST(test_needed_twice)
{
	struct rds_timer tm = {.fn = never};

	ck_assert(!rds_timer_is_set(&tm));
	rds_timer_need(&tm, 100);
	ck_assert(rds_timer_is_set(&tm));
	rds_timer_need(&tm, 50);
	ck_assert_uint_eq(tm.due_ns, 100);
	rds_timer_need(&tm, 200);
	ck_assert_uint_eq(tm.due_ns, 100);
	rds_timer_set(&tm, 200);
	ck_assert_uint_eq(tm.due_ns, 200);
	rds_timer_cancel(&tm);
	ck_assert(!rds_timer_is_set(&tm));
	rds_timer_need(&tm, 300);
	ck_assert_uint_eq(tm.due_ns, 300);
	rds_timer_cancel(&tm);
}
END_TEST

static uint64_t pause_ns;

static void note_pause(struct rds_timer *tm)
{
	rds_timer_set(tm, UINT64_MAX); /* as another thread may, meanwhile */
	pause_ns = rds_timer_pause(1000000);
}

/* Timers that come late are rarer, but not much. */
START_TEST(late_is_rarer)
{
	struct rds_timer tm = {.fn = note_pause};
	const uint64_t ms = 1000000;

	rds_timer_set(&tm, os_now_ns() - 5 * ms);
	rds_timers_run_due();
	ck_assert_uint_ge(pause_ns, 50 * ms);
	ck_assert_uint_le(pause_ns, 160 * ms);
	rds_timer_set(&tm, os_now_ns() - 1000 * ms);
	rds_timers_run_due();
	ck_assert_uint_eq(pause_ns, 160 * ms);
	rds_timer_cancel(&tm);
}
END_TEST

static void helper_runs(void)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET, .sin_port = htons(4000), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rds_sock *sk;

	ck_assert_int_ge(rds_call_socket(SOCK_SEQPACKET, 0, &sk), 0);
	ck_assert_int_eq(rds_call_bind(sk, (struct sockaddr *)&sin, sizeof(sin)), 0);
}

static _Atomic unsigned asked, ran;

/*
 * A run does what was asked for before it began: so a thread that finds the timer set need not set
 * it again.
 */
static void run(struct rds_timer *tm)
{
	(void)tm;
	atomic_store(&ran, atomic_load(&asked));
}

static struct rds_timer shared = {.fn = run};

static bool ran_for(unsigned mine)
{
	return (int)(atomic_load(&ran) - mine) >= 0;
}

/* If a need did not lead to a run, this would hang. */
static void *needs(void *arg)
{
	unsigned mine, i, spins;

	for (i = 0; i < RUNS; i++) {
		mine = atomic_fetch_add(&asked, 1) + 1;
		rds_timer_need(&shared, os_now_ns());
		/* so that they come at the same time */
		for (spins = 0; !ran_for(mine) && spins < SPINS; spins++)
			;
		test_until(ran_for(mine));
	}
	return arg;
}

START_TEST(test_threads_need_one)
{
	pthread_t t[2];
	int i;

	helper_runs();
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, needs, NULL), 0);
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
}
END_TEST

START_TEST(test_no_waiting)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rds_sock *sk;

	ck_assert_int_eq(refuse_call(SYS_epoll_pwait, EPERM), 0);
	ck_assert_int_ge(rds_call_socket(SOCK_SEQPACKET, 0, &sk), 0);
	ck_assert_int_eq(rds_call_bind(sk, (struct sockaddr *)&sin, sizeof(sin)), -EPERM);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("timers");
	TCase *tc = tcase_create("timers");

	tcase_add_test(tc, test_needed_twice);
	tcase_add_test(tc, late_is_rarer);
	tcase_add_test(tc, test_threads_need_one);
	tcase_add_test(tc, test_no_waiting);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
