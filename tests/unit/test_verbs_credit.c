/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_credit.c - credits, credit buffers and segments (engine/transport/verbs/ep/credit.c,
 * credit_buffers.c, segment.c) on the mock's iWARP, where a segment without a buffer, or with one
 * too small, ends the connection.  How many idle endpoints a device has room for, windows and what
 * they leave to others, endpoints that can get few buffers, peers that break the rules.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mock/world.h"

#define IDLE 2000

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];
static struct peer *const p = &world.peer;
static struct verbs_ep *idle[IDLE];
static unsigned nidle;

static void setup(void)
{
	world_iwarp();
	world.ours->attr.max_qp = world.ours2->attr.max_qp = 2 * IDLE;
	nidle = 0;
}

static const char *addr_of(const struct verbs_dev *dev)
{
	return mock_dev_of_context(dev->ctx) == world.ours ? US : US2;
}

static void idle_free(struct verbs_ep *ep)
{
	rx_lock();
	verbs_credit_end(ep);
	rx_unlock();
	verbs_qp_destroy(ep);
	ck_assert_int_eq(vb.rdma_destroy_id(ep->cm), 0);
	free(ep);
}

static void nothing(struct verbs_cm_owner *owner, struct rdma_cm_id *cm, const struct verbs_cm_ev *said)
{
	(void)owner;
	(void)cm;
	(void)said;
}

/* An endpoint with a queue pair that only holds the buffers that it has been given. */
static uint32_t idle_add(struct verbs_dev *dev)
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

static void idle_drop(void)
{
	idle_free(idle[--nidle]);
}

static void idle_end(void)
{
	while (nidle)
		idle_drop();
}

/* As many as fit without more buffers: no small one is left for windows. */
static void fill(struct verbs_dev *dev)
{
	mock_fail_from(MOCK_ibv_reg_mr, 1, ENOMEM);
	while (dev->nsmall >= dev->small_reserved + VERBS_OWN)
		ck_assert_uint_gt(idle_add(dev), 0);
	mock_fail_from(MOCK_ibv_reg_mr, 0, 0);
}

/* Others have all large ones but so many. */
static void leave_large(struct verbs_dev *dev, uint32_t n)
{
	ck_assert_uint_gt(idle_add(dev), 0);
	rx_lock();
	while (dev->nlarge > n)
		ck_assert(verbs_credit_buf_post(idle[nidle - 1], true));
	rx_unlock();
}

static void well(void)
{
	ck_assert(world_all_came(a, b));
	ck_assert_uint_eq(a->downs + b->downs, 0);
}

static void send_all(struct world_conn *from, unsigned n, size_t len)
{
	struct world_conn *to = from == a ? b : a;
	unsigned i;

	for (i = 0; i < n; i++) {
		while (world_send(from, len, 0)) {
			uint64_t before = verbs_ep_acked(from->ep), got = to->nmsgs;

			from->writables = 0;
			ck_assert(verbs_ep_want_room(from->ep, before) ||
				  (world_run(), from->writables > 0 || to->nmsgs > got));
		}
		world_run();
	}
	world_run();
	ck_assert(world_all_came(from, to));
}

/* ---- how many ---- */

/* A thousand idle ones took 16 KiB each. */
START_TEST(test_idle_ones)
{
	struct verbs_dev *dev = world_dev();
	uint32_t base = dev->base, n, more = 0, many = 0;
	size_t before = world.ours->registered, step = (64u << 10);

	while ((n = idle_add(dev))) {
		ck_assert_uint_ge(n & 0xff, VERBS_OWN);
		many += (n & 0xff) > VERBS_OWN;
		more += n >> 8;
		ck_assert_uint_lt(nidle, IDLE);
		ck_assert_uint_le(world.ours->registered - before,
				  nidle * VERBS_OWN * VERBS_BUF_SMALL + base * VERBS_BUF_SMALL + 2 * step);
	}
	ck_assert_uint_gt(nidle, 3 * base);
	ck_assert_uint_lt(many, 5);		     /* the first ones */
	ck_assert_uint_eq(more, dev->all_large / 2); /* the other half is for windows */
	ck_assert(atomic_load(&dev->full));
	idle_drop();
	ck_assert_uint_gt(idle_add(dev), 0);
	idle_end();
}
END_TEST

