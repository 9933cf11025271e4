/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * connect.c - connections over an open control socket (peer.c): request, answer, up, down, close.
 *
 * A connection is an endpoint on each side and ring memory between them.  The initiator makes the
 * memory and sends it with CONNECT, under a number (cookie) that it chooses.  REPLY tells whether
 * the acceptor has taken it, and which bell rings the acceptor.  CLOSE tells that an endpoint was
 * given up while the control socket is open.
 *
 * An endpoint is on its peer's list until it is closed.  Its memory stays while messages in it are
 * in use.
 *
 * Helper thread only, except shm_ep_break().  Must not know which processes may connect, nor how
 * peers are found.
 */
#include <stdlib.h>

#include "engine/node/local_address.h"
#include "engine/transport/shm/shm.h"

/* ---- an endpoint's life ---- */

static struct shm_ep *shm_ep_new(struct shm_peer *p, struct rds_transport *t, bool initiator)
{
	struct shm_ep *ep = calloc(1, sizeof(*ep));
	int err;

	if (!ep)
		return NULL;
	ep->head.t = t;
	ep->initiator = initiator;
	rx_lock();
	err = shm_bell_add(ep);
	rx_unlock();
	if (err) {
		free(ep);
		return NULL;
	}
	ep->peer = p;
	ep->peer_next = p->eps;
	p->eps = ep;
	return ep;
}

/* Removes the endpoint on this side only.  The caller tells the peer if necessary. */
static void shm_ep_unmake(struct shm_ep *ep)
{
	struct shm_ep **pp = ep->peer ? &ep->peer->eps : NULL;

	for (; pp && *pp; pp = &(*pp)->peer_next)
		if (*pp == ep) {
			*pp = ep->peer_next;
			break;
		}
	rx_lock();
	shm_bell_del(ep);
	ep->peer = NULL;
	ep->closed = true;
	ep->up = false;
	if (ep->slot_first == ep->slot_next && !ep->kept)
		shm_ep_free(ep);
	rx_unlock();
}

void shm_close(struct rds_ep *rep)
{
	struct shm_ep *ep = (struct shm_ep *)rep;
	struct shm_peer *p = ep->peer;
	struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_CLOSE};

	if (p) {
		msg.cookie = ep->cookie;
		msg.peer_bell = ep->bell_there;
		msg.bell = ep->bell_here;
		msg.tos = ep->initiator; /* which of the two numberings `cookie` belongs to */
		/*
		 * Without CLOSE the peer would wait for messages for ever, so the peer is broken.
		 */
		if (!p->dead && shm_ctl_queue(p, &msg))
			shm_peer_defer(p, SHM_DEFER_BREAK);
	}
	shm_ep_unmake(ep);
}

void shm_keep(struct rds_ep *rep, bool on)
{
	struct shm_ep *ep = (struct shm_ep *)rep;

	rx_lock();
	ep->kept = on;
	if (!on && ep->closed && ep->slot_first == ep->slot_next)
		shm_ep_free(ep);
	rx_unlock();
}

static void shm_ep_up(struct shm_ep *ep, struct rds_received there)
{
	ep->there = ep->peer->inbox;
	atomic_store(&ep->watched, ep->peer->warmth != SHM_WARM);
	atomic_store(&ep->rx->fetches, ep->peer->fetched);
	rx_lock();
	ep->up = true;
	/* the peer was up earlier: a bell that it rang may have been ignored */
	shm_bell_ring_own(ep);
	rx_unlock();
	ep->head.t->up->up(ep->head.conn, (struct rds_ep *)ep, there);
	rx_lock();
	shm_settled();
	rx_unlock();
}

/*
 * Messages that the peer has published by now are still received.  Later ones of a living peer are
 * not: it could publish for ever.  If the peer is gone, and memory is short or they wait for those of
 * another one that has ended, receiving is tried several times, because this is the last chance.
 * Messages that the program has not read yet are moved out of the ring.  Otherwise a message of one byte
 * would keep megabytes of addresses and all pages that were touched there.
 */
void shm_ep_down(struct shm_ep *ep, int why, bool gone)
{
	struct rds_transport *t = ep->head.t;
	unsigned tries = SHM_LAST_TRIES;
	uint64_t tail;

	rx_lock();
	ep->last = gone;
	tail = ep->up ? atomic_load(&ep->rx->tail) : ep->read;
	while (!ep->broken && (int64_t)(tail - ep->read) > 0) {
		if (shm_ring_drain(ep))
			continue;
		if (!gone || --tries == 0)
			break;
		rx_unlock();
		shm_peers_make_way();
		rx_lock();
	}
	t->up->evacuate(ep->head.conn, (struct rds_ep *)ep);
	rx_unlock();
	if (!tries)
		rds_error("messages of a process that has ended are lost: they could not be taken");
	t->up->down(ep->head.conn, (struct rds_ep *)ep, why, gone); /* closes ep */
}

static void shm_ep_tell(struct shm_ep *ep)
{
	rx_lock();
	ep->told = true;
	rx_unlock();
}

