/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fdtable.h - which descriptor numbers are RDS sockets.
 *
 * A two-level table of atomic words. Every wrapper reads it without a lock. A program that never
 * made an RDS socket pays one predictable branch (rds_fds_active). The kernel owns the numbers and
 * the table follows it: every wrapper through which a number comes into use, is copied or goes away
 * tells the table.
 *
 * Must not know what a call does with a socket.
 */
#ifndef PRELOAD_FDTABLE_FDTABLE_H
#define PRELOAD_FDTABLE_FDTABLE_H

#include "preload/libc/preload.h"

#include <stdatomic.h>

#include "engine/share/borrower.h"
#include "engine/rds.h"
#include "preload/signals/reentry.h"

#define FDS_CHUNK_BITS 12
#define FDS_CHUNK (1u << FDS_CHUNK_BITS)
/* Numbers up to 16 million. A socket with a higher number is refused with EMFILE. */
#define FDS_CHUNKS 4096u

/*
 * A word: 0, one of the marks below, or a struct rds_sock pointer, which may have FDS_CLOSING
 * added.
 */
#define FDS_CLOSING 1u	 /* a close() of this number is under way in the kernel */
#define FDS_EPOLL 2u	 /* an epoll descriptor with RDS sockets in its set */
/* An RDS socket whose engine is in another process: only its stand-in is here (share/borrower.h) */
#define FDS_BORROWED 4u
#define FDS_NESTED 8u	 /* an epoll descriptor with one of these sets in its set */
#define FDS_MARKS 16u	 /* values below are marks */

struct fds_chunk {
	_Atomic(uintptr_t) word[FDS_CHUNK];
};

/* This process, or one it was forked from, has had an RDS socket. */
extern _Atomic bool rds_fds_active;
extern _Atomic(struct fds_chunk *) rds_fds_root[FDS_CHUNKS];

/* What rds_fds_get() returns for a borrowed socket. Not a pointer to follow. */
#define RDS_BORROWED ((struct rds_sock *)(uintptr_t)FDS_BORROWED)

/* Slow paths of rds_fds_get() and rds_fds_ref(), for a word that is not 0. */
struct rds_sock *rds_fds_get_slow(_Atomic(uintptr_t) *word, int fd);
struct rds_sock *rds_fds_ref_slow(int fd, _Atomic(uintptr_t) *word);

static inline bool rds_fds_on(void)
{
	return unlikely(atomic_load_explicit(&rds_fds_active, memory_order_relaxed));
}

static inline _Atomic(uintptr_t) *rds_fds_word(int fd)
{
	struct fds_chunk *chunk;

	if (unlikely((unsigned)fd >> FDS_CHUNK_BITS >= FDS_CHUNKS))
		return NULL;
	chunk = atomic_load_explicit(&rds_fds_root[(unsigned)fd >> FDS_CHUNK_BITS], memory_order_acquire);
	return chunk ? &chunk->word[(unsigned)fd & (FDS_CHUNK - 1)] : NULL;
}

static inline uintptr_t rds_fds_peek(int fd)
{
	_Atomic(uintptr_t) *word = rds_fds_word(fd);

	return word ? atomic_load_explicit(word, memory_order_acquire) : 0;
}

/*
 * The socket behind a number: NULL if the number is not RDS, RDS_BORROWED, or a socket with a
 * reference. The caller gives RDS_BORROWED or the socket to rds_fds_put(). Until then the thread is
 * inside (signals/reentry.h).
 */
static inline struct rds_sock *rds_fds_get(int fd)
{
	if (!rds_fds_on())
		return NULL;
	_Atomic(uintptr_t) *word = rds_fds_word(fd);

	if (likely(!word || !atomic_load_explicit(word, memory_order_acquire)))
		return NULL;
	return rds_fds_get_slow(word, fd);
}

/* The same for a thread that is inside already. The result is given back by rds_fds_unref(). */
static inline struct rds_sock *rds_fds_ref(int fd)
{
	_Atomic(uintptr_t) *word = rds_fds_on() ? rds_fds_word(fd) : NULL;

	return word && atomic_load_explicit(word, memory_order_acquire) ? rds_fds_ref_slow(fd, word) : NULL;
}

static inline void rds_fds_unref(struct rds_sock *sk)
{
	if (likely(sk && sk != RDS_BORROWED))
		rds_sock_leave(sk);
}

/* True: the call is to be made again if it was interrupted (reentry_call_end()). */
static inline bool rds_fds_put(struct rds_sock *sk)
{
	if (unlikely(!sk))
		return false;
	rds_fds_unref(sk);
	return reentry_call_end();
}

/*
 * A call on another process's socket. It is repeated until it was made: by the owner, or by `here`
 * if this process has taken the socket over meanwhile. `here` may use the socket under the name
 * given.
 */
