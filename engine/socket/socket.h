/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * socket.h - an RDS socket inside the engine.
 *
 * Each group of fields names the lock that guards it (sys/lock_order.h).  A structure is never
 * given back to malloc, only reused: a stale pointer to one can still be read.
 */
#ifndef ENGINE_SOCKET_SOCKET_H
#define ENGINE_SOCKET_SOCKET_H

#include "engine/socket/op_marks.h"
#include "engine/socket/state_table.h"
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

/*
 * Where a send to this sockaddr goes.  Valid until a socket is bound or closed, or a connection
 * ends.
 */
struct rds_sock_dst {
	uint8_t raw[28]; /* the sockaddr as the program gave it */
	uint8_t rawlen;
	struct rds_addr addr;
	struct rds_conn *conn;
	uint64_t bind_gen, conn_gen;
	/* the socket that has the port as of bind_gen, as in struct rds_queue_unacked */
	uint32_t sock;
};

struct rds_sock_zcopy {
	struct rds_sock_zcopy *next;
	struct rds_zcopy_cookies cookies;
};

struct rds_queue_item;
struct rds_wait;

struct rds_sock {
	/*
	 * RDS_REF_*: the open socket, its descriptor numbers, engine lists, calls that found no
	 * free slot in the thread record
	 */
	_Atomic uint64_t ref;
	_Atomic bool open;	  /* cleared at last close */
	/* not open, because it is being handed off (share/handoff_out.c; written under rx) */
	_Atomic bool handing_off;
	bool nobodys; /* ... and the registry shows it as having no owner */
	/* our end of the pair has to be read again (rds_owner_look_later) */
	_Atomic unsigned look_later;
	/* handed off, and the next owner's: nothing is accepted any more (written under rx) */
	_Atomic bool accepts_nothing;
	struct rds_sock *next_free;	      /* slab (sock_slab_lock) */
	struct rds_sock *prev_all, *next_all; /* all open sockets (control) */
	/* descriptor numbers that the preload layer counts (control) */
	unsigned numbers;
	struct os_fd pair;	  /* our end of it; closed under `wait` */
	/* epoch of the helper that it was exported to (control; helper/fd_exchange.h) */
	uint32_t exported;
	/* the other descriptor table closes its number; holds a reference */
	struct rds_deferred_call close_call;
	uint64_t inode;		/* of the program's end of the pair */
	struct rds_procid name; /* name of that end (node/socket_name.h) */
	uint32_t reg_idx;
	struct rds_helper_event ev;
	/* bytes that other processes write by RDMA, kept for them (rdma/op_request.c) */
	_Atomic uint64_t copied;
	struct rds_timer hanging; /* hung up, with operations in progress (helper) */
	uint64_t hanging_until;
	bool port_returned; /* ... and its port has been given back */
	/* what is kept in case this process is killed (share/lease.h) */
	_Atomic(struct rds_lease_page *) lease;
	struct os_fd lease_fd, mailbox_fd; /* mailbox_fd may be absent */
	/* name of its port, if other users may join the node (calls/port_hold.c; control) */
	_Atomic int port_fd;
	bool port_kept; /* a copy of it lies in the mailbox (share/mailbox.c) */
	struct rds_helper_event port_ev;
	_Atomic unsigned lease_wanted;
	struct rds_sock *lease_next; /* control */

	/*
	 * names, options, marks: what the next owner needs (state_table.h); RDS_SOCK_SET() writes
	 */
#define STATE_WORD(type, name, first)                                                                                  \
	union {                                                                                                        \
		const _Atomic type name;                                                                               \
		_Atomic type set_##name;                                                                               \
	};
#define STATE_ADDR(name)                                                                                               \
	union {                                                                                                        \
		const struct rds_addr name;                                                                            \
		struct rds_addr set_##name;                                                                            \
	};
	RDS_SOCK_STATE_TABLE(STATE_WORD, STATE_ADDR)
#undef STATE_WORD
#undef STATE_ADDR

	/* sending (tx) */
	rds_lock_t tx;
	struct rds_sock_dst dst[RDS_DST_CACHE];
	/* bytes accounted (low part) and messages in flight: rds_snd_* below */
	_Atomic uint64_t snd;
	/*
	 * When this process took the socket over, or bound it to a port that others may have had
	 * (RDS_FLAG_NEW_OWNER), else 0; and the how manieth socket of this process that was.  Written
	 * before the socket is listed, or bound.
	 */
	uint64_t owner_since;
	uint32_t owner_number;
	/* unsent messages that are handed off with it (share/handoff_unsent.c; control) */
	struct rds_queue_item *handoff;

