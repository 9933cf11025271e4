/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_header.h - what the engines of two processes say to each other to carry out RDMA operations where no device does it for them.
 *
 * A message with RDS_FLAG_OP is a *piece*: this header, then data.  An operation is one or more pieces, in order, and then the
 * message that goes with it (its header names the operation, RDS_EXTHDR_OP), all in the connection's one sequence.  The target
 * carries a piece out as it arrives and answers with pieces of its own: DATA to a read, and one RESULT.
 * Ours alone, between processes that have agreed on a version of this library (a kernel peer never gets any).
 */
#ifndef ENGINE_WIRE_OP_H
#define ENGINE_WIRE_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define RDS_OP_HDR 72u
#define RDS_OP_PIECE 65536u /* data of one, at most */

enum rds_wire_op_kind {
	RDS_OP_WRITE = 1, /* data for the region; several */
	RDS_OP_READ,	  /* asks for len bytes */
	RDS_OP_SWAP,	  /* atomic: compare and swap */
	RDS_OP_ADD,	  /* ... fetch and add */
	RDS_OP_DATA,	  /* answer: bytes of a read, in order; several */
	RDS_OP_RESULT,	  /* answer: it is over */
	RDS_OP_FETCH, /* all of a write: the data are pairs of address and length, where its bytes lie in our memory */
	RDS_OP_ADVERTISED, /* of ours: a device reaches that region by itself, until */
	RDS_OP_REVOKED,	   /* ... this */
	RDS_OP_REVOKE_ACK, /* answer to that: nothing of ours is under way to it any more */
};

struct rds_wire_op_hdr {
	uint8_t kind;
	uint8_t status; /* RESULT: RDS_RDMA_* */
	bool last;	/* WRITE: no more pieces of it follow */
	uint32_t rkey;
	uint64_t id;	  /* of the operation, the initiator's */
	uint64_t message; /* id that the message which goes with it names; the same for all operations of one message */
	uint64_t offset;  /* in the region, which begins with its first page; DATA: in the operation's local memory */
	uint64_t len;	  /* READ, FETCH: bytes of all of it; SHOWN: of the region */
	uint64_t compare, compare_mask, value,
		value_mask; /* atomics (abi/rdma_args.h); RESULT of one: value is the old one; FETCH: compare and value are
			       where a word lies and what it is as long as the bytes are lent; SHOWN: value is the
			       device's key, compare where its addresses begin */
};

/* Does it ask for something?  (Else it answers.) */
static inline bool rds_wire_op_is_request(enum rds_wire_op_kind kind)
{
	return kind != RDS_OP_DATA && kind != RDS_OP_RESULT && kind != RDS_OP_ADVERTISED && kind != RDS_OP_REVOKED &&
	       kind != RDS_OP_REVOKE_ACK;
}

/* The data of a FETCH. */
#define RDS_FETCH_VECS 64u
#define RDS_OP_VEC 16u
void rds_wire_op_vec_encode(const struct iovec *vec, unsigned n, unsigned char *to);
/* n: RDS_FETCH_VECS at least.  How many there are, or -EBADMSG: not the `len` bytes of the header, or empty ones. */
int rds_wire_op_vec_decode(const void *from, size_t size, uint64_t len, struct iovec *vec);

void rds_wire_op_encode(const struct rds_wire_op_hdr *h, unsigned char to[RDS_OP_HDR]);
/* size: of the whole piece.  -EBADMSG: too short, of no kind, with more or fewer data than its kind may have. */
int rds_wire_op_decode(const void *from, size_t size, struct rds_wire_op_hdr *h);

#endif
