/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * endpoint.c - an endpoint's life: made, up, down, closed, freed (docs/verbs-states.md, tables E
 * and C).
 *
 * An endpoint has at most one id and one queue pair at a time.  up->down is called at most once,
 * and never after the engine has closed the endpoint.
 *
 * A closed endpoint lives on by itself.  First its queue pair is in the error state until
 * everything in flight has come back, and the last receive that the device took for it, or until a
 * deadline has passed.  Then it has neither id nor queue pair, and waits until the engine has
 * released what lies in place and needs nothing of what was retained.  All memory is freed on the
 * helper, from a timer, so a function that is working with an endpoint cannot lose it.
 *
 * Runs on the helper, except verbs_ep_first_frame(), verbs_ep_free_if_done(), verbs_ep_broken()
 * and verbs_ep_protocol_error().  Must not know how a connection is requested.
 */
#include <stdlib.h>

#include "engine/transport/verbs/ep/ep.h"

#define MS 1000000ull
#define CLOSE_PAUSE_NS (MS / 4)
#define CLOSE_PAUSE_MAX_NS (50 * MS)
/* doubled each time; about a second in total, then keepalive.c takes over */
#define URGE_FIRST_NS (4 * MS)
#define URGE_LAST_NS (512 * MS)
#define LAST_LOOKS 100
/*
 * After so many close operations without a report of the last receive the device is taken not to
 * report it.
 */
#define LAST_SILENT 8u
#define RETRIES 6 /* 7, the largest value, means without end on rxe */

static void ep_cm_event(struct verbs_cm_owner *owner, struct rdma_cm_id *cm, const struct verbs_cm_ev *ev);
static void ep_nudge_timer(struct rds_timer *tm);
static void ep_broken_timer(struct rds_timer *tm);
static void ep_close_timer(struct rds_timer *tm);

struct verbs_eps verbs_eps RDS_TABLE;

/* ---- made ---- */

struct verbs_ep *verbs_ep_new(const struct rds_conn_id *id, bool initiator)
{
	struct verbs_ep *ep = calloc(1, sizeof(*ep));

	if (!ep)
		return NULL;
	ep->head.t = verbs_eps.t;
	ep->id = *id;
	ep->initiator = initiator;
	ep->owner.on_event = ep_cm_event;
	ep->nudge.fn = ep_nudge_timer;
	ep->broken.fn = ep_broken_timer;
	ep->later_tail = &ep->later;
	ep->next = verbs_eps.all;
	verbs_eps.all = ep;
	return ep;
}

int verbs_ep_attach_dev(struct verbs_ep *ep)
{
	int err;

	err = verbs_cm_dev_get_roomy(ep->cm, &ep->dev);
	if (err) {
		ep->dev = NULL;
		return err;
	}
	verbs_dev_ref(ep->dev);
	return 0;
}

void verbs_ep_conn_param(const struct verbs_ep *ep, struct rdma_conn_param *p)
{
	const struct verbs_caps *caps = &ep->dev->caps;

	*p = (struct rdma_conn_param){.responder_resources = (uint8_t)caps->rd_atomic,
				      .initiator_depth = (uint8_t)caps->rd_atomic,
				      .retry_count = RETRIES,
				      .rnr_retry_count = caps->rnr ? 7 : 0};
}

void verbs_ep_detach(struct verbs_ep *ep)
{
	struct verbs_dev *dev = ep->dev;

	rds_timer_cancel(&ep->deadline);
	if (dev) {
		rx_lock();
		verbs_credit_end(ep);
		rx_unlock();
	}
	verbs_qp_destroy(ep);
	ep->dev = NULL;
	if (dev)
		verbs_dev_unref(dev);
	if (ep->cm)
		verbs_cm_destroy(ep->cm);
	ep->cm = NULL;
	ep->cm_busy = false;
}

static void ep_unlink(struct verbs_ep *ep)
{
	struct verbs_ep **p;

	for (p = &verbs_eps.all; *p; p = &(*p)->next)
		if (*p == ep) {
			*p = ep->next;
			return;
		}
}

void verbs_ep_discard(struct verbs_ep *ep)
{
	verbs_ep_detach(ep);
	ep_unlink(ep);
	free(ep->attempt);
	free(ep);
}

/* ---- up ---- */

/*
 * Where the device needs that (caps.initiator_first), the side that accepted sends nothing before
 * it has received something.
 */
static bool ep_may_send(const struct verbs_ep *ep)
{
	return ep->cm_up && (ep->initiator || ep->heard || !ep->dev->caps.initiator_first);
}

/*
 * The peer's device may have missed what arrived just after it accepted (caps.late_receive).  Then
 * something must follow, or everything waits for the keepalive.  So as long as nothing is received,
 * an empty write is sent now and then, which needs no answer from the peer's program.  What device
 * the peer has is not known: it is assumed to be of the same make as ours.
 */
