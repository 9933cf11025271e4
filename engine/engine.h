/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * engine.h - the engine of one process: what its files share, and the lock order.
 *
 * Locks, outermost first.  Nobody sleeps in the kernel for another process with one of them held, except under
 * control (registry record lock, bounded).
 *
 *   sk->tx	sends on one socket, its destination cache
 *   control	socket and connection tables, binding, connection state, life of the engine
 *   conn->tx	sequence numbers, unacknowledged and waiting messages of one connection, its endpoint's send side
 *   rx		every receive queue, sockets' congestion state, receive side of endpoints, attention
 *   wait	lists of sleeping threads, readiness shown on stand-ins
 *
 * The receive path never takes conn->tx: what it wants sent (answers to pings, congestion maps) it leaves as work for
 * whoever called progress, done after rx has been dropped.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/wire/addr.h"
#include "engine/sys/fence.h"
#include "engine/sys/lock.h"
#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/helper/fd_exchange.h"
#include "engine/rds.h"
#include "engine/node/registry.h"
#include "engine/node/stats.h"
#include "engine/transport/transport.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

struct rds_sock;
struct rds_conn;
struct rds_inc;
struct rds_wait;
struct rds_cong_map;

#define RDS_BOUND_BUCKETS 4096
#define RDS_CONN_BUCKETS 4096

/* What a send does beside sending (progress/progress.c). */
enum rds_at_send {
	RDS_AT_SEND_NOTHING,
	RDS_AT_SEND_NOTE,
	RDS_AT_SEND_LOOK, /* receive, now and then */
	RDS_AT_SEND_HAND_OVER, /* nobody will do it later: the process ends */
};

struct rds_engine {
	rds_lock_t control, rx, wait;
	struct registry *reg;
	bool helper_up;	      /* written under control + rx */
	_Atomic bool started; /* helper_up for those who hold no lock */

	/* sockets bound in this process, by address and port (rx) */
	struct rds_sock *bound[RDS_BOUND_BUCKETS];
	/* connections (control) */
	struct rds_conn *conns[RDS_CONN_BUCKETS];
	struct rds_conn *conn_list;
	_Atomic uint64_t conn_gen; /* changes whenever a connection is removed: caches are void */
	struct rds_transport *loop, *shm;
	struct rds_transport *remote; /* the one that reaches other hosts; NULL: none (progress/transports.h) */
	bool remote_on;		      /* it has claimed an address (control + rx) */
	bool prefer_remote;	      /* RDS_PRELOAD_TRANSPORT=verbs: for processes of this host, too */
	bool alone; /* RDS_PRELOAD_TRANSPORT=loop: no other process is reached, and shm is loop's do-nothing */
	bool no_transport; /* ... names one that does not exist */

	/* who makes progress (rx; progress/progress.c) */
	_Atomic enum rds_attention attention; /* written under rx; a guess without it is good enough in places */
	unsigned pollers, followers;
	struct rds_wait *_Atomic leader;
	bool lazy, lazy_tick_on;
	uint64_t led_at;   /* coarse clock: when a relayed leader was woken */
	uint64_t activity; /* counts calls: the lease goes on as long as it moves */
	unsigned calls;	   /* since the helper took over */
	/* ... and whether sends look, which is told by at_send.  A device has woken the helper so many times while the program sent. */
	bool sends_look, watched; /* somebody may sleep for a socket in the kernel, or in another process */
	unsigned wakes;
	uint64_t woken_at; /* coarse clock */
	_Atomic enum rds_at_send at_send;
	_Atomic bool sent; /* something, since the last wake-up, as at_send wants it noted */
	_Atomic bool unasked; /* peers have operations of ours to carry out, and nobody was woken for them (conn/send_queue.c) */
	/* The leader sleeps on a pipe: unlike an eventfd's, a pipe's wake-up tells the scheduler that the waker is about to
	 * sleep itself (sync), which is what makes a kernel socket's wake-up as quick as it is. */
	_Atomic int leader_fd; /* program's table only */
	struct os_fd leader_post;
	/* ... or on an eventfd that the kernel adds to when something arrives on the remote transport (sys/poll_eventfd.h). -1: none */
	_Atomic int relay_fd;
	bool remote_leads;   /* what came last came that way (rx) */
	_Atomic bool ending; /* _exit(): the helper asks peers for what they have not acknowledged */
	_Atomic uint64_t exit_by; /* who leaves sockets has begun to wait, and the rest of the exit does not wait beyond that; 0: nobody has */
	_Atomic bool leaving; /* its sockets: nobody new is let in over a device (share/handoff_out.c) */
	bool pressure; /* some transport's memory fills up with messages that nobody reads */
	uint64_t catching_up; /* a message waits for older ones, and that is when it changed hands (calls/recv.c); 0: none */

	/* congestion (rx) */
	struct rds_cong_map *cong_maps;
	_Atomic uint64_t cong_generation;
	struct rds_sock *monitors, *cong_met;
	_Atomic uint64_t room_generation; /* changes when a transport has room again */
	struct rds_wait *room_waits;	  /* wait */
	struct rds_sock *unseen; /* sockets with input that their stand-in does not show */
	struct rds_sock *taker;	 /* ... but for this one, as long as the lock is held: its reader is looking for it */

	/* work left by the receive path (rx): connections that want something sent */
	struct rds_conn *work;
	_Atomic bool work_pending;
};

extern struct rds_engine *rds_eng; /* NULL until the first socket */

