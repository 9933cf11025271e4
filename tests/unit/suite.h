/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * suite.h - the frame of a unit test program: its test cases, and how they are run.  CK_VERBOSITY,
 * CK_RUN_CASE and the like (see Check) are for a run by hand.
 */
#ifndef TESTS_UNIT_SUITE_H
#define TESTS_UNIT_SUITE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/rds.h"
#include "tests/slow.h"

/*
 * A test case of s, and what is done before and after each of its tests (NULL: nothing).  How long
 * they may take is for tests/watch to judge: scripts/run-test turns Check's own limit off.
 */
static inline TCase *suite_case(Suite *s, const char *name, void (*start)(void), void (*end)(void))
{
	TCase *t = tcase_create(name);

	tcase_add_checked_fixture(t, start, end);
	suite_add_tcase(s, t);
	return t;
}

/* Runs all of it.  The program's exit status. */
static inline int suite_run(Suite *s)
{
	SRunner *r = srunner_create(s);
	int failed;

	test_shows_stacks();
	rds_engine_join(); /* a package does not name those above it */
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}

#endif
