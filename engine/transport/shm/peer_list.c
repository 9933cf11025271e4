/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * peer_list.c - which peers there are: all, those that have a control socket, and those for which
 * something is left to be done.
 *
 * A process may have a thousand peers, most of which are idle.  What is done for each message, tick
 * or round looks only at those that it concerns.  The list of all is for a peer that comes.
 *
 * Helper thread only.  Must not know what is done with the peers.
 */
#include <stdlib.h>

#include "engine/transport/shm/shm.h"

void shm_peer_list_add(struct shm_peer *p)
{
	p->next = rds_shm.peers;
	rds_shm.peers = p;
}

static void dead_take_out(struct shm *s)
{
	struct shm_peer **pp = &s->peers, *p;

	s->any_dead = false;
	while ((p = *pp)) {
		if (!p->dead) {
			pp = &p->next;
			continue;
		}
		*pp = p->next;
		if (s->look_next == p)
			s->look_next = p->next;
		p->next = s->ended;
		s->ended = p;
	}
}

static bool peer_is_listed(const struct shm_peer *p)
{
	unsigned kind;

	for (kind = 0; kind < SHM_QUEUES; kind++)
		if (p->queue[kind].in)
			return true;
	return atomic_load(&p->recheck);
}

/* Between events: the helper has no pointer to a dead peer any more, nor goes through a list. */
void rds_shm_reclaim(void)
{
	struct shm_peer **pp = &rds_shm.ended, *p;

	if (rds_shm.any_dead)
		dead_take_out(&rds_shm);
	while ((p = *pp)) {
		if (peer_is_listed(p) || !shm_peer_idle(p)) {
			pp = &p->next;
			continue;
		}
		*pp = p->next;
		free(p->ev);
		free(p);
	}
}

/* ---- control sockets ---- */

void shm_open_add(struct shm_peer *p)
{
	p->open_next = rds_shm.open;
	rds_shm.open = p;
	rds_shm.nopen++;
}

void shm_open_del(struct shm_peer *p)
{
	struct shm_peer **pp;

	for (pp = &rds_shm.open; *pp; pp = &(*pp)->open_next)
		if (*pp == p) {
			*pp = p->open_next;
			rds_shm.nopen--;
			return;
		}
}

/* ---- queues ---- */

void shm_queue_add(enum shm_queue_kind kind, struct shm_peer *p)
{
	struct shm_queue *q = &rds_shm.queue[kind];

	if (p->queue[kind].in)
		return;
	p->queue[kind].in = true;
	p->queue[kind].next = NULL;
	if (q->first)
		q->last->queue[kind].next = p;
	else
		q->first = p;
	q->last = p;
	q->n++;
}

struct shm_peer *shm_queue_take(enum shm_queue_kind kind)
{
	struct shm_queue *q = &rds_shm.queue[kind];
	struct shm_peer *p = q->first;

	if (!p)
		return NULL;
	q->first = p->queue[kind].next;
	q->n--;
	p->queue[kind].in = false;
	return p;
}
