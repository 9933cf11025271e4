/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lease.c - the owner's side of lease.h: the page, its lock, the hang-up pipe.
 *
 * Invariants: the lock is taken before another process can have the page. It is given up only after
 * the parked packet, which replaces the lease, is in place.
 *
 * The program's table has the lock. The kernel drops such a lock when its process closes any
 * descriptor of the file. So the page never comes into that table a second time (standby.c ensures
 * that), and the helper's copy is in another table.
 *
 * The page has two copies of the state, and tells which one is complete. An owner that was killed
 * while it was writing has written the other one.
 *
 * Must not know what other processes do with the page.
 */
#include "engine/share/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "engine/share/owner.h"
#include "engine/share/handoff.h"
#include "engine/sys/log.h"
#include "engine/sys/patience.h"
#include "engine/helper/fd_exchange.h"

#define LEASE_SIZE sizeof(struct rds_lease_page)
#define WRITER_NAP_NS 100000
#define RESERVE 24 /* descriptors left for the program, and for parking when it ends */

static struct rds_sock *unexported; /* control */
/* For the parked files, one at a time, if the program has used up its descriptors by then. */
static _Atomic int reserve_fd = -1;
static rds_lock_t export_lock = RDS_LOCK_INIT(RDS_LOCK_PLAIN);
static struct {
	struct os_fd end;  /* what borrowers get */
	_Atomic int other; /* the helper's: closed when the process ends, since there is no copy */
} hangup_pipe = {.end = OS_FD_NONE, .other = -1};

/* ---- the page ---- */

void rds_lease_write(struct rds_sock *sk)
{
	struct rds_lease_page *lease = atomic_load(&sk->lease);
	unsigned wanted, which;

	/*
	 * Once this process gives the socket up, the page is the next owner's. Until the socket is
	 * whole, it is the last one's.
	 */
	if (!lease || atomic_load(&sk->accepts_nothing))
		return;
	if (atomic_fetch_add(&sk->lease_wanted, 1)) /* the present writer repeats it */
		return;
	do {
		wanted = atomic_load(&sk->lease_wanted);
		/* again: rds_lease_release() waits for this thread */
		if (atomic_load(&sk->accepts_nothing))
			continue;
		which = !atomic_load(&lease->which);
		rds_share_state_fill(sk, &lease->st[which]);
		atomic_store(&lease->which, which);
	} while (!atomic_compare_exchange_strong(&sk->lease_wanted, &wanted, 0));
}

/*
 * The descriptor moves to another number, because the program wants the old one for dup2(). The
 * lock is lost when the old number is closed. Meanwhile the open file has a read lock, beside which
 * no other process can get the write lock.
 */
static void lease_page_moved(void *arg, int oldfd, int newfd)
{
	struct rds_sock *sk = arg;

	if (!atomic_load(&sk->open)) {
		atomic_store(&sk->lease_fd.n[0], newfd);
	} else if (oldfd >= 0) {
		os_lock(newfd, F_RDLCK, 0, 1, false);
		os_file_lock(newfd, F_RDLCK, 0, 1);
		atomic_store(&sk->lease_fd.n[0], newfd);
	} else {
		os_lock(newfd, F_RDLCK, 0, 1, false);
		os_file_lock(newfd, F_UNLCK, 0, 1);
		if (os_lock(newfd, F_WRLCK, 0, 1, false))
			rds_error("the lock on an RDS socket's lease is lost: if other processes have the socket, two "
				  "of them may own it");
	}
}

bool rds_lease_is_sound(int page)
{
	return os_memfd_sealed_size(page, F_SEAL_SHRINK) >= (int64_t)LEASE_SIZE;
}

static int lease_map_page(struct rds_sock *sk, int page)
{
	void *map;
	int err = os_reserve(page, LEASE_SIZE); /* a page of another process may have holes */

	if (!err)
		err = os_mmap(LEASE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0, &map);
	if (err)
		return err;
	atomic_store(&sk->lease_fd.n[0], page);
	err = os_fd_register_hook(&sk->lease_fd.n[0], lease_page_moved, sk);
	if (err) {
		atomic_store(&sk->lease_fd.n[0], -1);
		os_munmap(map, LEASE_SIZE);
		return err;
	}
	atomic_store(&sk->lease_wanted, 0);
	atomic_store(&sk->lease, map);
	return 0;
}

/* Are RESERVE descriptors left? Only checked when the lowest free number is no longer low. */
static bool lease_fds_left(int lowest)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) || (rlim_t)lowest < rl.rlim_cur / 4)
		return true;
	return os_fds_available(lowest, RESERVE);
}

