/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_rules.c - peers that do not keep to the rules of credits and segments
 * (engine/transport/verbs/ep/credit.c, segment.c), on the mock's iWARP.
 */
#include <endian.h>
#include <string.h>

#include "tests/mock/world.h"

static struct world_conn *const a = &world.conn[0];
static struct peer *const p = &world.peer;

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
	Suite *s = suite_create("verbs_rules");
	TCase *t = world_case(s, "iwarp", world_iwarp);

	tcase_add_loop_test(t, test_sends_too_much, 0, 2);
	tcase_add_test(t, test_uses_what_it_was_not_told);
	tcase_add_test(t, test_grants_too_much);
	tcase_add_test(t, test_segments);
	tcase_add_loop_test(t, test_segments_that_do_not_fit, 0, 8);
	tcase_add_test(t, test_half_a_frame);
	return suite_run(s);
}
