/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * standby_fork.c - a forked child keeps a standby of the sockets that its parent owned or borrowed
 * (standby.c). It uses the descriptors that it has inherited, under the parent's numbers.
 *
 * The child closes all other descriptors of the engine, so those that it keeps are marked first.
 * The child has no other thread yet.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "engine/share/standby.h"
#include "engine/rds.h"

#define KEPT_MAX (1 << 20) /* no internal number is higher (sys/own_fds.c) */

static uint8_t *kept; /* bit set of descriptor numbers, while the others are closed */

static void standby_inherit(struct rds_sock *sk, void *arg)
{
	int fds[PARTS] = {[PAIR] = atomic_load(&sk->pair.n[0]),
			  [LEASE] = atomic_load(&sk->lease_fd.n[0]),
			  [MAILBOX] = atomic_load(&sk->mailbox_fd.n[0])};
	struct standby *h;
	int lease_fds[RDS_LEASE_FDS];

	(void)arg;
	if (!atomic_load(&sk->lease) || !atomic_load(&sk->open) || fds[PAIR] < 0 || fds[LEASE] < 0 ||
	    !rds_lease_fds(sk, lease_fds) || (rds_hook_number && rds_hook_number(sk) < 0))
		return; /* no number: the parent owns it for others, and we have no stand-in */
	fds[HANGUP] = os_fcntl(lease_fds[1], F_DUPFD_CLOEXEC, 0);
	h = fds[HANGUP] < 0 ? NULL : standby_add(sk->inode);
	if (!h)
		return;
	if (os_dup_high_slot(fds[HANGUP], &h->fd[HANGUP]))
		return;
	atomic_store(&h->fd[PAIR], fds[PAIR]);
	atomic_store(&h->fd[LEASE], fds[LEASE]);
	os_fd_register_slot(fds[PAIR], &h->fd[PAIR]);
	os_fd_register_slot(fds[LEASE], &h->fd[LEASE]);
	atomic_store(&h->fd[MAILBOX], fds[MAILBOX]);
	if (fds[MAILBOX] >= 0)
		os_fd_register_slot(fds[MAILBOX], &h->fd[MAILBOX]);
	standby_set(h, HELD);
}

/* Without memory for the bit set all descriptors are closed, and no standby is kept. */
static void standby_note_kept(void)
{
	struct standby *h;
	unsigned at, part;
	void *mem;

	if (!rds_standby_any() ||
	    os_mmap(KEPT_MAX / 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &mem))
		return;
	kept = mem;
	for (at = 0; (h = standby_next(&at));) {
		for (part = 0; h->state == HELD && part < PARTS; part++) {
			int fd = atomic_load(&h->fd[part]);

			if (fd >= 0 && fd < KEPT_MAX)
				kept[fd / 8] |= (uint8_t)(1u << fd % 8);
		}
	}
}

void rds_standby_forked(void)
{
	unsigned at, part;
	struct standby *h;

	pthread_mutex_init(&standby_lock, NULL);
	kept = NULL;
	for (at = 0; (h = standby_next(&at));) {
		if (h->state == HELD)
			continue;
		standby_set(h, FREE);
		for (part = 0; part < PARTS; part++) /* a parent's thread was changing it */
			atomic_store(&h->fd[part], -1);
	}
	if (!os_process_inherited())
		return;
	rds_sock_each_locked(standby_inherit, NULL);
	standby_note_kept();
}

/* A process that may take over a socket has to join the registry in which its port is. */
static void close_unless_kept(int fd, void *arg)
{
	(void)arg;
	if (kept && fd == rds_node_inherited_fd())
		return;
	if (!kept || fd >= KEPT_MAX || !(kept[fd / 8] >> fd % 8 & 1))
		os_fd_abandon(fd);
}

void rds_standby_close_others(void)
{
	struct standby *h;
	unsigned at;

	if (!kept)
		rds_node_inherited_drop();
	os_fd_each_internal(0, ~0u, close_unless_kept, NULL);
	if (kept)
		os_munmap(kept, KEPT_MAX / 8);
	else
		for (at = 0; (h = standby_next(&at));)
			if (h->state == HELD)
				standby_drop(h);
	kept = NULL;
}
