/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_header.c - encodes and decodes the structures of op_header.h: 72 bytes, big-endian.
 */
#include "engine/wire/op_header.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "engine/wire/header.h"

struct op_wire {
	uint8_t kind, status, last, zero;
	uint32_t rkey;
	uint64_t id, message, offset, len;
	uint64_t compare, compare_mask, value, value_mask;
};
_Static_assert(sizeof(struct op_wire) == RDS_OP_HDR, "what the header says");

void rds_wire_op_encode(const struct rds_wire_op_hdr *h, unsigned char to[RDS_OP_HDR])
{
	struct op_wire w = {
		.kind = h->kind,
		.status = h->status,
		.last = h->last,
		.rkey = htobe32(h->rkey),
		.id = htobe64(h->id),
		.message = htobe64(h->message),
		.offset = htobe64(h->offset),
		.len = htobe64(h->len),
		.compare = htobe64(h->compare),
		.compare_mask = htobe64(h->compare_mask),
		.value = htobe64(h->value),
		.value_mask = htobe64(h->value_mask),
	};

	memcpy(to, &w, sizeof(w));
}

static bool op_size_fits(const struct rds_wire_op_hdr *h, size_t data)
{
	switch (h->kind) {
	case RDS_OP_WRITE:
	case RDS_OP_DATA:
		return data && data <= RDS_OP_PIECE;
	case RDS_OP_READ:
		return !data && h->len && h->len <= RDS_MAX_MSG;
	case RDS_OP_FETCH:
		return data && data % RDS_OP_VEC == 0 && data / RDS_OP_VEC <= RDS_FETCH_VECS && h->len &&
		       h->len <= RDS_MAX_MSG;
	case RDS_OP_ADVERTISED:
		return !data && h->len && h->offset == 0 && h->len <= UINT64_MAX - h->compare;
	case RDS_OP_SWAP:
	case RDS_OP_ADD:
	case RDS_OP_RESULT:
	case RDS_OP_REVOKED:
	case RDS_OP_REVOKE_ACK:
		return !data;
	default:
		return false;
	}
}

int rds_wire_op_decode(const void *from, size_t size, struct rds_wire_op_hdr *h)
{
	struct op_wire w;

	if (size < sizeof(w))
		return -EBADMSG;
	memcpy(&w, from, sizeof(w));
	/*
	 * From here on the compiler must not read the memory again, which a hostile peer may go on
	 * changing.
	 */
	__asm__ volatile("" : "+m"(w) : : "memory");
	*h = (struct rds_wire_op_hdr){
		.kind = w.kind,
		.status = w.status,
		.last = w.last,
		.rkey = be32toh(w.rkey),
		.id = be64toh(w.id),
		.message = be64toh(w.message),
		.offset = be64toh(w.offset),
		.len = be64toh(w.len),
		.compare = be64toh(w.compare),
		.compare_mask = be64toh(w.compare_mask),
		.value = be64toh(w.value),
		.value_mask = be64toh(w.value_mask),
	};
	return op_size_fits(h, size - sizeof(w)) ? 0 : -EBADMSG;
}

void rds_wire_op_vec_encode(const struct iovec *vec, unsigned n, unsigned char *to)
{
	unsigned i;

	for (i = 0; i < n; i++, to += RDS_OP_VEC) {
		uint64_t w[2] = {htobe64((uintptr_t)vec[i].iov_base), htobe64(vec[i].iov_len)};

		memcpy(to, w, sizeof(w));
	}
}

int rds_wire_op_vec_decode(const void *from, size_t size, uint64_t len, struct iovec *vec)
{
	unsigned n = (unsigned)(size / RDS_OP_VEC), i;
	uint64_t w[2], part;

	for (i = 0; i < n; i++) {
		memcpy(w, (const unsigned char *)from + i * RDS_OP_VEC, sizeof(w));
		part = be64toh(w[1]);
		if (!part || part > len)
			return -EBADMSG;
		len -= part;
		vec[i] = (struct iovec){(void *)(uintptr_t)be64toh(w[0]), part};
	}
	return len ? -EBADMSG : (int)n;
}
