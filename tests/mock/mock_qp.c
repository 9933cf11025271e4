/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_qp.c - queue pairs and shared receive queues of the mock: how they are made and end, what
 * completes and what is flushed.
 */
#include "tests/mock/mock_impl.h"

struct mock_qps mock_qps = TAILQ_HEAD_INITIALIZER(mock_qps);
struct mock_srqs mock_srqs = TAILQ_HEAD_INITIALIZER(mock_srqs);

/* ---- shared receive queues ---- */

static struct ibv_srq *create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	MOCK_LOCK;
	struct mock_dev *dev = mock_dev_of(pd->context);
	struct mock_srq *srq;

	MOCK_FAILS_NULL(ibv_create_srq);
	if (dev->gone)
		return mock_null(EIO);
	if (!init->attr.max_wr || init->attr.max_wr > (unsigned)dev->attr.max_srq_wr ||
	    init->attr.max_sge > (unsigned)dev->attr.max_srq_sge || init->attr.srq_limit)
		return mock_null(EINVAL);
	if (mock_count(MOCK_SRQ) >= (unsigned)dev->attr.max_srq)
		return mock_null(ENOMEM);
	srq = calloc(1, sizeof(*srq));
	srq->srq = (struct ibv_srq){.context = pd->context, .srq_context = init->srq_context, .pd = pd};
	srq->depth = init->attr.max_wr;
	srq->max_sge = (int)init->attr.max_sge;
	TAILQ_INIT(&srq->recvs);
	TAILQ_INSERT_TAIL(&mock_srqs, srq, link);
	((struct mock_pd *)pd)->users++;
	mock_made(MOCK_SRQ);
	return &srq->srq;
}

/* Of what can be changed, the limit: said once, when fewer are left. */
static int modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	MOCK_LOCK;
	struct mock_srq *srq = (struct mock_srq *)ibsrq;

	MOCK_FAILS_NUMBER(ibv_modify_srq);
	if (mask != IBV_SRQ_LIMIT || attr->srq_limit > srq->depth)
		return EINVAL;
	srq->limit = attr->srq_limit;
	return 0;
}

static int destroy_srq(struct ibv_srq *ibsrq)
{
	MOCK_LOCK;
	struct mock_srq *srq = (struct mock_srq *)ibsrq;
	struct mock_recv *r;

	MOCK_FAILS_NUMBER(ibv_destroy_srq);
	if (srq->users)
		return EBUSY;
	if (!mock_all_acked(&srq->async, "shared receive queue"))
		return EBUSY;
	mock_async_forget(ibsrq->context, ibsrq);
	while ((r = TAILQ_FIRST(&srq->recvs))) {
		TAILQ_REMOVE(&srq->recvs, r, link);
		free(r);
	}
	TAILQ_REMOVE(&mock_srqs, srq, link);
	((struct mock_pd *)ibsrq->pd)->users--;
	mock_unmade(MOCK_SRQ);
	free(srq);
	return 0;
}

static int post_recv(struct mock_srq *srq, const struct ibv_recv_wr *wr)
{
	struct mock_dev *dev = mock_dev_of(srq->srq.context);
	struct mock_recv *r;

	if (srq->count == srq->depth)
		return ENOMEM;
	if (wr->num_sge > srq->max_sge || wr->num_sge < (dev->mode == MOCK_IWARP))
		return EINVAL;
	if (!mock_mem_check(srq->srq.pd, wr->sg_list, wr->num_sge, IBV_ACCESS_LOCAL_WRITE, "posted receive"))
		return EFAULT;
	r = calloc(1, sizeof(*r));
	r->wr_id = wr->wr_id;
	r->nsge = wr->num_sge;
	memcpy(r->sge, wr->sg_list, sizeof(r->sge[0]) * (size_t)wr->num_sge);
	TAILQ_INSERT_TAIL(&srq->recvs, r, link);
	srq->count++;
	return 0;
}

