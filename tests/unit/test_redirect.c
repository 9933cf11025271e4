/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_redirect.c - ports of this host that move from one process to another, or to none yet
 * (conn/port_moved.c): messages for them are refused, and the peer is told where they begin.
 * test_reach_fake.h plays the other host.
 */
#include <arpa/inet.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/node/registry_impl.h"
#include "tests/unit/moved_helper.h"

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

/* The peer acknowledges redirect i. */
static void heeded(unsigned ep, uint64_t own_seq, unsigned i)
{
	unsigned char b[RDS_REDIRECT_ACK_BYTES] = {0};
	struct rds_hdr hdr = {.seq = own_seq, .len = sizeof(b), .flags = RDS_FLAG_REDIRECT};

	memcpy(b, fake.sent[i].text, RDS_REDIRECT_BYTES);
	b[RDS_REDIRECT_BYTES] = 1;
	far_sends(ep, &hdr, b, sizeof(b));
}

/* The other end of it: a message for a port that another process of ours has. */
static int stop_fd;
static pid_t other;

static void setup_with_another(void)
{
	other = another_with(5, &stop_fd);
	far_setup();
}

static void other_ends(void)
{
	int status;

	close(stop_fd);
	ck_assert_int_eq(waitpid(other, &status, 0), other);
	ck_assert_int_eq(status, 0);
}

static struct rds_conn *lasting_conn;

static void lasting_sends(uint64_t seq, uint32_t sock)
{
	struct rds_conn_outgoing out = {.hdr = {.dport = 5}, .u = {.dport = 5, .sk = fake.sk, .sock = sock}};

	rds_sock_snd_add(fake.sk, 0);
	rds_lock(&lasting_conn->tx);
	ck_assert_uint_eq(lasting_conn->next_tx, seq);
	ck_assert_int_eq(rds_conn_xmit(lasting_conn, &out), 0);
	rds_unlock(&lasting_conn->tx);
}

static void lasting_begins(void *arg)
{
	struct fake_ep *e = ep_new(lasting_conn);

	e->head.t = lasting_conn->t = arg;
	lasting_conn->pending = (struct rds_ep *)e;
	rds_conn_up(lasting_conn, lasting_conn->pending, (struct rds_received){0});
}

static void lasting_ends(void *arg)
{
	struct fake_ep *again = ep_new(lasting_conn);

	again->head.t = arg;
	lasting_begins(arg);
	lasting_sends(1, 0);
	rds_conn_drop(lasting_conn, lasting_conn->ep, -ECONNRESET, false);
	lasting_conn->pending = (struct rds_ep *)again;
	rds_conn_up(lasting_conn, lasting_conn->pending, (struct rds_received){.acked = 0, .all = 1});
	lasting_sends(2, 0);
	rds_conn_drop(lasting_conn, (struct rds_ep *)again, -EPIPE, true);
}

static void lasting_is_gone(void *arg)
{
	(void)arg;
	rds_conn_drop(lasting_conn, lasting_conn->ep, -EPIPE, true);
}

/* To a process of this host, from our socket's address to the same. */
static void lasting_make(struct rds_procid peer, uint32_t slot)
{
	struct rds_conn_id id = {
		.laddr = fake.sk->laddr.ip, .faddr = fake.sk->laddr.ip, .peer = peer, .peer_slot = slot};
	int err;

	rds_lock(&rds_lock_control);
	lasting_conn = rds_conn_get_locked(RDS_CONN_PEER, &id, &err);
	rds_unlock(&rds_lock_control);
	ck_assert_ptr_nonnull(lasting_conn);
}

static unsigned queued(void)
{
	const struct rds_conn *conn;
	unsigned n = 0;

	rds_lock(&rds_lock_control);
	for (conn = rds_conn_list; conn; conn = conn->next)
		n += conn->queue_len;
	rds_unlock(&rds_lock_control);
	return n;
}

static struct registry_owner owner_of(uint16_t port)
{
	struct registry_owner own;

	ck_assert_int_eq(registry_lookup(rds_node_registry, &fake.sk->laddr.ip, port, 0, &own), 0);
	return own;
}

/*
 * A process of this host ends.  What it had received without acknowledging it does not follow its
 * sockets: they have it.
 */
