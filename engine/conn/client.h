/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * client.h - what connections ask of the packages above them: of RDMA operations, whose pieces lie in their queues (rdma); of those who wait for room
 * (progress); of what goes to sockets that no process has (share).  Filled in before anything runs.
 */
#ifndef ENGINE_CONN_CLIENT_H
#define ENGINE_CONN_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/conn/conn.h"

struct rds_conn_client {
	/* ---- what is in the queue and belongs to an operation; tx held ---- */
	bool (*item_wanted)(const struct rds_queue_item *q); /* to be sent? */
	/* May it go now?  False: when some reads have been answered. */
	bool (*item_may_send)(struct rds_conn *conn, const struct rds_queue_item *q);
	/* The bytes of a piece, header first, malloc'ed.  NULL: not to be had; its operation has failed. */
	void *(*item_gather)(struct rds_conn *conn, struct rds_queue_item *q, bool *began);
	/* Before it is given to the transport: another's message may come behind it, while its own pieces have gone. */
	void (*item_sending)(struct rds_conn *conn, const struct rds_queue_item *q);
	void (*item_unsent)(struct rds_queue_item *q, bool began); /* there was no room for it */
	void (*item_unrouted)(struct rds_queue_item *q);	   /* there is nowhere for it to go */
	void (*item_leaves)(struct rds_queue_item *q);		   /* the queue, sent or not */

	/* ---- the queue; tx held ---- */
	/* What is first may not go.  True: something that has waited behind it is first now, and may. */
	bool (*queue_pass)(struct rds_conn *conn);
	/* It has left another connection's queue: gives it its number and its place. */
	void (*queue_insert)(struct rds_conn *to, struct rds_queue_item *q);
	void (*queue_insert_redirect)(struct rds_conn *conn, struct rds_queue_item *q); /* its number is the next */
	/* The message of these operations is going to wait in the queue. */
	void (*queue_attach)(struct rds_queue_item *q, struct rds_op *ops);
	/* Is it to wait in the queue, because of what went to other processes of that address? */
	bool (*queue_holds)(struct rds_conn *conn, struct rds_op *ops);
	void (*queue_drop_aborted)(struct rds_conn *conn); /* it is known which of them the peer has */
	void (*answers_flush)(struct rds_conn *conn);	   /* before anything else that goes out */
	void (*advertise)(struct rds_conn *conn);	   /* conn->nadvertise */

	/* ---- a message's end is told to its sender; tx held ---- */
	/* RDS_REPORT_END is set; not any more afterwards. */
	void (*report_end)(struct rds_queue_unacked *u, int status);
	bool (*report_aborted)(const struct rds_queue_unacked *u); /* ... it is one that is dropped */

	/* ---- the operations of a connection; rx and tx held ---- */
	/* Which of its messages are to be sent again, because their operations have been carried out? */
	void (*ops_judge)(struct rds_conn *conn);
	void (*ops_cancel)(struct rds_conn *conn, struct rds_sock *sk, uint16_t dport);
	/* It has broken: what was started is over; all: what was not, as well. */
	void (*ops_broken)(struct rds_conn *conn, bool all);

	/* ---- received; rx held ---- */
	enum rds_rx_verdict (*recv_piece)(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx);
	void (*recv_used_key)(struct rds_sock *sk, uint32_t rkey);
	/* A device has carried it out, or failed, or has data of it (up->op_done). */
	void (*op_done)(struct rds_conn *conn, uint64_t id, int err, uint64_t at, const void *data, size_t len);

	/* A transport has room again: whoever waits for that may try.  No lock held but rx or tx. */
	void (*room_made)(void);
	/*
	 * What waits for sockets of nobody goes to them in a way that outlives this process; the rest still waits.  control and tx held; returns
	 * what has gone, which is still to be released.
	 */
	struct rds_queue_item *(*mailbox_deliver)(struct rds_conn *unrouted);
	void (*mailbox_deliver_all)(void); /* no lock held */
};

extern struct rds_conn_client rds_conn_client;

/* It ends in this way: before rds_queue_unacked_release(), which says that it was acknowledged. */
static inline void rds_unacked_report_end(struct rds_queue_unacked *u, int status)
{
	if (unlikely(u->report & RDS_REPORT_END))
		rds_conn_client.report_end(u, status);
}

static inline bool rds_unacked_aborted(const struct rds_queue_unacked *u)
{
	return unlikely(u->report & RDS_REPORT_END) && rds_conn_client.report_aborted(u);
}

#endif
