/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rds.h - what the engine offers to the layer above it (preload/, unit tests).
 *
 * Every function returns 0, a count or a negative errno.  No function touches errno.  The engine
 * never learns which libc symbol was called.  It is told the descriptor number, because only
 * through a number can it ask the kernel about the open file description (O_NONBLOCK), and show
 * readiness to code that was not interposed.
 *
 * References: for the length of a call, the caller holds the struct rds_sock by rds_sock_enter().
 */
#ifndef ENGINE_RDS_H
#define ENGINE_RDS_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

struct rds_sock;

/*
 * The process has read the RDS numbers from /proc, as programs of before 2009 do.  Such a program
 * may need the msg_namelen of its age, or the behaviour of 2006.  level: the number just read was
 * that of the level (SOL_RDS).
 */
void rds_abi_note_numbers(bool level);
/*
 * Notifications have no sender.  Writes the name of one in the form that programs of this process's
 * age expect.
 */
void rds_call_recv_no_name(struct msghdr *msg);

/* ---- life of a socket (calls/socket.c, calls/close.c, socket/) ---- */

/*
 * socket(PF_RDS, type, protocol): checks type and protocol in the kernel's order (net/socket.c,
 * net/rds/af_rds.c: rds_create()), starts the engine on first use, makes the stand-in pair.
 * Returns the program's descriptor number (lowest free one, SOCK_CLOEXEC and SOCK_NONBLOCK
 * applied) and stores the socket with one reference, which belongs to the descriptor: the caller
 * drops it by rds_call_number_closed().
 */
int rds_call_socket(int type, int protocol, struct rds_sock **out);

/*
 * Takes a reference unless the object is already gone; safe on any pointer that ever was a socket
 * (slab memory).
 */
bool rds_sock_get(struct rds_sock *sk);
void rds_sock_put(struct rds_sock *sk);
/*
 * Take and drop a reference for the length of a call on this thread; cheaper than rds_sock_get()
 * and rds_sock_put().  Leave on the thread that entered, last entered first.  After
 * rds_sock_enter() the caller checks that the number still names the socket.
 */
bool rds_sock_enter(struct rds_sock *sk);
void rds_sock_leave(struct rds_sock *sk);

/*
 * One descriptor number of the socket was closed or replaced (the kernel has already done it).
 * Drops the number's reference.  When the kernel says that no copy of the descriptor is left
 * anywhere, the socket is closed before this returns, so that its port is free for the next bind.
 */
void rds_call_number_closed(struct rds_sock *sk);
/*
 * A number of the socket is about to be closed.  Its operations get up to 100 ms to end, so that a
 * program need not wait for them itself.  Takes and drops no reference.  NULL is allowed and does
 * nothing.
 */
void rds_call_number_closing(struct rds_sock *sk);
/* A further number now names the socket (dup): takes a reference for it. */
void rds_call_number_added(struct rds_sock *sk);

/*
 * The socket that owns this stand-in inode, with a reference, or NULL.  Recognises numbers that the
 * table of preload/ does not have yet.
 */
struct rds_sock *rds_sock_by_inode(uint64_t inode);

/*
 * Called from the helper thread, when the kernel reports that the last copy of a socket's
 * descriptor is gone without a call of rds_call_number_closed() (fclose, exec'd child, raw system
 * call).  The layer above forgets all numbers that still name the socket, and calls
 * rds_call_number_closed() for none of them.  It returns how many numbers it forgot; the engine
 * drops their references.
 */
extern unsigned (*rds_hook_hangup)(struct rds_sock *sk);

/* ---- calls (each in the file of its name) ---- */

int rds_call_bind(struct rds_sock *sk, const struct sockaddr *addr, int addrlen);
/*
 * One attempt to bind, without waiting for a port that may be free in a moment.  -EBUSY: the caller
 * tries again, until the time that rds_call_bind_until() has returned before the first attempt.
 * last: the caller does not try again.
 */