/* The limit of locked memory: it is refused, and nothing is promised that is not there. */
START_TEST(test_no_memory_to_grow)
{
	struct verbs_dev *dev = world_dev();

	fill(dev);
	mock_fail_from(MOCK_ibv_reg_mr, 1, ENOMEM);
	ck_assert_uint_eq(idle_add(dev), 0);
	mock_fail_from(MOCK_ibv_reg_mr, 0, 0);
	ck_assert_uint_ge(dev->nsmall, dev->small_reserved);
	ck_assert_uint_gt(idle_add(dev), 0);
	idle_end();
}
END_TEST

/*
 * siw and the usual limit of 8 MiB, which siw applies to root as well.  All memory that can be had
 * is used, and sending keeps its part.
 */
START_TEST(test_locked_memory_is_used)
{
	struct verbs_dev *dev;
	unsigned more = 100, n;

	world_pair();
	dev = world_ep(b)->dev;
	ck_assert_ptr_eq(dev->ctx->device, &world.ours2->device);
	fill(dev);
	world.ours2->memlock = world.ours2->registered + (2u << 20) + more * VERBS_OWN * VERBS_BUF_SMALL;
	for (n = 0; idle_add(dev); n++)
		;
	ck_assert_uint_gt(n, more / 2); /* whole pages */
	ck_assert_uint_le(n, more);
	ck_assert_uint_ge(dev->nsmall, dev->small_reserved);
	ck_assert_uint_gt(world.ours2->memlock - world.ours2->registered, 2u << 20);
	idle_end();
}
END_TEST

/* ---- windows ---- */

START_TEST(test_small_window)
{
	struct verbs_ep *ep;
	unsigned i;

	world_pair();
	ep = world_ep(b);
	for (i = 0; i < 300; i++) {
		while (world_send(a, 100, 0))
			world_run();
		ck_assert_uint_le(ep->rq_len, ep->dev->base / 4);
	}
	world_run();
	well();
	ck_assert_uint_ge(ep->rq_len, 4);
	ck_assert_uint_eq(ep->nlarge, 0);
}
END_TEST

/*
 * In an exchange of messages all credits go with the messages.  Only a side that sends none needs
 * frames for its credits.
 */
START_TEST(test_told_with_messages)
{
	uint32_t before, i;

	world_pair();
	for (i = 0; i < 20; i++) { /* the window grows, and the first maps go */
		send_all(a, 1, 64);
		send_all(b, 1, 64);
	}
	before = world_ep(b)->wr_posted;
	for (i = 0; i < 200; i++) {
		send_all(a, 1, 64);
		send_all(b, 1, 64);
		ck_assert_uint_ge(verbs_credit_count(world_ep(a)), VERBS_OWN);
		ck_assert_uint_ge(verbs_credit_count(world_ep(b)), VERBS_OWN);
	}
	ck_assert_uint_eq(world_ep(b)->wr_posted, before + 200);
	send_all(a, 200, 64);
	ck_assert_uint_gt(world_ep(b)->wr_posted, before + 200);
	well();
}
END_TEST

/*
 * A program looks once, finds what it was woken for, and does something else for long.  A peer that
 * has nearly no credits left is told of the buffers all the same: otherwise neither side has a
 * reason to look again.
 */
START_TEST(test_one_look)
{
	struct verbs_ep *ep;
	unsigned n, seen = 0;
	uint32_t has;

	world_pair();
	ep = world_ep(b);
	send_all(a, 200, 100);
	for (n = 1; n < 64; n++) {
		unsigned i;

		for (i = 0; i < n && verbs_credit_count(world_ep(a)) > 1; i++)
			ck_assert_int_eq(world_send(a, 100, 0), 0);
		while (mock_step())
			;
		world_look();
		has = ep->rq_len - (atomic_load(&ep->offered) - atomic_load(&ep->offer_told));
		if (has < VERBS_OWN) {
			seen++;
			ck_assert_msg(b->speak, "%u messages, %u of %u are known", n, has, ep->rq_len);
		}
		world_run();
	}
	ck_assert_uint_gt(seen, 5);
	well();
}
END_TEST

