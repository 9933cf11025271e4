/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * shm.h - private header of the shared-memory transport: endpoints, peers, and the functions of
 * each file.
 */
#ifndef ENGINE_TRANSPORT_SHM_SHM_H
#define ENGINE_TRANSPORT_SHM_SHM_H

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
#include "engine/transport/shm/shm_transport.h"
#include "engine/wire/addr.h"
#include "engine/transport/shm/layout.h"

#define SHM_HOT 4
/*
 * How often a socket may have moved to another process before its messages are received: each time others are
 * received in the middle of a message, on the same stack.
 */
#define SHM_CATCH_UP_DEPTH 8
/*
 * How often messages of processes that have ended are offered, if they wait for those of others that have: each time
 * those of the oldest SHM_CATCH_UP_DEPTH lives come at least, and there are 1024 processes at most.
 */
#define SHM_LAST_TRIES (1024 / SHM_CATCH_UP_DEPTH)
#define SHM_SPACE_LEFT (2 * RDS_MAX_MSG)
/* Of all memory that two processes share: what is mapped can never be taken away. */
#define SHM_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)

/* A message that the engine reads in place.  Its room is given back in order. */
struct shm_slot {
	uint64_t end;
	bool done;
};

struct shm_ep {
	struct rds_ep_head head;
	struct shm_peer *peer; /* NULL once the control socket is gone */
	struct shm_ep *peer_next;
	uint64_t cookie; /* number of the attempt */
	bool initiator, up, closed;
	bool told;		 /* the peer may use the rings from now on, before or after `up` here (rx) */
	bool peer_ended;	 /* catch_up.c (rx): the process was found to have ended, */
	uint64_t peer_lived;	 /* or to live, after that time */
	struct shm_rings *rings; /* the control page; NULL: no memory yet */
	void *data;		 /* both data areas */
	size_t mapped;		 /* bytes from `data` on */
	uint32_t size;		 /* of each, a power of two */
	uint32_t bell_here; /* its bit in the inbox of this process */
	uint32_t bell_there; /* its bit in the peer's inbox */

	/* send side (conn->tx) */
	struct shm_ring_ctl *tx;
	unsigned char *tx_data;
	uint64_t tail, flushed, seen_head, seen_acked;
	uint64_t serviced;	 /* seen_acked + 1 when the peer was last asked for service */
	struct shm_inbox *there; /* the peer's inbox */
	uint32_t wanted;	 /* number of the latest request for room to the peer */
	_Atomic bool watched;	 /* the peer is cold, so each message is rechecked; helper writes it */
	struct shm_long *longs;	 /* fragment.c: oldest first, until they are acknowledged */

	/* receive side (rx) */
	struct shm_ring_ctl *rx;
	const unsigned char *rx_data;
	uint64_t freed_last; /* `freed` at the last relieve() */
	uint64_t mark;	     /* slots before this one existed mark_age ticks ago */
	unsigned mark_age;
	/* Next record; room given back; `freed` when the sender was last told of room. */
	uint64_t read, freed, freed_told;
	struct shm_slot *slots;
	uint64_t slot_first, slot_next;
	uint32_t slot_cap;
	uint32_t answered;  /* the peer's latest request for room that has been answered */
	uint32_t room_seen; /* the latest answer of the peer that has been noticed */
	bool hot, broken, kept;
	bool last;	      /* the peer has ended: what is received now is the last of it */
	bool draining;	      /* shm_ring_drain() runs */
	bool paused;	      /* its next message waits for the next tick */
	_Atomic bool recheck; /* the peer may not have been woken: recheck.c */
	_Atomic bool starved; /* a long message was not taken because memory was short: recheck.c */

	/* fragment.c; seldom used */
	struct shm_long *unplaced;     /* conn->tx: the ring does not have all its fragments yet */
	uint64_t last_long;	       /* conn->tx: its pos */
	struct shm_assembly *assembly; /* rx: the message of which fragments have come */
};

/*
 * A pipe that wakes a thread of a peer.  Program's threads get a number of it when they first need
 * it (wake_fds.c).
 */
struct shm_wake_fd {
	struct os_fd fd;
	/* open for reading, too, so there is always a reader and a write raises no SIGPIPE */
	_Atomic bool has_reader;
};
enum {
	SHM_DEFER_WAKE_LEADER = 1,
	SHM_DEFER_WAKE_HELPER = 2,
	SHM_DEFER_BREAK = 4,
	SHM_DEFER_WARM = 8,  /* the peer is cold, and needs its control socket */
	SHM_DEFER_ALIVE = 16 /* the peer is cold, and may have ended */
};

