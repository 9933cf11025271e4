/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_op_order.c - the order of operations and what passes a waiting item (rdma/op_order.c):
 * operations of the barrier's age that turn out to go to another process, the messages that wait
 * for them, answers; and which thread wakes such a message.  The transport records its calls.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/rdma/rdma.h"
#include "tests/unit/suite.h"

#define THERE 0x0200000au

static struct rds_sock sk, other;
static struct rds_conn a, b; /* two ways to one address */
static unsigned char mem[64];

/* ---- a transport ---- */

static struct {
	struct rds_hdr hdr[32];
	unsigned n;
} sent;

static unsigned room = UINT32_MAX; /* for so many more */

static int fake_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	(void)ep;
	(void)iov;
	(void)len;
	*pos = 0;
	if (!room)
		return -ENOBUFS;
	room--;
	ck_assert_uint_lt(sent.n, 32);
	ck_assert_int_eq(rds_wire_hdr_decode(wire, &sent.hdr[sent.n]), 0);
	sent.n++;
	return 0;
}

static void fake_flush(struct rds_ep *ep, bool service)
{
	(void)ep;
	(void)service;
}

static const struct rds_transport_ops ops = {.caps = RDS_TCAP_DIRECT, .send = fake_send, .flush = fake_flush};
static struct rds_transport transport = {.ops = &ops};
static struct rds_ep_head endpoint = {.t = &transport};

static void conn_setup(struct rds_conn *conn)
{
	memset(conn, 0, sizeof(*conn));
	conn->t = &transport;
	conn->id.faddr.s6_addr32[3] = THERE;
	conn->queue_tail = &conn->queue;
	ck_assert(rds_ops_prepare(conn));
	conn->next_tx = 1;
	conn->id.peer_slot = RDS_SLOT_REMOTE; /* there is no registry */
}

static void setup(void)
{
	memset(&sent, 0, sizeof(sent));
	memset(&sk, 0, sizeof(sk));
	memset(&other, 0, sizeof(other));
	atomic_store(&other.open, true);
	os_process_start();
	rds_queue_forget();
	atomic_store(&sk.open, true);
	conn_setup(&a);
	conn_setup(&b);
	b.ep = (struct rds_ep *)&endpoint;
	atomic_store(&b.state, RDS_CONN_UP);
}

/* ---- what a program does ---- */

static struct rds_op *write_by(struct rds_sock *from, struct rds_conn *conn, uint16_t dport)
{
	struct rds_op *op = rds_op_new(from, RDS_OP_WRITE, 1);
	struct rds_conn_outgoing out = {.hdr = {.dport = dport}, .u = {.dport = dport}, .ops = op};

	ck_assert_ptr_nonnull(op);
	op->dport = dport;
	op->total = sizeof(mem);
	op->local[0] = (struct iovec){mem, sizeof(mem)};
	op->has_id = true;
	ck_assert_int_eq(rds_ops_xmit(conn, op, false), 0);
	ck_assert_int_eq(rds_conn_xmit(conn, &out), 0);
	rds_ops_put(op);
	return op;
}

static struct rds_op *write_to(struct rds_conn *conn, uint16_t dport)
{
	return write_by(&sk, conn, dport);
}

static void message_to(struct rds_conn *conn, struct rds_sock *from, uint16_t dport)
{
	struct rds_conn_outgoing out = {.hdr = {.dport = dport}, .u = {.dport = dport, .sk = from}};

	ck_assert_int_eq(rds_conn_xmit(conn, &out), 0);
}

static void answered(struct rds_conn *conn, uint64_t id)
{
	rx_lock();
	rds_op_recv_answer(conn, &(struct rds_wire_op_hdr){.kind = RDS_OP_RESULT, .id = id}, NULL, 0);
	rx_unlock();
}

/* All that waits in a's queue is b's. */
static void move(void)
{
	struct rds_queue_item *q, *list = a.queue;

	a.queue = NULL;
	a.queue_tail = &a.queue;
	while ((q = list)) {
		list = q->next;
		rds_op_order_insert(&b, q);
		a.queue_len--;
		rds_queue_flush(&b);
	}
}

/* What the helper would do. */
static void work(struct rds_conn *conn)
{
	if (conn->want_flush)
		rds_queue_flush(conn);
	conn->want_flush = false;
}

