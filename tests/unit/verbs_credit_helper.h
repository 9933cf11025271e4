/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * verbs_credit_helper.h - two connected ends on the mock's iWARP, where a segment without a buffer,
 * or with one too small, ends the connection; and idle endpoints that have the other buffers.
 */
#ifndef TESTS_UNIT_VERBS_CREDIT_HELPER_H
#define TESTS_UNIT_VERBS_CREDIT_HELPER_H

#include <stdlib.h>

#include "tests/mock/world.h"

#define IDLE 2000

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];
static struct verbs_ep *idle[IDLE];
static unsigned nidle;

static inline void setup(void)
{
	world_iwarp();
	world.ours->attr.max_qp = world.ours2->attr.max_qp = 2 * IDLE;
	nidle = 0;
}

static inline const char *addr_of(const struct verbs_dev *dev)
{
	return mock_dev_of_context(dev->ctx) == world.ours ? US : US2;
}

static inline void idle_free(struct verbs_ep *ep)
{
	rx_lock();
	verbs_credit_end(ep);
	rx_unlock();
	verbs_qp_destroy(ep);
	ck_assert_int_eq(vb.rdma_destroy_id(ep->cm), 0);
	free(ep);
}

static inline void nothing(struct verbs_cm_owner *owner, struct rdma_cm_id *cm, const struct verbs_cm_ev *said)
{
	(void)owner;
	(void)cm;
	(void)said;
}

/* An endpoint with a queue pair that only holds the buffers that it has been given. */
static inline uint32_t idle_add(struct verbs_dev *dev)
{
	struct verbs_ep *ep = calloc(1, sizeof(*ep));
	struct sockaddr_storage sa;
	struct verbs_dev *same;
	uint32_t n;

	ck_assert_ptr_nonnull(ep);
	peer_address(&sa, addr_of(dev), 0);
	ep->owner.on_event = nothing;
	ck_assert_int_eq(vb.rdma_create_id(verbs_cm.events, &ep->cm, &ep->owner, RDMA_PS_TCP), 0);
	ck_assert_int_eq(vb.rdma_bind_addr(ep->cm, (struct sockaddr *)&sa), 0);
	ck_assert_int_eq(verbs_cm_dev_get(ep->cm, &same), 0);
	ck_assert_ptr_eq(same, dev);
	ep->dev = dev;
	ck_assert_int_eq(verbs_qp_create(ep), 0);
	n = verbs_credit_initial(dev, ep);
	if (n)
		idle[nidle++] = ep;
	else
		idle_free(ep);
	return n;
}

static inline void idle_drop(void)
{
	idle_free(idle[--nidle]);
}

static inline void idle_end(void)
{
	while (nidle)
		idle_drop();
}

/* As many as fit without more buffers: no small one is left for windows. */
static inline void fill(struct verbs_dev *dev)
{
	mock_fail_from(MOCK_ibv_reg_mr, 1, ENOMEM);
	while (dev->nsmall >= dev->small_reserved + VERBS_OWN)
		ck_assert_uint_gt(idle_add(dev), 0);
	mock_fail_from(MOCK_ibv_reg_mr, 0, 0);
}

/* Others have all large ones but so many. */
static inline void leave_large(struct verbs_dev *dev, uint32_t n)
{
	ck_assert_uint_gt(idle_add(dev), 0);
	rx_lock();
	while (dev->nlarge > n)
		ck_assert(verbs_credit_buf_post(idle[nidle - 1], true));
	rx_unlock();
}

static inline void well(void)
{
	ck_assert(world_all_came(a, b));
	ck_assert_uint_eq(a->downs + b->downs, 0);
}

static inline void send_all(struct world_conn *from, unsigned n, size_t len)
{
	struct world_conn *to = from == a ? b : a;
	unsigned i;
	int err;

	for (i = 0; i < n; i++) {
		while ((err = world_send(from, len, 0))) {
			uint64_t before = verbs_ep_acked(from->ep), got = to->nmsgs;

			ck_assert_int_eq(err, -EAGAIN);
			from->writables = 0;
			ck_assert(verbs_ep_want_room(from->ep, before) ||
				  (world_run(), from->writables > 0 || to->nmsgs > got));
		}
		world_run();
	}
	world_run();
	ck_assert(world_all_came(from, to));
}

#endif
