/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * conn.h - a connection between this process and a peer process, and the messages that it keeps.
 */
#ifndef ENGINE_CONN_CONN_H
#define ENGINE_CONN_CONN_H

#include "engine/socket/socket.h"
#include "engine/transport/transport.h"
#include "engine/wire/header.h"

enum rds_conn_state {
	RDS_CONN_DOWN,	     /* no endpoint, none being made */
	RDS_CONN_CONNECTING, /* the helper is at it, or waits for the next try */
	RDS_CONN_UP,
	RDS_CONN_DEAD, /* the peer process is gone: everything to it is dropped */
};

enum rds_conn_kind {
	RDS_CONN_LOOP,	   /* this process */
	RDS_CONN_PEER,	   /* another process, of this host or of another one (id.peer_slot RDS_SLOT_REMOTE) */
	RDS_CONN_UNROUTED, /* nobody here can reach that address (yet), or it is not known which process: messages wait */
};

struct rds_op;

enum {
	RDS_REPORT_ZCOPY = 1, /* that its bytes are the program's again: zcookie */
	RDS_REPORT_END = 2,   /* what became of it */
};

/* A message that the peer has not acknowledged.  Its bytes are where the transport retains them. */
struct rds_queue_unacked {
	struct rds_sock *sk; /* counted in sk->snd_msgs; NULL: nobody's (an answer to a ping, or cancelled) */
	uint64_t seq, pos;
	uint32_t len;
	uint16_t sport, dport;
	uint8_t flags;
	uint32_t zcookie;
	uint8_t report; /* RDS_TOLD_*: of what the program is told about it */
	bool cancelled; /* not sent again if the connection breaks */
	bool once;	/* ... nor this, which belongs to an RDMA operation: given up then */
	bool again;	/* ... unless that has ended well (rds_ops_judge) */
	uint8_t ext_type; /* of its header, if it is sent again */
	uint32_t ext_rkey, ext_offset;
	union {
		uint64_t op; /* number of the first operation whose message it is; 0: none's */
		struct rds_op *async; /* RDS_REPORT_END: what is told (rdma/async_send.c); a reference */
	};
};

/* Of a message that goes along to its socket's next carrier (share/handoff_unsent.c): where to, and what is told of its end. */
struct rds_queue_handoff {
	struct rds_addr to;
	uint64_t token;
	uint8_t tos;
	bool notify;
};

/* A message that no transport has taken yet (or must take again). */
struct rds_queue_item {
	struct rds_queue_item *next;
	struct rds_queue_unacked u;
	struct rds_hdr hdr;
	struct rds_queue_handoff handoff;
	bool was_sent; /* a transport had it once: the peer may have it already */
	bool port_asked; /* UNROUTED: it was there when its port was last asked about, so the answer is about it */
	uint64_t meant_sock,
		meant_gen; /* the socket of this host that it is for, as of which generation of the registry (meant_for.c); 0: any */
	struct rds_op *
		op; /* a piece of that operation, or the message of it and those behind it (rdma/rdma.h); a reference each */
	struct rds_conn *answers; /* an answer of this connection's, which weighs on its answer_bytes */
	uint64_t op_at; /* piece: data holds its header only, the rest is the program's memory from here on */
	unsigned char data[];
};

/* A peer that keeps to READ_AHEAD never gets here; one that does not may not have all of our memory. */
#define RDS_ANSWERS_MAX ((uint64_t)64 << 20)
/* All that it takes: many answers are small. */
static inline uint64_t rds_queue_answer_weight(const struct rds_queue_item *q)
{
	return sizeof(*q) + q->hdr.len;
}
void rds_queue_answer_add(struct rds_conn *conn, struct rds_queue_item *q); /* send_queue.c; until it is freed */

#define RDS_ADVERTISE_MAX 8
#define RDS_REMOTE_MR_BUCKETS 32

#define RDS_FAILED_MAX 8
#define RDS_REDIRECTS_MAX 16
/*
 * out: our peer is to be told, or has not said yet that it heeds it, that what it has sent to that port from message `seq` on comes back; in: we were
 * told.
 */