	/* receiving (rx) */
	struct rds_sock *hash_next;
	struct rds_inc *rx_head, **rx_tail;
	uint64_t n_taken; /* messages taken by borrowers' calls */
	/*
	 * Others have it: messages are shown in the stand-in (conn/shown.h).  So many are, with so many bytes; the last
	 * of them; its number there; there was no room for the next one.
	 */
	bool shows_messages, show_again;
	uint32_t nshown;
	uint64_t shown_bytes, shown_number;
	struct rds_inc *shown_last;
	/* among the sockets with input that the kernel does not show yet */
	struct rds_sock *unseen_next;
	bool unseen;
	uint64_t rcv_bytes;
	uint32_t rcv_count; /* messages */
	bool congested;
	struct rds_sock_zcopy *zhead, **ztail;
	/* RDMA (rx): regions, and reports of operations for the program */
	struct rds_mr *regions;
	/* id of this process as the owner (helper); 0: none yet */
	uint32_t owner_id;
	_Atomic bool burying; /* closed, and a device may still know some of its regions */
	struct rds_op *reports, **report_tail;
	/* messages whose own end is to be reported and has not come (rdma/async_send.c) */
	struct rds_op *async_sends;
	/* failed ones of async_sends and reports, which hold up later sends (written under rx) */
	_Atomic unsigned nfailed;
	_Atomic unsigned nops; /* operations in progress (written under rx) */
	_Atomic bool had_ops;
	struct rds_op_marks marks;
	uint64_t marks_gen;	 /* changes when a mark rises */
	struct rds_op *ordered_ops; /* operations with an id */
	uint64_t cong_track;	    /* congestion generation (rx); the names are the kernel's */
	struct rds_sock *mon_next;
	struct rds_sock *cong_next; /* sockets that have met congestion */
	bool cong_listed;
	unsigned cong_blocked; /* threads that sleep for a congested port */

	/* readiness (wait) */
	_Atomic(struct rds_wait_node *) waiters;
	_Atomic bool watched;
	_Atomic bool watched_edge;
	/* calls for other processes sleep for it (share/owner_sleep.c): tell the helper */
	_Atomic bool proxy_sleeps;
	/* a packet lies in the program's end / its send buffer is filled */
	_Atomic bool shown_in, hidden_out;
	_Atomic uint8_t shown; /* number of such packets, RDS_SHOWN_MAX at most */
};

#define RDS_NO_TIMEOUT UINT64_MAX
/* saved state has to find room behind these packets (share/handoff_out.c) */
#define RDS_SHOWN_MAX 32

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
 * Bytes that count against SNDBUF, and the number of messages that still point to the socket, in
 * one word: a send costs one atomic addition.  The thread that drops the last of references and
 * messages frees the socket (refcount.c).
 */
#define RDS_SND_MSG (1ull << 40)
#define RDS_SND_MSGS (1u << 22)	  /* limit for a socket that may be written to */
#define RDS_SND_DEAD (1ull << 63) /* no reference is left */
/*
 * What a message in flight takes beside its bytes, at least as much as its structure in the queue
 * (conn/send_queue.c checks it).
 */
#define RDS_SOCK_MESSAGE_COST 208
static inline uint64_t rds_sock_snd_bytes(const struct rds_sock *sk)
{
	return atomic_load_explicit(&sk->snd, memory_order_acquire) & (RDS_SND_MSG - 1);
}
/*
 * The limit on messages is the engine's own.  Empty messages count nothing against SNDBUF, but
 * their number must fit its field.
 */
static inline bool rds_sock_writable(const struct rds_sock *sk)
{
	uint64_t snd = atomic_load_explicit(&sk->snd, memory_order_acquire);

	return (snd & (RDS_SND_MSG - 1)) < rds_sock_sndbuf(sk) && snd < RDS_SND_MSG * RDS_SND_MSGS;
}
static inline void rds_sock_snd_add(struct rds_sock *sk, uint64_t bytes)
{
	atomic_fetch_add(&sk->snd, RDS_SND_MSG + bytes);
}
void rds_sock_snd_sub(struct rds_sock *sk, unsigned msgs, uint64_t bytes); /* may free the socket */
/* Memory of ended sockets and of their messages, wherever these are (conn/closed_sockets.c). */
extern _Atomic int64_t rds_sock_closed_bytes;
/*
 * sk->ref holds the references, and above them how often the references have come to nothing.  A
 * thread that found none left compares the whole word when it acts, so it cannot end a later life
 * of the socket.  ENDING: no reference is left, and no thread has found yet that no call is in
 * progress.
 */
