/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_memory.c - queue and memory of messages on their way out
 * (engine/transport/verbs/ep/send.c, dev/send_memory.c) are bounded: who waits for room is told of
 * it, and nothing is given back that a device or a retransmission still needs.
 */
#include <stdlib.h>
#include <sys/resource.h>

#include "tests/mock/world.h"

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];

static bool counted(void)
{
	return world_ep(a)->dev->caps.credits;
}

/*
 * Messages are taken until the queue is full.  A sender that waits is told when something has left
 * it.  All messages come in order.
 */
START_TEST(test_send_queue_full)
{
	unsigned total = 0, full = 0;

	world_pair();
	while (total < 1500) {
		int err = world_send(a, world_ep(a)->frame / 4 + 1, 0); /* too large to share one */

		if (!err) {
			total++;
			continue;
		}
		ck_assert_int_eq(err, -EAGAIN);
		full++;
		a->writables = 0;
		if (!verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep))) {
			world_run();
			ck_assert_uint_gt(a->writables, 0);
		}
	}
	ck_assert_uint_gt(full, 1);
	world_run();
	ck_assert(world_all_came(a, b));
}
END_TEST

/* b is a connection of the same device with a second peer. */
static struct peer second;

static void join_second(void)
{
	struct peer first = world.peer;

	peer_init(&second, 1);
	peer_listen(&second, THEM, PEER_PORT + 1);
	world.peer = second;
	world_join_at(b, PEER_PORT + 1, 60, 250);
	second = world.peer;
	world.peer = first;
}

/* The second peer has what b sent, and says so. */
static void second_has_all(void)
{
	struct peer first = world.peer;

	world.peer = second;
	world_peer_frame(&(struct rds_hdr){.ack = b->tx_seq}, NULL, 0);
	second = world.peer;
	world.peer = first;
}

static void second_end(void)
{
	world_close(b);
	world_pass(2000 * MS);
	peer_end(&second);
}

/* The peer's frames go nowhere, and it answers nothing. */
static void peer_eats(void)
{
	struct ibv_wc wc;

	world_run();
	while (peer_poll(&world.peer, &wc))
		if (wc.opcode == IBV_WC_RECV)
			peer_post(&world.peer, 1);
	while (counted() && verbs_credit_count(world_ep(a)) < 100) {
		/* fifteen large ones */
		world_peer_frame(&(struct rds_hdr){.credit = 0xf0}, NULL, 0);
		world_run();
	}
	world_run();
}

static unsigned fill_memory(struct world_conn *c)
{
	unsigned taken;

	for (taken = 0; world_send(c, 65536, 0) == 0; taken++) {
		ck_assert_uint_lt(taken, 2000);
		peer_eats();
	}
	return taken;
}

/*
 * Memory for unacknowledged messages is bounded.  A sender that waits is told when acknowledgements
 * come.
 */
START_TEST(test_memory_full)
{
	world_join(a, 60, 250);
	ck_assert_uint_gt(fill_memory(a), 20);
	a->writables = 0;
	ck_assert(!verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep)));
	world_run();
	ck_assert_uint_eq(a->writables, 0);
	world_peer_frame(&(struct rds_hdr){.ack = a->tx_seq / 2}, NULL, 0);
	world_run();
	ck_assert_uint_eq(a->writables, 1);
	ck_assert_int_eq(world_send(a, 65536, 0), 0);
}
END_TEST

/*
 * The memory is the device's.  A sender that waits for memory of another connection is told when
 * that one gives it back, or is closed.
 */
START_TEST(test_memory_full_of_others)
{
	world_join(a, 60, 250);
	join_second();
	fill_memory(a);
	ck_assert_int_eq(world_send(b, 65536, 0), -EAGAIN);
	ck_assert(!verbs_ep_want_room(b->ep, verbs_ep_acked(b->ep)));
	world_run();
	b->writables = 0;
	if (_i) {
		world_close(a);
	} else {
		world_peer_frame(&(struct rds_hdr){.ack = a->tx_seq}, NULL, 0);
	}
	world_pass(3000 * MS);
	ck_assert_uint_gt(b->writables, 0);
	ck_assert_int_eq(world_send(b, 65536, 0), 0);
	second_end();
}
END_TEST

