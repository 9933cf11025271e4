/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_options.c - values, defaults and complaints of the environment variables.  Each test has a
 * process of its own.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/patience.h"
#include "tests/unit/suite.h"

static char text[65536];
static int file = -1;

/* A clean environment, and descriptor 2 caught. */
static void setup(void)
{
	file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(dup2(file, 2), 2);
	clearenv();
	rds_options_reset();
}

static const char *said(void)
{
	ssize_t n = pread(file, text, sizeof(text) - 1, 0);

	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	return text;
}

static const struct rds_options *with(const char *name, const char *value)
{
	clearenv();
	setenv(name, value, 1);
	rds_options_reset();
	return rds_options();
}

START_TEST(defaults)
{
	const struct rds_options *o = rds_options();

	ck_assert_int_eq(o->log, RDS_LOG_WARN);
	ck_assert_str_eq(o->log_file, "");
	ck_assert_str_eq(o->registry_dir, "/dev/shm");
	ck_assert_int_eq(o->share, RDS_OPT_SHARE_USER);
	ck_assert_str_eq(o->transport, "auto");
	ck_assert_int_eq(o->spin_us, -1);
	ck_assert_int_eq(o->shm_ring, 4 << 20);
	ck_assert_int_eq(o->linger_ms, 2000);
	ck_assert_int_eq(o->patience, 1);
	ck_assert_int_eq(o->reconnect_min_ms, 1);
	ck_assert_int_eq(o->reconnect_max_ms, 1000);
	ck_assert_int_eq(o->ping_enable, 1);
	ck_assert_str_eq(o->fault, "");
	ck_assert_str_eq(o->families, "auto");
	ck_assert_int_eq(o->abi, RDS_ABI_AUTO);
	ck_assert_int_eq(o->wmem_default, 212992);
	ck_assert_int_eq(o->rmem_default, 212992);
	ck_assert_int_eq(o->wmem_max, INT32_MAX / 2);
	ck_assert_int_eq(o->rmem_max, INT32_MAX / 2);
	ck_assert_str_eq(said(), "");
}
END_TEST

START_TEST(good_values)
{
	ck_assert_int_eq(with("RDS_PRELOAD_LOG", "error")->log, RDS_LOG_ERROR);
	ck_assert_int_eq(rds_log_max, RDS_LOG_ERROR);
	ck_assert_int_eq(with("RDS_PRELOAD_LOG", "debug")->log, RDS_LOG_DEBUG);
	ck_assert_int_eq(rds_log_max, RDS_LOG_DEBUG);
	ck_assert_str_eq(with("RDS_PRELOAD_REGISTRY_DIR", "/some where")->registry_dir, "/some where");
	ck_assert_int_eq(with("RDS_PRELOAD_SHARE", "all")->share, RDS_OPT_SHARE_ALL);
	ck_assert_int_eq(with("RDS_PRELOAD_SHARE", "group")->share, RDS_OPT_SHARE_GROUP);
	ck_assert_str_eq(with("RDS_PRELOAD_TRANSPORT", "shm")->transport, "shm");
	ck_assert_int_eq(with("RDS_PRELOAD_SPIN_US", "0")->spin_us, 0);
	ck_assert_int_eq(with("RDS_PRELOAD_SPIN_US", "1000000")->spin_us, 1000000);
	ck_assert_int_eq(with("RDS_PRELOAD_SHM_RING", "64K")->shm_ring, 64 << 10);
	ck_assert_int_eq(with("RDS_PRELOAD_SHM_RING", "65536k")->shm_ring, 64 << 20);
	ck_assert_int_eq(with("RDS_PRELOAD_SHM_RING", "8388608")->shm_ring, 8 << 20);
	ck_assert_int_eq(with("RDS_PRELOAD_PING_ENABLE", "0")->ping_enable, 0);
	ck_assert_str_eq(with("RDS_PRELOAD_FAULT", "seed=1,drop=2")->fault, "seed=1,drop=2");
	ck_assert_str_eq(with("RDS_PRELOAD_FAMILIES", "21,28,32")->families, "21,28,32");
	ck_assert_str_eq(with("RDS_PRELOAD_FAMILIES", "21")->families, "21");
	ck_assert_int_eq(with("RDS_PRELOAD_ABI", "a0")->abi, RDS_ABI_A0);
	ck_assert_int_eq(with("RDS_PRELOAD_ABI", "b2")->abi, RDS_ABI_B2);
	ck_assert_int_eq(with("RDS_PRELOAD_ABI", "d")->abi, RDS_ABI_D);
	ck_assert_int_eq(with("RDS_PRELOAD_WMEM_DEFAULT", "64K")->wmem_default, 65536);
	ck_assert_int_eq(with("RDS_PRELOAD_RMEM_MAX", "2304")->rmem_max, 2304);
	/* empty is as good as unset */
	ck_assert_int_eq(with("RDS_PRELOAD_LINGER_MS", "")->linger_ms, 2000);
	ck_assert_str_eq(said(), "");
}
END_TEST

