/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * recv.h - a receive that another process asks for.
 */
#ifndef ENGINE_CALLS_RECV_H
#define ENGINE_CALLS_RECV_H

#include "engine/socket/socket.h"

/*
 * calls/recv.c: a receive for somebody else.  Never sleeps; may_wait: the caller would.  *taken: what was delivered, for rds_inc_free() or
 * putting back.
 */
ssize_t rds_call_recv_proxy(struct rds_sock *sk, int fd, struct msghdr *msg, int flags, bool may_wait,
			    struct rds_inc **taken);

#endif