/* ... even if the last that the other one sent asked for no completion, and nothing follows it. */
START_TEST(test_memory_of_the_unsignaled)
{
	world_join(a, 60, 250);
	join_second();
	ck_assert_int_eq(world_send(b, 5000, 0), 0);
	verbs_ep_flush(b->ep, false);
	world_run();
	second_has_all();
	world_run();
	ck_assert_uint_eq(world_ep(b)->out_count, 1); /* the device may not have read it */
	fill_memory(a);
	ck_assert(!verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep)));
	world_pass(100 * MS);
	ck_assert_uint_eq(world_ep(b)->out_count, 0);
	second_end();
}
END_TEST

/* ... and even if its peer has it and has seen no need to say so. */
START_TEST(test_memory_of_the_unacknowledged)
{
	struct rds_hdr h = {0};
	struct ibv_wc wc;
	unsigned asked = 0;

	world_join(a, 60, 250);
	join_second();
	ck_assert_int_eq(world_send(b, 5000, 0), 0);
	world_run();
	fill_memory(a);
	ck_assert(!verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep)));
	world_pass(100 * MS);
	while (peer_poll(&second, &wc)) {
		if (wc.opcode != IBV_WC_RECV)
			continue;
		ck_assert_int_eq(rds_wire_hdr_decode(second.mem + wc.wr_id * PEER_BUF, &h), 0);
		asked += !h.seq && (h.flags & RDS_FLAG_ACK_REQUIRED);
	}
	ck_assert_uint_eq(asked, 1);
	second_has_all();
	/* a sender that waits tries again and again */
	ck_assert_int_eq(world_send(a, 65536, 0), -EAGAIN);
	world_pass(100 * MS);
	ck_assert_uint_eq(world_ep(b)->out_count, 0);
	ck_assert_int_eq(world_send(a, 5000, 0), 0);
	second_end();
}
END_TEST

/*
 * A congestion map is not acknowledged.  Its block comes back when the map has been sent, whatever
 * else has or has not.
 */
START_TEST(test_memory_of_a_map)
{
	struct rds_hdr hdr = {.len = RDS_CONG_MAP_BYTES, .flags = RDS_FLAG_CONG_BITMAP};
	static unsigned char map[RDS_CONG_MAP_BYTES];
	struct iovec iov = {.iov_base = map, .iov_len = sizeof(map)};
	struct rds_wire_hdr wire;
	uint64_t pos;

	world_join(a, 8, 8);
	rds_wire_hdr_encode(&hdr, &wire, false);
	ck_assert_int_eq(verbs_ep_send(a->ep, &wire, &iov, sizeof(map), &pos), 0);
	ck_assert_int_eq(world_send(a, 100, 0), 0);
	ck_assert_uint_eq(world_ep(a)->out_count, 2);
	world_run();
	ck_assert_uint_eq(world_ep(a)->out_count, 1);
}
END_TEST

/*
 * The peer acknowledges messages that it has not received.  Their bytes stay all the same: the
 * device has yet to read them.
 */
START_TEST(test_memory_stays_until_sent)
{
	const unsigned char *frame;
	uint64_t seq;
	size_t len;

	world_join(a, 0, 0);
	ck_assert_int_eq(world_send(a, 5000, 0), 0);
	world_peer_frame(&(struct rds_hdr){.ack = 1}, NULL, 0);
	world_run();
	ck_assert_int_eq(world_send(a, 5000, 0), 0);
	ck_assert_uint_eq(mock_sends_waiting(world_ep(a)->qp), 2);
	peer_post(&world.peer, 4);
	ck_assert(peer_poll(&world.peer, &(struct ibv_wc){0})); /* its own */
	world_run();
	for (seq = 1; seq <= 2; seq++) {
		frame = peer_recv(&world.peer, &len);
		ck_assert_uint_eq(len, VERBS_HDR + 5000);
		ck_assert(world_intact(seq, frame + VERBS_HDR, 5000));
	}
}
END_TEST

/*
 * ... and that memory is there when messages have taken all that they may.  Otherwise two sides in
 * this state would wait for each other's acknowledgement for ever.
 */
START_TEST(test_no_inline_memory_full)
{
	world.ours->grant_inline = world.ours2->grant_inline = 0;
	world_pair();
	while (world_send(a, 65536, 0) == 0)
		ck_assert_uint_lt(a->tx_seq, 100);
	while (world_send(b, 65536, 0) == 0)
		ck_assert_uint_lt(b->tx_seq, 100);
	world_pass(1000 * MS);
	ck_assert(world_all_came(a, b));
	ck_assert(world_all_came(b, a));
	verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep));
	verbs_ep_want_room(b->ep, verbs_ep_acked(b->ep));
	world_pass(1000 * MS);
	ck_assert_uint_eq(verbs_ep_acked(a->ep), a->tx_seq);
	ck_assert_uint_eq(verbs_ep_acked(b->ep), b->tx_seq);
	ck_assert_int_eq(world_send(a, 65536, 0), 0);
	ck_assert_int_eq(world_send(b, 65536, 0), 0);
}
END_TEST

