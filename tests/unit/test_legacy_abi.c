/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_legacy_abi.c - structures of 2007 to today (abi/revisions.c), written here as bytes at
 * offsets, and what is made of them.  Every body lies in memory of exactly its size, so that an
 * address sanitizer sees a step too far.  A program's age is found out in test_legacy_age.c.
 */
#include "tests/unit/legacy_abi_helper.h"

static const char *const epochs[] = {"none", "24", "32", "later"};

static unsigned asked_writable;
static bool can_write;
static uint64_t written_to;

static bool writable(uint64_t addr)
{
	asked_writable++;
	written_to = addr;
	return can_write;
}

/* ---- RDMA arguments ---- */

START_TEST(layouts)
{
	uint64_t token = 0, vec, nr;

	override(layout[_i].abi);
	distinct_words();
	ck_assert_int_eq(decode(layout[_i].size), 0);
	ck_assert_uint_eq(args.cookie, word[layout[_i].cookie]);
	ck_assert_uint_eq(args.remote_addr, word[layout[_i].addr]);
	ck_assert_uint_eq(args.remote_bytes, word[layout[_i].bytes]);
	ck_assert_uint_eq(args.local_vec, word[3]);
	ck_assert_uint_eq(args.nr_local, word[4]);
	ck_assert_uint_eq(args.flags, layout[_i].flags);
	ck_assert_int_eq(args.has_id, layout[_i].id >= 0);
	ck_assert_uint_eq(args.id_addr, layout[_i].id >= 0 ? word[layout[_i].id] : 0);
	if (layout[_i].token_at >= 0) /* little endian, as every machine that has these */
		memcpy(&token, (char *)word + layout[_i].token_at, layout[_i].token_bytes);
	ck_assert_uint_eq(args.token, token);
	ck_assert_int_eq(args.short_notify, layout[_i].notify_short);
	ck_assert_uint_eq(asked_cookie, 0);

	ck_assert_int_eq(rds_abi_local_vec_decode(word, layout[_i].size, &vec, &nr), 0);
	ck_assert_uint_eq(vec, word[3]);
	ck_assert_uint_eq(nr, word[4]);
	/* More than it has: the rest means nothing.  Less: refused. */
	ck_assert_int_eq(decode(128), 0);
	ck_assert_uint_eq(args.token, token);
	for (int size = 0; size < layout[_i].size; size++)
		ck_assert_int_eq(decode(size), -EINVAL);
	for (int size = 0; size < 56; size++)
		ck_assert_int_eq(rds_abi_local_vec_decode(word, size, &vec, &nr), -EINVAL);
}
END_TEST

/*
 * Rule 1.  Letters of `want` for nothing known, word 0 known, word 2 known, both: A address first,
 * C cookie first, E EINVAL.  Numbers that decide must not ask, so their four letters are alike; but
 * today's cookie counts for more than an old look.
 */
static const struct {
	enum rds_abi_epoch epoch;
	bool first, second; /* word 1, word 2 == L */
	const char *want;
	bool asks;
} order[] = {
	{RDS_EPOCH_NONE, true, false, "ACAA", true},   {RDS_EPOCH_NONE, false, true, "CCCC", false},
	{RDS_EPOCH_NONE, true, true, "CCAC", true},    {RDS_EPOCH_NONE, false, false, "CCCC", false},
	{RDS_EPOCH_24, true, false, "AAAA", false},    {RDS_EPOCH_24, false, true, "CCCC", false},
	{RDS_EPOCH_24, true, true, "ACAA", true},      {RDS_EPOCH_24, false, false, "EEEE", false},
	{RDS_EPOCH_32, true, false, "CCCC", false},    {RDS_EPOCH_32, false, true, "CCCC", false},
	{RDS_EPOCH_32, true, true, "CCCC", false},     {RDS_EPOCH_32, false, false, "CCCC", false},
	{RDS_EPOCH_LATER, true, false, "CCCC", false}, {RDS_EPOCH_LATER, false, true, "CCCC", false},
	{RDS_EPOCH_LATER, true, true, "CCCC", false},  {RDS_EPOCH_LATER, false, false, "CCCC", false},
};