struct rds_conn_redirect {
	uint64_t seq;
	uint64_t notice;  /* in: its sequence number */
	uint64_t refused; /* out: the first message that was; 0: none yet */
	uint16_t port;
	bool said, acked; /* out; in: heeded */
};

/* What Oracle's rds-info says why a connection is down: numbers in its list. */
enum rds_conn_reason {
	RDS_REASON_NONE = 0,
	RDS_REASON_CONNECT = 5,       /* conn_connect failure */
	RDS_REASON_HEARTBEAT = 6,     /* hb timeout */
	RDS_REASON_TIMEOUT = 7,       /* reconnect timeout */
	RDS_REASON_CROSSING = 13,     /* incoming REQ in CONNECTING state */
	RDS_REASON_UNREACHABLE = 22,  /* CONNECT_ERROR or UNREACHABLE or DEVICE_REMOVE event */
	RDS_REASON_REJECTED = 24,     /* REJECTED event */
	RDS_REASON_DISCONNECTED = 26, /* DISCONNECTED event */
	RDS_REASON_CORRUPTED = 31,    /* corrupted header in incoming msg */
};

/* For rds-info.  Times are seconds since 1970, 0: never. */
struct rds_conn_history {
	int64_t attempt_at, up_at, down_at; /* the last time each; down: it had been up */
	uint32_t attempts;		    /* ours and the peer's, since it was up last (the one that succeeded among them) */
	uint32_t reason;		    /* why it went down, or did not come up: enum rds_conn_reason */
};

struct rds_conn {
	struct rds_conn *hash_next, *next, *next_free;
	struct rds_conn *mirror; /* loop: the other direction */
	struct rds_conn *map_next; /* connections of the same local address (rx) */
	struct rds_conn_id id;
	enum rds_conn_kind kind;
	struct rds_transport *t;

	/* state: written under control + tx, read under either */
	_Atomic enum rds_conn_state state;
	struct rds_ep *ep;	/* tx; only while UP, or about to be broken (ack_lied) */
	struct rds_ep *pending; /* helper: on its way up; never while there is an ep */
	bool peer_asked;	/* pending: the peer has asked for it (written under tx) */
	struct rds_ep *stale;	/* tx: broken and closed, but unacknowledged messages still lie there, for lack of memory */
	struct rds_timer retry;
	uint64_t backoff_ms;
	bool was_up;
	bool aborted; /* some of what is queued or not acknowledged is not sent again (rds_op_abort_mark) */
	bool unrouted_logged;	    /* UNROUTED: that its messages wait has been logged (control) */
	bool peer_ending;	    /* PEER: that process has ended, but its lock is not gone (tx) */
	bool handoff_pending;	    /* UNROUTED: ... for a socket of this host that is changing hands (control) */
	bool far;		    /* UNROUTED: the local address can reach other hosts, so ask there (control) */
	_Atomic bool silent;	    /* UNROUTED: that host did not answer, last time */
	uint64_t unreachable_since; /* the first attempt that failed since it was up, 0: none (tx) */
	bool unreachable_logged;    /* ... and that messages wait for it (tx) */
	bool peer_asked_again;	    /* UP, and the peer has asked for a connection once */

	rds_lock_t tx;
	uint64_t next_tx;
	uint64_t acked;
	_Atomic uint64_t sent; /* highest number that any endpoint was offered: written first, read without tx */
	_Atomic bool ack_lied; /* the peer has acknowledged what is beyond: this endpoint is not believed any more */
	bool ack_lie_logged;
	_Atomic bool reset; /* the program has told that the endpoint that is up be dropped (written under tx) */
	bool ack_unknown; /* ... which has been done, and none has come up since: what the peer has accepted by now it has not said */
	struct rds_queue_unacked *unacked; /* ring buffer of cap entries, first at head */
	unsigned head, count, cap;
	struct rds_queue_item *queue, **queue_tail;
	unsigned queue_len;
	uint64_t
		closed_seq; /* with this one at its head and no fewer than so many it was full of what closed sockets have left (closed_sockets.c); 0: none */
	unsigned closed_len;
	unsigned since_reap;
	uint64_t st_queued, st_bytes; /* send_queued, copy_from_user, not yet added to the counters */
	bool busy; /* on the list of connections that may hold something (send_queue.c) */
	struct rds_conn *busy_next;
	bool impatient;	  /* tx: as long as anything waits in the queue, nobody waits for room */
	bool room_sought; /* a sender waits for the endpoint's room, although nothing of this connection may be kept */

