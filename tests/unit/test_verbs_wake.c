/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_wake.c - whom a completion wakes, and when (engine/transport/verbs/dev/cq_notify.c).
 */
#include <poll.h>

#include "tests/mock/world.h"

static struct world_conn *const c = &world.conn[0];

static bool rings(void)
{
	struct pollfd f = {.fd = world_dev()->channel->fd, .events = POLLIN};

	return poll(&f, 1, 0) == 1;
}

/* That the helper is woken has the engine decide that the sends look from now on. */
static void sends_look(void)
{
	verbs_ep_attention(world.t, RDS_ATT_LAZY);
}

START_TEST(test_who_is_woken)
{
	world_attention(RDS_ATT_POLLING);
	world_peer_sends(1, 10, 0);
	mock_run();
	ck_assert(!rings());
	world_run();
	world_attention(_i ? RDS_ATT_HELPER : RDS_ATT_LEADER);
	world_peer_sends(2, 10, 0);
	mock_run();
	ck_assert(rings());
	world_run();
	ck_assert(!rings());
	world_peer_sends(3, 10, 0); /* armed again by the helper */
	mock_run();
	ck_assert(rings());
	world_run();
	ck_assert_uint_eq(c->nmsgs, 3);
}
END_TEST

/*
 * Between two calls of a busy program: nothing at first, then (a tick later) only what asks for an
 * answer.
 */
START_TEST(test_lazy)
{
	world_attention(RDS_ATT_POLLING);
	world_attention(RDS_ATT_LAZY);
	peer_send(&world.peer, &(struct rds_wire_hdr){.flags = RDS_FLAG_ACK_REQUIRED}, VERBS_HDR, IBV_SEND_SOLICITED);
	mock_run();
	ck_assert(!rings());
	world_run();
	world_attention(RDS_ATT_LAZY);
	world_peer_sends(1, 10, 0);
	mock_run();
	ck_assert(!rings());
	peer_send(&world.peer, &(struct rds_wire_hdr){.flags = RDS_FLAG_ACK_REQUIRED}, VERBS_HDR, IBV_SEND_SOLICITED);
	mock_run();
	ck_assert(rings());
	world_run();
	ck_assert_uint_eq(c->nmsgs, 1);
}
END_TEST

/*
 * The helper has come for it, and hears of nothing else from then on but of what asks for an
 * answer.
 */
START_TEST(test_sends_look)
{
	world_attention(RDS_ATT_HELPER);
	rds_transport_wakes.helper_woken = sends_look;
	world_peer_sends(1, 10, 0);
	mock_run();
	ck_assert(rings());
	world_run();
	world_peer_sends(2, 10, 0);
	mock_run();
	ck_assert(!rings());
	peer_send(&world.peer, &(struct rds_wire_hdr){.flags = RDS_FLAG_ACK_REQUIRED}, VERBS_HDR, IBV_SEND_SOLICITED);
	mock_run();
	ck_assert(rings());
	world_run();
	world_attention(RDS_ATT_HELPER);
	world_peer_sends(3, 10, 0);
	mock_run();
	ck_assert(rings());
	world_run();
	ck_assert_uint_eq(c->nmsgs, 3);
}
END_TEST

/* What came before it was armed is seen by who looks once more. */
START_TEST(test_pending)
{
	bool pending;

	world_peer_sends(1, 10, 0);
	mock_run();
	world_attention(RDS_ATT_HELPER);
	ck_assert(!rings());
	rx_lock();
	pending = verbs_dev_pending(world.t);
	rx_unlock();
	ck_assert(pending);
	world_run();
	world_got_one(c, 1);
	rx_lock();
	pending = verbs_dev_pending(world.t);
	rx_unlock();
	ck_assert(!pending);
}
END_TEST

START_TEST(test_arming_fails)
{
	mock_fail(MOCK_ibv_req_notify_cq, 1, ENOMEM);
	world_attention(RDS_ATT_HELPER);
	world_attention(RDS_ATT_HELPER); /* again */
	world_peer_sends(1, 10, 0);
	mock_run();
	ck_assert(rings());
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_who_is_woken, 0, 2);
	tcase_add_test(t, test_lazy);
	tcase_add_test(t, test_sends_look);
	tcase_add_test(t, test_pending);
	tcase_add_test(t, test_arming_fails);
}

int main(void)
{
	Suite *s = suite_create("verbs_wake");

	tests(world_case(s, "ib", world_ib_joined));
	tests(world_case(s, "iwarp", world_iwarp_joined));
	return suite_run(s);
}
