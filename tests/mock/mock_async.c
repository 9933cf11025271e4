/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_async.c - what devices of the mock say unasked: events of queue pairs, queues, ports, and
 * the acknowledgements that they need.
 */
#include "tests/mock/mock_impl.h"

static void say(struct mock_ctx *ctx, struct ibv_async_event ev)
{
	struct mock_async *a = calloc(1, sizeof(*a));

	a->ev = ev;
	TAILQ_INSERT_TAIL(&ctx->async, a, link);
	mock_pipe_fill(ctx->async_out, "async events");
}

void mock_async(struct mock_dev *dev, enum ibv_event_type type)
{
	MOCK_LOCK;
	struct mock_ctx *ctx;

	TAILQ_FOREACH(ctx, &dev->contexts, link)
	say(ctx, (struct ibv_async_event){.element.port_num = 1, .event_type = type});
}

void mock_async_qp(struct ibv_qp *qp, enum ibv_event_type type)
{
	MOCK_LOCK;

	say((struct mock_ctx *)qp->context, (struct ibv_async_event){.element.qp = qp, .event_type = type});
}

void mock_async_cq(struct ibv_cq *cq, enum ibv_event_type type)
{
	MOCK_LOCK;

	say((struct mock_ctx *)cq->context, (struct ibv_async_event){.element.cq = cq, .event_type = type});
}

void mock_say_srq(struct ibv_srq *srq, enum ibv_event_type type)
{
	say((struct mock_ctx *)srq->context, (struct ibv_async_event){.element.srq = srq, .event_type = type});
}

void mock_async_srq(struct ibv_srq *srq, enum ibv_event_type type)
{
	MOCK_LOCK;

	mock_say_srq(srq, type);
}

/* The counts of what the event is about, NULL if it is the device. */
static struct mock_acks *acks_of(const struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &((struct mock_cq *)ev->element.cq)->async;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &((struct mock_qp *)ev->element.qp)->async;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &((struct mock_srq *)ev->element.srq)->async;
	default:
		return NULL;
	}
}

/* The object goes, and so do unread events about it. */
void mock_async_forget(struct ibv_context *ibctx, const void *object)
{
	struct mock_ctx *ctx = (struct mock_ctx *)ibctx;
	struct mock_async *a, *next;

	for (a = TAILQ_FIRST(&ctx->async); a; a = next) {
		next = TAILQ_NEXT(a, link);
		if (!acks_of(&a->ev) || a->ev.element.qp != object)
			continue;
		TAILQ_REMOVE(&ctx->async, a, link);
		free(a);
		mock_pipe_take(ibctx->async_fd, "async events");
	}
}

static int get_async_event(struct ibv_context *ibctx, struct ibv_async_event *ev)
{
	MOCK_LOCK;
	struct mock_ctx *ctx = (struct mock_ctx *)ibctx;
	struct mock_async *a;
	struct mock_acks *acks;

	MOCK_FAILS_MINUS(ibv_get_async_event);
	if (!mock_pipe_take(ibctx->async_fd, "ibv_get_async_event"))
		return -1;
	a = TAILQ_FIRST(&ctx->async);
	TAILQ_REMOVE(&ctx->async, a, link);
	*ev = a->ev;
	free(a);
	acks = acks_of(ev);
	if (acks)
		mock_got(acks);
	return 0;
}

static void ack_async_event(struct ibv_async_event *ev)
{
	MOCK_LOCK;
	struct mock_acks *acks = acks_of(ev);

	mock_fails(MOCK_ibv_ack_async_event);
	if (acks)
		mock_acked(acks, 1, "async event");
}

void mock_async_drop(struct mock_ctx *ctx)
{
	struct mock_async *a;

	while ((a = TAILQ_FIRST(&ctx->async))) {
		TAILQ_REMOVE(&ctx->async, a, link);
		free(a);
	}
}

static const char *event_type_str(enum ibv_event_type type)
{
	return type == IBV_EVENT_DEVICE_FATAL ? "device fatal" : "event";
}

void mock_async_install(void)
{
	vb.ibv_get_async_event = get_async_event;
	vb.ibv_ack_async_event = ack_async_event;
	vb.ibv_event_type_str = event_type_str;
}
