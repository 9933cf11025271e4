/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_node.c - connections to another host as a whole (conn/node.c): the route, what is said first on a
 * connection, what is sent again and how, which messages count as received, and what is not sent
 * there.  test_reach_fake.h plays the other host.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "engine/conn/relay.h"
#include "engine/progress/transports.h"
#include "engine/sys/patience.h"
#include "tests/unit/suite.h"
#include "tests/unit/test_reach_fake.h"

#define MARKED RDS_FLAG_RETRANSMITTED

static const struct sent *sent_at(unsigned n)
{
	await(locked(&fake.nsent) > n);
	return &fake.sent[n];
}

static void is_probe(const struct sent *s, uint64_t seq)
{
	ck_assert_uint_eq(s->hdr.sport, 1);
	ck_assert_uint_eq(s->hdr.dport, 0);
	ck_assert_uint_eq(s->hdr.len, 0);
	ck_assert_uint_eq(s->flags, 0);
	ck_assert_uint_eq(s->hdr.seq, seq);
	ck_assert_uint_eq(s->hdr.ext_npaths, 1);
	ck_assert_uint_ne(s->hdr.ext_gen, 0);
}

static void is_message(const struct sent *s, uint64_t seq, uint8_t flags, const char *text)
{
	ck_assert_uint_eq(s->hdr.seq, seq);
	ck_assert_uint_eq(s->flags, flags);
	ck_assert_str_eq(s->text, text);
}

/* Up, with a probe, and one message that has been acknowledged. */
static void begin(void)
{
	say(5, "first");
	far_up(0);
	far_acks(0, 1);
	is_message(sent_at(1), 2, 0, "first");
	far_acks(0, 2);
}

START_TEST(test_route)
{
	RDS_SOCK_SET(fake.sk, tos, 7);
	say(5, "a");
	say(6, "b");
	await(locked(&fake.neps) == 1);
	ck_assert(rds_conn_id_is_node(&fake.eps[0]->id));
	ck_assert_uint_eq(fake.eps[0]->id.tos, 0);
	ck_assert_uint_eq(locked(&fake.nasked), 0);
	far_up(0);
	is_probe(sent_at(0), 1);
	far_acks(0, 1);
	is_message(sent_at(1), 2, 0, "a");
	is_message(sent_at(2), 3, 0, "b");
	ck_assert_uint_eq(atomic_load(&fake.nmaps), 1);
	ck_assert_uint_eq(fake.map_before, 0);
	ck_assert_uint_eq(fake.map_len, RDS_CONG_MAP_BYTES);
	far_acks(0, 3);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
	ck_assert_uint_eq(rds_progress_count_unsent(), 0);
}
END_TEST

/* What was sent goes again, marked and in order; then the probe, which changes no number; then what waited. */
START_TEST(test_break)
{
	uint32_t gen;

	begin();
	gen = fake.sent[0].hdr.ext_gen;
	say(5, "b");
	say(5, "c");
	is_message(sent_at(3), 4, 0, "c");
	ep_down(fake.eps[0], -ECONNRESET, false);
	say(5, "d");
	await(locked(&fake.neps) == 2);
	far_up(1);
	is_message(sent_at(4), 3, MARKED, "b");
	is_message(sent_at(5), 4, MARKED, "c");
	is_probe(sent_at(6), 4);
	ck_assert_uint_eq(fake.sent[6].hdr.ext_gen, gen);
	is_message(sent_at(7), 5, 0, "d");
	ck_assert_uint_eq(atomic_load(&fake.nmaps), 2);
	ck_assert_uint_eq(fake.map_before, 4);
	/* it breaks before all that has gone: there is one probe again */
	far_acks(1, 4);
	ep_down(fake.eps[1], -ECONNRESET, false);
	await(locked(&fake.neps) == 3);
	far_up(2);
	is_message(sent_at(8), 5, MARKED, "d");
	is_probe(sent_at(9), 5);
	far_acks(2, 5);
	say(5, "e");
	is_message(sent_at(10), 6, 0, "e");
}
END_TEST

