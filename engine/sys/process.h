/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * process.h - is this the process that started the engine?  A forked child finds out without a system call.
 */
#ifndef ENGINE_SYS_PROCESS_H
#define ENGINE_SYS_PROCESS_H

#include <stdbool.h>

/* This process may have an engine now: -ENOMEM, or -ENOSYS where the kernel cannot wipe a page at fork, which is logged. */
int os_process_mark(void);
void os_process_start(void); /* marked, and the engine is there */
/* The engine is there and this process started it. */
bool os_process_is_started(void);
/* A fork has copied an engine into this process: it is to be forgotten, unread. */
bool os_process_inherited(void);
void os_process_forget(void);
/* An inherited engine is forgotten.  Filled in before anything runs. */
extern void (*os_process_fork_child)(void);

#endif
