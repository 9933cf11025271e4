/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * leave.h - sockets that change hands: the carrier leaves (leave.c), a holder takes over (adopt.c).  See share.h for the deposit.
 */
#ifndef ENGINE_LEAVE_H
#define ENGINE_LEAVE_H

#include "engine/share.h"
#include "engine/sock.h"

#define RDS_DEPOSIT_FDS 3 /* our end, the file, the inbox or -1 */

/*
 * What lies in a stand-in: the deposit (1: *d and fds, if `take`; else it is left there, and may lie behind something else),
 * something else (0), or nothing (-EAGAIN).  Any process.
 */
int rds_deposit_read(int standin, bool take, struct rds_share_deposit *d, int fds[RDS_DEPOSIT_FDS]);

/* Appends to a file, which becomes so much longer: 0 or -errno. */
int rds_deposit_put(int fd, off_t *at, const void *from, size_t len);
/* Messages from what another process has written go behind what is queued; *at moves on.  rx held.  0 or -errno; what came before that stays. */
int rds_deposit_messages(struct rds_sock *sk, const char **at, const char *end, uint32_t n);

/* ---- inbox.c ---- */
/* For the socket of that name: a listener, or -errno. */
int rds_inbox_make(const struct rds_procid *name);
/*
 * From now on nobody can leave anything there, and whoever tries knows it; what has been left goes behind what sk has queued.  Before the
 * registry says whose the port is: what is sent to that process comes after it.  0, -EMFILE, -ENOMEM.
 */
int rds_inbox_empty(int inbox, struct rds_sock *sk);

#endif
