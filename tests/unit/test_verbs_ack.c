/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_ack.c - acknowledgements (engine/transport/verbs/ep/ack.c): how long this side waits
 * with its own, and what it makes of a peer's that are odd or untrue.
 */
#include "tests/mock/world.h"

static struct world_conn *const c = &world.conn[0];
static struct peer *const p = &world.peer;

/* Credits for nothing do no harm, nor does an acknowledgement that goes backwards. */
START_TEST(test_odd_acks)
{
	ck_assert_int_eq(world_send(c, 100, 0), 0);
	world_peer_frame(&(struct rds_hdr){.ack = 1, .credit = 255}, NULL, 0);
	world_run();
	ck_assert_int_eq(world_send(c, 100, 0), 0);
	world_run();
	world_peer_frame(&(struct rds_hdr){.ack = 2}, NULL, 0);
	world_peer_frame(&(struct rds_hdr){.ack = 1}, NULL, 0);
	world_run();
	ck_assert_uint_eq(verbs_ep_acked(c->ep), 2);
	ck_assert_uint_eq(c->downs, 0);
}
END_TEST

/*
 * The acknowledgement of a message that was never sent breaks the connection.  It frees no memory:
 * all of it is needed to send again.
 */
START_TEST(test_lying_acks)
{
	ck_assert_int_eq(world_send(c, 100, 0), 0);
	world_run();
	ck_assert_uint_eq(world_ep(c)->out_count, 1);
	world_peer_frame(&(struct rds_hdr){.ack = _i ? UINT64_MAX : 100, .seq = 1, .sport = 1}, NULL, 0);
	mock_run();
	rx_lock();
	while (verbs_ep_progress(world.t))
		;
	rx_unlock();
	verbs_ep_flush(c->ep, true); /* the helper has not come round yet */
	ck_assert_uint_eq(verbs_ep_acked(c->ep), 0);
	ck_assert_uint_eq(world_ep(c)->out_count, 1);
	ck_assert_uint_eq(c->nmsgs, 0);
	world_run();
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, -EPROTO);
}
END_TEST

/*
 * The number of frames that bring the peer an acknowledgement and nothing else; upto: the last
 * message that they acknowledge.
 */
static unsigned acks(uint64_t *upto)
{
	unsigned n = 0;
	struct ibv_wc wc;

	*upto = 0;
	world_run();
	while (peer_poll(p, &wc)) {
		struct rds_hdr h;

		if (wc.opcode != IBV_WC_RECV)
			continue;
		ck_assert_int_eq(rds_wire_hdr_decode(p->mem + wc.wr_id * PEER_BUF, &h), 0);
		*upto = h.ack > *upto ? h.ack : *upto;
		n += !h.seq && !h.credit;
		peer_post(p, 1);
	}
	return n;
}

static void sent(uint64_t from, uint64_t to, size_t len)
{
	for (; from <= to; from++)
		world_peer_sends(from, len, 0);
	world_run();
}

/*
 * While a thread looks, an answer may be about to carry the acknowledgement; it goes after 32
 * messages at the latest.
 */
START_TEST(test_ack_waits)
{
	uint64_t upto;

	world_attention(RDS_ATT_LAZY);
	sent(1, 31, 10);
	ck_assert_uint_eq(acks(&upto), 0);
	sent(32, 32, 10);
	ck_assert_uint_eq(acks(&upto), 1);
	ck_assert_uint_eq(upto, 32);
	sent(33, 50, 10);
	ck_assert_int_eq(world_send(c, 10, 0), 0); /* this one carries it */
	ck_assert_uint_eq(acks(&upto), 0);
	ck_assert_uint_eq(upto, 50);
	sent(51, 81, 10);
	ck_assert_uint_eq(acks(&upto), 0);
}
END_TEST

/* Before nobody looks any more; but not for a few. */
START_TEST(test_ack_before_sleep)
{
	enum rds_attention who = _i ? RDS_ATT_HELPER : RDS_ATT_LEADER;
	uint64_t upto;

	world_attention(RDS_ATT_POLLING);
	sent(1, 7, 10);
	world_attention(who);
	ck_assert_uint_eq(acks(&upto), 0);
	world_attention(RDS_ATT_POLLING);
	sent(8, 20, 10);
	ck_assert_uint_eq(acks(&upto), 0);
	world_attention(who);
	ck_assert_uint_eq(acks(&upto), 1);
	ck_assert_uint_eq(upto, 20);
	world_attention(who);
	ck_assert_uint_eq(acks(&upto), 0);
	sent(21, 30, 10);
	world_close(c); /* owes it, and is gone */
	world_attention(RDS_ATT_POLLING);
	world_attention(who);
}
END_TEST

