/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * outgoing.h - messages on their way out: how one is sent, and what the connection keeps of it.
 *
 * A message is in one of two places: in the ring `unacked`, when a transport has its bytes, or in
 * the list `queue`, with its bytes.  It leaves both when the peer has acknowledged it, or when it
 * is cancelled or dropped.  Must not know how bytes move, or what an RDMA operation is (client.h).
 */
#ifndef ENGINE_CONN_OUTGOING_H
#define ENGINE_CONN_OUTGOING_H

#include "engine/conn/conn.h"

enum {
	RDS_REPORT_ZCOPY = 1, /* the program may use the bytes again: zcookie */
	RDS_REPORT_END = 2,   /* how the message ended */
};

/*
 * A message that the peer has not acknowledged.  The transport retains its bytes.  Each connection
 * has some of these: so the fields lie without holes.
 */
struct rds_queue_unacked {
	/* counted in sk->snd; NULL: of no socket (an answer to a ping, or cancelled) */
	struct rds_sock *sk;
	uint64_t seq, pos;
	union {
		uint64_t op; /* id of the first operation that the message goes with; 0: none */
		/* RDS_REPORT_END: the report (rdma/async_send.c); a reference */
		struct rds_op *async;
	};
	uint32_t len;
	uint16_t sport, dport;
	/* the socket of this host that it is for (meant_for.c); 0: any.  Or, `counted`: its number (relay_kept.c) */
	uint32_t sock;
	uint8_t ext_type; /* extension of its header, for a retransmission */
	uint8_t flags;
	uint8_t report;	    /* RDS_REPORT_*: what is reported to the program */
	bool cancelled : 1; /* not sent again if the connection breaks */
	/* ... nor this one, which belongs to an RDMA operation: given up then */
	bool once : 1;
	bool counted : 1;
	bool given : 1;	    /* counted: a former owner of the address may have taken it */
	bool again : 1;	    /* ... unless the operation has ended well (rds_ops_judge) */
	union {
		struct {
			uint32_t ext_rkey, ext_offset;
		};
		uint32_t zcookie; /* RDS_REPORT_ZCOPY: there is no extension */
		/* once: an answer that refuses this piece of the peer's; 0: it does not */
		uint64_t refused;
	};
};

/* Of another host, for a member (relay.c). */
static inline bool rds_unacked_is_relayed(const struct rds_queue_unacked *u)
{
	return unlikely(u->ext_type == RDS_EXTHDR_RELAYED);
}

/*
 * Of a program: of a socket of this process, or of another host for a member (relay.c).  What a connection says for
 * itself goes to no other process.
 */
static inline bool rds_unacked_has_sender(const struct rds_queue_unacked *u)
{
	return likely(u->sk) || rds_unacked_is_relayed(u);
}

/*
 * For a message that is handed off with its socket (share/handoff_unsent.c): its destination, and
 * what is reported of its end.
 */
struct rds_queue_handoff {
	struct rds_addr to;
	uint64_t token;
	uint8_t tos;
	bool notify;
};

/* A message that no transport has taken yet, or that must be sent again. */
struct rds_queue_item {
	struct rds_queue_item *next;
	struct rds_queue_unacked u;
	struct rds_hdr hdr;
	struct rds_queue_handoff handoff;
	bool was_sent; /* a transport had it once: the peer may have it already */
	/* the first probe to a node: it stays first until the peer has it (node.c) */
	bool holds;
	/* UNROUTED: queued before its port was last asked for, so the answer counts for it */
	bool port_asked;
	/* the other user whose process is to get it (meant_for.c), as in peer_slot; 0: any */
	uint32_t meant_slot;
	/*
	 * The generation of the registry in which u.sock had the port (meant_for.c).  0: not known.
	 */
	uint64_t meant_gen;
	/*
	 * The operation that this is a piece of, or the operations that this message goes with
	 * (rdma/rdma.h); a reference each.
	 */
	struct rds_op *op;
	struct rds_conn *answers; /* an answer on this connection, counted in its answer_bytes */
	struct rds_conn *node;	  /* relay.c: while it is between two connections */
	struct rds_trunk_ref *ref; /* relay_kept.c: until it has a number; NULL: it is not kept */
	/*
	 * piece: data holds the header only; the other bytes are the program's memory from here on
	 */
	uint64_t op_at;
	unsigned char data[];
};

