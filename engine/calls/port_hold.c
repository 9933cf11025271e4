/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * port_hold.c - the port name of a bound socket, if other users may join the node
 * (node/port_name.c): made with the binding, shown when messages find the socket, closed before the
 * registry forgets the port. Who looks for the port connects to the name; the helper takes such
 * connections out of the queue and closes them.
 *
 * A socket that several processes have keeps the name in its mailbox, and the next owner finds it
 * there (share/mailbox.c). Where there was none, that owner takes the name again. If another
 * user was faster, the port stays this user's own, and the other user's for everybody else.
 */
#include "engine/calls/port_hold.h"

#include "engine/sys/log.h"

static void port_hold_event(struct rds_helper_event *ev, uint32_t events)
{
	struct rds_sock *sk = container_of(ev, struct rds_sock, port_ev);
	unsigned most = RDS_EVENT_MAX;
	int fd = 0;

	(void)events;
	/* the rest goes with the next connection */
	while (most-- && fd >= 0) {
		fd = os_accept4(atomic_load(&sk->port_fd), SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0)
			os_close(fd);
	}
}

int rds_call_port_open(struct rds_sock *sk)
{
	int err;

	if (!registry_has_others() || atomic_load(&sk->port_fd) >= 0)
		return 0;
	err = os_dup_high_slot(os_socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), &sk->port_fd);
	if (err)
		rds_warn_once("an RDS socket cannot be bound, because its port needs a descriptor: " RDS_LOG_EMFILE);
	return err ? -ENOMEM : 0;
}

void rds_call_port_show(struct rds_sock *sk, bool moved)
{
	int fd = atomic_load(&sk->port_fd), err;

	if (fd < 0)
		return;
	registry_port_show(rds_node_registry, &sk->laddr.ip, sk->laddr.port, sk->laddr.scope, fd, moved);
	sk->port_ev.fn = port_hold_event;
	err = rds_helper_event_add(&sk->port_ev, &sk->port_fd, EPOLLIN | EPOLLET);
	if (err && err != -EEXIST) /* shown a second time */
		rds_warn_once("port %u is not watched (%s): messages of other users to it may have to wait. Give "
			      "the kernel more memory, or raise sysctl fs.epoll.max_user_watches",
			      sk->laddr.port, strerror(-err));
	if (os_fd(&sk->mailbox_fd) >= 0)
		rds_sock_events.port_shown(sk);
}

void rds_call_port_close(struct rds_sock *sk, bool hide)
{
	int fd = atomic_load(&sk->port_fd);

	if (fd < 0)
		return;
	if (hide)
		registry_port_hide(rds_node_registry, &sk->laddr.ip, sk->laddr.port, sk->laddr.scope);
	/* another process may have a copy of it, so its end is not the end of the event */
	rds_helper_event_del(fd);
	os_close_slot(&sk->port_fd);
	sk->port_kept = false;
}

void rds_call_port_take(struct rds_sock *sk)
{
	bool held;
	int err;

	if (!rds_sock_bound(sk) || !registry_has_others())
		return;
	held = atomic_load(&sk->port_fd) >= 0;
	err = rds_call_port_open(sk);
	if (!err && !held)
		err = registry_port_hold(rds_node_registry, &sk->laddr.ip, sk->laddr.port, sk->laddr.scope,
					 atomic_load(&sk->port_fd));
	if (!err) {
		rds_call_port_show(sk, true);
		return;
	}
	rds_call_port_close(sk, false);
	rds_warn("port %u of an RDS socket that this process has taken over is %s: only processes of this user can "
		 "send to it. Bind a new socket",
		 sk->laddr.port, err == -EADDRINUSE ? "another user's by now" : "not shown to other users");
}
