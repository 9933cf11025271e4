/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_post.c - what is posted to a send queue of the mock, and how a list fails in the middle.
 */
#include "tests/mock/mock_impl.h"

static struct {
	bool armed;
	unsigned skip;
	int err;
} planned;

void mock_post_fail(unsigned skip, int err)
{
	MOCK_LOCK;

	planned.armed = true;
	planned.skip = skip;
	planned.err = err;
}

bool mock_post_fails(unsigned done, int *err)
{
	if (!planned.armed || done != planned.skip)
		return false;
	planned.armed = false;
	*err = planned.err;
	return true;
}

void mock_post_reset(void)
{
	planned.armed = false;
}

/* The device has `done` of the list, then something was wrong: what the call returns. */
int mock_post_result(struct mock_dev *dev, unsigned done, int err)
{
	if (dev->mode == MOCK_IB)
		return err;
	return done ? 0 : -err;
}

/* iWARP's reads go to one piece of memory, which the peer's answer is allowed to write to. */
static int check_read(struct mock_qp *qp, const struct ibv_send_wr *wr, size_t len)
{
	bool iwarp = mock_dev_of(qp->qp.context)->mode == MOCK_IWARP;

	if (!len || wr->send_flags & IBV_SEND_INLINE) {
		mock_fault("posted a read of no bytes, which siw may answer with some, or one that is inline");
		return EINVAL;
	}
	if (iwarp && wr->num_sge > 1)
		return EINVAL;
	return mock_mem_check(qp->qp.pd, wr->sg_list, wr->num_sge,
			      IBV_ACCESS_LOCAL_WRITE | (iwarp ? IBV_ACCESS_REMOTE_WRITE : 0), "posted read")
		       ? 0
		       : EFAULT;
}

static int check_send(struct mock_qp *qp, const struct ibv_send_wr *wr)
{
	size_t len = mock_mem_length(wr->sg_list, wr->num_sge);
	bool inl = wr->send_flags & IBV_SEND_INLINE;

	if (qp->qp.state != IBV_QPS_RTS && qp->qp.state != IBV_QPS_ERR)
		return EINVAL;
	if (qp->posted - qp->reclaimed >= qp->cap.max_send_wr)
		return ENOMEM;
	if (wr->num_sge < 0 || (unsigned)wr->num_sge > qp->cap.max_send_sge || (inl && len > qp->cap.max_inline_data))
		return EINVAL;
	if (wr->opcode == IBV_WR_RDMA_READ)
		return check_read(qp, wr, len);
	if (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_RDMA_WRITE) {
		mock_fault("posted what the mock does not model: opcode %d, %zu bytes", wr->opcode, len);
		return EOPNOTSUPP;
	}
	if (!inl && !mock_mem_check(qp->qp.pd, wr->sg_list, wr->num_sge, 0, "posted send"))
		return EFAULT;
	return 0;
}

static int post_one(struct mock_qp *qp, const struct ibv_send_wr *wr)
{
	struct mock_send *s;
	int err = check_send(qp, wr);

	if (err)
		return err;
	s = calloc(1, sizeof(*s));
	s->wr_id = wr->wr_id;
	s->seq = qp->posted++;
	s->opcode = wr->opcode;
	s->flags = wr->send_flags;
	s->remote = wr->wr.rdma.remote_addr;
	s->rkey = wr->wr.rdma.rkey;
	s->nsge = wr->num_sge;
	if (s->nsge)
		memcpy(s->sge, wr->sg_list, sizeof(s->sge[0]) * (size_t)wr->num_sge);
	s->len = mock_mem_length(s->sge, s->nsge);
	if (s->flags & IBV_SEND_INLINE) {
		s->data = malloc(s->len + 1);
		mock_mem_gather(s->data, s->sge, s->nsge);
	}
	TAILQ_INSERT_TAIL(&qp->sq, s, link);
	qp->waiting++;
	return 0;
}

int mock_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	MOCK_LOCK;
	struct mock_qp *qp = (struct mock_qp *)ibqp;
	struct mock_dev *dev = mock_dev_of(ibqp->context);
	int err = mock_fails(MOCK_ibv_post_send);
	unsigned done = 0;

	for (; wr && !err; wr = wr->next) {
		if (!mock_post_fails(done, &err))
			err = post_one(qp, wr);
		if (err)
			break;
		done++;
	}
	if (err)
		*bad = wr;
	if (ibqp->state == IBV_QPS_ERR)
		mock_qp_error(qp); /* at once flushed */
	mock_moved();
	return mock_post_result(dev, done, err);
}

unsigned mock_sends_waiting(struct ibv_qp *qp)
{
	return ((struct mock_qp *)qp)->waiting;
}
