/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_recv.c - a receive and the state that it leaves: where the bytes of a message lie that its
 * transport does not keep, delivered on the fast path and on the full one; which sockets are noted
 * as having input that the kernel does not show; pings that cannot be noted at once; which messages
 * wait for older ones of other processes.
 */
#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/conn/incoming.h"
#include "engine/progress/state.h"
#include "engine/progress/progress.h"
#include "tests/unit/suite.h"

#define PORT 4000

/* ---- a transport that hands up what the test wants, when it is looked at ---- */

static unsigned come;		 /* so many messages with the next look */
static uint32_t length;		 /* of each */
static unsigned char wire[4096]; /* where they lie, one after the other */
static struct rds_conn conn;
static uint64_t seq;
static struct rds_ep_head endpoint;

static void arrive(void)
{
	struct rds_rx rx = {.hdr = {.seq = ++seq, .len = length, .sport = 7, .dport = PORT},
			    .data = length ? wire : NULL};

	memset(wire, (int)seq, sizeof(wire));
	ck_assert_int_eq(rds_conn_receive(&conn, (struct rds_ep *)&endpoint, &rx), RDS_RX_DONE);
	memset(wire, 0xee, sizeof(wire)); /* the buffer is used again */
}

static bool fake_progress(struct rds_transport *t)
{
	bool any = come;

	(void)t;
	for (; come; come--)
		arrive();
	return any;
}

static void fake_ack(struct rds_ep *ep, uint64_t to)
{
	(void)ep;
	ck_assert_uint_eq(to, seq);
}

static const struct rds_transport_ops ops = {.progress = fake_progress, .ack = fake_ack};
static struct rds_transport transport = {.ops = &ops};

/* ---- an engine with one socket ---- */

static struct rds_sock sock;
static unsigned char got[4096];
static struct sockaddr_in from;

static void setup(void)
{
	memset(&sock, 0, sizeof(sock));
	memset(&conn, 0, sizeof(conn));
	os_process_start();
	atomic_store(&rds_helper_up, true);
	rds_transport_set.shm = &transport;
	atomic_store(&rds_progress_attention, RDS_ATT_LAZY);
	endpoint.t = &transport;
	inet_pton(AF_INET6, "::ffff:10.0.0.1", &conn.id.laddr);
	inet_pton(AF_INET6, "::ffff:10.0.0.2", &conn.id.faddr);
	atomic_store(&conn.next_rx, 1);
	seq = 0;
	come = 0;
	sock.set_laddr.ip = conn.id.laddr;
	sock.set_laddr.port = PORT;
	sock.rx_tail = &sock.rx_head;
	atomic_store(&sock.ref, 1);
	atomic_store(&sock.open, true);
	RDS_SOCK_SET(&sock, bound, true);
	RDS_SOCK_SET(&sock, rcvbuf, 1 << 20);
	rds_sock_bound_insert(&sock);
}

static ssize_t take(size_t room, int flags, struct msghdr *msg)
{
	struct iovec iov = {.iov_base = got, .iov_len = room};

	memset(got, 0, sizeof(got));
	memset(&from, 0, sizeof(from));
	*msg = (struct msghdr){
		.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov, .msg_iovlen = 1, .msg_flags = -1};
	return rds_call_recvmsg(&sock, -1, msg, flags | MSG_DONTWAIT);
}

static void ck_is(unsigned number, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		ck_assert_uint_eq(got[i], number);
	ck_assert_uint_eq(got[len], 0);
	ck_assert_uint_eq(from.sin_family, AF_INET);
	ck_assert_uint_eq(ntohs(from.sin_port), 7);
	ck_assert_uint_eq(ntohl(from.sin_addr.s_addr), 0x0a000002);
}

/* ---- tests ---- */

static const uint32_t lengths[] = {0, 1, 64, RDS_INC_SMALL - 1, RDS_INC_SMALL, RDS_INC_SMALL + 1, 4000};

/* Two that wait at once, their bytes copied from a buffer that is used again. */
START_TEST(test_copied)
{
	struct msghdr msg;
	unsigned i;

	length = lengths[_i];
	come = 2;
	for (i = 1; i <= 2; i++) {
		ck_assert_int_eq(take(sizeof(got), 0, &msg), (ssize_t)length);
		ck_is(i, length);
		ck_assert_int_eq(msg.msg_flags, 0);
		ck_assert_uint_eq(msg.msg_namelen, sizeof(from));
	}
	ck_assert_uint_eq(sock.rcv_bytes, 0);
	ck_assert_int_eq(take(sizeof(got), 0, &msg), -EAGAIN);
}
END_TEST

