/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fdtable.c - the table of fdtable.h: its words and how they change.
 *
 * Rules that keep it true without a lock:
 *  - A word that holds a socket holds one reference of it (the number's). The thread that takes
 *    the socket out of the word by an atomic exchange or compare-and-swap, and no other thread,
 *    gives that reference back by rds_call_number_closed().
 *  - A reader takes a reference on the socket that it read (rds_sock_get() is safe on any former
 *    socket) and reads the word again. If it is the same word, the number's reference was there all
 *    the time, and the object is the right one.
 *  - A number that is being closed is marked. It is cleared only if it still has the mark
 *    (close.c).
 *  - dup2() of a socket onto a number: the table names the socket before the kernel copies it.
 *    Otherwise the hang-up of the socket that was there before would clear the word, and another
 *    thread's call would go to the stand-in.
 *  - Chunks are never freed. They come from mmap: dup2() is async-signal-safe, malloc is not.
 */
#include "preload/fdtable/impl.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "engine/sys/os.h"

_Atomic bool rds_fds_active;
_Atomic(struct fds_chunk *) rds_fds_root[FDS_CHUNKS] RDS_TABLE;

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
 * Called by the engine's helper when the last copy of a socket is gone and no wrapper has seen it
 * go. A number that is being closed at this moment is left alone: the closing thread gives the
 * reference back, and waits for the port to be free.
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

/* Another process is about to make the calls on this socket. */
static void fds_hand_off(struct rds_sock *sk)
{
	for (int fd = 0; fd < atomic_load(&fds_top); fd++) {
		_Atomic(uintptr_t) *word = rds_fds_word(fd);
		uintptr_t value = (uintptr_t)sk;

		if (!word)
			fd |= (int)FDS_CHUNK - 1;
		else if (atomic_compare_exchange_strong(word, &value, FDS_BORROWED))
			rds_sock_put(sk); /* not the last one: the engine has one */
	}
	atomic_store(&rds_fds_handed_off, true);
}

/* Any number of the socket, for the engine. A linear search will do: a hand-off is rare. */
static int fds_find_number(struct rds_sock *sk)
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

static void call_refs_release(void *arg);
static void call_ref_left(struct rds_sock *sk);
static pthread_key_t call_refs_key;

void rds_fds_init(void)
{
	pthread_key_create(&call_refs_key, call_refs_release);
	rds_hook_hangup = fds_hangup;
	rds_hook_number = fds_find_number;
	rds_hook_handed_off = fds_hand_off;
	rds_hook_left = call_ref_left;
}

/* ---- looking up ---- */

static int fds_add(int fd, struct rds_sock *sk);

/* Does the socket with that inode have a number outside of first .. last? */
bool rds_fds_has_other_number(ino_t inode, unsigned first, unsigned last)
{
	struct stat st;

	for (int n = 0; n < atomic_load(&fds_top); n++) {
		if (((unsigned)n < first || (unsigned)n > last) && rds_fds_peek(n) == FDS_BORROWED &&
		    fstat(n, &st) == 0 && st.st_ino == inode)
			return true;
	}
	return false;
}

bool rds_fds_is_last_number(int fd, unsigned first, unsigned last)
{
	struct stat want;

	return rds_fds_peek(fd) == FDS_BORROWED && !fstat(fd, &want) &&
	       !rds_fds_has_other_number(want.st_ino, first, last);
}

/* This process now owns the socket that `fd` names: enters all numbers of the socket. */
static void fds_add_taken_over(int fd, struct rds_sock *sk)
{
	struct stat want, st;

	if (fstat(fd, &want))
		want.st_ino = 0;
	for (int n = 0; n < atomic_load(&fds_top); n++) {
		if (rds_fds_peek(n) == FDS_BORROWED && fstat(n, &st) == 0 && st.st_ino == want.st_ino)
			(void)fds_add(n, sk);
	}
	/*
	 * Channels to the last owner, or to this process itself, which another thread's attempt has
	 * made.
	 */
	rds_borrower_close_begin(fd);
	rds_borrower_close_wait();
	rds_call_number_closed(sk); /* the reference of the take-over itself */
}

/*
 * Is it still a number of another process's socket? The kernel may have reused the number unseen:
 * nothing tells this process when such a stand-in is closed. A call on it takes long anyway, so it
 * can afford to ask the kernel. NULL also if the socket has just become this process's.
 */
static struct rds_sock *fds_check_borrowed(int fd, _Atomic(uintptr_t) *word)
{
	uintptr_t mark = FDS_BORROWED;
	struct stat st;

	if (fstat(fd, &st) || !S_ISSOCK(st.st_mode) || !rds_share_is_standin(fd)) {
		atomic_compare_exchange_strong(word, &mark, 0);
		return NULL;
	}
	return atomic_load(word) == FDS_BORROWED ? RDS_BORROWED : NULL;
}

bool rds_fds_error_is_temporary(int rc)
{
	return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM || rc == -ETIMEDOUT;
}

int rds_fds_take_over(int fd)
{
	struct rds_sock *sk = rds_fds_ref(fd);
	int saved = errno, rc;

	rds_fds_unref(sk);
	if (sk != RDS_BORROWED)
		return 0;
	rds_libc_init();
	rds_fds_process_init();
	rc = rds_handoff_in(fd, &sk);
	if (rc == 0)
		fds_add_taken_over(fd, sk);
	else if (rc == -EAGAIN)
		/* the process that hands it off, or takes it over, is about to be done */
		libc_real.poll(NULL, 0, 1);
	errno = saved;
	if (rc == 0 || rc == -EAGAIN)
		return 0;
	return rds_fds_error_is_temporary(rc) ? rc : -ENOTCONN;
}

struct rds_sock *rds_fds_ref_slow(int fd, _Atomic(uintptr_t) *word)
{
	for (;;) {
		uintptr_t value = atomic_load_explicit(word, memory_order_acquire);

		if (value == FDS_BORROWED) {
			int saved = errno;

			/* a child that shares our memory: its calls are system calls only */
			if (!rds_fds_is_ours())
				return NULL;
			struct rds_sock *away = fds_check_borrowed(fd, word);

			errno = saved;
			if (away)
				return away;
			continue;
		}
		struct rds_sock *sk = fds_sock(value);

		if (!sk)
			return NULL;
		if (os_process_inherited()) {
			if (!rds_fds_is_ours()) /* a child that shares our numbers */
				return NULL;
			continue;
		}
		if (!rds_sock_enter(sk)) {
			/*
			 * The socket is gone, though the number names it. Its hang-up is about to
			 * be reported, so the number is free, and a descriptor that has the number
			 * now is not RDS.
			 */
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
	reentry_call_begin();
	struct rds_sock *sk = rds_fds_ref_slow(fd, word);

	if (!sk)
		reentry_call_end();
	return sk;
}

/* ---- references of cancelled calls ---- */

__thread struct fds_call_refs rds_fds_call_refs;

void rds_fds_hold_arm(void)
{
	rds_fds_call_refs.armed = pthread_setspecific(call_refs_key, &rds_fds_call_refs) == 0;
}

/* Called from inside the call's sleep: the reference noted last is this call's. */
static void call_ref_left(struct rds_sock *sk)
{
	unsigned n = rds_fds_call_refs.n - 1;

	if (n >= FDS_CALL_REFS || rds_fds_call_refs.sk[n] != sk)
		return;
	rds_fds_unhold();
	rds_fds_unref(sk);
}

/* The thread ends. In most cases it has no reference. */
static void call_refs_release(void *arg)
{
	struct fds_call_refs *held = arg;

	while (held->n > 0) {
		unsigned n = --held->n;

		if (n < FDS_CALL_REFS)
			rds_fds_unref(held->sk[n]);
	}
	held->armed = false;
}

/* ---- numbers that come into use ---- */

void rds_fds_clear_slow(int fd)
{
	_Atomic(uintptr_t) *word = rds_fds_word(fd);
	int saved = errno;

	reentry_call_begin();
	if (word && rds_fds_is_ours())
		fds_drop(atomic_exchange(word, 0));
	reentry_call_end();
	errno = saved;
}

int rds_fds_install(int fd, struct rds_sock *sk)
{
	_Atomic(uintptr_t) *word = fds_word_alloc(fd);

	if (!word) {
		libc_real.close(fd);
		rds_call_number_closed(sk);
		return -EMFILE;
	}
	rds_fds_claim();
	atomic_store(&rds_fds_active, true);
	fds_drop(atomic_exchange(word, (uintptr_t)sk));
	return 0;
}

/* The number names a socket of this process: takes a number's reference for it. */
static int fds_add(int fd, struct rds_sock *sk)
{
	_Atomic(uintptr_t) *word = fds_word_alloc(fd);

	if (!word)
		return -EMFILE;
	rds_call_number_added(sk);
	fds_drop(atomic_exchange(word, (uintptr_t)sk));
	return 0;
}

/* A stand-in that the engine of this process does not know belongs to another process. */
static int fds_add_borrowed(int fd)
{
	_Atomic(uintptr_t) *word;

	if (likely(!rds_share_is_standin(fd)))
		return 0;
	word = fds_word_alloc(fd);
	if (!word)
		return -EMFILE;
	rds_libc_init();
	rds_fds_process_init(); /* a child of a fork has the socket, too */
	if (!rds_fds_on()) {
		rds_fds_claim();
		atomic_store(&rds_fds_active, true);
	}
	fds_drop(atomic_exchange(word, FDS_BORROWED));
	if (!rds_borrower_attach(fd))
		rds_fds_take_over(fd); /* if that fails, the first call on it tries again */
	return 0;
}

/*
 * Asks the kernel and the engine instead of the table. A number that is not an RDS socket is
 * forgotten.
 */
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
		rds_fds_clear(fd);
		rc = fds_add_borrowed(fd);
	}
	return rc;
}

void rds_fds_received(int fd)
{
	reentry_call_begin();
	if (!rds_fds_on())
		(void)fds_add_borrowed(fd);
	else if (rds_fds_is_ours())
		(void)fds_recognise(fd);
	reentry_call_end();
}

/* -1: no number (".", ".."). */
static int fds_number_parse(const char *name)
{
	int n = *name ? 0 : -1;

	for (; *name >= '0' && *name <= '9'; name++)
		n = 10 * n + (*name - '0');
	return *name ? -1 : n;
}

/*
 * Calls fn for all numbers that this process has, whatever the table says. Uses no allocator.
 * False: the kernel does not tell them.
 */
static bool fds_each_open_number(void (*fn)(int fd))
{
	_Alignas(struct dirent64) char buf[2048];
	int dir = os_open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	long n, at;

	while (dir >= 0 && (n = os_syscall(SYS_getdents64, dir, (long)buf, sizeof(buf), 0, 0, 0)) > 0)
		for (at = 0; at < n; at += ((struct dirent64 *)(void *)(buf + at))->d_reclen) {
			int fd = fds_number_parse(((struct dirent64 *)(void *)(buf + at))->d_name);

			if (fd >= 0 && fd != dir)
				fn(fd);
		}
	if (dir >= 0)
		os_close(dir);
	return dir >= 0;
}

static void fds_scan_number(int fd)
{
	if (!rds_node_take_passed(fd))
		(void)fds_add_borrowed(fd);
}

/* In every program's start-up. */
void rds_fds_scan(void)
{
	(void)fds_each_open_number(fds_scan_number);
}

static void fds_handoff_number(int fd)
{
	int flags = libc_real.fcntl(fd, F_GETFD, NULL);

	if (flags >= 0 && !(flags & FD_CLOEXEC) && rds_share_is_standin(fd))
		(void)rds_handoff_unbound_out(fd);
}

/*
 * The table belongs to the process whose memory this child shares, and says nothing of the child's
 * numbers. Signals are held, so that no handler of the program comes in between: the locks are
 * those of that process, and the child may not return to give them back.
 */
void rds_fds_handoff_kept(void)
{
	struct os_signals signals;
	int saved = errno;

	if (!rds_handoff_unbound_any())
		return;
	os_signals_hold(&signals);
	if (!fds_each_open_number(fds_handoff_number))
		for (int fd = 0; fd < atomic_load(&fds_top); fd++)
			fds_handoff_number(fd);
	os_signals_release(&signals);
	errno = saved;
}

/*
 * This process attaches as a borrower, and the child has copies of what it keeps: either of them
 * can take the sockets over if the other one is killed.
 */
void rds_fds_handoff_all(void)
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
	if (!rds_fds_is_ours())
		return 0; /* a vfork child's copy does not concern the table */
	if (!sk && !fds_sock(now)) {
		rds_fds_clear(fd);
		if (rds_fds_word_is_epoll(now))
			rds_fds_mark_epoll(fd, now);
		return 0;
	}
	if (sk == RDS_BORROWED) {
		_Atomic(uintptr_t) *word = fds_word_alloc(fd);

		if (word)
			fds_drop(atomic_exchange(word, FDS_BORROWED));
		return word ? 0 : -EMFILE;
	}
	/*
	 * If another thread has closed or replaced `from` meanwhile, only the kernel knows what was
	 * copied.
	 */
	return sk && now == (uintptr_t)sk ? fds_add(fd, sk) : fds_recognise(fd);
}

bool rds_fds_replace_begin(int fd, struct rds_sock *sk, uintptr_t *before)
{
	_Atomic(uintptr_t) *word;

	if (!sk || sk == RDS_BORROWED || !rds_fds_is_ours())
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
		/* as in rds_fds_copied(); cannot fail, since the word exists */
		(void)fds_recognise(fd);
	if (!done && atomic_compare_exchange_strong(rds_fds_word(fd), &ours, before))
		rds_call_number_closed(sk);
	else
		fds_drop(before);
}

void rds_fds_mark_epoll(int ep, uintptr_t mark)
{
	_Atomic(uintptr_t) *word = fds_word_alloc(ep);

	if (word && rds_fds_is_ours())
		fds_drop(atomic_exchange(word, mark));
}
