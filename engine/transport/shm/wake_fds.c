/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wake_fds.c - the pipes that wake peers, in both descriptor tables (helper/fd_exchange.h).
 *
 * The helper receives them with a peer's HELLO.  A program's thread that wants to wake a peer for
 * the first time has no numbers of the pipes.  It defers the wake-up to the helper, which wakes the
 * peer and exports the pipes.  From then on the thread wakes the peer directly.  So peers that the
 * program never wakes, for example a thousand idle ones, take none of its descriptors.  If no
 * number is free in the program's table, all wake-ups go through the helper.
 *
 * When a peer becomes cold (cold.c), both sides close their numbers.  Program's threads may be about
 * to write to one at that moment, so a number of the program's table is taken out of its place first,
 * and closed when no thread is (`waking`).
 *
 * A peer's structure is freed after the helper has declared the peer dead and the program's side
 * has closed its numbers (`fds_close_call`).
 */
#include <fcntl.h>

#include "engine/transport/shm/shm.h"

/*
 * Exports at the first, second, fourth, eighth ... call: the program may be unable to take the
 * pipes.
 */
static void wake_fds_export(struct shm_peer *p)
{
	int fds[2] = {os_fd(&p->leader.fd), os_fd(&p->helper.fd)};

	p->nrequests++;
	if (!os_fd_table || fds[0] < 0 || (p->nrequests & (p->nrequests - 1)) || atomic_load(&p->exporting))
		return;
	atomic_store(&p->exporting, true);
	p->exported = true;
	if (rds_export_to_program(RDS_EXPORT_PEER, p, fds, 2))
		atomic_store(&p->exporting, false);
}

static bool peer_wake_deferred(struct shm_peer *p, const struct shm_wake_fd *w)
{
	int fd = os_fd(&w->fd);

	return fd >= 0 ? shm_wake_fd_write(w, fd) : !shm_wake_socket_send(p, false);
}

/*
 * No wake-up is sent.  If the peer has become cold since a thread has deferred it, nobody else knows
 * that it is missing.
 */
static void peer_recheck(struct shm_peer *p)
{
	struct shm_ep *ep;

	for (ep = p->eps; ep; ep = ep->peer_next)
		if (ep->up)
			shm_recheck_later(ep);
}

static void peer_run_deferred(struct rds_deferred_call *c)
{
	struct shm_peer *p = container_of(c, struct shm_peer, deferred_call);
	unsigned wants = atomic_exchange(&p->deferred_what, 0);
	bool leader, helper;
	uint32_t word, who;

	if (p->dead)
		return;
	if (wants & SHM_DEFER_BREAK) {
		shm_peer_break(p);
		return;
	}
	if (wants & SHM_DEFER_ALIVE)
		shm_alive_check(p);
	if (wants & SHM_DEFER_WARM)
		shm_cold_warm(p);
	if (p->dead || !(wants & (SHM_DEFER_WAKE_LEADER | SHM_DEFER_WAKE_HELPER)))
		return;
	word = p->inbox ? atomic_load(&p->inbox->attention) : 0;
	who = word & SHM_ATT_WHO;
	leader = (wants & SHM_DEFER_WAKE_LEADER) && peer_wake_deferred(p, &p->leader);
	helper = (wants & SHM_DEFER_WAKE_HELPER) && peer_wake_deferred(p, &p->helper);
	if (!leader && !helper)
		peer_recheck(p);
	if ((leader && who == RDS_ATT_LEADER) || (helper && who == RDS_ATT_HELPER))
		shm_attention_claim(p, p->inbox, word);
	wake_fds_export(p);
}

void shm_peer_defer(struct shm_peer *p, unsigned what)
{
	atomic_fetch_or(&p->deferred_what, what);
	rds_helper_defer(&p->deferred_call);
}

/* Program's thread, out of rds_fd_exchange_take(): one thread at a time. */
unsigned rds_shm_wake_fds_import(void *arg, int *fds, unsigned nfds)
{
	struct shm_peer *p = arg;
	bool wanted = nfds == 2 && os_fd(&p->leader.fd) < 0;

	if (wanted) {
		os_dup_high_slot(fds[0], &p->leader.fd.n[0]);
		os_dup_high_slot(fds[1], &p->helper.fd.n[0]);
	}
	atomic_store(&p->exporting, false);
	return wanted ? 2 : 0;
}

static void retired_close(struct shm_peer *p)
{
	os_close_slot(&p->retired[0]);
	os_close_slot(&p->retired[1]);
}

/*
 * Numbers of the program's table: by a thread of the program, or by the helper that shares the table.
 * Of a dead peer, no thread writes to its pipes any more, and this is the last access of that side to
 * the peer's structure.
 */
static void wake_fds_retire(struct rds_deferred_call *c)
{
	struct shm_peer *p = container_of(c, struct shm_peer, fds_close_call);
	bool dead = atomic_load(&p->dead);

	if (atomic_load(&p->retired[0]) < 0 && atomic_load(&p->retired[1]) < 0) {
		os_fd_move_slot(&p->leader.fd.n[0], &p->retired[0]);
		os_fd_move_slot(&p->helper.fd.n[0], &p->retired[1]);
	}
	if (atomic_load(&p->waking)) {
		if (rds_helper_is_self)
			rds_helper_defer(c);
		else
			rds_helper_defer_to_program(c);
		return;
	}
	retired_close(p);
	if (!dead)
		return;
	os_close_slot(&p->leader.fd.n[0]);
	os_close_slot(&p->helper.fd.n[0]);
	atomic_store(&p->program_closed, true); /* from here on p may be freed */
}

void shm_peer_init(struct shm_peer *p)
{
	os_fd_init(&p->leader.fd);
	os_fd_init(&p->helper.fd);
	p->deferred_call.fn = peer_run_deferred;
	p->fds_close_call.fn = wake_fds_retire;
	atomic_store(&p->retired[0], -1);
	atomic_store(&p->retired[1], -1);
}

/* Of a peer that was cold: what a thread may know of the pipes as they were must not become wrong. */
void shm_wake_fd_init(struct shm_wake_fd *w, int fd, int flags, bool again)
{
	bool has_reader = (flags & O_ACCMODE) == O_RDWR;

	if (!again || !has_reader)
		atomic_store_explicit(&w->has_reader, has_reader, memory_order_relaxed);
	os_dup_high_slot(fd, &w->fd.n[os_fd_table]);
}

void shm_wake_fds_close(struct shm_peer *p)
{
	if (!os_fd_table) {
		wake_fds_retire(&p->fds_close_call);
		return;
	}
	os_close_slot(&p->leader.fd.n[1]);
	os_close_slot(&p->helper.fd.n[1]);
	if (p->exported)
		rds_helper_defer_to_program(&p->fds_close_call);
	else if (p->dead)
		atomic_store(&p->program_closed, true);
	p->nrequests = 0;
}

bool shm_peer_idle(struct shm_peer *p)
{
	return atomic_load(&p->program_closed) && !atomic_load(&p->deferred_call.queued) &&
	       !atomic_load(&p->fds_close_call.queued);
}
