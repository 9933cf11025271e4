/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdma.h - RDMA operations: what a sendmsg asks for, its way to the peer, its end.
 *
 * The story of an operation:
 *
 *   made        by sendmsg, from control messages (op_request.c); nobody else knows it
 *   listed      on its connection (op_send.c); its pieces go out, or wait in the queue, before the message that goes with it
 *   started     a transport was given one of its pieces: if the connection breaks it is over, and nothing of it is sent again
 *   over        the peer or the device has said so, the connection has broken, it was cancelled, or its socket was closed (op.c).  From
 *               then on nothing touches the program's memory for it.  If it failed, pieces and message that still wait are not sent.
 *   done        when those before it on its connection are: who is told of one knows that all before it to there (address and TOS) are
 *               over, as on a queue pair.  The peer's engine and devices would not keep to that by themselves.  What is dropped, cancelled or
 *               closed is done at once.
 *   reported    to its socket (notify.c), if that was wished
 *
 * It is freed when it is done and reported, and no piece of it waits any more.
 */
#ifndef ENGINE_RDMA_H
#define ENGINE_RDMA_H

#include "engine/abi/cmsg.h"
#include "engine/conn/client.h"
#include "engine/abi/rdma_args.h"
#include "engine/wire/op_header.h"

struct rds_op {
	struct rds_op *next, **prev; /* its connection's (rx) */
	struct rds_op *message_next; /* the next one of the same message */
	struct rds_op *report_next;  /* its socket's notifications (rx) */
	struct rds_sock *sk;	     /* held */
	struct rds_foreign_memory *memory; /* whose, if another process asked for it: its results go there (held) */
	void *copy;		     /* ... and what it writes is this */
	struct rds_conn *conn;	     /* rx; NULL: not listed */
	uint64_t id;
	uint64_t message; /* id of the first one of its message */
	enum rds_wire_op_kind kind;
	uint16_t dport;
	bool notify, recverr; /* report: the outcome; ... failure */
	bool short_notify;    /* in a record of 8 bytes */
	uint64_t token;
	/* rx */
	bool started, over, done;
	bool by_device; /* a device carries it out */
	bool alone;    /* ... without a message behind it */
	bool fence;    /* ... its message waits until a read is over (as asked for) */
	bool reading;  /* counts among those that the peer is to answer with data */
	bool fetch_offered; /* ... that take bytes out of our memory */
	_Atomic uint64_t
		fetch_word; /* what the peer must find there after it has taken them; else they are the program's again (fetch.c) */
	int status;	   /* RDS_RDMA_*, when over */
	unsigned refs; /* pieces and messages that wait, itself until it is done, its report */
	/* the barrier's age (barrier.c; rx) */
	bool has_id;
	uint32_t daddr; /* be32 */
	uint64_t barrier_id, id_addr;
	uint64_t after;				       /* its message goes when those up to this one are over */
	bool overtaken;				       /* ... and when it is over itself (op_order.c) */
	struct rds_conn *blocked_in;		       /* ... and waits in this one's queue */
	struct rds_op *order_next, **order_prev;       /* its socket's, until it is freed */
	/* what is told at a message's own end (async_send.c) */
	bool async_only;   /* that, and nothing else */
	bool with_message; /* an operation: with its message, if it is done by then */
	bool listed;	 /* with its socket: only the message's end is to come */
	bool arrived;	 /* an operation: its message has been acknowledged before it was over */
	bool unsure;	 /* ... it was not over when the connection broke: if the message has arrived, it is */
	bool aborted;	 /* ... dropped when the connection comes up, unless the peer has it */
	bool blocks_sends; /* has failed, or is about to, and is not read yet: what goes to `to` waits */
	bool handed_off;   /* the socket's next carrier is to tell it (share/handoff_unsent.c; control and rx) */
	struct in6_addr to;
	/* what it does */
	uint32_t rkey;
	uint64_t remote; /* offset in the region */
	uint64_t total;	 /* bytes */
	uint64_t got;	 /* of a read, so far (rx) */
	struct rds_atomic_request atomic;
	unsigned nlocal;
	struct iovec local[];
};

