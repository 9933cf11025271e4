/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * transport.h - the interface between the engine and a transport, which moves bytes between two
 * processes.
 *
 * A transport gives the engine *endpoints* (struct rds_ep).  An endpoint is one reliable, ordered,
 * two-way path to one peer process for one connection (local address, remote address, TOS).  It
 * lives from connect or accept until it breaks, and is never repaired: the connection above makes a
 * new endpoint and sends again what the peer has not acknowledged.  The engine does not know how
 * bytes move; a transport does not know sockets.
 *
 * README.md says what a new transport has to fill in, and has a table of all calls, with the thread
 * and the lock of each.
 *
 * Threads and locks.  Everything that concerns connecting (connect, close, the up-calls accept, up
 * and down) happens in the helper thread.  Send-side calls (send, flush, acked, want_room) are made
 * under the connection's transmit lock, receive-side calls (progress, ack, release, attention,
 * pending) under the engine's receive lock.  Up-calls out of progress() come under the receive
 * lock, too.  Lock order: sys/lock_order.h.
 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_H
#define ENGINE_TRANSPORT_TRANSPORT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "engine/node/registry.h"
#include "engine/wire/addr.h"
#include "engine/wire/header.h"
#include "engine/wire/op_header.h"

struct rds_transport;
struct rds_trunk;
struct rds_trunk_brought;
struct rds_ep;	 /* a transport's endpoint; starts with struct rds_ep_head */
struct rds_conn; /* the engine's connection: opaque to a transport, passed back in every up-call */

/*
 * Which thread handles arriving messages now, and so which thread a peer must wake
 * (progress/progress.c).
 */
enum rds_attention {
	RDS_ATT_POLLING, /* a thread polls: wake none */
	/* busy program between two calls: wake the helper only when the sender needs an answer */
	RDS_ATT_LAZY,
	RDS_ATT_LEADER, /* a program's thread sleeps on the leader descriptor: wake it */
	RDS_ATT_HELPER, /* only the helper sleeps: wake it */
	/* a program's thread sleeps on the socket that this transport has given it (helper/leader.h) */
	RDS_ATT_NAMED,
};

/* Identity of a connection, and what both sides tell each other when they connect. */
struct rds_conn_id {
	struct in6_addr laddr, faddr;
	struct rds_procid peer;
	uint32_t scope;
	/*
	 * The peer's slot in the registry: a hint, checked by the id.  RDS_SLOT_REMOTE: other host.
	 */
	uint32_t peer_slot;
	uint16_t peer_port; /* where its transport listens (verbs): a hint, 0 = unknown */
	uint8_t tos;
};
#define RDS_SLOT_REMOTE UINT32_MAX

/* Does it name another host as a whole, and no process of it?  (RDS_TCAP_NODE) */
static inline bool rds_conn_id_is_node(const struct rds_conn_id *id)
{
	static const struct rds_procid none;

	return id->peer_slot == RDS_SLOT_REMOTE && memcmp(&id->peer, &none, sizeof(none)) == 0;
}

/*
 * Bytes in the memory of a peer, which the peer lets this process read.  As long as they may be
 * read, `word` is at the peer's address word_at.
 */
struct rds_fetch_src {
	uint64_t word_at, word;
	unsigned n;
	struct iovec vec[RDS_FETCH_VECS];
};

/*
 * How a device names memory of a peer: addresses begin at `at`, and `key` gives access.  The device
 * chooses both; the engine does not interpret them.
 */
struct rds_device_key {
	uint64_t key, at;
};
/* Local memory that has been registered with a device; private to the transport. */
struct rds_device_mr;

/*
 * An operation that devices carry out.  The caller has checked the program's memory.  After the
 * call only a read still needs that memory.
 */
struct rds_device_op {
	uint64_t id; /* passed to up->op_done */
	/*
	 * The sequence number of the message that follows the operation.  The operation is over
	 * when that message has been sent, or acknowledged.  0: no message follows.
	 */
	uint64_t seq;
	bool read; /* otherwise it is a write */
	/* A write for whose end no thread waits: op_done may come late, except for a failure. */
	bool quiet;
	uint64_t key;		   /* of the peer's memory */
	uint64_t at;		   /* address in that memory */
	uint64_t len;		   /* at least 1 */
	const struct iovec *local; /* of a write: at least len bytes */
};

