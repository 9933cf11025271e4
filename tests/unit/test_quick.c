/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_quick.c - the fast path of a send (calls/send_fast.c) against the full one (calls/send.c): a
 * message that both accept leaves the same state, to the byte; where the fast path does not accept
 * a message, it leaves everything as it was.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/conn/outgoing.h"
#include "engine/progress/wait.h"
#include "engine/progress/state.h"
#include "tests/unit/suite.h"

#define CAP 8u
#define PORT 4000

/* ---- a transport that notes what it is given ---- */

static struct {
	struct rds_wire_hdr hdr;
	unsigned char bytes[256];
	size_t len;
	unsigned sends, flushes;
	bool service;
} noted;
static int refusal;

static int fake_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	(void)ep;
	noted.sends++;
	if (refusal)
		return refusal;
	noted.hdr = *wire;
	noted.len = len;
	if (len)
		memcpy(noted.bytes, iov->iov_base, len);
	*pos = 77;
	return 0;
}

static void fake_flush(struct rds_ep *ep, bool service)
{
	(void)ep;
	noted.flushes++;
	noted.service |= service;
}

static uint64_t fake_acked(struct rds_ep *ep)
{
	(void)ep;
	return 0;
}

static bool fake_want_room(struct rds_ep *ep, uint64_t seen)
{
	(void)ep;
	(void)seen;
	return false;
}

static struct rds_transport_ops ops = {
	.send = fake_send, .flush = fake_flush, .acked = fake_acked, .want_room = fake_want_room};
static struct rds_transport transport = {.ops = &ops};
static struct rds_ep_head endpoint = {.t = &transport};

/* ---- an engine with one socket that has sent to one place before ---- */

static _Atomic uint64_t generation;
static struct registry_pub registry = {.generation = &generation};
static struct rds_sock sock;
static struct rds_conn conn;
static struct rds_queue_unacked unacked[CAP];
static _Atomic uint64_t congested_ports[RDS_CONG_MAP_BYTES / 8];
static struct rds_cong_map map = {.words = congested_ports};
static struct rds_queue_item waiting;
static struct sockaddr_in to;
static size_t length;
static const void *bytes, *name;
static unsigned char text[2 << 20];

static void setup(void)
{
	struct rds_sock_dst *d;

	memset(&sock, 0, sizeof(sock));
	memset(&conn, 0, sizeof(conn));
	memset(&noted, 0, sizeof(noted));
	memset(unacked, 0, sizeof(unacked));
	memset(congested_ports, 0, sizeof(congested_ports));
	os_process_start();
	rds_node_registry = (struct registry *)(void *)&registry;
	atomic_store(&generation, 5);
	atomic_store(&rds_route_gen, 3);
	rds_queue_forget();
	ops.caps = 0;
	refusal = 0;

	rds_lock_init(&conn.tx, RDS_LOCK_CONN_TX);
	conn.t = &transport;
	conn.ep = (struct rds_ep *)&endpoint;
	conn.queue_tail = &conn.queue;
	conn.next_tx = 0x123456789abcull;
	conn.room_sought = true;
	conn.unacked = unacked;
	conn.cap = CAP;
	conn.head = 6;
	atomic_store(&conn.state, RDS_CONN_UP);

	to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PORT)};
	inet_pton(AF_INET, "10.1.2.3", &to.sin_addr);
	rds_lock_init(&sock.tx, RDS_LOCK_SOCK_TX);
	atomic_store(&sock.ref, 1);
	atomic_store(&sock.open, true);
	RDS_SOCK_SET(&sock, bound, true);
	RDS_SOCK_SET(&sock, tos_fixed, true);
	RDS_SOCK_SET(&sock, sndbuf, 4000);
	sock.set_laddr.port = 1234;
	d = rds_sock_dst_slot(&sock, PORT);
	memcpy(d->raw, &to, RDS_DST_RAW4);
	d->rawlen = RDS_DST_RAW4;
	d->addr.port = PORT;
	d->conn = &conn;
	d->bind_gen = 5;
	d->conn_gen = 3;
	memset(text, 'x', sizeof(text));
	bytes = text;
	name = &to;
	length = 64;
	rds_wait_has_sent = false;
	atomic_store(&rds_progress_at_send, RDS_AT_SEND_NOTE);
}

static ssize_t the_long_way(void)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
	struct msghdr msg = {
		.msg_name = (void *)(uintptr_t)name, .msg_namelen = sizeof(to), .msg_iov = &iov, .msg_iovlen = 1};

	return rds_call_sendmsg(&sock, -1, &msg, MSG_DONTWAIT);
}