START_TEST(order_of_words)
{
	for (unsigned k = 0; k < 4; k++)
		/* those that are not L are less or more */
		for (int more = -1; more <= 1; more += 2) {
			char got = 'E';
			int ret;

			distinct_words();
			word[1] = order[_i].first ? L : L + 0x1000 * more;
			word[2] = order[_i].second ? L : L + 0x1001 * more;
			word[5] = 1;
			enter(order[_i].epoch);
			known[0] = k & 1 ? word[0] : 0;
			known[1] = k & 2 ? word[2] : 0;
			asked_cookie = 0;
			ret = decode(56);
			if (!ret)
				got = args.remote_addr == word[0] ? 'A' : 'C';
			else
				ck_assert_int_eq(ret, -EINVAL);
			ck_assert_msg(got == order[_i].want[k], "epoch %s, %d %d, known %u: %c",
				      epochs[order[_i].epoch], order[_i].first, order[_i].second, k, got);
			ck_assert_int_eq(asked_cookie > 0, order[_i].asks);
			if (got == 'E')
				continue;
			ck_assert_uint_eq(args.cookie, word[got == 'A' ? 2 : 0]);
			ck_assert_uint_eq(args.remote_addr, word[got == 'A' ? 0 : 1]);
			ck_assert_uint_eq(args.remote_bytes, word[got == 'A' ? 1 : 2]);
			if (got == 'A') { /* a0's word 6, rule 2 */
				ck_assert(args.has_id);
				ck_assert_uint_eq(args.id_addr, word[6]);
			}
		}
}
END_TEST

/* Nobody to ask: as if nothing were known. */
START_TEST(nobody_knows)
{
	distinct_words();
	word[1] = word[2] = L;
	ck_assert_int_eq(rds_abi_rdma_decode(word, 56, L, NULL, NULL, &args), 0);
	ck_assert_uint_eq(args.cookie, word[0]);
	enter(RDS_EPOCH_24);
	ck_assert_int_eq(rds_abi_rdma_decode(word, 56, L, NULL, NULL, &args), 0);
	ck_assert_uint_eq(args.cookie, word[2]);
}
END_TEST

/* Rules 2 and 4: cookie first (word 2 == L), what word 6 is and which notification follows. */
static const struct {
	enum rds_abi_epoch epoch;
	int size;
	uint64_t flags;
	bool id;
	int token; /* bytes, 0 none */
	bool notify_short;
} sixth[] = {
	{RDS_EPOCH_NONE, 56, 1, false, 8, false},
	{RDS_EPOCH_NONE, 56, 1 | NOTIFY, false, 8, false},
	{RDS_EPOCH_24, 56, 1, true, 0, false},
	{RDS_EPOCH_24, 56, 1 | NOTIFY, false, 8, false},
	{RDS_EPOCH_32, 56, 3, true, 0, false},
	{RDS_EPOCH_32, 56, 3 | NOTIFY, false, 8, false},
	{RDS_EPOCH_LATER, 56, 0, false, 8, false},
	{RDS_EPOCH_LATER, 64, 0, false, 8, false}, /* the kernel ignores what is too much */
	/* b2, whose children never call the barrier in notify mode */
	{RDS_EPOCH_NONE, 64, 1, true, 4, true},
	{RDS_EPOCH_NONE, 64, 1 | NOTIFY, true, 4, true},
	{RDS_EPOCH_24, 64, 1, true, 4, true},
	{RDS_EPOCH_32, 64, 1, true, 4, true},
	{RDS_EPOCH_32, 64, 1 | NOTIFY, true, 4, true},
	{RDS_EPOCH_NONE, 57, 1, false, 8, false},
	{RDS_EPOCH_24, 63, 1, false, 8, false},
	{RDS_EPOCH_32, 72, 1, false, 8, false},
};

START_TEST(word_six)
{
	enter(sixth[_i].epoch);
	distinct_words();
	word[2] = L;
	word[5] = sixth[_i].flags;
	ck_assert_int_eq(decode(sixth[_i].size), 0);
	ck_assert_uint_eq(args.cookie, word[0]);
	ck_assert_uint_eq(args.flags, sixth[_i].flags);
	ck_assert_int_eq(args.has_id, sixth[_i].id);
	ck_assert_uint_eq(args.id_addr, sixth[_i].id ? word[6] : 0);
	ck_assert_uint_eq(args.token, sixth[_i].token == 8 ? word[6] : sixth[_i].token ? (uint32_t)word[7] : 0);
	ck_assert_int_eq(args.short_notify, sixth[_i].notify_short);
	/* Nowhere to store the id: it counts all the same. */
	word[6] = 0;
	ck_assert_int_eq(decode(sixth[_i].size), 0);
	ck_assert_int_eq(args.has_id, sixth[_i].id);
	ck_assert_uint_eq(args.id_addr, 0);
}
END_TEST

