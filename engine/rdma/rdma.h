/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdma.h - RDMA operations: what a sendmsg asks for, its way to the peer, its end.
 *
 * The life of an operation:
 *
 *   made      by sendmsg, from control messages (op_request.c); no other thread knows it
 *   listed    on its connection (op_send.c); its pieces are sent, or wait in the queue, before the
 *             message that belongs to it
 *   started   a transport was given one of its pieces: if the connection breaks, the operation
 *             ends, and nothing of it is sent again
 *   over      it has ended: the peer or the device has answered, the connection has broken, it was
 *             cancelled, or its socket was closed (op.c).  From then on nothing touches the
 *             program's memory for it.  If it failed, pieces and message that still wait are not
 *             sent.
 *   done      it is complete: all operations before it on its connection are over.  So a program
 *             that is told of one operation knows that all before it to the same address and TOS
 *             are over, as on a queue pair.  The peer's engine and devices do not keep that order
 *             by themselves.  An operation that is dropped, cancelled or closed is done at once.
 *   reported  to its socket (notify.c), if the program asked for it
 *
 * It is freed when it is done and reported, and no piece of it waits any more.
 */
#ifndef ENGINE_RDMA_RDMA_H
#define ENGINE_RDMA_RDMA_H

#include "engine/abi/cmsg.h"
#include "engine/conn/client.h"
#include "engine/abi/rdma_args.h"
#include "engine/wire/op_header.h"

struct rds_op {
	struct rds_op *next, **prev; /* in the list of its connection (rx) */
	struct rds_op *message_next; /* the next one of the same message */
	struct rds_op *report_next;  /* in the list of its socket's notifications (rx) */
	struct rds_sock *sk;	     /* reference held */
	/* results go there, if another process asked for it (reference held) */
	struct rds_foreign_memory *memory;
	void *copy;		     /* what such an operation writes, copied from that process */
	struct rds_conn *conn;	     /* rx; NULL: not listed */
	uint64_t id;
	uint64_t message; /* id of the first operation of its message */
	enum rds_wire_op_kind kind;
	uint16_t dport;
	bool notify, recverr; /* report the outcome; report a failure */
	bool short_notify;    /* report it in a record of 8 bytes */
	uint64_t token;
	/* rx */
	bool started, over, done;
	bool by_device; /* a device carries it out */
	bool alone;	/* no message follows it */
	bool left;	/* its socket is closed, and it goes on (op.c) */
	bool fence;	/* its message waits until this read is over, as the program asked for */
	bool reading;	/* counted in the connection's `reading`: the peer is to answer with data */
	/* the peer may take its bytes from our memory (counted in its offered_bytes) */
	bool fetch_offered;
	/*
	 * The value that the peer must find here after it has taken the bytes.  If it finds another
	 * one, the bytes belong to the program again, and the peer must not use them.
	 */
	_Atomic uint64_t fetch_word;
	int status;    /* RDS_RDMA_*, once it is over */
	unsigned refs; /* pieces and messages that wait; one until it is done; its report */
	/* programs that use RDS_BARRIER (barrier.c; rx) */
	bool has_id;
	uint32_t daddr; /* be32 */
	uint64_t barrier_id, id_addr;
	/* its message waits until the operations up to this id are over */
	uint64_t after;
	/* and until it is over itself (op_order.c) */
	bool overtaken;
	/* its message waits in the queue of this connection */
	struct rds_conn *blocked_in;
	struct rds_op *order_next, **order_prev; /* in sk->ordered_ops, until it is freed */
	/* reports of a message's own end (async_send.c) */
	bool async_only;   /* stands for the message alone: there is no operation */
	bool with_message; /* an operation: reported with its message, if it is done by then */
	bool listed;	   /* in sk->async_sends: only the end of the message is to come */
	bool awaited;	   /* an operation: its message is acknowledged, and ends when it is over */
	/*
	 * It was started, and dropped before the peer had answered: the end of its message tells
	 * more.  A write whose message has arrived has succeeded.
	 */
	bool unsure;
	bool aborted; /* dropped when the connection comes up again, unless the peer has it */
	/*
	 * It has failed, or is about to, and the program has not read that yet.  Sends to the
	 * address `to` are refused.
	 */
	bool blocks_sends;
	/* the next owner of the socket reports it (share/handoff_unsent.c; control and rx) */
	bool handed_off;
	struct in6_addr to;
	/* the request */
	uint32_t rkey;
	uint64_t remote; /* offset in the region */
	uint64_t total;	 /* bytes */
	uint64_t got;	 /* bytes of a read that have arrived so far (rx) */
	struct rds_atomic_request atomic;
	unsigned nlocal;
	struct iovec local[];
};