/* What is owed when the process ends is sent, and gone from the device, before that. */
START_TEST(test_ack_at_end)
{
	uint64_t upto;

	world_attention(RDS_ATT_POLLING);
	ck_assert(verbs_ep_leave(c->ep, true));
	ck_assert_uint_eq(acks(&upto), 0);
	sent(1, 3, 10);
	ck_assert(!verbs_ep_leave(c->ep, true));
	ck_assert_uint_eq(acks(&upto), 1);
	ck_assert_uint_eq(upto, 3);
	ck_assert(verbs_ep_leave(c->ep, false));
	sent(4, 5, 10); /* the peer goes on: that keeps nobody */
	ck_assert(verbs_ep_leave(c->ep, false));
	ck_assert_uint_eq(acks(&upto), 0);
	ck_assert(!verbs_ep_leave(c->ep, true)); /* that was an exec which has failed; now it ends */
	ck_assert_uint_eq(acks(&upto), 1);
	ck_assert_uint_eq(upto, 5);
	ck_assert(verbs_ep_leave(c->ep, false));
}
END_TEST

/* 16 KiB, in two frames. */
static void one_large(uint64_t seq)
{
	struct rds_hdr h = {.seq = seq, .len = 2 * VERBS_FRAME, .sport = 1, .dport = 2};
	static unsigned char bytes[2 * VERBS_FRAME];

	world_fill(seq, bytes, sizeof(bytes));
	world_peer_frame(&h, bytes, VERBS_FRAME);
	world_peer_frame(&h, bytes + VERBS_FRAME, VERBS_FRAME);
	world_run();
}

static void ack_after(uint64_t *seq, unsigned messages)
{
	uint64_t upto;

	while (--messages)
		one_large(++*seq);
	ck_assert_uint_eq(acks(&upto), 0);
	one_large(++*seq);
	ck_assert_uint_eq(acks(&upto), 1);
	ck_assert_uint_eq(upto, *seq);
}

static void acks_of(uint64_t *seq, unsigned times, unsigned messages)
{
	while (times--)
		ack_after(seq, messages);
}

static void asks(uint64_t *seq)
{
	uint64_t upto;

	world_peer_sends(++*seq, 10, RDS_FLAG_ACK_REQUIRED);
	ck_assert_uint_eq(acks(&upto), 1);
}

/*
 * An acknowledgement for every 64 KiB; for 128 and then 256 KiB if the peer does not ask.  Never
 * again for as many bytes as when it asked, or not for long.
 */
START_TEST(test_ack_of_bytes)
{
	uint64_t seq = 0;

	world_attention(RDS_ATT_POLLING);
	acks_of(&seq, 4, 4);
	acks_of(&seq, 4, 8);
	acks_of(&seq, 4, 16);
	asks(&seq);
	acks_of(&seq, 4, 4);
	acks_of(&seq, 252, 8);
	acks_of(&seq, 4, 16);
	asks(&seq);
	acks_of(&seq, 4, 4);
	acks_of(&seq, 2, 8);
	asks(&seq);
	acks_of(&seq, 20, 4);
}
END_TEST

/* Who asks is answered at once, and woken if it is not there. */
START_TEST(test_ack_asked_for)
{
	struct ibv_cq *cq;
	uint64_t upto;
	void *arg;

	world_attention(RDS_ATT_POLLING);
	world_peer_drain();
	ck_assert_int_eq(ibv_req_notify_cq(p->cq, 1), 0);
	sent(1, 3, 10);
	if (_i)
		world_peer_frame(&(struct rds_hdr){.flags = RDS_FLAG_ACK_REQUIRED}, NULL, 0);
	else
		world_peer_sends(4, 10, RDS_FLAG_ACK_REQUIRED);
	ck_assert_uint_eq(acks(&upto), 1);
	ck_assert_uint_eq(upto, 4 - _i);
	ck_assert_int_eq(vb.ibv_get_cq_event(p->channel, &cq, &arg), 0);
	vb.ibv_ack_cq_events(p->cq, 1);
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_ack_asked_for, 0, 2);
	tcase_add_test(t, test_odd_acks);
	tcase_add_loop_test(t, test_lying_acks, 0, 2);
}

int main(void)
{
	Suite *s = suite_create("verbs_ack");

	TCase *t = world_case(s, "ib", world_ib_joined);

	tests(t);
	tcase_add_test(t, test_ack_waits); /* on iWARP credits go, which carry it */
	tcase_add_loop_test(t, test_ack_before_sleep, 0, 2);
	tcase_add_test(t, test_ack_of_bytes);
	tcase_add_test(t, test_ack_at_end);
	tests(world_case(s, "iwarp", world_iwarp_joined));
	return suite_run(s);
}
