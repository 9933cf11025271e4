/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_attempts.c - a connection has one endpoint at a time, however its attempts and those of the peer fall together.
 *
 * The test plays a transport to another host, and the process there: it writes down what it is asked and given, and says from the
 * helper's thread what comes of it, in the order that the test wants.
 */
#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/connection.h"
#include "engine/wires.h"

#define NEAR "127.0.0.1"
#define FAR "192.0.2.1"
#define MAX_EPS 64
#define MAX_SENT 64
#define PATIENCE_NS (10 * 1000000000ull)

/* ---- the transport ---- */

struct fake_ep {
	struct rds_ep_head head;
	_Atomic uint64_t acked;
	_Atomic bool closed;
	unsigned char kept[MAX_SENT][16];
	_Atomic unsigned n;
	struct fake_ep *made_before;
};
static struct fake_ep *made; /* all of them: memory that stays, and is no leak */

static struct {
	struct rds_transport t;
	struct rds_conn_id id; /* of the connection, as seen from here */
	struct fake_ep *asked[MAX_EPS];
	_Atomic unsigned nasked; /* by us */
	_Atomic bool wanted;	 /* locate() was called */
} fake;

static int fake_start(struct rds_transport *t)
{
	(void)t;
	return 0;
}

static void fake_stop(struct rds_transport *t)
{
	(void)t;
}

static int fake_claims(struct rds_transport *t, const struct in6_addr *laddr, uint32_t scope)
{
	(void)t;
	(void)laddr;
	(void)scope;
	return 1;
}

static int fake_locate(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port)
{
	(void)t;
	(void)id;
	(void)port;
	atomic_store(&fake.wanted, true);
	return 0;
}

static struct fake_ep *ep_new(struct rds_conn *conn)
{
	struct fake_ep *e = calloc(1, sizeof(*e));

	ck_assert_ptr_nonnull(e);
	e->made_before = made;
	made = e;
	e->head.t = &fake.t;
	e->head.conn = conn;
	return e;
}

static int fake_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, uint64_t rx_seq,
			struct rds_ep **ep)
{
	struct fake_ep *e = ep_new(conn);

	(void)t;
	(void)id;
	(void)rx_seq;
	*ep = (struct rds_ep *)e;
	fake.asked[fake.nasked] = e;
	atomic_fetch_add(&fake.nasked, 1);
	return 0;
}

/* The memory stays: what it says must not matter any more, and the test looks at it. */
static void fake_close(struct rds_ep *ep)
{
	ck_assert(!atomic_exchange(&((struct fake_ep *)ep)->closed, true));
}

static int fake_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	struct fake_ep *e = (struct fake_ep *)ep;
	struct rds_hdr hdr;

	ck_assert(!atomic_load(&e->closed));
	ck_assert_int_eq(rds_hdr_decode(wire, &hdr), 0);
	if (hdr.flags == RDS_FLAG_CONG_BITMAP)
		return 0;
	ck_assert_uint_le(len, sizeof(e->kept[0]));
	memcpy(e->kept[e->n], iov->iov_base, len);
	*pos = atomic_fetch_add(&e->n, 1);
	return 0;
}

static void fake_flush(struct rds_ep *ep, bool service)
{
	(void)ep;
	(void)service;
}

static const void *fake_retained(struct rds_ep *ep, uint64_t pos)
{
	return ((struct fake_ep *)ep)->kept[pos];
}

static uint64_t fake_acked(struct rds_ep *ep)
{
	return atomic_load(&((struct fake_ep *)ep)->acked);
}

static bool fake_want_room(struct rds_ep *ep, uint64_t seen)
{
	(void)ep;
	(void)seen;
	return false;
}

static void fake_push(struct rds_ep *ep)
{
	(void)ep;
}

static bool fake_progress(struct rds_transport *t)
{
	(void)t;
	return false;
}

static void fake_ack(struct rds_ep *ep, uint64_t seq)
{
	(void)ep;
	(void)seq;
}

static void fake_release(struct rds_ep *ep, void *token)
{
	(void)ep;
	(void)token;
}

static void fake_attention(struct rds_transport *t, enum rds_attention who)
{
	(void)t;
	(void)who;
}

static const struct rds_transport_ops fake_ops = {
	.name = "fake",
	.caps = RDS_TCAP_RETAINS | RDS_TCAP_REMOTE,
	.start = fake_start,
	.stop = fake_stop,
	.claims = fake_claims,
	.locate = fake_locate,
	.connect = fake_connect,
	.close = fake_close,
	.send = fake_send,
	.flush = fake_flush,
	.retained = fake_retained,
	.keep = fake_flush,
	.acked = fake_acked,
	.want_room = fake_want_room,
	.push = fake_push,
	.progress = fake_progress,
	.ack = fake_ack,
	.release = fake_release,
	.attention = fake_attention,
	.pending = fake_progress,
};

