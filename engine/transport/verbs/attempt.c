/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * attempt.c - from an address to a connection: the side that asks (docs/verbs-states.md, table A).
 *
 *   address -> route -> queue pair -> request -> answer
 *
 * First to the port at which the peer process listens itself, if we know one.  If nobody listens there, or another process does,
 * once to the rendezvous port of its node, which sends us to where the process listens now, or says that it is no more.
 * Every step has a deadline.  What fails goes to the engine, which tries again in its own time.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/transport/verbs/verbs.h"

#define SAY_NS (60 * 1000000000ull)

enum stage {
	TO_PEER,       /* a port that we knew */
	TO_RENDEZVOUS, /* who asks it is sent on, or told that there is nobody */
	SENT_ON,       /* to where the rendezvous says */
};

struct verbs_attempt {
	enum stage stage;
	uint64_t rx_seq;
	uint64_t asked; /* when the address was asked for, or the request was sent */
};

/* ---- one request ---- */

static int dial(struct verbs_ep *ep, enum stage stage, uint16_t port)
{
	int err;

	ep->attempt->stage = stage;
	ep->attempt->asked = os_now_ns();
	atomic_store(&ep->state, VERBS_RESOLVING);
	err = verbs_cm_id(&ep->owner, ep->id.tos, &ep->cm);
	if (err) {
		ep->cm = NULL;
		return err;
	}
	verbs_ep_deadline(ep, RDS_PATIENCE_CM_STEP);
	return verbs_cm_resolve(ep->cm, &ep->id, port);
}

static void redial(struct verbs_ep *ep, enum stage stage, uint16_t port)
{
	int err;

	verbs_ep_unplug(ep);
	err = dial(ep, stage, port);
	if (err)
		verbs_ep_down(ep, err, false);
}

static int address_resolved(struct verbs_ep *ep)
{
	int err = verbs_ep_device(ep);

	if (err)
		return err;
	verbs_ep_deadline(ep, RDS_PATIENCE_CM_STEP);
	return verbs_cm_route(ep->cm);
}

static void call_failed(struct verbs_call *call, int err);

static int request(struct verbs_ep *ep)
{
	struct verbs_hello hello;
	int err = verbs_qp_create(ep);

	if (err)
		return err;
	verbs_hello_self(&hello, VERBS_CONNECT, ep->id.tos);
	hello.frame = verbs_frame_say(ep->dev->caps.frame);
	hello.credits = (uint16_t)verbs_credit_first(ep->dev, ep);
	if (ep->dev->caps.credits && !hello.credits)
		return -ENOBUFS;
	hello.wanted = ep->id.peer;
	hello.rx_seq = ep->attempt->rx_seq;
	verbs_hello_pack(&hello, &ep->call.wire);
	ep->call.window_len = verbs_keepalive_tell(ep->dev, &ep->call.window);
	verbs_ep_params(ep, &ep->call.param);
	ep->call.done = call_failed;
	ep->attempt->asked = os_now_ns();
	atomic_store(&ep->state, VERBS_CONNECTING);
	verbs_ep_deadline(ep, RDS_PATIENCE_CM_ANSWER);
	err = verbs_call(&ep->call, ep->dev, ep->cm, &ep->id.faddr);
	ep->cm_busy = !err;
	return err;
}

/* ---- the answer ---- */

static int accepted(struct verbs_ep *ep, const struct verbs_said *said)
{
	struct verbs_answer a;

	ep->cm_up = true; /* whatever it says: the queue pair is connected, and has to be disconnected */
	if (!verbs_answer_check(said->data, said->len, &a) || a.status != VERBS_OK)
		return -EPROTO;
	if (memcmp(&a.self, &ep->id.peer, sizeof(a.self)) != 0)
		return -EPROTO;
	ep->frame = verbs_frame_of(a.frame, ep->dev->caps.frame);
	ep->peer_ack = a.rx_seq;
	if (!verbs_keepalive_told(ep, said, sizeof(a)) || !verbs_credit_start(ep, a.credits))
		return -EPROTO;
	verbs_ep_ready(ep);
	return 0;
}

/* Nobody listens there, or somebody else who knows no better. */
static void look_elsewhere(struct verbs_ep *ep)
{
	if (ep->attempt->stage == TO_PEER)
		redial(ep, TO_RENDEZVOUS, (uint16_t)rds_options()->cm_port);
	else
		verbs_ep_down(ep, -ECONNREFUSED, false);
}

/* Some devices know at once that nobody listens. */
static void not_asked(struct verbs_ep *ep, int err)
{
	if (err == -ECONNREFUSED)
		look_elsewhere(ep);
	else
		verbs_ep_down(ep, err, false);
}

/* The thread is back.  Without an error there is nothing to do: the answer is an event. */
static void call_failed(struct verbs_call *call, int err)
{
	struct verbs_ep *ep = container_of(call, struct verbs_ep, call);

	if (err)
		ep->cm_busy = false;
	if (ep->closed)
		verbs_ep_close_on(ep);
	else if (err)
		not_asked(ep, err);
}

