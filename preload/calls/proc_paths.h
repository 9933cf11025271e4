/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * proc_paths.h - the names in /proc and /sys by which programs look for RDS, for kernels that have
 * none of them.
 */
#ifndef PRELOAD_CALLS_PROC_PATHS_H
#define PRELOAD_CALLS_PROC_PATHS_H

#include <stdint.h>

enum proc_path_kind {
	PROC_PATH_DIR,
	PROC_PATH_FIXED,
	PROC_PATH_RECONNECT_MIN,
	PROC_PATH_RECONNECT_MAX,
	PROC_PATH_PING
};

struct proc_path {
	const char *name;
	enum proc_path_kind what;
	int64_t fixed; /* the number that the file holds */
	/* A file of the same kind that exists everywhere. Its status is reported. */
	const char *alike;
};

/*
 * A call on that name has failed, and errno tells why. Not NULL: it is one of these names, and it
 * does not exist (or a container hides it). Leaves errno as it is. `name` is the program's. It is
 * readable, since the kernel has read it, or NULL where the call needs no name.
 */
const struct proc_path *proc_path_missing(int dir, const char *name);
/* The file has been opened: notes what that tells of the program's age (rds_abi_note_numbers()). */
void proc_path_was_read(const struct proc_path *p);

#endif
