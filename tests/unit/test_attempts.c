/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_attempts.c - a connection has one endpoint at a time, however its attempts and those of the
 * peer coincide.
 *
 * The test plays a transport to another host, and the process there (test_reach_fake.h), and gives
 * the results of requests in the order that it chooses.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/abi/revisions.h"
#include "tests/unit/suite.h"
#include "tests/unit/test_reach_fake.h"

static struct rds_conn_id id; /* of the connection, as seen from here */

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

static void nothing(void *arg)
{
	(void)arg;
}

/*
 * What a thread does after it has let go of the locks (rds_conn_start() and others), and what the
 * helper makes of it.
 */
static void late_timer(void)
{
	struct rds_conn *conn = the_conn();

	rds_timer_set(&conn->retry, os_now_ns());
	await(!rds_timer_is_set(&conn->retry));
	in_helper(nothing, NULL); /* it has begun to run before, so it is over now */
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

static void has(struct fake_ep *e, unsigned n, const char *last)
{
	await(locked(&e->n) >= n);
	ck_assert_uint_eq(locked(&e->n), n);
	ck_assert_str_eq((char *)e->kept[n - 1], last);
}

/* Our attempt, the first message's. */
static struct fake_ep *we_ask(void)
{
	say_first("a");
	await(locked(&fake.neps) == 1);
	return fake.eps[0];
}

/* Up, with two messages that are not acknowledged. */
static struct fake_ep *standing(void)
{
	struct fake_ep *e = we_ask();

	ep_up(e, 0);
	has(e, 1, "a");
	say(5, "b");
	has(e, 2, "b");
	return e;
}

/* Nothing has happened to it. */
static void stands(struct fake_ep *e)
{
	late_timer();
	ck_assert_int_eq(state(), RDS_CONN_UP);
	ck_assert(!atomic_load(&e->closed));
	ck_assert_uint_eq(locked(&fake.neps), 1);
	say(5, "c");
	has(e, 3, "c");
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 6);
	ep_acks(e, 3);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
}

static void setup(void)
{
	far_setup();
	id = far_id(0);
	/* smaller than ours: of two attempts that cross, the peer's wins */
	id.peer.b[sizeof(id.peer.b) - 1] = 1;
}

static void setup_wrapped(void)
{
	setenv("RDS_PRELOAD_FAULT", "seed=1", 1);
	setup();
	ck_assert_ptr_ne(rds_transport_set.remote, &fake.t);
}

/* ---- tests ---- */

START_TEST(test_late_timer)
{
	struct fake_ep *e = far_asks(&id, 0);

	ck_assert_int_eq(state(), RDS_CONN_CONNECTING);
	late_timer();
	ck_assert_uint_eq(locked(&fake.neps), 0);
	ep_up(e, 0);
	late_timer();
	ck_assert_int_eq(state(), RDS_CONN_UP);
	ck_assert_uint_eq(locked(&fake.neps), 0);
	say_first("a");
	has(e, 1, "a");
}
END_TEST

START_TEST(test_accepted_fails)
{
	struct fake_ep *e = far_asks(&id, 0);

	ep_down(e, -ETIMEDOUT, false);
	ck_assert(atomic_load(&e->closed));
	await(locked(&fake.neps) == 1);
	ep_up(fake.eps[0], 0);
	ck_assert_int_eq(state(), RDS_CONN_UP);
	ck_assert(!atomic_load(&fake.eps[0]->closed));
}
END_TEST

START_TEST(test_accepted_gone)
{
	struct fake_ep *e = far_asks(&id, 0);

	ep_down(e, -ECONNREFUSED, true);
	ck_assert(atomic_load(&e->closed));
	ck_assert_ptr_null(the_conn());
	ck_assert_uint_eq(locked(&fake.neps), 0);
}
END_TEST

