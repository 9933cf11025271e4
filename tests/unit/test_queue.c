/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_queue.c - the messages that a connection keeps when its endpoint breaks, also without memory
 * (linked with --wrap=malloc), and when its peer acknowledges what it cannot have.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/conn/client.h"
#include "tests/unit/suite.h"

/* ---- memory that runs out ---- */

static int left = -1; /* allocations that succeed; -1 all */

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);

void *__wrap_malloc(size_t n)
{
	if (left == 0)
		return NULL;
	if (left > 0)
		left--;
	return __real_malloc(n);
}

/* ---- a transport that keeps what it is given ---- */

static struct rds_conn conn;
static unsigned char ring[16][64];
static uint64_t sent[16];
static uint8_t flags[16];
static unsigned nsent;
static uint64_t acked, ack_at_send;

static int fake_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	struct rds_hdr hdr;

	(void)ep;
	ck_assert_int_eq(rds_wire_hdr_decode(wire, &hdr), 0);
	ck_assert_uint_eq(hdr.len, len);
	sent[nsent] = hdr.seq;
	flags[nsent] = hdr.flags;
	if (len)
		memcpy(ring[nsent], iov->iov_base, len);
	*pos = nsent++;
	if (ack_at_send) { /* a peer that is faster than we are */
		acked = ack_at_send;
		ck_assert_uint_le(acked, rds_queue_sent(&conn));
	}
	return 0;
}

static const void *fake_retained(struct rds_ep *ep, uint64_t pos)
{
	(void)ep;
	return ring[pos];
}

static unsigned asked;

static void fake_flush(struct rds_ep *ep, bool service)
{
	(void)ep;
	asked += service;
}

static bool fake_want_room(struct rds_ep *ep, uint64_t seen_ack)
{
	(void)ep;
	return acked > seen_ack;
}

static unsigned nlooked; /* for acknowledgements */

static uint64_t fake_acked(struct rds_ep *ep)
{
	(void)ep;
	nlooked++;
	return acked;
}

static const struct rds_transport_ops ops = {.send = fake_send,
					     .retained = fake_retained,
					     .flush = fake_flush,
					     .acked = fake_acked,
					     .want_room = fake_want_room};
static const struct rds_transport_ops patient_ops = {.caps = RDS_TCAP_PATIENT,
						     .send = fake_send,
						     .flush = fake_flush,
						     .acked = fake_acked,
						     .want_room = fake_want_room};
static struct rds_transport transport = {.ops = &ops};
static struct rds_ep_head endpoint = {.t = &transport};

static void setup(void)
{
	os_process_start();
	memset(&conn, 0, sizeof(conn));
	conn.t = &transport;
	conn.queue_tail = &conn.queue;
	conn.next_tx = 1;
	nsent = nlooked = 0;
	acked = ack_at_send = 0;
	left = -1;
	rds_queue_forget();
}

static void teardown(void)
{
	rds_timer_cancel(&conn.retry);
}

static void state(enum rds_conn_state s)
{
	atomic_store(&conn.state, s);
	conn.ep = s == RDS_CONN_UP ? (struct rds_ep *)&endpoint : NULL;
}

/* Each to the port that has its number. */
static void give(unsigned n)
{
	for (; n; n--) {
		char text[16];
		struct iovec iov = {.iov_base = text};
		struct rds_conn_outgoing out = {.iov = &iov};

		iov.iov_len = out.len = (size_t)snprintf(text, sizeof(text), "message %u", (unsigned)conn.next_tx);
		out.hdr.len = out.u.len = (uint32_t)out.len;
		out.hdr.dport = out.u.dport = (uint16_t)conn.next_tx;
		ck_assert_int_eq(rds_conn_xmit(&conn, &out), 0);
	}
}

static bool broken(int memory)
{
	bool done;

	state(RDS_CONN_CONNECTING);
	left = memory;
	done = rds_queue_requeue(&conn, (struct rds_ep *)&endpoint);
	left = -1;
	return done;
}

