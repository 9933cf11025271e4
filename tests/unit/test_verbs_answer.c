/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_answer.c - answers that end an attempt, or send it elsewhere, and other ends of it
 * (engine/transport/verbs/ep/connect.c): rows A10 to A25 of docs/verbs-states.md.  An attempt that
 * succeeds is in test_verbs_attempt.c.
 */
#include "tests/unit/verbs_attempt_helper.h"

START_TEST(test_a10_wrong_answer)
{
	asked(PEER_PORT);
	if (_i == 0)
		answer_with(VERBS_OK, false);
	else if (_i == 1)
		answer_with(VERBS_AGAIN, true);
	else
		peer_accept(p, "what?", 5, 0);
	world_run();
	is_down(-EPROTO, false);
}
END_TEST

START_TEST(test_a10_window)
{
	asked(PEER_PORT);
	p->window = PEER_NO_WINDOW + _i;
	answer_with(VERBS_OK, true);
	world_run();
	if (world.ours->mode == MOCK_IB)
		ck_assert_uint_eq(c->ups, 1);
	else
		is_down(-EPROTO, false);
}
END_TEST

/* Nobody listens at the port that we knew: the rendezvous tells, or there is none, either. */
START_TEST(test_a11_a13_sent_on)
{
	struct verbs_answer a;
	struct peer other;

	peer_init(&other, 1);
	peer_listen(&other, THEM, (uint16_t)rds_options()->cm_port);
	peer_listen(p, THEM, PEER_PORT + 1);
	ck_assert_int_eq(dial(PEER_PORT), 0); /* nobody there */
	world_run();
	peer_event(&other, RDMA_CM_EVENT_CONNECT_REQUEST);
	ck_assert_uint_eq(c->downs, 0);
	world_answer(&a, VERBS_REDIRECT);
	a.listener = PEER_PORT + 1;
	verbs_answer_pack(&a, &a);
	peer_reject(&other, &a, sizeof(a));
	world_run();
	peer_event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
	answer_with(VERBS_OK, true);
	ck_assert_uint_eq(c->ups, 1);
	peer_end(&other);
}
END_TEST

START_TEST(test_a12_nobody_at_all)
{
	ck_assert_int_eq(dial(_i ? PEER_PORT : 0), 0);
	world_run();
	is_down(-ECONNREFUSED, false);
}
END_TEST

/* To another process than the one we want; to no port; a second time. */
START_TEST(test_a14_no_circles)
{
	struct verbs_answer a;

	asked((uint16_t)rds_options()->cm_port);
	world_answer(&a, VERBS_REDIRECT);
	if (_i == 0)
		a.self.b[0]++;
	if (_i == 1)
		a.listener = 0;
	if (_i == 2)
		a.listener = (uint16_t)rds_options()->cm_port;
	verbs_answer_pack(&a, &a);
	peer_reject(p, &a, sizeof(a));
	world_run();
	if (_i == 2) {
		peer_event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
		peer_reject(p, &a, sizeof(a));
		world_run();
	}
	is_down(-ECONNREFUSED, false);
}
END_TEST

static const struct {
	enum verbs_status status;
	int err, why;
	bool gone;
} refusals[] = {
	{VERBS_GONE, 0, -ECONNREFUSED, true},
	{VERBS_AGAIN, 0, -EALREADY, false},
	{VERBS_AGAIN, EALREADY, -EALREADY, false},
	{VERBS_AGAIN, ENOBUFS, -ENOBUFS, false},
	{VERBS_NO_VERSION, 0, -EPROTONOSUPPORT, false},
	{VERBS_REFUSED, EACCES, -EACCES, false},
	{VERBS_REFUSED, 0, -ECONNREFUSED, false},
	{VERBS_REFUSED, EALREADY, -ECONNREFUSED, false},
	{VERBS_OK, 0, -EPROTO, false},
	{VERBS_NO_PORT, 0, -EPROTO, false},
};

START_TEST(test_a15_to_a19_refused)
{
	asked(PEER_PORT);
	rejected(refusals[_i].status, refusals[_i].err);
	is_down(refusals[_i].why, refusals[_i].gone);
}
END_TEST

/* Whoever reads the log knows which versions both sides have. */
START_TEST(test_a17_versions)
{
	struct verbs_answer a;
	char line[100];

	world_listen();
	asked(PEER_PORT);
	world_answer(&a, VERBS_NO_VERSION);
	a.version_min = VERBS_VERSION_MAX + 2;
	a.version = VERBS_VERSION_MAX + 3;
	verbs_answer_pack(&a, &a);
	peer_reject(p, &a, sizeof(a));
	world_run();
	is_down(-EPROTONOSUPPORT, false);
	snprintf(line, sizeof(line), "at " THEM " speaks versions %u to %u of", VERBS_VERSION_MAX + 2,
		 VERBS_VERSION_MAX + 3);
	ck_assert_msg(strstr(world_said(), line), "%s", world_said());
	snprintf(line, sizeof(line), "this library %u to %u:", VERBS_VERSION_MIN, VERBS_VERSION_MAX);
	ck_assert_msg(strstr(world_said(), line), "%s", world_said());
}
END_TEST

/* A16a: the log says once what the peer lacks, or its messages would wait without a reason. */
START_TEST(test_a16a_line)
{
	unsigned i;

	world_listen();
	for (i = 0; i < 2; i++) {
		if (i) {
			ck_assert_int_eq(dial(PEER_PORT), 0);
			world_run();
			peer_event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
		} else {
			asked(PEER_PORT);
		}
		rejected(VERBS_AGAIN, ENOBUFS);
		ck_assert_int_eq(c->why, -ENOBUFS);
		peer_drop_id(p);
		world_pass(2000 * MS);
	}
	ck_assert_ptr_nonnull(
		strstr(world_said(), "a process at " THEM " has no resources for a connection (No buffer space"));
	ck_assert_ptr_null(strstr(strstr(world_said(), "no resources") + 1, "no resources"));
}
END_TEST

