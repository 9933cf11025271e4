/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * hang_up.c - the stand-in has hung up: another process has closed the last number of a socket.
 * Helper only.
 *
 * A thread that closes in this process waits for operations under way (rds_call_number_closing()).
 * Another process cannot.  So the socket stays open for its operations, within the same limit of
 * time, but without its port: the port must be free when the kernel reports that the last number is
 * closed.
 *
 * This file must not know what operations do.
 */
#include "engine/conn/conn.h"
#include "engine/sys/patience.h"
#include "engine/rdma/rdma.h"
#include "engine/socket/socket.h"
#include "engine/calls/close.h"
#include "engine/calls/port_hold.h"

#define LOOK_NS 1000000u

static void hangup_close(struct rds_sock *sk)
{
	unsigned n;

	/*
	 * First the socket, with its port, then the numbers: a dup2() or close_range() that finds a
	 * number forgotten returns at once.
	 */
	rds_call_close_last(sk);
	n = rds_hook_hangup ? rds_hook_hangup(sk) : 0;
	while (n--)
		rds_sock_put(sk);
}

static void hangup_timer(struct rds_timer *tm)
{
	struct rds_sock *sk = container_of(tm, struct rds_sock, hanging);

	if (atomic_load(&sk->nops) && atomic_load(&sk->open) && os_now_ns() < sk->hanging_until) {
		rds_timer_set(tm, os_now_ns() + LOOK_NS);
		return;
	}
	hangup_close(sk);
	rds_sock_put(sk);
}

/* Only operations still use the socket, and their answers need no port. */
static void hangup_release_port(struct rds_sock *sk)
{
	rds_lock(&rds_lock_control);
	rx_lock();
	if (rds_sock_bound(sk))
		rds_sock_bound_remove(sk);
	RDS_SOCK_SET(sk, bound, false);
	rx_unlock();
	rds_call_port_close(sk, true);
	registry_sock_remove(rds_node_registry, sk->reg_idx);
	sk->port_returned = true;
	rds_unlock(&rds_lock_control);
}

/*
 * Another process has closed the last number, and could not wait for operations as
 * rds_call_number_closing() does.  True: the socket closes when they are over, or when the time
 * limit ends.
 */
static bool hangup_await_ops(struct rds_sock *sk)
{
	if (rds_timer_is_set(&sk->hanging))
		return true;
	if (!atomic_load(&sk->nops))
		return false;
	hangup_release_port(sk);
	rds_sock_hold(sk);
	sk->hanging.fn = hangup_timer;
	sk->hanging_until = os_now_ns() + rds_patience_ns(RDS_PATIENCE_OPERATIONS);
	rds_timer_set(&sk->hanging, os_now_ns() + LOOK_NS);
	return true;
}

bool rds_call_check_hangup(struct rds_sock *sk)
{
	if (!atomic_load(&sk->open) || !rds_sock_hung_up(sk))
		return false;
	if (!hangup_await_ops(sk))
		hangup_close(sk);
	return true;
}
