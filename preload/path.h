/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * path.h - the names by which programs look for RDS in /proc and /sys, for where the kernel has none.
 */
#ifndef PRELOAD_PATH_H
#define PRELOAD_PATH_H

#include <stdint.h>

enum path_what { PATH_DIR, PATH_FIXED, PATH_RECONNECT_MIN, PATH_RECONNECT_MAX, PATH_PING };

struct path {
	const char *name;
	enum path_what what;
	int64_t fixed;	   /* the number in it */
	const char *alike; /* what exists everywhere, and is of the same kind: its status is told */
};

/*
 * A call on that name has failed, errno says why.  One of these, and does it just not exist (or a container hides it)?  Leaves errno as it is.
 * `name` is the program's, and readable: the kernel has read it.  NULL where it need not be one.
 */
const struct path *path_missing(int dir, const char *name);
/* It has been opened: what does that say of the program's age? */
void path_was_read(const struct path *p);

#endif
