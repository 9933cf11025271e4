/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * post.h - between the program's table of descriptors and the helper's.
 *
 * A process whose table is shared by two threads pays for it with every read, write and poll of every descriptor (the
 * kernel takes a reference each time), so the helper thread has a table of its own (os.h).  The *post* is an AF_UNIX
 * connection of the process with itself, one end in each table.  Over it the program's threads *lend* to the helper
 * what it needs of theirs, and the helper *gives* them what they need of its own.  Chores go the same ways without
 * descriptors: something to be done by a thread that runs with the other table, closing a number above all.
 *
 * Where the kernel does not let us, or RDS_PRELOAD_HELPER_FDS says so, the table is shared: there is no post, everything is
 * known under one number (side 0), and lending is the call that the packet would have led to.
 */
#ifndef ENGINE_POST_H
#define ENGINE_POST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/os.h"

enum rds_post_kind {
	/* to the helper */
	RDS_POST_LEADER = 1, /* what wakes the leader */
	RDS_POST_KICK,	     /* the pipe that wakes the helper: reading end, writing end */
	RDS_POST_REGISTRY,
	RDS_POST_SOCK, /* our end of a stand-in's pair */
	RDS_POST_WAIT, /* what a sleeping thread is woken by */
	RDS_POST_WILL, /* of a socket (will.h) */
	RDS_POST_START,
	RDS_POST_ASIDE, /* where its descriptors lie while there is no helper */
	/* to the program */
	RDS_POST_PEER, /* what wakes a peer's leader and helper */
	RDS_POST_LINE, /* what holders wait for (will.h) */
};

/* Something to be done by a thread of the other side.  fn runs with no lock held, in order of no kind. */
struct rds_chore {
	struct rds_chore *next;
	void (*fn)(struct rds_chore *c);
	_Atomic bool queued; /* false before fn begins: it may be queued again */
};
/*
 * Any lock may be held.  The helper is woken; a program's thread comes by with one of its next calls.  False: it was queued already, and will
 * be done once.
 */
bool rds_chore_for_helper(struct rds_chore *c);
bool rds_chore_for_program(struct rds_chore *c);

/* Does the helper have a table of its own?  Settled when the helper starts, false before. */
bool rds_post_own(void);
/* Counts the attempts to start the helper; 0 while there is none to lend to.  Who has lent to an earlier one lends again. */
uint32_t rds_post_epoch(void);

/* ---- program's side ---- */

/* The helper is about to be started with a table of its own: where it will dial. */
int rds_post_listen(void);
/* It has dialled (or never will): 0 or -errno. */
int rds_post_accept(void);
void rds_post_begin(bool own); /* from now on there is somebody to lend to */
void rds_post_hang_up(void); /* the helper did not come up */
/*
 * Lends: the helper knows it before it does anything that could need it.  May sleep until the helper has made room: no
 * lock may be held that the helper could want.  0 or -errno.
 */
int rds_post_lend(enum rds_post_kind kind, void *what, const int *fds, unsigned nfds);
/* Takes what the helper has given.  Never sleeps, any lock may be held. */
void rds_post_take(void);
void rds_post_await(int ms); /* the same, when something has come: so long at most */
/* Does what the helper has left to do.  No lock held. */
extern _Atomic(struct rds_chore *) rds_post_left;
void rds_post_chores(void);
static inline void rds_post_look(void)
{
	if (__builtin_expect(atomic_load_explicit(&rds_post_left, memory_order_relaxed) != NULL, 0) && !os_side)
		rds_post_chores();
}

/* ---- helper ---- */

/* Dials, from the own table. */
int rds_post_dial(void);
int rds_post_fd(void); /* to be watched (edge triggered); -1 with a shared table */
/* Takes everything up to and with START, sleeping for it: 0 or -errno. */
int rds_post_await_start(void);
/* Takes what has been lent so far.  Never sleeps, any lock may be held.  False: the other end is gone. */
bool rds_post_drain(void);
/* 0 or -errno: not given. */
int rds_post_give(enum rds_post_kind kind, void *what, const int *fds, unsigned nfds);
void rds_post_helper_chores(void);
void rds_post_broken(void); /* the other end is gone, and the program goes on: nothing is lent any more */

void rds_post_forget(void); /* forked child */

#endif
