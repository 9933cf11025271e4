/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * transport.h - what RDS needs from something that moves bytes between two processes.
 *
 * A transport gives the engine *endpoints* (struct rds_ep): one reliable, ordered, two-way path to one peer process for
 * one connection (local address, remote address, TOS).  An endpoint lives from connect or accept until it breaks; it is
 * never repaired, the connection above makes a new one and sends again what the peer has not acknowledged.  The
 * engine never sees how bytes move; a transport never sees a socket.
 *
 * Read loop.c first: it is the smallest complete transport.
 *
 * Threads and locks.  Everything that concerns connecting (connect, the up-calls accept/up/down, close) happens in
 * the helper thread.  send(), acked(), service() are called under the connection's transmit lock; receive-side calls
 * (progress, ack, release, attention, pending) under the engine's receive lock.  Up-calls of progress() come under that lock too.
 * Lock order: engine.h.
 */
#ifndef ENGINE_TRANSPORT_H
#define ENGINE_TRANSPORT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "engine/node/registry.h"
#include "engine/wire/header.h"
#include "engine/wire/op_header.h"

struct rds_transport;
struct rds_ep;	 /* a transport's endpoint; starts with struct rds_ep_head */
struct rds_conn; /* the engine's connection: opaque to a transport, handed back in every up-call */

/* Who looks after arriving messages just now, and therefore whom a peer must wake (progress/progress.c tells the story). */
enum rds_attention {
	RDS_ATT_POLLING, /* a thread is looking again and again: wake nobody */
	RDS_ATT_LAZY,	 /* busy program between two calls: wake the helper only when the sender needs an answer */
	RDS_ATT_LEADER,	 /* a program's thread sleeps on the leader descriptor: wake it */
	RDS_ATT_HELPER,	 /* only the helper sleeps: wake it */
};

/* Identity of a connection and what both sides tell each other when they connect. */
struct rds_conn_id {
	struct in6_addr laddr, faddr;
	uint32_t scope;
	uint8_t tos;
	struct rds_procid peer;
	uint32_t peer_slot; /* the peer's place in the registry: a hint, checked by the id; RDS_SLOT_REMOTE: another host */
	uint16_t peer_port; /* where its transport listens (verbs): a hint, 0 = unknown */
};
#define RDS_SLOT_REMOTE UINT32_MAX

/* Bytes that a peer lends: where they lie in its memory, and the word that is there as long as they are lent. */
struct rds_fetch_src {
	uint64_t word_at, word;
	unsigned n;
	struct iovec vec[RDS_FETCH_VECS];
};

/*
 * Memory of a peer as its device knows it: `at` is where addresses begin there, `key` opens it.  Both are of the device's making, and mean
 * nothing to the engine.
 */
struct rds_device_key {
	uint64_t key, at;
};
/* Memory of ours that a device has been shown; the transport's own. */
struct rds_device_mr;

/* An operation that devices carry out.  The program's memory has been checked by the caller; nothing of it is needed after the call but by a read. */
struct rds_device_op {
	uint64_t id; /* told to up->op_done */
	/* Of the message behind it: it is over when that has gone, or been acknowledged; 0: there is none. */
	uint64_t seq;
	bool read;		   /* else it is a write */
	bool quiet; /* a write that nobody waits for: that it is over may be told late, but for a failure */
	uint64_t key;		   /* of the peer's memory, ... */
	uint64_t at;		   /* ... and where in it */
	uint64_t len;		   /* at least 1 */
	const struct iovec *local; /* of a write: at least len bytes */
};

/* How a device has an endpoint, for rds-info: 0 what is not known, but for the numbers of queue pairs: UINT32_MAX. */
struct rds_ep_device {
	uint8_t sgid[16], dgid[16];
	uint32_t qp_num, dst_qp_num;
	uint32_t max_send_wr, max_recv_wr;
	uint32_t frag; /* bytes */
	uint16_t max_send_sge, sl;
};

