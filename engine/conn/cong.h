/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * cong.h - congestion maps of ports, ours and the peers' (cong.c).
 */
#ifndef ENGINE_CONN_CONG_H
#define ENGINE_CONN_CONG_H

#include "engine/socket/socket.h"
#include "engine/wire/header.h"

struct rds_conn;

/* rx held */
struct rds_cong_map {
	struct rds_cong_map *next;
	struct in6_addr addr;
	/* a socket was bound to it; else it is another host's, for members that this process relays (relay.c) */
	bool bound;
	struct rds_conn *conns; /* local map: connections that get it */
	unsigned nports;	/* local map: congested ones */
	_Atomic uint64_t *words; /* RDS_CONG_MAP_BYTES; of a local map no page is used until a port is congested */
};
/* NULL: no socket of ours was ever bound to it */
struct rds_cong_map *rds_cong_map_find(const struct in6_addr *addr);
/*
 * Ports that the peer last reported as congested, modulo 64: for sleepers, when the peer is gone.
 */
uint64_t rds_cong_ports(const struct rds_conn *conn);
/* find or make; NULL no memory */
struct rds_cong_map *rds_cong_map_get(const struct in6_addr *addr);
int rds_cong_map_bind(const struct in6_addr *addr); /* peers may connect to the address; -ENOMEM */
/*
 * The congested ports of a peer.  Written under rx.  Senders look without it: mostly there is none,
 * which is one load, and a few ports are one word, which changes as a whole.
 */
struct rds_cong_far {
	/*
	 * up to four ports, from the lowest 16 bits on; 0: none; RDS_CONG_MANY: they are in the map
	 */
	_Atomic uint64_t few;
	/*
	 * Loop: the local map itself.  Else made when it is first needed, and kept until the
	 * connection ends, since a sender may be looking at it.
	 */
	_Atomic(struct rds_cong_map *) map;
};
#define RDS_CONG_MANY (UINT64_C(1) << 16) /* the first port of a list is not 0 */
bool rds_cong_far_look(const struct rds_cong_far *far, uint64_t few, uint16_t port);
/* Does the peer report the port as congested?  conn->tx held. */
static inline bool rds_cong_far_has(const struct rds_cong_far *far, uint16_t port)
{
	uint64_t few = atomic_load_explicit(&far->few, memory_order_acquire);

	return unlikely(few) && rds_cong_far_look(far, few, port);
}
/* a new connection: to its local map; loop: fcong as well */
int rds_cong_attach(struct rds_conn *conn);
void rds_cong_forget(void);		     /* forked child */
void rds_cong_detach(struct rds_conn *conn);
void rds_cong_check(struct rds_sock *sk); /* after rcv_bytes changed */
void rds_cong_publish(const struct rds_sock *sk); /* to rds-info */
void rds_cong_clear_port(struct rds_sock *sk);
/*
 * What is sent of the map (wire/header.h): returns its length.  whole: no list.  rx held, so that it
 * is the state of one moment.
 */
uint32_t rds_cong_map_write(const struct rds_cong_map *map, unsigned char to[RDS_CONG_MAP_BYTES], bool whole);
/* The map gets the ports of far, and is sent.  add: to those of a whole map. */
void rds_cong_map_copy(struct rds_cong_map *map, const struct rds_cong_far *far);
void rds_cong_far_add(const struct rds_cong_far *far, unsigned char bytes[RDS_CONG_MAP_BYTES]);
void rds_cong_received(struct rds_conn *conn, const void *data, uint32_t len);
void rds_cong_updated(uint64_t portmask); /* generation, monitors, sleepers */
void rds_cong_sock_add(struct rds_sock *sk); /* a send met a congested port */
/* the socket no longer waits for the next update, which may be long in coming */
void rds_cong_sock_del(struct rds_sock *sk);
void rds_cong_set_monitor(struct rds_sock *sk, bool on);
void rds_cong_resume(struct rds_sock *sk); /* it comes from another process */

#endif
