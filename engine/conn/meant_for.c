/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * meant_for.c - a message that waits is for the socket that had its port when it was sent.
 *
 * On one host the kernel puts a message into the queue of a socket before sendto() returns, or drops it.  Here it may wait: for a connection that is
 * on its way up, for room, for a socket that changes hands.  If that socket is closed meanwhile, and another one has its port, of the same program
 * or a stranger's, the message is not for that one.  So whatever waits remembers the socket, by the number that the registry gives each (order),
 * and goes nowhere when the port has another one, or none.  Which socket it is, its sender has found out before (route.c); asked a second
 * time, the registry might say another one, or that it is just being changed.
 *
 * That look is for its sender: a message of a socket that is gone takes nobody's room.  It decides nothing: who has the port may be another one when the
 * message is there.  So the header names the socket as well, and the receiver, which has the sockets under its lock, drops what was meant for another one.
 * What was sent at once, and never waited, needs no name: through shared memory it is with the receiver before sendto() returns, and calls/bind.c has it taken,
 * and dropped, before a socket appears.
 *
 * Not covered: other hosts' sockets, whose names are not known here, and where the kernel promises no more; what was sent at once over a device, and is
 * on its way; messages that go with operations, whose end has to be told; what a broken connection has to send again; a moment in which nobody can say
 * who has the port.
 * Must not know where messages wait, and waits for nobody: it is asked with conn->tx held, by signal handlers, too, that have interrupted who has the
 * registry's lock.
 */
#include "engine/conn/conn.h"

static int port_sock_number(const struct rds_conn *conn, uint16_t port, uint64_t *sock)
{
	struct registry_owner own;
	int err = registry_lookup_nowait(rds_node_registry, &conn->id.faddr, port, conn->id.scope, &own);

	*sock = err ? 0 : own.order + 1;
	return err == -ENOENT ? 0 : err;
}

/* The sender's answer holds, whatever has become of the port since: to ask again would let what it sent to one socket go to the next one. */
void rds_queue_item_mean(const struct rds_conn *conn, struct rds_queue_item *q, const struct rds_sock_dst *to)
{
	if (q->meant_sock || q->op || !q->u.sk || conn->id.peer_slot == RDS_SLOT_REMOTE)
		return;
	q->meant_gen = to ? to->bind_gen : registry_generation(rds_node_registry);
	if (to)
		q->meant_sock = to->sock;
	else if (port_sock_number(conn, q->u.dport, &q->meant_sock))
		q->meant_sock = 0;
}

bool rds_queue_item_outlived(const struct rds_conn *conn, struct rds_queue_item *q)
{
	uint64_t gen, sock;

	if (!q->meant_sock)
		return false;
	gen = registry_generation(rds_node_registry);
	if (likely(gen == q->meant_gen))
		return false;
	if (port_sock_number(conn, q->u.dport, &sock))
		return false; /* it cannot be asked now */
	q->meant_gen = gen;
	return sock != q->meant_sock;
}

/* 32 bits of it: a port that has had 2^32 sockets while a message waited would be needed to mistake one. */
uint32_t rds_queue_item_sock(const struct rds_conn *conn, const struct rds_queue_item *q)
{
	return conn->id.peer_slot == RDS_SLOT_REMOTE || q->hdr.op ? 0 : (uint32_t)q->meant_sock;
}

bool rds_conn_is_meant_for(const struct rds_sock *sk, uint32_t named)
{
	return named == (uint32_t)(registry_sock_order(rds_node_registry, sk->reg_idx) + 1);
}