/* Large messages get large buffers, a share of them, and small ones after that use them up. */
START_TEST(test_large_window)
{
	struct verbs_ep *ep;
	unsigned i, most = 0;

	world_pair();
	ep = world_ep(b);
	for (i = 0; i < 60; i++) {
		send_all(a, 1, 60000);
		most = ep->nlarge > most ? ep->nlarge : most;
	}
	ck_assert_uint_ge(most, 2);
	ck_assert_uint_le(most, ep->dev->all_large / 3);
	send_all(a, 100, 100);
	ck_assert_uint_eq(ep->nlarge, 0);
	well();
}
END_TEST

/* With a window, a frame of 64 KiB is one work request. */
START_TEST(test_one_segment)
{
	uint32_t before;

	world_pair();
	send_all(a, 20, 65536);
	ck_assert_uint_ge(verbs_credit_count(world_ep(a)), 2);
	before = world_ep(a)->wr_posted;
	ck_assert_int_eq(world_send(a, 65536, 0), 0);
	ck_assert_uint_eq(world_ep(a)->wr_posted, before + 1);
	world_run();
	well();
}
END_TEST

/* The first segment of a batch tells the batch's length.  Once it has gone, no message is added. */
START_TEST(test_begun_group)
{
	struct verbs_ep *ep;
	uint32_t told;

	world_pair();
	send_all(a, 4, 100); /* the large ones are used up */
	ep = world_ep(a);
	told = atomic_load(&ep->known_told);
	atomic_store(&ep->known_told, atomic_load(&ep->known_used) + 2);
	ck_assert_int_eq(world_send(a, 600, RDS_FLAG_OP), 0);
	verbs_ep_push(a->ep);
	ck_assert_uint_eq(ep->unfinished, 1);
	ck_assert_int_eq(world_send(a, 100, 0), -EAGAIN);
	atomic_store(&ep->known_told, told);
	verbs_ep_push(a->ep);
	ck_assert_int_eq(world_send(a, 100, 0), 0);
	world_run();
	well();
}
END_TEST

/* What begins every connection is no reason for a window, nor are a few words. */
START_TEST(test_seldom_used)
{
	struct verbs_ep *ep;
	uint32_t before;

	world_pair();
	ep = world_ep(b);
	before = ep->rq_len;
	ck_assert_int_eq(world_send(a, RDS_CONG_MAP_BYTES, RDS_FLAG_CONG_BITMAP), 0);
	world_run();
	send_all(a, 2, 100);
	ck_assert_uint_le(ep->rq_len, before);
	ck_assert_uint_le(ep->nlarge, 1);
}
END_TEST

/*
 * A list of no ports is as long as a control frame, and uses a credit as any message does: the peer
 * would be left without if it took the credits that come with the list for all that it is.
 */
START_TEST(test_empty_lists)
{
	const struct rds_hdr hdr = {.flags = RDS_FLAG_CONG_BITMAP};
	struct rds_wire_hdr wire;
	uint64_t pos;
	unsigned i, na, nb;

	world_pair();
	na = a->nmsgs;
	nb = b->nmsgs;
	rds_wire_hdr_encode(&hdr, &wire, false);
	for (i = 1; i <= 200; i++) {
		ck_assert_int_eq(verbs_ep_send(a->ep, &wire, NULL, 0, &pos), 0);
		verbs_ep_flush(a->ep, true);
		ck_assert_int_eq(verbs_ep_send(b->ep, &wire, NULL, 0, &pos), 0);
		verbs_ep_flush(b->ep, true);
		world_run();
		ck_assert_uint_eq(a->nmsgs, na + i);
		ck_assert_uint_eq(b->nmsgs, nb + i);
		ck_assert_uint_ge(verbs_credit_count(world_ep(a)), VERBS_OWN);
		ck_assert_uint_ge(verbs_credit_count(world_ep(b)), VERBS_OWN);
	}
	ck_assert_uint_eq(a->downs + b->downs, 0);
}
END_TEST

