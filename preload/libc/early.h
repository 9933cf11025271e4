/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* early.h - the start values of the table of real entry points; see early.c. */
#ifndef PRELOAD_EARLY_H
#define PRELOAD_EARLY_H

#include "preload/libc/preload.h"

/* Several names share one early version: repeated identical declarations are legal C. */
#define RDS_SYM(name, ret, args, early) ret early args;
#include "preload/libc/symbols.def"
#undef RDS_SYM

/*
 * What no system call does is libc's, looked up now: constructors of the program's libraries run before ours.  What
 * comes after this is the answer to who calls out of that look-up itself (an allocator, say), or where libc lacks the
 * name.
 */
#define EARLY_CALL_LIBC(name, ...)                                                                                     \
	do {                                                                                                           \
		rds_libc_init();                                                                                       \
		if (libc_real.name != early_##name)                                                                    \
			return libc_real.name(__VA_ARGS__);                                                            \
	} while (0)

#endif
