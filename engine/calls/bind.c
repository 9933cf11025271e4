/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * bind.c - binding a socket (net/rds/bind.c: rds_bind()).
 *
 * The node's registry tells which process owns a port.  The table in socket/bound.c tells which
 * socket of this process it is.  A binding becomes visible in three steps: the helper and its
 * listeners run, the registry shows the port, the table finds the socket.  sk->bound is released
 * last.  What a peer sends between the second and the third step finds no socket and is dropped, as
 * if it had come before the bind.
 *
 * All of bind runs under the control lock: two threads that bind one socket run one after the
 * other.
 */
#include "engine/conn/conn.h"
#include "engine/calls/names.h"
#include "engine/calls/port_hold.h"
#include "engine/node/local_address.h"
#include "engine/sys/patience.h"
#include "engine/progress/transports.h"
#include "engine/calls/start.h"

#define RDS_PROBE_PORT 1 /* multipath probes of RDS over TCP */

/* ---- bind ---- */

/* Not bound yet, and not connected with another scope.  control held. */
static int bind_check_state(const struct rds_sock *sk, const struct rds_addr *addr)
{
	if (!atomic_load(&sk->open))
		return -EBADF;
	if (rds_sock_bound(sk))
		return -EINVAL;
	if (atomic_load(&sk->connected) && addr->scope && sk->bound_scope && addr->scope != sk->bound_scope)
		return -EINVAL;
	return 0;
}

/*
 * An address that no device has, or whose socket asks for TCP.  That other hosts are not reached
 * from it is no error: this host is.
 */
static int bind_node_transport(const struct rds_addr *addr)
{
	int err;

	if (!rds_transport_set.node)
		return RDS_TRANS_TCP;
	err = rds_call_start_helper();
	if (err)
		return err;
	(void)rds_transports_claim_node(&addr->ip, addr->scope);
	return RDS_TRANS_TCP;
}

/*
 * For an address of this host: IB if the remote transport has a device for it.  Starts the helper.
 */
static int bind_local_transport(int preset, const struct rds_addr *addr)
{
	int ret;

	if (preset == RDS_TRANS_TCP || (preset == RDS_TRANS_NONE && !rds_transport_set.remote))
		return bind_node_transport(addr);
	ret = rds_call_start_helper();
	if (ret < 0)
		return ret;
	ret = rds_transports_claim(&addr->ip, addr->scope);
	if (ret > 0)
		return RDS_TRANS_IB;
	if (preset == RDS_TRANS_IB)
		return -ENOPROTOOPT;
	/*
	 * The device cannot be used.  If the user has chosen devices (RDS_PRELOAD_TRANSPORT=verbs),
	 * the program must learn that.  Otherwise this host is still reached, and others by TCP.
	 */
	if (ret < 0 && rds_transport_set.prefer_remote)
		return -EADDRNOTAVAIL;
	return bind_node_transport(addr);
}

static void log_not_local(const struct rds_addr *addr)
{
	char a[RDS_ADDR_STRLEN];

	rds_ip_str(&addr->ip, a);
	rds_info("bind: %s is no address of this host", a);
}

static void log_port_taken(const struct rds_addr *addr)
{
	struct registry_owner own;
	struct ucred cred;
	char a[RDS_ADDR_STRLEN];
	int ret = registry_lookup_nowait(rds_node_registry, &addr->ip, addr->port, addr->scope, &own);

	rds_ip_str(&addr->ip, a);
	if (ret == -ENOENT && registry_port_holder(rds_node_registry, &addr->ip, addr->port, addr->scope, &cred))
		rds_info("bind: port %u of %s is in use by process %d of user %u", addr->port, a, (int)cred.pid,
			 (unsigned)cred.uid);
	/* the port may be free by now */
	if (ret)
		return;
	if (own.proc == REGISTRY_NOBODY)
		rds_info("bind: port %u of %s is in use by a shared socket that no process owns now", addr->port, a);
	else
		rds_info("bind: port %u of %s is in use by process %d", addr->port, a, own.pid);
}

/*
 * Which transport carries the address, as programs see it (SO_RDS_TRANSPORT): IB if a device is
 * there, TCP for all other addresses except loopback.  As in the kernel, a socket may ask for TCP
 * on a device's address.
 */