/* Has the peer a control socket and pipes (cold.c)? */
enum shm_warmth {
	SHM_WARM,
	SHM_COOLING, /* the peer gives the control socket up: nothing more is sent on it */
	SHM_COLD,
	SHM_WARMING, /* this process has connected again, and the peer has not answered */
};

/* The control socket in the epoll set. */
struct shm_ctl_event {
	struct rds_helper_event ev;
	struct shm_peer *peer;
};

/* Peers that wait for something, the first one first (peer_list.c).  A peer is in it once. */
enum shm_queue_kind {
	SHM_UNREAD,	/* the control socket has not been read to its end */
	SHM_WARM_LATER, /* cold, and could not be connected to: tried again */
	SHM_AWAITED,	/* cold, and something here may wait for it: does it live? (alive.c) */
	SHM_QUEUES
};
struct shm_queue {
	struct shm_peer *first, *last;
	unsigned n;
};

struct shm_peer {
	struct shm_peer *next; /* of all; later of those that have ended */
	struct shm_peer *open_next;
	struct {
		struct shm_peer *next;
		bool in;
	} queue[SHM_QUEUES];
	struct shm_ctl_event *ev;
	_Atomic int fd; /* control socket */
	struct rds_procid id;
	uint32_t slot; /* registry */
	struct ucred cred; /* from the kernel; pid 0: in another pid namespace */
	bool known;    /* HELLO has come */
	bool reading;  /* a packet of it is just being handled */
	bool heard;    /* it has ended, and all that it has said is read (rx) */
	/*
	 * Fetching (fetch.c): address of its id in its memory; the thread that is read; reading
	 * works.
	 */
	uint64_t id_at;
	pid_t reader;
	_Atomic bool fetched;
	/* by this process, the first time: id and slot were known before HELLO */
	bool dialled;
	_Atomic bool dead;
	/* recheck.c: on the list of those that are asked at the next tick */
	_Atomic bool recheck;
	struct shm_peer *recheck_next;
	/* cold.c */
	_Atomic uint8_t warmth; /* enum shm_warmth; the helper writes it */
	bool answered;		/* SHM_WARMING: HELLO has come again */
	uint64_t session;	/* number of the first connect, chosen by who dialled */
	uint64_t wake_key;	/* wake_socket.c */
	uint64_t used_order;	/* of the last use that was noticed, or of the connect */
	uint64_t opened_at;	/* the control socket */
	_Atomic bool used;	/* since that */
	_Atomic unsigned cold_uses; /* wake-ups and messages while it was cold */
	struct shm_wake_fd leader, helper;
	/* threads that may be about to write to a pipe; pipes that are closed when there is none */
	_Atomic unsigned waking;
	_Atomic int retired[2];
	/* the peer's attention word as this process wrote it after it last woke the peer */
	_Atomic uint32_t woken;
	struct shm_inbox *inbox;
	struct shm_ep *eps;
	/* Packets for which the control socket had no room (control.c). */
	struct shm_ctl_pkt *ctl_queue, *ctl_queue_last;
	unsigned ctl_nqueued;
	/* The two descriptor tables (wake_fds.c). */
	struct rds_deferred_call deferred_call; /* the helper does what `deferred_what` says */
	_Atomic unsigned deferred_what;
	unsigned nrequests;			 /* how often it did; helper */
	_Atomic bool exporting;			 /* the export to the program is on its way */
	bool exported;				 /* there was one */
	struct rds_deferred_call fds_close_call; /* the program closes its numbers of the pipes */
	_Atomic bool program_closed;
};

