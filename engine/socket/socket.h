/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * socket.h - an RDS socket inside the engine.  Each group of fields names the lock that guards it (engine.h).
 * Objects are never given back to malloc (references to a stale pointer must stay safe), only reused.
 */
#ifndef ENGINE_SOCKET_SOCKET_H
#define ENGINE_SOCKET_SOCKET_H

#include "engine/socket/op_marks.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/helper/helper.h"
#include "engine/rds.h"
#include "engine/helper/leader.h"
#include "engine/sys/compiler.h"
#include "engine/sys/fence.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/sys/process.h"
#include "engine/wire/addr.h"
#include "engine/node/stats.h"
#include "engine/node/registry.h"
#include "include/rds_abi.h"

#define RDS_DST_CACHE 8 /* power of two */
#define RDS_DST_RAW4 8	/* of a sockaddr_in: family, port, address */
#define RDS_ZCOOKIES 8

/* Where a send to this sockaddr goes, as long as nothing was bound, closed or disconnected since. */
struct rds_sock_dst {
	uint8_t raw[28]; /* the sockaddr as the program gave it */
	uint8_t rawlen;
	struct rds_addr addr;
	struct rds_conn *conn;
	uint64_t bind_gen, conn_gen;
	uint64_t sock; /* the socket that has the port as of bind_gen, as in struct rds_queue_item */
	bool followed; /* RDS_FLAG_NEW_OWNER has been said there */
};

struct rds_sock_zcopy {
	struct rds_sock_zcopy *next;
	struct rds_zcopy_cookies cookies;
};

struct rds_queue_item;
struct rds_wait;

struct rds_sock {
	_Atomic uint64_t ref;	  /* RDS_REF_*: the open socket, its numbers, engine lists, calls for which no record had room */
	_Atomic bool open;	  /* cleared at last close */
	_Atomic bool handing_off; /* not open, because it is being handed over (share/handoff_out.c; written under rx) */
	bool nobodys;		  /* ... and the registry says so */
	_Atomic unsigned look_later; /* what lies on our end of the pair is to be looked at (rds_owner_look_later) */
	_Atomic bool
		accepts_nothing; /* ... and what it has is written down: nothing is accepted any more (written under rx) */
	struct rds_sock *next_free; /* slab (control) */
	struct rds_sock *prev_all, *next_all; /* all open sockets (control) */
	unsigned numbers; /* descriptor numbers that the layer above counts (control) */
	struct os_fd pair;	  /* our end of it; closed under `wait` */
	uint32_t exported;	  /* to the helper of that epoch (control; helper/fd_exchange.h) */
	struct rds_deferred_call close_call; /* the other side closes its number; holds a reference */
	uint64_t inode;	  /* of the application's end */
	struct rds_procid name; /* of that (node/socket_name.h) */
	uint32_t reg_idx;
	struct rds_helper_event ev;
	_Atomic uint64_t copied;  /* bytes of other processes' writes, kept for them (rdma/op_request.c) */
	struct rds_timer hanging; /* hung up, with operations under way (helper) */
	uint64_t hanging_until;
	bool port_returned; /* ... and its port has been given back */
	/* what is kept for the case that this process is killed (share/lease.h) */
	_Atomic(struct rds_lease_page *) lease;
	struct os_fd lease_fd, mailbox_fd; /* the latter may be none */
	_Atomic unsigned lease_wanted;
	struct rds_sock *lease_next; /* control */

	/* names (written under control, bound is released last and never taken back) */
	_Atomic bool bound;
	struct rds_addr laddr;
	uint32_t bound_scope; /* also set by a link-local connect */
	_Atomic int transport; /* RDS_TRANS_* id, RDS_TRANS_NONE */
	_Atomic bool no_rdma;  /* the program has asked for TCP, which has none */
	_Atomic bool connected;
	struct rds_addr caddr;
	_Atomic uint8_t tos;
	_Atomic bool tos_fixed; /* a send got as far as the connection look-up */

	/* sending (tx) */
	rds_lock_t tx;
	struct rds_sock_dst dst[RDS_DST_CACHE];
	_Atomic uint64_t snd;	 /* bytes accounted (low part) and messages in flight: rds_snd_* below */
	uint64_t
		since; /* when another process's became ours (RDS_FLAG_NEW_OWNER), else 0; written before it is listed */
	struct rds_queue_item *handoff; /* messages that change hands with it (share/handoff_unsent.c; control) */

