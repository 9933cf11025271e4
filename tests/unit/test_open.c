/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_open.c - connections that are up at once, over an endpoint that no peer was asked for, and the
 * endpoint that takes its place.
 *
 * The test plays a transport with open(), and the process that it reaches (test_reach_fake.h).
 */
#include <stdlib.h>
#include <string.h>

#include "engine/conn/client.h"
#include "tests/unit/suite.h"
#include "tests/unit/test_reach_fake.h"

#define LONG_TEXT "a message that is too long for the endpoint that was opened"
#define SHORT_MAX 32

static struct rds_conn_id id; /* of the connection, as seen from here */
static struct rds_transport_ops opening, first_ops;
static struct rds_transport first;
static struct fake_ep *opened[4];
static _Atomic unsigned nopened;
static int no_open;	       /* what open() says */
static _Atomic bool no_memory; /* for what the first endpoint has */

static int first_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		      uint64_t *pos)
{
	return len > SHORT_MAX ? -EMSGSIZE : opening.send(ep, wire, iov, len, pos);
}

static const void *first_retained(struct rds_ep *ep, uint64_t pos)
{
	return no_memory ? NULL : opening.retained(ep, pos);
}

static bool first_settled(struct rds_ep *ep)
{
	(void)ep;
	return true;
}

static unsigned nrests;

static void first_rest(struct rds_ep *ep)
{
	(void)ep;
	nrests++;
}

static void first_attach(struct rds_ep *ep, struct rds_conn *conn)
{
	((struct rds_ep_head *)ep)->conn = conn;
}

static struct fake_ep *first_new(struct rds_conn *conn)
{
	struct fake_ep *e = ep_new(conn);

	e->head.t = &first;
	return e;
}

static int fake_open(struct rds_transport *t, const struct rds_conn_id *to, struct rds_conn *conn, struct rds_ep **ep)
{
	ck_assert_ptr_eq(t, &fake.t);
	if (no_open)
		return no_open;
	opened[nopened] = first_new(conn);
	opened[nopened]->id = *to;
	*ep = (struct rds_ep *)opened[nopened++];
	return 0;
}

static void setup(void)
{
	far_setup();
	id = far_id(0);
	/* smaller than ours: of two attempts that cross, the peer's wins */
	id.peer.b[sizeof(id.peer.b) - 1] = 1;
	opening = first_ops = *fake.t.ops;
	opening.open = fake_open;
	first_ops.caps |= RDS_TCAP_FIRST;
	first_ops.send = first_send;
	first_ops.settled = first_settled;
	first_ops.retained = first_retained;
	first_ops.attach = first_attach;
	first_ops.rest = first_rest;
	fake.t.ops = &opening;
	first = (struct rds_transport){.ops = &first_ops, .up = fake.t.up};
	nopened = 0;
	no_open = 0;
	no_memory = false;
}

static struct rds_conn *the_conn(void)
{
	struct rds_conn *conn;

	rds_lock(&rds_lock_control);
	conn = rds_conn_find(RDS_CONN_PEER, &id);
	rds_unlock(&rds_lock_control);
	return conn;
}

static enum rds_conn_state state(void)
{
	return atomic_load(&the_conn()->state);
}

static void say_located(void *arg)
{
	(void)arg;
	fake.t.up->located(&fake.t, &id, 5, 0);
}

/* The first message: the other side has to say where it goes. */
static void say_first(const char *text)
{
	say(5, text);
	await(locked(&fake.nasked) > 0);
	in_helper(say_located, NULL);
}

/* Message `n` of the endpoint, from 0 on. */
static void has_at(struct fake_ep *e, unsigned n, const char *text)
{
	await(locked(&e->n) > n);
	ck_assert_str_eq((char *)e->kept[n], text);
}

static void has(struct fake_ep *e, unsigned n, const char *last)
{
	has_at(e, n - 1, last);
	ck_assert_uint_eq(locked(&e->n), n);
}

static bool sent_again(unsigned nth)
{
	return fake.sent[nth].hdr.flags & RDS_FLAG_RETRANSMITTED;
}