	/* receive side (rx) */
	_Atomic uint64_t next_rx;
	struct rds_inc *inplace, *inplace_last; /* messages that still lie in the endpoint's memory, oldest first */
	_Atomic(struct rds_cong_map *) fcong; /* what the peer says of its ports; loop: the local map itself */

	/* RDMA (rx): operations to this peer that are not done, oldest first; bytes of those that are being read */
	struct rds_op *ops, **ops_tail;
	unsigned nover; /* ... of them are over and wait for those before them */
	uint64_t failed[RDS_FAILED_MAX], failed_to; /* messages of those that have failed (rdma/op.c) */
	unsigned nfailed;
	uint64_t reading;
	_Atomic uint64_t lending; /* bytes that the peer is to take from our memory (written under rx) */
	uint64_t lent;		  /* number of the last piece that lends some (tx) */
	/* ... answers to its operations that have not been sent; counted for those without rx */
	struct rds_queue_item *answers, **answers_tail;
	_Atomic uint64_t answer_bytes; /* ... and those of them that wait in the queue, to pings and of port_moved.c as well */
	_Atomic unsigned nanswers;
	bool pulled; /* a piece has overtaken others, which may come before its message (rdma/op_order.c; tx) */
	uint64_t void_op, void_message; /* what failed last; the message that goes with it is not delivered */

	/* regions that devices reach (rx): our own that the peer knows, keys of those that it may be told of; the peer's */
	struct rds_mr_advert *adverts;
	bool mute; /* the peer has not said of a freed region that it is done with it (rx) */
	uint32_t show[RDS_ADVERTISE_MAX];
	_Atomic unsigned nadvertise;
	_Atomic unsigned nremote_mrs;
	struct rds_remote_mr *remote_mrs[RDS_REMOTE_MR_BUCKETS];
	_Atomic unsigned device_reads, device_writes; /* operations that devices have under way; written under rx */
	bool fence_answers; /* ... reads of a region of which an answer says that nothing is (rx) */
	/*
	 * Operations have ended here of which the peer's engine may still carry out something, until it acknowledges this
	 * number (rdma/op_device.c); 0: none.  NEW (set under rx): the number is found by who looks next (tx).
	 */
	_Atomic uint64_t strays;
#define RDS_STRAYS_NEW UINT64_MAX

	/* work left for rds_conn_work_run (rx) */
	struct rds_conn *work_next;
	bool work_queued;
	bool want_map, want_flush, want_push;
	uint16_t pongs[16]; /* ports to answer */
	unsigned npongs;
	/* ports that have moved to another process of their host (port_moved.c; rx) */
	struct rds_conn_redirect *out, in[RDS_REDIRECTS_MAX];
	unsigned out_cap;
	_Atomic unsigned nredirects_out, nredirects_in;
	unsigned
		nhandoff_said; /* of the sockets that this process is leaving, so many have been said to the peer (share/handoff_out.c) */
	struct rds_conn_history history; /* tx */
};

/* connection.c. rds_conn_get: find or make; control not held. May return a DEAD one's successor; NULL + *err. */
struct rds_conn *rds_conn_get(enum rds_conn_kind kind, const struct rds_conn_id *id, int *err);
/* These three with control held, start_locked with tx as well. start_locked: true if conn->retry is to be set to now. */
struct rds_conn *rds_conn_find(enum rds_conn_kind kind, const struct rds_conn_id *id);
struct rds_conn *rds_conn_get_locked(enum rds_conn_kind kind, const struct rds_conn_id *id, int *err);
bool rds_conn_start_locked(struct rds_conn *conn);
void rds_conn_backoff(struct rds_conn *conn); /* helper: have it tried again later */
void rds_conn_start(struct rds_conn *conn);    /* no lock held: DOWN -> CONNECTING */
void rds_conn_retry_later(struct rds_conn *conn); /* helper: DOWN -> CONNECTING, after a while */
void rds_conn_each(void (*fn)(struct rds_conn *conn, void *arg), void *arg);
/* rds_transport_up's, for every transport. */
struct rds_conn *rds_conn_accept(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id,
				 uint64_t ack, uint64_t *rx_seq, int *why);
