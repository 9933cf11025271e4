/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * xmit.c - the last step of a send: gives a message to the connection's endpoint, or keeps it until
 * one takes it.
 *
 * conn->tx held.  Sequence numbers are given here, so the order on a connection is the order of
 * this lock.  Must not know sockets' limits or which socket may send.
 */
#include "engine/conn/client.h"
#include "engine/conn/relay.h"
#include "engine/sys/cpu.h"

#include <stdlib.h>

static struct rds_queue_item *queue_item_new(const struct rds_conn_outgoing *out)
{
	struct rds_queue_item *q = malloc(sizeof(*q) + out->len);

	if (!q)
		return NULL;
	q->u = out->u;
	q->hdr = out->hdr;
	q->was_sent = q->port_asked = q->holds = false;
	q->meant_slot = 0;
	q->meant_gen = 0;
	q->answers = q->node = NULL;
	q->ref = NULL;
	rds_conn_client.queue_attach(q, out->ops);
	rds_copy_gather(q->data, out->iov, out->len);
	return q;
}

static int conn_xmit_queue(struct rds_conn *conn, struct rds_conn_outgoing *out)
{
	struct rds_queue_item *q = queue_item_new(out);

	if (!q)
		return -ENOMEM;
	if (out->answer)
		rds_queue_answer_add(conn, q);
	if (unlikely(q->hdr.flags & RDS_FLAG_REDIRECT))
		rds_conn_client.queue_insert_redirect(conn, q);
	else
		rds_queue_append(conn, q);
	rds_queue_item_mean(conn, q, out->to);
	return 0;
}

/*
 * Room that appears between a refusal and want_room() is not announced: so try once more after
 * want_room().  A FIRST endpoint carries neither operations, which are not sent again, nor long
 * messages: for them there is room when another endpoint has taken its place.
 */
int rds_conn_xmit_ep(struct rds_conn *conn, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	const struct rds_transport_ops *ops = conn->t->ops;
	bool too_much = unlikely(wire->flags & RDS_FLAG_OP) && rds_conn_is_first(conn);
	int err = unlikely(too_much) ? -EMSGSIZE : ops->send(conn->ep, wire, iov, len, pos);

	if (unlikely(err == -EMSGSIZE)) {
		rds_conn_outgrown(conn);
		return -EAGAIN;
	}
	if (likely(err != -EAGAIN))
		return err;
	ops->flush(conn->ep, true);
	ops->want_room(conn->ep, conn->acked);
	return ops->send(conn->ep, wire, iov, len, pos);
}

int rds_conn_xmit(struct rds_conn *conn, struct rds_conn_outgoing *out)
{
	const struct rds_transport_ops *ops = conn->t->ops;
	struct rds_wire_hdr wire;
	bool held;
	int err;

	/*
	 * With operations the answers were sent just before these, and a device has been told the
	 * number that the message gets (rdma/op_device.c).
	 */
	if (unlikely(atomic_load_explicit(&conn->nanswers, memory_order_relaxed)) && !out->ops)
		rds_conn_client.answers_flush(conn);
	if (unlikely(conn->relay == RDS_RELAY_OWNER))
		rds_relay_count(&out->u, &out->hdr);
	out->hdr.seq = out->u.seq = conn->next_tx;
	out->u.flags = out->hdr.flags;
	held = rds_conn_is_held(conn);
	if (unlikely(conn->queue && out->may_wait && conn->ep && !held))
		return -EAGAIN;
	if (unlikely(conn->queue || held || atomic_load_explicit(&conn->state, memory_order_relaxed) != RDS_CONN_UP ||
		     rds_conn_client.queue_holds(conn, out->ops))) {
		err = conn_xmit_queue(conn, out);
		goto done;
	}
	if (unlikely(rds_queue_unacked_room(conn)))
		return -ENOMEM;
	rds_conn_hdr_fit(conn, &out->hdr, out->u.sk);
	rds_wire_hdr_encode(&out->hdr, &wire, false);
	rds_conn_note_sending(conn, out->hdr.seq);
	/*
	 * A caller that can wait looks again for a while first: to ask the peer for room costs both
	 * sides something.
	 */
	err = out->may_wait ? ops->send(conn->ep, &wire, out->iov, out->len, &out->u.pos)
			    : rds_conn_xmit_ep(conn, &wire, out->iov, out->len, &out->u.pos);
	if (likely(err == 0)) {
		rds_conn_hdr_given(conn, out->u.sk);
		if (ops->caps & RDS_TCAP_DIRECT)
			rds_queue_unacked_release(&out->u);
		else
			rds_queue_unacked_push(conn, &out->u);
	} else if ((err == -EAGAIN && !out->may_wait) || err == -ENOTCONN || err == -EMSGSIZE) {
		if (unlikely(err == -EMSGSIZE))
			rds_conn_outgrown(conn);
		err = conn_xmit_queue(conn, out);
	}
done:
	if (likely(!err))
		conn->next_tx++;
	return err;
}

