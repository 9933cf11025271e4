/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* tree.h - the processes below this one, whoever's children they are: all of them come to this one when their parent ends. */
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
bool tree_has(const struct tree *t, const char *name);
/* Ends all of them; how many cannot be ended. */
unsigned tree_kill(struct tree *t);
/* Where each thread is, to stderr; deep: with what is to be had of stacks. */
void tree_show(const struct tree *t, bool deep);

#endif