/* Opened by us, with messages 1 and 2, the first acknowledged. */
static struct fake_ep *standing(void)
{
	say_first("a");
	await(nopened == 1);
	has(opened[0], 1, "a");
	say(5, "b");
	has(opened[0], 2, "b");
	ep_acks(opened[0], 1);
	ck_assert_int_eq(state(), RDS_CONN_UP);
	return opened[0];
}

static struct rds_conn *peer_opens(struct fake_ep *e, int answer)
{
	int why = 1;
	struct rds_conn *conn = fake.t.up->opened(&fake.t, (struct rds_ep *)e, &id, &why);

	ck_assert_int_eq(why, answer);
	ck_assert_int_eq(conn == NULL, answer != 0);
	return conn;
}

static void arrives(struct fake_ep *e, struct rds_conn *conn, uint64_t seq, uint8_t flags)
{
	struct rds_rx rx = {.hdr = {.seq = seq, .len = 1, .sport = 5, .dport = 4000, .flags = flags}, .data = "x"};

	rx_lock();
	ck_assert_int_eq(fake.t.up->message(conn, (struct rds_ep *)e, &rx), RDS_RX_DONE);
	rx_unlock();
}

/* Bytes, and so messages, that wait for the program. */
static void received(uint64_t n)
{
	rx_lock();
	ck_assert_uint_eq(fake.sk->rcv_bytes, n);
	rx_unlock();
}

/* ---- tests ---- */

START_TEST(test_at_once)
{
	struct fake_ep *e = standing();

	ck_assert_uint_eq(locked(&fake.neps), 0);
	ck_assert_uint_eq(fake.nmaps, 0); /* no port is congested */
	ck_assert_ptr_eq(e->head.conn, the_conn());
	ep_acks(e, 2);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
}
END_TEST

/* Nothing is kept for a peer that has acknowledged all messages, until the next one. */
START_TEST(test_rests)
{
	struct fake_ep *e = standing();
	struct rds_conn *conn = the_conn();

	ck_assert(fake.t.up->awaited(conn)); /* the second message */
	ck_assert_uint_eq(nrests, 0);
	ep_acks(e, 2);
	ck_assert(!fake.t.up->awaited(conn));
	ck_assert_uint_eq(nrests, 1);
	ck_assert_ptr_null(conn->unacked);
	say(5, "c");
	has(e, 3, "c");
	ck_assert(fake.t.up->awaited(conn));
}
END_TEST

/* A peer that waits for one of our ports has to know before it gets anything. */
START_TEST(test_congested)
{
	rx_lock();
	fake.sk->rcv_bytes = rds_sock_rcvbuf(fake.sk) + 1;
	rds_cong_check(fake.sk);
	rx_unlock();
	say_first("a");
	await(nopened == 1);
	has(opened[0], 1, "a");
	ck_assert_uint_eq(fake.nmaps, 1);
}
END_TEST

START_TEST(test_cannot)
{
	no_open = -ENOMEM;
	say_first("a");
	await(locked(&fake.neps) == 1);
	ep_up(fake.eps[0], 0);
	has(fake.eps[0], 1, "a");
}
END_TEST

START_TEST(test_peer_opens)
{
	struct fake_ep *e = first_new(NULL);
	struct rds_conn *conn = peer_opens(e, 0);

	ck_assert_ptr_eq(e->head.conn, conn);
	arrives(e, conn, 1, 0);
	received(1);
	say_first("a");
	has(e, 1, "a");
	ck_assert_uint_eq(nopened, 0);
	ck_assert_uint_eq(locked(&fake.neps), 0);
}
END_TEST

/* Both sides have opened: our endpoint is the other end of the peer's. */
START_TEST(test_crossing)
{
	struct fake_ep *e = standing(), *theirs = first_new(NULL);

	peer_opens(theirs, -EEXIST);
	ck_assert(!atomic_load(&theirs->closed));
	ck_assert_ptr_null(theirs->head.conn);
	arrives(e, e->head.conn, 1, 0);
	arrives(e, e->head.conn, 2, 0);
	received(2);
	say(5, "c");
	has(e, 3, "c");
}
END_TEST

