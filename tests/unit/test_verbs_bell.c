/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_bell.c - a leader that sleeps on the completion channel itself (engine/transport/verbs/bell.c): it is woken by what comes
 * and by who rings, nobody takes its events, and it leaves the device alone when that goes.
 */
#include <fcntl.h>
#include <poll.h>

#include "tests/mock/world.h"

#define RXE_VENDOR 0xffffff

static struct world_conn *const c = &world.conn[0];

static void unclaimed(void)
{
	world_begin(MOCK_IB);
	world.ours->attr.vendor_id = RXE_VENDOR;
}

static void joined(void)
{
	unclaimed();
	ck_assert_int_eq(world_claim(US), 1);
	world_join(c, 16, 0);
}

static bool rings(void)
{
	struct pollfd f = {.fd = world_dev()->channel->fd, .events = POLLIN};

	return poll(&f, 1, 0) == 1;
}

static void attention(enum rds_attention who)
{
	rx_lock();
	verbs_attention(&rds_verbs.t, who);
	rx_unlock();
}

static _Atomic int *lie_down(void)
{
	_Atomic int *bed;

	rx_lock();
	bed = verbs_sleep_on(&rds_verbs.t);
	rx_unlock();
	if (bed)
		attention(RDS_ATT_LEADER);
	return bed;
}

/* What its read() would do. */
static void get_up(enum rds_slept how)
{
	struct ibv_cq *cq;
	void *arg;

	if (how == RDS_SLEPT_READ)
		ck_assert_int_eq(vb.ibv_get_cq_event(world_dev()->channel, &cq, &arg), 0);
	rx_lock();
	verbs_slept(&rds_verbs.t, how);
	rx_unlock();
}

START_TEST(test_woken)
{
	unsigned i;

	for (i = 0; i < 100; i++) { /* more events than are acknowledged at a time */
		_Atomic int *bed = lie_down();

		ck_assert_ptr_nonnull(bed);
		ck_assert_int_eq(atomic_load(bed), world_dev()->channel->fd);
		ck_assert(!(fcntl(atomic_load(bed), F_GETFL) & O_NONBLOCK));
		ck_assert(world_dev()->helper_deaf);
		ck_assert(!rings());
		if (i % 2) {
			verbs_ring(&rds_verbs.t);
		} else {
			world_peer_sends(i / 2 + 1, 10, 0);
			mock_run();
		}
		ck_assert(rings());
		get_up(RDS_SLEPT_READ);
		ck_assert(!rings());
		world_look();
	}
	ck_assert_uint_eq(c->nmsgs, 50);
}
END_TEST

/* A signal: what it armed is still in force, for the next time. */
START_TEST(test_interrupted)
{
	unsigned calls;

	ck_assert_ptr_nonnull(lie_down());
	get_up(RDS_SLEPT_NOT);
	calls = mock_calls(MOCK_ibv_req_notify_cq);
	ck_assert_ptr_nonnull(lie_down());
	ck_assert_uint_eq(mock_calls(MOCK_ibv_req_notify_cq), calls);
	verbs_ring(&rds_verbs.t);
	ck_assert(rings());
	get_up(RDS_SLEPT_READ);
}
END_TEST

/* The helper may still hold an event of epoll's, a spinning thread may come by: the sleeper's event is not theirs. */
START_TEST(test_nobody_else_reads)
{
	ck_assert_ptr_nonnull(lie_down());
	verbs_ring(&rds_verbs.t);
	verbs_comp_event(&world_dev()->comp_ev, 0);
	attention(RDS_ATT_POLLING);
	world_look();
	attention(RDS_ATT_LEADER);
	ck_assert(rings());
	get_up(RDS_SLEPT_READ);
	verbs_comp_event(&world_dev()->comp_ev, 0); /* there is none: it must not wait for one */
	attention(RDS_ATT_HELPER);
	ck_assert(!world_dev()->helper_deaf);
	world_peer_sends(1, 10, 0);
	world_run();
	ck_assert_uint_eq(c->nmsgs, 1);
}
END_TEST

/* Another thread polls all the time, so nothing is armed on its account, and it polls what rang: there is an event all the same. */
START_TEST(test_beside_a_spinner)
{
	attention(RDS_ATT_POLLING);
	rx_lock();
	ck_assert_ptr_nonnull(verbs_sleep_on(&rds_verbs.t));
	rx_unlock();
	attention(RDS_ATT_POLLING);
	verbs_ring(&rds_verbs.t);
	world_look();
	ck_assert(rings());
	get_up(RDS_SLEPT_READ);
}
END_TEST

/* Where nothing can be armed nobody could be woken. */
START_TEST(test_arming_fails)
{
	mock_fail(MOCK_ibv_req_notify_cq, 1, ENOMEM);
	ck_assert_ptr_null(lie_down());
	ck_assert_ptr_nonnull(lie_down());
	get_up(RDS_SLEPT_NOT);
}
END_TEST

/* Nobody sleeps there any more: a late ring is nothing. */
START_TEST(test_late_ring)
{
	ck_assert_ptr_nonnull(lie_down());
	get_up(RDS_SLEPT_NOT);
	verbs_ring(&rds_verbs.t);
	ck_assert(!rings());
}
END_TEST