#define RDS_ADVERTISE_MAX 8
#define RDS_REMOTE_MR_BUCKETS 32
#define RDS_FAILED_MAX 8
/*
 * What a connection that carries operations has for them.  It is made before the first one is
 * listed or served, and stays until the connection ends.  rx.
 */
struct rds_conn_rdma {
	/* unfinished operations to this peer, oldest first */
	struct rds_op *ops, **ops_tail;
	unsigned nover;	  /* number of those that have ended and wait for those before them */
	unsigned nfailed; /* messages of operations that have failed (op.c) */
	uint64_t failed[RDS_FAILED_MAX], failed_to;
	uint64_t reading; /* bytes of reads under way */
	/* bytes of our memory that the peer is to take (written under rx) */
	_Atomic uint64_t offered_bytes;
	/* unsent answers to the peer's operations; conn->nanswers is their number */
	struct rds_queue_item *answers, **answers_tail;
	uint64_t void_op; /* the last one that failed here; conn->void_message is its message */

	/*
	 * Regions that devices reach: our own that the peer knows, keys that are still to be
	 * advertised (conn->nadvertise), the peer's.
	 */
	struct rds_mr_advert *adverts;
	uint32_t advertise[RDS_ADVERTISE_MAX];
	struct rds_remote_mr *remote_mrs[RDS_REMOTE_MR_BUCKETS];
	_Atomic unsigned nremote_mrs;
	_Atomic unsigned device_reads; /* that devices carry out now; written under rx */
	bool mute;		       /* the peer has not acknowledged that a region is revoked */
	/* a region that a device reads is revoked: the answer waits for the reads */
	bool fence_answers;
	/*
	 * Operations have ended here that the peer's engine may still carry out, until it
	 * acknowledges this number (op_device.c); 0: none.  NEW (set under rx): the number is set
	 * by the next look (tx).
	 */
	_Atomic uint64_t strays;
#define RDS_STRAYS_NEW UINT64_MAX
};
/* The connection is about to carry an operation.  False: no memory.  rx not held; tx may be. */
bool rds_ops_prepare(struct rds_conn *conn);
bool rds_ops_prepare_rx(struct rds_conn *conn); /* the same, rx held */
/* The oldest unfinished operation.  rx. */
static inline struct rds_op *rds_ops_first(const struct rds_conn *conn)
{
	return conn->rdma ? conn->rdma->ops : NULL;
}

bool rds_ops_unfinished(const struct rds_conn *conn); /* rx */

/* ---- making (op_request.c) ---- */

/* The result of the control messages of one sendmsg. */
struct rds_rdma_send {
	struct rds_op *ops; /* in the order in which they are carried out */
	bool silent;	    /* no message is sent if it has no bytes */
	bool message;	    /* a message is sent (calls/send.c) */
	bool asks;	    /* the peer's engine has to answer (calls/send.c) */
	bool at_once;	    /* and that is much work for it */
	struct rds_op *async; /* reports the end of the message itself */
	uint64_t cookie;      /* to be delivered to the receiver; 0: none */
	uint64_t made;	      /* cookie of a region that this call has made; 0: none */
	uint32_t used_rkey; /* RDS_EXTHDR_RDMA; 0: none */
};

/*
 * Carries out what needs no peer (net/rds/send.c: rds_cmsg_send()).  sk->tx held.  -errno: nothing
 * is left behind.
 */
int rds_rdma_parse(struct rds_sock *sk, const struct msghdr *msg, uint16_t dport, struct rds_rdma_send *out);
/* The call fails, and nothing of it was sent. */
void rds_rdma_undo(struct rds_sock *sk, struct rds_rdma_send *send);

