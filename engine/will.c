/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * will.c - the carrier's side of will.h: the page, its lock, the line.
 *
 * Invariants: the lock is taken before anybody else can have the page, and let go only after what replaces the will (a deposit) is in its place.
 * It is the program's table that has it: the kernel drops such a lock when its process closes any descriptor of the file, so the page
 * never comes into that table a second time (heir.c sees to that), and the helper's copy is of another table.  The page has two
 * copies of the state, and says which one is whole; who was killed while writing has written the other one.
 *
 * Must not know what others do with it.
 */
#include "engine/will.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "engine/log.h"
#include "engine/post.h"

static struct rds_sock *unlent; /* control */
static pthread_mutex_t lending = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct os_fd end;  /* what holders get */
	_Atomic int other; /* the helper's: it closes with the process, and nothing else has it */
	uint32_t epoch;	   /* of the helper that has it (control) */
} line = {.end = OS_FD_NONE, .other = -1};

#define WILL_SIZE sizeof(struct rds_share_will)

/* ---- the page ---- */

void rds_will_write(struct rds_sock *sk)
{
	struct rds_share_will *will = atomic_load(&sk->will);
	unsigned wanted = atomic_fetch_add(&sk->will_wanted, 1), which;

	if (!will || wanted) /* who is at it writes once more */
		return;
	do {
		wanted = atomic_load(&sk->will_wanted);
		which = !atomic_load(&will->which);
		rds_share_fill(sk, &will->st[which]);
		atomic_store(&will->which, which);
	} while (!atomic_compare_exchange_strong(&sk->will_wanted, &wanted, 0));
}

/* The number goes another way (somebody wants it for dup2()): the lock went with the old one. */
static void page_moved(void *arg, int oldfd, int newfd)
{
	struct rds_sock *sk = arg;

	if (oldfd >= 0)
		atomic_store(&sk->will_fd.n[0], newfd);
	else if (atomic_load(&sk->open))
		os_lock(newfd, F_WRLCK, 0, 1, false);
}

bool rds_will_sound(int page)
{
	int seals = os_fcntl(page, F_GET_SEALS, 0);
	struct stat st;

	return seals >= 0 && (seals & F_SEAL_SHRINK) && os_fstat(page, &st) == 0 && st.st_size >= (off_t)WILL_SIZE;
}

static int map_page(struct rds_sock *sk, int page)
{
	void *map;
	int err = os_mmap(WILL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0, &map);

	if (err)
		return err;
	atomic_store(&sk->will_fd.n[0], page);
	err = os_fd_register_hook(&sk->will_fd.n[0], page_moved, sk);
	if (err) {
		os_munmap(map, WILL_SIZE);
		return err;
	}
	atomic_store(&sk->will_wanted, 0);
	atomic_store(&sk->will, map);
	return 0;
}

static int new_page(void)
{
	int fd = os_dup_high(os_memfd("rds will", MFD_CLOEXEC | MFD_ALLOW_SEALING)), err;

	if (fd < 0)
		return fd;
	err = os_ftruncate(fd, WILL_SIZE);
	if (!err)
		err = os_fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	if (err >= 0)
		err = os_lock(fd, F_WRLCK, 0, 1, false);
	if (err >= 0)
		return fd;
	os_close(fd);
	return err;
}

void rds_will_lend_later(struct rds_sock *sk)
{
	if (!atomic_load(&sk->will))
		return;
	rds_sock_hold(sk);
	sk->will_next = unlent;
	unlent = sk;
}

int rds_will_make(struct rds_sock *sk)
{
	struct rds_share_will *will;
	int page, err;

	if (atomic_load(&sk->will))
		return 0;
	page = new_page();
	if (page < 0)
		return page;
	err = map_page(sk, page);
	if (err) {
		os_close(page);
		return err;
	}
	will = atomic_load(&sk->will);
	will->magic = RDS_SHARE_MAGIC;
	will->version = RDS_SHARE_VERSION;
	rds_will_write(sk);
	rds_will_lend_later(sk);
	return 0;
}

