/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * shm.h - the shared-memory transport inside: endpoints and peers.  ring.c moves messages, wake.c decides whom to wake,
 * recheck.c asks again where that may have failed, fetch.c takes bytes out of a peer's memory, peer.c has the control sockets to other processes, control.c the packets on them,
 * connect.c the connections over them.
 */
#ifndef SHM_SHM_H
#define SHM_SHM_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/helper/helper.h"
#include "engine/node/registry.h"
#include "engine/node/stats.h"
#include "engine/sys/compiler.h"
#include "engine/sys/fence.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/sys/process.h"
#include "engine/transport/transport.h"
#include "engine/wire/addr.h"
#include "engine/transport/shm/layout.h"

#define SHM_HOT 4

/* A message handed to the engine in place; room comes back in order. */
struct shm_slot {
	uint64_t end;
	bool done;
};

struct shm_ep {
	struct rds_ep_head head;
	struct shm_peer *peer; /* NULL once the control socket is gone */
	struct shm_ep *peer_next;
	uint64_t cookie; /* the attempt */
	bool initiator, up, closed;
	void *map;
	size_t map_len;
	uint32_t size;	    /* of each data area, a power of two */
	uint32_t bell_here; /* our bit for it */
	uint32_t bell_there;

	/* send side (conn->tx) */
	struct shm_ring_ctl *tx;
	unsigned char *tx_data;
	uint64_t tail, flushed, seen_head, seen_acked;
	uint64_t serviced; /* acknowledgement seen when the peer was last asked for service; + 1 */
	struct shm_inbox *there; /* the peer's inbox */
	uint32_t wanted; /* number of our latest wish for room */

	/* receive side (rx) */
	struct shm_ring_ctl *rx;
	const unsigned char *rx_data;
	uint64_t freed_last; /* as relieve() saw it last */
	uint64_t mark; /* slots before that were there mark_age ticks ago */
	unsigned mark_age;
	uint64_t read, freed, freed_told; /* next record; room given back; ... when the sender was last told */
	struct shm_slot *slots;
	uint64_t slot_first, slot_next;
	uint32_t slot_cap;
	uint32_t answered; /* the peer's latest wish for room that we have answered */
	uint32_t room_seen; /* the latest answer to ours that we have noticed */
	bool hot, broken, kept;
	bool draining;	    /* shm_ring_drain() is at it */
	_Atomic bool recheck; /* the peer may not have been woken: recheck.c */
};

/* A pipe by which a peer's thread is woken.  Program's threads get their number when they first need it (wake.c). */
struct shm_wake_fd {
	struct os_fd fd;
	bool has_reader; /* open for reading, too: never without a reader, so a write raises no SIGPIPE */
};
enum { SHM_DEFER_WAKE_LEADER = 1, SHM_DEFER_WAKE_HELPER = 2, SHM_DEFER_BREAK = 4 };

struct shm_peer {
	struct shm_peer *next;
	struct rds_helper_event ev;
	_Atomic int fd; /* control socket */
	struct rds_procid id;
	uint32_t slot; /* registry */
	pid_t pid;     /* as the kernel says; 0: of another pid namespace */
	bool known;    /* HELLO has come */
	uint64_t id_at; /* where its id lies in its memory, ... */
	pid_t reader;	/* ... by this thread of it, ... */
	_Atomic bool fetched; /* ... which we can read (fetch.c) */
	bool dialled;  /* by us: id and slot were known before HELLO */
	bool dead;
	bool unread; /* its control socket, to the end */
	struct shm_wake_fd leader, helper;
	_Atomic uint32_t woken; /* its attention as we left it when we last woke it */
	struct shm_inbox *inbox;
	struct shm_ep *eps;
	/* the control socket was full: to be said when it has room (control.c) */
	struct shm_ctl_pkt *ctl_queue, *ctl_queue_last;
	unsigned ctl_nqueued;
	/* between the two tables (wake.c) */
	struct rds_deferred_call deferred_call; /* the helper does what `deferred_what` says */
	_Atomic unsigned deferred_what;
	unsigned nrequests;			 /* how often; helper */
	_Atomic bool exporting;			 /* the program's numbers are on their way */
	struct rds_deferred_call fds_close_call; /* the program closes its numbers */
	_Atomic bool program_closed;
};

struct shm {
	struct rds_transport t; /* first */
	/* rx */
	struct shm_inbox *inbox;
	_Atomic int inbox_fd;
	struct shm_ep *bells[SHM_BELLS];
	uint32_t next_bell, bell_top; /* where to look for a free one; all in use are below */
	struct shm_ep *hot[SHM_HOT];
	unsigned nhot;
	bool need_bell; /* what hot rings currently say */
	unsigned catching_up; /* so deep in shm_catch_up() */
	bool pressed;	/* some ring is: relieve() has to look */
	uint32_t announced; /* our attention as we wrote it */
	bool found; /* ... and something has arrived since */
	/* helper */
	struct rds_helper_event listener;
	_Atomic int listen_fd;
	struct shm_peer *peers;
	uint64_t next_cookie;
	/* recheck.c */
	struct rds_timer recheck_timer, sweep_timer;
	struct rds_timer unread_timer; /* peer.c, helper */
	_Atomic bool recheck_armed, sweep_armed;
};
extern struct shm rds_shm;

