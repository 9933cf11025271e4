/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fuzz_wire.c - any 48 bytes as a message header, any bytes as a piece of an RDMA operation: what
 * is accepted keeps the limits that everybody behind relies on, and means the same after being
 * written and read again.
 *
 * fuzz-sources: engine/wire/header.c engine/wire/op_header.c
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/transport/transport.h"
#include "engine/wire/header.h"
#include "engine/wire/op_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void believed(const struct rds_hdr *h)
{
	struct rds_wire_hdr w;
	struct rds_hdr again;

	must(h->len <= RDS_MAX_MSG);
	must(!(h->flags & RDS_FLAG_CONG_BITMAP) || h->len == RDS_CONG_MAP_BYTES ||
	     (h->len % 2 == 0 && h->len <= 2 * RDS_CONG_LIST_PORTS));
	must(h->ext_type == RDS_EXTHDR_NONE || h->ext_type == RDS_EXTHDR_RDMA || h->ext_type == RDS_EXTHDR_RDMA_DEST);
	must(h->ext_type == RDS_EXTHDR_RDMA_DEST || !h->ext_offset);
	must(!h->op || h->ext_type != RDS_EXTHDR_RDMA_DEST); /* there is no place for both */
	for (int checksum = 0; checksum < 2; checksum++) {
		rds_wire_hdr_encode(h, &w, checksum);
		must(!checksum == !w.csum);
		must(rds_wire_hdr_decode(&w, &again) == 0);
		must(again.seq == h->seq && again.ack == h->ack && again.len == h->len && again.sport == h->sport &&
		     again.dport == h->dport && again.flags == h->flags && again.credit == h->credit &&
		     again.ext_type == h->ext_type && again.ext_rkey == h->ext_rkey &&
		     again.ext_offset == h->ext_offset && again.op == h->op &&
		     (h->op || again.sock == h->sock)); /* there is no place for both */
	}
}

/* What is believed adds up. */
static void lent(const unsigned char *data, size_t size, uint64_t len)
{
	struct iovec vec[RDS_FETCH_VECS];
	int n = rds_wire_op_vec_decode(data, size, len, vec), i;

	must(n == -EBADMSG || (n > 0 && (size_t)n * RDS_OP_VEC == size));
	for (i = 0; i < n; i++) {
		must(vec[i].iov_len && vec[i].iov_len <= len);
		len -= vec[i].iov_len;
	}
	must(n < 0 || !len);
}

static void piece(const uint8_t *data, size_t size)
{
	unsigned char *copy = malloc(size), head[RDS_OP_HDR];
	struct rds_wire_op_hdr h, again;
	int ret;

	memcpy(copy, data, size);
	ret = rds_wire_op_decode(copy, size, &h);
	must(ret == 0 || ret == -EBADMSG);
	if (!ret) {
		must(h.kind >= RDS_OP_WRITE && h.kind <= RDS_OP_REVOKE_ACK && size >= RDS_OP_HDR);
		must(size - RDS_OP_HDR <= RDS_OP_PIECE);
		must((h.kind != RDS_OP_READ && h.kind != RDS_OP_FETCH) || (h.len && h.len <= RDS_MAX_MSG));
		if (h.kind == RDS_OP_FETCH)
			lent(copy + RDS_OP_HDR, size - RDS_OP_HDR, h.len);
		rds_wire_op_encode(&h, head);
		memcpy(copy, head, sizeof(head));
		must(rds_wire_op_decode(copy, size, &again) == 0);
		must(again.kind == h.kind && again.status == h.status && again.last == h.last && again.rkey == h.rkey &&
		     again.id == h.id && again.message == h.message && again.offset == h.offset && again.len == h.len &&
		     again.compare == h.compare && again.value_mask == h.value_mask);
	}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rds_wire_hdr *w;
	struct rds_hdr h;
	int ret;

	if (size)
		piece(data, size);
	if (size < sizeof(*w))
		return 0;
	w = malloc(sizeof(*w)); /* of its own, so that a read beyond is seen */
	memcpy(w, data, sizeof(*w));
	ret = rds_wire_hdr_decode(w, &h);
	must(ret == 0 || ret == -EBADMSG);
	if (!ret)
		believed(&h);
	/* A right checksum is hard to guess: the same without one. */
	w->csum = 0;
	if (!rds_wire_hdr_decode(w, &h))
		believed(&h);
	free(w);
	return 0;
}
