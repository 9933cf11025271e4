/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_wire.c - work requests are carried out: bytes get from a send queue to the peer's receives,
 * or fail on their way.
 */
#include "tests/mock/mock_impl.h"

static enum ibv_wc_status fail_send, fail_recv; /* of whichever queue pair comes first */

struct mock_qp *mock_qp_peer(const struct mock_qp *qp)
{
	struct mock_id *peer = qp->id->peer;

	return peer && peer->id.qp ? (struct mock_qp *)peer->id.qp : NULL;
}

static bool hears(const struct mock_qp *qp)
{
	return qp->qp.state == IBV_QPS_RTR || qp->qp.state == IBV_QPS_RTS;
}

/* The status is used up. */
static enum ibv_wc_status planned(enum ibv_wc_status *own, enum ibv_wc_status *any)
{
	enum ibv_wc_status *p = *own ? own : any, status = *p;

	*p = IBV_WC_SUCCESS;
	return status;
}

static bool cut(const struct mock_qp *a, const struct mock_qp *b)
{
	return mock_dev_of(a->qp.context)->cut || mock_dev_of(b->qp.context)->cut;
}

/* A receive is used up. */
static void received(struct mock_qp *qp, struct mock_recv *r, const struct mock_send *s, uint32_t from,
		     enum ibv_wc_status status)
{
	struct mock_srq *srq = qp->rq;
	struct mock_cqe e = {.wc = {.opcode = IBV_WC_RECV, .byte_len = (uint32_t)s->len, .src_qp = from}};

	TAILQ_REMOVE(&srq->recvs, r, link);
	srq->count--;
	if (qp->qp.srq && srq->count < srq->limit) {
		srq->limit = 0;
		mock_say_srq(&srq->srq, IBV_EVENT_SRQ_LIMIT_REACHED);
	}
	if (status == IBV_WC_SUCCESS) {
		if (mock_mem_check(srq->srq.pd, r->sge, r->nsge, IBV_ACCESS_LOCAL_WRITE, "receive"))
			mock_mem_scatter(r->sge, r->nsge, s->data, s->len);
	} else {
		memset(&e.wc, 0xa5, sizeof(e.wc));
		e.wc.status = status;
	}
	e.wc.wr_id = r->wr_id;
	e.wc.qp_num = qp->qp.qp_num;
	qp->heard = true;
	mock_cq_push(qp->qp.recv_cq, &e, s->flags & IBV_SEND_SOLICITED);
	free(r);
	if (status != IBV_WC_SUCCESS)
		mock_qp_error(qp);
}

/*
 * The other side learns nothing of it, unless it is not permitted: then its queue pair is in error
 * as well.
 */
static enum ibv_wc_status rdma(struct mock_qp *to, const struct mock_send *s)
{
	struct ibv_sge sge = {s->remote, (uint32_t)s->len, s->rkey};
	bool read = s->opcode == IBV_WR_RDMA_READ;
	unsigned char *mem = (unsigned char *)(uintptr_t)s->remote;

	to->heard = true;
	if (!s->len)
		return IBV_WC_SUCCESS;
	if (mock_mem_wrong(to->qp.pd, &sge, read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE)) {
		mock_qp_error(to);
		return IBV_WC_REM_ACCESS_ERR;
	}
	if (read)
		mock_mem_scatter(s->sge, s->nsge, mem, s->len);
	else
		memcpy(mem, s->data, s->len);
	return IBV_WC_SUCCESS;
}

/* What the sender of it learns; IBV_WC_RNR_RETRY_EXC_ERR: no receive. */
static enum ibv_wc_status deliver(struct mock_qp *to, const struct mock_send *s, uint32_t from)
{
	struct mock_srq *srq = to->rq;
	struct mock_recv *r = TAILQ_FIRST(&srq->recvs);
	enum ibv_wc_status status;

	if (s->opcode != IBV_WR_SEND)
		return rdma(to, s);
	if (!r)
		return IBV_WC_RNR_RETRY_EXC_ERR;
	status = planned(&to->fail_recv, &fail_recv);
	if (status == IBV_WC_SUCCESS && s->len > mock_mem_length(r->sge, r->nsge)) {
		received(to, r, s, from, IBV_WC_LOC_LEN_ERR);
		return IBV_WC_REM_INV_REQ_ERR;
	}
	received(to, r, s, from, status);
	return status == IBV_WC_SUCCESS ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR;
}

static bool gather(struct mock_qp *qp, struct mock_send *s)
{
	if (s->data || s->opcode == IBV_WR_RDMA_READ)
		return true;
	if (!mock_mem_check(qp->qp.pd, s->sge, s->nsge, 0, "send"))
		return false;
	s->data = malloc(s->len + 1);
	mock_mem_gather(s->data, s->sge, s->nsge);
	return true;
}

/* The oldest leaves the queue with that status; others than success end the queue pair. */
static void finish(struct mock_qp *qp, struct mock_send *s, enum ibv_wc_status status)
{
	TAILQ_REMOVE(&qp->sq, s, link);
	qp->waiting--;
	mock_send_complete(qp, s, status);
	if (status != IBV_WC_SUCCESS) {
		if (mock_dev_of(qp->qp.context)->mode == MOCK_IWARP)
			mock_id_break(qp->id);
		mock_qp_error(qp);
	}
}