START_TEST(test_refused)
{
	struct fake_ep *e = standing();

	ep_down(e, -ECONNRESET, false);
	ck_assert(atomic_load(&e->closed));
	peer_opens(first_new(NULL), -EALREADY);
	await(locked(&fake.neps) == 1);
	ep_up(fake.eps[0], 1);
	peer_opens(first_new(NULL), -EALREADY);
	id.laddr.s6_addr[15] = 9; /* no socket of ours is there */
	peer_opens(first_new(NULL), -EADDRNOTAVAIL);
}
END_TEST

START_TEST(test_breaks)
{
	struct fake_ep *e = standing();

	ep_down(e, -ECONNRESET, false);
	ck_assert(atomic_load(&e->closed));
	await(locked(&fake.neps) == 1);
	say(5, "c");
	ep_up(fake.eps[0], 1);
	has(fake.eps[0], 2, "c");
	has_at(fake.eps[0], 0, "b");
	ck_assert(sent_again(2) && !sent_again(3));
	ck_assert_uint_eq(nopened, 1);
	ep_acks(fake.eps[0], 3);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
}
END_TEST

START_TEST(test_gone)
{
	struct fake_ep *e = standing();

	ep_down(e, -ECONNREFUSED, true);
	ck_assert(atomic_load(&e->closed));
	ck_assert_ptr_null(the_conn());
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
}
END_TEST

/* A long message waits for the next endpoint, later ones behind it; the first one receives meanwhile. */
static struct fake_ep *outgrown(struct fake_ep *e)
{
	say(5, LONG_TEXT);
	say(5, "d");
	await(locked(&fake.neps) == 1);
	ck_assert_int_eq(state(), RDS_CONN_UP);
	ck_assert_uint_eq(locked(&e->n), 2);
	arrives(e, e->head.conn, 1, 0);
	received(1);
	return fake.eps[0];
}

static void replaced(struct fake_ep *e, struct fake_ep *by)
{
	has(by, 3, "d");
	has_at(by, 0, "b");
	has_at(by, 1, LONG_TEXT);
	ck_assert(sent_again(2) && !sent_again(3) && !sent_again(4));
	ck_assert(atomic_load(&e->closed) && !atomic_load(&by->closed));
	ck_assert_int_eq(state(), RDS_CONN_UP);
	ck_assert_ptr_eq(the_conn()->t, &fake.t);
	ep_acks(by, 4);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
}

START_TEST(test_too_long)
{
	struct fake_ep *e = standing(), *by = outgrown(e);

	ck_assert_uint_eq(by->here.all, 0);
	ep_up(by, 1);
	replaced(e, by);
	arrives(by, by->head.conn, 1, RDS_FLAG_RETRANSMITTED); /* that had come */
	arrives(by, by->head.conn, 2, 0);
	received(2);
}
END_TEST

/* The peer has received the rest over the first endpoint before it closed its end. */
START_TEST(test_all_there)
{
	struct fake_ep *e = standing(), *by = outgrown(e);

	ep_up(by, 2);
	has(by, 2, "d");
	has_at(by, 0, LONG_TEXT);
}
END_TEST

/* Asked for by the transport; the peer, which was asked, has closed its end at once. */
START_TEST(test_first_ends_first)
{
	struct fake_ep *e = standing(), *by = outgrown(e);

	ep_down(e, -ECONNRESET, false);
	ck_assert(atomic_load(&e->closed));
	ck_assert_int_eq(state(), RDS_CONN_CONNECTING);
	ck_assert(!atomic_load(&by->closed));
	ck_assert_uint_eq(locked(&fake.neps), 1);
	ep_up(by, 1);
	replaced(e, by);
}
END_TEST

/*
 * What the first one had would come behind what is sent over the next.  So that one waits, whether the
 * first one has broken or not.  The peer, for which it is up, must not lose it: it may have begun
 * operations over it.
 */
