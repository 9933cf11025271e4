/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload.h - the first include of every file of preload/: the interposed names, the real functions
 * behind them, and the one place where a -errno of the engine becomes errno.
 *
 * It must come first: libc's headers must not redirect the names that are defined here (64-bit
 * offsets) or make them inline (fortification).
 */
#ifndef PRELOAD_LIBC_PRELOAD_H
#define PRELOAD_LIBC_PRELOAD_H

#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <wordexp.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define RDS_TABLE __attribute__((section(".bss.tables"))) /* engine/sys/compiler.h */

#define PF_RDS_NUMBER 21

/* Prototypes for the names that libc exports without declaring, and the visibility of all names. */
#define RDS_SYM(name, ret, args, early) extern ret name args __attribute__((visibility("default")));
#include "preload/libc/symbols.def"
#undef RDS_SYM

/*
 * What the next library in line (usually libc) has under the same name. Raw system calls until
 * rds_libc_init() has replaced them.
 */
struct libc_real {
#define RDS_SYM(name, ret, args, early) ret(*name) args;
#include "preload/libc/symbols.def"
#undef RDS_SYM
};
extern struct libc_real libc_real;

/* The function reads more arguments than it is given, as libc's syscall() does. */
#define RDS_READS_GARBAGE __attribute__((no_sanitize_address))

/* A further name for a function of the same file. */
#if __has_attribute(copy)
#define RDS_COPY_ATTRIBUTES(target) __attribute__((copy(target)))
#else
#define RDS_COPY_ATTRIBUTES(target)
#endif
#define RDS_ALIAS(alias_name, target)                                                                                  \
	extern __typeof__(target) alias_name RDS_COPY_ATTRIBUTES(target)                                               \
		__attribute__((alias(#target), visibility("default")))

/* Looks the real functions up, once. Needed before the engine may sleep (real.c). */
void rds_libc_init(void);
/* From the kernel's convention (-errno) to libc's (-1 and errno). */
static inline long libc_result(long rc)
{
	if (unlikely(rc < 0)) {
		errno = (int)-rc;
		return -1;
	}
	return rc;
}

#endif
