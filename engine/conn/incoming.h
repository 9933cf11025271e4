/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * incoming.h - a received message on its way to the program (the kernel's rds_incoming).
 *
 * Its bytes lie where the transport put them ("in place": no copy, but they hold room in the
 * transport's ring), in `small`, or on the heap behind the structure's `heap` pointer.  Everything
 * here is guarded by rx.
 */
#ifndef ENGINE_CONN_INCOMING_H
#define ENGINE_CONN_INCOMING_H

#include "engine/conn/conn.h"

/* up to this size a copy costs less than a heap block or the return of a transport's room */
#define RDS_INC_SMALL 192u
/* Up to this size its structure is shorter: a crowd has many such messages unread. */
#define RDS_INC_TINY 64u

struct rds_inc {
	struct rds_inc *next; /* socket's queue, or free list */
	struct in6_addr saddr;
	uint16_t sport;
	uint8_t tos;	 /* of the connection that brought it */
	uint64_t cookie; /* RDS_CMSG_RDMA_DEST; 0: none */
	uint32_t len;
	uint64_t seq;
	uint64_t shown; /* its number in the stand-in (shown.h); 0: it is not shown */
	uint64_t taken; /* the borrower's call that took it, as counted (share/owner.h); 0: none */
	const void *data;
	void *heap;	   /* owned copy; NULL while in place, or if the bytes are in `small` */
	struct rds_ep *ep; /* NULL: not in place */
	/* stamps, taken only if the socket wants them */
	uint64_t real_ns; /* SO_TIMESTAMP; 0 none */
	uint64_t trace_ns[3]; /* arrival, start, queued */
	union {
		struct { /* in place */
			void *token;
			struct rds_inc *pl_prev, *pl_next;
			struct rds_conn *conn;
		};
		unsigned char small[RDS_INC_TINY]; /* last; RDS_INC_SMALL if len is more */
	};
};

/* In place if rx->token is set; takes rx->owned; else a copy of rx->data.  NULL: no memory. */
struct rds_inc *rds_inc_new(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx);
/* A copy of these bytes; no other field is filled in. */
struct rds_inc *rds_inc_copy(const void *from, uint32_t len);
void rds_inc_free(struct rds_inc *inc);
/*
 * Copies all in-place messages of this endpoint to the heap and gives the room back.  Without
 * memory the rest stays in place.
 */
void rds_inc_evacuate(struct rds_conn *conn, struct rds_ep *ep);
void rds_inc_forget(void); /* forked child */

#endif
