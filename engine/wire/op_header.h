/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_header.h - the messages by which the engines of two processes carry out RDMA operations where
 * no device does it for them.
 *
 * A message with RDS_FLAG_OP is a *piece*: this header, then data. An operation is one or more
 * pieces, in order, followed by the message that goes with it (its header names the operation,
 * RDS_EXTHDR_OP). All are in the one sequence of the connection. The target executes a piece as it
 * arrives and answers with pieces of its own: DATA to a read, and one RESULT. These messages are of
 * this library alone, between processes that have agreed on a version of it (a kernel peer never
 * gets one).
 */
#ifndef ENGINE_WIRE_OP_HEADER_H
#define ENGINE_WIRE_OP_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define RDS_OP_HDR 72u
#define RDS_OP_PIECE 65536u /* most data of one piece */

enum rds_wire_op_kind {
	RDS_OP_WRITE = 1, /* data for the region; several pieces */
	RDS_OP_READ,	  /* asks for len bytes */
	RDS_OP_SWAP,	  /* atomic: compare and swap */
	RDS_OP_ADD,	  /* ... fetch and add */
	RDS_OP_DATA,	  /* answer: bytes of a read, in order; several pieces */
	RDS_OP_RESULT,	  /* answer: the operation is complete */
	/*
	 * A whole write: the data are pairs of address and length, which tell where its bytes lie
	 * in the initiator's memory.
	 */
	RDS_OP_FETCH,
	/* A device reaches that region of the sender's by itself, until REVOKED. */
	RDS_OP_ADVERTISED,
	RDS_OP_REVOKED, /* ends ADVERTISED */
	/*
	 * Answer to REVOKED: no operation of the sender's device to that region is under way any
	 * more.
	 */
	RDS_OP_REVOKE_ACK,
};

struct rds_wire_op_hdr {
	uint8_t kind;
	uint8_t status; /* RESULT: RDS_RDMA_* */
	bool last;	/* WRITE: no more pieces of the operation follow */
	uint32_t rkey;
	uint64_t id; /* of the operation, given by the initiator */
	/*
	 * The id that the message names which goes with the operation; all operations of one
	 * message have the same.
	 */
	uint64_t message;
	/*
	 * In the region, which begins with its first page. DATA: in the operation's local memory.
	 */
	uint64_t offset;
	uint64_t len; /* READ, FETCH: bytes of the whole operation; ADVERTISED: of the region */
	/*
	 * Atomics (abi/rdma_args.h); in the RESULT of an atomic, value is the old value. FETCH:
	 * compare is the address of a word, and value is its contents as long as the bytes may be
	 * read. ADVERTISED: value is the device's key, and compare is where its addresses begin.
	 */
	uint64_t compare, compare_mask, value, value_mask;
};

/* Is it a request? (Else it is an answer or a notification.) */
static inline bool rds_wire_op_is_request(enum rds_wire_op_kind kind)
{
	return kind != RDS_OP_DATA && kind != RDS_OP_RESULT && kind != RDS_OP_ADVERTISED && kind != RDS_OP_REVOKED &&
	       kind != RDS_OP_REVOKE_ACK;
}

/* The data of a FETCH. */
#define RDS_FETCH_VECS 64u
#define RDS_OP_VEC 16u
void rds_wire_op_vec_encode(const struct iovec *vec, unsigned n, unsigned char *to);
/*
 * vec has room for at least RDS_FETCH_VECS elements. Returns the number of elements, or -EBADMSG:
 * one of them is empty, or together they are not the `len` bytes of the header.
 */
int rds_wire_op_vec_decode(const void *from, size_t size, uint64_t len, struct iovec *vec);

void rds_wire_op_encode(const struct rds_wire_op_hdr *h, unsigned char to[RDS_OP_HDR]);
/*
 * size: of the whole piece. -EBADMSG: too short, of unknown kind, or with more or fewer data than
 * its kind may have.
 */
int rds_wire_op_decode(const void *from, size_t size, struct rds_wire_op_hdr *h);

#endif
