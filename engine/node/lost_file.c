/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lost_file.c - finds the registry's file after it has been removed while programs use it. logind
 * does that when a user logs out (RemoveIPC).
 *
 * The programs go on with the file, which has no name any more; nothing tells them. So a process
 * that would make a new file first looks for a process that has a lock in a deleted file of the
 * same name. It opens that file through /proc. All processes meet there as before, and no sleeping
 * process has to be woken. The file with the name stays empty until the last process has left the
 * other one.
 *
 * Not found are the files of processes in other pid namespaces, and of processes that cannot be
 * examined (hidepid, not dumpable).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "engine/sys/os.h"
#include "engine/node/registry_impl.h"

#define LOOKS 3 /* a list of locks is no snapshot */

struct lost_search {
	struct stat st;	       /* of the file with the name */
	char name[512];	       /* what /proc shows as the name of a file without one */
	unsigned long ino;     /* of the file that is searched for just now */
	unsigned long another; /* the last file that did not fit */
	bool (*fits)(int fd);
	int fd;
	int err; /* the error that kept the search from looking everywhere */
};

/*
 * Opens a path for the search. If there is no free descriptor, the result of the search says
 * nothing about the file, so the error is kept.
 */
static int lost_open_path(struct lost_search *l, const char *path, int flags)
{
	int fd = os_open(path, flags | O_CLOEXEC, 0);

	if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
		l->err = fd;
	return fd;
}

static int lost_read_link(const char *path, char *text, size_t size)
{
	long n = os_syscall(SYS_readlinkat, AT_FDCWD, (long)path, (long)text, (long)size - 1, 0, 0);

	if (n >= 0)
		text[n] = 0;
	return (int)n;
}

static bool lost_file_is(const struct lost_search *l, int fd)
{
	struct stat st;

	return !os_fstat(fd, &st) && S_ISREG(st.st_mode) && !st.st_nlink && st.st_ino == l->ino &&
	       st.st_dev == l->st.st_dev && st.st_uid == l->st.st_uid;
}

/*
 * Opens the file behind the descriptor link of another process, which may have put any file there.
 * So the file is first examined through a descriptor that gives no access: no device is opened, and
 * no lock of ours is dropped. Only the examined file is opened.
 */
static int lost_open_link(struct lost_search *l, const char *link)
{
	char text[sizeof(l->name)], path[40];
	int seen, fd = -ENOENT;

	if (lost_read_link(link, text, sizeof(text)) < 0 || strcmp(text, l->name))
		return -ENOENT;
	seen = lost_open_path(l, link, O_PATH);
	if (seen < 0)
		return -ENOENT;
	if (lost_file_is(l, seen)) {
		snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", seen);
		fd = lost_open_path(l, path, O_RDWR | O_NONBLOCK | O_NOCTTY);
	}
	os_close(seen);
	if (fd >= 0 && !l->fits(fd)) {
		os_close(fd);
		fd = -ENOENT;
	}
	return fd;
}

/* -EACCES: the process cannot be examined. */
static int lost_search_process(struct lost_search *l, int pid)
{
	_Alignas(struct dirent64) char buf[1024];
	char path[64];
	long n, at;
	int dir, fd = -ENOENT;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = lost_open_path(l, path, O_RDONLY | O_DIRECTORY);
	while (dir >= 0 && fd < 0 && (n = os_syscall(SYS_getdents64, dir, (long)buf, sizeof(buf), 0, 0, 0)) > 0) {
		for (at = 0; at < n && fd < 0; at += ((struct dirent64 *)(void *)(buf + at))->d_reclen) {
			snprintf(path, sizeof(path), "/proc/%d/fd/%.20s", pid, ((struct dirent64 *)(void *)(buf + at))->d_name);
			fd = lost_open_link(l, path);
		}
	}
	if (dir >= 0)
		os_close(dir);
	return dir >= 0 ? fd : -EACCES;
}

/*
 * Parses a line such as "1: POSIX ADVISORY READ 1234 00:1a:5678 5 5". Does it name a process, and a
 * lock on the byte of its slot, or on the byte that it locks to get a slot?
 */
static void lost_judge_line(struct lost_search *l, const char *line)
{
	unsigned major, minor;
	unsigned long ino;
	long from, to;
	int pid;

	if (l->fd >= 0 || sscanf(line, "%*d: POSIX ADVISORY %*s %d %x:%x:%lu %ld %ld", &pid, &major, &minor, &ino, &from, &to) != 6)
		return;
	if (pid <= 0 || makedev(major, minor) != l->st.st_dev || ino == l->st.st_ino || ino == l->another || from != to ||
	    from > REG_AREA_BYTE(REG_AREAS - 1))
		return;
	l->ino = ino;
	l->fd = lost_search_process(l, pid);
	if (l->fd == -ENOENT)
		l->another = ino;
}

static void lost_read_locks(struct lost_search *l)
{
	int fd = lost_open_path(l, "/proc/locks", O_RDONLY);
	/*
	 * Locks that come and go between two reads make them miss other locks, so few reads are
	 * used.
	 */
	char buf[8192], *line, *end;
	size_t have = 0;
	ssize_t n;

	while (fd >= 0 && l->fd < 0 && (n = os_read(fd, buf + have, sizeof(buf) - 1 - have)) > 0) {
		have += (size_t)n;
		buf[have] = 0;
		for (line = buf; (end = strchr(line, '\n')); line = end + 1) {
			*end = 0;
			lost_judge_line(l, line);
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
	}
	if (fd >= 0)
		os_close(fd);
}

int reg_lost_find(int named, bool (*fits)(int fd))
{
	struct lost_search l = {.fits = fits, .fd = -1};
	char path[40];
	int n;

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", named);
	n = os_fstat(named, &l.st) ? -1 : lost_read_link(path, l.name, sizeof(l.name) - sizeof(" (deleted)"));
	if (n < 0)
		return -ENOENT;
	strcpy(l.name + n, " (deleted)");
	for (n = 0; n < LOOKS && l.fd < 0; n++) {
		l.another = 0;
		lost_read_locks(&l);
	}
	return l.fd >= 0 ? l.fd : l.err ? l.err : -ENOENT;
}