/* ---- what the test does ---- */

static struct rds_sock *sk;
static int fd;

/* Until `cond`; the helper works on it meanwhile. */
#define await(cond)                                                                                                    \
	do {                                                                                                           \
		uint64_t until_ = os_now_ns() + PATIENCE_NS;                                                           \
		while (!(cond)) {                                                                                      \
			ck_assert_msg(os_now_ns() < until_, "in vain: " #cond);                                        \
			rds_progress();                                                                                \
			usleep(200);                                                                                   \
		}                                                                                                      \
	} while (0)

/* What the transport says, in the helper. */
struct saying {
	struct rds_timer tm;
	void (*fn)(struct saying *s);
	struct fake_ep *ep;
	uint64_t ack;
	int why; /* of a refusal, or of the end */
	bool gone;
	_Atomic bool done;
};

static void run_saying(struct rds_timer *tm)
{
	struct saying *s = container_of(tm, struct saying, tm);

	if (s->fn)
		s->fn(s);
	atomic_store(&s->done, true);
}

static void in_helper(struct saying *s)
{
	s->tm.fn = run_saying;
	rds_timer_set(&s->tm, os_now_ns());
	await(atomic_load(&s->done));
}

static void say_accept(struct saying *s)
{
	uint64_t rx_seq;

	s->ep->head.conn = fake.t.up->accept(&fake.t, (struct rds_ep *)s->ep, &fake.id, 0, &rx_seq, &s->why);
}

static void say_up(struct saying *s)
{
	fake.t.up->up(s->ep->head.conn, (struct rds_ep *)s->ep, s->ack);
}

static void say_down(struct saying *s)
{
	fake.t.up->down(s->ep->head.conn, (struct rds_ep *)s->ep, s->why, s->gone);
}

static void say_located(struct saying *s)
{
	(void)s;
	fake.t.up->located(&fake.t, &fake.id, 5, 0);
}

/* The peer asks; the answer has to be that one. */
static struct fake_ep *peer_asks(int answer)
{
	struct saying s = {.fn = say_accept, .ep = ep_new(NULL)};

	in_helper(&s);
	ck_assert_int_eq(s.why, answer);
	ck_assert_int_eq(s.ep->head.conn == NULL, answer != 0);
	ck_assert(!atomic_load(&s.ep->closed));
	return s.ep;
}

static void comes_up(struct fake_ep *e, uint64_t ack)
{
	in_helper(&(struct saying){.fn = say_up, .ep = e, .ack = ack});
}

static void goes_down(struct fake_ep *e, int why, bool gone)
{
	in_helper(&(struct saying){.fn = say_down, .ep = e, .why = why, .gone = gone});
}

static struct rds_conn *the_conn(void)
{
	struct rds_conn *conn;

	rds_lock(&rds_eng->control);
	conn = rds_conn_find(RDS_CONN_PEER, &fake.id);
	rds_unlock(&rds_eng->control);
	return conn;
}

static enum rds_conn_state state(void)
{
	return atomic_load(&the_conn()->state);
}

/* What a thread does after it has let go of the locks (rds_conn_start() and others), and what the helper makes of it. */
static void late_timer(void)
{
	struct rds_conn *conn = the_conn();

	rds_timer_set(&conn->retry, os_now_ns());
	await(!rds_timer_is_set(&conn->retry));
	in_helper(&(struct saying){0}); /* it has begun to run before, so it is over now */
}

static void send_text(const char *text)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(5)};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text) + 1};
	struct msghdr msg = {.msg_name = &sin, .msg_namelen = sizeof(sin), .msg_iov = &iov, .msg_iovlen = 1};

	inet_pton(AF_INET, FAR, &sin.sin_addr);
	ck_assert_int_eq(rds_sendmsg(sk, fd, &msg, MSG_DONTWAIT), (ssize_t)iov.iov_len);
}

/* The first one: somebody has to say where it goes. */
static void send_first(const char *text)
{
	send_text(text);
	await(atomic_load(&fake.wanted));
	in_helper(&(struct saying){.fn = say_located});
}

static void has(struct fake_ep *e, unsigned n, const char *last)
{
	await(atomic_load(&e->n) >= n);
	ck_assert_uint_eq(atomic_load(&e->n), n);
	ck_assert_str_eq((char *)e->kept[n - 1], last);
}

