/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_reach_fake.c - the other host that a test plays (test_reach_fake.h): its transport, and what
 * the test does with it.
 */
#include "tests/unit/test_reach_fake.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/progress/transports.h"
#include "engine/calls/start.h"
#include "tests/faults/transport/fault.h"

struct fake fake;
static struct fake_ep *made; /* all of them: memory that stays, and is no leak */

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
	return fake.claim;
}

static int fake_locate(struct rds_transport *t, const struct rds_conn_id *id, uint16_t port)
{
	(void)t;
	pthread_mutex_lock(&fake.lock);
	ck_assert_uint_eq(id->peer_slot, RDS_SLOT_REMOTE);
	fake.asked_id = *id;
	fake.asked[fake.nasked++] = port;
	pthread_mutex_unlock(&fake.lock);
	return 0;
}

struct fake_ep *ep_new(struct rds_conn *conn)
{
	struct fake_ep *e = calloc(1, sizeof(*e));

	ck_assert_ptr_nonnull(e);
	pthread_mutex_lock(&fake.lock);
	e->made_before = made;
	made = e;
	pthread_mutex_unlock(&fake.lock);
	e->head.t = &fake.t;
	e->head.conn = conn;
	return e;
}

static void ep_add(struct fake_ep *e)
{
	pthread_mutex_lock(&fake.lock);
	ck_assert_uint_lt(fake.neps, EPS);
	fake.eps[fake.neps++] = e;
	pthread_mutex_unlock(&fake.lock);
}

static int fake_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn,
			struct rds_received here, struct rds_ep **ep)
{
	int err = atomic_load(&fake.no_attempt);
	struct fake_ep *e = err ? NULL : ep_new(conn);

	(void)t;
	if (err) {
		atomic_fetch_add(&fake.nrefused, 1);
		return err;
	}
	e->id = *id;
	e->here = here;
	*ep = (struct rds_ep *)e;
	ep_add(e);
	return 0;
}

static void fake_close(struct rds_ep *ep)
{
	ck_assert(!atomic_exchange(&((struct fake_ep *)ep)->closed, true));
}

static int fake_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	struct fake_ep *e = (struct fake_ep *)ep;
	void (*then)(void) = NULL;
	struct sent *s;
	int err = 0;

	ck_assert(!atomic_load(&e->closed));
	pthread_mutex_lock(&fake.lock);
	ck_assert_uint_lt(fake.nsent, LOGGED);
	s = &fake.sent[fake.nsent];
	if (fake.t.ops->caps & RDS_TCAP_NODE) {
		s->flags = wire->flags;
		ck_assert_int_eq(rds_wire_hdr_decode_node(wire, &s->hdr), 0);
	} else {
		ck_assert_int_eq(rds_wire_hdr_decode(wire, &s->hdr), 0);
	}
	if (s->hdr.flags == RDS_FLAG_CONG_BITMAP) {
		if (atomic_load(&fake.no_map))
			err = -ENOMEM;
		atomic_fetch_sub(&fake.no_map, err != 0);
		fake.map_len = s->hdr.len;
		fake.map_before = fake.nsent;
		atomic_fetch_add(&fake.nmaps, err == 0);
	} else if (atomic_load(&fake.stuck) || (atomic_load(&fake.full) && !(s->hdr.flags & RDS_FLAG_REDIRECT))) {
		err = -EAGAIN;
	} else {
		ck_assert_uint_le(len, sizeof(s->text));
		s->ep = e;
		if (len) { /* else there may be no iov */
			memcpy(s->text, iov->iov_base, len);
			memcpy(e->kept[e->n], iov->iov_base, len);
		}
		fake.nsent++;
		*pos = e->n++;
		then = atomic_exchange(&fake.sent_next, NULL);
	}
	pthread_mutex_unlock(&fake.lock);
	if (then)
		then();
	return err;
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

static void fake_keep(struct rds_ep *ep, bool on)
{
	(void)ep;
	(void)on;
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
	atomic_fetch_add(&fake.pushes, 1);
}

static bool fake_progress(struct rds_transport *t)
{
	unsigned i, n = fake.ncoming;

	for (i = 0; i < n; i++) {
		struct rds_rx rx = {.hdr = fake.coming[i].hdr, .data = fake.coming[i].data};

		ck_assert_int_eq(t->up->message(fake.coming[i].ep->head.conn, (struct rds_ep *)fake.coming[i].ep, &rx),
				 RDS_RX_DONE);
	}
	fake.ncoming = 0;
	return n > 0;
}

static bool fake_pending(struct rds_transport *t)
{
	(void)t;
	return fake.ncoming > 0;
}

