/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * own_fds.c - the list of descriptors that belong to the engine and not to the program.
 *
 * Every close() and dup2() of the program asks for a number, so a look-up is two loads without
 * a lock. The list is a table of pages by number; pages are made on demand and never freed. Changes
 * are made under fds_lock. An internal number is chosen high: there code of the program that relies on the
 * lowest free number does not meet it. But not higher: the kernel's table of descriptors has room for all
 * numbers up to the highest one. It can be moved. All of this is
 * about the program's table; a thread with a table of its own (fd_table.c) has no list. Nor has a
 * thread that ends the process out of a signal handler, and has interrupted itself with the lock. This
 * file knows neither what a descriptor is for nor its users.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "engine/sys/compiler.h"
#include "engine/sys/os.h"
#include "engine/rds.h"

#define FD_PAGE 64
#define FD_PAGES 16384
#define FD_LOW_PAGES 32
#define FD_LIMIT (FD_PAGE * FD_PAGES) /* numbers from here on are never internal */
/* with 64 numbers from there on the kernel's table has 8 KiB */
#define FD_BASE_MAX 960
#define FD_BASE_MIN 64
#define HOLD_NAP_NS 100000

struct fd_entry {
	_Atomic bool internal;
	os_fd_moved_fn moved;
	void *arg;
};

struct fd_page {
	struct fd_entry e[FD_PAGE];
};

/* Most processes have only low numbers, which need no page of the large table. */
static _Atomic(struct fd_page *) fd_low_pages[FD_LOW_PAGES], fd_pages[FD_PAGES] RDS_TABLE;
static pthread_mutex_t fds_lock = PTHREAD_MUTEX_INITIALIZER;
/*
 * A vfork child shares this memory but not the descriptors, so it must not move those of its
 * parent.
 */
static _Atomic pid_t fds_pid;
static _Atomic unsigned fds_count; /* internal numbers; written under fds_lock */
/*
 * This thread has passed os_fds_hold() without the lock, because it ends the process and has
 * interrupted itself in a function of the list.
 */
static __thread bool fds_unheld __attribute__((tls_model("initial-exec")));

static _Atomic(struct fd_page *) *fd_page_of(int fd)
{
	int i = fd / FD_PAGE;

	return i < FD_LOW_PAGES ? &fd_low_pages[i] : &fd_pages[i];
}

static struct fd_entry *fd_find(int fd)
{
	struct fd_page *page;

	if ((unsigned)fd >= FD_LIMIT)
		return NULL;
	page = atomic_load_explicit(fd_page_of(fd), memory_order_acquire);
	return page ? &page->e[fd % FD_PAGE] : NULL;
}

static int fd_insert(int fd, os_fd_moved_fn moved, void *arg)
{
	struct fd_entry *e = fd_find(fd);

	if ((unsigned)fd >= FD_LIMIT)
		return fd < 0 ? -EBADF : -ENOMEM;
	if (!e) {
		struct fd_page *page = calloc(1, sizeof(*page));

		if (!page)
			return -ENOMEM;
		atomic_store_explicit(fd_page_of(fd), page, memory_order_release);
		e = &page->e[fd % FD_PAGE];
	}
	e->moved = moved;
	e->arg = arg;
	if (!atomic_exchange_explicit(&e->internal, true, memory_order_release))
		atomic_fetch_add_explicit(&fds_count, 1, memory_order_relaxed);
	atomic_store_explicit(&fds_pid, os_getpid(), memory_order_relaxed);
	return 0;
}

static void fd_remove(int fd)
{
	struct fd_entry *e = fd_find(fd);

	if (e && atomic_exchange_explicit(&e->internal, false, memory_order_release))
		atomic_fetch_sub_explicit(&fds_count, 1, memory_order_relaxed);
}

unsigned os_fds_count(void)
{
	return atomic_load_explicit(&fds_count, memory_order_relaxed);
}

static void slot_moved(void *arg, int oldfd, int newfd)
{
	_Atomic int *slot = arg;

	if (oldfd >= 0)
		atomic_store(slot, newfd);
}

int os_fd_register(int fd)
{
	int ret;

	if (os_fd_table || !os_mutex_lock(&fds_lock))
		return 0;
	ret = fd_insert(fd, NULL, NULL);
	pthread_mutex_unlock(&fds_lock);
	return ret;
}

