/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_recheck.c - no peer can keep this process asleep for more than a tick: neither one that
 * is stopped while it wakes us, nor one that writes nonsense into the wake-up page
 * (transport/shm/wake.c, recheck.c).
 */
#include "tests/unit/shm_wake_helper.h"

/*
 * A peer that is stopped while it wakes us - here by a pipe that takes nothing, so that we know
 * exactly where.  What others send must wake us all the same.
 */
static int stuck[2];

static void stop_them_in_write(void)
{
	char page[4096] = {0};

	ck_assert_int_eq(os_pipe(stuck, O_NONBLOCK), 0);
	while (os_write(stuck[1], page, sizeof(page)) > 0)
		;
	ck_assert_int_eq(os_fcntl(stuck[1], F_SETFL, 0), 0);
	atomic_store(&they.other.leader.fd.n[0], stuck[1]);
}

static _Atomic pid_t waker;

static void *stopped_waker(void *arg)
{
	(void)arg;
	atomic_store(&waker, gettid());
	flush(&they);
	return NULL;
}

static struct shm_ep third;
static struct shm_peer to_us;

/* A third process, as far as it takes to wake us. */
static void third_sends(void)
{
	static struct shm_ring_ctl ctl;

	memset(&third, 0, sizeof(third));
	atomic_store(&ctl.need_bell, 1);
	memset(&to_us, 0, sizeof(to_us));
	knows(&to_us, &us);
	third.peer = &to_us;
	third.there = &us.inbox;
	third.tx = third.rx = &ctl;
	third.bell_there = 17;
	third.tail = 64;
	shm_flush((struct rds_ep *)&third, false);
}

/* The waker sleeps in its write: nothing is in its way before that. */
static pthread_t stopped(void)
{
	pthread_t t;

	stop_them_in_write();
	ck_assert_int_eq(give(&they, 100), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, stopped_waker, NULL), 0);
	test_until(atomic_load(&us.inbox.summary));   /* until it has rung the bell ... */
	test_until(test_asleep(atomic_load(&waker))); /* ... and has come to what follows */
	return t;
}

static void go_on(pthread_t t)
{
	char page[65536];

	while (os_read(stuck[0], page, sizeof(page)) > 0)
		;
	pthread_join(t, NULL);
}

START_TEST(test_stopped_waker_does_not_stop_others)
{
	pthread_t t;

	announce(&us, RDS_ATT_LEADER);
	t = stopped();
	third_sends();
	ck_assert(readable(us.leader[0]));
	go_on(t);
}
END_TEST

START_TEST(test_late_claim_fails)
{
	pthread_t t;

	announce(&us, RDS_ATT_LEADER);
	t = stopped();
	third_sends();
	ck_assert(we_look());
	announce(&us, RDS_ATT_LEADER); /* asleep again */
	go_on(t);
	ck_assert_uint_eq(who(&us), RDS_ATT_LEADER);
}
END_TEST

/* ---- nonsense in the inbox ---- */

/* A tick later: they doubt, and say so on the control socket. True if we were asked to look. */
static bool they_ask(void)
{
	struct shm_ctl_msg msg;
	bool asked;

	become(&they, NULL);
	if (rds_shm.recheck_armed)
		rds_shm.recheck_timer.fn(&rds_shm.recheck_timer);
	they.shm = rds_shm;
	become(&us, NULL);
	asked = os_recv(us.ctl, &msg, sizeof(msg), MSG_DONTWAIT) == sizeof(msg) && msg.op == SHM_OP_LOOK;
	if (asked)
		shm_on_look(&us.other, msg.peer_bell);
	us.shm = rds_shm;
	return asked;
}

static const uint32_t lies[] = {RDS_ATT_POLLING, RDS_ATT_LAZY, 7, 0xdeadbee8 | RDS_ATT_LAZY, 0xffffffff};

START_TEST(test_false_attention_costs_a_tick)
{
	announce(&us, RDS_ATT_LEADER);
	atomic_store(&us.inbox.attention, lies[_i]);
	they_send();
	ck_assert(!readable(us.leader[0]));
	atomic_store(&us.inbox.summary, 0);
	ck_assert(they_ask());
	ck_assert(we_look());
	ck_assert_uint_eq(taken, 1);
	ck_assert(!they_ask());
}
END_TEST

/*
 * We poll, and may end before we look: they ask if they have no control socket that tells it, and ring
 * no bell for that.
 */
START_TEST(test_message_for_a_cold_peer)
{
	atomic_store(&rings->ctl[1].need_bell, 0);
	they.other.warmth = SHM_COLD;
	they_send();
	ck_assert(!they.shm.recheck_armed);
	atomic_store(&they.ep.watched, true);
	announce(&us, RDS_ATT_POLLING);
	they_send();
	ck_assert(they.shm.recheck_armed);
	ck_assert_uint_eq(atomic_load(&us.inbox.summary), 0);
}
END_TEST

