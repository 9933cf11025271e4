/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_reach.c - messages to another host: finding who has the port, order over all hand-overs, ports that move.
 *
 * The other host is played by the test: a transport that can reach it writes down what it is asked and given, and the test says what
 * comes back, from the helper's thread or the receive path as a real one would.
 */
#include <arpa/inet.h>
#include <check.h>
#include <ifaddrs.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/connection.h"
#include "engine/wires.h"

#define FAR "192.0.2.1"
#define LOGGED 256
#define PATIENCE_NS (10 * 1000000000ull)

/* ---- the transport ---- */

struct fake_ep {
	struct rds_ep_head head;
	struct rds_conn_id id;
	_Atomic uint64_t acked; /* by the other side */
	_Atomic uint64_t ack;	/* by us */
	unsigned char kept[LOGGED][16];
	unsigned n;
};

struct sent {
	struct fake_ep *ep;
	struct rds_hdr hdr;
	char text[16];
};

static struct {
	struct rds_transport t;
	pthread_mutex_t lock;
	struct sent sent[LOGGED];
	unsigned nsent, nasked;
	struct rds_conn_id asked_id;
	uint16_t asked[LOGGED];
	struct fake_ep *eps[16];
	unsigned neps;
	struct {
		struct fake_ep *ep;
		struct rds_hdr hdr;
		unsigned char data[16];
	} coming[16];
	_Atomic unsigned ncoming;
	_Atomic unsigned pushes;
	int claim;
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

static int fake_connect(struct rds_transport *t, const struct rds_conn_id *id, struct rds_conn *conn, uint64_t rx_seq,
			struct rds_ep **ep)
{
	struct fake_ep *e = calloc(1, sizeof(*e));

	(void)rx_seq;
	e->head.t = t;
	e->head.conn = conn;
	e->id = *id;
	*ep = (struct rds_ep *)e;
	pthread_mutex_lock(&fake.lock);
	fake.eps[fake.neps++] = e;
	pthread_mutex_unlock(&fake.lock);
	return 0;
}

static void fake_close(struct rds_ep *ep)
{
	(void)ep;
}

static int fake_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	struct fake_ep *e = (struct fake_ep *)ep;
	struct sent *s;

	pthread_mutex_lock(&fake.lock);
	s = &fake.sent[fake.nsent];
	ck_assert_int_eq(rds_hdr_decode(wire, &s->hdr), 0);
	if (s->hdr.flags != RDS_FLAG_CONG_BITMAP) {
		ck_assert_uint_le(len, sizeof(s->text));
		s->ep = e;
		memcpy(s->text, iov->iov_base, len);
		memcpy(e->kept[e->n], iov->iov_base, len);
		fake.nsent++;
		*pos = e->n++;
	}
	pthread_mutex_unlock(&fake.lock);
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
	.keep = fake_keep,
	.acked = fake_acked,
	.want_room = fake_want_room,
	.push = fake_push,
	.progress = fake_progress,
	.ack = fake_ack,
	.release = fake_release,
	.relieve = fake_relieve,
	.attention = fake_attention,
	.pending = fake_pending,
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

static unsigned locked(const unsigned *n)
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

static void in_helper(void (*fn)(void *arg), void *arg)
{
	struct errand e = {.tm.fn = run_errand, .fn = fn, .arg = arg};

	rds_timer_set(&e.tm, os_now_ns());
	await(atomic_load(&e.done));
}

static struct sockaddr_in name_of(const char *ip, uint16_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};

	inet_pton(AF_INET, ip, &sin.sin_addr);
	return sin;
}

static struct rds_sock *bound_to(const char *ip, uint16_t port, int *fdp)
{
	struct sockaddr_in sin = name_of(ip, port);
	struct rds_sock *s;

	*fdp = rds_socket(SOCK_SEQPACKET, 0, &s);
	ck_assert_int_ge(*fdp, 0);
	ck_assert_int_eq(rds_bind(s, (struct sockaddr *)&sin, sizeof(sin)), 0);
	return s;
}

