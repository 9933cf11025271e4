/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * endpoint.c - an endpoint's life: made, up, broken, down, closed, freed.
 *
 * Runs on the helper, except tcp_ep_broken().  All memory is freed from a timer, so a function that
 * is working with an endpoint cannot lose it.  Must not know how a connection comes about.
 */
#include <stdlib.h>

#include "engine/transport/tcp/tcp.h"

#define AGAIN_NS (10 * 1000000ull)
#define AGAIN_MAX_NS (640 * 1000000ull)

static void ep_broken_timer(struct rds_timer *tm)
{
	struct tcp_ep *ep = container_of(tm, struct tcp_ep, broken);

	tcp_ep_down(ep, atomic_load(&ep->why));
}

/*
 * A thread of the program has no number of the socket, or has closed it: what it wanted to do is done
 * here and in the round that follows.
 */
static void ep_serve(struct tcp_fd *f)
{
	struct tcp_ep *ep = container_of(f, struct tcp_ep, sock);

	if (atomic_load(&ep->state) == TCP_EP_CLOSED) {
		rds_timer_set(&ep->broken, os_now_ns());
		return;
	}
	rx_lock();
	if (atomic_load(&ep->state) == TCP_EP_UP) {
		tcp_ack_event(ep);
		ep->head.t->up->push_later(ep->head.conn);
	}
	rx_unlock();
}

struct tcp_ep *tcp_ep_new(const struct rds_conn_id *id, struct rds_conn *conn)
{
	struct tcp_ep *ep = calloc(1, sizeof(*ep));

	if (!ep)
		return NULL;
	ep->head.t = &rds_tcp;
	ep->head.conn = conn;
	ep->in.budget = &rds_tcp_state.strangers;
	ep->id = *id;
	tcp_fd_init(&ep->sock, ep_serve);
	ep->event.fn = tcp_connect_event;
	ep->deadline.fn = tcp_connect_deadline;
	ep->broken.fn = ep_broken_timer;
	ep->room.fn = tcp_room_timer;
	ep->next = rds_tcp_state.all;
	rds_tcp_state.all = ep;
	return ep;
}

static void ep_unlink(struct tcp_ep *ep)
{
	struct tcp_ep **p;

	for (p = &rds_tcp_state.all; *p; p = &(*p)->next)
		if (*p == ep) {
			*p = ep->next;
			return;
		}
}

void tcp_ep_discard(struct tcp_ep *ep)
{
	rds_timer_cancel(&ep->deadline);
	tcp_ep_close_fd(ep);
	ep_unlink(ep);
	free(ep);
}

/* ---- its descriptor ---- */

/* Only where the helper has the program's table: a number of its own stays. */
static void ep_fd_moved(void *arg, int oldfd, int newfd)
{
	struct tcp_ep *ep = arg;

	if (oldfd < 0)
		return;
	atomic_store(&ep->sock.fd.n[0], newfd);
	tcp_wake_moved(ep, oldfd, newfd);
}

int tcp_ep_set_fd(struct tcp_ep *ep, int fd)
{
	_Atomic int *slot = &ep->sock.fd.n[os_fd_table];
	int err;

	fd = os_dup_high(fd);
	if (fd < 0)
		return fd;
	atomic_store(slot, fd);
	err = os_fd_table ? 0 : os_fd_register_hook(slot, ep_fd_moved, ep);
	if (err)
		tcp_ep_close_fd(ep);
	return err;
}

void tcp_ep_close_fd(struct tcp_ep *ep)
{
	int fd = tcp_ep_fd(ep);

	if (fd < 0)
		return;
	tcp_ep_unwatch(ep);
	/* the program, or a forked child, may have a copy for a while: it must not keep the connection open */
	os_shutdown(fd, SHUT_RDWR);
	tcp_fd_close(&ep->sock);
}

int tcp_ep_watch(struct tcp_ep *ep, uint32_t events)
{
	int err;

	tcp_ep_unwatch(ep);
	err = rds_helper_event_add(&ep->event, os_fd_slot(&ep->sock.fd), events);
	ep->watched = !err;
	return err;
}

void tcp_ep_unwatch(struct tcp_ep *ep)
{
	if (ep->watched)
		rds_helper_event_del(tcp_ep_fd(ep));
	ep->watched = false;
}

/* ---- up ---- */

static void ep_note_ports(struct tcp_ep *ep)
{
	struct rds_addr addr;

	if (!tcp_sock_addr(tcp_ep_fd(ep), false, &addr))
		ep->lport = addr.port;
	if (!tcp_sock_addr(tcp_ep_fd(ep), true, &addr))
		ep->fport = addr.port;
}

