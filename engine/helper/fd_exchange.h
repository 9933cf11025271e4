/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fd_exchange.h - the descriptor exchange between the program's descriptor table and the helper's.
 *
 * A descriptor table that two threads share costs time at every read, write and poll of every
 * descriptor, because the kernel takes a reference each time.  So the helper thread has a table of
 * its own (sys/os.h).  The *descriptor exchange* is an AF_UNIX connection of the process with
 * itself, one end in each table.  Over it the program's threads *export* to the helper the
 * descriptors that it needs, and the helper exports to the program.  A *deferred call* needs no
 * packet: it is a function that a thread with the other table calls later, most often to close a
 * descriptor.
 *
 * Where the kernel refuses a second table, or RDS_PRELOAD_HELPER_FDS asks for it, the table is
 * shared.  Then there is no exchange, every descriptor has one number (side 0), and an export is a
 * plain call of the function that would have received the packet.
 */
#ifndef ENGINE_HELPER_FD_EXCHANGE_H
#define ENGINE_HELPER_FD_EXCHANGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/sys/os.h"

enum rds_export_kind {
	/* to the helper */
	RDS_EXPORT_LEADER = 1, /* the pipe that wakes the leader: writing end */
	/* the pipe that wakes the helper: reading end, writing end; its timerfd */
	RDS_EXPORT_KICK,
	RDS_EXPORT_REGISTRY,
	RDS_EXPORT_SOCK,  /* the engine's end of a stand-in's pair */
	RDS_EXPORT_WAIT,  /* wakes one sleeping thread */
	RDS_EXPORT_LEASE, /* of a socket (share/lease.h) */
	RDS_EXPORT_RELAY, /* the eventfd that wakes the leader */
	/* no descriptor: everything has been exported that the helper starts with */
	RDS_EXPORT_START,
	/* the socket that keeps the helper's descriptors while there is no helper */
	RDS_EXPORT_ASIDE,
	/* to the program */
	RDS_EXPORT_PEER,    /* wake a peer's leader and helper */
	RDS_EXPORT_HANG_UP, /* the owner's hang-up pipe, for which borrowers wait (share/lease.h) */
	RDS_EXPORT_TCP,	    /* a socket of the TCP transport, or a set of them (transport/tcp/fds.c) */
	RDS_EXPORT_KINDS
};

/*
 * Takes exported descriptors.  Returns how many of them it keeps, counted from the first.  The
 * others are closed.
 */
typedef unsigned rds_export_taker(void *what, int *fds, unsigned nfds);
/* Functions of the packages above, by kind.  The root fills this in before any thread runs. */
extern rds_export_taker *rds_export_takers[RDS_EXPORT_KINDS];

/* A call for a thread of the other side.  fn runs with no lock held.  Calls have no order. */
struct rds_deferred_call {
	struct rds_deferred_call *next;
	void (*fn)(struct rds_deferred_call *c);
	_Atomic bool queued; /* false before fn begins: fn may queue it again */
};
/*
 * Any lock may be held.  rds_helper_defer() wakes the helper.  A call for the program waits until a
 * thread of the program makes one of its next calls.  False: the call was queued already, and runs
 * once.
 */
bool rds_helper_defer(struct rds_deferred_call *c);
bool rds_helper_defer_to_program(struct rds_deferred_call *c);

/* Does the helper have a table of its own?  Decided when the helper starts, false before. */
bool rds_helper_has_own_table(void);
/*
 * The number of the attempt to start the helper; 0 while there is no helper to export to.  What was
 * exported in an earlier attempt has to be exported again.
 */
uint32_t rds_export_epoch(void);

/* ---- program's side ---- */

/* Opens the listener to which the helper connects.  Before the helper starts with its own table. */
int rds_fd_exchange_listen(void);
/* The helper has connected, or never will: 0 or -errno. */
int rds_fd_exchange_accept(void);
void rds_fd_exchange_begin(bool own); /* from now on threads may export to the helper */
void rds_fd_exchange_hang_up(void);   /* the helper did not start */
/*
 * Exports descriptors: the helper takes them before it does anything that could need them.  Their
 * numbers are read at the last moment, because the program may want one of them (sys/os.h).  May
 * sleep until the helper has made room, so the caller holds no lock that the helper could want.  0
 * or -errno.
 */
int rds_export_to_helper(enum rds_export_kind kind, void *what, const struct os_fd *const *fds, unsigned nfds);
/* Takes what the helper has exported.  Never sleeps; any lock but the registry's may be held. */
void rds_fd_exchange_take(void);
void rds_fd_exchange_await(int ms); /* the same, after waiting for a packet for at most ms */
/* The calls that the helper has deferred to the program.  They run with no lock held. */
extern _Atomic(struct rds_deferred_call *) rds_helper_deferred;
void rds_helper_deferred_run(void);
static inline void rds_helper_deferred_check(void)
{
	if (__builtin_expect(atomic_load_explicit(&rds_helper_deferred, memory_order_relaxed) != NULL, 0) &&
	    !os_fd_table)
		rds_helper_deferred_run();
}

/* ---- helper ---- */

/* Connects to the listener, with a socket of the helper's own table. */
int rds_fd_exchange_connect(void);
const _Atomic int *rds_fd_exchange_slot(void); /* for epoll, edge triggered */
/* Takes all packets up to and including START, and sleeps for them: 0 or -errno. */
int rds_fd_exchange_await_start(void);
/*
 * Takes what has been exported so far.  Never sleeps, any lock may be held.  False: the other end
 * has been closed.
 */
bool rds_fd_exchange_drain(void);
/* 0, or -errno: not exported. */
int rds_export_to_program(enum rds_export_kind kind, void *what, const int *fds, unsigned nfds);
void rds_helper_deferred_run_own(void);
/* Has a thread of the program write the line that is left (sys/log.h), also one that sleeps. */
void rds_fd_exchange_log_left(void);
/* The program has closed its end and goes on: nothing is exported any more. */
void rds_fd_exchange_set_broken(void);

void rds_fd_exchange_forget(void); /* forked child */

#endif
