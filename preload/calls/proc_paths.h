/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * proc_paths.h - the names by which programs look for RDS in /proc and /sys, for where the kernel has none.
 */
#ifndef PRELOAD_PATH_H
#define PRELOAD_PATH_H

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
	int64_t fixed;	   /* the number in it */
	const char *alike; /* what exists everywhere, and is of the same kind: its status is told */
};

/*
 * A call on that name has failed, errno says why.  One of these, and does it just not exist (or a container hides it)?  Leaves errno as it is.
 * `name` is the program's, and readable: the kernel has read it.  NULL where it need not be one.
 */
const struct proc_path *proc_path_missing(int dir, const char *name);
/* It has been opened: what does that say of the program's age? */
void proc_path_was_read(const struct proc_path *p);

#endif