static const char *const bad[][2] = {
	{"LOG", "loud"},
	{"LOG", "warn "},
	{"LOG", "err"},
	{"LOG", "error|warn"},
	{"REGISTRY_DIR", "relative"},
	{"SHARE", "world"},
	{"SPIN_US", "-2"},
	{"SPIN_US", "1000001"},
	{"SPIN_US", "ten"},
	{"SPIN_US", "5us"},
	{"SPIN_US", " 5"},
	{"SPIN_US", "1K"},
	{"SPIN_US", "99999999999999999999"},
	{"SHM_RING", "32K"},
	{"SHM_RING", "128M"},
	{"SHM_RING", "3M"},
	{"SHM_RING", "4MM"},
	{"SHM_RING", "4MB"},
	{"SHM_RING", "9999999999999G"},
	{"PING_ENABLE", "yes"},
	{"PING_ENABLE", "2"},
	{"FAMILIES", "21,"},
	{"FAMILIES", ",21"},
	{"FAMILIES", "22"},
	{"FAMILIES", "21 28"},
	{"FAMILIES", "auto,21"},
	{"WMEM_DEFAULT", "4607"},
	{"RMEM_MAX", "2G"},
	{"RECONNECT_MIN_MS", "0"},
	{"LINGER_MS", "0x10"},
	{"PATIENCE", "0"},
	{"PATIENCE", "101"},
	{"PATIENCE", "1.5"},
	{"PATIENCE", "-1"},
	{"ABI", "a"},
	{"ABI", "D"},
};

/* A value that is refused: one line that names variable and value, and the default in force. */
START_TEST(bad_values)
{
	char name[64], shown[8192], expect[8192];
	FILE *f = fmemopen(shown, sizeof(shown), "w");
	const char *warning;

	snprintf(name, sizeof(name), "RDS_PRELOAD_%s", bad[_i][0]);
	rds_options_print(f);
	fclose(f);
	strcpy(expect, shown);
	f = fmemopen(shown, sizeof(shown), "w");
	with(name, bad[_i][1]);
	rds_options_print(f);
	fclose(f);
	ck_assert_str_eq(shown, expect);
	warning = said();
	ck_assert_ptr_nonnull(strchr(warning, '\n'));
	ck_assert_str_eq(strchr(warning, '\n'), "\n");
	ck_assert_ptr_nonnull(strstr(warning, name));
	ck_assert_ptr_nonnull(strstr(warning, bad[_i][1]));
	ck_assert_ptr_nonnull(strstr(warning, ": using "));
}
END_TEST

/*
 * What rdsrun asks before it sets a variable: the same verdict, nothing printed, nothing changed.
 */
START_TEST(value_ok)
{
	char name[64], want[96];

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(name, sizeof(name), "RDS_PRELOAD_%s", bad[i][0]);
		ck_assert_msg(!rds_options_value_ok(name, bad[i][1], want, sizeof(want)), "%s=%s", name, bad[i][1]);
	}
	ck_assert(!rds_options_value_ok("RDS_PRELOAD_LOG", "", want, sizeof(want)));
	ck_assert(rds_options_value_ok("RDS_PRELOAD_LOG", "debug", want, sizeof(want)));
	ck_assert(!rds_options_value_ok("RDS_PRELOAD_WMEM_DEFAULT", "100", want, sizeof(want)));
	ck_assert_str_eq(want, "a size from 4608 to 1073741823 bytes (K, M, G allowed)");
	ck_assert(rds_options_value_ok("RDS_PRELOAD_SPIN_US", "17", want, sizeof(want)));
	ck_assert_str_eq(want, "a number from -1 to 1000000");
	ck_assert_int_eq(rds_options()->spin_us, -1);
	ck_assert_str_eq(said(), "");
}
END_TEST

