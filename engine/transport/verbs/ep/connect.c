/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * connect.c - from an address to a connection: the side that connects (docs/verbs-states.md, table
 * A).
 *
 *   address -> route -> queue pair -> request -> answer
 *
 * The first request goes to the port at which the peer process itself listens, if that is known.
 * If no process listens there, or another one does, one request goes to the rendezvous port of the
 * peer's node, which tells where the process listens now, or that it has ended.  Every step has a
 * deadline.  A failure goes to the engine, which tries again in its own time.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/transport/verbs/ep/ep.h"

#define WARN_EVERY_NS (60 * 1000000000ull)

enum attempt_stage {
	TO_PEER, /* to a known port of the peer */
	/* to the rendezvous port, which redirects, or answers that the process is gone */
	TO_RENDEZVOUS,
	TO_REDIRECTED, /* to the port that the rendezvous named */
};

struct verbs_attempt {
	enum attempt_stage stage;
	struct rds_received here;
	uint64_t asked; /* time of the address query, or of the request */
};

/* ---- one request ---- */

static int attempt_dial(struct verbs_ep *ep, enum attempt_stage stage, uint16_t port)
{
	int err;

	ep->attempt->stage = stage;
	ep->attempt->asked = os_now_ns();
	atomic_store(&ep->state, VERBS_RESOLVING);
	err = verbs_cm_id_new(&ep->owner, ep->id.tos, &ep->cm);
	if (err) {
		ep->cm = NULL;
		return err;
	}
	verbs_ep_deadline(ep, RDS_PATIENCE_CM_STEP);
	return verbs_cm_resolve(ep->cm, &ep->id, port);
}

static void attempt_redial(struct verbs_ep *ep, enum attempt_stage stage, uint16_t port)
{
	int err;

	verbs_ep_detach(ep);
	err = attempt_dial(ep, stage, port);
	if (err)
		verbs_ep_down(ep, err, false);
}

static int attempt_addr_resolved(struct verbs_ep *ep)
{
	int err = verbs_ep_attach_dev(ep);

	if (err)
		return err;
	verbs_ep_deadline(ep, RDS_PATIENCE_CM_STEP);
	return verbs_cm_route(ep->cm);
}

static void attempt_call_done(struct verbs_cm_connect *call, int err);

static int attempt_send_request(struct verbs_ep *ep)
{
	struct verbs_request hello;
	int err = verbs_qp_create(ep);

	if (err)
		return err;
	verbs_request_init(&hello, VERBS_CONNECT, ep->id.tos);
	hello.frame = verbs_frame_units(ep->dev->caps.frame);
	hello.credits = (uint16_t)verbs_credit_initial(ep->dev, ep);
	if (ep->dev->caps.credits && !hello.credits)
		return -ENOBUFS;
	hello.wanted = ep->id.peer;
	hello.rx_seq = ep->attempt->here.acked;
	hello.held = verbs_cm_held(ep->attempt->here);
	verbs_request_pack(&hello, &ep->call.wire);
	ep->call.window_len = verbs_keepalive_window_out(ep->dev, &ep->call.window);
	verbs_ep_conn_param(ep, &ep->call.param);
	ep->call.done = attempt_call_done;
	ep->attempt->asked = os_now_ns();
	atomic_store(&ep->state, VERBS_CONNECTING);
	verbs_ep_deadline(ep, RDS_PATIENCE_CM_ANSWER);
	err = verbs_cm_connect(&ep->call, ep->dev, ep->cm, &ep->id.faddr);
	ep->cm_busy = !err;
	return err;
}

/* ---- the answer ---- */

static int attempt_accepted(struct verbs_ep *ep, const struct verbs_cm_ev *ev)
{
	struct verbs_answer a;

	/* whatever the answer is: the queue pair is connected, and has to be disconnected */
	ep->cm_up = true;
	if (!verbs_answer_check(ev->data, ev->len, &a) || a.status != VERBS_OK)
		return -EPROTO;
	if (memcmp(&a.self, &ep->id.peer, sizeof(a.self)) != 0)
		return -EPROTO;
	ep->frame = verbs_frame_common(a.frame, ep->dev->caps.frame);
	ep->there = verbs_cm_received(a.rx_seq, a.held);
	if (!verbs_keepalive_window_in(ep, ev, sizeof(a)) || !verbs_credit_start(ep, a.credits))
		return -EPROTO;
	verbs_ep_try_up(ep);
	return 0;
}

/* No process listens there, or another process that cannot redirect. */
static void attempt_try_rendezvous(struct verbs_ep *ep)
{
	if (ep->attempt->stage == TO_PEER)
		attempt_redial(ep, TO_RENDEZVOUS, (uint16_t)rds_options()->cm_port);
	else
		verbs_ep_down(ep, -ECONNREFUSED, false);
}

/* Some devices know at once that no process listens. */
static void attempt_not_sent(struct verbs_ep *ep, int err)
{
	if (err == -ECONNREFUSED)
		attempt_try_rendezvous(ep);
	else
		verbs_ep_down(ep, err, false);
}

/*
 * The thread of the call is done.  Without an error there is nothing to do: the answer is an event.
 */
static void attempt_call_done(struct verbs_cm_connect *call, int err)
{
	struct verbs_ep *ep = container_of(call, struct verbs_ep, call);

	if (err)
		ep->cm_busy = false;
	if (ep->closed)
		verbs_ep_close_continue(ep);
	else if (err)
		attempt_not_sent(ep, err);
}

