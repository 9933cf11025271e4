/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * meant_for.c - a waiting message is for the socket that had its port when it was sent.
 *
 * On one host the kernel puts a message into the queue of a socket before sendto() returns, or
 * drops it.  Here the message may wait: for a connection that is coming up, for room, for a socket
 * that is handed over.  If its socket is closed meanwhile, another socket may bind the port, of the
 * same program or of another one.  The message is not for that one.  So each message that is kept
 * stores its socket, as the number that the registry gives each socket (order).  One that waits is
 * dropped when the port has another socket, or none.  One that is under way is followed by new
 * messages for the same socket only (route.c).  The sender has found the socket before.  A second
 * question could find another socket, or a registry that is just being changed.
 *
 * The check at the sender only frees room early: a message for a socket that is gone takes no room
 * of other messages.  It is not the decision, since the port may have another socket when the
 * message arrives.  So the header names the socket as well.  The receiver, which has the sockets
 * under its lock, drops a message that names another one.  A message that was sent at once and
 * never waited needs no name: through shared memory it is with the receiver before sendto()
 * returns, and calls/bind.c takes and drops it before a new socket appears.
 *
 * The sockets of another user have no numbers here.  A message that waits for one stores the user
 * instead, and is dropped when the port has passed to somebody else.
 *
 * Not covered: sockets of other hosts, whose numbers are not known here, and for which the kernel
 * promises no more; messages that were sent at once over a device and are on their way; messages
 * that go with operations, whose end has to be reported; a moment in which the registry cannot tell
 * who has the port; messages to another user that are handed off with the socket that sent them, or
 * that began to wait when nobody could tell which process has the port.  Must not know where
 * messages wait, and must not block: it is called with conn->tx held, also by signal handlers that
 * have interrupted a thread with the registry's lock.
 */
#include "engine/conn/outgoing.h"

/*
 * 32 bits of the number are enough: a mistake would need 2^32 sockets on the port while a message
 * waits.
 */
static int port_sock_number(const struct rds_conn *conn, uint16_t port, uint32_t *sock)
{
	struct registry_owner own;
	int err = registry_lookup_nowait(rds_node_registry, &conn->id.faddr, port, conn->id.scope, &own);

	*sock = err ? 0 : (uint32_t)(own.order + 1);
	return err == -ENOENT ? 0 : err;
}

/*
 * The sender's answer is kept, even if the port has changed since: a second question could give a
 * message that was sent to one socket to the next one.
 */
void rds_queue_item_mean(const struct rds_conn *conn, struct rds_queue_item *q, const struct rds_sock_dst *to)
{
	if (!q->meant_slot)
		q->meant_slot = rds_conn_others_slot(conn);
	if (to)
		q->meant_gen = to->bind_gen;
	if (to || q->u.sock || q->op || !q->u.sk || conn->id.peer_slot == RDS_SLOT_REMOTE)
		return;
	q->meant_gen = registry_generation(rds_node_registry);
	if (port_sock_number(conn, q->u.dport, &q->u.sock))
		q->u.sock = 0;
}

bool rds_queue_item_outlived(const struct rds_conn *conn, struct rds_queue_item *q)
{
	uint64_t gen;
	uint32_t sock;

	if (!q->u.sock || q->u.counted || q->op)
		return false;
	gen = registry_generation(rds_node_registry);
	if (likely(gen == q->meant_gen))
		return false;
	if (port_sock_number(conn, q->u.dport, &sock))
		return false; /* the registry cannot be asked now */
	q->meant_gen = gen;
	return sock != q->u.sock;
}

bool rds_queue_item_is_others(const struct rds_queue_item *q, const struct rds_conn_id *id)
{
	return unlikely(q->meant_slot) && id->peer_slot != q->meant_slot && id->peer_slot != REGISTRY_NOBODY;
}

uint32_t rds_queue_item_sock(const struct rds_conn *conn, const struct rds_queue_item *q)
{
	if (unlikely(q->u.counted) && conn->relay != RDS_RELAY_OWNER)
		return 0;
	return conn->id.peer_slot == RDS_SLOT_REMOTE || q->hdr.op ? 0 : q->u.sock;
}

bool rds_conn_is_meant_for(const struct rds_sock *sk, uint32_t named)
{
	return named == (uint32_t)(registry_sock_order(rds_node_registry, sk->reg_idx) + 1);
}
