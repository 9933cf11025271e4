/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * ping.h - empty messages to port 0, which a node itself answers.  For a process that has the library
 * preloaded.
 */
#ifndef RDSRUN_PING_H
#define RDSRUN_PING_H

#include <stdbool.h>

#include "rdsrun/addr.h"

double ping_now_ms(void); /* of a clock that nobody sets */
/* Until that time, by that clock, or until one of the events. */
bool ping_fd_wait(int fd, short events, double until);
/* fd: an RDS socket that is bound and does not block. */
bool ping_send(int fd, const struct addr *peer);
bool ping_answered(int fd, const struct addr *peer, double until);

/* The local address that routing takes for the peer.  0 or an errno. */
int ping_route(const struct addr *peer, struct addr *local);

/*
 * rdsrun --ping: one after the other, `count` of them, or until a signal comes (0); prints the round
 * trip time of each.  from: NULL: as routing has it.  An exit status: 0 if one was answered.
 */
int ping_show(const char *name, const char *from, const char *count);

#endif
