/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * incoming.h - a received message on its way to the program (the kernel's rds_incoming).
 *
 * Its bytes lie either where the transport put them ("in place": no copy, but room in the transport's ring is held) or
 * on the heap behind the structure's `heap` pointer.  Everything here is guarded by the receive lock.
 */
#ifndef ENGINE_CONN_INCOMING_H
#define ENGINE_CONN_INCOMING_H

#include "engine/conn/conn.h"

#define RDS_INC_SMALL 192u /* a copy costs less than the way of a transport's room, or of a block of the heap */

struct rds_inc {
	struct rds_inc *next; /* socket's queue, or free list */
	struct in6_addr saddr;
	uint16_t sport;
	uint8_t tos; /* of the connection that it came by */
	uint64_t cookie; /* RDS_CMSG_RDMA_DEST; 0: none */
	uint32_t len;
	uint64_t seq;
	uint64_t taken; /* by which holder's call, as counted (share/owner.h); 0: by none */
	const void *data;
	void *heap; /* owned copy, NULL while in place, or if it is in `small` */
	/* in place: */
	struct rds_ep *ep; /* NULL: not in place */
	void *token;
	struct rds_inc *pl_prev, *pl_next;
	struct rds_conn *conn; /* valid while in place */
	/* stamps, taken only if the socket wants them */
	uint64_t real_ns; /* SO_TIMESTAMP; 0 none */
	uint64_t trace_ns[3]; /* arrival, start, queued */
	unsigned char small[RDS_INC_SMALL];
};

/* From rx->data in place if rx->token is set, else a copy. NULL: no memory. */
struct rds_inc *rds_inc_new(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx);
/* A copy of so many bytes, nothing else filled in. */
struct rds_inc *rds_inc_copy(const void *from, uint32_t len);
void rds_inc_free(struct rds_inc *inc);
/* Copy out everything of this endpoint that waits in place (all: also when memory is short it must not stay). */
void rds_inc_evacuate(struct rds_conn *conn, struct rds_ep *ep);
void rds_inc_forget(void); /* forked child */

#endif
