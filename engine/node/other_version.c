/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * other_version.c - says that processes of another version of the library are on this node. Their
 * file has another name (file.c), so the two never meet; nothing else would tell why.
 *
 * The first process of a version says so, once for all that come after it. Of the other file only
 * its name and the place of its locks are known, which are the same in every version.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/node/registry_impl.h"

#define READS_MOST 1024 /* of the directory, in which others may make files without end */

/* Not our own file under another name: to close it would drop our locks. */
static bool other_is_alone(int dir, const char *name)
{
	int fd = os_openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
	struct stat st;
	bool alone;

	if (fd < 0)
		return false;
	alone = !os_fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_nlink == 1;
	os_close(fd);
	return alone;
}

static bool other_lives(int dir, const char *name)
{
	int fd = other_is_alone(dir, name) ? os_openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0)
					   : -1;
	bool lives;

	if (fd < 0)
		return false;
	lives = os_lock_holder(fd, REG_SLOT_BYTE(0), REG_SLOT_BYTES_MAX) > 0;
	os_close(fd);
	return lives;
}

static void other_judge(const struct registry *reg, int dir, const char *own, const char *name)
{
	size_t same = (size_t)(strrchr(own, 'v') + 1 - own);

	if (strncmp(name, own, same) || !strcmp(name, own) || !name[same] ||
	    strspn(name + same, "0123456789") != strlen(name + same) || !other_lives(dir, name))
		return;
	rds_warn_once(
		"registry: another version of the library is in use on this node, version %.10s of %s: its programs "
		"and those of this version do not meet until they are started again",
		name + same, reg->path);
}

void reg_other_versions_tell(const struct registry *reg)
{
	_Alignas(struct dirent64) char buf[1024];
	char path[sizeof(reg->path)], *own;
	const struct dirent64 *entry;
	unsigned reads = READS_MOST;
	long n, at;
	int dir;

	memcpy(path, reg->path, sizeof(path));
	own = strrchr(path, '/');
	if (!own)
		return;
	*own++ = 0;
	dir = os_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	while (dir >= 0 && reads-- && (n = os_syscall(SYS_getdents64, dir, (long)buf, sizeof(buf), 0, 0, 0)) > 0) {
		for (at = 0; at < n; at += entry->d_reclen) {
			entry = (const struct dirent64 *)(const void *)(buf + at);
			other_judge(reg, dir, own, entry->d_name);
		}
	}
	if (dir >= 0)
		os_close(dir);
}