struct shm {
	struct rds_transport t; /* first */
	/* rx */
	struct shm_inbox *inbox;
	_Atomic int inbox_fd;
	/* where the search for a free bell starts; all used bells are below */
	uint32_t next_bell, bell_top;
	struct shm_ep *hot[SHM_HOT];
	unsigned nhot;
	bool need_bell;	      /* need_bell of all hot rings */
	unsigned catching_up; /* depth of recursion in shm_catch_up() */
	bool unsettled;	      /* messages wait for what shm_settled() tells */
	bool pressed;	      /* some ring may be pressed: shm_relieve() has to check */
	uint32_t announced;   /* the attention word that this process wrote last */
	bool found;	      /* something has arrived since it was written */
	/* helper */
	struct rds_helper_event listener;
	_Atomic int listen_fd;
	struct shm_peer *peers; /* all that have not ended */
	struct shm_peer *open;	/* those with a control socket, the latest first */
	struct shm_peer *ended; /* to be freed */
	bool any_dead;		/* some of `peers` have ended */
	struct shm_peer *hearing; /* catch_up.c: it has ended, and is read to the end */
	struct shm_queue queue[SHM_QUEUES];
	uint64_t next_cookie;
	unsigned char *pages, *pages_end; /* memory.c: addresses for single pages */
	/* cold.c; helper */
	unsigned nopen, ncold; /* peers with a control socket, and cold ones */
	uint64_t next_session, next_use, answered_at;
	struct rds_timer warm_timer;
	/* alive.c; helper */
	struct rds_timer await_timer, look_timer;
	uint64_t await_since;	    /* the latest awaited peer */
	unsigned looks;		    /* so many cold peers are to be looked at */
	uint64_t look_pause;	    /* until all of them are */
	struct shm_peer *look_next; /* where the next look begins */
	/* wake_socket.c */
	struct os_fd wake, leader_post;
	struct rds_deferred_call leader_call;
	uint64_t wake_key;
	struct rds_helper_event wake_event;
	/* recheck.c */
	struct rds_timer recheck_timer, sweep_timer;
	_Atomic(struct shm_peer *) recheck_list;
	struct rds_timer unread_timer; /* peer_read.c, helper */
	_Atomic bool recheck_armed, sweep_armed;
};
extern struct shm rds_shm;
extern struct shm_ep *shm_bells[SHM_BELLS]; /* rx */

/* ring.c */
int shm_ring_send(struct rds_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len, uint64_t *pos);
const void *shm_ring_retained(struct rds_ep *ep, uint64_t pos);
uint64_t shm_ring_acked(struct rds_ep *ep);
bool shm_ring_settled(struct rds_ep *ep);
/* As shm_ring_acked(), for the engine, which forgets what is acknowledged. */
uint64_t shm_ring_reap(struct rds_ep *ep);
bool shm_ring_has_room(struct shm_ep *ep, uint32_t len); /* for a fragment, at the tail */
/* False: no room. */
bool shm_ring_fragment(struct shm_ep *ep, const struct rds_wire_hdr *hdr, const void *bytes, uint32_t len);
/* The peer's data are invalid: breaks the connections with it, and returns false. */
bool shm_ring_bad(struct shm_ep *ep, const char *what);
static inline bool shm_ring_leftover(const struct shm_ep *ep)
{
	return atomic_load_explicit(&ep->rx->tail, memory_order_relaxed) != ep->read && !ep->broken && !ep->paused;
}
/* rx held; v: LATER or PAUSE */
void shm_ring_put_off(struct shm_ep *ep, enum rds_rx_verdict v);
bool shm_ring_drain(struct shm_ep *ep); /* rx held; true: something was received */
bool shm_ring_relieve(struct shm_ep *ep, bool now);
void shm_ring_release(struct rds_ep *ep, void *token);
void shm_ring_ack(struct rds_ep *ep, uint64_t seq);
void shm_ep_free(struct shm_ep *ep); /* rx held, closed, nothing in place */

/*
 * fragment.c.  send side (conn->tx): send, push and retained are those of the transport.  acked:
 * frees what the engine forgets.
 */
int shm_long_send(struct shm_ep *ep, const struct rds_wire_hdr *hdr, const struct iovec *iov, size_t len,
		  uint64_t *pos);
void shm_long_push(struct rds_ep *ep);
const void *shm_long_retained(const struct shm_ep *ep, uint64_t pos);
void shm_longs_acked(struct shm_ep *ep, uint64_t acked);
void shm_longs_free(struct shm_ep *ep); /* of both sides */
/* rx held; a record of len bytes.  False: it cannot be taken now, or the ring is broken. */
bool shm_fragment_take(struct shm_ep *ep, const volatile struct shm_rec *rec, uint32_t len);

