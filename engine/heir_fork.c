/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * heir_fork.c - what a forked child keeps of sockets that its parent carried or held (heir.c): the parent's numbers, which are its own by now.
 *
 * All else that was the engine's is closed meanwhile, so these are noted first.  No other thread is there yet.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "engine/heir_impl.h"
#include "engine/rds.h"

#define KEPT_MAX (1 << 20) /* no internal number is higher (os_fds.c) */

static uint8_t *kept; /* numbers, as bits, while the others are closed */

static void inherit(struct rds_sock *sk, void *arg)
{
	int fds[PARTS] = {[PAIR] = atomic_load(&sk->pair.n[0]),
			  [PAGE] = atomic_load(&sk->will_fd.n[0]),
			  [INBOX] = atomic_load(&sk->inbox_fd.n[0])};
	struct heir *h;
	int line[RDS_WILL_FDS];

	(void)arg;
	if (!atomic_load(&sk->will) || !atomic_load(&sk->open) || fds[PAIR] < 0 || fds[PAGE] < 0 ||
	    !rds_will_fds(sk, line) || (rds_hook_number && rds_hook_number(sk) < 0))
		return; /* the latter: the parent carries it for others, and has given us no number of it */
	fds[LINE] = os_fcntl(line[1], F_DUPFD_CLOEXEC, 0);
	h = fds[LINE] < 0 ? NULL : heir_add(sk->inode);
	if (!h)
		return;
	if (os_dup_high_slot(fds[LINE], &h->fd[LINE]))
		return;
	atomic_store(&h->fd[PAIR], fds[PAIR]);
	atomic_store(&h->fd[PAGE], fds[PAGE]);
	os_fd_register_slot(fds[PAIR], &h->fd[PAIR]);
	os_fd_register_slot(fds[PAGE], &h->fd[PAGE]);
	atomic_store(&h->fd[INBOX], fds[INBOX]);
	if (fds[INBOX] >= 0)
		os_fd_register_slot(fds[INBOX], &h->fd[INBOX]);
	heir_set(h, HELD);
}

/* Without memory for it everything is closed, and nothing is kept. */
static void note_kept(void)
{
	struct heir *h;
	unsigned at, part;
	void *mem;

	if (!rds_heir_any() || os_mmap(KEPT_MAX / 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &mem))
		return;
	kept = mem;
	for (at = 0; (h = heir_next(&at));) {
		for (part = 0; h->state == HELD && part < PARTS; part++) {
			int fd = atomic_load(&h->fd[part]);

			if (fd >= 0 && fd < KEPT_MAX)
				kept[fd / 8] |= (uint8_t)(1u << fd % 8);
		}
	}
}

void rds_heir_forked(void)
{
	unsigned at, part;
	struct heir *h;

	pthread_mutex_init(&heir_lock, NULL);
	kept = NULL;
	for (at = 0; (h = heir_next(&at));) {
		if (h->state == HELD)
			continue;
		heir_set(h, FREE);
		for (part = 0; part < PARTS; part++) /* another thread of the parent was at it */
			atomic_store(&h->fd[part], -1);
	}
	if (!os_process_inherited())
		return;
	rds_sock_each_locked(inherit, NULL);
	note_kept();
}

bool rds_heir_keeps(int fd)
{
	return kept && fd < KEPT_MAX && kept[fd / 8] >> fd % 8 & 1;
}

void rds_heir_kept(void)
{
	struct heir *h;
	unsigned at;

	if (kept)
		os_munmap(kept, KEPT_MAX / 8);
	else
		for (at = 0; (h = heir_next(&at));)
			if (h->state == HELD)
				heir_drop(h);
	kept = NULL;
}