void rds_conn_up(struct rds_conn *conn, struct rds_ep *ep, uint64_t ack);
void rds_conn_writable(struct rds_conn *conn);
void rds_conn_push_later(struct rds_conn *conn);
void rds_conn_unlist(struct rds_conn *conn); /* control: out of the tables */
void rds_conn_free(struct rds_conn *conn);   /* control: of no more use, for the next one */
void rds_conn_forget(void);		     /* forked child */
void rds_conn_refuse_new(bool refuse);	     /* over devices: sockets are about to be somebody else's */
extern struct rds_conn *rds_conn_list;	     /* control */
extern _Atomic uint64_t rds_route_gen;	     /* changes whenever a connection is removed: caches are void (route.c) */

/* work.c */
extern _Atomic bool rds_conn_work_pending;
void rds_conn_work_run(void);	 /* no lock held: do what the receive path left */
void rds_conn_work_forget(void); /* forked child */

/* unsent.c */
unsigned rds_conn_unsent(void); /* messages that would be lost if the process ended now; no lock held */
int rds_conn_unsent_now(void);	/* the same; -1 if a lock is not to be had just now */

enum rds_rx_verdict rds_conn_receive(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx); /* receive.c */
void rds_conn_receive_forget(void);	       /* forked child */
void rds_conn_work_add(struct rds_conn *conn); /* rx held: put on the work list */

/*
 * shutdown.c; helper. ep NULL: it never came up; else its ep or pending.  down: and have it come up again; what is said of any other
 * endpoint only closes that one.
 */
void rds_conn_drop(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone);
void rds_conn_down(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone);
/* To a process, from and to the same addresses with the same type of service. */
static inline bool rds_conn_between(const struct rds_conn *conn, const struct rds_conn_id *id)
{
	return conn->kind == RDS_CONN_PEER && conn->id.tos == id->tos && conn->id.scope == id->scope &&
	       rds_ip_equal(&conn->id.laddr, &id->laddr) && rds_ip_equal(&conn->id.faddr, &id->faddr);
}
/* Messages that are not accepted for sockets that have left that process: if it ends with them, they go where those are.  tx held. */
unsigned rds_conn_count_rerouted(const struct rds_conn *conn);
/* engine.c: messages that would be lost if we ended now, and that nobody else can be given.  tx held. */
bool rds_conn_has_unsent(const struct rds_conn *conn);
/* history.c; tx held */
void rds_conn_history_attempt(struct rds_conn *conn);
void rds_conn_history_up(struct rds_conn *conn);
void rds_conn_history_down(struct rds_conn *conn, bool was_up, int why);
/* Neither rx nor tx held: an attempt has failed, -errno / it is up, or has answered */
void rds_conn_history_unreachable(struct rds_conn *conn, int why);
void rds_conn_history_reached(struct rds_conn *conn);
/* closed_sockets.c: the socket is closed: does what it has sent go on without it? control held. */
void rds_conn_sock_closed(const struct rds_sock *sk);
/* UNROUTED: to ask who has a port takes a moment, and so does a change of hands; a host that does not answer may take for ever.  control held */
static inline bool rds_route_may_come(const struct rds_conn *conn)
{
	return (conn->far || conn->handoff_pending) && !atomic_load(&conn->silent);
}
void rds_conn_log_state(const struct rds_conn *conn, bool worth, const char *what, const char *why);
void rds_conn_reclaim(void);	 /* buried ones become reusable; no event pending */
void rds_conn_forget_dead(void); /* forked child */
/* An endpoint belongs to the transport that made it, which need not be the connection's of today. */
static inline const struct rds_transport_ops *rds_transport_ep_ops(const struct rds_ep *ep)
{
	return ((const struct rds_ep_head *)ep)->t->ops;
}

