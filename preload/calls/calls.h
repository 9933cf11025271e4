/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * calls.h - what one file of this package does for another, and for the start of the library.
 */
#ifndef PRELOAD_CALLS_CALLS_H
#define PRELOAD_CALLS_CALLS_H

/* Standard streams that are RDS sockets, at the start of a program (stdio.c). */
void calls_stdio_start(void);
/*
 * A child is about to start that gets copies of descriptors, and no fork handler will run
 * (process.c).
 */
void calls_process_share(void);
void calls_process_quick_exit(void);

/* F_GETFL and F_SETFL of an RDS socket of any process, with libc's results (fd.c). */
int calls_fcntl_flags(int fd, int cmd, int flags);
/* After a prctl() that has succeeded (rights.c). */
void calls_prctl_follow(const long args[5]);

#endif
