/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_send.c - messages on their way out (engine/transport/verbs/ep/send.c): frames,
 * acknowledgements that are asked for, everything that a device can refuse or fail, and an end with
 * messages in flight.  Their memory is in test_verbs_memory.c.
 */
#include <endian.h>
#include <stdlib.h>

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
	size_t len, got = 0;

	world_hello(&h, VERBS_CONNECT);
	h.frame = 1024 / 64;
	h.credits = VERBS_CREDITS(0, 8);
	world_joined_with(a, &h);
	world_peer_frame(&(struct rds_hdr){.seq = 1, .sport = 1, .dport = 2}, NULL, 0);
	world_run();
	ck_assert_uint_eq(a->ups, 1);
	ck_assert_int_eq(world_send(a, 3000, 0), 0);
	world_run();
	while (got < 3000) {
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

/* ---- acknowledgements ---- */

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
	tcase_add_test(t, test_ack_on_demand);
	tcase_add_test(t, test_ack_required);
	tcase_add_loop_test(t, test_send_completes_with_error, IBV_WC_LOC_LEN_ERR, IBV_WC_GENERAL_ERR + 1);
	tcase_add_loop_test(t, test_receive_completes_with_error, IBV_WC_LOC_LEN_ERR, IBV_WC_GENERAL_ERR + 1);
	tcase_add_loop_test(t, test_post_fails_half_way, 0, 8);
	tcase_add_test(t, test_post_fails);
	tcase_add_test(t, test_post_of_ack_fails);
	tcase_add_test(t, test_no_inline);
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
	tests(world_case(s, "iwarp", world_iwarp));
	return suite_run(s);
}