int os_fd_register_slot(int fd, _Atomic int *slot)
{
	int ret;

	if (os_fd_table || !os_mutex_lock(&fds_lock))
		return 0;
	ret = fd_insert(fd, slot_moved, slot);
	pthread_mutex_unlock(&fds_lock);
	return ret;
}

int os_fd_register_hook(_Atomic int *slot, os_fd_moved_fn moved, void *arg)
{
	int ret;

	if (!os_mutex_lock(&fds_lock))
		return 0;
	ret = fd_insert(atomic_load(slot), moved, arg);
	pthread_mutex_unlock(&fds_lock);
	return ret;
}

static int raw_close(int fd)
{
	return (int)os_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
}

int os_close(int fd)
{
	struct fd_entry *e = os_fd_table ? NULL : fd_find(fd);
	int ret;

	if (!e || !atomic_load_explicit(&e->internal, memory_order_acquire) || !os_mutex_lock(&fds_lock))
		return raw_close(fd);
	/* Remove it from the list first: after the close, the number may be used by any thread. */
	fd_remove(fd);
	ret = raw_close(fd);
	pthread_mutex_unlock(&fds_lock);
	return ret;
}

void os_close_slot(_Atomic int *slot)
{
	int fd;

	if (os_fd_table || !os_mutex_lock(&fds_lock)) {
		fd = atomic_exchange(slot, -1);
		if (fd >= 0)
			raw_close(fd);
		return;
	}
	fd = atomic_exchange(slot, -1);
	if (fd >= 0) {
		fd_remove(fd);
		raw_close(fd);
	}
	pthread_mutex_unlock(&fds_lock);
}

int os_fd_move_slot(_Atomic int *from, _Atomic int *to)
{
	bool locked;
	int fd, ret;

	if (os_fd_table) {
		atomic_store(to, atomic_exchange(from, -1));
		return 0;
	}
	locked = os_mutex_lock(&fds_lock);
	fd = atomic_exchange(from, -1);
	atomic_store(to, fd);
	ret = locked ? fd_insert(fd, slot_moved, to) : fd < 0 ? -EBADF : 0;
	if (locked)
		pthread_mutex_unlock(&fds_lock);
	return ret;
}

void os_fd_forget_slot(_Atomic int *slot)
{
	bool locked = os_mutex_lock(&fds_lock);
	int fd = atomic_exchange(slot, -1);

	if (!locked)
		return;
	fd_remove(fd);
	pthread_mutex_unlock(&fds_lock);
}

void os_fds_hold(void)
{
	fds_unheld = os_fd_table || !os_mutex_lock(&fds_lock);
}

bool os_fds_hold_until(uint64_t until_ns)
{
	while (!os_fd_table && pthread_mutex_trylock(&fds_lock)) {
		if (os_now_ns() >= until_ns)
			return false;
		/* No yield: to a real-time thread's, the holder's processor would not go. */
		os_nap_ns(HOLD_NAP_NS);
	}
	fds_unheld = os_fd_table;
	return true;
}

void os_fds_release(void)
{
	if (!fds_unheld)
		pthread_mutex_unlock(&fds_lock);
}

/*
 * Makes a close-on-exec copy at the lowest free number of a high range; -errno if no number at all
 * is free.
 */
static int dup_to_high(int fd)
{
	struct rlimit rl = { .rlim_cur = FD_BASE_MAX };
	int base, copy;

	os_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)&rl, 0, 0);
	base = rl.rlim_cur / 2 < FD_BASE_MAX ? (int)(rl.rlim_cur / 2) : FD_BASE_MAX;
	if (base < FD_BASE_MIN)
		base = FD_BASE_MIN;
	for (;; base /= 2) {
		copy = os_fcntl(fd, F_DUPFD_CLOEXEC, base);
		if (copy >= FD_LIMIT) {
			raw_close(copy);
			copy = -EMFILE;
		}
		/* EINVAL: the base itself is above the limit. */
		if (copy != -EMFILE && copy != -EINVAL)
			return copy;
		if (base <= 3)
			return -EMFILE;
	}
}

static int dup_high_register(int fd, os_fd_moved_fn moved, _Atomic int *slot)
{
	int copy, ret;

	if (fd < 0)
		return fd;
	if (os_fd_table || !os_mutex_lock(&fds_lock)) {
		if (slot)
			atomic_store(slot, fd);
		return fd;
	}
	copy = dup_to_high(fd);
	if (copy == -EMFILE) {
		copy = fd;
		os_fcntl(fd, F_SETFD, FD_CLOEXEC);
	}
	ret = copy < 0 ? copy : fd_insert(copy, moved, slot);
	if (copy != fd) {
		fd_remove(fd);
		raw_close(fd);
	}
	if (ret < 0 && copy >= 0)
		raw_close(copy);
	if (slot && ret == 0)
		atomic_store(slot, copy);
	pthread_mutex_unlock(&fds_lock);
	return ret < 0 ? ret : copy;
}

