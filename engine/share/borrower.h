/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * borrower.h - calls on a socket whose engine is in another process: the holder's side of node/socket_name.h.
 *
 * A holder needs no engine of its own.  The functions are those of rds.h with the descriptor instead of the socket: same
 * results (0, a count, -errno), same rules about the program's pointers; a call that blocks sleeps in one libc read().
 * They may be called from any number of threads, in a child of vfork not at all, and in signal handlers as long as the socket has an
 * idle channel: making one takes a lock (borrower_channel.c).
 *
 * -RDS_BORROWER_TAKE_OVER from any of them: the call was not made, because the carrier has left the socket to whoever wants it; rds_handoff_in() it
 * and make the call here.
 * -ENOTCONN from any of them: the process that carried the socket is gone, or has never heard of sharing; said once in the log.
 */
#ifndef ENGINE_AWAY_H
#define ENGINE_AWAY_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

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
 * From now on the stand-in shows readiness at once; edge: every arrival anew.  0 or -errno; -EAGAIN: as soon as the carrier goes on, which does not
 * answer now.  *since: when the caller began to wait, 0 not yet: the patience is one for several sockets.  NULL: for this one.
 */
int rds_borrower_watch(int fd, bool edge, uint64_t *since);

/*
 * A socket of another process has just come to this one (exec, SCM_RIGHTS): asks its carrier for what is needed to carry it on if that is
 * killed (lease.h).  Waits a second for it at most, for all together that do not answer, and 20 ms for each beyond that, or if the carrier is
 * stopped: that one answers later.
 */
void rds_borrower_attach(int fd);

/* The last number of its socket here is about to be closed: what was kept for that goes, or the carrier would believe it still in use. */
void rds_borrower_close_begin(int fd);
void rds_borrower_drop(uint64_t inode); /* the same, of one that is closed */
void rds_borrower_hang_up(int fd);	/* only the channels to its last carrier, and at once */
/*
 * ... it is.  If it was the last number anywhere the carrier has closed the socket when this returns, as the kernel would have: its port can be
 * had again.  Waits for that, 100 ms at most.
 */
void rds_borrower_close_wait(void);
/*
 * This process ends or execs, or closes the last number of another process's socket.  If its carrier was killed and nobody has noticed, others may
 * have nothing but the stand-in: a deposit is left for them (standby.c).
 */
void rds_standby_park(int fd);
/*
 * Regions that this process has opened on such a socket (borrower_regions.c).  It carries that one now: they are regions of sk, before peers can reach it,
 * but for those that may be none any more (all_there: none is).  control held.
 */
struct rds_sock;
void rds_borrower_regions_to_socket(struct rds_sock *sk, bool all_there);
/* Forked child: channels are the parent's; what it needs to carry on, it has of its own (lease.h). */
void rds_borrower_forget(void);
void rds_borrower_fork_prepare(void); /* before it, if there is an opportunity */

/* Has that socket's carrier ended, the last one that this process has been in touch with?  System calls. */
bool rds_borrower_owner_gone(int fd);
/* It has, and this process cannot go on with the socket now: it is shown to be readable, so that somebody makes the call that says why. */
void rds_standby_show_readable(int fd);
/* It has, and there is no other to be found: nothing is kept of it, and the stand-in hangs up. */
void rds_borrower_give_up(int fd);
/*
 * For whoever sleeps for sockets that others carry: descriptors that say POLLHUP when a carrier has ended.  Puts up to `room` of them there, returns
 * how many there are.  For one socket: -1, none.
 */
unsigned rds_standby_hangup_fds(struct pollfd *p, unsigned room);
int rds_borrower_hangup_fd(int fd);
/* Lines that have hung up, although new carriers were looked for: nobody waits for them any longer. */
void rds_standby_hangup_drop(void);

#endif
