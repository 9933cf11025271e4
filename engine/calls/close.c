/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * close.c - the last close of a socket: no process has it any more, or another process owns it from
 * now on.
 *
 * The program holds one end of an AF_UNIX SOCK_SEQPACKET pair, the engine holds the other.  The
 * kernel hangs up the engine's end when the last copy of the program's end is gone, in any
 * process: that is the socket's last close.
 */
#include <stdlib.h>

#include "engine/calls/close.h"
#include "engine/calls/port_hold.h"
#include "engine/conn/conn.h"
#include "engine/conn/incoming.h"
#include "engine/rdma/mr.h"
#include "engine/rdma/rdma.h"
#include "engine/sys/patience.h"

static void close_drop_received(struct rds_sock *sk)
{
	struct rds_sock_zcopy *z;
	struct rds_inc *inc;

	while ((inc = sk->rx_head)) {
		sk->rx_head = inc->next;
		rds_inc_free(inc);
	}
	sk->rx_tail = &sk->rx_head;
	sk->rcv_bytes = sk->rcv_count = 0;
	sk->nshown = 0;
	sk->shown_bytes = 0;
	rds_cong_clear_port(sk);
	while ((z = sk->zhead)) {
		sk->zhead = z->next;
		free(z);
	}
	sk->ztail = &sk->zhead;
}

/*
 * False: another thread has closed it already.  All of it runs under one lock.  The helper, woken
 * by the hang-up, may be the thread that closes.  Then a close() in the program must not return
 * before the port is free.
 */
static bool close_shut(struct rds_sock *sk, bool *exported)
{
	struct rds_mr *regions = NULL;
	bool first;

	rds_lock(&rds_lock_control);
	first = atomic_exchange(&sk->open, false);
	if (first) {
		rds_cong_set_monitor(sk, false);
		rx_lock();
		if (rds_sock_bound(sk))
			rds_sock_bound_remove(sk);
		close_drop_received(sk);
		regions = rds_mr_take_all(sk);
		atomic_store(&sk->burying, regions);
		rds_ops_close(sk);
		rds_cong_sock_del(sk);
		rx_unlock();
		rds_conn_sock_closed(sk);
		rds_call_port_close(sk, true);
		if (!sk->port_returned)
			registry_sock_remove(rds_node_registry, sk->reg_idx);
		*exported = rds_sock_unlist(sk);
	}
	rds_unlock(&rds_lock_control);
	rds_mr_destroy_list(regions);
	if (first)
		atomic_store(&sk->burying, false);
	return first;
}

/*
 * Another thread has closed it first, most often the helper.  The regions must be out of reach when
 * close() returns.  The other thread waits for peers, within a limit of time.  This thread may be
 * in a signal handler that has interrupted the other one, so it waits within a limit, too.
 */
static void close_wait_burial(const struct rds_sock *sk)
{
	uint64_t until = os_now_ns() + rds_patience_ns(RDS_PATIENCE_REGION_RECLAIM);

	while (atomic_load(&sk->burying) && os_now_ns() < until)
		os_poll(NULL, 0, 1);
}

/*
 * The kernel's order (net/rds/af_rds.c: rds_release()), except that sent messages are not
 * cancelled.  They go on without their socket, because here the sender's process is also the
 * network, and a program that sends and closes wants its messages to arrive.  The limits of that
 * are in conn/closed_sockets.c.
 */
void rds_call_close_last(struct rds_sock *sk)
{
	bool exported = false;

	if (!close_shut(sk, &exported)) {
		close_wait_burial(sk);
		return;
	}
	rds_sock_close_pair(sk, exported);
	rds_sock_put(sk); /* the caller has a reference of its own */
	rds_conn_work_run();
}

void rds_call_close_handed_off(struct rds_sock *sk)
{
	bool exported;

	rds_lock(&rds_lock_control);
	rds_cong_set_monitor(sk, false);
	rx_lock();
	close_drop_received(sk);
	rds_cong_sock_del(sk);
	rx_unlock();
	rds_call_port_close(sk, false);
	exported = rds_sock_unlist(sk);
	rds_unlock(&rds_lock_control);
	rds_sock_close_pair(sk, exported);
	rds_sock_put(sk); /* the reference of an open socket */
}

void rds_call_number_closing(struct rds_sock *sk)
{
	if (!sk || !atomic_load_explicit(&sk->nops, memory_order_relaxed) || !rds_sock_get(sk))
		return;
	rds_ops_drain(sk);
	rds_sock_put(sk);
}

void rds_call_number_closed(struct rds_sock *sk)
{
	if (rds_sock_hung_up(sk))
		rds_call_close_last(sk);
	rds_sock_put(sk);
}

void rds_call_number_added(struct rds_sock *sk)
{
	rds_sock_hold(sk);
}

void rds_call_discard(struct rds_sock *sk)
{
	rx_lock();
	close_drop_received(sk);
	rx_unlock();
	os_close_slot(&sk->pair.n[0]);
	rds_sock_events.closing(sk);
	rds_sock_slab_put(sk);
}
