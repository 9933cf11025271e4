/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * op_device_helper.h - two connections over a transport whose device carries out operations, as far as
 * the engine can tell: it records its calls.
 */
#ifndef TESTS_UNIT_OP_DEVICE_HELPER_H
#define TESTS_UNIT_OP_DEVICE_HELPER_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/rdma/op_device.h"
#include "tests/unit/suite.h"

#define LEN 65536u
#define KEY 0x77u
#define AT 0x10000000u

static struct rds_sock sk;
static struct rds_conn conn[2];
static unsigned char *mem;

static struct {
	unsigned show, hide, post, fence;
	int show_err, post_err;
	bool elsewhere;	      /* the endpoint has another device */
	uint64_t free_cookie; /* freed while it is registered */
	bool mute;	      /* the peer does not answer */
	struct rds_device_op op;
	struct rds_wire_op_hdr sent[2][8];
	unsigned nsent[2];
} did;

static inline int fake_show(struct rds_ep *ep, void *at, size_t len, struct rds_device_mr **out)
{
	ck_assert_ptr_nonnull(ep);
	ck_assert_ptr_eq(at, mem);
	ck_assert_uint_eq(len, LEN);
	did.show++;
	if (did.free_cookie)
		ck_assert_int_eq(rds_mr_free(&sk, did.free_cookie), 0);
	if (!did.show_err)
		*out = (struct rds_device_mr *)(void *)&did;
	return did.show_err;
}

static inline bool fake_shown(struct rds_ep *ep, const struct rds_device_mr *shown, struct rds_device_key *far)
{
	(void)ep;
	ck_assert_ptr_eq(shown, (void *)&did);
	*far = (struct rds_device_key){KEY, AT};
	return !did.elsewhere;
}

static inline void fake_hide(struct rds_device_mr *shown)
{
	ck_assert_ptr_eq(shown, (void *)&did);
	rx_lock(); /* not held */
	rx_unlock();
	did.hide++;
}

static inline int fake_post(struct rds_ep *ep, const struct rds_device_op *op)
{
	(void)ep;
	did.post++;
	did.op = *op;
	return did.post_err;
}

static inline void fake_fence(struct rds_ep *ep)
{
	ck_assert_ptr_nonnull(ep);
	did.fence++;
}

static struct rds_transport transport;
static struct rds_ep_head endpoint[2] = {{.t = &transport}, {.t = &transport}};

/* What goes while a region is freed.  The peer says at once that it has heard of it. */
static inline int fake_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
			    uint64_t *pos)
{
	unsigned i = (struct rds_ep_head *)ep != endpoint;
	struct rds_wire_op_hdr *h = &did.sent[i][did.nsent[i]++];

	(void)wire;
	*pos = 0;
	ck_assert_uint_le(did.nsent[i], 8);
	ck_assert_int_eq(rds_wire_op_decode(iov->iov_base, len, h), 0);
	if (h->kind != RDS_OP_REVOKED || did.mute)
		return 0;
	rx_lock();
	rds_mr_revoke_acked(&conn[i], &(struct rds_wire_op_hdr){.rkey = h->rkey});
	rx_unlock();
	return 0;
}

static inline const void *fake_retained(struct rds_ep *ep, uint64_t pos)
{
	(void)ep;
	(void)pos;
	return "";
}

static inline void fake_flush(struct rds_ep *ep, bool service)
{
	(void)ep;
	(void)service;
}

static inline uint64_t fake_acked(struct rds_ep *ep)
{
	(void)ep;
	return 0;
}

static const struct rds_transport_ops ops = {.caps = RDS_TCAP_DEVICE_OPS,
					     .send = fake_send,
					     .flush = fake_flush,
					     .retained = fake_retained,
					     .acked = fake_acked,
					     .mr_register = fake_show,
					     .mr_key = fake_shown,
					     .mr_deregister = fake_hide,
					     .post = fake_post,
					     .fence = fake_fence};

static inline void setup(void)
{
	unsigned i;

	setenv("RDS_PRELOAD_VERBS_REGIONS", "256K", 1);
	rds_options_reset();
	memset(conn, 0, sizeof(conn));
	memset(&did, 0, sizeof(did));
	memset(&sk, 0, sizeof(sk));
	os_process_start();
	transport.ops = &ops;
	atomic_store(&sk.open, true);
	for (i = 0; i < 2; i++) {
		conn[i].t = &transport;
		conn[i].ep = (struct rds_ep *)&endpoint[i];
		conn[i].queue_tail = &conn[i].queue;
		ck_assert(rds_ops_prepare(&conn[i]));
		conn[i].next_tx = 5;
		atomic_store(&conn[i].state, RDS_CONN_UP);
	}
	ck_assert_int_eq(posix_memalign((void **)&mem, 4096, LEN), 0);
}

static inline void teardown(void)
{
	unsigned i;

	rx_lock();
	for (i = 0; i < 2; i++) {
		rds_op_answers_drop(&conn[i]);
		rds_mr_adverts_drop(&conn[i]);
		rds_mr_remote_drop_all(&conn[i]);
		free(conn[i].unacked);
		free(conn[i].rdma);
	}
	rx_unlock();
	rds_mr_destroy_list(rds_mr_take_all(&sk));
	ck_assert_uint_eq(did.hide, did.show - (did.show_err ? did.show : 0));
	free(mem);
}

/* The next thing that this peer is told.  0: nothing. */
static inline enum rds_wire_op_kind told(struct rds_conn *c, struct rds_wire_op_hdr *h)
{
	struct rds_queue_item *q = c->rdma->answers;
	unsigned i = c != conn;

	*h = (struct rds_wire_op_hdr){0};
	if (!q && did.nsent[i]) {
		*h = did.sent[i][0];
		memmove(did.sent[i], did.sent[i] + 1, sizeof(did.sent[i][0]) * --did.nsent[i]);
		return h->kind;
	}
	if (!q)
		return (enum rds_wire_op_kind)0;
	c->rdma->answers = q->next;
	if (!c->rdma->answers)
		c->rdma->answers_tail = &c->rdma->answers;
	ck_assert_int_eq(rds_wire_op_decode(q->data, q->hdr.len, h), 0);
	ck_assert(q->hdr.flags == RDS_FLAG_OP && q->u.once && !rds_wire_op_is_request(h->kind));
	rds_queue_item_free(q);
	return h->kind;
}

static inline void told_of(struct rds_conn *c, enum rds_wire_op_kind kind, uint64_t cookie)
{
	struct rds_wire_op_hdr h;

	ck_assert_int_eq(told(c, &h), kind);
	if (kind)
		ck_assert_uint_eq(h.rkey, rds_cookie_rkey(cookie));
	if (kind == RDS_OP_ADVERTISED)
		ck_assert(h.value == KEY && h.compare == AT && h.len == LEN);
}

#endif
