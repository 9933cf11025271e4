/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * tree.h - the processes below this one, children of its children as well: all of them come to this
 * one when their parent ends.
 */
#ifndef WATCH_TREE_H
#define WATCH_TREE_H

#include <stdbool.h>
#include <sys/types.h>

struct process {
	pid_t pid, parent;
	unsigned long long began; /* with the number it is unique */
	unsigned long ticks;	  /* of processor time, also of its children that have ended */
	bool ours;
	char state, name[20];
};

struct tree {
	struct process *at;
	unsigned n, room;
};

void tree_look(struct tree *t);
/* Ticks of processor time that they have had between two looks. */
unsigned long tree_used(const struct tree *before, const struct tree *now);
/* A thread of them could run now, if there were a processor for it. */
bool tree_runs(const struct tree *t);
bool tree_has(const struct tree *t, const char *name);
/* Ends all of them; how many cannot be ended. */
unsigned tree_kill(struct tree *t);
/* As /proc shows it; '?': it is gone. */
char thread_state(pid_t pid, const char *tid);
/*
 * All of its threads are on their way out of the kernel.  Others see its descriptors closed before
 * it is gone, and may take that for its end: it is one.
 */
bool process_ends(pid_t pid);
/* Where each thread is, to stderr; deep: with what is to be had of stacks. */
void tree_show(const struct tree *t, bool deep);

#endif
