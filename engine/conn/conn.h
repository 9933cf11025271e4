/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * conn.h - a connection between this process and a peer process: its state, and how it changes.
 *
 * Each group of fields names its lock.  Must not know how bytes move (transport/transport.h), what
 * an RDMA operation is (client.h), or what is kept of a message (outgoing.h).
 */
#ifndef ENGINE_CONN_CONN_H
#define ENGINE_CONN_CONN_H

#include "engine/conn/cong.h"
#include "engine/socket/socket.h"
#include "engine/transport/transport.h"
#include "engine/trunk/trunk.h"
#include "engine/wire/header.h"

enum rds_conn_state {
	RDS_CONN_DOWN,	     /* no endpoint, none being made */
	RDS_CONN_CONNECTING, /* the helper connects, or waits for the next attempt */
	RDS_CONN_UP,
	RDS_CONN_DEAD, /* the peer process is gone: messages to it are dropped */
};

enum rds_conn_kind {
	RDS_CONN_LOOP, /* this process */
	/* another process, of this host or of another one (id.peer_slot RDS_SLOT_REMOTE) */
	RDS_CONN_PEER,
	/*
	 * The address cannot be reached (yet), or the process that has the port is not known:
	 * messages wait.
	 */
	RDS_CONN_UNROUTED,
};

/* Part of the way between a process of this host and another host as a whole (relay.c). */
enum rds_conn_relay {
	RDS_RELAY_NONE,
	RDS_RELAY_OWNER,  /* the peer has the connection to that host */
	RDS_RELAY_MEMBER, /* relayed: this process has it */
	RDS_RELAY_NODE,	  /* that connection */
};

/* What is known of another host as a whole.  The owner tells it to members, in the header of a map (relay.c). */
enum {
	RDS_NODE_TOLD = 1, /* by the owner; one of an older version does not tell */
	RDS_NODE_UP = 2,
	RDS_NODE_FAILED = 4, /* the connection, or an attempt */
	RDS_NODE_SILENT = 8, /* ... for lack of an answer */
	RDS_NODE_MET = 16,   /* it has been up */
};

struct rds_op;
struct rds_queue_unacked;

/*
 * A port that has moved to another process.  out: that we send: messages of the peer to that port,
 * from message `seq` on, have to be sent again elsewhere.  It stays until the peer acknowledges it.
 * in: that we received.
 */
struct rds_conn_redirect {
	uint64_t seq;
	uint64_t redirect_seq; /* in: sequence number of the redirect */
	uint64_t refused; /* out: the first message that was refused; 0: none yet */
	uint16_t port;
	bool sent, acked; /* out: sent; out and in: acknowledged */
};

#define RDS_REDIRECTS_MAX 16
#define RDS_PONGS_MAX (1 << 15) /* far more than come before they are answered, except from a hostile peer */
struct rds_conn_sources;
/*
 * What few connections need on their receive side: made when it is first needed (work.c), and for the first
 * operation (rds_ops_prepare()).  rx.
 */
struct rds_conn_seldom {
	/* the message of the last failed operation, which is not delivered */
	uint64_t void_message;
	/*
	 * The connection has broken, and the peer may not have got the answer that refuses the
	 * piece behind `acked`.  Until it sends more than `all`, no more than that is acknowledged
	 * when a connection is made.
	 */
	struct rds_received refused;
	uint16_t *pongs; /* ports whose pings are to be answered */
	unsigned npongs, pongs_room;
	uint64_t beyond;   /* bytes that it has put behind a queue that was too long (receive.c) */
	uint32_t peer_gen; /* the generation that a node has told (node.c); 0: none yet */
	uint16_t peer_paths; /* ... and how many paths it offers; 0: it has not said */
	bool peer_spoke;     /* over this path it has sent more than the answers that it owes */
	uint64_t greeted_ns; /* this path came up */
	uint32_t mutes;	     /* so many paths have made way for it, and were of no use */
	/* relayed: the connection to the node, and ports that it is told to be congested (relay.c) */
	struct rds_conn *node;
	unsigned char *held; /* a bit for each port; NULL: none */
	uint32_t held_below;
	/* a node: how often there was much room for members, and how many they are; relayed: bytes taken since then */
	uint64_t roomy;
	unsigned nmembers;
	uint32_t taken;
	/*
	 * relay_kept.c.  A node: where messages of members are kept; NULL: nowhere (written by the helper
	 * under rx); and what this host says of its generation there, 0: as elsewhere.  Both: messages that
	 * are on their way (tx).
	 */
	struct rds_trunk *trunk;
	uint32_t own_gen;
	struct rds_trunk_refs refs;
	/* relayed: the member has not got the box yet; a node: it has no trunk yet; and how often that was tried */
	_Atomic bool wants_box, wants_trunk;
	_Atomic unsigned kept_tries;
	uint64_t alone_at; /* a node: generation of the registry in which this process was alone (control) */
	/* where messages of another user's process come from (source.c); NULL: there were none */
	struct rds_conn_sources *sources;
	/* ports that have moved to another process of their host (port_moved.c) */
	unsigned out_cap;
	struct rds_conn_redirect *out, in[RDS_REDIRECTS_MAX];
};