/* route.c: where does a message to dst go? No lock but sk->tx. 0 or -errno. */
int rds_route_find(struct rds_sock *sk, const struct rds_addr *dst, struct rds_conn **out, uint64_t *sock);
void rds_route_retry(struct rds_conn *conn);							       /* helper */
void rds_route_located(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port, int err); /* helper */
/*
 * Messages (none: NULL) that have to look for their port anew, in order, from a connection with these addresses; before what waits already, or
 * behind.  control held.
 */
void rds_route_requeue(const struct rds_conn_id *id, struct rds_queue_item *list, bool before);
/*
 * As if a socket whose address reaches other hosts (far) or does not had sent them just now: they go, or wait.
 * control held.  False: no memory, nothing has been taken.
 */
bool rds_route_send_list(const struct rds_conn_id *id, struct rds_queue_item *list, bool far);
/*
 * meant_for.c: a message begins to wait, for the socket that its sender found (to; NULL: the one that has the port now); is the socket gone for which it
 * does?
 */
void rds_queue_item_mean(const struct rds_conn *conn, struct rds_queue_item *q, const struct rds_sock_dst *to);
bool rds_queue_item_outlived(const struct rds_conn *conn, struct rds_queue_item *q);
/* What the receiver is told of it, on this host; 0: nothing.  conn->tx. */
uint32_t rds_queue_item_sock(const struct rds_conn *conn, const struct rds_queue_item *q);
/* The receiver: is sk the one that was meant?  rx held. */
bool rds_conn_is_meant_for(const struct rds_sock *sk, uint32_t named);


/* port_moved.c */
enum rds_rx_verdict rds_conn_redirect_refuse(struct rds_conn *conn, struct rds_ep *ep,
					     const struct rds_hdr *hdr); /* rx */
/* A message for a socket that this process is leaving, and does not accept any more.  rx */
enum rds_rx_verdict rds_conn_redirect_late(struct rds_conn *conn, const struct rds_hdr *hdr);
/* ... it comes back, whoever has the port by now: a notice has said so that may not have been heeded yet.  rx */
bool rds_conn_redirect_covers(const struct rds_conn *conn, const struct rds_hdr *hdr);
/* ... nothing for that port is accepted from now on: the peer is told.  rx.  False: no memory. */
bool rds_conn_redirect_begin(struct rds_conn *conn, uint16_t port);
enum rds_rx_verdict rds_conn_redirect_recv(struct rds_conn *conn, const struct rds_rx *rx); /* rx */
unsigned rds_conn_redirect_owed(
	const struct rds_conn
		*conn); /* tx: notices that are not heeded, and whose messages are the peer's to send elsewhere */
void rds_conn_redirect_send(struct rds_conn *conn); /* tx: send the notices */
void rds_conn_redirect_run(struct rds_conn *conn);  /* no lock held: do what we were told */
/* Highest sequence number that may be acknowledged.  rx. */
uint64_t rds_conn_redirect_limit(const struct rds_conn *conn, uint64_t last);
static inline uint64_t rds_conn_recv_taken(const struct rds_conn *conn)
{
	uint64_t last = atomic_load_explicit(&conn->next_rx, memory_order_relaxed) - 1;

	if (likely(!atomic_load_explicit(&conn->nredirects_out, memory_order_relaxed) &&
		   !atomic_load_explicit(&conn->nredirects_in, memory_order_relaxed)))
		return last;
	return rds_conn_redirect_limit(conn, last);
}

/* Where the socket's messages to that port go. sk->tx. */
static inline struct rds_sock_dst *rds_sock_dst_slot(struct rds_sock *sk, uint16_t port)
{
	return &sk->dst[port & (RDS_DST_CACHE - 1)];
}
static inline bool rds_route_dst_fresh(const struct rds_sock_dst *d)
{
	return d->conn && d->bind_gen == registry_generation(rds_node_registry) &&
	       d->conn_gen == atomic_load_explicit(&rds_route_gen, memory_order_acquire);
}

