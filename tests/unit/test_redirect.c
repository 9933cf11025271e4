/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_redirect.c - messages for a port that another process of this host has, or none any more
 * (conn/port_moved.c): they are refused, and the peer is told where they begin.  test_reach_fake.h
 * plays the other host.
 */
#include <arpa/inet.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/node/registry_impl.h"
#include "tests/unit/redirect_helper.h"

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

/* The helper may use them until the process ends, so they do not belong to a test's function. */
static struct rds_transport_ops lasting_ops;
static struct rds_transport lasting = {.ops = &lasting_ops};
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

	lasting_ops = *fake.t.ops;
	lasting_ops.caps = RDS_TCAP_SURVIVES;
	lasting.up = fake.t.up;
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
	const struct registry_owner own = owner_of(5);

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
	const struct registry_owner own = owner_of(5);
	const uint32_t sock = (uint32_t)(own.order + 1);
	struct rds_conn *conn;

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

/*
 * A message has been sent to a process of another user (_i: of this one), which says that it has
 * lost the port.  A process of this user has it now: it gets what was meant for its own user only.
 */
START_TEST(test_of_whom)
{
	struct rds_queue_item *list;

	lasting_make((struct rds_procid){.b = {88}}, _i ? owner_of(5).proc : REGISTRY_OTHERS + 9);
	in_helper(lasting_begins, &lasting);
	lasting_sends(1, 0);
	rds_lock(&rds_lock_control);
	rds_lock(&lasting_conn->tx);
	ck_assert_uint_eq(lasting_conn->count, 1);
	ck_assert(rds_queue_take_port(lasting_conn, 5, 1, &list));
	ck_assert_ptr_nonnull(list);
	rds_unlock(&lasting_conn->tx);
	rds_route_requeue(&lasting_conn->id, list, true);
	rds_unlock(&rds_lock_control);
	ck_assert_ptr_ne(way_to(5), lasting_conn);
	ck_assert_uint_eq(queued(), _i);
	other_ends();
}
END_TEST

/* Another user sends to many ports that are closed, and acknowledges no redirect. */
START_TEST(test_hints_are_few)
{
	struct rds_hdr hdr = {.sport = 9};

	lasting_make((struct rds_procid){.b = {88}}, REGISTRY_OTHERS + 9);
	in_helper(lasting_begins, &lasting);
	rx_lock();
	for (hdr.seq = 1; hdr.seq <= 1000; hdr.seq++) {
		hdr.dport = (uint16_t)(5000 + hdr.seq);
		ck_assert_int_eq(rds_conn_redirect_refuse(lasting_conn, lasting_conn->ep, &hdr), RDS_RX_DONE);
	}
	ck_assert_uint_eq(atomic_load(&lasting_conn->nredirects_out), RDS_REDIRECTS_MAX);
	atomic_store(&lasting_conn->nredirects_out, 0);
	atomic_fetch_add(&lasting_conn->answer_bytes, RDS_ANSWERS_MAX + 1);
	ck_assert_int_eq(rds_conn_redirect_refuse(lasting_conn, lasting_conn->ep, &hdr), RDS_RX_DONE);
	ck_assert_uint_eq(atomic_load(&lasting_conn->nredirects_out), 0);
	rx_unlock();
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

int main(void)
{
	Suite *s = suite_create("redirect");
	TCase *tc = suite_case(s, "back", setup_with_another, NULL);

	tcase_add_test(tc, test_received_is_not_rerouted);
	tcase_add_test(tc, test_closed_draws_nothing);
	tcase_add_loop_test(tc, test_of_whom, 0, 2);
	tcase_add_test(tc, test_hints_are_few);
	tcase_add_test(tc, test_sends_back);
	tcase_add_test(tc, test_sends_and_takes_nothing);
	tcase_add_test(tc, test_many_refused);
	tcase_add_test(tc, test_refused_without_asking);
	return suite_run(s);
}
