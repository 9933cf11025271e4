/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_registry_rights.c - where the node registry is, and whose it may be: rights, owners, links,
 * a directory that is missing or full.
 */
#include <sched.h>
#include <sys/mount.h>

#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

static int open_err(void)
{
	struct registry *reg;

	return registry_open(&reg);
}

START_TEST(wrong_rights)
{
	char dir[sizeof(test_file)], away[sizeof(test_file) + 8];

	registry_close(open_ok());
	strcpy(dir, test_file);
	*strrchr(dir, '/') = 0;
	chmod(dir, 0777);
	ck_assert_int_eq(open_err(), -EACCES);
	chmod(dir, 0720);
	ck_assert_int_eq(open_err(), -EACCES);
	chmod(dir, 0700);
	chmod(test_file, 0666);
	ck_assert_int_eq(open_err(), -EACCES);
	chmod(test_file, 0400); /* a creator was killed before its chmod */
	registry_close(open_ok());

	snprintf(away, sizeof(away), "%s.away", test_file);
	ck_assert_int_eq(rename(test_file, away), 0);
	ck_assert_int_eq(symlink(away, test_file), 0);
	ck_assert_int_eq(open_err(), -EACCES);
	unlink(test_file);
	ck_assert_int_eq(mkfifo(test_file, 0600), 0);
	ck_assert_int_eq(open_err(), -EACCES);
	unlink(test_file);
	rename(away, test_file);
	registry_close(open_ok());

	snprintf(away, sizeof(away), "%s.away", dir);
	rename(dir, away);
	ck_assert_int_eq(symlink(away, dir), 0);
	ck_assert_int_eq(open_err(), -EACCES);
	unlink(dir);
	rename(away, dir);
	registry_close(open_ok());
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(test_file, 12345, 0), 0);
		ck_assert_int_eq(open_err(), -EACCES);
		ck_assert_int_eq(chown(dir, 12345, 0), 0);
		ck_assert_int_eq(open_err(), -EACCES);
	} else {
		printf("wrong_rights: not root, another owner was not tried\n");
	}
}
END_TEST

/* Descriptor 2 is caught for one attempt that fails; what it said. */
static const char *complaint(int want)
{
	static char text[1024];
	int err, saved = dup(2), file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	ssize_t n;

	ck_assert_int_eq(dup2(file, 2), 2);
	err = open_err();
	dup2(saved, 2);
	close(saved);
	ck_assert_int_eq(err, want);
	n = pread(file, text, sizeof(text) - 1, 0);
	close(file);
	ck_assert_int_gt(n, 0);
	text[n] = 0;
	return text;
}

/*
 * The line has the error's text and says what to do; it does not say to remove another user's file.
 */
START_TEST(file_for_a_directory)
{
	char path[sizeof(test_file)];
	const char *text;

	strcpy(path, test_file);
	*strrchr(path, '/') = 0;
	ck_assert_int_eq(mknod(path, S_IFREG | 0600, 0), 0);
	for (int i = 0; i < 2; i++) {
		text = complaint(i ? -ENOTDIR : -EACCES);
		ck_assert_ptr_nonnull(strstr(text, "(Not a directory): "));
		ck_assert_ptr_nonnull(strstr(text, "set RDS_PRELOAD_REGISTRY_DIR to another one\n"));
		ck_assert_ptr_null(strstr(text, "remove"));
		setenv("RDS_PRELOAD_REGISTRY_DIR", path, 1);
		rds_options_reset();
	}
}
END_TEST