static struct fake_ep *without_memory(struct fake_ep *e, bool breaks, uint64_t acked)
{
	struct fake_ep *by = outgrown(e);

	no_memory = true;
	if (breaks)
		ep_down(e, -ECONNRESET, false);
	ep_up(by, acked);
	ck_assert_uint_eq(locked(&by->n), 0);
	return by;
}

START_TEST(test_no_memory)
{
	struct fake_ep *e = standing(), *by = without_memory(e, _i, 1);

	ck_assert(!atomic_load(&by->closed));
	arrives(by, by->head.conn, 2, 0);
	received(2);
	no_memory = false;
	await(locked(&by->n) == 3);
	replaced(e, by);
	ck_assert_uint_eq(locked(&fake.neps), 1);
}
END_TEST

/* Something else happens before there is memory. */
START_TEST(test_first_ends_without_memory)
{
	struct fake_ep *e = standing(), *by = without_memory(e, false, 1);

	ep_down(e, -ECONNRESET, false);
	ck_assert_int_eq(state(), RDS_CONN_CONNECTING);
	ck_assert(!atomic_load(&by->closed));
	no_memory = false;
	await(locked(&by->n) == 3);
	replaced(e, by);
}
END_TEST

START_TEST(test_next_ends_without_memory)
{
	struct fake_ep *e = standing(), *by = without_memory(e, _i, 1);

	ep_down(by, -ECONNRESET, false);
	ck_assert(atomic_load(&by->closed));
	no_memory = false;
	await(locked(&fake.neps) == 2);
	ep_up(fake.eps[1], 1);
	replaced(e, fake.eps[1]);
}
END_TEST

START_TEST(test_gone_without_memory)
{
	struct fake_ep *e = standing(), *by = without_memory(e, _i, 1);

	ep_down(by, -ECONNREFUSED, true);
	ck_assert(atomic_load(&by->closed) && atomic_load(&e->closed));
	ck_assert_ptr_null(the_conn());
}
END_TEST

/* What the peer has told holds still when there is memory; for what it has, none is needed. */
START_TEST(test_all_there_without_memory)
{
	struct fake_ep *e = standing(), *by = without_memory(e, _i, 2);

	await(locked(&by->n) == 2);
	has_at(by, 0, LONG_TEXT);
	has(by, 2, "d");
	ck_assert(no_memory);
}
END_TEST

START_TEST(test_lies_without_memory)
{
	struct fake_ep *e = standing(), *by = without_memory(e, _i, 99);

	ck_assert(atomic_load(&by->closed));
	no_memory = false;
	await(locked(&fake.neps) == 2);
	ep_up(fake.eps[1], 1);
	replaced(e, fake.eps[1]);
}
END_TEST

START_TEST(test_next_fails)
{
	struct fake_ep *e = standing(), *by = outgrown(e);

	ep_down(by, -ECONNREFUSED, false);
	ck_assert(atomic_load(&by->closed) && !atomic_load(&e->closed));
	ck_assert_int_eq(state(), RDS_CONN_UP);
	await(locked(&fake.neps) == 2);
	ep_up(fake.eps[1], 1);
	replaced(e, fake.eps[1]);
}
END_TEST

START_TEST(test_gone_between)
{
	struct fake_ep *e = standing(), *by = outgrown(e);

	ep_down(_i ? e : by, -ECONNREFUSED, true);
	ck_assert(atomic_load(&by->closed) && atomic_load(&e->closed));
	ck_assert_ptr_null(the_conn());
	/* what no endpoint had looks for another process of that host */
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), sizeof(LONG_TEXT) + sizeof("d"));
}
END_TEST

/* The peer has outgrown it: it is not asked to ask twice. */
START_TEST(test_peer_asks)
{
	struct fake_ep *e = standing(), *by;

	arrives(e, e->head.conn, 1, 0);
	by = far_asks(&id, 0);
	ck_assert(atomic_load(&e->closed));
	ck_assert_uint_eq(by->here.all, 1);
	say(5, LONG_TEXT);
	say(5, "d");
	ep_up(by, 1);
	replaced(e, by);
	ck_assert_uint_eq(locked(&fake.neps), 0);
	/* by now the usual rule */
	far_asks(&id, -EALREADY);
}
END_TEST

