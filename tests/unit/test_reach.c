/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_reach.c - messages to another host (conn/route.c): finding the process that has the port,
 * order over all changes of the route, processes that end.  test_reach_fake.h plays the other host;
 * for ports that move see test_moved.c.
 */
#include <arpa/inet.h>
#include <check.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/progress/transports.h"
#include "tests/unit/suite.h"
#include "tests/unit/test_reach_fake.h"

#define MS 1000000ull

START_TEST(test_found)
{
	say(5, "a");
	say(5, "b");
	await(locked(&fake.nasked) == 1);
	ck_assert_uint_eq(fake.asked[0], 5);
	mock_clock_pass(50 * MS); /* the question is not repeated */
	ck_assert_uint_eq(locked(&fake.nasked), 1);
	ck_assert_uint_gt(rds_progress_count_unsent(), 0);
	far_answers(5, 1, 0);
	far_up(0);
	ck_assert_uint_eq(fake.eps[0]->id.peer_slot, RDS_SLOT_REMOTE);
	ck_assert_uint_eq(fake.eps[0]->id.peer_port, 7001);
	far_got(0, 1, "a");
	far_got(1, 1, "b");
	say(5, "c");
	far_got(2, 1, "c");
	ck_assert_uint_eq(locked(&fake.nasked), 1);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 6);
	far_acks(0, 3);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
	ck_assert_uint_eq(rds_progress_count_unsent(), 0);
	/* for what was to be sent before it was up */
	ck_assert_uint_ge(atomic_load(&fake.pushes), 1);
}
END_TEST

START_TEST(test_nobody_has_it)
{
	uint64_t begin;
	unsigned i;

	say(6, "x");
	await(locked(&fake.nasked) == 1);
	begin = os_now_ns();
	far_answers(6, 0, -ENOENT);
	await(rds_sock_snd_bytes(fake.sk) == 0);
	for (i = 0; i < 20; i++)
		say(6, "y");
	await(locked(&fake.nasked) == 2);
	ck_assert_uint_ge(os_now_ns() - begin, 100000000);
	far_answers(6, 0, -ENOENT);
	await(rds_sock_snd_bytes(fake.sk) == 0);
	ck_assert_uint_eq(locked(&fake.nasked), 2); /* a stream costs no question for each */
	say(6, "z"); /* another process may have it by now */
	await(locked(&fake.nasked) == 3);
	far_answers(6, 1, 0);
	far_up(0);
	far_got(0, 1, "z");
}
END_TEST

/*
 * The port is bound after it was asked for, and its socket sends us a message, to which "reply" is
 * the answer.  It is sent before we learn that no process has the port, or just after.
 */
START_TEST(test_reply_to_who_was_absent)
{
	bool before = _i;

	say(6, "early");
	await(locked(&fake.nasked) == 1);
	if (before)
		say(6, "reply");
	far_answers(6, 0, -ENOENT);
	if (!before)
		say(6, "reply");
	await(rds_sock_snd_bytes(fake.sk) == sizeof("reply"));
	await(locked(&fake.nasked) == 2);
	far_answers(6, 1, 0);
	far_up(0);
	far_got(0, 1, "reply");
}
END_TEST

START_TEST(test_no_answer_then_one)
{
	unsigned i;

	say(5, "a");
	for (i = 1; i <= 5; i++) {
		await(locked(&fake.nasked) == i);
		far_answers(5, 0, -EHOSTUNREACH);
		/* nobody waits for that at exit */
		ck_assert_uint_eq(rds_progress_count_unsent(), 0);
		say(5, "b");
	}
	await(locked(&fake.nasked) == 6);
	far_answers(5, 2, 0);
	far_up(0);
	far_got(0, 2, "a");
	for (i = 1; i <= 5; i++)
		far_got(i, 2, "b");
}
END_TEST

static _Atomic unsigned said;

static void *talk(void *arg)
{
	char text[16];
	unsigned i;

	for (i = 0; i < 200; i++) {
		snprintf(text, sizeof(text), "%u", i);
		say(5, text);
		atomic_fetch_add(&said, 1);
		usleep(100); /* no event: so that some of it is said at each stage */
	}
	return arg;
}

START_TEST(test_order_while_answers_come)
{
	pthread_t thread;
	char text[16];
	unsigned i;

	ck_assert_int_eq(pthread_create(&thread, NULL, talk, NULL), 0);
	await(locked(&fake.nasked) == 1);
	await(atomic_load(&said) >= 20);
	far_answers(5, 1, 0);
	await(atomic_load(&said) >= 40);
	far_up(0);
	pthread_join(thread, NULL);
	for (i = 0; i < 200; i++) {
		snprintf(text, sizeof(text), "%u", i);
		far_got(i, 1, text);
		ck_assert_uint_eq(fake.sent[i].hdr.seq, i + 1);
	}
}
END_TEST