/* Why a connection is down, in the numbers of Oracle's rds-info. */
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

/* For rds-info.  Times are seconds since 1970 (until 2106), 0: never. */
struct rds_conn_history {
	uint32_t attempt_at, up_at, down_at; /* the last time of each; down_at: it had been up */
	/* ours and the peer's, since it was last up (with the attempt that succeeded) */
	uint32_t attempts;
	/* why it went down, or did not come up: enum rds_conn_reason */
	uint8_t reason;
	uint16_t breaks; /* how often it had been up, and went down; no more than UINT16_MAX */
};

/*
 * A process that talks to a thousand others has a thousand of these.  So what few connections need
 * is behind a pointer.  What a send uses comes first, then what a receive uses.
 */
struct rds_conn {
	/* sending (tx) */
	rds_lock_t tx;
	struct rds_transport *t;
	struct rds_ep *ep; /* only while UP, or until an endpoint with ack_lied is dropped */
	uint64_t next_tx;
	/* highest number offered to any endpoint: stored before the offer, read without tx */
	_Atomic uint64_t sent;
	uint64_t acked;
	uint64_t received; /* by the peer, when the connection came up (rds_received.all) */
	struct rds_queue_unacked *unacked; /* ring buffer of cap entries, first at head */
	unsigned head, count, cap;
	uint32_t owners_told; /* the highest owner_number of a socket of which the endpoint has had a message */
	struct rds_queue_item *queue, **queue_tail;
	/* state: written under control + tx, read under either */
	_Atomic enum rds_conn_state state;
	_Atomic unsigned nanswers; /* unsent answers to the peer's operations: a look needs no rx */
	struct rds_cong_far fcong;
	/* send_queued and copy_from_user, not yet added to the counters */
	uint64_t st_bytes;
	uint32_t st_queued;
	unsigned queue_len;
	struct rds_conn *busy_next;
	uint8_t since_reap;
	bool busy;	/* on the list of connections that may hold messages (busy_conns.c) */
	bool impatient; /* while messages wait in the queue, senders do not wait for room */
	/* a sender waits for the endpoint's room, even if no message is kept here */
	bool room_sought;
	bool pulled; /* a piece was put before older messages (rdma/op_order.c) */
	uint8_t relay; /* enum rds_conn_relay; does not change */
	_Atomic uint8_t node; /* RDS_NODE_*; NODE: what members are told; OWNER: what was told (written under rx) */

	/* receiving (rx) */
	_Atomic uint64_t next_rx;
	/* messages that still lie in the endpoint's memory, oldest first */
	struct rds_inc *inplace, *inplace_last;
	struct rds_conn_rdma *rdma; /* NULL: it has carried no operation (rdma/rdma.h) */
	struct rds_conn_seldom *seldom;
	_Atomic unsigned nredirects_out, nredirects_in;
	/* work left for rds_conn_work_run() */
	struct rds_conn *work_next;
	bool work_queued;
	bool want_map, want_flush, want_push;
	_Atomic unsigned nadvertise; /* keys of regions that the peer is to be told */

	struct rds_conn_id id;
	_Atomic bool stranger; /* strangers.c; written under control, to true by the helper */
	struct rds_conn *hash_next;
	/* in rds_conn_list; later among those that have ended (control) */
	struct rds_conn *next;
	struct rds_conn *map_next; /* list of the connections with the same local address (rx) */

