/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wake.c - which sockets have input or room, and which thread that wakes (rx held, unless a comment
 * says otherwise).
 *
 * All sockets that are up are in one epoll set, edge triggered: each change is told once, and
 * recv.c remembers where there may be more.  A second set, which the first one contains, tells of room
 * for output.  So one descriptor stands for the transport, and whoever has to be woken watches it:
 *
 *   HELPER   the helper
 *   LEADER   the kernel wakes the leader (relay).  Without a relay the helper, which wakes the leader
 *   LAZY     nobody: the program is expected back at once, and the helper looks each tick
 *   POLLING  nobody; a relay that is armed stays so
 */
#include "engine/transport/tcp/tcp.h"

#define BATCH 64

/* The round that follows every event looks. */
static void wake_event(struct rds_helper_event *ev, uint32_t events)
{
	(void)ev;
	(void)events;
	rx_lock();
	rds_transport_wakes.helper_woken();
	rx_unlock();
}

int tcp_wake_open(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	int err;

	if (atomic_load(&rds_tcp_state.set) >= 0)
		return 0;
	err = os_dup_high_slot(os_epoll_create(), &rds_tcp_state.out_set);
	if (err < 0)
		return err;
	err = os_dup_high_slot(os_epoll_create(), &rds_tcp_state.set);
	if (err >= 0) {
		os_fds_hold();
		err = os_epoll_ctl(rds_tcp_state.set, EPOLL_CTL_ADD, rds_tcp_state.out_set, &e);
		os_fds_release();
	}
	if (err < 0) {
		os_close_slot(&rds_tcp_state.set);
		os_close_slot(&rds_tcp_state.out_set);
		return err;
	}
	rds_tcp_state.event.fn = wake_event;
	return 0;
}

/* ---- endpoints ---- */

/* The list of internal descriptors is held, so no number changes. */
static int wake_sets_add(struct tcp_ep *ep, int fd)
{
	struct epoll_event in = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = ep};
	struct epoll_event out = {.events = EPOLLOUT | EPOLLET, .data.ptr = ep};
	int err = os_epoll_ctl(rds_tcp_state.out_set, EPOLL_CTL_ADD, fd, &out);

	return err ? err : os_epoll_ctl(rds_tcp_state.set, EPOLL_CTL_ADD, fd, &in);
}

static void wake_sets_del(int fd)
{
	os_epoll_ctl(rds_tcp_state.set, EPOLL_CTL_DEL, fd, NULL);
	os_epoll_ctl(rds_tcp_state.out_set, EPOLL_CTL_DEL, fd, NULL);
}

static void wake_find_only(void)
{
	struct tcp_ep *ep = rds_tcp_state.all;

	while (ep && !ep->in_sets)
		ep = ep->next;
	rds_tcp_state.only = rds_tcp_state.nup == 1 ? ep : NULL;
}

int tcp_wake_add(struct tcp_ep *ep)
{
	int err;

	os_fds_hold();
	err = wake_sets_add(ep, atomic_load(&ep->fd));
	ep->in_sets = !err;
	if (err)
		wake_sets_del(atomic_load(&ep->fd));
	os_fds_release();
	if (!err) {
		rds_tcp_state.nup++;
		wake_find_only();
	}
	return err;
}

void tcp_wake_del(struct tcp_ep *ep)
{
	if (!ep->in_sets)
		return;
	os_fds_hold();
	wake_sets_del(atomic_load(&ep->fd));
	ep->in_sets = false;
	os_fds_release();
	rds_tcp_state.nup--;
	wake_find_only();
}

/*
 * A set knows a socket by its number, too.  Any thread, the list is held; an event that is lost with
 * the old entry is told by the new one.
 */
void tcp_wake_moved(struct tcp_ep *ep, int oldfd, int newfd)
{
	if (!ep->in_sets)
		return;
	wake_sets_del(oldfd);
	wake_sets_add(ep, newfd);
}

/* ---- looking ---- */

/* Sockets that were full have room. */
static void wake_look_out(void)
{
	struct epoll_event evs[BATCH];
	int n = os_epoll_wait(rds_tcp_state.out_set, evs, BATCH, 0), i;

	for (i = 0; i < n; i++) {
		struct tcp_ep *ep = evs[i].data.ptr;

		if (atomic_exchange(&ep->backlog, false))
			ep->head.t->up->push_later(ep->head.conn);
		tcp_room_look(ep);
	}
}

static void wake_ep(struct tcp_ep *ep, uint32_t events)
{
	if (events & EPOLLERR)
		tcp_ack_event(ep);
	tcp_recv_ready(ep, events & (EPOLLRDHUP | EPOLLHUP));
}

bool tcp_wake_look(void)
{
	struct epoll_event evs[BATCH];
	int n = os_epoll_wait(rds_tcp_state.set, evs, BATCH, 0), i;

	for (i = 0; i < n; i++) {
		struct tcp_ep *ep = evs[i].data.ptr;

		if (ep)
			wake_ep(ep, evs[i].events);
		else
			wake_look_out();
	}
	return n > 0;
}

bool tcp_wake_pending(struct rds_transport *t)
{
	(void)t;
	return tcp_recv_awaits() || tcp_wake_look();
}

/* ---- whom it wakes ---- */

static void wake_helper_hears(bool on)
{
	if (rds_tcp_state.helper_hears == on)
		return;
	rds_tcp_state.helper_hears = on;
	if (!on)
		rds_helper_event_del(atomic_load(&rds_tcp_state.set));
	else if (rds_helper_event_add(&rds_tcp_state.event, &rds_tcp_state.set, EPOLLIN))
		rds_error("the helper cannot watch for messages over TCP: they may be noticed late");
}

void tcp_wake_attention(struct rds_transport *t, enum rds_attention who)
{
	int efd = rds_helper_relay_fd();
	bool relayed;

	(void)t;
	os_poll_eventfd_fired(&rds_tcp_state.relay);
	if (atomic_load(&rds_tcp_state.set) < 0)
		return;
	relayed = (who == RDS_ATT_LEADER || who == RDS_ATT_NAMED) && efd >= 0 &&
		  os_poll_eventfd_arm(&rds_tcp_state.relay, atomic_load(&rds_tcp_state.set), efd) == 0;
	wake_helper_hears(who >= RDS_ATT_LEADER && !relayed);
}
