/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdma.h - RDMA operations that the device carries out (rdma.c).
 */
#ifndef ENGINE_TRANSPORT_VERBS_EP_RDMA_H
#define ENGINE_TRANSPORT_VERBS_EP_RDMA_H

#include "engine/transport/verbs/ep/ep.h"

/* One work request of an operation. */
struct verbs_rdma_op {
	uint64_t id, seq;  /* as given by the engine */
	uint32_t wr;	   /* number of this work request */
	uint32_t end;	   /* it is over when the work request of this number has completed */
	uint32_t end_read; /* and this many reads have been answered (caps.probe_reads) */
	bool ended;	   /* `end` is set: that work request has been chained */
	uint32_t len;
	uint64_t at; /* offset in the operation */
	bool read, quiet;
	bool last; /* the last work request of its operation */
	/* the engine has been told: the peer has acknowledged the message behind it */
	bool reported;
	struct verbs_block block; /* holds the bytes until the work request has completed */
};

/* rdma.c */
/* tx: messages up to seq are in the chain, so operations before them can end with the next post. */
void verbs_rdma_behind(struct verbs_ep *ep, uint64_t seq);
/* tx: that post is now: the operations end; nwr_listed > 0 */
void verbs_rdma_end(struct verbs_ep *ep);
void verbs_rdma_completed(struct verbs_ep *ep, uint32_t wr,
			  enum ibv_wc_status status); /* rx: work request wr has completed */
/* rx: the peer has everything up to ack */
void verbs_rdma_acked(struct verbs_ep *ep, uint64_t ack);
void verbs_rdma_free(struct verbs_ep *ep); /* nothing is in flight */

/* send.c; tx */
/* room for n work requests, and no message is unfinished but a held batch */
bool verbs_send_room(struct verbs_ep *ep, uint32_t n);

#endif
