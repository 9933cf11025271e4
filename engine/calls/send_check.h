/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * send_check.h - the checks of sendmsg; 0 or -errno.
 */
#ifndef ENGINE_CALLS_SEND_CHECK_H
#define ENGINE_CALLS_SEND_CHECK_H

#include <sys/socket.h>

#include "engine/conn/outgoing.h"
#include "engine/socket/socket.h"

/* The name, the bound address, the scopes. sk->tx held. */
int rds_call_send_check_name(struct rds_sock *sk, const struct msghdr *msg, struct rds_addr *dst,
			     struct rds_sock_dst **slot);
/* Control messages and lengths, up to the copy of the bytes. cmsgs: RDS_HAS_*, if there are any. */
int rds_call_send_check_payload(struct rds_sock *sk, const struct msghdr *msg, int flags, struct rds_conn_outgoing *out,
				unsigned *cmsgs);

#endif
