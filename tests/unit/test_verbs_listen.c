/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_listen.c - a peer asks for a connection (engine/transport/verbs/ep/accept.c): rows R1
 * to R18 of docs/verbs-states.md.
 */
#include <stdio.h>
#include <string.h>

#include "tests/mock/world.h"

static struct world_conn *const c = &world.conn[1]; /* world.next */
static struct peer *const p = &world.peer;

static bool speaks_first(void)
{
	return world.ours->mode == MOCK_IWARP;
}

static struct verbs_request hello(void)
{
	struct verbs_request h;

	world_hello(&h, VERBS_CONNECT);
	h.credits = VERBS_CREDITS(0, 20);
	h.rx_seq = 33;
	h.held = 4;
	return h;
}

static void ask(void)
{
	struct verbs_request h = hello();

	world_peer_asks(&h, US, verbs_cm.port);
}

static void is_refused(enum verbs_status status, int err)
{
	struct verbs_answer a = world_answer_in(peer_event(p, RDMA_CM_EVENT_REJECTED));

	ck_assert_int_eq(a.status, status);
	if (status == VERBS_REFUSED)
		ck_assert_int_eq(a.error, err);
	peer_drop_id(p);
	world_run();
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_uint_eq(c->ups + c->downs, 0);
}

START_TEST(test_r1_nonsense)
{
	struct verbs_request h = hello(), wire;
	uint8_t len = sizeof(h);

	switch (_i) {
	case 0:
		len = 0;
		break;
	case 1:
		len = 20;
		break;
	case 2:
		h.magic++;
		break;
	case 3:
		h.version_min = h.version_max + 1;
		break;
	case 4:
		memset(&h.self, 0, sizeof(h.self));
		break;
	case 5:
		h.listener = 0;
		break;
	case 6:
		h.ask = 77;
		break;
	case 7:
		memset(&h.wanted, 0, sizeof(h.wanted));
		break;
	case 8:
		h.frame = 0;
		break;
	}
	verbs_request_pack(&h, &wire);
	peer_connect(p, THEM, US, verbs_cm.port, &wire, len);
	world_run();
	is_refused(VERBS_REFUSED, EPROTO);
	ck_assert_uint_eq(world.accepts, 0);
}
END_TEST

/* What only iWARP needs: missing, cut short, too small, nowhere, beyond the end. */
START_TEST(test_r1_window)
{
	p->window = PEER_NO_WINDOW + _i;
	ask();
	if (world.ours->mode == MOCK_IB) {
		peer_event(p, RDMA_CM_EVENT_ESTABLISHED);
		return;
	}
	is_refused(VERBS_REFUSED, EPROTO);
	ck_assert_uint_eq(world.accepts, 0);
}
END_TEST

START_TEST(test_r2_versions)
{
	struct verbs_request h = hello();

	h.version_min = h.version_max = VERBS_VERSION_MAX + 1;
	world_peer_asks(&h, US, verbs_cm.port);
	is_refused(VERBS_NO_VERSION, EPROTO);
	h.version_min = VERBS_VERSION_MIN;
	world_peer_asks(&h, US, verbs_cm.port);
	peer_event(p, RDMA_CM_EVENT_ESTABLISHED);
}
END_TEST

/*
 * R1, R2: the log line tells what came, with all that is needed to mend it.  For a request that is
 * not RDS's it tells only that.
 */
START_TEST(test_r1_r2_lines)
{
	struct verbs_request h = hello();
	char line[100];

	world_listen();
	h.version_min = VERBS_VERSION_MAX + 4;
	h.version_max = VERBS_VERSION_MAX + 5;
	if (_i)
		h.magic++;
	world_peer_asks(&h, US, verbs_cm.port);
	is_refused(_i ? VERBS_REFUSED : VERBS_NO_VERSION, EPROTO);
	snprintf(line, sizeof(line), "at " THEM " speaks versions %u to %u of", VERBS_VERSION_MAX + 4,
		 VERBS_VERSION_MAX + 5);
	ck_assert_int_eq(strstr(world_said(), line) == NULL, _i);
	ck_assert_int_eq(strstr(world_said(), "a request that is not RDS's came") != NULL, _i);
	snprintf(line, sizeof(line), "this library %u to %u:", VERBS_VERSION_MIN, VERBS_VERSION_MAX);
	ck_assert_int_eq(strstr(world_said(), line) == NULL, _i);
}
END_TEST

