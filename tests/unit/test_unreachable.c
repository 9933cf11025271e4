/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_unreachable.c - a process with messages that wait for a peer logs that once, and also when
 * they go on (engine/conn/history.c).  The other host and the clock are test_reach_fake.h's.
 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/suite.h"
#include "tests/unit/test_reach_fake.h"

static int file = -1;

static void pass_seconds(unsigned n)
{
	mock_clock_leap(n * 1000000000ull);
}

static void setup(void)
{
	char path[] = "/tmp/test_unreachable.XXXXXX";

	file = mkstemp(path);
	ck_assert_int_ge(file, 0);
	unlink(path);
	ck_assert_int_eq(dup2(file, 2), 2);
	far_setup();
}

/* How often that was written. */
static unsigned lines(const char *what)
{
	static char text[65536];
	ssize_t n = pread(file, text, sizeof(text) - 1, 0);
	unsigned found = 0;
	char *at;

	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	for (at = strstr(text, what); at; at = strstr(at + 1, what))
		found++;
	return found;
}

#define WAITS "messages to it wait"
#define AGAIN "is reached again"

/* Nobody on that host says who has the port, for the n-th time. */
static void no_answer(unsigned n)
{
	await(locked(&fake.nasked) == n);
	far_answers(5, 0, -EHOSTUNREACH);
}

START_TEST(test_silent_host)
{
	say(5, "a");
	no_answer(1);
	no_answer(2);
	ck_assert_uint_eq(lines(WAITS), 0); /* not yet */
	pass_seconds(11);
	no_answer(3);
	ck_assert_uint_eq(lines("no connection to " FAR " for 11 seconds (No route to host): " WAITS), 1);
	no_answer(4);
	pass_seconds(100);
	no_answer(5);
	ck_assert_uint_eq(lines(WAITS), 1); /* once */
	ck_assert_uint_eq(lines(AGAIN), 0);
	await(locked(&fake.nasked) == 6);
	far_answers(5, 2, 0);
	ck_assert_uint_eq(lines(FAR " " AGAIN ", after 111 seconds"), 1);
	far_up(0);
	far_got(0, 2, "a");
	ck_assert_uint_eq(lines(AGAIN), 1);
}
END_TEST

/* The n-th endpoint breaks, or does not come up. */
static void fails(unsigned n)
{
	await(locked(&fake.neps) == n);
	ep_down(fake.eps[n - 1], -ETIMEDOUT, false);
}

START_TEST(test_process_does_not_answer)
{
	far_begins(1, "a");
	far_acks(0, 1);
	fails(1);
	fails(2);
	pass_seconds(11);
	fails(3);
	ck_assert_uint_eq(lines(WAITS), 0); /* for nothing does */
	say(5, "b");
	fails(4);
	ck_assert_uint_eq(lines("no connection to " FAR " for 11 seconds (Connection timed out): " WAITS), 1);
	fails(5);
	ck_assert_uint_eq(lines(WAITS), 1);
	far_up(5);
	ck_assert_uint_eq(lines(FAR " " AGAIN ", after 11 seconds"), 1);
	far_got(1, 1, "b");
}
END_TEST

static void refused_again(void)
{
	unsigned n = atomic_load(&fake.nrefused);

	await(atomic_load(&fake.nrefused) > n);
}

/* No attempt can be made: for a process of this host the kernel passes no more descriptors. */
START_TEST(test_no_attempt)
{
	atomic_store(&fake.no_attempt, -ETOOMANYREFS);
	say(5, "a");
	no_answer(1);
	await(locked(&fake.nasked) == 2);
	far_answers(5, 1, 0);
	refused_again();
	ck_assert_uint_eq(lines(WAITS), 0);
	pass_seconds(11);
	refused_again();
	refused_again();
	ck_assert_uint_eq(lines("no connection to " FAR " for 11 seconds (Too many references: cannot splice): " WAITS), 1);
	refused_again();
	ck_assert_uint_eq(lines(WAITS), 1);
	atomic_store(&fake.no_attempt, 0);
	await(locked(&fake.neps) == 1);
	far_up(0);
	ck_assert_uint_eq(lines(FAR " " AGAIN), 1);
	far_got(0, 1, "a");
}
END_TEST

/* Every outage counts for itself, and what has been sent and not acknowledged waits as well. */
START_TEST(test_another_time)
{
	far_begins(1, "a");
	fails(1);
	pass_seconds(11);
	fails(2);
	ck_assert_uint_eq(lines(WAITS), 1);
	far_up(2);
	fails(3);
	fails(4);
	ck_assert_uint_eq(lines(WAITS), 1); /* it has only just begun */
	pass_seconds(11);
	fails(5);
	ck_assert_uint_eq(lines(WAITS), 2);
	ck_assert_uint_eq(lines(AGAIN), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("unreachable");
	TCase *tc = suite_case(s, "unreachable", setup, NULL);

	tcase_add_test(tc, test_silent_host);
	tcase_add_test(tc, test_process_does_not_answer);
	tcase_add_test(tc, test_no_attempt);
	tcase_add_test(tc, test_another_time);
	return suite_run(s);
}