static int bind_transport(const struct rds_sock *sk, const struct rds_addr *addr)
{
	int preset = atomic_load(&sk->transport), ret;

	if (unlikely(rds_transport_set.none))
		return -EADDRNOTAVAIL; /* as in a kernel without any transport */
	if (preset == RDS_TRANS_NONE && rds_ip_is_loopback(&addr->ip))
		return RDS_TRANS_LOOP;
	if (preset == RDS_TRANS_IB && rds_ip_is_loopback(&addr->ip))
		return -ENOPROTOOPT;
	ret = rds_node_addr_is_local(&addr->ip, addr->scope);
	if (ret == -EADDRNOTAVAIL)
		log_not_local(addr);
	if (ret == -EADDRNOTAVAIL && preset != RDS_TRANS_NONE)
		ret = -ENOPROTOOPT;
	if (ret < 0)
		return ret;
	/* 127.x with TCP preset */
	return rds_ip_is_loopback(&addr->ip) ? RDS_TRANS_TCP : bind_local_transport(preset, addr);
}

/* The port, once the transport is known.  If that fails, the socket has no transport any more. */
static int bind_port(struct rds_sock *sk, const struct rds_addr *addr, int transport)
{
	struct rds_addr laddr = *addr;
	uint16_t port;
	int ret;

	if (addr->port == RDS_PROBE_PORT)
		return -EINVAL;
	ret = rds_call_start_helper();
	if (ret < 0)
		return ret;
	rx_lock();
	ret = rds_cong_map_bind(&addr->ip); /* peers may connect to this address */
	rx_unlock();
	if (ret < 0)
		return ret;
	ret = rds_call_port_open(sk);
	if (ret < 0)
		return ret;
	ret = registry_sock_claim(rds_node_registry, sk->reg_idx, &addr->ip, addr->port, addr->scope, transport,
				  atomic_load(&sk->port_fd), &port);
	if (ret < 0) {
		rds_call_port_close(sk, false); /* it may have a name */
		return ret;
	}
	/*
	 * Another process may have had the port, and sent messages that have not been received yet.  A
	 * port that the registry has chosen is hardly ever one of those.
	 */
	if (addr->port)
		rds_sock_new_owner(sk);
	laddr.port = port;
	RDS_SOCK_SET_ADDR(sk, laddr, &laddr);
	RDS_SOCK_SET(sk, bound_scope, addr->scope);
	RDS_SOCK_SET(sk, transport, transport);
	/*
	 * Messages that were sent to an earlier socket of this port are not for this one.  Those
	 * that are here already are dropped now, or in rds_call_bind_once() if their connection has
	 * only begun.  (Those that still wait at their sender are left
	 * to conn/meant_for.c.  Those on their way over a device cannot be told from new ones.)
	 * The last close clears `open`, then checks `bound` under the same lock: so one of the two
	 * threads sees the other.
	 */
	rx_lock();
	(void)rds_progress_round_locked();
	rds_transport_catch_up(0);
	if (atomic_load(&sk->open)) {
		rds_sock_bound_insert(sk);
		RDS_SOCK_SET(sk, bound, true);
	} else {
		ret = -EBADF;
	}
	rx_unlock();
	if (!ret)
		rds_call_port_show(sk, false);
	return ret;
}

int rds_call_bind_once(struct rds_sock *sk, const struct sockaddr *sa, int addrlen, bool last)
{
	struct sockaddr_storage ss;
	struct rds_addr addr;
	int ret, transport;

	ret = rds_call_copy_sockaddr(sa, addrlen, &ss);
	if (ret == 0)
		ret = rds_addr_for_bind((struct sockaddr *)&ss, addrlen, &addr);
	if (ret < 0)
		return ret;
	rds_progress_round(); /* connections that messages for an earlier socket begin: see bind_port() */
	rds_lock(&rds_lock_control);
	ret = bind_check_state(sk, &addr);
	if (ret < 0)
		goto out;
	ret = transport = bind_transport(sk, &addr);
	if (ret < 0)
		goto out;
	ret = bind_port(sk, &addr, transport);
	if (ret == -EBUSY && last)
		ret = -EADDRINUSE;
	if (ret == -EADDRINUSE)
		log_port_taken(&addr);
	/* resets also a transport that the program had chosen, as the kernel does */
	if (ret < 0 && ret != -EBUSY)
		RDS_SOCK_SET(sk, transport, RDS_TRANS_NONE);
out:
	rds_unlock(&rds_lock_control);
	rds_transports_await_roles(); /* so that other hosts find the port open from now on */
	if (unlikely(atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed)))
		rds_conn_work_run();
	return ret;
}

uint64_t rds_call_bind_until(void)
{
	return os_now_ns() + rds_patience_ns(RDS_PATIENCE_BIND);
}

/*
 * The port of a shared socket may be free in a moment: its owner learns of the last close a moment
 * later than the kernel.
 */
int rds_call_bind(struct rds_sock *sk, const struct sockaddr *sa, int addrlen)
{
	uint64_t until = rds_call_bind_until();
	int ret;

	while ((ret = rds_call_bind_once(sk, sa, addrlen, os_now_ns() >= until)) == -EBUSY)
		os_poll(NULL, 0, RDS_BIND_PAUSE_MS);
	return ret;
}