	/* receiving (rx) */
	struct rds_sock *hash_next;
	struct rds_inc *rx_head, **rx_tail;
	uint64_t n_taken;	      /* by holders' calls */
	struct rds_sock *unseen_next; /* has input that the kernel does not show yet */
	bool unseen;
	uint64_t rcv_bytes;
	bool congested;
	struct rds_sock_zcopy *zhead, **ztail;
	/* RDMA (rx): regions, what is to be told of operations */
	struct rds_mr *regions;
	_Atomic bool region_freed_by_other; /* one of another process's (node/socket_name.h) */
	uint32_t owner_id;		    /* a number of this process as the carrier (helper); 0: none yet */
	_Atomic bool burying; /* closed, and a device may still know some of them */
	struct rds_op *reports, **report_tail;
	struct rds_op *async_sends; /* messages whose own end is to be told and has not come (rdma/async_send.c) */
	_Atomic unsigned nfailed; /* of those and of reports that hold up what is sent (written under rx) */
	_Atomic unsigned nops; /* operations under way (written under rx) */
	_Atomic bool had_ops;
	_Atomic bool had_async_sends; /* what a break costs holds up what comes behind (rdma/op_flush.c) */
	struct rds_op_marks marks;
	uint64_t marks_gen;	 /* changes when a mark rises */
	struct rds_op *ordered_ops; /* operations with an id */
	/* congestion monitor and generation (written under rx; what others will know of the socket is read at any time, share/lease.c) */
	_Atomic bool cong_monitor;
	_Atomic uint64_t cong_mask, cong_notify;
	uint64_t cong_track;	      /* rx; names are the kernel's */
	_Atomic bool seen_congestion; /* written under rx */
	_Atomic bool cong_attached; /* a poll that began after that may still sleep: an update wakes it */
	struct rds_sock *mon_next;
	struct rds_sock *cong_next; /* sockets that have met congestion */
	bool cong_listed;
	unsigned cong_blocked; /* threads asleep for a congested port */

	/* options: set rarely, read often, each one word */
	_Atomic uint32_t sndbuf, rcvbuf; /* as getsockopt shows them; RDS limits are half */
	_Atomic uint64_t sndtimeo_ns, rcvtimeo_ns; /* RDS_NO_TIMEOUT = none */
	_Atomic bool recverr;
	_Atomic int timestamp; /* 0, or the SO_TIMESTAMP number to report it under */
	_Atomic bool zerocopy;
	_Atomic bool inq;	   /* SO_RDS_INQ: say with each message how many bytes still wait */
	_Atomic uint32_t rx_trace; /* n | pos0 << 8 | pos1 << 16 | pos2 << 24 */
	_Atomic int err;	   /* recvmmsg's deferred error, positive errno */
	_Atomic int sol_rds;	   /* level the program last used, 0 none yet */
	_Atomic uint32_t generic;  /* RDS_GENERIC_*: SOL_SOCKET flags that are only read back (calls/sockopt_generic.c) */

	/* readiness (wait) */
	_Atomic(struct rds_wait_node *) waiters;
	_Atomic bool watched;
	_Atomic bool watched_edge;
	_Atomic bool proxy_sleeps;	   /* calls of other processes sleep for it (share/owner.c): tell the helper */
	_Atomic bool shown_in, hidden_out; /* a packet lies in the application's end / its send buffer is filled */
	_Atomic uint8_t shown;		   /* ... so many at most: RDS_SHOWN_MAX */
};

#define RDS_NO_TIMEOUT UINT64_MAX
#define RDS_SHOWN_MAX 32 /* a deposit has to find room behind them (share/handoff_out.c) */

enum { RDS_GENERIC_STAMP_NS = 1, RDS_GENERIC_PASSCRED = 2, RDS_GENERIC_PASSSEC = 4 };

static inline uint32_t rds_sock_sndbuf(const struct rds_sock *sk)
{
	return atomic_load_explicit(&sk->sndbuf, memory_order_relaxed) / 2;
}
static inline uint32_t rds_sock_rcvbuf(const struct rds_sock *sk)
{
	return atomic_load_explicit(&sk->rcvbuf, memory_order_relaxed) / 2;
}
static inline bool rds_sock_bound(const struct rds_sock *sk)
{
	return atomic_load_explicit(&sk->bound, memory_order_acquire);
}

/*
 * Bytes that count against SNDBUF and the number of messages that still point to the socket, in one word so that a send
 * costs one atomic addition.  Whoever brings references and messages to nothing frees the socket (socket.c).
 */