static int post_list(struct mock_srq *srq, int err, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct mock_dev *dev = mock_dev_of(srq->srq.context);
	unsigned done = 0;

	if (!err && dev->gone)
		err = EIO;
	for (; wr && !err; wr = wr->next) {
		if (!mock_post_fails(done, &err))
			err = post_recv(srq, wr);
		if (err)
			break;
		done++;
	}
	if (err)
		*bad = wr;
	mock_moved();
	return mock_post_result(dev, done, err);
}

int mock_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	MOCK_LOCK;

	return post_list((struct mock_srq *)ibsrq, mock_fails(MOCK_ibv_post_srq_recv), wr, bad);
}

unsigned mock_recvs_posted(struct ibv_srq *srq)
{
	return ((struct mock_srq *)srq)->count;
}

/* ---- a queue pair's own receives ---- */

static struct mock_srq *own_new(struct mock_qp *qp, const struct ibv_qp_cap *cap)
{
	struct mock_srq *rq = calloc(1, sizeof(*rq));

	rq->srq = (struct ibv_srq){.context = qp->qp.context, .pd = qp->qp.pd};
	rq->depth = cap->max_recv_wr;
	rq->max_sge = (int)cap->max_recv_sge;
	TAILQ_INIT(&rq->recvs);
	return rq;
}

static void own_free(struct mock_qp *qp)
{
	struct mock_recv *r;

	while ((r = TAILQ_FIRST(&qp->rq->recvs))) {
		TAILQ_REMOVE(&qp->rq->recvs, r, link);
		free(r);
	}
	free(qp->rq);
}

static void own_flush(struct mock_qp *qp)
{
	struct mock_recv *r;

	while (!qp->qp.srq && (r = TAILQ_FIRST(&qp->rq->recvs))) {
		struct mock_cqe e = {0};

		memset(&e.wc, 0xa5, sizeof(e.wc));
		e.wc.status = IBV_WC_WR_FLUSH_ERR;
		e.wc.wr_id = r->wr_id;
		e.wc.qp_num = qp->qp.qp_num;
		TAILQ_REMOVE(&qp->rq->recvs, r, link);
		qp->rq->count--;
		free(r);
		mock_cq_push(qp->qp.recv_cq, &e, false);
	}
}

int mock_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	MOCK_LOCK;
	struct mock_qp *qp = (struct mock_qp *)ibqp;
	int err = mock_fails(MOCK_ibv_post_recv);

	err = post_list(qp->rq, !err && ibqp->srq ? EINVAL : err, wr, bad);
	if (ibqp->state == IBV_QPS_ERR)
		own_flush(qp);
	return err;
}

unsigned mock_recvs_own(struct ibv_context *ctx)
{
	struct mock_qp *qp;
	unsigned n = 0;

	TAILQ_FOREACH(qp, &mock_qps, link)
	if (qp->qp.context == ctx && !qp->qp.srq)
		n += qp->rq->count;
	return n;
}

/* ---- queue pairs ---- */

static int check_init(struct mock_dev *dev, const struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	if (dev->gone)
		return EIO;
	if (attr->qp_type != IBV_QPT_RC || !attr->send_cq || !attr->recv_cq || (!attr->srq && !attr->cap.max_recv_wr))
		return EINVAL;
	if (attr->send_cq->context != pd->context || attr->recv_cq->context != pd->context ||
	    (attr->srq && attr->srq->pd != pd))
		return EINVAL;
	if (attr->cap.max_send_wr > (unsigned)dev->attr.max_qp_wr || !attr->cap.max_send_wr ||
	    attr->cap.max_send_sge > (unsigned)dev->attr.max_sge || attr->cap.max_inline_data > dev->max_inline)
		return EINVAL;
	if (mock_count(MOCK_QP) >= (unsigned)dev->attr.max_qp)
		return ENOMEM;
	return 0;
}