	/* coming up and going down */
	/*
	 * On its way up; together with ep only if that one is FIRST.  The helper writes it, under
	 * tx in that case.
	 */
	struct rds_ep *pending;
	/* tx: broken and closed, but unacknowledged messages still lie there, for lack of memory */
	struct rds_ep *stale;
	struct rds_timer retry;
	/* first failed attempt since it was last up; 0: none (tx) */
	uint64_t unreachable_since;
	struct rds_conn_history history; /* tx */
	uint32_t backoff_ms;
	uint8_t kind; /* enum rds_conn_kind */
	/* the peer made the request for `pending` (written under tx) */
	bool peer_asked;
	bool peer_asked_again;		 /* UP, and the peer has asked for a connection once more */
	bool was_up;
	/* some queued or unacknowledged messages are not to be sent again (rds_op_abort_mark) */
	bool aborted;
	/* PEER: the process has ended, but its lock is still held (tx) */
	bool peer_ending;
	bool unreachable_logged; /* it has been logged that messages wait for it (tx) */
	/* the peer has acknowledged more than `sent`: this endpoint is not trusted any more */
	_Atomic bool ack_lied;
	bool ack_lie_logged;
	/* the program has asked to drop the endpoint that is up (written under tx) */
	_Atomic bool reset;
	/* tx: the peer was sent our congested ports; the endpoint that comes up takes a FIRST one's place */
	bool map_told, replaces;
	bool map_came; /* rx: over an endpoint that was not FIRST */
	/* the FIRST endpoint that is up is to be replaced (any thread) */
	_Atomic bool outgrown;
	/*
	 * The endpoint was dropped for that, and none has come up since: the peer has not told what
	 * it has accepted by now.
	 */
	bool ack_unknown;

	/* UNROUTED: it has been logged that its messages wait (control) */
	bool unrouted_logged;
	/* UNROUTED: some wait for a socket of this host that changes its owner (control) */
	bool handoff_pending;
	/* UNROUTED: the local address can reach other hosts, so these are asked (control) */
	bool far;
	_Atomic bool silent; /* UNROUTED: the host did not answer the last time */
	/* with `pending`: it is up, and waits for memory (written under tx) */
	bool pending_up;

	/*
	 * closed_sockets.c: as long as this message is first and closed_len or more are queued,
	 * closed sockets have left too much here; 0: not found so (tx)
	 */
	unsigned closed_len;
	uint64_t closed_seq;
	/*
	 * So many of the sockets that this process hands off have been announced to the peer
	 * (share/handoff_out.c).
	 */
	unsigned nhandoff_said;
	_Atomic unsigned device_writes; /* that devices carry out now; written under rx */
	uint64_t offered_seq;		/* number of the last piece that lends memory (tx) */
	/* unsent answers, and in the queue: to operations, to pings, of port_moved.c and of relay.c */
	_Atomic uint64_t answer_bytes;
};
_Static_assert(sizeof(struct rds_conn) <= 472, "of which a host may have a million");

/*
 * connection.c, attempt.c and accept.c.  With control held, the last two also with conn->tx.
 * rds_conn_get_locked(): find or make; may return the successor of a DEAD connection; NULL and
 * *err.  rds_conn_open_up(): DOWN -> UP with an endpoint of open().  rds_conn_start_locked(): true if
 * conn->retry is to be set to now.
 */
struct rds_conn *rds_conn_find(enum rds_conn_kind kind, const struct rds_conn_id *id);
struct rds_conn *rds_conn_get_locked(enum rds_conn_kind kind, const struct rds_conn_id *id, int *err);
void rds_conn_open_up(struct rds_conn *conn, struct rds_ep *ep);
bool rds_conn_start_locked(struct rds_conn *conn);
bool rds_conn_peer_has(const struct rds_procid *peer, unsigned n); /* so many, or more; control held */
void rds_conn_backoff(struct rds_conn *conn);  /* helper: schedule the next attempt */
void rds_conn_start(struct rds_conn *conn);    /* no lock held: DOWN -> CONNECTING */
void rds_conn_retry(struct rds_timer *tm);     /* helper: it is time for an attempt */
void rds_conn_retry_later(struct rds_conn *conn); /* helper: DOWN -> CONNECTING, after a while */
void rds_conn_retry_wanted(struct rds_conn *conn); /* helper, control: the same, or DOWN if nothing waits for it */
bool rds_conn_rescue_stale(struct rds_conn *conn); /* helper; false: no memory */
struct rds_received rds_conn_received(struct rds_conn *conn);
void rds_conn_each(void (*fn)(struct rds_conn *conn, void *arg), void *arg);
/* Functions of rds_transport_up, for every transport. */
struct rds_conn *rds_conn_accept(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id,
				 struct rds_received there, struct rds_received *here, int *why);