/* Everything that was given goes again, once, in order, with its bytes. */
static void all_go_again(unsigned from, unsigned first_new, unsigned last)
{
	char text[16];
	unsigned i;

	state(RDS_CONN_UP);
	nsent = 0;
	rds_queue_flush(&conn);
	ck_assert_uint_eq(nsent, last - from + 1);
	for (i = 0; i < nsent; i++) {
		ck_assert_uint_eq(sent[i], from + i);
		ck_assert_int_eq(!!(flags[i] & RDS_FLAG_RETRANSMITTED), from + i < first_new);
		snprintf(text, sizeof(text), "message %u", from + i);
		ck_assert_mem_eq(ring[i], text, strlen(text));
	}
	ck_assert_ptr_null(conn.queue);
	ck_assert_ptr_eq(conn.queue_tail, &conn.queue);
	ck_assert_uint_eq(conn.queue_len, 0);
	ck_assert_uint_eq(conn.count, nsent);
}

/* After each number of allocations that still succeed. */
START_TEST(test_no_memory_loses_nothing)
{
	int memory = _i;

	state(RDS_CONN_UP);
	give(5);
	ck_assert(broken(memory) == (memory >= 5));
	ck_assert_uint_eq(conn.count + conn.queue_len, 5);
	give(2); /* meanwhile: they wait behind the others */
	while (!broken(1))
		;
	ck_assert_uint_eq(conn.queue_len, 7);
	all_go_again(1, 6, 7);
}
END_TEST

START_TEST(test_before_what_waits)
{
	state(RDS_CONN_UP);
	give(3);
	state(RDS_CONN_CONNECTING);
	give(2);
	conn.backoff_ms = 640;
	ck_assert(!broken(0));
	ck_assert_uint_eq(conn.backoff_ms, 640);
	ck_assert(!broken(2)); /* there was memory for some, and soon there is for more */
	ck_assert_uint_eq(conn.backoff_ms, 0);
	ck_assert(broken(-1));
	all_go_again(1, 4, 5);
}
END_TEST

static void cancel(uint16_t port)
{
	struct rds_addr dst = {.port = port};

	rds_queue_cancel(&conn, NULL, &dst);
}

START_TEST(test_cancelled_do_not_go_again)
{
	state(RDS_CONN_UP);
	give(3);
	cancel(1);
	cancel(3);
	ck_assert(broken(1));
	all_go_again(2, 4, 2);
}
END_TEST

START_TEST(test_gone_while_there_is_no_memory)
{
	state(RDS_CONN_UP);
	give(4);
	ck_assert(!broken(2));
	rds_queue_drop_all(&conn);
	ck_assert_uint_eq(conn.count + conn.queue_len, 0);
	ck_assert_ptr_null(conn.queue);
}
END_TEST

/* ---- acknowledgements ---- */

static void distrusted(unsigned kept)
{
	ck_assert(atomic_load(&conn.ack_lied));
	ck_assert(rds_timer_is_set(&conn.retry)); /* the helper will break it */
	ck_assert_uint_eq(conn.count, kept);
}

START_TEST(test_acks_are_believed)
{
	state(RDS_CONN_UP);
	give(5);
	acked = 3;
	rds_queue_reap(&conn);
	ck_assert_uint_eq(conn.count, 2);
	acked = 5;
	rds_queue_reap(&conn);
	ck_assert_uint_eq(conn.count, 0);
	ck_assert(!atomic_load(&conn.ack_lied));
	ck_assert(!rds_timer_is_set(&conn.retry));
}
END_TEST

/*
 * By one, and by as much as there is: nothing is given up for it, not even what the peer may really
 * have.
 */
START_TEST(test_acks_beyond_what_was_sent)
{
	state(RDS_CONN_UP);
	give(5);
	acked = _i ? UINT64_MAX : 6;
	rds_queue_reap(&conn);
	distrusted(5);
	ck_assert_uint_eq(conn.acked, 0);
	give(3); /* the helper is not there yet; what is sent now makes the lie no truth */
	acked = 6;
	rds_queue_reap(&conn);
	distrusted(8);
	ck_assert(broken(-1));
	all_go_again(1, 9, 8);
}
END_TEST

