/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_call.c - rdma_connect where it waits for the peer's host
 * (engine/transport/verbs/cm/connect_thread.c).  The helper does not wait.  Whatever becomes of the
 * endpoint meanwhile, id and queue pair outlive the call.  The end of the process gives it a moment.
 */
#include <pthread.h>
#include <unistd.h>

#include "tests/mock/clock.h"
#include "tests/mock/world.h"
#include "tests/slow.h"

#define EXIT_NS (200 * MS) /* CM_EXIT (engine/sys/patience.h) */

static struct world_conn *const c = &world.conn[0];
static struct peer *const p = &world.peer;
static struct rds_procid them;

static void setup(void)
{
	world_iwarp();
	them = world_peer_id();
	peer_listen(p, THEM, PEER_PORT);
	mock_connect_hang();
}

static void dial(struct world_conn *conn)
{
	ck_assert_int_eq(world_connect(conn, US, THEM, PEER_PORT, &them), 0);
	world_run();
}

static void hangs(void)
{
	dial(c);
	ck_assert_uint_eq(mock_connects_hanging(), 1);
	ck_assert_uint_eq(c->downs, 0);
}

static void down_is(int why)
{
	ck_assert_uint_eq(c->ups, 0);
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, why);
}

static void answer(void)
{
	struct verbs_answer a;

	world_answer(&a, VERBS_OK);
	a.credits = 8;
	verbs_answer_pack(&a, &a);
	peer_event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
	peer_accept(p, &a, sizeof(a), 8);
	world_run();
}

START_TEST(test_goes_on)
{
	hangs();
	world_pass(3000 * MS);
	world_connect_go(0);
	answer();
	ck_assert_uint_eq(c->ups, 1);
}
END_TEST

