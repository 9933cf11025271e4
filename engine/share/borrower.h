/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrower.h - calls on a socket whose engine is in another process: the borrower's side of
 * protocol.h.
 *
 * A borrower needs no engine of its own.  The functions are those of rds.h with the descriptor
 * instead of the socket: same results (0, a count, -errno), same rules about the program's
 * pointers.  A call that blocks sleeps in one libc read(), or in ppoll() if the socket has a
 * timeout (borrower_wait.c).  Any number of threads may call these functions.  A child of vfork
 * must not.  A signal handler may as long as the socket has an idle channel: making a channel takes
 * a lock (borrower_channel.c).
 *
 * Every function may return -RDS_BORROWER_TAKE_OVER: the call was not made, because the owner has
 * handed off the socket.  The caller takes the socket over with rds_handoff_in() and makes the call
 * in this process.
 *
 * Every function may return -ENOTCONN: the owner has ended, or it does not know how to share
 * sockets.  The log says so once.
 */
#ifndef ENGINE_SHARE_BORROWER_H
#define ENGINE_SHARE_BORROWER_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "engine/sys/os.h"

#define RDS_BORROWER_TAKE_OVER 516 /* no errno */
#define RDS_BORROWER_NO_TIMEOUT UINT64_MAX

ssize_t rds_borrower_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t rds_borrower_recvmsg(int fd, struct msghdr *msg, int flags);
int rds_borrower_bind(int fd, const struct sockaddr *addr, int len);
int rds_borrower_connect(int fd, const struct sockaddr *addr, int len);
int rds_borrower_getsockname(int fd, struct sockaddr *addr, socklen_t *len);
int rds_borrower_getpeername(int fd, struct sockaddr *addr, socklen_t *len);
int rds_borrower_setsockopt(int fd, int level, int opt, const void *val, socklen_t len);
int rds_borrower_getsockopt(int fd, int level, int opt, void *val, socklen_t *len);
int rds_borrower_ioctl(int fd, unsigned long req, void *arg);
int rds_borrower_take_error(int fd);
void rds_borrower_set_error(int fd, int err);

/*
 * How a call waits for owners that do not answer.  Several sockets may share one wait, and so one
 * limit.
 *
 * Towards signals a call of the program is one sleep, though it consists of many.  So from its first
 * wait on it holds signals back, and none is taken unnoticed.  The wait is over early if there is
 * one that ends the call.
 */
struct rds_borrower_wait {
	uint64_t since; /* when it began, 0: not yet */
	/*
	 * The caller is about to sleep in poll, select or epoll.  There every handler ends a call,
	 * and the kernel sees to it if the sleep has rds_borrower_wait_mask() as its mask.
	 */
	bool before_sleep;
	const sigset_t *mask; /* the program's for that sleep, or NULL: the thread's */
	bool held, interrupted;
	struct os_signals signals;
};
/* The mask for the sleep, or NULL: the thread's own.  room: may be used for it. */
const sigset_t *rds_borrower_wait_mask(const struct rds_borrower_wait *w, sigset_t *room);
/* At the end of the program's call: signals are held back no longer. */
void rds_borrower_wait_end(struct rds_borrower_wait *w);
/* The same for a call that was left in its sleep: by cancellation, or by a jump out of a handler. */
void rds_borrower_wait_left(struct rds_borrower_wait *w);

/*
 * From now on the owner keeps the readiness of the stand-in current; edge: it shows every arrival
 * anew.  0 or -errno.  -EAGAIN: the owner does not answer now, and does this as soon as it goes on.
 * -EINTR is as -EAGAIN, and there is a signal for the sleep of w.
 * NULL: this socket has a limit of its own, and no sleep comes.
 */
int rds_borrower_watch(int fd, bool edge, struct rds_borrower_wait *w);

/*
 * A socket of another process has just come to this one (exec, SCM_RIGHTS).  Asks its owner for the
 * descriptors with which this process can take over if the owner is killed (lease.h).  Waits at
 * most a second for all owners together that do not answer.  After that second, and for an owner
 * that is stopped, it waits 20 ms for each; such an owner answers later.
 *
 * False: the socket is parked, and this process could not keep a standby (lease.h).  If it does not
 * take the socket over now, the process that does so and is killed takes the socket with it.
 */
bool rds_borrower_attach(int fd);

/*
 * The last descriptor of the socket in this process is about to be closed.  What this process keeps
 * for the socket must go before, or the owner would believe that the socket is still in use.
 */
void rds_borrower_close_begin(int fd);
void rds_borrower_drop(uint64_t inode); /* the same for a socket that is closed already */
/* closes only the channels to its last owner, and at once */
void rds_borrower_hang_up(int fd);
/*
 * The descriptor is closed now.  If it was the last one in any process, the owner has closed the
 * socket when this returns, as the kernel would have: its port is free again.  Waits 100 ms at
 * most.
 */
void rds_borrower_close_wait(void);
/*
 * This process ends or execs, or closes its last descriptor of another process's socket.  If the
 * owner was killed and no process has taken over, other borrowers may have nothing but the
 * stand-in: this parks the socket for them (standby.c).
 */
void rds_standby_park(int fd);
/*
 * This process has become the owner of sk.  Memory regions that it opened as a borrower
 * (borrower_regions.c) become regions of sk, before peers can reach sk.  all_there: every one of
 * them is still open.  Otherwise some may have been freed, and none becomes a region.  control
 * held.
 */
struct rds_sock;
void rds_borrower_regions_to_socket(struct rds_sock *sk, bool all_there);
/* Forked child: the channels are the parent's.  Its standby descriptors are its own (lease.h). */
void rds_borrower_forget(void);
void rds_borrower_fork_prepare(void); /* before the fork, if there is an opportunity */

/* Has the last owner that this process was in touch with ended?  System calls. */
bool rds_borrower_owner_gone(int fd);
/*
 * The owner has ended, and this process cannot take over now.  Makes the socket readable, so that
 * the program makes the call that reports the error.
 */
void rds_standby_show_readable(int fd);
/* The owner has ended and there is no other: drops what is kept, and the stand-in hangs up. */
void rds_borrower_give_up(int fd);
/*
 * For a thread that sleeps for sockets of other owners: descriptors that report POLLHUP when an
 * owner has ended.  Stores up to `room` of them, returns how many there are.  For one socket: its
 * descriptor, or -1 if there is none.
 */
unsigned rds_standby_hangup_fds(struct pollfd *p, unsigned room);
int rds_borrower_hangup_fd(int fd);
/*
 * Around a search for new owners: which pipes report POLLHUP now, and of these those for which no
 * other has come are closed.  No thread is woken by them again.  The pipe of an owner that was found
 * in the search, and has ended since, is kept.
 */
void rds_standby_hangup_note(void);
void rds_standby_hangup_drop(void);
/* For one socket: closes the pipe if it reports POLLHUP. */
void rds_borrower_hangup_drop(int fd);

#endif