START_TEST(test_received_is_not_rerouted)
{
	struct rds_transport_ops ops = *fake.t.ops;
	struct rds_transport lasting = {.ops = &ops, .up = fake.t.up};
	const struct registry_owner own = owner_of(5);

	ops.caps = RDS_TCAP_SURVIVES;
	lasting_make(own.procid, own.proc);
	in_helper(lasting_ends, &lasting);
	ck_assert_uint_eq(queued(), 1);
	other_ends();
}
END_TEST

static struct rds_conn *way_to(uint16_t port)
{
	const struct rds_addr dst = {.ip = fake.sk->laddr.ip, .port = port};
	struct rds_conn *conn;
	uint32_t sock;

	ck_assert_int_eq(rds_route_find(fake.sk, &dst, &conn, &sock), 0);
	ck_assert_uint_eq(sock, (uint32_t)(owner_of(port).order + 1));
	return conn;
}

/*
 * A process that accepts nothing has a message for a socket of port 5 that is closed.  The port has
 * another socket now, which has changed its owner.  Messages for that socket do not go behind the
 * old one, only behind messages for the same socket.  When the process ends, these alone follow.
 */
START_TEST(test_closed_draws_nothing)
{
	struct rds_transport_ops ops = *fake.t.ops;
	struct rds_transport lasting = {.ops = &ops, .up = fake.t.up};
	const struct registry_owner own = owner_of(5);
	const uint32_t sock = (uint32_t)(own.order + 1);
	struct rds_conn *conn;

	ops.caps = RDS_TCAP_SURVIVES;
	reg_store(&reg_sock_at(reg_view_current(rds_node_registry), own.sock + 1)->moved, 1);
	lasting_make((struct rds_procid){.b = {88}}, own.proc);
	in_helper(lasting_begins, &lasting);
	lasting_sends(1, sock + 1);
	conn = way_to(5);
	ck_assert_ptr_ne(conn, lasting_conn);
	ck_assert_mem_eq(&conn->id.peer, &own.procid, sizeof(own.procid));
	lasting_sends(2, sock);
	ck_assert_ptr_eq(way_to(5), lasting_conn);
	in_helper(lasting_is_gone, NULL);
	ck_assert_ptr_eq(way_to(5), conn);
	ck_assert_uint_eq(queued(), 1);
	ck_assert_uint_eq(conn->queue_len, 1);
	other_ends();
}
END_TEST

START_TEST(test_sends_back)
{
	struct rds_hdr hdr = {.sport = 9, .dport = 4000, .seq = 1};
	struct fake_ep *e;
	uint64_t seq;

	far_connects();
	e = fake.eps[0];
	far_sends(0, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 1);
	hdr.seq = 2;
	hdr.dport = 6; /* no socket has it: dropped, as always */
	far_sends(0, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 2);
	hdr.seq = 3;
	hdr.dport = 5;
	far_sends(0, &hdr, "", 0);
	await(locked(&fake.nsent) == 1);
	ck_assert_uint_eq(fake.sent[0].hdr.flags & RDS_FLAG_REDIRECT, RDS_FLAG_REDIRECT);
	memcpy(&seq, fake.sent[0].text, 8);
	ck_assert_uint_eq(be64toh(seq), 3);
	ck_assert_mem_eq(fake.sent[0].text + 8, "\0\5", 2);
	hdr.seq = 4;
	hdr.dport = 4000;
	far_sends(0, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 2); /* not before the redirect is */
	/* It breaks, and the peer sends all of it again that was not acknowledged. */
	ep_down(e, -ECONNRESET, false);
	far_up(1);
	ck_assert_ptr_eq(fake.eps[1]->head.conn, e->head.conn);
	ck_assert_uint_eq(fake.eps[1]->here.acked, 2);
	/* the peer learns that the last one has arrived */
	ck_assert_uint_eq(fake.eps[1]->here.all, 4);
	await(locked(&fake.nsent) == 2);
	ck_assert_uint_eq(fake.sent[1].hdr.seq, fake.sent[0].hdr.seq);
	ck_assert_uint_eq(fake.sent[1].hdr.flags & RDS_FLAG_RETRANSMITTED, RDS_FLAG_RETRANSMITTED);
	hdr.flags = RDS_FLAG_RETRANSMITTED;
	far_sends(1, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&fake.eps[1]->ack), 2);
	far_acks(1, fake.sent[0].hdr.seq);
	nothing_for(20);
	/* The redirect has arrived, which does not say that the peer has followed it. */
	ck_assert_uint_eq(atomic_load(&fake.eps[1]->ack), 2);
	heeded(1, 5, 0);
	ck_assert_uint_eq(atomic_load(&fake.eps[1]->ack), 5);
	ck_assert_uint_eq(locked(&fake.nsent), 2);
	/* Its owner is dead, so no process has it. */
	other_ends();
	hdr = (struct rds_hdr){.sport = 9, .dport = 5, .seq = 6};
	far_sends(1, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&fake.eps[1]->ack), 6);
	nothing_for(20);
}
END_TEST

