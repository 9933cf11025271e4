/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fds.c - the table of fds.h: its words and how they change.
 *
 * Rules that keep it true without a lock:
 *  - A word that holds a socket holds one reference of it (the number's).  Whoever takes the socket out of the word by
 *    an atomic exchange or compare-and-swap, and only he, gives that reference back by rds_call_number_closed().
 *  - A reader takes a reference on what it read (rds_sock_get is safe on any former socket) and then reads the word
 *    again: same word, so the number's reference was there all the time and the object is the right one.
 *  - A number that is being closed is marked, and cleared only if it still has the mark (fds_close.c).
 *  - A number that is given to a socket by dup2() names it in the table before the kernel does it.  Otherwise the hang-up of what
 *    stood there before would make the number nobody's, and another thread's call go to the stand-in.
 *  - Chunks are never freed, and come from mmap: dup2() is async-signal-safe, malloc is not.
 */
#include "fds_impl.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "engine/log.h"
#include "engine/os.h"

_Atomic bool rds_fds_active;
_Atomic(struct fds_chunk *) rds_fds_root[FDS_CHUNKS];

static _Atomic int fds_top;

static _Atomic(uintptr_t) *fds_word_alloc(int fd)
{
	unsigned index = (unsigned)fd >> FDS_CHUNK_BITS;
	struct fds_chunk *chunk, *old = NULL;

	if (fd < 0 || index >= FDS_CHUNKS)
		return NULL;
	if (!rds_fds_word(fd)) {
		chunk = mmap(NULL, sizeof(*chunk), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (chunk == MAP_FAILED)
			return NULL;
		if (!atomic_compare_exchange_strong(&rds_fds_root[index], &old, chunk))
			munmap(chunk, sizeof(*chunk));
	}
	int top = atomic_load(&fds_top);

	while (top <= fd && !atomic_compare_exchange_weak(&fds_top, &top, fd + 1))
		;
	return rds_fds_word(fd);
}

int rds_fds_top(void)
{
	return atomic_load_explicit(&fds_top, memory_order_relaxed);
}

int rds_fds_reserve(int fd)
{
	return fds_word_alloc(fd) ? 0 : -EMFILE;
}

/*
 * Called by the engine's helper when the last copy of a socket went without us seeing it.  A number that is being
 * closed at this moment is left alone: its closer gives the reference back, and waits for the port to be free.
 */
static unsigned fds_hangup(struct rds_sock *sk)
{
	unsigned forgotten = 0;

	for (unsigned c = 0; c < FDS_CHUNKS; c++) {
		struct fds_chunk *chunk = atomic_load_explicit(&rds_fds_root[c], memory_order_acquire);

		for (unsigned i = 0; chunk && i < FDS_CHUNK; i++) {
			uintptr_t word = atomic_load_explicit(&chunk->word[i], memory_order_relaxed);

			if (word == (uintptr_t)sk && atomic_compare_exchange_strong(&chunk->word[i], &word, 0))
				forgotten++;
		}
	}
	return forgotten;
}

/* Another process is about to make its calls. */
static void fds_away(struct rds_sock *sk)
{
	for (int fd = 0; fd < atomic_load(&fds_top); fd++) {
		_Atomic(uintptr_t) *word = rds_fds_word(fd);
		uintptr_t value = (uintptr_t)sk;

		if (!word)
			fd |= (int)FDS_CHUNK - 1;
		else if (atomic_compare_exchange_strong(word, &value, FDS_INHERITED))
			rds_sock_put(sk); /* not the last: the engine has one */
	}
	atomic_store(&rds_fds_went, true);
}

/* Any number of it, for the engine (a hand-over is a rare thing). */
static int fds_number(struct rds_sock *sk)
{
	for (int fd = 0; fd < atomic_load(&fds_top); fd++) {
		uintptr_t word = rds_fds_peek(fd);

		if (word == (uintptr_t)sk)
			return fd;
		if (!rds_fds_word(fd))
			fd |= (int)FDS_CHUNK - 1;
	}
	return -1;
}

static void held_release(void *arg);
static void held_left(struct rds_sock *sk);
static pthread_key_t held_key;

void rds_fds_init(void)
{
	pthread_key_create(&held_key, held_release);
	rds_hook_hangup = fds_hangup;
	rds_hook_number = fds_number;
	rds_hook_handed_off = fds_away;
	rds_hook_left = held_left;
}

/* ---- a forked child ---- */

void rds_fds_forget(void)
{
	rds_borrower_forget(); /* it looks which sockets have numbers */
	for (unsigned c = 0; c < FDS_CHUNKS; c++) {
		struct fds_chunk *chunk = atomic_load_explicit(&rds_fds_root[c], memory_order_acquire);

		for (unsigned i = 0; chunk && i < FDS_CHUNK; i++) {
			uintptr_t word = atomic_load_explicit(&chunk->word[i], memory_order_relaxed);

			/* The parent's epoll sets are fed by the parent's engine, as long as there is a parent. */
			if (word && !rds_fds_word_is_set(word))
				atomic_store_explicit(&chunk->word[i], FDS_INHERITED, memory_order_relaxed);
		}
	}
	rds_fds_own();
	rds_fds_exec_forget();
	atomic_store(&rds_fds_sharing, 0);
	rds_fds_held.n = 0; /* references on the parent's sockets */
	rds_inside = (struct rds_inside){.live = rds_inside.live, .async = rds_inside.async};
	rds_engine_fork_child();
}

/* ---- looking up ---- */

static int fds_add(int fd, struct rds_sock *sk);

/* A number of that socket, outside of first .. last? */
bool rds_fds_other(ino_t inode, unsigned first, unsigned last)
{
	struct stat st;

	for (int n = 0; n < atomic_load(&fds_top); n++) {
		if (((unsigned)n < first || (unsigned)n > last) && rds_fds_peek(n) == FDS_INHERITED &&
		    fstat(n, &st) == 0 && st.st_ino == inode)
			return true;
	}
	return false;
}

bool rds_fds_only(int fd, unsigned first, unsigned last)
{
	struct stat want;

	return rds_fds_peek(fd) == FDS_INHERITED && !fstat(fd, &want) && !rds_fds_other(want.st_ino, first, last);
}

/* All numbers of the socket that `fd` names, which this process carries from now on. */
static void fds_adopted(int fd, struct rds_sock *sk)
{
	struct stat want, st;

	if (fstat(fd, &want))
		want.st_ino = 0;
	for (int n = 0; n < atomic_load(&fds_top); n++) {
		if (rds_fds_peek(n) == FDS_INHERITED && fstat(n, &st) == 0 && st.st_ino == want.st_ino)
			(void)fds_add(n, sk);
	}
	rds_borrower_close_begin(fd); /* channels to its last carrier, or, by another thread's attempt, to ourselves */
	rds_borrower_close_wait();
	rds_call_number_closed(sk); /* the taker's own reference */
}

/*
 * A number of another process's socket, or has it been reused behind our back?  Nobody tells us when such a stand-in is closed, but a call on
 * it goes a long way anyway: it can afford to ask the kernel.  NULL also if the socket has just become ours.
 */
static struct rds_sock *fds_check_inherited(int fd, _Atomic(uintptr_t) *word)
{
	uintptr_t mark = FDS_INHERITED;
	struct stat st;

	if (fstat(fd, &st) || !S_ISSOCK(st.st_mode) || !rds_share_is_standin(fd)) {
		atomic_compare_exchange_strong(word, &mark, 0);
		return NULL;
	}
	return atomic_load(word) == FDS_INHERITED ? RDS_INHERITED : NULL;
}

bool rds_fds_for_now(int rc)
{
	return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM || rc == -ETIMEDOUT;
}

int rds_fds_take_over(int fd)
{
	struct rds_sock *sk = rds_fds_ref(fd);
	int saved = errno, rc;

	rds_fds_unref(sk);
	if (sk != RDS_INHERITED)
		return 0;
	rds_libc_init();
	rds_process_init();
	rc = rds_handoff_in(fd, &sk);
	if (rc == 0)
		fds_adopted(fd, sk);
	else if (rc == -EAGAIN) /* whoever is leaving it, or taking it, is about to be done */
		rds_real.poll(NULL, 0, 1);
	errno = saved;
	if (rc == 0 || rc == -EAGAIN)
		return 0;
	return rds_fds_for_now(rc) ? rc : -ENOTCONN;
}

struct rds_sock *rds_fds_ref_slow(int fd, _Atomic(uintptr_t) *word)
{
	for (;;) {
		uintptr_t value = atomic_load_explicit(word, memory_order_acquire);

		if (value == FDS_INHERITED) {
			int saved = errno;

			if (!rds_fds_mine()) /* a child that shares our memory: its calls are system calls only */
				return NULL;
			struct rds_sock *away = fds_check_inherited(fd, word);

			errno = saved;
			if (away)
				return away;
			continue;
		}
		struct rds_sock *sk = fds_sock(value);

		if (!sk)
			return NULL;
		if (os_process_inherited()) {
			if (!rds_fds_mine()) /* one that shares our numbers */
				return NULL;
			continue;
		}
		if (!rds_sock_enter(sk)) {
			/* Gone, though the number names it: its hang-up is about to be told, so the number is free
			 * and whatever stands there now is not ours. */
			if (atomic_load_explicit(word, memory_order_acquire) == value)
				return NULL;
			continue;
		}
		if (fds_sock(atomic_load_explicit(word, memory_order_acquire)) == sk)
			return sk;
		rds_sock_leave(sk);
	}
}

struct rds_sock *rds_fds_get_slow(_Atomic(uintptr_t) *word, int fd)
{
	rds_inside_enter();
	struct rds_sock *sk = rds_fds_ref_slow(fd, word);

	if (!sk)
		rds_inside_leave();
	return sk;
}

/* ---- references of cancelled calls ---- */

__thread struct fds_held rds_fds_held;

void rds_fds_hold_arm(void)
{
	rds_fds_held.armed = pthread_setspecific(held_key, &rds_fds_held) == 0;
}

/* From inside its sleep: what was noted last is this call's. */
static void held_left(struct rds_sock *sk)
{
	unsigned n = rds_fds_held.n - 1;

	if (n >= FDS_HELD || rds_fds_held.sk[n] != sk)
		return;
	rds_fds_unhold();
	rds_fds_unref(sk);
}

/* The thread ends: in most cases with nothing in hand. */
static void held_release(void *arg)
{
	struct fds_held *held = arg;

	while (held->n > 0) {
		unsigned n = --held->n;

		if (n < FDS_HELD)
			rds_fds_unref(held->sk[n]);
	}
	held->armed = false;
}

/* ---- numbers that come into use ---- */

void rds_fds_fresh_slow(int fd)
{
	_Atomic(uintptr_t) *word = rds_fds_word(fd);
	int saved = errno;

	rds_inside_enter();
	if (word && rds_fds_mine())
		fds_drop(atomic_exchange(word, 0));
	rds_inside_leave();
	errno = saved;
}

int rds_fds_install(int fd, struct rds_sock *sk)
{
	_Atomic(uintptr_t) *word = fds_word_alloc(fd);

	if (!word) {
		rds_real.close(fd);
		rds_call_number_closed(sk);
		return -EMFILE;
	}
	rds_fds_own();
	atomic_store(&rds_fds_active, true);
	fds_drop(atomic_exchange(word, (uintptr_t)sk));
	return 0;
}

/* The number names a socket of ours: takes a number's reference for it. */
static int fds_add(int fd, struct rds_sock *sk)
{
	_Atomic(uintptr_t) *word = fds_word_alloc(fd);

	if (!word)
		return -EMFILE;
	rds_call_number_added(sk);
	fds_drop(atomic_exchange(word, (uintptr_t)sk));
	return 0;
}

/* A stand-in that no engine of ours knows: another process's. */
static int fds_foreign(int fd)
{
	_Atomic(uintptr_t) *word;

	if (likely(!rds_share_is_standin(fd)))
		return 0;
	word = fds_word_alloc(fd);
	if (!word)
		return -EMFILE;
	rds_libc_init();
	rds_process_init(); /* whoever it forks has it, too */
	if (!rds_fds_on()) {
		rds_fds_own();
		atomic_store(&rds_fds_active, true);
	}
	fds_drop(atomic_exchange(word, FDS_INHERITED));
	rds_borrower_attach(fd);
	return 0;
}

/* Asks the kernel and the engine instead of the table; a number that is not ours is forgotten. */
static int fds_recognise(int fd)
{
	struct rds_sock *sk = NULL;
	struct stat st;
	int rc = 0;

	if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode))
		sk = rds_sock_by_inode(st.st_ino);
	if (sk) {
		rc = fds_add(fd, sk);
		rds_sock_put(sk);
	} else {
		rds_fds_fresh(fd);
		rc = fds_foreign(fd);
	}
	return rc;
}