/* More rings than there is room for: those that are there are heard. */
START_TEST(test_many_rings)
{
	unsigned i;

	ck_assert_ptr_nonnull(lie_down());
	for (i = 0; i < 20; i++)
		verbs_ring(&rds_verbs.t);
	ck_assert(rings());
	get_up(RDS_SLEPT_READ);
	while (world_look())
		;
	ck_assert_ptr_nonnull(lie_down());
	verbs_ring(&rds_verbs.t);
	ck_assert(rings());
	get_up(RDS_SLEPT_READ);
}
END_TEST

/* It cannot sleep on two.  One that comes meanwhile is the helper's. */
START_TEST(test_second_device)
{
	struct verbs_dev *first = world_dev();

	ck_assert_ptr_nonnull(lie_down());
	ck_assert_int_eq(world_claim(US2), 1);
	ck_assert_ptr_ne(world_dev(), first);
	ck_assert(!world_dev()->helper_deaf);
	ck_assert(first->helper_deaf);
	rx_lock();
	verbs_slept(&rds_verbs.t, RDS_SLEPT_NOT);
	rx_unlock();
	ck_assert_ptr_null(lie_down());
}
END_TEST

START_TEST(test_device_goes)
{
	ck_assert_ptr_nonnull(lie_down());
	verbs_dev_gone(world_dev(), "test");
	ck_assert(rings());
	world_run();
	world_pass(1000 * MS);
	ck_assert_ptr_nonnull(world_dev()); /* somebody sleeps on it */
	get_up(RDS_SLEPT_READ);
	ck_assert_ptr_null(lie_down());
	world_pass(1000 * MS);
	ck_assert_ptr_null(world_dev());
}
END_TEST

/* A thread that is cancelled may have taken an event: nothing is waited for on account of it, and nobody lies down again. */
START_TEST(test_unsure)
{
	struct ibv_comp_channel *channel = world_dev()->channel;
	struct ibv_context *ctx = world_dev()->ctx;
	struct ibv_cq *cq;
	unsigned calls;
	void *arg;

	ck_assert_ptr_nonnull(lie_down());
	verbs_ring(&rds_verbs.t);
	ck_assert_int_eq(vb.ibv_get_cq_event(channel, &cq, &arg), 0);
	get_up(RDS_SLEPT_UNSURE);
	ck_assert_ptr_null(lie_down());
	attention(RDS_ATT_HELPER); /* armed anew */
	world_peer_sends(1, 10, 0);
	mock_run();
	ck_assert(rings());
	world_run();
	ck_assert_uint_eq(c->nmsgs, 1);
	world_close(c);
	world_pass(2000 * MS);
	calls = mock_calls(MOCK_ibv_destroy_cq);
	mock.count_faults = true; /* queue and channel go with the context, in the kernel; here by hand */
	verbs_dev_gone(world_dev(), "test");
	world_pass(2000 * MS);
	ck_assert_ptr_null(world_dev());
	ck_assert_uint_eq(mock_calls(MOCK_ibv_destroy_cq), calls);
	ck_assert_uint_eq(mock.faults, 1);
	mock.count_faults = false;
	vb.ibv_ack_cq_events(cq, 1);
	ck_assert_int_eq(vb.ibv_destroy_cq(cq), 0);
	channel->fd = -1;
	ck_assert_int_eq(vb.ibv_destroy_comp_channel(channel), 0);
	ck_assert_int_eq(vb.ibv_close_device(ctx), 0);
}
END_TEST

/* Devices of other kinds; one that does not flush, or not at once; one that makes no queue pair without an id. */
START_TEST(test_no_bell)
{
	if (_i == 0)
		world.ours->lose_flush = 1;
	else if (_i == 1)
		mock_fail(MOCK_ibv_create_qp, 1, ENOMEM);
	else if (_i == 4)
		world.ours->attr.vendor_id = 0;
	else
		mock_fail(MOCK_ibv_modify_qp, (unsigned)_i - 1, EINVAL);
	ck_assert_int_eq(world_claim(US), 1);
	ck_assert_ptr_null(lie_down());
	ck_assert(fcntl(world_dev()->channel->fd, F_GETFL) & O_NONBLOCK);
	ck_assert_uint_eq(mock_count(MOCK_QP), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs_bell");
	TCase *t = world_case(s, "bell", joined);

	tcase_add_test(t, test_woken);
	tcase_add_test(t, test_interrupted);
	tcase_add_test(t, test_nobody_else_reads);
	tcase_add_test(t, test_beside_a_spinner);
	tcase_add_test(t, test_arming_fails);
	tcase_add_test(t, test_late_ring);
	tcase_add_test(t, test_many_rings);
	tcase_add_test(t, test_second_device);
	tcase_add_test(t, test_device_goes);
	tcase_add_test(t, test_unsure);
	t = world_case(s, "none", unclaimed);
	tcase_add_loop_test(t, test_no_bell, 0, 5);
	return suite_run(s);
}