START_TEST(test_crossing_theirs)
{
	struct fake_ep *ours = we_ask(), *theirs = far_asks(&id, 0);

	ck_assert(atomic_load(&ours->closed));
	late_timer();
	ck_assert_uint_eq(locked(&fake.neps), 1);
	ep_up(theirs, 0);
	has(theirs, 1, "a");
	ck_assert_uint_eq(locked(&ours->n), 0);
	ck_assert(!atomic_load(&theirs->closed));
}
END_TEST

START_TEST(test_crossing_ours)
{
	struct fake_ep *ours;

	memset(id.peer.b, 0xff, sizeof(id.peer.b));
	ours = we_ask();
	far_asks(&id, -EALREADY);
	ck_assert(!atomic_load(&ours->closed));
	ep_up(ours, 0);
	has(ours, 1, "a");
}
END_TEST

/*
 * Who wins a crossing does not matter where nothing crosses: the peer has given up its first
 * attempt.
 */
START_TEST(test_asks_twice)
{
	struct fake_ep *first, *second;

	if (_i)
		memset(id.peer.b, 0xff, sizeof(id.peer.b));
	first = far_asks(&id, 0);
	second = far_asks(&id, 0);
	ck_assert(atomic_load(&first->closed));
	late_timer();
	ck_assert_uint_eq(locked(&fake.neps), 0);
	ep_up(second, 0);
	ck_assert_int_eq(state(), RDS_CONN_UP);
	ck_assert(!atomic_load(&second->closed));
}
END_TEST

START_TEST(test_asks_again)
{
	struct fake_ep *old = standing(), *e;

	far_asks(&id, -EALREADY);
	ck_assert(!atomic_load(&old->closed));
	e = far_asks(&id, 0);
	ck_assert(atomic_load(&old->closed));
	late_timer();
	ck_assert_uint_eq(locked(&fake.neps), 1);
	ep_up(e, 1); /* the peer has got the first */
	has(e, 1, "b");
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 2);
	ep_acks(e, 2);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
}
END_TEST

static const int why_down[] = {-EALREADY, -ECONNRESET, -ECONNREFUSED};

START_TEST(test_stray_down)
{
	struct fake_ep *e = standing(), *stray = ep_new(e->head.conn);

	ep_down(stray, why_down[_i], why_down[_i] == -ECONNREFUSED);
	ck_assert(atomic_load(&stray->closed));
	stands(e);
}
END_TEST

START_TEST(test_stray_down_while_coming)
{
	struct fake_ep *e = far_asks(&id, 0), *stray = ep_new(e->head.conn);

	ep_down(stray, why_down[_i], why_down[_i] == -ECONNREFUSED);
	ck_assert(atomic_load(&stray->closed));
	ck_assert_ptr_nonnull(the_conn());
	ck_assert_int_eq(state(), RDS_CONN_CONNECTING);
	ck_assert(!rds_timer_is_set(&the_conn()->retry));
	ep_up(e, 0);
	say_first("a");
	has(e, 1, "a");
	ck_assert_uint_eq(locked(&fake.neps), 0);
}
END_TEST

START_TEST(test_stray_up)
{
	struct fake_ep *e = standing(), *stray = ep_new(e->head.conn);

	ep_up(stray, 0);
	ck_assert(atomic_load(&stray->closed));
	ck_assert_uint_eq(locked(&stray->n), 0);
	stands(e);
}
END_TEST

START_TEST(test_stray_up_while_coming)
{
	struct fake_ep *e = we_ask(), *stray = ep_new(e->head.conn);

	ep_up(stray, 0);
	ck_assert(atomic_load(&stray->closed));
	ck_assert_int_eq(state(), RDS_CONN_CONNECTING);
	ep_up(e, 0);
	has(e, 1, "a");
	ck_assert_uint_eq(locked(&stray->n), 0);
}
END_TEST

