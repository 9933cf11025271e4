/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * user_id.c - does a uid or gid from the kernel name one user?
 *
 * All users that this process's user namespace does not know have the same number there, mostly
 * 65534. If the process's own user is not known there, it has that number, too. Where all users are
 * known, as outside of containers, that number is a user like others: nobody.
 */
#include <fcntl.h>
#include <stdlib.h>

#include "engine/sys/os.h"

#define EVERYBODY UINT64_C(0xffffffff)

static ssize_t read_text(const char *path, char *buf, size_t room)
{
	int fd = os_open(path, O_RDONLY | O_CLOEXEC, 0);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = os_read(fd, buf, room - 1);
	os_close(fd);
	buf[n > 0 ? n : 0] = 0;
	return n;
}

/* Each line has three numbers: the first id inside, the first id outside, and how many ids. */
static bool id_map_is_full(const char *map)
{
	char buf[4096], *at = buf, *end;
	uint64_t sum = 0, n = 0;
	unsigned i;

	if (read_text(map, buf, sizeof(buf)) <= 0)
		return false;
	for (;; sum += n) {
		for (i = 0; i < 3; i++, at = end) {
			n = strtoull(at, &end, 10);
			if (end == at)
				return sum >= EVERYBODY;
		}
	}
}

static bool id_is_known(uint32_t id, const char *overflow, const char *map)
{
	char buf[16];
	uint32_t nobody = read_text(overflow, buf, sizeof(buf)) > 0 ? (uint32_t)strtoul(buf, NULL, 10) : 65534;

	return id != nobody || id_map_is_full(map);
}

bool os_uid_is_known(uid_t uid)
{
	return id_is_known(uid, "/proc/sys/kernel/overflowuid", "/proc/thread-self/uid_map");
}

bool os_gid_is_known(gid_t gid)
{
	return id_is_known(gid, "/proc/sys/kernel/overflowgid", "/proc/thread-self/gid_map");
}
