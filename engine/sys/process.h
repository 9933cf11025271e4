/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * process.h - is this the process that started the engine? A forked child finds out without a
 * system call.
 */
#ifndef ENGINE_SYS_PROCESS_H
#define ENGINE_SYS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Word n, which is 0 at first, and 0 again in a forked child; -ENOMEM, or -ENOSYS where the kernel has no such
 * memory. 0 is the engine's, 1 that of the program's table of sockets (preload/fdtable).
 */
int os_process_word(unsigned n, _Atomic int **word);
/*
 * This process may have an engine from now on. -ENOMEM, or -ENOSYS where the kernel cannot wipe a
 * page at fork, which is logged.
 */
int os_process_mark(void);
void os_process_start(void); /* The process is marked, and the engine is started. */
/* The engine is started, and this process started it. */
bool os_process_is_started(void);
/* A fork has copied an engine into this process: its state must be forgotten without reading it. */
bool os_process_inherited(void);
void os_process_forget(void); /* forked child: nothing is inherited any more */
/*
 * Forked child: zeroes a large static variable that began as zeros.  Whole pages are dropped, since
 * to write one costs more than all else that a child forgets.
 */
void os_fork_zero(void *var, size_t len);
/* Forked child: locks and lists of threads and descriptors are as in a new process. */
void os_fork_child(void);
/* Called to forget an inherited engine. Set before any call runs. */
extern void (*os_process_fork_child)(void);

#endif
