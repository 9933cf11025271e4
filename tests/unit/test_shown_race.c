/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shown_race.c - a region ends while a device is being told of it (engine/rdma/mr_device.c has
 * dropped rx, dev/mr.c waits for the device): by RDS_FREE_MR, by the last close, by both at once.
 * The device is the mock's; the test can keep a thread in its ibv_reg_mr.
 *
 * The thread that frees the region does not wait for the device.  No peer learns of the region.
 * Nothing of it is left, at the device or in what counts as pinned.  The test is meant for the
 * sanitizers above all.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/rdma/op_device.h"
#include "engine/transport/verbs/ep/rdma.h"
#include "tests/mock/world.h"

#define LEN 65536u
#define MOST 4 /* such regions can be shown */
#define CONNS_HERE 2
#define ROUNDS 2000

static struct rds_sock sk;
static struct rds_conn conn[CONNS_HERE];
static struct rds_transport transport[CONNS_HERE];
static unsigned char *mem[MOST];
static unsigned regs; /* what the device has for the transport itself */
static _Atomic unsigned shown_to[CONNS_HERE], hidden_from[CONNS_HERE];

/* ---- two peers, over one device of the world's, who answer at once ---- */

static int send_piece(unsigned i, const struct iovec *iov, size_t len)
{
	struct rds_wire_op_hdr h;

	ck_assert_int_eq(rds_wire_op_decode(iov->iov_base, len, &h), 0);
	if (h.kind == RDS_OP_ADVERTISED) {
		atomic_fetch_add(&shown_to[i], 1);
		return 0;
	}
	ck_assert_int_eq(h.kind, RDS_OP_REVOKED);
	atomic_fetch_add(&hidden_from[i], 1);
	rx_lock();
	rds_mr_revoke_acked(&conn[i], &(struct rds_wire_op_hdr){.rkey = h.rkey});
	rx_unlock();
	return 0;
}

#define SEND_TO(i)                                                                                                     \
	static int send_to_##i(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov,            \
			       size_t len, uint64_t *pos)                                                              \
	{                                                                                                              \
		(void)ep;                                                                                              \
		(void)wire;                                                                                            \
		*pos = 0;                                                                                              \
		return send_piece(i, iov, len);                                                                        \
	}
SEND_TO(0)
SEND_TO(1)

static void flush(struct rds_ep *ep, bool service)
{
	(void)ep;
	(void)service;
}

static uint64_t acked(struct rds_ep *ep)
{
	(void)ep;
	return UINT64_MAX;
}

#define OPS(i)                                                                                                         \
	{                                                                                                              \
		.caps = RDS_TCAP_DEVICE_OPS | RDS_TCAP_DIRECT, .send = send_to_##i, .flush = flush, .acked = acked,    \
		.mr_register = verbs_ep_mr_register, .mr_key = verbs_ep_mr_key, .mr_deregister = verbs_mr_deregister   \
	}
static const struct rds_transport_ops ops[CONNS_HERE] = {OPS(0), OPS(1)};

static void setup(void)
{
	unsigned i;

	setenv("RDS_PRELOAD_VERBS_REGIONS", "256K", 1);
	rds_options_reset();
	world_ib();
	world_pair();
	memset(&sk, 0, sizeof(sk));
	atomic_store(&sk.open, true);
	memset(conn, 0, sizeof(conn));
	for (i = 0; i < CONNS_HERE; i++) {
		rds_lock_init(&conn[i].tx, RDS_LOCK_CONN_TX);
		transport[i].ops = &ops[i];
		conn[i].t = &transport[i];
		conn[i].ep = world.conn[0].ep;
		conn[i].queue_tail = &conn[i].queue;
		ck_assert(rds_ops_prepare(&conn[i]));
		conn[i].next_tx = 1;
		atomic_store(&conn[i].state, RDS_CONN_UP);
	}
	for (i = 0; i < MOST; i++) {
		mem[i] = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ck_assert_ptr_ne(mem[i], MAP_FAILED);
	}
	regs = mock_count(MOCK_MR);
}

static uint64_t region(unsigned i)
{
	struct rds_mr_request req = {.addr = (uintptr_t)mem[i], .bytes = LEN};
	uint64_t cookie;

	return rds_mr_get(&sk, &req, &cookie) ? 0 : cookie;
}

/* As if its peer had used it so often that it is worth it; it may be gone by now. */
static void served(struct rds_conn *c, uint64_t cookie)
{
	struct rds_mr *mr;
	unsigned n;

	rx_lock();
	for (n = 0; n < 2 && (mr = rds_mr_find(rds_cookie_rkey(cookie))); n++)
		rds_mr_served(c, c->ep, mr, LEN, true);
	rx_unlock();
	rds_lock(&c->tx);
	rds_mr_advertise(c);
	rds_op_answers_flush(c);
	rds_unlock(&c->tx);
}

/* Nothing is left but these, and as much can be advertised as before. */
static void all_over(void)
{
	uint64_t cookie[MOST];
	unsigned i, before;

	ck_assert_uint_eq(mock_count(MOCK_MR), regs);
	ck_assert_ptr_null(sk.regions);
	ck_assert_ptr_null(conn[0].rdma->adverts);
	ck_assert_ptr_null(conn[1].rdma->adverts);
	before = atomic_load(&shown_to[0]);
	for (i = 0; i < MOST; i++) {
		cookie[i] = region(i);
		ck_assert(cookie[i]);
		served(&conn[0], cookie[i]);
	}
	ck_assert_uint_eq(atomic_load(&shown_to[0]), before + MOST);
	for (i = 0; i < MOST; i++)
		ck_assert_int_eq(rds_mr_free(&sk, cookie[i]), 0);
	ck_assert_uint_eq(mock_count(MOCK_MR), regs);
}

