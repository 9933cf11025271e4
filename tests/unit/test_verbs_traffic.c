/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_traffic.c - both ends of a connection under load, by a seed: nothing is lost, nothing
 * comes twice or out of order, credits never run below nothing (on the mock's iWARP that ends the
 * connection) and never leave both sides waiting.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/mock/world.h"

static uint64_t state;

static unsigned below(unsigned n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(state >> 33) % n;
}

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];

/* Some of what the two processes and the two devices might do, in any order. */
static void something(void)
{
	switch (below(5)) {
	case 0:
		mock_step();
		return;
	case 1:
		rx_lock();
		verbs_ep_progress(world.t);
		rx_unlock();
		return;
	case 2:
		if (a->ep && a->speak) {
			a->speak = false;
			verbs_ep_push(a->ep);
		}
		return;
	case 3:
		if (b->ep && b->speak) {
			b->speak = false;
			verbs_ep_push(b->ep);
		}
		return;
	case 4:
		if (below(20) == 0)
			world.later = below(6);
		if (below(10) == 0)
			world_release();
		world.keep_inplace = below(3) > 0;
		return;
	}
}

static size_t some_length(void)
{
	switch (below(8)) {
	case 0:
		return below(100000);
	case 1:
		return 8192 * below(5) + below(3);
	case 2:
		return below(10000);
	default:
		return below(300);
	}
}

static void sends(struct world_conn *c, unsigned total)
{
	int err;

	if (c->tx_seq >= total)
		return;
	err = world_send(c, some_length(), below(10) ? 0 : RDS_FLAG_ACK_REQUIRED);
	ck_assert(!err || err == -EAGAIN);
	if (err && !verbs_ep_want_room(c->ep, verbs_ep_acked(c->ep)))
		c->writables = 0;
}

static void all_of_it(unsigned total)
{
	unsigned i;

	for (i = 0; i < 20 * total && (a->tx_seq < total || b->tx_seq < total); i++) {
		if (below(3) == 0)
			sends(below(2) ? a : b, total);
		something();
		if (below(200) == 0)
			world_run();
	}
	world.later = 0;
	while (a->tx_seq < total || b->tx_seq < total) {
		uint64_t before = a->tx_seq + b->tx_seq;

		world_release();
		world_run();
		sends(a, total);
		sends(b, total);
		world_run();
		ck_assert_msg(a->tx_seq + b->tx_seq > before, "both sides wait");
	}
	world_release();
	world_run();
}

/*
 * All is quiet: what lies in one's queue is what the other knows of, in that order, and then what
 * it will be told.
 */
static void credits_agree(struct world_conn *x, struct world_conn *y)
{
	struct verbs_ep *e = world_ep(x), *f = world_ep(y);
	uint32_t i, known = verbs_credit_count(f), told = atomic_load(&e->offer_told);
	const struct verbs_buf *buf = e->rq;

	ck_assert_uint_eq(e->rq_len, known + atomic_load(&e->offered) - told);
	for (i = 0; i < e->rq_len; i++, buf = buf->next)
		ck_assert_int_eq(buf->large, i < known ? f->known[(f->known_used + i) % VERBS_KNOWN]
						       : e->offer[(told + i - known) % VERBS_RQ]);
}

START_TEST(test_two_ways)
{
	state = (uint64_t)_i * 7919 + 1;
	world.ours->poll_max = world.ours2->poll_max = 1 + below(20);
	world_pair();
	all_of_it(400);
	ck_assert_uint_eq(a->downs + b->downs, 0);
	ck_assert(world_all_came(a, b));
	ck_assert(world_all_came(b, a));
	credits_agree(a, b);
	credits_agree(b, a);
}
END_TEST

/* One way only: credits come back by themselves. */
START_TEST(test_one_way)
{
	unsigned n;

	state = (uint64_t)_i + 17;
	world_pair();
	for (n = 0; n < 3000 && a->tx_seq < MSGS - 1; n++) {
		sends(a, MSGS - 1);
		something();
	}
	world.later = 0;
	world_release();
	world_run();
	ck_assert_uint_eq(a->downs + b->downs, 0);
	ck_assert_uint_gt(a->tx_seq, 100);
	ck_assert(world_all_came(a, b));
}
END_TEST

/* Messages stay unread in place until buffers are scarce: the connection goes on. */
START_TEST(test_unread)
{
	unsigned n;

	world_pair();
	world.keep_inplace = true;
	for (n = 0; n < 1000; n++) {
		while (world_send(a, 1000, 0)) {
			uint64_t before = verbs_ep_acked(a->ep);

			a->writables = 0;
			ck_assert(verbs_ep_want_room(a->ep, before) || (world_run(), a->writables > 0));
		}
		if (n % 50 == 0)
			world_run();
	}
	world_run();
	ck_assert(world_all_came(a, b));
	ck_assert_uint_gt(world.ninplace, world_dev()->srq ? world_dev()->nbufs / 4 : 0);
	ck_assert_uint_gt(world.copies, 100);
	ck_assert_uint_eq(a->downs + b->downs, 0);
}
END_TEST

