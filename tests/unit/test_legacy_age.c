/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_legacy_age.c - how old a program is (abi/revisions.c): what RDS_BARRIER and other calls show
 * of it, what the environment says against all evidence, and a borrower's age, which is not the
 * owner's.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/legacy_abi_helper.h"

static int call_barrier(const void *bytes, int len, struct rds_barrier_request *req)
{
	unsigned char *val = malloc(len > 0 ? len : 1);
	int ret;

	if (len > 0)
		memcpy(val, bytes, len);
	memset(req, 0xa5, sizeof(*req));
	ret = rds_abi_barrier_decode(val, len, req);
	free(val);
	return ret;
}

START_TEST(barrier_layouts)
{
	static const int bad[] = {-1, -24, 0, 1, 23, 25, 28, 31, 33, 64, INT32_MIN};
	uint32_t w[8] = {0x0100007f, ~0x40u, 3, 4, 5, 6, 7, 8};
	struct rds_barrier_request req;

	for (int i = 0; i < LEN(bad); i++) {
		uint32_t room[16] = {0};

		ck_assert_int_eq(call_barrier(room, bad[i], &req), -EINVAL);
	}
	ck_assert_int_eq(rds_abi_epoch(), RDS_EPOCH_NONE);

	ck_assert_int_eq(call_barrier(w, 24, &req), 0);
	ck_assert_uint_eq(req.daddr, 0x0100007f);
	ck_assert(!req.nonblock); /* other bits are ignored, 0x10 among them */
	ck_assert_uint_eq(req.mark_addr, UINT64_C(0x400000003));
	ck_assert_uint_eq(req.wait_id, UINT64_C(0x600000005));
	w[1] = 0x40;
	ck_assert_int_eq(call_barrier(w, 24, &req), 0);
	ck_assert(req.nonblock);

	w[1] = ~0u; /* the hole */
	w[2] = ~0x10u;
	w[3] = ~0u;
	ck_assert_int_eq(call_barrier(w, 32, &req), 0);
	ck_assert_uint_eq(req.daddr, 0x0100007f);
	ck_assert(!req.nonblock);
	ck_assert_uint_eq(req.mark_addr, UINT64_C(0x600000005));
	ck_assert_uint_eq(req.wait_id, UINT64_C(0x800000007));
	w[2] = 0x10;
	ck_assert_int_eq(call_barrier(w, 32, &req), 0);
	ck_assert(req.nonblock);
}
END_TEST

/* The first proof stays, no matter what comes after it. */
START_TEST(first_proof)
{
	enum rds_abi_epoch first = _i + 1;
	struct rds_barrier_request req;
	char val[32] = {0};

	enter(first);
	rds_abi_barrier_decode(val, 24, &req);
	rds_abi_note_modern();
	rds_abi_barrier_decode(val, 32, &req);
	rds_abi_barrier_decode(val, 24, &req);
	ck_assert_int_eq(rds_abi_epoch(), first);
}
END_TEST

START_TEST(fork_copies)
{
	int status;
	pid_t pid;

	enter(_i);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(rds_abi_epoch());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), _i);
}
END_TEST

/* ---- the environment's word against all evidence ---- */

START_TEST(overridden)
{
	static const enum rds_abi_epoch of[] = {RDS_EPOCH_24, RDS_EPOCH_24,    RDS_EPOCH_24,   RDS_EPOCH_32,
						RDS_EPOCH_32, RDS_EPOCH_LATER, RDS_EPOCH_LATER};

	for (int epoch = RDS_EPOCH_NONE; epoch <= RDS_EPOCH_LATER; epoch++) {
		override("auto");
		enter(epoch);
		override(layout[_i].abi);
		ck_assert_int_eq(rds_abi_epoch(), of[_i]);
		for (unsigned k = 0; k < 4; k++) {
			distinct_words();
			word[1] = k & 1 ? L : L + 1;
			word[2] = k & 2 ? L : L + 2;
			known[0] = word[0];
			known[1] = word[2];
			ck_assert_int_eq(decode(64), 0);
			ck_assert_uint_eq(args.cookie, word[layout[_i].cookie]);
			ck_assert_int_eq(args.has_id, layout[_i].id >= 0);
			ck_assert_int_eq(args.short_notify, layout[_i].notify_short);
		}
	}
	override("auto"); /* what was shown meanwhile is still known */
	ck_assert_int_eq(rds_abi_epoch(), RDS_EPOCH_LATER);
}
END_TEST

