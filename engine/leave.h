/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * leave.h - sockets that change hands: the carrier leaves (leave.c), a holder takes over (adopt.c).  See share.h for the deposit.
 */
#ifndef ENGINE_LEAVE_H
#define ENGINE_LEAVE_H

#include "engine/share.h"
#include "engine/sock.h"

/*
 * What lies in a stand-in: the deposit (1: *d, fds our end and the file, if `take`; else it is left there, and may lie behind something else),
 * something else (0), or nothing (-EAGAIN).  Any process.
 */
int rds_deposit_read(int standin, bool take, struct rds_share_deposit *d, int fds[2]);

#endif
