/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_flush.c - a connection breaks under a program that asks for the ends of its messages:
 * operations and messages end in the order in which they were sent, when it is known what the peer
 * has, and nothing goes meanwhile (op_flush.c, async_send.c).  The transport takes as much as it is
 * told to.
 */
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

static int fake_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
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

static void fake_flush(struct rds_ep *ep, bool service)
{
	(void)ep;
	(void)service;
}

static uint64_t fake_acked(struct rds_ep *ep)
{
	(void)ep;
	return has_acked;
}

static bool fake_want_room(struct rds_ep *ep, uint64_t seen)
{
	(void)ep;
	(void)seen;
	return false;
}

/* Its place is used again when it is acknowledged. */
static const void *fake_retained(struct rds_ep *ep, uint64_t pos)
{
	(void)ep;
	ck_assert_uint_gt(pos, has_acked);
	return "";
}

static uint64_t comes_late; /* next_rx when the endpoint is closed; 0: as before */

static void fake_close(struct rds_ep *ep)
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
					     .close = fake_close};
static struct rds_transport transport = {.ops = &ops};
static struct rds_ep_head endpoint = {.t = &transport};

static void sock_setup(struct rds_sock *s)
{
	memset(s, 0, sizeof(*s));
	atomic_store(&s->open, true);
	atomic_store(&s->ref, 100);
	atomic_store(&s->had_ops, true);
	s->report_tail = &s->reports;
}

static void setup(void)
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

static void teardown(void)
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

static void message(uint64_t token)
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

static uint64_t operation_of(struct rds_sock *s, uint64_t token, enum rds_wire_op_kind kind)
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

static uint64_t operation(struct rds_sock *s, uint64_t token)
{
	return operation_of(s, token, RDS_OP_WRITE);
}

/* The peer acknowledges it, and we look. */
static void acknowledged(uint64_t token)
{
	rds_lock(&conn.tx);
	has_acked = seq[token];
	rds_queue_reap(&conn);
	rds_unlock(&conn.tx);
}

static void answered(uint64_t id, int status)
{
	rx_lock();
	rds_op_recv_answer(&conn, &(struct rds_wire_op_hdr){.kind = RDS_OP_RESULT, .id = id, .status = (uint8_t)status},
			   NULL, 0);
	rx_unlock();
	rds_conn_work_run();
}

/* True: messages are given up for that. */
static bool breaks(void)
{
	rds_conn_drop(&conn, conn.ep, -ECONNRESET, false);
	ck_assert_uint_eq(conn.count, 0);
	return conn.aborted;
}

static void comes_up_with(uint64_t acked, uint64_t all)
{
	rds_lock(&conn.tx);
	rds_queue_acked(&conn, (struct rds_received){.acked = acked, .all = all});
	rds_unlock(&conn.tx);
}

static void comes_up(uint64_t ack)
{
	comes_up_with(ack, ack);
}

static void peer_ends(void)
{
	rds_lock(&conn.tx);
	rds_queue_drop_all(&conn);
	rds_unlock(&conn.tx);
}

/* The next notification, and none after it if `last`. */
static void expect(struct rds_sock *s, uint64_t token, int status, bool last)
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

static bool refused(void)
{
	return atomic_load(&sk.nfailed) && rds_op_async_refuses(&sk, &conn.id.faddr);
}

/* Two that the transport never had among them. */
START_TEST(test_order)
{
	uint64_t id;

	message(1);
	id = operation(&sk, 2);
	operation(&sk, 3);
	message(4);
	room = 0;
	operation(&sk, 5);
	message(6);
	answered(id, RDS_RDMA_SUCCESS);
	ck_assert_ptr_null(sk.reports); /* its message may be dropped yet */
	ck_assert(breaks());
	ck_assert_ptr_null(sk.reports);
	ck_assert(refused());
	comes_up(seq[_i]); /* the peer has all up to that one; answers or not */
	for (uint64_t token = 1; token <= 6; token++) {
		ck_assert(refused());
		expect(&sk, token, token <= (uint64_t)_i ? RDS_RDMA_SUCCESS : RDS_RDMA_DROPPED, token == 6);
	}
	ck_assert(!refused());
	ck_assert_ptr_null(conn.queue);
}
END_TEST

