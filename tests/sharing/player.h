/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player.h - the two halves of the coordinator: crew.c manages the processes; play.c and its files
 * (play.h) decide what they do.
 */
#ifndef PLAYER_H
#define PLAYER_H

#include <sys/types.h>

#include "model.h"

struct rules {
	unsigned ops, procs;
	bool exec, kill, pass, leave;			/* may happen at all */
	/* These may also happen to a process that has opened a socket which others have. */
	bool carrier_exec, carrier_kill, carrier_leave;
	bool strict; /* as the kernel: a port is free at once, all messages come in order */
	bool verbose;
	const char *address;
};

extern struct rules rules;

/* crew.c: each of these ends the sequence if it cannot be done, by failed(). */
void crew_start(unsigned procs);
void crew_stop(void);
void crew_tell(int place, const struct order *o);
struct answer crew_hear(int place);
struct answer crew_do(int place, const struct order *o);
void crew_born(int place, pid_t pid);
void crew_kill(int place);
void crew_gone(int place); /* wait until it is */
void crew_asleep(int place);

/* play.c */
bool play(uint64_t seed); /* false: something was other than the model says */
void failed(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void slowly(const char *what); /* says where it waits; another process may have to end the wait */
extern unsigned long steps_made, late_ports;

#endif