static void notice_is_at(unsigned i, uint64_t seq, uint16_t port)
{
	uint64_t said;

	await(locked(&fake.nsent) > i);
	ck_assert_uint_eq(fake.sent[i].hdr.len, RDS_REDIRECT_BYTES);
	ck_assert_uint_eq(fake.sent[i].hdr.flags & RDS_FLAG_REDIRECT, RDS_FLAG_REDIRECT);
	memcpy(&said, fake.sent[i].text, sizeof(said));
	ck_assert_uint_eq(be64toh(said), seq);
	ck_assert_uint_eq((unsigned char)fake.sent[i].text[8] << 8 | (unsigned char)fake.sent[i].text[9], port);
}

static void notice_is(unsigned i, uint64_t seq, uint16_t port)
{
	notice_is_at(i, seq, port);
	ck_assert_uint_eq(locked(&fake.nsent), i + 1);
}

static void leaves(bool on)
{
	rx_lock();
	atomic_store(&fake.sk->accepts_nothing, on);
	rx_unlock();
}

static void leave(struct rds_conn *conn, uint16_t port)
{
	rx_lock();
	ck_assert(rds_conn_redirect_begin(conn, port));
	rx_unlock();
}

/*
 * A socket that is being handed off: nothing is accepted any more, each message is refused, and no
 * more redirects are sent than are needed.
 */
START_TEST(test_leaves)
{
	struct rds_hdr hdr = {.sport = 9, .dport = 4000, .seq = 1};
	struct fake_ep *e;

	far_connects();
	e = fake.eps[0];
	far_sends(0, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 1);
	leaves(true);
	/* sent before the peer has acknowledged any redirect */
	for (hdr.seq = 2; hdr.seq <= 4; hdr.seq++) {
		far_sends(0, &hdr, "", 0);
		/* it goes on after all: what comes back must not be accepted as well */
		leaves(false);
	}
	leaves(true);
	ck_assert_ptr_null(fake.sk->rx_head->next); /* the first alone has been accepted */
	notice_is(0, 2, 4000);
	far_acks(0, fake.sent[0].hdr.seq);
	nothing_for(20);
	ck_assert_uint_eq(atomic_load(&e->ack), 1);
	ck_assert_uint_eq(rds_conn_redirect_owed(e->head.conn), 1);
	ck_assert_uint_ge(rds_progress_count_unsent(), 1); /* an exit waits for that */
	heeded(0, 5, 0);
	ck_assert_uint_eq(rds_conn_redirect_owed(e->head.conn), 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 5);
	/* Sent after that: that redirect does not cover it. */
	hdr.seq = 6;
	far_sends(0, &hdr, "", 0);
	notice_is(1, 6, 4000);
	ck_assert_uint_eq(atomic_load(&e->ack), 5);
	hdr.seq = 7;
	hdr.dport = 6; /* another port, which no socket has: taken, and acknowledged after it */
	far_sends(0, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 5);
	heeded(0, 8, 0); /* once more, after a break: it is known */
	ck_assert_uint_eq(atomic_load(&e->ack), 5);
	heeded(0, 9, 1);
	ck_assert_uint_eq(atomic_load(&e->ack), 9);
	ck_assert_uint_eq(locked(&fake.nsent), 2);
}
END_TEST

/*
 * ... and the peer is told before any message comes: the redirect covers the first one that has not
 * been accepted.  That alone holds no acknowledgement back.
 */
