/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_end.c - how endpoints end (engine/transport/verbs/ep/endpoint.c, keepalive.c): rows E1
 * to E12 (E11 is in test_verbs_rendezvous.c) and C1 to C9 of docs/verbs-states.md.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/mock/world.h"

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];
static struct world_conn *const c = &world.conn[0]; /* with the scripted peer */
static struct peer *const p = &world.peer;

#define SIW 0x626d74

static void is_down(int why)
{
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, why);
	ck_assert(!c->gone);
}

static void nothing_left(void)
{
	world_pass(2000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
}

/* ---- down ---- */

static const struct {
	enum rdma_cm_event_type type;
	int status, why;
} events[] = {
	{RDMA_CM_EVENT_DISCONNECTED, 0, -ECONNRESET},	     {RDMA_CM_EVENT_ADDR_CHANGE, 0, -EADDRNOTAVAIL},
	{RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, -ECONNRESET},	     {RDMA_CM_EVENT_REJECTED, 28, -ECONNREFUSED},
	{RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, -ETIMEDOUT}, {RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL, -EINVAL},
	{RDMA_CM_EVENT_DEVICE_REMOVAL, 0, -ENODEV},
};
#define EVENTS ((int)(sizeof(events) / sizeof(events[0])))

/*
 * What had arrived is received, and what was sent can be sent again.  The second and third event
 * change nothing.
 */
START_TEST(test_e1_to_e5_events)
{
	world_pair();
	ck_assert_int_eq(world_send(b, 1000, 0), 0);
	ck_assert_int_eq(world_send(b, 100, 0), 0);
	while (mock_step())
		;
	mock_cm_inject(world_ep(a)->cm, events[_i].type, events[_i].status);
	mock_cm_inject(world_ep(a)->cm, RDMA_CM_EVENT_DISCONNECTED, 0);
	mock_cm_inject(world_ep(a)->cm, events[_i].type, events[_i].status);
	world_run();
	is_down(events[_i].why);
	ck_assert_uint_eq(a->nmsgs, b->tx_seq);
	world_close(b);
	nothing_left();
}
END_TEST

/* Broken, then an event before the helper's turn; or the engine closes it. */
START_TEST(test_e8_e10_broken_and)
{
	world_pair();
	rx_lock();
	verbs_ep_broken(world_ep(a), -EPROTO);
	rx_unlock();
	ck_assert_int_eq(world_send(a, 10, 0), -ENOTCONN);
	if (_i == 0)
		mock_cm_inject(world_ep(a)->cm, RDMA_CM_EVENT_DISCONNECTED, 0);
	else
		world_close(a);
	world_run();
	ck_assert_uint_eq(a->downs, _i != 1);
	world_close(b);
	nothing_left();
}
END_TEST

/* ---- silence ---- */

START_TEST(test_e9_probe)
{
	unsigned posts;

	world_join(c, 8, 8);
	world_pass(4900 * MS);
	posts = mock_calls(MOCK_ibv_post_send);
	world_pass(8000 * MS);
	ck_assert_uint_gt(mock_calls(MOCK_ibv_post_send), posts);
	ck_assert_uint_le(mock_calls(MOCK_ibv_post_send), posts + 3);
	ck_assert_uint_eq(c->downs, 0);
	world.theirs->cut = true;
	if (world.ours->mode == MOCK_IB) { /* the device notices */
		world_pass(20000 * MS);
		ck_assert_uint_le(mock_sends_waiting(world_ep(c)->qp), 1); /* one is enough */
		ck_assert_uint_eq(c->downs, 0);
		mock_timeout();
	} else { /* E9a: only this side does, for a quarter of an hour */
		world_pass(4000 * MS);
		ck_assert_uint_eq(c->downs, 0);
		world_pass(14000 * MS);
	}
	world_pass(2000 * MS);
	is_down(-ETIMEDOUT);
	nothing_left();
}
END_TEST

/* Where only a read will do: it brings what the peer has said may be read, and nothing less. */
START_TEST(test_e9_read)
{
	const unsigned char *window;
	unsigned char *got;

	if (world.ours->mode == MOCK_IB)
		return;
	p->window = _i ? PEER_WINDOW_WRONG : PEER_WINDOW;
	world_join(c, 8, 8);
	window = p->mem + (PEER_RECVS + PEER_SENDS - 1) * PEER_BUF;
	memset(p->mem + (PEER_RECVS + PEER_SENDS - 1) * PEER_BUF, 0x5a, 2 * VERBS_PROBE);
	got = world_dev()->probed->theirs;
	world_pass(12000 * MS);
	if (_i) {
		is_down(-ECONNRESET);
		return;
	}
	ck_assert_uint_eq(c->downs, 0);
	ck_assert_mem_eq(got, window, VERBS_PROBE);
	ck_assert_uint_eq(got[VERBS_PROBE], 0);
}
END_TEST

/*
 * This process is stopped with a probe under way.  Afterwards the helper finds its timers due
 * before it finds the answer.
 */
START_TEST(test_e9a_stopped)
{
	unsigned probes;

	world_join(c, 8, 8);
	while (!c->speak)
		world_tick(500 * MS);
	probes = mock_calls(MOCK_ibv_post_send);
	c->speak = false;
	verbs_ep_push(c->ep);
	ck_assert_uint_eq(mock_calls(MOCK_ibv_post_send), probes + 1);
	mock_run();
	world_tick(60000 * MS);
	world_pass(100 * MS);
	ck_assert_uint_eq(c->downs, 0);
}
END_TEST

/* Who is heard of is not asked. */
START_TEST(test_e9_no_probe)
{
	unsigned i, posts;

	world_joined_by(c, 16);
	world_peer_sends(1, 10, 0);
	world_run();
	ck_assert_uint_eq(c->ups, 1);
	posts = mock_calls(MOCK_ibv_post_send);
	for (i = 0; i < 20; i++) {
		world_peer_sends(i + 2, 10, 0);
		world_pass(1500 * MS);
		while (peer_poll(p, &(struct ibv_wc){0}))
			;
	}
	ck_assert_uint_le(mock_calls(MOCK_ibv_post_send) - posts, 20 + 2 + 3 * (world.ours->mode == MOCK_IWARP));
	ck_assert_uint_eq(c->nmsgs, 21);
}
END_TEST

START_TEST(test_e9_off)
{
	unsigned posts;

	world_join(c, 8, 8);
	world_run();
	posts = mock_calls(MOCK_ibv_post_send);
	world_pass(100000 * MS);
	ck_assert_uint_eq(mock_calls(MOCK_ibv_post_send), posts);
}
END_TEST

/* ---- closed ---- */

/* C2: destroyed when everything has come back; C3: or when it has had its time. */
START_TEST(test_c2_c3_drained)
{
	unsigned i, qps;

	world_pair();
	for (i = 0; i < 10; i++)
		ck_assert_int_eq(world_send(a, 100, 0), 0);
	qps = mock_count(MOCK_QP);
	if (_i == 1)
		world.ours->lose_flush = 1000;
	if (_i == 2) /* sent, without a completion: nothing of them will come back */
		world_run();
	world_close(a);
	world_pass(_i == 1 ? 900 * MS : 20 * MS);
	ck_assert_uint_eq(mock_count(MOCK_QP), qps - b->downs - (_i != 1));
	world_pass(200 * MS);
	ck_assert_uint_eq(mock_count(MOCK_QP), qps - b->downs - 1);
	world_close(b);
	nothing_left();
}
END_TEST

/*
 * C2: every connection begins with a congestion map.  Its memory is given back, wherever the map is
 * when the endpoint closes: the next connection uses the same.
 */
START_TEST(test_c2_maps)
{
	size_t registered = 0;
	unsigned i;

	for (i = 0; i < 40; i++) {
		world.conn[0] = world.conn[1] = (struct world_conn){0};
		world_pair();
		world_run();
		ck_assert_int_eq(world_send(a, VERBS_FRAME, RDS_FLAG_CONG_BITMAP), 0);
		if (_i == 1) /* on its way */
			mock_step();
		if (_i == 2) /* it was sent, and no thread has looked */
			while (mock_step())
				;
		if (_i == 3) /* a thread has, and it is in no hurry */
			world_look();
		if (_i == 4)
			world_run();
		world_close(a);
		world_close(b);
		nothing_left();
		if (i == 1)
			registered = world.ours->registered + world.ours2->registered;
		if (i > 1)
			ck_assert_uint_eq(world.ours->registered + world.ours2->registered, registered);
	}
}
END_TEST

/*
 * C4, C5, C6: iWARP cannot take a request back.  The id stays until an answer comes, whatever it
 * is.
 */
START_TEST(test_c4_to_c6_request_under_way)
{
	struct rds_procid them = world_peer_id();
	struct verbs_answer an;
	unsigned ids;

	peer_listen(p, THEM, PEER_PORT);
	ck_assert_int_eq(world_connect(c, US, THEM, PEER_PORT, &them), 0);
	world_run();
	peer_event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
	ids = mock_count(MOCK_ID);
	world_close(c);
	world_pass(60000 * MS);
	if (world.ours->mode == MOCK_IB) {
		ck_assert_uint_eq(mock_count(MOCK_ID), ids - 1);
		p->id = p->ev->id;
		return;
	}
	ck_assert_uint_eq(mock_count(MOCK_ID), ids);
	world_answer(&an, _i ? VERBS_AGAIN : VERBS_OK);
	verbs_answer_pack(&an, &an);
	if (_i)
		peer_reject(p, &an, sizeof(an));
	else
		peer_accept(p, &an, sizeof(an), 8);
	world_pass(2000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_uint_eq(c->ups + c->downs, 0);
}
END_TEST

/* C7: late events belong to no endpoint. */
START_TEST(test_c7_late_events)
{
	world_pair();
	world.keep_inplace = true;
	ck_assert_int_eq(world_send(b, 1000, 0), 0);
	world_run();
	world_close(a);
	mock_cm_inject(verbs_eps.all->cm, events[_i].type, events[_i].status);
	mock_cm_inject(verbs_eps.all->next->cm, events[_i].type, events[_i].status);
	world_run();
	ck_assert_uint_eq(a->downs, 0);
	world_close(b);
	world_pass(3000 * MS);
	world_release();
	nothing_left();
}
END_TEST

/*
 * C8: messages that the endpoint retains can be read until keep(false), messages in place until
 * release(); in either order.
 */
START_TEST(test_c8_kept)
{
	struct rds_hdr hdr = {.seq = 1, .len = 5000, .sport = 1, .dport = 2};
	static unsigned char bytes[5000];
	struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
	struct rds_wire_hdr w;
	struct rds_ep *ep;
	uint64_t pos;

	memset(bytes, 0x5b, sizeof(bytes));
	world_joined_by(c, 16);
	world.keep_inplace = true;
	world_peer_sends(1, VERBS_FRAME, 0);
	world_run();
	ep = c->ep;
	rds_wire_hdr_encode(&hdr, &w, false);
	ck_assert_int_eq(verbs_ep_send(ep, &w, &iov, sizeof(bytes), &pos), 0);
	verbs_ep_flush(ep, false);
	world_run();
	verbs_ep_keep(ep, true);
	world_close(c);
	world_pass(5000 * MS);
	ck_assert_mem_eq(verbs_ep_retained(ep, pos), bytes, sizeof(bytes));
	ck_assert_ptr_nonnull(verbs_eps.all);
	if (_i)
		world_release();
	world_run();
	ck_assert_mem_eq(verbs_ep_retained(ep, pos), bytes, sizeof(bytes));
	verbs_ep_keep(ep, false);
	world_run();
	ck_assert_int_eq(verbs_eps.all == NULL, _i);
	world_release();
	nothing_left();
}
END_TEST

/*
 * C9: the last message is given back while the helper is about to look at the endpoint for another
 * reason (E12).  Nothing is left that names the endpoint.
 */
START_TEST(test_c9_looked_at_meanwhile)
{
	struct verbs_ep *ep;

	world_joined_by(c, 16);
	world.keep_inplace = true;
	world_peer_sends(1, VERBS_FRAME, 0);
	world_run();
	ck_assert_uint_eq(world.ninplace, 1);
	ep = world_ep(c);
	world_close(c);
	world_pass(3000 * MS);
	ck_assert_ptr_eq(verbs_eps.all, ep);
	world_release();
	ck_assert(world_timer_due(0));
	ep->nudge.fn(&ep->nudge); /* it had waited for the receive lock */
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert(!world_timer_due(0));
	nothing_left();
}
END_TEST

/*
 * C1: closed within the call that reports it as up.  Nothing more is reported of it, whatever has
 * come before.
 */
START_TEST(test_c1_not_wanted)
{
	unsigned i;

	world.not_wanted = true;
	world_joined_by(c, 32);
	for (i = 1; i <= 3 + (unsigned)_i * 13; i++)
		world_peer_sends(i, 10, 0);
	world_run();
	ck_assert_uint_eq(c->ups, 1);
	ck_assert_uint_eq(c->nmsgs + c->downs, 0);
	nothing_left();
}
END_TEST

/* What goes wrong while it is taken down changes nothing. */
START_TEST(test_closing_fails)
{
	static const enum mock_fn fns[] = {MOCK_rdma_disconnect, MOCK_ibv_modify_qp, MOCK_ibv_post_send};

	world_pair();
	ck_assert_int_eq(world_send(a, 100, 0), 0);
	mock_fail_from(fns[_i], 1, EINVAL);
	world_close(a);
	world_pass(3000 * MS);
	mock_fail(fns[_i], 0, 0);
	world_close(b);
	world_pass(3000 * MS);
	nothing_left();
}
END_TEST

/* A peer that is killed: on InfiniBand only the next send notices. */
START_TEST(test_peer_vanishes)
{
	world_join(c, 8, 8);
	peer_drop_id(p);
	world_pass(2000 * MS);
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, -ECONNRESET);
	nothing_left();
}
END_TEST

/* Again and again, over the same connection: nothing is used up. */
START_TEST(test_a_thousand_times)
{
	unsigned i;

	for (i = 0; i < 1000; i++) {
		world.conn[0].ups = world.conn[1].ups = 0;
		a->downs = b->downs = 0;
		world_pair();
		ck_assert_int_eq(world_send(a, 10, 0), 0);
		ck_assert_int_eq(world_send(b, 2000, 0), 0);
		mock_step();
		mock_step();
		switch (i % 4) {
		case 0:
			mock_fail_send(world_ep(a)->qp, IBV_WC_RETRY_EXC_ERR);
			break;
		case 1:
			world_close(b);
			break;
		case 2:
			mock_cm_inject(world_ep(b)->cm, RDMA_CM_EVENT_DISCONNECTED, 0);
			break;
		case 3:
			mock_post_fail(0, EIO);
			ck_assert_int_eq(world_send(b, 2000, 0), 0);
			break;
		}
		world_pass(100 * MS);
		world_close(a);
		world_close(b);
		world_pass(2000 * MS);
		mock_timeout();
		ck_assert_ptr_null(verbs_eps.all);
	}
}
END_TEST

/* ---- a device that says yes before it listens ---- */

static void setup_late_ear(void)
{
	world_begin(MOCK_IWARP);
	world.ours->attr.vendor_id = SIW;
	world.ours2->late_receive = 2;
	ck_assert_int_eq(world_claim(US), 1);
}

static void speaks_unnoticed(void)
{
	ck_assert_int_eq(world_claim(US2), 1);
	ck_assert_int_eq(world_connect(a, US, US2, verbs_cm.port, registry_self(rds_node_registry)), 0);
	world_run();
	ck_assert_uint_eq(a->ups, 1);
	ck_assert_int_eq(world_send(a, 1000, 0), 0);
	world_run();
	ck_assert_uint_eq(b->ups, 0);
}

/* Two things are missed, so the second urging is noticed, and all that was before it. */
START_TEST(test_e12_urged)
{
	speaks_unnoticed();
	world_pass(20 * MS);
	ck_assert_uint_eq(b->ups, 1);
	ck_assert(world_all_came(a, b));
	world_close(a);
	world_close(b);
	nothing_left();
}
END_TEST

/*
 * No urging if nothing was sent that could have been missed.  Nor into a queue that is full: its
 * completions will come anyway.
 */
START_TEST(test_e12_urged_in_vain)
{
	unsigned posts;

	ck_assert_int_eq(world_claim(US2), 1);
	ck_assert_int_eq(world_connect(a, US, US2, verbs_cm.port, registry_self(rds_node_registry)), 0);
	world_run();
	ck_assert_uint_eq(a->ups, 1);
	if (_i) {
		ck_assert_int_eq(world_send(a, 1000, 0), 0);
		atomic_store(&world_ep(a)->dev->sq_each, 0);
		while (mock_step())
			;
	}
	posts = mock_calls(MOCK_ibv_post_send);
	world_pass(3000 * MS);
	ck_assert_uint_eq(mock_calls(MOCK_ibv_post_send), posts);
	ck_assert_uint_eq(b->ups, 0);
	verbs_dev_share_cq(world_ep(a)->dev);
	ck_assert_uint_eq(world_ep(a)->urge_ns > 512 * MS, 1); /* it was tried */
	world_close(a);
	nothing_left();
}
END_TEST

/* A peer that has answered is not urged.  One that does not answer is not urged for ever. */
START_TEST(test_e12_urged_no_more)
{
	unsigned posts;

	speaks_unnoticed();
	world_pass(20 * MS);
	if (_i == 0) {
		ck_assert_int_eq(world_send(b, 10, 0), 0);
		world_run();
	} else {
		world_pass(1100 * MS);
	}
	posts = mock_calls(MOCK_ibv_post_send);
	world_pass(3000 * MS);
	ck_assert_uint_eq(mock_calls(MOCK_ibv_post_send), posts);
	world_close(a);
	world_close(b);
	nothing_left();
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_e1_to_e5_events, 0, EVENTS);
	tcase_add_loop_test(t, test_e8_e10_broken_and, 0, 2);
	tcase_add_test(t, test_e9_probe);
	tcase_add_loop_test(t, test_e9_read, 0, 2);
	tcase_add_test(t, test_e9a_stopped);
	tcase_add_test(t, test_e9_no_probe);
	tcase_add_loop_test(t, test_c2_c3_drained, 0, 3);
	tcase_add_loop_test(t, test_c2_maps, 0, 5);
	tcase_add_loop_test(t, test_c4_to_c6_request_under_way, 0, 2);
	tcase_add_loop_test(t, test_c7_late_events, 0, EVENTS - 1);
	tcase_add_loop_test(t, test_c8_kept, 0, 2);
	tcase_add_test(t, test_c9_looked_at_meanwhile);
	tcase_add_loop_test(t, test_c1_not_wanted, 0, 2);
	tcase_add_loop_test(t, test_closing_fails, 0, 3);
	tcase_add_test(t, test_peer_vanishes);
	tcase_add_test(t, test_a_thousand_times);
}

static void setup_off(void)
{
	setenv("RDS_PRELOAD_KEEPALIVE_MS", "0", 1);
	world_ib();
}

int main(void)
{
	Suite *s = suite_create("verbs_end");
	TCase *late;

	tests(world_case(s, "ib", world_ib));
	tests(world_case(s, "iwarp", world_iwarp));
	late = world_case(s, "late ear", setup_late_ear);
	tcase_add_test(late, test_e12_urged);
	tcase_add_loop_test(late, test_e12_urged_in_vain, 0, 2);
	tcase_add_loop_test(late, test_e12_urged_no_more, 0, 2);
	tcase_add_test(world_case(s, "no keepalive", setup_off), test_e9_off);
	return suite_run(s);
}
