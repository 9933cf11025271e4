/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * fuzz_wire.c - any 48 bytes as a message header: what is accepted keeps the limits that everybody behind relies on,
 * and means the same after being written and read again.
 *
 * fuzz-sources: engine/wire.c
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/wire.h"

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
	must(!(h->flags & RDS_FLAG_CONG_BITMAP) || h->len == RDS_CONG_MAP_BYTES);
	must(h->ext_type == RDS_EXTHDR_NONE || h->ext_type == RDS_EXTHDR_RDMA || h->ext_type == RDS_EXTHDR_RDMA_DEST);
	must(h->ext_type == RDS_EXTHDR_RDMA_DEST || !h->ext_offset);
	for (int checksum = 0; checksum < 2; checksum++) {
		rds_hdr_encode(h, &w, checksum);
		must(!checksum == !w.csum);
		must(rds_hdr_decode(&w, &again) == 0);
		must(again.seq == h->seq && again.ack == h->ack && again.len == h->len && again.sport == h->sport &&
		     again.dport == h->dport && again.flags == h->flags && again.credit == h->credit &&
		     again.ext_type == h->ext_type && again.ext_rkey == h->ext_rkey &&
		     again.ext_offset == h->ext_offset);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rds_wire_hdr *w;
	struct rds_hdr h;
	int ret;

	if (size < sizeof(*w))
		return 0;
	w = malloc(sizeof(*w)); /* of its own, so that a read beyond is seen */
	memcpy(w, data, sizeof(*w));
	ret = rds_hdr_decode(w, &h);
	must(ret == 0 || ret == -EBADMSG);
	if (!ret)
		believed(&h);
	/* A right checksum is hard to guess: the same without one. */
	w->csum = 0;
	if (!rds_hdr_decode(w, &h))
		believed(&h);
	free(w);
	return 0;
}
