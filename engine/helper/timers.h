/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * timers.h - what thread.c needs of the timers, beside helper.h.
 */
#ifndef ENGINE_HELPER_TIMERS_H
#define ENGINE_HELPER_TIMERS_H

/* The clock, in the program's table: 0 or -errno.  Before the helper starts. */
int rds_timers_open(void);
void rds_timers_close(void);
const struct os_fd *rds_timers_fd(void);
void rds_timers_forget(void); /* forked child */

/* Helper: */
void rds_timers_exported(int fd); /* the clock has this number in this table */
int rds_timers_watch(void);	  /* 0 or -errno */
void rds_timers_run_due(void);
/*
 * For how many milliseconds the helper may sleep; -1: until an event.  From now on a thread of the
 * program sets the clock for a timer that is due earlier.
 */
int rds_timers_timeout(void);

#endif
