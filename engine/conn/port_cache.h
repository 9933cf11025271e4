/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * port_cache.h - which process of another host has which port, as far as the host was asked.
 *
 * The key is the other host's address and the port; local address and TOS do not matter.  control
 * is held in every call.
 */
#ifndef ENGINE_CONN_PORT_CACHE_H
#define ENGINE_CONN_PORT_CACHE_H

#include "engine/wire/addr.h"
#include "engine/node/registry.h"

enum rds_route_port_state {
	RDS_PORT_UNKNOWN,
	RDS_PORT_ASKED, /* the answer is outstanding */
	RDS_PORT_FOUND, /* a process has it */
	/* no process had it when the host was asked; not asked again for a while */
	RDS_PORT_ABSENT,
};

struct rds_route_port_owner {
	struct rds_procid proc;
	uint16_t cm_port; /* where that process listens */
};

/* Fills in owner with FOUND. */
enum rds_route_port_state rds_route_port_get(const struct rds_addr *dst, struct rds_route_port_owner *owner);
/* The previous process, if the port has moved. */
bool rds_route_port_previous(const struct rds_addr *dst, struct rds_procid *was);

/* UNKNOWN -> ASKED.  False: too many questions are outstanding, or no memory. */
bool rds_route_port_ask(const struct rds_addr *dst);
/* Answers.  failed: there was no answer. */
void rds_route_port_found(const struct rds_addr *dst, const struct rds_route_port_owner *owner);
void rds_route_port_absent(const struct rds_addr *dst);
void rds_route_port_failed(const struct rds_addr *dst);
/* `from` reports that another process has the port now. */
void rds_route_port_moved(const struct rds_addr *dst, const struct rds_procid *from);
/* A process has ended. */
void rds_route_ports_drop_proc(const struct rds_procid *proc);

unsigned rds_route_ports_count(void); /* entries, for tests */
void rds_route_ports_forget(void);    /* forked child */

#endif