START_TEST(unknown_names)
{
	static const char *const t[][2] = {
		{"SPIN_UX", "RDS_PRELOAD_SPIN_US?"}, {"SPINUS", "RDS_PRELOAD_SPIN_US?"}, {"LOGFILE", "RDS_PRELOAD_LOG_FILE?"},
		{"log", "RDS_PRELOAD_LOG?"}, {"REGISTRY", "--options"}, {"TRANSPROT", "RDS_PRELOAD_TRANSPORT?"},
		{"RECONECT_MAX_MS", "RDS_PRELOAD_RECONNECT_MAX_MS?"}, {"XYZZY", "--options"}, {"FOO", "--options"}, {"SPIN", "--options"},
		{"LOGS", "RDS_PRELOAD_LOG?"}, {"SAHRE", "RDS_PRELOAD_SHARE?"}, {"X", "--options"}, {"", "--options"},
		{"THIS_IS_A_VERY_LONG_NAME_THAT_NOBODY_COULD_HAVE_MEANT", "--options"},
	};
	char name[100];

	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		snprintf(name, sizeof(name), "RDS_PRELOAD_%s", t[i][0]);
		ck_assert_int_eq(ftruncate(file, 0), 0);
		lseek(file, 0, SEEK_SET);
		with(name, "1");
		ck_assert_ptr_nonnull(strstr(said(), "unknown option RDS_PRELOAD_"));
		ck_assert_msg(strstr(text, t[i][1]), "%s: %s", name, text);
	}
	ck_assert_int_eq(ftruncate(file, 0), 0);
	with("RDS_PRELOADED", "1"); /* not ours */
	with("XRDS_PRELOAD_LOG", "1");
	ck_assert_str_eq(said(), "");
}
END_TEST