/* wake.c */
int shm_inbox_open(void);
void shm_flush(struct rds_ep *ep, bool service);
bool shm_want_room(struct rds_ep *ep, uint64_t seen_ack);
/* rx held; after an acknowledgement or freed room: wakes a sender that waits */
void shm_room_made(struct shm_ep *ep);
void shm_attention(struct rds_transport *t, enum rds_attention who);
bool shm_pending(struct rds_transport *t);
bool shm_progress(struct rds_transport *t);
bool shm_relieve(struct rds_transport *t, bool now);
int shm_bell_add(struct shm_ep *ep);  /* rx held; 0 or -ENOSPC */
void shm_bell_del(struct shm_ep *ep); /* rx held */
void shm_bell_ring_own(struct shm_ep *ep); /* rx held */
void shm_inbox_close(void);
void shm_peer_init(struct shm_peer *p);
bool shm_wake_fd_write(const struct shm_wake_fd *w, int fd); /* true: the wake-up is in the pipe */
/* wake_socket.c */
int shm_wake_socket_open(void); /* helper */
void shm_wake_socket_close(void);
void shm_wake_socket_init(void);
/*
 * RUN: the peer's helper runs a round.  LOOK: it looks at all rings, too.  LEADER: its leader wakes up, which
 * sleeps on the socket (RDS_ATT_NAMED).  0 or -errno; any lock may be held.
 */
enum shm_wake_what { SHM_WAKE_RUN = 'w', SHM_WAKE_LOOK = 'l', SHM_WAKE_LEADER = 'r' };
int shm_wake_socket_send(const struct shm_peer *p, bool look);
int shm_wake_socket_send_to(const struct rds_procid *id, uint64_t key, enum shm_wake_what what);

/* The peer has been woken, as `word` of its inbox asked for: no other thread need wake it again. */
void shm_attention_claim(struct shm_peer *p, struct shm_inbox *there, uint32_t word);
/* any thread: the helper does `what` for p */
void shm_peer_defer(struct shm_peer *p, unsigned what);
/* helper, from HELLO */
void shm_wake_fd_init(struct shm_wake_fd *w, int fd, int flags, bool again);
/* helper: p is dead or cold, and its control socket is closed */
void shm_wake_fds_close(struct shm_peer *p);
/* helper: no deferred call, nor the program's side, names the dead p */
bool shm_peer_idle(struct shm_peer *p);

/* catch_up.c */
bool shm_catch_up(struct rds_transport *t, uint64_t since);
bool shm_settled(void); /* rx held: whatever messages may have waited for is there; true: something was received */
/*
 * What messages of processes that have ended may wait for is settled, and messages are offered again; helper, no
 * lock held.  False: there was nothing to be done.
 */
bool shm_peers_make_way(void);
void shm_meet(struct rds_transport *t, bool last);

/* recheck.c */
void shm_recheck_init(void);
/* Under conn->tx or rx: the peer may not have noticed a message or an answer of this endpoint. */
void shm_recheck_later(struct shm_ep *ep);
/* conn->tx: a message was refused for lack of memory, so `writable` comes after a tick. */
void shm_recheck_memory(struct shm_ep *ep);
/* rx held: this process was woken, and no bell had rung */
void shm_recheck_inbox(void);
/* The peer has not noticed all messages and answers of this endpoint. */
bool shm_ep_unnoticed(const struct shm_ep *ep);
/* conn->tx or rx: the engine waits for the peer, which may be cold */
void shm_watch(struct rds_ep *ep);
void shm_on_look(struct shm_peer *p, uint32_t bell); /* helper: LOOK has come */

/* cells.c */
extern struct shm_line *shm_cells_line; /* of this process; NULL: it has no cells, and gets none */
/*
 * Cells of this process. 0 and a cell that nobody else has; -ENOSPC, -ENOMEM: there is none; -EOPNOTSUPP:
 * this process cannot have any. Takes a lock, which is a leaf.
 */
int shm_cell_get(uint32_t *n);
void shm_cell_put(uint32_t n); /* in any state: it is used again when its receiver does not have it */
void shm_cells_close(void);    /* gives back all that no receiver has */
void shm_cells_fork_child(void);
/*
 * The cell of any process. NULL: there is none of that number. Until shm_cells_close(), the address is
 * valid.
 */
struct shm_cell *shm_cell_at(uint32_t n);
/* The same of a cell from shm_cell_get(). It is found whatever others have written into the registry. */
struct shm_cell *shm_cell_own(uint32_t n);
/* Whose cell is it? False: nobody's. */
bool shm_cell_sender(uint32_t n, uint64_t *word, uint32_t *slot);
/*
 * Puts a cell that this process has filled on the stack of the process with that slot and `to`. False:
 * that process looks at no stack, and the cell is as before. The caller wakes it.
 */
