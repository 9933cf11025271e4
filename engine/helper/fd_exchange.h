/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fd_exchange.h - between the program's table of descriptors and the helper's.
 *
 * A process whose table is shared by two threads pays for it with every read, write and poll of every descriptor (the
 * kernel takes a reference each time), so the helper thread has a table of its own (sys/os.h).  The *post* is an AF_UNIX
 * connection of the process with itself, one end in each table.  Over it the program's threads *export* to the helper
 * what it needs of theirs, and the helper *gives* them what they need of its own.  Deferred calls go the same ways without
 * descriptors: something to be done by a thread that runs with the other table, closing a number above all.
 *
 * Where the kernel does not let us, or RDS_PRELOAD_HELPER_FDS says so, the table is shared: there is no post, everything is
 * known under one number (side 0), and exporting is the call that the packet would have led to.
 */
#ifndef ENGINE_POST_H
#define ENGINE_POST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/sys/os.h"

enum rds_export_kind {
	/* to the helper */
	RDS_EXPORT_LEADER = 1, /* what wakes the leader */
	RDS_EXPORT_KICK,       /* the pipe that wakes the helper: reading end, writing end */
	RDS_EXPORT_REGISTRY,
	RDS_EXPORT_SOCK,  /* our end of a stand-in's pair */
	RDS_EXPORT_WAIT,  /* what a sleeping thread is woken by */
	RDS_EXPORT_LEASE, /* of a socket (share/lease.h) */
	RDS_EXPORT_START,
	RDS_EXPORT_ASIDE, /* where its descriptors lie while there is no helper */
	/* to the program */
	RDS_EXPORT_PEER,    /* what wakes a peer's leader and helper */
	RDS_EXPORT_HANG_UP, /* what holders wait for (share/lease.h) */
	RDS_EXPORT_KINDS
};

/* Takes exported descriptors, and returns how many it has kept, from the first one on: the others are closed. */
typedef unsigned rds_export_taker(void *what, int *fds, unsigned nfds);
/* Of the packages above, by kind, filled in before anything runs. */
extern rds_export_taker *rds_export_takers[RDS_EXPORT_KINDS];

/* Something to be done by a thread of the other side.  fn runs with no lock held, in order of no kind. */
struct rds_deferred_call {
	struct rds_deferred_call *next;
	void (*fn)(struct rds_deferred_call *c);
	_Atomic bool queued; /* false before fn begins: it may be queued again */
};
/*
 * Any lock may be held.  The helper is woken; a program's thread comes by with one of its next calls.  False: it was queued already, and will
 * be done once.
 */
bool rds_helper_defer(struct rds_deferred_call *c);
bool rds_helper_defer_to_program(struct rds_deferred_call *c);

/* Does the helper have a table of its own?  Settled when the helper starts, false before. */
bool rds_helper_has_own_table(void);
/* Counts the attempts to start the helper; 0 while there is none to export to.  Who has exported to an earlier one exports again. */
uint32_t rds_export_epoch(void);

/* ---- program's side ---- */

/* The helper is about to be started with a table of its own: where it will dial. */
int rds_fd_exchange_listen(void);
/* It has dialled (or never will): 0 or -errno. */
int rds_fd_exchange_accept(void);
void rds_fd_exchange_begin(bool own); /* from now on there is somebody to export to */
void rds_fd_exchange_hang_up(void);   /* the helper did not come up */
/*
 * Exports: the helper knows it before it does anything that could need it.  May sleep until the helper has made room: no
 * lock may be held that the helper could want.  0 or -errno.
 */
int rds_export_to_helper(enum rds_export_kind kind, void *what, const int *fds, unsigned nfds);
/* Takes what the helper has given.  Never sleeps, any lock may be held. */
void rds_fd_exchange_take(void);
void rds_fd_exchange_await(int ms); /* the same, when something has come: so long at most */
/* Does what the helper has left to do.  No lock held. */
extern _Atomic(struct rds_deferred_call *) rds_helper_deferred;
void rds_helper_deferred_run(void);
static inline void rds_helper_deferred_check(void)
{
	if (__builtin_expect(atomic_load_explicit(&rds_helper_deferred, memory_order_relaxed) != NULL, 0) &&
	    !os_fd_table)
		rds_helper_deferred_run();
}

/* ---- helper ---- */

/* Dials, from the own table. */
int rds_fd_exchange_connect(void);
int rds_fd_exchange_fd(void); /* to be watched (edge triggered); -1 with a shared table */
/* Takes everything up to and with START, sleeping for it: 0 or -errno. */
int rds_fd_exchange_await_start(void);
/* Takes what has been exported so far.  Never sleeps, any lock may be held.  False: the other end is gone. */
bool rds_fd_exchange_drain(void);
/* 0 or -errno: not given. */
int rds_export_to_program(enum rds_export_kind kind, void *what, const int *fds, unsigned nfds);
void rds_helper_deferred_run_own(void);
void rds_fd_exchange_set_broken(
	void); /* the other end is gone, and the program goes on: nothing is exported any more */

void rds_fd_exchange_forget(void); /* forked child */

#endif