START_TEST(shared_with_others)
{
	char dir[128];
	struct stat st;

	umask(077);
	test_share("group");
	registry_close(open_ok());
	snprintf(dir, sizeof(dir), "%s/rdspreload-g%u-%u", test_dir, (unsigned)getegid(), (unsigned)geteuid());
	ck_assert_int_eq(stat(dir, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0750);
	chmod(dir, 0777);
	ck_assert_int_eq(open_err(), -EACCES);

	test_share("all");
	registry_close(open_ok());
	snprintf(dir, sizeof(dir), "%s/rdspreload-all-%u", test_dir, (unsigned)geteuid());
	ck_assert_int_eq(stat(dir, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0755);
}
END_TEST

/* By a umask, or because it was killed between making them and its chmod. */
static void owner_comes_in(const char *share, const char *name, mode_t rights)
{
	char dir[128], file[256];
	struct registry *reg;
	struct stat st;

	test_share(share);
	snprintf(dir, sizeof(dir), "%s/rdspreload-%s", test_dir, name);
	snprintf(file, sizeof(file), "%s%s", dir, strrchr(test_file, '/'));
	for (int i = 0; i < 2; i++) {
		child_assert(registry_open(&reg) == 0);
		registry_close(reg);
		child_assert(stat(dir, &st) == 0 && (st.st_mode & 07777) == rights);
		child_assert(stat(file, &st) == 0 && (st.st_mode & 07777) == 0600);
		child_assert(chmod(file, 0) == 0 && chmod(dir, 0) == 0);
	}
	child_assert(chmod(dir, 0022) == 0); /* that is no umask's doing */
	child_assert(open_err() == -EACCES);
}

/* ---- the maker's chmod comes just behind somebody's failed open (--wrap) ---- */

int __real_os_openat(int dir, const char *path, int flags, mode_t mode);
int __wrap_os_openat(int dir, const char *path, int flags, mode_t mode);

static const char *chmod_behind;
static mode_t rights_behind;

int __wrap_os_openat(int dir, const char *path, int flags, mode_t mode)
{
	int fd = __real_os_openat(dir, path, flags, mode);

	if (fd == -EACCES && chmod_behind) {
		child_assert(chmod(chmod_behind, rights_behind) == 0);
		chmod_behind = NULL;
	}
	return fd;
}

static void maker_is_at_it(const char *name)
{
	char dir[128], file[256];
	struct registry *reg;

	test_share("user");
	snprintf(dir, sizeof(dir), "%s/rdspreload-%s", test_dir, name);
	snprintf(file, sizeof(file), "%s%s", dir, strrchr(test_file, '/'));
	child_assert(chmod(dir, 0700) == 0 && chmod(file, 0) == 0);
	chmod_behind = file;
	rights_behind = 0600;
	child_assert(registry_open(&reg) == 0 && !chmod_behind);
	registry_close(reg);
	child_assert(chmod(dir, 0) == 0);
	chmod_behind = dir;
	rights_behind = 0700;
	child_assert(registry_open(&reg) == 0 && !chmod_behind);
	registry_close(reg);
}

START_TEST(owner_kept_out)
{
	char user[16], group[32], all[32];
	int status;
	pid_t pid;

	ck_assert_int_eq(chmod(test_dir, 0777), 0);
	pid = fork();
	if (pid == 0) {
		/* nothing keeps root out */
		child_assert(geteuid() || (setgid(54321) == 0 && setuid(54321) == 0));
		snprintf(user, sizeof(user), "%u", (unsigned)geteuid());
		snprintf(group, sizeof(group), "g%u-%s", (unsigned)getegid(), user);
		snprintf(all, sizeof(all), "all-%s", user);
		umask(0777);
		owner_comes_in("user", user, 0700);
		maker_is_at_it(user);
		owner_comes_in("group", group, 0750);
		owner_comes_in("all", all, 0755);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(no_directory)
{
	setenv("RDS_PRELOAD_REGISTRY_DIR", "/nonexistent/for/sure", 1);
	rds_options_reset();
	ck_assert_int_eq(open_err(), -ENOENT);
	setenv("RDS_PRELOAD_REGISTRY_DIR", test_dir, 1);
	rds_options_reset();
	registry_close(open_ok());
}
END_TEST

static void tiny_tmpfs(const char *size)
{
	ck_assert_int_eq(mount("none", test_dir, "tmpfs", 0, size), 0);
}

START_TEST(a_full_directory)
{
	struct in6_addr a = v4("127.0.0.1");
	struct registry *reg;
	uint32_t idx, n;
	uint16_t port;

	if ((geteuid() ? unshare(CLONE_NEWUSER | CLONE_NEWNS) : unshare(CLONE_NEWNS)) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		printf("a_full_directory: SKIP: no mount namespace (%s)\n", strerror(errno));
		return;
	}
	tiny_tmpfs("size=64k");
	ck_assert_int_eq(open_err(), -ENOSPC);
	ck_assert_int_eq(open_err(), -ENOSPC);
	umount(test_dir);

	tiny_tmpfs("size=900k");
	reg = open_ok();
	for (n = 0; registry_sock_add(reg, 1, 1, 1, &idx) == 0; n++)
		ck_assert_uint_lt(n, REG_SOCKS);
	ck_assert_uint_eq(n, REG_CHUNK);
	ck_assert_int_eq(registry_sock_add(reg, 1, 1, 1, &idx), -ENOSPC);
	registry_sock_remove(reg, 5);
	/* what there is can still be used */
	ck_assert_int_eq(registry_sock_add(reg, 1, 1, 1, &idx), 0);
	ck_assert_uint_eq(idx, 5);
	ck_assert_int_eq(registry_sock_bind(reg, idx, &a, 0, 0, 1, &port), 0);
	registry_close(reg);
	umount(test_dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("registry_rights");
	TCase *tc = suite_case(s, "rights", registry_setup, registry_teardown);

	tcase_add_test(tc, wrong_rights);
	tcase_add_test(tc, file_for_a_directory);
	tcase_add_test(tc, shared_with_others);
	tcase_add_test(tc, owner_kept_out);
	tcase_add_test(tc, no_directory);
	tcase_add_test(tc, a_full_directory);
	return suite_run(s);
}
