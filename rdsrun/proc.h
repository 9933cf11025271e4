/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * proc.h - what the kernel says of a process to everybody, or to its user.
 */
#ifndef RDSRUN_PROC_H
#define RDSRUN_PROC_H

#include <stdbool.h>
#include <sys/types.h>

#define PROC_UNKNOWN (-1)

struct proc_facts {
	bool known;
	char state; /* as ps has it: T is stopped */
	int uid, threads;
	int fds;	   /* of the program; PROC_UNKNOWN: it is not ours to know */
	char command[256]; /* with its arguments, as it was started; "" if it has none */
};

/* pid 0: nothing is known. */
void proc_look(pid_t pid, struct proc_facts *f);

#endif