/* ---- made (op_request.c) ---- */

/* What the control messages of one sendmsg come to. */
struct rds_rdma_send {
	struct rds_op *ops; /* in the order in which they are carried out */
	bool silent;	    /* no message, if it has no bytes */
	bool message;	    /* ... there is one (calls/send.c) */
	bool asks;	    /* ... the peer's engine has to answer (calls/send.c) */
	bool at_once;	    /* ... and it has much to do for that */
	struct rds_op *async; /* the message's own end is to be told */
	uint64_t cookie;    /* to be told to the receiver; 0: none */
	uint64_t made;	    /* ... the cookie of a region that this call has made; 0: none */
	uint32_t used_rkey; /* RDS_EXTHDR_RDMA; 0: none */
};

/*
 * Rows 18 and 19 of rds-semantics 4.1: carries out what needs no peer.  sk->tx held.  -errno: nothing is left behind.
 */
int rds_rdma_parse(struct rds_sock *sk, const struct msghdr *msg, uint16_t dport, struct rds_rdma_send *out);
void rds_rdma_undo(struct rds_sock *sk, struct rds_rdma_send *send); /* the call fails: nothing of it was sent */

/* ---- messages whose own end is told (async_send.c) ---- */

struct rds_op *rds_op_async_new(struct rds_sock *sk, uint64_t token,
				bool notify); /* NULL: no memory.  No lock but sk->tx */
void rds_op_async_discard(struct rds_op *op); /* its message was not sent.  No lock but sk->tx */
void rds_op_async_end(struct rds_queue_unacked *u,
		      int status); /* RDS_REPORT_END is set; not any more afterwards.  conn->tx */
void rds_op_async_handoff(
	struct rds_sock *sk); /* as rds_ops_handoff(): what becomes of those that stay nobody knows.  rx */
void rds_op_async_reported(struct rds_op *op); /* its notification has been taken (any operation's).  rx */
void rds_op_async_block(struct rds_op *op);    /* it has failed, or is about to; op->to is set.  rx */
void rds_op_async_abort(struct rds_op *op);    /* the connection of the message has broken.  rx */
bool rds_op_async_aborted(const struct rds_queue_unacked *u); /* RDS_REPORT_END is set */
/* Operations of a socket that has asked for ends of messages: what becomes of them is told with their message.  They are not listed yet. */
void rds_op_async_attach(struct rds_queue_unacked *u, struct rds_op *ops);
void rds_op_async_defer(struct rds_op *op);	  /* such an operation is done.  rx */
void rds_op_async_detach(struct rds_op *op);	  /* ... its message is not sent.  rx */
bool rds_op_is_reported(const struct rds_op *op); /* over: is the program told?  rx */
/* ... not what the program has brought about itself. */
static inline bool rds_op_has_failed(const struct rds_op *op)
{
	return op->status != RDS_RDMA_SUCCESS && op->status != RDS_RDMA_CANCELED;
}
/* sk->nfailed: is there one that was to go there?  No lock but sk->tx.  ... and that it was so is why this thread's last send ended in EAGAIN. */
bool rds_op_async_refuses(struct rds_sock *sk, const struct in6_addr *to);
extern __thread bool rds_op_async_refused __attribute__((tls_model("initial-exec")));

/* ---- on its way (op_send.c); conn->tx held ---- */

/*
 * Lists the operations and gives all their pieces to the endpoint or the queue; the message is the caller's to send.  0, or -ENOMEM: nothing
 * of them goes any more.  Either way they are not the caller's any more from rds_ops_put() on.
 */
