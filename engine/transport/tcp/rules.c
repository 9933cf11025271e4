/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rules.c - what becomes of a connection that a peer has made.
 *
 * Anybody may connect, so an endpoint that works is not given up for a connection that comes: that
 * is refused.  But the peer may have restarted and know nothing of the old one.  Then the next thing
 * that is sent over that is answered with a reset.  So the engine is asked to send something, not
 * more often than once a second.
 */
#include "engine/transport/tcp/tcp.h"

#define ASK_PAUSE_NS (1000 * 1000000ull)
#define POKES 3
#define POKES_NS (10 * ASK_PAUSE_NS)

/* The endpoint that counts: not closed, nor about to be. */
static struct tcp_ep *rules_find(const struct rds_conn_id *id)
{
	struct tcp_ep *ep;

	for (ep = rds_tcp_state.all; ep; ep = ep->next)
		if (!ep->over && rds_ip_equal(&ep->id.faddr, &id->faddr) && rds_ip_equal(&ep->id.laddr, &id->laddr) &&
		    ep->id.scope == id->scope)
			return ep;
	return NULL;
}

static void rules_ask(struct tcp_ep *ep)
{
	uint64_t now = os_now_ns();

	if (ep->asked_at && now - ep->asked_at < ASK_PAUSE_NS)
		return;
	ep->asked_at = now;
	ep->head.t->up->asked(ep->head.t, &ep->id);
}

/*
 * A larger peer asks for a connection, and has one.  It may be late.  If it asks again and again and
 * sends nothing by the one that it has, that is of no use to it.
 */
static void rules_poked(struct tcp_ep *ep)
{
	uint64_t now = os_now_ns(), heard;

	rx_lock();
	heard = ep->heard;
	rx_unlock();
	if (!ep->pokes || heard != ep->heard_then || now - ep->poked_since > POKES_NS) {
		ep->pokes = 0;
		ep->poked_since = now;
		ep->heard_then = heard;
	}
	if (++ep->pokes >= POKES)
		tcp_ep_broken(ep, -ECONNRESET);
	else
		rules_ask(ep);
}

/* The peer's connection is the endpoint's. */
static void rules_take(struct tcp_ep *ep, int fd)
{
	int err;

	tcp_ep_close_fd(ep); /* the poke */
	err = tcp_ep_set_fd(ep, fd);
	if (err)
		tcp_ep_down(ep, err);
	else
		tcp_ep_up(ep);
}

static void rules_new(int fd, const struct rds_conn_id *id)
{
	struct tcp_ep *ep = tcp_ep_new(id, NULL);
	struct rds_received none = {0}, here;
	int why = -ENOMEM;

	if (!ep) {
		tcp_sock_refuse(fd);
		return;
	}
	ep->head.conn = ep->head.t->up->accept(ep->head.t, (struct rds_ep *)ep, id, none, &here, &why);
	if (ep->head.conn) {
		rules_take(ep, fd);
		return;
	}
	rds_debug("a connection over TCP is refused: %s", strerror(-why));
	tcp_sock_refuse(fd);
	tcp_ep_discard(ep);
	if (why == -ENOSPC)
		tcp_pressure_place(); /* the peer comes again */
}

/* The end of the old connection may have come before the request for another, and not been seen yet. */
static void rules_look(struct tcp_ep *ep)
{
	rx_lock();
	if (atomic_load(&ep->state) == TCP_EP_UP)
		tcp_recv_now(ep);
	rx_unlock();
}

static void rules_apply(int fd, const struct rds_conn_id *id)
{
	struct tcp_ep *ep = rules_find(id);
	bool larger = tcp_is_smaller(&id->laddr, &id->faddr);
	int state;

	if (ep)
		rules_look(ep);
	if (ep && atomic_load(&ep->state) == TCP_EP_BROKEN) {
		tcp_ep_down(ep, atomic_load(&ep->why));
		ep = rules_find(id);
	}
	state = ep ? atomic_load(&ep->state) : TCP_EP_CLOSED;
	if (!larger && !ep) {
		rules_new(fd, id);
		return;
	}
	if (!larger && state < TCP_EP_UP) {
		rules_take(ep, fd);
		return;
	}
	tcp_sock_refuse(fd);
	if (!ep)
		rds_tcp.up->asked(&rds_tcp, id);
	else if (larger && state == TCP_EP_UP)
		rules_poked(ep);
	else if (state == TCP_EP_UP)
		rules_ask(ep);
}

void tcp_rules_accepted(int fd, const struct tcp_listener *l)
{
	struct rds_conn_id id = {.laddr = l->laddr, .scope = l->scope, .peer_slot = RDS_SLOT_REMOTE};
	struct rds_addr from;
	int err = tcp_sock_addr(fd, true, &from);

	if (!err) {
		id.faddr = from.ip;
		err = tcp_sock_prepare(fd);
	}
	if (err || rds_ip_equal(&id.faddr, &id.laddr)) {
		tcp_sock_refuse(fd);
		return;
	}
	rules_apply(fd, &id);
}