/* What waits was never sent either. */
START_TEST(test_acks_of_what_waits)
{
	state(RDS_CONN_UP);
	give(3);
	state(RDS_CONN_CONNECTING);
	give(2);
	conn.ep = (struct rds_ep *)&endpoint;
	acked = 4;
	rds_queue_reap(&conn);
	distrusted(3);
}
END_TEST

START_TEST(test_ack_comes_before_send_returns)
{
	state(RDS_CONN_UP);
	ack_at_send = 1;
	give(1);
	rds_queue_reap(&conn);
	ck_assert(!atomic_load(&conn.ack_lied));
	ck_assert_uint_eq(conn.count, 0);
	state(RDS_CONN_CONNECTING);
	give(1);
	state(RDS_CONN_UP);
	ack_at_send = 2;
	rds_queue_flush(&conn);
	rds_queue_reap(&conn);
	ck_assert(!atomic_load(&conn.ack_lied));
	ck_assert_uint_eq(conn.count, 0);
}
END_TEST

/*
 * The peer says what it has while the connection comes up: all that any endpoint was given is
 * possible, and no more.
 */
START_TEST(test_acks_when_it_comes_up)
{
	state(RDS_CONN_UP);
	give(3);
	ck_assert(broken(-1));
	give(2);
	rds_queue_acked(&conn, (struct rds_received){.acked = 3, .all = 3 + (uint64_t)_i});
	ck_assert_uint_eq(conn.queue_len, _i ? 5 : 2);
	ck_assert_uint_eq(conn.acked, _i ? 0 : 3);
	ck_assert(atomic_load(&conn.ack_lied) == (_i > 0));
	ck_assert(rds_timer_is_set(&conn.retry) == (_i > 0));
}
END_TEST

/* ---- what a connection keeps in memory ---- */

/* A million of them may each have carried a few messages. */
START_TEST(test_few_messages_take_little)
{
	_Static_assert(sizeof(struct rds_queue_unacked) == 56, "no holes");
	state(RDS_CONN_UP);
	give(4);
	ck_assert_uint_eq(conn.cap, 4);
	give(1);
	ck_assert_uint_eq(conn.cap, 8);
	ck_assert(broken(-1));
	all_go_again(1, 6, 5);
}
END_TEST

/* The peer takes each at once, but that is looked for now and then only: until then all are kept. */
START_TEST(test_busy_looks_seldom)
{
	state(RDS_CONN_UP);
	for (nsent = 0; acked < 320; nsent = 0) {
		give(1);
		acked++;
	}
	ck_assert_uint_eq(nlooked, 10);
	ck_assert_uint_eq(conn.cap, 64);
}
END_TEST

/* Without memory for more, it looks. */
START_TEST(test_full_looks)
{
	int err;

	state(RDS_CONN_UP);
	give(4);
	acked = 3;
	left = 0;
	err = rds_queue_unacked_room(&conn);
	left = -1;
	ck_assert_int_eq(err, 0);
	ck_assert_uint_eq(conn.count, 1);
	ck_assert_uint_eq(conn.cap, 4);
}
END_TEST

static bool waits_for_answer(const struct rds_queue_unacked *u)
{
	return u->seq == 1;
}

/*
 * The peer has acknowledged the first message, but has not answered its operation.  What comes
 * behind it is looked at once, and takes no memory when it is over.
 */
START_TEST(test_unanswered)
{
	bool (*was)(const struct rds_queue_unacked *u) = rds_conn_client.report_unanswered;
	unsigned i;

	rds_conn_client.report_unanswered = waits_for_answer;
	state(RDS_CONN_UP);
	give(3);
	rds_queue_unacked_at(&conn, 0)->report = RDS_REPORT_END;
	rds_queue_unacked_at(&conn, 1)->report = RDS_REPORT_END;
	rds_queue_unacked_at(&conn, 1)->once = true; /* its end is told behind the first one's */
	for (acked = i = 3; i < 10000; acked = ++i) {
		rds_queue_reap(&conn);
		ck_assert(!rds_queue_unacked_at(&conn, 1)->cancelled);
		rds_queue_unacked_at(&conn, 1)->once = false; /* so another look would be seen */
		nsent = 0;
		give(1);
	}
	ck_assert_uint_le(conn.cap, 64);
	ck_assert_uint_eq(rds_queue_unacked_at(&conn, 0)->seq, 1);
	ck_assert_uint_eq(rds_queue_unacked_at(&conn, 1)->seq, 2);
	rds_queue_unacked_at(&conn, 0)->report = rds_queue_unacked_at(&conn, 1)->report = 0;
	rds_queue_reap(&conn);
	ck_assert_uint_eq(conn.count, 0);
	rds_conn_client.report_unanswered = was;
}
END_TEST

