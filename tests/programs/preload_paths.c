/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_paths - programs that look for RDS in /proc and /sys find it: rds-stress by ftok(),
 * others by stat(), access(), opens of all kinds.  What RDS does not have is not there.  Where the
 * kernel has RDS these are its own, and the same holds.
 */
#include "program.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/ipc.h>
#include <sys/stat.h>

/* What programs of before glibc 2.33 call. */
extern int __xstat(int version, const char *path, struct stat *st) __attribute__((weak));

static const struct {
	const char *dir, *name; /* together the path */
	mode_t kind;		/* 0: it does not exist */
} paths[] = {
	{"/sys/module", "rds", S_IFDIR},
	{"/sys/module", "rds/", S_IFDIR},
	{"/proc/sys/net", "rds", S_IFDIR},
	{"/proc/sys/net/rds", "ping_enable", S_IFREG},
	{"/proc/sys/net/rds", "reconnect_min_delay_ms", S_IFREG},
	{"/proc/sys/net/rds", "no_such_file", 0},
	{"/sys/module", "rdsx", 0},
	{"/sys/module/rds", "no_such_file", 0},
	{"/proc/sys/net", "no_such_file", 0},
};

static bool is(int rc, const struct stat *st, mode_t kind)
{
	return kind ? rc == 0 && (st->st_mode & S_IFMT) == kind : rc == -1 && errno == ENOENT;
}

static void status(const char *dir, const char *name, const char *path, mode_t kind)
{
	/* those are empty here */
	int at = strstr(dir, "/rds") ? -1 : open(dir, O_RDONLY | O_DIRECTORY);
	int want = kind ? 0 : -1;
	struct stat st;
	struct stat64 st64;
	struct statx stx;

	check(is(stat(path, &st), &st, kind), "stat %s", path);
	check(is(lstat(path, &st), &st, kind), "lstat %s", path);
	check(is(fstatat(AT_FDCWD, path, &st, 0), &st, kind), "fstatat %s", path);
	check(at < 0 || is(fstatat(at, name, &st, 0), &st, kind), "fstatat %s", name);
	check(!__xstat || is(__xstat(1, path, &st), &st, kind), "__xstat %s", path);
	check(stat64(path, &st64) == want && lstat64(path, &st64) == want &&
		      fstatat64(AT_FDCWD, path, &st64, 0) == want,
	      "%s", path);
	check(statx(AT_FDCWD, path, 0, STATX_TYPE, &stx) == want && (!kind || (stx.stx_mode & S_IFMT) == kind),
	      "statx %s", path);
	check(access(path, R_OK) == want && euidaccess(path, F_OK) == want && eaccess(path, F_OK) == want, "access %s",
	      path);
	check(faccessat(AT_FDCWD, path, R_OK, 0) == want && (at < 0 || faccessat(at, name, F_OK, 0) == want),
	      "faccessat %s", path);
	if (at >= 0)
		close(at);
}

static void opens(const char *path, mode_t kind)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	FILE *f;
	DIR *d;

	check(kind ? fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == kind : fd < 0 && errno == ENOENT,
	      "open %s", path);
	close(fd);
	fd = open(path, O_RDONLY | O_DIRECTORY);
	check(kind == S_IFDIR ? fd >= 0 : fd < 0, "open %s as a directory", path);
	close(fd);
	check(kind != S_IFDIR || (open(path, O_RDWR) < 0 && errno == EISDIR), "open %s to write", path);
	d = opendir(path);
	check(!d == (kind != S_IFDIR) && (!d || closedir(d) == 0), "opendir %s", path);
	f = kind == S_IFREG ? fopen(path, "r") : NULL;
	check(!f == (kind != S_IFREG), "fopen %s", path);
	if (f)
		fclose(f);
}

static void keys(key_t got[3])
{
	got[0] = ftok("/sys/module/rds", 'S');
	got[1] = ftok("/sys/module/rds", 'T');
	got[2] = ftok("/proc/sys/net/rds", 'S');
}

/* Another process gets the same. */
static void same_keys(void *other)
{
	key_t k[3];

	keys(k);
	check(memcmp(k, other, sizeof(k)) == 0, "another process's keys");
	check(k[0] != -1 && k[1] != -1 && k[2] != -1 && k[0] != k[1] && k[0] != k[2], "keys");
	check(ftok("/sys/module/rdsx", 'S') == -1 && errno == ENOENT, "a key of nothing");
}

int main(void)
{
	char path[100];
	key_t k[3];

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", paths[i].dir, paths[i].name);
		status(paths[i].dir, paths[i].name, path, paths[i].kind);
		opens(path, paths[i].kind);
	}
	keys(k);
	finished(start(same_keys, k));
	printf("RDS is where programs look for it\n");
	return 0;
}