bool shm_cell_push(uint32_t n, uint32_t slot);
/* Receiver; rx. Also looks for what others have left that have ended. */
int shm_cells_listen(void);
bool shm_cells_pending(void);
/*
 * Takes all that is on the stack of this process: the first of a chain in the order in which they came, 0:
 * none. Each is SEEN. shm_cells_next() gives the next one of the chain, once: take it before the cell goes
 * back.
 */
uint32_t shm_cells_take(void);
uint32_t shm_cells_next(uint32_t n);
/* Goes back to its sender, if it is still SEEN. */
void shm_cell_return(struct shm_cell *cell, bool taken);
/*
 * The sender has ended: looks in its slabs for cells that are for this process and that it has not seen,
 * and makes them SEEN. fn gets them in no order. (One that lives may be about to put them on the stack.)
 */
void shm_cells_search(uint64_t sender, void (*fn)(uint32_t n, void *arg), void *arg);

/* cell_ep.c */
int shm_open_cells(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, struct rds_ep **ep);
/* cell_strangers.c */
void shm_cells_meet(struct rds_transport *t);
/* cell_recv.c; rx */
bool shm_cells_drain(void);	/* true: something was received */
bool shm_cells_tick_came(void); /* what could not be taken is to be offered again */
void shm_cells_sweep(void);	/* helper: a tick has passed */
bool shm_cells_put_off(void);	/* the engine has not taken some of them yet; rx not held */
bool shm_cells_offer(bool tick); /* to the engine: what has come, also what it has put off */
/*
 * As catch_up() of the transport.  again: what the engine has not taken is offered once more.  False: it is
 * not known yet whose some cells are.
 */
bool shm_cells_catch_up(bool again, uint64_t since);
void shm_cell_recv_fork_child(void);
/* cell_watch.c; helper */
void shm_cells_peer_gone(const struct rds_procid *id, uint32_t slot);
void shm_cell_watch_fork_child(void);

/* fetch.c */
void shm_fetch_offer(struct shm_ctl_msg *hello);			   /* helper */
void shm_fetch_learn(struct shm_peer *p, const struct shm_ctl_msg *hello); /* helper */
bool shm_fetchable(struct rds_ep *ep);
int shm_fetch(struct rds_ep *ep, void *to, size_t len, const struct rds_fetch_src *from);

/* peer.c */
/* helper: finds the peer, or connects to it */
int shm_peer_get(const struct rds_conn_id *id, struct shm_peer **out);
void shm_peer_break(struct shm_peer *p);			       /* helper */
void shm_peer_dead(struct shm_peer *p, int why);		       /* helper */
/* The process whose id begins with `word` has ended: what it has said is heard, and then that it has ended; helper. */
void shm_peers_hear_last(uint64_t word);
/* peer_list.c; helper */
void shm_peer_list_add(struct shm_peer *p);
void shm_open_add(struct shm_peer *p);
void shm_open_del(struct shm_peer *p);
void shm_queue_add(enum shm_queue_kind kind, struct shm_peer *p); /* the last one, unless it is there */
struct shm_peer *shm_queue_take(enum shm_queue_kind kind);	  /* the first one; NULL: none */

/* For cold.c; helper. */
int shm_peer_dial(const struct rds_procid *id, struct ucred *cred); /* a descriptor or -errno */
int shm_peer_open(struct shm_peer *p, int fd);			    /* 0, or -errno and fd is closed */
void shm_peer_shut(struct shm_peer *p);				    /* closes control socket and pipes */
int shm_peer_say_hello(int fd, uint64_t session, uint8_t whose);
/* Has the process that has those credentials too many control sockets?  id: of HELLO, or NULL */
bool shm_peer_too_many(const struct ucred *cred, const struct rds_procid *id);
/* peer_read.c; helper */
void shm_peer_event(struct rds_helper_event *ev, uint32_t events);
int shm_peer_check_hello(struct shm_peer *p, const struct shm_ctl_msg *msg, const int fds[OS_PASS_MAX], int modes[2]);
int shm_peer_learn(struct shm_peer *p, const struct shm_ctl_msg *hello, int inbox);
/* Can the first HELLO be read, which may be there?  Otherwise what follows must not be read now. */
bool shm_peer_hello_fits(const struct shm_peer *p);
void shm_peer_read_all(struct shm_peer *p);
void shm_peer_read_later(struct shm_peer *p);