/* A piece of an operation or an answer, and no message of a program. */
static inline bool rds_queue_item_is_piece(const struct rds_queue_item *q)
{
	return q->hdr.flags & RDS_FLAG_OP;
}

/*
 * A peer that keeps to READ_AHEAD (rdma/op_send.c) never reaches this.  Another one must not use up
 * our memory.
 */
#define RDS_ANSWERS_MAX ((uint64_t)64 << 20)
/* All memory of an answer, structure included: many answers are small. */
static inline uint64_t rds_queue_answer_weight(const struct rds_queue_item *q)
{
	return sizeof(*q) + q->hdr.len;
}
/* send_queue.c: counted until q is freed.  add: or waits on another connection from then on */
void rds_queue_answer_add(struct rds_conn *conn, struct rds_queue_item *q);
void rds_queue_answer_end(struct rds_queue_item *q);

/* send_queue.c; conn->tx held unless said otherwise */
void rds_queue_busy_add(struct rds_conn *conn);
void rds_conn_note_kept(const struct rds_conn *conn, uint64_t seq); /* relay_kept.c */
/*
 * Before the message is given to an endpoint: the peer may acknowledge it before the call returns.
 */
static inline void rds_conn_note_sending(struct rds_conn *conn, uint64_t seq)
{
	if (seq > atomic_load_explicit(&conn->sent, memory_order_relaxed)) {
		atomic_store_explicit(&conn->sent, seq, memory_order_relaxed);
		if (unlikely(conn->relay == RDS_RELAY_NODE && conn->seldom && conn->seldom->trunk))
			rds_conn_note_kept(conn, seq);
	}
}
/*
 * Messages of another host, which this process relays, have no socket here.  Before it became the owner
 * of the address (relay.c), another process did that.
 */
static inline uint32_t rds_conn_owner_number(const struct rds_conn *conn, const struct rds_sock *sk)
{
	return likely(sk) ? sk->owner_number : conn->relay == RDS_RELAY_MEMBER;
}
/*
 * RDS_FLAG_NEW_OWNER goes to processes of this host only, with the first message of the socket over each
 * connection.  Messages of others that were bound or taken over later say as much.
 */
static inline void rds_conn_hdr_fit(const struct rds_conn *conn, struct rds_hdr *hdr, const struct rds_sock *sk)
{
	if (likely(rds_conn_owner_number(conn, sk) <= conn->owners_told) || (conn->t->ops->caps & RDS_TCAP_REMOTE)) {
		hdr->flags &= (uint8_t)~RDS_FLAG_NEW_OWNER;
		return;
	}
	hdr->flags |= RDS_FLAG_NEW_OWNER;
	hdr->owner_since = sk ? sk->owner_since : atomic_load(&rds_relay_since_ns);
}
/* The endpoint has it. */
static inline void rds_conn_hdr_given(struct rds_conn *conn, const struct rds_sock *sk)
{
	if (unlikely(rds_conn_owner_number(conn, sk) > conn->owners_told))
		conn->owners_told = rds_conn_owner_number(conn, sk);
}
static inline void rds_conn_count_sent(struct rds_conn *conn, uint64_t len)
{
	if (conn->st_queued++ == 0)
		rds_queue_busy_add(conn); /* so that the counters are updated */
	conn->st_bytes += len;
}
int rds_queue_unacked_more(struct rds_conn *conn);
/* Room for one more message of a transport: 0 or -ENOMEM. */
static inline int rds_queue_unacked_room(struct rds_conn *conn)
{
	return (conn->t->ops->caps & RDS_TCAP_DIRECT) || likely(conn->count < conn->cap) ? 0
											 : rds_queue_unacked_more(conn);
}
/* Counted from the oldest message. */
static inline struct rds_queue_unacked *rds_queue_unacked_at(const struct rds_conn *conn, unsigned i)
{
	return &conn->unacked[(conn->head + i) & (conn->cap - 1)];
}
/*
 * There is room: fill in the next entry, then call rds_queue_unacked_pushed(), which may handle
 * acknowledgements at once, of this message, too.
 */