static bool the_short_way(void)
{
	return rds_call_send_fast(&sock, bytes, length, name);
}

/* All that a send may change, but for the locks' own counts. */
struct state {
	struct rds_sock sock;
	struct rds_conn conn;
	struct rds_queue_unacked unacked[CAP];
};

static void take_state(struct state *s)
{
	memcpy(&s->sock, &sock, sizeof(sock));
	memcpy(&s->conn, &conn, sizeof(conn));
	memcpy(s->unacked, unacked, sizeof(unacked));
	memset(&s->sock.tx, 0, sizeof(s->sock.tx));
	memset(&s->conn.tx, 0, sizeof(s->conn.tx));
}

static void ck_same_message(const struct rds_queue_unacked *a, const struct rds_queue_unacked *b)
{
	ck_assert_ptr_eq(a->sk, b->sk);
	ck_assert_uint_eq(a->seq, b->seq);
	ck_assert_uint_eq(a->pos, b->pos);
	ck_assert_uint_eq(a->len, b->len);
	ck_assert_uint_eq(a->sport, b->sport);
	ck_assert_uint_eq(a->dport, b->dport);
	ck_assert_uint_eq(a->flags, b->flags);
	ck_assert_uint_eq(a->sock, b->sock);
	ck_assert(a->report == b->report && a->cancelled == b->cancelled && a->once == b->once);
	ck_assert_uint_eq(a->ext_type, b->ext_type);
	ck_assert_uint_eq(a->ext_rkey, b->ext_rkey);
	ck_assert_uint_eq(a->ext_offset, b->ext_offset);
}

/* ---- tests ---- */

static const size_t lengths[] = {0, 1, 64, 255};

START_TEST(test_same)
{
	static struct state a, b;
	struct rds_wire_hdr hdr;
	unsigned i, k;

	for (i = 0; i < 3; i++) { /* around the end of the ring, too */
		length = lengths[_i];
		ck_assert_int_eq(the_long_way(), (ssize_t)length);
	}
	take_state(&a);
	hdr = noted.hdr;
	ck_assert(rds_wait_has_sent && atomic_load(&progress_state.sent));
	setup();
	for (i = 0; i < 3; i++) {
		length = lengths[_i];
		memset(noted.bytes, 0, sizeof(noted.bytes));
		ck_assert(the_short_way());
		ck_assert_uint_eq(noted.len, length);
		ck_assert_mem_eq(noted.bytes, text, length);
	}
	take_state(&b);
	ck_assert(rds_wait_has_sent && atomic_load(&progress_state.sent));
	ck_assert_uint_eq(noted.sends, 3);
	ck_assert_uint_eq(noted.flushes, 3);
	ck_assert(!noted.service);
	ck_assert_mem_eq(&hdr, &noted.hdr, sizeof(hdr));
	ck_assert_mem_eq(&a.sock, &b.sock, sizeof(a.sock));
	ck_assert_mem_eq(&a.conn, &b.conn, sizeof(a.conn));
	for (k = 0; k < CAP; k++)
		ck_same_message(&a.unacked[k], &b.unacked[k]);
	ck_assert_ptr_eq(b.unacked[0].sk, &sock); /* 6, 7, 0 */
}
END_TEST

