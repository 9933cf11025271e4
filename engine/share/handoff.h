/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * handoff.h - how a socket moves from its owner to another process.
 *
 * An owner that ends parks its sockets (handoff_out.c). A borrower takes a parked socket over and
 * becomes its owner (handoff_in.c). The parked packet and its file: protocol.h.
 */
#ifndef ENGINE_SHARE_HANDOFF_H
#define ENGINE_SHARE_HANDOFF_H

#include "engine/share/protocol.h"
#include "engine/socket/socket.h"

/* ---- handoff_state.c ---- */

/* Owner's end of the pair, state file, mailbox or -1, lease (lease.h) or -1. */
#define RDS_HANDOFF_FDS 4

/*
 * Sends a parked packet through `pair`, the owner's end, into the stand-in. mailbox and lease
 * may be -1. 0 or -errno. The caller keeps its descriptors.
 */
int rds_handoff_park(int pair, int file, int mailbox, int lease, uint64_t size);
bool rds_handoff_is_parked(int standin); /* there is a parked packet. Takes no descriptor */
/*
 * The same, and fds: copies of the owner's end, the lease and the mailbox. All are -1 if the packet
 * has no lease, or lies behind other packets; fds[2] is -1 also if there is no mailbox. 1, 0, or
 * -EMFILE.
 */
int rds_handoff_peek(int standin, int fds[3]);
/*
 * Takes the parked packet. If it has a lease, the caller must have the lock on the lease. 0, and
 * the descriptors, in the order of RDS_HANDOFF_FDS, are the caller's. has_lease: the caller has the
 * lease already, and gets no second descriptor of it. -EAGAIN: another process was quicker.
 * -EMFILE: the packet stays where it is.
 */
int rds_handoff_take_parked(int standin, bool has_lease, struct rds_handoff_packet *d, int fds[RDS_HANDOFF_FDS]);

/*
 * Writes state, receive queue, unsent messages and notifications, as far as there is room for them.
 * sk is not changed. rx held.
 */
int rds_handoff_write_state(struct rds_sock *sk, int fd, off_t *size);
/*
 * Appends a record and its bytes to the file, at *size.  False: there is no room for it, and the
 * log says that such records (what) are lost; *size is as before.
 */
bool rds_handoff_put(int fd, off_t *size, const void *record, size_t len, const void *bytes, size_t nbytes,
		     const char *what);
/*
 * The messages that an owner has shown in the stand-in before it was killed (conn/shown.h) go into the file: how many.
 * All other packets there go, too.  Not two threads at once.
 */
uint32_t rds_handoff_put_shown(int standin, int fd, off_t *size);
/* All but the counts of the records that follow the state in the file. */
void rds_share_state_fill(const struct rds_sock *sk, struct rds_share_state *st);
/*
 * Appends n messages to sk's receive queue, from a file that another process has written; *at moves
 * on. 0 or -errno: the messages before the bad one stay queued. rx held.
 */
int rds_handoff_read_messages(struct rds_sock *sk, const char **at, const char *end, uint32_t n);

/*
 * ---- handoff_unsent.c: the list sk->handoff; control held ----
 * take: moves the messages of sk that no transport was offered from the connections to the list;
 *   returns their number.
 * put: writes the list to the end of the file; returns how many messages have found room. rx may be
 *   held.
 * get: reads the list from such a file; *at moves on. 0, -EPROTO, -ENOMEM.
 * send: sends the list as if sk, which is in the list of sockets, had sent the messages just now.
 * drop: frees the list, unsent; the socket's new owner, if there is one, sends these messages.
 * counted: sk->snd includes the messages already.
 */
unsigned rds_handoff_unsent_take(struct rds_sock *sk);
uint32_t rds_handoff_unsent_put(const struct rds_sock *sk, int fd, off_t *size);
int rds_handoff_unsent_get(struct rds_sock *sk, const char **at, const char *end, uint32_t n);
void rds_handoff_unsent_send(struct rds_sock *sk, bool counted);
void rds_handoff_unsent_drop(struct rds_sock *sk, bool counted);

/* ---- mailbox.c ---- */

/* Makes the mailbox of the socket of that name: a listening descriptor, or -errno. */
int rds_mailbox_make(const struct rds_procid *name);
void rds_mailbox_keep_port(struct rds_sock *sk); /* puts a copy of sk->port_fd into it, if there is one */
/*
 * Appends the messages in the mailbox to sk's receive queue. To be called after the registry says
 * that the port is ours, since no sender puts messages there from then on, and before sk accepts
 * messages that are sent to it. 0, -EMFILE, -ENOMEM.
 */
int rds_mailbox_empty(int mailbox, struct rds_sock *sk);

/* ---- handoff_unbound.c (the rest is in rds.h) ---- */
void rds_handoff_unbound_forget(void); /* forked child */

/* mailbox.c: callbacks of rds_conn_client (conn/client.h). */
void rds_mailbox_deliver_all(void);
struct rds_queue_item *rds_mailbox_deliver(struct rds_conn *unrouted);

#endif
