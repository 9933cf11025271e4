/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_spin.c - when a thread spins before it sleeps, and when it does not (engine/spin.c).  With a limit of a second every spin here is
 * answered in time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/wait.h"
#include "tests/unit/suite.h"
#include "tests/unit/test_reach_fake.h"

#define LONG_US 1500

static void setup(void)
{
	setenv("RDS_PRELOAD_SPIN_US", "1000000", 1);
	far_setup();
}

/* A wait that is answered after so long.  Did it spin? */
static bool waits(bool sent, unsigned us)
{
	struct rds_wait *w = rds_wait_begin_one(fake.sk, RDS_WAIT_RECV);
	bool spins;

	ck_assert_ptr_nonnull(w);
	rds_sent = sent;
	spins = rds_wait_spin(w);
	if (us)
		usleep(us);
	if (spins)
		w->spins = us * 100; /* it would have looked so often */
	rds_wait_end(w);
	return spins;
}

/* Who only listens, and to what comes seldom, sleeps at once; and spins again when it comes more often. */
START_TEST(test_listener)
{
	unsigned i;

	ck_assert(waits(false, LONG_US));
	for (i = 0; i < 20; i++)
		waits(false, LONG_US);
	ck_assert(!waits(false, LONG_US));
	ck_assert(!waits(false, LONG_US)); /* for as long as it is like that */
	for (i = 0; i < 10; i++)
		waits(false, 0);
	ck_assert(waits(false, 0));
}
END_TEST

/* An answer is waited for, whatever else the thread has listened to. */
START_TEST(test_answers)
{
	unsigned i;

	for (i = 0; i < 20; i++)
		waits(false, LONG_US);
	ck_assert(!waits(false, LONG_US));
	for (i = 0; i < 20; i++)
		ck_assert(waits(true, LONG_US));
	ck_assert(!waits(false, LONG_US)); /* which says nothing of the other kind */
}
END_TEST

/* A long rest is one wait as any other. */
START_TEST(test_rest)
{
	unsigned i;

	for (i = 0; i < 20; i++)
		ck_assert(waits(false, 0));
	waits(false, 200000);
	ck_assert(waits(false, 0));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("spin");
	TCase *t = suite_case(s, "spin", setup, NULL, 60);

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		puts("one processor: nobody spins");
		return 77;
	}
	tcase_add_test(t, test_listener);
	tcase_add_test(t, test_answers);
	tcase_add_test(t, test_rest);
	return suite_run(s);
}