/* Six endpoints share the buffers of a device: nobody starves, nothing is lost. */
START_TEST(test_many)
{
	struct world_conn *c;
	unsigned n, i;

	state = (uint64_t)_i + 5;
	world_pair();
	for (i = 2; i < 8; i += 2) {
		world.next = &world.conn[i + 1];
		ck_assert_int_eq(
			world_connect(&world.conn[i], US, US2, verbs_cm.port, registry_self(rds_node_registry)), 0);
		world_run();
		ck_assert_int_eq(world_send(&world.conn[i], 1, 0), 0);
		world_run();
		ck_assert_uint_eq(world.conn[i + 1].ups, 1);
	}
	for (n = 0; n < 4000; n++) {
		c = &world.conn[below(8)];
		sends(c, MSGS - 1);
		something();
		for (c = world.conn; c < world.conn + CONNS; c++)
			if (c->speak && below(3) == 0) {
				c->speak = false;
				verbs_ep_push(c->ep);
			}
	}
	world.later = 0;
	world_release();
	world_run();
	for (i = 0; i < 8; i++) {
		ck_assert_uint_eq(world.conn[i].downs, 0);
		ck_assert(world_all_came(&world.conn[i], &world.conn[i ^ 1]));
		credits_agree(&world.conn[i], &world.conn[i ^ 1]);
	}
}
END_TEST

/* The connection breaks somewhere: what came is a prefix, in order, whole; nothing is left. */
START_TEST(test_breaks_somewhere)
{
	unsigned n, when, i;

	state = (uint64_t)_i * 31 + 3;
	world_pair();
	when = 10 + below(500);
	for (n = 0; n < when; n++) {
		if (below(3) == 0)
			sends(below(2) ? a : b, MSGS - 1);
		something();
	}
	world.ours->lose_flush = below(2) ? below(4) : 0;
	switch (below(6)) {
	case 0:
		mock_fail_send(NULL, IBV_WC_RETRY_EXC_ERR);
		break;
	case 1:
		mock_fail_recv(NULL, IBV_WC_LOC_PROT_ERR);
		break;
	case 2:
		mock_post_fail(below(3), ENOMEM);
		break;
	case 3:
		world.ours->cut = true;
		break;
	case 4:
		mock_dev_remove(world.ours);
		break;
	case 5:
		world_close(a);
		break;
	}
	for (n = 0; n < 300; n++) {
		if (below(3) == 0 && a->ep && world_send(a, some_length(), 0) == -EAGAIN)
			verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep));
		if (below(3) == 0 && b->ep && world_send(b, some_length(), 0) == -EAGAIN)
			verbs_ep_want_room(b->ep, verbs_ep_acked(b->ep));
		something();
		if (below(50) == 0)
			world_run();
	}
	mock_timeout();
	world_close(a);
	world_close(b);
	world.later = 0;
	world_pass(3000 * MS);
	world_release();
	world_pass(3000 * MS);
	ck_assert_uint_le(a->downs, 1);
	ck_assert_uint_le(b->downs, 1);
	for (i = 0; i < b->nmsgs; i++)
		ck_assert(b->msg[i].seq == i + 1 && b->msg[i].intact);
	for (i = 0; i < a->nmsgs; i++)
		ck_assert(a->msg[i].seq == i + 1 && a->msg[i].intact);
	ck_assert_ptr_null(verbs_eps.all);
}
END_TEST

/*
 * The devices of the two ends take frames of different sizes: both ends come to the same, and cut
 * messages alike, from whichever side it was asked.
 */
START_TEST(test_frames_of_both)
{
	static const uint32_t sizes[][2] = {
		{VERBS_FRAME_SHARED, 1024}, {8192 + 64, 8200}, {4000, 4001},
		{1024, VERBS_FRAME_SHARED}, {8200, 8192 + 64}, {16384, 16384},
	};
	static const size_t lens[] = {0, 1, 100, 1000, 1024, 1025, 4000, 8192, 8193, 8200, 8201, 65000, 150000};
	struct verbs_dev *dev;
	unsigned i, k;

	ck_assert_int_eq(world_claim(US2), 1);
	for (dev = world_dev(); dev; dev = dev->next)
		dev->caps.frame = sizes[_i][mock_dev_of_context(dev->ctx) == world.ours];
	world_pair();
	ck_assert_uint_eq(world_ep(a)->frame, world_ep(b)->frame);
	ck_assert_uint_le(world_ep(a)->frame, sizes[_i][0]);
	ck_assert_uint_le(world_ep(a)->frame, sizes[_i][1]);
	for (k = 0; k < 3; k++) /* the small ones may share frames */
		for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
			size_t len = lens[k == 1 ? i % 3 : i];

			while (world_send(a, len, 0))
				world_pass(10 * MS);
			while (world_send(b, len, 0))
				world_pass(10 * MS);
			if (k != 1)
				world_run();
		}
	world_pass(100 * MS);
	ck_assert(world_all_came(a, b));
	ck_assert(world_all_came(b, a));
	ck_assert_uint_eq(a->downs + b->downs, 0);
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_frames_of_both, 0, 6);
	tcase_add_loop_test(t, test_two_ways, 0, 20);
	tcase_add_loop_test(t, test_one_way, 0, 10);
	tcase_add_test(t, test_unread);
	tcase_add_loop_test(t, test_many, 0, 5);
	tcase_add_loop_test(t, test_breaks_somewhere, 0, 60);
}

#ifdef __SANITIZE_THREAD__
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif

int main(void)
{
	Suite *s = suite_create("verbs_traffic");

	if (UNDER_TSAN) {
		/* not seen to end within two minutes */
		printf("too many processes and messages for ThreadSanitizer\n");
		return 77;
	}
	tests(world_case(s, "ib", world_ib));
	tests(world_case(s, "iwarp", world_iwarp));
	return suite_run(s);
}