/* The node may know an earlier process of this address: nothing goes before it has been told of this one. */
START_TEST(test_introduction)
{
	say(5, "a");
	far_up(0);
	is_probe(sent_at(0), 1);
	say(5, "b");
	ep_down(fake.eps[0], -ECONNRESET, false);
	await(locked(&fake.neps) == 2);
	far_up(1);
	is_probe(sent_at(1), 1);
	ck_assert_uint_eq(fake.sent[1].hdr.ext_gen, fake.sent[0].hdr.ext_gen);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 4);
	far_acks(1, 1);
	is_message(sent_at(2), 2, 0, "a");
	is_message(sent_at(3), 3, 0, "b");
	far_acks(1, 3);
	ck_assert_uint_eq(rds_progress_count_unsent(), 0);
}
END_TEST

/* Nothing waits, and the connection breaks: it comes up again, and only the probe goes. */
START_TEST(test_idle_break)
{
	begin();
	ep_down(fake.eps[0], -ECONNRESET, false);
	await(locked(&fake.neps) == 2);
	ep_down(fake.eps[1], -ECONNREFUSED, false);
	await(locked(&fake.neps) == 3);
	ck_assert_uint_eq(rds_progress_count_unsent(), 0);
	far_up(2);
	is_probe(sent_at(2), 2);
	say(5, "b");
	is_message(sent_at(3), 3, 0, "b");
}
END_TEST

static void arrives(uint64_t seq, uint8_t flags)
{
	char text[16];

	snprintf(text, sizeof(text), "%u%s", (unsigned)seq, flags ? "m" : "");
	far_sends(0,
		  &(struct rds_hdr){
			  .seq = seq, .flags = flags, .sport = 9, .dport = 4000, .len = (uint32_t)strlen(text) + 1},
		  text, strlen(text) + 1);
}

static void reads(const char *text)
{
	char buf[64] = "";
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n = rds_call_recvmsg(fake.sk, fake.fd, &msg, MSG_DONTWAIT);

	if (!text) {
		ck_assert_int_eq(n, -EAGAIN);
		return;
	}
	ck_assert_int_eq(n, (ssize_t)strlen(text) + 1);
	ck_assert_str_eq(buf, text);
}

/* As a kernel was seen to take them: gaps, steps back, and marked ones that it has had. */
START_TEST(test_numbers)
{
	static const struct {
		uint64_t seq;
		uint8_t flags;
		bool taken;
	} row[] = {{100, 0, true},	{50, MARKED, false}, {50, 0, true},	 {51, MARKED, true}, {60, MARKED, true},
		   {60, MARKED, false}, {60, 0, true},	     {1, MARKED, false}, {0, 0, true}};
	char text[16];
	unsigned i;

	begin();
	for (i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		arrives(row[i].seq, row[i].flags);
		snprintf(text, sizeof(text), "%u%s", (unsigned)row[i].seq, row[i].flags ? "m" : "");
		reads(row[i].taken ? text : NULL);
	}
}
END_TEST

static void probes(uint64_t seq, uint8_t flags, uint32_t gen)
{
	far_sends(0,
		  &(struct rds_hdr){.seq = seq,
				    .flags = flags,
				    .sport = 1,
				    .ext_type = RDS_EXTHDR_NPATHS,
				    .ext_npaths = 8,
				    .ext_gen = gen},
		  NULL, 0);
}

START_TEST(test_probe_is_answered)
{
	const struct sent *s;

	begin();
	probes(1, 0, 0);
	s = sent_at(2);
	ck_assert_uint_eq(s->hdr.sport, 0);
	ck_assert_uint_eq(s->hdr.dport, 1);
	ck_assert_uint_eq(s->hdr.seq, 3);
	ck_assert_uint_eq(s->hdr.ext_npaths, 1);
	ck_assert_uint_eq(s->hdr.ext_gen, fake.sent[0].hdr.ext_gen);
	probes(1, MARKED, 0); /* not a new one */
	/* a ping is answered without these */
	far_sends(0, &(struct rds_hdr){.seq = 2, .sport = 4001}, NULL, 0);
	s = sent_at(3);
	ck_assert_uint_eq(s->hdr.dport, 4001);
	ck_assert_uint_eq(s->hdr.ext_type, RDS_EXTHDR_NONE);
	/* if the connection breaks, the answer says the same again */
	ep_down(fake.eps[0], -ECONNRESET, false);
	await(locked(&fake.neps) == 2);
	far_up(1);
	s = sent_at(4);
	ck_assert_uint_eq(s->hdr.dport, 1);
	ck_assert_uint_eq(s->flags, MARKED);
	ck_assert_uint_eq(s->hdr.ext_npaths, 1);
}
END_TEST