/* ---- memory regions: rule 3 ---- */

#define RW RDS_RDMA_READWRITE
#define ONCE RDS_RDMA_USE_ONCE
#define POINTER UINT64_C(0x7ffd1234567c)

enum { PROBED_GOOD = 1, PROBED_BAD = 2 };

static const struct {
	const char *abi;
	enum rds_abi_epoch epoch;
	uint64_t value, flags, phys;
	int probe; /* 0: nobody may ask */
} region[] = {
	{"auto", RDS_EPOCH_NONE, 0, 0, 0, 0},
	{"auto", RDS_EPOCH_NONE, 0xd, 0xd, 0, 0},
	{"auto", RDS_EPOCH_NONE, 0xff02, 0xff02, 0, 0}, /* below 65536 */
	{"auto", RDS_EPOCH_NONE, 65536, 65536, 0, 0},	/* low byte 0, 1 */
	{"auto", RDS_EPOCH_NONE, 65537, 65537, 0, 0},
	{"auto", RDS_EPOCH_NONE, 65538, RW, 65538, PROBED_GOOD},
	{"auto", RDS_EPOCH_NONE, 65538, 65538, 0, PROBED_BAD},
	{"auto", RDS_EPOCH_NONE, POINTER, RW, POINTER, PROBED_GOOD},
	{"auto", RDS_EPOCH_NONE, POINTER, POINTER, 0, PROBED_BAD},
	{"auto", RDS_EPOCH_24, 0, RW, 0, 0},
	{"auto", RDS_EPOCH_24, 1, RW | ONCE, 0, 0},
	/* a1 never cleared the other bytes */
	{"auto", RDS_EPOCH_24, UINT64_C(0xdeadbeefcafe0100), RW, 0, 0},
	{"auto", RDS_EPOCH_24, UINT64_C(0xdeadbeefcafe0101), RW | ONCE, 0, 0},
	{"auto", RDS_EPOCH_24, POINTER, RW, POINTER, 0},
	{"auto", RDS_EPOCH_24, POINTER - 0xc, RW, POINTER - 0xc, 0}, /* 0 mod 16 */
	{"auto", RDS_EPOCH_32, 0xd, 0xd, 0, 0},
	{"auto", RDS_EPOCH_32, POINTER, POINTER, 0, 0},
	{"auto", RDS_EPOCH_LATER, POINTER, POINTER, 0, 0},
	{"a0", RDS_EPOCH_NONE, POINTER, RW, POINTER, 0},
	{"a0", RDS_EPOCH_32, 0x7ffd12340000, RW, 0x7ffd12340000, 0},
	{"a0", RDS_EPOCH_NONE, 0, RW, 0, 0},
	{"a1", RDS_EPOCH_NONE, 0x7ffd12340001, RW | ONCE, 0, 0},
	{"a1", RDS_EPOCH_NONE, POINTER, RW | ONCE, 0, 0},
	{"a2", RDS_EPOCH_NONE, 0x7ffd12340000, RW, 0, 0},
	{"b1", RDS_EPOCH_24, 0xd, 0xd, 0, 0},
	{"b2", RDS_EPOCH_NONE, POINTER, POINTER, 0, 0},
	{"c", RDS_EPOCH_NONE, POINTER, POINTER, 0, 0},
	{"d", RDS_EPOCH_24, POINTER, POINTER, 0, 0},
};

START_TEST(regions)
{
	struct rds_get_mr_args mr = {{11, 12}, 13, region[_i].value};
	struct rds_mr_request req;

	enter(region[_i].epoch);
	override(region[_i].abi);
	asked_writable = 0;
	can_write = region[_i].probe == PROBED_GOOD;
	memset(&req, 0xa5, sizeof(req));
	rds_abi_mr_decode(&mr, writable, &req);
	ck_assert_uint_eq(req.addr, 11);
	ck_assert_uint_eq(req.bytes, 12);
	ck_assert_uint_eq(req.cookie_addr, 13);
	ck_assert_uint_eq(req.flags, region[_i].flags);
	ck_assert_uint_eq(req.phys_addr, region[_i].phys);
	ck_assert_int_eq(asked_writable > 0, region[_i].probe > 0);
	if (asked_writable)
		ck_assert_uint_eq(written_to, region[_i].value);
}
END_TEST

