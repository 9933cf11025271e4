/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lease.h - so that a socket outlives its carrier when that is killed: what the carrier keeps ready (lease.c), and what every holder keeps of it
 * (standby.c).  See node/socket_name.h for the rest.
 *
 * The *will* is the socket's state on a page of memory of its own, a file without a name.  The carrier writes there what calls change, and has a
 * record lock on it: who has the lock is the carrier, the kernel gives it to one, and takes it away however a process ends.  A holder keeps four
 * descriptors: the will, the inbox (orphan_inbox.c), a copy of the carrier's end of the pair (so that the stand-in does not hang up with the carrier), and
 * the *line*, a pipe whose other end only the carrier's helper has: it hangs up when the carrier has ended, and a sleeping holder can wait for that.
 * Children of fork have them from birth, others get them with the answer to RDS_SHARE_ATTACH.
 *
 * What waited in the queue of a carrier that was killed is lost, and so are calls that it was making for others just then; what its peers still
 * have goes to the next one.
 */
#ifndef ENGINE_WILL_H
#define ENGINE_WILL_H

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/share/handoff.h"

/* ---- the carrier: lease.c ---- */

/* Has a will, from now on up to date, and this process the lock.  control held.  0 or -errno; then it ends with this process. */
int rds_lease_make(struct rds_sock *sk);
/* The same with one that another carrier has written, and on which we have the lock already.  Takes the descriptor.  Before the socket is listed. */
int rds_lease_take(struct rds_sock *sk, int page);
/* The inbox that comes with it, or without a will (orphan_inbox.c).  Takes the descriptor. */
int rds_lease_take_mailbox(struct rds_sock *sk, int inbox);
bool rds_lease_is_sound(int page);    /* it is of the size of one, and nobody can make it shorter */
void rds_lease_reserve_fd(bool keep); /* a number for who leaves: kept, or to be had now.  The program's table */
void rds_lease_export_later(struct rds_sock *sk); /* once it is listed.  control held */
/* The helper gets what it needs to answer those who attach.  No lock that the helper could want. */
void rds_lease_export_all(void);
/* rds_export_taker: the lease and the mailbox, or fewer, if the helper had no number for one, or there is none. */
unsigned rds_lease_exported(void *sk, int *fds, unsigned nfds);
unsigned rds_lease_hangup_exported(void *none, int *fds, unsigned nfds); /* rds_export_taker */

/* Somebody has come to hold it of whom nobody had told: the program's next call makes what there is not.  Helper. */
void rds_lease_make_late(struct rds_sock *sk);

/* What is written there has changed. Any thread, any lock; from a signal handler, too. */
void rds_lease_write(struct rds_sock *sk);

/* Not the carrier any more, or again: 0, or -EAGAIN, somebody else is. */
void rds_lease_release(struct rds_sock *sk);
int rds_lease_retake(struct rds_sock *sk);
void rds_lease_close(struct rds_sock *sk); /* this table's number */
void rds_lease_unmap(struct rds_sock *sk); /* nobody uses the structure any more */

/*
 * Which descriptors a holder gets: our end of the pair, the line, the inbox if there is one, and last the will, of the calling thread's table.  How
 * many, or 0: not all are there.
 */
#define RDS_LEASE_FDS 4
unsigned rds_lease_fds(struct rds_sock *sk, int fds[RDS_LEASE_FDS]);
void rds_lease_forget(void); /* forked child */

/* ---- holders: standby.c ---- */

/* What somebody gets who becomes the carrier. */
struct rds_handoff {
	int pair;	 /* the carrier's end */
	int page;	 /* the will, locked by this process; -1: there is none */
	int file;	 /* of the deposit; -1: the last carrier was killed */
	int inbox;	 /* -1: there is none */
	uint64_t size;	 /* of the file */
};

/*
 * Becomes the carrier of the stand-in fd, if nobody is: 0 and what there is, which is the caller's, who has rds_standby_done() told in the end.
 * -EAGAIN: somebody is, or what this process keeps is not enough.
 */
int rds_standby_take_over(int fd, uint64_t inode, struct rds_handoff *e);
void rds_standby_done(uint64_t inode);
/* Could it be had, because its carrier was killed?  System calls, if this process keeps anything of it. */
bool rds_standby_owner_died(int fd);

/* The answer of a carrier, and what came with it: bytes or -errno, as os_recv(). */
ssize_t rds_standby_read_hello(int channel, uint64_t inode, struct rds_share_reply *a);
/* A deposit lies in the stand-in: true; then what is needed is kept of that. */
bool rds_standby_keep_parked(int fd, uint64_t inode);
/* The last number of that socket is closed here: nothing is kept of it. */
void rds_standby_drop(uint64_t inode);
bool rds_standby_any(void);
/* What is written on a will: 0 or -errno. */
int rds_standby_read_lease(int page, struct rds_share_state *st);
int rds_standby_hangup_fd(uint64_t inode); /* -1: none */
int rds_standby_owner_pid(uint64_t inode); /* as os_lock_holder(), of the will; -1: there is none.  No lock */
uint64_t rds_standby_timeo(uint64_t inode, bool send); /* as the will has it; RDS_BORROWER_NO_TIMEOUT.  No lock */

/*
 * Forked child: what its parent carried and had a will for is kept from now on, under the numbers that it has already; to be called before
 * those are closed that rds_standby_keeps_fd() does not say are kept.
 */
void rds_standby_forked(void);
bool rds_standby_keeps_fd(int fd);
void rds_standby_fds_closed(void); /* they are closed now */

#endif
