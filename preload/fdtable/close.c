/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * close.c - the table of fdtable.h: numbers that go away, one (close) or many (close_range, exec).
 *
 * The kernel frees a number inside close(), before the word can be cleared, and may use the number
 * again at once. So the closing thread first marks the word FDS_CLOSING. Afterwards it clears only
 * a word that still has the mark. A thread that got the number anew has replaced the word and the
 * mark by then, and has given back the old reference.
 *
 * Must not know how a number got its socket (fdtable.c).
 */
#include "preload/fdtable/impl.h"

#include <sys/stat.h>

#include "engine/sys/os.h"

static void fds_mark_closing(_Atomic(uintptr_t) *word)
{
	uintptr_t value = atomic_load(word);

	if (!value)
		return;
	if (!fds_sock(value))
		/* A mark holds no reference: it may go early. */
		atomic_compare_exchange_strong(word, &value, 0);
	else
		atomic_compare_exchange_strong(word, &value, value | FDS_CLOSING);
}

static void fds_clear_closing(_Atomic(uintptr_t) *word)
{
	uintptr_t value = atomic_load(word);

	if (fds_sock(value) && (value & FDS_CLOSING) && atomic_compare_exchange_strong(word, &value, 0))
		fds_drop(value);
}

/*
 * A child that shares our memory may have a descriptor of its own at this number. The engine's
 * would be closed by an exec.
 */
bool rds_fds_is_hidden(int fd)
{
	int saved = errno, flags;

	if (rds_fds_is_ours())
		return os_fd_is_internal(fd);
	flags = libc_real.fcntl(fd, F_GETFD, NULL);
	errno = saved;
	return flags >= 0 && (flags & FD_CLOEXEC);
}

static int fds_close_ours(int fd, _Atomic(uintptr_t) *word)
{
	struct stat st = {.st_ino = 0};

	if (!rds_fds_is_ours())
		return libc_real.close(fd);
	reentry_call_begin();
	if (rds_fds_is_last_number(fd, (unsigned)fd, (unsigned)fd))
		rds_borrower_close_begin(fd);
	else if (rds_fds_peek(fd) == FDS_BORROWED)
		(void)fstat(fd, &st);
	rds_call_number_closing(fds_sock(atomic_load_explicit(word, memory_order_relaxed)));
	fds_mark_closing(word);
	int rc = libc_real.close(fd);
	int saved = errno;

	/*
	 * Whatever close() returns, the number is free now (Linux frees it on EINTR and EIO, too).
	 */
	fds_clear_closing(word);
	if (unlikely(st.st_ino) &&
	    /* Another thread may have closed the socket's other number meanwhile. */
	    !rds_fds_has_other_number(st.st_ino, 1, 0))
		rds_borrower_drop(st.st_ino);
	rds_borrower_close_wait();
	reentry_call_end();
	errno = saved;
	return rc;
}

int rds_fds_close(int fd)
{
	_Atomic(uintptr_t) *word = rds_fds_word(fd);

	if (!word || !atomic_load_explicit(word, memory_order_acquire)) {
		if (likely(!os_fd_is_internal(fd)) || !rds_fds_is_hidden(fd))
			return libc_real.close(fd);
		/* A library that works for the engine, which knows the number. */
		if (os_library_depth)
			return (int)libc_result(os_close(fd));
		errno = EBADF; /* the program has never opened it */
		return -1;
	}
	return fds_close_ours(fd, word);
}

static void fds_each(unsigned first, unsigned last, void (*act)(_Atomic(uintptr_t) *word))
{
	unsigned top = (unsigned)rds_fds_top();

	if (last >= top)
		last = top - 1; /* top > 0: the table is in use */
	for (unsigned fd = first; fd <= last && fd < top; fd++) {
		_Atomic(uintptr_t) *word = rds_fds_word((int)fd);

		if (!word)
			fd |= FDS_CHUNK - 1; /* no word in this chunk */
		else if (atomic_load_explicit(word, memory_order_relaxed))
			act(word);
	}
}

void rds_fds_close_begin(unsigned first, unsigned last)
{
	for (unsigned fd = first; fd <= last && fd < (unsigned)rds_fds_top(); fd++)
		if (rds_fds_is_last_number((int)fd, first, last))
			rds_borrower_close_begin((int)fd);
	fds_each(first, last, fds_mark_closing);
}

void rds_fds_close_end(unsigned first, unsigned last)
{
	fds_each(first, last, fds_clear_closing);
	rds_borrower_close_wait();
}