/* A call for a borrower: the borrower's options and age count, and not those of the owner. */
START_TEST(of_a_caller)
{
	struct rds_caller caller = {.abi = RDS_ABI_A0 + _i, .epoch = RDS_EPOCH_NONE};
	enum rds_abi_epoch epoch;

	rds_caller = &caller;
	override("auto");
	distinct_words();
	word[1] = word[2] = L;
	ck_assert_int_eq(decode(64), 0);
	ck_assert_uint_eq(args.cookie, word[layout[_i].cookie]);
	ck_assert_int_eq(args.has_id, layout[_i].id >= 0);
	ck_assert_int_eq(args.short_notify, layout[_i].notify_short);
	caller.abi = RDS_ABI_AUTO;
	override(layout[_i].abi);
	for (epoch = RDS_EPOCH_NONE; epoch <= RDS_EPOCH_LATER; epoch++) {
		caller.epoch = epoch;
		ck_assert_int_eq(rds_abi_epoch(), epoch);
		ck_assert_int_eq(decode(64), 0);
		ck_assert_uint_eq(args.cookie, word[0]);
		ck_assert_int_eq(args.short_notify, epoch != RDS_EPOCH_LATER);
	}
	rds_caller = NULL;
}
END_TEST

/* It may say anything. */
START_TEST(of_a_liar)
{
	static const int abi[] = {RDS_ABI_V2, RDS_ABI_D + 100, 1 << 30, -1, -100, INT32_MIN};
	struct rds_caller caller = {.abi = abi[_i]};

	rds_caller = &caller;
	distinct_words();
	word[1] = word[2] = L;
	ck_assert_int_eq(rds_abi_epoch(), RDS_EPOCH_NONE);
	ck_assert_int_eq(decode(56), 0);
	ck_assert_uint_eq(args.cookie, word[0]);
	ck_assert_uint_eq(args.token, word[6]);
	rds_caller = NULL;
}
END_TEST

/* The calls of a borrower say nothing of the owner's age. */
START_TEST(not_of_a_caller)
{
	struct rds_caller caller = {.abi = RDS_ABI_AUTO, .epoch = RDS_EPOCH_24};

	rds_caller = &caller;
	rds_abi_note_option(RDS_RECVERR);
	ck_assert_int_eq(rds_abi_epoch(), RDS_EPOCH_24);
	ck_assert(!rds_abi_numbers_read());
	caller.numbers = true;
	ck_assert(rds_abi_numbers_read());
	rds_caller = NULL;
	ck_assert(!rds_abi_numbers_read());
	ck_assert_int_eq(rds_abi_epoch(), RDS_EPOCH_NONE);
	rds_abi_note_option(RDS_BARRIER);
	rds_abi_note_option(RDS_INFO_TCP_SOCKETS);
	ck_assert_int_eq(rds_abi_epoch(), RDS_EPOCH_NONE);
	rds_abi_note_option(_i);
	ck_assert_int_eq(rds_abi_epoch(), RDS_EPOCH_LATER);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("legacy_age");
	TCase *t = suite_case(s, "age", start, NULL);

	tcase_add_test(t, barrier_layouts);
	tcase_add_loop_test(t, first_proof, 0, 3);
	tcase_add_loop_test(t, fork_copies, RDS_EPOCH_NONE, RDS_EPOCH_LATER + 1);
	tcase_add_loop_test(t, overridden, 0, LEN(layout));
	tcase_add_loop_test(t, of_a_caller, 0, LEN(layout));
	tcase_add_loop_test(t, of_a_liar, 0, 6);
	tcase_add_loop_test(t, not_of_a_caller, RDS_RECVERR, RDS_GET_MR_FOR_DEST + 1);
	return suite_run(s);
}