void rds_fds_received(int fd)
{
	rds_inside_enter();
	if (!rds_fds_on())
		(void)fds_foreign(fd);
	else if (rds_fds_mine())
		(void)fds_recognise(fd);
	rds_inside_leave();
}

/* -1: no number (".", ".."). */
static int parse_number(const char *name)
{
	int n = *name ? 0 : -1;

	for (; *name >= '0' && *name <= '9'; name++)
		n = 10 * n + (*name - '0');
	return *name ? -1 : n;
}

/* All numbers that this process has, whatever the table says.  Without the allocator.  False: the kernel does not say. */
static bool each_number(void (*fn)(int fd))
{
	_Alignas(struct dirent64) char buf[2048];
	int dir = os_open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	long n, at;

	while (dir >= 0 && (n = os_syscall(SYS_getdents64, dir, (long)buf, sizeof(buf), 0, 0, 0)) > 0)
		for (at = 0; at < n; at += ((struct dirent64 *)(void *)(buf + at))->d_reclen) {
			int fd = parse_number(((struct dirent64 *)(void *)(buf + at))->d_name);

			if (fd >= 0 && fd != dir)
				fn(fd);
		}
	if (dir >= 0)
		os_close(dir);
	return dir >= 0;
}

static void came(int fd)
{
	(void)fds_foreign(fd);
}

