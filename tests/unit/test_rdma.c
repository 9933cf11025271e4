/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_rdma.c - the parts of RDMA that need neither socket nor peer: pieces as bytes
 * (wire/op_header.c), the results of atomic operations (rdma/op_serve.c).
 */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "engine/rdma/op_device.h"
#include "engine/transport/transport.h"
#include "engine/wire/header.h"
#include "engine/wire/op_header.h"
#include "tests/unit/suite.h"

static unsigned char piece[RDS_OP_HDR + RDS_OP_PIECE + 1];

static int decoded(enum rds_wire_op_kind kind, uint64_t len, size_t data)
{
	struct rds_wire_op_hdr h = {.kind = (uint8_t)kind, .id = 7, .len = len};

	rds_wire_op_encode(&h, piece);
	return rds_wire_op_decode(piece, RDS_OP_HDR + data, &h);
}

/* Which data each kind may have. */
START_TEST(test_sizes)
{
	static const struct {
		enum rds_wire_op_kind kind;
		uint64_t len;
		size_t data;
		int want;
	} rows[] = {
		{RDS_OP_WRITE, 1, 1, 0},
		{RDS_OP_WRITE, 1, 0, -EBADMSG},
		{RDS_OP_WRITE, 1, RDS_OP_PIECE, 0},
		{RDS_OP_WRITE, 1, RDS_OP_PIECE + 1, -EBADMSG},
		{RDS_OP_DATA, 0, RDS_OP_PIECE, 0},
		{RDS_OP_DATA, 0, 0, -EBADMSG},
		{RDS_OP_READ, 1, 0, 0},
		{RDS_OP_READ, RDS_MAX_MSG, 0, 0},
		{RDS_OP_READ, RDS_MAX_MSG + 1, 0, -EBADMSG},
		{RDS_OP_READ, 0, 0, -EBADMSG},
		{RDS_OP_READ, 1, 1, -EBADMSG},
		{RDS_OP_SWAP, 0, 0, 0},
		{RDS_OP_ADD, 0, 1, -EBADMSG},
		{RDS_OP_RESULT, 0, 0, 0},
		{RDS_OP_RESULT, 0, 1, -EBADMSG},
		{(enum rds_wire_op_kind)0, 0, 0, -EBADMSG},
		{RDS_OP_FETCH, 1, RDS_OP_VEC, 0},
		{RDS_OP_FETCH, RDS_MAX_MSG, RDS_FETCH_VECS * RDS_OP_VEC, 0},
		{RDS_OP_FETCH, 1, (RDS_FETCH_VECS + 1) * RDS_OP_VEC, -EBADMSG},
		{RDS_OP_FETCH, 1, 0, -EBADMSG},
		{RDS_OP_FETCH, 1, RDS_OP_VEC + 1, -EBADMSG},
		{RDS_OP_FETCH, 0, RDS_OP_VEC, -EBADMSG},
		{RDS_OP_FETCH, RDS_MAX_MSG + 1, RDS_OP_VEC, -EBADMSG},
		{RDS_OP_ADVERTISED, 1, 0, 0},
		{RDS_OP_ADVERTISED, 0, 0, -EBADMSG},
		{RDS_OP_ADVERTISED, 1, 1, -EBADMSG},
		{RDS_OP_REVOKED, 0, 0, 0},
		{RDS_OP_REVOKED, 0, 1, -EBADMSG},
		{RDS_OP_REVOKE_ACK, 0, 0, 0},
		{RDS_OP_REVOKE_ACK, 0, 1, -EBADMSG},
		{(enum rds_wire_op_kind)11, 0, 0, -EBADMSG},
	};
	unsigned i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ck_assert_msg(decoded(rows[i].kind, rows[i].len, rows[i].data) == rows[i].want, "row %u", i);
	ck_assert_int_eq(decoded(RDS_OP_RESULT, 0, (size_t)-1), -EBADMSG); /* one byte short */
}
END_TEST

/* Every field comes back, big-endian. */
START_TEST(test_fields)
{
	struct rds_wire_op_hdr h = {.kind = RDS_OP_WRITE,
				    .status = 3,
				    .last = true,
				    .rkey = 0x01020304,
				    .id = 5,
				    .message = 6,
				    .offset = 7,
				    .len = 8,
				    .compare = 9,
				    .compare_mask = 10,
				    .value = 11,
				    .value_mask = 12},
			       back;

	rds_wire_op_encode(&h, piece);
	ck_assert_uint_eq(piece[4], 1);
	ck_assert_uint_eq(piece[7], 4);
	ck_assert_uint_eq(piece[15], 5);
	ck_assert_int_eq(rds_wire_op_decode(piece, RDS_OP_HDR + 1, &back), 0);
	ck_assert(back.status == 3 && back.last && back.rkey == h.rkey && back.id == 5 && back.message == 6 &&
		  back.offset == 7 && back.len == 8 && back.compare == 9 && back.compare_mask == 10 && back.value == 11 &&
		  back.value_mask == 12);
}
END_TEST

