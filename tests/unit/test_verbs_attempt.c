/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_attempt.c - this side asks for a connection (engine/transport/verbs/ep/connect.c):
 * rows A1 to A9 of docs/verbs-states.md, up to the answer that brings it up, and each step that can
 * fail.  Other answers and ends are in test_verbs_answer.c.
 */
#include "tests/unit/verbs_attempt_helper.h"

START_TEST(test_a1_a4_a7_a9_up)
{
	const struct rdma_conn_param *param;
	struct verbs_request h;

	c->rx_seq = 99;
	c->held = _i ? 700 : 70000;
	asked(PEER_PORT);
	param = &p->ev->param.conn;
	ck_assert_int_eq(verbs_request_check(param->private_data, param->private_data_len, &h), VERBS_OK);
	ck_assert_int_eq(h.ask, VERBS_CONNECT);
	ck_assert_mem_eq(&h.wanted, &c->id.peer, sizeof(h.wanted));
	ck_assert_uint_eq(h.rx_seq, 99);
	ck_assert_uint_eq(h.held, _i ? 700 : UINT16_MAX);
	ck_assert_uint_eq(h.listener, verbs_cm.port);
	ck_assert_int_eq(h.credits > 0, world_ep(c)->dev->caps.credits);
	answer_with(VERBS_OK, true);
	ck_assert_uint_eq(c->ups, 1);
	ck_assert_uint_eq(c->there.acked, 17);
	ck_assert_uint_eq(c->there.all, 20);
	ck_assert_uint_eq(world_ep(c)->frame, 2048);
	ck_assert_uint_eq(c->downs, 0);
}
END_TEST

static void asked_with(struct peer *by, uint8_t tos)
{
	const struct rdma_conn_param *param;
	struct verbs_request h;

	peer_event(by, RDMA_CM_EVENT_CONNECT_REQUEST);
	param = &by->ev->param.conn;
	ck_assert_int_eq(verbs_request_check(param->private_data, param->private_data_len, &h), VERBS_OK);
	ck_assert_uint_eq(h.tos, tos);
	ck_assert_int_eq(mock_id_tos(world_ep(c)->cm), tos ? tos : -1);
	ck_assert_int_eq(mock_id_ack_timeout(world_ep(c)->cm), 16);
}

/*
 * The type of service is rdma_cm's as well as RDS's, on every id of the attempt.  A silent peer is
 * given up sooner than rdma_cm would.
 */
START_TEST(test_a1_a13_type_of_service)
{
	static const uint8_t tos[] = {0, 4, 255};
	struct verbs_answer a;
	struct peer other;

	c->tos = tos[_i];
	peer_init(&other, 1);
	peer_listen(&other, THEM, (uint16_t)rds_options()->cm_port);
	peer_listen(p, THEM, PEER_PORT + 1);
	ck_assert_int_eq(dial(0), 0);
	world_run();
	asked_with(&other, tos[_i]);
	world_answer(&a, VERBS_REDIRECT);
	a.listener = PEER_PORT + 1;
	verbs_answer_pack(&a, &a);
	peer_reject(&other, &a, sizeof(a));
	world_run();
	asked_with(p, tos[_i]);
	answer_with(VERBS_OK, true);
	ck_assert_uint_eq(c->ups, 1);
	peer_end(&other);
}
END_TEST

START_TEST(test_a2_rendezvous_first)
{
	peer_listen(p, THEM, (uint16_t)rds_options()->cm_port);
	ck_assert_int_eq(dial(0), 0);
	world_run();
	peer_event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
	answer_with(VERBS_OK, true);
	ck_assert_uint_eq(c->ups, 1);
}
END_TEST

/* What fails before anything was sent leaves nothing. */
START_TEST(test_a3_cannot_begin)
{
	static const enum mock_fn fns[] = {MOCK_rdma_create_id, MOCK_rdma_resolve_addr};

	mock_fail(fns[_i], 1, ENOMEM);
	ck_assert_int_eq(dial(PEER_PORT), -ENOMEM);
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_uint_eq(c->downs, 0);
}
END_TEST

START_TEST(test_a5_a8_step_fails)
{
	static const struct {
		enum mock_fn fn;
		int err;
	} steps[] = {
		{MOCK_rdma_resolve_route, ENOMEM},
		{MOCK_rdma_create_qp, EMFILE},
		{MOCK_rdma_connect, ENOMEM},
	};

	peer_listen(p, THEM, PEER_PORT);
	mock_fail(steps[_i].fn, 1, steps[_i].err);
	ck_assert_int_eq(dial(PEER_PORT), 0);
	world_run();
	is_down(-steps[_i].err, false);
}
END_TEST