static void fake_ack(struct rds_ep *ep, uint64_t seq)
{
	atomic_store(&((struct fake_ep *)ep)->ack, seq);
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

static bool fake_relieve(struct rds_transport *t, bool now)
{
	(void)t;
	(void)now;
	return false;
}

static void fake_describe(struct rds_ep *ep, struct rds_ep_device *out)
{
	(void)ep;
	*out = (struct rds_ep_device){.qp_num = 1001,
				      .dst_qp_num = 1002,
				      .max_send_wr = 1003,
				      .max_recv_wr = 1004,
				      .frag = 1005,
				      .max_send_sge = 1006,
				      .sl = 7};
	memset(out->sgid, 8, sizeof(out->sgid));
	memset(out->dgid, 9, sizeof(out->dgid));
}

static const struct rds_transport_ops fake_ops = {
	.name = "fake",
	.caps = RDS_TCAP_REMOTE,
	.start = fake_start,
	.stop = fake_stop,
	.claims = fake_claims,
	.locate = fake_locate,
	.connect = fake_connect,
	.close = fake_close,
	.send = fake_send,
	.flush = fake_flush,
	.retained = fake_retained,
	.keep = fake_keep,
	.acked = fake_acked,
	.want_room = fake_want_room,
	.describe = fake_describe,
	.push = fake_push,
	.progress = fake_progress,
	.ack = fake_ack,
	.release = fake_release,
	.relieve = fake_relieve,
	.attention = fake_attention,
	.pending = fake_pending,
};

/* ---- what the test does ---- */

unsigned locked(const unsigned *n)
{
	unsigned v;

	pthread_mutex_lock(&fake.lock);
	v = *n;
	pthread_mutex_unlock(&fake.lock);
	return v;
}

/* fn runs in the helper. */
struct errand {
	struct rds_timer tm;
	void (*fn)(void *arg);
	void *arg;
	_Atomic bool done;
};

static void run_errand(struct rds_timer *tm)
{
	struct errand *e = container_of(tm, struct errand, tm);

	e->fn(e->arg);
	atomic_store(&e->done, true);
}

void in_helper(void (*fn)(void *arg), void *arg)
{
	struct errand e = {.tm.fn = run_errand, .fn = fn, .arg = arg};

	rds_timer_set(&e.tm, os_now_ns());
	await(atomic_load(&e.done));
}

struct sockaddr_in name_of(const char *ip, uint16_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};

	inet_pton(AF_INET, ip, &sin.sin_addr);
	return sin;
}

static struct rds_sock *bound_to(const char *ip, uint16_t port, int *fdp)
{
	struct sockaddr_in sin = name_of(ip, port);
	struct rds_sock *s;

	*fdp = rds_call_socket(SOCK_SEQPACKET, 0, &s);
	ck_assert_int_ge(*fdp, 0);
	ck_assert_int_eq(rds_call_bind(s, (struct sockaddr *)&sin, sizeof(sin)), 0);
	return s;
}

void far_setup(void)
{
	setenv("RDS_PRELOAD_HELPER_FDS", "shared", 1);
	setenv("RDS_PRELOAD_TRANSPORT", "shm", 1);
	setenv("RDS_PRELOAD_RECONNECT_MAX_MS", "20", 1);
	rds_options_reset();
	memset(&fake, 0, sizeof(fake));
	pthread_mutex_init(&fake.lock, NULL);
	fake.claim = 1;
	mock_clock_stop();
	ck_assert_int_eq(rds_call_start_engine(), 0);
	fake.t = (struct rds_transport){.ops = &fake_ops, .up = &rds_transport_up};
	/* itself, but for far_setup_wrapped() */
	rds_transport_set.remote = fault_transport(&fake.t);
	fake.sk = bound_to("127.0.0.1", 4000, &fake.fd);
	/*
	 * A loopback address is on no device; but it is the one address that every test machine
	 * has.
	 */
	rds_lock(&rds_lock_control);
	ck_assert_int_eq(rds_transports_claim(&fake.sk->laddr.ip, 0), 1);
	rds_unlock(&rds_lock_control);
	RDS_SOCK_SET(fake.sk, transport, RDS_TRANS_IB);
}

void far_setup_node(void)
{
	static struct rds_transport_ops ops;

	far_setup();
	ops = fake_ops;
	ops.caps |= RDS_TCAP_NODE;
	ops.locate = NULL;
	fake.t = (struct rds_transport){.ops = &ops, .up = &rds_transport_up_node};
	rds_transport_set.node = &fake.t;
	rds_transport_set.remote = NULL;
	rds_lock(&rds_lock_control);
	ck_assert_int_eq(rds_transport_node_add(&fake.sk->laddr.ip, 0), 0);
	rds_unlock(&rds_lock_control);
	RDS_SOCK_SET(fake.sk, transport, RDS_TRANS_TCP);
}