/* ring.c */
int shm_ring_send(struct rds_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos);
const void *shm_ring_retained(struct rds_ep *ep, uint64_t pos);
uint64_t shm_ring_acked(struct rds_ep *ep);
bool shm_ring_settled(struct rds_ep *ep);
bool shm_ring_drain(struct shm_ep *ep); /* rx held; true: something was there */
bool shm_ring_pressed(const struct shm_ep *ep);
bool shm_ring_relieve(struct shm_ep *ep, bool now);
void shm_ring_release(struct rds_ep *ep, void *token);
void shm_ring_ack(struct rds_ep *ep, uint64_t seq);
void shm_ep_free(struct shm_ep *ep); /* rx held, closed, nothing in place */

/* wake.c */
int shm_inbox_open(void);
void shm_flush(struct rds_ep *ep, bool service);
bool shm_want_room(struct rds_ep *ep, uint64_t seen_ack);
void shm_room_made(struct shm_ep *ep); /* rx held: acknowledged or freed something: tell a sender that waits */
void shm_attention(struct rds_transport *t, enum rds_attention who);
bool shm_pending(struct rds_transport *t);
bool shm_progress(struct rds_transport *t);
void shm_catch_up(struct rds_transport *t);
bool shm_relieve(struct rds_transport *t, bool now);
int shm_bell_add(struct shm_ep *ep);  /* rx held; 0 or -ENOSPC */
void shm_bell_del(struct shm_ep *ep); /* rx held */
void shm_bell_ring_own(struct shm_ep *ep); /* rx held */
void shm_inbox_close(void);
void shm_peer_init(struct shm_peer *p);
bool shm_wake_fd_write(const struct shm_wake_fd *w, int fd); /* true: it is on its way */
/* It has been woken, as `word` of its inbox asked for: nobody need do it again. */
void shm_attention_claim(struct shm_peer *p, struct shm_inbox *there, uint32_t word);
void shm_peer_defer(struct shm_peer *p, unsigned what);		 /* any thread: have the helper do that for it */
void shm_wake_fd_init(struct shm_wake_fd *w, int fd, int flags); /* helper, from HELLO */
void shm_wake_fds_close(struct shm_peer *p);			 /* helper: it is dead */
bool shm_peer_idle(struct shm_peer *p);	   /* helper: ... and nothing names it on the program's side */

/* recheck.c */
void shm_recheck_init(void);
void shm_recheck_later(
	struct shm_ep *ep);   /* under conn->tx or rx: what was published or said there may not have been noticed */
void shm_recheck_inbox(void); /* rx held: we were woken, and no bell had rung */
void shm_on_look(struct shm_peer *p, uint32_t bell); /* helper: LOOK has come */

/* fetch.c */
void shm_fetch_offer(struct shm_ctl_msg *hello);			   /* helper */
void shm_fetch_learn(struct shm_peer *p, const struct shm_ctl_msg *hello); /* helper */
bool shm_fetchable(struct rds_ep *ep);
int shm_fetch(struct rds_ep *ep, void *to, size_t len, const struct rds_fetch_src *from);

/* peer.c */
int shm_start(struct rds_transport *t);
void shm_stop(struct rds_transport *t);
int shm_peer_get(const struct rds_conn_id *id, struct shm_peer **out); /* helper: the one that stands, or dialled now */
void shm_peer_break(struct shm_peer *p);			       /* helper */

/* connect.c; helper */
int shm_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, uint64_t rx_seq,
		struct rds_ep **ep);
void shm_close(struct rds_ep *ep);
void shm_keep(struct rds_ep *ep, bool on);
void shm_ep_down(struct shm_ep *ep, int why, bool gone); /* closes it */
void shm_ep_break(struct shm_ep *ep);			 /* any thread, rx held: have the helper break it */
/* Packets of these kinds have come: 0, or -errno if the control socket has to go. */
int shm_on_connect(struct shm_peer *p, const struct shm_ctl_msg *msg, const int *fds, unsigned nfds);
int shm_on_reply(struct shm_peer *p, const struct shm_ctl_msg *msg);
void shm_on_close(struct shm_peer *p, const struct shm_ctl_msg *msg);

/* abi/foreign_memory.c */
int shm_rings_check_limit(void); /* 0, or -EFBIG and said: no peer could be connected to */
int shm_rings_create(struct shm_ep *ep, uint32_t size, int *fd); /* of that size, or smaller */
int shm_rings_attach(struct shm_ep *ep, uint64_t size, int fd);
int shm_inbox_attach(int fd, struct shm_inbox **out);

/* control.c; helper */
int shm_ctl_send(int fd, const struct shm_ctl_msg *msg, const int *fds, unsigned nfds);
/* Bytes received (0 = hang-up) or -errno; descriptors that came along are the caller's. */
ssize_t shm_ctl_recv(int fd, struct shm_ctl_msg *msg, int fds[OS_PASS_MAX], unsigned *nfds);
/* Now or not at all: 0, -EAGAIN (earlier packets wait already), or -errno of the socket. */
int shm_ctl_try(struct shm_peer *p, const struct shm_ctl_msg *msg, const int *fds, unsigned nfds);
/* Now or as soon as there is room: 0, or -errno if it would be lost and the control socket has to go. */
int shm_ctl_queue(struct shm_peer *p, const struct shm_ctl_msg *msg);
int shm_ctl_flush(struct shm_peer *p); /* there is room: 0 or -errno as above */
void shm_ctl_drop(struct shm_peer *p);

#endif
