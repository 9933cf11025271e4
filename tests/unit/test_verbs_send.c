/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_send.c - messages on their way out (engine/transport/verbs/ep/send.c), and everything
 * that a device can refuse or fail.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/mock/world.h"

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];

static bool counted(void)
{
	return world_ep(a)->dev->caps.credits;
}

/* ---- whole and in pieces ---- */

static const size_t sizes[] = {
	0,	     1, 79, 80, 81, 128, 191, 192, 4096, 8191, 8192, 8193, 16384, 65536, 65537, 100000, RDS_MAX_MSG - 1,
	RDS_MAX_MSG,
};

START_TEST(test_sizes)
{
	unsigned i;

	world_pair();
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(world_send(a, sizes[_i], 0), 0);
		world_run();
	}
	ck_assert(world_all_came(a, b));
	ck_assert_int_eq(world_send(b, sizes[_i], 0), 0);
	world_run();
	ck_assert(world_all_came(b, a));
	ck_assert_uint_eq(a->downs + b->downs, 0);
}
END_TEST

/* A peer that takes smaller frames gets smaller frames. */
START_TEST(test_smaller_frames)
{
	struct verbs_request h;
	const unsigned char *f;
	size_t len, i, got = 0;

	world_hello(&h, VERBS_CONNECT);
	h.frame = 1024 / 64;
	h.credits = VERBS_CREDITS(0, 8);
	world_joined_with(a, &h);
	world_peer_frame(&(struct rds_hdr){.seq = 1, .sport = 1, .dport = 2}, NULL, 0);
	world_run();
	ck_assert_uint_eq(a->ups, 1);
	ck_assert_int_eq(world_send(a, 3000, 0), 0);
	world_run();
	for (i = 0; got < 3000; i++) {
		struct ibv_wc wc;

		ck_assert(peer_poll(&world.peer, &wc));
		if (wc.opcode != IBV_WC_RECV)
			continue;
		f = world.peer.mem + wc.wr_id * PEER_BUF;
		len = wc.byte_len - VERBS_HDR;
		if (!((const struct rds_wire_hdr *)(const void *)f)->len)
			continue; /* credits */
		ck_assert_uint_eq(len, got < 2048 ? 1024 : 3000 - 2048);
		got += len;
	}
}
END_TEST

/* ---- room ---- */

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

/* Nobody asks for an acknowledgement of three messages, but who waits for it gets it. */
START_TEST(test_ack_on_demand)
{
	unsigned i;

	world_pair();
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(world_send(a, 10, 0), 0);
	world_run();
	if (verbs_ep_acked(a->ep) == a->tx_seq)
		return; /* credits brought it */
	a->writables = 0;
	ck_assert(!verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep)));
	world_run();
	ck_assert_uint_eq(a->writables, 1);
	ck_assert_uint_eq(verbs_ep_acked(a->ep), a->tx_seq);
	ck_assert(!verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep)));
	world_run();
	ck_assert_uint_eq(a->downs + b->downs, 0);
}
END_TEST

/* A pair of messages: one that waits for an answer asks for it with its own frame. */
START_TEST(test_ack_required)
{
	world_pair();
	ck_assert_int_eq(world_send(a, 10, RDS_FLAG_ACK_REQUIRED), 0);
	world_run();
	ck_assert_uint_eq(verbs_ep_acked(a->ep), a->tx_seq);
}
END_TEST

/*
 * The peer has asked for an acknowledgement, the queue has no place for it, and nothing else is
 * sent afterwards.  It goes when there is a place.
 */
START_TEST(test_ack_waits_for_place)
{
	struct world_conn *const c = &world.conn[0];
	const uint64_t last = VERBS_SQ_RESERVE + 4;
	uint64_t ack = 0, seq;
	struct ibv_wc wc;

	world_join(c, 8, 8);
	world_peer_drain();
	while (world_send(c, 3000, 0) == 0)
		;
	world_run(); /* the peer has no receives left */
	for (seq = 1; seq <= last; seq++) {
		world_peer_sends(seq, 10, RDS_FLAG_ACK_REQUIRED);
		world_run();
	}
	ck_assert_uint_eq(c->nmsgs, last);
	while (mock_sends_waiting(world_ep(c)->qp)) {
		peer_post(&world.peer, 8);
		world_run();
		while (peer_poll(&world.peer, &wc))
			if (wc.opcode == IBV_WC_RECV)
				ack = be64toh(((const struct rds_wire_hdr *)(const void *)(world.peer.mem +
											   wc.wr_id * PEER_BUF))
						      ->ack);
	}
	ck_assert_uint_eq(ack, last);
}
END_TEST

/* ---- what fails ---- */

