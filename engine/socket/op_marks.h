/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_marks.h - RDS_BARRIER: the ids of a socket's RDMA operations, and the marks that show how far
 * they are finished.
 *
 * Ids count from 1 for the whole socket, and the program sees no id twice.  Each destination
 * address (all its ports together) has a mark: the highest id such that it and all lower ids of
 * this socket to that address are finished; 0 before the first.  Finished is not successful: a
 * dropped, cancelled or refused operation is finished, too.
 *
 * All of it is guarded by a lock of the caller's (rx).  A struct of zeros is a socket without ids
 * and costs nothing.  Time: constant for an operation that finishes in order, logarithmic out of
 * order.  Memory: by unfinished operations and by destinations.
 */
#ifndef ENGINE_SOCKET_OP_MARKS_H
#define ENGINE_SOCKET_OP_MARKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/abi/rdma_args.h"

struct rds_op_marks_dest;

struct rds_op_marks {
	_Atomic uint64_t last_id; /* the lease is written without a lock */
	/* ids up to this one belong to an earlier owner of the socket and are finished */
	uint64_t base;
	struct rds_op_marks_dest *dests; /* hash by address, open addressing */
	uint32_t ndests, slots;		/* slots: 0 or a power of two */
	uint32_t armed_daddr;
	uint64_t armed_id; /* valid if armed */
	bool armed, armed_done;
	bool risen;  /* a mark has risen since the program was last told to look */
	bool waited; /* RDS_BARRIER was called with an id to wait for */
};

void rds_sock_marks_free(struct rds_op_marks *b);
/* Ids go on after last_id, which is the mark of every destination.  Before any other call. */
void rds_sock_marks_resume(struct rds_op_marks *b, uint64_t last_id);

/* ---- operations; addresses are be32 ---- */

/* Next id, for an operation with has_id that sendmsg is about to accept.  0 or -ENOMEM. */
int rds_sock_marks_begin(struct rds_op_marks *b, uint32_t daddr, uint64_t *id);
/*
 * The transport is done with the operation, however it ended; a second call does nothing.  True: a
 * mark has risen, wake the threads that poll or wait in a barrier.
 */
bool rds_sock_marks_finish(struct rds_op_marks *b, uint32_t daddr, uint64_t id);
/*
 * Instead of finish: sendmsg fails after all, and the program never sees the id.  The socket's last
 * id is given out again.  A lower id (another thread has taken ids since) is skipped, and no mark
 * ever shows it.  True as for finish; possible only for a lower id.
 */
bool rds_sock_marks_cancel(struct rds_op_marks *b, uint32_t daddr, uint64_t id);

uint64_t rds_sock_marks_get(const struct rds_op_marks *b, uint32_t daddr);
bool rds_sock_marks_outstanding(const struct rds_op_marks *b, uint32_t daddr);
/* Lowest unfinished id to daddr, or 0: finishing any other id moves no mark. */
uint64_t rds_sock_marks_oldest(const struct rds_op_marks *b, uint32_t daddr);

/* ---- the option ---- */

/*
 * RDS_BARRIER with a destination that is not 0.  nonblock: O_NONBLOCK; the request's own flag
 * counts as well.  *mark is set in any case.
 *	0	 no id was asked for, or it is reached
 *	-EAGAIN	 not reached.  Non-blocking: now armed with it.  Blocking: no outstanding
 *		 operation could reach it
 *	1	 sleep until rds_sock_marks_done(), then call again
 */
int rds_sock_marks_request(struct rds_op_marks *b, const struct rds_barrier_request *req, bool nonblock,
			   uint64_t *mark);
/* A blocking call would no longer sleep. */
bool rds_sock_marks_done(const struct rds_op_marks *b, const struct rds_barrier_request *req);

/* ---- poll ---- */

/* The socket has sent operations with ids, or a barrier has waited for one. */
static inline bool rds_sock_marks_in_use(const struct rds_op_marks *b)
{
	return atomic_load_explicit(&b->last_id, memory_order_relaxed) || b->waited;
}

/* POLLIN | POLLRDNORM because of the barrier: never true outside barrier mode. */
static inline bool rds_sock_marks_readable(const struct rds_op_marks *b)
{
	return b->risen || b->armed_done;
}

/* A receive call has found nothing to return.  An armed id that is reached stays. */
static inline void rds_sock_marks_recv_empty(struct rds_op_marks *b)
{
	b->risen = false;
}

#endif