void rds_conn_up(struct rds_conn *conn, struct rds_ep *ep, struct rds_received there);
struct rds_conn *rds_conn_opened(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id, int *why);
void rds_conn_meet_later(struct rds_transport *t);
void rds_conn_outgrown(struct rds_conn *conn);
void rds_conn_asked(struct rds_transport *t, const struct rds_conn_id *id);
const struct rds_conn_id *rds_conn_id(const struct rds_conn *conn);
void rds_conn_writable(struct rds_conn *conn);
void rds_conn_push_later(struct rds_conn *conn);
void rds_conn_unlist(struct rds_conn *conn); /* control: remove from the tables */
void rds_conn_free(struct rds_conn *conn);   /* control: keep for reuse */
void rds_conn_fork_child(void);
/* Refuse new connections over devices: the sockets are about to be handed off. */
void rds_conn_refuse_new(bool refuse);
extern struct rds_conn *rds_conn_list;	     /* control */
/*
 * Changes before a message may take another way than the last one to its port: a connection has
 * ended, a port was found or has moved, an address has appeared, a hand-off was given up, or a
 * failed message holds up later ones (rdma/async_send.c).  Cached routes are void then
 * (rds_route_dst_fresh()).
 */
extern _Atomic uint64_t rds_route_gen;

/* work.c */
extern _Atomic bool rds_conn_work_pending;
void rds_conn_work_run(void);	 /* no lock held: do what the receive path left */
struct rds_conn_seldom *rds_conn_seldom_get(struct rds_conn *conn); /* rx; NULL: no memory */
void rds_conn_work_forget(void); /* forked child */

/*
 * strangers.c, control held.  room: helper; is there a place for one more?  0 or -ENOSPC.  is_wanted: this
 * process is about to send to it.  The last one: helper, no lock.
 */
int rds_conn_strangers_room(void);
void rds_conn_stranger_is_wanted(struct rds_conn *conn);
uint64_t rds_conn_longest_pause_ms(const struct rds_conn *conn);

/* accept.c: the connection that a peer asks for, made if it may be.  Helper; no lock held. */
struct rds_conn *rds_conn_for_request(const struct rds_transport *t, const struct rds_conn_id *id, int *why);

/* when this process became the owner of an address, the last time; 0: it is of none (relay.c) */
extern _Atomic uint64_t rds_relay_since_ns;
/* node.c: to another host as a whole */
static inline bool rds_conn_is_node(const struct rds_conn *conn)
{
	return rds_conn_id_is_node(&conn->id);
}
/* ... or to the process of this host through which it is reached */
static inline bool rds_conn_leads_to_node(const struct rds_conn *conn)
{
	return conn->relay == RDS_RELAY_OWNER || rds_conn_is_node(conn);
}
/*
 * Messages to a node wait in the process that sends them until the node answers, over whichever process of this
 * host they go.  held: this one is a member, and it does not.
 */
static inline bool rds_conn_is_held(const struct rds_conn *conn)
{
	return unlikely(conn->relay == RDS_RELAY_OWNER) && (atomic_load_explicit(&conn->node, memory_order_relaxed) &
							    (RDS_NODE_TOLD | RDS_NODE_UP)) == RDS_NODE_TOLD;
}
static inline bool rds_conn_waits_for_node(const struct rds_conn *conn)
{
	return rds_conn_is_held(conn) || (rds_conn_is_node(conn) && atomic_load(&conn->state) != RDS_CONN_UP);
}
/* A node's first number is that of the first probe (node.c). */
static inline uint64_t rds_conn_first_number(const struct rds_conn_id *id)
{
	return rds_conn_id_is_node(id) ? 2 : 1;
}
/* To a process of another host, which speaks this library's language.  tx held. */
static inline bool rds_conn_is_to_far_process(const struct rds_conn *conn)
{
	return conn->kind == RDS_CONN_PEER && (conn->t->ops->caps & RDS_TCAP_REMOTE) &&
	       !(conn->t->ops->caps & RDS_TCAP_NODE);
}
enum rds_rx_verdict rds_conn_node_receive(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx);
/* tx held.  introduce: what a probe and its answer say of this node.  greet: the connection is up. */
void rds_conn_node_introduce(const struct rds_conn *conn, struct rds_hdr *hdr);
uint32_t rds_conn_node_generation(void); /* of this process */
void rds_conn_node_greet(struct rds_conn *conn);
void rds_conn_node_forget(void); /* forked child */

