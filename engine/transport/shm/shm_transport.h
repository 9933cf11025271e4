/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * shm_transport.h - what progress and the root of the engine call of this transport, besides the
 * operations in its table.
 */
#ifndef ENGINE_TRANSPORT_SHM_SHM_TRANSPORT_H
#define ENGINE_TRANSPORT_SHM_SHM_TRANSPORT_H

struct rds_transport;

struct rds_transport *rds_shm_transport(void);
void rds_shm_reclaim(void); /* helper, between events */
void rds_shm_fork_child(void);  /* forked child */
/* Descriptors that wake peer `p`, for a program's thread (helper/fd_exchange.h). */
unsigned rds_shm_wake_fds_import(void *p, int *fds, unsigned nfds);

#endif
