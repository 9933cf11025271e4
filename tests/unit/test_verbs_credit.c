/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_credit.c - credits (engine/transport/verbs/credit.c) on the mock's iWARP: how many idle endpoints a device has room for,
 * endpoints whose credits could not be renewed at once, peers that take more than they were given.
 */
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
	nidle = 0;
}

/* An endpoint that does nothing but hold what it is given. */
static uint32_t idle_add(struct verbs_dev *dev)
{
	struct verbs_ep *ep = calloc(1, sizeof(*ep));
	uint32_t n;

	ck_assert_ptr_nonnull(ep);
	ep->dev = dev;
	n = verbs_credit_first(dev, ep);
	if (n)
		idle[nidle++] = ep;
	else
		free(ep);
	return n;
}

static void idle_drop(void)
{
	nidle--;
	rx_lock();
	verbs_credit_end(idle[nidle]);
	rx_unlock();
	free(idle[nidle]);
}

/* As many as fit without more buffers: nothing is left for windows. */
static void fill(struct verbs_dev *dev)
{
	mock_fail_from(MOCK_ibv_reg_mr, 1, ENOMEM);
	while (dev->posted >= dev->promised + 2)
		ck_assert_uint_gt(idle_add(dev), 0);
	mock_fail_from(MOCK_ibv_reg_mr, 0, 0);
}

static void idle_end(void)
{
	while (nidle)
		idle_drop();
}

/* ---- how many ---- */

START_TEST(test_idle_ones)
{
	struct verbs_dev *dev = atomic_load(&rds_verbs.devs);
	uint32_t base = dev->nbufs, n, more = 0;

	while ((n = idle_add(dev))) {
		ck_assert_uint_le(n, 16);
		more += n > 1;
		ck_assert_uint_lt(more, 5); /* the first ones */
		ck_assert_uint_ge(dev->posted, dev->promised);
		/* Two each, what windows may have, and what a step of growth leaves over. */
		ck_assert_uint_le(dev->nbufs, 2 * nidle + base + base / 8);
		ck_assert_uint_lt(nidle, IDLE);
	}
	ck_assert_uint_gt(nidle, 3 * base); /* of 8 * base buffers */
	ck_assert(atomic_load(&dev->full));
	idle_drop();
	ck_assert_uint_gt(idle_add(dev), 0);
	idle_end();
}
END_TEST

/* The limit of locked memory: it is refused, and nothing is promised that is not there. */
START_TEST(test_no_memory_to_grow)
{
	struct verbs_dev *dev = atomic_load(&rds_verbs.devs);

	fill(dev);
	mock_fail_from(MOCK_ibv_reg_mr, 1, ENOMEM);
	ck_assert_uint_eq(idle_add(dev), 0);
	mock_fail_from(MOCK_ibv_reg_mr, 0, 0);
	ck_assert_uint_ge(dev->posted, dev->promised);
	ck_assert_uint_gt(idle_add(dev), 0);
	idle_end();
}
END_TEST

/*
 * siw and the usual limit of 8 MiB, which it holds against root, too: as many again could not be locked, so connections were refused
 * for ever after a few dozen.  What can be had is taken, and what goes out keeps its part.
 */
START_TEST(test_locked_memory_is_used)
{
	struct verbs_dev *dev;
	unsigned more = 60, n;

	world_pair();
	dev = world_ep(b)->dev;
	ck_assert_ptr_eq(dev->ctx->device, &world.ours2->device);
	fill(dev);
	world.ours2->memlock = world.ours2->registered + (2u << 20) + 2 * more * VERBS_BUF(VERBS_FRAME);
	for (n = 0; idle_add(dev); n++)
		;
	ck_assert_uint_gt(n, more * 9 / 10);
	ck_assert_uint_le(n, more);
	ck_assert_uint_ge(dev->posted, dev->promised);
	ck_assert_uint_gt(world.ours2->memlock - world.ours2->registered, 2u << 20);
	idle_end();
}
END_TEST