#define RDS_BORROWED_CALL(fd, away, name, here)                                                                        \
	__extension__({                                                                                                \
		long rc_;                                                                                              \
		while ((rc_ = (long)(away)) == -RDS_BORROWER_TAKE_OVER && !(rc_ = rds_fds_take_over(fd))) {            \
			struct rds_sock *name = rds_fds_ref(fd);                                                       \
			if (name == RDS_BORROWED)                                                                      \
				continue;                                                                              \
			rc_ = name ? (long)(here) : -EBADF;                                                            \
			rds_fds_unref(name);                                                                           \
			break;                                                                                         \
		}                                                                                                      \
		rc_;                                                                                                   \
	})

/*
 * After -RDS_BORROWER_TAKE_OVER. 0: this process, or another one that was quicker, has taken the
 * socket over. -errno: this process cannot.
 */
int rds_fds_take_over(int fd);
/* for lack of a resource that the process may have later */
bool rds_fds_error_is_temporary(int rc);

/*
 * Around an engine call that may sleep, where the thread may be cancelled or may leave by
 * siglongjmp(). Notes the reference. It is given back when the sleep is left (rds_hook_left) or
 * when the thread ends inside. Costs a tenth of pthread_cleanup_push(). A call beyond FDS_CALL_REFS
 * nested ones (signal handlers that never return) is not noted.
 */
#define FDS_CALL_REFS 8
struct fds_call_refs {
	unsigned n;
	bool armed;
	struct rds_sock *sk[FDS_CALL_REFS];
};
extern __thread struct fds_call_refs rds_fds_call_refs __attribute__((tls_model("initial-exec")));
void rds_fds_hold_arm(void);

static inline void rds_fds_hold(struct rds_sock *sk)
{
	unsigned n = rds_fds_call_refs.n++; /* first: a signal handler nests above this call */

	if (likely(n < FDS_CALL_REFS))
		rds_fds_call_refs.sk[n] = sk;
	if (unlikely(!rds_fds_call_refs.armed))
		rds_fds_hold_arm();
	pthread_testcancel();
}

static inline void rds_fds_unhold(void)
{
	unsigned n = rds_fds_call_refs.n - 1;

	if (likely(n < FDS_CALL_REFS))
		rds_fds_call_refs.sk[n] = NULL;
	rds_fds_call_refs.n = n;
}

/* Ends a call: gives the reference back and turns the engine's result into libc's. */
static inline long rds_fds_done(struct rds_sock *sk, long rc)
{
	rds_fds_put(sk);
	return libc_result(rc);
}

/*
 * The same, and makes the call again if it was cut short for a signal handler that restarts it, or
 * if its socket was closed only for an exec that failed.
 */
#define RDS_FDS_DONE(sk, rc, again)                                                                                    \
	__extension__({                                                                                                \
		long rc_ = (rc);                                                                                       \
		bool back_ = unlikely(rc_ == -EBADF) && rds_fds_exec_must_retry(sk);                                   \
		(unlikely(rds_fds_put(sk)) && rc_ == -EINTR) || back_ ? (long)(again) : libc_result(rc_);              \
	})

/* The kernel has just given this number to a descriptor that is not RDS: clears its word. */
void rds_fds_clear_slow(int fd);
static inline int rds_fds_clear(int fd)
{
	if (rds_fds_on() && fd >= 0 && rds_fds_peek(fd))
		rds_fds_clear_slow(fd);
	return fd;
}

/* Once, before the engine can start its helper. */
void rds_fds_init(void);
/*
 * A new socket has the number fd. Takes over the reference that rds_call_socket() gave. 0 or
 * -errno; after an error nothing is kept.
 */
int rds_fds_install(int fd, struct rds_sock *sk);
/* Makes sure that the table has room for this number, so that rds_fds_copied() cannot fail. */
int rds_fds_reserve(int fd);
/*
 * dup2() of a socket onto a given number. The table names the socket before the kernel copies it.
 * Otherwise another thread's call could find the number free, or the socket that was there before,
 * while the kernel has the stand-in there already. begin: false if nothing is to be entered ahead;
 * rds_fds_copied() does it afterwards then. end: `done` tells whether the kernel has made the copy.
 */
bool rds_fds_replace_begin(int fd, struct rds_sock *sk, uintptr_t *before);
void rds_fds_replace_end(int from, int fd, struct rds_sock *sk, uintptr_t before, bool done);
/*
 * The kernel has made fd a copy of `from`, which was sk (NULL, RDS_BORROWED or a referenced socket)
 * before that.
 */