/* What was sent is lost with the process, what was not looks for the port anew. */
START_TEST(test_process_gone)
{
	far_begins(1, "a");
	ep_down(fake.eps[0], -ECONNRESET, true);
	await(rds_sock_snd_bytes(fake.sk) == 0);
	say(5, "b");
	await(locked(&fake.nasked) == 2);
	far_answers(5, 2, 0);
	await(locked(&fake.neps) == 2);
	say(5, "c"); /* that one never comes up */
	ep_down(fake.eps[1], -ECONNRESET, true);
	say(5, "d");
	await(locked(&fake.nasked) == 3);
	far_answers(5, 3, 0);
	far_up(2);
	far_got(1, 3, "b");
	far_got(2, 3, "c");
	far_got(3, 3, "d");
	far_acks(2, 3);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
}
END_TEST

/* The same messages, as if that process had been one of this host, reached by a device or not. */
static void of_this_host(void *arg)
{
	struct rds_conn *conn = fake.eps[0]->head.conn, *to;
	struct rds_conn_id id = conn->id;
	struct rds_queue_item *list;
	bool device = *(int *)arg;

	id.tos = 1; /* a connection of its own */
	id.peer_slot = 3;
	id.peer_port = device ? 7 : 0;
	rds_lock(&rds_lock_control);
	rds_lock(&conn->tx);
	list = rds_queue_take_unsent(conn);
	rds_unlock(&conn->tx);
	ck_assert_ptr_nonnull(list);
	rds_route_requeue(&id, list, true);
	memset(&id.peer, 0, sizeof(id.peer));
	id.peer_slot = id.peer_port = 0;
	to = rds_conn_find(RDS_CONN_UNROUTED, &id);
	rds_unlock(&rds_lock_control);
	ck_assert_ptr_nonnull(to);
	ck_assert(to->handoff_pending);
	ck_assert_int_eq(to->far, device);
	rds_route_retry(to);
	ck_assert_uint_eq(to->queue_len, device ? 0 : 1);
}

/*
 * Who was reached without a device: no other host is asked about its port, and at exit there is
 * something to wait for.
 */
START_TEST(test_process_of_this_host_gone)
{
	say(5, "a");
	await(locked(&fake.nasked) == 1);
	far_answers(5, 1, 0);
	await(locked(&fake.neps) == 1);
	in_helper(of_this_host, &_i);
	if (!_i)
		ck_assert_uint_eq(rds_progress_count_unsent(), 1);
}
END_TEST

/*
 * Acknowledged is what was never sent: the connection is broken by the helper, and what it kept
 * goes again over the next one.
 */
START_TEST(test_lying_ack)
{
	far_begins(1, "a");
	far_acks(0, 1);
	say(5, "b");
	far_got(1, 1, "b");
	far_acks(0, UINT64_MAX);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 2);
	await(locked(&fake.neps) == 2);
	say(5, "c");
	far_up(1);
	far_got(2, 1, "b");
	ck_assert(fake.sent[2].ep == fake.eps[1]);
	ck_assert(fake.sent[2].hdr.flags & RDS_FLAG_RETRANSMITTED);
	far_got(3, 1, "c");
	far_acks(1, 3);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
}
END_TEST

/*
 * The same while it comes up.  Such an endpoint is given nothing: what it acknowledges after that
 * is not looked at, but its transport frees it.
 */
START_TEST(test_lies_from_the_start)
{
	far_begins(1, "a");
	far_acks(0, 1);
	ep_down(fake.eps[0], -ECONNRESET, false);
	say(5, "b");
	await(locked(&fake.neps) == 2);
	ep_up(fake.eps[1], UINT64_MAX);
	far_up(2);
	far_got(1, 1, "b");
	ck_assert(fake.sent[1].ep == fake.eps[2]);
	ck_assert(atomic_load(&fake.eps[1]->closed));
	far_acks(2, 2);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
}
END_TEST

static void read_backoff(void *arg)
{
	uint64_t *ms = arg;

	*ms = fake.eps[0]->head.conn->backoff_ms;
}

/*
 * A connection that breaks as soon as it is up is made again at once, but not with a peer that
 * sends invalid messages over each.
 */
START_TEST(test_no_hurry_with_nonsense)
{
	int why = _i ? -EPROTO : -ECONNRESET;
	uint64_t ms;
	unsigned i;

	far_begins(1, "a");
	for (i = 0; i < 3; i++) {
		ep_down(fake.eps[i], why, false);
		in_helper(read_backoff, &ms);
		ck_assert_int_eq(ms == (uint64_t)rds_options()->reconnect_max_ms, _i);
		far_up(i + 1);
	}
}
END_TEST

static bool some_address(char *text, size_t size)
{
	struct ifaddrs *all, *i;
	bool found = false;

	if (getifaddrs(&all))
		return false;
	for (i = all; i && !found; i = i->ifa_next) {
		const struct sockaddr_in *sin = (const void *)i->ifa_addr;

		if (sin && sin->sin_family == AF_INET && (ntohl(sin->sin_addr.s_addr) >> 24) != 127)
			found = inet_ntop(AF_INET, &sin->sin_addr, text, (socklen_t)size) != NULL;
	}
	freeifaddrs(all);
	return found;
}