/* What one has used for a burst and holds is never more than a share. */
START_TEST(test_window_is_a_share)
{
	struct verbs_dev *dev;
	unsigned i;

	world_pair();
	dev = world_ep(b)->dev;
	for (i = 0; i < 300; i++) {
		while (world_send(a, 100, 0))
			world_run();
		ck_assert_uint_le(world_ep(b)->granted, dev->base / 4);
	}
	world_run();
	ck_assert(world_all_came(a, b));
	ck_assert_uint_ge(world_ep(b)->granted, 4);
}
END_TEST

/* So many, each taken at once and received before the next. */
static void one_by_one(unsigned n)
{
	while (n--) {
		ck_assert_int_eq(world_send(a, 100, 0), 0);
		world_run();
	}
	ck_assert(world_all_came(a, b));
}

/* The window of a busy one shrinks when others have come. */
START_TEST(test_window_shrinks)
{
	world_pair();
	ck_assert_uint_gt(world_ep(b)->granted, 4);
	fill(world_ep(b)->dev);
	one_by_one(40);
	ck_assert_uint_le(world_ep(b)->granted, 2);
	idle_end();
}
END_TEST

/* One message of an endpoint that is otherwise idle. */
static void idle_talks(struct verbs_ep *ep)
{
	rx_lock();
	ep->head = world_ep(b)->head;
	ck_assert_ptr_null(verbs_credit_came(ep, 0, false));
	verbs_credit_serve(ep->dev);
	rx_unlock();
}

/* Hundreds that have said hello had all windows between them, and whoever was busy then had one credit. */
START_TEST(test_seldom_used)
{
	struct verbs_dev *dev;
	unsigned i;

	world_pair();
	dev = world_ep(b)->dev;
	for (i = 0; i < 400; i++) {
		ck_assert_uint_gt(idle_add(dev), 0);
		idle_talks(idle[i]);
		idle_talks(idle[i]);
	}
	one_by_one(100);
	ck_assert_uint_ge(world_ep(b)->granted, 4);
	idle_end();
}
END_TEST

/* ---- nobody waits for ever ---- */

static void send_all(unsigned n, size_t len)
{
	unsigned i;

	for (i = 0; i < n; i++) {
		while (world_send(a, len, 0)) {
			uint64_t before = verbs_acked(a->ep), got = b->nmsgs;

			a->writables = 0;
			ck_assert(verbs_want_room(a->ep, before) || (world_run(), a->writables > 0 || b->nmsgs > got));
		}
		world_run();
	}
}

START_TEST(test_unread_and_no_room)
{
	world_pair();
	fill(world_ep(b)->dev);
	world.keep_inplace = true;
	send_all(300, 1000);
	world_run();
	ck_assert(world_all_came(a, b));
	world_release();
	send_all(300, 1000);
	ck_assert(world_all_came(a, b));
	ck_assert_uint_eq(a->downs + b->downs, 0);
	idle_end();
}
END_TEST

/* One credit each from the very beginning, and a frame that comes before its endpoint is up. */
START_TEST(test_poor_from_the_start)
{
	struct verbs_dev *dev;

	ck_assert_int_eq(world_claim(US2), 1);
	for (dev = atomic_load(&rds_verbs.devs); dev; dev = dev->next)
		dev->extra += dev->base; /* as if windows had all they may */
	world_pair();
	ck_assert_uint_le(world_ep(b)->granted, 1);
	send_all(100, 20000);
	ck_assert(world_all_came(a, b));
	ck_assert_int_eq(world_send(b, 100, 0), 0);
	ck_assert_int_eq(world_send(b, 20000, 0), 0);
	world_run();
	ck_assert(world_all_came(b, a));
	ck_assert_uint_eq(a->downs + b->downs, 0);
	for (dev = atomic_load(&rds_verbs.devs); dev; dev = dev->next)
		dev->extra -= dev->base;
}
END_TEST

/* Frames that found no memory keep their buffers: all credits are used up, none are given, until memory is there. */
START_TEST(test_no_memory_then_some)
{
	unsigned i;

	world_pair();
	fill(world_ep(b)->dev);
	world.later = 100000;
	for (i = 0; i < 60; i++) {
		world_send(a, 1000, 0);
		world_run();
	}
	ck_assert_uint_eq(world_ep(b)->granted, 0);
	ck_assert_uint_eq(b->nmsgs, 1);
	world.later = 0;
	world_pass(100 * MS);
	ck_assert_uint_gt(world_ep(b)->granted, 0);
	send_all(60, 1000);
	ck_assert(world_all_came(a, b));
	ck_assert_uint_eq(a->downs + b->downs, 0);
	idle_end();
}
END_TEST

