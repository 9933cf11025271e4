/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * poll.c - the bits that rds_poll() reports (af_rds.c).
 */
#include <poll.h>

#include "engine/conn/outgoing.h"
#include "engine/conn/shown.h"
#include "engine/socket/socket.h"

#define IN_BITS (POLLIN | POLLRDNORM)
#define OUT_BITS (POLLOUT | POLLWRNORM)

/*
 * In the kernel a poll is woken by the node-wide queue only if the socket has met congestion
 * before.  The first check that finds any bit, wanted or not, clears that mark for later polls, but
 * not for the poll under way.
 */
static void cong_poller_attach(struct rds_sock *sk, short mask, bool again)
{
	rx_lock();
	if (!again)
		RDS_SOCK_SET(sk, cong_attached, sk->seen_congestion);
	if (mask)
		RDS_SOCK_SET(sk, seen_congestion, false);
	rx_unlock();
}

/*
 * af_rds.c: rds_poll, with its side effects: the generation is reported once, any bit clears
 * seen_congestion.
 */
short rds_call_poll(struct rds_sock *sk, short events)
{
	short mask = atomic_load_explicit(&sk->open, memory_order_relaxed) ? 0 : POLLNVAL;
	uint64_t gen;

	rx_lock();
	rds_inc_shown_settle(sk, -1);
	if (sk->rx_head || sk->zhead || sk->reports || rds_sock_marks_readable(&sk->marks))
		mask |= IN_BITS;
	if (sk->cong_monitor) {
		if (sk->cong_notify)
			mask |= IN_BITS;
	} else {
		gen = atomic_load_explicit(&rds_sock_cong_gen, memory_order_relaxed);
		if (sk->cong_track != gen) {
			sk->cong_track = gen;
			mask |= IN_BITS | POLLWRBAND;
		}
	}
	rx_unlock();
	if (!rds_sock_writable(sk) && (events & OUT_BITS))
		rds_queue_reap_all();
	if (rds_sock_writable(sk))
		mask |= OUT_BITS;
	if (atomic_load_explicit(&sk->err, memory_order_relaxed))
		mask |= POLLERR;
	if (unlikely(sk->seen_congestion || sk->cong_attached))
		cong_poller_attach(sk, mask, events & RDS_POLL_AGAIN);
	return mask & (events | POLLERR | POLLNVAL);
}