static int transport_after_bind(const char *ip, uint16_t port, int preset, int *err)
{
	struct sockaddr_in sin = name_of(ip, port);
	struct rds_sock *s;
	int n = rds_call_socket(SOCK_SEQPACKET, 0, &s);

	ck_assert_int_ge(n, 0);
	RDS_SOCK_SET(s, transport, preset);
	*err = rds_call_bind(s, (struct sockaddr *)&sin, sizeof(sin));
	return atomic_load(&s->transport);
}

START_TEST(test_bind)
{
	char ip[INET_ADDRSTRLEN];
	int err;

	ck_assert_int_eq(transport_after_bind("127.0.0.1", 4001, RDS_TRANS_NONE, &err), RDS_TRANS_LOOP);
	transport_after_bind("127.0.0.1", 4002, RDS_TRANS_IB, &err);
	ck_assert_int_eq(err, -ENOPROTOOPT);
	transport_after_bind(FAR, 4002, RDS_TRANS_IB, &err);
	ck_assert_int_eq(err, -ENOPROTOOPT);
	transport_after_bind(FAR, 4002, RDS_TRANS_NONE, &err);
	ck_assert_int_eq(err, -EADDRNOTAVAIL);
	if (!some_address(ip, sizeof(ip))) {
		printf("no address but loopback here: binding to a device's is not tested\n");
		return;
	}
	ck_assert_int_eq(transport_after_bind(ip, 4003, RDS_TRANS_NONE, &err), RDS_TRANS_IB);
	ck_assert_int_eq(transport_after_bind(ip, 4004, RDS_TRANS_IB, &err), RDS_TRANS_IB);
	ck_assert_int_eq(transport_after_bind(ip, 4005, RDS_TRANS_TCP, &err), RDS_TRANS_TCP);
	fake.claim = 0;
	ck_assert_int_eq(transport_after_bind(ip, 4006, RDS_TRANS_NONE, &err), RDS_TRANS_TCP);
	transport_after_bind(ip, 4007, RDS_TRANS_IB, &err);
	ck_assert_int_eq(err, -ENOPROTOOPT);
	fake.claim = -EPERM; /* there, but not to be used */
	ck_assert_int_eq(transport_after_bind(ip, 4007, RDS_TRANS_NONE, &err), RDS_TRANS_TCP);
	rds_transport_set.prefer_remote = true;
	transport_after_bind(ip, 4008, RDS_TRANS_NONE, &err);
	ck_assert_int_eq(err, -EADDRNOTAVAIL);
}
END_TEST

static void speaks(void *arg)
{
	struct fake_ep *e = arg;

	rx_lock();
	fake.t.up->push_later(e->head.conn);
	rx_unlock();
}

START_TEST(test_speak)
{
	unsigned before;

	far_connects();
	await(atomic_load(&fake.pushes) > 0);
	before = atomic_load(&fake.pushes);
	in_helper(speaks, fake.eps[0]);
	await(atomic_load(&fake.pushes) > before);
}
END_TEST

/* A map finds no memory.  Nothing else would tell the peer that it may send again. */
START_TEST(test_map_without_memory)
{
	atomic_store(&fake.no_map, 3);
	far_connects();
	await(atomic_load(&fake.no_map) == 2);
	ck_assert_uint_eq(atomic_load(&fake.nmaps), 0);
	in_helper(speaks, fake.eps[0]);
	await(atomic_load(&fake.no_map) == 1);
	in_helper(speaks, fake.eps[0]);
	await(atomic_load(&fake.no_map) == 0);
	in_helper(speaks, fake.eps[0]);
	await(atomic_load(&fake.nmaps) == 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reach");
	TCase *tc = suite_case(s, "reach", far_setup, NULL);

	tcase_add_test(tc, test_found);
	tcase_add_test(tc, test_nobody_has_it);
	tcase_add_loop_test(tc, test_reply_to_who_was_absent, 0, 2);
	tcase_add_test(tc, test_no_answer_then_one);
	tcase_add_test(tc, test_order_while_answers_come);
	tcase_add_test(tc, test_process_gone);
	tcase_add_loop_test(tc, test_process_of_this_host_gone, 0, 2);
	tcase_add_test(tc, test_lying_ack);
	tcase_add_test(tc, test_lies_from_the_start);
	tcase_add_loop_test(tc, test_no_hurry_with_nonsense, 0, 2);
	tcase_add_test(tc, test_bind);
	tcase_add_test(tc, test_speak);
	tcase_add_test(tc, test_map_without_memory);
	tc = suite_case(s, "wrapped", far_setup_wrapped, NULL);
	tcase_add_test(tc, test_found);
	tcase_add_test(tc, test_process_gone);
	tcase_add_test(tc, test_lying_ack);
	tcase_add_test(tc, test_lies_from_the_start);
	tcase_add_test(tc, test_bind);
	tcase_add_test(tc, test_speak);
	return suite_run(s);
}
