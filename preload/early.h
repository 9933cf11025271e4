/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* early.h - the start values of the table of real entry points; see early.c. */
#ifndef PRELOAD_EARLY_H
#define PRELOAD_EARLY_H

#include "preload.h"

/* Several names share one early version: repeated identical declarations are legal C. */
#define RDS_SYM(name, ret, args, early) ret early args;
#include "symbols.def"
#undef RDS_SYM

#endif