/* In every program's start-up. */
void rds_fds_came(void)
{
	(void)each_number(came);
}

static void leave_kept(int fd)
{
	int flags = rds_real.fcntl(fd, F_GETFD, NULL);

	if (flags >= 0 && !(flags & FD_CLOEXEC) && rds_share_is_standin(fd))
		(void)rds_handoff_unbound_out(fd);
}

/*
 * The table is the process's whose memory this is, and says nothing of our numbers.  A handler of ours must not come in
 * between: the locks are those of that process, and we may not return to give them back.
 */
void rds_fds_leave_kept(void)
{
	struct os_signals signals;
	int saved = errno;

	if (!rds_handoff_unbound_any())
		return;
	os_signals_hold(&signals);
	if (!each_number(leave_kept))
		for (int fd = 0; fd < atomic_load(&fds_top); fd++)
			leave_kept(fd);
	os_signals_release(&signals);
	errno = saved;
}

/* The child will know what we know of them: what is needed to go on if one of us is killed. */
void rds_fds_leave_all(void)
{
	for (int fd = 0; rds_handoff_unbound_any() && fd < atomic_load(&fds_top); fd++) {
		if (!rds_fds_word(fd))
			fd |= (int)FDS_CHUNK - 1;
		else if (fds_sock(rds_fds_peek(fd)) && rds_handoff_unbound_out(fd))
			rds_borrower_attach(fd);
	}
	rds_handoff_unbound_clear();
}