/* All that the table has, in both units. */
static void patient(unsigned factor)
{
#define TIMES(name, ms, ...)                                                                                           \
	ck_assert_uint_eq(rds_patience_ms(RDS_PATIENCE_##name), (uint64_t)(ms) * factor);                              \
	ck_assert_uint_eq(rds_patience_ns(RDS_PATIENCE_##name), (uint64_t)(ms) * factor * 1000000);
	RDS_PATIENCE_TABLE(TIMES)
#undef TIMES
}

START_TEST(patience)
{
	patient(1);
	setenv("RDS_PRELOAD_PATIENCE", "4", 1);
	patient(1); /* too late */
	rds_options_reset();
	patient(4); /* before anybody has asked for an option */
	ck_assert_int_eq(rds_options()->patience, 4);
	ck_assert_int_eq(rds_options()->linger_ms, 8000);
	/* how often something is done is not multiplied */
	ck_assert_int_eq(rds_options()->keepalive_ms, 5000);
	setenv("RDS_PRELOAD_LINGER_MS", "2000", 1);
	rds_options_reset();
	ck_assert_int_eq(rds_options()->linger_ms, 2000);
	patient(4);
	with("RDS_PRELOAD_PATIENCE", "100");
	patient(100);
	ck_assert_str_eq(said(), "");
	with("RDS_PRELOAD_PATIENCE", "101");
	patient(1);
	ck_assert_str_eq(strstr(said(), "RDS_PRELOAD_PATIENCE=101"), "RDS_PRELOAD_PATIENCE=101 is not a number from 1 to 100: using 1\n");
}
END_TEST

START_TEST(pair)
{
	clearenv();
	setenv("RDS_PRELOAD_RECONNECT_MIN_MS", "5000", 1);
	rds_options_reset();
	ck_assert_int_eq(rds_options()->reconnect_min_ms, 5000);
	ck_assert_int_eq(rds_options()->reconnect_max_ms, 5000);
	ck_assert_ptr_nonnull(strstr(said(), "RECONNECT_MAX_MS"));
}
END_TEST

/* The log file counts for the complaints about the other variables, too. */
START_TEST(complaints_go_to_the_file)
{
	char path[] = "/tmp/test_options.XXXXXX";
	int fd = mkstemp(path);
	ssize_t n;

	setenv("RDS_PRELOAD_LOG_FILE", path, 1);
	with("RDS_PRELOAD_LOG_FILE", path);
	setenv("RDS_PRELOAD_SPIN_US", "x", 1);
	rds_options_reset();
	rds_options();
	n = read(fd, text, sizeof(text) - 1);
	unlink(path);
	ck_assert_int_gt(n, 0);
	text[n] = '\0';
	ck_assert_ptr_nonnull(strstr(text, "SPIN_US=x"));
	ck_assert_str_eq(said(), "");
}
END_TEST

/* What the program does to its environment after the copy, even to the bytes, changes nothing. */
START_TEST(later_changes)
{
	static char entry[] = "RDS_PRELOAD_FAULT=seed=1";

	putenv(entry);
	rds_options_reset();
	memset(strchr(entry, '=') + 1, 'x', 6);
	setenv("RDS_PRELOAD_SPIN_US", "7", 1);
	ck_assert_str_eq(rds_options()->fault, "seed=1");
	ck_assert_int_eq(rds_options()->spin_us, -1);
	clearenv();
	ck_assert_str_eq(rds_options()->fault, "seed=1");
}
END_TEST

START_TEST(too_much)
{
	char name[64], big[5000];

	memset(big, 'y', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	/* longer than any path */
	ck_assert_str_eq(with("RDS_PRELOAD_LOG_FILE", big)->log_file, "");
	clearenv();
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "RDS_PRELOAD_X%d", i);
		setenv(name, big, 1);
	}
	setenv("RDS_PRELOAD_SPIN_US", "7", 1); /* small enough to find room */
	rds_options_reset();
	ck_assert_int_eq(rds_options()->spin_us, 7);
	ck_assert_ptr_nonnull(strstr(said(), "more than 16384 bytes"));
}
END_TEST

static void *ask(void *arg)
{
	(void)arg;
	for (int i = 0; i < 1000; i++)
		if (rds_options()->spin_us != 7)
			return NULL;
	return (void *)rds_options();
}

START_TEST(threads)
{
	pthread_t t[4];
	void *got;

	setenv("RDS_PRELOAD_SPIN_US", "7", 1);
	setenv("RDS_PRELOAD_NONSENSE", "7", 1);
	rds_options_reset();
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, ask, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &got);
		ck_assert_ptr_eq(got, rds_options());
	}
	ck_assert_ptr_eq(strchr(said(), '\n'), strrchr(text, '\n')); /* one warning, not four */
}
END_TEST

START_TEST(table_shown)
{
	char shown[8192] = "";
	FILE *f = fmemopen(shown, sizeof(shown), "w");

	with("RDS_PRELOAD_SHARE", "group");
	rds_options_print(f);
	fclose(f);
	ck_assert_ptr_nonnull(strstr(shown, "RDS_PRELOAD_SHARE=group  (environment)\n"));
	ck_assert_ptr_nonnull(strstr(shown, "RDS_PRELOAD_SHM_RING=4194304  (default)\n"));
	ck_assert_ptr_nonnull(strstr(shown, "RDS_PRELOAD_LOG_FILE=  (default)\n"));
	ck_assert_ptr_nonnull(strstr(shown, "RDS_PRELOAD_PING_ENABLE=1  (default)\n"));
	ck_assert_ptr_nonnull(strstr(shown, "seed=1,disconnect=1000; default none\n"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("options");
	TCase *c = tcase_create("options");

	suite_add_tcase(s, c);
	tcase_add_checked_fixture(c, setup, NULL);
	tcase_add_test(c, defaults);
	tcase_add_test(c, good_values);
	tcase_add_loop_test(c, bad_values, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(c, value_ok);
	tcase_add_test(c, unknown_names);
	tcase_add_test(c, patience);
	tcase_add_test(c, pair);
	tcase_add_test(c, complaints_go_to_the_file);
	tcase_add_test(c, later_changes);
	tcase_add_test(c, too_much);
	tcase_add_test(c, threads);
	tcase_add_test(c, table_shown);
	return suite_run(s);
}
