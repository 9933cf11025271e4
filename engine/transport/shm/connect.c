/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * connect.c - connections over a control socket that stands (peer.c): asked for, answered, up, down, closed.
 *
 * A connection is an endpoint on each side and ring memory between them.  The initiator makes the memory and sends it with
 * CONNECT, under a number (cookie) of its own; REPLY says whether the other side took it and by which bell to ring it.  CLOSE
 * tells of an endpoint that was given up while the control socket stands.
 *
 * An endpoint is on its peer's list until it is closed, and its memory lives on while messages in it are in use.  Runs in the
 * helper thread only, but for shm_ep_break().  Must not know who may talk to us, nor how peers are found.
 */
#include <stdlib.h>

#include "engine/transport/shm/shm.h"

#define LAST_TRIES 100

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

/* Here only: what the peer knows of it is the caller's to say. */
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
		if (!p->dead && shm_ctl_queue(p, &msg)) /* it would wait for ever for what we do not send */
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

static void shm_ep_up(struct shm_ep *ep, uint64_t ack)
{
	ep->there = ep->peer->inbox;
	atomic_store(&ep->rx->fetches, ep->peer->fetched);
	rx_lock();
	ep->up = true;
	shm_bell_ring_own(ep); /* the peer was up before us: its bell may have rung in vain */
	rx_unlock();
	ep->head.t->up->up(ep->head.conn, (struct rds_ep *)ep, ack);
}

/*
 * What the peer had published is still received, but not what one that lives goes on publishing: it could do so for ever.  If memory is short,
 * it may be the last chance to do so.  And what nobody has read yet is moved out of the ring: else a message of one byte would keep megabytes of
 * addresses and the pages that were touched there.
 */
void shm_ep_down(struct shm_ep *ep, int why, bool gone)
{
	struct rds_transport *t = ep->head.t;
	unsigned tries = LAST_TRIES;
	uint64_t tail;

	rx_lock();
	tail = ep->up ? atomic_load(&ep->rx->tail) : ep->read;
	while (!ep->broken && (int64_t)(tail - ep->read) > 0)
		if (!shm_ring_drain(ep) && (!gone || --tries == 0))
			break;
	t->up->evacuate(ep->head.conn, (struct rds_ep *)ep);
	rx_unlock();
	if (!tries)
		rds_error("out of memory: messages of a process that has ended are lost");
	t->up->down(ep->head.conn, (struct rds_ep *)ep, why, gone); /* closes ep */
}

/* rx held. The helper tears everything down in its own time. */
void shm_ep_break(struct shm_ep *ep)
{
	ep->broken = true;
	if (ep->peer)
		shm_peer_defer(ep->peer, SHM_DEFER_BREAK);
}

/* ---- asked for by us, or by the peer ---- */

int shm_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, uint64_t rx_seq,
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
	err = shm_rings_create(ep, (uint32_t)rds_options()->shm_ring, &fd);
	if (!err) {
		msg.laddr = id->laddr;
		msg.faddr = id->faddr;
		msg.scope = id->scope;
		msg.tos = id->tos;
		msg.bell = ep->bell_here;
		msg.rx_seq = rx_seq;
		msg.ring = ep->size;
		msg.cookie = ep->cookie;
		err = shm_ctl_try(p, &msg, &fd, 1);
		os_close(fd);
	}
	if (err) {
		shm_ep_unmake(ep); /* the peer has not heard of it */
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
	id.peer = p->id;
	id.peer_slot = p->slot;
	ep = shm_ep_new(p, t, false);
	if (!ep)
		why = -ENOMEM;
	if (!why)
		why = shm_rings_attach(ep, msg->ring, fds[0]);
	if (!why) {
		ep->cookie = msg->cookie;
		ep->bell_there = msg->bell;
		ep->head.conn = t->up->accept(t, (struct rds_ep *)ep, &id, msg->rx_seq, &reply.rx_seq, &why);
	}
	reply.err = why;
	reply.cookie = msg->cookie;
	reply.bell = ep ? ep->bell_here : 0;
	reply.peer_bell = msg->bell;
	if (why && ep)
		shm_ep_unmake(ep); /* the reply says it all */
	err = shm_ctl_queue(p, &reply);
	if (!err && !why)
		shm_ep_up(ep, msg->rx_seq);
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

	if (!ep) /* given up meanwhile: the peer has been told by CLOSE */
		return 0;
	if (!p->known || ep->up || msg->bell >= SHM_BELLS)
		return -EPROTO;
	if (msg->err) {
		ep->head.t->up->down(ep->head.conn, (struct rds_ep *)ep, msg->err < 0 ? msg->err : -EPROTO, false);
		return 0;
	}
	ep->bell_there = msg->bell;
	shm_ep_up(ep, msg->rx_seq);
	return 0;
}

void shm_on_close(struct shm_peer *p, const struct shm_ctl_msg *msg)
{
	struct shm_ep *ep = shm_ep_find_cookie(p, msg->cookie, !msg->tos);

	if (ep)
		shm_ep_down(ep, -ECONNRESET, false);
}
