/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * start.h - how the engine of a process starts: with its first socket, and with its first bind.
 */
#ifndef ENGINE_CALLS_START_H
#define ENGINE_CALLS_START_H

/* With the first socket: opens the registry.  control not held. */
int rds_call_start_engine(void);
/* With the first bind: starts the helper and the transports.  control held. */
int rds_call_start_helper(void);
/* The same for a wait that only the helper's timer ends.  No lock held. */
int rds_call_want_helper(void);
void rds_call_fork_child(void);

#endif
