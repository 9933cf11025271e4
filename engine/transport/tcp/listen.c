/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * listen.c - the listeners: one for each address to which a socket of this process was bound.
 *
 * Not one for all addresses: another process may have others of the host's.  A listener stays, since
 * the address will be bound again, most likely, and peers notice nothing in between.
 */
#include <stdlib.h>

#include "engine/sys/options.h"
#include "engine/transport/tcp/tcp.h"

#define PAUSE_NS (100 * 1000000ull)

static struct tcp_listener *listen_find(const struct in6_addr *laddr, uint32_t scope)
{
	struct tcp_listener *l;

	for (l = atomic_load(&rds_tcp_state.listeners); l; l = l->next)
		if (rds_ip_equal(&l->laddr, laddr) && l->scope == scope)
			return l;
	return NULL;
}

/* The event would come again and again as long as the connection waits. */
static void listen_pause(struct tcp_listener *l, int err)
{
	rds_warn("connections over TCP cannot be taken (%s): tried again%s", strerror(-err),
		 err == -EMFILE || err == -ENFILE ? "; " RDS_LOG_EMFILE : "");
	rds_helper_event_del(atomic_load(&l->fd));
	rds_timer_set(&l->again, os_now_ns() + PAUSE_NS);
}

static void listen_again(struct rds_timer *tm)
{
	struct tcp_listener *l = container_of(tm, struct tcp_listener, again);

	if (rds_helper_event_add(&l->event, &l->fd, EPOLLIN))
		rds_timer_set(tm, os_now_ns() + PAUSE_NS);
}

static bool accept_is_transient(int err)
{
	return err == -EAGAIN || err == -EINTR || err == -ECONNABORTED;
}

static void listen_event(struct rds_helper_event *ev, uint32_t events)
{
	struct tcp_listener *l = container_of(ev, struct tcp_listener, event);
	unsigned most = RDS_EVENT_MAX; /* level triggered: the event comes again for the rest */
	int fd;

	(void)events;
	while (most--) {
		fd = os_accept4(atomic_load(&l->fd), SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			tcp_rules_accepted(fd, l);
			continue;
		}
		if (fd == -EMFILE && rds_helper_reserve_release())
			continue;
		if (!accept_is_transient(fd))
			listen_pause(l, fd);
		return;
	}
}

static int listen_failed(const struct in6_addr *laddr, int err)
{
	char at[RDS_ADDR_STRLEN];

	rds_ip_str(laddr, at);
	if (err != -EADDRINUSE)
		rds_warn_once("TCP port %u of %s cannot be opened (%s): this process reaches no other host from there",
			      rds_tcp_state.port, at, strerror(-err));
	return err;
}

static int listen_open(struct tcp_listener *l)
{
	int fd = tcp_sock_listen(&l->laddr, l->scope), err;

	if (fd < 0)
		return fd;
	err = os_dup_high_slot(fd, &l->fd);
	if (err < 0)
		return err;
	err = rds_helper_event_add(&l->event, &l->fd, EPOLLIN);
	if (err)
		os_close_slot(&l->fd);
	return err;
}

int tcp_listen_claims(struct rds_transport *t, const struct in6_addr *laddr, uint32_t scope)
{
	char at[RDS_ADDR_STRLEN];
	struct tcp_listener *l;
	int err;

	(void)t;
	if (listen_find(laddr, scope))
		return 1;
	err = tcp_wake_open();
	if (err)
		return listen_failed(laddr, err);
	l = calloc(1, sizeof(*l));
	if (!l)
		return listen_failed(laddr, -ENOMEM);
	l->event.fn = listen_event;
	l->again.fn = listen_again;
	l->laddr = *laddr;
	l->scope = scope;
	atomic_store(&l->fd, -1);
	err = listen_open(l);
	if (err) {
		free(l);
		return listen_failed(laddr, err);
	}
	l->next = atomic_load(&rds_tcp_state.listeners);
	atomic_store(&rds_tcp_state.listeners, l);
	rds_info("TCP port %u of %s is open to RDS nodes of other hosts (%s)", rds_tcp_state.port,
		 rds_ip_str(laddr, at),
		 strcmp(rds_options()->transport, "auto") ? "RDS_PRELOAD_TRANSPORT=tcp"
							  : "RDS_PRELOAD_TCP=0 keeps it closed");
	return 1;
}
