/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdma_args.h - RDMA requests of a program, independent of the age of its structures.  revisions.c
 * decodes the program's structures into these; rdma/op.c and socket/op_marks.c know only these.
 * Also the parts of a cookie.
 */
#ifndef ENGINE_ABI_RDMA_ARGS_H
#define ENGINE_ABI_RDMA_ARGS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- cookies: the key of a region, and the offset of its start in its first page ---- */

#define RDS_RKEY_LEAST (1u << 22)

static inline uint32_t rds_cookie_rkey(uint64_t cookie)
{
	return (uint32_t)cookie;
}
static inline uint32_t rds_cookie_offset(uint64_t cookie)
{
	return (uint32_t)(cookie >> 32);
}
static inline uint64_t rds_cookie(uint32_t rkey, uint32_t offset)
{
	return (uint64_t)offset << 32 | rkey;
}

/* Could this be a cookie of this process or of a peer?  False for a length. */
static inline bool rds_cookie_plausible(void *unused, uint64_t cookie)
{
	(void)unused;
	return rds_cookie_rkey(cookie) >= RDS_RKEY_LEAST && rds_cookie_offset(cookie) < 4096;
}

/* ---- requests ---- */

/* RDS_CMSG_RDMA_ARGS */
struct rds_rdma_request {
	uint64_t cookie;
	uint64_t remote_addr, remote_bytes;
	uint64_t local_vec, nr_local; /* struct rds_iovec */
	uint64_t flags;		      /* RDS_RDMA_* of today */
	uint64_t token;
	/* of a revision with RDS_BARRIER: counts for the mark of its destination */
	bool has_id;
	uint64_t id_addr;  /* with has_id: its number is stored there (0: nowhere) */
	bool short_notify; /* its notification is a record of 8 bytes */
};

/* The four atomic operations, as two operations with masks. */
struct rds_atomic_request {
	uint64_t cookie;
	uint64_t local_addr, remote_addr;
	bool swap;			/* compare and swap; else fetch and add */
	uint64_t compare, compare_mask; /* swap */
	uint64_t value;			/* to swap in, or to add */
	/* swap: bits that are replaced; add: bits that pass no carry on */
	uint64_t value_mask;
	uint64_t flags, token;
};

/* RDS_GET_MR, RDS_GET_MR_FOR_DEST, RDS_CMSG_RDMA_MAP */
struct rds_mr_request {
	uint64_t addr, bytes;
	uint64_t cookie_addr; /* 0: the cookie is not stored */
	uint64_t flags;	      /* RDS_RDMA_* of today */
	uint64_t phys_addr;   /* 0, or where to store the address to use with the key (always 0) */
};

/* RDS_BARRIER */
struct rds_barrier_request {
	uint32_t daddr; /* network byte order */
	bool nonblock;
	uint64_t mark_addr; /* where the high-water mark goes; 0: nowhere */
	uint64_t wait_id;
};

#endif
