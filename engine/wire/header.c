/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * header.c - encodes message headers into their 48 bytes and decodes them.
 *
 * A received header may lie in memory that the peer goes on changing, so it is copied once and only
 * the copy is read. Decoding is strict on purpose: a frame that claims to be a congestion map but
 * is not exactly one would otherwise be taken for data and reset the receiver's sequence number.
 * This file must not know transports, connections or what the fields are used for.
 */
#include "engine/wire/header.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

_Static_assert(offsetof(struct rds_wire_hdr, csum) == 30, "checksum is at 30");
_Static_assert(offsetof(struct rds_wire_hdr, exthdr) == 32, "extensions start at 32");

/* Types from here on (later versions of the protocol) end the area, whatever follows. */
#define EXTHDR_MAX 16

/* Ones' complement sum of the 48 bytes, folded to 16 bits, in the byte order of memory. */
static uint16_t hdr_checksum(const struct rds_wire_hdr *w)
{
	uint32_t word[RDS_WIRE_HDR / 4];
	uint64_t sum = 0;

	memcpy(word, w, sizeof(word));
	for (unsigned i = 0; i < RDS_WIRE_HDR / 4; i++)
		sum += word[i];
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return (uint16_t)sum;
}

static void put_be32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

static uint64_t get_be64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static uint32_t get_be32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static void ext_encode_probe(const struct rds_hdr *h, uint8_t *area)
{
	if (h->ext_npaths) {
		*area++ = RDS_EXTHDR_NPATHS;
		*area++ = (uint8_t)(h->ext_npaths >> 8);
		*area++ = (uint8_t)h->ext_npaths;
	}
	if (h->ext_gen) {
		*area++ = RDS_EXTHDR_GEN_NUM;
		put_be32(area, h->ext_gen);
	}
}

static void ext_encode(const struct rds_hdr *h, uint8_t *area)
{
	if (h->op) {
		uint64_t op = htobe64(h->op);

		*area++ = RDS_EXTHDR_OP;
		memcpy(area, &op, sizeof(op));
		area += sizeof(op);
	} else if (h->sock) {
		*area++ = RDS_EXTHDR_SOCK;
		put_be32(area, h->sock);
		area += sizeof(h->sock);
	}
	switch (h->ext_type) {
	case RDS_EXTHDR_RDMA:
		area[0] = RDS_EXTHDR_RDMA;
		put_be32(area + 1, h->ext_rkey);
		break;
	case RDS_EXTHDR_RDMA_DEST:
	case RDS_EXTHDR_RELAYED:
		area[0] = h->ext_type;
		put_be32(area + 1, h->ext_rkey);
		put_be32(area + 5, h->ext_offset);
		break;
	case RDS_EXTHDR_NPATHS:
		ext_encode_probe(h, area);
		break;
	}
}

void rds_wire_hdr_encode(const struct rds_hdr *h, struct rds_wire_hdr *w, bool checksum)
{
	memset(w, 0, sizeof(*w));
	w->sequence = htobe64(h->seq);
	w->ack = htobe64(h->ack);
	w->len = htobe32(h->len);
	w->sport = htobe16(h->sport);
	w->dport = htobe16(h->dport);
	w->flags = h->flags;
	w->credit = h->credit;
	if (h->ext_type || h->op || h->sock)
		ext_encode(h, w->exthdr);
	if (checksum) {
		uint16_t sum = (uint16_t)~hdr_checksum(w);

		/* 0 would mean "unchecked"; 0xffff is the same number in ones' complement. */
		w->csum = sum ? sum : 0xffff;
	}
}

/* Number of data bytes after an extension's type. */
static unsigned ext_size(uint8_t type)
{
	switch (type) {
	case RDS_EXTHDR_VERSION:
	case RDS_EXTHDR_RDMA:
	case RDS_EXTHDR_GEN_NUM:
	case RDS_EXTHDR_SOCK:
		return 4;
	case RDS_EXTHDR_RDMA_DEST:
	case RDS_EXTHDR_RELAYED:
	case RDS_EXTHDR_OP:
		return 8;
	case RDS_EXTHDR_NPATHS:
		return 2;
	default:
		return 0; /* undefined, skipped */
	}
}

/*
 * -EBADMSG: an extension that runs over the end, or a second one where a header may have only one.
 */
