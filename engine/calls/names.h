/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * names.h - a socket's names as sockaddr, shared by bind, connect and SO_PEERNAME.
 */
#ifndef ENGINE_CALLS_NAMES_H
#define ENGINE_CALLS_NAMES_H

#include "engine/socket/socket.h"

/*
 * Copies a program's address, as the generic layer does.  A length outside 0..128: -EINVAL;
 * unreadable: -EFAULT.  Bytes behind len are zero.  All later checks use the copy, so that the
 * program cannot change the address between two checks.
 */
int rds_call_copy_sockaddr(const struct sockaddr *addr, int len, struct sockaddr_storage *out);

/* Stores the peer's name in `out`; returns its length, or -ENOTCONN. */
int rds_call_peer_name(struct rds_sock *sk, struct sockaddr_storage *out);

#endif
