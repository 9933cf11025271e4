/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * accept.c - requests from peers: the side that is asked (docs/verbs-states.md, table R).
 *
 * A request is judged by its private data and then answered: accepted here, or rejected with a
 * reason.
 */
#include <string.h>

#include "engine/transport/verbs/ep/ep.h"

/*
 * Closes older endpoints of the same connection that never came up: the peer asks again, so it has
 * given up those attempts.
 */
static void close_older(const struct verbs_ep *ep)
{
	struct verbs_ep *e;

	for (e = verbs_eps.all; e; e = e->next)
		if (e != ep && e->head.conn == ep->head.conn && !e->initiator && !e->over &&
		    atomic_load(&e->state) < VERBS_UP)
			verbs_ep_close((struct rds_ep *)e);
}

static int request_accept(struct verbs_ep *ep, const struct verbs_cm_ev *ev, struct verbs_answer *answer)
{
	struct {
		struct verbs_answer answer;
		struct verbs_window window;
	} __attribute__((packed)) wire;
	struct rdma_conn_param param;
	int err;

	verbs_answer_pack(answer, &wire.answer);
	verbs_ep_conn_param(ep, &param);
	if (param.responder_resources > ev->responder_resources)
		param.responder_resources = ev->responder_resources;
	if (param.initiator_depth > ev->initiator_depth)
		param.initiator_depth = ev->initiator_depth;
	param.private_data = &wire;
	param.private_data_len = (uint8_t)(sizeof(wire.answer) + verbs_keepalive_window_out(ep->dev, &wire.window));
	atomic_store(&ep->state, VERBS_CONNECTING);
	verbs_ep_deadline(ep, RDS_PATIENCE_CM_ESTABLISH);
	err = verbs_err(vb.rdma_accept(ep->cm, &param));
	ep->cm_busy = !err;
	return err;
}

/*
 * Everything that may fail is made before the engine learns of the request: when the engine
 * accepts, it may end another connection.
 */
static int request_prepare(struct verbs_ep *ep, const struct verbs_request *req, const struct verbs_cm_ev *ev,
			   struct verbs_answer *answer)
{
	int err = verbs_ep_attach_dev(ep);

	if (!err && !verbs_keepalive_window_in(ep, ev, sizeof(*req)))
		err = -EPROTO;
	if (!err)
		err = verbs_qp_create(ep);
	if (err)
		return err;
	ep->frame = verbs_frame_common(req->frame, ep->dev->caps.frame);
	answer->frame = verbs_frame_units(ep->dev->caps.frame);
	/* the highest version that both sides support */
	if (req->version_max < answer->version)
		answer->version = req->version_max;
	ep->there = verbs_cm_received(req->rx_seq, req->held);
	answer->credits = (uint16_t)verbs_credit_initial(ep->dev, ep);
	if (ep->dev->caps.credits && !answer->credits)
		return -ENOBUFS;
	return verbs_credit_start(ep, req->credits) ? 0 : -EPROTO;
}

static bool request_no_means(int err)
{
	return err == -EALREADY || err == -ENOMEM || err == -EMFILE || err == -ENFILE || err == -ENOBUFS;
}

/* Takes the id.  False: *answer holds the reason, and the id belongs to the caller again. */
static bool request_take(struct rdma_cm_id *cm, const struct rds_conn_id *id, const struct verbs_request *req,
			 const struct verbs_cm_ev *ev, struct verbs_answer *answer)
{
	struct rds_transport *t = verbs_eps.t;
	struct verbs_ep *ep = verbs_ep_new(id, false);
	struct rds_received here = {0};
	int err = -ENOMEM;

	if (ep) {
		ep->cm = cm;
		cm->context = &ep->owner;
		err = request_prepare(ep, req, ev, answer);
		if (!err)
			ep->head.conn = t->up->accept(t, (struct rds_ep *)ep, id, ep->there, &here, &err);
		answer->rx_seq = here.acked;
		answer->held = verbs_cm_held(here);
	}
	if (err || !ep->head.conn) {
		if (err == -EALREADY)
			verbs_connect_crossed(id);
		rds_debug("a request is refused: %s", strerror(-err));
		verbs_answer_init(answer, request_no_means(err) ? VERBS_AGAIN : VERBS_REFUSED, err);
		if (ep) {
			verbs_qp_destroy(ep);
			ep->cm = NULL;
			cm->context = NULL;
			verbs_ep_discard(ep);
		}
		return false;
	}
	close_older(ep);
	err = request_accept(ep, ev, answer);
	if (err)
		verbs_ep_down(ep, err, false);
	return true;
}

/* Reads the request: the peer, and what it wants.  True: a connection with this process. */
static bool request_check(struct rdma_cm_id *cm, const struct verbs_cm_ev *ev, struct rds_conn_id *id,
			  struct verbs_request *req, struct verbs_answer *answer)
{
	enum verbs_status status;
	uint32_t scope;

	memset(id, 0, sizeof(*id));
	verbs_cm_addr(rdma_get_local_addr(cm), &id->laddr, &id->scope);
	verbs_cm_addr(rdma_get_peer_addr(cm), &id->faddr, &scope);
	status = verbs_request_check(ev->data, ev->len, req);
	verbs_answer_init(answer, status, -EPROTO);
	if (status == VERBS_NO_VERSION)
		verbs_version_clash(&id->faddr, req->version_min, req->version_max);
	else if (status != VERBS_OK)
		rds_warn("a request that is not RDS's came to an RDMA port: refused");
	if (status != VERBS_OK)
		return false;
	id->tos = req->tos;
	id->peer = req->self;
	id->peer_port = req->listener;
	if (!registry_proc_find(rds_node_registry, &req->self, &id->peer_slot))
		id->peer_slot = RDS_SLOT_REMOTE;
	return verbs_rendezvous_request(req, &id->laddr, id->scope, answer);
}

static void acceptor_cm_event(struct verbs_cm_owner *owner, struct rdma_cm_id *cm, const struct verbs_cm_ev *ev)
{
	struct verbs_answer answer;
	struct verbs_request req;
	struct rds_conn_id id;

	(void)owner;
	if (ev->what != RDMA_CM_EVENT_CONNECT_REQUEST)
		return;
	cm->context = NULL;
	verbs_cm_options(cm, 0);
	if (request_check(cm, ev, &id, &req, &answer) && request_take(cm, &id, &req, ev, &answer))
		return;
	verbs_cm_reject(cm, &answer);
}

struct verbs_cm_owner verbs_ep_acceptor = {.on_event = acceptor_cm_event};