/* send_queue.c; conn->tx held unless said otherwise */
void rds_queue_busy_add(struct rds_conn *conn);
/* Before an endpoint is given that message: the peer may acknowledge it before the call returns. */
static inline void rds_conn_note_sending(struct rds_conn *conn, uint64_t seq)
{
	if (seq > atomic_load_explicit(&conn->sent, memory_order_relaxed))
		atomic_store_explicit(&conn->sent, seq, memory_order_relaxed);
}
/* What is said to processes of this host only. */
static inline void rds_conn_hdr_fit(const struct rds_conn *conn, struct rds_hdr *hdr, const struct rds_sock *sk)
{
	if (likely(!(hdr->flags & RDS_FLAG_NEW_OWNER)))
		return;
	if (!sk || (conn->t->ops->caps & RDS_TCAP_REMOTE))
		hdr->flags &= (uint8_t)~RDS_FLAG_NEW_OWNER;
	else
		hdr->ack = sk->since;
}
static inline void rds_conn_count_sent(struct rds_conn *conn, uint64_t len)
{
	if (conn->st_queued++ == 0)
		rds_queue_busy_add(conn); /* so that the counters are brought up to date */
	conn->st_bytes += len;
}
int rds_queue_unacked_more(struct rds_conn *conn);
/* For one more that is given to a transport: 0 or -ENOMEM. */
static inline int rds_queue_unacked_room(struct rds_conn *conn)
{
	return (conn->t->ops->caps & RDS_TCAP_DIRECT) || likely(conn->count < conn->cap) ? 0
											 : rds_queue_unacked_more(conn);
}
/* There is room: fill in the one, then say so.  (What is acknowledged may be looked at then, that one among it.) */
static inline struct rds_queue_unacked *rds_queue_unacked_next(struct rds_conn *conn)
{
	return &conn->unacked[(conn->head + conn->count) & (conn->cap - 1)];
}
void rds_queue_unacked_pushed(struct rds_conn *conn);
static inline void rds_queue_unacked_push(struct rds_conn *conn, const struct rds_queue_unacked *u)
{
	*rds_queue_unacked_next(conn) = *u;
	rds_queue_unacked_pushed(conn);
}
void rds_queue_forget(void); /* forked child */
void rds_queue_acked(struct rds_conn *conn, uint64_t ack);
uint64_t rds_queue_sent(struct rds_conn *conn); /* no lock: up->sent */
void rds_queue_reap(struct rds_conn *conn);	/* take the peer's acknowledgements to heart */
void rds_queue_flush(struct rds_conn *conn); /* give waiting messages to the transport */
void rds_queue_ask_acks(struct rds_conn *conn); /* have its acknowledgements told, and soon */
void rds_queue_rearm(struct rds_conn *conn);	/* after a wake-up: is there still somebody who waits for space? */
bool rds_queue_requeue(struct rds_conn *conn, struct rds_ep *ep); /* broken: unacknowledged ones to the head again */
void rds_queue_drop_all(struct rds_conn *conn);
/* Takes out what sockets have sent to that port from that number on, whether a transport had it or not.  False: no memory, nothing is taken. */
bool rds_queue_take_port(struct rds_conn *conn, uint16_t port, uint64_t from, struct rds_queue_item **list);
/* What sockets have sent to that port before that number has been dealt with at the other side, acknowledged or not. */
void rds_queue_done_port(struct rds_conn *conn, uint16_t port, uint64_t before);
/* How many of those that are kept are no program's, but notices of port_moved.c? */
unsigned rds_queue_count_redirects(const struct rds_conn *conn);
/* Takes out what no transport ever had, to any port. */
struct rds_queue_item *rds_queue_take_unsent(struct rds_conn *conn);
/* The same, only what that socket has sent, and at the end of that list, with where it goes. */
void rds_queue_take_handoff(struct rds_conn *conn, struct rds_sock *sk, struct rds_queue_item **list);
bool rds_queue_has_port(const struct rds_conn *conn,
			uint16_t port); /* is something of a socket's for that port here? */
