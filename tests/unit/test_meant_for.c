/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_meant_for.c - a message has waited, and then, after the sender's last check, while it is on
 * its way, its socket is closed and the port given to another socket (conn/meant_for.c).  The
 * transport of this test causes that in between.
 */
#include "engine/conn/incoming.h"
#include "engine/conn/outgoing.h"
#include "tests/unit/registry_helper.h"
#include "tests/unit/suite.h"

#define PORT 4000
#define ADDR "10.0.0.1"

static struct rds_sock sender, old, new;
static struct rds_conn conn;
static bool rebinds, lost;
static unsigned nsent;
static char kept[8];

static void bound(struct rds_sock *sk)
{
	memset(sk, 0, sizeof(*sk));
	sk->reg_idx = add_ok(rds_node_registry);
	bind_ok(rds_node_registry, sk->reg_idx, ADDR, PORT);
	sk->set_laddr.ip = v4(ADDR);
	sk->set_laddr.port = PORT;
	sk->rx_tail = &sk->rx_head;
	atomic_store(&sk->ref, 1);
	atomic_store(&sk->open, true);
	RDS_SOCK_SET(sk, rcvbuf, 1 << 20);
	rds_sock_bound_insert(sk);
}

static void rebind(void)
{
	rds_sock_bound_remove(&old);
	registry_sock_remove(rds_node_registry, old.reg_idx);
	bound(&new);
}

static int fake_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	struct rds_rx rx = {.data = len ? iov->iov_base : NULL};

	*pos = 0;
	nsent++;
	memcpy(kept, iov->iov_base, len);
	if (lost)
		return 0;
	if (rebinds)
		rebind();
	ck_assert_int_eq(rds_wire_hdr_decode(wire, &rx.hdr), 0);
	rx_lock();
	ck_assert_int_eq(rds_conn_receive(&conn, ep, &rx), RDS_RX_DONE);
	rx_unlock();
	return 0;
}

static const void *fake_retained(struct rds_ep *ep, uint64_t pos)
{
	(void)ep, (void)pos;
	return kept;
}

static uint64_t fake_acked(struct rds_ep *ep)
{
	(void)ep;
	return 0;
}

static void fake_flush(struct rds_ep *ep, bool service)
{
	(void)ep, (void)service;
}

static void fake_ack(struct rds_ep *ep, uint64_t to)
{
	(void)ep, (void)to;
}

static const struct rds_transport_ops ops = {
	.caps = RDS_TCAP_DIRECT, .send = fake_send, .flush = fake_flush, .ack = fake_ack};
/* The peer of this one says nothing. */
static const struct rds_transport_ops silent_ops = {
	.send = fake_send, .flush = fake_flush, .ack = fake_ack, .retained = fake_retained, .acked = fake_acked};
static struct rds_transport transport = {.ops = &ops};
static struct rds_ep_head endpoint = {.t = &transport, .conn = &conn};

static void setup(void)
{
	registry_setup();
	os_process_start();
	rds_node_registry = open_ok();
	bound(&old);
	memset(&sender, 0, sizeof(sender));
	atomic_store(&sender.ref, 100);
	atomic_store(&sender.open, true);
	memset(&conn, 0, sizeof(conn));
	rds_lock_init(&conn.tx, RDS_LOCK_CONN_TX);
	conn.t = &transport;
	conn.ep = (struct rds_ep *)&endpoint;
	conn.kind = RDS_CONN_PEER;
	/* both ends: it brings to the socket what is sent to it */
	conn.id.laddr = conn.id.faddr = v4(ADDR);
	conn.queue_tail = &conn.queue;
	conn.next_tx = 1;
	nsent = 0;
	rebinds = lost = false;
	transport.ops = &ops;
	atomic_store(&conn.next_rx, 1);
	atomic_store(&conn.state, RDS_CONN_CONNECTING);
}

static void teardown(void)
{
	rds_sock_bound_remove(&old);
	rds_sock_bound_remove(&new);
	registry_close(rds_node_registry);
	registry_teardown();
}

static unsigned received(const struct rds_sock *sk)
{
	const struct rds_inc *inc;
	unsigned n = 0;

	for (inc = sk->rx_head; inc; inc = inc->next)
		n++;
	return n;
}

