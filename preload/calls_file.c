/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * calls_file.c - /proc/sys/net/rds, where the kernel has none.
 *
 * RDS programs of all ages look there for the family and level numbers and for tunables.  Only reading, only when the
 * real call has failed because there is no such file, so nothing is added to the opens of any other program (but
 * telling the table that a number came into use).  What is handed out is a sealed file in memory, opened read-only.
 */
#include "fds.h"

#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/options.h"

#define RDS_PROC_DIR "/proc/sys/net/rds/"
#define RDS_SOL_PUBLISHED 276
#define NUMBERS 2

enum proc_value { PROC_FIXED, PROC_RECONNECT_MIN, PROC_RECONNECT_MAX, PROC_PING };

static const struct proc_file {
	const char *path;
	enum proc_value what;
	int64_t fixed;
} proc_files[] = {
	{RDS_PROC_DIR "pf_rds", PROC_FIXED, PF_RDS_NUMBER},
	{RDS_PROC_DIR "sol_rds", PROC_FIXED, RDS_SOL_PUBLISHED}, /* the first NUMBERS */
	{RDS_PROC_DIR "reconnect_min_delay_ms", PROC_RECONNECT_MIN, 0},
	{RDS_PROC_DIR "reconnect_max_delay_ms", PROC_RECONNECT_MAX, 0},
	{RDS_PROC_DIR "max_unacked_packets", PROC_FIXED, 8},
	{RDS_PROC_DIR "max_unacked_bytes", PROC_FIXED, 16777216},
	{RDS_PROC_DIR "ping_enable", PROC_PING, 0},
};

/* ---- which file is meant ---- */

/* Does `dir` (a directory, or AT_FDCWD) stand at the first n characters of path? */
static bool dir_is(int dir, const char *path, size_t n)
{
	char link[64], at[64];
	ssize_t len;

	if (dir == AT_FDCWD)
		len = getcwd(at, sizeof(at)) ? (ssize_t)strlen(at) : -1;
	else
		len = snprintf(link, sizeof(link), "/proc/self/fd/%d", dir) > 0 ? readlink(link, at, sizeof(at)) : -1;
	return len >= 0 && (size_t)len == (n ? n : 1) && memcmp(at, path, (size_t)len) == 0;
}

static const struct proc_file *proc_find(int dir, const char *path)
{
	size_t len = strlen(path);

	for (size_t i = 0; i < sizeof(proc_files) / sizeof(proc_files[0]); i++) {
		const struct proc_file *f = &proc_files[i];
		size_t full = strlen(f->path);

		if (path[0] == '/') {
			if (strcmp(path, f->path) == 0)
				return f;
		} else if (len && len < full && strcmp(f->path + full - len, path) == 0 &&
			   f->path[full - len - 1] == '/' && dir_is(dir, f->path, full - len - 1)) {
			return f;
		}
	}
	return NULL;
}

/* Cheap "no" for the failed opens of programs that look for their files along a path. */
static bool proc_unlikely(const char *path)
{
	return path[0] == '/' && strncmp(path, RDS_PROC_DIR, strlen(RDS_PROC_DIR)) != 0;
}

/* ---- making it ---- */

static int64_t proc_number(const struct proc_file *f)
{
	switch (f->what) {
	case PROC_RECONNECT_MIN:
		return rds_options()->reconnect_min_ms;
	case PROC_RECONNECT_MAX:
		return rds_options()->reconnect_max_ms;
	case PROC_PING:
		return rds_options()->ping_enable;
	case PROC_FIXED:
		break;
	}
	return f->fixed;
}

/* A second, read-only description of the file behind fd, under the same (lowest free) number. */
static int reopen_read_only(int fd, int flags)
{
	char link[64];
	int ro;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ro = rds_real.open(link, O_RDONLY | O_CLOEXEC | (flags & O_NONBLOCK));
	if (ro < 0)
		return -errno;
	int rc = rds_real.dup3(ro, fd, flags & O_CLOEXEC) < 0 ? -errno : fd;

	rds_real.close(ro);
	return rc;
}

static int proc_make(const struct proc_file *f, int flags)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%lld\n", (long long)proc_number(f));
	int fd = memfd_create(strrchr(f->path, '/') + 1, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc;

	if (fd < 0)
		return -errno;
	rc = rds_real.write(fd, text, (size_t)len) == len ? 0 : -ENOSPC;
	if (rc == 0)
		rc = rds_real.fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) ? -errno : 0;
	rc = rc ? rc : reopen_read_only(fd, flags);
	if (rc < 0)
		rds_real.close(fd);
	return rc;
}

/* An open has failed: with one of ours?  The result to return, errno set. */
static int proc_open(int dir, const char *path, int flags)
{
	int saved = errno, rc;
	const struct proc_file *f;

	if ((saved != ENOENT && saved != EACCES) || proc_unlikely(path))
		return -1;
	f = proc_find(dir, path);
	if (!f)
		rc = -saved;
	else if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC))
		rc = -EACCES;
	else if (flags & O_DIRECTORY)
		rc = -ENOTDIR;
	else
		rc = proc_make(f, flags);
	if (rc >= 0 && f - proc_files < NUMBERS)
		rds_numbers_read(f->fixed == RDS_SOL_PUBLISHED);
	if (rc >= 0)
		errno = saved;
	return (int)rds_result(rc);
}

static int opened(int fd, int dir, const char *path, int flags)
{
	if (unlikely(fd < 0))
		fd = proc_open(dir, path, flags);
	return rds_fds_fresh(fd);
}

/* ---- the calls ---- */

static inline bool wants_mode(int flags)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;

	if (wants_mode(flags)) {
		va_list ap;

		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	return opened(rds_real.open(path, flags, mode), AT_FDCWD, path, flags);
}
RDS_ALIAS(open64, open);
RDS_ALIAS(__open, open);
RDS_ALIAS(__open64, open);

int openat(int dir, const char *path, int flags, ...)
{
	mode_t mode = 0;

	if (wants_mode(flags)) {
		va_list ap;

		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	return opened(rds_real.openat(dir, path, flags, mode), dir, path, flags);
}
RDS_ALIAS(openat64, openat);

/* Fortified: the real one ends the program if the flags ask for a mode that was not given. */
int __open_2(const char *path, int flags)
{
	return opened(rds_real.__open_2(path, flags), AT_FDCWD, path, flags);
}
RDS_ALIAS(__open64_2, __open_2);

int __openat_2(int dir, const char *path, int flags)
{
	return opened(rds_real.__openat_2(dir, path, flags), dir, path, flags);
}
RDS_ALIAS(__openat64_2, __openat_2);

int creat(const char *path, mode_t mode)
{
	return opened(rds_real.creat(path, mode), AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC);
}
RDS_ALIAS(creat64, creat);

FILE *fopen(const char *path, const char *mode)
{
	FILE *f = rds_real.fopen(path, mode);
	int fd;

	if (likely(f)) {
		rds_fds_fresh(rds_fds_on() ? fileno(f) : -1);
		return f;
	}
	if (errno != ENOENT && errno != EACCES)
		return NULL; /* `mode` may be nonsense */
	fd = proc_open(AT_FDCWD, path,
		       (mode[0] == 'r' && !strchr(mode, '+') ? O_RDONLY : O_WRONLY) | (strchr(mode, 'e') ? O_CLOEXEC : 0));
	f = fd < 0 ? NULL : fdopen(rds_fds_fresh(fd), mode);
	if (fd >= 0 && !f)
		rds_real.close(fd);
	return f;
}
RDS_ALIAS(fopen64, fopen);
