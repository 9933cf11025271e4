/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * header.h - the RDS 3.1 message header (net/rds/rds.h): 48 bytes, big-endian. No other package
 * knows its bytes. Transports send it in front of every message. The receiver calls
 * rds_wire_hdr_decode() before it uses any field.
 */
#ifndef ENGINE_WIRE_HEADER_H
#define ENGINE_WIRE_HEADER_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RDS_MAX_MSG (1u << 20)
#define RDS_CONG_MAP_BYTES 8192u
/*
 * A message with RDS_FLAG_CONG_BITMAP has the map, one bit for each port, or, between processes of
 * this library, a list of the congested ports (be16 each), which is empty if there is none.  With
 * its header the longest list fits the smallest receive buffer of a device (VERBS_BUF_SMALL).
 */
#define RDS_CONG_LIST_PORTS 64u
#define RDS_WIRE_HDR 48u

enum { RDS_FLAG_CONG_BITMAP = 1, RDS_FLAG_ACK_REQUIRED = 2, RDS_FLAG_RETRANSMITTED = 4 };
/*
 * A flag of this library alone, between processes that have agreed on a version of it (a kernel
 * peer never gets it). The message is a redirect: another message of the peer found no socket here,
 * because its port now belongs to another process of this host (conn/port_moved.c). Otherwise it is
 * an ordinary message, with a sequence number. Payload: the sequence number (u64) and the
 * destination port (u16) of that other message, BE.
 */
#define RDS_FLAG_REDIRECT 0x40
#define RDS_REDIRECT_BYTES 10u
#define RDS_REDIRECT_ACK_BYTES 11u /* the acknowledgement: the same bytes, and a byte of 1 */
/*
 * A flag of this library alone, never between hosts. The socket that sent this message belonged to
 * another process before, or its port may have, and messages of that process may still lie where it put
 * them. These are older than owner_since, the monotonic clock at the change, in the place of `ack`.
 */
#define RDS_FLAG_NEW_OWNER 0x10
/* A flag of this library alone: a piece of an RDMA operation or of its answer (op_header.h). */
#define RDS_FLAG_OP 0x20
enum {
	RDS_EXTHDR_NONE = 0,
	RDS_EXTHDR_VERSION = 1,
	RDS_EXTHDR_RDMA = 2,
	RDS_EXTHDR_RDMA_DEST = 3,
	RDS_EXTHDR_NPATHS = 5,
	RDS_EXTHDR_GEN_NUM = 6,
	/*
	 * of this library alone, never between hosts: be32, the generation of the host that the message
	 * comes from, and be32, its number there (conn/relay_had.c)
	 */
	RDS_EXTHDR_RELAYED = 13,
	/*
	 * of this library alone, never between hosts: be32, the socket that the message is for
	 * (conn/meant_for.c)
	 */
	RDS_EXTHDR_SOCK = 14,
	/* of this library alone: be64, the operation that this message goes with */
	RDS_EXTHDR_OP = 15,
};

struct rds_wire_hdr {
	uint64_t sequence, ack; /* BE */
	uint32_t len;		/* BE */
	uint16_t sport, dport;	/* BE */
	uint8_t flags, credit;
	uint8_t padding[4];
	uint16_t csum; /* BE as a byte string: ones' complement over the 48 bytes; 0 = unchecked */
	uint8_t exthdr[16];
} __attribute__((packed, aligned(4)));
_Static_assert(sizeof(struct rds_wire_hdr) == RDS_WIRE_HDR, "RDS 3.1 header is 48 bytes");

/* The same in host order. */
struct rds_hdr {
	uint64_t seq;
	union {
		uint64_t ack;
		/* with RDS_FLAG_NEW_OWNER: when the socket changed its owner */
		uint64_t owner_since;
	};
	uint32_t len;
	uint16_t sport, dport;
	uint8_t flags, credit;
	/*
	 * the one extension: RDS_EXTHDR_RDMA, _RDMA_DEST, _RELAYED (generation, number in the places of
	 * key and offset), or _NONE (others are skipped); to and from
	 * other nodes RDS_EXTHDR_NPATHS, which stands for _GEN_NUM, too
	 */
	uint8_t ext_type;
	union {
		uint32_t ext_rkey;
		uint32_t ext_npaths; /* 0: not said */
	};
	union {
		uint32_t ext_offset;
		uint32_t ext_gen; /* 0: not said */
	};
	/* RDS_EXTHDR_SOCK, only without an operation; 0: any socket that has the port */
	uint32_t sock;
	uint64_t op; /* RDS_EXTHDR_OP, beside the one extension; 0: none */
};

/* Fills in the checksum if `checksum` is true, else 0. */
void rds_wire_hdr_encode(const struct rds_hdr *h, struct rds_wire_hdr *w, bool checksum);
/* The same for a message that uses no other field, without checksum. */
static inline void rds_wire_hdr_encode_plain(struct rds_wire_hdr *w, uint64_t seq, uint32_t len, uint16_t sport,
					     uint16_t dport)
{
	*w = (struct rds_wire_hdr){
		.sequence = htobe64(seq), .len = htobe32(len), .sport = htobe16(sport), .dport = htobe16(dport)};
}
/*
 * -EBADMSG: a wrong checksum, a length above RDS_MAX_MSG, a congestion frame that is neither one
 * map nor a list, a redirect that is not exactly one or has no sequence number, a piece of an
 * operation without a sequence number, or a data frame with a malformed extension area. `w` may be
 * in memory that a hostile peer goes on changing: it is copied once.
 */
int rds_wire_hdr_decode(const void *w, struct rds_hdr *h);
/*
 * The same for a header that came from another node over TCP, where the peer may be the kernel's RDS,
 * of any version: what is not known is ignored, as there.  Of the flags only CONG_BITMAP, alone, and
 * RETRANSMITTED are left, and of the extensions NPATHS and GEN_NUM.  -EBADMSG: a length above
 * RDS_MAX_MSG, or a map of another length.
 */
int rds_wire_hdr_decode_node(const void *w, struct rds_hdr *h);

#endif
