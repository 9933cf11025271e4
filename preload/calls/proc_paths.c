/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * proc_paths.c - which of the names is meant (proc_paths.h).
 *
 * Must be quick to answer "none": programs look for many files that do not exist.
 */
#include "preload/libc/preload.h"

#include <string.h>

#include "preload/calls/proc_paths.h"
#include "engine/rds.h"

#define PROC_DIR "/proc/sys/net/rds"
#define MODULE_DIR "/sys/module/rds"
#define ALIKE_FILE "/proc/sys/kernel/ostype"
#define SOL_PUBLISHED 276
#define NUMBERS 2

static const struct proc_path paths[] = {
	{PROC_DIR "/pf_rds", PROC_PATH_FIXED, PF_RDS_NUMBER, ALIKE_FILE},
	{PROC_DIR "/sol_rds", PROC_PATH_FIXED, SOL_PUBLISHED, ALIKE_FILE},
	/* the two above are the first NUMBERS entries */
	{PROC_DIR "/reconnect_min_delay_ms", PROC_PATH_RECONNECT_MIN, 0, ALIKE_FILE},
	{PROC_DIR "/reconnect_max_delay_ms", PROC_PATH_RECONNECT_MAX, 0, ALIKE_FILE},
	{PROC_DIR "/max_unacked_packets", PROC_PATH_FIXED, 8, ALIKE_FILE},
	{PROC_DIR "/max_unacked_bytes", PROC_PATH_FIXED, 16777216, ALIKE_FILE},
	{PROC_DIR "/ping_enable", PROC_PATH_PING, 0, ALIKE_FILE},
	{PROC_DIR, PROC_PATH_DIR, 0, "/proc/sys/net"},
	{MODULE_DIR, PROC_PATH_DIR, 0, "/sys/module"},
};

/* Is `dir` (a directory, or AT_FDCWD) the first n characters of path? */
static bool proc_dir_is(int dir, const char *path, size_t n)
{
	char link[64], at[64];
	ssize_t len;

	if (dir == AT_FDCWD)
		len = getcwd(at, sizeof(at)) ? (ssize_t)strlen(at) : -1;
	else
		len = snprintf(link, sizeof(link), "/proc/self/fd/%d", dir) > 0 ? readlink(link, at, sizeof(at)) : -1;
	return len >= 0 && (size_t)len == (n ? n : 1) && memcmp(at, path, (size_t)len) == 0;
}

static const struct proc_path *proc_path_find(int dir, const char *name)
{
	size_t len = strlen(name);

	while (len > 1 && name[len - 1] == '/')
		len--;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		const struct proc_path *p = &paths[i];
		size_t full = strlen(p->name);

		if (name[0] == '/') {
			if (len == full && memcmp(name, p->name, full) == 0)
				return p;
		} else if (len && len < full && memcmp(p->name + full - len, name, len) == 0 &&
			   p->name[full - len - 1] == '/' && proc_dir_is(dir, p->name, full - len - 1)) {
			return p;
		}
	}
	return NULL;
}

static bool proc_path_is_unlikely(const char *name)
{
	return name[0] == '/' && strncmp(name, PROC_DIR, strlen(PROC_DIR)) != 0 &&
	       strncmp(name, MODULE_DIR, strlen(MODULE_DIR)) != 0;
}

const struct proc_path *proc_path_missing(int dir, const char *name)
{
	const struct proc_path *p;
	int saved = errno;

	if ((saved != ENOENT && saved != EACCES) || !name || proc_path_is_unlikely(name))
		return NULL;
	p = proc_path_find(dir, name);
	errno = saved;
	return p;
}

void proc_path_was_read(const struct proc_path *p)
{
	if (p - paths < NUMBERS)
		rds_abi_note_numbers(p->fixed == SOL_PUBLISHED);
}
