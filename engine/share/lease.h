/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lease.h - a socket outlives an owner that is killed: what the owner keeps ready (lease.c), and
 * what each borrower keeps (standby.c). The rest of sharing: protocol.h.
 *
 * The *lease* is the socket's state on a page of memory of its own, a file without a name. The
 * owner writes there what calls change, and has a record lock on the file. The process with the
 * lock is the owner. The kernel gives the lock to one process, and frees it however that process
 * ends.
 *
 * A borrower keeps four descriptors, its *standby*:
 *   - the lease;
 *   - the mailbox (mailbox.c);
 *   - a copy of the owner's end of the pair, so that the stand-in does not hang up with the owner;
 *   - the owner's *hang-up pipe*. Only the owner's helper has the other end. The pipe hangs up when
 *     the owner has ended, and a sleeping borrower can wait for that.
 * Children of fork inherit these. Other processes get them with RDS_SHARE_HELLO, when they attach.
 *
 * If an owner is killed, messages in its receive queue are lost unless they are shown in the stand-in
 * (conn/shown.h), and so are the calls that it was making for borrowers just then. What its peers still
 * have goes to the next owner.
 */
#ifndef ENGINE_SHARE_LEASE_H
#define ENGINE_SHARE_LEASE_H

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/share/handoff.h"

/* ---- the owner: lease.c ---- */

/*
 * Makes sk's lease, which is kept up to date from now on, and takes the lock on it. 0, or -errno:
 * then sk ends if this process is killed. control held.
 */
int rds_lease_make(struct rds_sock *sk);
/*
 * The same with a lease that another owner has written, and on which we have the lock already.
 * Takes the descriptor. Before the socket is listed.
 */
int rds_lease_take(struct rds_sock *sk, int page);
/*
 * Keeps the mailbox that came with a lease, or without one (mailbox.c). Takes the descriptor.
 */
int rds_lease_take_mailbox(struct rds_sock *sk, int mailbox);
bool rds_lease_is_sound(int page); /* of the size of a lease, and no process can shrink it */
/*
 * Keeps a descriptor in reserve for parking sockets, or frees it for use now. The program's table.
 */
void rds_lease_reserve_fd(bool keep);
/* Queues sk for rds_lease_export_all(). Once sk is listed. control held. */
void rds_lease_export_later(struct rds_sock *sk);
/*
 * Exports the queued leases to the helper, which passes them to processes that attach. The caller
 * holds no lock that the helper could want.
 */
void rds_lease_export_all(void);
/*
 * rds_export_taker: the lease and the mailbox. Fewer, if the helper had no number for one, or there
 * is no mailbox.
 */
unsigned rds_lease_exported(void *sk, int *fds, unsigned nfds);
unsigned rds_lease_hangup_exported(void *none, int *fds, unsigned nfds); /* rds_export_taker */

/*
 * A process has attached to sk that no hook had announced: the program's next call makes the lease
 * if there is none. Helper thread.
 */
void rds_lease_make_late(struct rds_sock *sk);

/* State that the lease contains has changed. Any thread, any lock; also from a signal handler. */
void rds_lease_write(struct rds_sock *sk);

/*
 * Gives up the lock of a socket that accepts nothing any more, and takes it again: 0, or -EAGAIN,
 * another process is the owner.
 */
void rds_lease_release(struct rds_sock *sk);
int rds_lease_retake(struct rds_sock *sk);
void rds_lease_close(struct rds_sock *sk); /* the descriptors in the calling thread's table */
void rds_lease_unmap(struct rds_sock *sk); /* no thread uses the structure any more */

/*
 * The descriptors that a borrower gets: our end of the pair, the hang-up pipe, the mailbox if there
 * is one, and last the lease; numbers of the calling thread's table. Returns how many, or 0: one is
 * missing.
 */
#define RDS_LEASE_FDS 4
unsigned rds_lease_fds(struct rds_sock *sk, int fds[RDS_LEASE_FDS]);
void rds_lease_forget(void); /* forked child */

/* ---- borrowers: standby.c ---- */

/* What a process gets that becomes the owner. */
struct rds_handoff {
	int pair;	 /* the owner's end */
	int page;	 /* the lease, locked by this process; -1: there is none */
	int file;	 /* the parked state; -1: the last owner was killed */
	int mailbox;	 /* -1: there is none */
	uint64_t size;	 /* of the file */
};

/*
 * Becomes the owner of the stand-in fd, if there is none. 0, and what *e contains is the caller's,
 * which calls rds_standby_done() in the end. -EAGAIN: there is an owner, or what this process keeps
 * is not enough. -EXDEV: may() says no to the state in the lease, and nothing has changed.
 */
int rds_standby_take_over(int fd, uint64_t inode, bool (*may)(const struct rds_share_state *st), struct rds_handoff *e);
void rds_standby_done(uint64_t inode);
/*
 * Could this process take the socket over, because its owner was killed? Makes system calls if this
 * process has any standby.
 */
bool rds_standby_owner_died(int fd);

/* Reads an owner's RDS_SHARE_HELLO, and keeps its descriptors: bytes or -errno, as os_recv(). */
ssize_t rds_standby_read_hello(int channel, uint64_t inode, struct rds_share_reply *a);
/*
 * Does a parked packet lie in the stand-in? If so, what a standby needs is copied from it. *hidden:
 * that cannot be seen, since packets that signal readability lie in front.
 */
bool rds_standby_keep_parked(int fd, uint64_t inode, bool *hidden);
/* This process has closed its last descriptor of the socket: frees the standby. */
void rds_standby_drop(uint64_t inode);
bool rds_standby_any(void);
/* Reads the state from a lease: 0 or -errno. */
int rds_standby_read_lease(int page, struct rds_share_state *st);
int rds_standby_hangup_fd(uint64_t inode); /* -1: none */
/* As os_lock_holder(), of the lease; -1: this process keeps none. Takes no lock. */
int rds_standby_owner_pid(uint64_t inode);
/* As the lease has it; RDS_BORROWER_NO_TIMEOUT: this process keeps none. Takes no lock. */
uint64_t rds_standby_timeo(uint64_t inode, bool send);

/*
 * Forked child: keeps a standby of each socket that its parent owned with a lease, under the
 * descriptor numbers that it has inherited.
 */
void rds_standby_forked(void);
void rds_standby_close_others(void); /* ... and closes all other descriptors of the engine */

#endif