/* A message that waits for the connection; to: for whom, as its sender found out. */
static void waits_for(const struct rds_sock_dst *to)
{
	struct iovec iov = {.iov_base = (char[]){"old"}, .iov_len = 3};
	struct rds_conn_outgoing out = {.hdr = {.len = 3, .sport = 7, .dport = PORT},
					.u = {.sk = &sender, .len = 3, .dport = PORT, .sock = to ? to->sock : 0},
					.iov = &iov,
					.len = 3,
					.to = to};

	rds_lock(&conn.tx);
	ck_assert_int_eq(rds_conn_xmit(&conn, &out), 0);
	ck_assert_uint_eq(conn.queue_len, 1);
	rds_unlock(&conn.tx);
}

static void waits(void)
{
	waits_for(NULL);
}

/* It comes up. */
static void goes(void)
{
	rds_lock(&conn.tx);
	atomic_store(&conn.state, RDS_CONN_UP);
	rds_queue_flush(&conn);
	ck_assert_uint_eq(conn.queue_len, 0);
	rds_unlock(&conn.tx);
}

/* _i: of another host, which cannot name the sockets of this one. */
START_TEST(test_stays)
{
	if (_i)
		conn.id.peer_slot = RDS_SLOT_REMOTE;
	waits();
	goes();
	ck_assert_uint_eq(received(&old), 1);
}
END_TEST

START_TEST(test_other_socket)
{
	rebinds = true;
	waits();
	goes();
	ck_assert_uint_eq(received(&old), 0);
	ck_assert_uint_eq(received(&new), 0);
}
END_TEST

/* The sender sees that no socket is left for which the message could be kept. */
START_TEST(test_gone)
{
	waits();
	rebind();
	goes();
	ck_assert_uint_eq(nsent, 0);
}
END_TEST

/*
 * Between the sender's look and the message's wait the port goes to another socket; _i: and then to
 * none for a while, so that no socket can be named.
 */
START_TEST(test_gone_meanwhile)
{
	struct rds_sock_dst to = {.bind_gen = registry_generation(rds_node_registry),
				  .sock = (uint32_t)registry_sock_order(rds_node_registry, old.reg_idx) + 1};

	if (!_i)
		rebind();
	else
		registry_sock_remove(rds_node_registry, old.reg_idx);
	waits_for(&to);
	if (_i)
		bound(&new);
	goes();
	ck_assert_uint_eq(nsent, 0);
	ck_assert_uint_eq(received(&new), 0);
}
END_TEST

/* To `old`, which its sender has found.  conn->tx held. */
static void sent(void)
{
	struct iovec iov = {.iov_base = (char[]){"old"}, .iov_len = 3};
	struct rds_conn_outgoing out = {
		.hdr = {.len = 3, .sport = 7, .dport = PORT},
		.u = {.sk = &sender,
		      .len = 3,
		      .dport = PORT,
		      .sock = (uint32_t)registry_sock_order(rds_node_registry, old.reg_idx) + 1},
		.iov = &iov,
		.len = 3};

	ck_assert_int_eq(rds_conn_xmit(&conn, &out), 0);
	ck_assert_uint_eq(nsent, 1);
	ck_assert_uint_eq(conn.count, 1);
}

enum { LOST, LOST_LATE, ARRIVED, STAYS, WAYS };

/*
 * A message was sent at once, its connection breaks, and it is sent again.  Meanwhile its socket is
 * closed: before that; on its way; on its way, and the first one had arrived; not at all.
 */
START_TEST(test_sent_again)
{
	transport.ops = &silent_ops;
	atomic_store(&conn.state, RDS_CONN_UP);
	lost = _i != ARRIVED;
	rds_lock(&conn.tx);
	sent();
	ck_assert_uint_eq(received(&old), _i == ARRIVED);
	atomic_store(&conn.state, RDS_CONN_CONNECTING);
	ck_assert(rds_queue_requeue(&conn, (struct rds_ep *)&endpoint));
	ck_assert_uint_eq(conn.queue_len, 1);
	rds_unlock(&conn.tx);
	lost = false;
	rebinds = _i == LOST_LATE || _i == ARRIVED;
	if (_i == LOST)
		rebind();
	goes();
	ck_assert_uint_eq(nsent, _i == LOST ? 1 : 2);
	ck_assert_uint_eq(received(&new), 0);
	ck_assert_uint_eq(received(&old), _i == ARRIVED || _i == STAYS);
}
END_TEST