/* What a transport can do, as data. */
enum {
	/* send() leaves the payload readable through retained() until the endpoint is gone, or acked() covers it: the
	 * engine needs no copy of its own to send it again. */
	RDS_TCAP_RETAINS = 1 << 0,
	/* send() never returns -EAGAIN and the peer has it when send() returns (loop). */
	RDS_TCAP_DIRECT = 1 << 1,
	/* What send() took and flush() published reaches a living peer even if this process ends at once: an orderly exit
	 * need not wait for acknowledgements. */
	RDS_TCAP_SURVIVES = 1 << 2,
	/* Reaches other hosts: has claims(), locate(). */
	RDS_TCAP_REMOTE = 1 << 3,
	/* Devices carry out operations on memory that they have been shown: has mr_register(), mr_key(), mr_deregister(), post(). */
	RDS_TCAP_DEVICE_OPS = 1 << 4,
	/* A process looks at what has come at every tick, also between two calls of its program, which most often is back sooner:
	 * what a peer's engine is to do for us need not wake its helper there and then, if we ask again before we sleep. */
	RDS_TCAP_PATIENT = 1 << 5,
};

struct rds_transport_ops {
	const char *name;
	unsigned caps;

	/* In the helper's thread: when it starts, 0 or -errno / when its start failed further on. */
	int (*start)(struct rds_transport *t);
	void (*stop)(struct rds_transport *t);

	/*
	 * Only with REMOTE.  Is that local address one of a device of this transport?  Program's thread, control held, the helper
	 * runs; the first yes makes the transport ready and listening.  1 yes, 0 no, -errno: yes, but it cannot be used (logged).
	 */
	int (*claims)(struct rds_transport *t, const struct in6_addr *laddr, uint32_t scope);
	/*
	 * Only with REMOTE, helper: ask the node with id->faddr, from id->laddr (scope, tos likewise), which of its processes has
	 * bound `port`; port 0 (a ping): any process that has bound that address.  The answer is up->located, once per call that returned 0.  -errno: could not be asked.
	 */
	int (*locate)(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port);

	/* Begin to connect.  The outcome comes later through up->up or up->down; -errno: no attempt was started. */
	int (*connect)(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, uint64_t rx_seq,
		       struct rds_ep **ep);
	/* Break it: no up-call comes for it afterwards.  The memory stays until the last message in place is released. */
	void (*close)(struct rds_ep *ep);

	/*
	 * One message: 48-byte header, then len bytes gathered from iov.  0 and *pos = where retained() finds it;
	 * -EAGAIN: no room now (up->writable comes when there is, after want_room()); -ENOTCONN: broken, up->down follows.
	 */
	int (*send)(struct rds_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos);
	/* Everything sent since the last flush() may become visible to the peer; wakes it if it has to be woken. */
	void (*flush)(struct rds_ep *ep, bool service);
	/* NULL: not to be had just now (faults). */
	const void *(*retained)(struct rds_ep *ep, uint64_t pos);
	/* Before close(): retained() is to work after it, too, until keep(false).  Helper. */
	void (*keep)(struct rds_ep *ep, bool on);
	/* With SURVIVES: does that hold already?  Not as long as the peer may give the endpoint up without a look at it. */
	bool (*settled)(struct rds_ep *ep);
	/* Highest sequence number the peer has acknowledged on this endpoint. */
	uint64_t (*acked)(struct rds_ep *ep);
	/* The caller is about to sleep until acked() moves or room appears: have up->writable called. True: already moved. */
	bool (*want_room)(struct rds_ep *ep, uint64_t seen_ack);

	/* Is the peer's fetch() on this endpoint going to work?  Then bytes of this process's memory need not be sent.  conn->tx; NULL: never. */
	bool (*fetchable)(struct rds_ep *ep);

