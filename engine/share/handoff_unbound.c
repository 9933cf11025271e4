/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * handoff_unbound.c - hands off unbound sockets of a process that has no helper.
 *
 * When another process is about to get such a socket, no thread of this one could answer that
 * process. A helper starts with the first bind. Before that, a socket consists of its options, the
 * address that connect() has given it, and our end of the pair. The other process may make any call
 * on it, while this one sleeps in waitpid().
 *
 * So the socket is parked, as by an owner that ends (handoff_out.c). The process that makes the
 * next call takes it over, this one or the other. Parking needs no thread, and no memory but the
 * stack. So a signal handler may do it. A child that shares our memory but not our descriptors
 * (vfork) may do it too, right before it executes a program: there is no other moment for it.
 *
 * Such a child has a table of its own. Its end of the pair is closed by the exec. The parent's end
 * stays open until the parent's next call closes it (rds_handoff_unbound_left). The child cannot
 * make a lease as an owner does either, because the lock belongs to one table. It writes a complete
 * lease, and no process has the lock on it: the process that takes the parked packet gets the lease
 * with it.
 *
 * Must not know which descriptor numbers another process will have.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "engine/share/handoff.h"
#include "engine/node/socket_name.h"
#include "engine/conn/conn.h"
#include "engine/sys/patience.h"

void (*rds_hook_handed_off)(struct rds_sock *sk);
_Atomic bool rds_handoff_unbound_left;
static struct rds_sock *behind; /* control: handed off, but our end of the pair is still open */

/*
 * A signal handler, or the vfork child of a thread, may have interrupted a thread that has a lock.
 */
static bool unbound_locks_free(void)
{
	uint64_t until = os_now_ns() + rds_patience_ns(RDS_PATIENCE_LOCK);

	return rds_lock_wait_free(&rds_lock_rx, until) && rds_lock_wait_free(&rds_lock_wait, until);
}

struct unbound_wanted {
	uint64_t inode;
	struct rds_sock *sk;
};

static void unbound_find(struct rds_sock *sk, void *arg)
{
	struct unbound_wanted *w = arg;

	if (sk->inode == w->inode)
		w->sk = sk;
}

/* No thread sleeps in a call on it: that thread would have to learn of the hand-off. */
static bool unbound_is_quiet(const struct rds_sock *sk)
{
	return sk && atomic_load(&sk->open) && !rds_sock_bound(sk) && !atomic_load(&sk->lease) &&
	       !atomic_load(&sk->waiters) &&
	       /* The calling process may have put another file under that number. */
	       rds_node_name_is_peer(os_fd(&sk->pair), &sk->name);
}

static int unbound_write_lease(const struct rds_sock *sk)
{
	struct rds_lease_page lease = {.magic = RDS_SHARE_MAGIC, .version = RDS_SHARE_VERSION};
	int fd = os_memfd("rds lease", MFD_CLOEXEC | MFD_ALLOW_SEALING), err;
	off_t at = 0;

	if (fd < 0)
		return fd;
	rds_share_state_fill(sk, &lease.st[0]);
	err = os_file_append(fd, &at, &lease, sizeof(lease));
	if (!err)
		err = os_fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	if (err >= 0)
		return fd;
	os_close(fd);
	return err;
}

static int unbound_write_state(struct rds_sock *sk, off_t *size)
{
	int fd = os_memfd("rds socket", MFD_CLOEXEC | MFD_ALLOW_SEALING), err;

	if (fd < 0)
		return fd;
	rx_lock();
	err = rds_handoff_write_state(sk, fd, size);
	rx_unlock();
	if (!err)
		err = os_fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
	if (err >= 0)
		return fd;
	os_close(fd);
	return err;
}

/* Our end by its slot: another thread may want its number. */
static int unbound_park_packet(struct rds_sock *sk, int file, int mailbox, int lease, off_t size)
{
	int err;

	if (!os_fds_hold_until(os_now_ns() + rds_patience_ns(RDS_PATIENCE_LOCK)))
		return -EBUSY;
	err = rds_handoff_park(os_fd(&sk->pair), file, mailbox, lease, (uint64_t)size);
	os_fds_release();
	return err;
}

static void fd_close_if(int fd)
{
	if (fd >= 0)
		os_close(fd);
}

static int unbound_park(struct rds_sock *sk, int standin)
{
	off_t size = 0;
	int file = unbound_write_state(sk, &size), lease = file < 0 ? file : unbound_write_lease(sk), mailbox, err;

	/* without it, senders that end wait */
	mailbox = lease < 0 ? -1 : rds_mailbox_make(&sk->name);
	err = lease < 0 ? lease : registry_sock_orphan(rds_node_registry, sk->reg_idx, &sk->name);
	if (!err) {
		os_recv_discard(standin); /* the packets that signal readability */
		err = unbound_park_packet(sk, file, mailbox, lease, size);
		if (err < 0)
			(void)registry_sock_take_over(rds_node_registry, sk->reg_idx, &sk->name, false);
	}
	fd_close_if(file);
	fd_close_if(lease);
	fd_close_if(mailbox);
	return err < 0 ? err : 0;
}

/* From now on this process treats the socket as another process's. control held. */
static void unbound_mark_gone(struct rds_sock *sk)
{
	rds_hook_handed_off(sk);
	rds_cong_set_monitor(sk, false);
	rx_lock();
	atomic_store(&sk->handing_off, true);
	atomic_store(&sk->accepts_nothing, true);
	atomic_store(&sk->open, false);
	rx_unlock();
	rds_sock_list_del(sk);
	sk->inode = 0;
	sk->next_all = behind;
	behind = sk;
	atomic_store(&rds_handoff_unbound_left, true);
}

bool rds_handoff_unbound_any(void)
{
	return os_process_is_started() && !atomic_load(&rds_helper_up);
}

bool rds_handoff_unbound_out(int fd)
{
	struct unbound_wanted w = {.sk = NULL};
	struct stat st;
	bool left;

	if (!rds_handoff_unbound_any() || !rds_hook_handed_off || os_fstat(fd, &st) ||
	    !rds_lock_until(&rds_lock_control, os_now_ns() + rds_patience_ns(RDS_PATIENCE_LOCK)))
		return false;
	w.inode = st.st_ino;
	rds_sock_each_locked(unbound_find, &w);
	left = !atomic_load(&rds_helper_up) && unbound_is_quiet(w.sk) && unbound_locks_free() &&
	       !unbound_park(w.sk, fd);
	if (left)
		unbound_mark_gone(w.sk);
	rds_unlock(&rds_lock_control);
	return left;
}

void rds_handoff_unbound_clear(void)
{
	struct rds_sock *sk, *next;

	if (!os_process_is_started() || !rds_trylock(&rds_lock_control))
		return;
	sk = NULL;
	if (rds_trylock(&rds_lock_wait)) {
		sk = behind;
		behind = NULL;
		atomic_store(&rds_handoff_unbound_left, false);
		for (next = sk; next; next = next->next_all)
			os_close_slot(&next->pair.n[0]);
		rds_unlock(&rds_lock_wait);
	}
	rds_unlock(&rds_lock_control);
	for (; sk; sk = next) {
		next = sk->next_all;
		rds_sock_put(sk); /* for having been open */
	}
}

void rds_handoff_unbound_forget(void)
{
	behind = NULL;
	atomic_store(&rds_handoff_unbound_left, false);
}
