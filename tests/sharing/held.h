/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * held.h - for test programs that are run a second time with sockets that are not their own: nothing may come out differently.
 */
#ifndef SHARING_HELD_H
#define SHARING_HELD_H

#include <stdbool.h>

#define HELD_KEEPERS 3

/*
 * socket(21, type, 0), called by another process, which is there until this one has ended; apart: by one that has opened none of the
 * last two.  -1: something failed.
 */
int held_socket(int type, bool apart);

#endif
