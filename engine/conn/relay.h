/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * relay.h - several processes of this host reach another one as a whole over the connection of one of
 * them, the owner of the local address (relay.c).
 */
#ifndef ENGINE_CONN_RELAY_H
#define ENGINE_CONN_RELAY_H

#include "engine/conn/outgoing.h"

#define RDS_RELAY_ROLE_PORT 1 /* the kernel's probes have it: no socket */

/* ---- relay_role.c: control held ---- */
/* Is the owner of that address another process?  It becomes the peer of id. */
bool rds_relay_owner(const struct in6_addr *laddr, uint32_t scope, struct rds_conn_id *id);
/* The process number of the owner that lives, if it is another process; else 0. */
pid_t rds_relay_owner_pid(const struct in6_addr *laddr, uint32_t scope);
/* Makes this process the owner.  0 and *role; -EADDRINUSE: another process is. */
int rds_relay_take(const struct in6_addr *laddr, uint32_t scope, uint32_t *role);
void rds_relay_give_back(uint32_t role);
void rds_relay_warn_taken(const struct in6_addr *laddr); /* no lock needed; once */
void rds_relay_owner_soon(bool *is, bool soon);		 /* *is: some process may be the owner soon; 0 at first */
void rds_relay_owner_seen(void);			 /* if it has ended, another one may */
bool rds_relay_is_passed_on(void);			 /* is one of these two true? */
void rds_relay_role_forget(void);			 /* forked child */
bool rds_relay_is_role(uint16_t port); /* is that port in the registry no socket's, but a role? */

/* What a new connection to that process knows of the node: RDS_NODE_TOLD if it is an owner that tells. */
uint8_t rds_relay_owner_tells(const struct rds_conn_id *id);
/* The connection to the node with these addresses: over the owner, if this process is not it.  NULL: there is none. */
struct rds_conn *rds_relay_way(const struct rds_conn_id *id);
/* Has another process been asked to take messages with these addresses, and not taken them? */
bool rds_relay_still_held(const struct rds_conn_id *id);

/* ---- control held ---- */
enum rds_conn_relay rds_relay_of(enum rds_conn_kind kind, const struct rds_conn_id *id);
/* The connection to the node of a relayed connection with these addresses; NULL and *err. */
struct rds_conn *rds_relay_node_conn(const struct rds_conn_id *id, int *err);
/* rx held, too: a relayed connection is made, seldom is there. */
void rds_relay_begin(struct rds_conn *conn, struct rds_conn *node);
void rds_relay_end(struct rds_conn *conn); /* the peer has ended */

/* ---- rx held ---- */
/* relay_had.c: has this process had the message already?  note: it has it now. */
bool rds_relay_had(const struct rds_conn *conn, const struct rds_hdr *hdr);
void rds_relay_note(const struct rds_conn *conn, const struct rds_hdr *hdr);
uint32_t rds_relay_number(const struct rds_hdr *hdr); /* as it goes with the message */
void rds_relay_had_forget(void);

/*
 * ---- relay_kept.c: what outlives the owner ----
 * control and rx.  begin: a relayed connection is made.
 */
void rds_relay_kept_begin(struct rds_conn *conn, struct rds_conn *node);
/* rx.  Keeps a message that comes over that connection.  False: not now.  *ref: NULL, it is not kept */
bool rds_relay_keep(struct rds_conn *node, const struct rds_conn *from, const struct rds_rx *rx,
		    struct rds_trunk_ref **ref);
/* rx.  Has the former owner taken that message of a member? */
bool rds_relay_former_took(const struct rds_conn *conn, const struct rds_rx *rx);
/* tx.  A message goes through another process, and gets a number for that. */
void rds_relay_count(struct rds_queue_unacked *u, struct rds_hdr *hdr);
/* tx.  A message with such a number goes to the node itself now: has the former owner taken it? */
bool rds_relay_was_taken(struct rds_conn *to, const struct rds_queue_item *q);
/* tx.  q->ref is the connection's, now that q has its number there. */
void rds_relay_is_queued(struct rds_conn *to, struct rds_queue_item *q);
/* tx.  They leave a relayed connection, with their refs. */
void rds_relay_is_taken(struct rds_conn *conn, struct rds_queue_item *list);
void rds_relay_acked(struct rds_conn *conn);		  /* tx: acked has changed, perhaps */
struct rds_trunk *rds_relay_trunk(struct rds_conn *conn); /* helper; up->trunk */
void rds_relay_kept_leave(void);			  /* this process ends, and takes nothing any more */
void rds_relay_kept_forget(void);			  /* forked child */
/* Helper, control: the box of that address; NULL: this process has none. */
const _Atomic int *rds_relay_box(const struct in6_addr *addr, uint32_t scope);
/* Does any process have the box of that address? */
bool rds_relay_box_exists(const struct in6_addr *addr, uint32_t scope);
/* control: another process is the owner of an address, and offers its box.  Begins to listen for that. */
void rds_relay_box_await(void);

/*
 * ---- relay_heir.c: this process becomes the owner; helper ----
 * Is there something left by a former owner?  -EAGAIN: that has not ended yet.  control.
 */
int rds_relay_heir_may(const struct in6_addr *addr, uint32_t scope);
void rds_relay_heir_take(const struct in6_addr *addr, uint32_t scope); /* control; it is the owner */
void rds_relay_heir_go_on(void);				       /* behind that, no lock */
void rds_relay_heir_forget(void);				       /* forked child */
/* rx: the message that is being received again has been kept already */
struct rds_trunk_ref *rds_relay_heir_ref(void);
/* Over a relayed connection, or from a node and for no socket of this process. */
enum rds_rx_verdict rds_relay_receive(struct rds_conn *conn, const struct rds_rx *rx);
void rds_relay_ports_changed(struct rds_conn *conn); /* relayed: the member's congested ports */
void rds_relay_map_came(struct rds_conn *node);
void rds_relay_node_told(struct rds_conn *conn, uint16_t node); /* RDS_NODE_*, from the owner */
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
void rds_relay_stay(void); /* it does not end: an exec has failed.  No lock held */
/* no lock held */
void rds_relay_run(void);
void rds_relay_node_changed(struct rds_conn *node); /* helper: it is up or down, or an attempt has failed */
void rds_relay_forget(void); /* forked child */

#endif