	/*
	 * Only with DEVICE_OPS.  The endpoint's device is to reach that memory, which is whole pages (conn->tx).  -EOPNOTSUPP: not with this
	 * device, -errno: not this memory, or not now (logged where somebody can do something about it).
	 */
	int (*mr_register)(struct rds_ep *ep, void *mem, size_t len, struct rds_device_mr **out);
	/* How the peer of that endpoint is to name it.  False: the endpoint has another device. */
	bool (*mr_key)(struct rds_ep *ep, const struct rds_device_mr *shown, struct rds_device_key *far);
	/* Nobody reaches it when this returns.  No lock but `control` and sockets'. */
	void (*mr_deregister)(struct rds_device_mr *shown);
	/*
	 * Only with DEVICE_OPS; conn->tx.  Behind what was sent, before what is sent next, and goes with it (flush).  up->op_done says when it is over;
	 * not if the endpoint breaks.  -errno: nothing of it has gone, and the engine finds another way.
	 */
	int (*post)(struct rds_ep *ep, const struct rds_device_op *op);
	/* Only with DEVICE_OPS; conn->tx.  Whatever goes next waits until the reads that were posted are over. */
	void (*fence)(struct rds_ep *ep);

	/* NULL: no device is under this transport.  conn->tx, and the endpoint is up; system calls. */
	void (*describe)(struct rds_ep *ep, struct rds_ep_device *out);

	/* After up->push_later: send what the receive side has left to say (acknowledgements, credits).  NULL: there is never any. */
	void (*push)(struct rds_ep *ep);