/* In the order of their numbers: pieces (p) and messages, by the last digit of their ports. */
static void went(const char *what)
{
	unsigned i;

	for (i = 0; what[i]; i++) {
		const struct rds_hdr *h = &sent.hdr[i / 2];

		ck_assert_uint_lt(i / 2, sent.n);
		ck_assert_uint_gt(h->seq, i ? sent.hdr[i / 2 - 1].seq : 0);
		ck_assert_int_eq(what[i], h->flags & RDS_FLAG_OP ? 'p' : 'm');
		ck_assert_int_eq(what[++i] - '0', h->dport);
	}
	ck_assert_uint_eq(sent.n, i / 2);
}

static void all_over(void)
{
	ck_assert(!a.queue && !a.queue_len && !a.rdma->ops && !a.rdma->nover);
	ck_assert(!b.queue && !b.queue_len && !b.rdma->ops && !b.rdma->nover);
	ck_assert_ptr_eq(b.queue_tail, &b.queue);
	ck_assert(!sk.ordered_ops && !atomic_load(&sk.nops));
	rds_sock_marks_free(&sk.marks);
}

/* The second's message waits for the first, which then has to go the same way. */
START_TEST(test_held_for_what_comes)
{
	uint64_t first = write_to(&a, 1)->id, second;

	message_to(&a, &sk, 1);
	second = write_to(&b, 2)->id;
	message_to(&b, &sk, 3); /* behind what is held */
	went("p2");
	ck_assert_uint_eq(b.queue_len, 2);
	move();
	went("p2p1m1m1");
	ck_assert_uint_eq(b.queue_len, 2);
	answered(&b, second);
	work(&b);
	went("p2p1m1m1");
	answered(&b, first);
	work(&b);
	went("p2p1m1m1m2m3");
	ck_assert_uint_eq(sent.hdr[5].seq, 6);
	all_over();
}
END_TEST

/* Another socket's message has no reason to wait behind it. */
START_TEST(test_others_pass)
{
	uint64_t first = write_to(&a, 1)->id, second = write_to(&b, 2)->id;

	message_to(&b, &sk, 3);
	message_to(&b, &other, 4);
	message_to(&b, &other, 5);
	rds_queue_flush(&b);
	went("p2m4m5");
	message_to(&b, &other, 6);
	message_to(&a, &other, 1);
	move();
	went("p2m4m5p1m6m1m1");
	answered(&b, second);
	answered(&b, first);
	work(&b);
	went("p2m4m5p1m6m1m1m2m3");
	all_over();
}
END_TEST

static struct rds_op *write_of(struct rds_sock *from, struct rds_conn *conn, uint16_t dport)
{
	struct rds_op *op = write_by(from, conn, dport);

	rds_queue_flush(conn); /* as calls/send.c does */
	return op;
}

/*
 * Two sockets with two ways: the message of each waits, on one way, for what lies behind the other
 * one's on the other way.  What passes ends before what it has passed, and a message that was
 * passed goes when its own operation has ended well.
 */
START_TEST(test_crosswise)
{
	uint64_t first, second, third, fourth, fifth, sixth;

	a.ep = (struct rds_ep *)&endpoint;
	first = write_by(&sk, &a, 1)->id; /* a is not up yet */
	second = write_by(&other, &b, 2)->id;
	third = write_by(&sk, &b, 3)->id; /* its message waits for the first */
	went("p2m2p3");
	atomic_store(&b.state, RDS_CONN_DOWN);
	fourth = write_by(&sk, &b, 4)->id;
	fifth = write_by(&other, &b, 5)->id;
	/* ... and this one's for the fifth, which lies behind the third's */
	sixth = write_by(&other, &a, 6)->id;
	atomic_store(&a.state, RDS_CONN_UP);
	atomic_store(&b.state, RDS_CONN_UP);
	memset(&sent, 0, sizeof(sent));
	rds_queue_flush(&b);
	went("p5m5");
	memset(&sent, 0, sizeof(sent));
	rds_queue_flush(&a);
	went("p1m1p6");
	answered(&b, second);
	answered(&b, fifth);
	answered(&b, third);
	ck_assert_uint_eq(b.rdma->ops->id, fourth); /* the fifth is done */
	memset(&sent, 0, sizeof(sent));
	work(&a);
	work(&b);
	went("m6");
	answered(&a, first);
	memset(&sent, 0, sizeof(sent));
	work(&b);
	went("m3p4m4");
	answered(&b, fourth);
	answered(&a, sixth);
	ck_assert(!other.ordered_ops && !atomic_load(&other.nops));
	rds_sock_marks_free(&other.marks);
	all_over();
}
END_TEST