static void hold(struct mock_qp *qp, int n)
{
	((struct mock_cq *)qp->qp.send_cq)->users += (unsigned)n;
	((struct mock_cq *)qp->qp.recv_cq)->users += (unsigned)n;
	if (qp->qp.srq)
		((struct mock_srq *)qp->qp.srq)->users += (unsigned)n;
	((struct mock_pd *)qp->qp.pd)->users += (unsigned)n;
}

struct mock_qp *mock_qp_new(struct mock_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr, int *err)
{
	struct mock_dev *dev = mock_dev_of(pd->context);
	struct mock_qp *qp;

	*err = check_init(dev, pd, attr);
	if (*err)
		return NULL;
	if (attr->cap.max_inline_data > dev->grant_inline)
		attr->cap.max_inline_data = dev->grant_inline;
	qp = calloc(1, sizeof(*qp));
	qp->qp = (struct ibv_qp){
		.context = pd->context,
		.qp_context = attr->qp_context,
		.pd = pd,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.qp_num = ++dev->last_qpn,
		.state = IBV_QPS_INIT,
		.qp_type = IBV_QPT_RC,
	};
	qp->id = id;
	qp->cap = attr->cap;
	qp->sig_all = attr->sq_sig_all;
	qp->rq = attr->srq ? (struct mock_srq *)attr->srq : own_new(qp, &attr->cap);
	TAILQ_INIT(&qp->sq);
	TAILQ_INIT(&qp->wire);
	hold(qp, 1);
	TAILQ_INSERT_TAIL(&mock_qps, qp, link);
	mock_made(MOCK_QP);
	return qp;
}

void mock_send_free(struct mock_send *s)
{
	free(s->data);
	free(s);
}

static void drop_all(struct mock_sends *list)
{
	struct mock_send *s;

	while ((s = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, s, link);
		mock_send_free(s);
	}
}

bool mock_qp_destroy(struct mock_qp *qp)
{
	struct mock_id *id = qp->id;

	if (!mock_all_acked(&qp->async, "queue pair"))
		return false;
	id->id.qp = NULL;
	mock_async_forget(qp->qp.context, qp);
	if (id->dev->mode == MOCK_IWARP && qp->qp.state == IBV_QPS_RTS)
		mock_id_break(id);
	if (mock_dev_of(qp->qp.context)->destroy_cleans) {
		mock_cq_forget_qp(qp->qp.send_cq, qp->qp.qp_num);
		mock_cq_forget_qp(qp->qp.recv_cq, qp->qp.qp_num);
	}
	drop_all(&qp->sq);
	drop_all(&qp->wire);
	hold(qp, -1);
	if (!qp->qp.srq)
		own_free(qp);
	TAILQ_REMOVE(&mock_qps, qp, link);
	mock_unmade(MOCK_QP);
	free(qp);
	return true;
}

/* ---- completions ---- */

/* Of a work request that failed nothing is valid but these. */
static void fill_bad(struct ibv_wc *wc, enum ibv_wc_status status)
{
	memset(wc, 0xa5, sizeof(*wc));
	wc->status = status;
	wc->vendor_err = 0x77;
}

static void complete(struct mock_qp *qp, const struct mock_send *s, enum ibv_wc_status status)
{
	struct mock_cqe e = {.send = true, .seq = s->seq};

	e.wc.opcode = s->opcode == IBV_WR_SEND	       ? IBV_WC_SEND
		      : s->opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE
						       : IBV_WC_RDMA_READ;
	if (status != IBV_WC_SUCCESS)
		fill_bad(&e.wc, status);
	e.wc.wr_id = s->wr_id;
	e.wc.qp_num = qp->qp.qp_num;
	mock_cq_push(qp->qp.send_cq, &e, false);
}

static void flush(struct mock_qp *qp, const struct mock_send *s)
{
	struct mock_dev *dev = mock_dev_of(qp->qp.context);

	if (dev->lose_flush)
		dev->lose_flush--;
	else
		complete(qp, s, IBV_WC_WR_FLUSH_ERR);
}

