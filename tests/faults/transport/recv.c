/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * recv.c - faults on the way in: the up-calls of the inner transport, whose "connection" is an
 * endpoint of this transport, and the operations of the receive side (rx).
 *
 * Must not know any particular transport.
 */
#include "tests/faults/transport/fault.h"

static bool fault_progress(struct rds_transport *t)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	return inner->ops->progress(inner);
}

static void fault_ack(struct rds_ep *ep, uint64_t seq)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	if (!atomic_load(&f->swallow))
		fault_inner_ops(f)->ack(f->inner, seq);
}

static void fault_release(struct rds_ep *ep, void *token)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	fault_inner_ops(f)->release(f->inner, token);
	if (--f->inplace == 0 && f->closed && !f->kept)
		fault_ep_free(f);
}

static int fault_fetch(struct rds_ep *ep, void *to, size_t len, const struct rds_fetch_src *from)
{
	struct fault_ep *f = (struct fault_ep *)ep;

	return fault_inner_ops(f)->fetch(f->inner, to, len, from);
}

static void fault_attention(struct rds_transport *t, enum rds_attention who)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	inner->ops->attention(inner, who);
}

static bool fault_catch_up(struct rds_transport *t, uint64_t since)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	return inner->ops->catch_up(inner, since);
}

static bool fault_relieve(struct rds_transport *t, bool now)
{
	struct fault *fl = (struct fault *)t;

	return fl->inner->ops->relieve(fl->inner, now);
}

static bool fault_pending(struct rds_transport *t)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	return inner->ops->pending(inner);
}

/* ---- up-calls ---- */

static struct rds_conn *fault_up_accept(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id,
					struct rds_received there, struct rds_received *here, int *why)
{
	struct fault *fl = fault_find_outer(t);
	struct fault_ep *f;

	if (fault_chance(fl, fl->spec.accept)) {
		*why = -ECONNREFUSED;
		return NULL;
	}
	f = fault_ep_new(fl, &fl->t, NULL);
	if (!f) {
		*why = -ENOMEM;
		return NULL;
	}
	f->inner = ep; /* from now on the engine may close f at any time */
	f->head.conn = fl->t.up->accept(&fl->t, (struct rds_ep *)f, id, there, here, why);
	if (!f->head.conn) {
		fault_ep_free(f);
		return NULL;
	}
	return (struct rds_conn *)f;
}

static struct rds_conn *fault_up_opened(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id,
					int *why)
{
	struct fault *fl = fault_find_outer(t);
	struct fault_ep *f;

	if (!fault_first_is_whole(id) && fault_chance(fl, fl->spec.accept)) {
		*why = -ECONNREFUSED;
		return NULL;
	}
	f = fault_ep_new_first(fl, id, NULL);
	if (!f) {
		*why = -ENOMEM;
		return NULL;
	}
	f->inner = ep;
	if (!fl->t.up->opened(&fl->t, (struct rds_ep *)f, id, why)) {
		fault_ep_free(f);
		return NULL;
	}
	return (struct rds_conn *)f; /* which another thread may have closed by now */
}

static void fault_up_meet_later(struct rds_transport *t)
{
	fault_engine_up->meet_later(&fault_find_outer(t)->t);
}

static void fault_up_outgrown(struct rds_conn *conn)
{
	struct fault_ep *f = (struct fault_ep *)conn;

	f->head.t->up->outgrown(f->head.conn);
}

static void fault_meet(struct rds_transport *t, bool last)
{
	struct rds_transport *inner = ((struct fault *)t)->inner;

	inner->ops->meet(inner, last);
}

static struct fault_ep *fault_ep_met(struct rds_conn *conn, struct rds_ep *ep)
{
	struct fault_ep *f = (struct fault_ep *)conn;

	if (!f->inner)
		f->inner = ep;
	return f;
}

static void fault_up_up(struct rds_conn *conn, struct rds_ep *ep, struct rds_received there)
{
	struct fault_ep *f;

	rx_lock(); /* a message may have come before this call and have set f->inner */
	f = fault_ep_met(conn, ep);
	rx_unlock();
	if (fault_chance(fault_of(f), fault_of(f)->spec.dup)) {
		uint64_t less = fault_draw(fault_of(f)) % 16;

		there.acked -= less < there.acked ? less : there.acked;
	}
	f->head.t->up->up(f->head.conn, (struct rds_ep *)f, there);
}

static void fault_up_down(struct rds_conn *conn, struct rds_ep *ep, int why, bool peer_gone)
{
	struct fault_ep *f;

	rx_lock();
	f = fault_ep_met(conn, ep);
	rx_unlock();
	f->head.t->up->down(f->head.conn, (struct rds_ep *)f, why, peer_gone);
}