uint64_t rds_call_bind_until(void);
#define RDS_BIND_PAUSE_MS 1
int rds_call_bind_once(struct rds_sock *sk, const struct sockaddr *addr, int addrlen, bool last);
int rds_call_connect(struct rds_sock *sk, const struct sockaddr *addr, int addrlen);
int rds_call_getsockname(struct rds_sock *sk, struct sockaddr *addr, socklen_t *len);
int rds_call_getpeername(struct rds_sock *sk, struct sockaddr *addr, socklen_t *len);
int rds_call_setsockopt(struct rds_sock *sk, int fd, int level, int opt, const void *val, socklen_t len);
/* Returns what the kernel's getsockopt returns: 0, or for RDS_INFO_* the element size (> 0). */
int rds_call_getsockopt(struct rds_sock *sk, int fd, int level, int opt, void *val, socklen_t *len);
/*
 * Answers the requests that RDS itself answers.  -ENOIOCTLCMD: the stand-in (generic layer) must
 * answer.
 */
#define ENOIOCTLCMD 515
int rds_call_ioctl(struct rds_sock *sk, unsigned long req, void *arg);

/*
 * flags are the user's.  MSG_DONTWAIT in flags or O_NONBLOCK of fd decide about blocking; fd is
 * asked only when the call would block.  recvmsg updates msg->msg_namelen, msg_controllen and
 * msg_flags as the kernel does.  The buffer for recvmsg's name is in the caller's own memory; all
 * other pointers may be any pointers of the program.  A blocking sleep is one real libc call with
 * no lock held: EINTR, SA_RESTART and cancellation are the kernel's.
 */
ssize_t rds_call_sendmsg(struct rds_sock *sk, int fd, const struct msghdr *msg, int flags);
/*
 * A fast path for plain messages, to be tried before rds_call_sendmsg() (calls/send_fast.c): one
 * buffer, no flags but MSG_DONTWAIT.  `to` is a sockaddr_in as the program gave it, not checked
 * yet.  True: the whole message was sent.  False: nothing was done, and the caller uses
 * rds_call_sendmsg().  Never sleeps.
 */
bool rds_call_send_fast(struct rds_sock *sk, const void *buf, size_t len, const struct sockaddr *to);
ssize_t rds_call_recvmsg(struct rds_sock *sk, int fd, struct msghdr *msg, int flags);
/*
 * recvmmsg stores an error here that ends a batch which is not empty.
 * rds_sock_take_error() returns and clears it.
 */
void rds_sock_set_error(struct rds_sock *sk, int err);
int rds_sock_take_error(struct rds_sock *sk);

/* ---- waiting (calls/poll.c, progress/wait.c, socket/standin.c) ---- */

/*
 * Bits among POLLIN POLLRDNORM POLLOUT POLLWRNORM POLLWRBAND POLLERR that hold now.  Never sleeps.
 * Has the side effects of the kernel's rds_poll (one-shot generation).  Call rds_progress_round()
 * first, once for all sockets of a call.
 */
short rds_call_poll(struct rds_sock *sk, short events);
/*
 * In `events`: a repeated check within one call of the program.  (The kernel attaches a poller on
 * the first check only.)
 */
#define RDS_POLL_AGAIN 0x0800

/*
 * One round of receiving, acknowledging and transmitting for the whole process.  True if the round
 * has made progress.
 */
bool rds_progress_round(void);
/*
 * A call that does not wait has found nothing, after a round.  May sleep for a millisecond, if the
 * helper has had no processor for long.
 */
void rds_progress_found_nothing(void);

/*
 * Sleeping in a call that also watches foreign descriptors:
 *
 *	w = rds_wait_begin(n);
 *	for each RDS socket: rds_wait_add(w, sk, events);
 *	for (;;) {
 *		rds_progress_round(); check every socket with rds_call_poll(); done if ready
 *		if (rds_wait_spin(w)) continue;		// check again without sleeping
 *		if (!rds_wait_arm(w)) continue;		// an event came in between: check again
 *		-EINTR if rds_wait_interrupted(w), else
 *		real ppoll() of the foreign descriptors + rds_wait_fd(w) for POLLIN
 *		rds_wait_disarm(w);
 *	}
 *	rds_wait_end(w);
 *
 * rds_wait_begin() returns NULL on lack of memory or descriptors.  A cancellation clean-up calls
 * rds_wait_end(), which disarms too.  A struct rds_wait belongs to one thread.
 */