/* Nothing is lost: it is over at once. */
START_TEST(test_all_arrived)
{
	message(1);
	operation(&sk, 2);
	ck_assert(breaks());
	ck_assert(refused());
	comes_up(seq[2]);
	ck_assert(!refused());
	expect(&sk, 1, RDS_RDMA_SUCCESS, false);
	expect(&sk, 2, RDS_RDMA_SUCCESS, true);
}
END_TEST

/* An operation that has failed by itself stays failed, no matter what has arrived. */
START_TEST(test_failed_before)
{
	uint64_t id;

	message(1);
	id = operation(&sk, 2);
	answered(id, RDS_RDMA_REMOTE_ERROR);
	ck_assert(breaks());
	comes_up(seq[_i]);
	expect(&sk, 1, _i ? RDS_RDMA_SUCCESS : RDS_RDMA_DROPPED, false);
	expect(&sk, 2, RDS_RDMA_REMOTE_ERROR, true);
}
END_TEST

/*
 * The peer has received more than it acknowledges, since it refuses one of the messages
 * (conn/port_moved.c).  None of those it has received is lost: each is reported when it is
 * acknowledged, after it was sent again, there or elsewhere.  The message behind them is lost.
 */
START_TEST(test_received_not_acknowledged)
{
	uint64_t id;

	message(1);
	id = operation(&sk, 2);
	message(3);
	message(4);
	answered(id, RDS_RDMA_SUCCESS);
	ck_assert(breaks());
	comes_up_with(seq[1], seq[3]);
	expect(&sk, 1, RDS_RDMA_SUCCESS, false);
	expect(&sk, 4, RDS_RDMA_DROPPED, true);
	ck_assert(refused()); /* what is new must not go before the others */
	ck_assert_uint_eq(conn.queue->u.seq, seq[2]);
	ck_assert_uint_eq(conn.queue->next->u.seq, seq[3]);
	ck_assert_ptr_null(conn.queue->next->next);
	comes_up(seq[3]); /* as an acknowledgement does it */
	expect(&sk, 2, RDS_RDMA_SUCCESS, false);
	expect(&sk, 3, RDS_RDMA_SUCCESS, true);
	ck_assert(!refused());
}
END_TEST

/* It has received an operation, too, whose answer is lost: it may have refused it. */
START_TEST(test_answer_is_lost)
{
	message(1);
	operation(&sk, 2);
	message(3);
	ck_assert(breaks());
	comes_up_with(seq[1], seq[3]);
	expect(&sk, 1, RDS_RDMA_SUCCESS, false);
	expect(&sk, 2, RDS_RDMA_OTHER_ERROR, true);
	ck_assert_uint_eq(conn.queue->u.seq, seq[3]);
	ck_assert_ptr_null(conn.queue->next);
}
END_TEST

/*
 * Acknowledged before it is answered: that tells nothing of the operation, and its end comes with
 * the answer.  What is behind it and needs no answer is over.
 */
START_TEST(test_acknowledged_first)
{
	const bool good = _i;
	uint64_t id, other;

	message(1);
	id = operation(&sk, 2);
	other = operation(&plain, 3);
	acknowledged(3);
	expect(&sk, 1, RDS_RDMA_SUCCESS, true);
	ck_assert_uint_eq(atomic_load(&plain.snd), 0);
	ck_assert_uint_ne(atomic_load(&sk.snd), 0);
	answered(id, good ? RDS_RDMA_SUCCESS : RDS_RDMA_REMOTE_ERROR);
	expect(&sk, 2, good ? RDS_RDMA_SUCCESS : RDS_RDMA_REMOTE_ERROR, true);
	ck_assert_uint_eq(atomic_load(&sk.snd), 0);
	ck_assert_uint_eq(conn.count, 0);
	answered(other, RDS_RDMA_SUCCESS);
	expect(&plain, 3, RDS_RDMA_SUCCESS, true);
}
END_TEST

/*
 * ... and not answered before it breaks: the peer has refused it if it acknowledges less by then.
 * reaped: we have seen before what it had acknowledged.  The operation itself is over at the break.
 */
