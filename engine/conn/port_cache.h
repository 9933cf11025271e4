/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * port_cache.h - which process of another host has which port, as far as that was asked.
 *
 * Keyed by the other host's address and the port; a local address or TOS plays no part.  Control is held in every call.
 */
#ifndef ENGINE_CONN_PORT_CACHE_H
#define ENGINE_CONN_PORT_CACHE_H

#include "engine/wire/addr.h"
#include "engine/node/registry.h"

enum rds_route_port_state {
	RDS_PORT_UNKNOWN,
	RDS_PORT_ASKED,	 /* the answer is on its way */
	RDS_PORT_FOUND,	 /* a process has it */
	RDS_PORT_ABSENT, /* nobody had it when that was asked; for a while it is not asked again */
};

struct rds_route_port_owner {
	struct rds_procid proc;
	uint16_t cm_port; /* where that process listens */
};

/* owner is filled in with FOUND. */
enum rds_route_port_state rds_route_port_get(const struct rds_addr *dst, struct rds_route_port_owner *owner);
/* Who had it before it moved, if it did. */
bool rds_route_port_previous(const struct rds_addr *dst, struct rds_procid *was);

/* UNKNOWN -> ASKED.  False: as many questions as may be are on their way, or no memory. */
bool rds_route_port_ask(const struct rds_addr *dst);
/* Answers.  failed: nobody said anything. */
void rds_route_port_found(const struct rds_addr *dst, const struct rds_route_port_owner *owner);
void rds_route_port_absent(const struct rds_addr *dst);
void rds_route_port_failed(const struct rds_addr *dst);
/* `from` says that it has it no more, and another one has. */
void rds_route_port_moved(const struct rds_addr *dst, const struct rds_procid *from);
/* A process has ended. */
void rds_route_ports_drop_proc(const struct rds_procid *proc);

unsigned rds_route_ports_count(void); /* entries, for tests */
void rds_route_ports_forget(void);    /* forked child */

#endif