START_TEST(test_leaves_first)
{
	struct rds_hdr hdr = {.sport = 9, .dport = 4000, .seq = 1};
	struct rds_conn *conn;
	struct fake_ep *e;

	far_connects();
	e = fake.eps[0];
	conn = e->head.conn;
	far_sends(0, &hdr, "", 0);
	leaves(true);
	leave(conn, 4000);
	leave(conn, 4000);
	/* nothing of the peer's depends on it yet */
	ck_assert_uint_eq(rds_conn_redirect_owed(conn), 0);
	notice_is(0, 2, 4000);
	hdr.seq = 2;
	hdr.dport = 6;
	far_sends(0, &hdr, "", 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 2);
	hdr.seq = 3;
	hdr.dport = 4000;
	far_sends(0, &hdr, "", 0);
	nothing_for(20);
	ck_assert_uint_eq(atomic_load(&e->ack), 2);
	heeded(0, 4, 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 4);
	await(!atomic_load(&conn->nredirects_out));
	ck_assert_uint_eq(locked(&fake.nsent), 1);
}
END_TEST

/*
 * Both sides hand their sockets off, and each has refused a message that lies before the other's
 * redirect: neither waits for the other's acknowledgement.
 */
START_TEST(test_both_leave)
{
	struct rds_hdr hdr = {.sport = 5, .dport = 4000, .seq = 1};
	struct fake_ep *e;

	far_connects();
	e = fake.eps[0];
	far_sends(0, &hdr, "", 0);
	leaves(true);
	hdr.seq = 2;
	far_sends(0, &hdr, "", 0);
	notice_is(0, 2, 4000);
	notice(0, 3, 1, 5); /* the peer's own, behind what we have refused */
	heeds(1, 77, 1, 5);
	ck_assert_uint_eq(atomic_load(&e->ack), 1);
	heeded(0, 4, 0);
	ck_assert_uint_eq(atomic_load(&e->ack), 4);
	await(!atomic_load(&e->head.conn->nredirects_out) && !atomic_load(&e->head.conn->nredirects_in));
}
END_TEST

/* Any number of ports. */
START_TEST(test_many_leave)
{
	struct rds_hdr hdr = {.sport = 9, .seq = 1};
	struct rds_conn *conn;
	unsigned i, n = 3 * RDS_REDIRECTS_MAX;

	far_connects();
	conn = fake.eps[0]->head.conn;
	for (i = 0; i < n; i++)
		leave(conn, (uint16_t)(5000 + i));
	for (i = 0; i < n; i++)
		notice_is_at(i, 1, (uint16_t)(5000 + i));
	hdr.dport = 6;
	far_sends(0, &hdr, "", 0);
	for (i = 0; i < n; i++)
		heeded(0, 2 + i, i);
	await(!atomic_load(&conn->nredirects_out));
	ck_assert_uint_eq(atomic_load(&fake.eps[0]->ack), 1 + n);
}
END_TEST

static enum rds_rx_verdict comes(struct rds_conn *conn, const struct rds_hdr *hdr, const void *bytes)
{
	struct rds_rx rx = {.hdr = *hdr, .data = bytes};
	enum rds_rx_verdict v;

	rx_lock();
	v = rds_conn_receive(conn, conn->ep, &rx);
	rx_unlock();
	rds_conn_work_run();
	return v;
}

/* The peer's next redirect; its content does not matter. */
static enum rds_rx_verdict tells(struct rds_conn *conn, unsigned len)
{
	static const unsigned char bytes[RDS_REDIRECT_ACK_BYTES] = {[RDS_REDIRECT_BYTES] = 1};
	struct rds_hdr hdr = {.len = len, .flags = RDS_FLAG_REDIRECT};

	hdr.seq = atomic_load(&conn->next_rx);
	return comes(conn, &hdr, bytes);
}

static pthread_t second_runner;
static _Atomic bool second_runs;

static void *runs_redirects(void *conn)
{
	rds_conn_redirect_run(conn);
	return NULL;
}

/*
 * While a thread carries out a redirect, another one is about to, and waits for it.  A lock that
 * was waited for before does not tell that another thread waits.
 */
static void runs_second(void)
{
	const uint32_t word = atomic_load(&rds_lock_control.word);

	ck_assert_int_eq(pthread_create(&second_runner, NULL, runs_redirects, fake.eps[0]->head.conn), 0);
	for (unsigned looks = 0; word != 2 && atomic_load(&rds_lock_control.word) == word;)
		test_pause(&looks);
	atomic_store(&second_runs, true);
}