/* They send so much that we are not one of those that are used least. */
START_TEST(test_busy_cold_peer_becomes_warm)
{
	unsigned n = 0;

	atomic_store(&rings->ctl[1].need_bell, 0);
	they.other.warmth = SHM_COLD;
	atomic_store(&they.ep.watched, true);
	announce(&us, RDS_ATT_POLLING);
	while (n < 300 && !(atomic_load(&they.other.deferred_what) & SHM_DEFER_WARM)) {
		they_send();
		n++;
	}
	ck_assert_uint_gt(n, 100);
	ck_assert_uint_lt(n, 300);
}
END_TEST

START_TEST(test_no_question_if_noticed)
{
	announce(&us, RDS_ATT_POLLING);
	they_send();
	ck_assert(they.shm.recheck_armed);
	ck_assert(we_look());
	ck_assert(!they_ask());
}
END_TEST

START_TEST(test_answer_to_wish_is_not_lost)
{
	become(&us, NULL);
	ck_assert_int_eq(give(&us, 100), 0);
	flush(&us);
	wish(&us);
	shm_attention(&rds_shm.t, RDS_ATT_LEADER);
	us.shm = rds_shm;
	atomic_store(&us.inbox.attention, lies[_i]);
	become(&they, NULL);
	ck_assert(shm_progress(&rds_shm.t));
	they.shm = rds_shm;
	atomic_store(&us.inbox.summary, 0);
	ck_assert(they_ask());
	we_look();
	ck_assert_uint_eq(writable, 1);
	ck_assert(!they_ask());
}
END_TEST

START_TEST(test_wiped_bell_costs_a_tick)
{
	unsigned i;

	announce(&us, _i ? RDS_ATT_LEADER : RDS_ATT_HELPER);
	they_send();
	atomic_store(&us.inbox.summary, 0);
	for (i = 0; i < SHM_BELLS / 64; i++)
		atomic_store(&us.inbox.words[i], 0);
	ck_assert(!we_look());
	announce(&us, RDS_ATT_HELPER);
	ck_assert(us.shm.sweep_armed);
	become(&us, NULL);
	rds_shm.sweep_timer.fn(&rds_shm.sweep_timer);
	us.shm = rds_shm;
	ck_assert(we_look());
	ck_assert_uint_eq(taken, 1);
}
END_TEST

START_TEST(test_bells_of_nobody)
{
	unsigned i;

	for (i = 0; i < SHM_BELLS / 64; i++)
		atomic_store(&us.inbox.words[i], UINT64_MAX);
	atomic_store(&us.inbox.summary, UINT64_MAX);
	ck_assert(!we_look());
	ck_assert(!shm_pending(&rds_shm.t));
	shm_on_look(&us.other, SHM_BELLS);
	shm_on_look(&us.other, 17);
	shm_on_look(&they.other, us.ep.bell_here); /* not its bell */
	ck_assert(!shm_pending(&rds_shm.t));
	they_send();
	ck_assert(we_look());
}
END_TEST

/* A message that cannot be taken now: nobody stays awake for one that may wait for a tick. */
START_TEST(test_later)
{
	verdict = _i ? RDS_RX_PAUSE : RDS_RX_LATER;
	they_send();
	ck_assert(!we_look());
	ck_assert_int_eq(shm_pending(&rds_shm.t), !_i);
	ck_assert_int_eq(us.shm.sweep_armed, _i);
	verdict = RDS_RX_DONE;
	if (_i) {
		become(&us, NULL);
		rds_shm.sweep_timer.fn(&rds_shm.sweep_timer);
		us.shm = rds_shm;
		ck_assert(shm_pending(&rds_shm.t));
	}
	ck_assert(we_look());
	ck_assert_uint_eq(taken, 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_recheck");
	TCase *t = case_of(s, "stopped");

	tcase_add_test(t, test_stopped_waker_does_not_stop_others);
	tcase_add_test(t, test_late_claim_fails);
	t = case_of(s, "nonsense");
	tcase_add_loop_test(t, test_false_attention_costs_a_tick, 0, (int)(sizeof(lies) / sizeof(lies[0])));
	tcase_add_loop_test(t, test_answer_to_wish_is_not_lost, 0, (int)(sizeof(lies) / sizeof(lies[0])));
	tcase_add_loop_test(t, test_wiped_bell_costs_a_tick, 0, 2);
	tcase_add_test(t, test_message_for_a_cold_peer);
	tcase_add_test(t, test_busy_cold_peer_becomes_warm);
	tcase_add_test(t, test_no_question_if_noticed);
	tcase_add_test(t, test_bells_of_nobody);
	tcase_add_loop_test(t, test_later, 0, 2);
	return suite_run(s);
}
