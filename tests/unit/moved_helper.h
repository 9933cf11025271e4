/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * moved_helper.h - redirects of the other host that test_reach_fake.h plays, and what this side
 * answers.
 */
#ifndef TESTS_UNIT_MOVED_HELPER_H
#define TESTS_UNIT_MOVED_HELPER_H

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/conn/incoming.h"
#include "engine/progress/progress.h"
#include "engine/rdma/rdma.h"
#include "tests/unit/suite.h"
#include "tests/unit/test_reach_fake.h"

static inline void notice(unsigned ep, uint64_t own_seq, uint64_t seq, uint16_t port)
{
	unsigned char b[RDS_REDIRECT_BYTES] = {0, 0, 0, 0, 0, 0, 0, (uint8_t)seq, (uint8_t)(port >> 8), (uint8_t)port};
	struct rds_hdr hdr = {.seq = own_seq, .len = sizeof(b), .flags = RDS_FLAG_REDIRECT};

	far_sends(ep, &hdr, b, sizeof(b));
}

static inline void nothing_for(unsigned ms)
{
	unsigned before = locked(&fake.nsent);

	mock_clock_pass(ms * 1000000ull);
	ck_assert_uint_eq(locked(&fake.nsent), before);
}

/* The message number i that was sent acknowledges that redirect. */
static inline void heeds(unsigned i, unsigned proc, uint64_t seq, uint16_t port)
{
	uint64_t said;

	await(locked(&fake.nsent) > i);
	ck_assert_uint_eq(fake.sent[i].ep->id.peer.b[0], proc);
	ck_assert_uint_eq(fake.sent[i].hdr.flags & RDS_FLAG_REDIRECT, RDS_FLAG_REDIRECT);
	ck_assert_uint_eq(fake.sent[i].hdr.len, RDS_REDIRECT_ACK_BYTES);
	memcpy(&said, fake.sent[i].text, sizeof(said));
	ck_assert_uint_eq(be64toh(said), seq);
	ck_assert_uint_eq((unsigned char)fake.sent[i].text[8] << 8 | (unsigned char)fake.sent[i].text[9], port);
}

#endif
