/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * proc_files.c - opens of the names in proc_paths.h.
 *
 * RDS programs of all ages look there for the family and level numbers and for tunables. Only
 * reading is served, and only when the real call has failed because there is no such file. So the
 * opens of other programs pay for nothing but telling the table that a number came into use. The
 * program gets a sealed file in memory, opened read-only, or an empty directory.
 */
#include "preload/fdtable/fdtable.h"
#include "preload/calls/proc_paths.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/sys/options.h"
#include "engine/sys/os.h"

/* ---- making a file or a directory ---- */

static int64_t proc_file_number(const struct proc_path *p)
{
	switch (p->what) {
	case PROC_PATH_RECONNECT_MIN:
		return rds_options()->reconnect_min_ms;
	case PROC_PATH_RECONNECT_MAX:
		return rds_options()->reconnect_max_ms;
	case PROC_PATH_PING:
		return rds_options()->ping_enable;
	default:
		return p->fixed;
	}
}

/*
 * A second, read-only file description of the file behind fd, under the same (lowest free) number.
 */
static int proc_file_reopen(int fd, int flags)
{
	char link[64];
	int ro;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ro = libc_real.open(link, O_RDONLY | O_CLOEXEC | (flags & O_NONBLOCK));
	if (ro < 0)
		return -errno;
	int rc = libc_real.dup3(ro, fd, flags & O_CLOEXEC) < 0 ? -errno : fd;

	libc_real.close(ro);
	return rc;
}

static int proc_file_make(const struct proc_path *p, int flags)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%lld\n", (long long)proc_file_number(p));
	int fd = memfd_create(strrchr(p->name, '/') + 1, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	off_t at = 0;
	int rc;

	if (fd < 0)
		return -errno;
	rc = os_file_append(fd, &at, text, (size_t)len);
	if (rc == 0)
		rc = libc_real.fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) ? -errno
														: 0;
	rc = rc ? rc : proc_file_reopen(fd, flags);
	if (rc < 0)
		libc_real.close(fd);
	return rc;
}

/* The directory is made to be opened, and removed at once. */
static int proc_dir_make(int flags)
{
	char name[PATH_MAX];
	int rc = snprintf(name, sizeof(name), "%s/rdspreload.XXXXXX", rds_options()->registry_dir);

	if (rc >= (int)sizeof(name) || !mkdtemp(name))
		return -ENOENT;
	rc = libc_real.open(name, flags);
	rc = rc < 0 ? -errno : rc;
	rmdir(name);
	return rc;
}

/*
 * An open has failed. If the name is one of ours, opens the file. Returns the result, with errno
 * set.
 */
static int proc_file_open(int dir, const char *name, int flags)
{
	const struct proc_path *p = proc_path_missing(dir, name);
	int saved = errno, rc;

	if (likely(!p))
		return -1;
	if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC))
		rc = p->what == PROC_PATH_DIR ? -EISDIR : -EACCES;
	else if (p->what == PROC_PATH_DIR)
		rc = proc_dir_make(flags);
	else if (flags & O_DIRECTORY)
		rc = -ENOTDIR;
	else
		rc = proc_file_make(p, flags);
	if (rc >= 0) {
		proc_path_was_read(p);
		errno = saved;
	}
	return (int)libc_result(rc);
}

static int file_opened(int fd, int dir, const char *path, int flags)
{
	if (unlikely(fd < 0))
		fd = proc_file_open(dir, path, flags);
	return rds_fds_clear(fd);
}

/* ---- the calls ---- */

static inline bool open_wants_mode(int flags)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;

	if (open_wants_mode(flags)) {
		va_list ap;

		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	return file_opened(libc_real.open(path, flags, mode), AT_FDCWD, path, flags);
}
RDS_ALIAS(open64, open);
RDS_ALIAS(__open, open);
RDS_ALIAS(__open64, open);

int openat(int dir, const char *path, int flags, ...)
{
	mode_t mode = 0;

	if (open_wants_mode(flags)) {
		va_list ap;

		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	return file_opened(libc_real.openat(dir, path, flags, mode), dir, path, flags);
}
RDS_ALIAS(openat64, openat);

/* Fortified: the real call ends the program if the flags ask for a mode that was not passed. */
int __open_2(const char *path, int flags)
{
	return file_opened(libc_real.__open_2(path, flags), AT_FDCWD, path, flags);
}
RDS_ALIAS(__open64_2, __open_2);

int __openat_2(int dir, const char *path, int flags)
{
	return file_opened(libc_real.__openat_2(dir, path, flags), dir, path, flags);
}
RDS_ALIAS(__openat64_2, __openat_2);

int creat(const char *path, mode_t mode)
{
	return file_opened(libc_real.creat(path, mode), AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC);
}
RDS_ALIAS(creat64, creat);

FILE *fopen(const char *path, const char *mode)
{
	FILE *f = libc_real.fopen(path, mode);
	int fd;

	if (likely(f)) {
		rds_fds_clear(rds_fds_on() ? fileno(f) : -1);
		return f;
	}
	if (errno != ENOENT && errno != EACCES)
		return NULL; /* `mode` may be invalid */
	fd = proc_file_open(AT_FDCWD, path,
			    (mode[0] == 'r' && !strchr(mode, '+') ? O_RDONLY : O_WRONLY) |
				    (strchr(mode, 'e') ? O_CLOEXEC : 0));
	f = fd < 0 ? NULL : fdopen(rds_fds_clear(fd), mode);
	if (fd >= 0 && !f)
		libc_real.close(fd);
	return f;
}
RDS_ALIAS(fopen64, fopen);

DIR *opendir(const char *path)
{
	DIR *d = libc_real.opendir(path);
	int fd;

	if (likely(d)) {
		rds_fds_clear(rds_fds_on() ? dirfd(d) : -1);
		return d;
	}
	fd = proc_file_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(rds_fds_clear(fd));
	if (fd >= 0 && !d)
		libc_real.close(fd);
	return d;
}
