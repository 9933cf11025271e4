/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_advertise.c - the target of operations that devices carry out (rdma/mr_device.c): which
 * regions are advertised, to whom, and when they are revoked.
 */
#include "tests/mock/clock.h"
#include "tests/unit/op_device_helper.h"

#define LIMIT (4 * LEN)

static const struct rds_transport_ops without;

static uint64_t region(uint64_t flags)
{
	struct rds_mr_request req = {.addr = (uintptr_t)mem, .bytes = LEN, .flags = flags};
	uint64_t cookie;

	ck_assert_int_eq(rds_mr_get(&sk, &req, &cookie), 0);
	return cookie;
}

static void served(struct rds_conn *c, uint64_t cookie, unsigned n, uint64_t len)
{
	rx_lock();
	while (n--)
		rds_mr_served(c, c->ep, rds_mr_find(rds_cookie_rkey(cookie)), len, true);
	rx_unlock();
	rds_mr_advertise(c);
}

/* With the second operation, once; freed, it is hidden before the call returns. */
START_TEST(test_shown)
{
	uint64_t cookie = region(0);

	served(conn, cookie, 1, LEN);
	ck_assert_uint_eq(did.show, 0);
	served(conn, cookie, 1, LEN);
	ck_assert_uint_eq(did.show, 1);
	told_of(conn, RDS_OP_ADVERTISED, cookie);
	served(conn, cookie, 5, LEN);
	ck_assert_uint_eq(did.show, 1);
	told_of(conn, 0, 0);
	ck_assert_int_eq(rds_mr_free(&sk, cookie), 0);
	ck_assert_uint_eq(did.hide, 1);
	ck_assert(!conn->rdma->mute); /* its answer was waited for */
	told_of(conn, RDS_OP_REVOKED, cookie);
	told_of(conn, 0, 0);
}
END_TEST

/* A peer that does not answer is not waited for for ever. */
START_TEST(test_mute)
{
	uint64_t cookie = region(0);

	did.mute = true;
	served(conn, cookie, 2, LEN);
	mock_clock_own(0);
	ck_assert_int_eq(rds_mr_free(&sk, cookie), 0);
	mock_clock_common();
	ck_assert_uint_eq(did.hide, 1);
	told_of(conn, RDS_OP_ADVERTISED, cookie);
	told_of(conn, RDS_OP_REVOKED, cookie);
	ck_assert_ptr_null(conn->rdma->adverts);
	ck_assert(conn->rdma->mute); /* it is not waited for as long again, until it answers */
	rx_lock();
	rds_mr_revoke_acked(conn,
			    &(struct rds_wire_op_hdr){.kind = RDS_OP_REVOKE_ACK, .rkey = rds_cookie_rkey(cookie)});
	rx_unlock();
	ck_assert(!conn->rdma->mute);
}
END_TEST

/* For one use; over another transport; little of it; by a peer that comes over another device. */
START_TEST(test_not_shown)
{
	uint64_t cookie = region(RDS_RDMA_USE_ONCE);

	served(conn, cookie, 9, LEN);
	ck_assert_uint_eq(did.show, 0);
	cookie = region(0);
	transport.ops = &without;
	served(conn, cookie, 9, LEN);
	transport.ops = &ops;
	served(conn, cookie, 15, 4096);
	ck_assert_uint_eq(did.show, 0);
	served(conn, cookie, 5, 4096);
	ck_assert_uint_eq(did.show, 1);
	told_of(conn, RDS_OP_ADVERTISED, cookie);
	did.elsewhere = true;
	served(&conn[1], cookie, 5, LEN);
	ck_assert_int_eq(rds_mr_free(&sk, cookie), 0);
	told_of(&conn[1], 0, 0);
	told_of(conn, RDS_OP_REVOKED, cookie);
}
END_TEST

START_TEST(test_refused)
{
	uint64_t cookie = region(0);

	did.show_err = -ENOMEM;
	served(conn, cookie, 9, LEN);
	ck_assert_uint_eq(did.show, 1); /* once is enough */
	told_of(conn, 0, 0);
	ck_assert_int_eq(rds_mr_free(&sk, cookie), 0);
}
END_TEST

/* As much as may be pinned; what is freed makes room. */
START_TEST(test_limit)
{
	uint64_t cookie[6];
	unsigned i;

	for (i = 0; i < 6; i++) {
		cookie[i] = region(0);
		served(conn, cookie[i], 2, LEN);
	}
	ck_assert_uint_eq(did.show, LIMIT / LEN);
	ck_assert_int_eq(rds_mr_free(&sk, cookie[0]), 0);
	served(conn, cookie[5], 1, LEN);
	ck_assert_uint_eq(did.show, LIMIT / LEN + 1);
	served(conn, cookie[4], 1, LEN);
	ck_assert_uint_eq(did.show, LIMIT / LEN + 1);
}
END_TEST

START_TEST(test_freed_meanwhile)
{
	uint64_t cookie = region(0);

	did.free_cookie = cookie;
	served(conn, cookie, 2, LEN);
	ck_assert_uint_eq(did.hide, 1);
	told_of(conn, 0, 0);
}
END_TEST

/* Each peer that uses the region gets an advert; after a break a new one. */
START_TEST(test_two_peers)
{
	uint64_t cookie = region(0);

	served(&conn[0], cookie, 2, LEN);
	served(&conn[1], cookie, 1, LEN);
	ck_assert_uint_eq(did.show, 1);
	told_of(&conn[0], RDS_OP_ADVERTISED, cookie);
	told_of(&conn[1], RDS_OP_ADVERTISED, cookie);
	rx_lock();
	rds_mr_adverts_drop(&conn[0]);
	rx_unlock();
	if (_i) {
		served(&conn[0], cookie, 1, LEN);
		told_of(&conn[0], RDS_OP_ADVERTISED, cookie);
	}
	ck_assert_uint_eq(did.show, 1);
	ck_assert_int_eq(rds_mr_free(&sk, cookie), 0);
	told_of(&conn[0], _i ? RDS_OP_REVOKED : 0, cookie);
	told_of(&conn[1], RDS_OP_REVOKED, cookie);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("advertise");
	TCase *t = suite_case(s, "target", setup, teardown);

	tcase_add_test(t, test_shown);
	tcase_add_test(t, test_mute);
	tcase_add_test(t, test_not_shown);
	tcase_add_test(t, test_refused);
	tcase_add_test(t, test_limit);
	tcase_add_test(t, test_freed_meanwhile);
	tcase_add_loop_test(t, test_two_peers, 0, 2);
	return suite_run(s);
}
