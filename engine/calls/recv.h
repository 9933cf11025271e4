/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * recv.h - a receive for another process.
 */
#ifndef ENGINE_CALLS_RECV_H
#define ENGINE_CALLS_RECV_H

#include "engine/socket/socket.h"

/*
 * A receive on behalf of a borrower.  Never sleeps.  may_wait: the borrower would wait if there is
 * nothing.  *taken: the delivered message, which the caller frees by rds_inc_free(), or puts back.
 */
ssize_t rds_call_recv_proxy(struct rds_sock *sk, int fd, struct msghdr *msg, int flags, bool may_wait,
			    struct rds_inc **taken);

#endif
