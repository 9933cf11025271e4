/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_registry_lost.c - the registry's file is removed while processes use it: those that come
 * later meet them all the same.
 */
#include <sys/resource.h>

#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

#define OLD 7000
#define NEW 7001

static struct registry *parents;

static int lookup(struct registry *reg, uint16_t port)
{
	struct in6_addr a = v4("127.0.0.1");
	struct registry_owner o;
	int ret = registry_lookup(reg, &a, port, 0, &o);

	return ret ? ret : registry_proc_alive(reg, o.proc, &o.procid) ? 0 : -ESRCH;
}

/* As logind does: the file, and the directory as well. */
static void remove_it(void)
{
	char dir[sizeof(test_file)];

	strcpy(dir, test_file);
	*strrchr(dir, '/') = 0;
	ck_assert_int_eq(unlink(test_file), 0);
	ck_assert_int_eq(rmdir(dir), 0);
}

static void lost_setup(void)
{
	registry_setup();
	parents = open_ok();
	bind_ok(parents, add_ok(parents), "127.0.0.1", OLD);
}

/* What it says of port OLD; then it has port NEW. */
static void newcomer(int from, int to)
{
	struct registry *reg;
	int found;

	registry_abandon(parents);
	child_assert(registry_open(&reg) == 0);
	found = lookup(reg, OLD);
	bind_ok(reg, add_ok(reg), "127.0.0.1", NEW);
	child_say(to, &found, sizeof(found));
	child_wait(from);
	registry_close(reg);
}

static void check_newcomer(int found, int seen)
{
	struct child c = child_start(newcomer);
	int said;

	child_hear(&c, &said, sizeof(said));
	ck_assert_int_eq(said, found);
	ck_assert_int_eq(lookup(parents, NEW), seen);
	child_tell(&c);
	ck_assert_int_eq(child_end(&c, 0), 0);
	ck_assert_int_eq(lookup(parents, NEW), -ENOENT);
}

START_TEST(newcomers_meet_the_old)
{
	struct stat st;

	remove_it();
	check_newcomer(0, 0);
	ck_assert_int_eq(stat(test_file, &st), 0);
	ck_assert_int_eq(st.st_size, 0); /* as long as the other one is used */
	check_newcomer(0, 0);
	remove_it();
	check_newcomer(0, 0);
	registry_close(parents);

	parents = open_ok(); /* nobody has the old one any more */
	ck_assert_int_eq(lookup(parents, OLD), -ENOENT);
	ck_assert_int_eq(stat(test_file, &st), 0);
	ck_assert_int_gt(st.st_size, 0);
	check_newcomer(-ENOENT, 0);
	registry_close(parents);
	registry_teardown();
}
END_TEST

/* One that has lost its name, of another directory, is none of theirs. */
START_TEST(another_one_is_left_alone)
{
	char first[sizeof(test_dir)];

	remove_it();
	strcpy(first, test_dir);
	registry_setup();
	check_newcomer(-ENOENT, -ENOENT);
	registry_close(parents);
	registry_teardown();
	ck_assert_int_eq(rmdir(first), 0);
}
END_TEST

/*
 * How many numbers it takes until the old ones are met: with fewer it is an error, and not a second
 * node.
 */
static void poor_newcomer(int from, int to)
{
	struct rlimit few = {0, 64};
	struct registry *reg;
	int ret, refused = 0;

	(void)from;
	registry_abandon(parents);
	for (;; few.rlim_cur++) {
		child_assert(setrlimit(RLIMIT_NOFILE, &few) == 0);
		ret = registry_open(&reg);
		if (!ret)
			break;
		child_assert(ret == -EMFILE);
		refused++;
	}
	child_assert(refused && lookup(reg, OLD) == 0);
	child_say(to, "", 1);
}

START_TEST(too_few_descriptors)
{
	struct child c;
	struct stat st;
	char said;

	remove_it();
	c = child_start(poor_newcomer);
	child_hear(&c, &said, 1);
	ck_assert_int_eq(child_end(&c, 0), 0);
	ck_assert_int_eq(stat(test_file, &st), 0);
	ck_assert_int_eq(st.st_size, 0);
	registry_close(parents);
	registry_teardown();
}
END_TEST

/* Both say it, and what to do. */
START_TEST(it_is_said)
{
	int saved = dup(2), file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	char text[4096] = "", *at = text;
	int said = 0;

	ck_assert_int_eq(dup2(file, 2), 2);
	remove_it();
	check_newcomer(0, 0);
	check_newcomer(0, 0);
	add_ok(parents);
	add_ok(parents);
	dup2(saved, 2);
	ck_assert_int_gt(pread(file, text, sizeof(text) - 1, 0), 0);
	ck_assert_ptr_nonnull(strstr(text, "RDS_PRELOAD_REGISTRY_DIR"));
	while ((at = strstr(at, "RemoveIPC=no"))) {
		at++;
		said++;
	}
	ck_assert_int_eq(said, 3); /* each of the three once */
	registry_close(parents);
	registry_teardown();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("registry_lost");
	TCase *tc = suite_case(s, "lost", lost_setup, NULL);

	tcase_add_test(tc, newcomers_meet_the_old);
	tcase_add_test(tc, another_one_is_left_alone);
	tcase_add_test(tc, too_few_descriptors);
	tcase_add_test(tc, it_is_said);
	return suite_run(s);
}