START_TEST(test_acknowledged_and_lost)
{
	const bool reaped = _i & 1, refuses = _i & 2;

	message(1);
	operation(&sk, 2);
	message(3);
	operation(&sk, 4);
	if (reaped)
		acknowledged(3);
	has_acked = seq[3];
	ck_assert(breaks());
	ck_assert_uint_eq(sk.nops, 0);
	expect(&sk, 1, RDS_RDMA_SUCCESS, false);
	expect(&sk, 3, RDS_RDMA_SUCCESS, true);
	ck_assert(refused());
	comes_up_with(refuses ? seq[1] : seq[4], seq[4]);
	expect(&sk, 2, refuses ? RDS_RDMA_OTHER_ERROR : RDS_RDMA_SUCCESS, false);
	expect(&sk, 4, refuses ? RDS_RDMA_OTHER_ERROR : RDS_RDMA_SUCCESS, true);
	ck_assert_ptr_null(conn.queue);
}
END_TEST

/* What a read or an atomic brings is lost.  Its message has arrived, and is not to be sent again. */
START_TEST(test_result_is_lost)
{
	const bool early = _i & 1;

	RDS_SOCK_SET(&sk, had_async_sends, true);
	operation_of(&sk, 1, _i & 2 ? RDS_OP_READ : RDS_OP_ADD);
	operation_of(&sk, 2, _i & 2 ? RDS_OP_READ : RDS_OP_ADD);
	if (early)
		acknowledged(1);
	ck_assert(breaks());
	ck_assert_ptr_null(sk.reports);
	comes_up(seq[1]);
	expect(&sk, 1, RDS_RDMA_OTHER_ERROR, false);
	expect(&sk, 2, RDS_RDMA_DROPPED, true);
}
END_TEST

/* The answer comes while the connection breaks: what is acknowledged is not sent again for that. */
START_TEST(test_answered_at_the_break)
{
	uint64_t id;

	RDS_SOCK_SET(&sk, had_async_sends, true);
	id = operation(&sk, 1);
	acknowledged(1);
	rds_lock(&conn.tx);
	rx_lock();
	rds_op_recv_answer(&conn, &(struct rds_wire_op_hdr){.kind = RDS_OP_RESULT, .id = id}, NULL, 0);
	rds_ops_conn_broken(&conn, false);
	rx_unlock();
	ck_assert_uint_eq(conn.count, 1);
	ck_assert(!rds_queue_unacked_at(&conn, 0)->again);
	rds_unlock(&conn.tx);
	rds_conn_work_run();
	expect(&sk, 1, RDS_RDMA_SUCCESS, true);
}
END_TEST

/*
 * Both messages are acknowledged, and the second operation has been answered first, as one may be
 * that a device carries out.  The reports keep the order.
 */
START_TEST(test_answered_out_of_order)
{
	uint64_t a, b;

	RDS_SOCK_SET(&sk, had_async_sends, true);
	a = operation(&sk, 1);
	b = operation(&sk, 2);
	acknowledged(2);
	answered(b, RDS_RDMA_SUCCESS);
	answered(a, RDS_RDMA_SUCCESS);
	expect(&sk, 1, RDS_RDMA_SUCCESS, false);
	expect(&sk, 2, RDS_RDMA_SUCCESS, true);
}
END_TEST

/*
 * The answer comes when acknowledgements have been looked at for the last time, and the peer
 * acknowledges less when it is back, because of an older operation that it has refused.
 */
START_TEST(test_answered_and_acknowledged)
{
	uint64_t id;

	RDS_SOCK_SET(&sk, had_async_sends, true);
	id = operation(&sk, 1);
	operation(&plain, 2);
	acknowledged(2);
	rds_lock(&conn.tx);
	rds_queue_reap(&conn);
	rx_lock();
	rds_op_recv_answer(&conn, &(struct rds_wire_op_hdr){.kind = RDS_OP_RESULT, .id = id}, NULL, 0);
	rds_ops_conn_broken(&conn, false);
	rx_unlock();
	rds_queue_requeue(&conn, conn.ep);
	conn.ep = NULL;
	rds_unlock(&conn.tx);
	comes_up_with(0, seq[2]);
	expect(&plain, 2, RDS_RDMA_DROPPED, true);
	expect(&sk, 1, RDS_RDMA_SUCCESS, true);
}
END_TEST

