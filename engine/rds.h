/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rds.h - what the engine offers to the layer above it (preload/, unit tests).
 *
 * Every function returns 0 or a count, or a negative errno; none touches errno.  The engine never learns which libc
 * symbol was called; it is told the descriptor number because only through a number can it ask the kernel about the
 * open file description (O_NONBLOCK) and show readiness to code that was not interposed.
 *
 * References: a caller holds a struct rds_sock by rds_sock_enter() for as long as it is inside a call.
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

/* The process has read the RDS numbers from /proc, as programs of before 2009 do: it may want their namelen (legacy-abi 3.3), or what 2006 had.  level: this time it was that one. */
void rds_abi_note_numbers(bool level);
/* The name of a notification, which has no sender, as programs of this process's age want it. */
void rds_call_recv_no_name(struct msghdr *msg);

/* ---- life (socket/socket.c) ---- */

/*
 * socket(PF_RDS, type, protocol): checks type and protocol in the kernel's order (rds-semantics 1), starts the engine
 * on first use, makes the stand-in pair.  Returns the application's descriptor number (lowest free one, SOCK_CLOEXEC
 * and SOCK_NONBLOCK applied) and stores the socket with one reference, which belongs to the descriptor: the caller
 * drops it by rds_call_number_closed().
 */
int rds_call_socket(int type, int protocol, struct rds_sock **out);

/* Takes a reference unless the object is already gone; safe on any pointer that ever was a socket (slab memory). */
bool rds_sock_get(struct rds_sock *sk);
void rds_sock_put(struct rds_sock *sk);
/*
 * The same for the length of a call on this thread, at a fraction of the price: leave on the thread that entered, last entered
 * first.  The caller makes sure after it that the number still names the socket.
 */
bool rds_sock_enter(struct rds_sock *sk);
void rds_sock_leave(struct rds_sock *sk);

/*
 * One descriptor number of the socket was closed or replaced (the kernel has already done it).  Drops the number's
 * reference.  When the kernel says that no copy of the descriptor is left anywhere, the socket is closed before this
 * returns, so that its port is free for the next bind.
 */
void rds_call_number_closed(struct rds_sock *sk);
/*
 * One is about to be closed: its operations have a moment to end (100 ms), so that a program need not wait for them.  Takes and drops nothing; NULL: nothing.
 */
void rds_call_number_closing(struct rds_sock *sk);
/* A further number now names the socket (dup): takes a reference for it. */
void rds_call_number_added(struct rds_sock *sk);

/* Socket that owns this stand-in inode, with a reference, or NULL: recognises numbers the table has not seen. */
struct rds_sock *rds_sock_by_inode(uint64_t inode);

/*
 * Called (from the helper thread) when the kernel reports that the last copy of a socket's descriptor is gone without
 * rds_call_number_closed having said so (fclose, exec'd child, raw system call): the layer above forgets all numbers
 * that still name the socket, calling rds_call_number_closed for none of them; the engine drops those references
 * itself: the hook returns how many numbers it forgot.
 */
extern unsigned (*rds_hook_hangup)(struct rds_sock *sk);

/* ---- calls (file named by the call) ---- */

int rds_call_bind(struct rds_sock *sk, const struct sockaddr *addr, int addrlen);
/* The same without waiting for a port that may be free in a moment; -EBUSY: try again, `last`: it is not going to be tried again. */
unsigned rds_call_bind_tries(void);
#define RDS_BIND_PAUSE_MS 1
int rds_call_bind_once(struct rds_sock *sk, const struct sockaddr *addr, int addrlen, bool last);
int rds_call_connect(struct rds_sock *sk, const struct sockaddr *addr, int addrlen);
int rds_call_getsockname(struct rds_sock *sk, struct sockaddr *addr, socklen_t *len);
int rds_call_getpeername(struct rds_sock *sk, struct sockaddr *addr, socklen_t *len);
int rds_call_setsockopt(struct rds_sock *sk, int fd, int level, int opt, const void *val, socklen_t len);
/* Returns what the kernel's getsockopt returns: 0, or for RDS_INFO_* the element size (> 0). */
int rds_call_getsockopt(struct rds_sock *sk, int fd, int level, int opt, void *val, socklen_t *len);
/* The requests that RDS itself answers; -ENOIOCTLCMD when the stand-in (generic layer) must answer. */
#define ENOIOCTLCMD 515
int rds_call_ioctl(struct rds_sock *sk, unsigned long req, void *arg);

/*
 * flags are the user's; blocking is decided by MSG_DONTWAIT in flags or O_NONBLOCK of fd, which is asked only when the
 * call would block.  msg->msg_namelen, msg_controllen and msg_flags are updated by recvmsg as the kernel does.  Where recvmsg is to put the
 * name is the caller's own memory; all else may be any pointer of the program's.
 * A blocking sleep is one real libc call with no lock held: EINTR, SA_RESTART and cancellation are the kernel's.
 */