/* Where they are counted: as many buffers are promised already as there may be. */
START_TEST(test_a8_no_credits_to_give)
{
	struct verbs_dev *dev = world_dev();

	peer_listen(p, THEM, PEER_PORT);
	dev->small_reserved += 100 * dev->base;
	ck_assert_int_eq(dial(PEER_PORT), 0);
	world_run();
	dev->small_reserved -= 100 * dev->base;
	if (dev->caps.credits) {
		is_down(-ENOBUFS, false);
		ck_assert(!peer_try_event(p)); /* it was not even asked */
		return;
	}
	peer_event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
	answer_with(VERBS_OK, true);
	ck_assert_uint_eq(c->ups, 1);
}
END_TEST

/* As many credits as a queue can have, and more. */
START_TEST(test_a9_credits)
{
	static const uint16_t credits[] = {VERBS_CREDITS(255, 1), VERBS_CREDITS(255, 2), VERBS_CREDITS(255, 255)};
	struct verbs_answer a;

	asked(PEER_PORT);
	world_answer(&a, VERBS_OK);
	a.credits = credits[_i];
	verbs_answer_pack(&a, &a);
	peer_accept(p, &a, sizeof(a), 8);
	world_run();
	if (_i)
		is_down(-EPROTO, false);
	else
		ck_assert_uint_eq(c->ups, 1);
}
END_TEST

/* A second device cannot be made: no connection from its address. */
START_TEST(test_a5_no_device)
{
	struct rds_procid them = world_peer_id();

	mock_fail(MOCK_ibv_alloc_pd, 1, ENOMEM);
	ck_assert_int_eq(world_connect(c, US2, THEM, PEER_PORT, &them), 0);
	world_run();
	is_down(-ENOMEM, false);
}
END_TEST

START_TEST(test_a6_no_way)
{
	mock_cm_hold(true);
	ck_assert_int_eq(dial(PEER_PORT), 0);
	world_cm_next((unsigned)_i);
	mock_cm_hold(false);
	world.ours->cut = true;
	mock_timeout();
	world_run();
	is_down(-ETIMEDOUT, false);
}
END_TEST

START_TEST(test_a6_nobody_there)
{
	struct rds_procid them = world_peer_id();

	ck_assert_int_eq(world_connect(c, US, "10.9.9.9", PEER_PORT, &them), 0);
	world_run();
	is_down(-EHOSTUNREACH, false);
}
END_TEST

/* A device with less inline than is asked for is asked for less. */
START_TEST(test_a7_inline)
{
	world.ours->max_inline = 40;
	asked(PEER_PORT);
	answer_with(VERBS_OK, true);
	ck_assert_uint_eq(c->ups, 1);
	ck_assert_uint_le(world_ep(c)->max_inline, 40);
}
END_TEST

/*
 * The n-th call that can fail does.  The engine hears of it once, and nothing is left (world_end).
 */
START_TEST(test_any_step_fails)
{
	unsigned n;

	peer_listen(p, THEM, PEER_PORT);
	for (n = 1;; n++) {
		mock_fail_any(n, _i ? ENOMEM : EINVAL);
		if (dial(PEER_PORT)) {
			ck_assert(mock_fail_hit());
			continue;
		}
		world_run();
		if (!mock_fail_hit())
			break;
		if (!c->downs) { /* not worth an attempt: options, other inline */
			peer_event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
			rejected(VERBS_AGAIN, 0);
		} else if (peer_try_event(p)) {
			p->id = p->ev->id;
			peer_drop_id(p);
		}
		ck_assert_uint_eq(c->downs, 1);
		c->downs = 0;
		world_pass(2000 * MS);
		ck_assert_ptr_null(verbs_eps.all);
	}
	mock_fail_any(0, 0);
	ck_assert_uint_gt(n, 4);
	peer_event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
	answer_with(VERBS_OK, true);
	ck_assert_uint_eq(c->ups, 1);
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_a1_a4_a7_a9_up, 0, 2);
	tcase_add_loop_test(t, test_a1_a13_type_of_service, 0, 3);
	tcase_add_test(t, test_a2_rendezvous_first);
	tcase_add_loop_test(t, test_a3_cannot_begin, 0, 2);
	tcase_add_loop_test(t, test_a5_a8_step_fails, 0, 3);
	tcase_add_test(t, test_a5_no_device);
	tcase_add_test(t, test_a8_no_credits_to_give);
	tcase_add_loop_test(t, test_a9_credits, 0, 3);
	tcase_add_loop_test(t, test_a6_no_way, 0, 2);
	tcase_add_test(t, test_a6_nobody_there);
	tcase_add_test(t, test_a7_inline);
	tcase_add_loop_test(t, test_any_step_fails, 0, 2);
}

int main(void)
{
	Suite *s = suite_create("verbs_attempt");

	tests(world_case(s, "ib", world_ib));
	tests(world_case(s, "iwarp", world_iwarp));
	return suite_run(s);
}