/* What is in the way, one at a time. */
static void port(void)
{
	to.sin_port = htons(PORT + 1);
}
static void same_slot(void)
{
	to.sin_port = htons(PORT + RDS_DST_CACHE);
}
static void address(void)
{
	to.sin_addr.s_addr ^= htonl(1);
}
static void family(void)
{
	to.sin_family = AF_INET6;
}
static void not_raw(void)
{
	rds_sock_dst_slot(&sock, PORT)->rawlen = 1;
}
static void unresolved(void)
{
	rds_sock_dst_slot(&sock, PORT)->conn = NULL;
}
static void bound_since(void)
{
	atomic_fetch_add(&generation, 1);
}
static void removed_since(void)
{
	atomic_fetch_add(&rds_route_gen, 1);
}
static void down(void)
{
	atomic_store(&conn.state, RDS_CONN_DOWN);
}
static void dead(void)
{
	atomic_store(&conn.state, RDS_CONN_DEAD);
}
static void connecting(void)
{
	atomic_store(&conn.state, RDS_CONN_CONNECTING);
}
static void queued(void)
{
	conn.queue = &waiting;
}
static void impatient(void)
{
	conn.impatient = true;
}
static void answers(void)
{
	atomic_store(&conn.nanswers, 1);
}
static void unacked_full(void)
{
	conn.count = CAP;
}
static void direct(void)
{
	ops.caps |= RDS_TCAP_DIRECT;
}
static void full(void)
{
	atomic_store(&sock.snd, RDS_SND_MSG + 2000);
}
static void longer_than_sndbuf(void)
{
	length = 2001;
}
static void closed(void)
{
	atomic_store(&sock.open, false);
}
static void follows(void)
{
	sock.owner_since = 1234;
	sock.owner_number = 1;
}
static void bad_bytes(void)
{
	bytes = (void *)8;
}
static void bad_name(void)
{
	name = (void *)8;
}
static void no_room(void)
{
	refusal = -EAGAIN;
}
static void broken(void)
{
	refusal = -ENOTCONN;
}
static void too_long(void)
{
	RDS_SOCK_SET(&sock, sndbuf, UINT32_MAX);
	length = RDS_MAX_MSG + 1;
}
static void congested(void)
{
	atomic_store(&map.words[PORT / 64], ~0ull);
	atomic_store(&conn.fcong.map, &map);
	atomic_store(&conn.fcong.few, RDS_CONG_MANY);
}
static void one_congested(void)
{
	atomic_store(&conn.fcong.few, PORT);
}
static void last_congested(void)
{
	atomic_store(&conn.fcong.few, (uint64_t)PORT << 48 | 0x300020001);
}

static void (*const obstacles[])(void) = {port,	      same_slot,     address,	    family,    not_raw,
					  unresolved, bound_since,   removed_since, down,      dead,
					  connecting, queued,	     impatient,	    answers,   unacked_full,
					  direct,     full,	     closed,	    bad_bytes, bad_name,
					  no_room,    broken,	     too_long,	    congested, longer_than_sndbuf,
					  follows,    one_congested, last_congested};
#define OBSTACLES (sizeof(obstacles) / sizeof(obstacles[0]))

START_TEST(test_left_alone)
{
	static struct state a, b;

	obstacles[_i]();
	take_state(&a);
	ck_assert(!the_short_way());
	take_state(&b);
	/* offered, even if it was not taken */
	atomic_store(&b.conn.sent, atomic_load(&a.conn.sent));
	ck_assert_mem_eq(&a, &b, sizeof(a));
	ck_assert_uint_eq(noted.sends, refusal ? 1 : 0);
	ck_assert_uint_eq(noted.flushes, 0);
	ck_assert(!rds_wait_has_sent);
}
END_TEST

/* The same without an obstacle: what the table finds is the obstacle and nothing else. */
START_TEST(test_nothing_in_the_way)
{
	ck_assert(the_short_way());
	atomic_store(&conn.fcong.few, 0x4000300020001); /* other ports */
	ck_assert(the_short_way());
	atomic_store(&conn.fcong.map, &map);
	atomic_store(&conn.fcong.few, RDS_CONG_MANY);
	ck_assert(the_short_way());
}
END_TEST

/*
 * A socket that was another process's says so with the first message to each place, and only then.
 */
START_TEST(test_follows)
{
	follows();
	full();
	ck_assert_int_eq(the_long_way(), -EAGAIN);
	atomic_store(&sock.snd, 0);
	ck_assert_int_eq(the_long_way(), (ssize_t)length);
	ck_assert_uint_eq(noted.hdr.flags, RDS_FLAG_NEW_OWNER);
	ck_assert_uint_eq(be64toh(noted.hdr.ack), 1234);
	ck_assert_int_eq(the_long_way(), (ssize_t)length);
	ck_assert_uint_eq(noted.hdr.flags, 0);
	ck_assert(the_short_way());
	setup();
	follows();
	ops.caps |= RDS_TCAP_REMOTE; /* another host has not heard of that other process */
	ck_assert_int_eq(the_long_way(), (ssize_t)length);
	ck_assert_uint_eq(noted.hdr.flags, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("quick");
	TCase *t = suite_case(s, "quick", setup, NULL);

	tcase_add_loop_test(t, test_same, 0, sizeof(lengths) / sizeof(lengths[0]));
	tcase_add_loop_test(t, test_left_alone, 0, OBSTACLES);
	tcase_add_test(t, test_nothing_in_the_way);
	tcase_add_test(t, test_follows);
	return suite_run(s);
}