static bool step_ib(struct mock_qp *qp, struct mock_send *s)
{
	struct mock_qp *peer = mock_qp_peer(qp);
	enum ibv_wc_status status;

	if (!peer || !hears(peer) || cut(qp, peer) || !gather(qp, s))
		return false;
	status = deliver(peer, s, qp->qp.qp_num);
	if (status == IBV_WC_RNR_RETRY_EXC_ERR) {
		qp->rnr = true;
		if (!(s->flags & IBV_SEND_INLINE)) { /* read again the next time */
			free(s->data);
			s->data = NULL;
		}
		return false;
	}
	qp->rnr = false;
	finish(qp, s, status);
	mock_send_free(s);
	return true;
}

/*
 * On its way, and complete; but a read is that when its answer is there, perhaps after what was
 * posted behind it (siw).
 */
static bool step_iwarp(struct mock_qp *qp, struct mock_send *s)
{
	if (qp->id->passive && !qp->heard) {
		mock_fault("iWARP: the side that accepted speaks first");
		return false;
	}
	if (qp->on_wire == MOCK_WINDOW || !gather(qp, s))
		return false;
	TAILQ_REMOVE(&qp->sq, s, link);
	qp->waiting--;
	if (s->opcode != IBV_WR_RDMA_READ)
		mock_send_complete(qp, s, IBV_WC_SUCCESS);
	TAILQ_INSERT_TAIL(&qp->wire, s, link);
	qp->on_wire++;
	return true;
}

static bool step_sq(struct mock_qp *qp)
{
	struct mock_send *s = TAILQ_FIRST(&qp->sq);
	enum ibv_wc_status status;

	if (!s || qp->qp.state != IBV_QPS_RTS)
		return false;
	status = planned(&qp->fail_send, &fail_send);
	if (status != IBV_WC_SUCCESS) {
		finish(qp, s, status);
		mock_send_free(s);
		return true;
	}
	return mock_dev_of(qp->qp.context)->mode == MOCK_IB ? step_ib(qp, s) : step_iwarp(qp, s);
}

static bool unnoticed(const struct mock_qp *to, unsigned on_wire)
{
	return to->id->passive && !to->heard && on_wire <= mock_dev_of(to->qp.context)->late_receive;
}

static bool step_wire(struct mock_qp *qp)
{
	struct mock_send *s = TAILQ_FIRST(&qp->wire);
	struct mock_qp *peer = mock_qp_peer(qp);
	enum ibv_wc_status status;

	if (!s || !peer || !hears(peer) || cut(qp, peer) || unnoticed(peer, qp->on_wire))
		return false;
	TAILQ_REMOVE(&qp->wire, s, link);
	qp->on_wire--;
	status = deliver(peer, s, qp->qp.qp_num);
	if (s->opcode == IBV_WR_RDMA_READ)
		mock_send_complete(qp, s, status);
	if (status != IBV_WC_SUCCESS)
		mock_id_break(qp->id);
	mock_send_free(s);
	return true;
}

/*
 * Carries out one step.  The queue pair that has done something goes to the end, so that all take
 * turns.
 */
bool mock_step(void)
{
	MOCK_LOCK;
	struct mock_qp *qp;

	if (mock_cm_step())
		return true;
	TAILQ_FOREACH(qp, &mock_qps, link)
	{
		if (!step_wire(qp) && !step_sq(qp))
			continue;
		TAILQ_REMOVE(&mock_qps, qp, link);
		TAILQ_INSERT_TAIL(&mock_qps, qp, link);
		return true;
	}
	return false;
}

void mock_run(void)
{
	MOCK_LOCK;

	while (mock_step())
		;
}

/* Does the oldest of it wait for something that will not come? */
static enum ibv_wc_status given_up(struct mock_qp *qp)
{
	struct mock_qp *peer = mock_qp_peer(qp);

	if (qp->qp.state != IBV_QPS_RTS || !TAILQ_FIRST(&qp->sq))
		return IBV_WC_SUCCESS;
	if (!peer || !hears(peer) || cut(qp, peer))
		return IBV_WC_RETRY_EXC_ERR;
	return qp->rnr && qp->rnr_retry < 7 ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_SUCCESS;
}

static bool stuck_wire(struct mock_qp *qp)
{
	struct mock_qp *peer = mock_qp_peer(qp);

	return TAILQ_FIRST(&qp->wire) && (!peer || !hears(peer) || cut(qp, peer));
}

void mock_timeout(void)
{
	MOCK_LOCK;
	struct mock_qp *qp;
	enum ibv_wc_status status;
	struct mock_send *s;

	mock_cm_timeout();
	TAILQ_FOREACH(qp, &mock_qps, link)
	{
		if (stuck_wire(qp))
			mock_id_break(qp->id);
		if (mock_dev_of(qp->qp.context)->mode == MOCK_IWARP)
			continue;
		status = given_up(qp);
		if (status == IBV_WC_SUCCESS)
			continue;
		s = TAILQ_FIRST(&qp->sq);
		finish(qp, s, status);
		mock_send_free(s);
	}
	mock_moved();
}

void mock_fail_send(struct ibv_qp *qp, enum ibv_wc_status status)
{
	MOCK_LOCK;

	*(qp ? &((struct mock_qp *)qp)->fail_send : &fail_send) = status;
}

void mock_fail_recv(struct ibv_qp *qp, enum ibv_wc_status status)
{
	MOCK_LOCK;

	*(qp ? &((struct mock_qp *)qp)->fail_recv : &fail_recv) = status;
}

void mock_wire_reset(void)
{
	TAILQ_INIT(&mock_qps);
	TAILQ_INIT(&mock_srqs);
	TAILQ_INIT(&mock_mrs);
	fail_send = fail_recv = IBV_WC_SUCCESS;
}