#define RDS_REF_COUNT 0x7fffffffull
#define RDS_REF_ENDING 0x80000000ull
#define RDS_REF_TURN (1ull << 32)

/* One more reference, for a caller that has one already or is in a call. */
static inline void rds_sock_hold(struct rds_sock *sk)
{
	atomic_fetch_add_explicit(&sk->ref, 1, memory_order_relaxed);
}

/* socket.c */
/* all open sockets, with control held during the walk */
void rds_sock_each(void (*fn)(struct rds_sock *sk, void *arg), void *arg);
/* caller holds control */
void rds_sock_each_locked(void (*fn)(struct rds_sock *sk, void *arg), void *arg);
void rds_sock_new_owner(struct rds_sock *sk); /* other processes may have sent from its port, until now */
bool rds_sock_hung_up(struct rds_sock *sk); /* the kernel reports a hang-up */
/* control held.  True: the helper has a number for it, in its own descriptor table */
bool rds_sock_unlist(struct rds_sock *sk);
/*
 * Nothing new can come to it; its sleepers look again.  exported: the result of rds_sock_unlist().
 */
void rds_sock_close_pair(struct rds_sock *sk, bool exported);
/* our end of the pair, in this thread's descriptor table; -1: none */
int rds_sock_pair_fd(struct rds_sock *sk);
int rds_sock_export(struct rds_sock *sk);   /* 0 or -errno */
/* control held, the helper is starting: let it see the hang-ups of stand-ins */
int rds_sock_export_all(void);
unsigned rds_sock_exported(void *sk, int *fds, unsigned nfds); /* rds_export_taker */
void rds_sock_fork_child(void);
extern _Atomic uint64_t rds_sock_cong_gen; /* changes with any change of congestion */
/* sockets with input that their stand-in does not show; rx */
extern struct rds_sock *rds_sock_unseen;
/* ... except this one, while the lock is held: its reader is about to look */
extern struct rds_sock *rds_sock_taker;
void rds_sock_bound_forget(void); /* forked child */
void rds_sock_slab_put(struct rds_sock *sk); /* refcount.c: no reference and no message is left */
/*
 * A socket around an end of a pair that another process gave; takes that end.  Not open before it
 * is listed.  0 or -errno.
 */
int rds_sock_new(int pair, uint64_t inode, struct rds_sock **out);
void rds_sock_list_add(struct rds_sock *sk); /* control: open, with two references */
void rds_sock_list_del(struct rds_sock *sk); /* control */
void rds_sock_export_late(struct rds_sock *sk);

/* state.c */
void rds_sock_state_init(struct rds_sock *sk);
/* set: before the socket is listed.  get: at any time, without a lock; writes no padding. */
void rds_sock_state_set(struct rds_sock *sk, const struct rds_sock_state *st);
void rds_sock_state_get(const struct rds_sock *sk, struct rds_sock_state *st);
/* no bool is anything else */
bool rds_sock_state_is_sound(const struct rds_sock_state *st);
void rds_sock_addr_copy(struct rds_addr *to, const struct rds_addr *from); /* as one of ADDR */

/* bound.c: the sockets of this process by address and port; rx held */
struct rds_sock *rds_sock_bound_find(const struct in6_addr *ip, uint16_t port, uint32_t scope);
void rds_sock_bound_insert(struct rds_sock *sk);
void rds_sock_bound_remove(struct rds_sock *sk);
/*
 * The level under which control messages are delivered: of the numbers that SOL_RDS has had, the
 * one that the program used last, in any call.
 */
int rds_sock_level(const struct rds_sock *sk);
void rds_sock_used_level(struct rds_sock *sk, int level);

/* standin.c, progress/wait.c */
/*
 * Waits inside the engine, beside poll()'s own bits: for a message, a congestion update, room, a
 * barrier.
 */
#define RDS_WAIT_RECV 0x1000
#define RDS_WAIT_CONG 0x2000
#define RDS_WAIT_ROOM 0x4000
#define RDS_WAIT_BARRIER 0x0800
/* rx held: notification or zero-copy completion */
static inline bool rds_sock_has_notices(const struct rds_sock *sk)
{
	return sk->zhead || sk->reports || rds_sock_marks_readable(&sk->marks) || (sk->cong_monitor && sk->cong_notify);
}
/* rx held: that, or a message */
static inline bool rds_sock_has_input(const struct rds_sock *sk)
{
	return sk->rx_head || rds_sock_has_notices(sk);
}
/* rx held: would these events end a sleep now? */
bool rds_sock_would_wake(struct rds_sock *sk, short events);
/*
 * Input or send space has come: wake threads that sleep for one of `events`, and show it on the
 * stand-in if that is watched.  From under rx (POLLIN) or conn->tx (POLLOUT).
 */