/* What is written there stays until the socket is what it says. */
int rds_will_take(struct rds_sock *sk, int page)
{
	int err = rds_will_sound(page) ? map_page(sk, page) : -EPROTO;

	if (err)
		os_close(page);
	return err;
}

void rds_will_release(struct rds_sock *sk)
{
	if (atomic_load(&sk->will))
		os_lock(atomic_load(&sk->will_fd.n[0]), F_UNLCK, 0, 1, false);
}

int rds_will_again(struct rds_sock *sk)
{
	return atomic_load(&sk->will) ? os_lock(atomic_load(&sk->will_fd.n[0]), F_WRLCK, 0, 1, false) : 0;
}

void rds_will_close(struct rds_sock *sk)
{
	os_close_slot(&sk->will_fd.n[os_side]);
}

void rds_will_unmap(struct rds_sock *sk)
{
	struct rds_share_will *will = atomic_exchange(&sk->will, NULL);

	if (will)
		os_munmap(will, WILL_SIZE);
}

/* ---- the line ---- */

/* Once for each helper. */
static void make_line(void)
{
	uint32_t epoch = rds_post_epoch();
	int ends[2];

	if (atomic_load(&line.end.n[0]) >= 0 && line.epoch == epoch)
		return;
	if (os_pipe(ends, O_CLOEXEC) < 0)
		return;
	os_close_slot(&line.end.n[0]);
	if (os_dup_high_slot(ends[0], &line.end.n[0])) {
		os_close(ends[1]);
		return;
	}
	line.epoch = epoch;
	ends[0] = atomic_load(&line.end.n[0]);
	rds_post_lend(RDS_POST_LINE, NULL, ends, 2);
	if (rds_post_own())
		os_close(ends[1]);
}

void rds_line_lent(int from, int to)
{
	os_close_slot(&line.other);
	if (os_side) {
		os_close_slot(&line.end.n[1]);
		atomic_store(&line.end.n[1], from);
		atomic_store(&line.other, to);
	} else {
		os_dup_high_slot(to, &line.other);
	}
}

/* There is no helper yet: nobody can have attached. */
static struct rds_sock *next_unlent(void)
{
	struct rds_sock *sk;

	rds_lock(&rds_eng->control);
	sk = rds_post_epoch() ? unlent : NULL;
	if (sk)
		unlent = sk->will_next;
	rds_unlock(&rds_eng->control);
	return sk;
}

static void lend(struct rds_sock *sk)
{
	int fd = atomic_load(&sk->will_fd.n[0]);

	make_line();
	if (fd >= 0)
		rds_post_lend(RDS_POST_WILL, sk, &fd, 1);
	if (!atomic_load(&sk->open) && !atomic_load(&sk->leaving) && rds_post_own()) {
		rds_sock_hold(sk); /* it was closed meanwhile, and the helper had nothing to close then */
		rds_chore_for_helper(&sk->let_go);
	}
	rds_sock_put(sk);
}

void rds_wills_lend(void)
{
	struct rds_sock *sk;

	if (pthread_mutex_trylock(&lending)) /* another thread is at it; or a signal has interrupted it here */
		return;
	while ((sk = next_unlent()))
		lend(sk);
	pthread_mutex_unlock(&lending);
}

void rds_will_lent(struct rds_sock *sk, int fd)
{
	if (!os_side)
		return;
	os_close_slot(&sk->will_fd.n[1]);
	atomic_store(&sk->will_fd.n[1], fd);
}

bool rds_will_fds(struct rds_sock *sk, int fds[3])
{
	fds[0] = rds_sock_pair(sk);
	fds[1] = os_fd(&line.end);
	fds[2] = os_fd(&sk->will_fd);
	return fds[0] >= 0 && fds[1] >= 0 && fds[2] >= 0;
}

void rds_will_forget(void)
{
	unlent = NULL;
	pthread_mutex_init(&lending, NULL);
	os_fd_init(&line.end);
	atomic_store(&line.other, -1);
}