int rds_fds_copied(int from, int fd, struct rds_sock *sk);
/*
 * A number that came from outside (SCM_RIGHTS). It is a socket of this process if the engine knows
 * the inode, and another process's socket if it has the name of a stand-in.
 */
void rds_fds_received(int fd);
/*
 * Start of a program: finds sockets of other processes among the numbers that the program was
 * given.
 */
void rds_fds_scan(void);
/*
 * Sockets of a process that has no helper are handed off to the process that makes the next call.
 * kept: those that the calling process keeps over an exec; it only shares the memory (vfork). all:
 * all of them, before a child starts that no fork handler sees.
 */
void rds_fds_handoff_kept(void);
void rds_fds_handoff_all(void);
/*
 * Around an exec for which sockets are handed off (rds_handoff_out()) and which may fail. left:
 * some were handed off; those that other processes have taken meanwhile stay with these processes.
 */
void rds_fds_exec_begin(void);
void rds_fds_exec_end(bool left);
void rds_fds_exec_reset(void); /* forked child */
/*
 * True: the call is to be made again. Its socket was not open only for another thread's exec, and
 * that exec has failed. Waits until it has. The thread is inside, or has a reference.
 */
bool rds_fds_exec_must_retry(struct rds_sock *sk);

/*
 * For a thread that sleeps: the owner of a borrowed socket may have ended. Who owns it now? w: the
 * wait of that thread's call. After it, the sleep has to have rds_borrower_wait_mask().
 */
enum fds_owner {
	FDS_OWNER_SELF,	   /* this process */
	FDS_OWNER_OTHER,   /* another process, which keeps the stand-in current from now on */
	FDS_OWNER_LATE,	   /* the same, as soon as it runs again; or a signal waits for the sleep */
	FDS_OWNER_UNKNOWN, /* this process lacks a resource, such as a descriptor, to find out now */
};
enum fds_owner rds_fds_find_owner(int fd, struct rds_borrower_wait *w);
/*
 * The same for all sockets whose owners have ended. True: an owner is late, and what reported the
 * end of the last one goes on reporting it.
 */
bool rds_fds_find_all_owners(struct rds_borrower_wait *w);
/*
 * Sockets of this process were handed off, and may be in a set that a thread is about to wait for.
 * Finds the owner of each of them now, or takes the socket over, so that the stand-ins are current
 * again.
 */
extern _Atomic bool rds_fds_handed_off;
void rds_fds_reclaim_all(struct rds_borrower_wait *w);
/* This process ends or execs: parks the sockets of other processes whose owners have ended. */
void rds_fds_park_orphans(void);
/* Is it another process's socket that has no further number outside [first, last]? */
bool rds_fds_is_last_number(int fd, unsigned first, unsigned last);

/*
 * close() of one number, with the result and errno of the real close(). A descriptor of the engine
 * gives EBADF, except to the engine's own libraries.
 */
int rds_fds_close(int fd);
/*
 * An internal number: does it name a descriptor of the engine, which a close() must leave alone? A
 * child of vfork() needs these descriptors at its exec.
 */
bool rds_fds_is_hidden(int fd);
/* The two halves of closing [first, last]: before and after the kernel has done it. */
void rds_fds_close_begin(unsigned first, unsigned last);
void rds_fds_close_end(unsigned first, unsigned last);

/*
 * May this process change the table and the engine's descriptors? A child that shares this memory
 * but has its own descriptors (vfork) may not. Nor may a child of clone() that shares the
 * descriptors but has a copy of the memory. Their calls are system calls only. Any other child with
 * a copy of the memory that no fork handler has seen (_Fork, raw clone) is put in order by this
 * function.
 */
bool rds_fds_is_ours(void);
/*
 * Calls of clone() that start a child which shares the descriptors and has a copy of the memory.
 * While this is not 0, a process that is not the table's is such a child.
 */
extern _Atomic unsigned rds_fds_sharing_clones;
void rds_fds_claim(void); /* the table is this process's */
/*
 * In a child with a copy of the memory: all sockets become borrowed ones, the engine is forgotten.
 */
void rds_fds_fork_child(void);

void rds_fds_mark_epoll(int ep, uintptr_t mark);
/* A wait for this set may be a wait for borrowed sockets. */
static inline bool rds_fds_word_is_epoll(uintptr_t word)
{
	return word == FDS_EPOLL || word == FDS_NESTED;
}
static inline bool rds_fds_is_epoll(int ep)
{
	return rds_fds_on() && unlikely(rds_fds_peek(ep) == FDS_EPOLL);
}
/*
 * One more than the highest number that was ever in the table: select() need not look further for
 * RDS.
 */
int rds_fds_top(void);

/* Fork handlers, once, before the first RDS socket exists (fork.c). */
void rds_fds_process_init(void);

#endif