/*
 * The device's data of an endpoint, for rds-info.  Unknown: 0; for the numbers of queue pairs:
 * UINT32_MAX.
 */
struct rds_ep_device {
	uint8_t sgid[16], dgid[16];
	uint32_t qp_num, dst_qp_num;
	uint32_t max_send_wr, max_recv_wr;
	uint32_t frag; /* bytes */
	uint16_t max_send_sge, sl;
};

/* The socket of an endpoint, for rds-info (struct rds_info_tcp_socket). */
struct rds_ep_tcp {
	uint16_t lport, fport;
	uint64_t hdr_rem, data_rem; /* of the message that is being received: bytes to come */
	/* bytes of the stream: given to the kernel, of these and others queued, acknowledged */
	uint32_t last_sent_nxt, last_expected_una, last_seen_una;
	uint32_t retrans; /* segments that the kernel has sent again */
};

/* Capabilities of a transport. */
enum {
	/* send() never returns -EAGAIN, and the peer has the message when send() returns (loop). */
	RDS_TCAP_DIRECT = 1 << 0,
	/*
	 * A message that send() took and flush() published reaches a living peer even if this
	 * process ends at once.  So an orderly exit need not wait for acknowledgements.
	 */
	RDS_TCAP_SURVIVES = 1 << 1,
	/* Reaches other hosts: has claims(), and locate() unless it has NODE. */
	RDS_TCAP_REMOTE = 1 << 2,
	/*
	 * Devices carry out operations on registered memory: has mr_register(), mr_key(),
	 * mr_deregister(), post().
	 */
	RDS_TCAP_DEVICE_OPS = 1 << 3,
	/*
	 * A peer handles arrivals at every tick, also between two calls of its program; most often
	 * the program makes a call sooner.  So a request to the peer's engine need not wake the
	 * peer's helper at once, if this process asks again before it sleeps.
	 */
	RDS_TCAP_PATIENT = 1 << 4,
	/*
	 * The endpoints come from open(): each is the first of its connection, and carries short
	 * messages, no operations.  connect() makes one of another table, which comes up beside it
	 * and takes its place.
	 */
	RDS_TCAP_FIRST = 1 << 5,
	/*
	 * With REMOTE.  The peer is a whole node, perhaps the kernel's RDS: the id has no process
	 * (rds_conn_id_is_node()), TOS 0, and there is nothing to locate.  Nothing of this library
	 * alone goes over such an endpoint, and nothing of it is believed there.
	 */
	RDS_TCAP_NODE = 1 << 6,
};

/*
 * What a process has received over earlier connections with the same peer: each message up to
 * `all`.  The peer forgets those up to `acked`.  It keeps the others: some of them may have been
 * refused, and it has not been told of that yet.
 */
struct rds_received {
	uint64_t acked, all;
};

struct rds_transport_ops {
	const char *name;
	unsigned caps;

	/*
	 * Helper.  start: when the helper starts, 0 or -errno.  stop: when a later step of that
	 * start has failed.
	 */
	int (*start)(struct rds_transport *t);
	void (*stop)(struct rds_transport *t);

	/*
	 * The process ends now, or executes another program: waits for a limited time for what must
	 * not be cut off, and begins nothing more of that kind.  Any thread, any lock held, also in
	 * a signal handler.  NULL: there is no such thing.
	 */
	void (*exit_wait)(struct rds_transport *t);

	/*
	 * Only with REMOTE.  Does that local address belong to a device of this transport?
	 * Program's thread, control held, the helper runs.  The first yes makes the transport ready
	 * and listening.  1 yes, 0 no, -errno: yes, but it cannot be used (logged).
	 */
	int (*claims)(struct rds_transport *t, const struct in6_addr *laddr, uint32_t scope);
	/*
	 * Only with REMOTE, not with NODE; helper.  Asks the node with id->faddr, from id->laddr (with scope and
	 * tos of id), which of its processes has bound `port`; port 0 (a ping): any process that
	 * has bound that address.  The answer is up->located, once per call that returned 0.
	 * -errno: could not ask.
	 */
	int (*locate)(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port);