int rds_ops_xmit(struct rds_conn *conn, struct rds_op *ops, bool alone);
void rds_ops_take_back(struct rds_op *ops); /* the message could not be sent: nobody is told of them */
bool rds_ops_need_peer(const struct rds_op *ops); /* does the peer's engine have to do anything for them? */
void rds_ops_put(struct rds_op *ops);		  /* after the message */
/* Is it to wait in the queue, because of what went to other processes of that address? */
bool rds_ops_order_blocked(struct rds_conn *conn, struct rds_op *ops);
/* The message of these operations is going to wait in the queue. */
void rds_op_attach_queued(struct rds_queue_item *q, struct rds_op *ops);
/* What is in the queue and belongs to an operation: to be sent? */
bool rds_op_wanted(const struct rds_queue_item *q);
/* May it go now?  False: when some reads have been answered. */
bool rds_op_may_send(struct rds_conn *conn, const struct rds_queue_item *q);
/* The bytes of a piece in the queue, header first, malloc'ed.  NULL: not to be had; its operation has failed. */
void *rds_op_piece_gather(struct rds_conn *conn, struct rds_queue_item *q, bool *began);
void rds_op_piece_unsent(struct rds_queue_item *q, bool began); /* there was no room for it */
void rds_op_fail_unrouted(struct rds_queue_item *q);		/* there is nowhere for it to go */
void rds_op_detach_queued(struct rds_queue_item *q);		/* it leaves the queue, sent or not */
int rds_conn_send_once(struct rds_conn *conn, const struct rds_hdr *hdr,
		       const struct iovec *iov); /* once; as rds_conn_xmit_ep() */

/* ---- what goes before others (op_order.c); conn->tx held ---- */

/* It has left another connection's queue: gives it its number and its place. */
void rds_op_order_insert(struct rds_conn *to, struct rds_queue_item *q);
/* What is first may not go.  True: something that has waited behind it is first now, and may. */
bool rds_op_order_pass(struct rds_conn *conn);
/* Before it is given to the transport: another's message may come behind it, while its own pieces have gone. */
void rds_op_order_piece_sending(struct rds_conn *conn, const struct rds_queue_item *q);
/* What is first is a message that may have to wait for other connections. */
bool rds_op_order_head_ordered(const struct rds_conn *conn);
/* The answers that wait, before anything else that goes out. */
void rds_op_answers_flush(struct rds_conn *conn);
void rds_op_answers_drop(struct rds_conn *conn); /* rx held as well */
void rds_op_order_insert_redirect(struct rds_conn *conn, struct rds_queue_item *q); /* one of conn/port_moved.c, whose number is the next */

/* ---- the end (op.c) ---- */

void rds_op_discard(struct rds_op *op); /* never listed; no lock */
struct rds_op *rds_op_new(struct rds_sock *sk, enum rds_wire_op_kind kind, unsigned nlocal);
/* rx held for these */
void rds_op_list(struct rds_conn *conn, struct rds_op *op);
/* It is not done, and goes to another process of that address; before what is `next` of that one's, NULL: behind all. */
void rds_op_relist(struct rds_conn *to, struct rds_op *op, struct rds_op *next);
/* Listed: the peer or the device says so. */
void rds_op_end(struct rds_op *op, int status);
/* An operation is over, and the peer's engine may carry out some of it all the same: nobody can call that back. */
static inline void rds_op_strays_note(struct rds_conn *conn)
{
	atomic_store(&conn->strays, RDS_STRAYS_NEW);
}
/* Over and done, whatever is before it; what was over keeps its status. */
void rds_op_complete(struct rds_op *op, int status);
bool rds_op_is_quiet(const struct rds_op *op);	       /* a write that nobody waits for, but for a failure */
void rds_op_fetch_end(struct rds_op *op, bool broken); /* its bytes are the program's again */
void rds_op_put(struct rds_op *op);
/* Where the answer to it goes, if that is another process's (foreign_memory.h). */
struct rds_foreign_memory *rds_op_memory(struct rds_conn *conn, uint64_t id);
/* An answer has come. */
void rds_op_recv_answer(struct rds_conn *conn, const struct rds_wire_op_hdr *h, const void *data, size_t len);
/* A device has carried it out, or failed, or has data of it (up->op_done). */
void rds_op_device_done(struct rds_conn *conn, uint64_t id, int err, uint64_t at, const void *data, size_t len);
/*
 * The connection has broken: what was started is over; all: what was not, as well; behind_lost: if it is told with its message (async_send.c).
 */
