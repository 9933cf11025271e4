/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * held.h - for test programs that are run a second time with sockets that are not their own: nothing may come out differently.
 */
#ifndef SHARING_HELD_H
#define SHARING_HELD_H

/* socket(21, type, 0), called by another process, which is there until this one has ended.  -1: something failed. */
int held_socket(int type);

#endif
