/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * early_stat.c - raw versions (early.c) of the calls that calls/proc_stat.c wraps.
 */
#include "preload/libc/preload.h"

#include <sys/syscall.h>

#include "engine/sys/os.h"
#include "preload/libc/early.h"

static int early_newfstatat(int dir, const char *path, void *st, int flags)
{
	return (int)libc_raw_syscall(SYS_newfstatat, dir, path, st, flags);
}

/* On 64-bit machines both structures are the kernel's. */
#define EARLY_STAT(bits, type)                                                                                         \
	int early_stat##bits(const char *path, type *st)                                                               \
	{                                                                                                              \
		return early_newfstatat(AT_FDCWD, path, st, 0);                                                        \
	}                                                                                                              \
	int early_lstat##bits(const char *path, type *st)                                                              \
	{                                                                                                              \
		return early_newfstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);                                      \
	}                                                                                                              \
	int early_fstatat##bits(int dir, const char *path, type *st, int flags)                                        \
	{                                                                                                              \
		return early_newfstatat(dir, path, st, flags);                                                         \
	}                                                                                                              \
	int early_xstat##bits(int version, const char *path, type *st)                                                 \
	{                                                                                                              \
		(void)version;                                                                                         \
		return early_newfstatat(AT_FDCWD, path, st, 0);                                                        \
	}                                                                                                              \
	int early_lxstat##bits(int version, const char *path, type *st)                                                \
	{                                                                                                              \
		(void)version;                                                                                         \
		return early_newfstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);                                      \
	}                                                                                                              \
	int early_fxstatat##bits(int version, int dir, const char *path, type *st, int flags)                          \
	{                                                                                                              \
		(void)version;                                                                                         \
		return early_newfstatat(dir, path, st, flags);                                                         \
	}

EARLY_STAT(, struct stat)
EARLY_STAT(64, struct stat64)

int early_statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
	return (int)libc_raw_syscall(SYS_statx, dir, path, flags, mask, st);
}

int early_access(const char *path, int mode)
{
	return (int)libc_raw_syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

int early_faccessat(int dir, const char *path, int mode, int flags)
{
	return (int)(flags ? libc_raw_syscall(SYS_faccessat2, dir, path, mode, flags)
			   : libc_raw_syscall(SYS_faccessat, dir, path, mode));
}

int early_euidaccess(const char *path, int mode)
{
	return early_faccessat(AT_FDCWD, path, mode, AT_EACCESS);
}

/* Composed as libc does it. */
key_t early_ftok(const char *path, int id)
{
	struct stat st;

	if (early_stat(path, &st))
		return -1;
	return (key_t)((st.st_ino & 0xffff) | (st.st_dev & 0xff) << 16 | ((unsigned)id & 0xff) << 24);
}
