/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * port_query.c - asks a node which of its processes has bound a port (docs/verbs-states.md, table
 * Q).
 *
 * The question is a request for a connection that is always refused: the answer is in the refusal.
 * It has a small queue pair of its own, on every kind of device: iWARP makes no request without
 * one, and on InfiniBand two requests with the same queue pair number are taken for remains of
 * each other.  AT_ONCE queries run at a time, the others wait.  Every call of verbs_cm_locate()
 * that returned 0 is answered exactly once, by a deadline.  Helper only.
 */
#include <stdlib.h>

#include "engine/transport/verbs/cm/cm.h"

#define AT_ONCE 32u
#define WAITING_MAX 4096u

struct port_query {
	struct port_query *next; /* list of waiting queries, or of begun ones */
	struct verbs_cm_owner owner;
	struct rds_timer timer;
	struct rds_transport *t; /* gets the answer */
	struct rds_conn_id id;
	uint16_t port;
	struct rdma_cm_id *cm;
	struct verbs_dev *dev;
	struct verbs_cm_connect call;
	bool busy; /* rdma_connect has not been answered yet */
	bool over; /* answered, but the id must not be destroyed yet */
};

static struct {
	struct port_query *waiting, **tail, *begun;
	unsigned nwaiting, nrunning;
	struct rds_timer next;
} lq;

static void query_free(struct port_query *l)
{
	struct verbs_dev *dev = l->dev;
	struct port_query **p;

	for (p = &lq.begun; *p != l; p = &(*p)->next)
		;
	*p = l->next;
	rds_timer_cancel(&l->timer);
	if (l->cm && l->cm->qp)
		vb.rdma_destroy_qp(l->cm);
	if (dev && !dev->dead) {
		verbs_cm_destroy(l->cm);
		l->cm = NULL;
	}
	if (dev)
		verbs_dev_unref(dev);
	if (l->cm)
		verbs_cm_destroy(l->cm);
	free(l);
}

static bool query_is_pinned(const struct port_query *l)
{
	return l->call.running || (l->busy && l->dev->caps.connect_blocks && !l->dev->dead);
}

/*
 * The next query of the queue begins from a timer, so that many failures in a row do not recurse.
 */
static void query_answer(struct port_query *l, int err)
{
	struct rds_transport *t = l->t;
	struct rds_conn_id id = l->id;
	uint16_t port = l->port;

	lq.nrunning--;
	if (lq.waiting)
		rds_timer_set(&lq.next, os_now_ns());
	if (query_is_pinned(l)) {
		l->over = true;
		rds_timer_cancel(&l->timer);
	} else {
		query_free(l);
	}
	t->up->located(t, &id, port, err);
}

static void query_expired(struct rds_timer *tm)
{
	query_answer(container_of(tm, struct port_query, timer), -ETIMEDOUT);
}

/*
 * The device is gone: no event comes from it any more, and no answer to a request that could not be
 * taken back.
 */
void verbs_cm_locate_dev_removed(const struct verbs_dev *dev)
{
	struct port_query *l, *next;

	for (l = lq.begun; l; l = next) {
		next = l->next;
		if (l->dev != dev)
			continue;
		if (!l->over)
			query_answer(l, -ENODEV);
		else if (!query_is_pinned(l))
			query_free(l);
	}
}

/* ---- steps ---- */

static int query_addr_resolved(struct port_query *l)
{
	int err = verbs_cm_dev_get(l->cm, &l->dev);

	if (err) {
		l->dev = NULL;
		return err;
	}
	verbs_dev_ref(l->dev);
	rds_timer_set(&l->timer, os_now_ns() + rds_patience_ns(RDS_PATIENCE_CM_STEP));
	return verbs_cm_route(l->cm);
}

static void query_call_done(struct verbs_cm_connect *call, int err)
{
	struct port_query *l = container_of(call, struct port_query, call);

	if (err)
		l->busy = false;
	if (l->over && !query_is_pinned(l))
		query_free(l);
	else if (!l->over && err)
		query_answer(l, err);
}

