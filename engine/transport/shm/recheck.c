/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * recheck.c - asking again where a wake-up may have been lost.
 *
 * Bells and attention lie in a page that every peer can write to, so that no system call is needed while a process is busy.
 * A peer that writes nonsense there, or wipes bells away, would cut a sleeping process off from all others.  It must cost
 * them a tick at most, and nobody anything while all goes well:
 *
 *   - Who has something for a process that claims to be awake, and has not woken it itself, looks after a tick whether it has
 *     been noticed (the receiver says in the ring how far it has looked, and which answers it has seen), and if not says
 *     so on the control socket, where only the two of them can write.
 *   - Who was woken and finds no bell rung looks at every ring after a tick.
 *
 * The timers run in the helper.  Must not know what messages are.
 */
#include "engine/transport/shm/shm.h"

#define TICK_NS (10 * 1000000ull)

static void recheck_arm(struct rds_timer *tm, _Atomic bool *set)
{
	if (!atomic_exchange(set, true))
		rds_timer_set(tm, os_now_ns() + TICK_NS);
}

void shm_recheck_later(struct shm_ep *ep)
{
	if (atomic_load_explicit(&ep->recheck, memory_order_relaxed))
		return;
	atomic_store(&ep->recheck, true);
	recheck_arm(&rds_shm.recheck_timer, &rds_shm.recheck_armed);
}

void shm_recheck_inbox(void)
{
	recheck_arm(&rds_shm.sweep_timer, &rds_shm.sweep_armed);
}

static bool ep_unnoticed(const struct shm_ep *ep)
{
	return atomic_load(&ep->tx->seen) != atomic_load(&ep->tx->tail) ||
	       atomic_load(&ep->rx->room_seen) != atomic_load(&ep->rx->room_said);
}

/* Once: the control socket loses nothing. */
static void recheck_ask(struct rds_timer *tm)
{
	struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_LOOK};
	struct shm_peer *p;
	struct shm_ep *ep;

	(void)tm;
	atomic_store(&rds_shm.recheck_armed, false);
	for (p = rds_shm.peers; p; p = p->next) {
		for (ep = p->dead ? NULL : p->eps; ep; ep = ep->peer_next) {
			if (!ep->up || !atomic_exchange(&ep->recheck, false) || !ep_unnoticed(ep))
				continue;
			msg.peer_bell = ep->bell_there;
			if (shm_ctl_try(p, &msg, NULL, 0) == -EAGAIN)
				shm_recheck_later(ep);
		}
	}
}

static void recheck_sweep(struct rds_timer *tm)
{
	struct shm *s = &rds_shm;
	struct shm_ep *ep;
	uint32_t i;

	(void)tm;
	atomic_store(&s->sweep_armed, false);
	rx_lock();
	for (i = 0; i < s->bell_top; i++) {
		ep = s->bells[i];
		if (ep && ep->up && (atomic_load(&ep->rx->tail) != ep->read || atomic_load(&ep->tx->room_said) != ep->room_seen))
			shm_bell_ring_own(ep);
	}
	rx_unlock();
}

void shm_on_look(struct shm_peer *p, uint32_t bell)
{
	struct shm_ep *ep;

	rx_lock();
	ep = bell < SHM_BELLS ? rds_shm.bells[bell] : NULL;
	if (ep && ep->up && ep->peer == p)
		shm_bell_ring_own(ep);
	rx_unlock();
}

void shm_recheck_init(void)
{
	rds_shm.recheck_timer.fn = recheck_ask;
	rds_shm.sweep_timer.fn = recheck_sweep;
}
