/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * relay.h - several processes of this host reach another one as a whole over the connection of one of
 * them, the owner of the local address (relay.c).
 */
#ifndef ENGINE_CONN_RELAY_H
#define ENGINE_CONN_RELAY_H

#include "engine/conn/conn.h"

/* ---- control held ---- */
/* Is the owner of that address another process?  It becomes the peer of id. */
bool rds_relay_owner(const struct in6_addr *laddr, uint32_t scope, struct rds_conn_id *id);
/* The process number of the owner that lives, if it is another process; else 0. */
pid_t rds_relay_owner_pid(const struct in6_addr *laddr, uint32_t scope);
/* Makes this process the owner.  0 and *role; -EADDRINUSE: another process is. */
int rds_relay_take(const struct in6_addr *laddr, uint32_t scope, uint32_t *role);
void rds_relay_give_back(uint32_t role);
void rds_relay_warn_taken(const struct in6_addr *laddr); /* no lock needed; once */
bool rds_relay_is_passed_on(void);     /* an owner may have ended just now */
bool rds_relay_is_role(uint16_t port); /* is that port in the registry no socket's, but a role? */

enum rds_conn_relay rds_relay_of(enum rds_conn_kind kind, const struct rds_conn_id *id);
/* The connection to the node of a relayed connection with these addresses; NULL and *err. */
struct rds_conn *rds_relay_node_conn(const struct rds_conn_id *id, int *err);
/* rx held, too: a relayed connection is made, seldom is there. */
void rds_relay_begin(struct rds_conn *conn, struct rds_conn *node);
void rds_relay_end(struct rds_conn *conn); /* the peer has ended */
/* Has another process been asked to take messages with these addresses, and not taken them? */
bool rds_relay_still_held(const struct rds_conn_id *id);

/* ---- rx held ---- */
/* relay_had.c: has this process had the message already?  note: it has it now. */
bool rds_relay_had(const struct rds_conn *conn, const struct rds_hdr *hdr);
void rds_relay_note(const struct rds_conn *conn, const struct rds_hdr *hdr);
uint32_t rds_relay_number(const struct rds_hdr *hdr); /* as it goes with the message */
void rds_relay_had_forget(void);
/* Over a relayed connection, or from a node and for no socket of this process. */
enum rds_rx_verdict rds_relay_receive(struct rds_conn *conn, const struct rds_rx *rx);
void rds_relay_ports_changed(struct rds_conn *conn); /* relayed: the member's congested ports */
void rds_relay_map_came(struct rds_conn *node);
/* Adds the members' congested ports to a map for the node. */
void rds_relay_map_add(const struct rds_conn *node, unsigned char bytes[RDS_CONG_MAP_BYTES]);

/* ---- no lock, or conn->tx ---- */
void rds_relay_room(struct rds_conn *conn); /* relayed: messages may have gone */
unsigned rds_relay_waits(void);		    /* messages between two connections */
/*
 * The process ends before that time.  leave: nothing is taken from members any more.  leave_nodes: nor do
 * nodes get a connection.
 */
void rds_relay_leave(uint64_t until);
void rds_relay_leave_nodes(void);
bool rds_relay_has_left(void);
/* no lock held */
void rds_relay_run(void);
void rds_relay_forget(void); /* forked child */

#endif
