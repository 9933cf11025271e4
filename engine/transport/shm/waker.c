/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * waker.c - the pipes that wake peers, in two descriptor tables (post.h).
 *
 * They come with a peer's HELLO, to the helper.  A program's thread that wants to wake a peer for the first time has no number for
 * it: it leaves that to the helper, which wakes the peer and gives the numbers, and from the next time on the thread does
 * it directly.  So peers that the program never wakes, a thousand idle ones say, take nothing of its descriptors.  With no number
 * free in the program's table it goes on through the helper.
 *
 * A peer's structure lives until the helper has buried it and the program's side has closed its numbers (`leave`).
 */
#include <fcntl.h>
#include <string.h>

#include "engine/transport/shm/shm.h"

/* Less and less often if the program cannot take them. */
static void give(struct shm_peer *p)
{
	int fds[2] = {os_fd(&p->leader.fd), os_fd(&p->helper.fd)};

	p->asked++;
	if (!os_fd_table || (p->asked & (p->asked - 1)) || atomic_load(&p->given))
		return;
	atomic_store(&p->given, true);
	if (rds_export_to_program(RDS_EXPORT_PEER, p, fds, 2))
		atomic_store(&p->given, false);
}

static void do_wants(struct rds_deferred_call *c)
{
	struct shm_peer *p = container_of(c, struct shm_peer, chore);
	unsigned wants = atomic_exchange(&p->wants, 0);
	bool leader, helper;
	uint32_t word, who;

	if (p->dead)
		return;
	if (wants & SHM_WANT_BREAK) {
		shm_peer_broken(p);
		return;
	}
	word = p->inbox ? atomic_load(&p->inbox->attention) : 0;
	who = word & SHM_ATT_WHO;
	leader = (wants & SHM_WANT_LEADER) && shm_wake_by(&p->leader, os_fd(&p->leader.fd));
	helper = (wants & SHM_WANT_HELPER) && shm_wake_by(&p->helper, os_fd(&p->helper.fd));
	if ((leader && who == RDS_ATT_LEADER) || (helper && who == RDS_ATT_HELPER))
		shm_claim(p, p->inbox, word);
	give(p);
}

void shm_wants(struct shm_peer *p, unsigned what)
{
	atomic_fetch_or(&p->wants, what);
	rds_helper_defer(&p->chore);
}

/* Program's thread, under the mark of rds_fd_exchange_take(). */
void rds_shm_given(void *arg, const int *fds, unsigned nfds)
{
	struct shm_peer *p = arg;
	unsigned i;

	if (nfds == 2 && os_fd(&p->leader.fd) < 0) {
		os_dup_high_slot(fds[0], &p->leader.fd.n[0]);
		os_dup_high_slot(fds[1], &p->helper.fd.n[0]);
	} else {
		for (i = 0; i < nfds; i++)
			os_close(fds[i]);
	}
	atomic_store(&p->given, false);
}

/* Program's thread, the last that its side knows of the peer. */
static void leave(struct rds_deferred_call *c)
{
	struct shm_peer *p = container_of(c, struct shm_peer, leave);

	os_close_slot(&p->leader.fd.n[0]);
	os_close_slot(&p->helper.fd.n[0]);
	atomic_store(&p->left, true); /* from here on it may be freed */
}

void shm_peer_init(struct shm_peer *p)
{
	os_fd_init(&p->leader.fd);
	os_fd_init(&p->helper.fd);
	p->chore.fn = do_wants;
	p->leave.fn = leave;
}

void shm_waker_take(struct shm_waker *w, int fd, int flags)
{
	w->lasts = (flags & O_ACCMODE) == O_RDWR;
	os_dup_high_slot(fd, &w->fd.n[os_fd_table]);
}

void shm_wakers_close(struct shm_peer *p)
{
	os_close_slot(&p->leader.fd.n[os_fd_table]);
	os_close_slot(&p->helper.fd.n[os_fd_table]);
	if (os_fd_table && p->asked)
		rds_helper_defer_to_program(&p->leave);
	else
		atomic_store(&p->left, true);
}

bool shm_peer_idle(struct shm_peer *p)
{
	return atomic_load(&p->left) && !atomic_load(&p->chore.queued);
}