static int lease_new_page(void)
{
	int fd = os_memfd("rds lease", MFD_CLOEXEC | MFD_ALLOW_SEALING), err;

	if (fd >= 0 && !lease_fds_left(fd)) {
		os_close(fd);
		return -EMFILE;
	}
	fd = os_dup_high(fd);
	if (fd < 0)
		return fd;
	err = os_ftruncate(fd, LEASE_SIZE);
	if (!err)
		err = os_fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	if (err >= 0)
		err = os_lock(fd, F_WRLCK, 0, 1, false);
	if (err >= 0)
		return fd;
	os_close(fd);
	return err;
}

void rds_lease_reserve_fd(bool keep)
{
	if (!keep)
		os_close_slot(&reserve_fd);
	else if (atomic_load(&reserve_fd) < 0)
		os_dup_high_slot(os_eventfd(0, O_CLOEXEC), &reserve_fd);
}

void rds_lease_export_later(struct rds_sock *sk)
{
	if (!atomic_load(&sk->lease))
		return;
	rds_sock_hold(sk);
	sk->lease_next = unexported;
	unexported = sk;
}

int rds_lease_make(struct rds_sock *sk)
{
	struct rds_lease_page *lease;
	int page, err;

	if (atomic_load(&sk->lease))
		return 0;
	page = lease_new_page();
	if (page < 0)
		return page;
	err = lease_map_page(sk, page);
	if (err) {
		os_close(page);
		return err;
	}
	lease = atomic_load(&sk->lease);
	if (os_fd(&sk->mailbox_fd) < 0) /* without it, senders that end wait */
		os_dup_high_slot(rds_mailbox_make(&sk->name), &sk->mailbox_fd.n[0]);
	rds_mailbox_keep_port(sk);
	rds_lease_reserve_fd(true);
	lease->magic = RDS_SHARE_MAGIC;
	lease->version = RDS_SHARE_VERSION;
	rds_lease_write(sk);
	rds_lease_export_later(sk);
	return 0;
}

/* Does not write the page: its content is valid until the socket has that state. */
int rds_lease_take(struct rds_sock *sk, int page)
{
	int err = rds_lease_is_sound(page) ? lease_map_page(sk, page) : -EPROTO;

	if (err)
		os_close(page);
	else
		rds_lease_reserve_fd(true);
	return err;
}

int rds_lease_take_mailbox(struct rds_sock *sk, int mailbox)
{
	return os_dup_high_slot(mailbox, &sk->mailbox_fd.n[0]);
}

/*
 * The page is not written any more, but a thread may have begun before.  If that is this thread,
 * interrupted by a signal, it does not go on before the process ends.
 */
void rds_lease_release(struct rds_sock *sk)
{
	uint64_t until = os_now_ns() + rds_patience_ns(RDS_PATIENCE_LOCK);

	if (!atomic_load(&sk->lease))
		return;
	while (atomic_load(&sk->lease_wanted) && os_now_ns() < until)
		os_nap_ns(WRITER_NAP_NS);
	os_lock(atomic_load(&sk->lease_fd.n[0]), F_UNLCK, 0, 1, false);
}

int rds_lease_retake(struct rds_sock *sk)
{
	return atomic_load(&sk->lease) ? os_lock(atomic_load(&sk->lease_fd.n[0]), F_WRLCK, 0, 1, false) : 0;
}

void rds_lease_close(struct rds_sock *sk)
{
	os_close_slot(&sk->lease_fd.n[os_fd_table]);
	os_close_slot(&sk->mailbox_fd.n[os_fd_table]);
}

void rds_lease_unmap(struct rds_sock *sk)
{
	struct rds_lease_page *lease = atomic_exchange(&sk->lease, NULL);

	if (lease)
		os_munmap(lease, LEASE_SIZE);
}

/* ---- the hang-up pipe ---- */

/*
 * Helper thread. If the helper has its own table, the writing end is never in one that a fork
 * copies.
 */
static void lease_make_hangup(struct rds_deferred_call *c)
{
	int ends[2], err;

	(void)c;
	if (os_fd(&hangup_pipe.end) >= 0 || os_pipe(ends, O_CLOEXEC) < 0)
		return;
	if (os_fd_table) {
		atomic_store(&hangup_pipe.end.n[1], ends[0]);
		atomic_store(&hangup_pipe.other, ends[1]);
		err = rds_export_to_program(RDS_EXPORT_HANG_UP, NULL, &ends[0], 1);
		if (err)
			rds_warn_once(
				"processes that share an RDS socket with this one will not notice at once if it is "
				"killed: %s",
				strerror(-err));
	} else if (!os_dup_high_slot(ends[1], &hangup_pipe.other)) {
		os_dup_high_slot(ends[0], &hangup_pipe.end.n[0]);
	} else {
		os_close(ends[0]);
	}
}

static struct rds_deferred_call hangup_call = {.fn = lease_make_hangup};

unsigned rds_lease_hangup_exported(void *none, int *fds, unsigned nfds)
{
	(void)none;
	if (nfds != 1)
		return 0;
	os_close_slot(&hangup_pipe.end.n[0]);
	os_dup_high_slot(fds[0], &hangup_pipe.end.n[0]);
	return 1;
}