	/*
	 * Begins to connect.  The outcome comes later through up->up or up->down; -errno: no
	 * attempt was started.
	 */
	int (*connect)(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn,
		       struct rds_received here, struct rds_ep **ep);
	/*
	 * Makes an endpoint that works at once, without asking the peer: there the first message
	 * makes the other end (up->opened).  control and conn->tx.  -errno: the engine connects.
	 * NULL: never possible.
	 */
	int (*open)(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, struct rds_ep **ep);
	/*
	 * After up->meet_later: asks up->opened for the peers that have opened endpoints to this
	 * process, then has their messages received.  No lock.  last: an endpoint is about to be
	 * closed over which messages may wait for others, so these are received, too; helper.
	 */
	void (*meet)(struct rds_transport *t, bool last);
	/*
	 * Only with FIRST, in up->opened: the endpoint becomes that connection's, and up-calls for it
	 * may come.  conn->tx and rx.
	 */
	void (*attach)(struct rds_ep *ep, struct rds_conn *conn);
	/*
	 * Only with NODE, helper.  Breaks the endpoint, and receives what the peer takes for received.
	 * up->down follows.
	 */
	void (*hang_up)(struct rds_ep *ep);
	/*
	 * Only with NODE, helper: what is kept of the endpoint's messages for other processes, and for the
	 * next one that has the connection (engine/trunk).  begin: up->trunk says from now on where.
	 * brought: how far a carrier of another process was read; 0, or -errno: it is none.
	 * adopt: a carrier of a process that has ended.  What it brings is received, which may be kept in the
	 * trunk already, and it breaks.  Takes fd.  0, or -errno: it is closed.
	 */
	void (*kept_begin)(struct rds_ep *ep);
	int (*kept_brought)(int fd, struct rds_trunk_brought *out);
	int (*kept_adopt)(struct rds_transport *t, const struct rds_conn_id *id, int fd, struct rds_trunk *trunk,
			  uint32_t carrier);
	/*
	 * Breaks the endpoint: no up-call comes for it afterwards.  Its memory stays until the last
	 * message in place is released.
	 */
	void (*close)(struct rds_ep *ep);

	/*
	 * Sends one message: 48-byte header, then len bytes gathered from iov.  0 and *pos = where
	 * retained() finds it; -EAGAIN: no room now (after want_room(), up->writable comes when
	 * there is room); -ENOTCONN: broken, up->down follows; -EMSGSIZE, only with FIRST: too
	 * long for this endpoint, the engine connects another one.
	 */
	int (*send)(struct rds_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos);
	/*
	 * Makes everything sent since the last flush() visible to the peer, and wakes the peer if
	 * necessary.  service: the peer's engine has to do something, so a LAZY peer is woken, too.
	 */
	void (*flush)(struct rds_ep *ep, bool service);
	/*
	 * The payload, readable until the endpoint is gone or acked() covers it.  NULL: not
	 * available now (faults).
	 */
	const void *(*retained)(struct rds_ep *ep, uint64_t pos);
	/* Before close(): retained() works after close(), too, until keep(false).  Helper. */
	void (*keep)(struct rds_ep *ep, bool on);
	/*
	 * With SURVIVES: does it hold already?  Not as long as the peer may give up the endpoint
	 * without looking at it.
	 */
	bool (*settled)(struct rds_ep *ep);
	/*
	 * This process ends: acknowledges what it has received.  The peer may end as well, and then it
	 * waits for that.  begin: not a call that asks again.  False: it is on its way.  NULL: the peer
	 * can see it.
	 */
	bool (*leave)(struct rds_ep *ep, bool begin);
	/* The highest sequence number that the peer has acknowledged on this endpoint. */
	uint64_t (*acked)(struct rds_ep *ep);
	/*
	 * The caller is about to sleep until acked() changes or there is room: up->writable is
	 * called then.  True: acked() has changed already.
	 */
	bool (*want_room)(struct rds_ep *ep, uint64_t seen_ack);

	/*
	 * The engine waits for something else of the peer: up->down must come soon after its end,
	 * as long as up->awaited says so.  conn->tx or rx.  NULL: it always comes soon.
	 */
	void (*watch)(struct rds_ep *ep);

	/*
	 * All of the engine's messages are acknowledged, and none has come for a while: memory for the
	 * next ones can be others' until then.  conn->tx.  NULL: it has none.
	 */
	void (*rest)(struct rds_ep *ep);

