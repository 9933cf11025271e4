/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_wake.c - which thread is woken, and which is told of room (transport/shm/wake.c).  What
 * is found although nobody was woken is in test_shm_recheck.c.
 */
#include "tests/unit/shm_wake_helper.h"

/* ---- room ---- */

START_TEST(test_room_is_told_once)
{
	ck_assert_int_eq(give(&us, 100), 0);
	flush(&us);
	wish(&us);
	become(&they, &us);
	ck_assert(shm_progress(&rds_shm.t));
	ck_assert_uint_eq(taken, 1);
	become(&us, &they);
	shm_progress(&rds_shm.t);
	ck_assert_uint_eq(writable, 1);
	shm_bell_ring_own(&us.ep);
	shm_progress(&rds_shm.t); /* a bell for something else */
	ck_assert_uint_eq(writable, 1);
}
END_TEST

START_TEST(test_no_wish_no_answer)
{
	ck_assert_int_eq(give(&us, 100), 0);
	flush(&us);
	become(&they, &us);
	ck_assert(shm_progress(&rds_shm.t));
	become(&us, &they);
	ck_assert(!shm_pending(&rds_shm.t));
	shm_progress(&rds_shm.t);
	ck_assert_uint_eq(writable, 0);
}
END_TEST

/*
 * Two threads of ours: one sleeps for room, the peer reads everything and says so; before anybody
 * looks at the bell, the other is about to sleep and wishes, too.  The peer has nothing left to
 * read and will say nothing more.
 */
static void two_wishes(void)
{
	while (give(&us, 10000) == 0)
		;
	flush(&us);
	wish(&us);
	become(&they, &us);
	ck_assert(shm_progress(&rds_shm.t)); /* all of it: answered, bell rung */
	become(&us, &they);
	wish(&us);
	shm_progress(&rds_shm.t);
}

START_TEST(test_wish_does_not_take_answer_away)
{
	two_wishes();
	ck_assert_uint_eq(writable, 1);
}
END_TEST

START_TEST(test_later_wish_is_answered_later)
{
	two_wishes();
	ck_assert_int_eq(give(&us, 100), 0);
	flush(&us);
	become(&they, &us);
	ck_assert(shm_progress(&rds_shm.t));
	become(&us, &they);
	shm_progress(&rds_shm.t);
	ck_assert_uint_eq(writable, 2);
}
END_TEST

/* ---- who is woken ---- */

START_TEST(test_leader_is_woken_once)
{
	announce(&us, RDS_ATT_LEADER);
	they_send();
	ck_assert(readable(us.leader[0]));
	ck_assert_uint_eq(who(&us), RDS_ATT_LAZY);
	ck_assert_int_eq(os_read(us.leader[0], (char[64]){0}, 64), 8);
	they_send();
	ck_assert(!readable(us.leader[0]));
	ck_assert(!they.shm.recheck_armed); /* we have done it ourselves: no doubt about it */
	ck_assert(we_look());
	ck_assert_uint_eq(taken, 2);
	announce(&us, RDS_ATT_LEADER);
	they_send();
	ck_assert(readable(us.leader[0]));
	ck_assert(!us.shm.sweep_armed);
}
END_TEST

START_TEST(test_helper_is_woken_once)
{
	announce(&us, RDS_ATT_HELPER);
	they_send();
	they_send();
	ck_assert(!readable(us.leader[0]));
	ck_assert_int_eq(os_read(us.helper[0], (char[64]){0}, 64), 8); /* one wake-up */
	ck_assert_uint_eq(who(&us), RDS_ATT_LAZY);
}
END_TEST

/* A wake-up that cannot be sent is not claimed: others may manage. */
START_TEST(test_failed_wake_is_not_claimed)
{
	struct shm_wake_fd *w = _i ? &they.other.helper : &they.other.leader;
	enum rds_attention a = _i ? RDS_ATT_HELPER : RDS_ATT_LEADER;
	int gone[2];

	ck_assert_int_eq(os_pipe(gone, O_NONBLOCK), 0);
	os_close(gone[0]);
	atomic_store(&w->fd.n[0], gone[1]);
	w->has_reader = false; /* nobody reads it: this must not be a SIGPIPE, either */
	announce(&us, a);
	they_send();
	ck_assert_uint_eq(who(&us), a);
	ck_assert(they.shm.recheck_armed);
}
END_TEST

static void their_helper(void)
{
	become(&they, NULL);
	rds_helper_deferred_run_own();
	they.shm = rds_shm;
}

/*
 * No number in the program's table, as before the first time: their helper wakes us, and only then
 * it is claimed.
 */
START_TEST(test_helper_wakes_for_the_program)
{
	struct shm_wake_fd *w = _i ? &they.other.helper : &they.other.leader;
	enum rds_attention a = _i ? RDS_ATT_HELPER : RDS_ATT_LEADER;
	int in = _i ? us.helper[0] : us.leader[0], out = os_fd(&w->fd);

	atomic_store(&w->fd.n[0], -1);
	announce(&us, a);
	they_send();
	they_send();
	ck_assert(!readable(in));
	ck_assert_uint_eq(who(&us), a);
	atomic_store(&w->fd.n[0], out); /* the helper has one */
	their_helper();
	ck_assert_int_eq(os_read(in, (char[64]){0}, 64), 8);
	ck_assert_uint_eq(who(&us), RDS_ATT_LAZY);
	their_helper();
	ck_assert(!readable(in));
	they_send();
	ck_assert(!readable(in));
	ck_assert(!they.shm.recheck_armed);
	ck_assert(we_look());
	ck_assert_uint_eq(taken, 3);
}
END_TEST

/* ... unless we have been awake and gone to sleep again in the meantime, for another reason. */
START_TEST(test_helper_finds_us_elsewhere)
{
	int out = os_fd(&they.other.leader.fd);

	atomic_store(&they.other.leader.fd.n[0], -1);
	announce(&us, RDS_ATT_LEADER);
	they_send();
	announce(&us, RDS_ATT_HELPER);
	atomic_store(&they.other.leader.fd.n[0], out);
	their_helper();
	ck_assert_uint_eq(who(&us), RDS_ATT_HELPER);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_wake");
	TCase *t = case_of(s, "room");

	tcase_add_test(t, test_room_is_told_once);
	tcase_add_test(t, test_no_wish_no_answer);
	tcase_add_test(t, test_wish_does_not_take_answer_away);
	tcase_add_test(t, test_later_wish_is_answered_later);
	t = case_of(s, "wake");
	tcase_add_test(t, test_leader_is_woken_once);
	tcase_add_test(t, test_helper_is_woken_once);
	tcase_add_loop_test(t, test_failed_wake_is_not_claimed, 0, 2);
	tcase_add_loop_test(t, test_helper_wakes_for_the_program, 0, 2);
	tcase_add_test(t, test_helper_finds_us_elsewhere);
	return suite_run(s);
}
