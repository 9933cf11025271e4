/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * sockopt.h - level SOL_SOCKET (sockopt_generic.c) and what it shares with level SOL_RDS (sockopt.c).
 */
#ifndef ENGINE_SOCKOPT_H
#define ENGINE_SOCKOPT_H

#include "engine/socket/socket.h"

int rds_call_sol_socket_set(struct rds_sock *sk, int fd, int opt, const void *val, int len);
int rds_call_sol_socket_get(struct rds_sock *sk, int fd, int opt, void *val, socklen_t *len);

/* Of the process that calls, and not of the socket's: addresses and descriptors are in it.  For these sk is not looked at. */
bool rds_call_opt_is_local(int level, int opt);

/* An int at the beginning of a program's buffer: shorter -EINVAL, unreadable -EFAULT. */
int rds_call_opt_int(const void *val, int len, int *out);

/* conn_reset.c: RDS_CONN_RESET and RDS6_CONN_RESET, of the right length. */
int rds_call_conn_reset(const void *val);
int rds_call_conn_reset6(const void *val);

/* SO_SNDBUF or SO_RCVBUF as the generic layer sets it: at most max, doubled, at least the kernel's floor. */
int rds_call_set_sndbuf(struct rds_sock *sk, uint32_t val, uint64_t max);
int rds_call_set_rcvbuf(struct rds_sock *sk, uint32_t val, uint64_t max);

#endif