/* A process of another user may not say that a message comes from a port of ours. */
START_TEST(from_whom)
{
	static const struct {
		uint32_t slot;
		uint16_t port;
		unsigned received;
	} cases[] = {
		{3, PORT, 1}, {REGISTRY_OTHERS + 5, 7, 2}, {REGISTRY_OTHERS + 5, PORT, 2}, {REGISTRY_OTHERS + 5, 7, 3}};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rds_rx rx = {.hdr = {.seq = i + 1, .sport = cases[i].port, .dport = PORT, .len = 3},
				    .data = "new"};

		conn.id.peer_slot = cases[i].slot;
		rx_lock();
		ck_assert_int_eq(rds_conn_receive(&conn, (struct rds_ep *)&endpoint, &rx), RDS_RX_DONE);
		rx_unlock();
		ck_assert_uint_eq(received(&old), cases[i].received);
	}
}
END_TEST

static uint64_t now; /* coarse clock */

static int coarse_clock(clockid_t which, struct timespec *ts)
{
	(void)which;
	*ts = (struct timespec){.tv_sec = (time_t)(now / 1000000000), .tv_nsec = (long)(now % 1000000000)};
	return 0;
}

/* Another user's process sends from that port: the verdict, and how many the socket gets of it. */
static unsigned comes_from(uint16_t port, enum rds_rx_verdict verdict)
{
	struct rds_rx rx = {.hdr = {.seq = atomic_load(&conn.next_rx), .sport = port, .dport = PORT, .len = 3},
			    .data = "new"};
	unsigned before = received(&old);

	conn.id.peer_slot = REGISTRY_OTHERS + 5;
	rx_lock();
	ck_assert_int_eq(rds_conn_receive(&conn, (struct rds_ep *)&endpoint, &rx), verdict);
	rx_unlock();
	return received(&old) - before;
}

/* ... and what nobody had may get an owner: no sender goes on from there. */
START_TEST(from_whom_now)
{
	rds_os_clock = coarse_clock;
	now = 1000000000;
	ck_assert_uint_eq(comes_from(7, RDS_RX_DONE), 1);
	bind_ok(rds_node_registry, add_ok(rds_node_registry), ADDR, 7);
	now += 10 * 1000000;
	ck_assert_uint_eq(comes_from(7, RDS_RX_DONE), 0);
}
END_TEST

/* One that goes through many ports, its own or not, has to wait; the known ones are not asked for. */
START_TEST(from_many)
{
	rds_os_clock = coarse_clock;
	now = 1000000000;
	for (unsigned i = 0; i < 10; i++)
		ck_assert_uint_eq(comes_from(7, RDS_RX_DONE), 1);
	for (uint16_t port = 1; port < 256; port++) {
		if (port % 16 == 0) /* the others' turn */
			ck_assert_uint_eq(comes_from(_i ? PORT : 5000 + port, RDS_RX_LATER), 0);
		ck_assert_uint_eq(comes_from(_i ? PORT : 5000 + port, RDS_RX_DONE), !_i);
	}
	ck_assert_uint_eq(comes_from(8, RDS_RX_PAUSE), 0);
	ck_assert_uint_eq(comes_from(7, RDS_RX_DONE), 1);
	now += 10 * 1000000;
	ck_assert_uint_eq(comes_from(8, RDS_RX_DONE), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meant_for");
	TCase *t = suite_case(s, "outlive", setup, teardown);

	tcase_add_loop_test(t, test_stays, 0, 2);
	tcase_add_test(t, test_other_socket);
	tcase_add_test(t, test_gone);
	tcase_add_test(t, from_whom);
	tcase_add_test(t, from_whom_now);
	tcase_add_loop_test(t, from_many, 0, 2);
	tcase_add_loop_test(t, test_gone_meanwhile, 0, 2);
	tcase_add_loop_test(t, test_sent_again, LOST, WAYS);
	return suite_run(s);
}