/* Messages that were in place before all else was promised: reading them brings the credits. */
START_TEST(test_read_later)
{
	struct verbs_dev *dev;
	unsigned i;

	world_pair();
	dev = world_ep(b)->dev;
	world.keep_inplace = true;
	send_all(40, 1000);
	ck_assert_uint_gt(world.ninplace, 4);
	fill(dev);
	dev->promised += 40; /* as if others had been promised what lies in place */
	for (i = 0; i < 60; i++) {
		world_send(a, 1000, 0);
		world_run();
	}
	ck_assert_uint_eq(world_ep(b)->granted, 0);
	ck_assert_ptr_eq(dev->hungry, world_ep(b));
	world_release();
	world_run();
	ck_assert_uint_gt(world_ep(b)->granted, 0);
	send_all(60, 1000);
	ck_assert(world_all_came(a, b));
	dev->promised -= 40;
	idle_end();
}
END_TEST

/* ---- peers that take more ---- */

static void joined(unsigned credits)
{
	world_up_by(a, credits);
}

static void is_broken(void)
{
	world_run();
	ck_assert_uint_eq(a->downs, 1);
	ck_assert_int_eq(a->why, -EPROTO);
}

START_TEST(test_ignores_credits)
{
	unsigned n, i;

	joined(32);
	n = world_ep(a)->granted + (unsigned)_i;
	for (i = 0; i < n; i++)
		world_peer_sends(i + 1, 10, 0);
	if (_i) {
		is_broken();
		return;
	}
	world_run();
	ck_assert_uint_eq(a->downs, 0);
	ck_assert_uint_eq(a->nmsgs, n);
}
END_TEST

/* Before it is up, too. */
START_TEST(test_ignores_credits_early)
{
	unsigned i;

	world_joined_by(a, 32);
	for (i = 0; i < 30; i++)
		world_peer_sends(i + 1, 10, 0);
	world_run();
	world_pass(10 * MS);
	ck_assert_uint_eq(a->downs, 1);
	ck_assert_int_eq(a->why, -EPROTO);
}
END_TEST

static void grants(unsigned n)
{
	struct rds_wire_hdr w = {.credit = (uint8_t)n};

	peer_send(p, &w, sizeof(w), IBV_SEND_SIGNALED);
	world_run();
}

/* The second is right only if we have used more than we knew before the first. */
START_TEST(test_grants_too_often)
{
	unsigned known, i;

	joined(2);
	known = atomic_load(&world_ep(a)->credits);
	grants(3);
	ck_assert_uint_eq(a->downs, 0);
	ck_assert_uint_eq(atomic_load(&world_ep(a)->credits), known + 3);
	for (i = 0; i < known + (unsigned)_i; i++)
		ck_assert_int_eq(world_send(a, 10, 0), 0);
	verbs_push(a->ep);
	world_run();
	grants(3);
	if (!_i)
		is_broken();
	else
		ck_assert_uint_eq(a->downs, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_credit");
	TCase *t = world_case(s, "iwarp", setup);

	tcase_add_test(t, test_idle_ones);
	tcase_add_test(t, test_no_memory_to_grow);
	tcase_add_test(t, test_locked_memory_is_used);
	tcase_add_test(t, test_window_is_a_share);
	tcase_add_test(t, test_window_shrinks);
	tcase_add_test(t, test_seldom_used);
	tcase_add_test(t, test_unread_and_no_room);
	tcase_add_test(t, test_poor_from_the_start);
	tcase_add_test(t, test_no_memory_then_some);
	tcase_add_test(t, test_read_later);
	tcase_add_loop_test(t, test_ignores_credits, 0, 2);
	tcase_add_test(t, test_ignores_credits_early);
	tcase_add_loop_test(t, test_grants_too_often, 0, 2);
	return suite_run(s);
}
