/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * connect.c - attempts of this side.
 *
 * Of two addresses the smaller one connects.  The larger one only asks for that: it connects and
 * closes at once (a poke), and waits for the peer's connection, which rules.c gives to the endpoint
 * that waits.
 *
 * A peer that does not want the connection closes it before it has sent anything; one that does
 * sends its congestion map at once.  So the smaller one's connection stands with the first byte from
 * the peer, not before.
 */
#include "engine/transport/tcp/tcp.h"

static void connect_within(struct tcp_ep *ep, enum rds_patience most)
{
	rds_timer_set(&ep->deadline, os_now_ns() + rds_patience_ns(most));
}

/*
 * The peer may have sent something already, and be gone: our TCP has acknowledged that, so the peer does not send
 * it again.
 */
static void connect_failed(struct tcp_ep *ep, int why)
{
	char byte;

	if (os_recv(tcp_ep_fd(ep), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
		tcp_ep_up(ep); /* it is read before the end of the connection is seen */
	else
		tcp_ep_down(ep, why);
}

void tcp_connect_deadline(struct rds_timer *tm)
{
	struct tcp_ep *ep = container_of(tm, struct tcp_ep, deadline);
	bool spoke;

	if (atomic_load(&ep->state) < TCP_EP_UP) {
		connect_failed(ep, -ETIMEDOUT);
		return;
	}
	rx_lock();
	spoke = ep->spoke;
	rx_unlock();
	if (!spoke)
		tcp_ep_broken(ep, -ETIMEDOUT);
}

/* The peer has been asked. */
static void connect_wait(struct tcp_ep *ep)
{
	tcp_ep_close_fd(ep);
	atomic_store(&ep->state, TCP_EP_WAITING);
	connect_within(ep, RDS_PATIENCE_TCP_POKE);
}

/* The connection stood, and the peer has ended it already. */
static bool connect_was_refused(int err)
{
	return err == -ECONNRESET || err == -EPIPE;
}

/* It may be refused already. A larger peer that does so has been asked all the same. */
static void connect_established(struct tcp_ep *ep)
{
	int err = tcp_sock_error(tcp_ep_fd(ep));
	bool stood = !err || connect_was_refused(err);

	if (stood && !tcp_is_smaller(&ep->id.laddr, &ep->id.faddr)) {
		connect_wait(ep);
		return;
	}
	if (!err) {
		atomic_store(&ep->state, TCP_EP_SILENT);
		err = tcp_ep_watch(ep, EPOLLIN | EPOLLRDHUP);
	}
	if (err)
		connect_failed(ep, stood ? -ECONNREFUSED : err);
}

/* The peer has said something, or has refused. */
static void connect_heard(struct tcp_ep *ep)
{
	char byte;
	ssize_t n = os_recv(tcp_ep_fd(ep), &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n > 0)
		tcp_ep_up(ep);
	else
		tcp_ep_down(ep, n && !connect_was_refused((int)n) ? (int)n : -ECONNREFUSED);
}

void tcp_connect_event(struct rds_helper_event *ev, uint32_t events)
{
	struct tcp_ep *ep = container_of(ev, struct tcp_ep, event);

	(void)events;
	/* an event that was fetched before the endpoint was closed, or came up */
	if (ep->over || !ep->watched)
		return;
	if (atomic_load(&ep->state) == TCP_EP_CONNECTING)
		connect_established(ep);
	else
		connect_heard(ep);
}

int tcp_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, struct rds_received here,
		struct rds_ep **out)
{
	struct tcp_ep *ep;
	int fd, err;

	(void)t;
	(void)here;
	if (rds_ip_equal(&id->laddr, &id->faddr))
		return -EADDRNOTAVAIL;
	ep = tcp_ep_new(id, conn);
	if (!ep)
		return -ENOMEM;
	fd = tcp_sock_new(id);
	err = fd < 0 ? fd : tcp_ep_set_fd(ep, fd);
	/* a larger one's connection brings nothing */
	if (!err && tcp_is_smaller(&id->laddr, &id->faddr))
		tcp_kept_keep(ep, tcp_ep_fd(ep));
	if (!err)
		err = tcp_sock_connect(tcp_ep_fd(ep), id);
	if (err == -EINPROGRESS)
		err = 0;
	if (!err) /* if it is connected already, the event comes at once */
		err = tcp_ep_watch(ep, EPOLLOUT);
	if (err) {
		tcp_ep_discard(ep);
		return err;
	}
	connect_within(ep, RDS_PATIENCE_TCP_CONNECT);
	*out = (struct rds_ep *)ep;
	return 0;
}
