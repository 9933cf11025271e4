/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * flush_helper.h - a connection whose transport takes as much as it is told to, and programs that
 * ask for the ends of their messages (sk) or do not (plain).
 */
#ifndef TESTS_UNIT_FLUSH_HELPER_H
#define TESTS_UNIT_FLUSH_HELPER_H

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/rdma/rdma.h"
#include "tests/unit/suite.h"

#define PORT 9

static struct rds_sock sk, plain;
static struct rds_conn conn;
static unsigned char mem[64];
static unsigned room;	/* for so many more */
static uint64_t has_acked; /* the peer, over this endpoint */
static uint64_t seq[8]; /* of the message with that token */

/* ---- a transport ---- */

static inline int fake_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	struct rds_hdr hdr;

	(void)ep;
	(void)iov;
	(void)len;
	if (!room)
		return -EAGAIN;
	room--;
	ck_assert_int_eq(rds_wire_hdr_decode(wire, &hdr), 0);
	*pos = hdr.seq;
	return 0;
}

static inline void fake_flush(struct rds_ep *ep, bool service)
{
	(void)ep;
	(void)service;
}

static inline uint64_t fake_acked(struct rds_ep *ep)
{
	(void)ep;
	return has_acked;
}

static inline bool fake_want_room(struct rds_ep *ep, uint64_t seen)
{
	(void)ep;
	(void)seen;
	return false;
}

/* Its place is used again when it is acknowledged. */
static inline const void *fake_retained(struct rds_ep *ep, uint64_t pos)
{
	(void)ep;
	ck_assert_uint_gt(pos, has_acked);
	return "";
}

static inline bool fake_settled(struct rds_ep *ep)
{
	(void)ep;
	return true;
}

static uint64_t comes_late; /* next_rx when the endpoint is closed; 0: as before */

static inline void fake_close(struct rds_ep *ep)
{
	(void)ep;
	if (comes_late)
		atomic_store(&conn.next_rx, comes_late);
	comes_late = 0;
}

static const struct rds_transport_ops ops = {.caps = RDS_TCAP_SURVIVES,
					     .send = fake_send,
					     .flush = fake_flush,
					     .acked = fake_acked,
					     .want_room = fake_want_room,
					     .retained = fake_retained,
					     .settled = fake_settled,
					     .close = fake_close};
static struct rds_transport transport = {.ops = &ops};
static struct rds_ep_head endpoint = {.t = &transport};

static inline void sock_setup(struct rds_sock *s)
{
	memset(s, 0, sizeof(*s));
	atomic_store(&s->open, true);
	atomic_store(&s->ref, 100);
	atomic_store(&s->had_ops, true);
	s->report_tail = &s->reports;
}

static inline void setup(void)
{
	memset(&conn, 0, sizeof(conn));
	os_process_start();
	rds_queue_forget();
	sock_setup(&sk);
	sock_setup(&plain);
	conn.t = &transport;
	conn.ep = (struct rds_ep *)&endpoint;
	conn.id.faddr.s6_addr32[3] = 1;
	conn.queue_tail = &conn.queue;
	ck_assert(rds_ops_prepare(&conn));
	conn.next_tx = 1;
	conn.id.peer_slot = RDS_SLOT_REMOTE; /* there is no registry */
	room = UINT32_MAX;
	has_acked = 0;
	atomic_store(&conn.state, RDS_CONN_UP);
}

static inline void teardown(void)
{
	rds_lock(&conn.tx);
	rds_queue_drop_all(&conn);
	rds_unlock(&conn.tx);
	rx_lock();
	rds_notify_drop(&sk);
	rds_notify_drop(&plain);
	rx_unlock();
	ck_assert(!rds_ops_first(&conn) && !conn.queue && !sk.async_sends && !sk.nops && !plain.nops);
	ck_assert_uint_eq(sk.nfailed, 0);
	ck_assert_uint_le(sk.ref, 101); /* one for the thread to be woken */
	rds_queue_forget();
	free(conn.unacked);
}

