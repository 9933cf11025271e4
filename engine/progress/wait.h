/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wait.h - one sleeping (or spinning) thread.
 *
 * Guarded by the wait lock unless said otherwise.  A struct rds_wait belongs to one thread.
 */
#ifndef ENGINE_PROGRESS_WAIT_H
#define ENGINE_PROGRESS_WAIT_H

#include "engine/socket/socket.h"
#include "engine/progress/progress.h"

#define RDS_WAIT_INLINE 4

struct rds_wait {
	struct rds_wait *pool_next;
	/* own eventfd; a leader sleeps on a descriptor of rds_helper_leader instead */
	struct os_fd efd;
	/* epoch of the helper that efd was exported to (helper/fd_exchange.h) */
	_Atomic uint32_t exported;
	/* helper: posted before the descriptor had arrived */
	bool owed;
	_Atomic bool armed; /* asleep or about to sleep: has to be posted */
	/* the variable with the descriptor that it sleeps on */
	_Atomic(_Atomic int *) sleep_slot;
	/* list of the waits for a transport's room (wait) */
	struct rds_wait *room_next, **room_prev;
	/* generation of the awaited event (RDS_WAIT_CONG, RDS_WAIT_ROOM) before the last look */
	uint64_t gen;
	_Atomic bool leader, follower; /* written under rx, before armed */
	/* the leader, on rds_helper_leader.relay (guarded like leader) */
	bool relayed;
	bool named; /* the leader, on rds_helper_leader.named_fd (guarded like leader) */
	bool linked, polling, spinning, yielding, spun, slept;
	bool consumed;	/* the post that ended the sleep has been read */
	bool congested; /* counted in cong_blocked of its socket */
	uint64_t spin_until, spin_start;
	uint64_t arm_at, cost; /* 0: this sleep is not measured; cost so far */
	unsigned spins;
	bool stayed; /* spins although it has just woken its peer */
	/*
	 * held: signals are held back while it spins (spin.c).  interrupted: one of these signals
	 * had a handler, so there is no sleep any more.
	 */
	bool held, interrupted;
	struct os_signals signals;
	struct rds_timer timer;
	/*
	 * the only socket of the call: a thread that leaves the call inside its sleep passes it to
	 * rds_hook_left()
	 */
	struct rds_sock *only;
	unsigned n, cap;
	struct rds_wait_node *nodes, inl[RDS_WAIT_INLINE];
};

/*
 * spin.c.  stop: the thread is about to sleep.  release: nothing else is to be done before the
 * sleep.  end: it has found what it waited for, or gives up.
 */
void rds_wait_spin_stop(struct rds_wait *w);
void rds_wait_spin_release(struct rds_wait *w);
void rds_wait_spin_end(struct rds_wait *w);
/*
 * measures: shall this thread measure the sleep that comes?  sleep_cost: time of the thread from
 * the decision to the return, without the sleep itself.
 */
bool rds_wait_spin_measures(void);
void rds_wait_spin_sleep_cost(uint64_t ns);
/* This thread has sent a message since it last waited. */
extern __thread bool rds_wait_has_sent __attribute__((tls_model("initial-exec")));
/* This thread looks for input, perhaps for the answer of a peer that it woke by a send. */
void rds_wait_note_look(void);
/*
 * Before a look: lets rds_wait_arm() notice an event of that kind between the look and the sleep.
 */
void rds_wait_note_gen(struct rds_wait *w, short event);
/*
 * A transport has room again: wakes the threads that wait for it.  No lock held but rx or conn->tx.
 */
void rds_wait_room_made(void);
/*
 * Sleeps until posted or until deadline (absolute, 0 = none): 0, -EINTR, -ETIMEDOUT.  A
 * cancellation point; SA_RESTART holds.  -ETIMEDOUT only if the deadline has passed, whatever woke
 * the thread.
 */
int rds_wait_sleep(struct rds_wait *w, uint64_t deadline_ns);
/* For a call that may wait for one socket: begins a wait with that socket. */
struct rds_wait *rds_wait_begin_one(struct rds_sock *sk, short events);
/* Wakes a leader or follower if it sleeps. */
void rds_wait_wake(struct rds_wait *w);
/* the helper is starting: export the descriptors of threads that sleep already */
int rds_wait_export_all(void);
unsigned rds_wait_exported(void *w, int *fds, unsigned nfds); /* rds_export_taker */
/* In a forked child: the pools belong to the parent. */
void rds_wait_forget(void);

/* Functions of rds_transport_wakes (spin.c). */
void rds_wait_peer_woken(void);
void rds_wait_peer_wake_begin(void);

#endif