static inline struct rds_queue_unacked *rds_queue_unacked_next(struct rds_conn *conn)
{
	return rds_queue_unacked_at(conn, conn->count);
}
void rds_queue_unacked_pushed(struct rds_conn *conn);
static inline void rds_queue_unacked_push(struct rds_conn *conn, const struct rds_queue_unacked *u)
{
	*rds_queue_unacked_next(conn) = *u;
	rds_queue_unacked_pushed(conn);
}
void rds_queue_forget(void); /* forked child */
void rds_queue_acked(struct rds_conn *conn, struct rds_received there);
/* The same before they can be dropped.  False: it cannot have that. */
bool rds_queue_note_received(struct rds_conn *conn, struct rds_received there);
uint64_t rds_queue_sent(struct rds_conn *conn); /* no lock; for rds_transport_up */
void rds_queue_reap(struct rds_conn *conn);	/* handle the peer's acknowledgements */
void rds_queue_flush(struct rds_conn *conn); /* give waiting messages to the transport */
void rds_queue_ask_acks(struct rds_conn *conn); /* ask the peer to send its acknowledgements soon */
/* after a wake-up: ask again if a thread still waits for space */
void rds_queue_rearm(struct rds_conn *conn);
/* broken endpoint: unacknowledged messages go back to the head of the queue */
bool rds_queue_requeue(struct rds_conn *conn, struct rds_ep *ep);
void rds_queue_drop_all(struct rds_conn *conn);
/*
 * Takes out sockets' messages to that port from that number on, sent or not.  False: no memory,
 * nothing was taken.
 */
bool rds_queue_take_port(struct rds_conn *conn, uint16_t port, uint64_t from, struct rds_queue_item **list);
/* Sockets' messages to that port before that number are done at the peer, acknowledged or not. */
void rds_queue_done_port(struct rds_conn *conn, uint16_t port, uint64_t before);
/* Number of kept messages that are redirects of port_moved.c. */
unsigned rds_queue_count_redirects(const struct rds_conn *conn);
/* Takes out messages that no transport ever had, to any port. */
struct rds_queue_item *rds_queue_take_unsent(struct rds_conn *conn);
/* The same for messages of that socket only; appends them to the list, with their destinations. */
void rds_queue_take_handoff(struct rds_conn *conn, struct rds_sock *sk, struct rds_queue_item **list);
/* Is a message to that port kept here that is for that socket (rds_queue_unacked.sock)? */
bool rds_queue_has_port(const struct rds_conn *conn, uint16_t port, uint32_t sock);
void rds_queue_cancel(struct rds_conn *conn, struct rds_sock *sk, const struct rds_addr *dst);
/* The same of all messages of sockets, in their order. */
bool rds_queue_take_all(struct rds_conn *conn, struct rds_queue_item **list);
/*
 * For requeue.c.  copy: a copy of a message of that endpoint, to be sent again; NULL: no memory.
 * drop_at: takes a message out of the queue and drops it.
 */
struct rds_queue_item *rds_queue_item_copy(struct rds_conn *conn, struct rds_ep *ep, const struct rds_queue_unacked *u);
void rds_queue_drop_at(struct rds_conn *conn, struct rds_queue_item **link);
/* give the bytes back to the socket, wake writers */
void rds_queue_unacked_release(struct rds_queue_unacked *u);
void rds_queue_reap_all(void);				     /* no lock held */
/* no thread is in rds_queue_reap_all() now, this thread included */
bool rds_queue_reap_is_free(void);