static void ep_urge_begin(struct verbs_ep *ep)
{
	if (!ep->initiator || !ep->dev->caps.late_receive)
		return;
	ep->urge_ns = URGE_FIRST_NS;
	rds_timer_set(&ep->nudge, os_now_ns() + ep->urge_ns);
}

static void ep_urge(struct verbs_ep *ep)
{
	rx_lock();
	if (!ep->heard && !ep->closed && ep->urge_ns && ep->urge_ns <= URGE_LAST_NS) {
		atomic_store(&ep->urge_due, true);
		ep->head.t->up->push_later(ep->head.conn);
		ep->urge_ns *= 2;
		rds_timer_set(&ep->nudge, os_now_ns() + ep->urge_ns);
	}
	rx_unlock();
}

void verbs_ep_try_up(struct verbs_ep *ep)
{
	bool up;

	rx_lock();
	up = atomic_load(&ep->state) == VERBS_CONNECTING && ep_may_send(ep);
	if (up)
		atomic_store(&ep->state, VERBS_UP);
	rx_unlock();
	if (!up)
		return;
	rds_timer_cancel(&ep->deadline);
	free(ep->attempt);
	ep->attempt = NULL;
	verbs_keepalive_need();
	verbs_qp_set_rnr_timer(ep);
	ep->head.t->up->up(ep->head.conn, (struct rds_ep *)ep, ep->there);
	/* the engine closed it in the up-call; it is freed by a timer at the earliest */
	if (ep->closed)
		return;
	ep_urge_begin(ep);
	rx_lock();
	verbs_recv_retry(ep);
	/* credits for frames that came before the endpoint was up could not be granted */
	if (verbs_credit_grant_due(ep))
		ep->head.t->up->push_later(ep->head.conn);
	rx_unlock();
}

void verbs_ep_first_frame(struct verbs_ep *ep)
{
	if (atomic_load(&ep->state) == VERBS_CONNECTING)
		rds_timer_set(&ep->nudge, os_now_ns());
}

/*
 * A frame came before rdma_cm reported the connection as established.  The message that rdma_cm
 * waits for may be lost, and the frame is as good.  But rdma_cm is told so (rdma_notify) only after
 * that message has had time to arrive: a kernel (6.1) that learns of the peer's disconnect before
 * it has acted on rdma_notify goes on repeating our acceptance, and rdma_destroy_id, or the end of
 * the process, waits for it for a minute.  (Its trace shows the repeated acceptance, and none
 * since; the order of events in it is concluded from that.)
 */
static void ep_early_frame(struct verbs_ep *ep)
{
	if (!ep->cm_up && !ep->initiator && !ep->awaited) {
		ep->awaited = true;
		rds_timer_set(&ep->nudge, os_now_ns() + rds_patience_ns(RDS_PATIENCE_CM_UNSAID));
		return;
	}
	if (!ep->cm_up && !ep->initiator)
		vb.rdma_notify(ep->cm, IBV_EVENT_COMM_EST);
	verbs_ep_try_up(ep);
}

static void ep_deadline_timer(struct rds_timer *tm)
{
	verbs_ep_down(container_of(tm, struct verbs_ep, deadline), -ETIMEDOUT, false);
}

void verbs_ep_deadline(struct verbs_ep *ep, enum rds_patience most)
{
	ep->deadline.fn = ep_deadline_timer;
	rds_timer_set(&ep->deadline, os_now_ns() + rds_patience_ns(most));
}

/* ---- down ---- */

void verbs_ep_broken(struct verbs_ep *ep, int why)
{
	enum verbs_state was = VERBS_UP;

	/* not up yet: rdma_cm will report it; or the helper is already breaking it */
	if (!atomic_compare_exchange_strong(&ep->state, &was, VERBS_BROKEN))
		return;
	ep->why = why;
	rds_timer_set(&ep->broken, os_now_ns());
}

void verbs_ep_protocol_error(struct verbs_ep *ep)
{
	verbs_ep_broken(ep, -EPROTO);
	/*
	 * It may have been broken before for another reason, with which frames that came would
	 * still be received.
	 */
	if (unlikely(atomic_load(&ep->state) == VERBS_BROKEN))
		ep->why = -EPROTO;
	if (unlikely(atomic_load(&ep->state) < VERBS_UP)) { /* rdma_cm will not report it */
		ep->why = -EPROTO;
		rds_timer_set(&ep->broken, os_now_ns());
	}
}

/* What has arrived by now is still received.  If memory is short, this may be the last chance. */
static void ep_last_progress(struct verbs_ep *ep)
{
	unsigned looks = LAST_LOOKS;

	rx_lock();
	while (verbs_ep_progress(ep->head.t) && --looks)
		;
	verbs_recv_retry(ep);
	rx_unlock();
}

