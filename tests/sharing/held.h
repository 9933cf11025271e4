/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * held.h - for test programs that are run a second time as borrowers, with sockets that another
 * process owns: the results must be the same.
 */
#ifndef SHARING_HELD_H
#define SHARING_HELD_H

#include <stdbool.h>

#define HELD_KEEPERS 3

/*
 * socket(21, type, 0), called by another process, the keeper, which lives until this one has ended.
 * apart: by a keeper that has opened none of the last two.  -1: failed.
 */
int held_socket(int type, bool apart);

#endif
