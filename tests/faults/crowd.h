/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * crowd.h - what the starter (crowd.c) and the processes of the crowd (crowd_member.c) share.
 */
#ifndef FAULTS_CROWD_H
#define FAULTS_CROWD_H

#include <signal.h>
#include <stdatomic.h>

#include "faults.h"

#define MOST 1024 /* processes */

/* In memory that all of them share. */
struct member {
	/* port, and which life of it that is, above; 0: not bound yet, or about to be killed */
	_Atomic uint32_t at;
	double complete; /* when it was */
};
#define AT(life, port) ((uint32_t)(life) << 16 | (port))
#define PORT(at) ((uint16_t)(at))
#define LIFE(at) ((uint16_t)((at) >> 16))

struct shared {
	_Atomic unsigned bound, complete, came; /* processes, processes, messages */
	_Atomic bool wrong;
};

/* crowd.c */
extern unsigned members, messages, descriptors, troubles;
extern uint64_t seed;
extern bool one_server, replaced, only_short;
extern struct member *all;
extern struct shared *shared;
extern int begin[2], over[2], leave[2]; /* pipes: when their first process closes them, it is so */
void shut(int *fd);

/* crowd_member.c; port 0: any */
void member(unsigned me, unsigned life, unsigned port) __attribute__((noreturn));

#endif