static bool ep_peer_ended(const struct verbs_ep *ep)
{
	return ep->id.peer_slot != RDS_SLOT_REMOTE &&
	       !registry_proc_alive(rds_node_registry, ep->id.peer_slot, &ep->id.peer);
}

void verbs_ep_down(struct verbs_ep *ep, int why, bool gone)
{
	if (ep->over)
		return;
	ep->over = true;
	rds_timer_cancel(&ep->deadline);
	rds_timer_cancel(&ep->broken);
	if (atomic_load(&ep->state) >= VERBS_UP)
		ep_last_progress(ep);
	if (!gone && why != -EALREADY)
		gone = ep_peer_ended(ep);
	if (gone)
		verbs_rendezvous_check();
	/* the engine closes ep in this call */
	ep->head.t->up->down(ep->head.conn, (struct rds_ep *)ep, why, gone);
}

static void ep_broken_timer(struct rds_timer *tm)
{
	struct verbs_ep *ep = container_of(tm, struct verbs_ep, broken);

	verbs_ep_down(ep, ep->why, false);
}

/* An rdma_cm event of an endpoint that is not an attempt of ours (those: connect.c). */
static void ep_cm_event_standing(struct verbs_ep *ep, const struct verbs_cm_ev *ev)
{
	switch (ev->what) {
	case RDMA_CM_EVENT_ESTABLISHED:
		ep->cm_up = true;
		verbs_ep_try_up(ep);
		return;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_ADDR_CHANGE:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		verbs_ep_down(ep, verbs_cm_errno(ev), false);
		return;
	default:
		return; /* an event of something that is never requested */
	}
}

/* An answer to rdma_connect or rdma_accept: the call is done with the id. */
static bool cm_event_is_answer(const struct verbs_cm_ev *ev)
{
	switch (ev->what) {
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_DISCONNECTED:
		return true;
	default:
		return false;
	}
}

static void ep_cm_event(struct verbs_cm_owner *owner, struct rdma_cm_id *cm, const struct verbs_cm_ev *ev)
{
	struct verbs_ep *ep = container_of(owner, struct verbs_ep, owner);

	if (cm != ep->cm)
		return;
	if (cm_event_is_answer(ev)) {
		verbs_cm_connect_finish(&ep->call);
		ep->cm_busy = false;
	}
	if (ep->closed) {
		if (ev->what == RDMA_CM_EVENT_ESTABLISHED)
			vb.rdma_disconnect(ep->cm);
		verbs_ep_close_continue(ep);
		return;
	}
	if (ev->what == RDMA_CM_EVENT_DEVICE_REMOVAL) {
		if (ep->dev)
			verbs_dev_removed(ep->dev, "it was removed");
		else
			verbs_ep_down(ep, -ENODEV, false);
		return;
	}
	if (ep->attempt)
		verbs_connect_cm_event(ep, ev);
	else
		ep_cm_event_standing(ep, ev);
}

/* ---- closed ---- */

static void qp_to_error(struct verbs_ep *ep)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	/*
	 * The peer notices at once.  On some devices it is an orderly end, so the error state comes
	 * after it.
	 */
	if (ep->cm_up && !ep->dev->dead)
		vb.rdma_disconnect(ep->cm);
	vb.ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE);
}

void verbs_ep_close(struct rds_ep *rep)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	ep->over = true;
	rds_timer_cancel(&ep->deadline);
	free(ep->attempt);
	ep->attempt = NULL;
	if (ep->qp)
		qp_to_error(ep);
	rx_lock();
	ep->expects_last = ep->dev && ep->dev->srq && atomic_load(&ep->state) >= VERBS_CONNECTING;
	atomic_store(&ep->state, VERBS_CLOSED);
	ep->closed = true;
	if (ep->dev) {
		verbs_recv_drop(ep);
		rds_transport_batch_cancel(&ep->batch);
		verbs_credit_end(ep);
	}
	rx_unlock();
	rds_timer_cancel(&ep->broken); /* from now on no thread sets it */
	if (ep->qp && !verbs_send_idle(ep))
		verbs_send_mark(ep);
	ep->close_by = os_now_ns() + rds_patience_ns(RDS_PATIENCE_QP_CLOSE);
	ep->close_pause = CLOSE_PAUSE_NS;
	ep->deadline.fn = ep_close_timer;
	rds_timer_set(&ep->deadline, os_now_ns());
}

/*
 * Nothing uses the queue pair any more, or its deadline has passed.  On a device that is gone the
 * endpoint keeps the id until it is freed (cm/device_id.c).
 */
