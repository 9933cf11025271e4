/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * node_show.h - rdsrun --node.  For a process that has the library preloaded.
 */
#ifndef RDSRUN_NODE_SHOW_H
#define RDSRUN_NODE_SHOW_H

#include <stdbool.h>

struct node_wanted {
	bool json, watch;
	double interval;     /* seconds; of watch */
	const char *metrics; /* the file; NULL: none */
};

/* An exit status. */
int node_show(const struct node_wanted *want);

#endif
