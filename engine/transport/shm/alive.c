/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * alive.c - finds out that a cold peer has ended, which no hang-up tells.
 *
 * A peer for which something waits here is *awaited*: it has not acknowledged a message, a thread
 * waits for its room, one of its ports is congested, or an operation is under way.  It is looked at a
 * tick after it has become cold or was sent something.  Then the pauses grow to a second: each is as
 * long as the time since any peer was awaited anew.
 *
 * Of the others only memory is left.  An idle process does not wake up for it.  Each peer that becomes
 * cold, and each that ends, has two others looked at a second later, so there are never many dead ones.
 * Besides all are looked at after a minute, and again after twice as long each time, an hour at most.
 *
 * Helper thread only.  Must not know what waits.
 */
#include "engine/transport/shm/shm.h"

#define TICK_NS (10 * 1000000ull)
#define SECOND_NS (1000 * 1000000ull)
#define LOOK_PEERS 16 /* in one go */
#define LOOK_OTHERS 2
#define LOOK_FIRST_NS (60 * SECOND_NS)
#define LOOK_LAST_NS (3600 * SECOND_NS)

static void timer_need_by(struct rds_timer *tm, uint64_t due_ns)
{
	if (!rds_timer_is_set(tm) || tm->due_ns > due_ns)
		rds_timer_set(tm, due_ns);
}

void shm_alive_check(struct shm_peer *p)
{
	if (!p->dead && p->warmth == SHM_COLD && !registry_proc_alive(rds_node_registry, p->slot, &p->id))
		shm_peer_dead(p, -EPIPE);
}

/* ---- something waits for it ---- */

void shm_alive_await(struct shm_peer *p)
{
	uint64_t now = os_now_ns();

	if (p->queue[SHM_AWAITED].in)
		return;
	shm_queue_add(SHM_AWAITED, p);
	rds_shm.await_since = now;
	timer_need_by(&rds_shm.await_timer, now + TICK_NS);
}

static bool peer_is_awaited(const struct shm_peer *p)
{
	const struct shm_ep *ep;

	for (ep = p->eps; ep; ep = ep->peer_next)
		if (ep->up ? ep->head.t->up->awaited(ep->head.conn) : ep->initiator)
			return true;
	return false;
}

static void await_look(struct rds_timer *tm)
{
	struct shm_queue *q = &rds_shm.queue[SHM_AWAITED];
	unsigned n = q->n < LOOK_PEERS ? q->n : LOOK_PEERS;
	uint64_t now = os_now_ns(), pause;
	struct shm_peer *p;

	while (n-- && (p = shm_queue_take(SHM_AWAITED))) {
		shm_alive_check(p);
		if (p->dead || p->warmth != SHM_COLD || !peer_is_awaited(p))
			continue;
		shm_queue_add(SHM_AWAITED, p);
		/* it may not know of the session, and then never replies */
		if (shm_peer_owes_reply(p) && now - p->opened_at > SECOND_NS)
			shm_cold_warm(p);
	}
	if (!q->n)
		return;
	pause = now - rds_shm.await_since;
	pause = (pause < SECOND_NS ? pause : SECOND_NS) / (q->n / LOOK_PEERS + 1);
	rds_timer_set(tm, now + (pause > TICK_NS ? pause : TICK_NS));
}

/* ---- memory ---- */

void shm_alive_look_at_others(void)
{
	struct shm *s = &rds_shm;

	if (!s->ncold)
		return;
	s->looks += LOOK_OTHERS;
	s->look_pause = LOOK_FIRST_NS;
	timer_need_by(&s->look_timer, os_now_ns() + SECOND_NS);
}

/* The next of all peers, in turn.  There is one. */
static struct shm_peer *peer_in_turn(struct shm *s)
{
	struct shm_peer *p = s->look_next ? s->look_next : s->peers;

	s->look_next = p->next;
	return p;
}

static void look_at_others(struct rds_timer *tm)
{
	struct shm *s = &rds_shm;
	struct shm_peer *p;
	unsigned n;

	if (!s->looks) { /* it was quiet for look_pause */
		s->looks = s->ncold;
		s->look_pause = s->look_pause < LOOK_LAST_NS / 2 ? 2 * s->look_pause : LOOK_LAST_NS;
	}
	for (n = LOOK_PEERS; n && s->looks && s->ncold; n--) {
		p = peer_in_turn(s);
		if (p->dead || p->warmth != SHM_COLD)
			continue;
		s->looks--;
		shm_alive_check(p);
	}
	if (s->looks > s->ncold)
		s->looks = s->ncold;
	if (s->ncold) /* events of others come first */
		rds_timer_set(tm, os_now_ns() + (s->looks ? 0 : s->look_pause));
}

void shm_alive_init(void)
{
	rds_shm.await_timer.fn = await_look;
	rds_shm.look_timer.fn = look_at_others;
}