/* ---- what programs do ---- */

static inline void message(uint64_t token)
{
	struct rds_conn_outgoing out = {.hdr = {.dport = PORT},
					.u = {.dport = PORT, .sk = &sk, .report = RDS_REPORT_END}};

	out.u.async = rds_op_async_new(&sk, token, true);
	ck_assert_ptr_nonnull(out.u.async);
	out.u.async->to = conn.id.faddr;
	rds_sock_snd_add(&sk, 0);
	rds_lock(&conn.tx);
	seq[token] = conn.next_tx;
	ck_assert_int_eq(rds_conn_xmit(&conn, &out), 0);
	rds_unlock(&conn.tx);
}

static inline uint64_t operation_of(struct rds_sock *s, uint64_t token, enum rds_wire_op_kind kind)
{
	struct rds_op *op = rds_op_new(s, kind, 1);
	struct rds_conn_outgoing out = {.hdr = {.dport = PORT}, .u = {.dport = PORT, .sk = s, .once = true}, .ops = op};
	uint64_t id;

	ck_assert_ptr_nonnull(op);
	id = op->id;
	op->dport = PORT;
	op->notify = true;
	op->token = token;
	op->total = sizeof(mem);
	op->local[0] = (struct iovec){mem, sizeof(mem)};
	if (atomic_load(&s->had_async_sends))
		rds_op_async_attach(&out.u, op);
	else
		out.u.op = op->message;
	rds_sock_snd_add(s, 0);
	rds_lock(&conn.tx);
	ck_assert_int_eq(rds_ops_xmit(&conn, op, false), 0);
	seq[token] = conn.next_tx;
	ck_assert_int_eq(rds_conn_xmit(&conn, &out), 0);
	rds_ops_put(op);
	rds_unlock(&conn.tx);
	return id;
}

static inline uint64_t operation(struct rds_sock *s, uint64_t token)
{
	return operation_of(s, token, RDS_OP_WRITE);
}

/* The peer acknowledges it, and we look. */
static inline void acknowledged(uint64_t token)
{
	rds_lock(&conn.tx);
	has_acked = seq[token];
	rds_queue_reap(&conn);
	rds_unlock(&conn.tx);
}

static inline void answered(uint64_t id, int status)
{
	rx_lock();
	rds_op_recv_answer(&conn, &(struct rds_wire_op_hdr){.kind = RDS_OP_RESULT, .id = id, .status = (uint8_t)status},
			   NULL, 0);
	rx_unlock();
	rds_conn_work_run();
}

/* True: messages are given up for that. */
static inline bool breaks(void)
{
	rds_conn_drop(&conn, conn.ep, -ECONNRESET, false);
	ck_assert_uint_eq(conn.count, 0);
	return conn.aborted;
}

static inline void comes_up_with(uint64_t acked, uint64_t all)
{
	rds_lock(&conn.tx);
	rds_queue_acked(&conn, (struct rds_received){.acked = acked, .all = all});
	rds_unlock(&conn.tx);
}

static inline void comes_up(uint64_t ack)
{
	comes_up_with(ack, ack);
}

static inline void peer_ends(void)
{
	rds_lock(&conn.tx);
	rds_queue_drop_all(&conn);
	rds_unlock(&conn.tx);
}

/* The next notification, and none after it if `last`. */
static inline void expect(struct rds_sock *s, uint64_t token, int status, bool last)
{
	struct rds_op *op = s->reports;

	ck_assert_ptr_nonnull(op);
	ck_assert_uint_eq(op->token, token);
	ck_assert_int_eq(op->status, status);
	rx_lock();
	s->reports = op->report_next;
	if (!s->reports)
		s->report_tail = &s->reports;
	rds_op_async_reported(op);
	rds_op_put(op);
	rx_unlock();
	ck_assert_int_eq(!s->reports, last);
}

static inline bool refused(void)
{
	return atomic_load(&sk.nfailed) && rds_op_async_refuses(&sk, &conn.id.faddr);
}

#endif