/* rx held.  The helper breaks the peer later, with all its connections. */
void shm_ep_break(struct shm_ep *ep)
{
	ep->broken = true;
	if (ep->peer)
		shm_peer_defer(ep->peer, SHM_DEFER_BREAK);
}

/* ---- requests of this process and of the peer ---- */

int shm_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, struct rds_received here,
		struct rds_ep **out)
{
	struct shm_ctl_msg msg = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_CONNECT};
	struct shm_peer *p;
	struct shm_ep *ep;
	int fd = -1, err = shm_peer_get(id, &p);

	if (err)
		return err;
	ep = shm_ep_new(p, t, true);
	if (!ep)
		return -ENOMEM;
	ep->head.conn = conn;
	ep->cookie = ++rds_shm.next_cookie;
	do
		err = shm_rings_create(ep, (uint32_t)rds_options()->shm_ring, &fd);
	while (err == -EMFILE && shm_cold_make_room(p, true));
	if (!err) {
		msg.laddr = id->laddr;
		msg.faddr = id->faddr;
		msg.scope = id->scope;
		msg.tos = id->tos;
		msg.bell = ep->bell_here;
		msg.rx = here;
		msg.ring = ep->size;
		msg.cookie = ep->cookie;
		shm_ep_tell(ep);
		err = shm_ctl_try(p, &msg, &fd, 1);
		os_close(fd);
	}
	if (err) {
		shm_ep_unmake(ep); /* the peer does not know of it */
		return err;
	}
	*out = (struct rds_ep *)ep;
	return 0;
}

int shm_on_connect(struct shm_peer *p, const struct shm_ctl_msg *msg, const int *fds, unsigned nfds)
{
	struct shm_ctl_msg reply = {.magic = SHM_MAGIC, .version = SHM_VERSION, .op = SHM_OP_REPLY};
	struct rds_conn_id id = {.laddr = msg->faddr, .faddr = msg->laddr, .scope = msg->scope, .tos = msg->tos};
	struct rds_transport *t = &rds_shm.t;
	struct shm_ep *ep = NULL;
	int why = 0, err;

	if (!p->known || nfds != 1 || msg->bell >= SHM_BELLS)
		return -EPROTO;
	if (p == rds_shm.hearing) /* it has ended, and uses no ring any more */
		return 0;
	shm_cells_meet(t); /* else the connection would not begin with what has come of it */
	id.peer = p->id;
	id.peer_slot = p->slot;
	/* another user's process has no address but this host's */
	if (registry_slot_is_others(p->slot))
		why = rds_node_addr_is_local(&id.faddr, id.scope);
	if (why == -EADDRNOTAVAIL)
		why = -EACCES;
	ep = why ? NULL : shm_ep_new(p, t, false);
	if (!ep && !why)
		why = -ENOMEM;
	if (!why)
		why = shm_rings_attach(ep, msg->ring, fds[0]);
	if (!why) {
		ep->cookie = msg->cookie;
		ep->bell_there = msg->bell;
		ep->head.conn = t->up->accept(t, (struct rds_ep *)ep, &id, msg->rx, &reply.rx, &why);
	}
	reply.err = why;
	reply.cookie = msg->cookie;
	reply.bell = ep ? ep->bell_here : 0;
	reply.ring = ep ? ep->size : 0;
	reply.peer_bell = msg->bell;
	if (why && ep)
		shm_ep_unmake(ep); /* the reply tells the peer */
	if (!why)
		shm_ep_tell(ep);
	err = shm_ctl_queue(p, &reply);
	if (!err && !why)
		shm_ep_up(ep, msg->rx);
	return err;
}

static struct shm_ep *shm_ep_find_cookie(struct shm_peer *p, uint64_t cookie, bool initiator)
{
	struct shm_ep *ep;

	for (ep = p->eps; ep; ep = ep->peer_next)
		if (ep->cookie == cookie && ep->initiator == initiator)
			return ep;
	return NULL;
}

int shm_on_reply(struct shm_peer *p, const struct shm_ctl_msg *msg)
{
	struct shm_ep *ep = shm_ep_find_cookie(p, msg->cookie, true);
	int err;

	if (!ep) /* given up meanwhile: CLOSE has told the peer */
		return 0;
	/* it has ended, and used no ring: what came over the first endpoint is taken in the end */
	if (p == rds_shm.hearing && !atomic_load(&ep->rx->tail))
		return 0;
	if (!p->known || ep->up || msg->bell >= SHM_BELLS)
		return -EPROTO;
	if (msg->err) {
		ep->head.t->up->down(ep->head.conn, (struct rds_ep *)ep, msg->err < 0 ? msg->err : -EPROTO, false);
		return 0;
	}
	err = shm_rings_reduce(ep, msg->ring);
	if (err)
		return err;
	ep->bell_there = msg->bell;
	shm_ep_up(ep, msg->rx);
	return 0;
}

void shm_on_close(struct shm_peer *p, const struct shm_ctl_msg *msg)
{
	struct shm_ep *ep = shm_ep_find_cookie(p, msg->cookie, !msg->tos);

	if (ep)
		shm_ep_down(ep, -ECONNRESET, false);
}