	/* Receive: hand complete messages to up->message.  True if anything was done. */
	bool (*progress)(struct rds_transport *t);
	/* In up->message: what has come over other endpoints goes before that message.  NULL: not known. */
	void (*catch_up)(struct rds_transport *t);
	void (*ack)(struct rds_ep *ep, uint64_t seq);
	/*
	 * `len` bytes of the peer's memory, which lie there as it has said and add up to len.  -EFAULT: the peer has not got all of it, or
	 * `to` cannot be written to; -ECANCELED: it has taken them back; else: not to be had, and fetchable() is false from now on.  NULL: never.
	 */
	int (*fetch)(struct rds_ep *ep, void *to, size_t len, const struct rds_fetch_src *from);
	/* The bytes of a message given to up->message with this token are not needed any more. */
	void (*release)(struct rds_ep *ep, void *token);
	void (*attention)(struct rds_transport *t, enum rds_attention who);
	/* Memory that waits in place fills a ring (up->pressure): have it evacuated where nothing was released since the
	 * last call or something has waited for several, or (now) at once. True: pressure goes on. */
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

/* What a received message looks like to the engine. */
struct rds_rx {
	struct rds_hdr hdr;
	const void *data; /* hdr.len bytes; valid until release(token) if token is set, else only during the up-call */
	void *token;
	void *owned; /* malloc'ed block that data lies in: the engine's from now on (never together with token) */
};

enum rds_rx_verdict {
	RDS_RX_DONE,  /* nothing of it is needed any more */
	RDS_RX_TAKEN, /* the engine will call release(token), or owns `owned` now */
	RDS_RX_LATER, /* no memory, or not its turn: not taken, offer it again */
};

/* The engine's side of the interface (conn/connection.c, calls/recv.c). */
struct rds_transport_up {
	/* A peer asks for a connection, over this endpoint: up->up or up->down follows, unless the engine closes it before.
	 * Returns the connection to attach to, or NULL and *why: refused, and ep is still the transport's alone.
	 * *rx_seq = what we have received so far.  ack: what the peer has received so far. */
	struct rds_conn *(*accept)(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id,
				   uint64_t ack, uint64_t *rx_seq, int *why);
	/* The endpoint works: messages may be sent.  ack as above. */
	void (*up)(struct rds_conn *conn, struct rds_ep *ep, uint64_t ack);
	/* It broke (why: -errno); peer_gone: the peer process does not exist any more. ep may be NULL (never came up). */
	void (*down)(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone);
	enum rds_rx_verdict (*message)(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx);
	/* A receive ring fills up: call relieve() from time to time. */
	void (*pressure)(void);
	/* Copy out what waits in place there, so that other sockets' messages can come. */
	void (*evacuate)(struct rds_conn *conn, struct rds_ep *ep);
	/* What want_room() waited for may have come. Under the receive lock. */
	void (*writable)(struct rds_conn *conn);
	/*
	 * Highest sequence number that any endpoint of the connection was given so far, or is just given.  Who acknowledges more sends
	 * nonsense; a transport that frees anything by acknowledgements asks first (the engine looks at what acked() says).  Any thread.
	 */
	uint64_t (*sent)(struct rds_conn *conn);
	/*
	 * An operation of post() is over, or (err 0, data) so many bytes of a read have come, in order, from `at` on; the last of them are
	 * its end.  -EACCES: the peer's memory could not be reached; -errno.  Under the receive lock.
	 */
	void (*op_done)(struct rds_conn *conn, uint64_t id, int err, uint64_t at, const void *data, size_t len);
	/* Have ops->push called for the connection's endpoint, soon.  Under the receive lock. */
	void (*push_later)(struct rds_conn *conn);
	/*
	 * Answer to locate(), helper.  err 0: id->peer, peer_port (and nothing else) have been filled in; -ENOENT: that node
	 * answers, and no process of it has the port; else: nobody answers, ask again some time.
	 */
	void (*located)(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port, int err);
};

void rds_shm_reclaim(void); /* helper, between events */
void rds_shm_forget(void);  /* forked child */
/* Descriptors that wake peer `p`, for a program's thread (helper/fd_exchange.h). */
unsigned rds_shm_wake_fds_import(void *p, int *fds, unsigned nfds);

struct rds_transport *rds_loop_transport(void);
struct rds_transport *rds_shm_transport(void);
/* Once per engine, so in a forked child again, which has inherited nothing that it could use: everything as it was in the beginning. */
void rds_verbs_forget(void); /* forked child */
struct rds_transport *rds_verbs_transport(void);
/* Wraps inner if RDS_PRELOAD_FAULT asks for it, else returns inner. */
struct rds_transport *rds_fault_transport(struct rds_transport *inner);

/* What transports tell about wake-ups, filled in by progress. */
struct rds_transport_wakes {
	/* A system call has just roused the peer: its answer is a wake-up away (this decides what that means for spinning). */
	void (*peer_woken)(void);
	/* ... and before, if no receive lock is held and the peer may answer: then it finds this process ready to look. */
	void (*peer_wake_begin)(void);
	/* A device has woken the helper.  rx held. */
	void (*helper_woken)(void);
};
extern struct rds_transport_wakes rds_transport_wakes;

/* The transports of this process (progress/transports.c has chosen them). */
struct rds_transports {
	struct rds_transport *loop, *shm;
	struct rds_transport *remote; /* the one that reaches other hosts; NULL: none */
	bool remote_on;		      /* it has claimed an address (control + rx) */
	bool prefer_remote;	      /* RDS_PRELOAD_TRANSPORT=verbs: for processes of this host, too */
	bool alone; /* RDS_PRELOAD_TRANSPORT=loop: no other process is reached, and shm is loop's do-nothing */
	bool none;  /* ... names one that does not exist */
};

extern struct rds_transports rds_transports;

/* What has come from any process of this host goes before the message that is being received, but for lack of memory. */
static inline void rds_transports_catch_up(void)
{
	struct rds_transport *t = rds_transports.shm;

	if (t->ops->catch_up)
		t->ops->catch_up(t);
}

/* What this thread looks for now is not what a program waits for: the helper, and a send that looks. */
extern __thread bool rds_transport_looks_aside __attribute__((tls_model("initial-exec")));

#endif