/* unsent.c */
/* messages that would be lost if the process ended now; no lock held */
unsigned rds_conn_unsent(void);
/* Does each peer know what has been received?  Tells it, once after the first call of this end of the process. */
bool rds_conn_leave(bool begin);
int rds_conn_unsent_now(void); /* the same; -1 if a lock is held just now */
/*
 * Processor time of the processes of this host for which messages of ours wait, together. It stays the same only
 * if none of them runs. 0: there are none; UINT64_MAX: a lock is held just now.
 */
uint64_t rds_conn_receivers_ran_ns(void);

/* receive.c */
enum rds_rx_verdict rds_conn_receive(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx);
void rds_conn_receive_forget(void);	       /* forked child */
void rds_conn_work_add(struct rds_conn *conn); /* rx held: put on the work list */

/*
 * shutdown.c; helper.  ep: the connection's ep or pending; NULL: none came up.  rds_conn_down()
 * also reconnects; for any other endpoint it only closes that one.
 */
void rds_conn_drop(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone);
void rds_conn_down(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone);
/* A connection without an endpoint, which no route leads to, and all that is known of it.  control held. */
void rds_conn_forget(struct rds_conn *conn);
/* A connection to a process, with the same addresses and type of service? */
static inline bool rds_conn_between(const struct rds_conn *conn, const struct rds_conn_id *id)
{
	return conn->kind == RDS_CONN_PEER && conn->id.tos == id->tos && conn->id.scope == id->scope &&
	       rds_ip_equal(&conn->id.laddr, &id->laddr) && rds_ip_equal(&conn->id.faddr, &id->faddr);
}
/*
 * Unaccepted messages for sockets that the peer process has handed off: if it ends, they follow the
 * sockets.  tx held.
 */
unsigned rds_conn_count_rerouted(const struct rds_conn *conn);
/*
 * unsent.c: are there messages that would be lost if we ended now, and that cannot be handed off?
 * tx held.
 */
bool rds_conn_has_unsent(const struct rds_conn *conn);
/* history.c; tx held */
void rds_conn_history_attempt(struct rds_conn *conn);
void rds_conn_history_up(struct rds_conn *conn);
void rds_conn_history_down(struct rds_conn *conn, bool was_up, int why);
/*
 * Neither rx nor tx held.  unreachable: an attempt has failed, why is -errno.  reached: it is up,
 * or has answered.
 */
void rds_conn_history_unreachable(struct rds_conn *conn, int why);
void rds_conn_history_reached(struct rds_conn *conn);
/* closed_sockets.c: the socket is closed; keep its messages, or drop them.  control held. */
void rds_conn_sock_closed(const struct rds_sock *sk);
/* An attempt has failed: messages of closed sockets end if it is to a host that was never reached.  No lock held. */
void rds_conn_drop_closed(struct rds_conn *conn);
/*
 * UNROUTED: a route may be found soon: the owner of a port is asked for, or a socket changes its
 * owner.  Not for a host that does not answer.  control held.
 */
bool rds_route_may_come(const struct rds_conn *conn); /* locate.c; control held */
/* The peer's process number; 0: it is on another host, or the registry has it no more. */
pid_t rds_conn_peer_pid(const struct rds_conn *conn);
void rds_conn_log_state(const struct rds_conn *conn, pid_t pid, bool worth, const char *what, const char *why);
void rds_conn_reclaim(void);	 /* ended connections become reusable; no event pending */
void rds_conn_forget_dead(void); /* forked child */
/* The transport that made the endpoint; the connection may have another one by now. */
static inline const struct rds_transport_ops *rds_transport_ep_ops(const struct rds_ep *ep)
{
	return ((const struct rds_ep_head *)ep)->t->ops;
}

/* Is the endpoint that is up a FIRST one?  tx. */
static inline bool rds_conn_is_first(const struct rds_conn *conn)
{
	return conn->ep && (conn->t->ops->caps & RDS_TCAP_FIRST);
}

