/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_destroy.c - ids that the kernel does not let go
 * (engine/transport/verbs/cm/destroy_thread.c): neither the helper nor another endpoint waits for
 * them.
 */
#include "tests/mock/world.h"

static unsigned ids; /* beside those of connections */

/* A connection that comes and goes, its id too unless the kernel keeps it. */
static void come_and_go(struct world_conn *c)
{
	world_join(c, 0, 0);
	world_close(c);
	peer_drop_id(&world.peer);
	world_pass(3000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
}

static void setup(void)
{
	world_ib();
	come_and_go(&world.conn[CONNS - 1]); /* the peer has its listener now */
	ids = mock_count(MOCK_ID);
}

static void all_go(void)
{
	world_destroy_go();
	ck_assert_uint_eq(mock_count(MOCK_ID), ids);
	ck_assert_uint_eq(atomic_load(&rds_helper_fork_waits), 0);
}

/* The helper sees events and timers, and others that are to go do. */
START_TEST(test_others_go_on)
{
	mock_destroy_hang(1);
	come_and_go(&world.conn[0]);
	ck_assert_uint_eq(mock_destroys_hanging(), 1);
	/* a fork need not wait for an id that the kernel keeps */
	ck_assert_uint_eq(atomic_load(&rds_helper_fork_waits), 0);
	come_and_go(&world.conn[1]);
	ck_assert_uint_eq(mock_count(MOCK_ID), ids + 1);
	come_and_go(&world.conn[2]);
	ck_assert_uint_eq(mock_count(MOCK_ID), ids + 1);
	all_go();
}
END_TEST

/* Nobody knows how many it will keep; but so many threads are enough. */
START_TEST(test_no_crowd)
{
	unsigned i;

	mock_destroy_hang(100);
	for (i = 0; i < 20; i++) {
		memset(&world.conn[0], 0, sizeof(world.conn[0]));
		come_and_go(&world.conn[0]);
	}
	ck_assert_uint_eq(mock_destroys_hanging(), 16);
	ck_assert_uint_eq(mock_count(MOCK_ID), ids + 20);
	ck_assert_uint_eq(atomic_load(&rds_helper_extra_threads), 16);
	all_go();
}
END_TEST

START_TEST(test_no_thread)
{
	world.no_threads = true;
	come_and_go(&world.conn[0]);
	ck_assert_uint_eq(mock_count(MOCK_ID), ids);
	mock_destroy_hang(1);
	world.no_threads = false;
	come_and_go(&world.conn[1]);
	world.no_threads = true;
	come_and_go(&world.conn[2]); /* behind the one that hangs */
	ck_assert_uint_eq(mock_count(MOCK_ID), ids + 2);
	world.no_threads = false;
	world_pass(100 * MS);
	ck_assert_uint_eq(mock_count(MOCK_ID), ids + 1);
	all_go();
}
END_TEST

/* Events of an id that is to go concern nobody. */
START_TEST(test_late_event)
{
	struct rdma_cm_id *cm;
	unsigned acked;

	mock_destroy_hang(1);
	world_join(&world.conn[0], 0, 0);
	cm = world_ep(&world.conn[0])->cm;
	world_close(&world.conn[0]);
	while (!mock_destroys_hanging())
		world_pass(MS);
	/* a fork waits while the call may be over in an instant */
	ck_assert_uint_eq(atomic_load(&rds_helper_fork_waits), 1);
	world_pass(3000 * MS);
	ck_assert_uint_eq(atomic_load(&rds_helper_fork_waits), 0);
	ck_assert_ptr_null(cm->context);
	ck_assert_ptr_eq(cm->verbs, mock_context(world.ours)); /* ours may be gone before it */
	acked = mock_calls(MOCK_rdma_ack_cm_event);
	mock_cm_inject(cm, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	world_run();
	ck_assert_uint_eq(mock_calls(MOCK_rdma_ack_cm_event), acked + 1);
	ck_assert_uint_eq(world.conn[0].downs, 0);
	peer_drop_id(&world.peer);
	all_go();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_destroy");
	TCase *t = world_case(s, "ib", setup);

	tcase_add_test(t, test_others_go_on);
	tcase_add_test(t, test_no_crowd);
	tcase_add_test(t, test_no_thread);
	tcase_add_test(t, test_late_event);
	return suite_run(s);
}
