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
 *
 * The helper makes the sets, and alone changes what is in them, since a set knows a descriptor by its
 * number, too.  A thread of the program has numbers of the sets as it has of the sockets (fds.c).  As
 * long as it has none, the helper watches.
 *
 * Without an endpoint nobody looks or watches.  The helper's round in which the first one comes up ends
 * with a look at whom it wakes.
 */
#include "engine/transport/tcp/tcp.h"

#define BATCH 64

static int wake_set(void)
{
	return os_fd(&rds_tcp_state.set.fd);
}

static int wake_out_set(void)
{
	return os_fd(&rds_tcp_state.out_set.fd);
}

/* A thread with the helper's table. */
static void wake_helper_watch(void)
{
	bool on = rds_tcp_state.helper_hears;

	if (rds_tcp_state.helper_watches == on)
		return;
	rds_tcp_state.helper_watches = on;
	if (!on)
		rds_helper_event_del(wake_set());
	else if (rds_helper_event_add(&rds_tcp_state.event, os_fd_slot(&rds_tcp_state.set.fd), EPOLLIN))
		rds_error("the helper cannot watch for messages over TCP: they may be noticed late");
}

/* The round that follows every event looks. */
static void wake_event(struct rds_helper_event *ev, uint32_t events)
{
	(void)ev;
	(void)events;
	rx_lock();
	wake_helper_watch();
	if (rds_tcp_state.helper_hears)
		rds_transport_wakes.helper_woken();
	rx_unlock();
}

/* The same for one that came before that. */
static void wake_hear(struct rds_deferred_call *c)
{
	(void)c;
	rx_lock();
	wake_helper_watch();
	rx_unlock();
}

static int wake_sets_make(void)
{
	_Atomic int *set = &rds_tcp_state.set.fd.n[os_fd_table], *out = &rds_tcp_state.out_set.fd.n[os_fd_table];
	struct epoll_event e = {.events = EPOLLIN};
	int err = os_dup_high_slot(os_epoll_create(), out);

	if (!err)
		err = os_dup_high_slot(os_epoll_create(), set);
	if (!err) {
		os_fds_hold();
		err = os_epoll_ctl(atomic_load(set), EPOLL_CTL_ADD, atomic_load(out), &e);
		os_fds_release();
	}
	if (err) {
		os_close_slot(set);
		os_close_slot(out);
	}
	return err;
}

int tcp_wake_open(void)
{
	int err;

	if (atomic_load(&rds_tcp_state.has_sets))
		return 0;
	tcp_fd_init(&rds_tcp_state.set, NULL);
	tcp_fd_init(&rds_tcp_state.out_set, NULL);
	err = wake_sets_make();
	if (err)
		return err;
	rds_tcp_state.event.fn = wake_event;
	rds_tcp_state.hear.fn = wake_hear;
	atomic_store(&rds_tcp_state.has_sets, true);
	return 0;
}

/* ---- endpoints ---- */

/* A thread with the helper's table.  The list of internal descriptors is held, so no number changes. */
static int wake_sets_add(struct tcp_ep *ep, int fd)
{
	struct epoll_event in = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = ep};
	struct epoll_event out = {.events = EPOLLOUT | EPOLLET, .data.ptr = ep};
	int err = os_epoll_ctl(wake_out_set(), EPOLL_CTL_ADD, fd, &out);

	return err ? err : os_epoll_ctl(wake_set(), EPOLL_CTL_ADD, fd, &in);
}

static void wake_sets_del(int fd)
{
	os_epoll_ctl(wake_set(), EPOLL_CTL_DEL, fd, NULL);
	os_epoll_ctl(wake_out_set(), EPOLL_CTL_DEL, fd, NULL);
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
	err = wake_sets_add(ep, tcp_ep_fd(ep));
	ep->in_sets = !err;
	if (err)
		wake_sets_del(tcp_ep_fd(ep));
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
	wake_sets_del(tcp_ep_fd(ep));
	ep->in_sets = false;
	os_fds_release();
	rds_tcp_state.nup--;
	wake_find_only();
}

/*
 * Any thread, where the helper has the program's table; the list is held.  An event that is lost with the
 * old entry is told by the new one.
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
	int fd = tcp_fd_here(&rds_tcp_state.out_set), n = fd < 0 ? 0 : os_epoll_wait(fd, evs, BATCH, 0), i;

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
	int fd = tcp_fd_here(&rds_tcp_state.set), n = fd < 0 ? 0 : os_epoll_wait(fd, evs, BATCH, 0), i;

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
	return rds_tcp_state.nup && (tcp_recv_awaits() || tcp_wake_look());
}

/* ---- whom it wakes ---- */

/* A thread with another table has the helper begin to watch.  The end can wait for the next event. */
static void wake_helper_hears(bool on)
{
	rds_tcp_state.helper_hears = on;
	if (os_fd_table || !rds_helper_has_own_table())
		wake_helper_watch();
	else if (on && !rds_tcp_state.helper_watches)
		rds_helper_defer(&rds_tcp_state.hear);
}

/* A helper with a table of its own leaves it to the leader: if the relay has fired, the leader is awake. */
static bool wake_relay(void)
{
	int efd = rds_helper_relay_fd(), set;

	if (os_fd_table)
		return rds_tcp_state.relayed;
	set = efd < 0 ? -1 : tcp_fd_here(&rds_tcp_state.set);
	return set >= 0 && os_poll_eventfd_arm(&rds_tcp_state.relay, set, efd) == 0;
}

/* Else no thread of the program sees what there is. */
static bool wake_program_sees(void)
{
	if (!os_fd_table)
		return tcp_fd_here(&rds_tcp_state.set) >= 0 && tcp_fd_here(&rds_tcp_state.out_set) >= 0;
	return atomic_load(&rds_tcp_state.set.fd.n[0]) >= 0 && atomic_load(&rds_tcp_state.out_set.fd.n[0]) >= 0;
}

void tcp_wake_attention(struct rds_transport *t, enum rds_attention who)
{
	(void)t;
	if (who == RDS_ATT_LEADER || who == RDS_ATT_NAMED || who == RDS_ATT_HELPER)
		rds_transport_batch_flush();
	os_poll_eventfd_fired(&rds_tcp_state.relay);
	if (!atomic_load(&rds_tcp_state.has_sets))
		return;
	if (!rds_tcp_state.nup) {
		rds_tcp_state.relayed = false;
		wake_helper_hears(false);
		return;
	}
	rds_tcp_state.relayed = (who == RDS_ATT_LEADER || who == RDS_ATT_NAMED) && wake_relay();
	wake_helper_hears((who >= RDS_ATT_LEADER && !rds_tcp_state.relayed) || !wake_program_sees());
}