/*
 * The transport is wrapped by the one that injects faults.  That one passes everything if it has
 * nothing to do.
 */
void far_setup_wrapped(void)
{
	setenv("RDS_PRELOAD_FAULT", "seed=1", 1);
	far_setup();
	ck_assert_ptr_ne(rds_transport_set.remote, &fake.t);
}

void say(uint16_t port, const char *text)
{
	struct sockaddr_in sin = name_of(FAR, port);
	struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text) + 1};
	struct msghdr msg = {.msg_name = &sin, .msg_namelen = sizeof(sin), .msg_iov = &iov, .msg_iovlen = 1};

	ck_assert_int_eq(rds_call_sendmsg(fake.sk, fake.fd, &msg, MSG_DONTWAIT), (ssize_t)iov.iov_len);
}

struct answer {
	uint16_t port;
	uint8_t proc;
	int err;
};

static void give_answer(void *arg)
{
	struct answer *a = arg;
	struct rds_conn_id id = fake.asked_id;

	if (!a->err) {
		id.peer.b[0] = a->proc;
		id.peer_port = (uint16_t)(7000 + a->proc);
	}
	fake.t.up->located(&fake.t, &id, a->port, a->err);
}

void far_answers(uint16_t port, uint8_t proc, int err)
{
	in_helper(give_answer, &(struct answer){port, proc, err});
}

/* What the transport says of an endpoint. */
struct saying {
	struct fake_ep *ep;
	uint64_t ack;
	int why;
	bool gone;
};

static void say_up(void *arg)
{
	struct saying *s = arg;

	fake.t.up->up(s->ep->head.conn, (struct rds_ep *)s->ep, (struct rds_received){.acked = s->ack, .all = s->ack});
}

void ep_up(struct fake_ep *e, uint64_t ack)
{
	in_helper(say_up, &(struct saying){.ep = e, .ack = ack});
}

static void say_down(void *arg)
{
	struct saying *s = arg;

	fake.t.up->down(s->ep->head.conn, (struct rds_ep *)s->ep, s->why, s->gone);
}

void ep_down(struct fake_ep *e, int why, bool gone)
{
	in_helper(say_down, &(struct saying){.ep = e, .why = why, .gone = gone});
}

void far_up(unsigned n)
{
	await(locked(&fake.neps) > n);
	ep_up(fake.eps[n], 0);
}

void far_begins(uint8_t proc, const char *text)
{
	say(5, text);
	await(locked(&fake.nasked) == 1);
	far_answers(5, proc, 0);
	far_up(0);
	far_got(0, proc, text);
}

void far_got(unsigned n, uint8_t proc, const char *text)
{
	await(locked(&fake.nsent) > n);
	ck_assert_uint_eq(fake.sent[n].ep->id.peer.b[0], proc);
	ck_assert_str_eq(fake.sent[n].text, text);
}

void ep_acks(struct fake_ep *e, uint64_t seq)
{
	atomic_store(&e->acked, seq);
	rds_queue_reap_all();
}

void far_acks(unsigned ep, uint64_t seq)
{
	ep_acks(fake.eps[ep], seq);
}

void far_sends(unsigned ep, const struct rds_hdr *hdr, const void *data, size_t len)
{
	rx_lock();
	fake.coming[fake.ncoming].ep = fake.eps[ep];
	fake.coming[fake.ncoming].hdr = *hdr;
	if (len)
		memcpy(fake.coming[fake.ncoming].data, data, len);
	fake.ncoming++;
	rx_unlock();
	await(!fake.ncoming);
}

struct rds_conn_id far_id(uint8_t proc)
{
	struct rds_conn_id id = {.peer_slot = RDS_SLOT_REMOTE};

	inet_pton(AF_INET6, "::ffff:127.0.0.1", &id.laddr);
	inet_pton(AF_INET6, "::ffff:" FAR, &id.faddr);
	id.peer.b[0] = proc;
	return id;
}

static void say_accept(void *arg)
{
	struct saying *s = arg;
	const struct rds_received none = {0};

	s->ep->head.conn = fake.t.up->accept(&fake.t, (struct rds_ep *)s->ep, &s->ep->id, none, &s->ep->here, &s->why);
}

struct fake_ep *far_asks(const struct rds_conn_id *id, int answer)
{
	struct saying s = {.ep = ep_new(NULL)};

	s.ep->id = *id;
	in_helper(say_accept, &s);
	ck_assert_int_eq(s.why, answer);
	ck_assert_int_eq(s.ep->head.conn == NULL, answer != 0);
	ck_assert(!atomic_load(&s.ep->closed));
	return s.ep;
}

void far_connects(void)
{
	struct rds_conn_id id = far_id(77);
	struct fake_ep *e = far_asks(&id, 0);

	ep_add(e);
	ep_up(e, 0);
}