/* As rds-info 2.3.3 and later have it. */
struct path {
	struct in6_addr local, peer;
	char transport[16];
	uint8_t tos, npaths;
	int64_t attempt, connect, reset;
	uint32_t reason, attempts, index;
	uint8_t flags;
} __attribute__((packed));

/* The one connection's. */
static struct path shown(void)
{
	struct path p;
	socklen_t len = sizeof(p);

	ck_assert_int_eq(rds_call_getsockopt(fake.sk, -1, SOL_RDS, RDS6_INFO_CONN_PATHS, &p, &len), 87);
	ck_assert_uint_eq(len, 87);
	return p;
}

static void shows(unsigned attempts, unsigned reason, unsigned flags)
{
	struct path p = shown();

	ck_assert_uint_eq(p.attempts, attempts);
	ck_assert_uint_eq(p.reason, reason);
	ck_assert_uint_eq(p.flags, flags);
}

/*
 * What rds-info says of it: when it was tried, came up, went down, and why (the numbers are those
 * of its list).
 */
START_TEST(test_past)
{
	int64_t begin = time(NULL), reset;
	struct fake_ep *e = far_asks(&id, 0);

	shows(1, 0, RDS_INFO_CONNECTION_FLAG_CONNECTING);
	ck_assert_int_ge(shown().attempt, begin);
	ck_assert_int_eq(shown().connect, 0);
	ep_down(e, -ETIMEDOUT, false);
	await(locked(&fake.neps) == 1);
	shows(2, 7, RDS_INFO_CONNECTION_FLAG_CONNECTING); /* reconnect timeout */
	ck_assert_int_eq(shown().reset, 0);		  /* it had not been up */
	ep_up(fake.eps[0], 0);
	shows(2, 7, RDS_INFO_CONNECTION_FLAG_CONNECTED);
	ck_assert_int_ge(shown().connect, shown().attempt);
	ck_assert_int_le(shown().connect, time(NULL));
	ep_down(fake.eps[0], -ECONNRESET, false);
	await(locked(&fake.neps) == 2);
	shows(1, 26, RDS_INFO_CONNECTION_FLAG_CONNECTING); /* DISCONNECTED event */
	reset = shown().reset;
	ck_assert_int_ge(reset, shown().connect);
	ep_down(fake.eps[1], -ECONNREFUSED, false);
	await(locked(&fake.neps) == 3);
	shows(2, 24, RDS_INFO_CONNECTION_FLAG_CONNECTING); /* REJECTED event */
	ep_up(fake.eps[2], 0);
	shows(2, 24, RDS_INFO_CONNECTION_FLAG_CONNECTED);
	ck_assert_int_eq(shown().reset, reset);
	ck_assert_int_ge(shown().connect, reset);
}
END_TEST

static uint32_t word(const unsigned char *rec, size_t at)
{
	uint32_t v;

	memcpy(&v, rec + at, sizeof(v));
	return v;
}

/*
 * What follows the addresses in the record of rds-info -I, as 2.3.6 has it; IPv6 addresses make it
 * longer by `more`.
 */
static void is_device(const unsigned char *rec, size_t more, bool up)
{
	rec += more;
	ck_assert_uint_eq(rec[8], up ? 8 : 0);
	ck_assert_uint_eq(rec[23], up ? 8 : 0);
	ck_assert_uint_eq(rec[24], up ? 9 : 0);
	ck_assert_uint_eq(rec[39], up ? 9 : 0);
	ck_assert_uint_eq(word(rec, 40), up ? 1003 : 0);
	ck_assert_uint_eq(word(rec, 44), up ? 1004 : 0);
	ck_assert_uint_eq(word(rec, 48), up ? 1006 : 0);
	ck_assert_uint_eq(word(rec, 52), 0);
	ck_assert_uint_eq(rec[60], id.tos);
	ck_assert_uint_eq(rec[61], up ? 7 : 0);
	ck_assert_uint_eq(word(rec, 68), up ? 1005 : 0);
	ck_assert_uint_eq(word(rec, 76), up ? 1001 : UINT32_MAX);
	ck_assert_uint_eq(word(rec, 88), up ? 1002 : UINT32_MAX);
	for (size_t at = 92; at < 176; at += 4)
		ck_assert_uint_eq(word(rec, at), 0);
}