static void setup(void)
{
	setenv("RDS_PRELOAD_HELPER_FDS", "shared", 1);
	setenv("RDS_PRELOAD_TRANSPORT", "shm", 1);
	setenv("RDS_PRELOAD_RECONNECT_MAX_MS", "20", 1);
	rds_options_reset();
	memset(&fake, 0, sizeof(fake));
	pthread_mutex_init(&fake.lock, NULL);
	fake.claim = 1;
	ck_assert_int_eq(rds_engine_start(), 0);
	fake.t = (struct rds_transport){.ops = &fake_ops, .up = &rds_transport_up};
	rds_eng->remote = rds_fault_transport(&fake.t); /* itself, but for setup_wrapped() */
	sk = bound_to("127.0.0.1", 4000, &fd);
	/* A loopback address is on no device; but it is the one address that every test machine has. */
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

static void say(uint16_t port, const char *text)
{
	struct sockaddr_in sin = name_of(FAR, port);
	struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text) + 1};
	struct msghdr msg = {.msg_name = &sin, .msg_namelen = sizeof(sin), .msg_iov = &iov, .msg_iovlen = 1};

	ck_assert_int_eq(rds_sendmsg(sk, fd, &msg, MSG_DONTWAIT), (ssize_t)iov.iov_len);
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

static void answer(uint16_t port, uint8_t proc, int err)
{
	in_helper(give_answer, &(struct answer){port, proc, err});
}

static void come_up(void *arg)
{
	struct fake_ep *e = arg;

	fake.t.up->up(e->head.conn, (struct rds_ep *)e, 0);
}

static void up(unsigned n)
{
	await(locked(&fake.neps) > n);
	in_helper(come_up, fake.eps[n]);
}

static void go_down(void *arg)
{
	struct fake_ep *e = arg;

	fake.t.up->down(e->head.conn, (struct rds_ep *)e, -ECONNRESET, true);
}

/* The n-th message so far went to that process, with that text. */
static void went(unsigned n, uint8_t proc, const char *text)
{
	await(locked(&fake.nsent) > n);
	ck_assert_uint_eq(fake.sent[n].ep->id.peer.b[0], proc);
	ck_assert_str_eq(fake.sent[n].text, text);
}

/* Peer acknowledges what it has. */
static void acks(unsigned ep, uint64_t seq)
{
	atomic_store(&fake.eps[ep]->acked, seq);
	rds_reap_all();
}

static void arrives(unsigned ep, const struct rds_hdr *hdr, const void *data, size_t len)
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

static void notice(unsigned ep, uint64_t own_seq, uint64_t seq, uint16_t port)
{
	unsigned char b[RDS_MOVED_BYTES] = {0, 0, 0, 0, 0, 0, 0, (uint8_t)seq, (uint8_t)(port >> 8), (uint8_t)port};
	struct rds_hdr hdr = {.seq = own_seq, .len = sizeof(b), .flags = RDS_FLAG_MOVED};

	arrives(ep, &hdr, b, sizeof(b));
}

static void nothing_for(unsigned ms)
{
	unsigned before = locked(&fake.nsent);

	usleep(ms * 1000);
	ck_assert_uint_eq(locked(&fake.nsent), before);
}

/* ---- tests ---- */

START_TEST(test_found)
{
	say(5, "a");
	say(5, "b");
	await(locked(&fake.nasked) == 1);
	ck_assert_uint_eq(fake.asked[0], 5);
	usleep(50000); /* the question is not repeated */
	ck_assert_uint_eq(locked(&fake.nasked), 1);
	ck_assert_uint_gt(rds_engine_unsent(), 0);
	answer(5, 1, 0);
	up(0);
	ck_assert_uint_eq(fake.eps[0]->id.peer_slot, RDS_SLOT_REMOTE);
	ck_assert_uint_eq(fake.eps[0]->id.peer_port, 7001);
	went(0, 1, "a");
	went(1, 1, "b");
	say(5, "c");
	went(2, 1, "c");
	ck_assert_uint_eq(locked(&fake.nasked), 1);
	ck_assert_uint_eq(rds_snd_bytes(sk), 6);
	acks(0, 3);
	ck_assert_uint_eq(rds_snd_bytes(sk), 0);
	ck_assert_uint_eq(rds_engine_unsent(), 0);
	ck_assert_uint_ge(atomic_load(&fake.pushes), 1); /* whatever was to be said before it was up */
}
END_TEST

