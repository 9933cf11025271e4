/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_later.c - a peer that goes on sending messages that the engine cannot take
 * (engine/transport/verbs/ep/recv.c): it uses up neither the receive buffers of others nor memory
 * without end.  And a peer that acknowledges nothing: it is told what it waits for all the same.
 */
#include <stdlib.h>

#include "tests/mock/world.h"

static struct world_conn *const c = &world.conn[0];
static unsigned char zeros[VERBS_FRAME];

/*
 * At least half of the buffers are with the device.  Nothing is lost: a message waits as a copy, in
 * order.  When it is taken, it may stay where it is.
 */
START_TEST(test_half_stays_for_others)
{
	unsigned i, n = 300;

	world.refuse_from = 3;
	for (i = 0; i < n; i++) {
		world_peer_sends(i + 1, _i ? 8000 : 10, 0);
		world_run();
		world_peer_drain();
	}
	ck_assert_uint_eq(c->nmsgs, 2);
	ck_assert_uint_eq(c->downs, 0);
	ck_assert_uint_ge(mock_recvs_posted(world_dev()->srq), world_dev()->nbufs / 2);
	world.refuse_from = 0;
	world.keep_inplace = true;
	world_pass(100 * MS);
	ck_assert_uint_eq(c->nmsgs, n);
	for (i = 0; i < n; i++)
		ck_assert(c->msg[i].seq == i + 1 && c->msg[i].intact);
	ck_assert_uint_eq(world_ep(c)->later_bytes, 0);
}
END_TEST

static void sent_in_vain(uint64_t *seq, uint64_t bytes)
{
	uint64_t upto = *seq + bytes / VERBS_FRAME;

	while (*seq < upto && !c->downs) {
		world_peer_frame(&(struct rds_hdr){.seq = ++*seq, .len = VERBS_FRAME, .sport = 1, .dport = 2}, zeros,
				 VERBS_FRAME);
		if (*seq % 8 == 0) {
			world_run();
			world_peer_drain();
		}
	}
	world_run();
}

/* A peer of our kind waits for acknowledgements before it has sent that much. */
START_TEST(test_no_end_of_what_waits)
{
	uint64_t memory = (uint64_t)rds_options()->verbs_memory, seq = 0;

	world.refuse_from = 1;
	sent_in_vain(&seq, memory + (32 << 20));
	ck_assert_uint_eq(c->downs, 0);
	sent_in_vain(&seq, 64 << 20);
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, -EPROTO);
	world_pass(2000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
	world_buffers_out(0);
}
END_TEST

static void little_memory(void)
{
	setenv("RDS_PRELOAD_VERBS_MEMORY", "2M", 1);
	world_ib_joined();
}

static void little_memory_iwarp(void)
{
	setenv("RDS_PRELOAD_VERBS_MEMORY", "2M", 1);
	world_iwarp_joined();
}

static unsigned sent_until_full(size_t len, uint8_t flags)
{
	unsigned n, tries = 0;

	for (n = 0; tries < 3; n++) {
		for (tries = 0; tries < 3 && world_send(c, len, flags); tries++)
			world_run();
		world_peer_drain();
	}
	return n - 1;
}

/*
 * A redirect, and the acknowledgement of one, need not wait for acknowledgements.  But their number
 * has a limit.
 */
START_TEST(test_notices_when_memory_is_full)
{
	unsigned n;

	ck_assert_uint_gt(sent_until_full(8000, 0), 100);
	sent_until_full(8, 0);
	ck_assert_int_eq(world_send(c, RDS_REDIRECT_ACK_BYTES, 0), -EAGAIN);
	ck_assert_int_eq(world_send(c, 100, RDS_FLAG_REDIRECT), -EAGAIN);
	ck_assert_int_eq(world_send(c, RDS_REDIRECT_BYTES, RDS_FLAG_REDIRECT), 0);
	n = sent_until_full(RDS_REDIRECT_ACK_BYTES, RDS_FLAG_REDIRECT | RDS_FLAG_ACK_REQUIRED);
	ck_assert_uint_ge(n, 500);
	ck_assert_uint_le(n, 2000);
	ck_assert_int_eq(world_send(c, 10, 0), -EAGAIN);
	world_peer_frame(&(struct rds_hdr){.ack = c->tx_seq}, NULL, 0);
	world_run();
	ck_assert_int_eq(world_send(c, 8000, 0), 0);
	ck_assert_uint_eq(c->downs, 0);
}
END_TEST

/*
 * A message that cannot be taken may wait for room of ours (rdma/op_serve.c), and so for an
 * acknowledgement behind it.  That one is read at once, whether it comes alone or with a message;
 * the message waits for its turn.  The acknowledgement of a message that was never sent is a
 * protocol error, in its turn.
 */
START_TEST(test_acknowledged_behind_what_waits)
{
	bool credits = world_dev()->caps.credits; /* then it is these that there are none of */
	uint64_t seq = 0;

	ck_assert_uint_gt(sent_until_full(8000, 0), credits ? 10 : 100);
	sent_until_full(8, 0);
	ck_assert_int_eq(world_send(c, 10, 0), -EAGAIN);
	world.refuse_from = 1;
	world_peer_sends(++seq, 10, 0);
	world_run();
	ck_assert_uint_gt(world_ep(c)->later_bytes, 0);
	if (_i)
		world_peer_frame(&(struct rds_hdr){.ack = c->tx_seq, .seq = ++seq, .sport = 1, .dport = 2}, NULL, 0);
	else
		world_peer_frame(&(struct rds_hdr){.ack = c->tx_seq, .flags = RDS_FLAG_ACK_REQUIRED}, NULL, 0);
	world_run();
	ck_assert_uint_eq(verbs_ep_acked(c->ep), c->tx_seq);
	ck_assert_int_eq(world_send(c, 8000, 0), credits ? -EAGAIN : 0);
	ck_assert_uint_eq(c->nmsgs, 0);
	world_peer_frame(&(struct rds_hdr){.ack = c->tx_seq + 2}, NULL, 0);
	world_run();
	ck_assert_uint_eq(c->downs, 0);
	world.refuse_from = 0;
	world_pass(100 * MS);
	ck_assert_uint_eq(c->nmsgs, seq);
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, -EPROTO);
}
END_TEST