/*
 * A peer that falls silent keeps its window, which is no more than a share.  Others still get a
 * window, and all buffers come back when the connection ends.
 */
START_TEST(test_falls_silent)
{
	struct verbs_dev *dev;

	world_pair();
	dev = world_ep(b)->dev;
	send_all(a, 40, 60000);
	ck_assert_uint_ge(world_ep(b)->nlarge, 1);
	ck_assert_uint_ge(dev->nlarge, dev->all_large / 2);
	world_close(a);
	world_close(b);
	world_pass(5000 * MS);
	ck_assert_uint_eq(dev->nlarge, dev->all_large);
	ck_assert_uint_eq(dev->small_reserved, 0);
}
END_TEST

/* Nothing of a window is left over for the next connection. */
START_TEST(test_window_ends_with_its_connection)
{
	unsigned i, first;

	world_pair();
	first = world_ep(b)->rq_len;
	for (i = 0; i < 3; i++) {
		send_all(a, 10, 60000);
		ck_assert_int_eq(world_send(a, 60000, 0), 0); /* and one under way */
		world_close(a);
		world_run();
		world_close(b);
		world_pass(5000 * MS);
		memset(a, 0, sizeof(*a));
		memset(b, 0, sizeof(*b));
		world.next = b;
		ck_assert_int_eq(world_connect(a, US, US2, verbs_cm.port, registry_self(rds_node_registry)), 0);
		world_run();
		ck_assert_uint_eq(a->ups, 1);
		send_all(a, 1, 1);
		ck_assert_uint_eq(verbs_credit_count(world_ep(a)), first);
		ck_assert_uint_eq(world_ep(b)->rq_len, first);
	}
	send_all(a, 3, 60000);
	send_all(b, 3, 60000);
	well();
}
END_TEST

/* ---- nobody waits for ever ---- */

/*
 * _i large buffers are free.  The last ones are for frames that have begun; with none at all
 * everything goes in small ones.
 */
START_TEST(test_few_large)
{
	struct verbs_dev *dev;
	uint32_t had;

	world_pair();
	dev = world_ep(b)->dev;
	leave_large(dev, (uint32_t)_i);
	had = (uint32_t)_i + world_ep(b)->nlarge;
	send_all(a, 50, 20000);
	send_all(b, 20, 20000);
	well();
	ck_assert_uint_eq(dev->nlarge + world_ep(b)->nlarge, had);
	idle_end();
}
END_TEST

/*
 * More credits than one header can tell: small ones, a large one behind them and more small ones,
 * or too many.  The receiver looks for a while and says nothing.  Then it has the first segment of
 * a frame that needs all of these credits: no other reason is left to tell them.
 */
START_TEST(test_more_than_a_header_tells)
{
	struct verbs_ep *ep;

	world_pair();
	ep = world_ep(b);
	ck_assert_int_eq(verbs_bufs_grow(ep->dev, 400), 0); /* for a full window */
	while (verbs_credit_count(world_ep(a)) > 2 + (unsigned)_i) {
		ck_assert_int_eq(world_send(a, 100, 0), 0);
		mock_run();
		world_look();
	}
	ck_assert_int_eq(world_send(a, RDS_CONG_MAP_BYTES, RDS_FLAG_CONG_BITMAP), 0);
	mock_run();
	world_look();
	ck_assert_ptr_nonnull(ep->part);
	ck_assert_uint_gt(atomic_load(&ep->offered) - atomic_load(&ep->offer_told), 16);
	world_run();
	ck_assert_ptr_null(ep->part);
	ck_assert(!verbs_credit_grant_due(ep));
	well();
}
END_TEST

/*
 * There are hundreds of idle endpoints, and others have all large buffers but two.  A frame that
 * has begun to come gets one of the two.
 */
