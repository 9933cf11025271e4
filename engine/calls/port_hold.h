/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * port_hold.h - the name of a bound socket's port, which keeps other users from binding it and shows
 * them who has it. Without other users (RDS_PRELOAD_SHARE=user) all of it does nothing. control
 * held.
 */
#ifndef ENGINE_CALLS_PORT_HOLD_H
#define ENGINE_CALLS_PORT_HOLD_H

#include "engine/socket/socket.h"

/* A socket that can get the name, in sk->port_fd. 0 or -ENOMEM. */
int rds_call_port_open(struct rds_sock *sk);
/* Messages find the socket now: shows it to others. */
void rds_call_port_show(struct rds_sock *sk, bool moved);
/* hide: unless another process has taken the socket over. */
void rds_call_port_close(struct rds_sock *sk, bool hide);
/* This process has taken the socket over. */
void rds_call_port_take(struct rds_sock *sk);

#endif
