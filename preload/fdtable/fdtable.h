/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fdtable.h - which descriptor numbers are RDS sockets.
 *
 * A two-level table of atomic words, read without a lock by every wrapper.  A program that never made an RDS socket
 * pays one predictable branch (rds_fds_active).  The kernel owns the numbers, the table only follows it: every wrapper
 * through which a number comes into use, changes hands or goes away says so here.
 */
#ifndef PRELOAD_FDS_H
#define PRELOAD_FDS_H

#include "preload/libc/preload.h"

#include <stdatomic.h>

#include "engine/share/borrower.h"
#include "engine/rds.h"
#include "preload/signals/reentry.h"

#define FDS_CHUNK_BITS 12
#define FDS_CHUNK (1u << FDS_CHUNK_BITS)
#define FDS_CHUNKS 4096u /* numbers up to 16 million; a socket that lands higher is refused with EMFILE */

/* A word: 0, one of the marks below, or a struct rds_sock pointer, perhaps with FDS_CLOSING. */
#define FDS_CLOSING 1u	 /* a close() of this number is under way in the kernel */
#define FDS_EPOLL 2u	 /* an epoll descriptor with RDS sockets in its set */
#define FDS_BORROWED                                                                                                   \
	4u /* an RDS socket whose engine is in another process: only the stand-in is here (engine/share/borrower.h) */
#define FDS_NESTED 8u	 /* an epoll descriptor with such a set in its set */
#define FDS_MARKS 16u	 /* values below are marks */

struct fds_chunk {
	_Atomic(uintptr_t) word[FDS_CHUNK];
};

extern _Atomic bool rds_fds_active; /* this process, or one it was forked from, has had an RDS socket */
extern _Atomic(struct fds_chunk *) rds_fds_root[FDS_CHUNKS];

/* What rds_fds_get() says of an inherited number; not a pointer to follow. */
#define RDS_BORROWED ((struct rds_sock *)(uintptr_t)FDS_BORROWED)

/* ... there is something in that word: as rds_fds_get(), as rds_fds_ref(). */
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
 * The socket behind a number: NULL for everything that is not RDS, RDS_BORROWED, or a socket with a reference.  Either of these has to be given
 * to rds_fds_put(), until when the thread is inside (signals/reentry.h).
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

/* The same for who is inside already; given back by rds_fds_unref(). */
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

/* True: see reentry_call_end(). */
static inline bool rds_fds_put(struct rds_sock *sk)
{
	if (unlikely(!sk))
		return false;
	rds_fds_unref(sk);
	return reentry_call_end();
}

/*
 * A call on another process's socket, again and again until it was made: there, or here if the socket has become ours meanwhile.
 * `here` may use the socket under the name given.
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

/* After -RDS_BORROWER_TAKE_OVER: 0, it has been taken over, here or by somebody who was quicker; -errno: this process cannot. */
int rds_fds_take_over(int fd);
bool rds_fds_error_is_temporary(int rc); /* ... for lack of something that it may have later */

/*
 * Around an engine call that may sleep, where the thread may be cancelled, or leave by siglongjmp(): notes the reference, so that it is
 * given back when the sleep is left (rds_hook_left), or the thread ends inside.  A tenth of the cost of pthread_cleanup_push().  A call beyond
 * FDS_CALL_REFS nested ones (signal handlers that never return) is not noted.
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
	unsigned n = rds_fds_call_refs.n++; /* first: a signal handler nests above us */

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

/* Ends a call: the reference goes back, the engine's result becomes libc's. */
static inline long rds_fds_done(struct rds_sock *sk, long rc)
{
	rds_fds_put(sk);
	return libc_result(rc);
}

/* ... of a call that may have been cut short for a handler, or found its socket being left, and is made again then. */
#define RDS_FDS_DONE(sk, rc, again)                                                                                    \
	__extension__({                                                                                                \
		long rc_ = (rc);                                                                                       \
		bool back_ = unlikely(rc_ == -EBADF) && rds_fds_exec_must_retry(sk);                                   \
		(unlikely(rds_fds_put(sk)) && rc_ == -EINTR) || back_ ? (long)(again) : libc_result(rc_);              \
	})

/* The kernel has just handed out this number for something that is not RDS: forget what the table may say. */
void rds_fds_clear_slow(int fd);
static inline int rds_fds_clear(int fd)
{
	if (rds_fds_on() && fd >= 0 && rds_fds_peek(fd))
		rds_fds_clear_slow(fd);
	return fd;
}