/* ... and the answer says which we have. */
START_TEST(test_r2_answer)
{
	struct verbs_request h = hello();
	struct verbs_answer a;

	h.version_min = h.version_max = VERBS_VERSION_MIN - 1;
	world_peer_asks(&h, US, verbs_cm.port);
	a = world_answer_in(peer_event(p, RDMA_CM_EVENT_REJECTED));
	ck_assert_int_eq(a.status, VERBS_NO_VERSION);
	ck_assert_uint_eq(a.version_min, VERBS_VERSION_MIN);
	ck_assert_uint_eq(a.version, VERBS_VERSION_MAX);
}
END_TEST

START_TEST(test_r3_somebody_else)
{
	struct verbs_request h = hello();

	h.wanted.b[5]++;
	world_peer_asks(&h, US, verbs_cm.port);
	is_refused(VERBS_GONE, 0);
	ck_assert_uint_eq(world.accepts, 0);
}
END_TEST

/*
 * A request over a new device, and the n-th call fails: nothing is left of it, and the engine hears
 * of no endpoint that could not be made.
 */
START_TEST(test_r4_no_means)
{
	struct verbs_request h = hello(), wire;
	struct verbs_answer a;
	unsigned n, refused = 0;

	verbs_request_pack(&h, &wire);
	for (n = 1;; n++) {
		peer_connect(p, THEM, US2, verbs_cm.port, &wire, sizeof(wire));
		mock_fail_any(n, _i ? ENOMEM : EINVAL);
		world_run();
		if (!mock_fail_hit())
			break;
		mock_fail_any(0, 0);
		ck_assert_ptr_nonnull(peer_try_event(p));
		if (!world.accepts) {
			ck_assert_int_eq(p->ev->event, RDMA_CM_EVENT_REJECTED);
			a = world_answer_in(p->ev);
			ck_assert_int_eq(a.status, _i || a.error == ENOBUFS ? VERBS_AGAIN : VERBS_REFUSED);
			refused++;
		}
		peer_drop_id(p);
		world_pass(15000 * MS);
		ck_assert_ptr_null(verbs_eps.all);
		world_drop_device(world.ours2);
		world.accepts = 0;
	}
	mock_fail_any(0, 0);
	ck_assert_uint_gt(refused, 5);
	peer_event(p, RDMA_CM_EVENT_ESTABLISHED);
}
END_TEST

START_TEST(test_r5_no_buffers_to_promise)
{
	struct verbs_dev *dev = atomic_load(&verbs_devs.all);

	dev->small_reserved += 100 * dev->base; /* more than it can grow to */
	ask();
	if (dev->caps.credits)
		is_refused(VERBS_AGAIN, ENOBUFS);
	else
		peer_event(p, RDMA_CM_EVENT_ESTABLISHED);
	dev->small_reserved -= 100 * dev->base;
}
END_TEST

/* ... of which one line is enough, however many are refused. */
START_TEST(test_r5_line)
{
	struct verbs_dev *dev = atomic_load(&verbs_devs.all);
	const char *line;
	unsigned i;

	if (!dev->caps.credits)
		return;
	world_listen();
	dev->small_reserved += 100 * dev->base;
	for (i = 0; i < 3; i++) {
		ask();
		is_refused(VERBS_AGAIN, ENOBUFS);
		world_pass(70000 * MS);
	}
	dev->small_reserved -= 100 * dev->base;
	line = strstr(world_said(),
		      "ours: no receive buffers for another connection: it is refused. RDS_PRELOAD_VERBS_BUFFERS ");
	ck_assert_ptr_nonnull(line);
	ck_assert_ptr_null(strstr(line + 1, "ours: no receive buffers"));
}
END_TEST

static const struct {
	int err;
	enum verbs_status status;
} noes[] = {
	{-EALREADY, VERBS_AGAIN}, {-ENOMEM, VERBS_AGAIN},	  {-EMFILE, VERBS_AGAIN},
	{-ENFILE, VERBS_AGAIN},	  {-ECONNREFUSED, VERBS_REFUSED}, {-EACCES, VERBS_REFUSED},
};

START_TEST(test_r6_to_r8_engine_says_no)
{
	world.accept_err = noes[_i].err;
	ask();
	ck_assert_uint_eq(world.accepts, 1);
	is_refused(noes[_i].status, -noes[_i].err);
}
END_TEST