void rds_queue_cancel(struct rds_conn *conn, struct rds_sock *sk, const struct rds_addr *dst);
/* A copy of what lies with that endpoint, to be sent again; NULL: no memory.  And for requeue.c: out of the queue, and dropped. */
struct rds_queue_item *rds_queue_item_copy(struct rds_conn *conn, struct rds_ep *ep, const struct rds_queue_unacked *u);
void rds_queue_drop_at(struct rds_conn *conn, struct rds_queue_item **link);
void rds_queue_unacked_release(struct rds_queue_unacked *u); /* socket's bytes back, wake writers */
void rds_queue_reap_all(void);				     /* no lock held */
bool rds_queue_reap_is_free(void);			     /* nobody is in it just now, this thread least of all */

void rds_queue_append(struct rds_conn *conn, struct rds_queue_item *q);
void rds_queue_item_free(struct rds_queue_item *q);
/* Up, and the first that waits is an operation's that may not go yet, whatever room there is. */
bool rds_queue_blocked(struct rds_conn *conn);
/* What belongs to operations that have failed leaves the queue; answers: and what answers the peer's. */
void rds_queue_purge(struct rds_conn *conn, bool answers);

/* xmit.c */
struct rds_conn_outgoing {
	struct rds_hdr hdr;
	const struct iovec *iov;
	size_t len;
	struct rds_queue_unacked u;
	const struct rds_sock_dst *to; /* a socket's message; NULL: none's */
	struct rds_op *ops; /* the operations that it goes with, sent before it */
	bool answer;	    /* if it has to be kept it weighs on answer_bytes */
	bool may_wait; /* -EAGAIN instead of keeping a copy when the endpoint has no room */
};
int rds_conn_xmit(struct rds_conn *conn,
		  struct rds_conn_outgoing *out); /* tx held: send now or queue; 0, -ENOMEM, -EAGAIN */
/* tx held: ops->send, except that -EAGAIN means that `writable` will surely come. */
int rds_conn_xmit_ep(struct rds_conn *conn, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos);
/* Control traffic: never queued; -EAGAIN = again later (want_* stays set). */
int rds_conn_xmit_pong(struct rds_conn *conn, uint16_t dport);
int rds_conn_xmit_map(struct rds_conn *conn);

/* cong.c (rx held) */
struct rds_cong_map {
	struct rds_cong_map *next;
	struct in6_addr addr;
	struct rds_conn *conns; /* local map: whom to tell */
	_Atomic uint64_t words[RDS_CONG_MAP_BYTES / 8];
};
struct rds_cong_map *rds_cong_map_find(
	const struct in6_addr *addr); /* NULL: none of our sockets was ever bound to it */
/* What the peer last said to be congested, port modulo 64: to tell those who wait when it has ended. */
uint64_t rds_cong_ports(const struct rds_conn *conn);
struct rds_cong_map *rds_cong_map_get(const struct in6_addr *addr); /* find or make; NULL no memory */
static inline bool rds_cong_test(const struct rds_cong_map *map, uint16_t port)
{
	const _Atomic unsigned char *b = (const _Atomic unsigned char *)map->words;

	return (atomic_load_explicit(&b[port >> 3], memory_order_relaxed) >> (port & 7)) & 1;
}
int rds_cong_attach(struct rds_conn *conn);  /* a new connection: to its local map; loop: fcong as well */
void rds_cong_forget(void);		     /* forked child */
void rds_cong_detach(struct rds_conn *conn);
void rds_cong_check(struct rds_sock *sk); /* after rcv_bytes changed */
void rds_cong_publish(const struct rds_sock *sk); /* to rds-info */
void rds_cong_clear_port(struct rds_sock *sk);
void rds_cong_received(struct rds_conn *conn, const void *map);
void rds_cong_updated(uint64_t portmask); /* generation, monitors, sleepers */

#endif
