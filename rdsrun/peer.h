/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * peer.h - does RDS answer on another host?  For a process that has the library preloaded.
 */
#ifndef RDSRUN_PEER_H
#define RDSRUN_PEER_H

/*
 * Says on stdout what answers at `name`, or why nothing does.  `from`: the local address, NULL: the
 * one that routing chooses.  An exit status: 0 answered, 1 not, 2 wrong usage.
 */
int peer_check(const char *name, const char *from);

#endif
