/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdma.h - RDMA operations that the device carries out (rdma.c), and the memory of programs that it reaches (mr.c).
 */
#ifndef VERBS_RDMA_H
#define VERBS_RDMA_H

#include "engine/transport/verbs/verbs.h"

/* A work request of an operation. */
struct verbs_rdma_op {
	uint64_t id, seq; /* as the engine has given them */
	uint32_t wr;	  /* its own */
	uint32_t end;	  /* it is over when this one has completed, ... */
	uint32_t end_read; /* ... and so many reads have been answered (caps.probe_reads) */
	bool ended;	  /* ... which has been chained */
	uint32_t len;
	uint64_t at; /* in the operation */
	bool read, quiet;
	bool last;		  /* of its operation */
	bool reported;		  /* the engine knows already: the peer has acknowledged what came behind it */
	struct verbs_block block; /* where the bytes are until it has completed */
};

/* rdma.c */
int verbs_rdma_post(struct rds_ep *ep, const struct rds_device_op *op); /* tx */
void verbs_rdma_fence(struct rds_ep *ep);				/* tx */
/* tx: messages up to that one are in the chain, so what goes before them can end when it is posted ... */
void verbs_rdma_behind(struct verbs_ep *ep, uint64_t seq);
void verbs_rdma_end(struct verbs_ep *ep); /* ... which is now; nwr_listed > 0 */
void verbs_rdma_completed(struct verbs_ep *ep, uint32_t wr,
			  enum ibv_wc_status status);	  /* rx: that work request has completed */
void verbs_rdma_acked(struct verbs_ep *ep, uint64_t ack); /* rx: the peer has all before that */
void verbs_rdma_free(struct verbs_ep *ep);		  /* nothing is in flight */

/* mr.c */
int verbs_mr_register(struct rds_ep *ep, void *mem, size_t len, struct rds_device_mr **out); /* tx */
bool verbs_mr_key(struct rds_ep *ep, const struct rds_device_mr *shown, struct rds_device_key *far);
void verbs_mr_deregister(struct rds_device_mr *shown);
void verbs_mr_dev_end(struct verbs_dev *dev); /* helper: it is about to be freed */
void verbs_mr_forget(void);		      /* forked child */

/* send.c; tx */
bool verbs_send_room(struct verbs_ep *ep,
		     uint32_t n); /* for so many work requests, behind all messages that are not held */

#endif