/* Once, before the engine can start its helper. */
void rds_fds_init(void);
/* A new socket stands at fd; takes over the reference that rds_call_socket() gave.  0 or -errno (then nothing is kept). */
int rds_fds_install(int fd, struct rds_sock *sk);
/* Makes sure that the table has room for this number, so that rds_fds_copied() cannot fail. */
int rds_fds_reserve(int fd);
/*
 * A copy of a socket onto a given number: the table says so before the kernel does it, so that no call of another thread finds the
 * number free, or somebody else's, while the kernel has our stand-in there already.  begin: false if there is nothing to be
 * said ahead (then rds_fds_copied() says it afterwards).  end: has the kernel done it?
 */
bool rds_fds_replace_begin(int fd, struct rds_sock *sk, uintptr_t *before);
void rds_fds_replace_end(int from, int fd, struct rds_sock *sk, uintptr_t before, bool done);
/* The kernel has made fd a copy of `from`, which was sk (NULL, RDS_BORROWED or a referenced socket) before that. */
int rds_fds_copied(int from, int fd, struct rds_sock *sk);
/* A number that came from outside (SCM_RIGHTS): ours if the engine knows the inode, another process's socket by its name. */
void rds_fds_received(int fd);
/* Start of a program: sockets of other processes among the numbers that it was given. */
void rds_fds_scan(void);
/*
 * Sockets of a process that has no helper, to whoever makes the next call: those that the calling process, which only
 * shares the memory, keeps over an exec; all, before there is a child that no handler sees.
 */
void rds_fds_handoff_kept(void);
void rds_fds_handoff_all(void);
/*
 * Around an exec, for which sockets are left (rds_handoff_out()) though it may fail.  left: some were; what others have taken meanwhile is theirs.
 */
void rds_fds_exec_begin(void);
void rds_fds_exec_end(bool left);
void rds_fds_exec_reset(void); /* forked child */
/*
 * Is a call to be made again, since its socket was not open only for another thread's exec, which has failed?  Waits until that has.  The thread is
 * inside, or has a reference.
 */
bool rds_fds_exec_must_retry(struct rds_sock *sk);

/*
 * For whoever sleeps: a socket that another process carries has lost its carrier, perhaps.  It is ours (true), or another process carries it on,
 * which keeps the stand-in current from now on, or when it goes on.  since: as of rds_borrower_watch().
 * refused: this process has no descriptor for that now.
 */
bool rds_fds_find_owner(int fd, uint64_t *since, bool *refused);
void rds_fds_find_all_owners(void); /* the same for all that have */
/*
 * Sockets of ours were left to whoever makes the next call, and may be in a set that is about to be waited for: it is made
 * now, for each of them, and their stand-ins show the truth again.
 */
extern _Atomic bool rds_fds_handed_off;
void rds_fds_reclaim_all(void);
/* This process ends, or execs: sockets of others that have lost their carriers are left to whoever wants them. */
void rds_fds_park_orphans(void);
/* Is it another process's socket, and none of its other numbers outside [first, last]? */
bool rds_fds_is_last_number(int fd, unsigned first, unsigned last);

/* close() of one number, with the result and errno of the real one.  One of the engine's is EBADF, but not for its own libraries. */
int rds_fds_close(int fd);
/* An internal number: is there one of ours, which a close() must leave alone?  (vfork's child needs them at its exec.) */
bool rds_fds_is_hidden(int fd);
/* The two halves of closing [first, last]: before and after the kernel did it. */
void rds_fds_close_begin(unsigned first, unsigned last);
void rds_fds_close_end(unsigned first, unsigned last);

/*
 * May this process change the table and the engine's descriptors?  Not a child that shares our memory but has its own
 * descriptors (vfork), nor one of clone() that shares our descriptors but has a copy of our memory: their calls are
 * system calls only.  Another child with a copy of our memory that no fork handler has seen
 * (_Fork, raw clone) is put in order on the way.
 */
bool rds_fds_is_ours(void);
extern _Atomic unsigned rds_fds_sharing_clones; /* not 0, and not the owner: of the latter kind */
void rds_fds_claim(void);			/* it is this process's */
/* In a child with a copy of our memory: all sockets become inherited numbers, the engine is forgotten. */
void rds_fds_fork_child(void);

void rds_fds_mark_epoll(int ep, uintptr_t mark);
/* A wait for it may be one for sockets that other processes carry. */
static inline bool rds_fds_word_is_epoll(uintptr_t word)
{
	return word == FDS_EPOLL || word == FDS_NESTED;
}
static inline bool rds_fds_is_epoll(int ep)
{
	return rds_fds_on() && unlikely(rds_fds_peek(ep) == FDS_EPOLL);
}
/* One more than the highest number that ever stood in the table: select() need not look further for RDS. */
int rds_fds_top(void);

/* Fork handlers, once, before the first RDS socket exists (fork.c). */
void rds_fds_process_init(void);

#endif