static void sent_on(struct verbs_ep *ep, const struct verbs_answer *a)
{
	bool right = memcmp(&a->self, &ep->id.peer, sizeof(a->self)) == 0;

	if (ep->attempt->stage == SENT_ON || !right || !a->listener) /* it does not send us round in circles */
		verbs_ep_down(ep, -ECONNREFUSED, false);
	else
		redial(ep, SENT_ON, a->listener);
}

/* It wants to, but not now: our request has crossed its own, or it has said what it lacks.  That may take long, so it is said. */
static void not_now(struct verbs_ep *ep, const struct verbs_answer *a)
{
	static uint64_t quiet_until;
	uint64_t now = os_now_ns();
	char to[RDS_ADDR_STRLEN];

	if (!a->error || a->error == EALREADY) {
		verbs_ep_down(ep, -EALREADY, false);
		return;
	}
	if (now >= quiet_until) {
		quiet_until = now + SAY_NS;
		rds_ip_str(&ep->id.faddr, to);
		rds_warn("a process at %s has no means for a connection (%s): messages for it wait, trying again", to,
			 strerror(a->error));
	}
	verbs_ep_down(ep, -a->error, false);
}

static void refused(struct verbs_ep *ep, const struct verbs_answer *a)
{
	switch ((enum verbs_status)a->status) {
	case VERBS_REDIRECT:
		sent_on(ep, a);
		return;
	case VERBS_GONE:
		verbs_ep_down(ep, -ECONNREFUSED, true);
		return;
	case VERBS_AGAIN:
		not_now(ep, a);
		return;
	case VERBS_NO_VERSION:
		verbs_version_clash(&ep->id.faddr, a->version_min, a->version);
		verbs_ep_down(ep, -EPROTONOSUPPORT, false);
		return;
	case VERBS_REFUSED:
		/* A crossing has a status of its own; as an errno it would be taken for one. */
		verbs_ep_down(ep, a->error && a->error != EALREADY ? -a->error : -ECONNREFUSED, false);
		return;
	case VERBS_OK:
	case VERBS_NO_PORT:
		verbs_ep_down(ep, -EPROTO, false); /* no answer to what we asked */
		return;
	}
}

void verbs_attempt_said(struct verbs_ep *ep, const struct verbs_said *said)
{
	struct verbs_answer answer;
	int err = 0;

	switch (said->what) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		err = address_resolved(ep);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		err = request(ep);
		if (err)
			not_asked(ep, err);
		return;
	case RDMA_CM_EVENT_ESTABLISHED:
		err = accepted(ep, said);
		break;
	case RDMA_CM_EVENT_REJECTED:
		if (verbs_answer_check(said->data, said->len, &answer))
			refused(ep, &answer);
		else
			look_elsewhere(ep);
		return;
	default:
		err = verbs_cm_errno(said);
	}
	if (err)
		verbs_ep_down(ep, err, false);
}

/* ---- the peer asks, too ---- */

static bool same(const struct rds_conn_id *a, const struct rds_conn_id *b)
{
	return rds_ip_equal(&a->laddr, &b->laddr) && rds_ip_equal(&a->faddr, &b->faddr) && a->tos == b->tos &&
	       a->scope == b->scope && memcmp(&a->peer, &b->peer, sizeof(a->peer)) == 0;
}

void verbs_attempt_crossed(const struct rds_conn_id *id)
{
	uint64_t now = os_now_ns(), most = rds_patience_ns(RDS_PATIENCE_CM_CROSSED);
	struct verbs_ep *ep;

	for (ep = rds_verbs.eps; ep; ep = ep->next)
		if (ep->attempt && !ep->over && same(&ep->id, id) && now - ep->attempt->asked > most) {
			verbs_ep_down(ep, -ETIMEDOUT, false);
			return;
		}
}

/* ---- begun by the engine ---- */

/* Where the peer listens, as far as we know; a process of this host says so in the registry. */
static uint16_t known_port(const struct rds_conn_id *id)
{
	if (id->peer_slot != RDS_SLOT_REMOTE)
		return registry_proc_cm_port(rds_engine_registry(), id->peer_slot, &id->peer);
	return id->peer_port;
}

int verbs_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, uint64_t rx_seq,
		  struct rds_ep **out)
{
	uint16_t port = known_port(id);
	struct verbs_ep *ep;
	int err = -ENOMEM;

	(void)t;
	ep = verbs_ep_new(id, true);
	if (!ep)
		return -ENOMEM;
	ep->head.conn = conn;
	ep->attempt = calloc(1, sizeof(*ep->attempt));
	if (ep->attempt) {
		ep->attempt->rx_seq = rx_seq;
		err = port ? dial(ep, TO_PEER, port) : dial(ep, TO_RENDEZVOUS, (uint16_t)rds_options()->cm_port);
	}
	if (err) {
		verbs_ep_discard(ep);
		return err;
	}
	*out = (struct rds_ep *)ep;
	return 0;
}