#define RDS_SND_MSG (1ull << 40)
#define RDS_SND_MSGS (1u << 22)	  /* of a socket that may be written to */
#define RDS_SND_DEAD (1ull << 63) /* no reference is left */
static inline uint64_t rds_sock_snd_bytes(const struct rds_sock *sk)
{
	return atomic_load_explicit(&sk->snd, memory_order_acquire) & (RDS_SND_MSG - 1);
}
/* The bound on messages is ours: empty ones count nothing against SNDBUF, but their number must stay in its field. */
static inline bool rds_sock_writable(const struct rds_sock *sk)
{
	uint64_t snd = atomic_load_explicit(&sk->snd, memory_order_acquire);

/* What a message in flight takes beside its bytes, whatever the structure in its queue is; conn/send_queue.c checks it. */
#define RDS_SOCK_MESSAGE_COST 208

	return (snd & (RDS_SND_MSG - 1)) < rds_sock_sndbuf(sk) && snd < RDS_SND_MSG * RDS_SND_MSGS;
}
static inline void rds_sock_snd_add(struct rds_sock *sk, uint64_t bytes)
{
	atomic_fetch_add(&sk->snd, RDS_SND_MSG + bytes);
}
void rds_sock_snd_sub(struct rds_sock *sk, unsigned msgs, uint64_t bytes); /* may free it */
extern _Atomic int64_t
	rds_sock_closed_bytes; /* what sockets that have ended and their messages take, wherever these are (conn/closed_sockets.c) */
/*
 * sk->ref: the references, and above them how often they have come to nothing, so that whoever saw that once cannot take
 * it for what he saw when he comes to act on it.  ENDING: there is none, and nobody has found yet that no call is in progress.
 */
#define RDS_REF_COUNT 0x7fffffffull
#define RDS_REF_ENDING 0x80000000ull
#define RDS_REF_TURN (1ull << 32)

/* A second reference for whoever already holds one, or is in a call. */
static inline void rds_sock_hold(struct rds_sock *sk)
{
	atomic_fetch_add_explicit(&sk->ref, 1, memory_order_relaxed);
}

/* socket.c */
void rds_sock_each(void (*fn)(struct rds_sock *sk, void *arg), void *arg); /* all open sockets, control held inside */
void rds_sock_each_locked(void (*fn)(struct rds_sock *sk, void *arg), void *arg); /* caller holds control */
bool rds_sock_hung_up(struct rds_sock *sk); /* the kernel says so */
bool rds_sock_unlist(
	struct rds_sock *sk); /* control held.  True: the helper has a number for it, in a table of its own */
/* Nothing new can come to it; who sleeps for it looks.  exported: as rds_sock_unlist() has said. */
void rds_sock_close_pair(struct rds_sock *sk, bool exported);
int rds_sock_pair_fd(struct rds_sock *sk);  /* our end of the pair, in this thread's table; -1: none */
int rds_sock_export(struct rds_sock *sk);   /* 0 or -errno */
int rds_sock_export_all(void); /* control held, the helper is starting: have it see the hang-ups of stand-ins */
unsigned rds_sock_exported(void *sk, int *fds, unsigned nfds); /* rds_export_taker */
void rds_sock_forget(void); /* forked child */
extern _Atomic uint64_t rds_sock_cong_gen; /* changes with congestion anywhere */
extern struct rds_sock *rds_sock_unseen; /* sockets with input that their stand-in does not show; rx */
extern struct rds_sock
	*rds_sock_taker;	  /* ... but for this one, as long as the lock is held: its reader is looking for it */
void rds_sock_bound_forget(void); /* forked child */
void rds_sock_slab_put(struct rds_sock *sk); /* refcount.c: nothing of it is in use: back to the slab */
/* A socket around an end of a pair that came from another process, which it takes; not open before it is listed.  0 or -errno. */
int rds_sock_new(int pair, uint64_t inode, struct rds_sock **out);
void rds_sock_list_add(struct rds_sock *sk); /* control: open, with two references */
void rds_sock_list_del(struct rds_sock *sk); /* control */
void rds_sock_export_late(struct rds_sock *sk);

/* calls/bind.c: the sockets of this process by address and port; rx held */
struct rds_sock *rds_sock_bound_find(const struct in6_addr *ip, uint16_t port, uint32_t scope);
void rds_sock_bound_insert(struct rds_sock *sk);
void rds_sock_bound_remove(struct rds_sock *sk);
/* The level under which control messages are delivered (legacy-abi 1.1): the one that the program has used last, in whatever call. */
int rds_sock_level(const struct rds_sock *sk);
void rds_sock_used_level(struct rds_sock *sk, int level);

/* calls/ioctl.c, calls/sockopt.c, calls/info.c */
int rds_info_getsockopt(struct rds_sock *sk, int opt, void *val, socklen_t *len);
/* RDS_STATS_GLOBAL; *len has been found readable. */
int rds_info_getsockopt_2006(void *val, socklen_t *len);