/* The oldest of the send queue is done. */
void mock_send_complete(struct mock_qp *qp, const struct mock_send *s, enum ibv_wc_status status)
{
	if (status != IBV_WC_SUCCESS || qp->sig_all || (s->flags & IBV_SEND_SIGNALED))
		complete(qp, s, status);
}

void mock_qp_error(struct mock_qp *qp)
{
	struct mock_dev *dev = mock_dev_of(qp->qp.context);
	struct mock_send *s;

	if (qp->qp.state != IBV_QPS_ERR && dev->last_wqe && !dev->gone)
		mock_async_qp(&qp->qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	qp->qp.state = IBV_QPS_ERR;
	qp->rnr = false;
	TAILQ_FOREACH(s, &qp->wire, link)
	if (s->opcode == IBV_WR_RDMA_READ)
		flush(qp, s);
	while ((s = TAILQ_FIRST(&qp->sq))) {
		TAILQ_REMOVE(&qp->sq, s, link);
		qp->waiting--;
		flush(qp, s);
		mock_send_free(s);
	}
	own_flush(qp);
	drop_all(&qp->wire);
}

void mock_qp_reclaim(const struct mock_dev *dev, uint32_t qpn, uint32_t seq)
{
	struct mock_qp *qp;

	TAILQ_FOREACH(qp, &mock_qps, link)
	if (qp->qp.qp_num == qpn && mock_dev_of(qp->qp.context) == dev && (int32_t)(seq + 1 - qp->reclaimed) > 0)
		qp->reclaimed = seq + 1;
}

/* ---- what is asked of them ---- */

static int query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	MOCK_LOCK;
	struct mock_qp *qp = (struct mock_qp *)ibqp;

	(void)mask;
	MOCK_FAILS_NUMBER(ibv_query_qp);
	if (mock_dev_of(ibqp->context)->gone)
		return EIO;
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = attr->cur_qp_state = ibqp->state;
	attr->cap = qp->cap;
	attr->rnr_retry = qp->rnr_retry;
	attr->min_rnr_timer = qp->min_rnr_timer;
	if (qp->id && qp->id->peer && qp->id->peer->id.qp)
		attr->dest_qp_num = qp->id->peer->id.qp->qp_num;
	*init = (struct ibv_qp_init_attr){
		.qp_context = ibqp->qp_context,
		.send_cq = ibqp->send_cq,
		.recv_cq = ibqp->recv_cq,
		.srq = ibqp->srq,
		.cap = qp->cap,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = qp->sig_all,
	};
	return 0;
}

/* Into error; or attributes, where a device has them. */
static int modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	MOCK_LOCK;
	struct mock_qp *qp = (struct mock_qp *)ibqp;
	struct mock_dev *dev = mock_dev_of(ibqp->context);
	int known = IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;

	MOCK_FAILS_NUMBER(ibv_modify_qp);
	if (dev->gone)
		return EIO;
	if ((mask & ~known) || (dev->mode == MOCK_IWARP && (mask & ~IBV_QP_STATE)))
		return EINVAL;
	if ((mask & IBV_QP_STATE) && attr->qp_state != IBV_QPS_ERR && attr->qp_state != ibqp->state)
		return EINVAL;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		qp->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_RNR_RETRY)
		qp->rnr_retry = attr->rnr_retry;
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR) {
		if (dev->mode == MOCK_IWARP && ibqp->state == IBV_QPS_RTS)
			mock_id_break(qp->id);
		mock_qp_error(qp);
	}
	mock_moved();
	return 0;
}

void mock_qp_install(void)
{
	vb.ibv_create_srq = create_srq;
	vb.ibv_modify_srq = modify_srq;
	vb.ibv_destroy_srq = destroy_srq;
	vb.ibv_query_qp = query_qp;
	vb.ibv_modify_qp = modify_qp;
}
