/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * tcp_transport.h - what progress and the root of the engine call of this transport, besides the
 * operations in its table.
 */
#ifndef ENGINE_TRANSPORT_TCP_TCP_TRANSPORT_H
#define ENGINE_TRANSPORT_TCP_TCP_TRANSPORT_H

struct rds_transport;

extern struct rds_transport rds_tcp;
unsigned rds_tcp_fd_exported(void *what, int *fds, unsigned nfds); /* takes RDS_EXPORT_TCP */
void rds_tcp_fork_child(void);					   /* forked child */

#endif
