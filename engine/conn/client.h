/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * client.h - what connections ask of the packages above them; filled in before the engine starts.
 *
 * rdma: operations, whose pieces lie in the queues.  progress: threads that wait for room.  share:
 * messages for sockets that have no owner.
 */
#ifndef ENGINE_CONN_CLIENT_H
#define ENGINE_CONN_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/conn/outgoing.h"

struct rds_conn_client {
	/* ---- messages of the queue that belong to an operation; tx held ---- */
	bool (*item_wanted)(const struct rds_queue_item *q); /* is it still to be sent? */
	/*
	 * May it go now?  False: too many reads are under way, or it waits for other operations.
	 */
	bool (*item_may_send)(struct rds_conn *conn, const struct rds_queue_item *q);
	/*
	 * The bytes of a piece, header first, from malloc().  NULL: the bytes cannot be read, and
	 * its operation has failed.
	 */
	void *(*item_gather)(struct rds_conn *conn, struct rds_queue_item *q, bool *began);
	/*
	 * Called before the piece goes to the transport.  Another operation's message may come
	 * behind it, while the pieces of its own have gone.
	 */
	void (*item_sending)(struct rds_conn *conn, const struct rds_queue_item *q);
	/* the transport had no room for it */
	void (*item_unsent)(struct rds_queue_item *q, bool began);
	/* it has no route and is dropped */
	void (*item_unrouted)(struct rds_queue_item *q);
	/* it leaves the queue, sent or not */
	void (*item_leaves)(struct rds_queue_item *q);

	/* ---- the queue; tx held ---- */
	/* The first message may not go.  True: a later one that may go is first now. */
	bool (*queue_pass)(struct rds_conn *conn);
	/* The message comes from another connection's queue: gives it a number and a place. */
	void (*queue_insert)(struct rds_conn *to, struct rds_queue_item *q);
	/* a redirect: gets the next number */
	void (*queue_insert_redirect)(struct rds_conn *conn, struct rds_queue_item *q);
	/* The message that goes with these operations is about to wait in the queue. */
	void (*queue_attach)(struct rds_queue_item *q, struct rds_op *ops);
	/* Must it wait in the queue, because of operations to other processes of that address? */
	bool (*queue_holds)(struct rds_conn *conn, struct rds_op *ops);
	/* called when it is known which aborted messages the peer has had: up to that number */
	void (*queue_drop_aborted)(struct rds_conn *conn, uint64_t all);
	/* called before any other message goes out */
	void (*answers_flush)(struct rds_conn *conn);
	void (*advertise)(struct rds_conn *conn); /* sends the keys of conn->nadvertise */

	/* ---- the end of a message is reported to its sender; tx held ---- */
	/* RDS_REPORT_END is set before the call and cleared by it. */
	void (*report_end)(struct rds_queue_unacked *u, int status);
	/* ... is it a message that is dropped, not sent? */
	bool (*report_aborted)(const struct rds_queue_unacked *u);
	/*
	 * ... the peer has acknowledged it: does it wait for the answer to an operation?  Then work
	 * is added when that comes.
	 */
	bool (*report_unanswered)(const struct rds_queue_unacked *u);

	/*
	 * An operation is about to come to this connection.  False: no memory.  Neither rx nor tx
	 * held.
	 */
	bool (*ops_prepare)(struct rds_conn *conn);

	/* ---- the operations of a connection; rx and tx held ---- */
	/*
	 * Finds which messages are to be sent again, because their operations have been carried
	 * out.
	 */
	void (*ops_judge)(struct rds_conn *conn);
	void (*ops_cancel)(struct rds_conn *conn, struct rds_sock *sk, uint16_t dport);
	bool (*ops_unfinished)(const struct rds_conn *conn); /* are there any?  rx held */
	/*
	 * The connection has broken: operations that were started are over; all: the others as
	 * well.
	 */
	void (*ops_broken)(struct rds_conn *conn, bool all);
	/*
	 * tx held, too.  The endpoint of such a connection is closed: what it has refused is known.
	 */
	void (*refusals_note)(struct rds_conn *conn, bool closed);

	/* This process becomes the owner of that address (relay.c), if it may.  control held. */
	bool (*claim_node)(const struct in6_addr *laddr, uint32_t scope);

	/* ---- received; rx held ---- */
	enum rds_rx_verdict (*recv_piece)(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx);
	void (*recv_used_key)(struct rds_sock *sk, uint32_t rkey);

	/*
	 * A transport has room again: wake the threads that wait for it.  No lock held but rx or
	 * tx.
	 */
	void (*room_made)(void);
	/*
	 * Moves waiting messages for sockets without an owner to their mailboxes, which outlive
	 * this process; the others still wait.  control and tx held.  Returns the moved messages,
	 * which are still to be released.
	 */
	struct rds_queue_item *(*mailbox_deliver)(struct rds_conn *unrouted);
	void (*mailbox_deliver_all)(void); /* no lock held */
};

extern struct rds_conn_client rds_conn_client;

/*
 * Reports that the message ends in this way.  To be called before rds_queue_unacked_release(),
 * which reports an acknowledgement.
 */
static inline void rds_unacked_report_end(struct rds_queue_unacked *u, int status)
{
	if (unlikely(u->report & RDS_REPORT_END))
		rds_conn_client.report_end(u, status);
}

static inline bool rds_unacked_unanswered(const struct rds_queue_unacked *u)
{
	return unlikely(u->report & RDS_REPORT_END) && rds_conn_client.report_unanswered(u);
}

static inline bool rds_unacked_aborted(const struct rds_queue_unacked *u)
{
	return unlikely(u->report & RDS_REPORT_END) && rds_conn_client.report_aborted(u);
}

#endif
