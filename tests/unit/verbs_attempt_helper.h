/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * verbs_attempt_helper.h - this side asks for a connection, the scripted peer answers, and how that
 * ends.
 */
#ifndef TESTS_UNIT_VERBS_ATTEMPT_HELPER_H
#define TESTS_UNIT_VERBS_ATTEMPT_HELPER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mock/world.h"

static struct world_conn *const c = &world.conn[0];
static struct peer *const p = &world.peer;

static inline int dial(uint16_t port)
{
	struct rds_procid them = world_peer_id();

	return world_connect(c, US, THEM, port, &them);
}

/* The request is with the peer. */
static inline void asked(uint16_t at)
{
	peer_listen(p, THEM, at);
	ck_assert_int_eq(dial(at == rds_options()->cm_port ? 0 : at), 0);
	world_run();
	peer_event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
}

/*
 * Lets so many events of the attempt come: with 0 there is no address yet, with 1 no route, with 2
 * no answer.
 */
static inline void dial_until(unsigned stage)
{
	peer_listen(p, THEM, PEER_PORT);
	mock_cm_hold(true);
	ck_assert_int_eq(dial(PEER_PORT), 0);
	world_cm_next(stage);
}

static inline void rejected(enum verbs_status status, int err)
{
	struct verbs_answer a, wire;

	world_answer(&a, status);
	a.error = (uint8_t)err;
	verbs_answer_pack(&a, &wire);
	peer_reject(p, &wire, sizeof(wire));
	world_run();
}

static inline void is_down(int why, bool gone)
{
	ck_assert_uint_eq(c->ups, 0);
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, why);
	ck_assert_int_eq(c->gone, gone);
	ck_assert_ptr_null(c->ep);
}

static inline void answer_with(enum verbs_status status, bool right_one)
{
	struct verbs_answer a, wire;

	world_answer(&a, status);
	a.rx_seq = 17;
	a.held = 3;
	a.credits = VERBS_CREDITS(0, 5);
	a.frame = 2048 / 64;
	if (!right_one)
		a.self.b[3]++;
	verbs_answer_pack(&a, &wire);
	peer_accept(p, &wire, sizeof(wire), 8);
	world_run();
	peer_event(p, RDMA_CM_EVENT_ESTABLISHED);
}

#endif