/*
 * Before a sleep for send space: ask every peer that owes acknowledgements.  No lock held.  True:
 * some came.
 */
bool rds_queue_want_room_all(void);
/*
 * up->awaited: is there a message, a congested port or an operation for which this process may wait
 * until the peer ends?
 */
bool rds_conn_awaited(struct rds_conn *conn);
/*
 * Before a thread sleeps, and after some looks in vain.  Asks busy peers for acknowledgements that
 * were not worth a wake-up of their helpers at once (RDS_TCAP_PATIENT).  True: acknowledgements
 * have come.
 */
bool rds_queue_ask_deferred(void);
void rds_queue_looked_in_vain(void);
/* tx held; true: rds_queue_ask_deferred() will ask */
bool rds_queue_ask_later(struct rds_conn *conn);

void rds_queue_append(struct rds_conn *conn, struct rds_queue_item *q);
void rds_queue_item_free(struct rds_queue_item *q);
/*
 * UP, and the first message of the queue is an operation's that may not go yet, even if there is
 * room.
 */
bool rds_queue_blocked(struct rds_conn *conn);
/* Messages of failed operations leave the queue; answers: and answers to the peer's. */
void rds_queue_purge(struct rds_conn *conn, bool answers);

/* The slot of a peer of another user; 0: it is of this user, or of another host. */
static inline uint32_t rds_conn_others_slot(const struct rds_conn *conn)
{
	return unlikely(registry_slot_is_others(conn->id.peer_slot)) ? conn->id.peer_slot : 0;
}
/*
 * meant_for.c.  mean: a message begins to wait; its sender has just found the socket (to), or it is
 * for the one that has the port now, unless that is known (NULL).  outlived: is that socket gone?
 * is_others: was it meant for another user than the one whose process has the port now (id)?
 */
void rds_queue_item_mean(const struct rds_conn *conn, struct rds_queue_item *q, const struct rds_sock_dst *to);
bool rds_queue_item_outlived(const struct rds_conn *conn, struct rds_queue_item *q);
bool rds_queue_item_is_others(const struct rds_queue_item *q, const struct rds_conn_id *id);
/* What the header tells a receiver of this host about that socket; 0: nothing.  conn->tx. */
uint32_t rds_queue_item_sock(const struct rds_conn *conn, const struct rds_queue_item *q);

/*
 * node.c: takes a probe that has not been sent out of the queue.  Returns the place behind the
 * messages that are sent again.
 */
struct rds_queue_item **rds_conn_node_unprobe(struct rds_conn *conn);

/* xmit.c */
struct rds_conn_outgoing {
	struct rds_hdr hdr;
	const struct iovec *iov;
	size_t len;
	struct rds_queue_unacked u;
	/* a socket's message, u.sock is to->sock; NULL: of no socket */
	const struct rds_sock_dst *to;
	struct rds_op *ops; /* the operations that it goes with, sent before it */
	bool answer;	    /* counted in answer_bytes if it is queued */
	/* without room in the endpoint: -EAGAIN instead of a copy in the queue */
	bool may_wait;
};
/* tx held: send now or queue; 0, -ENOMEM, -EAGAIN */
int rds_conn_xmit(struct rds_conn *conn, struct rds_conn_outgoing *out);
/* tx held: ops->send; after -EAGAIN, `writable` is sure to come. */
int rds_conn_xmit_ep(struct rds_conn *conn, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos);
/* Control traffic is never queued; -EAGAIN: try later (want_* stays set). */
int rds_conn_xmit_pong(struct rds_conn *conn, uint16_t dport);
int rds_conn_xmit_map(struct rds_conn *conn);

#endif