int rds_fds_copied(int from, int fd, struct rds_sock *sk)
{
	uintptr_t now = rds_fds_peek(from);

	if (!sk && !now && !rds_fds_peek(fd))
		return 0;
	if (!rds_fds_mine())
		return 0; /* a vfork child's copy is its own business */
	if (!sk && !fds_sock(now)) {
		rds_fds_fresh(fd);
		if (rds_fds_word_is_set(now))
			rds_fds_mark_epoll(fd, now);
		return 0;
	}
	if (sk == RDS_INHERITED) {
		_Atomic(uintptr_t) *word = fds_word_alloc(fd);

		if (word)
			fds_drop(atomic_exchange(word, FDS_INHERITED));
		return word ? 0 : -EMFILE;
	}
	/* If another thread closed or replaced `from` meanwhile, only the kernel knows what was copied. */
	return sk && now == (uintptr_t)sk ? fds_add(fd, sk) : fds_recognise(fd);
}

bool rds_fds_replace_begin(int fd, struct rds_sock *sk, uintptr_t *before)
{
	_Atomic(uintptr_t) *word;

	if (!sk || sk == RDS_INHERITED || !rds_fds_mine())
		return false;
	word = fds_word_alloc(fd);
	if (!word)
		return false;
	rds_call_number_added(sk);
	*before = atomic_exchange(word, (uintptr_t)sk);
	return true;
}

void rds_fds_replace_end(int from, int fd, struct rds_sock *sk, uintptr_t before, bool done)
{
	uintptr_t ours = (uintptr_t)sk;

	if (done && rds_fds_peek(from) != (uintptr_t)sk)
		(void)fds_recognise(fd); /* as in rds_fds_copied(); there is a word for it */
	if (!done && atomic_compare_exchange_strong(rds_fds_word(fd), &ours, before))
		rds_call_number_closed(sk);
	else
		fds_drop(before);
}

void rds_fds_mark_epoll(int ep, uintptr_t mark)
{
	_Atomic(uintptr_t) *word = fds_word_alloc(ep);

	if (word && rds_fds_mine())
		fds_drop(atomic_exchange(word, mark));
}
