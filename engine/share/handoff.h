/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * handoff.h - sockets that change hands: the carrier leaves (handoff_out.c), a holder takes over (handoff_in.c).  See node/socket_name.h for the deposit.
 */
#ifndef ENGINE_LEAVE_H
#define ENGINE_LEAVE_H

#include "engine/node/socket_name.h"
#include "engine/socket/socket.h"

/* ---- handoff_state.c ---- */
#define RDS_HANDOFF_FDS 4 /* the carrier's end, the file, the inbox or -1, the will (lease.h) or -1 */

/* Leaves one in the program's end: 0 or -errno.  The descriptors stay the caller's. */
int rds_handoff_park(int pair, int file, int inbox, int will, uint64_t size);
bool rds_handoff_is_parked(int standin); /* one is there.  Takes no descriptor */
/*
 * The same, and fds: copies of the carrier's end, of the will and of the inbox, if there is a will and it is not behind something else; else -1, as
 * for an inbox that there is not.  1, 0, or -EMFILE.
 */
int rds_handoff_peek(int standin, int fds[3]);
/*
 * Takes it, which only who has the lock on the will does, if there is one: 0, and the caller's descriptors in that order.  has_will: that one is not
 * wanted.  -EAGAIN: somebody was quicker; -EMFILE: it stays where it is.
 */
int rds_handoff_take_parked(int standin, bool has_will, struct rds_handoff_packet *d, int fds[RDS_HANDOFF_FDS]);

/* Appends to a file, which becomes so much longer: 0 or -errno. */
int rds_handoff_append(int fd, off_t *at, const void *from, size_t len);
int rds_handoff_write_state(struct rds_sock *sk, int fd,
			    off_t *size); /* state and queue, which stays as it is.  rx held */
void rds_share_state_fill(const struct rds_sock *sk,
			  struct rds_share_state *st); /* but for the numbers of what follows it */
/* Messages from what another process has written go behind what is queued; *at moves on.  rx held.  0 or -errno; what came before that stays. */
int rds_handoff_read_messages(struct rds_sock *sk, const char **at, const char *end, uint32_t n);

/*
 * ---- handoff_unsent.c: sk->handoff; control held ----
 * take: what sk has sent and no transport was offered, from the connections; returns how many.  put: into the file, behind what is
 * there; returns how many have found room; rx may be held.  get: from such a file, of which *at moves on: 0, -EPROTO,
 * -ENOMEM.  send: as if sk, which is listed, had sent them just now.  drop: somebody else sends them.  counted: they
 * count as sent already.
 */
unsigned rds_handoff_unsent_take(struct rds_sock *sk);
uint32_t rds_handoff_unsent_put(const struct rds_sock *sk, int fd, off_t *size);
int rds_handoff_unsent_get(struct rds_sock *sk, const char **at, const char *end, uint32_t n);
void rds_handoff_unsent_send(struct rds_sock *sk, bool counted);
void rds_handoff_unsent_drop(struct rds_sock *sk, bool counted);

/* ---- orphan_inbox.c ---- */
/* For the socket of that name: a listener, or -errno. */
int rds_mailbox_make(const struct rds_procid *name);
/*
 * What has been left goes behind what sk has queued.  After the registry says that the port is ours, since then nobody leaves anything there, and
 * before sk takes what is sent to it.  0, -EMFILE, -ENOMEM.
 */
int rds_mailbox_empty(int inbox, struct rds_sock *sk);

/* ---- handoff_unbound.c (rds.h) ---- */
void rds_handoff_unbound_forget(void); /* forked child */

/* orphan_inbox.c: rds_conn_client's. */
void rds_mailbox_deliver_all(void);
struct rds_queue_item *rds_mailbox_deliver(struct rds_conn *unrouted);

#endif