static int ext_decode(const uint8_t *area, size_t size, struct rds_hdr *h)
{
	size_t at = 0;

	while (at < size && area[at] != RDS_EXTHDR_NONE && area[at] < EXTHDR_MAX) {
		uint8_t type = area[at++];

		if (ext_size(type) > size - at)
			return -EBADMSG;
		if (type == RDS_EXTHDR_RDMA || type == RDS_EXTHDR_RDMA_DEST || type == RDS_EXTHDR_RELAYED) {
			if (h->ext_type)
				return -EBADMSG;
			h->ext_type = type;
			h->ext_rkey = get_be32(area + at);
			if (type != RDS_EXTHDR_RDMA)
				h->ext_offset = get_be32(area + at + 4);
		} else if (type == RDS_EXTHDR_OP) {
			h->op = get_be64(area + at);
		} else if (type == RDS_EXTHDR_SOCK) {
			h->sock = get_be32(area + at);
		}
		at += ext_size(type);
	}
	return 0;
}

/* A map, or a list of ports. */
static bool cong_len_is_valid(uint32_t len)
{
	return len == RDS_CONG_MAP_BYTES ||
	       (len <= RDS_CONG_LIST_PORTS * sizeof(uint16_t) && len % sizeof(uint16_t) == 0);
}

int rds_wire_hdr_decode(const void *w, struct rds_hdr *h)
{
	struct rds_wire_hdr c;

	memcpy(&c, w, sizeof(c));
	/* From here on the compiler must not read *w again instead of the copy. */
	__asm__ volatile("" : "+m"(c) : : "memory");

	*h = (struct rds_hdr){
		.seq = be64toh(c.sequence),
		.ack = be64toh(c.ack),
		.len = be32toh(c.len),
		.sport = be16toh(c.sport),
		.dport = be16toh(c.dport),
		.flags = c.flags,
		.credit = c.credit,
	};
	if (c.csum && hdr_checksum(&c) != 0xffff)
		return -EBADMSG;
	if (h->len > RDS_MAX_MSG)
		return -EBADMSG;
	if (h->flags & RDS_FLAG_CONG_BITMAP)
		return h->flags == RDS_FLAG_CONG_BITMAP && cong_len_is_valid(h->len) ? 0 : -EBADMSG;
	if (h->flags & RDS_FLAG_REDIRECT)
		return !(h->flags & ~(RDS_FLAG_REDIRECT | RDS_FLAG_ACK_REQUIRED | RDS_FLAG_RETRANSMITTED)) &&
				       (h->len == RDS_REDIRECT_BYTES || h->len == RDS_REDIRECT_ACK_BYTES) && h->seq
			       ? 0
			       : -EBADMSG;
	if (h->flags & RDS_FLAG_OP)
		return !(h->flags & ~(RDS_FLAG_OP | RDS_FLAG_ACK_REQUIRED)) && h->seq ? 0 : -EBADMSG;
	return ext_decode(c.exthdr, sizeof(c.exthdr), h);
}

/* What later kernels and Oracle's put into a header (4, 7, 8 and 9), and those that 6.1 knows. */
static unsigned ext_size_node(uint8_t type)
{
	static const uint8_t size[EXTHDR_MAX] = {
		[1] = 4, [2] = 4, [3] = 8, [4] = 8, [5] = 2, [6] = 4, [7] = 4, [8] = 1, [9] = 8};

	return size[type];
}

static void ext_decode_node(const uint8_t *area, size_t size, struct rds_hdr *h)
{
	size_t at = 0;

	while (at < size && area[at] != RDS_EXTHDR_NONE && area[at] < EXTHDR_MAX) {
		uint8_t type = area[at++];

		if (ext_size_node(type) > size - at)
			return;
		if (type == RDS_EXTHDR_NPATHS)
			h->ext_npaths = (uint32_t)area[at] << 8 | area[at + 1];
		else if (type == RDS_EXTHDR_GEN_NUM)
			h->ext_gen = get_be32(area + at);
		at += ext_size_node(type);
	}
	if (h->ext_npaths || h->ext_gen)
		h->ext_type = RDS_EXTHDR_NPATHS;
}

int rds_wire_hdr_decode_node(const void *w, struct rds_hdr *h)
{
	struct rds_wire_hdr c;

	memcpy(&c, w, sizeof(c));
	*h = (struct rds_hdr){
		.seq = be64toh(c.sequence),
		.len = be32toh(c.len),
		.sport = be16toh(c.sport),
		.dport = be16toh(c.dport),
		.flags = c.flags == RDS_FLAG_CONG_BITMAP ? c.flags : c.flags & RDS_FLAG_RETRANSMITTED,
	};
	if (h->len > RDS_MAX_MSG || (h->flags == RDS_FLAG_CONG_BITMAP && h->len != RDS_CONG_MAP_BYTES))
		return -EBADMSG;
	if (h->flags != RDS_FLAG_CONG_BITMAP)
		ext_decode_node(c.exthdr, sizeof(c.exthdr), h);
	return 0;
}