/* What the short way must leave to the long one. */
START_TEST(test_not_plain)
{
	struct msghdr msg;
	int inq = -1;
	union {
		char buf[64];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = got, .iov_len = sizeof(got)};

	length = 100;
	come = 5;
	ck_assert_int_eq(take(sizeof(got), MSG_PEEK, &msg), 100);
	ck_is(1, 100);
	ck_assert_int_eq(take(99, 0, &msg), 99);
	ck_assert_int_eq(msg.msg_flags, MSG_TRUNC);
	ck_assert_int_eq(take(99, MSG_TRUNC, &msg), 100);
	RDS_SOCK_SET(&sock, inq, true);
	msg = (struct msghdr){
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control)};
	ck_assert_int_eq(rds_call_recvmsg(&sock, -1, &msg, MSG_DONTWAIT), 100);
	ck_assert_ptr_nonnull(CMSG_FIRSTHDR(&msg));
	memcpy(&inq, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(inq));
	ck_assert_int_eq(inq, 200);
	RDS_SOCK_SET(&sock, inq, false);
	ck_assert_int_eq(take(100, 0, &msg), 100);
	ck_is(4, 100);
	iov.iov_base = (void *)8;
	msg = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1};
	ck_assert_int_eq(rds_call_recvmsg(&sock, -1, &msg, MSG_DONTWAIT), -EFAULT);
	ck_assert_uint_eq(sock.rcv_bytes, 100);
	ck_assert_int_eq(take(100, 0, &msg), 100);
	ck_is(5, 100);
}
END_TEST

/* It came before anybody wanted that measured, and in the place of one that was. */
START_TEST(test_not_measured)
{
	struct rds_cmsg_rx_trace t;
	union {
		char buf[64];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = got, .iov_len = sizeof(got)};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control)};

	length = 10;
	RDS_SOCK_SET(&sock, rx_trace, 3 | 2 << 24); /* how long it has been here */
	arrive();
	ck_assert_int_eq(take(100, 0, &msg), 10);
	RDS_SOCK_SET(&sock, rx_trace, 0);
	arrive();
	RDS_SOCK_SET(&sock, rx_trace, 3 | 2 << 24);
	msg = (struct msghdr){
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control)};
	ck_assert_int_eq(rds_call_recvmsg(&sock, -1, &msg, MSG_DONTWAIT), 10);
	ck_assert_ptr_nonnull(CMSG_FIRSTHDR(&msg));
	memcpy(&t, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(t));
	ck_assert_uint_eq(t.rx_trace[2], 0);
}
END_TEST

static bool noted(void)
{
	ck_assert(sock.unseen == (rds_sock_unseen == &sock));
	ck_assert_uint_eq(atomic_load(&sock.ref) & RDS_REF_COUNT, sock.unseen ? 2 : 1);
	ck_assert_ptr_null(rds_sock_taker);
	return sock.unseen;
}

/*
 * A socket is noted as long as something waits in it, but not for what a reader takes in the look
 * that brings it.
 */
START_TEST(test_unseen)
{
	struct msghdr msg;

	length = 10;
	come = 1;
	ck_assert_int_eq(take(64, 0, &msg), 10);
	ck_assert(!noted());
	come = 2;
	ck_assert_int_eq(take(64, 0, &msg), 10);
	ck_assert(noted());
	ck_assert_int_eq(take(64, 0, &msg), 10);
	ck_assert(!noted());
	come = 1;
	ck_assert_int_eq(take(64, MSG_PEEK, &msg), 10);
	ck_assert(noted());
	ck_assert_int_eq(take(64, 0, &msg), 10);
	ck_assert(!noted());
	rx_lock(); /* a look of another thread */
	arrive();
	rx_unlock();
	ck_assert(noted());
	ck_assert_int_eq(take(64, 0, &msg), 10);
	ck_assert(!noted());
	ck_assert_int_eq(take(64, 0, &msg), -EAGAIN);
	ck_assert(!noted());
}
END_TEST

#define WITHIN_NS (3600 * 1000000000ull) /* more than a loaded machine keeps this thread waiting */

/*
 * A device wakes the leader twice in a short time: peers are not told of a change that would be taken
 * back at once.  If the thread sleeps for long, they are.
 */
