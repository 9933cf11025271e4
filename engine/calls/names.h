/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * names.h - the sockaddr side of a socket's names, shared by bind, connect and SO_PEERNAME.
 */
#ifndef ENGINE_NAMES_H
#define ENGINE_NAMES_H

#include "engine/socket/socket.h"

/*
 * The generic layer's copy of a program's address: length outside 0..128 -EINVAL, unreadable -EFAULT.  What lies behind
 * len is zero.  Everything after this looks at the copy, so that the program cannot change it between two checks.
 */
int rds_call_copy_sockaddr(const struct sockaddr *addr, int len, struct sockaddr_storage *out);

/* The peer's name in `out`: its length, or -ENOTCONN. */
int rds_call_peer_name(struct rds_sock *sk, struct sockaddr_storage *out);

#endif
