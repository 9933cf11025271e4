/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lock_order.h - the order of the engine's locks, and the three locks that exist once per process.
 *
 * The locks, outermost first. A thread that holds one of them never sleeps in the kernel for
 * another process. The exception is the registry's record lock, for which a thread may wait for a
 * bounded time under control, but not under rx.
 *
 *	sk->tx	sends on one socket, its destination cache
 *	control	socket and connection tables, binding, connection state, life of the engine
 *	conn->tx	sequence numbers, unacknowledged and waiting messages of one connection,
 *		send side of its endpoint
 *	rx	all receive queues, congestion state of sockets, receive side of endpoints,
 *		attention
 *	wait	lists of sleeping threads, readiness shown on stand-ins
 *
 * Locks of single packages, and their places between these:
 *
 *	engine_start_lock (calls/start.c), round_lock (helper/round.c),
 *	export_lock (share/lease.c), standby_lock (share/standby.h)
 *		before control
 *	making (transport/verbs/dev/device.c)
 *		after control, before rx
 *	queue_busy_walk (conn/busy_conns.c)
 *		before conn->tx
 *	queue_busy_lock (conn/busy_conns.c), fault_ep.lock (tests/faults/transport)
 *		after conn->tx
 *	fds_lock (sys/own_fds.c)
 *		after all of them; a hook of that list may take reg->mutex
 *	reg->mutex, then the record lock of the registry's area (node/registry_impl.h)
 *		after all of them, fds_lock too
 *
 * Every other mutex is a leaf: it guards a list or a table of its file, and below it at most
 * fds_lock and the timers' are taken.
 *
 * The receive path never takes conn->tx. If it has something to send (answers to pings, congestion
 * maps), it leaves that as work for the caller of progress, which does it after dropping rx.
 */
#ifndef ENGINE_SYS_LOCK_ORDER_H
#define ENGINE_SYS_LOCK_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/sys/lock.h"

extern rds_lock_t rds_lock_control, rds_lock_rx, rds_lock_wait;

static inline void rx_lock(void)
{
	rds_lock(&rds_lock_rx);
}

static inline void rx_unlock(void)
{
	rds_unlock(&rds_lock_rx);
}

/*
 * Takes a lock that this thread may already hold further down its stack, if a signal interrupted
 * it. Waits until until_ns at most. False: the lock was not taken.
 */
bool rds_lock_until(rds_lock_t *lock, uint64_t until_ns);
/*
 * True: the lock can be taken (and is released again), so no interrupted frame of this thread holds
 * it.
 */
bool rds_lock_wait_free(rds_lock_t *lock, uint64_t until_ns);

/* In a forked child: the threads that held the locks do not exist there. */
void rds_lock_order_forget(void);

#endif