/* A redirect is carried out once. */
START_TEST(test_run_by_two)
{
	static const unsigned char bytes[RDS_REDIRECT_BYTES] = {[7] = 2, [9] = 5};
	const struct rds_hdr hdr = {.seq = 1, .len = sizeof(bytes), .flags = RDS_FLAG_REDIRECT};

	far_begins(1, "a");
	say(5, "b");
	atomic_store(&fake.sent_next, runs_second);
	ck_assert_int_eq(comes(fake.eps[0]->head.conn, &hdr, bytes), RDS_RX_DONE);
	await(atomic_load(&second_runs)); /* the helper may be the one that carries it out */
	ck_assert_int_eq(pthread_join(second_runner, NULL), 0);
	await(!atomic_load(&fake.eps[0]->head.conn->nredirects_in));
	heeds(2, 1, 2, 5);
	ck_assert_uint_eq(locked(&fake.nsent), 3);
	ck_assert_uint_eq(atomic_load(&fake.eps[0]->head.conn->nredirects_in), 0);
}
END_TEST

/* Answers that the peer does not take, but for so many that are still queued. */
static void full_but_for(struct rds_conn *conn, unsigned n)
{
	atomic_fetch_add(&conn->answer_bytes,
			 RDS_ANSWERS_MAX - n * (sizeof(struct rds_queue_item) + RDS_REDIRECT_BYTES));
}

/*
 * A peer that takes nothing and goes on sending redirects is answered only while the answers do not
 * weigh too much.  Its acknowledgements of our redirects always count.
 */
START_TEST(test_tells_and_takes_nothing)
{
	struct rds_conn *conn;
	unsigned n, i, first;
	uint64_t weight;

	far_connects();
	conn = fake.eps[0]->head.conn;
	atomic_store(&fake.stuck, true);
	full_but_for(conn, 100);
	for (n = 0; tells(conn, RDS_REDIRECT_BYTES) == RDS_RX_DONE; n++)
		ck_assert_uint_lt(n, 1000);
	ck_assert_uint_ge(n, 90);
	await(!atomic_load(&conn->nredirects_in));
	ck_assert_uint_eq(conn->queue_len, n);
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(tells(conn, RDS_REDIRECT_ACK_BYTES), RDS_RX_DONE);
	ck_assert_int_eq(tells(conn, RDS_REDIRECT_BYTES), RDS_RX_LATER);
	/* Over a break they weigh what they did. */
	weight = atomic_load(&conn->answer_bytes);
	first = locked(&fake.nsent);
	atomic_store(&fake.stuck, false);
	rds_lock(&conn->tx);
	rds_queue_flush(conn);
	rds_unlock(&conn->tx);
	ck_assert_uint_eq(locked(&fake.nsent), first + n);
	atomic_store(&fake.stuck, true);
	ck_assert_int_eq(tells(conn, RDS_REDIRECT_BYTES), RDS_RX_DONE);
	ep_down(fake.eps[0], -ECONNRESET, false);
	await(atomic_load(&conn->answer_bytes) > weight);
	ck_assert_uint_eq(conn->queue_len, n + 1);
}
END_TEST

/*
 * ... or it sends to ports that have moved: then this side sends redirects, and the peer may claim
 * to have acknowledged what it has not taken.
 */
START_TEST(test_sends_and_takes_nothing)
{
	struct rds_hdr hdr = {.sport = 9, .dport = 5};
	unsigned char claim[RDS_REDIRECT_ACK_BYTES] = {[RDS_REDIRECT_BYTES] = 1, [RDS_REDIRECT_BYTES - 1] = 5};
	struct rds_hdr heeded_hdr = {.len = sizeof(claim), .flags = RDS_FLAG_REDIRECT};
	struct rds_conn *conn;
	uint64_t seq;
	unsigned n;

	far_connects();
	conn = fake.eps[0]->head.conn;
	atomic_store(&fake.stuck, true);
	full_but_for(conn, 100);
	for (n = 0;; n++) {
		ck_assert_uint_lt(n, 1000);
		hdr.seq = atomic_load(&conn->next_rx);
		if (comes(conn, &hdr, NULL) != RDS_RX_DONE)
			break;
		heeded_hdr.seq = hdr.seq + 1;
		seq = htobe64(hdr.seq);
		memcpy(claim, &seq, sizeof(seq));
		ck_assert_int_eq(comes(conn, &heeded_hdr, claim), RDS_RX_DONE);
	}
	ck_assert_uint_ge(n, 90);
	ck_assert_uint_eq(conn->queue_len, n);
	ck_assert_uint_eq(atomic_load(&conn->nredirects_out), 0);
	/* What we leave is still said. */
	leave(conn, 4000);
	rds_conn_work_run();
	await(conn->queue_len == n + 1);
	other_ends();
}
END_TEST