/* The answer to our probe has a number as any message, and no socket. */
START_TEST(test_answer)
{
	uint64_t lost = atomic_load(&rds_stat_block[RDS_STAT_recv_drop_no_sock]);

	begin();
	far_sends(0, &(struct rds_hdr){.seq = 7, .dport = 1, .ext_type = RDS_EXTHDR_NPATHS, .ext_npaths = 8}, NULL, 0);
	arrives(7, MARKED);
	reads(NULL);
	arrives(8, MARKED);
	reads("8m");
	ck_assert_uint_eq(atomic_load(&rds_stat_block[RDS_STAT_recv_drop_no_sock]), lost);
	ck_assert_uint_eq(locked(&fake.nsent), 2);
}
END_TEST

/* A node that has begun anew sends low numbers again, which are no duplicates. */
START_TEST(test_generation)
{
	begin();
	probes(100, 0, 77);
	arrives(3, MARKED);
	reads(NULL);
	probes(101, 0, 77);
	arrives(3, MARKED);
	reads(NULL);
	probes(102, 0, 0); /* does not say */
	arrives(3, MARKED);
	reads(NULL);
	probes(103, 0, 78);
	arrives(3, MARKED);
	reads("3m");
	arrives(3, MARKED);
	reads(NULL);
	probes(1, MARKED, 78); /* the same */
	arrives(2, MARKED);
	reads(NULL);
	probes(1, MARKED, 79); /* what it has said over connections that were refused */
	arrives(2, MARKED);
	reads("2m");
	arrives(2, MARKED);
	reads(NULL);
}
END_TEST

static void rests(void *arg)
{
	(void)arg;
}

/* Nor does anything overtake the probe, when there is something else to do for the connection. */
START_TEST(test_introduction_first)
{
	say(5, "a");
	far_up(0);
	is_probe(sent_at(0), 1);
	probes(1, 0, 77);
	in_helper(rests, NULL);
	ck_assert_uint_eq(locked(&fake.nsent), 1);
	far_acks(0, 1);
	is_message(sent_at(1), 2, 0, "a");
	ck_assert_uint_eq(sent_at(2)->hdr.dport, 1);
	ck_assert_uint_eq(sent_at(2)->hdr.seq, 3);
}
END_TEST

static void acks_at_once(void)
{
	atomic_store(&fake.eps[0]->acked, 1);
}

/* What waits behind the probe goes, if the node has got that before anybody was told to wait. */
START_TEST(test_introduction_acked)
{
	say(5, "a");
	say(5, "b");
	await(locked(&fake.neps) == 1);
	atomic_store(&fake.sent_next, acks_at_once);
	far_up(0);
	is_message(sent_at(1), 2, 0, "a");
	is_message(sent_at(2), 3, 0, "b");
}
END_TEST

static unsigned char whole[RDS_CONG_MAP_BYTES];

struct map {
	uint32_t len;
};

static void give_map(void *arg)
{
	const struct map *m = arg;
	struct rds_rx rx = {.hdr = {.flags = RDS_FLAG_CONG_BITMAP, .len = m->len}, .data = whole};

	rx_lock();
	ck_assert_int_eq(fake.t.up->message(fake.eps[0]->head.conn, (struct rds_ep *)fake.eps[0], &rx), RDS_RX_DONE);
	rx_unlock();
}

static bool congested(uint16_t port)
{
	struct sockaddr_in sin = name_of(FAR, port);
	struct msghdr msg = {.msg_name = &sin, .msg_namelen = sizeof(sin)};
	ssize_t n = rds_call_sendmsg(fake.sk, fake.fd, &msg, MSG_DONTWAIT);

	ck_assert(n == 0 || n == -ENOBUFS);
	return n;
}

/* Few ports, many, and none; a list of this library would be a map of a wrong length. */
START_TEST(test_maps)
{
	struct map m = {.len = sizeof(whole)};
	unsigned port;

	begin();
	whole[500 / 8] = 1u << 500 % 8;
	in_helper(give_map, &m);
	ck_assert(congested(500));
	ck_assert(!congested(501));
	for (port = 600; port < 610; port++)
		whole[port / 8] |= (unsigned char)(1u << port % 8);
	in_helper(give_map, &m);
	ck_assert(congested(500));
	ck_assert(congested(609));
	ck_assert(!congested(610));
	memset(whole, 0, sizeof(whole));
	in_helper(give_map, &(struct map){.len = 0});
	in_helper(give_map, &(struct map){.len = 4});
	ck_assert(congested(609));
	in_helper(give_map, &m);
	ck_assert(!congested(500));
	ck_assert(!congested(609));
}
END_TEST

