/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_room.c - the completion queue that the endpoints of a device share
 * (engine/transport/verbs/dev/device.c).  It holds all that they have under way, even if all of it
 * comes back at once while nobody looks.  And how deep their own queues are.  The mock fails the
 * test if a queue overflows.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/transport/verbs/ep/post_list.h"
#include "tests/mock/world.h"

static struct peer peers[CONNS];

static void setup(enum mock_mode mode, int cqe)
{
	setenv("RDS_PRELOAD_LOG", "warn", 1);
	world_begin(mode);
	world.ours->attr.max_cqe = cqe;
	ck_assert_int_eq(world_claim(US), 1);
}

static void setup_ib(void)
{
	setup(MOCK_IB, 400);
}

static void setup_iwarp(void)
{
	setup(MOCK_IWARP, 320);
}

/*
 * Connects to a peer of its own, which gives many credits and takes nothing.  False: the attempt
 * failed before the peer was asked.
 */
static bool join(unsigned i)
{
	struct rds_procid them = world_peer_id();
	struct verbs_answer a, wire;
	struct peer *p = &peers[i];

	them.b[7] = (uint8_t)i;
	if (!p->events) {
		peer_init(p, 1);
		peer_listen(p, THEM, (uint16_t)(PEER_PORT + i));
	}
	ck_assert_int_eq(world_connect(&world.conn[i], US, THEM, (uint16_t)(PEER_PORT + i), &them), 0);
	world_run();
	if (world.conn[i].downs)
		return false;
	peer_event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
	world_answer(&a, VERBS_OK);
	a.self = them;
	a.credits = VERBS_CREDITS(0, 255);
	verbs_answer_pack(&a, &wire);
	peer_accept(p, &wire, sizeof(wire), 0);
	world_run();
	peer_event(p, RDMA_CM_EVENT_ESTABLISHED);
	peer_ack(p);
	ck_assert_uint_eq(world.conn[i].ups, 1);
	return true;
}

/* As much as may be under way. */
static void fill(unsigned i)
{
	while (world_send(&world.conn[i], 3000, 0) == 0)
		;
	verbs_ep_push(world.conn[i].ep);
}

static void end(void)
{
	unsigned i;

	for (i = 0; i < CONNS; i++)
		world_close(&world.conn[i]);
	world_pass(3000 * MS);
	for (i = 0; i < CONNS; i++)
		if (peers[i].events)
			peer_end(&peers[i]);
	world_end();
}

/*
 * The peers are out of reach for too long, or the device goes.  Nobody looks before all has come
 * back.
 */
static void break_all(unsigned n, bool device)
{
	unsigned i;

	if (device)
		mock_dev_remove(world.ours);
	world.theirs->cut = true;
	mock_timeout();
	world_pass(30000 * MS); /* iWARP finds out by asking */
	for (i = 0; i < n; i++)
		ck_assert_uint_eq(world.conn[i].downs, 1);
}

static unsigned devices(void)
{
	const struct verbs_dev *dev;
	unsigned n = 0;

	for (dev = world_dev(); dev; dev = dev->next)
		n++;
	return n;
}

/* Each endpoint has all under way that it may have before the next one is made. */
START_TEST(test_more_and_more)
{
	unsigned i;

	for (i = 0; i < CONNS; i++) {
		ck_assert(join(i));
		fill(i);
	}
	break_all(CONNS, _i);
}
END_TEST

/*
 * Idle endpoints count with all that they might have under way.  If the queue has no room for that,
 * the device is opened once more.
 */
START_TEST(test_once_more)
{
	unsigned i;

	for (i = 0; i < CONNS; i++)
		ck_assert(join(i));
	ck_assert_uint_eq(devices(), world.ours->mode == MOCK_IB ? 1 : 2);
	for (i = 0; i < CONNS; i++)
		fill(i);
	break_all(CONNS, _i);
}
END_TEST

static void setup_small(void)
{
	setup(MOCK_IB, 150);
}

/*
 * ... and without memory for that, new endpoints are refused, and the others stay.  One that ends
 * makes room for another.
 */
START_TEST(test_no_more)
{
	unsigned i;

	world.ours->memlock = world.ours->registered + 10000;
	world_listen();
	for (i = 0; i < CONNS - 1 && join(i); i++)
		;
	ck_assert_uint_ge(i, 3);
	ck_assert_uint_lt(i, CONNS - 1);
	ck_assert_int_eq(world.conn[i].why, -ENOBUFS);
	ck_assert_ptr_nonnull(strstr(world_said(), "ours has no room for more connections than "));
	ck_assert_uint_eq(devices(), 1);
	world_close(&world.conn[0]);
	world_pass(3000 * MS);
	ck_assert(join(CONNS - 1));
	ck_assert_uint_eq(devices(), 1);
	for (i = 0; i < CONNS; i++)
		ck_assert_int_eq(world.conn[i].ep != NULL, world.conn[i].ups > world.conn[i].downs && i != 0);
}
END_TEST