static void both_down(int why)
{
	world_pass(3000 * MS);
	ck_assert_uint_eq(a->downs, 1);
	ck_assert_int_eq(a->why, why);
	ck_assert_ptr_null(a->ep);
	ck_assert_uint_le(b->downs, 1);
	world_close(b);
	world_pass(2000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
}

/* Every status that there is, for a frame of a message of many. */
START_TEST(test_send_completes_with_error)
{
	enum ibv_wc_status status = (enum ibv_wc_status)_i;

	world_pair();
	ck_assert_int_eq(world_send(a, 300000, 0), 0);
	mock_fail_send(world_ep(a)->qp, status);
	/* iWARP's connection ends with it, and that comes first */
	both_down(status == IBV_WC_RETRY_EXC_ERR && !counted() ? -ETIMEDOUT : -ECONNRESET);
}
END_TEST

START_TEST(test_receive_completes_with_error)
{
	world_pair();
	mock_fail_recv(world_ep(a)->qp, (enum ibv_wc_status)_i);
	ck_assert_int_eq(world_send(b, 300000, 0), 0);
	both_down(-ECONNRESET);
}
END_TEST

/* The device takes so many of a list.  On iWARP it says that all is well. */
START_TEST(test_post_fails_half_way)
{
	world_pair();
	mock_post_fail((unsigned)_i, ENOMEM);
	ck_assert_int_eq(world_send(a, 500000, 0), 0);
	both_down(-ENOMEM);
}
END_TEST

START_TEST(test_post_fails)
{
	world_pair();
	mock_fail(MOCK_ibv_post_send, 1, EIO);
	ck_assert_int_eq(world_send(a, 10, 0), 0);
	ck_assert_int_ne(world_send(a, 10, 0), 0);
	both_down(-EIO);
}
END_TEST

/* ... in the middle of what is said without a message. */
START_TEST(test_post_of_ack_fails)
{
	world_pair();
	ck_assert_int_eq(world_send(b, 10, RDS_FLAG_ACK_REQUIRED), 0);
	mock_run();
	mock_fail(MOCK_ibv_post_send, 1, EINVAL);
	both_down(-EINVAL);
}
END_TEST

/*
 * Without inline, a frame without a message needs memory of its own.  Messages wait for their
 * acknowledgement as always.
 */
START_TEST(test_no_inline)
{
	unsigned i;

	world.ours->grant_inline = world.ours2->grant_inline = 0;
	world_pair();
	ck_assert_uint_eq(world_ep(a)->max_inline, 0);
	for (i = 0; i < 300; i++) {
		while (world_send(a, i * 100, i % 3 ? 0 : RDS_FLAG_ACK_REQUIRED))
			world_run();
		if (i % 7 == 0)
			world_run();
	}
	world_run();
	ck_assert(world_all_came(a, b));
	ck_assert_uint_eq(a->downs + b->downs, 0);
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

/* ---- the end with things in flight ---- */

START_TEST(test_close_in_flight)
{
	struct rds_ep *kept;
	unsigned i;

	world_pair();
	world_large(a, b);
	for (i = 0; i < 20 && world_send(a, i * 1000, 0) == 0; i++)
		;
	ck_assert_uint_gt(i, 5);
	if (_i & 1)
		mock_step();
	if (_i & 2)
		world.ours->lose_flush = 3; /* the deadline is for this */
	if (_i & 4)
		world.ours->cut = true;
	if (_i & 8)
		world.ours->destroy_cleans = true;
	verbs_ep_keep(a->ep, true);
	kept = a->ep;
	world_close(a);
	world_pass(2000 * MS);
	ck_assert_uint_eq(a->downs, 0);
	verbs_ep_keep(kept, false);
	world_close(b);
	world_pass(2000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_sizes, 0, (int)(sizeof(sizes) / sizeof(sizes[0])));
	tcase_add_test(t, test_smaller_frames);
	tcase_add_test(t, test_send_queue_full);
	tcase_add_test(t, test_memory_full);
	tcase_add_loop_test(t, test_memory_full_of_others, 0, 2);
	tcase_add_test(t, test_ack_on_demand);
	tcase_add_test(t, test_ack_required);
	tcase_add_loop_test(t, test_send_completes_with_error, IBV_WC_LOC_LEN_ERR, IBV_WC_GENERAL_ERR + 1);
	tcase_add_loop_test(t, test_receive_completes_with_error, IBV_WC_LOC_LEN_ERR, IBV_WC_GENERAL_ERR + 1);
	tcase_add_loop_test(t, test_post_fails_half_way, 0, 8);
	tcase_add_test(t, test_post_fails);
	tcase_add_test(t, test_post_of_ack_fails);
	tcase_add_test(t, test_no_inline);
	tcase_add_test(t, test_no_inline_memory_full);
	tcase_add_test(t, test_memlock);
	tcase_add_test(t, test_memlock_and_nothing_in_flight);
	tcase_add_loop_test(t, test_maps_shed, 0, 2);
	tcase_add_loop_test(t, test_close_in_flight, 0, 16);
}

int main(void)
{
	Suite *s = suite_create("verbs_send");
	TCase *t;

	setenv("RDS_PRELOAD_VERBS_MEMORY", "4M", 1);
	t = world_case(s, "ib", world_ib);
	/* where credits are counted, they run out before */
	tcase_add_test(t, test_ack_waits_for_place);
	tests(t);
	tcase_add_test(t, test_memory_of_the_unsignaled);
	tcase_add_test(t, test_memory_of_the_unacknowledged);
	tcase_add_test(t, test_memory_of_a_map);
	/* iWARP's devices have read them long ago */
	tcase_add_test(t, test_memory_stays_until_sent);
	tests(world_case(s, "iwarp", world_iwarp));
	return suite_run(s);
}