/* The peer never comes back: what it had acknowledged may have been read, or refused. */
START_TEST(test_stays_away)
{
	RDS_SOCK_SET(&sk, had_async_sends, true);
	operation(&sk, 1);
	acknowledged(1);
	operation(&sk, 2);
	ck_assert(breaks());
	ck_assert_ptr_null(sk.reports);
	peer_ends();
	expect(&sk, 1, RDS_RDMA_OTHER_ERROR, false);
	expect(&sk, 2, RDS_RDMA_DROPPED, true);
}
END_TEST

/* It is back, and ends before it has acknowledged what it had received. */
START_TEST(test_received_and_ended)
{
	message(1);
	message(2);
	ck_assert(breaks());
	comes_up_with(0, seq[1]);
	expect(&sk, 2, RDS_RDMA_DROPPED, true);
	peer_ends();
	expect(&sk, 1, RDS_RDMA_OTHER_ERROR, true);
}
END_TEST

/*
 * The socket goes to another process, the connection stays: nobody knows what becomes of what has
 * begun.
 */
START_TEST(test_handed_off)
{
	RDS_SOCK_SET(&sk, had_async_sends, true);
	operation(&sk, 1);
	room = 0;
	operation(&sk, 2);
	rx_lock();
	rds_conn_list = &conn;
	rx_unlock();
	rds_ops_handoff(&sk);
	rds_conn_list = NULL;
	expect(&sk, 1, RDS_RDMA_OTHER_ERROR, false);
	expect(&sk, 2, RDS_RDMA_DROPPED, true);
	rds_queue_purge(&conn, false);
}
END_TEST

/* As the target: the connection breaks before the answer has gone, even into the queue. */
START_TEST(test_refusal_unsent)
{
	struct rds_wire_op_hdr op = {.kind = RDS_OP_WRITE, .last = true, .rkey = 12345, .id = 7, .message = 7};
	unsigned char piece[RDS_OP_HDR + 1] = {0};
	struct rds_rx rx = {.hdr = {.seq = 2, .flags = RDS_FLAG_OP, .len = sizeof(piece)}, .data = piece};

	rds_wire_op_encode(&op, piece);
	rx_lock();
	ck_assert_int_eq(rds_op_recv_piece(&conn, conn.ep, &rx), RDS_RX_DONE);
	atomic_store(&conn.next_rx, 5);
	rx_unlock();
	ck_assert_ptr_nonnull(conn.rdma->answers);
	breaks();
	ck_assert_ptr_null(conn.rdma->answers);
	ck_assert_uint_eq(conn.refused.acked, 1);
	ck_assert_uint_eq(conn.refused.all, 4);
	rds_conn_work_run();
}
END_TEST

/* Messages arrive between that and the end of the endpoint: they do not void it. */
START_TEST(test_refusal_and_more)
{
	conn.refused = (struct rds_received){.acked = 1, .all = 4};
	atomic_store(&conn.next_rx, 5);
	comes_late = 8;
	breaks();
	ck_assert_uint_eq(conn.refused.acked, 1);
	ck_assert_uint_eq(conn.refused.all, 7);
}
END_TEST

/* The peer has sent more since, so it has heard of the refusal. */
START_TEST(test_refusal_is_old)
{
	conn.refused = (struct rds_received){.acked = 1, .all = 4};
	atomic_store(&conn.next_rx, 6);
	breaks();
	ck_assert_uint_eq(conn.refused.all, 0);
}
END_TEST

/*
 * A program that has never asked for ends gets its notifications at once, and what is not started
 * goes later.
 */
START_TEST(test_plain)
{
	operation(&plain, 1);
	room = 0;
	operation(&plain, 2);
	ck_assert(!breaks());
	expect(&plain, 1, RDS_RDMA_DROPPED, true);
	comes_up(0);
	ck_assert_ptr_nonnull(conn.queue);
	rx_lock();
	rds_ops_broken(&conn, true, false);
	rx_unlock();
	expect(&plain, 2, RDS_RDMA_REMOTE_ERROR, true);
	rds_queue_purge(&conn, false);
}
END_TEST