/* Nor does it need memory to make room of what is over; _i: so many are. */
START_TEST(test_makes_room)
{
	int err;

	state(RDS_CONN_UP);
	give(4);
	acked = 1;
	rds_queue_reap(&conn); /* so that the ring does not begin at its first place */
	give(1);
	for (int i = 0; i < _i; i++)
		cancel((uint16_t)(3 + i));
	left = 0;
	err = rds_queue_unacked_room(&conn);
	left = -1;
	ck_assert_int_eq(err, 0);
	ck_assert_uint_eq(conn.cap, 4);
	ck_assert_uint_eq(conn.count, 4 - (unsigned)_i);
	ck_assert_uint_eq(rds_queue_unacked_at(&conn, 0)->seq, 2);
	ck_assert_uint_eq(rds_queue_unacked_at(&conn, 3 - (unsigned)_i)->seq, 5);
}
END_TEST

/*
 * What was not worth a wake-up at once is asked for before anybody sleeps, and after looks in vain;
 * once.
 */
START_TEST(test_asks_later)
{
	unsigned looks;

	state(RDS_CONN_UP);
	ck_assert(!rds_queue_ask_later(&conn)); /* not of that transport: it has to be asked now */
	transport.ops = &patient_ops;
	give(1);
	rds_queue_busy_add(&conn);
	asked = 0;
	ck_assert(!rds_queue_ask_deferred()); /* nothing was left out */
	ck_assert_uint_eq(asked, 0);
	ck_assert(rds_queue_ask_later(&conn));
	if (_i)
		for (looks = 0; !asked && looks < 1000; looks++)
			rds_queue_looked_in_vain();
	else
		rds_queue_ask_deferred();
	ck_assert_uint_eq(asked, 1);
	for (looks = 0; looks < 1000; looks++)
		rds_queue_looked_in_vain();
	rds_queue_ask_deferred();
	ck_assert_uint_eq(asked, 1);
	ck_assert(rds_queue_ask_later(&conn));
	acked = 1;
	ck_assert(rds_queue_ask_deferred()); /* an answer has come meanwhile */
	transport.ops = &ops;
	os_process_forget();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("queue");
	TCase *t = tcase_create("requeue"), *a = tcase_create("acks");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_loop_test(t, test_no_memory_loses_nothing, 0, 7);
	tcase_add_test(t, test_before_what_waits);
	tcase_add_test(t, test_cancelled_do_not_go_again);
	tcase_add_test(t, test_gone_while_there_is_no_memory);
	suite_add_tcase(s, t);
	tcase_add_checked_fixture(a, setup, teardown);
	tcase_add_test(a, test_acks_are_believed);
	tcase_add_loop_test(a, test_acks_beyond_what_was_sent, 0, 2);
	tcase_add_test(a, test_unanswered);
	tcase_add_loop_test(a, test_makes_room, 1, 3);
	tcase_add_test(a, test_acks_of_what_waits);
	tcase_add_test(a, test_ack_comes_before_send_returns);
	tcase_add_loop_test(a, test_acks_when_it_comes_up, 0, 2);
	tcase_add_test(a, test_few_messages_take_little);
	tcase_add_test(a, test_busy_looks_seldom);
	tcase_add_test(a, test_full_looks);
	tcase_add_loop_test(a, test_asks_later, 0, 2);
	suite_add_tcase(s, a);
	return suite_run(s);
}