struct rds_wait;
struct rds_wait *rds_wait_begin(unsigned nsocks);
int rds_wait_add(struct rds_wait *w, struct rds_sock *sk, short events);
bool rds_wait_spin(struct rds_wait *w);
bool rds_wait_arm(struct rds_wait *w);
/*
 * After arming: the program has handled a signal that ends the call.  The caller returns -EINTR and
 * does not sleep.
 */
bool rds_wait_interrupted(const struct rds_wait *w);
int rds_wait_fd(const struct rds_wait *w);
void rds_wait_disarm(struct rds_wait *w);
void rds_wait_end(struct rds_wait *w);

/*
 * The socket was put into or taken out of a kernel epoll set, or code that is not interposed is
 * known to poll its stand-in.  From now on the stand-in shows readiness as soon as the engine knows
 * of it.  edge: EPOLLET was asked for, so every new arrival must fire again.  fd is any number that
 * names the socket.
 */
void rds_sock_watch(struct rds_sock *sk, int fd, bool edge);

/* ---- process (engine.c, sys/, helper/, progress/linger.c, share/) ---- */

/*
 * Fills in the tables by which lower packages call upper ones.  A constructor calls it.  Code that
 * may run before constructors calls it before any other function of the engine.
 */
void rds_engine_join(void);
/* Has this process an engine of its own? */
bool os_process_is_started(void);
/*
 * True in a process that inherited a running engine by fork/_Fork/clone: it must not touch the
 * engine.
 */
int os_process_word(unsigned n, _Atomic int **word);
bool os_process_inherited(void);
/* Around a fork in a process with an engine.  Handlers of libc make sure of one fork at a time. */
void rds_helper_fork_prepare(void);
void rds_helper_fork_parent(void);
/*
 * In the child: closes the inherited internal descriptors and forgets the engine.  The next
 * rds_call_socket() makes a fresh one.  Idempotent.  Socket pointers from before the fork must not
 * be used afterwards.
 */
void rds_engine_fork_child(void);
/*
 * Orderly exit of the process: hands over the messages that are still queued, within
 * RDS_PRELOAD_LINGER_MS, which begins anew while their receivers run (progress/linger.c).  Another
 * process clears the place in the registry when it finds the lock on it released.
 */
void rds_progress_exit(void);
/* That was for an exec, which has failed: the process goes on, and is there for others again. */
void rds_progress_exit_failed(void);
/*
 * Before rds_progress_exit(), and before sockets are handed off: the time for all of it begins
 * (RDS_PRELOAD_LINGER_MS).  Handlers and destructors that run after ours may send, too: each send
 * hands over before it returns, as long as there is time.  interrupted: a call of this thread was
 * interrupted, and may hold a lock.
 */
void rds_progress_exit_begin(bool interrupted);
/*
 * The same for _exit(), which may be called anywhere, also from a signal handler that has
 * interrupted the engine.  Waits for no lock.  Only gives the helper time to hand over the queued
 * messages.
 */
void rds_progress_exit_now(bool interrupted);
/*
 * Other processes may have descriptors of this process's sockets (fork, exec with descriptors,
 * SCM_RIGHTS). While it is set, the end of this process hands the sockets off.  May be set at any
 * time.
 */
extern _Atomic bool rds_share_possible;
/*
 * True if rds_share_possible is set, or if there are children: a bare system call may have made
 * one.  May be called at any time.
 */
bool rds_share_is_possible(void);
/*
 * Sets rds_share_possible, and gives the process the helper that shared sockets need.  Waits for
 * `control` for a bounded time only.
 */
void rds_share_begin(void);
/*
 * The same, if the helper already runs.  Never starts it: starting a thread needs malloc(), which
 * this thread may have interrupted.
 */
void rds_share_begin_now(void);
/*
 * This process stops owning its sockets (all, or those that are `wanted`; control is held for the
 * callback), so that other processes with descriptors of them can take over.  Returns how many.
 * Calls on these sockets fail with EBADF from now on.  rds_handoff_cancel(): the process goes on
 * after all, and takes back each socket that no other process has taken over.
 */
unsigned rds_handoff_out(bool (*wanted)(struct rds_sock *sk));
/*
 * All sockets, from _exit().  Does nothing if a lock is not available in time.  interrupted: the
 * lock may be held by a call that this thread has interrupted, so the wait is short.
 */