static void attempt_redirected(struct verbs_ep *ep, const struct verbs_answer *a)
{
	bool right = memcmp(&a->self, &ep->id.peer, sizeof(a->self)) == 0;

	/* a second redirect is not followed, or it could go on for ever */
	if (ep->attempt->stage == TO_REDIRECTED || !right || !a->listener)
		verbs_ep_down(ep, -ECONNREFUSED, false);
	else
		attempt_redial(ep, TO_REDIRECTED, a->listener);
}

/*
 * The peer cannot accept just now: our request has crossed its own, or it lacks a resource, which
 * the answer names.  A lack may last long, so it is logged.
 */
static void attempt_peer_busy(struct verbs_ep *ep, const struct verbs_answer *a)
{
	static uint64_t quiet_until;
	uint64_t now = os_now_ns();
	char to[RDS_ADDR_STRLEN];

	if (!a->error || a->error == EALREADY) {
		verbs_ep_down(ep, -EALREADY, false);
		return;
	}
	if (now >= quiet_until) {
		quiet_until = now + WARN_EVERY_NS;
		rds_ip_str(&ep->id.faddr, to);
		rds_warn("a process at %s has no resources for a connection (%s): messages to it wait, and it is tried "
			 "again",
			 to, strerror(a->error));
	}
	verbs_ep_down(ep, -a->error, false);
}

static void attempt_refused(struct verbs_ep *ep, const struct verbs_answer *a)
{
	switch ((enum verbs_status)a->status) {
	case VERBS_REDIRECT:
		attempt_redirected(ep, a);
		return;
	case VERBS_GONE:
		verbs_ep_down(ep, -ECONNREFUSED, true);
		return;
	case VERBS_AGAIN:
		attempt_peer_busy(ep, a);
		return;
	case VERBS_NO_VERSION:
		verbs_version_clash(&ep->id.faddr, a->version_min, a->version);
		verbs_ep_down(ep, -EPROTONOSUPPORT, false);
		return;
	case VERBS_REFUSED:
		/*
		 * A crossing has a status of its own; the errno EALREADY would be taken for a
		 * crossing.
		 */
		verbs_ep_down(ep, a->error && a->error != EALREADY ? -a->error : -ECONNREFUSED, false);
		return;
	case VERBS_OK:
	case VERBS_NO_PORT:
		verbs_ep_down(ep, -EPROTO, false); /* not an answer to a CONNECT */
		return;
	}
}

void verbs_connect_cm_event(struct verbs_ep *ep, const struct verbs_cm_ev *ev)
{
	struct verbs_answer answer;
	int err = 0;

	switch (ev->what) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		err = attempt_addr_resolved(ep);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		err = attempt_send_request(ep);
		if (err)
			attempt_not_sent(ep, err);
		return;
	case RDMA_CM_EVENT_ESTABLISHED:
		err = attempt_accepted(ep, ev);
		break;
	case RDMA_CM_EVENT_REJECTED:
		if (verbs_answer_check(ev->data, ev->len, &answer))
			attempt_refused(ep, &answer);
		else
			attempt_try_rendezvous(ep);
		return;
	default:
		err = verbs_cm_errno(ev);
	}
	if (err)
		verbs_ep_down(ep, err, false);
}

/* ---- the peer asks, too ---- */

static bool attempt_id_equal(const struct rds_conn_id *a, const struct rds_conn_id *b)
{
	return rds_ip_equal(&a->laddr, &b->laddr) && rds_ip_equal(&a->faddr, &b->faddr) && a->tos == b->tos &&
	       a->scope == b->scope && memcmp(&a->peer, &b->peer, sizeof(a->peer)) == 0;
}

void verbs_connect_crossed(const struct rds_conn_id *id)
{
	uint64_t now = os_now_ns(), most = rds_patience_ns(RDS_PATIENCE_CM_CROSSED);
	struct verbs_ep *ep;

	for (ep = verbs_eps.all; ep; ep = ep->next)
		if (ep->attempt && !ep->over && attempt_id_equal(&ep->id, id) && now - ep->attempt->asked > most) {
			verbs_ep_down(ep, -ETIMEDOUT, false);
			return;
		}
}

/* ---- begun by the engine ---- */

/*
 * Port at which the peer listens, as far as known; for a process of this host the registry has it.
 */
static uint16_t attempt_known_port(const struct rds_conn_id *id)
{
	if (id->peer_slot != RDS_SLOT_REMOTE && !registry_slot_is_others(id->peer_slot))
		return registry_proc_cm_port(rds_node_registry, id->peer_slot, &id->peer);
	return id->peer_port;
}

int verbs_ep_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn,
		     struct rds_received here, struct rds_ep **out)
{
	uint16_t port = attempt_known_port(id);
	struct verbs_ep *ep;
	int err = -ENOMEM;

	(void)t;
	ep = verbs_ep_new(id, true);
	if (!ep)
		return -ENOMEM;
	ep->head.conn = conn;
	ep->attempt = calloc(1, sizeof(*ep->attempt));
	if (ep->attempt) {
		ep->attempt->here = here;
		err = port ? attempt_dial(ep, TO_PEER, port)
			   : attempt_dial(ep, TO_RENDEZVOUS, (uint16_t)rds_options()->cm_port);
	}
	if (err) {
		verbs_ep_discard(ep);
		return err;
	}
	*out = (struct rds_ep *)ep;
	return 0;
}