START_TEST(test_r9_accepted)
{
	struct rds_procid them = world_peer_id();
	struct verbs_answer a;

	c->rx_seq = 55;
	c->held = 6;
	ask();
	a = world_answer_in(peer_event(p, RDMA_CM_EVENT_ESTABLISHED));
	ck_assert_int_eq(a.status, VERBS_OK);
	ck_assert_uint_eq(a.rx_seq, 55);
	ck_assert_uint_eq(a.held, 6);
	ck_assert_int_eq(a.credits > 0, speaks_first());
	ck_assert_mem_eq(&a.self, registry_self(rds_node_registry), sizeof(a.self));
	ck_assert_uint_eq(world.asked_there.acked, 33);
	ck_assert_uint_eq(world.asked_there.all, 37);
	ck_assert_mem_eq(&world.asked.peer, &them, sizeof(them));
	ck_assert_uint_eq(world.asked.peer_port, PEER_PORT);
	ck_assert_uint_eq(world.asked.peer_slot, RDS_SLOT_REMOTE);
	ck_assert_uint_eq(world.asked.laddr.s6_addr[15], 1);
	ck_assert_uint_eq(world.asked.faddr.s6_addr[14], 1);
}
END_TEST

START_TEST(test_r10_accept_fails)
{
	mock_fail(MOCK_rdma_accept, 1, ENOMEM);
	ask();
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, -ENOMEM);
	world_pass(2000 * MS);
	peer_event(p, RDMA_CM_EVENT_REJECTED);
}
END_TEST

/* R11, R12, R14: up with ESTABLISHED, or with the first frame after it. */
START_TEST(test_r11_r12_r14_up)
{
	ask();
	peer_event(p, RDMA_CM_EVENT_ESTABLISHED);
	world_run();
	ck_assert_uint_eq(c->ups, !speaks_first());
	world_peer_sends(1, 500, 0);
	world_run();
	ck_assert_uint_eq(c->ups, 1);
	ck_assert_uint_eq(c->there.acked, 33);
	ck_assert_uint_eq(c->there.all, 37);
	world_got_one(c, 1);
}
END_TEST

/* R13, R15: the first frame is here before rdma_cm has said a word, or the word is lost. */
START_TEST(test_r13_r15_frame_first)
{
	ask();
	mock_cm_hold(true);
	ck_assert_ptr_nonnull(peer_try_event(p));
	ck_assert_int_eq(p->ev->event, RDMA_CM_EVENT_ESTABLISHED);
	if (_i & 1)
		ck_assert(mock_cm_drop((unsigned)mock_cm_find(RDMA_CM_EVENT_ESTABLISHED)));
	world_peer_sends(1, 500, 0);
	world_peer_sends(2, 10, 0);
	world_run();
	ck_assert_uint_eq(c->ups, 0);
	ck_assert_uint_eq(c->nmsgs, 0);
	world.later = (unsigned)_i / 2; /* no memory for them then */
	mock_cm_hold(false);
	world_pass(400 * MS);
	ck_assert_uint_eq(c->ups, 1);
	ck_assert_uint_eq(c->nmsgs, 2);
	ck_assert_uint_eq(c->msg[0].seq, 1);
	ck_assert_uint_eq(c->msg[1].seq, 2);
}
END_TEST

/*
 * R13a: rdma_cm is told that the connection is up, but only after its own event has had time to
 * come.
 */
START_TEST(test_r13a_says_so_later)
{
	ask();
	mock_cm_hold(true);
	ck_assert_ptr_nonnull(peer_try_event(p));
	ck_assert_int_eq(p->ev->event, RDMA_CM_EVENT_ESTABLISHED);
	if (_i)
		ck_assert(mock_cm_drop((unsigned)mock_cm_find(RDMA_CM_EVENT_ESTABLISHED)));
	world_peer_sends(1, 500, 0);
	world_run();
	mock_cm_hold(false);
	world_pass(200 * MS);
	ck_assert_uint_eq(c->ups, !_i);
	world_pass(100 * MS);
	ck_assert_uint_eq(c->ups, 1);
}
END_TEST

/* Accepted, and no word about it comes through. */
static void ask_held(struct peer *q)
{
	struct verbs_request h = hello(), wire;

	verbs_request_pack(&h, &wire);
	mock_cm_hold(false);
	peer_connect(q, THEM, US, verbs_cm.port, &wire, sizeof(wire));
	mock_cm_hold(true);
	ck_assert(mock_cm_pick((unsigned)mock_cm_find(RDMA_CM_EVENT_CONNECT_REQUEST)));
	world_run();
}