static bool lease_has_hangup(void)
{
	return atomic_load(&hangup_pipe.end.n[0]) >= 0;
}

/* The helper may be busy for a while. */
static void lease_await_hangup(void)
{
	uint64_t until = os_now_ns() + rds_patience_ns(RDS_PATIENCE_HANG_UP);

	rds_helper_defer(&hangup_call);
	while (!lease_has_hangup() && os_now_ns() < until)
		rds_fd_exchange_await(1);
}

/* NULL also if there is no helper yet: then no process can have attached. */
static struct rds_sock *lease_next_unexported(void)
{
	struct rds_sock *sk;

	rds_lock(&rds_lock_control);
	sk = rds_export_epoch() ? unexported : NULL;
	if (sk)
		unexported = sk->lease_next;
	rds_unlock(&rds_lock_control);
	return sk;
}

/*
 * The export carries the reference: the structure is not reused before the helper has the
 * descriptors.
 */
static void lease_export(struct rds_sock *sk)
{
	const struct os_fd *fds[2] = {&sk->lease_fd, &sk->mailbox_fd};

	if (os_fd(fds[0]) < 0 || rds_export_to_helper(RDS_EXPORT_LEASE, sk, fds, os_fd(fds[1]) < 0 ? 1 : 2))
		rds_sock_put(sk);
}

void rds_lease_export_all(void)
{
	struct rds_sock *sk;

	/* On failure most likely a signal has interrupted this thread with the lock held. */
	if (!rds_lock_until(&export_lock, os_now_ns() + rds_patience_ns(RDS_PATIENCE_LOCK)))
		return;
	while ((sk = lease_next_unexported())) {
		if (!lease_has_hangup())
			lease_await_hangup();
		lease_export(sk);
	}
	rds_unlock(&export_lock);
}

/*
 * A socket that was closed meanwhile needs no descriptors. If it is closed just now, the helper's
 * part of that close closes them.
 */
unsigned rds_lease_exported(void *socket, int *fds, unsigned nfds)
{
	int fd = nfds > 0 ? fds[0] : -1, mailbox = nfds > 1 ? fds[1] : -1;
	struct rds_sock *sk = socket;

	if (os_fd_table && fd >= 0 && (atomic_load(&sk->open) || atomic_load(&sk->handing_off))) {
		rds_lease_close(sk);
		atomic_store(&sk->mailbox_fd.n[1], mailbox);
		atomic_store(&sk->lease_fd.n[1], fd);
	} else if (os_fd_table) {
		if (fd >= 0)
			os_close(fd);
		if (mailbox >= 0)
			os_close(mailbox);
	}
	rds_sock_put(sk);
	return nfds < 2 ? nfds : 2;
}

/* ---- a borrower that no hook has announced ---- */

static void lease_tell_late(struct rds_deferred_call *c)
{
	(void)c;
	rds_owner_leases_made();
}

static struct rds_deferred_call again_call = {.fn = lease_tell_late};

/*
 * The program's table must have the lock, so one of the program's threads does this, between two
 * calls.
 */
static void lease_make_missing(struct rds_deferred_call *c)
{
	(void)c;
	rds_share_begin();
	rds_helper_defer(&again_call); /* runs after the exported descriptors are taken */
}

static struct rds_deferred_call late_call = {.fn = lease_make_missing};

void rds_lease_make_late(struct rds_sock *sk)
{
	atomic_store(&rds_share_possible, true);
	if (atomic_load(&sk->lease))
		return;
	lease_make_hangup(&hangup_call); /* a deferred call cannot wait for the pipe */
	rds_helper_defer_to_program(&late_call);
	rds_sock_wake_all(sk); /* a thread that sleeps in a call runs it, and sleeps on */
}

unsigned rds_lease_fds(struct rds_sock *sk, int fds[RDS_LEASE_FDS])
{
	int mailbox = os_fd(&sk->mailbox_fd), lease = os_fd(&sk->lease_fd);
	unsigned n = 0;

	fds[n++] = rds_sock_pair_fd(sk);
	fds[n++] = os_fd(&hangup_pipe.end);
	if (fds[0] < 0 || fds[1] < 0 || lease < 0)
		return 0;
	if (mailbox >= 0)
		fds[n++] = mailbox;
	fds[n++] = lease;
	return n;
}

void rds_lease_forget(void)
{
	unexported = NULL;
	atomic_store(&reserve_fd, -1);
	rds_lock_init(&export_lock, RDS_LOCK_PLAIN);
	atomic_store(&hangup_call.queued, false);
	atomic_store(&late_call.queued, false);
	atomic_store(&again_call.queued, false);
	os_fd_init(&hangup_pipe.end);
	atomic_store(&hangup_pipe.other, -1);
}