	/*
	 * Will the peer's fetch() on this endpoint work?  Then bytes of this process's memory need
	 * not be sent.  conn->tx; NULL: it never works.
	 */
	bool (*fetchable)(struct rds_ep *ep);

	/*
	 * Only with DEVICE_OPS; conn->tx.  Registers memory, which is whole pages, with the
	 * endpoint's device.  -EOPNOTSUPP: not with this device; other -errno: not this memory, or
	 * not now (logged if a user can do something about it).
	 */
	int (*mr_register)(struct rds_ep *ep, void *mem, size_t len, struct rds_device_mr **out);
	/*
	 * The key by which the endpoint's peer names the memory.  False: the endpoint has another
	 * device.
	 */
	bool (*mr_key)(struct rds_ep *ep, const struct rds_device_mr *dev_mr, struct rds_device_key *far);
	/*
	 * When this returns, no peer can access the memory.  No lock held but `control` and those
	 * of sockets.
	 */
	void (*mr_deregister)(struct rds_device_mr *dev_mr);
	/*
	 * Only with DEVICE_OPS; conn->tx.  The operation comes after messages sent earlier and
	 * before messages sent later, and goes with the next flush.  up->op_done tells when it is
	 * over, unless the endpoint breaks.  -errno: nothing was posted, and the engine uses
	 * another way.
	 */
	int (*post)(struct rds_ep *ep, const struct rds_device_op *op);
	/*
	 * Only with DEVICE_OPS; conn->tx.  All that is sent or posted next waits until the posted
	 * reads are over.
	 */
	void (*fence)(struct rds_ep *ep);

	/*
	 * Gives the device's data of an endpoint that is up.  conn->tx; makes system calls.  NULL:
	 * this transport has no device.
	 */
	void (*describe)(struct rds_ep *ep, struct rds_ep_device *out);
	/* The same for its socket.  conn->tx; NULL: it has none. */
	void (*describe_tcp)(struct rds_ep *ep, struct rds_ep_tcp *out);

	/*
	 * After up->push_later: sends what the receive side has pending (acknowledgements,
	 * credits), and the rest of a message for which there was no room.  NULL: never any.
	 */
	void (*push)(struct rds_ep *ep);

	/* Receives: passes complete messages to up->message.  True if anything was done. */
	bool (*progress)(struct rds_transport *t);
	/*
	 * Called in up->message, for a message of a socket that has changed its owner at the time
	 * `since` (os_now_ns()): messages that have arrived over other endpoints are received before
	 * it.  False: some lie where this thread cannot get them now, so none was received, and the
	 * message is to come again (RDS_RX_LATER).  since 0: what can be received is.  NULL: the
	 * transport cannot tell.
	 */
	bool (*catch_up)(struct rds_transport *t, uint64_t since);
	void (*ack)(struct rds_ep *ep, uint64_t seq);
	/*
	 * Reads `len` bytes of the peer's memory, at the places that the peer has named, which add
	 * up to len.  -EFAULT: not all of it is mapped at the peer, or `to` cannot be written;
	 * -ECANCELED: the peer has revoked the bytes; other: not possible, and fetchable() is false
	 * from now on.  NULL: never possible.
	 */
	int (*fetch)(struct rds_ep *ep, void *to, size_t len, const struct rds_fetch_src *from);
	/* The bytes of a message that up->message got with this token are not needed any more. */
	void (*release)(struct rds_ep *ep, void *token);
	void (*attention)(struct rds_transport *t, enum rds_attention who);
	/*
	 * Messages that wait in place fill a ring (up->pressure).  Has them evacuated where nothing
	 * was released since the last call, or where a message has waited for several calls, or
	 * (now) at once.  True: the pressure continues.
	 */
	bool (*relieve)(struct rds_transport *t, bool now);
	/* After attention(LEADER or HELPER): did something arrive meanwhile? */
	bool (*pending)(struct rds_transport *t);
};

struct rds_transport {
	const struct rds_transport_ops *ops;
	const struct rds_transport_up *up;
};

struct rds_ep_head {
	struct rds_transport *t;
	struct rds_conn *conn;
};

/* A received message, as up->message gets it. */
struct rds_rx {
	struct rds_hdr hdr;
	/*
	 * hdr.len bytes; valid until release(token) if token is set, else only during the up-call
	 */
	const void *data;
	void *token;
	/* malloc'ed block with the data, which the engine frees (never together with token) */
	void *owned;
	bool last; /* the peer process has ended, and what is not taken now is lost */
};