static void say_asked(void *arg)
{
	fake.t.up->asked(&fake.t, arg);
}

START_TEST(test_accept)
{
	struct rds_conn_id id = far_id(0), other = id;

	inet_pton(AF_INET6, "::ffff:127.0.0.9", &other.laddr);
	far_asks(&other, -EADDRNOTAVAIL);
	fake.eps[fake.neps++] = far_asks(&id, 0);
	far_asks(&id, -EALREADY); /* that one is on its way */
	ep_up(fake.eps[0], 0);
	is_probe(sent_at(0), 1);
	far_asks(&id, -EALREADY);
	ck_assert(!atomic_load(&fake.eps[0]->closed));
	say(5, "a");
	far_acks(0, 1);
	is_message(sent_at(1), 2, 0, "a");
	/* does the host of the one that is up know of it?  The map would tell. */
	in_helper(say_asked, &id);
	await(atomic_load(&fake.nmaps) == 2);
	ck_assert_uint_eq(locked(&fake.neps), 1);
	ep_down(fake.eps[0], -ECONNRESET, false);
	await(locked(&fake.neps) == 2); /* idle or not */
}
END_TEST

/* A node that may not connect asks us to: no message of ours is needed. */
START_TEST(test_asked)
{
	struct rds_conn_id id = far_id(0), other = id;

	inet_pton(AF_INET6, "::ffff:127.0.0.9", &other.laddr);
	in_helper(say_asked, &other);
	in_helper(say_asked, &id);
	in_helper(say_asked, &id);
	await(locked(&fake.neps) == 1);
	in_helper(say_asked, &id); /* an attempt is under way */
	far_up(0);
	is_probe(sent_at(0), 1);
	ck_assert_uint_eq(locked(&fake.neps), 1);
}
END_TEST

/* ---- strangers ---- */

#define PLACES 10u

static void few_places(void)
{
	struct rlimit rl;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &rl), 0);
	rl.rlim_cur = 4 * PLACES;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
}

static struct rds_conn_id stranger(unsigned i)
{
	struct rds_conn_id id = far_id(0);

	id.faddr.s6_addr32[3] = htonl(0xc0000300u + i);
	return id;
}

/* It asks, is refused if there is an error, and else its connection is up. */
static struct fake_ep *stranger_connects(unsigned i, int answer)
{
	struct rds_conn_id id = stranger(i);
	struct fake_ep *e = far_asks(&id, answer);

	if (!answer)
		ep_up(e, 0);
	return e;
}

/* Its attempts, and ours to reach it, fail from now on. */
static void stranger_leaves(struct fake_ep *e)
{
	atomic_store(&fake.no_attempt, -EHOSTUNREACH);
	ep_down(e, -ECONNRESET, false);
}

static bool takes(struct fake_ep *e, uint64_t seq, uint8_t flags)
{
	char buf[8];
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	unsigned at = fake.neps;

	fake.eps[at] = e;
	far_sends(at, &(struct rds_hdr){.seq = seq, .flags = flags, .sport = 9, .dport = 4000, .len = 1}, "x", 1);
	return rds_call_recvmsg(fake.sk, fake.fd, &msg, MSG_DONTWAIT) == 1;
}

/* So many that have connected, and no more.  Who has sent something is not forgotten as long as it may come back. */
START_TEST(test_strangers)
{
	struct fake_ep *e[PLACES];
	uint64_t gen;
	unsigned i;

	few_places();
	for (i = 0; i < PLACES; i++)
		e[i] = stranger_connects(i, 0);
	stranger_connects(PLACES, -ENOSPC);
	ck_assert(takes(e[1], 7, 0));
	stranger_leaves(e[1]);
	stranger_connects(PLACES, -ENOSPC);
	e[1] = stranger_connects(1, 0);
	ck_assert(!takes(e[1], 7, MARKED));
	/* this one has not */
	stranger_leaves(e[2]);
	gen = atomic_load(&rds_route_gen);
	e[2] = stranger_connects(PLACES, 0);
	ck_assert_uint_ne(atomic_load(&rds_route_gen), gen); /* nobody uses what was forgotten */
	stranger_connects(2, -ENOSPC);
	stranger_leaves(e[1]);
	mock_clock_pass(119 * 1000000000ull);
	stranger_connects(2, -ENOSPC);
	mock_clock_pass(2 * 1000000000ull);
	stranger_connects(2, 0);
	stranger_connects(1, -ENOSPC);
}
END_TEST