/* ---- messages whose own end is reported (async_send.c) ---- */

/* NULL: no memory.  No lock held but sk->tx. */
struct rds_op *rds_op_async_new(struct rds_sock *sk, uint64_t token, bool notify);
/* Its message was not sent.  No lock held but sk->tx. */
void rds_op_async_discard(struct rds_op *op);
/* RDS_REPORT_END is set before, and cleared afterwards.  conn->tx held. */
void rds_op_async_end(struct rds_queue_unacked *u, int status);
/*
 * As rds_ops_handoff(), for messages that are not handed off: their outcome is unknown.  rx held.
 */
void rds_op_async_handoff(struct rds_sock *sk);
/* The program has taken its notification; for any operation.  rx held. */
void rds_op_async_reported(struct rds_op *op);
/* It has failed, or is about to; op->to is set.  rx held. */
void rds_op_async_block(struct rds_op *op);
/* The connection of its message has broken.  rx held. */
void rds_op_async_abort(struct rds_op *op);
/* The message is not given up after all.  It blocks sends until its end is known. */
void rds_op_async_resume(struct rds_op *op);
bool rds_op_async_aborted(const struct rds_queue_unacked *u); /* RDS_REPORT_END is set. */
/*
 * RDS_REPORT_END is set, and the peer has acknowledged the message.  Are any of its operations not
 * over?  When they are, work is added to the connection.
 */
bool rds_op_async_unanswered(const struct rds_queue_unacked *u);
/*
 * For a socket that has asked for reports of messages: these operations are reported with their
 * message.  They are not listed yet.
 */
void rds_op_async_attach(struct rds_queue_unacked *u, struct rds_op *ops);
void rds_op_async_defer(struct rds_op *op); /* Such an operation is done.  rx held. */
/* The message of such an operation is not sent.  rx held. */
void rds_op_async_detach(struct rds_op *op);
/* For an operation that is over: is it reported to the program?  rx held. */
bool rds_op_is_reported(const struct rds_op *op);
/* A cancellation is no failure: the program has asked for it. */
static inline bool rds_op_has_failed(const struct rds_op *op)
{
	return op->status != RDS_RDMA_SUCCESS && op->status != RDS_RDMA_CANCELED;
}
/*
 * Only if sk->nfailed: does a failed operation or message for that address block sends to it?  No
 * lock held but sk->tx.  rds_op_async_refused keeps the answer: the reason why this thread's last
 * send ended in EAGAIN.
 */
bool rds_op_async_refuses(struct rds_sock *sk, const struct in6_addr *to);
extern __thread bool rds_op_async_refused __attribute__((tls_model("initial-exec")));

/* ---- sending (op_send.c); conn->tx held ---- */

/*
 * Lists the operations, and gives all their pieces to the endpoint or the queue.  The caller sends
 * the message.  0, or -ENOMEM: no operation goes any more.  In both cases the caller calls
 * rds_ops_put(), and must not use them afterwards.
 */
int rds_ops_xmit(struct rds_conn *conn, struct rds_op *ops, bool alone);
/* The message could not be sent: the operations are not reported. */
void rds_ops_take_back(struct rds_op *ops);
bool rds_ops_need_peer(const struct rds_op *ops); /* Has the peer's engine any work for them? */
void rds_ops_put(struct rds_op *ops);		  /* after the message */
/*
 * Must the message wait in the queue, for operations that went to other processes of the same
 * address?
 */
bool rds_ops_hold_message(struct rds_conn *conn, struct rds_op *ops);
/* The message of these operations will wait in the queue. */
void rds_op_attach_queued(struct rds_queue_item *q, struct rds_op *ops);
/* Is this queued item of an operation still to be sent? */
bool rds_op_wanted(const struct rds_queue_item *q);
/*
 * May it go now?  If not: it may when some reads have been answered, or operations before it have
 * ended.
 */
bool rds_op_may_send(struct rds_conn *conn, const struct rds_queue_item *q);
/*
 * The bytes of a queued piece, header first, from malloc().  NULL: they cannot be read, and the
 * operation has failed.
 */
