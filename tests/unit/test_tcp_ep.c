/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_tcp_ep.c - an endpoint over TCP: messages both ways, what the peer's TCP has acknowledged, what
 * becomes of a connection that breaks in any place.
 */
#include <netinet/tcp.h>

#include "tests/unit/tcp_helper.h"

static struct rds_conn *const conn = &conns[2];

/* ---- both ways ---- */

START_TEST(test_both_ways)
{
	unsigned char bytes[RDS_WIRE_HDR + 15];
	struct rds_hdr h;
	int fd = peer_is_up(), i;

	ck_assert_uint_eq(conn->seen[0].hdr.flags, RDS_FLAG_CONG_BITMAP);
	ck_assert_uint_eq(conn->seen[0].hdr.len, RDS_CONG_MAP_BYTES);
	peer_sends(fd, 1, 15, 0);
	progress_until(atomic_load(&conn->nseen) == 2);
	ck_seen(conn, 1, 1, 15);
	engine_sends(conn, 7, 15);
	peer_reads(fd, bytes, sizeof(bytes));
	ck_assert_int_eq(rds_wire_hdr_decode_node(bytes, &h), 0);
	ck_assert_uint_eq(h.seq, 7);
	ck_assert_uint_eq(h.sport, 4001);
	ck_assert_uint_eq(h.dport, 4000);
	for (i = 0; i < 15; i++)
		ck_assert_uint_eq(bytes[RDS_WIRE_HDR + i], fill(7, (size_t)i));
	close(fd);
	progress_until(atomic_load(&conn->downs) == 1);
	ck_assert_int_eq(atomic_load(&conn->why), -ECONNRESET);
}
END_TEST

/* Both ends are ours. */
static void pair_is_up(struct rds_conn *near)
{
	claim(LARGER);
	ck_assert_int_eq(attempt(near, LARGER), 0);
	test_until(atomic_load(&conn->ups) == 1);
	/* the connection stands with the first byte */
	ck_assert_uint_eq(atomic_load(&near->ups), 0);
	engine_sends(conn, 1, 0);
	test_until(atomic_load(&near->ups) == 1);
	progress_until(atomic_load(&near->nseen) == 1);
}

START_TEST(test_pair)
{
	struct rds_conn *near = &conns[0];
	unsigned i;

	pair_is_up(near);
	for (i = 1; i <= 1000; i++) {
		engine_sends(near, i, i);
		engine_sends(conn, 1 + i, 2 * i);
		progress();
	}
	progress_until(atomic_load(&conn->nseen) == 1000 && atomic_load(&near->nseen) == 1001);
	for (i = 1; i <= 1000; i++) {
		ck_seen(conn, i - 1, i, i);
		ck_seen(near, i, 1 + i, 2 * i);
	}
	test_until(rds_tcp.ops->acked(near->ep) == 1000 && rds_tcp.ops->acked(conn->ep) == 1001);
	ck_assert_ptr_null(((struct tcp_ep *)near->ep)->out.first);
}
END_TEST

static const uint32_t sizes[] = {0, 1, 4095, 4096, 65536, 131072 - 48, 131072, 500000, RDS_MAX_MSG - 1, RDS_MAX_MSG};

START_TEST(test_sizes)
{
	struct rds_conn *near = &conns[0];
	uint32_t len = sizes[_i];
	unsigned i;
	uint64_t pos;

	pair_is_up(near);
	for (i = 1; i <= 12; i++) {
		while (engine_send(near, i, i % 2 ? len : 64, &pos) == -EAGAIN)
			progress();
		rds_tcp.ops->flush(near->ep, false);
		if (len)
			ck_assert_uint_eq(*(const unsigned char *)rds_tcp.ops->retained(near->ep, pos), fill(i, 0));
	}
	progress_until(atomic_load(&conn->nseen) == 12);
	for (i = 1; i <= 12; i++)
		ck_seen(conn, i - 1, i, i % 2 ? len : 64);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("tcp_ep");
	TCase *t = suite_case(s, "traffic", tcp_setup, NULL);

	tcase_add_test(t, test_both_ways);
	tcase_add_test(t, test_pair);
	tcase_add_loop_test(t, test_sizes, 0, sizeof(sizes) / sizeof(sizes[0]));
	return s;
}

int main(void)
{
	return suite_run(suite());
}
