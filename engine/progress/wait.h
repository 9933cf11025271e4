/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wait.h - one sleeping (or spinning) thread.  Guarded by the wait lock unless said otherwise.
 */
#ifndef ENGINE_PROGRESS_WAIT_H
#define ENGINE_PROGRESS_WAIT_H

#include "engine/socket/socket.h"
#include "engine/progress/progress.h"

#define RDS_WAIT_INLINE 4

struct rds_wait {
	struct rds_wait *pool_next;
	struct os_fd efd;			 /* own eventfd; a leader sleeps on the engine's pipe instead */
	_Atomic uint32_t lent;			 /* to the helper of that epoch (helper/fd_exchange.h) */
	bool owed;				 /* helper: posted before the number was there */
	_Atomic bool armed;			 /* asleep or about to be: somebody has to post */
	_Atomic(_Atomic int *) sleep_slot;	 /* where the number it sleeps on stands */
	struct rds_wait *room_next, **room_prev; /* among those that wait for a transport's room (wait) */
	uint64_t gen; /* of the event waited for (RDS_WAIT_CONG, RDS_WAIT_ROOM), as it was before the last look */
	_Atomic bool leader, follower; /* written under rx, before armed */
	bool relayed; /* the leader, on the engine's relay_fd (as leader) */
	bool linked, polling, spinning, yielding, spun, slept;
	bool consumed;	/* the post that ended the sleep has been read off */
	bool congested; /* counted in its socket's cong_blocked */
	uint64_t spin_until, spin_start;
	uint64_t arm_at, cost; /* 0: this sleep is not measured; what it has cost so far */
	unsigned spins;
	bool stayed; /* spins although it has just woken its peer */
	bool held,
		interrupted; /* signals are, while it spins (spin.c); one of those had a handler: no sleep any more */
	struct os_signals signals;
	struct rds_timer timer;
	struct rds_sock *only; /* the call is about this one: who leaves it from inside its sleep tells rds_hook_left */
	unsigned n, cap;
	struct rds_wait_node *nodes, inl[RDS_WAIT_INLINE];
};

/* spin.c: it is about to sleep; ... and nothing is left to be done before; ... it has found what it waited for, or gives up. */
void rds_wait_spin_stop(struct rds_wait *w);
void rds_wait_spin_release(struct rds_wait *w);
void rds_wait_spin_end(struct rds_wait *w);
/* This thread is about to sleep: shall it find out what that costs?  ... so much of its time, from the decision to the return, without the sleep. */
bool rds_wait_spin_measures(void);
void rds_wait_spin_sleep_cost(uint64_t ns);
/* This thread has sent something since it last waited. */
extern __thread bool rds_wait_has_sent __attribute__((tls_model("initial-exec")));
/* This thread looks for input: it may be the answer to what it sent when it woke its peer. */
void rds_wait_note_look(void);
/* Before looking: have arm() notice an event of that kind that comes between the look and the sleep. */
void rds_wait_note_gen(struct rds_wait *w, short event);
/* A transport has room again: whoever waits for that may try. No lock held but rx or conn->tx. */
void rds_wait_room_made(void);
/* Sleep until posted or deadline (absolute, 0 = none): 0, -EINTR, -ETIMEDOUT. A cancellation point; SA_RESTART holds.
 * -ETIMEDOUT only if the deadline has passed, whatever woke the thread. */
int rds_wait_sleep(struct rds_wait *w, uint64_t deadline_ns);
/* A call that may wait for one socket: wait begun, socket added. Sets *deadline from a timeout (RDS_NO_TIMEOUT = none). */
struct rds_wait *rds_wait_begin_one(struct rds_sock *sk, short events);
/* Leader or follower, wake it if it sleeps. */
void rds_wait_wake(struct rds_wait *w);
int rds_wait_export_all(void);			    /* the helper is starting: threads that sleep already */
unsigned rds_wait_exported(void *w, int *fds, unsigned nfds); /* rds_export_taker */
/* In a forked child the pools belong to the parent: forget them. */
void rds_wait_forget(void);

/* rds_transport_wakes' (spin.c). */
void rds_wait_peer_woken(void);
void rds_wait_peer_wake_begin(void);

#endif