/* Memory that cannot be locked is said once it is wanted; the endpoint lives, what fits goes. */
START_TEST(test_memlock)
{
	struct rlimit l;

	world_pair();
	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &l), 0);
	l.rlim_cur = 123456;
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &l), 0);
	world_listen();
	ck_assert_int_eq(world_send(a, 100, 0), 0);
	/*
	 * The log must not name locked memory for another cause, such as a device that has just
	 * gone: the line comes once only, and would be missing later.
	 */
	mock_fail_from(MOCK_ibv_reg_mr, 1, EIO);
	ck_assert_int_lt(world_send(a, 1000000, 0), 0);
	mock_fail(MOCK_ibv_reg_mr, 0, 0);
	ck_assert_str_eq(world_said(), "");
	world.ours->memlock = world.ours->registered;
	ck_assert_int_lt(world_send(a, 1000000, 0), 0);
	world_said_memlock("messages on their way out,", 1000000, 123456);
	ck_assert_int_eq(world_send(a, 100, 0), 0);
	world_run();
	ck_assert(world_all_came(a, b));
	world.ours->memlock = SIZE_MAX;
	ck_assert_int_eq(world_send(a, 1000000, 0), 0);
	world_run();
	ck_assert(world_all_came(a, b));
}
END_TEST

/*
 * A sender that gets no memory while no acknowledgement is owed is told so, or is told when there
 * is memory.  It never waits for ever.
 */
START_TEST(test_memlock_and_nothing_in_flight)
{
	int err;

	world_pair();
	if (a->tx_seq) /* the one that made it speak */
		verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep));
	world_run();
	world.ours->memlock = world.ours->registered;
	err = world_send(a, 1000000, 0);
	ck_assert(err == -EAGAIN || err == -ENOMEM);
	a->writables = 0;
	if (err == -EAGAIN)
		ck_assert(!verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep)));
	world.ours->memlock = SIZE_MAX;
	world_pass(3000 * MS);
	ck_assert(err == -ENOMEM || a->writables > 0);
	ck_assert_int_eq(world_send(a, 1000000, 0), 0);
}
END_TEST

/*
 * A thousand connections begin with a map each.  When all maps are sent, one chunk of the memory
 * for them is kept.
 */
START_TEST(test_maps_shed)
{
	struct verbs_arena *arena;
	struct verbs_block block[100];
	size_t before;
	unsigned i;

	world_pair();
	arena = world_ep(a)->dev->arena;
	ck_assert_int_eq(verbs_block_get(arena, VERBS_HDR + RDS_CONG_MAP_BYTES, &block[0]), 0);
	before = world.ours->registered;
	for (i = 1; i < 100; i++)
		ck_assert_int_eq(verbs_block_get(arena, VERBS_HDR + RDS_CONG_MAP_BYTES, &block[i]), 0);
	ck_assert_uint_gt(world.ours->registered, before);
	for (i = 0; i < 100; i++)
		verbs_block_shed(arena, &block[_i ? 99 - i : i]);
	ck_assert_uint_eq(world.ours->registered, before);
	verbs_block_shed(arena, &block[0]); /* it has none */
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_test(t, test_send_queue_full);
	tcase_add_test(t, test_memory_full);
	tcase_add_loop_test(t, test_memory_full_of_others, 0, 2);
	tcase_add_test(t, test_no_inline_memory_full);
	tcase_add_test(t, test_memlock);
	tcase_add_test(t, test_memlock_and_nothing_in_flight);
	tcase_add_loop_test(t, test_maps_shed, 0, 2);
}

int main(void)
{
	Suite *s = suite_create("verbs_memory");
	TCase *t;

	setenv("RDS_PRELOAD_VERBS_MEMORY", "4M", 1);
	t = world_case(s, "ib", world_ib);
	tests(t);
	tcase_add_test(t, test_memory_of_the_unsignaled);
	tcase_add_test(t, test_memory_of_the_unacknowledged);
	tcase_add_test(t, test_memory_of_a_map);
	/* iWARP's devices have read them long ago */
	tcase_add_test(t, test_memory_stays_until_sent);
	tests(world_case(s, "iwarp", world_iwarp));
	return suite_run(s);
}
