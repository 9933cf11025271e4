/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * stats.h - the one table of counters (net/rds/stats.c): names and order of RDS_INFO_COUNTERS. The
 * values are in the registry, so that rds-info shows the node and not one process.
 */
#ifndef ENGINE_NODE_STATS_H
#define ENGINE_NODE_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#define RDS_STATS_TABLE(X)                                                                                             \
	X(conn_reset)                                                                                                  \
	X(recv_drop_bad_checksum)                                                                                      \
	X(recv_drop_old_seq)                                                                                           \
	X(recv_drop_no_sock)                                                                                           \
	X(recv_drop_dead_sock)                                                                                         \
	X(recv_deliver_raced)                                                                                          \
	X(recv_delivered)                                                                                              \
	X(recv_queued)                                                                                                 \
	X(recv_immediate_retry)                                                                                        \
	X(recv_delayed_retry)                                                                                          \
	X(recv_ack_required)                                                                                           \
	X(recv_rdma_bytes)                                                                                             \
	X(recv_ping)                                                                                                   \
	X(send_queue_empty)                                                                                            \
	X(send_queue_full)                                                                                             \
	X(send_lock_contention)                                                                                        \
	X(send_lock_queue_raced)                                                                                       \
	X(send_immediate_retry)                                                                                        \
	X(send_delayed_retry)                                                                                          \
	X(send_drop_acked)                                                                                             \
	X(send_ack_required)                                                                                           \
	X(send_queued)                                                                                                 \
	X(send_rdma)                                                                                                   \
	X(send_rdma_bytes)                                                                                             \
	X(send_pong)                                                                                                   \
	X(page_remainder_hit)                                                                                          \
	X(page_remainder_miss)                                                                                         \
	X(copy_to_user)                                                                                                \
	X(copy_from_user)                                                                                              \
	X(cong_update_queued)                                                                                          \
	X(cong_update_received)                                                                                        \
	X(cong_send_error)                                                                                             \
	X(cong_send_blocked)                                                                                           \
	X(recv_bytes_added_to_sock)                                                                                    \
	X(recv_bytes_freed_fromsock)                                                                                   \
	X(send_stuck_rm)

enum rds_stat {
#define RDS_STAT_ENUM(name) RDS_STAT_##name,
	RDS_STATS_TABLE(RDS_STAT_ENUM)
#undef RDS_STAT_ENUM
		RDS_STATS
};

extern const char *const rds_stat_names[RDS_STATS]; /* defined in stats.c */

/*
 * Where this process counts. A private dummy block until the registry is open, so that counting
 * needs no check.
 */
extern _Atomic uint64_t *_Atomic rds_stat_block;
/* Switches back to the dummy block. To be called before the registry is closed or abandoned. */
void rds_stat_detach(void);

/* May be called from any thread. */
static inline void rds_stat_add(enum rds_stat s, uint64_t n)
{
	_Atomic uint64_t *block = atomic_load_explicit(&rds_stat_block, memory_order_relaxed);

	atomic_fetch_add_explicit(&block[s], n, memory_order_relaxed);
}

/*
 * Only for counters that are always changed under one and the same lock (the receive lock): uses no
 * locked instruction.
 */
static inline void rds_stat_add_locked(enum rds_stat s, uint64_t n)
{
	_Atomic uint64_t *block = atomic_load_explicit(&rds_stat_block, memory_order_relaxed);
	uint64_t v = atomic_load_explicit(&block[s], memory_order_relaxed);

	atomic_store_explicit(&block[s], v + n, memory_order_relaxed);
}

#define RDS_STAT_INC(name) rds_stat_add(RDS_STAT_##name, 1)
#define RDS_STAT_ADD(name, n) rds_stat_add(RDS_STAT_##name, (n))
#define RDS_STAT_INC_RX(name) rds_stat_add_locked(RDS_STAT_##name, 1)
#define RDS_STAT_ADD_RX(name, n) rds_stat_add_locked(RDS_STAT_##name, (n))

#endif
