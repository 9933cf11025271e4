/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * sockopt.h - level SOL_SOCKET (sockopt_generic.c), and the functions shared with level SOL_RDS
 * (sockopt.c).
 */
#ifndef ENGINE_CALLS_SOCKOPT_H
#define ENGINE_CALLS_SOCKOPT_H

#include "engine/socket/socket.h"

int rds_call_sol_socket_set(struct rds_sock *sk, int fd, int opt, const void *val, int len);
int rds_call_sol_socket_get(struct rds_sock *sk, int fd, int opt, void *val, socklen_t *len);

/*
 * Does the option concern the calling process, and not the socket?  Its value contains addresses or
 * descriptors of that process.  sk is not used for such options.
 */
bool rds_call_opt_is_local(int level, int opt);

/* Reads the int at the beginning of a program's buffer.  Shorter: -EINVAL; unreadable: -EFAULT. */
int rds_call_opt_int(const void *val, int len, int *out);

/* conn_reset.c: RDS_CONN_RESET and RDS6_CONN_RESET.  The length has been checked. */
int rds_call_conn_reset(const void *val);
int rds_call_conn_reset6(const void *val);

/*
 * SO_SNDBUF as the generic layer sets it: at most max, doubled, at least the
 * kernel's minimum.
 */
int rds_call_set_sndbuf(struct rds_sock *sk, uint32_t val, uint64_t max);

#endif