/* The bytes are still valid, whatever the engine did with the first message, because rx is held. */
static void fault_deliver_again(struct fault_ep *f, const struct rds_rx *rx)
{
	struct rds_rx again = {.hdr = rx->hdr, .data = rx->data};

	again.hdr.flags |= RDS_FLAG_RETRANSMITTED;
	f->head.t->up->message(f->head.conn, (struct rds_ep *)f, &again);
}

static enum rds_rx_verdict fault_up_message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	struct fault_ep *f = fault_ep_met(conn, ep);
	struct fault *fl = fault_of(f);
	bool cut = fault_cuts(f);
	enum rds_rx_verdict v;

	if (cut && fault_draw(fl) % 2)
		fault_break(f);
	if (atomic_load(&f->broken))
		/*
		 * The message is lost with the endpoint.  It is not acknowledged, so its bytes must
		 * stay where the sender finds them to send them again.
		 */
		return RDS_RX_LATER;
	if (fault_chance(fl, fl->spec.later))
		return RDS_RX_LATER;
	v = f->head.t->up->message(f->head.conn, (struct rds_ep *)f, rx);
	if (v < RDS_RX_LATER && rx->hdr.flags != RDS_FLAG_CONG_BITMAP && fault_chance(fl, fl->spec.dup))
		fault_deliver_again(f, rx);
	if (v == RDS_RX_TAKEN && rx->token)
		f->inplace++;
	if (cut)
		fault_break(f);
	return v;
}

static void fault_up_evacuate(struct rds_conn *conn, struct rds_ep *ep)
{
	struct fault_ep *f = fault_ep_met(conn, ep);

	f->head.t->up->evacuate(f->head.conn, (struct rds_ep *)f);
}

static void fault_up_writable(struct rds_conn *conn)
{
	struct fault_ep *f = (struct fault_ep *)conn;

	rds_timer_set(&f->late, os_now_ns()); /* held-back messages go first */
	f->head.t->up->writable(f->head.conn);
}

static bool fault_up_awaited(struct rds_conn *conn)
{
	struct fault_ep *f = (struct fault_ep *)conn;

	return f->head.t->up->awaited(f->head.conn);
}

static void fault_up_push_later(struct rds_conn *conn)
{
	struct fault_ep *f = (struct fault_ep *)conn;

	f->head.t->up->push_later(f->head.conn);
}

static void fault_up_op_done(struct rds_conn *conn, uint64_t id, int err, uint64_t at, const void *data, size_t len)
{
	struct fault_ep *f = (struct fault_ep *)conn;

	f->head.t->up->op_done(f->head.conn, id, err, at, data, len);
}

static const struct rds_conn_id *fault_up_id(const struct rds_conn *conn)
{
	const struct fault_ep *f = (const struct fault_ep *)conn;

	return f->head.t->up->id(f->head.conn);
}

static uint64_t fault_up_sent(struct rds_conn *conn)
{
	struct fault_ep *f = (struct fault_ep *)conn;

	return f->head.t->up->sent(f->head.conn);
}

static void fault_up_located(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port, int err)
{
	struct fault *fl = fault_find_outer(t);

	fl->t.up->located(&fl->t, id, port, err);
}

static void fault_up_pressure(void)
{
	fault_engine_up->pressure();
}

const struct rds_transport_up fault_up = {
	.accept = fault_up_accept,
	.opened = fault_up_opened,
	.meet_later = fault_up_meet_later,
	.outgrown = fault_up_outgrown,
	.up = fault_up_up,
	.down = fault_up_down,
	.message = fault_up_message,
	.pressure = fault_up_pressure,
	.evacuate = fault_up_evacuate,
	.writable = fault_up_writable,
	.awaited = fault_up_awaited,
	.id = fault_up_id,
	.sent = fault_up_sent,
	.push_later = fault_up_push_later,
	.op_done = fault_up_op_done,
	.located = fault_up_located,
};

void fault_recv_ops(struct fault *fl)
{
	fl->ops.progress = fault_progress;
	fl->ops.ack = fault_ack;
	fl->ops.release = fault_release;
	if (fl->inner->ops->fetch)
		fl->ops.fetch = fault_fetch;
	if (fl->inner->ops->meet)
		fl->ops.meet = fault_meet;
	if (fl->inner->ops->catch_up)
		fl->ops.catch_up = fault_catch_up;
	fl->ops.relieve = fault_relieve;
	fl->ops.attention = fault_attention;
	fl->ops.pending = fault_pending;
}