static void teardown(void)
{
	unsigned i;

	rx_lock();
	for (i = 0; i < CONNS_HERE; i++) {
		rds_op_answers_drop(&conn[i]);
		rds_mr_adverts_drop(&conn[i]);
		free(conn[i].unacked);
		free(conn[i].rdma);
	}
	rx_unlock();
	for (i = 0; i < MOST; i++)
		munmap(mem[i], LEN);
	world_end();
}

/* ---- at that very moment ---- */

static void *serve_one(void *arg)
{
	served(&conn[0], *(uint64_t *)arg);
	return NULL;
}

/* As the last close does it (sock.c). */
static void close_it(void)
{
	struct rds_mr *list;

	rx_lock();
	atomic_store(&sk.open, false);
	list = rds_mr_take_all(&sk);
	rx_unlock();
	rds_mr_destroy_list(list);
}

enum end { FREED, CLOSED, FREED_THEN_CLOSED, ENDS };

/* _i: how it ends, and behind that, whether the device refuses it in the end. */
START_TEST(test_while_registered)
{
	uint64_t cookie = region(0);
	enum end end = (enum end)(_i % ENDS);
	bool refused = _i >= ENDS;
	pthread_t t;

	mock_reg_hang();
	ck_assert_int_eq(pthread_create(&t, NULL, serve_one, &cookie), 0);
	while (!mock_regs_hanging())
		sched_yield();
	/* The device has it in hand; this returns all the same. */
	if (end != CLOSED)
		ck_assert_int_eq(rds_mr_free(&sk, cookie), 0);
	if (end != FREED)
		close_it();
	ck_assert_int_eq(rds_mr_free(&sk, cookie), -EINVAL);
	ck_assert_uint_eq(mock_regs_hanging(), 1);
	memset(mem[0], 1, LEN); /* the program's, to do with as it likes */
	munmap(mem[0], LEN);
	if (refused)
		mock_fail(MOCK_ibv_reg_mr, 1, EFAULT);
	mock_reg_go();
	pthread_join(t, NULL);
	ck_assert_uint_eq(atomic_load(&shown_to[0]), 0);
	ck_assert_uint_eq(atomic_load(&hidden_from[0]), 0);
	atomic_store(&sk.open, true);
	mem[0] = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	all_over();
}
END_TEST

/*
 * Another peer uses the region meanwhile: it is registered once, and that peer gets an advert of
 * its own.
 */
START_TEST(test_two_peers)
{
	uint64_t cookie = region(0);
	pthread_t t;

	mock_reg_hang();
	ck_assert_int_eq(pthread_create(&t, NULL, serve_one, &cookie), 0);
	while (!mock_regs_hanging())
		sched_yield();
	served(&conn[1], cookie);
	ck_assert_uint_eq(mock_regs_hanging(), 1);
	mock_reg_go();
	pthread_join(t, NULL);
	ck_assert_uint_eq(mock_count(MOCK_MR), regs + 1);
	ck_assert_uint_eq(atomic_load(&shown_to[0]), 1);
	ck_assert_uint_eq(atomic_load(&shown_to[1]), 0);
	served(&conn[1], cookie);
	ck_assert_uint_eq(atomic_load(&shown_to[1]), 1);
	ck_assert_int_eq(rds_mr_free(&sk, cookie), 0);
	ck_assert_uint_eq(atomic_load(&hidden_from[0]) + atomic_load(&hidden_from[1]), 2);
	all_over();
}
END_TEST

/* ---- at any moment ---- */

static _Atomic uint64_t current[MOST];
static _Atomic bool stop;

static void *serve_all(void *arg)
{
	struct rds_conn *c = arg;
	unsigned i;

	while (!atomic_load(&stop))
		for (i = 0; i < MOST; i++)
			served(c, atomic_load(&current[i]));
	return NULL;
}

/* Two peers serve themselves, a program frees and opens as fast as it can, and ends. */
START_TEST(test_at_any_moment)
{
	pthread_t t[CONNS_HERE];
	unsigned i, n;

	for (i = 0; i < MOST; i++)
		atomic_store(&current[i], region(i));
	for (i = 0; i < CONNS_HERE; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, serve_all, &conn[i]), 0);
	for (n = 0; n < ROUNDS || !atomic_load(&shown_to[0]) || !atomic_load(&shown_to[1]); n++) {
		i = n % MOST;
		ck_assert_int_eq(rds_mr_free(&sk, atomic_load(&current[i])), 0);
		atomic_store(&current[i], region(i));
	}
	close_it();
	atomic_store(&stop, true);
	for (i = 0; i < CONNS_HERE; i++)
		pthread_join(t[i], NULL);
	atomic_store(&sk.open, true);
	all_over();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shown_race");
	TCase *tc = suite_case(s, "shown_race", setup, teardown);

	tcase_add_loop_test(tc, test_while_registered, 0, 2 * ENDS);
	tcase_add_test(tc, test_two_peers);
	tcase_add_test(tc, test_at_any_moment);
	return suite_run(s);
}