START_TEST(test_begun_gets_one)
{
	struct verbs_dev *dev;
	uint32_t before;

	world_pair();
	dev = world_ep(b)->dev;
	leave_large(dev, 2);
	fill(dev);
	send_all(a, 3, 100);
	before = world_ep(a)->wr_posted;
	send_all(a, 10, 60000);
	well();
	ck_assert_uint_lt(world_ep(a)->wr_posted - before, 100); /* of 10 * 240 */
	idle_end();
}
END_TEST

START_TEST(test_unread_and_no_room)
{
	world_pair();
	fill(world_ep(b)->dev);
	world.keep_inplace = true;
	send_all(a, 100, 1000);
	send_all(a, 100, 30000);
	ck_assert_uint_gt(world.ninplace, 4);
	world_release();
	send_all(a, 100, 30000);
	well();
	idle_end();
}
END_TEST

/*
 * The engine keeps messages in place beyond the end of their endpoint: some in large buffers, some
 * put together on the heap.
 */
START_TEST(test_in_place_outlives)
{
	struct verbs_dev *dev;
	unsigned i, heap = 0;

	world_pair();
	dev = world_ep(b)->dev;
	world.keep_inplace = true;
	send_all(a, 3, 60000);
	for (i = 0; i < world.ninplace; i++)
		heap += ((const struct verbs_buf *)world.inplace[i].token)->heap;
	ck_assert_uint_gt(heap, 0);
	ck_assert_uint_gt(world.ninplace, heap);
	world_close(a);
	world_close(b);
	world_pass(5000 * MS);
	ck_assert_ptr_nonnull(verbs_eps.all);
	ck_assert_uint_eq(dev->nlarge, dev->all_large - (world.ninplace - heap));
	world_release();
	world_run();
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_uint_eq(dev->nlarge, dev->all_large);
}
END_TEST

/* Nobody reads: at most half of the large ones are with the engine, the rest is copied. */
START_TEST(test_half_stays)
{
	struct verbs_dev *dev;

	world_pair();
	dev = world_ep(b)->dev;
	world.keep_inplace = true;
	send_all(a, 100, 60000);
	well();
	ck_assert_uint_ge(dev->nlarge + world_ep(b)->nlarge, dev->all_large / 2);
	ck_assert_uint_gt(world.copies, 30);
}
END_TEST

/* No large ones from the very beginning, and a frame that comes before its endpoint is up. */
START_TEST(test_poor_from_the_start)
{
	struct verbs_dev *dev;

	ck_assert_int_eq(world_claim(US2), 1);
	for (dev = world_dev(); dev; dev = dev->next) {
		leave_large(dev, 0);
		fill(dev);
	}
	world_pair();
	ck_assert_uint_eq(world_ep(b)->nlarge, 0);
	send_all(a, 50, 20000);
	ck_assert_int_eq(world_send(b, 100, 0), 0);
	world_run();
	ck_assert_int_eq(world_send(b, 20000, 0), 0);
	world_run();
	ck_assert(world_all_came(b, a));
	well();
	idle_end();
}
END_TEST

/*
 * Frames that found no memory keep their buffers: all credits are used up, and none are given until
 * there is memory.
 */
START_TEST(test_no_memory_then_some)
{
	unsigned i;

	world_pair();
	leave_large(world_ep(b)->dev, 0);
	fill(world_ep(b)->dev);
	world.later = 100000;
	for (i = 0; i < 60; i++) {
		world_send(a, 100, 0);
		world_run();
	}
	ck_assert_uint_le(world_ep(b)->rq_len, 1);
	ck_assert_uint_eq(b->nmsgs, 1);
	world.later = 0;
	world_pass(100 * MS);
	ck_assert_uint_gt(world_ep(b)->rq_len, 1);
	send_all(a, 60, 1000);
	well();
	idle_end();
}
END_TEST

/* The device takes no receive for a while. */
START_TEST(test_posts_fail)
{
	unsigned i;

	world_pair();
	mock_fail_from(MOCK_ibv_post_recv, 1, ENOMEM);
	for (i = 0; i < 30; i++) {
		world_send(a, 3000, 0);
		world_run();
	}
	mock_fail_from(MOCK_ibv_post_recv, 0, 0);
	world_pass(100 * MS);
	send_all(a, 30, 3000);
	well();
}
END_TEST