/* Where bytes lie: all of them and no more, none of them empty. */
START_TEST(test_vec)
{
	struct iovec v[3] = {{(void *)0x1000, 5}, {(void *)0x7ffffffffff0, 16}, {(void *)1, 1}}, back[RDS_FETCH_VECS];
	unsigned char bytes[3 * RDS_OP_VEC];

	rds_wire_op_vec_encode(v, 3, bytes);
	ck_assert_uint_eq(bytes[6], 0x10);
	ck_assert_uint_eq(bytes[15], 5);
	ck_assert_int_eq(rds_wire_op_vec_decode(bytes, sizeof(bytes), 22, back), 3);
	ck_assert_int_eq(memcmp(v, back, sizeof(v)), 0);
	ck_assert_int_eq(rds_wire_op_vec_decode(bytes, sizeof(bytes), 21, back), -EBADMSG);
	ck_assert_int_eq(rds_wire_op_vec_decode(bytes, sizeof(bytes), 23, back), -EBADMSG);
	ck_assert_int_eq(rds_wire_op_vec_decode(bytes, 2 * RDS_OP_VEC, 22, back), -EBADMSG);
	v[1].iov_len = 0;
	rds_wire_op_vec_encode(v, 3, bytes);
	ck_assert_int_eq(rds_wire_op_vec_decode(bytes, sizeof(bytes), 6, back), -EBADMSG);
	v[1].iov_len = (size_t)-5; /* the sum wraps */
	rds_wire_op_vec_encode(v, 3, bytes);
	ck_assert_int_eq(rds_wire_op_vec_decode(bytes, sizeof(bytes), 1, back), -EBADMSG);
}
END_TEST

/*
 * A message's header names its operation beside the key, and only pieces have the flag of pieces.
 */
START_TEST(test_header)
{
	struct rds_hdr h = {.seq = 1, .ext_type = RDS_EXTHDR_RDMA, .ext_rkey = 77, .op = 0x1122334455667788ull}, back;
	struct rds_wire_hdr w;

	rds_wire_hdr_encode(&h, &w, true);
	ck_assert_int_eq(rds_wire_hdr_decode(&w, &back), 0);
	ck_assert(back.op == h.op && back.ext_type == RDS_EXTHDR_RDMA && back.ext_rkey == 77);
	h = (struct rds_hdr){.seq = 1, .flags = RDS_FLAG_OP, .len = RDS_OP_HDR};
	rds_wire_hdr_encode(&h, &w, false);
	ck_assert_int_eq(rds_wire_hdr_decode(&w, &back), 0);
	h.flags |= RDS_FLAG_RETRANSMITTED; /* it never is */
	rds_wire_hdr_encode(&h, &w, false);
	ck_assert_int_eq(rds_wire_hdr_decode(&w, &back), -EBADMSG);
	h.flags = RDS_FLAG_OP;
	h.seq = 0;
	rds_wire_hdr_encode(&h, &w, false);
	ck_assert_int_eq(rds_wire_hdr_decode(&w, &back), -EBADMSG);
}
END_TEST

/* One bit after the other, as the definition of a masked addition goes. */
static uint64_t added(uint64_t a, uint64_t b, uint64_t ends)
{
	uint64_t sum = 0, carry = 0;
	unsigned i;

	for (i = 0; i < 64; i++) {
		uint64_t x = a >> i & 1, y = b >> i & 1;

		sum |= (x ^ y ^ carry) << i;
		carry = ends >> i & 1 ? 0 : (x & y) | (x & carry) | (y & carry);
	}
	return sum;
}

START_TEST(test_add)
{
	uint64_t seed = 1, n;

	for (n = 0; n < 20000; n++) {
		struct rds_atomic_request req = {0};
		uint64_t a;

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		a = seed ^ seed >> 29;
		req.value = seed * 0x9e3779b97f4a7c15ull;
		req.value_mask = n % 3 ? seed * 0xd1342543de82ef95ull : 0;
		ck_assert_uint_eq(rds_atomic_value(&req, a), added(a, req.value, req.value_mask));
	}
}
END_TEST

START_TEST(test_swap)
{
	struct rds_atomic_request req = {
		.swap = true, .compare = 0xff05, .compare_mask = 0xff, .value = 0xaabb, .value_mask = 0xff00};

	ck_assert_uint_eq(rds_atomic_value(&req, 0x1205), 0xaa05);
	ck_assert_uint_eq(rds_atomic_value(&req, 0x1206), 0x1206);
	req.compare_mask = req.value_mask = UINT64_MAX;
	ck_assert_uint_eq(rds_atomic_value(&req, 0xff05), 0xaabb);
	ck_assert_uint_eq(rds_atomic_value(&req, 0x05), 0x05);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rdma");
	TCase *t = suite_case(s, "parts", NULL, NULL);

	tcase_add_test(t, test_sizes);
	tcase_add_test(t, test_fields);
	tcase_add_test(t, test_vec);
	tcase_add_test(t, test_header);
	tcase_add_test(t, test_add);
	tcase_add_test(t, test_swap);
	return suite_run(s);
}