static int query_send(struct port_query *l)
{
	struct ibv_qp_init_attr attr = {.send_cq = l->dev->cq,
					.recv_cq = l->dev->cq,
					.srq = l->dev->srq,
					.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 1, .max_send_sge = 1}};
	struct verbs_request hello;
	int err;

	if (!attr.srq) /* some devices cannot make a receive queue of no entries */
		attr.cap.max_recv_wr = attr.cap.max_recv_sge = 1;
	errno = 0; /* not every provider sets it */
	err = verbs_err(vb.rdma_create_qp(l->cm, l->dev->pd, &attr));
	if (err)
		return err;
	verbs_request_init(&hello, VERBS_LOCATE, l->id.tos);
	hello.port = l->port;
	verbs_request_pack(&hello, &l->call.wire);
	l->call.param = (struct rdma_conn_param){.retry_count = 7, .rnr_retry_count = 7};
	l->call.done = query_call_done;
	rds_timer_set(&l->timer, os_now_ns() + rds_patience_ns(RDS_PATIENCE_CM_ANSWER));
	err = verbs_cm_connect(&l->call, l->dev, l->cm, &l->id.faddr);
	l->busy = !err;
	return err;
}

/* 0: the answer is in l->id. */
static int query_result(struct port_query *l, const struct verbs_cm_ev *ev)
{
	struct verbs_answer a;

	if (!verbs_answer_check(ev->data, ev->len, &a))
		return -ECONNREFUSED; /* no RDS at that node, or not at the moment */
	switch ((enum verbs_status)a.status) {
	case VERBS_REDIRECT:
		if (!a.listener)
			return -EPROTO;
		l->id.peer = a.self;
		l->id.peer_port = a.listener;
		return 0;
	case VERBS_NO_PORT:
		return -ENOENT;
	case VERBS_NO_VERSION:
		verbs_version_clash(&l->id.faddr, a.version_min, a.version);
		return -EPROTONOSUPPORT;
	case VERBS_AGAIN:
		return -EAGAIN;
	default:
		return -EPROTO;
	}
}

static void query_cm_event(struct verbs_cm_owner *owner, struct rdma_cm_id *cm, const struct verbs_cm_ev *ev)
{
	struct port_query *l = container_of(owner, struct port_query, owner);
	int err;

	(void)cm;
	if (ev->what == RDMA_CM_EVENT_DEVICE_REMOVAL && l->dev) {
		/*
		 * the first event reports the removal for all users of the device, this query
		 * included
		 */
		verbs_dev_removed(l->dev, "it was removed");
		return;
	}
	if (ev->what != RDMA_CM_EVENT_ADDR_CHANGE)
		verbs_cm_connect_finish(&l->call);
	if (l->over) {
		l->busy = false;
		if (!query_is_pinned(l))
			query_free(l);
		return;
	}
	switch (ev->what) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		err = query_addr_resolved(l);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		err = query_send(l);
		break;
	case RDMA_CM_EVENT_REJECTED:
		l->busy = false;
		query_answer(l, query_result(l, ev));
		return;
	default: /* ESTABLISHED is an error, too: a request that is a question is never accepted */
		l->busy = false;
		err = verbs_cm_errno(ev);
	}
	if (err)
		query_answer(l, err);
}

/* ---- the queue ---- */

static void query_begin(struct port_query *l)
{
	int err;

	l->next = lq.begun;
	lq.begun = l;
	lq.nrunning++;
	rds_timer_set(&l->timer, os_now_ns() + rds_patience_ns(RDS_PATIENCE_CM_STEP));
	err = verbs_cm_id_new(&l->owner, l->id.tos, &l->cm);
	if (err)
		l->cm = NULL;
	else
		err = verbs_cm_resolve(l->cm, &l->id, (uint16_t)rds_options()->cm_port);
	if (err)
		query_answer(l, err);
}

static void query_begin_next(struct rds_timer *tm)
{
	struct port_query *l;

	(void)tm;
	while (lq.nrunning < AT_ONCE && (l = lq.waiting)) {
		lq.waiting = l->next;
		if (!lq.waiting)
			lq.tail = &lq.waiting;
		lq.nwaiting--;
		query_begin(l);
	}
}

int verbs_cm_locate(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port)
{
	struct port_query *l;

	if (lq.nwaiting >= WAITING_MAX)
		return -ENOBUFS;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->owner.on_event = query_cm_event;
	l->timer.fn = query_expired;
	l->t = t;
	l->id = *id;
	l->port = port;
	if (!lq.waiting)
		lq.tail = &lq.waiting;
	*lq.tail = l;
	lq.tail = &l->next;
	lq.nwaiting++;
	lq.next.fn = query_begin_next;
	rds_timer_need(&lq.next, os_now_ns());
	return 0;
}

void verbs_cm_locate_forget(void)
{
	lq.waiting = lq.begun = NULL;
	lq.nwaiting = lq.nrunning = 0;
	lq.next.queued = false;
}
