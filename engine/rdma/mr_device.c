/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mr_device.c - regions that a device reaches by itself: when they are registered, which peers are
 * told, and how that ends (see op_device.h).
 *
 * A region is advertised once two operations, and as many bytes as it has, have been served.  To
 * register and deregister it costs about as much as to copy all of it, and most regions of most
 * programs are for one operation.  A region for one use is never advertised.  An advertised region
 * is pinned.  The sum of these regions is bounded, first come, first served.
 *
 * A region that is freed leaves the table at once.  The device forgets it when all peers that know
 * it have acknowledged that they do not use it any more.
 *
 * A region is registered with conn->tx held and not rx, so it may be freed meanwhile: afterwards it
 * is looked up again by its key.  Each peer that was told has a record, in a list of the region and
 * in one of the connection.  The record holds the message that revokes the region: to free a region
 * must not need memory.  rx guards records and regions.
 *
 * This file must not know what a device is.
 */
#include "engine/rdma/op_device.h"
#include "engine/sys/patience.h"

#include <stdlib.h>
#include <sys/resource.h>

/* the cost of telling a peer, as bytes that could be copied instead */
#define ADVERTISE_EXTRA 16384u
#define SETTLE_SPIN_NS 200000u
#define ADVERTISE_PEERS_MAX 64u /* peers that are told of one region */

struct rds_mr_advert {
	struct rds_mr_advert *mr_next, **mr_prev;
	struct rds_mr_advert *conn_next, **conn_prev;
	struct rds_mr *mr;
	struct rds_conn *conn;
	/*
	 * the revoking message; NULL: sent, or nothing was advertised, as the peer comes over
	 * another device
	 */
	struct rds_queue_item *revocation;
};

static uint64_t pinned; /* rx */

/*
 * On many systems an ordinary user may lock 8 MiB.  Messages need locked memory as well, and cannot
 * do without it, while regions can.  Receive buffers leave regions a quarter of it.  The limit is
 * read each time, since that is seldom.
 */
static uint64_t mr_pin_limit(void)
{
	uint64_t most = (uint64_t)rds_options()->verbs_regions;
	struct rlimit lim;

	if (!getrlimit(RLIMIT_MEMLOCK, &lim) && lim.rlim_cur != RLIM_INFINITY && lim.rlim_cur / 8 < most)
		most = lim.rlim_cur / 8;
	return most;
}

static bool mr_peer_knows(const struct rds_mr *mr, const struct rds_conn *conn)
{
	const struct rds_mr_advert *t;
	unsigned n = 0;

	for (t = mr->adverts; t; t = t->mr_next)
		if (t->conn == conn || ++n == ADVERTISE_PEERS_MAX)
			return true;
	return false;
}

static bool mr_worth_device(const struct rds_mr *mr)
{
	int64_t after = rds_options()->verbs_region_after;

	return mr->operations >= after && (after == 1 || mr->served >= mr->len + ADVERTISE_EXTRA);
}

void rds_mr_served(struct rds_conn *conn, struct rds_ep *ep, struct rds_mr *mr, uint64_t len, bool last)
{
	if (!(rds_transport_ep_ops(ep)->caps & RDS_TCAP_DEVICE_OPS) || mr->device_unfit)
		return;
	mr->served += len;
	mr->operations += last;
	if (!last || !mr_worth_device(mr) || mr_peer_knows(mr, conn))
		return;
	if (conn->nadvertise == RDS_ADVERTISE_MAX)
		return; /* the next operation comes here again */
	conn->rdma->advertise[conn->nadvertise++] = mr->rkey;
	rds_conn_work_add(conn);
}

/* ---- adverts ---- */

struct rds_queue_item *rds_op_control_piece_new(const struct rds_wire_op_hdr *h)
{
	static const struct rds_hdr nobody;
	struct rds_queue_item *q = rds_op_answer_new(&nobody, 0);

	if (q)
		rds_wire_op_encode(h, q->data);
	return q;
}

static void mr_advert_free(struct rds_mr_advert *t)
{
	*t->mr_prev = t->mr_next;
	if (t->mr_next)
		t->mr_next->mr_prev = t->mr_prev;
	*t->conn_prev = t->conn_next;
	if (t->conn_next)
		t->conn_next->conn_prev = t->conn_prev;
	free(t->revocation);
	free(t);
}

static void mr_advert_link(struct rds_mr_advert *t, struct rds_mr *mr, struct rds_conn *conn)
{
	t->mr = mr;
	t->conn = conn;
	t->mr_next = mr->adverts;
	t->mr_prev = &mr->adverts;
	if (t->mr_next)
		t->mr_next->mr_prev = &t->mr_next;
	mr->adverts = t;
	t->conn_next = conn->rdma->adverts;
	t->conn_prev = &conn->rdma->adverts;
	if (t->conn_next)
		t->conn_next->conn_prev = &t->conn_next;
	conn->rdma->adverts = t;
}

/* rx and tx held.  Without memory the peer is told another time. */
static void mr_advertise_to(struct rds_conn *conn, struct rds_mr *mr)
{
	struct rds_mr_advert *t = calloc(1, sizeof(*t));
	struct rds_queue_item *q = NULL;
	struct rds_device_key far;

	if (!t)
		return;
	if (conn->t->ops->mr_key(conn->ep, mr->dev_mr, &far)) {
		struct rds_wire_op_hdr h = {.kind = RDS_OP_ADVERTISED,
					    .rkey = mr->rkey,
					    .len = mr->len,
					    .value = far.key,
					    .compare = far.at};

		q = rds_op_control_piece_new(&h);
		h = (struct rds_wire_op_hdr){.kind = RDS_OP_REVOKED, .rkey = mr->rkey};
		t->revocation = rds_op_control_piece_new(&h);
		if (!q || !t->revocation) {
			free(q);
			free(t->revocation);
			free(t);
			return;
		}
	}
	mr_advert_link(t, mr, conn);
	if (q)
		rds_op_answer_add(conn, q);
}