/* Hosts to which we send are not counted. */
START_TEST(test_no_strangers)
{
	struct rds_conn_id id = far_id(0);
	unsigned i;

	few_places();
	fake.eps[fake.neps++] = far_asks(&id, 0);
	ep_up(fake.eps[0], 0);
	is_probe(sent_at(0), 1);
	far_acks(0, 1);
	say(5, "a");
	is_message(sent_at(1), 2, 0, "a");
	for (i = 0; i < PLACES; i++)
		stranger_connects(i, 0);
	stranger_connects(PLACES, -ENOSPC);
	ep_down(fake.eps[0], -ECONNRESET, false);
	await(locked(&fake.neps) == 2);
}
END_TEST

static void many_ask(void *arg)
{
	unsigned i;

	(void)arg;
	for (i = 0; i < 4096; i++) {
		struct rds_conn_id id = stranger(i);

		fake.t.up->asked(&fake.t, &id);
	}
}

/* Each is tried once, and a few of them again.  We try a host that has left ever more rarely, until we send to it. */
START_TEST(test_many_ask)
{
	struct rds_conn_id id = far_id(0);
	unsigned n, began;

	few_places();
	atomic_store(&fake.no_attempt, -EHOSTUNREACH);
	in_helper(many_ask, NULL);
	ck_assert_uint_eq(atomic_load(&fake.nrefused), 0);
	mock_clock_pass(PLACES * 1000000ull);
	ck_assert_uint_ge(atomic_load(&fake.nrefused), PLACES);
	in_helper(say_asked, &id); /* in the place of one of them */
	mock_clock_pass(600 * 1000000000ull);
	n = atomic_load(&fake.nrefused);
	ck_assert_uint_lt(n, PLACES * 60);
	began = fake.neps;
	atomic_store(&fake.no_attempt, 0);
	say(5, "a");
	mock_clock_pass(1000000);
	ck_assert_uint_eq(locked(&fake.neps), began + 1);
}
END_TEST

/* A host that sends on and on to a socket that does not read is not read from, but one that has sent a little is. */
static void floods(void *arg)
{
	static const unsigned char bytes[1 << 20];
	struct fake_ep *e = arg;
	struct rds_rx rx = {.hdr = {.seq = 2, .sport = 9, .dport = 4000, .len = sizeof(bytes)}, .data = bytes};
	unsigned n = 0;

	rx_lock();
	while (n < 200 && fake.t.up->message(e->head.conn, (struct rds_ep *)e, &rx) == RDS_RX_DONE)
		n++;
	ck_assert_uint_ge(n, 64);
	ck_assert_uint_le(n, 66);
	ck_assert_int_eq(fake.t.up->message(e->head.conn, (struct rds_ep *)e, &rx), RDS_RX_PAUSE);
	rx_unlock();
}

/* Nor is the process that relays it, unless it has ended. */
static void relays_flood(void *arg)
{
	static const unsigned char bytes[1 << 20];
	struct fake_ep *e = arg;
	struct rds_conn *conn = e->head.conn;
	struct rds_rx rx = {.hdr = {.seq = 100, .sport = 9, .dport = 4000, .len = sizeof(bytes)}, .data = bytes};

	floods(e);
	rx_lock();
	conn->relay = RDS_RELAY_OWNER;
	ck_assert_int_eq(fake.t.up->message(conn, (struct rds_ep *)e, &rx), RDS_RX_PAUSE);
	rx.last = true;
	ck_assert_int_eq(fake.t.up->message(conn, (struct rds_ep *)e, &rx), RDS_RX_DONE);
	conn->relay = RDS_RELAY_NODE;
	rx_unlock();
}