enum rds_rx_verdict {
	RDS_RX_DONE,  /* nothing of it is needed any more */
	RDS_RX_TAKEN, /* the engine will call release(token), or will free `owned` */
	RDS_RX_LATER, /* no memory, or not its turn: not taken, offer it again */
	RDS_RX_PAUSE, /* the same, but nobody stays awake for it: after a tick */
};

/* The engine's side of the interface.  The root fills this in before any thread runs. */
struct rds_transport_up {
	/*
	 * A peer asks for a connection over this endpoint.  up->up or up->down follows, unless the
	 * engine closes the endpoint before.  Returns the connection to attach to, or NULL and
	 * *why: refused, and only the transport knows ep.  *here: what this process has received.
	 * there: what the peer has received.
	 */
	struct rds_conn *(*accept)(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id,
				   struct rds_received there, struct rds_received *here, int *why);
	/*
	 * Only in meet().  A peer has opened an endpoint to this process, and ep is to be the other
	 * end.  Any thread; takes control, conn->tx and rx.  Not NULL: ep is the connection's
	 * (attach), and another thread may have closed it by now.  NULL: only the transport knows
	 * ep.  *why is -EEXIST if the connection has a FIRST endpoint of its own, which a send has
	 * opened meanwhile: that one is the other end.  Other *why: refused, the peer has to connect.
	 */
	struct rds_conn *(*opened)(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id, int *why);
	/* ops->meet is to be called soon.  Under the receive lock. */
	void (*meet_later)(struct rds_transport *t);
	/*
	 * The connection's FIRST endpoint carries so much that another one is worth its cost.  Any
	 * thread, any lock.
	 */
	void (*outgrown)(struct rds_conn *conn);
	/*
	 * Only with NODE, helper.  A peer has asked for a connection and did not get one by that: either
	 * it may not connect itself and wants this process to, or another connection is up, and its
	 * host may have restarted.  So connect if there is no endpoint; else send something, as a
	 * congestion map, which shows whether the endpoint still works.
	 */
	void (*asked)(struct rds_transport *t, const struct rds_conn_id *id);
	/* Only with NODE, helper.  Where messages of the connection are kept; NULL: nowhere. */
	struct rds_trunk *(*trunk)(struct rds_conn *conn);
	/* The endpoint works: messages may be sent.  there: as above. */
	void (*up)(struct rds_conn *conn, struct rds_ep *ep, struct rds_received there);
	/*
	 * The endpoint broke (why: -errno).  peer_gone: the peer process no longer exists.  ep may
	 * be NULL (never came up).  Two values have a meaning: -EALREADY, our attempt lost against
	 * the peer's (what the peer's accept() gave as *why); -EPROTO, the next attempt comes after
	 * RDS_PRELOAD_RECONNECT_MAX_MS only.
	 */
	void (*down)(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone);
	enum rds_rx_verdict (*message)(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx);
	/* A receive ring fills up: the engine calls relieve() from time to time. */
	void (*pressure)(void);
	/*
	 * Copies messages of this endpoint that wait in place, so that messages of other sockets
	 * can arrive.
	 */
	void (*evacuate)(struct rds_conn *conn, struct rds_ep *ep);
	/* The condition of want_room() may hold.  Under the receive lock. */
	void (*writable)(struct rds_conn *conn);
	/* Does anything of this connection wait for its peer?  Helper, no lock held. */
	bool (*awaited)(struct rds_conn *conn);
	/* Which connection it is: valid while an endpoint of it is not closed.  Any lock. */
	const struct rds_conn_id *(*id)(const struct rds_conn *conn);
	/*
	 * The highest sequence number that any endpoint of the connection was given so far, or is
	 * being given.  An acknowledgement of a higher number is invalid.  A transport that frees
	 * memory by acknowledgements asks first (the engine checks the result of acked()).  Any
	 * thread.
	 */
	uint64_t (*sent)(struct rds_conn *conn);
	/*
	 * An operation of post() is over, or (err 0, data) the next `len` bytes of a read have
	 * arrived, in order, from `at` on; the read ends with its last bytes.  -EACCES: the peer's
	 * memory could not be accessed; or another -errno.  Under the receive lock.
	 */
	void (*op_done)(struct rds_conn *conn, uint64_t id, int err, uint64_t at, const void *data, size_t len);
	/* ops->push is to be called for the connection's endpoint soon.  Under the receive lock. */
	void (*push_later)(struct rds_conn *conn);
	/*
	 * Answer to locate(), helper.  err 0: id->peer and id->peer_port (and nothing else) have
	 * been filled in; -ENOENT: the node answers, and none of its processes has the port; other:
	 * no answer, ask again later.
	 */
	void (*located)(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port, int err);
};
extern struct rds_transport_up rds_transport_up;
extern struct rds_transport_up rds_transport_up_node; /* the same for RDS_TCAP_NODE */

