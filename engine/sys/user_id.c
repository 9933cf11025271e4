/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * user_id.c - does a uid or gid from the kernel name one user?
 *
 * All users that this process's user namespace does not know have the same number there, mostly
 * 65534. If the process's own user is not known there, it has that number, too. Where all users are
 * known, as outside of containers, that number is a user like others: nobody.
 */
#include <fcntl.h>
#include <stdatomic.h>
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

/*
 * That number is the same for all of the host, and taken never to change.  It is read once: each peer's
 * user is checked.
 */
static uint32_t id_nobody(const char *overflow, _Atomic uint32_t *known)
{
	uint32_t id = atomic_load_explicit(known, memory_order_relaxed);
	char buf[16];

	if (id)
		return id;
	if (read_text(overflow, buf, sizeof(buf)) <= 0)
		return 65534;
	id = (uint32_t)strtoul(buf, NULL, 10);
	atomic_store_explicit(known, id, memory_order_relaxed);
	return id;
}

bool os_uid_is_known(uid_t uid)
{
	static _Atomic uint32_t known;

	return uid != id_nobody("/proc/sys/kernel/overflowuid", &known) || id_map_is_full("/proc/thread-self/uid_map");
}

bool os_gid_is_known(gid_t gid)
{
	static _Atomic uint32_t known;

	return gid != id_nobody("/proc/sys/kernel/overflowgid", &known) || id_map_is_full("/proc/thread-self/gid_map");
}
