/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fault_transport.h - the wrapper that breaks another transport.
 */
#ifndef ENGINE_TRANSPORT_FAULT_FAULT_TRANSPORT_H
#define ENGINE_TRANSPORT_FAULT_FAULT_TRANSPORT_H

struct rds_transport;

/* Wraps inner if RDS_PRELOAD_FAULT asks for it, else returns inner. */
struct rds_transport *rds_fault_transport(struct rds_transport *inner);

#endif