static void setup_usual(void)
{
	setup(MOCK_IB, 1 << 15);
}

/*
 * A queue pair that was made as one of many is not deep.  When the others have gone it gets no more
 * than it holds.
 */
START_TEST(test_one_of_many)
{
	struct verbs_dev *dev = world_dev();
	const struct verbs_ep *ep;

	dev->neps += 1000;
	ck_assert(join(0));
	dev->neps -= 1000;
	verbs_dev_share_cq(dev);
	ck_assert_uint_ge(dev->sq_each, 200);
	ep = world_ep(&world.conn[0]);
	ck_assert_uint_eq(ep->sq, 63);
	fill(0);
	ck_assert_uint_ge(verbs_wr_in_flight(ep), 32);
	ck_assert_uint_le(verbs_wr_in_flight(ep), 63);
	ck_assert_uint_eq(world.conn[0].downs, 0);
	ck_assert(join(1));
	ck_assert_uint_eq(world_ep(&world.conn[1])->sq, 255);
	fill(1);
	ck_assert_uint_ge(verbs_wr_in_flight(world_ep(&world.conn[1])), 128);
	break_all(2, _i);
}
END_TEST

/* ---- room for what is received ---- */

static void setup_many(void)
{
	setenv("RDS_PRELOAD_VERBS_BUFFERS", "60000", 1);
	setenv("RDS_PRELOAD_LOG", "warn", 1);
	world_begin(MOCK_IB);
	world.ours->attr.max_srq_wr = 1 << 20;
}

/* As many completions as there are receive buffers, and sends beside them. */
START_TEST(test_cq_for_buffers)
{
	static const int max[] = {1 << 20, 10000, 4000, 100};
	static const uint32_t least[] = {7450, 5000, 2000, 50};
	const char *line;
	uint32_t cqe;

	world_listen();
	world.ours->attr.max_cqe = max[_i];
	ck_assert_int_eq(world_claim(US), 1);
	cqe = (uint32_t)world_dev()->cq->cqe;
	ck_assert_uint_ge(world_dev()->nbufs, least[_i]);
	ck_assert_uint_ge(cqe, world_dev()->nbufs + (cqe / 2 < 8192 ? cqe / 2 : 8192));
	line = strstr(world_said(), "has room for");
	ck_assert_int_eq(line != NULL, _i != 0);
	ck_assert(!line || !strstr(line + 1, "has room for"));
	world_run();
	ck_assert_uint_eq(mock_recvs_posted(world_dev()->srq), world_dev()->nbufs);
}
END_TEST

static void setup_few(void)
{
	world_begin(MOCK_IWARP);
}

/*
 * The completion queue has room for fewer buffers than make sense: there are as many of both sizes
 * as fit, and the table of buffers holds them all.
 */
START_TEST(test_two_sizes)
{
	const struct verbs_dev *dev;

	world.ours->attr.max_cqe = 100 + _i * 10;
	ck_assert_int_eq(world_claim(US), 1);
	dev = world_dev();
	ck_assert_uint_le(dev->nbufs, dev->caps.srq);
	ck_assert_uint_le(dev->nbufs, verbs_bufs_max(dev));
	ck_assert_uint_ge(dev->nbufs, dev->caps.srq - 1);
	ck_assert_uint_ge(dev->all_large, 1);
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_more_and_more, 0, 2);
	tcase_add_loop_test(t, test_once_more, 0, 2);
}

int main(void)
{
	Suite *s = suite_create("verbs_room");
	TCase *t;

	tests(suite_case(s, "ib", setup_ib, end));
	tests(suite_case(s, "iwarp", setup_iwarp, end));
	t = suite_case(s, "small", setup_small, end);
	tcase_add_test(t, test_no_more);
	tcase_add_loop_test(suite_case(s, "usual", setup_usual, end), test_one_of_many, 0, 2);
	tcase_add_loop_test(suite_case(s, "many", setup_many, end), test_cq_for_buffers, 0, 4);
	tcase_add_loop_test(suite_case(s, "few", setup_few, end), test_two_sizes, 0, 4);
	return suite_run(s);
}
