/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * proc_stat.c - does RDS exist? Programs ask the file system: by stat(), by access(), and by
 * ftok(), which gives the key by which the processes of a program find each other.
 *
 * Answers only where the real call has failed because there is no such file, or none that the
 * program may see. The answer is that for a file which exists everywhere (proc_paths.h), so
 * processes that see the same /proc and /sys get the same answers. In libcs before 2.33 stat() and
 * its variants are called __xstat() and so on, with a version as their first argument.
 */
#include "preload/libc/preload.h"

#include "preload/calls/proc_paths.h"

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "two names of one structure");

/* The result of the real call, or the status of the file that stands for the missing one. */
static int proc_stat_result(int rc, int dir, const char *name, void *st)
{
	const struct proc_path *p;
	int saved;

	if (likely(rc == 0))
		return 0;
	p = proc_path_missing(dir, name);
	if (likely(!p))
		return rc;
	saved = errno;
	rc = libc_real.stat(p->alike, st);
	errno = saved;
	return rc;
}

int stat(const char *name, struct stat *st)
{
	return proc_stat_result(libc_real.stat(name, st), AT_FDCWD, name, st);
}

int stat64(const char *name, struct stat64 *st)
{
	return proc_stat_result(libc_real.stat64(name, st), AT_FDCWD, name, st);
}

int lstat(const char *name, struct stat *st)
{
	return proc_stat_result(libc_real.lstat(name, st), AT_FDCWD, name, st);
}

int lstat64(const char *name, struct stat64 *st)
{
	return proc_stat_result(libc_real.lstat64(name, st), AT_FDCWD, name, st);
}

int fstatat(int dir, const char *name, struct stat *st, int flags)
{
	return proc_stat_result(libc_real.fstatat(dir, name, st, flags), dir, name, st);
}

int fstatat64(int dir, const char *name, struct stat64 *st, int flags)
{
	return proc_stat_result(libc_real.fstatat64(dir, name, st, flags), dir, name, st);
}

int __xstat(int version, const char *name, struct stat *st)
{
	return proc_stat_result(libc_real.__xstat(version, name, st), AT_FDCWD, name, st);
}

int __xstat64(int version, const char *name, struct stat64 *st)
{
	return proc_stat_result(libc_real.__xstat64(version, name, st), AT_FDCWD, name, st);
}

int __lxstat(int version, const char *name, struct stat *st)
{
	return proc_stat_result(libc_real.__lxstat(version, name, st), AT_FDCWD, name, st);
}

int __lxstat64(int version, const char *name, struct stat64 *st)
{
	return proc_stat_result(libc_real.__lxstat64(version, name, st), AT_FDCWD, name, st);
}

int __fxstatat(int version, int dir, const char *name, struct stat *st, int flags)
{
	return proc_stat_result(libc_real.__fxstatat(version, dir, name, st, flags), dir, name, st);
}

int __fxstatat64(int version, int dir, const char *name, struct stat64 *st, int flags)
{
	return proc_stat_result(libc_real.__fxstatat64(version, dir, name, st, flags), dir, name, st);
}

int statx(int dir, const char *name, int flags, unsigned mask, struct statx *st)
{
	int rc = libc_real.statx(dir, name, flags, mask, st), saved = errno;
	const struct proc_path *p = rc ? proc_path_missing(dir, name) : NULL;

	if (unlikely(p)) {
		rc = libc_real.statx(AT_FDCWD, p->alike, flags, mask, st);
		errno = saved;
	}
	return rc;
}

/* ---- may it be read? ---- */

static int proc_access_result(int rc, int dir, const char *name, int mode, int flags)
{
	const struct proc_path *p = unlikely(rc) ? proc_path_missing(dir, name) : NULL;

	return likely(!p) ? rc : libc_real.faccessat(AT_FDCWD, p->alike, mode, flags);
}

int access(const char *name, int mode)
{
	return proc_access_result(libc_real.access(name, mode), AT_FDCWD, name, mode, 0);
}

int faccessat(int dir, const char *name, int mode, int flags)
{
	return proc_access_result(libc_real.faccessat(dir, name, mode, flags), dir, name, mode, flags);
}

int euidaccess(const char *name, int mode)
{
	return proc_access_result(libc_real.euidaccess(name, mode), AT_FDCWD, name, mode, AT_EACCESS);
}
RDS_ALIAS(eaccess, euidaccess);

/* ---- a key ---- */

key_t ftok(const char *name, int id)
{
	key_t key = libc_real.ftok(name, id);
	const struct proc_path *p = unlikely(key == -1) ? proc_path_missing(AT_FDCWD, name) : NULL;

	return likely(!p) ? key : libc_real.ftok(p->alike, id);
}