static void ep_close_finish(struct verbs_ep *ep)
{
	verbs_qp_destroy(ep);
	if (ep->dev && !ep->kept)
		verbs_send_free(ep);
	if (ep->cm && !(ep->dev && ep->dev->dead)) {
		verbs_cm_destroy(ep->cm);
		ep->cm = NULL;
	}
	rx_lock();
	ep->qp_dead = true;
	verbs_ep_free_if_done(ep);
	rx_unlock();
}

/*
 * A device may already have taken receives of the shared queue for this queue pair.  Those that it
 * has not completed when the queue pair is destroyed may be lost to the queue for ever.  Some
 * devices report when there are none left; for them, wait for the report.
 */
static bool ep_last_wqe_seen(struct verbs_ep *ep)
{
	struct verbs_dev *dev = ep->dev;

	if (ep->last_said || !ep->expects_last || (!dev->says_last && dev->silent >= LAST_SILENT))
		return true;
	if (os_now_ns() < ep->close_by - rds_patience_ns(RDS_PATIENCE_QP_CLOSE) + rds_patience_ns(RDS_PATIENCE_QP_LAST))
		return false;
	dev->silent++;
	return true;
}

void verbs_ep_last_wqe(struct verbs_ep *ep)
{
	ep->last_said = ep->dev->says_last = true;
	if (ep->closed)
		verbs_ep_close_continue(ep);
}

static bool ep_is_drained(struct verbs_ep *ep)
{
	unsigned round;
	bool idle;

	if (!ep->qp || ep->dev->dead || os_now_ns() >= ep->close_by)
		return true;
	/*
	 * Handle the whole completion queue: completions of this queue pair, receive buffers above
	 * all, may vanish with it.
	 */
	rx_lock();
	for (round = 0; round < LAST_LOOKS && verbs_ep_progress(ep->head.t); round++)
		;
	idle = verbs_send_idle(ep) && round < LAST_LOOKS;
	rx_unlock();
	return idle && ep_last_wqe_seen(ep);
}

static void ep_close_timer(struct rds_timer *tm)
{
	struct verbs_ep *ep = container_of(tm, struct verbs_ep, deadline);

	if (!ep_is_drained(ep)) {
		rds_timer_set(&ep->deadline, os_now_ns() + ep->close_pause);
		if (ep->close_pause < CLOSE_PAUSE_MAX_NS)
			ep->close_pause *= 2;
		return;
	}
	if (ep->call.running || (ep->cm_busy && ep->dev && ep->dev->caps.connect_blocks && !ep->dev->dead))
		return; /* the end of the call, or its answer, sets this timer again */
	ep_close_finish(ep);
}

void verbs_ep_close_continue(struct verbs_ep *ep)
{
	if (!ep->qp_dead)
		rds_timer_set(&ep->deadline, os_now_ns());
}

void verbs_ep_keep(struct rds_ep *rep, bool on)
{
	struct verbs_ep *ep = (struct verbs_ep *)rep;

	ep->kept = on;
	if (on || !ep->qp_dead)
		return;
	verbs_send_free(ep);
	rx_lock();
	verbs_ep_free_if_done(ep);
	rx_unlock();
}

/* ---- freed ---- */

static bool ep_is_done(const struct verbs_ep *ep)
{
	return ep->closed && ep->qp_dead && !ep->inplace && !ep->kept;
}

void verbs_ep_free_if_done(struct verbs_ep *ep)
{
	if (ep_is_done(ep))
		rds_timer_set(&ep->nudge, os_now_ns());
}

static void ep_free(struct verbs_ep *ep)
{
	struct rdma_cm_id *cm = ep->cm;

	/* verbs_ep_release() may have set it again while it ran for another reason */
	rds_timer_cancel(&ep->nudge);
	ep_unlink(ep);
	if (ep->dev)
		verbs_dev_unref(ep->dev);
	if (cm)
		verbs_cm_destroy(cm);
	free(ep);
}

static void ep_nudge_timer(struct rds_timer *tm)
{
	struct verbs_ep *ep = container_of(tm, struct verbs_ep, nudge);
	bool free_it;

	rx_lock();
	free_it = ep_is_done(ep);
	rx_unlock();
	if (free_it)
		ep_free(ep);
	else if (atomic_load(&ep->state) == VERBS_CONNECTING)
		ep_early_frame(ep);
	else if (atomic_load(&ep->state) == VERBS_UP)
		ep_urge(ep);
}

/* ---- the part as a whole ---- */

void verbs_ep_start(struct rds_transport *t)
{
	verbs_eps.t = t;
}

void verbs_ep_forget(void)
{
	verbs_keepalive_forget();
	rds_transport_batch_forget();
	os_fork_zero(&verbs_eps, sizeof(verbs_eps));
}
