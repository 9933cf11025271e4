/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_idle.c - idle peers cost nothing (transport/shm/peer_list.c): what is done in each round of
 * the helper, at each tick, and for each control socket that is opened does not even look at them.
 *
 * The idle peer lies in memory that cannot be read.
 */
#include <sys/mman.h>

#include "tests/unit/shm_wake_helper.h"

static void setup_idle(void)
{
	void *idle;

	setup();
	shm_cold_init();
	idle = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(idle, MAP_FAILED);
	rds_shm.peers = idle;
}

START_TEST(test_round)
{
	rds_shm_reclaim();
}
END_TEST

/* A message that the peer may not have noticed: only that peer is asked. */
START_TEST(test_tick)
{
	struct shm_ctl_msg msg;

	atomic_store(&they.inbox.attention, RDS_ATT_LAZY);
	ck_assert_int_eq(give(&us, 100), 0);
	flush(&us);
	ck_assert(rds_shm.recheck_armed);
	rds_shm.recheck_timer.fn(&rds_shm.recheck_timer);
	ck_assert_int_eq(os_recv(they.ctl, &msg, sizeof(msg), MSG_DONTWAIT), sizeof(msg));
	ck_assert_uint_eq(msg.op, SHM_OP_LOOK);
	rds_shm.recheck_timer.fn(&rds_shm.recheck_timer); /* once is enough */
	ck_assert_int_eq(os_recv(they.ctl, &msg, sizeof(msg), MSG_DONTWAIT), -EAGAIN);
}
END_TEST

START_TEST(test_socket_read_again)
{
	us.other.dead = true; /* nothing is left to be read */
	shm_peer_read_later(&us.other);
	rds_shm.unread_timer.fn(&rds_shm.unread_timer);
}
END_TEST

START_TEST(test_connect_again)
{
	rds_shm.warm_timer.fn(&rds_shm.warm_timer);
}
END_TEST

START_TEST(test_connect)
{
	ck_assert(shm_cold_may_dial());
	ck_assert(!shm_cold_make_room(NULL, true));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_idle");
	TCase *t = suite_case(s, "idle", setup_idle, teardown);

	tcase_add_test(t, test_round);
	tcase_add_test(t, test_tick);
	tcase_add_test(t, test_socket_read_again);
	tcase_add_test(t, test_connect_again);
	tcase_add_test(t, test_connect);
	return suite_run(s);
}