/* ... nor by numbers that go down, each of which needs a redirect of its own. */
START_TEST(test_many_refused)
{
	struct rds_hdr hdr = {.sport = 9, .dport = 5, .seq = 100000};
	struct rds_conn *conn;

	far_connects();
	conn = fake.eps[0]->head.conn;
	rx_lock();
	while (hdr.seq && rds_conn_redirect_refuse(conn, conn->ep, &hdr) == RDS_RX_DONE)
		hdr.seq--;
	ck_assert_uint_eq(atomic_load(&conn->nredirects_out), 65536);
	atomic_store(&conn->nredirects_out, 0);
	rx_unlock();
	other_ends();
}
END_TEST

/*
 * The registry is just being changed, so it cannot be told whether somebody else has the port now:
 * the sender asks, and whoever receives does not wait.
 */
START_TEST(test_refused_without_asking)
{
	struct rds_hdr hdr = {.sport = 9, .dport = 6, .seq = 1};
	struct reg_area *a = reg_load(&reg_view_current(rds_node_registry)->a);
	struct rds_conn *conn;

	far_connects();
	conn = fake.eps[0]->head.conn;
	rx_lock();
	ck_assert_int_eq(rds_conn_redirect_refuse(conn, conn->ep, &hdr), RDS_RX_DONE);
	ck_assert_uint_eq(atomic_load(&conn->nredirects_out), 0); /* nobody has it */
	reg_store(&a->seq, reg_load(&a->seq) + 1);
	ck_assert_int_eq(rds_conn_redirect_refuse(conn, conn->ep, &hdr), RDS_RX_DONE);
	ck_assert_uint_eq(atomic_load(&conn->nredirects_out), 1);
	ck_assert_uint_eq(reg_load(&a->seq) % 2, 1); /* not repaired: nobody took the lock */
	reg_store(&a->seq, reg_load(&a->seq) + 1);
	atomic_store(&conn->nredirects_out, 0);
	rx_unlock();
	other_ends();
}
END_TEST

/* Its connection breaks and it asks anew, before we have asked: of two that cross ours may win. */
static void comes_back_at_once(void *arg)
{
	struct rds_conn_id id = far_id(77);
	struct fake_ep *e = arg;
	const struct rds_received none = {0};
	int err;

	fake.t.up->down(fake.eps[0]->head.conn, (struct rds_ep *)fake.eps[0], -ECONNRESET, false);
	e->head.conn = fake.t.up->accept(&fake.t, (struct rds_ep *)e, &id, none, &e->here, &err);
	ck_assert_int_eq(err, 0);
	ck_assert_ptr_nonnull(e->head.conn);
}

/* No peer is accepted that would send to sockets which are about to be handed off. */
START_TEST(test_leaving_lets_nobody_in)
{
	struct rds_conn_id id = far_id(78);

	far_connects(); /* 77 */
	rds_conn_refuse_new(true);
	far_asks(&id, -EAGAIN);
	/* it may have something of ours to say, or we of its */
	in_helper(comes_back_at_once, ep_new(NULL));
	rds_conn_refuse_new(false);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("redirect");
	TCase *tc = suite_case(s, "leaves", far_setup, NULL, 60);

	tcase_add_test(tc, test_run_by_two);
	tcase_add_test(tc, test_leaves);
	tcase_add_test(tc, test_leaves_first);
	tcase_add_test(tc, test_both_leave);
	tcase_add_test(tc, test_many_leave);
	tcase_add_test(tc, test_leaving_lets_nobody_in);
	tcase_add_test(tc, test_tells_and_takes_nothing);
	tc = suite_case(s, "back", setup_with_another, NULL, 60);
	tcase_add_test(tc, test_received_is_not_rerouted);
	tcase_add_test(tc, test_closed_draws_nothing);
	tcase_add_test(tc, test_sends_back);
	tcase_add_test(tc, test_sends_and_takes_nothing);
	tcase_add_test(tc, test_many_refused);
	tcase_add_test(tc, test_refused_without_asking);
	return suite_run(s);
}