void rds_handoff_out_now(bool interrupted);
void rds_handoff_cancel(void);
/* True while the socket is being handed off, or after that, until it is taken back. */
bool rds_handoff_is_under_way(struct rds_sock *sk);
/* Another process has taken it over; known since rds_handoff_cancel(). */
bool rds_handoff_has_new_owner(struct rds_sock *sk);
/* Calls on it are possible: it is not closed, nor handed off. */
bool rds_handoff_is_open(struct rds_sock *sk);
/*
 * Another process is about to get descriptors of sockets of this process, which has no helper that
 * could answer that process.  Such a socket is handed off to the process that makes the next call
 * on it (share/handoff_unbound.c).  `fd` is a number of this process, or of a process that shares
 * its memory and has a descriptor table of its own.  May be called at any time.
 */
bool rds_handoff_unbound_any(void); /* Can there be such sockets? */
/*
 * True: the socket is handed off, and rds_hook_handed_off() was told that it belongs to another
 * process from now on.
 */
bool rds_handoff_unbound_out(int fd);
extern void (*rds_hook_handed_off)(struct rds_sock *sk);
/*
 * This process still has descriptors of handed-off sockets.  rds_handoff_unbound_clear() closes
 * them.
 */
extern _Atomic bool rds_handoff_unbound_left;
/* May be called at any time; does nothing if a lock is not available. */
void rds_handoff_unbound_clear(void);
/*
 * Takes over the parked state from the stand-in `fd`.  0 and *out, with one reference for the
 * caller. -EAGAIN: no state is parked there, another process owns the socket.  -EXDEV: only a
 * process of another user can do so.  Other errors: the socket is lost, which has been logged.
 */
int rds_handoff_in(int fd, struct rds_sock **out);
/* True if state is parked there.  Makes a system call. */
bool rds_handoff_is_pending(int fd);
/* Is fd the stand-in of an RDS socket, of any process?  Makes a system call. */
bool rds_share_is_standin(int fd);
/*
 * node/inherited.c, around an exec. Would the next program not find the registry of this process by
 * its name, because the process has become another user? Makes system calls.
 */
bool rds_node_is_away(void);
/*
 * Makes a descriptor that the exec is to keep: the next program of this process takes the registry
 * from it. It is not internal, and the caller closes it if the exec fails. May be called by a child
 * that shares its parent's memory. -errno: there is no registry, or it cannot be passed on.
 */
int rds_node_pass_on(void);
/* At the start of a program: if it is such a descriptor, takes the registry, and closes it. */
bool rds_node_take_passed(int fd);
/* Set by the layer above: returns any number that names the socket, or -1. */
extern int (*rds_hook_number)(struct rds_sock *sk);
/*
 * The thread leaves a call on that socket from inside its sleep, by cancellation or siglongjmp(),
 * and will not return.
 */
extern void (*rds_hook_left)(struct rds_sock *sk);
/*
 * Has the program no other thread that could share its descriptor table?  Also false if the kernel
 * does not tell.  *helper: the helper shares the table.
 */
bool rds_helper_program_is_single(bool *helper);
/*
 * If the program has one thread, the process has only that one, too, until rds_aside_end(): the
 * helper steps aside.  False: nothing has changed.  Not to be called from a handler that has
 * interrupted a call.
 */
bool rds_aside_begin(void);
void rds_aside_end(void);
/*
 * A program of one thread has made a system call.  True if the helper is to make the same call, and
 * is not still busy with an earlier one.
 */
bool rds_aside_can_repeat(void);
/*
 * The helper makes the same call.  What the arguments point to must stay until
 * rds_aside_can_repeat() returns true again.
 */
void rds_aside_repeat_call(long nr, const long args[5]);
/*
 * True if fd is one of the engine's own descriptors: the program must not close or replace it.
 */
bool os_fd_is_internal(int fd);
/*
 * Moves an internal descriptor out of the way, because the program wants to dup2() onto its
 * number. 0 or -errno.
 */
int os_fd_move_internal(int fd);
/*
 * Calls cb(fd) for every internal descriptor in [first, last], ascending: close_range() must leave
 * these out.
 */
void os_fd_each_internal(unsigned first, unsigned last, void (*cb)(int fd, void *arg), void *arg);

#endif