/* Nothing is under way: nothing is lost. */
START_TEST(test_only_waiting)
{
	room = 0;
	message(1);
	operation(&sk, 2);
	ck_assert(!breaks());
	ck_assert(!refused());
	comes_up(0);
	ck_assert_ptr_null(sk.reports);
	rx_lock();
	rds_ops_cancel(&conn, &sk, PORT);
	rx_unlock();
	rds_queue_purge(&conn, false);
}
END_TEST

/*
 * Messages of a closed socket are sent again, as no one else will, but none without its operation.
 */
START_TEST(test_closed)
{
	message(1);
	operation(&sk, 2);
	message(3);
	atomic_store(&sk.open, false);
	ck_assert(breaks());
	comes_up(0);
	ck_assert_uint_eq(conn.queue->u.seq, seq[1]);
	ck_assert_uint_eq(conn.queue->next->u.seq, seq[3]);
	ck_assert_ptr_null(conn.queue->next->next);
}
END_TEST

/* Over, but not its turn yet: what comes behind it waits all the same. */
START_TEST(test_not_its_turn)
{
	RDS_SOCK_SET(&sk, had_async_sends, true);
	operation(&plain, 1);
	answered(operation(&sk, 2), RDS_RDMA_SUCCESS);
	ck_assert_ptr_null(sk.async_sends);
	ck_assert(breaks());
	ck_assert(refused());
	expect(&plain, 1, RDS_RDMA_DROPPED, true);
	comes_up(0);
	expect(&sk, 2, RDS_RDMA_DROPPED, true);
	ck_assert(!refused());
}
END_TEST

/* Without a message behind it, and not begun: it does not go ahead of what is sent again. */
START_TEST(test_silent)
{
	struct rds_op *op;

	message(1);
	room = 0;
	op = rds_op_new(&sk, RDS_OP_WRITE, 1);
	ck_assert_ptr_nonnull(op);
	op->notify = true;
	op->token = 2;
	op->total = sizeof(mem);
	op->local[0] = (struct iovec){mem, sizeof(mem)};
	rds_lock(&conn.tx);
	ck_assert_int_eq(rds_ops_xmit(&conn, op, true), 0);
	rds_ops_put(op);
	rds_unlock(&conn.tx);
	ck_assert(breaks());
	expect(&sk, 2, RDS_RDMA_DROPPED, true);
	comes_up(0);
	expect(&sk, 1, RDS_RDMA_DROPPED, true);
	ck_assert_ptr_null(conn.queue);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("flush");
	TCase *t = suite_case(s, "flush", setup, teardown, 30);

	tcase_add_loop_test(t, test_order, 1, 5);
	tcase_add_test(t, test_all_arrived);
	tcase_add_loop_test(t, test_failed_before, 0, 2);
	tcase_add_test(t, test_received_not_acknowledged);
	tcase_add_test(t, test_answer_is_lost);
	tcase_add_loop_test(t, test_acknowledged_first, 0, 2);
	tcase_add_loop_test(t, test_acknowledged_and_lost, 0, 4);
	tcase_add_loop_test(t, test_result_is_lost, 0, 4);
	tcase_add_test(t, test_answered_at_the_break);
	tcase_add_test(t, test_answered_out_of_order);
	tcase_add_test(t, test_answered_and_acknowledged);
	tcase_add_test(t, test_stays_away);
	tcase_add_test(t, test_received_and_ended);
	tcase_add_test(t, test_handed_off);
	tcase_add_test(t, test_refusal_unsent);
	tcase_add_test(t, test_refusal_and_more);
	tcase_add_test(t, test_refusal_is_old);
	tcase_add_test(t, test_plain);
	tcase_add_test(t, test_only_waiting);
	tcase_add_test(t, test_closed);
	tcase_add_test(t, test_not_its_turn);
	tcase_add_test(t, test_silent);
	return suite_run(s);
}