START_TEST(test_nobody_has_it)
{
	unsigned i;

	say(6, "x");
	await(locked(&fake.nasked) == 1);
	answer(6, 0, -ENOENT);
	await(rds_snd_bytes(sk) == 0);
	for (i = 0; i < 20; i++) { /* a stream costs no question for each */
		say(6, "y");
		await(rds_snd_bytes(sk) == 0);
	}
	ck_assert_uint_le(locked(&fake.nasked), 2);
	usleep(120000);
	i = locked(&fake.nasked);
	say(6, "z"); /* somebody may have it by now */
	await(locked(&fake.nasked) == i + 1);
	answer(6, 1, 0);
	up(0);
	went(0, 1, "z");
}
END_TEST

START_TEST(test_no_answer_then_one)
{
	unsigned i;

	say(5, "a");
	for (i = 1; i <= 5; i++) {
		await(locked(&fake.nasked) == i);
		answer(5, 0, -EHOSTUNREACH);
		ck_assert_uint_eq(rds_engine_unsent(), 0); /* nobody waits for that at exit */
		say(5, "b");
	}
	await(locked(&fake.nasked) == 6);
	answer(5, 2, 0);
	up(0);
	went(0, 2, "a");
	for (i = 1; i <= 5; i++)
		went(i, 2, "b");
}
END_TEST