START_TEST(test_both_ask)
{
	struct fake_ep *e, *ours, *theirs;

	if (_i)
		memset(id.peer.b, 0xff, sizeof(id.peer.b));
	e = standing();
	ours = outgrown(e);
	theirs = far_asks(&id, _i ? -EALREADY : 0);
	ck_assert_int_eq(atomic_load(&ours->closed), !_i);
	ck_assert_int_eq(atomic_load(&e->closed), !_i);
	ep_up(_i ? ours : theirs, 1);
	replaced(e, _i ? ours : theirs);
	ck_assert_uint_eq(locked(&fake.neps), 1);
}
END_TEST

/* What lies in the first endpoint's memory still when the next one has brought it. */
START_TEST(test_stale)
{
	struct fake_ep *e = standing(), *by = outgrown(e);

	arrives(by, by->head.conn, 1, RDS_FLAG_RETRANSMITTED);
	arrives(by, by->head.conn, 2, RDS_FLAG_RETRANSMITTED);
	arrives(by, by->head.conn, 3, 0);
	received(3);
	arrives(e, e->head.conn, 2, 0);
	received(3);
	arrives(by, by->head.conn, 4, 0);
	received(4);
}
END_TEST

START_TEST(test_transport_says)
{
	struct fake_ep *e = standing();

	rx_lock();
	fake.t.up->outgrown(e->head.conn);
	fake.t.up->outgrown(e->head.conn);
	rx_unlock();
	await(locked(&fake.neps) == 1);
	say(5, "c");
	has(e, 3, "c"); /* as long as it is there */
	ep_up(fake.eps[0], 2);
	has(fake.eps[0], 1, "c");
	ck_assert(atomic_load(&e->closed));
	ck_assert_uint_eq(locked(&fake.neps), 1);
}
END_TEST

/* While one takes the other's place, what was sent is not safe with the transport. */
START_TEST(test_unsent)
{
	struct fake_ep *e;

	first_ops.caps |= RDS_TCAP_SURVIVES;
	e = standing();
	ck_assert_uint_eq(rds_conn_unsent(), 0);
	fake.t.up->outgrown(e->head.conn);
	await(locked(&fake.neps) == 1);
	ck_assert_uint_eq(rds_conn_unsent(), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("open");
	TCase *tc = suite_case(s, "open", setup, NULL);

	tcase_add_test(tc, test_at_once);
	tcase_add_test(tc, test_rests);
	tcase_add_test(tc, test_congested);
	tcase_add_test(tc, test_cannot);
	tcase_add_test(tc, test_peer_opens);
	tcase_add_test(tc, test_crossing);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_breaks);
	tcase_add_test(tc, test_gone);
	tc = suite_case(s, "outgrown", setup, NULL);
	tcase_add_test(tc, test_too_long);
	tcase_add_test(tc, test_all_there);
	tcase_add_test(tc, test_first_ends_first);
	tcase_add_loop_test(tc, test_no_memory, 0, 2);
	tcase_add_test(tc, test_first_ends_without_memory);
	tcase_add_loop_test(tc, test_next_ends_without_memory, 0, 2);
	tcase_add_loop_test(tc, test_gone_without_memory, 0, 2);
	tcase_add_loop_test(tc, test_all_there_without_memory, 0, 2);
	tcase_add_loop_test(tc, test_lies_without_memory, 0, 2);
	tcase_add_test(tc, test_next_fails);
	tcase_add_loop_test(tc, test_gone_between, 0, 2);
	tcase_add_test(tc, test_peer_asks);
	tcase_add_loop_test(tc, test_both_ask, 0, 2);
	tcase_add_test(tc, test_stale);
	tcase_add_test(tc, test_transport_says);
	tcase_add_test(tc, test_unsent);
	return suite_run(s);
}
