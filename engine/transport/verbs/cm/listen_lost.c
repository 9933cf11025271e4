/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * listen_lost.c - detects that a listener of ours no longer receives requests
 * (docs/verbs-states.md, table H).
 *
 * siw (Linux 6.1 at least) closes a listening socket if a TCP connection to it ends before siw has
 * accepted it: until then the connection has the listener's callbacks, and its end is taken for
 * the listener's end.  A peer that is killed while it connects is enough.  rdma_cm is not told,
 * and every peer that connects from then on is refused.
 *
 * siw's ports are TCP ports, so TCP can be asked: it lets another socket bind a port if, and only
 * if, no socket listens there.  Connected sockets are no obstacle, as siw allows addresses to be
 * reused.  No connection is made for the test, as it could cause the same damage.  Where there are
 * several such devices, the loss is seen only when all of them have lost their listener.
 *
 * The id of a lost listener is not destroyed as long as this process lives, since siw has freed
 * memory that it would use then.  So the id keeps its port.
 */
#include "engine/transport/verbs/cm/cm.h"

#define LOOK_NS (2000 * 1000000ull)

static void listen_watch_timer(struct rds_timer *tm);

static struct rds_timer again = {.fn = listen_watch_timer};
/*
 * For IPv4, for IPv6: TCP has once reported a port of ours as in use, so its answers can be relied
 * on.
 */
static _Atomic bool known[2];

/* 0: no socket listens at the port; -EADDRINUSE: a socket does. */
static int listen_ask_tcp(int family, uint16_t port)
{
	struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
	bool v4 = family == AF_INET;
	_Atomic int fd = -1;
	int one = 1, err = os_dup_high_slot(os_socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), &fd);

	if (!err)
		err = os_setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (!err && !v4)
		err = os_setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (!err)
		err = os_bind(fd, v4 ? (void *)&sin : (void *)&sin6, v4 ? sizeof(sin) : sizeof(sin6));
	os_close_slot(&fd);
	return err;
}

static const int families[2] = {AF_INET, AF_INET6};

static bool listen_is_lost(struct rdma_cm_id *const ids[2], uint16_t port)
{
	bool lost = false;

	for (unsigned i = 0; i < 2; i++)
		lost |= ids[i] && known[i] && !listen_ask_tcp(families[i], port);
	return lost;
}

/*
 * Peers that know the old port learn the new one at the rendezvous port.  If there is no new
 * listener, there is no port to name until the next attempt.
 */
static void listen_replace(void)
{
	uint16_t port = 0;

	if (verbs_cm_listen(0, verbs_cm.listener, &port))
		port = 0;
	atomic_store(&verbs_cm.port, port);
	registry_set_cm_port(rds_node_registry, port);
}

static bool listen_may_get_lost(void)
{
	struct verbs_dev *dev;

	rx_lock();
	for (dev = atomic_load(&verbs_devs.all); dev && (dev->dead || !dev->caps.loses_listener); dev = dev->next)
		;
	rx_unlock();
	return dev;
}

static void listen_watch_timer(struct rds_timer *tm)
{
	if (!listen_may_get_lost())
		return;
	if (!verbs_cm.listener[0] || listen_is_lost(verbs_cm.listener, atomic_load(&verbs_cm.port))) {
		rds_info("a listener of rdma_cm was lost, as happens on siw: listening at another port");
		listen_replace();
	}
	if (listen_is_lost(verbs_rendezvous_ids(), (uint16_t)rds_options()->cm_port))
		rds_warn_once("port %d of rdma_cm receives no requests any more, as happens on siw: other hosts will "
			      "not find this one's sockets until it is booted again",
			      (int)rds_options()->cm_port);
	rds_timer_set(tm, os_now_ns() + LOOK_NS);
}

void verbs_cm_listen_watch(const struct verbs_dev *dev)
{
	if (!dev->caps.loses_listener)
		return;
	for (unsigned i = 0; i < 2; i++)
		if (listen_ask_tcp(families[i], atomic_load(&verbs_cm.port)) == -EADDRINUSE)
			known[i] = true;
	rds_timer_need(&again, os_now_ns() + LOOK_NS);
}

void verbs_cm_listen_watch_forget(void)
{
	again.queued = false;
	known[0] = known[1] = false;
}