START_TEST(test_a20_a22_a23_events)
{
	static const struct {
		enum rdma_cm_event_type type;
		int status, why;
	} events[] = {
		{RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, -ETIMEDOUT},
		{RDMA_CM_EVENT_UNREACHABLE, 0, -EHOSTUNREACH},
		{RDMA_CM_EVENT_UNREACHABLE, -EALREADY, -EHOSTUNREACH},
		{RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, -EINVAL},
		{RDMA_CM_EVENT_CONNECT_ERROR, 7, -ECONNABORTED},
		{RDMA_CM_EVENT_ADDR_CHANGE, 0, -EADDRNOTAVAIL},
		{RDMA_CM_EVENT_DISCONNECTED, 0, -ECONNRESET},
		{RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, -ECONNRESET},
		{RDMA_CM_EVENT_DEVICE_REMOVAL, 0, -ENODEV},
	};
	int e = _i / 3;

	dial_until((unsigned)_i % 3);
	mock_cm_inject(world_ep(c)->cm, events[e].type, events[e].status);
	world_run();
	is_down(events[e].why, false);
	mock_cm_hold(false);
	world_run();
	peer_try_event(p); /* of the request that it got may be left */
	if (p->ev && p->ev->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		p->id = p->ev->id;
}
END_TEST

static void limit(unsigned stage, unsigned factor)
{
	dial_until(stage);
	world_pass(factor * 5900 * MS);
	ck_assert_uint_eq(c->downs, 0);
	world_pass(factor * 4200 * MS);
	is_down(-ETIMEDOUT, false);
	mock_cm_hold(false);
	world_run();
	if (peer_try_event(p))
		p->id = p->ev->id;
}

START_TEST(test_a21_limit)
{
	limit((unsigned)_i, 1);
}
END_TEST

START_TEST(test_a21_patience)
{
	setenv("RDS_PRELOAD_PATIENCE", "4", 1);
	rds_options_reset();
	limit((unsigned)_i, 4);
}
END_TEST

/*
 * The peer asks while our request has no answer.  Only after a while does that mean that our
 * request was lost.
 */
START_TEST(test_r6a_crossed)
{
	struct verbs_request h, wire;
	struct peer second;

	asked(PEER_PORT);
	world_pass(_i ? 2100 * MS : 1900 * MS);
	world.accept_err = -EALREADY;
	world_hello(&h, VERBS_CONNECT);
	h.credits = VERBS_CREDITS(0, 20);
	verbs_request_pack(&h, &wire);
	peer_init(&second, 1);
	peer_connect(&second, THEM, US, verbs_cm.port, &wire, sizeof(wire));
	world_run();
	ck_assert_int_eq(world_answer_in(peer_event(&second, RDMA_CM_EVENT_REJECTED)).status, VERBS_AGAIN);
	peer_end(&second);
	world.accept_err = 0;
	ck_assert_uint_eq(c->downs, _i);
	if (_i)
		is_down(-ETIMEDOUT, false);
	if (_i && world.ours->mode == MOCK_IB)
		p->id = p->ev->id; /* ours has been taken back */
	else
		rejected(VERBS_AGAIN, 0);
	ck_assert_uint_eq(c->downs, 1);
}
END_TEST

START_TEST(test_a22_removed)
{
	peer_listen(p, THEM, PEER_PORT);
	mock_cm_hold(true);
	ck_assert_int_eq(dial(PEER_PORT), 0);
	world_cm_next(1);
	mock_dev_remove(world.ours);
	ck_assert(mock_cm_drop((unsigned)mock_cm_find(RDMA_CM_EVENT_ROUTE_RESOLVED)));
	mock_cm_hold(false);
	world_run();
	is_down(-ENODEV, false);
}
END_TEST

/* Closed by the engine at any step, then everything that was under way comes. */
START_TEST(test_a24_closed)
{
	dial_until((unsigned)_i);
	world_close(c);
	mock_cm_hold(false);
	world_pass(2000 * MS);
	if (peer_try_event(p)) {
		ck_assert_int_eq(p->ev->event, RDMA_CM_EVENT_CONNECT_REQUEST);
		p->id = p->ev->id;
		peer_drop_id(p);
	}
	world_pass(2000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_uint_eq(c->ups + c->downs, 0);
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_a10_wrong_answer, 0, 3);
	tcase_add_loop_test(t, test_a10_window, 0, 5);
	tcase_add_test(t, test_a11_a13_sent_on);
	tcase_add_loop_test(t, test_a12_nobody_at_all, 0, 2);
	tcase_add_loop_test(t, test_a14_no_circles, 0, 3);
	tcase_add_loop_test(t, test_a15_to_a19_refused, 0, (int)(sizeof(refusals) / sizeof(refusals[0])));
	tcase_add_test(t, test_a16a_line);
	tcase_add_test(t, test_a17_versions);
	tcase_add_loop_test(t, test_a20_a22_a23_events, 0, 27);
	tcase_add_loop_test(t, test_a21_limit, 0, 3);
	tcase_add_loop_test(t, test_a21_patience, 0, 3);
	tcase_add_loop_test(t, test_r6a_crossed, 0, 2);
	tcase_add_test(t, test_a22_removed);
	tcase_add_loop_test(t, test_a24_closed, 0, 4);
}

int main(void)
{
	Suite *s = suite_create("verbs_answer");

	tests(world_case(s, "ib", world_ib));
	tests(world_case(s, "iwarp", world_iwarp));
	return suite_run(s);
}
