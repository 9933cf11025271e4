/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * catch_up.c - what a process has sent that has ended comes before what the next one on its port sends.
 *
 * Who binds a port by its number flags its first message over each connection (RDS_FLAG_NEW_OWNER), and the
 * engine has all else received before that message (shm_catch_up()).  Some of it lies where the thread that
 * receives cannot get it: cells of which it is not known whose they are (cell_strangers.c), and what a process
 * has put into a ring, and ended, when the helper has not read its REPLY, or is just sending its own one.  Until
 * that is *settled* such messages wait, and nobody stays awake for them.  Then they are offered again, or after a
 * tick, if the helper has to settle it: another process may hold a control socket of the dead one open, so the
 * registry is asked, and the hang-up is not waited for.
 *
 * All under rx, except the helper's part.  Must not know what a message says.
 */
#include "engine/transport/shm/shm.h"

/*
 * The socket changed its owner at `since`.  If the process lived after that, it had given the socket up before.
 * So each process is asked for once, and again only for sockets that have changed later.
 */
static bool ring_peer_had_ended(struct shm_ep *ep, uint64_t since)
{
	const struct rds_conn_id *id;
	uint64_t now;

	if (ep->peer_ended || since <= ep->peer_lived)
		return ep->peer_ended;
	id = ep->head.t->up->id(ep->head.conn);
	now = os_now_ns();
	ep->peer_ended = !registry_proc_alive(rds_node_registry, id->peer_slot, &id->peer);
	ep->peer_lived = now;
	return ep->peer_ended;
}

/* (One that lives is not waited for: it may have written anything there.) */
static bool ring_is_unheard(struct shm_ep *ep, uint64_t since)
{
	if (likely(!ep || ep->up || !ep->told) || !ep->peer || atomic_load(&ep->peer->dead) || ep->peer->heard ||
	    !atomic_load(&ep->rings->ctl[ep->initiator].tail))
		return false;
	return ring_peer_had_ended(ep, since);
}

/* One of the bells from *i on whose peer's last messages cannot be received yet. */
static struct shm_peer *unheard(uint32_t *i, uint64_t since)
{
	for (; *i < rds_shm.bell_top; ++*i)
		if (unlikely(ring_is_unheard(shm_bells[*i], since)))
			return shm_bells[(*i)++]->peer;
	return NULL;
}

static bool all_is_settled(uint64_t since)
{
	uint32_t i = 0;

	return !unheard(&i, since);
}

static bool rings_drain(bool paused)
{
	struct shm_ep *ep;
	bool moved = false;
	uint32_t i;

	for (i = 0; i < rds_shm.bell_top; i++) {
		ep = shm_bells[i];
		if (!ep || !ep->up || ep->draining || (paused && !ep->paused))
			continue;
		moved |= shm_ring_drain(ep);
		if (unlikely(shm_ring_leftover(ep)))
			shm_bell_ring_own(ep);
	}
	return moved;
}

/*
 * A message that is received here may cause another catch-up (SHM_CATCH_UP_DEPTH).  Messages of peers
 * that have hung up by now have been received already (shm_ep_down()).  If some cannot be received, none is:
 * else the message that waits for this would come again and again, and each time cause as many others.
 */
bool shm_catch_up(struct rds_transport *t, uint64_t since)
{
	struct shm *s = (struct shm *)t;
	bool known;

	if (s->catching_up == SHM_CATCH_UP_DEPTH)
		return false;
	known = !since || all_is_settled(since);
	if (known) {
		s->catching_up++;
		known = shm_cells_catch_up(s->catching_up == 1, since);
		if (known || !since)
			rings_drain(false);
		s->catching_up--;
	}
	s->unsettled |= since && !known;
	return known;
}

bool shm_settled(void)
{
	bool moved = false;

	if (likely(!rds_shm.unsettled))
		return false;
	rds_shm.unsettled = false;
	if (shm_cells_line)
		moved = shm_cells_offer(false);
	return rings_drain(true) || moved;
}

/* ---- the helper's part ---- */

static struct shm_peer *unheard_next(uint32_t *i)
{
	struct shm_peer *p;

	rx_lock();
	p = unheard(i, UINT64_MAX);
	rx_unlock();
	return p;
}

/*
 * It has ended, and all that it has said is read.  What follows from its end comes later (shm_peer_dead()): else
 * the end of each could lead to the end of another one, on one stack.  False: it cannot be read now.
 */
static bool peer_hear(struct shm_peer *p)
{
	if (p->reading)
		return false;
	if (p->fd >= 0) {
		if (!shm_peer_hello_fits(p))
			return false;
		rds_shm.hearing = p;
		shm_peer_read_all(p);
		rds_shm.hearing = NULL;
	}
	rx_lock();
	p->heard = true;
	rx_unlock();
	shm_peer_defer(p, SHM_DEFER_BREAK);
	return true;
}

bool shm_peers_make_way(void)
{
	struct shm_peer *p;
	uint32_t i = 0;
	bool any = false;

	if (rds_shm.hearing)
		return false;
	shm_cells_meet(&rds_shm.t);
	while ((p = unheard_next(&i)))
		any |= peer_hear(p);
	rx_lock();
	any |= shm_settled();
	any |= rings_drain(false);
	rx_unlock();
	return any;
}

void shm_meet(struct rds_transport *t, bool last)
{
	unsigned tries = last ? SHM_LAST_TRIES : 0;

	shm_cells_meet(t);
	while (tries-- && shm_cells_put_off() && shm_peers_make_way())
		;
}
