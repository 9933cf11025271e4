/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * os_user.c - who somebody is, by the number that the kernel shows of him.
 *
 * Everybody whom this process's user namespace does not know has the same number there, 65534 mostly, and so does this process if it is not known
 * there itself.  Where everybody is known, as outside of containers, that number is a user like others: nobody.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/os.h"

#define EVERYBODY UINT64_C(0xffffffff)

static ssize_t text_of(const char *path, char *buf, size_t room)
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

/* Lines of three numbers: the first here, the first outside, how many. */
static bool maps_everybody(const char *map)
{
	char buf[4096], *at = buf, *end;
	uint64_t sum = 0, n = 0;
	unsigned i;

	if (text_of(map, buf, sizeof(buf)) <= 0)
		return false;
	for (;; sum += n) {
		for (i = 0; i < 3; i++, at = end) {
			n = strtoull(at, &end, 10);
			if (end == at)
				return sum >= EVERYBODY;
		}
	}
}

static bool tells(uint32_t id, const char *overflow, const char *map)
{
	char buf[16];
	uint32_t nobody = text_of(overflow, buf, sizeof(buf)) > 0 ? (uint32_t)strtoul(buf, NULL, 10) : 65534;

	return id != nobody || maps_everybody(map);
}

bool os_uid_tells(uid_t uid)
{
	return tells(uid, "/proc/sys/kernel/overflowuid", "/proc/thread-self/uid_map");
}

bool os_gid_tells(gid_t gid)
{
	return tells(gid, "/proc/sys/kernel/overflowgid", "/proc/thread-self/gid_map");
}