/*
 * Receives of a closed endpoint that the device never gives back, and completions that come when
 * their queue pair is gone.
 */
START_TEST(test_late_completions)
{
	struct verbs_dev *dev = NULL;
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS, .byte_len = 100};
	struct verbs_buf *buf;

	world_pair();
	send_all(a, 20, 60000);
	dev = world_ep(b)->dev;
	buf = world_ep(b)->rq;
	wc.wr_id = (uint64_t)buf->turn << 32 | buf->index;
	wc.qp_num = world_ep(b)->qpn;
	world_close(a);
	world_close(b);
	world_pass(5000 * MS);
	rx_lock();
	ck_assert_ptr_null(verbs_credit_buf_completed(dev, wc.wr_id));
	ck_assert_ptr_null(verbs_credit_buf_completed(dev, dev->nbufs));
	rx_unlock();
	ck_assert_uint_eq(dev->posted, 0);
}
END_TEST

/* ---- peers that do not keep to the rules ---- */

static void is_broken(void)
{
	world_run();
	ck_assert_uint_eq(a->downs, 1);
	ck_assert_int_eq(a->why, -EPROTO);
}

/* Whether it may or not. */
static void short_one(uint64_t seq)
{
	struct rds_hdr h = {.seq = seq, .sport = 1, .dport = 2};
	struct rds_wire_hdr w;

	rds_wire_hdr_encode(&h, &w, false);
	peer_send(p, &w, sizeof(w), IBV_SEND_SIGNALED);
}

/* One more than lies there: the device ends the connection. */
START_TEST(test_sends_too_much)
{
	unsigned n, i;

	world_up_by(a, 32);
	n = world_ep(a)->rq_len + (unsigned)_i;
	for (i = 0; i < n; i++)
		short_one(i + 1);
	world_run();
	ck_assert_uint_eq(a->downs, (unsigned)_i);
	if (!_i)
		ck_assert_uint_eq(a->nmsgs, n);
}
END_TEST

/* The peer uses credits that it has not been told of. */
START_TEST(test_uses_what_it_was_not_told)
{
	unsigned i;

	world_up_by(a, 32);
	for (i = 0; i < 30 && a->open; i++) {
		short_one(i + 1);
		mock_run();
		world_look(); /* and nothing goes out */
		if (atomic_load(&world_ep(a)->state) == VERBS_BROKEN)
			break;
	}
	ck_assert_uint_lt(i, 25);
	is_broken();
}
END_TEST

static void grants(unsigned n)
{
	struct rds_wire_hdr w = {.credit = (uint8_t)n};

	peer_send(p, &w, sizeof(w), IBV_SEND_SIGNALED);
	world_run();
}

/* More credits than a queue can have. */
START_TEST(test_grants_too_much)
{
	unsigned n;

	world_up_by(a, 2);
	for (n = 0; verbs_credit_count(world_ep(a)) + 30 <= VERBS_KNOWN; n++) {
		grants(0xff);
		ck_assert_uint_eq(a->downs, 0);
	}
	ck_assert_uint_ge(n, 5);
	grants(0xff);
	is_broken();
}
END_TEST

static void first(uint64_t seq, uint32_t len, uint32_t total, size_t n)
{
	unsigned char bytes[VERBS_HDR + 4096];
	struct rds_hdr h = {.seq = seq, .len = len, .sport = 1, .dport = 2};
	struct rds_wire_hdr w;

	rds_wire_hdr_encode(&h, &w, false);
	total = htobe32(total);
	memcpy(w.padding, &total, sizeof(total));
	memcpy(bytes, &w, sizeof(w));
	world_fill(seq, bytes + VERBS_HDR, n);
	peer_send(p, bytes, VERBS_HDR + n, IBV_SEND_SIGNALED);
}

static void next(uint64_t seq, size_t from, size_t n)
{
	static unsigned char whole[8192];
	unsigned char bytes[VERBS_MARK + 8192];

	world_fill(seq, whole, sizeof(whole));
	memset(bytes, 0xff, VERBS_MARK);
	memcpy(bytes + VERBS_MARK, whole + from, n);
	peer_send(p, bytes, VERBS_MARK + n, IBV_SEND_SIGNALED);
}