ssize_t rds_call_sendmsg(struct rds_sock *sk, int fd, const struct msghdr *msg, int flags);
/*
 * The same for a plain message, to be tried first (calls/send_fast.c): one buffer, no flags but MSG_DONTWAIT, `to` a sockaddr_in as the program gave it, not
 * checked yet.  True: all of it was sent.  False: nothing was done, and rds_call_sendmsg() is to be called.  Never sleeps.
 */
bool rds_call_send_fast(struct rds_sock *sk, const void *buf, size_t len, const struct sockaddr *to);
ssize_t rds_call_recvmsg(struct rds_sock *sk, int fd, struct msghdr *msg, int flags);
/* recvmmsg stores an error that ends a non-empty batch here (rds-semantics 5.8); take returns and clears it. */
void rds_sock_set_error(struct rds_sock *sk, int err);
int rds_sock_take_error(struct rds_sock *sk);

/* ---- waiting (socket/standin.c, progress/wait.c) ---- */

/* Bits among POLLIN POLLRDNORM POLLOUT POLLWRNORM POLLWRBAND POLLERR that hold now.  Never sleeps; has the side
 * effects that the kernel's rds_poll has (one-shot generation).  Call rds_progress_round() first, once per group. */
short rds_call_poll(struct rds_sock *sk, short events);
/* In `events`: this is not the first look of the program's call (the kernel attaches a poller on the first one only). */
#define RDS_POLL_AGAIN 0x0800

/* One round of receiving, acknowledging and transmitting for the whole process.  True if anything moved. */
bool rds_progress_round(void);

/*
 * Sleeping in a call that also watches foreign descriptors:
 *
 *	w = rds_wait_begin(n);
 *	for each RDS socket: rds_wait_add(w, sk, events);
 *	for (;;) {
 *		rds_progress_round(); look at every socket with rds_call_poll(); done if ready
 *		if (rds_wait_spin(w, elapsed since the first look)) continue;	// worth looking again without sleeping
 *		if (!rds_wait_arm(w)) continue;			// something came in between: look again
 *		-EINTR if rds_wait_interrupted(w), else
 *		real ppoll() of the foreign descriptors + rds_wait_fd(w) for POLLIN
 *		rds_wait_disarm(w);
 *	}
 *	rds_wait_end(w);
 *
 * rds_wait_begin returns NULL on lack of memory or descriptors.  rds_wait_end is what a cancellation clean-up calls
 * (it disarms too).  One rds_wait belongs to one thread.
 */
struct rds_wait;
struct rds_wait *rds_wait_begin(unsigned nsocks);
int rds_wait_add(struct rds_wait *w, struct rds_sock *sk, short events);
bool rds_wait_spin(struct rds_wait *w);
bool rds_wait_arm(struct rds_wait *w);
/* After arming: a signal has been handled that ends the call, which is not to sleep. */
bool rds_wait_interrupted(const struct rds_wait *w);
int rds_wait_fd(const struct rds_wait *w);
void rds_wait_disarm(struct rds_wait *w);
void rds_wait_end(struct rds_wait *w);

/*
 * The socket was put into (taken out of) a kernel epoll set, or somebody not interposed is known to poll its stand-in:
 * from now on the stand-in shows readiness as soon as the engine knows of it.  edge: EPOLLET was asked for, every new
 * arrival must fire again.  fd is any number that names the socket.
 */
void rds_sock_watch(struct rds_sock *sk, int fd, bool edge);

/* ---- process (engine.c) ---- */

/*
 * The tables by which its packages call those above them are filled in.  A constructor does it; before any other call by code that may run before
 * constructors do.
 */
void rds_engine_join(void);
/* Is there one, and of this process? */
bool os_process_is_started(void);
/* True in a process that inherited a running engine by fork/_Fork/clone: nothing of it may be touched. */
bool os_process_inherited(void);
/* Around a fork in a process with an engine (one fork at a time: libc's handlers see to that). */
void rds_helper_fork_prepare(void);
void rds_helper_fork_parent(void);
/* In the child: close the inherited internal descriptors, forget the engine; the next rds_call_socket() makes a fresh one.
 * Idempotent.  Socket pointers from before the fork must not be used afterwards. */
void rds_engine_fork_child(void);
/* Orderly exit of the process: hand over what is still queued (bounded by RDS_PRELOAD_LINGER_MS).  The
 * place in the registry is cleared by whoever finds the lock on it gone. */
