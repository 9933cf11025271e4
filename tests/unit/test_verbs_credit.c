/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_credit.c - credits and credit buffers (engine/transport/verbs/ep/credit.c,
 * credit_buffers.c): how many idle endpoints a device has room for; windows and what they leave to
 * others.  For endpoints that can get few buffers see test_verbs_few.c, for peers that break the
 * rules test_verbs_rules.c.
 */
#include <string.h>

#include "tests/unit/verbs_credit_helper.h"

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
	unsigned i, got;

	world_pair();
	ep = world_ep(b);
	for (i = 0; i < 300; i++) {
		while (world_send(a, 100, 0)) {
			got = b->nmsgs;
			world_run();
			ck_assert_uint_gt(b->nmsgs, got);
		}
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
	return suite_run(s);
}