/* engine.c */
int rds_call_start_engine(void);	  /* with the first socket: registry; control not held */
extern _Atomic bool rds_progress_exiting; /* rds_engine_exit_begin() */
void rds_progress_linger(void);		  /* a send since; no lock held */
int rds_call_start_helper(void);	  /* with the first bind: thread, transports; control held */
int rds_call_want_helper(void);		  /* the same for a wait that only the helper's timer ends; no lock held */

uint64_t rds_progress_exit_deadline(void); /* RDS_PRELOAD_LINGER_MS from now */
unsigned rds_progress_count_unsent(void);  /* messages that would be lost if the process ended now; no lock held */

static inline void rx_lock(void)
{
	rds_lock(&rds_eng->rx);
}
static inline void rx_unlock(void)
{
	rds_unlock(&rds_eng->rx);
}

/* helper/reserve_fds.c; helper */
bool rds_helper_reserve_fill(void);    /* false: not even one peer can be talked to */
bool rds_helper_reserve_release(void); /* out of descriptors: true if some were kept back and are free now */
void rds_helper_reserve_forget(void);

/* helper/thread.c */
int rds_helper_start(void); /* control held: 0 when it is up, or -errno and nothing is left */
void rds_helper_forget(void); /* forked child */
void rds_helper_kick(void); /* have the helper thread look at timers, work and connections now */
void rds_helper_kick_exported(int in, int out, int clock); /* helper */
/* For helper/step_aside.c, which is sure that nobody needs it meanwhile. */
bool rds_helper_has_ended(void); /* it has ended, in the kernel's eyes, too */
int rds_helper_restart(void);	 /* 0 or -errno: there is none from now on */

/* helper/step_aside.c */
void rds_aside_exported(int fd);  /* helper */
bool rds_aside_stop_helper(void); /* helper, after a turn: this was the last one */
int rds_aside_restore_table(
	void); /* a new helper, with the program's table: it has the old one's from now on.  0 or -errno */
void rds_aside_helper_started(void); /* the helper has been started, for the first time */
void rds_aside_forget(void); /* forked child */
/*
 * A pipe whose writing end never blocks.  It is opened for both directions where /proc is there to do it: then whoever
 * holds it is a reader himself, and waking a process that has just ended raises no SIGPIPE.  0 or -errno.
 */
int os_wake_pipe(int fds[2], int flags);
void rds_reclaim(void); /* helper, no event pending: free what closed sockets and endpoints left (engine.c) */

/* A lock that this thread may have below it, if a signal has interrupted it: waits so long at most.  False: it is not to be had. */
bool rds_lock_until(rds_lock_t *lock, uint64_t until_ns);
/* It is to be had, and is given back: nobody below us on this thread's stack has it. */
bool rds_lock_wait_free(rds_lock_t *lock, uint64_t until_ns);

/* helper/main_exit.c */
void rds_helper_keeper_check(void);  /* the helper is up: has the main thread ended already? */
void rds_helper_keeper_forget(void); /* forked child */
bool rds_helper_main_has_ended(
	unsigned ours); /* the main thread has ended, and no thread is left but so many of ours */

/* helper/extra_threads.c */
extern _Atomic unsigned rds_helper_extra_threads; /* a transport's, beside the helper: not the program's either */
int rds_helper_thread_create(void *(*fn)(void *), void *arg, size_t stack); /* detached, not counted.  0 or errno */
int rds_helper_thread_start(void *(*fn)(void *), void *arg);		    /* helper: one of these. 0 or -errno */
void rds_helper_thread_end(void);					    /* this one, but for a few instructions */
unsigned rds_helper_thread_births(
	void); /* odd, or another number than before: rds_helper_extra_threads said nothing meanwhile */
void rds_helper_threads_forget(void); /* forked child */

extern _Atomic unsigned rds_helper_fork_waits; /* what a fork waits for, for a moment, as for the helper (helper/round.c) */
bool rds_helper_round_begin(void); /* the helper's; false: a fork has held it up for too long, and goes on */
void rds_helper_round_end(bool begun);
void rds_helper_round_forget(void); /* forked child */

/* progress/progress.c */
void rds_progress_helper_round(void); /* helper: what is to be done each time it is awake */
void rds_progress_forget(void);
void rds_progress_attention_update(void); /* rx held: tell transports who looks after arrivals now */
void rds_progress_attention_renew(
	void);			      /* rx held: ... what they have been told: a request was used up, or one is new */
bool rds_progress_round_locked(void); /* rx held: one round of receiving */
void rds_conn_work_run(void);	      /* no lock held: do what the receive path left */
void rds_progress_relieve(bool now);
void rds_progress_pressure(void); /* rx held */
void rds_progress_answer_expected(
	void); /* rx not held: wake.c is about to wake a peer whose answer this thread always waits for */
void rds_progress_call_made(void);	  /* rx held: a call looked for input without waiting */
void rds_progress_spin_enter(void);	  /* rx held: this thread starts to look again and again */
void rds_progress_spin_leave(bool found); /* rx held */
void rds_progress_leader_woken(void);	  /* rx held */
void rds_progress_helper_woken(void);	  /* rx held: by a device */
void rds_progress_others_watch(
	void); /* rx held: somebody may sleep for a socket in the kernel, or in another process */
void rds_progress_send_noted(size_t len); /* no lock held: at_send says that it matters */
/* What this thread looks for now is not what a program waits for: the helper, and a send that looks. */
extern __thread bool rds_transport_looks_aside __attribute__((tls_model("initial-exec")));

/* A message of so many bytes was sent.  No lock held. */
static inline void rds_progress_send_made(size_t len)
{
	if (unlikely(atomic_load_explicit(&rds_eng->at_send, memory_order_relaxed)))
		rds_progress_send_noted(len);
	rds_helper_deferred_check();
}

#endif