void rds_progress_exit(void);
/*
 * Before it, and before sockets are left: the time for all of it begins (RDS_PRELOAD_LINGER_MS).  Handlers and destructors that run later than ours may
 * send, too: each send hands over before it returns, as long as there is time.  interrupted: this thread's own call may have a lock.
 */
void rds_progress_exit_begin(bool interrupted);
/*
 * The same for _exit(), which may be called anywhere (a signal handler that has interrupted the engine, say): takes no
 * lock that it would have to wait for, only gives the helper time to hand over what is queued.
 */
void rds_progress_exit_now(bool interrupted);
/*
 * Sockets may be held by other processes, too (a fork, an exec with descriptors, SCM_RIGHTS): from now on the end of this one
 * looks after them.  Any time.
 */
extern _Atomic bool rds_share_possible;
bool rds_share_is_possible(
	void);		    /* ... or there are children, of which a bare system call may have told nobody.  Any time */
void rds_share_begin(void); /* ... and has the helper that they need; takes locks only if they are free */
void rds_share_begin_now(
	void); /* ... if it has one: for who may have interrupted malloc(), which starting a thread needs */
/*
 * This process stops carrying its sockets (all, or those that are wanted; control is held then), for whoever else holds them: how many.  Their
 * calls fail with EBADF from now on.  rds_handoff_cancel(): it goes on after all, and takes back what nobody else has taken.
 */
unsigned rds_handoff_out(bool (*wanted)(struct rds_sock *sk));
void rds_handoff_out_now(
	bool interrupted); /* all, from _exit(): not if a lock is not to be had, soon if it may be held by a call that this one has interrupted */
void rds_handoff_cancel(void);
bool rds_handoff_is_under_way(struct rds_sock *sk); /* it is being left, or was, and has not been taken back */
bool rds_handoff_has_new_owner(struct rds_sock *sk);  /* another process has it since rds_handoff_cancel() */
bool rds_handoff_is_open(struct rds_sock *sk);    /* calls on it get somewhere */
/*
 * Another process is about to have sockets of this one, which has no helper that could answer it: they are left to whoever
 * makes the next call (share/handoff_unbound.c).  In this process, or in one that shares its memory and has numbers of its own, of
 * which `fd` is one.  Any time.
 */
bool rds_handoff_unbound_any(void); /* could there be such? */
bool rds_handoff_unbound_out(
	int fd); /* it is left, and rds_hook_handed_off() was told that it is another process's from now on */
extern void (*rds_hook_handed_off)(struct rds_sock *sk);
extern _Atomic bool
	rds_handoff_unbound_left; /* this process has descriptors of such; by rds_handoff_unbound_clear() it closes them */
void rds_handoff_unbound_clear(void); /* any time: not if a lock is not to be had */
/*
 * Takes over what was left in the stand-in `fd`: 0 and *out, with one reference for the caller.  -EAGAIN: nothing was left
 * there, another process carries it.  -errno: it is lost, which has been logged.
 */
int rds_handoff_in(int fd, struct rds_sock **out);
/* True if something was left there.  A system call. */
bool rds_handoff_is_pending(int fd);
/* Is that the stand-in of an RDS socket, of whatever process?  A system call. */
bool rds_share_is_standin(int fd);
/* The layer above: any number that names the socket, or -1. */
extern int (*rds_hook_number)(struct rds_sock *sk);
/* The thread leaves a call on that socket from inside its sleep, cancelled or by siglongjmp(): it will not return. */
extern void (*rds_hook_left)(struct rds_sock *sk);
/*
 * Has the program no other thread that could share its descriptor table?  False also if the kernel does not say.  *helper: the library's thread
 * shares it, in any case.
 */
bool rds_helper_program_is_single(bool *helper);
/*
 * If the program has one thread, so has the process from now on until rds_aside_end().  False: it stays as it is.  Not out of a handler that has
 * interrupted a call.
 */
bool rds_aside_begin(void);
void rds_aside_end(void);
/* A program of one thread has made a system call: is the library's thread to do the same, and not at an earlier one still? */
bool rds_aside_can_repeat(void);
/* Then it does.  What arguments point to stays until rds_aside_can_repeat() says yes again. */
void rds_aside_repeat_call(long nr, const long args[5]);
/* True if fd is one of the engine's own descriptors: the application must not close or replace it. */
bool os_fd_is_internal(int fd);
/* Moves an internal descriptor out of the way because the application wants to dup2() onto its number. 0 or -errno. */
int os_fd_move_internal(int fd);
/* Calls cb(fd) for every internal descriptor in [first, last], ascending: close_range() must leave these out. */
void os_fd_each_internal(unsigned first, unsigned last, void (*cb)(int fd, void *arg), void *arg);

#endif