START_TEST(test_fails)
{
	hangs();
	world_connect_go(EHOSTUNREACH);
	world_run();
	down_is(-EHOSTUNREACH);
	world_pass(2000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
}
END_TEST

/* Nobody listens there: the rendezvous may know better. */
START_TEST(test_refused)
{
	struct peer other;

	hangs();
	peer_init(&other, 1);
	peer_listen(&other, THEM, (uint16_t)rds_options()->cm_port);
	world_connect_go(ECONNREFUSED);
	world_run();
	ck_assert_uint_eq(c->downs, 0);
	peer_event(&other, RDMA_CM_EVENT_CONNECT_REQUEST);
	other.id = other.ev->id;
	peer_end(&other);
	world_run();
	down_is(-ECONNREFUSED);
}
END_TEST

/* Closed, expired, its device gone: the call ends when it will, then the rest does. */
START_TEST(test_end_meanwhile)
{
	unsigned ids;
	int how = _i % 3, err = _i / 3 ? ETIMEDOUT : 0;

	hangs();
	ids = mock_count(MOCK_ID);
	if (how == 0) {
		world_close(c);
	} else if (how == 1) {
		world_pass(11000 * MS);
		down_is(-ETIMEDOUT);
	} else {
		mock_dev_remove(world.ours);
		world_run();
		down_is(-ENODEV);
	}
	world_pass(60000 * MS);
	ck_assert_uint_eq(mock_count(MOCK_ID), ids);
	ck_assert_uint_eq(mock_count(MOCK_QP), 1);
	world_connect_go(err);
	world_pass(3000 * MS);
	if (!err && how < 2) {
		answer();
		world_pass(3000 * MS);
	}
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_uint_eq(c->ups, 0);
}
END_TEST

/* A host that does not answer collects no threads; others are not held up. */
START_TEST(test_no_crowd)
{
	unsigned i;

	hangs();
	for (i = 1; i < 5; i++)
		dial(&world.conn[i]); /* within the first second: they may yet get through */
	ck_assert_uint_eq(mock_connects_hanging(), 5);
	world_pass(1500 * MS);
	dial(&world.conn[5]);
	ck_assert_uint_eq(mock_connects_hanging(), 5);
	ck_assert_uint_eq(world.conn[5].downs, 1);
	ck_assert_int_eq(world.conn[5].why, -ETIMEDOUT);
	ck_assert_int_eq(world_connect(&world.conn[6], US, US2, verbs_cm.port, &them), 0);
	world_run();
	ck_assert_uint_eq(mock_connects_hanging(), 6);
	world_pass(4000 * MS);
	dial(&world.conn[7]);
	ck_assert_uint_eq(mock_connects_hanging(), 7);
	world_connect_go(ETIMEDOUT);
	world_pass(2000 * MS);
	for (i = 0; i < CONNS; i++)
		ck_assert_uint_eq(world.conn[i].downs, 1);
}
END_TEST

START_TEST(test_no_thread)
{
	world.no_threads = true;
	dial(c);
	down_is(-EAGAIN);
	world.no_threads = false;
	world_pass(2000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_uint_eq(atomic_load(&rds_helper_extra_threads), 0);
	mock_connect_go(0);
}
END_TEST

START_TEST(test_locate)
{
	struct rds_conn_id id = {.laddr = world_ip(US), .faddr = world_ip(THEM), .peer_slot = RDS_SLOT_REMOTE};

	ck_assert_int_eq(verbs_cm_locate(world.t, &id, 7), 0);
	world_run();
	ck_assert_uint_eq(mock_connects_hanging(), 1);
	ck_assert_uint_eq(world.locates, 0);
	if (_i & 1) {
		world_pass(11000 * MS);
		ck_assert_uint_eq(world.locates, 1);
		ck_assert_int_eq(world.located_err, -ETIMEDOUT);
	}
	if (_i & 2)
		mock_dev_remove(world.ours);
	world_connect_go(_i & 4 ? ECONNREFUSED : 0);
	world_pass(20000 * MS);
	ck_assert_uint_eq(world.locates, 1);
	ck_assert_uint_eq(mock_count(MOCK_QP), 0);
}
END_TEST

/* ---- the process ends ---- */

/* How long it waits, by its own clock. */
static uint64_t exit_waits(void)
{
	uint64_t began, took;

	mock_clock_own(0);
	began = os_now_ns();
	world.t->ops->exit_wait(world.t);
	took = os_now_ns() - began;
	mock_clock_common();
	return took;
}

static _Atomic int ending;
static _Atomic bool ended;

static void *ends(void *unused)
{
	atomic_store(&ending, gettid());
	world.t->ops->exit_wait(world.t);
	atomic_store(&ended, true);
	return unused;
}

/* W1: until the call has returned, well or with an error. */
START_TEST(test_exit_waits)
{
	pthread_t thread;

	hangs();
	ck_assert_int_eq(pthread_create(&thread, NULL, ends, NULL), 0);
	test_until(atomic_load(&ended) || (atomic_load(&ending) && test_state(atomic_load(&ending)) == 'S'));
	ck_assert(!atomic_load(&ended));
	world_connect_go(_i ? ECONNRESET : 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert(atomic_load(&ended));
	if (!_i)
		answer();
}
END_TEST

/* W2: not longer than its time; and not for a call that has had it before. */
START_TEST(test_exit_does_not_hang)
{
	uint64_t took;

	hangs();
	world_pass(EXIT_NS / 2);
	took = exit_waits();
	ck_assert_uint_ge(took, EXIT_NS / 2);
	ck_assert_uint_lt(took, EXIT_NS / 2 + MS);
	world_pass(EXIT_NS / 2);
	ck_assert_uint_lt(exit_waits(), MS);
	world_connect_go(ETIMEDOUT);
}
END_TEST

/* W3: nobody waits where nothing is under way; that an answer is to come is the kernel's business. */
START_TEST(test_exit_at_once)
{
	ck_assert_uint_lt(exit_waits(), MS);
	world_pass(EXIT_NS + MS);
	hangs();
	world_connect_go(0);
	ck_assert_uint_lt(exit_waits(), MS);
	answer();
}
END_TEST

/* W4: a call that would begin behind the wait is not made; the process may go on, if its exec fails. */
START_TEST(test_exit_begins_none)
{
	exit_waits();
	dial(c);
	ck_assert_uint_eq(mock_connects_hanging(), 0);
	down_is(-EAGAIN);
	world_pass(EXIT_NS + MS);
	dial(&world.conn[1]);
	ck_assert_uint_eq(mock_connects_hanging(), 1);
	world_connect_go(ETIMEDOUT);
}
END_TEST

/* A child of fork() has none of it. */
START_TEST(test_exit_of_the_parent)
{
	exit_waits();
	verbs_cm_connect_forget();
	hangs();
	world_connect_go(ETIMEDOUT);
}
END_TEST

static void setup_ib(void)
{
	world_ib();
	them = world_peer_id();
	peer_listen(p, THEM, PEER_PORT);
}

/* Where the call does not wait for a peer nothing is changed. */
START_TEST(test_exit_ib)
{
	dial(c);
	ck_assert_uint_lt(exit_waits(), MS);
	answer();
	ck_assert_uint_eq(c->ups, 1);
	ck_assert_int_eq(world_connect(&world.conn[1], US, US2, verbs_cm.port, &them), 0);
	world_run();
	ck_assert_uint_eq(world.conn[1].downs, 1);
	ck_assert_int_ne(world.conn[1].why, -EAGAIN);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_cm_connect");
	TCase *t = world_case(s, "iwarp", setup);
	TCase *ib = world_case(s, "ib", setup_ib);

	tcase_add_test(t, test_goes_on);
	tcase_add_test(t, test_fails);
	tcase_add_test(t, test_refused);
	tcase_add_loop_test(t, test_end_meanwhile, 0, 6);
	tcase_add_test(t, test_no_crowd);
	tcase_add_test(t, test_no_thread);
	tcase_add_loop_test(t, test_locate, 0, 8);
	tcase_add_loop_test(t, test_exit_waits, 0, 2);
	tcase_add_test(t, test_exit_does_not_hang);
	tcase_add_test(t, test_exit_at_once);
	tcase_add_test(t, test_exit_begins_none);
	tcase_add_test(t, test_exit_of_the_parent);
	tcase_add_test(ib, test_exit_ib);
	return suite_run(s);
}
