/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * no_gnu_hash - librdsdlsym.so, where no object has the hash table that it reads
 * (--hash-style=sysv).
 */
#include <link.h>

#undef DT_GNU_HASH
#define DT_GNU_HASH 0x60000fff /* belongs to no one */
#include "preload/dlsym/dlsym.c"
