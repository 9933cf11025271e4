/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_call.c - rdma_connect where it waits for the peer's host
 * (engine/transport/verbs/cm/connect_thread.c).  The helper does not wait.  Whatever becomes of the
 * endpoint meanwhile, id and queue pair outlive the call.
 */
#include "tests/mock/world.h"

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

int main(void)
{
	Suite *s = suite_create("verbs_cm_connect");
	TCase *t = world_case(s, "iwarp", setup);

	tcase_add_test(t, test_goes_on);
	tcase_add_test(t, test_fails);
	tcase_add_test(t, test_refused);
	tcase_add_loop_test(t, test_end_meanwhile, 0, 6);
	tcase_add_test(t, test_no_crowd);
	tcase_add_test(t, test_no_thread);
	tcase_add_loop_test(t, test_locate, 0, 8);
	return suite_run(s);
}