void rds_ops_broken(struct rds_conn *conn, bool all, bool behind_lost);
/* Has a program for Oracle's kernels an operation under way? */
bool rds_ops_abort_needed(const struct rds_conn *conn);
/*
 * op_flush.c: ... and what has that cost a program for Oracle's kernels?  If anything, what it has sent since is not to arrive before it
 * sends that again: messages whose end is told are given up, and dropped when it is known which of them the peer has.  tx held as well.
 */
void rds_ops_conn_broken(struct rds_conn *conn, bool all);
bool rds_op_abort_needed(const struct rds_conn *conn);
void rds_op_abort_mark(struct rds_conn *conn);
void rds_op_drop_aborted(struct rds_conn *conn);
/* ... first, or, as long as it is up, somebody else is to have its messages; tx held as well: which are to be sent again because their operations have
 * been carried out? */
void rds_ops_judge(struct rds_conn *conn);
void rds_ops_cancel(struct rds_conn *conn, struct rds_sock *sk, uint16_t dport);
/* This process carries it no longer (share/handoff_out.c): what is not over by now is dropped, and that is reported.  control held. */
void rds_ops_handoff(struct rds_sock *sk);
void rds_ops_close(struct rds_sock *sk); /* the socket's last close */
/* A number of it is about to be closed: waits for what is under way, but not for long. No lock held. */
void rds_ops_drain(struct rds_sock *sk);

/* ---- the barrier's age (barrier.c); rx held but for the last ---- */

int rds_op_order_add(struct rds_op *op); /* it is listed: gives it its id. 0 or -ENOMEM */
void rds_op_order_del(struct rds_op *op);
bool rds_op_order_blocked(const struct rds_op *op);
void rds_op_order_end(struct rds_op *op, bool never_was);
void rds_op_order_moved(struct rds_op *op);				       /* ... to another connection */
int rds_op_barrier_set(struct rds_sock *sk, int fd, const void *val, int len); /* RDS_BARRIER; may sleep */
/*
 * The same in three steps, for a call that another process makes on a socket of this one: the first and the last in that process, without a
 * socket.  The middle one never sleeps: 1 if it would; bad: what the first one has said.
 */
int rds_op_barrier_decode(const void *val, int len, struct rds_barrier_request *req);
int rds_op_barrier_proxy(struct rds_sock *sk, int fd, int bad, struct rds_barrier_request *req, uint64_t *mark);
int rds_op_barrier_store(const struct rds_barrier_request *req, uint64_t mark);

/* ---- at the target (op_serve.c); rx held ---- */

enum rds_rx_verdict rds_op_recv_piece(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx);
/* A piece for the peer that has sent that, with so many bytes behind its header. NULL: no memory. */
struct rds_queue_item *rds_op_answer_new(const struct rds_hdr *to, size_t data);
void rds_conn_answer(struct rds_conn *conn,
		     struct rds_queue_item *q); /* goes before anything else; the connection's from now on */

/* ---- notifications (notify.c); rx held ---- */

void rds_notify_queue(struct rds_op *op); /* takes over a reference */
/* At least one waits: as many as there is room for in the control buffer.  0 or -EFAULT. */
int rds_notify_deliver(struct rds_sock *sk, struct rds_cmsg_out *out);
void rds_notify_drop(struct rds_sock *sk);

#endif