/*
 * A peer that asks what has been taken is told at once, and again when more has been taken.  It
 * does not ask again meanwhile.
 */
START_TEST(test_asked_behind_what_waits)
{
	unsigned i;

	world_pair();
	world.refuse_from = 2;
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(world_send(c, 100, 0), 0);
	verbs_ep_flush(c->ep, true);
	world_run();
	ck_assert(!verbs_ep_want_room(c->ep, 0));
	world_run();
	ck_assert_uint_eq(verbs_ep_acked(c->ep), 1);
	ck_assert(!verbs_ep_want_room(c->ep, 1));
	world_run();
	world.refuse_from = 0;
	world_pass(100 * MS);
	ck_assert_uint_eq(world.conn[1].nmsgs, 3);
	ck_assert_uint_eq(verbs_ep_acked(c->ep), 3);
	ck_assert_uint_eq(c->downs, 0);
}
END_TEST

/* Of two kinds in turn, the small ones of which went alone. */
START_TEST(test_sent_again_in_turn)
{
	static const uint8_t flags[] = {0, RDS_FLAG_RETRANSMITTED | RDS_FLAG_ACK_REQUIRED};
	unsigned n[2], i, tries;

	for (i = 0; i < 2; i++) {
		for (n[i] = tries = 0; tries < 3; n[i] += !tries) {
			for (tries = 0; tries < 3 && world_send(c, n[i] % 2 ? 8 : 2500, flags[i]); tries++)
				world_run();
			world_peer_drain();
		}
		world_peer_frame(&(struct rds_hdr){.ack = c->tx_seq}, NULL, 0);
		world_run();
	}
	ck_assert_uint_gt(n[0], 500);
	ck_assert_uint_ge(n[1], n[0]);
}
END_TEST

/* The endpoint learns that small messages come in runs, so that it collects them (batch_when.c). */
static uint64_t learn(void)
{
	uint64_t seq = 0;
	unsigned i;

	while (seq < 6) {
		for (i = 0; i < 6; i++)
			ck_assert_int_eq(world_send(c, 8, 0), 0);
		world_run();
		world_peer_drain();
		world_peer_frame(&(struct rds_hdr){.ack = c->tx_seq, .seq = ++seq, .sport = 1, .dport = 2}, NULL, 0);
		world_run();
	}
	return seq;
}

/*
 * Messages that once found room find it again after a break, however small they are.  Behind them
 * may be what the peer needs before it acknowledges any of them (conn/port_moved.c).
 */
START_TEST(test_sent_again)
{
	unsigned n, again;

	learn();
	n = sent_until_full(8, 0);
	ck_assert_uint_gt(n, 20000);
	world_peer_frame(&(struct rds_hdr){.ack = c->tx_seq}, NULL, 0);
	world_run();
	again = sent_until_full(8, RDS_FLAG_RETRANSMITTED | RDS_FLAG_ACK_REQUIRED);
	ck_assert_uint_ge(again, n);
	verbs_ep_flush(c->ep, true);
	ck_assert(!world_ep(c)->held);
	ck_assert_uint_eq(world_ep(c)->since_asked, 0);
	world_run();
	ck_assert_uint_eq(world_ep(c)->unfinished, 0);
	ck_assert_uint_eq(c->downs, 0);
}
END_TEST

/* A message too large for a batch gets a block that holds it, whatever was sent before. */
START_TEST(test_larger_ones_sent_again)
{
	static const uint32_t lens[] = {8192, 8200, 12000, 16400, 8, 16400, 300, 9000};
	const struct verbs_out *o;
	unsigned i;

	world_pair();
	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		ck_assert_int_eq(world_send(c, lens[i], RDS_FLAG_RETRANSMITTED | RDS_FLAG_ACK_REQUIRED), 0);
		o = verbs_out_at(world_ep(c), world_ep(c)->out_count - 1);
		ck_assert_uint_le(VERBS_HDR + o->len, o->block.size);
	}
	verbs_ep_flush(c->ep, true);
	world_run();
	ck_assert(world_all_came(c, &world.conn[1]));
	ck_assert_uint_eq(c->downs, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_later");
	TCase *t = world_case(s, "ib", world_ib_joined);

	tcase_add_loop_test(t, test_half_stays_for_others, 0, 2);
	t = world_case(s, "pair", world_ib);
	tcase_add_test(t, test_asked_behind_what_waits);
	tcase_add_test(t, test_larger_ones_sent_again);
	t = world_case(s, "little", little_memory);
	tcase_add_test(t, test_no_end_of_what_waits);
	tcase_add_test(t, test_notices_when_memory_is_full);
	tcase_add_loop_test(t, test_acknowledged_behind_what_waits, 0, 2);
	tcase_add_test(t, test_sent_again);
	tcase_add_test(t, test_sent_again_in_turn);
	t = world_case(s, "little_iwarp", little_memory_iwarp);
	tcase_add_loop_test(t, test_acknowledged_behind_what_waits, 0, 2);
	return suite_run(s);
}