static void floods_empty(void *arg)
{
	struct fake_ep *e = arg;
	struct rds_rx rx = {.hdr = {.seq = 2, .sport = 9, .dport = 4000}};
	unsigned n = 0;

	rx_lock();
	while (n < 1000000 && fake.t.up->message(e->head.conn, (struct rds_ep *)e, &rx) == RDS_RX_DONE)
		n++;
	ck_assert_uint_ge(n, 1 << 18);
	ck_assert_uint_lt(n, 1000000);
	rx_unlock();
}

START_TEST(test_flood)
{
	struct fake_ep *many = stranger_connects(1, 0), *one = stranger_connects(2, 0);
	unsigned i;

	in_helper(_i == 2 ? relays_flood : _i ? floods_empty : floods, many);
	fake.eps[0] = one; /* far_sends() fails if it is refused */
	for (i = 0; i < 5; i++)
		far_sends(0, &(struct rds_hdr){.seq = 1 + i, .sport = 9, .dport = 4000, .len = 1}, "x", 1);
}
END_TEST

/* Its next map waits behind what it sends: who is to read may wait for that map in a send. */
START_TEST(test_flood_and_map)
{
	begin();
	whole[500 / 8] = 1u << 500 % 8;
	in_helper(give_map, &(struct map){.len = sizeof(whole)});
	ck_assert(congested(500));
	in_helper(floods, fake.eps[0]);
	ck_assert(!congested(500));
	in_helper(give_map, &(struct map){.len = sizeof(whole)});
	ck_assert(congested(500));
}
END_TEST

static void is_unsent(unsigned n)
{
	ck_assert_uint_eq(rds_progress_count_unsent(), n);
}

/* A program's end does not wait for a host that refuses, but for one that has not answered yet. */
START_TEST(test_end)
{
	say(5, "a");
	await(locked(&fake.neps) == 1);
	mock_clock_pass(3 * 1000000000ull);
	is_unsent(1);
	ep_down(fake.eps[0], -ETIMEDOUT, false);
	await(locked(&fake.neps) == 2);
	mock_clock_pass(3 * 1000000000ull);
	is_unsent(1);
	ep_down(fake.eps[1], -ECONNREFUSED, false);
	is_unsent(0);
}
END_TEST

START_TEST(test_scopes)
{
	struct in6_addr a = {0}, link;

	inet_pton(AF_INET6, "fd00::1", &a);
	inet_pton(AF_INET6, "fe80::1", &link);
	rds_lock(&rds_lock_control);
	ck_assert_int_eq(rds_transport_node_add(&a, 0), 0);
	ck_assert_int_eq(rds_transport_node_add(&link, 2), 0);
	ck_assert(rds_transport_node_has(&a, 0));
	ck_assert(rds_transport_node_has(&a, 3));
	ck_assert(rds_transport_node_has(&link, 2));
	ck_assert(!rds_transport_node_has(&link, 3));
	ck_assert_int_eq(rds_transport_node_add(&link, 3), 0);
	ck_assert(rds_transport_node_has(&link, 3));
	rds_unlock(&rds_lock_control);
}
END_TEST

/* Who speaks for the other host has ended before its connection is made: it was the owner of the address. */
START_TEST(test_owner_has_ended)
{
	struct rds_conn_id id = {.peer.b = {1}, .peer_slot = 3};

	say(5, "a");
	await(locked(&fake.neps) == 1);
	id.laddr = fake.eps[0]->id.laddr;
	id.faddr = fake.eps[0]->id.faddr;
	rds_lock(&rds_lock_control);
	ck_assert_int_eq(rds_relay_of(RDS_CONN_PEER, &id), RDS_RELAY_OWNER);
	/* one that lives, and has not said that it is */
	id.peer = *registry_self(rds_node_registry);
	ck_assert(registry_proc_find(rds_node_registry, &id.peer, &id.peer_slot));
	ck_assert_int_eq(rds_relay_of(RDS_CONN_PEER, &id), RDS_RELAY_NONE);
	/* ... of an address that this process does not have, and of which no owner is known now */
	id.laddr.s6_addr[15]++;
	ck_assert(!rds_transport_node_has(&id.laddr, id.scope));
	ck_assert_int_eq(rds_relay_of(RDS_CONN_PEER, &id), RDS_RELAY_OWNER);
	rds_unlock(&rds_lock_control);
}
END_TEST