void tcp_ep_up(struct tcp_ep *ep)
{
	int err;

	rds_timer_cancel(&ep->deadline);
	tcp_ep_unwatch(ep);
	ep_note_ports(ep);
	tcp_kept_keep(ep, tcp_ep_fd(ep));
	rx_lock();
	atomic_store(&ep->state, TCP_EP_UP);
	rx_unlock();
	ep->head.t->up->up(ep->head.conn, (struct rds_ep *)ep, (struct rds_received){0});
	/* the engine closed it in the up-call; it is freed by a timer at the earliest */
	if (ep->over)
		return;
	rx_lock();
	err = tcp_wake_add(ep);
	rx_unlock();
	if (err)
		tcp_ep_broken(ep, err);
	/* each host sends its congestion map at once */
	rds_timer_set(&ep->deadline, os_now_ns() + rds_patience_ns(RDS_PATIENCE_TCP_SPEAK));
}

/* ---- down ---- */

void tcp_ep_broken(struct tcp_ep *ep, int why)
{
	int was = TCP_EP_UP, none = 0;

	atomic_compare_exchange_strong(&ep->why, &none, why);
	if (atomic_compare_exchange_strong(&ep->state, &was, TCP_EP_BROKEN))
		rds_timer_set(&ep->broken, os_now_ns());
}

/*
 * The peer counts as received what our TCP has acknowledged, and does not send it again.  So from here on
 * TCP acknowledges nothing more, and all that has come is received before the endpoint goes.  False: not
 * all of it could be: once more after a while.
 */
static bool ep_received_all(struct tcp_ep *ep)
{
	bool all;

	atomic_store(&ep->acked_before_end, tcp_ack_bytes(ep));
	os_shutdown(tcp_ep_fd(ep), SHUT_RDWR);
	rx_lock();
	all = tcp_recv_last(ep);
	rx_unlock();
	return all;
}

void tcp_ep_hang_up(struct rds_ep *ep)
{
	tcp_ep_broken((struct tcp_ep *)ep, -ECONNRESET);
}

/* The ready list offers it again all the time; this only ends the endpoint, and costs more. */
static void ep_down_later(struct tcp_ep *ep)
{
	ep->down_pause = ep->down_pause ? 2 * ep->down_pause : AGAIN_NS;
	if (ep->down_pause > AGAIN_MAX_NS)
		ep->down_pause = AGAIN_MAX_NS;
	rds_timer_set(&ep->broken, os_now_ns() + ep->down_pause);
}

void tcp_ep_down(struct tcp_ep *ep, int why)
{
	if (ep->over)
		return;
	rds_timer_cancel(&ep->deadline);
	if (atomic_load(&ep->state) == TCP_EP_BROKEN && why != -EPROTO && !ep_received_all(ep) &&
	    atomic_load(&ep->why) != -EPROTO) {
		ep_down_later(ep);
		return;
	}
	ep->over = true;
	rds_timer_cancel(&ep->broken);
	/* the engine closes ep in this call */
	ep->head.t->up->down(ep->head.conn, (struct rds_ep *)ep, why, false);
}

/* ---- closed, freed ---- */

static void ep_free_timer(struct rds_timer *tm)
{
	struct tcp_ep *ep = container_of(tm, struct tcp_ep, broken);

	/* tcp_ep_keep() sets it again, and ep_serve() does */
	if (ep->kept || !tcp_fd_is_free(&ep->sock))
		return;
	ep_unlink(ep);
	tcp_out_free(&ep->out);
	free(ep);
}

void tcp_ep_close(struct rds_ep *rep)
{
	struct tcp_ep *ep = (struct tcp_ep *)rep;

	ep->over = true;
	rx_lock();
	atomic_store(&ep->state, TCP_EP_CLOSED);
	tcp_wake_del(ep);
	rds_transport_batch_cancel(&ep->batch);
	tcp_recv_drop(ep);
	tcp_kept_end(ep);
	rx_unlock();
	/* from now on no other thread sets one of them */
	rds_timer_cancel(&ep->deadline);
	rds_timer_cancel(&ep->room);
	rds_timer_cancel(&ep->broken);
	tcp_ep_close_fd(ep);
	ep->broken.fn = ep_free_timer;
	rds_timer_set(&ep->broken, os_now_ns());
}

void tcp_ep_keep(struct rds_ep *rep, bool on)
{
	struct tcp_ep *ep = (struct tcp_ep *)rep;

	ep->kept = on;
	if (!on && atomic_load(&ep->state) == TCP_EP_CLOSED)
		rds_timer_set(&ep->broken, os_now_ns());
}