struct rds_transport *rds_loop_transport(void); /* loop.c */
/*
 * For tests: returns what is to be used in place of inner, which reaches other processes.  NULL:
 * nothing comes in between.
 */
extern struct rds_transport *(*rds_transport_wrap)(struct rds_transport *inner);

/* What transports report about wake-ups.  The root fills this in before any thread runs. */
struct rds_transport_wakes {
	/*
	 * A system call has just woken the peer, so its answer takes as long as a wake-up.
	 * Spinning depends on that.
	 */
	void (*peer_woken)(void);
	/*
	 * Called before that system call, if no receive lock is held and the peer may answer.  So
	 * the answering peer finds this process ready to receive.
	 */
	void (*peer_wake_begin)(void);
	/* A device has woken the helper.  rx held. */
	void (*helper_woken)(void);
};
extern struct rds_transport_wakes rds_transport_wakes;

/* The transports of this process (progress/transports.c has chosen them). */
struct rds_transport_set {
	struct rds_transport *loop, *shm;
	struct rds_transport *remote; /* the one that reaches processes of other hosts; NULL: none */
	struct rds_transport *node;   /* ... and other hosts as a whole (RDS_TCAP_NODE) */
	/* those of the two that have claimed an address: nfar of them (control + rx) */
	struct rds_transport *far[2];
	unsigned nfar;
	/* RDS_PRELOAD_TRANSPORT=verbs: for processes of this host, too */
	bool prefer_remote;
	/* RDS_PRELOAD_TRANSPORT=loop: no other process can be reached, and `shm` is `loop` */
	bool alone;
	/*
	 * What the options ask for does not exist, which has been logged: no socket can be bound.
	 */
	bool none;
};

extern struct rds_transport_set rds_transport_set;

/* Memory of this process that transports have for messages: rings, slabs, what devices know.  Changes seldom. */
extern _Atomic int64_t rds_transport_bytes;
static inline void rds_transport_bytes_add(int64_t n)
{
	atomic_fetch_add_explicit(&rds_transport_bytes, n, memory_order_relaxed);
}

/*
 * The local addresses that rds_transport_set.node has claimed.  add: control held, 0 or -ENOMEM.
 */
bool rds_transport_node_has(const struct in6_addr *laddr, uint32_t scope);
int rds_transport_node_add(const struct in6_addr *laddr, uint32_t scope);
/* May other hosts as a whole be reached from that address? */
static inline bool rds_transport_node_serves(const struct in6_addr *laddr)
{
	return rds_transport_set.node && (!rds_ip_is_loopback(laddr) || rds_transport_node_has(laddr, 0));
}
void rds_transport_fork_child(void);

/*
 * Receives what has arrived from any process of this host before the message that is being
 * received, unless memory is short.  False: not all of it, as catch_up() says.
 */
static inline bool rds_transport_catch_up(uint64_t since)
{
	struct rds_transport *t = rds_transport_set.shm;

	return !t->ops->catch_up || t->ops->catch_up(t, since);
}

/*
 * A FIRST endpoint is about to be closed: what has come over it is received, and what its messages wait for.
 * Helper, no lock held.
 */
static inline void rds_transport_meet_last(void)
{
	struct rds_transport *t = rds_transport_set.shm;

	if (t->ops->meet)
		t->ops->meet(t, true);
}

/*
 * This thread receives, but no call of the program waits for these messages: it is the helper, or a
 * send that receives on the way.
 */
extern __thread bool rds_transport_looks_aside __attribute__((tls_model("initial-exec")));

#endif
