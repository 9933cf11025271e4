/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lock_order.h - the order of the engine's locks, and the three of which a process has one.
 *
 * Locks, outermost first.  Nobody sleeps in the kernel for another process with one of them held, except under
 * control (registry record lock, bounded).
 *
 *   sk->tx	sends on one socket, its destination cache
 *   control	socket and connection tables, binding, connection state, life of the engine
 *   conn->tx	sequence numbers, unacknowledged and waiting messages of one connection, its endpoint's send side
 *   rx		every receive queue, sockets' congestion state, receive side of endpoints, attention
 *   wait	lists of sleeping threads, readiness shown on stand-ins
 *
 * The receive path never takes conn->tx: what it wants sent (answers to pings, congestion maps) it leaves as work for
 * whoever called progress, done after rx has been dropped.
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

/* A lock that this thread may have below it, if a signal has interrupted it: waits so long at most.  False: it is not to be had. */
bool rds_lock_until(rds_lock_t *lock, uint64_t until_ns);
/* It is to be had, and is given back: nobody below us on this thread's stack has it. */
bool rds_lock_wait_free(rds_lock_t *lock, uint64_t until_ns);

void rds_lock_order_forget(void); /* forked child: whoever held them is not there */

#endif
