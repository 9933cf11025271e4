/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_cq.c - completion queues and channels of the mock: polling, arming, events.
 */
#include <unistd.h>

#include "tests/mock/mock_impl.h"

static TAILQ_HEAD(, mock_channel) channels = TAILQ_HEAD_INITIALIZER(channels);

/* ---- channels ---- */

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *ctx)
{
	MOCK_LOCK;
	struct mock_channel *ch;

	MOCK_FAILS_NULL(ibv_create_comp_channel);
	if (mock_dev_of(ctx)->gone)
		return mock_null(EIO);
	ch = calloc(1, sizeof(*ch));
	ch->ch.context = ctx;
	ch->ch.fd = mock_pipe(&ch->out);
	TAILQ_INIT(&ch->events);
	TAILQ_INSERT_TAIL(&channels, ch, link);
	mock_ctx_used(ctx, 1);
	mock_made(MOCK_COMP_CHANNEL);
	return &ch->ch;
}

static int destroy_comp_channel(struct ibv_comp_channel *ibch)
{
	MOCK_LOCK;
	struct mock_channel *ch = (struct mock_channel *)ibch;

	MOCK_FAILS_NUMBER(ibv_destroy_comp_channel);
	if (ch->cqs)
		return EBUSY;
	close(ibch->fd);
	if (ch->out >= 0)
		close(ch->out);
	TAILQ_REMOVE(&channels, ch, link);
	mock_ctx_used(ibch->context, -1);
	mock_unmade(MOCK_COMP_CHANNEL);
	free(ch);
	return 0;
}

void mock_channels_close(struct mock_dev *dev)
{
	struct mock_channel *ch;

	TAILQ_FOREACH(ch, &channels, link)
	if (mock_dev_of(ch->ch.context) == dev) {
		close(ch->out);
		ch->out = -1;
	}
}

static void fire(struct mock_cq *cq)
{
	struct mock_channel *ch = (struct mock_channel *)cq->cq.channel;
	struct mock_cq_event *e;

	if (ch->out < 0)
		return;
	cq->armed = UNARMED;
	e = calloc(1, sizeof(*e));
	e->cq = cq;
	TAILQ_INSERT_TAIL(&ch->events, e, link);
	mock_pipe_fill(ch->out, "completion channel");
}

static int get_cq_event(struct ibv_comp_channel *ibch, struct ibv_cq **cq, void **arg)
{
	MOCK_LOCK;
	struct mock_channel *ch = (struct mock_channel *)ibch;
	struct mock_cq_event *e;

	MOCK_FAILS_MINUS(ibv_get_cq_event);
	if (!mock_pipe_take(ibch->fd, "ibv_get_cq_event"))
		return -1;
	e = TAILQ_FIRST(&ch->events);
	TAILQ_REMOVE(&ch->events, e, link);
	mock_got(&e->cq->comp);
	*cq = &e->cq->cq;
	*arg = e->cq->cq.cq_context;
	free(e);
	return 0;
}

static void ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	MOCK_LOCK;

	mock_fails(MOCK_ibv_ack_cq_events);
	mock_acked(&((struct mock_cq *)cq)->comp, n, "ibv_ack_cq_events");
}

static void forget_events(struct mock_cq *cq)
{
	struct mock_channel *ch = (struct mock_channel *)cq->cq.channel;
	struct mock_cq_event *e, *next;

	for (e = TAILQ_FIRST(&ch->events); e; e = next) {
		next = TAILQ_NEXT(e, link);
		if (e->cq != cq)
			continue;
		TAILQ_REMOVE(&ch->events, e, link);
		mock_pipe_take(ch->ch.fd, "completion channel");
		free(e);
	}
}

/* ---- queues ---- */

static struct ibv_cq *create_cq(struct ibv_context *ctx, int cqe, void *arg, struct ibv_comp_channel *ch, int vector)
{
	MOCK_LOCK;
	struct mock_dev *dev = mock_dev_of(ctx);
	struct mock_cq *cq;

