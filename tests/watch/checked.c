/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * checked.c - a test of Check that takes longer than Check's own limit for it; see test.sh.
 */
#include <check.h>
#include <unistd.h>

START_TEST(slow)
{
	usleep(300000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("checked");
	TCase *t = tcase_create("slow");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 0.1);
	tcase_add_test(t, slow);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