static void *talk(void *arg)
{
	char text[16];
	unsigned i;

	for (i = 0; i < 200; i++) {
		snprintf(text, sizeof(text), "%u", i);
		say(5, text);
		usleep(100);
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
	usleep(3000);
	answer(5, 1, 0);
	usleep(3000);
	up(0);
	pthread_join(thread, NULL);
	for (i = 0; i < 200; i++) {
		snprintf(text, sizeof(text), "%u", i);
		went(i, 1, text);
		ck_assert_uint_eq(fake.sent[i].hdr.seq, i + 1);
	}
}
END_TEST

/* What was sent is lost with the process, what was not looks for the port anew. */
START_TEST(test_process_gone)
{
	say(5, "a");
	await(locked(&fake.nasked) == 1);
	answer(5, 1, 0);
	up(0);
	went(0, 1, "a");
	in_helper(go_down, fake.eps[0]);
	await(rds_snd_bytes(sk) == 0);
	say(5, "b");
	await(locked(&fake.nasked) == 2);
	answer(5, 2, 0);
	await(locked(&fake.neps) == 2);
	say(5, "c"); /* that one never comes up */
	in_helper(go_down, fake.eps[1]);
	say(5, "d");
	await(locked(&fake.nasked) == 3);
	answer(5, 3, 0);
	up(2);
	went(1, 3, "b");
	went(2, 3, "c");
	went(3, 3, "d");
	acks(2, 3);
	ck_assert_uint_eq(rds_snd_bytes(sk), 0);
}
END_TEST

/* Acknowledged is what was never sent: the connection is broken by the helper, and what it kept goes again over the next one. */
START_TEST(test_lying_ack)
{
	say(5, "a");
	await(locked(&fake.nasked) == 1);
	answer(5, 1, 0);
	up(0);
	went(0, 1, "a");
	acks(0, 1);
	say(5, "b");
	went(1, 1, "b");
	acks(0, UINT64_MAX);
	ck_assert_uint_eq(rds_snd_bytes(sk), 2);
	await(locked(&fake.neps) == 2);
	say(5, "c");
	up(1);
	went(2, 1, "b");
	ck_assert(fake.sent[2].ep == fake.eps[1]);
	ck_assert(fake.sent[2].hdr.flags & RDS_FLAG_RETRANSMITTED);
	went(3, 1, "c");
	acks(1, 3);
	ck_assert_uint_eq(rds_snd_bytes(sk), 0);
}
END_TEST

START_TEST(test_moved)
{
	say(5, "a");
	say(9, "other");
	await(locked(&fake.nasked) == 2);
	answer(5, 1, 0);
	answer(9, 1, 0);
	up(0);
	await(locked(&fake.nsent) == 2);
	say(5, "b");
	say(5, "c");
	say(9, "more");
	await(locked(&fake.nsent) == 5);
	/* "b" (3) came back: so will "c", which goes after it, and what is new behind both. */
	notice(0, 1, 3, 5);
	await(locked(&fake.nasked) == 3);
	ck_assert_uint_eq(fake.asked[2], 5);
	await(atomic_load(&fake.eps[0]->ack) == 1); /* the notice, once it was heeded */
	notice(0, 2, 4, 5);
	acks(0, 5);
	say(5, "d");
	ck_assert_uint_eq(rds_snd_bytes(sk), 6);
	answer(5, 2, 0);
	up(1);
	went(5, 2, "b");
	went(6, 2, "c");
	went(7, 2, "d");
	ck_assert_uint_eq(fake.sent[5].hdr.flags & RDS_FLAG_RETRANSMITTED, 0);
	say(9, "still");
	went(8, 1, "still");
	nothing_for(20);
	acks(0, 6);
	acks(1, 3);
	ck_assert_uint_eq(rds_snd_bytes(sk), 0);
}
END_TEST

/* "a" was received by the old process but is not acknowledged: what is new goes that way, too, until it is. */
START_TEST(test_moved_while_under_way)
{
	say(5, "a");
	await(locked(&fake.nasked) == 1);
	answer(5, 1, 0);
	up(0);
	went(0, 1, "a");
	say(5, "b");
	notice(0, 1, 2, 5);
	await(locked(&fake.nasked) == 2);
	say(5, "c");
	went(2, 1, "c");
	notice(0, 2, 3, 5);
	acks(0, 3);
	say(5, "d");
	answer(5, 2, 0);
	up(1);
	went(3, 2, "b");
	went(4, 2, "c");
	went(5, 2, "d");
	acks(1, 3);
	ck_assert_uint_eq(rds_snd_bytes(sk), 0);
}
END_TEST

/* A process that is a member of this node and has bound a port there, until *end is closed. */
static pid_t another_with(uint16_t port, int *end)
{
	int ready[2], stop[2];
	uint16_t got;
	uint32_t idx;
	pid_t pid;
	char c;

	ck_assert_int_eq(pipe(ready), 0);
	ck_assert_int_eq(pipe(stop), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		struct registry *reg;
		struct in6_addr a;

		close(stop[1]);
		inet_pton(AF_INET6, "::ffff:127.0.0.1", &a);
		rds_options_reset();
		if (registry_open(&reg) || registry_sock_add(reg, 1, 1, 1, &idx) ||
		    registry_sock_bind(reg, idx, &a, port, 0, RDS_TRANS_IB, &got))
			_exit(1);
		if (write(ready[1], "", 1) != 1 || read(stop[0], &c, 1) != 0)
			_exit(1);
		_exit(0);
	}
	close(ready[1]);
	close(stop[0]);
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	*end = stop[1];
	return pid;
}

static struct rds_conn_id from_far(void)
{
	struct rds_conn_id id = {.peer_slot = RDS_SLOT_REMOTE};

	inet_pton(AF_INET6, "::ffff:127.0.0.1", &id.laddr);
	inet_pton(AF_INET6, "::ffff:" FAR, &id.faddr);
	id.peer.b[0] = 77;
	return id;
}

static void be_asked(void *arg)
{
	struct rds_conn_id id = from_far();
	struct fake_ep *e = calloc(1, sizeof(*e));
	uint64_t rx_seq;
	int why;

	(void)arg;
	e->head.t = &fake.t;
	e->id = id;
	e->head.conn = fake.t.up->accept(&fake.t, (struct rds_ep *)e, &id, 0, &rx_seq, &why);
	ck_assert_ptr_nonnull(e->head.conn);
	fake.eps[fake.neps++] = e;
	fake.t.up->up(e->head.conn, (struct rds_ep *)e, 0);
}

static void break_off(void *arg)
{
	struct fake_ep *e = arg;

	fake.t.up->down(e->head.conn, (struct rds_ep *)e, -ECONNRESET, false);
}

/* The other end of it: a message for a port that another process of ours has. */
static int stop_fd;
static pid_t other;

static void setup_with_another(void)
{
	other = another_with(5, &stop_fd);
	setup();
}

START_TEST(test_sends_back)
{
	struct rds_hdr hdr = {.sport = 9, .dport = 4000, .seq = 1};
	struct fake_ep *e;
	uint64_t seq;
	int status;

	in_helper(be_asked, NULL);
	e = fake.eps[0];
	arrives(0, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 1);
	hdr.seq = 2;
	hdr.dport = 6; /* nobody's: dropped, as ever */
	arrives(0, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 2);
	hdr.seq = 3;
	hdr.dport = 5;
	arrives(0, &hdr, "", 0);
	await(locked(&fake.nsent) == 1);
	ck_assert_uint_eq(fake.sent[0].hdr.flags & RDS_FLAG_MOVED, RDS_FLAG_MOVED);
	memcpy(&seq, fake.sent[0].text, 8);
	ck_assert_uint_eq(be64toh(seq), 3);
	ck_assert_mem_eq(fake.sent[0].text + 8, "\0\5", 2);
	hdr.seq = 4;
	hdr.dport = 4000;
	arrives(0, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 2); /* not before the notice is */
	/* It breaks, and the peer sends all of it again that was not acknowledged. */
	in_helper(break_off, e);
	up(1);
	ck_assert_ptr_eq(fake.eps[1]->head.conn, e->head.conn);
	await(locked(&fake.nsent) == 2);
	ck_assert_uint_eq(fake.sent[1].hdr.seq, fake.sent[0].hdr.seq);
	ck_assert_uint_eq(fake.sent[1].hdr.flags & RDS_FLAG_RETRANSMITTED, RDS_FLAG_RETRANSMITTED);
	hdr.flags = RDS_FLAG_RETRANSMITTED;
	arrives(1, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&fake.eps[1]->ack), 2);
	acks(1, fake.sent[0].hdr.seq);
	ck_assert_uint_eq(atomic_load(&fake.eps[1]->ack), 4);
	ck_assert_uint_eq(locked(&fake.nsent), 2);
	/* With its owner dead, it is nobody's. */
	close(stop_fd);
	ck_assert_int_eq(waitpid(other, &status, 0), other);
	ck_assert_int_eq(status, 0);
	hdr = (struct rds_hdr){.sport = 9, .dport = 5, .seq = 5};
	arrives(1, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&fake.eps[1]->ack), 5);
	nothing_for(20);
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
	int n = rds_socket(SOCK_SEQPACKET, 0, &s);

	ck_assert_int_ge(n, 0);
	atomic_store(&s->transport, preset);
	*err = rds_bind(s, (struct sockaddr *)&sin, sizeof(sin));
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
	rds_eng->prefer_remote = true;
	transport_after_bind(ip, 4008, RDS_TRANS_NONE, &err);
	ck_assert_int_eq(err, -EADDRNOTAVAIL);
}
END_TEST