/* route.c: finds the connection for a message to dst.  No lock but sk->tx.  0 or -errno. */
int rds_route_find(struct rds_sock *sk, const struct rds_addr *dst, struct rds_conn **out, uint32_t *sock);
/*
 * Routes these messages (list may be NULL) anew, in order; they come from a connection with these
 * addresses.  before: put them before the messages that wait already.  control held.
 */
void rds_route_requeue(const struct rds_conn_id *id, struct rds_queue_item *list, bool before);
/*
 * Routes these messages as if a socket had just sent them, whose address reaches other hosts (far)
 * or not.  control held.  False: no memory, nothing was taken.
 */
bool rds_route_send_list(const struct rds_conn_id *id, struct rds_queue_item *list, bool far);
/* Puts the message behind all others of that connection.  control held. */
void rds_route_append(struct rds_conn *to, struct rds_queue_item *q);
void rds_route_queue(struct rds_conn *to, struct rds_queue_item *q); /* sent by a flush that follows */
/* The connection to another process than the peer of id that holds a message for the port.  control held. */
struct rds_conn *rds_route_still_holding(const struct rds_conn_id *id, uint16_t port, uint32_t sock);
/*
 * The messages that wait there go to their new routes.  local: the address is this host's.  control
 * held.
 */
void rds_route_hand_over(struct rds_conn *unrouted, bool local);
/*
 * The foreign address has become this host's: messages that wait for another host as a whole, to which none
 * has gone, go where newer ones will.  control held.
 */
void rds_route_leave_node(const struct rds_conn_id *between);
/* The same soon for all that waits there with that address.  control held. */
void rds_route_retry_from(const struct in6_addr *laddr);
/* locate.c; helper */
void rds_route_retry(struct rds_conn *conn);
void rds_route_located(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port, int err);
/* meant_for.c: in the receiver: is sk the socket that the header names?  rx held. */
bool rds_conn_is_meant_for(const struct rds_sock *sk, uint32_t named);

/* port_moved.c */
enum rds_rx_verdict rds_conn_redirect_refuse(struct rds_conn *conn, struct rds_ep *ep,
					     const struct rds_hdr *hdr); /* rx */
/* A message for a socket that this process hands off and that accepts nothing any more.  rx */
enum rds_rx_verdict rds_conn_redirect_late(struct rds_conn *conn, const struct rds_hdr *hdr);
/*
 * Must this message be sent again elsewhere, because of a redirect that is not acknowledged yet?
 * rx
 */
bool rds_conn_redirect_covers(const struct rds_conn *conn, const struct rds_hdr *hdr);
/*
 * Nothing for that port is accepted from now on; the peer gets a redirect.  rx.  False: no memory.
 */
bool rds_conn_redirect_begin(struct rds_conn *conn, uint16_t port);
/* A process of another user says that a message comes from that port of its address.  rx. */
enum rds_rx_verdict rds_conn_source(struct rds_conn *conn, uint16_t port);
enum rds_rx_verdict rds_conn_redirect_recv(struct rds_conn *conn, const struct rds_rx *rx); /* rx */
/*
 * tx: number of unacknowledged redirects that refused a message, which the peer has to send
 * elsewhere
 */
unsigned rds_conn_redirect_owed(const struct rds_conn *conn);
void rds_conn_redirect_send(struct rds_conn *conn); /* tx: send the redirects */
/*
 * rx.  A message that a former owner of the connection has received, and others may have had (relay_heir.c).
 */
enum rds_rx_verdict rds_conn_receive_again(struct rds_conn *conn, const struct rds_rx *rx);
/* no lock held: carry out the redirects that were received */
void rds_conn_redirect_run(struct rds_conn *conn);
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

/* Cached route of the socket's messages to that port.  sk->tx. */
static inline struct rds_sock_dst *rds_sock_dst_slot(struct rds_sock *sk, uint16_t port)
{
	return &sk->dst[port & (RDS_DST_CACHE - 1)];
}
static inline bool rds_route_dst_fresh(const struct rds_sock_dst *d)
{
	return d->conn && d->bind_gen == registry_generation(rds_node_registry) &&
	       d->conn_gen == atomic_load_explicit(&rds_route_gen, memory_order_acquire);
}

#endif