/* A host that was never reached: what a closed socket has sent ends with it, but not that of one which is handed off. */
START_TEST(test_closed_or_handed_off)
{
	say(5, "a");
	await(locked(&fake.neps) == 1);
	atomic_store(&fake.sk->handing_off, true);
	atomic_store(&fake.sk->open, false);
	ep_down(fake.eps[0], -ECONNREFUSED, false);
	await(locked(&fake.neps) == 2);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 2);
	atomic_store(&fake.sk->handing_off, false);
	ep_down(fake.eps[1], -ECONNREFUSED, false);
	ck_assert_uint_eq(rds_sock_snd_bytes(fake.sk), 0);
	atomic_store(&fake.sk->open, true);
}
END_TEST

/*
 * At the end of the process: a host that refuses is not waited for.  Who is a member knows that from the owner
 * only, and not from an owner that has ended.
 */
START_TEST(test_who_is_absent)
{
	struct rds_conn_id id;
	struct rds_conn *conn;

	say(5, "a");
	await(locked(&fake.neps) == 1);
	id = fake.eps[0]->id;
	ep_down(fake.eps[0], -ECONNREFUSED, false);
	ck_assert_uint_eq(rds_conn_unsent(), 1);
	atomic_fetch_add(&mock_now, 2 * rds_patience_ns(RDS_PATIENCE_TCP_EXIT));
	ck_assert_uint_eq(rds_conn_unsent(), 0);
	rds_lock(&rds_lock_control);
	conn = rds_conn_find(RDS_CONN_PEER, &id);
	rds_unlock(&rds_lock_control);
	conn->relay = RDS_RELAY_OWNER;
	atomic_store(&conn->node, RDS_NODE_TOLD);
	ck_assert_uint_eq(rds_conn_unsent(), 1);
	atomic_store(&conn->node, RDS_NODE_TOLD | RDS_NODE_FAILED);
	ck_assert_uint_eq(rds_conn_unsent(), 1);
	atomic_store(&conn->state, RDS_CONN_UP);
	ck_assert_uint_eq(rds_conn_unsent(), 0);
	atomic_store(&conn->node, RDS_NODE_TOLD | RDS_NODE_FAILED | RDS_NODE_MET);
	ck_assert_uint_eq(rds_conn_unsent(), 1);
	conn->relay = RDS_RELAY_NODE;
	atomic_store(&conn->state, RDS_CONN_CONNECTING);
}
END_TEST

static unsigned looks;

static bool takes_long(struct rds_transport *t)
{
	(void)t;
	looks++;
	atomic_fetch_add(&mock_now, 20000000);
	return true;
}

static void rounds(void *arg)
{
	struct rds_transport_ops *ops = arg, *usual = (struct rds_transport_ops *)(uintptr_t)fake.t.ops;

	*ops = *usual;
	ops->progress = takes_long;
	fake.t.ops = ops;
	rds_progress_helper_round();
	fake.t.ops = usual;
}

/* A host sends as fast as it is received from: the helper looks at its timers all the same. */
START_TEST(test_long_rounds)
{
	struct rds_transport_ops ops;

	begin();
	in_helper(rounds, &ops);
	ck_assert_uint_ge(looks, 1);
	ck_assert_uint_le(looks, 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("node");
	TCase *tc = suite_case(s, "node", far_setup_node, NULL);

	tcase_add_test(tc, test_route);
	tcase_add_test(tc, test_break);
	tcase_add_test(tc, test_introduction);
	tcase_add_test(tc, test_introduction_first);
	tcase_add_test(tc, test_introduction_acked);
	tcase_add_test(tc, test_idle_break);
	tcase_add_test(tc, test_numbers);
	tcase_add_test(tc, test_probe_is_answered);
	tcase_add_test(tc, test_answer);
	tcase_add_test(tc, test_generation);
	tcase_add_test(tc, test_maps);
	tcase_add_test(tc, test_accept);
	tcase_add_test(tc, test_asked);
	tcase_add_test(tc, test_strangers);
	tcase_add_test(tc, test_no_strangers);
	tcase_add_test(tc, test_many_ask);
	tcase_add_loop_test(tc, test_flood, 0, 3);
	tcase_add_test(tc, test_flood_and_map);
	tcase_add_test(tc, test_end);
	tcase_add_test(tc, test_scopes);
	tcase_add_test(tc, test_owner_has_ended);
	tcase_add_test(tc, test_closed_or_handed_off);
	tcase_add_test(tc, test_who_is_absent);
	tcase_add_test(tc, test_long_rounds);
	return suite_run(s);
}