/*
 * Control traffic has no payload of a socket and is never kept: after -EAGAIN the request stays
 * set.
 */
static int conn_xmit_control(struct rds_conn *conn, struct rds_hdr *hdr, const void *data, size_t len)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
	struct rds_wire_hdr wire;
	uint64_t pos;
	int err;

	if (atomic_load_explicit(&conn->state, memory_order_relaxed) != RDS_CONN_UP)
		return -EAGAIN;
	rds_wire_hdr_encode(hdr, &wire, false);
	err = rds_conn_xmit_ep(conn, &wire, &iov, len, &pos);
	if (!err)
		conn->t->ops->flush(conn->ep, true);
	return err == -ENOTCONN ? -EAGAIN : err;
}

int rds_conn_xmit_map(struct rds_conn *conn)
{
	struct rds_hdr hdr = {.flags = RDS_FLAG_CONG_BITMAP};
	unsigned char bytes[RDS_CONG_MAP_BYTES];
	struct rds_cong_map *map;

	rx_lock();
	map = rds_cong_map_get(&conn->id.laddr);
	if (map)
		hdr.len = rds_cong_map_write(map, bytes, rds_conn_is_node(conn));
	if (map && rds_conn_is_node(conn))
		rds_relay_map_add(conn, bytes);
	if (conn->relay == RDS_RELAY_MEMBER)
		hdr.sport = RDS_NODE_TOLD | atomic_load(&conn->seldom->node->node);
	rx_unlock();
	if (!map)
		return -ENOMEM;
	conn->map_told = true;
	return conn_xmit_control(conn, &hdr, bytes, hdr.len);
}

/*
 * The answer to a ping: an ordinary message of length 0 from port 0, with a sequence number, kept
 * until it is acknowledged.  No thread waits for the room that it takes, so a peer that pings and
 * takes nothing would use up our memory: then it gets no answer.  (To leave its pings in the ring
 * would not do: two processes that ping each other would both wait.)
 */
int rds_conn_xmit_pong(struct rds_conn *conn, uint16_t dport)
{
	struct rds_conn_outgoing out = {.hdr = {.dport = dport}, .u = {.dport = dport}, .answer = true};
	int err;

	/* no peer is there to take it, and it would never be dropped */
	if (atomic_load(&conn->state) == RDS_CONN_DEAD)
		return 0;
	if (atomic_load(&conn->answer_bytes) > RDS_ANSWERS_MAX) {
		rds_debug("a peer takes no answers: a ping is dropped");
		return 0;
	}
	if (rds_cong_far_has(&conn->fcong, dport)) {
		RDS_STAT_INC(cong_send_error);
		return 0;
	}
	if (dport == 1 && rds_conn_is_node(conn)) { /* a probe */
		rds_conn_node_introduce(conn, &out.hdr);
		out.u.ext_type = out.hdr.ext_type;
		out.u.ext_rkey = out.hdr.ext_rkey;
		out.u.ext_offset = out.hdr.ext_offset;
	}
	err = rds_conn_xmit(conn, &out);
	if (!err) {
		RDS_STAT_INC(send_queued);
		RDS_STAT_INC(send_pong);
		if (conn->ep)
			conn->t->ops->flush(conn->ep, false);
	}
	return err;
}