/* Both have failed, and the peer remembers one: the message that was passed must not go. */
START_TEST(test_passed_and_failed)
{
	uint64_t second, third;

	write_to(&a, 1);
	second = write_to(&b, 2)->id;
	third = write_of(&other, &b, 3)->id;
	went("p2p3m3");
	rx_lock();
	rds_ops_broken(&a, true, false);
	rx_unlock();
	rds_queue_purge(&a, false);
	work(&b);
	went("p2p3m3"); /* the end of the second is not known yet */
	rx_lock();
	rds_op_recv_answer(&b, &(struct rds_wire_op_hdr){.kind = RDS_OP_RESULT, .id = second, .status = 1}, NULL, 0);
	rx_unlock();
	work(&b);
	answered(&b, third);
	work(&b);
	went("p2p3m3");
	rds_sock_marks_free(&other.marks);
	all_over();
}
END_TEST

/*
 * An operation passes others, but then there is no room; they go before its message when there is,
 * and may fail.
 */
START_TEST(test_passes_and_failed)
{
	uint64_t second, third, fourth;

	write_to(&a, 1);
	second = write_to(&b, 2)->id;
	third = write_to(&b, 3)->id;
	rds_queue_flush(&b);
	went("p2");
	room = 0;
	fourth = write_of(&other, &b, 4)->id;
	went("p2");
	room = UINT32_MAX;
	rx_lock();
	rds_ops_broken(&a, true, false); /* the first */
	rx_unlock();
	rds_queue_purge(&a, false);
	answered(&b, second);
	work(&b);
	went("p2p4m2p3m3"); /* the third may have failed: then the fourth is forgotten */
	rx_lock();
	rds_op_recv_answer(&b, &(struct rds_wire_op_hdr){.kind = RDS_OP_RESULT, .id = fourth, .status = _i}, NULL, 0);
	rx_unlock();
	answered(&b, third);
	work(&b);
	went(_i ? "p2p4m2p3m3" : "p2p4m2p3m3m4");
	rds_sock_marks_free(&other.marks);
	all_over();
}
END_TEST

/*
 * An answer that was put behind what waited for room must not stay behind what waits for the peer.
 */
START_TEST(test_answers_pass)
{
	struct rds_hdr to = {.sport = 9, .dport = 8};
	uint64_t first, second;
	struct rds_queue_item *q;

	first = write_to(&a, 1)->id;
	second = write_to(&b, 2)->id;
	message_to(&b, &sk, 3);
	rx_lock();
	q = rds_op_answer_new(&to, 0);
	rx_unlock();
	ck_assert_ptr_nonnull(q);
	q->answers = &b;
	atomic_fetch_add(&b.answer_bytes, rds_queue_answer_weight(q));
	q->hdr.seq = q->u.seq = b.next_tx++;
	rds_queue_append(&b, q);
	rds_queue_flush(&b);
	went("p2p9");
	answered(&b, second);
	work(&b);
	went("p2p9");
	rx_lock();
	rds_ops_broken(&a, true, false);
	rx_unlock();
	rds_queue_purge(&a, false);
	work(&b);
	went("p2p9m2m3");
	(void)first;
	all_over();
}
END_TEST

/*
 * They, too, go before what waits for the peer; but a peer that takes nothing is not answered for
 * ever.
 */
START_TEST(test_pongs)
{
	unsigned n = 0, most = (65 << 20) / sizeof(struct rds_queue_item);

	atomic_store(&b.state, RDS_CONN_CONNECTING);
	while (n++ < 2 * most)
		ck_assert_int_eq(rds_conn_xmit_pong(&b, 9), 0);
	ck_assert_uint_ge(b.queue_len, 10000);
	ck_assert_uint_le(b.queue_len, most);
	ck_assert_uint_ge(atomic_load(&b.answer_bytes), b.queue_len * sizeof(struct rds_queue_item));
	rds_queue_drop_all(&b);
	ck_assert_uint_eq(atomic_load(&b.answer_bytes), 0);
	ck_assert_int_eq(rds_conn_xmit_pong(&b, 9), 0);
	ck_assert_uint_eq(b.queue_len, 1);
	atomic_store(&b.state, RDS_CONN_UP);
	rds_queue_flush(&b);
	went("m9");
	ck_assert_uint_eq(atomic_load(&b.answer_bytes), 0);
}
END_TEST

/*
 * A redirect goes before messages that no transport ever had, each behind the last one; but not
 * before a message that a device has been told of.
 */
