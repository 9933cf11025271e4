/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_user.c - a user namespace shows one number for all users that it does not know, so that
 * number names no user; elsewhere it names one.  A process that moves to another namespace has
 * other numbers there.
 */
#include <sched.h>
#include <sys/prctl.h>

#include "engine/node/registry_impl.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

#define NOBODY 65534
#define SOMEBODY 11111
#define ANOTHER 11112
#define USER_THERE 22
#define GROUP_THERE 23

/* Our user and group.  Of the process nothing else is known: number 1 is no member. */
static struct ucred like_us(void)
{
	return (struct ucred){.pid = 1, .uid = geteuid(), .gid = getegid()};
}

static bool trusts(struct registry *reg)
{
	struct ucred cred = like_us();

	return registry_trusts(reg, &cred);
}

/*
 * Another process, as that user, and if unknown in a user namespace that does not know him: fn's
 * result, or -1 if there cannot be any.
 */
static int as(uid_t user, bool unknown, int (*fn)(void))
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		if (setgid(user) || setuid(user) || (unknown && unshare(CLONE_NEWUSER)))
			_exit(255);
		_exit(fn());
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	if (WEXITSTATUS(status) != 255)
		return WEXITSTATUS(status);
	printf("SKIP: no other user, or no user namespace, can be had\n");
	return -1;
}

#define ck_as(user, unknown, fn, expected)                                                                             \
	do {                                                                                                           \
		int got = as(user, unknown, fn);                                                                       \
		if (got >= 0)                                                                                          \
			ck_assert_int_eq(got, expected);                                                               \
	} while (0)

enum { TRUSTS = 1, GROUP = 2, UID_TELLS = 4, GID_TELLS = 8, NO_REGISTRY = 100 };

static int looks(void)
{
	struct registry *reg;
	int said = 0;

	if (registry_open(&reg))
		return NO_REGISTRY;
	said |= trusts(reg) ? TRUSTS : 0;
	said |= registry_is_user(reg, geteuid()) ? TRUSTS : 0;
	registry_close(reg);
	test_share("group");
	if (registry_open(&reg))
		return NO_REGISTRY;
	said |= trusts(reg) ? GROUP : 0;
	registry_close(reg);
	said |= os_uid_is_known(NOBODY) ? UID_TELLS : 0;
	said |= os_gid_is_known(NOBODY) ? GID_TELLS : 0;
	return said | (os_uid_is_known(0) && os_gid_is_known(SOMEBODY) ? 0 : 16);
}

static bool all_known(void)
{
	return os_uid_is_known(NOBODY) && os_gid_is_known(NOBODY);
}

START_TEST(a_number_for_many)
{
	if (!all_known()) { /* in a container */
		printf("SKIP: this user namespace does not know everybody\n");
		return;
	}
	ck_assert_int_eq(chmod(test_dir, 01777), 0);
	ck_as(NOBODY, false, looks, TRUSTS | GROUP | UID_TELLS | GID_TELLS);
	ck_as(SOMEBODY, false, looks, TRUSTS | GROUP | UID_TELLS | GID_TELLS);
	/* It has a registry of its own, and its members are found by their locks. */
	ck_assert_int_eq(chmod(test_dir, 0700), 0);
	registry_teardown();
	registry_setup();
	ck_assert_int_eq(chmod(test_dir, 01777), 0);
	ck_as(SOMEBODY, true, looks, 0);
}
END_TEST

static bool writes(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	close(fd);
	return ok;
}

/*
 * The numbers of ours that it had when it opened the registry are strangers' in its new user
 * namespace.
 */
static int is_renamed(void)
{
	char users[32], groups[32];
	struct registry *reg;
	int said;

	snprintf(users, sizeof(users), "%u %u 1", USER_THERE, (unsigned)geteuid());
	snprintf(groups, sizeof(groups), "%u %u 1", GROUP_THERE, (unsigned)getegid());
	if (registry_open(&reg))
		return NO_REGISTRY;
	if (prctl(PR_SET_DUMPABLE, 1) || unshare(CLONE_NEWUSER) || !writes("/proc/self/uid_map", users) ||
	    !writes("/proc/self/setgroups", "deny") || !writes("/proc/self/gid_map", groups))
		return 255;
	said = registry_is_user(reg, USER_THERE) && !registry_is_user(reg, SOMEBODY) ? TRUSTS : 0;
	test_share("group");
	if (registry_trusts(reg, &(struct ucred){.pid = 1, .uid = ANOTHER, .gid = GROUP_THERE}) &&
	    !registry_trusts(reg, &(struct ucred){.pid = 1, .uid = ANOTHER, .gid = SOMEBODY}))
		said |= GROUP;
	registry_close(reg);
	return said;
}

START_TEST(other_numbers)
{
	ck_assert_int_eq(chmod(test_dir, 01777), 0);
	ck_as(SOMEBODY, false, is_renamed, TRUSTS | GROUP);
}
END_TEST

static int opens(void)
{
	struct registry *reg;
	int err = registry_open(&reg);

	if (!err)
		registry_close(reg);
	return -err;
}

/*
 * A directory of another's with a file of ours in it: the other one could take the file away, and
 * put something else there.
 */
START_TEST(a_directory_of_another)
{
	char path[128], *name = strrchr(test_file, '/');
	int fd;

	if (geteuid() || !all_known()) {
		printf("SKIP: not root\n");
		return;
	}
	ck_assert_int_eq(chmod(test_dir, 0755), 0);
	snprintf(path, sizeof(path), "%s/rdspreload-%u", test_dir, NOBODY);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	ck_assert_int_eq(chown(path, SOMEBODY, SOMEBODY), 0);
	strcat(path, name);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fchown(fd, SOMEBODY, SOMEBODY), 0);
	close(fd);
	ck_as(SOMEBODY, true, opens, 0);
	*strrchr(path, '/') = 0;
	ck_assert_int_eq(chown(path, ANOTHER, ANOTHER), 0);
	ck_as(SOMEBODY, true, opens, EACCES);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("user");
	TCase *t = suite_case(s, "user", registry_setup, registry_teardown);

	tcase_add_test(t, a_number_for_many);
	tcase_add_test(t, a_directory_of_another);
	tcase_add_test(t, other_numbers);
	return suite_run(s);
}