START_TEST(regions_unprobed)
{
	struct rds_get_mr_args mr = {{11, 12}, 13, POINTER};
	struct rds_mr_request req;

	rds_abi_mr_decode(&mr, NULL, &req);
	ck_assert_uint_eq(req.flags, POINTER);
	ck_assert_uint_eq(req.phys_addr, 0);
}
END_TEST

/* Later than all of it: flags are flags, in any epoch. */
START_TEST(regions_for_dest)
{
	struct rds_get_mr_for_dest_args mr = {.vec = {11, 12}, .cookie_addr = 13, .flags = POINTER};
	struct rds_mr_request req;

	enter(_i);
	memset(&req, 0xa5, sizeof(req));
	rds_abi_mr_for_dest_decode(&mr, &req);
	ck_assert_uint_eq(req.addr, 11);
	ck_assert_uint_eq(req.bytes, 12);
	ck_assert_uint_eq(req.cookie_addr, 13);
	ck_assert_uint_eq(req.flags, POINTER);
	ck_assert_uint_eq(req.phys_addr, 0);
}
END_TEST

/* ---- atomic operations ---- */

#define ALL UINT64_MAX

/*
 * By cmsg and size: word of compare, value; word of each mask (or 100 + n for the constant n);
 * flags, token.
 */
static const struct {
	int type, size, compare, value, compare_mask, value_mask, flags, token;
	bool swap;
} atomic[] = {
	{6, 56, 100, 3, 100, 100, 5, 6, false}, {7, 56, 4, 3, -1, -1, 5, 6, true},
	{6, 72, 100, 3, 100, 100, 7, 8, false}, {7, 72, 3, 4, -1, -1, 7, 8, true},
	{8, 72, 100, 3, 100, 4, 7, 8, false},	{9, 72, 3, 4, 5, 6, 7, 8, true},
};

static uint64_t operand(int at)
{
	return at < 0 ? ALL : at >= 100 ? 0 : word[at];
}

START_TEST(atomics)
{
	struct rds_atomic_request req;

	distinct_words();
	for (int size = 0; size <= 128; size++) {
		bool good = size == atomic[_i].size || (size >= 72 && atomic[_i].size == 72);
		unsigned char *body = malloc(size ? size : 1);
		int ret;

		memcpy(body, word, size);
		memset(&req, 0xa5, sizeof(req));
		ret = rds_abi_atomic_decode(atomic[_i].type, body, size, &req);
		free(body);
		if (!good) {
			if (size < 56 || (size > 56 && size < 72) || (size == 56 && atomic[_i].type > 7))
				ck_assert_int_eq(ret, -EINVAL);
			continue;
		}
		ck_assert_int_eq(ret, 0);
		ck_assert_int_eq(req.swap, atomic[_i].swap);
		ck_assert_uint_eq(req.cookie, word[0]);
		ck_assert_uint_eq(req.local_addr, word[1]);
		ck_assert_uint_eq(req.remote_addr, word[2]);
		ck_assert_uint_eq(req.compare, operand(atomic[_i].compare));
		ck_assert_uint_eq(req.compare_mask, operand(atomic[_i].compare_mask));
		ck_assert_uint_eq(req.value, operand(atomic[_i].value));
		ck_assert_uint_eq(req.value_mask, operand(atomic[_i].value_mask));
		ck_assert_uint_eq(req.flags, word[atomic[_i].flags]);
		ck_assert_uint_eq(req.token, word[atomic[_i].token]);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("legacy_abi");
	TCase *t = suite_case(s, "args", start, NULL);

	tcase_add_loop_test(t, layouts, 0, LEN(layout));
	tcase_add_loop_test(t, order_of_words, 0, LEN(order));
	tcase_add_test(t, nobody_knows);
	tcase_add_loop_test(t, word_six, 0, LEN(sixth));
	t = suite_case(s, "regions", start, NULL);
	tcase_add_loop_test(t, regions, 0, LEN(region));
	tcase_add_test(t, regions_unprobed);
	tcase_add_loop_test(t, regions_for_dest, RDS_EPOCH_NONE, RDS_EPOCH_LATER + 1);
	t = suite_case(s, "atomics", start, NULL);
	tcase_add_loop_test(t, atomics, 0, LEN(atomic));
	return suite_run(s);
}