	MOCK_FAILS_NULL(ibv_create_cq);
	if (dev->gone)
		return mock_null(EIO);
	if (cqe < 1 || cqe > dev->attr.max_cqe || vector < 0 || vector >= ctx->num_comp_vectors)
		return mock_null(EINVAL);
	if (ch && ch->context != ctx)
		return mock_null(EINVAL);
	if (mock_count(MOCK_CQ) >= (unsigned)dev->attr.max_cq || cqe > dev->cq_memory)
		return mock_null(ENOMEM);
	cq = calloc(1, sizeof(*cq));
	cq->cq = (struct ibv_cq){.context = ctx, .channel = ch, .cq_context = arg, .cqe = cqe};
	cq->depth = (unsigned)cqe;
	cq->ring = calloc(cq->depth, sizeof(*cq->ring));
	if (ch)
		((struct mock_channel *)ch)->cqs++;
	mock_ctx_used(ctx, 1);
	mock_made(MOCK_CQ);
	return &cq->cq;
}

static int destroy_cq(struct ibv_cq *ibcq)
{
	MOCK_LOCK;
	struct mock_cq *cq = (struct mock_cq *)ibcq;

	MOCK_FAILS_NUMBER(ibv_destroy_cq);
	if (cq->users)
		return EBUSY;
	if (!mock_all_acked(&cq->comp, "completion queue") || !mock_all_acked(&cq->async, "completion queue (async)"))
		return EBUSY;
	mock_async_forget(ibcq->context, ibcq);
	if (ibcq->channel) {
		forget_events(cq);
		((struct mock_channel *)ibcq->channel)->cqs--;
	}
	mock_ctx_used(ibcq->context, -1);
	mock_unmade(MOCK_CQ);
	free(cq->ring);
	free(cq);
	return 0;
}

void mock_cq_push(struct ibv_cq *ibcq, const struct mock_cqe *e, bool solicited)
{
	struct mock_cq *cq = (struct mock_cq *)ibcq;

	if (cq->count == cq->depth) {
		mock_fault("a completion queue of %u overflows", cq->depth);
		return;
	}
	cq->ring[(cq->head + cq->count++) % cq->depth] = *e;
	if (cq->armed == ALL || (cq->armed == SOLICITED && (solicited || e->wc.status != IBV_WC_SUCCESS)))
		fire(cq);
}

void mock_cq_forget_qp(struct ibv_cq *ibcq, uint32_t qpn)
{
	struct mock_cq *cq = (struct mock_cq *)ibcq;
	unsigned i, kept = 0;
	struct mock_cqe *e;

	for (i = 0; i < cq->count; i++) {
		e = &cq->ring[(cq->head + i) % cq->depth];
		if (e->wc.qp_num != qpn)
			cq->ring[(cq->head + kept++) % cq->depth] = *e;
	}
	cq->count = kept;
}

int mock_poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
	MOCK_LOCK;
	struct mock_cq *cq = (struct mock_cq *)ibcq;
	struct mock_dev *dev = mock_dev_of(ibcq->context);
	struct mock_cqe *e;
	int err = mock_fails(MOCK_ibv_poll_cq), i;

	if (err)
		return -err;
	for (i = 0; i < n && (unsigned)i < dev->poll_max && cq->count; i++) {
		e = &cq->ring[cq->head];
		cq->head = (cq->head + 1) % cq->depth;
		cq->count--;
		wc[i] = e->wc;
		if (e->send)
			mock_qp_reclaim(dev, e->wc.qp_num, e->seq);
	}
	return i;
}

int mock_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	MOCK_LOCK;
	struct mock_cq *cq = (struct mock_cq *)ibcq;

	MOCK_FAILS_NUMBER(ibv_req_notify_cq);
	if (!ibcq->channel)
		return EINVAL;
	if (!solicited_only)
		cq->armed = ALL;
	else if (cq->armed == UNARMED)
		cq->armed = SOLICITED;
	return 0;
}

void mock_cq_install(void)
{
	TAILQ_INIT(&channels);
	vb.ibv_create_comp_channel = create_comp_channel;
	vb.ibv_destroy_comp_channel = destroy_comp_channel;
	vb.ibv_get_cq_event = get_cq_event;
	vb.ibv_ack_cq_events = ack_cq_events;
	vb.ibv_create_cq = create_cq;
	vb.ibv_destroy_cq = destroy_cq;
}