START_TEST(test_leader_woken_often)
{
	progress_state.lazy_tick_on = true; /* no helper here to set a timer of */
	rx_lock();
	progress_state.led_at = os_now_coarse_ns() - 2 * WITHIN_NS;
	rds_progress_leader_woken(WITHIN_NS);
	ck_assert(!progress_state.lazy);
	rds_progress_leader_woken(WITHIN_NS);
	ck_assert(progress_state.lazy);
	progress_state.lazy = false;
	progress_state.led_at -= 2 * WITHIN_NS;
	rds_progress_leader_woken(WITHIN_NS);
	ck_assert(!progress_state.lazy);
	rx_unlock();
}
END_TEST

/* ---- pings ---- */

static enum rds_rx_verdict ping(void)
{
	struct rds_rx rx = {.hdr = {.seq = ++seq, .sport = 7, .dport = 0}};
	enum rds_rx_verdict v;

	rx_lock();
	v = rds_conn_receive(&conn, (struct rds_ep *)&endpoint, &rx);
	rx_unlock();
	if (v == RDS_RX_LATER)
		seq--; /* it comes again */
	return v;
}

/* A burst of pings: what there is no room to note is offered again, and none of them is dropped. */
START_TEST(test_pings)
{
	static const struct rds_transport_ops node_ops = {.ack = fake_ack, .caps = RDS_TCAP_NODE};
	static struct rds_transport node = {.ops = &node_ops};
	unsigned i;

	conn.t = _i ? &node : &transport;
	for (i = 0; i < RDS_PONGS_MAX; i++) {
		ck_assert_int_eq(ping(), RDS_RX_DONE);
	}
	ck_assert(conn.work_queued);
	ck_assert_int_eq(ping(), RDS_RX_LATER);
	ck_assert_uint_eq(conn.seldom->npongs, RDS_PONGS_MAX);
	ck_assert_uint_eq(atomic_load(&conn.next_rx), seq + 1);
	conn.seldom->npongs = 0; /* answered */
	ck_assert_int_eq(ping(), RDS_RX_DONE);
	ck_assert_uint_eq(conn.seldom->npongs, 1);
	free(conn.seldom->pongs);
	free(conn.seldom);
}
END_TEST

/* ---- sockets that changed their owners, each over a connection of its own ---- */

#define OWNERS 5 /* the number of each is when that was */
#define MANY 40
#define DEPTH 8 /* a transport does not look more often in the middle of a look */

static struct rds_conn owners[MANY + 1];
static enum rds_rx_verdict verdicts[MANY + 1];
static uint64_t lie[OWNERS], nlie; /* whose messages the transport has, in this order */
static bool complete;

static void ignore_ack(struct rds_ep *ep, uint64_t to)
{
	(void)ep, (void)to;
}

static enum rds_rx_verdict owner_sends(uint64_t since)
{
	struct rds_rx rx = {
		.hdr = {.seq = 1, .sport = 7, .dport = PORT, .flags = RDS_FLAG_NEW_OWNER, .owner_since = since}};

	verdicts[since] = rds_conn_receive(&owners[since], (struct rds_ep *)&endpoint, &rx);
	return verdicts[since];
}

/* What the engine does not take is not offered once more in the same look. */
static bool owners_catch_up(struct rds_transport *t, uint64_t since)
{
	(void)t;
	ck_assert(since);
	while (nlie)
		owner_sends(lie[--nlie]);
	return complete;
}

static const struct rds_transport_ops owners_ops = {.ack = ignore_ack, .catch_up = owners_catch_up};

static void owners_setup(void)
{
	unsigned i;

	setup();
	transport.ops = &owners_ops;
	for (i = 0; i <= MANY; i++)
		owners[i] = conn;
	complete = true;
	nlie = 0;
	rx_lock();
}

static void owners_teardown(void)
{
	rx_unlock();
	transport.ops = &ops;
}

/* first: looked at first */
static void owners_lie(uint64_t first, uint64_t then)
{
	lie[0] = then;
	lie[1] = first;
	nlie = 2;
}

/*
 * While 1 looks for older ones, 2 has to come again. So has 3, which has looked for older ones from the
 * beginning.
 */