START_TEST(test_notices)
{
	struct iovec iov = {mem, RDS_REDIRECT_BYTES};
	struct rds_conn_outgoing out = {.iov = &iov, .len = iov.iov_len};
	struct rds_op *op = NULL;

	out.hdr = (struct rds_hdr){.len = RDS_REDIRECT_BYTES, .flags = RDS_FLAG_REDIRECT};
	atomic_store(&b.state, RDS_CONN_CONNECTING);
	message_to(&b, &sk, 1);
	b.queue->was_sent = _i & 1;
	if (_i & 2)
		op = write_to(&b, 2);
	message_to(&b, &other, 3);
	for (out.hdr.dport = 4; out.hdr.dport <= 5; out.hdr.dport++)
		ck_assert_int_eq(rds_conn_xmit(&b, &out), 0);
	message_to(&b, &sk, 6);
	ck_assert_uint_eq(b.queue_len, _i & 2 ? 7 : 5);
	if (op)
		op->by_device = _i & 4;
	out.hdr.dport = 7;
	ck_assert_int_eq(rds_conn_xmit(&b, &out), 0);
	if (op)
		op->by_device = false;
	atomic_store(&b.state, RDS_CONN_UP);
	rds_queue_flush(&b);
	if (!op)
		went(_i & 1 ? "m1m4m5m7m3m6" : "m4m5m7m1m3m6");
	else if (_i & 4)
		went(_i & 1 ? "m1m4m5p2m2m7m3m6" : "m4m5m1p2m2m7m3m6");
	else
		went(_i & 1 ? "m1m4m5m7p2m2m3m6" : "m4m5m7m1p2m2m3m6");
	if (op)
		answered(&b, op->id);
	all_over();
}
END_TEST

/* What is older of the same stream is not overtaken. */
START_TEST(test_same_stream_at_the_end)
{
	uint64_t first = write_to(&a, 1)->id, second = write_to(&b, 2)->id;
	const struct rds_queue_item *moved;

	message_to(&b, &sk, 5);
	message_to(&a, &sk, 5);
	moved = container_of(a.queue_tail, struct rds_queue_item, next);
	move();
	went("p2p1m1");
	ck_assert_ptr_eq(b.queue_tail, &moved->next);
	answered(&b, second);
	answered(&b, first);
	work(&b);
	went("p2p1m1m2m5m5");
	all_over();
}
END_TEST

/*
 * Operations end in the order in which they go: what goes before what waits behind the held one
 * ends before it, too.
 */
START_TEST(test_ends_before_what_waits)
{
	uint64_t first = write_to(&a, 1)->id, second = write_to(&b, 2)->id, third = write_to(&b, 3)->id;

	move();
	went("p2p1m1");
	answered(&b, second);
	answered(&b, first);
	work(&b);
	went("p2p1m1m2p3m3");
	answered(&b, third);
	all_over();
}
END_TEST

/* They have waited together, and go to different processes. */
START_TEST(test_parts)
{
	uint64_t first = write_to(&a, 1)->id, second = write_to(&a, 2)->id;
	struct rds_queue_item *q = a.queue;

	a.queue = q->next->next; /* the second one's port is found first */
	q->next->next = NULL;
	a.queue_len -= 2;
	move();
	went("p2");
	ck_assert_ptr_nonnull(b.queue);
	answered(&b, second);
	work(&b);
	went("p2");
	a.queue = q;
	a.queue_len += 2;
	move();
	went("p2p1m1");
	answered(&b, first);
	work(&b);
	went("p2p1m1m2");
	all_over();
}
END_TEST

/* That a message's operation ends, in turn or not, does not end its wait for another one. */
START_TEST(test_held_in_line)
{
	uint64_t before = write_to(&b, 1)->id, op;

	write_to(&a, 2);
	op = write_to(&b, 3)->id;
	went("p1m1p3");
	answered(&b, op);
	ck_assert_uint_eq(b.rdma->nover, 1);
	work(&b);
	answered(&b, before);
	work(&b);
	went("p1m1p3");
	ck_assert_ptr_nonnull(b.queue);
	rx_lock();
	rds_ops_broken(&a, true, false);
	rx_unlock();
	rds_queue_purge(&a, false);
	work(&b);
	went("p1m1p3m3");
	all_over();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("op_order");
	TCase *t = suite_case(s, "barrier's age", setup, NULL);

	tcase_add_test(t, test_held_for_what_comes);
	tcase_add_test(t, test_others_pass);
	tcase_add_test(t, test_crosswise);
	tcase_add_test(t, test_passed_and_failed);
	tcase_add_loop_test(t, test_passes_and_failed, 0, 2);
	tcase_add_test(t, test_answers_pass);
	tcase_add_test(t, test_pongs);
	tcase_add_loop_test(t, test_notices, 0, 8);
	tcase_add_test(t, test_same_stream_at_the_end);
	tcase_add_test(t, test_ends_before_what_waits);
	tcase_add_test(t, test_parts);
	tcase_add_test(t, test_held_in_line);
	return suite_run(s);
}