void rds_sock_wake(struct rds_sock *sk, short events);
/*
 * After a receive emptied the queue, or a send filled it: withdraw what the stand-in shows.  fd
 * names the socket.
 */
void rds_sock_lower_shown(struct rds_sock *sk, int fd); /* rx held */
static inline void rds_sock_lower_if_shown(struct rds_sock *sk, int fd)
{
	if (unlikely(atomic_load_explicit(&sk->shown_in, memory_order_relaxed) ||
		     atomic_load_explicit(&sk->watched, memory_order_relaxed)))
		rds_sock_lower_shown(sk, fd);
}
void rds_sock_unseen_add(struct rds_sock *sk); /* rx held */
/* rds_sock_taker has taken what it wanted: more may have come.  rx held. */
static inline void rds_sock_unseen_note(struct rds_sock *sk)
{
	if (unlikely(rds_sock_has_input(sk)))
		rds_sock_unseen_add(sk);
}
/*
 * The byte that shows "not writable" was read off our end: put it back.  fd: a stand-in; -1: there
 * is none, so the socket shows "writable".
 */
void rds_sock_refill_out(struct rds_sock *sk, int fd);
/*
 * The stand-in's last owner was killed and its state is unknown: show the present state again, in
 * epoll sets of other processes as well.  No lock held.
 */
void rds_sock_show_anew(struct rds_sock *sk, int fd);
/* shows_messages: what is unread is shown again, after it was taken back.  rx held */
void rds_sock_show_rest(struct rds_sock *sk);
/* a send fails with EAGAIN: show that, and later its end */
void rds_sock_show_refused(struct rds_sock *sk, int fd);
/* helper: what was unread for a tick becomes visible in the kernel */
void rds_sock_show_unseen(void);
void rds_sock_wake_all(struct rds_sock *sk); /* closing: wake every sleeper */

/* A thread that sleeps for a socket, in its list sk->waiters; guarded by wait. */
struct rds_wait_node {
	struct rds_wait *w;
	struct rds_sock *sk;
	struct rds_wait_node *prev, *next; /* among the socket's sleepers */
	short events;
};

/* What the packages above do for a socket; filled in before the engine starts. */
struct rds_sock_events {
	void (*pair_readable)(struct rds_sock *sk); /* our end of the pair can be read.  Helper */
	/* the numbers of this descriptor table are closed.  wait held */
	void (*closing)(struct rds_sock *sk);
	void (*unused)(struct rds_sock *sk);	    /* the structure is no longer in use */
	void (*changed)(struct rds_sock *sk);	    /* saved state has changed */
	/* it has port_fd, and other processes may have the socket.  control held */
	void (*port_shown)(struct rds_sock *sk);
	void (*wake)(struct rds_wait *w);	    /* wake this wait of the socket.  wait held */
	void (*proxy_wake)(void);		    /* a call for another process sleeps for it */
	/* a program may sleep for it in the kernel, or in another process.  rx held */
	void (*watched)(void);
	void (*unseen)(void); /* rds_sock_unseen has one more socket.  rx held */
	/* shows_messages.  True: all input is shown, or will be, as messages.  rx and wait held */
	bool (*show_messages)(struct rds_sock *sk);
};
extern struct rds_sock_events rds_sock_events;

/* State that its lease records has changed.  Any thread, any lock; also from a signal handler. */
static inline void rds_sock_changed(struct rds_sock *sk)
{
	if (unlikely(atomic_load_explicit(&sk->lease, memory_order_relaxed) != NULL))
		rds_sock_events.changed(sk);
}

/* The way to change a row of state_table.h.  So the lease of the socket always has it. */
#define RDS_SOCK_SET(sk, row, value)                                                                                   \
	do {                                                                                                           \
		atomic_store(&(sk)->set_##row, (value));                                                               \
		rds_sock_changed(sk);                                                                                  \
	} while (0)
#define RDS_SOCK_SET_ADDR(sk, row, addr)                                                                               \
	do {                                                                                                           \
		rds_sock_addr_copy(&(sk)->set_##row, (addr));                                                          \
		rds_sock_changed(sk);                                                                                  \
	} while (0)

#endif
