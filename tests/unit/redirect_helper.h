/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * redirect_helper.h - a message for a port that is not this process's any more: what the other host
 * (test_reach_fake.h) is told, and what it acknowledges.
 */
#ifndef TESTS_UNIT_REDIRECT_HELPER_H
#define TESTS_UNIT_REDIRECT_HELPER_H

#include "tests/unit/moved_helper.h"

/* The peer acknowledges redirect i. */
static inline void heeded(unsigned ep, uint64_t own_seq, unsigned i)
{
	unsigned char b[RDS_REDIRECT_ACK_BYTES] = {0};
	struct rds_hdr hdr = {.seq = own_seq, .len = sizeof(b), .flags = RDS_FLAG_REDIRECT};

	memcpy(b, fake.sent[i].text, RDS_REDIRECT_BYTES);
	b[RDS_REDIRECT_BYTES] = 1;
	far_sends(ep, &hdr, b, sizeof(b));
}

static inline void leave(struct rds_conn *conn, uint16_t port)
{
	rx_lock();
	ck_assert(rds_conn_redirect_begin(conn, port));
	rx_unlock();
}

static inline enum rds_rx_verdict comes(struct rds_conn *conn, const struct rds_hdr *hdr, const void *bytes)
{
	struct rds_rx rx = {.hdr = *hdr, .data = bytes};
	enum rds_rx_verdict v;

	rx_lock();
	v = rds_conn_receive(conn, conn->ep, &rx);
	rx_unlock();
	rds_conn_work_run();
	return v;
}

/* Answers that the peer does not take, but for so many that are still queued. */
static inline void full_but_for(struct rds_conn *conn, unsigned n)
{
	atomic_fetch_add(&conn->answer_bytes,
			 RDS_ANSWERS_MAX - n * (sizeof(struct rds_queue_item) + RDS_REDIRECT_BYTES));
}

#endif