int os_dup_high(int fd)
{
	return dup_high_register(fd, NULL, NULL);
}

int os_dup_high_slot(int fd, _Atomic int *slot)
{
	int ret = dup_high_register(fd, slot_moved, slot);

	return ret < 0 ? ret : 0;
}

__thread unsigned os_library_depth __attribute__((tls_model("initial-exec")));

static void adopted_moved(void *arg, int oldfd, int newfd)
{
	if (oldfd >= 0)
		__atomic_store_n((int *)arg, newfd, __ATOMIC_RELEASE);
}

int os_fd_adopt(int *number)
{
	int fd = *number, copy, ret;

	/*
	 * A number of another table: a thread that keeps such numbers must share the program's
	 * table.
	 */
	if (fd < 0 || os_fd_table || !os_mutex_lock(&fds_lock))
		return -EBADF;
	copy = dup_to_high(fd);
	if (copy == -EMFILE)
		copy = fd;
	ret = copy < 0 ? copy : fd_insert(copy, adopted_moved, number);
	if (ret < 0) {
		if (copy >= 0 && copy != fd)
			raw_close(copy);
	} else if (copy == fd) {
		os_fcntl(fd, F_SETFD, FD_CLOEXEC);
	} else {
		__atomic_store_n(number, copy, __ATOMIC_RELEASE);
		fd_remove(fd);
		raw_close(fd);
	}
	pthread_mutex_unlock(&fds_lock);
	return ret;
}

void os_fd_disown(int *number)
{
	struct fd_entry *e;

	if (!os_mutex_lock(&fds_lock))
		return;
	e = fd_find(*number);
	if (e && atomic_load_explicit(&e->internal, memory_order_acquire) && e->moved == adopted_moved &&
	    e->arg == number)
		fd_remove(*number);
	pthread_mutex_unlock(&fds_lock);
}

void os_fd_abandon(int fd)
{
	struct fd_entry *e = fd_find(fd);

	if (e && atomic_load_explicit(&e->internal, memory_order_acquire) && e->moved == adopted_moved)
		__atomic_store_n((int *)e->arg, -1, __ATOMIC_RELEASE);
	os_close(fd);
}

bool os_fd_is_internal(int fd)
{
	struct fd_entry *e = fd_find(fd);

	return e && atomic_load_explicit(&e->internal, memory_order_acquire);
}

int os_fd_move_internal(int fd)
{
	int ret = 0, copy;
	struct fd_entry *e;

	if (!os_fd_is_internal(fd) || atomic_load_explicit(&fds_pid, memory_order_relaxed) != os_getpid())
		return 0;
	if (!os_mutex_lock(&fds_lock))
		return -EBUSY;
	e = fd_find(fd);
	if (!e || !atomic_load_explicit(&e->internal, memory_order_relaxed))
		goto out; /* closed meanwhile */
	copy = dup_to_high(fd);
	if (copy < 0) {
		ret = copy;
		goto out;
	}
	ret = fd_insert(copy, e->moved, e->arg);
	if (ret < 0) {
		raw_close(copy);
		goto out;
	}
	if (e->moved)
		e->moved(e->arg, fd, copy);
	fd_remove(fd);
	raw_close(fd);
	if (e->moved)
		e->moved(e->arg, -1, copy);
out:
	pthread_mutex_unlock(&fds_lock);
	return ret;
}

void os_fds_forked(void)
{
	os_end_begin(0);
	pthread_mutex_init(&fds_lock, NULL);
	atomic_store_explicit(&fds_pid, os_getpid(), memory_order_relaxed);
}

void os_fd_each_internal(unsigned first, unsigned last, void (*cb)(int fd, void *arg), void *arg)
{
	for (unsigned fd = first; fd <= last && fd < FD_LIMIT; fd++) {
		if (!atomic_load_explicit(fd_page_of((int)fd), memory_order_acquire))
			fd |= FD_PAGE - 1; /* no page, so none of its numbers is internal */
		else if (os_fd_is_internal((int)fd))
			cb((int)fd, arg);
	}
}
