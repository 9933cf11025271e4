/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * checked.c [hangs] - a unit test that takes longer than Check's own limit for it, or never ends;
 * see test.sh.
 */
#include <poll.h>

#include "tests/unit/suite.h"

static int ms = 300;

START_TEST(slow)
{
	poll(NULL, 0, ms);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *s = suite_create("checked");
	TCase *t = suite_case(s, "slow", NULL, NULL);

	(void)argv;
	if (argc > 1)
		ms = -1;
	tcase_set_timeout(t, 0.1);
	tcase_add_test(t, slow);
	return suite_run(s);
}