/* What may be sent: segments of any length, and frames without a message in between. */
START_TEST(test_segments)
{
	world_up_by(a, 32);
	first(1, 300, VERBS_HDR + 300, 0);
	next(1, 0, 100);
	world_peer_frame(&(struct rds_hdr){0}, NULL, 0);
	next(1, 100, 0);
	next(1, 100, 120);
	next(1, 220, 80);
	world_run();
	world_got_one(a, 1);
	ck_assert_uint_eq(a->downs, 0);
}
END_TEST

START_TEST(test_segments_that_do_not_fit)
{
	world_up_by(a, 32);
	switch (_i) {
	case 0: /* of nothing */
		next(1, 0, 10);
		break;
	case 1: /* too many bytes */
		first(1, 300, VERBS_HDR + 300, 100);
		next(1, 100, 120);
		next(1, 220, 81);
		break;
	case 2: /* another one begins */
		first(1, 300, VERBS_HDR + 300, 100);
		first(1, 300, VERBS_HDR + 300, 100);
		break;
	case 3: /* another message */
		first(1, 300, VERBS_HDR + 300, 100);
		world_peer_sends(2, 10, 0);
		break;
	case 4: /* it is all there */
		first(1, 100, VERBS_HDR + 100, 100);
		break;
	case 5: /* longer than a frame may be */
		first(1, 300, VERBS_HDR + world_ep(a)->frame + 1, 100);
		break;
	case 6: /* put together, it is no frame */
		first(1, 300, VERBS_HDR + 200, 100);
		next(1, 100, 100);
		break;
	case 7: /* a mark that is cut off */
		first(1, 300, VERBS_HDR + 300, 100);
		peer_send(p, "\377\377\377\377", 4, IBV_SEND_SIGNALED);
		break;
	}
	is_broken();
	ck_assert_uint_eq(a->nmsgs, 0);
}
END_TEST

/* Closed in the middle of a frame. */
START_TEST(test_half_a_frame)
{
	world_up_by(a, 32);
	first(1, 300, VERBS_HDR + 300, 100);
	world_run();
	ck_assert_ptr_nonnull(world_ep(a)->part);
	world_close(a);
	world_pass(5000 * MS);
	ck_assert_uint_eq(a->nmsgs, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_credit");
	TCase *t = world_case(s, "iwarp", setup);

	tcase_add_test(t, test_idle_ones);
	tcase_add_test(t, test_no_memory_to_grow);
	tcase_add_test(t, test_locked_memory_is_used);
	tcase_add_test(t, test_small_window);
	tcase_add_test(t, test_told_with_messages);
	tcase_add_test(t, test_one_look);
	tcase_add_test(t, test_large_window);
	tcase_add_test(t, test_one_segment);
	tcase_add_test(t, test_begun_group);
	tcase_add_test(t, test_seldom_used);
	tcase_add_test(t, test_empty_lists);
	tcase_add_test(t, test_falls_silent);
	tcase_add_test(t, test_window_ends_with_its_connection);
	tcase_add_loop_test(t, test_few_large, 0, 5);
	tcase_add_loop_test(t, test_more_than_a_header_tells, 0, 10);
	tcase_add_test(t, test_begun_gets_one);
	tcase_add_test(t, test_unread_and_no_room);
	tcase_add_test(t, test_in_place_outlives);
	tcase_add_test(t, test_half_stays);
	tcase_add_test(t, test_poor_from_the_start);
	tcase_add_test(t, test_no_memory_then_some);
	tcase_add_test(t, test_posts_fail);
	tcase_add_test(t, test_late_completions);
	tcase_add_loop_test(t, test_sends_too_much, 0, 2);
	tcase_add_test(t, test_uses_what_it_was_not_told);
	tcase_add_test(t, test_grants_too_much);
	tcase_add_test(t, test_segments);
	tcase_add_loop_test(t, test_segments_that_do_not_fit, 0, 8);
	tcase_add_test(t, test_half_a_frame);
	return suite_run(s);
}
