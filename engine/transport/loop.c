/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * loop.c - the transport within one process: sending is receiving.
 *
 * A message is copied once, into a block that the receive queue then owns.  It is delivered and
 * acknowledged before send() returns (RDS_TCAP_DIRECT).  So there is nothing to connect, to wake,
 * to retain or to break, and most of the operations are empty.  connect() gets the connection that
 * receives the messages: the engine passes the connection of the other direction.
 *
 * send() takes `rx`, while its caller holds conn->tx.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "engine/helper/helper.h"
#include "engine/node/registry.h"
#include "engine/node/stats.h"
#include "engine/sys/cpu.h"
#include "engine/sys/lock_order.h"
#include "engine/transport/transport.h"
#include "engine/wire/addr.h"

struct loop_ep {
	struct rds_ep_head head;
};

static int loop_start(struct rds_transport *t)
{
	(void)t;
	return 0;
}

static void loop_stop(struct rds_transport *t)
{
	(void)t;
}

static int loop_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn,
			struct rds_received here, struct rds_ep **ep)
{
	struct loop_ep *l = calloc(1, sizeof(*l));

	(void)id;
	(void)here;
	if (!l)
		return -ENOMEM;
	l->head.t = t;
	l->head.conn = conn;
	*ep = (struct rds_ep *)l;
	return 0;
}

static void loop_close(struct rds_ep *ep)
{
	free(ep);
}

static int loop_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	struct rds_ep_head *head = (struct rds_ep_head *)ep;
	struct rds_rx rx = {0};
	enum rds_rx_verdict v;
	int err;

	*pos = 0;
	err = rds_wire_hdr_decode(wire, &rx.hdr);
	if (err)
		return err;
	if (len) {
		rx.owned = malloc(len);
		if (!rx.owned)
			return -ENOMEM;
		rds_copy_gather(rx.owned, iov, len);
		rx.data = rx.owned;
	}
	rx_lock();
	v = head->t->up->message(head->conn, ep, &rx);
	rx_unlock();
	if (v != RDS_RX_TAKEN)
		free(rx.owned);
	return v >= RDS_RX_LATER ? -ENOMEM : 0;
}

static void loop_flush(struct rds_ep *ep, bool service)
{
	(void)ep;
	(void)service;
}

static const void *loop_retained(struct rds_ep *ep, uint64_t pos)
{
	(void)ep;
	(void)pos;
	return NULL;
}

static void loop_keep(struct rds_ep *ep, bool on)
{
	(void)ep;
	(void)on;
}

static uint64_t loop_acked(struct rds_ep *ep)
{
	(void)ep;
	return UINT64_MAX;
}

static bool loop_want_room(struct rds_ep *ep, uint64_t seen)
{
	(void)ep;
	(void)seen;
	return false;
}

static bool loop_nothing(struct rds_transport *t)
{
	(void)t;
	return false;
}

static void loop_ack(struct rds_ep *ep, uint64_t seq)
{
	(void)ep;
	(void)seq;
}

static void loop_release(struct rds_ep *ep, void *token)
{
	(void)ep;
	(void)token;
}

static void loop_attention(struct rds_transport *t, enum rds_attention who)
{
	(void)t;
	(void)who;
}

static bool loop_relieve(struct rds_transport *t, bool now)
{
	(void)t;
	(void)now;
	return false;
}

static const struct rds_transport_ops loop_ops = {
	.name = "loopback",
	.caps = RDS_TCAP_DIRECT,
	.start = loop_start,
	.stop = loop_stop,
	.connect = loop_connect,
	.close = loop_close,
	.send = loop_send,
	.flush = loop_flush,
	.retained = loop_retained,
	.keep = loop_keep,
	.acked = loop_acked,
	.want_room = loop_want_room,
	.progress = loop_nothing,
	.ack = loop_ack,
	.release = loop_release,
	.relieve = loop_relieve,
	.attention = loop_attention,
	.pending = loop_nothing,
};

struct rds_transport *rds_loop_transport(void)
{
	static struct rds_transport t = {.ops = &loop_ops};

	return &t;
}
