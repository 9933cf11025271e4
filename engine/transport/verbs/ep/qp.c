/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * qp.c - an endpoint's queue pair: made for an rdma_cm id, found by its number, destroyed.
 *
 * The number alone tells which endpoint a received frame belongs to.  So the number stays in the
 * table until nothing of that queue pair can come any more.  To take a queue pair down, it is put
 * into the error state, so that everything in flight is flushed; a last work request marks the end
 * of it (endpoint.c, which has a deadline for that).
 */
#include <string.h>

#include "engine/transport/verbs/ep/ep.h"

#define RNR_TIMER_0_32_MS 10 /* 0.32 ms as the wire encodes it */
#define SEND_SGES 2

static unsigned qpn_bucket(uint32_t qpn)
{
	return (qpn * 2654435761u >> 16) % VERBS_QPS;
}

/* Each device has its own numbers: two devices may give the same one. */
struct verbs_ep *verbs_ep_by_qpn(const struct verbs_dev *dev, uint32_t qpn)
{
	struct verbs_ep *ep = verbs_eps.by_qpn[qpn_bucket(qpn)];

	while (ep && (ep->qpn != qpn || ep->dev != dev))
		ep = ep->qp_next;
	return ep;
}

void verbs_ep_hash(struct verbs_ep *ep)
{
	struct verbs_ep **head = &verbs_eps.by_qpn[qpn_bucket(ep->qpn)];

	ep->qp_next = *head;
	*head = ep;
}

void verbs_ep_unhash(struct verbs_ep *ep)
{
	VERBS_EP_UNLIST(verbs_eps.by_qpn[qpn_bucket(ep->qpn)], ep, qp_next);
}

int verbs_qp_create(struct verbs_ep *ep)
{
	struct verbs_dev *dev = ep->dev;
	uint32_t depth = verbs_dev_sq_depth(dev);
	struct ibv_qp_init_attr attr = {.send_cq = dev->cq,
					.recv_cq = dev->cq,
					.srq = dev->srq,
					.qp_type = IBV_QPT_RC,
					.sq_sig_all = 0,
					.cap = {.max_send_wr = depth, .max_send_sge = SEND_SGES}};
	uint32_t own = dev->srq ? 0 : VERBS_RQ; /* receives of its own queue */
	uint32_t max_inline = dev->caps.max_inline;
	int err;

	for (;; max_inline /= 2) { /* devices that can inline less refuse */
		attr.cap.max_inline_data = max_inline;
		attr.cap.max_recv_wr = own;
		attr.cap.max_recv_sge = own ? 1 : 0;
		errno = 0;
		err = verbs_err(vb.rdma_create_qp(ep->cm, dev->pd, &attr));
		if (!err || !max_inline || (err != -EINVAL && err != -ENOMEM))
			break;
		attr.cap.max_send_wr = depth;
		attr.cap.max_send_sge = SEND_SGES;
	}
	if (err) {
		verbs_memlock_help(dev, err, "a connection's queues, about",
				   depth * VERBS_SQ_ENTRY + own * VERBS_SRQ_ENTRY);
		return err;
	}
	if (attr.cap.max_inline_data < VERBS_HDR) {
		err = verbs_arena_reserve_headers(dev->arena);
		if (err) {
			vb.rdma_destroy_qp(ep->cm);
			return err;
		}
	}
	dev->caps.max_inline = max_inline;
	ep->qp = ep->cm->qp;
	ep->qpn = ep->qp->qp_num;
	ep->sq = depth;
	ep->max_inline = attr.cap.max_inline_data;
	rx_lock();
	verbs_ep_hash(ep);
	rx_unlock();
	return 0;
}

/*
 * Sets how long a sender pauses that has found no receive buffer here.  rdma_cm leaves the value at
 * 0, which means 655 ms, the longest there is; the kernel's RDS uses 0.32 ms.
 * If it cannot be set, everything works, but slowly when buffers run out.
 */
void verbs_qp_set_rnr_timer(struct verbs_ep *ep)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .min_rnr_timer = RNR_TIMER_0_32_MS};
	int err;

	if (!ep->dev->caps.rnr)
		return;
	err = verbs_err(vb.ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER));
	if (err)
		rds_debug("%s: the RNR timer cannot be set: %s", ep->dev->name, strerror(-err));
}

/*
 * As long as the engine has the endpoint, and the endpoint is up, its queue pair and its id exist.
 */
void verbs_ep_describe(struct rds_ep *rep, struct rds_ep_device *out)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;
	const struct rdma_ib_addr *way = &ep->cm->route.addr.addr.ibaddr;
	struct ibv_qp_init_attr init = {0};
	struct ibv_qp_attr attr = {0};

	*out = (struct rds_ep_device){
		.qp_num = ep->qpn,
		.dst_qp_num = UINT32_MAX,
		.max_send_wr = ep->sq,
		.max_recv_wr = ep->dev->srq ? ep->dev->caps.srq : VERBS_RQ,
		.max_send_sge = SEND_SGES,
		.frag = ep->frame,
	};
	memcpy(out->sgid, way->sgid.raw, sizeof(out->sgid));
	memcpy(out->dgid, way->dgid.raw, sizeof(out->dgid));
	if (verbs_err(vb.ibv_query_qp(ep->qp, &attr, IBV_QP_AV | IBV_QP_DEST_QPN, &init)))
		return;
	out->dst_qp_num = attr.dest_qp_num;
	out->sl = attr.ah_attr.sl;
}

void verbs_qp_destroy(struct verbs_ep *ep)
{
	if (!ep->qp)
		return;
	rx_lock();
	verbs_ep_unhash(ep);
	verbs_credit_end(ep);
	rx_unlock();
	vb.rdma_destroy_qp(ep->cm);
	ep->qp = NULL;
	rx_lock();
	verbs_credit_buf_put_all(ep);
	rx_unlock();
}