void *rds_op_piece_gather(struct rds_conn *conn, struct rds_queue_item *q, bool *began);
/* the transport had no room for it */
void rds_op_piece_unsent(struct rds_queue_item *q, bool began);
void rds_op_fail_unrouted(struct rds_queue_item *q); /* there is no route for it */
/* it leaves the queue, sent or not */
void rds_op_detach_queued(struct rds_queue_item *q);
/*
 * Sends it; it is not sent again if the connection breaks.  refused: rds_queue_unacked.refused.
 * Returns as rds_conn_xmit_ep() does.
 */
int rds_op_send_once(struct rds_conn *conn, const struct rds_hdr *hdr, const struct iovec *iov, uint64_t refused);

/* ---- the order in the queue (op_order.c); conn->tx held ---- */

/* The item has left another connection's queue: gives it its number and its place here. */
void rds_op_order_insert(struct rds_conn *to, struct rds_queue_item *q);
/*
 * The first item may not go.  True: an item that has waited behind it is the first one now, and may
 * go.
 */
bool rds_op_order_pass(struct rds_conn *conn);
/*
 * Called before the piece is given to the transport.  Another operation may go between a queued
 * message and its own pieces, which were sent before.
 */
void rds_op_order_piece_sending(struct rds_conn *conn, const struct rds_queue_item *q);
/* Is the first item a message that may have to wait for other connections? */
bool rds_op_order_head_ordered(const struct rds_conn *conn);
/* Sends the answers that wait, before anything else. */
void rds_op_answers_flush(struct rds_conn *conn);
void rds_op_answers_drop(struct rds_conn *conn); /* rx held as well */
/* For a redirect of conn/port_moved.c, whose number is the next one. */
void rds_op_order_insert_redirect(struct rds_conn *conn, struct rds_queue_item *q);

/* ---- the end (op.c) ---- */

void rds_op_discard(struct rds_op *op); /* It was never listed.  No lock held. */
struct rds_op *rds_op_new(struct rds_sock *sk, enum rds_wire_op_kind kind, unsigned nlocal);
/* rx held for the following functions, unless a comment says otherwise */
void rds_op_list(struct rds_conn *conn, struct rds_op *op);
/*
 * The operation is not done, and goes to another process of its address: it is listed there before
 * `next`; NULL: at the end.
 */
void rds_op_relist(struct rds_conn *to, struct rds_op *op, struct rds_op *next);
/* It is listed, and the peer or the device has answered. */
void rds_op_end(struct rds_op *op, int status);
/*
 * An operation is over, but the peer's engine may still carry out some of it: that cannot be called
 * back.
 */
static inline void rds_op_strays_note(struct rds_conn *conn)
{
	atomic_store(&conn->rdma->strays, RDS_STRAYS_NEW);
}
/*
 * Makes it over and done, without regard to those before it.  An operation that was over keeps its
 * status.
 */
void rds_op_complete(struct rds_op *op, int status);
/* a write whose success nobody waits for, only its failure */
bool rds_op_is_quiet(const struct rds_op *op);
void rds_op_fetch_end(struct rds_op *op, bool broken); /* its bytes belong to the program again */
void rds_op_put(struct rds_op *op);
/*
 * Where the answer to it goes, if that is another process's memory (abi/foreign_memory.h); else
 * NULL.
 */
struct rds_foreign_memory *rds_op_memory(struct rds_conn *conn, uint64_t id);
void rds_op_recv_answer(struct rds_conn *conn, const struct rds_wire_op_hdr *h, const void *data, size_t len);
/* A device has carried it out, or has failed, or delivers data of it (up->op_done). */
void rds_op_device_done(struct rds_conn *conn, uint64_t id, int err, uint64_t at, const void *data, size_t len);
/*
 * The connection has broken: ends what was started.  all: also what was not started.  behind_lost:
 * also what is reported with its message (async_send.c).
 */