START_TEST(test_r16_events)
{
	static const struct {
		enum rdma_cm_event_type type;
		int status, why;
	} events[] = {
		{RDMA_CM_EVENT_REJECTED, 28, -ECONNREFUSED},	 {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, -ETIMEDOUT},
		{RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, -EINVAL}, {RDMA_CM_EVENT_DISCONNECTED, 0, -ECONNRESET},
		{RDMA_CM_EVENT_ADDR_CHANGE, 0, -EADDRNOTAVAIL},
	};

	ask_held(p);
	mock_cm_inject(verbs_eps.all->cm, events[_i].type, events[_i].status);
	world_run();
	ck_assert_uint_eq(c->ups, 0);
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, events[_i].why);
	mock_cm_hold(false);
}
END_TEST

START_TEST(test_r17_limit)
{
	ask_held(p);
	world_pass(9900 * MS);
	ck_assert_uint_eq(c->downs, 0);
	world_pass(200 * MS);
	ck_assert_uint_eq(c->ups, 0);
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, -ETIMEDOUT);
	mock_cm_hold(false);
}
END_TEST

/* The peer has given its first request up, and asks again. */
START_TEST(test_r18_again)
{
	struct peer again;

	ask_held(p);
	peer_init(&again, 1);
	ask_held(&again);
	ck_assert_uint_eq(world.accepts, 2);
	ck_assert_uint_eq(c->downs, 0);
	mock_cm_hold(false);
	world_pass(2000 * MS);
	peer_event(&again, RDMA_CM_EVENT_ESTABLISHED);
	world_run();
	ck_assert_ptr_nonnull(verbs_eps.all);
	ck_assert_ptr_null(verbs_eps.all->next);
	ck_assert_uint_eq(c->ups, !speaks_first());
	peer_end(&again);
	world_pass(2000 * MS);
}
END_TEST

static unsigned acked_by_then;

static void my_turn(struct rds_timer *tm)
{
	(void)tm;
	acked_by_then = mock_calls(MOCK_rdma_ack_cm_event);
}

/* Requests that come faster than they are answered do not keep the helper from its timers. */
START_TEST(test_flood)
{
	struct rds_timer tm = {.fn = my_turn};
	unsigned i, acked = mock_calls(MOCK_rdma_ack_cm_event);

	for (i = 0; i < 1000; i++)
		mock_cm_inject(verbs_cm.listener[0], RDMA_CM_EVENT_ADDR_CHANGE, 0);
	rds_timer_set(&tm, atomic_load(&mock_now));
	world_run();
	ck_assert_uint_eq(mock_calls(MOCK_rdma_ack_cm_event), acked + 1000);
	ck_assert_uint_gt(acked_by_then, acked);
	ck_assert_uint_lt(acked_by_then, acked + 500);
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_r1_nonsense, 0, 9);
	tcase_add_loop_test(t, test_r1_window, 0, 5);
	tcase_add_test(t, test_r2_versions);
	tcase_add_loop_test(t, test_r1_r2_lines, 0, 2);
	tcase_add_test(t, test_r2_answer);
	tcase_add_test(t, test_r3_somebody_else);
	tcase_add_loop_test(t, test_r4_no_means, 0, 2);
	tcase_add_test(t, test_r5_no_buffers_to_promise);
	tcase_add_test(t, test_r5_line);
	tcase_add_loop_test(t, test_r6_to_r8_engine_says_no, 0, (int)(sizeof(noes) / sizeof(noes[0])));
	tcase_add_test(t, test_r9_accepted);
	tcase_add_test(t, test_r10_accept_fails);
	tcase_add_test(t, test_r11_r12_r14_up);
	tcase_add_loop_test(t, test_r16_events, 0, 5);
	tcase_add_test(t, test_r17_limit);
	tcase_add_test(t, test_r18_again);
	tcase_add_test(t, test_flood);
}

int main(void)
{
	Suite *s = suite_create("verbs_listen");
	TCase *t = world_case(s, "ib", world_ib);

	tests(t);
	tcase_add_loop_test(t, test_r13_r15_frame_first, 0, 6); /* on iWARP the two come together */
	tcase_add_loop_test(t, test_r13a_says_so_later, 0, 2);
	tests(world_case(s, "iwarp", world_iwarp));
	return suite_run(s);
}
