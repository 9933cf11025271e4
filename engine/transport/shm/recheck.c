/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * recheck.c - asks again where a wake-up may have been lost.
 *
 * Bells and attention are in a page that every peer can write, so that no system call is needed
 * while a process is busy.  A peer that writes invalid data there, or clears bells, would cut off a
 * sleeping process from all others.  Such a peer must cost the others at most one tick, and
 * rechecks must cost nothing as long as all peers behave:
 *
 *   - A sender has published a message or an answer.  The receiver's attention says that it is
 *     awake, and the sender has not woken it.  Then the sender checks after a tick whether the
 *     receiver has noticed it.  (The receiver writes into the ring how far it has received, and
 *     which answers it has seen.)  If not, the sender sends LOOK on the control socket, to which
 *     only these two processes can write.  To a cold peer a datagram says the same.
 *   - A process that was woken and finds no bell rung checks every ring after a tick.
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

/* Any thread: p is asked at the next tick. */
static void recheck_add(struct shm_peer *p)
{
	struct shm_peer *first = atomic_load(&rds_shm.recheck_list);

	if (atomic_exchange(&p->recheck, true))
		return;
	do
		p->recheck_next = first;
	while (!atomic_compare_exchange_weak(&rds_shm.recheck_list, &first, p));
}

void shm_recheck_later(struct shm_ep *ep)
{
	if (atomic_load_explicit(&ep->recheck, memory_order_relaxed) || !ep->peer)
		return;
	atomic_store(&ep->recheck, true);
	recheck_add(ep->peer);
	recheck_arm(&rds_shm.recheck_timer, &rds_shm.recheck_armed);
}

void shm_recheck_memory(struct shm_ep *ep)
{
	atomic_store(&ep->starved, true);
	rds_fence(); /* if `recheck` is still set, recheck_ask() has yet to look at `starved` */
	shm_recheck_later(ep);
}

void shm_recheck_inbox(void)
{
	recheck_arm(&rds_shm.sweep_timer, &rds_shm.sweep_armed);
}

bool shm_ep_unnoticed(const struct shm_ep *ep)
{
	return atomic_load(&ep->tx->seen) != atomic_load(&ep->tx->tail) ||
	       atomic_load(&ep->rx->room_seen) != atomic_load(&ep->rx->room_said);
}

/* There may be memory again for a message that was refused. */
static void ep_feed(struct shm_ep *ep)
{
	if (!atomic_exchange(&ep->starved, false))
		return;
	rx_lock();
	ep->head.t->up->writable(ep->head.conn);
	rx_unlock();
}

/* Its helper looks at all rings. */
static int recheck_ask_cold(struct shm_peer *p)
{
	int err = shm_wake_socket_send(p, true);

	if (err == -ECONNREFUSED)
		shm_peer_defer(p, SHM_DEFER_ALIVE);
	return err;
}

/* One LOOK is enough, because the control socket loses nothing. */
static void recheck_ask_peer(struct shm_peer *p)
{
	struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_LOOK};
	struct shm_ep *ep;

	for (ep = p->dead ? NULL : p->eps; ep; ep = ep->peer_next) {
		if (!ep->up || !atomic_exchange(&ep->recheck, false))
			continue;
		ep_feed(ep);
		if (!shm_ep_unnoticed(ep))
			continue;
		msg.peer_bell = ep->bell_there;
		if (p->warmth == SHM_WARM ? shm_ctl_try(p, &msg, NULL, 0) : recheck_ask_cold(p))
			shm_recheck_later(ep);
	}
}

/* What is told of a warm peer at once has to be found out of a cold one. */
void shm_watch(struct rds_ep *rep)
{
	struct shm_ep *ep = (struct shm_ep *)rep;

	rds_fence(); /* if it still seems warm, or `recheck` is still set, up->awaited has yet to be asked */
	if (ep->peer && atomic_load_explicit(&ep->peer->warmth, memory_order_relaxed) != SHM_WARM)
		shm_recheck_later(ep);
}

static void recheck_ask(struct rds_timer *tm)
{
	struct shm_peer *p, *next;

	(void)tm;
	atomic_store(&rds_shm.recheck_armed, false);
	for (p = atomic_exchange(&rds_shm.recheck_list, NULL); p; p = next) {
		next = p->recheck_next; /* from here on it may be added again */
		atomic_store(&p->recheck, false);
		recheck_ask_peer(p);
		if (!p->dead && p->warmth == SHM_COLD)
			shm_alive_await(p);
	}
}

static void recheck_sweep(struct rds_timer *tm)
{
	struct shm *s = &rds_shm;
	struct shm_ep *ep;
	bool unsettled;
	uint32_t i;

	(void)tm;
	atomic_store(&s->sweep_armed, false);
	rx_lock();
	for (i = 0; i < s->bell_top; i++) {
		ep = shm_bells[i];
		if (ep && ep->up && (atomic_load(&ep->rx->tail) != ep->read || atomic_load(&ep->tx->room_said) != ep->room_seen))
			shm_bell_ring_own(ep);
	}
	shm_cells_sweep();
	unsettled = s->unsettled;
	rx_unlock();
	if (unsettled)
		shm_peers_make_way();
}

void shm_on_look(struct shm_peer *p, uint32_t bell)
{
	struct shm_ep *ep;

	rx_lock();
	ep = bell < SHM_BELLS ? shm_bells[bell] : NULL;
	if (ep && ep->up && ep->peer == p)
		shm_bell_ring_own(ep);
	rx_unlock();
}

void shm_recheck_init(void)
{
	rds_shm.recheck_timer.fn = recheck_ask;
	rds_shm.sweep_timer.fn = recheck_sweep;
}