START_TEST(owner_meets_one_put_off)
{
	owners_lie(1, 2);
	ck_assert_int_eq(owner_sends(3), RDS_RX_LATER);
	ck_assert_int_eq(verdicts[1], RDS_RX_DONE);
	ck_assert_int_eq(verdicts[2], RDS_RX_LATER);
	ck_assert_int_eq(owner_sends(2), RDS_RX_DONE);
	ck_assert_int_eq(owner_sends(3), RDS_RX_DONE);
}
END_TEST

/* So have all that have changed their owners after that, and no others. */
START_TEST(owner_put_off_holds_up_later_ones)
{
	lie[0] = 3;
	lie[1] = 2;
	lie[2] = 1;
	nlie = 3;
	ck_assert_int_eq(owner_sends(4), RDS_RX_LATER);
	ck_assert_int_eq(verdicts[3], RDS_RX_LATER);
	ck_assert_int_eq(verdicts[2], RDS_RX_LATER);
	ck_assert_int_eq(verdicts[1], RDS_RX_DONE);
	owners_lie(4, 1);
	ck_assert_int_eq(owner_sends(2), RDS_RX_DONE);
	ck_assert_int_eq(verdicts[4], RDS_RX_LATER);
	ck_assert_int_eq(verdicts[1], RDS_RX_DONE);
	ck_assert_int_eq(owner_sends(3), RDS_RX_DONE);
}
END_TEST

/* The transport does not get at all of them. */
START_TEST(owner_with_some_out_of_reach)
{
	complete = false;
	owners_lie(2, 1);
	ck_assert_int_eq(owner_sends(3), RDS_RX_LATER);
	ck_assert_int_eq(verdicts[2], RDS_RX_LATER);
	ck_assert_int_eq(verdicts[1], RDS_RX_LATER);
	complete = true;
	owners_lie(2, 1);
	ck_assert_int_eq(owner_sends(3), RDS_RX_DONE);
	ck_assert_int_eq(verdicts[2], RDS_RX_DONE);
}
END_TEST

/* ---- many of them, each with its message in a ring of its own ---- */

static unsigned depth, looks;
static bool taken[MANY + 1], under_way[MANY + 1];
static bool all_at_once; /* they all changed at the same time, as they say */

/* What the engine does not take is offered by each look again. */
static void ring_drains(unsigned i)
{
	struct rds_rx rx = {.hdr = {.seq = 1, .sport = 7, .dport = PORT, .flags = RDS_FLAG_NEW_OWNER}};

	if (taken[i] || under_way[i])
		return;
	rx.hdr.owner_since = all_at_once ? 1 : i;
	under_way[i] = true;
	taken[i] = rds_conn_receive(&owners[i], (struct rds_ep *)&endpoint, &rx) == RDS_RX_DONE;
	under_way[i] = false;
}

static bool rings_catch_up(struct rds_transport *t, uint64_t since)
{
	unsigned i;

	(void)t, (void)since;
	if (depth == DEPTH)
		return false;
	ck_assert_uint_le(++looks, 4 * MANY);
	depth++;
	for (i = MANY; i > 0; i--)
		ring_drains(i);
	depth--;
	return true;
}

static const struct rds_transport_ops rings_ops = {.ack = ignore_ack, .catch_up = rings_catch_up};

/* The newest one is looked at first: so each look begins another one, as often as may be. */
START_TEST(owners_are_many)
{
	unsigned i, left = MANY, before;

	transport.ops = &rings_ops;
	all_at_once = _i;
	while (left) {
		before = left;
		for (i = MANY; i > 0; i--) {
			looks = 0;
			ring_drains(i);
		}
		for (i = 1, left = 0; i <= MANY; i++)
			left += !taken[i];
		ck_assert_uint_lt(left, before);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("recv");
	TCase *t = suite_case(s, "recv", setup, NULL);

	tcase_add_loop_test(t, test_copied, 0, sizeof(lengths) / sizeof(lengths[0]));
	tcase_add_test(t, test_not_plain);
	tcase_add_test(t, test_not_measured);
	tcase_add_test(t, test_unseen);
	tcase_add_test(t, test_leader_woken_often);
	tcase_add_loop_test(t, test_pings, 0, 2);
	t = suite_case(s, "owners", owners_setup, owners_teardown);
	tcase_add_test(t, owner_meets_one_put_off);
	tcase_add_test(t, owner_put_off_holds_up_later_ones);
	tcase_add_test(t, owner_with_some_out_of_reach);
	tcase_add_loop_test(t, owners_are_many, 0, 2);
	return suite_run(s);
}
