/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * start.h - the engine of a process starts: with its first socket, and with the first that is bound.
 */
#ifndef ENGINE_CALLS_START_H
#define ENGINE_CALLS_START_H

int rds_call_start_engine(void);  /* with the first socket: registry; control not held */
int rds_call_start_helper(void);  /* with the first bind: thread, transports; control held */
int rds_call_want_helper(void);	  /* the same for a wait that only the helper's timer ends; no lock held */
void rds_call_start_forget(void); /* forked child */

#endif