/* cold.c; helper */
void shm_cold_init(void);
/*
 * Makes room for one more control socket with its pipes, where there are many.  must: no descriptor is
 * free.  False: no peer can be made cold.
 */
bool shm_cold_make_room(const struct shm_peer *except, bool must);
bool shm_cold_may_dial(void);
/* This process has asked for a connection, and has no answer yet. */
bool shm_peer_owes_reply(const struct shm_peer *p);
void shm_cold_hung_up(struct shm_peer *p); /* it was about to become cold, or warm */
void shm_cold_warm(struct shm_peer *p);
void shm_cold_tell_end(struct shm_peer *p); /* the connections with a cold peer are broken */
/* Packets.  0 or -errno */
int shm_cold_on_cool(struct shm_peer *p);
/* p is warming, or cold */
int shm_cold_on_hello(struct shm_peer *p, const struct shm_ctl_msg *msg, int fds[OS_PASS_MAX], unsigned nfds);
int shm_cold_on_warm(struct shm_peer *p, const struct shm_ctl_msg *msg);
/* `from` has come in, and is the new control socket of a peer that was cold */
int shm_cold_on_return(struct shm_peer *from, const struct shm_ctl_msg *msg, int fds[OS_PASS_MAX]);

/* alive.c; helper */
void shm_alive_init(void);
void shm_alive_check(struct shm_peer *p); /* a cold peer that has ended is dead afterwards */
void shm_alive_await(struct shm_peer *p); /* cold; something may wait for it */
void shm_alive_look_at_others(void);	  /* a peer has become cold, or has ended */

/* connect.c; helper */
int shm_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, struct rds_received here,
		struct rds_ep **ep);
void shm_close(struct rds_ep *ep);
void shm_keep(struct rds_ep *ep, bool on);
void shm_ep_down(struct shm_ep *ep, int why, bool gone); /* closes it */
/* any thread, rx held: the helper breaks it */
void shm_ep_break(struct shm_ep *ep);
/* A packet of this kind has come: 0, or -errno if the control socket must be closed. */
int shm_on_connect(struct shm_peer *p, const struct shm_ctl_msg *msg, const int *fds, unsigned nfds);
int shm_on_reply(struct shm_peer *p, const struct shm_ctl_msg *msg);
void shm_on_close(struct shm_peer *p, const struct shm_ctl_msg *msg);

/* memory.c */
int shm_rings_check_limit(void); /* 0, or -EFBIG and logged: no peer could be connected to */
/* Rings of that size, or smaller. */
int shm_rings_create(struct shm_ep *ep, uint32_t size, int *fd);
int shm_rings_attach(struct shm_ep *ep, uint64_t size, int fd);
int shm_rings_reduce(struct shm_ep *ep, uint64_t size); /* those that create() made, before use */
void shm_rings_unmap(struct shm_ep *ep);
int shm_inbox_attach(int fd, struct shm_inbox **out);

/* control.c; helper */
/*
 * The peer has closed its end.  ECONNREFUSED: Linux before 6.2 says so if that happens during the call.
 * It also throws away what has not been read here, perhaps COOL.  Then the hang-up is taken for the end
 * of the session, and the connections are made again.
 */
static inline bool shm_ctl_is_hang_up(int err)
{
	return err == -EPIPE || err == -ECONNRESET || err == -ECONNREFUSED;
}
int shm_ctl_send(int fd, const struct shm_ctl_msg *msg, const int *fds, unsigned nfds);
/* Bytes received (0 = hang-up) or -errno.  The caller owns the received descriptors. */
ssize_t shm_ctl_recv(int fd, struct shm_ctl_msg *msg, int fds[OS_PASS_MAX], unsigned *nfds);
/*
 * Sends now or not at all: 0, -EAGAIN (no room, or earlier packets wait), or -errno of the socket.
 */
int shm_ctl_try(struct shm_peer *p, const struct shm_ctl_msg *msg, const int *fds, unsigned nfds);
/*
 * Sends now or when there is room: 0, or -errno if the packet is lost and the control socket must
 * be closed.
 */
int shm_ctl_queue(struct shm_peer *p, const struct shm_ctl_msg *msg);
int shm_ctl_flush(struct shm_peer *p); /* when there is room: 0 or -errno as above */
void shm_ctl_drop(struct shm_peer *p);

#endif