/* conn/cong.c; rx held */
void rds_cong_sock_add(struct rds_sock *sk); /* a send of it met a congested port */
void rds_cong_sock_del(struct rds_sock *sk); /* the next update, which may be long in coming, is not its concern */
void rds_cong_set_monitor(struct rds_sock *sk, bool on);

/* conn/send_queue.c: about to sleep for send space (no lock held): ask every peer that owes acknowledgements. True: some came. */
bool rds_queue_want_room_all(void);
/*
 * Before a thread sleeps, and after some looks in vain: peers whose programs are busy are asked for what was not worth waking their helpers for at
 * once (RDS_TCAP_PATIENT).  True: acknowledgements have come.
 */
bool rds_queue_ask_deferred(void);
void rds_queue_looked_in_vain(void);
bool rds_queue_ask_later(struct rds_conn *conn); /* tx: then there is something to be asked for */

/* standin.c, progress/wait.c */
/* Waiting inside the engine: for a message, for a congestion update (beside poll()'s own bits). */
#define RDS_WAIT_RECV 0x1000
#define RDS_WAIT_CONG 0x2000
#define RDS_WAIT_ROOM 0x4000
#define RDS_WAIT_BARRIER 0x0800
/* rx held: queue, notification or zero-copy completion */
static inline bool rds_sock_has_input(const struct rds_sock *sk)
{
	return sk->rx_head || sk->zhead || sk->reports || rds_sock_marks_readable(&sk->marks) ||
	       (sk->cong_monitor && sk->cong_notify);
}
bool rds_sock_would_wake(struct rds_sock *sk, short events); /* rx held: would a sleeper for these events go on now? */
/* Something came in or went out: wake threads that sleep for one of `events`, show it on the stand-in if it is watched.
 * From under rx (POLLIN) or conn->tx (POLLOUT). */
void rds_sock_wake(struct rds_sock *sk, short events);
/* After a receive emptied the queue / a send filled it: take back what the stand-in shows. fd names the socket. */
void rds_sock_lower_shown(struct rds_sock *sk, int fd); /* rx held */
static inline void rds_sock_lower_if_shown(struct rds_sock *sk, int fd)
{
	if (unlikely(atomic_load_explicit(&sk->shown_in, memory_order_relaxed) ||
		     atomic_load_explicit(&sk->watched, memory_order_relaxed)))
		rds_sock_lower_shown(sk, fd);
}
void rds_sock_unseen_add(struct rds_sock *sk); /* rx held */
/* rds_sock_taker has taken what it wanted: more than that may have come.  rx held. */
static inline void rds_sock_unseen_note(struct rds_sock *sk)
{
	if (unlikely(rds_sock_has_input(sk)))
		rds_sock_unseen_add(sk);
}
/* The filler that shows "not writable" was read off our end: it is put back; fd: a stand-in, -1: there is none, so it shows "writable". */
void rds_sock_refill_out(struct rds_sock *sk, int fd);
/* Its stand-in is empty, its last carrier was killed: whatever was shown there is shown again, in other sets as well.  No lock held. */
void rds_sock_show_anew(struct rds_sock *sk, int fd);
void rds_sock_show_refused(struct rds_sock *sk, int fd); /* a send fails with EAGAIN: show that, and its end */
void rds_sock_show_unseen(void); /* helper: what has stood unread for a tick becomes visible in the kernel */
void rds_sock_wake_all(struct rds_sock *sk); /* closing: wake every sleeper */

/* A thread that sleeps for a socket, in its list: sk->waiters; wait. */
struct rds_wait_node {
	struct rds_wait *w;
	struct rds_sock *sk;
	struct rds_wait_node *prev, *next; /* among the socket's sleepers */
	short events;
};

/* What the packages above do for a socket, filled in before anything runs. */
struct rds_sock_events {
	void (*pair_readable)(struct rds_sock *sk); /* our end of the pair has something to say.  Helper */
	void (*closing)(struct rds_sock *sk);	    /* this table's numbers go.  wait held */
	void (*unused)(struct rds_sock *sk);	    /* nobody uses the structure any more */
	void (*changed)(struct rds_sock *sk);	    /* what another process would have to know */
	void (*wake)(struct rds_wait *w);	    /* it sleeps for the socket.  wait held */
	void (*proxy_wake)(void);		    /* a call for another process sleeps for it */
	void (*watched)(void); /* somebody may sleep for it in the kernel, or in another process.  rx held */
};
extern struct rds_sock_events rds_sock_events;

/* What is written in its lease has changed. Any thread, any lock; from a signal handler, too. */
static inline void rds_sock_changed(struct rds_sock *sk)
{
	if (unlikely(atomic_load_explicit(&sk->lease, memory_order_relaxed) != NULL))
		rds_sock_events.changed(sk);
}

#endif