static void acks(struct fake_ep *e, uint64_t seq)
{
	atomic_store(&e->acked, seq);
	rds_reap_all();
}

/* Our attempt, the first message's. */
static struct fake_ep *we_ask(void)
{
	send_first("a");
	await(atomic_load(&fake.nasked) == 1);
	return fake.asked[0];
}

/* Up, with two messages that are not acknowledged. */
static struct fake_ep *standing(void)
{
	struct fake_ep *e = we_ask();

	comes_up(e, 0);
	has(e, 1, "a");
	send_text("b");
	has(e, 2, "b");
	return e;
}

/* Nothing has happened to it. */
static void stands(struct fake_ep *e)
{
	late_timer();
	ck_assert_int_eq(state(), RDS_CONN_UP);
	ck_assert(!atomic_load(&e->closed));
	ck_assert_uint_eq(atomic_load(&fake.nasked), 1);
	send_text("c");
	has(e, 3, "c");
	ck_assert_uint_eq(rds_snd_bytes(sk), 6);
	acks(e, 3);
	ck_assert_uint_eq(rds_snd_bytes(sk), 0);
}

static void setup(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(4000)};

	setenv("RDS_PRELOAD_HELPER_FDS", "shared", 1);
	setenv("RDS_PRELOAD_TRANSPORT", "shm", 1);
	setenv("RDS_PRELOAD_RECONNECT_MAX_MS", "20", 1);
	rds_options_reset();
	memset(&fake, 0, sizeof(fake));
	ck_assert_int_eq(rds_engine_start(), 0);
	fake.t = (struct rds_transport){.ops = &fake_ops, .up = &rds_transport_up};
	rds_eng->remote = rds_fault_transport(&fake.t); /* itself, but for setup_wrapped() */
	fake.id.peer_slot = RDS_SLOT_REMOTE;
	inet_pton(AF_INET6, "::ffff:" NEAR, &fake.id.laddr);
	inet_pton(AF_INET6, "::ffff:" FAR, &fake.id.faddr);
	fake.id.peer.b[sizeof(fake.id.peer.b) - 1] =
		1; /* smaller than ours: of two attempts that cross, the peer's wins */
	inet_pton(AF_INET, NEAR, &sin.sin_addr);
	fd = rds_socket(SOCK_SEQPACKET, 0, &sk);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(rds_bind(sk, (struct sockaddr *)&sin, sizeof(sin)), 0);
	rds_lock(&rds_eng->control);
	ck_assert_int_eq(rds_wires_claim(&sk->laddr.ip, 0), 1);
	rds_unlock(&rds_eng->control);
	atomic_store(&sk->transport, RDS_TRANS_IB);
}

/* Behind the transport that makes others fail, which lets everything through if it has nothing to do. */
static void setup_wrapped(void)
{
	setenv("RDS_PRELOAD_FAULT", "seed=1", 1);
	setup();
	ck_assert_ptr_ne(rds_eng->remote, &fake.t);
}

/* ---- tests ---- */

START_TEST(test_late_timer)
{
	struct fake_ep *e = peer_asks(0);

	ck_assert_int_eq(state(), RDS_CONN_CONNECTING);
	late_timer();
	ck_assert_uint_eq(atomic_load(&fake.nasked), 0);
	comes_up(e, 0);
	late_timer();
	ck_assert_int_eq(state(), RDS_CONN_UP);
	ck_assert_uint_eq(atomic_load(&fake.nasked), 0);
	send_first("a");
	has(e, 1, "a");
}
END_TEST

START_TEST(test_accepted_fails)
{
	struct fake_ep *e = peer_asks(0);

	goes_down(e, -ETIMEDOUT, false);
	ck_assert(atomic_load(&e->closed));
	await(atomic_load(&fake.nasked) == 1);
	comes_up(fake.asked[0], 0);
	ck_assert_int_eq(state(), RDS_CONN_UP);
	ck_assert(!atomic_load(&fake.asked[0]->closed));
}
END_TEST

START_TEST(test_accepted_gone)
{
	struct fake_ep *e = peer_asks(0);

	goes_down(e, -ECONNREFUSED, true);
	ck_assert(atomic_load(&e->closed));
	ck_assert_ptr_null(the_conn());
	ck_assert_uint_eq(atomic_load(&fake.nasked), 0);
}
END_TEST

