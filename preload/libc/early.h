/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * early.h - the raw versions of the interposed functions (early.c): start values of the table of
 * real functions.
 */
#ifndef PRELOAD_LIBC_EARLY_H
#define PRELOAD_LIBC_EARLY_H

#include "preload/libc/preload.h"

/* Several names share one early version: repeated identical declarations are legal C. */
#define RDS_SYM(name, ret, args, early) ret early args;
#include "preload/libc/symbols.def"
#undef RDS_SYM

/*
 * For what no system call does: looks libc's function up now and calls it. Constructors of the
 * program's libraries run before ours, so this may be needed before the library's own start. The
 * code after the macro serves a caller that comes out of the look-up itself (an allocator, for
 * example), or a libc that lacks the name.
 */
#define EARLY_CALL_LIBC(name, ...)                                                                                     \
	do {                                                                                                           \
		rds_libc_init();                                                                                       \
		if (libc_real.name != early_##name)                                                                    \
			return libc_real.name(__VA_ARGS__);                                                            \
	} while (0)

#endif
