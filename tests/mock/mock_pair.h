/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_pair.h - two devices of the mock on two hosts and a scripted peer on each, for the tests of
 * the mock itself.
 */
#ifndef TEST_MOCK_PAIR_H
#define TEST_MOCK_PAIR_H

#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mock/peer.h"
#include "tests/unit/suite.h"

#define A "10.0.0.1"
#define B "10.0.0.2"
#define PORT 18635

static struct mock_dev *da, *db;
static struct peer a, b;

static inline void world(enum mock_mode mode)
{
	if (a.events) {
		peer_end(&a);
		peer_end(&b);
	}
	mock_install();
	da = mock_dev_add("mock0", mode, 1);
	db = mock_dev_add("mock1", mode, 2);
	mock_addr_add(da, A);
	mock_addr_add(db, B);
	peer_init(&a, 1);
	peer_init(&b, 2);
}

static inline void setup(void)
{
	world(MOCK_IB);
}

static inline void teardown(void)
{
	peer_end(&a);
	peer_end(&b);
	mock_check_leaks();
}

/* A connection from a to b, which has `recvs` receives. */
static inline void join(unsigned recvs)
{
	peer_listen(&b, B, PORT);
	peer_connect(&a, A, B, PORT, "hi", 2);
	peer_event(&b, RDMA_CM_EVENT_CONNECT_REQUEST);
	peer_accept(&b, "yes", 3, recvs);
	peer_event(&a, RDMA_CM_EVENT_ESTABLISHED);
	peer_ack(&a);
	peer_event(&b, RDMA_CM_EVENT_ESTABLISHED);
	peer_ack(&b);
}

static inline bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static inline void no_fault(void)
{
	ck_assert_msg(!mock.faults, "%s", mock.fault);
}

static inline void one_fault(const char *part)
{
	ck_assert_uint_eq(mock.faults, 1);
	ck_assert_msg(strstr(mock.fault, part), "%s", mock.fault);
	mock.faults = 0;
}

static inline void expect(struct peer *p, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	ck_assert(peer_poll(p, &wc));
	ck_assert_int_eq(wc.status, status);
}

static inline void expect_none(struct peer *p)
{
	struct ibv_wc wc;

	ck_assert(!peer_poll(p, &wc));
}

static inline TCase *case_of(Suite *s, const char *name, void (*start)(void))
{
	TCase *t = tcase_create(name);

	tcase_add_checked_fixture(t, start, teardown);
	suite_add_tcase(s, t);
	return t;
}

#endif