START_TEST(test_crossing_theirs)
{
	struct fake_ep *ours = we_ask(), *theirs = peer_asks(0);

	ck_assert(atomic_load(&ours->closed));
	late_timer();
	ck_assert_uint_eq(atomic_load(&fake.nasked), 1);
	comes_up(theirs, 0);
	has(theirs, 1, "a");
	ck_assert_uint_eq(atomic_load(&ours->n), 0);
	ck_assert(!atomic_load(&theirs->closed));
}
END_TEST

START_TEST(test_crossing_ours)
{
	struct fake_ep *ours;

	memset(fake.id.peer.b, 0xff, sizeof(fake.id.peer.b));
	ours = we_ask();
	peer_asks(-EALREADY);
	ck_assert(!atomic_load(&ours->closed));
	comes_up(ours, 0);
	has(ours, 1, "a");
}
END_TEST

/* Who wins a crossing does not matter where nothing crosses: the peer has given up its first attempt. */
START_TEST(test_asks_twice)
{
	struct fake_ep *first, *second;

	if (_i)
		memset(fake.id.peer.b, 0xff, sizeof(fake.id.peer.b));
	first = peer_asks(0);
	second = peer_asks(0);
	ck_assert(atomic_load(&first->closed));
	late_timer();
	ck_assert_uint_eq(atomic_load(&fake.nasked), 0);
	comes_up(second, 0);
	ck_assert_int_eq(state(), RDS_CONN_UP);
	ck_assert(!atomic_load(&second->closed));
}
END_TEST

START_TEST(test_asks_again)
{
	struct fake_ep *old = standing(), *e;

	peer_asks(-EALREADY);
	ck_assert(!atomic_load(&old->closed));
	e = peer_asks(0);
	ck_assert(atomic_load(&old->closed));
	late_timer();
	ck_assert_uint_eq(atomic_load(&fake.nasked), 1);
	comes_up(e, 1); /* the peer has got the first */
	has(e, 1, "b");
	ck_assert_uint_eq(rds_snd_bytes(sk), 2);
	acks(e, 2);
	ck_assert_uint_eq(rds_snd_bytes(sk), 0);
}
END_TEST

static const int why_down[] = {-EALREADY, -ECONNRESET, -ECONNREFUSED};

START_TEST(test_stray_down)
{
	struct fake_ep *e = standing(), *stray = ep_new(e->head.conn);

	goes_down(stray, why_down[_i], why_down[_i] == -ECONNREFUSED);
	ck_assert(atomic_load(&stray->closed));
	stands(e);
}
END_TEST

START_TEST(test_stray_down_while_coming)
{
	struct fake_ep *e = peer_asks(0), *stray = ep_new(e->head.conn);

	goes_down(stray, why_down[_i], why_down[_i] == -ECONNREFUSED);
	ck_assert(atomic_load(&stray->closed));
	ck_assert_ptr_nonnull(the_conn());
	ck_assert_int_eq(state(), RDS_CONN_CONNECTING);
	ck_assert(!rds_timer_is_set(&the_conn()->retry));
	comes_up(e, 0);
	send_first("a");
	has(e, 1, "a");
	ck_assert_uint_eq(atomic_load(&fake.nasked), 0);
}
END_TEST

START_TEST(test_stray_up)
{
	struct fake_ep *e = standing(), *stray = ep_new(e->head.conn);

	comes_up(stray, 0);
	ck_assert(atomic_load(&stray->closed));
	ck_assert_uint_eq(atomic_load(&stray->n), 0);
	stands(e);
}
END_TEST

START_TEST(test_stray_up_while_coming)
{
	struct fake_ep *e = we_ask(), *stray = ep_new(e->head.conn);

	comes_up(stray, 0);
	ck_assert(atomic_load(&stray->closed));
	ck_assert_int_eq(state(), RDS_CONN_CONNECTING);
	comes_up(e, 0);
	has(e, 1, "a");
	ck_assert_uint_eq(atomic_load(&stray->n), 0);
}
END_TEST

/* Where the transport has come to know of the endpoint by itself. */
static void add_common(TCase *tc)
{
	tcase_set_timeout(tc, 60);
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
	TCase *tc = tcase_create("attempts"), *wrapped = tcase_create("wrapped");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_checked_fixture(wrapped, setup_wrapped, NULL);
	add_common(tc);
	add_common(wrapped);
	tcase_add_loop_test(tc, test_stray_down, 0, 3);
	tcase_add_loop_test(tc, test_stray_down_while_coming, 0, 3);
	tcase_add_test(tc, test_stray_up);
	tcase_add_test(tc, test_stray_up_while_coming);
	suite_add_tcase(s, tc);
	suite_add_tcase(s, wrapped);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