void rds_ops_broken(struct rds_conn *conn, bool all, bool behind_lost);
/* Is an operation under way of a program that uses RDS_CMSG_ASYNC_SEND (Oracle's kernels)? */
bool rds_ops_async_under_way(const struct rds_conn *conn);
/*
 * op_flush.c: the connection has broken.  If that costs a program for Oracle's kernels an operation
 * or a message, nothing that it has sent since may arrive before it sends the lost one again.  So
 * the messages whose end is reported are given up.  They are dropped when it is known which of them
 * the peer has.  conn->tx held as well.
 */
void rds_ops_conn_broken(struct rds_conn *conn, bool all);
bool rds_op_abort_needed(const struct rds_conn *conn);
void rds_op_abort_mark(struct rds_conn *conn);
/* all: the last message that the peer has received */
void rds_op_drop_aborted(struct rds_conn *conn, uint64_t all);
/*
 * Decides which messages are to be sent again, because their operations have been carried out.
 * Called first when the connection breaks, or, while it is up, before its messages are requeued
 * elsewhere.  conn->tx held as well.
 */
void rds_ops_judge(struct rds_conn *conn);
void rds_ops_cancel(struct rds_conn *conn, struct rds_sock *sk, uint16_t dport);
/*
 * This process no longer owns the socket (share/handoff_out.c): drops what is not over by now, and
 * reports it.  control held, rx not.
 */
void rds_ops_handoff(struct rds_sock *sk);
void rds_ops_close(struct rds_sock *sk); /* the socket's last close */
/*
 * A number of the socket is about to be closed: waits for operations under way, within a limit of
 * time.  No lock held.
 */
void rds_ops_drain(struct rds_sock *sk);

/* ---- RDS_BARRIER (barrier.c); rx held up to rds_op_barrier_moved() ---- */

int rds_op_barrier_add(struct rds_op *op);  /* once it is listed: gives it its id.  0 or -ENOMEM */
void rds_op_barrier_del(struct rds_op *op); /* it is freed */
/* Does its message wait for operations before it, or for its own that were overtaken? */
bool rds_op_barrier_blocked(const struct rds_op *op);
/* It is done; never_was: it could not be sent, and no mark counts it. */
void rds_op_barrier_end(struct rds_op *op, bool never_was);
void rds_op_barrier_moved(struct rds_op *op); /* to another connection */
/* RDS_BARRIER; may sleep.  rx not held. */
int rds_op_barrier_set(struct rds_sock *sk, int fd, const void *val, int len);
/*
 * The same in three steps, for a call that another process makes on a socket of this one.  The
 * first and the last step run in that process, and need no socket.  The second never sleeps: it
 * returns 1 if it would.  bad: the result of the first step.
 */
int rds_op_barrier_decode(const void *val, int len, struct rds_barrier_request *req);
int rds_op_barrier_proxy(struct rds_sock *sk, int fd, int bad, struct rds_barrier_request *req, uint64_t *mark);
int rds_op_barrier_store(const struct rds_barrier_request *req, uint64_t mark);

/* ---- at the target (op_serve.c); rx held ---- */

/* The connection has broken: sets conn->refused.  conn->tx held as well. */
void rds_op_refusals_note(struct rds_conn *conn, bool closed);
enum rds_rx_verdict rds_op_recv_piece(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx);
/*
 * An answer to the peer that has sent `to`, with room for `data` bytes behind its header.  NULL: no
 * memory.
 */
struct rds_queue_item *rds_op_answer_new(const struct rds_hdr *to, size_t data);
/* It goes before anything else, and belongs to the connection from now on. */
void rds_op_answer_add(struct rds_conn *conn, struct rds_queue_item *q);

/* ---- notifications (notify.c); rx held ---- */

void rds_notify_queue(struct rds_op *op); /* takes over a reference */
/* Those behind `from`, a tail of the socket's list, are reported in the order of sending. */
void rds_notify_order(struct rds_sock *sk, struct rds_op **from);
/*
 * At least one notification waits.  Delivers as many as there is room for in the control buffer.  0
 * or -EFAULT.
 */
int rds_notify_deliver(struct rds_sock *sk, struct rds_cmsg_out *out);
void rds_notify_drop(struct rds_sock *sk);

#endif