static void shows_device(bool up)
{
	unsigned char rec[200];
	socklen_t len = sizeof(rec);

	rds_abi_note_option(RDS_INFO_CONN_PATHS); /* the program knows Oracle's records */
	ck_assert_int_eq(rds_call_getsockopt(fake.sk, -1, SOL_RDS, RDS_INFO_IB_CONNECTIONS, rec, &len), 176);
	ck_assert_uint_eq(len, 176);
	ck_assert_mem_eq(rec, &id.laddr.s6_addr[12], 4);
	ck_assert_mem_eq(rec + 4, &id.faddr.s6_addr[12], 4);
	is_device(rec, 0, up);
	len = sizeof(rec);
	ck_assert_int_eq(rds_call_getsockopt(fake.sk, -1, SOL_RDS, RDS6_INFO_IB_CONNECTIONS, rec, &len), 200);
	ck_assert_uint_eq(len, 200);
	ck_assert_mem_eq(rec, &id.laddr, 16);
	ck_assert_mem_eq(rec + 16, &id.faddr, 16);
	is_device(rec, 24, up);
}

/* All records of a connection have its type of service, each somewhere else. */
START_TEST(test_tos)
{
	unsigned char rec[66];
	socklen_t len = sizeof(rec);
	struct fake_ep *e;

	id.tos = 3;
	e = far_asks(&id, 0);
	rds_abi_note_option(RDS_INFO_CONN_PATHS);
	ck_assert_int_eq(rds_call_getsockopt(fake.sk, -1, SOL_RDS, RDS6_INFO_CONNECTIONS, rec, &len), 66);
	ck_assert_uint_eq(len, 66);
	ck_assert_uint_eq(rec[65], 3);
	ck_assert_int_eq(rds_call_getsockopt(fake.sk, -1, SOL_RDS, RDS_INFO_CONNECTIONS, rec, &len), 42);
	ck_assert_uint_eq(rec[41], 3);
	ck_assert_uint_eq(shown().tos, 3);
	shows_device(false);
	ep_up(e, 0);
}
END_TEST

/* rds-info -I: a connection over a device is there while it is not up, too, without queue pair. */
START_TEST(test_device)
{
	struct fake_ep *e = far_asks(&id, 0);

	shows_device(false);
	ep_up(e, 0);
	shows_device(true);
	ep_down(e, -ECONNRESET, false);
	await(locked(&fake.neps) == 1);
	shows_device(false);
}
END_TEST

/* Where the transport has come to know of the endpoint by itself. */
static void add_common(TCase *tc)
{
	tcase_add_test(tc, test_device);
	tcase_add_test(tc, test_late_timer);
	tcase_add_test(tc, test_accepted_fails);
	tcase_add_test(tc, test_accepted_gone);
	tcase_add_test(tc, test_crossing_theirs);
	tcase_add_test(tc, test_crossing_ours);
	tcase_add_loop_test(tc, test_asks_twice, 0, 2);
	tcase_add_test(tc, test_asks_again);
}

int main(void)
{
	Suite *s = suite_create("attempts");
	TCase *tc = suite_case(s, "attempts", setup, NULL);

	add_common(tc);
	tcase_add_loop_test(tc, test_stray_down, 0, 3);
	tcase_add_loop_test(tc, test_stray_down_while_coming, 0, 3);
	tcase_add_test(tc, test_stray_up);
	tcase_add_test(tc, test_stray_up_while_coming);
	tcase_add_test(tc, test_past);
	tcase_add_test(tc, test_tos);
	add_common(suite_case(s, "wrapped", setup_wrapped, NULL));
	return suite_run(s);
}