static void speaks(void *arg)
{
	struct fake_ep *e = arg;

	rx_lock();
	fake.t.up->speak(e->head.conn);
	rx_unlock();
}

START_TEST(test_speak)
{
	unsigned before;

	in_helper(be_asked, NULL);
	await(atomic_load(&fake.pushes) > 0);
	before = atomic_load(&fake.pushes);
	in_helper(speaks, fake.eps[0]);
	await(atomic_load(&fake.pushes) > before);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reach");
	TCase *tc = tcase_create("reach"), *back = tcase_create("back"), *wrapped = tcase_create("wrapped");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_set_timeout(back, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_checked_fixture(back, setup_with_another, NULL);
	tcase_add_test(tc, test_found);
	tcase_add_test(tc, test_nobody_has_it);
	tcase_add_test(tc, test_no_answer_then_one);
	tcase_add_test(tc, test_order_while_answers_come);
	tcase_add_test(tc, test_process_gone);
	tcase_add_test(tc, test_lying_ack);
	tcase_add_test(tc, test_moved);
	tcase_add_test(tc, test_moved_while_under_way);
	tcase_add_test(tc, test_bind);
	tcase_add_test(tc, test_speak);
	tcase_add_test(back, test_sends_back);
	tcase_set_timeout(wrapped, 60);
	tcase_add_checked_fixture(wrapped, setup_wrapped, NULL);
	tcase_add_test(wrapped, test_found);
	tcase_add_test(wrapped, test_process_gone);
	tcase_add_test(wrapped, test_lying_ack);
	tcase_add_test(wrapped, test_moved);
	tcase_add_test(wrapped, test_bind);
	tcase_add_test(wrapped, test_speak);
	suite_add_tcase(s, tc);
	suite_add_tcase(s, back);
	suite_add_tcase(s, wrapped);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