/* ---- registration ---- */

/*
 * rx held; dropped and taken again.  Returns the region if it is still there and this thread has
 * registered it; else NULL.
 */
static struct rds_mr *mr_register_device(struct rds_conn *conn, struct rds_mr *mr)
{
	const struct rds_transport_ops *ops = conn->t->ops;
	struct rds_device_mr *dev_mr = NULL;
	uint64_t base = mr->base, len = mr->len;
	uint32_t rkey = mr->rkey;
	int err;

	if (mr->device_unfit || mr->registering || pinned + len > mr_pin_limit())
		return NULL;
	mr->registering = true;
	pinned += len;
	rx_unlock();
	err = ops->mr_register(conn->ep, (void *)(uintptr_t)base, len, &dev_mr);
	rx_lock();
	mr = rds_mr_find(rkey);
	if (mr && !err) {
		mr->registering = false;
		mr->dev_mr = dev_mr;
		mr->deregister = ops->mr_deregister;
		return mr;
	}
	pinned -= len;
	if (mr) {
		mr->registering = false;
		mr->device_unfit = true;
	} else if (!err) {
		rx_unlock();
		ops->mr_deregister(dev_mr);
		rx_lock();
	}
	return NULL;
}

void rds_mr_advertise(struct rds_conn *conn)
{
	struct rds_mr *mr;

	rx_lock();
	while (conn->nadvertise) {
		mr = rds_mr_find(conn->rdma->advertise[--conn->nadvertise]);
		if (!mr || !conn->ep || atomic_load(&conn->state) != RDS_CONN_UP || mr_peer_knows(mr, conn) ||
		    !(conn->t->ops->caps & RDS_TCAP_DEVICE_OPS))
			continue;
		if (!mr->dev_mr)
			mr = mr_register_device(conn, mr);
		if (mr)
			mr_advertise_to(conn, mr);
	}
	rx_unlock();
}

/* ---- revocation ---- */

void rds_mr_revoke(struct rds_mr *mr)
{
	struct rds_mr_advert *t, *next;

	for (t = mr->adverts; t; t = next) {
		next = t->mr_next;
		if (!t->revocation) {
			mr_advert_free(t);
			continue;
		}
		/* the record is kept until the peer answers */
		rds_op_answer_add(t->conn, t->revocation);
		t->revocation = NULL;
	}
	if (mr->dev_mr)
		pinned -= mr->len;
}

void rds_mr_revoke_acked(struct rds_conn *conn, const struct rds_wire_op_hdr *h)
{
	struct rds_mr_advert *t, *next;

	conn->rdma->mute = false;
	for (t = conn->rdma->adverts; t; t = next) {
		next = t->conn_next;
		if (t->mr->rkey == h->rkey && !t->revocation)
			mr_advert_free(t);
	}
}

/* How long to wait for the peers of these regions; 0: all have answered. */
static uint64_t mr_revoke_patience(const struct rds_mr *list)
{
	const uint64_t all = rds_patience_ns(RDS_PATIENCE_REGION), mute = rds_patience_ns(RDS_PATIENCE_REGION_MUTE);
	const struct rds_mr_advert *t;
	uint64_t ns = 0;

	rx_lock();
	for (; list && ns < all; list = list->next)
		for (t = list->adverts; t && ns < all; t = t->mr_next)
			ns = t->conn->rdma->mute ? mute : all;
	rx_unlock();
	return ns;
}

/*
 * A peer that does not know of the revocation yet may be about to use the region.  Its whole
 * connection would break if the device had forgotten the region then.  A peer that does not answer
 * in time loses its connection, if it goes on.  It is either stopped, or short of processor time.
 * The wait is long enough for the second case.  A stopped peer makes one wait that long, not every
 * one (mute).
 */
void rds_mr_revoke_wait(struct rds_mr *list)
{
	uint64_t now, begun = 0, most;

	while ((most = mr_revoke_patience(list)) != 0) {
		now = os_now_ns();
		if (!begun)
			begun = now;
		if (now - begun > most)
			break;
		rds_progress_round();
		if (atomic_load_explicit(&rds_conn_work_pending, memory_order_relaxed))
			rds_conn_work_run();
		if (now - begun > SETTLE_SPIN_NS)
			os_poll(NULL, 0, 1);
	}
	rx_lock();
	for (; list; list = list->next)
		while (list->adverts) {
			list->adverts->conn->rdma->mute = true;
			mr_advert_free(list->adverts);
		}
	rx_unlock();
}

void rds_mr_deregister(struct rds_mr *mr)
{
	if (mr->dev_mr)
		mr->deregister(mr->dev_mr);
	mr->dev_mr = NULL;
}

void rds_mr_adverts_drop(struct rds_conn *conn)
{
	struct rds_conn_rdma *r = conn->rdma;

	if (!r)
		return;
	while (r->adverts)
		mr_advert_free(r->adverts);
	conn->nadvertise = 0;
	r->mute = false;
}

void rds_mr_device_forget(void)
{
	pinned = 0;
}
