/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_strays.c - strays: operations that have ended here while the peer's engine has yet to carry
 * out parts of them (rdma/op_device.c).  A device would not wait for these parts, so it gets
 * nothing until the peer has acknowledged them.  Every way in which strays come about.  The
 * transport records its calls; what another thread would do in the middle of a send is done from
 * within.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/rdma/op_device.h"
#include "engine/abi/user_copy.h"
#include "tests/unit/suite.h"

#define RKEY 1u
#define LEN (RDS_OP_PIECE + 64u) /* two pieces */

static struct rds_sock sk, other; /* whose operations end; who writes next */
static struct rds_conn conn;
static unsigned char mem[LEN];

/* ---- a transport ---- */

static struct {
	unsigned sends, posts;
	uint64_t acked;
	/* what the n-th of them finds, and what happens there meanwhile */
	unsigned err_at, fetch_err_at, fetches;
	int send_err, post_err;
	void (*in_send)(void), (*in_post)(void), (*in_fetch)(void);
} did;

static void meanwhile(void (**what)(void))
{
	void (*now)(void) = *what;

	*what = NULL;
	if (now)
		now();
}

static int fake_send(struct rds_ep *ep, const struct rds_wire_hdr *wire, const struct iovec *iov, size_t len,
		     uint64_t *pos)
{
	(void)ep;
	(void)wire;
	(void)iov;
	(void)len;
	*pos = 0;
	if (did.sends)
		meanwhile(&did.in_send);
	return ++did.sends == did.err_at ? did.send_err : 0;
}

static int fake_post(struct rds_ep *ep, const struct rds_device_op *op)
{
	(void)ep;
	(void)op;
	meanwhile(&did.in_post);
	did.posts += !did.post_err;
	return did.post_err;
}

static void fake_flush(struct rds_ep *ep, bool service)
{
	(void)ep;
	(void)service;
}

static void fake_fence(struct rds_ep *ep)
{
	(void)ep;
}

static uint64_t fake_acked(struct rds_ep *ep)
{
	(void)ep;
	return did.acked;
}

static bool fake_want_room(struct rds_ep *ep, uint64_t seen)
{
	(void)ep;
	(void)seen;
	return false;
}

int __real_rds_ucopy_from_vec(struct rds_foreign_memory *m, void *to, const struct iovec *iov, unsigned n, uint64_t at,
			      size_t len);
int __wrap_rds_ucopy_from_vec(struct rds_foreign_memory *m, void *to, const struct iovec *iov, unsigned n, uint64_t at,
			      size_t len);
int __wrap_rds_ucopy_from_vec(struct rds_foreign_memory *m, void *to, const struct iovec *iov, unsigned n, uint64_t at,
			      size_t len)
{
	meanwhile(&did.in_fetch);
	if (++did.fetches == did.fetch_err_at)
		return -EFAULT;
	return __real_rds_ucopy_from_vec(m, to, iov, n, at, len);
}

static const struct rds_transport_ops ops = {.caps = RDS_TCAP_DEVICE_OPS,
					     .send = fake_send,
					     .flush = fake_flush,
					     .acked = fake_acked,
					     .want_room = fake_want_room,
					     .post = fake_post,
					     .fence = fake_fence};
static struct rds_transport transport = {.ops = &ops};
static struct rds_ep_head endpoint = {.t = &transport};

static void peer_shows(void)
{
	struct rds_wire_op_hdr h = {.kind = RDS_OP_ADVERTISED, .rkey = RKEY, .value = 7, .compare = 4096, .len = LEN};

	rx_lock();
	rds_mr_remote_advertised(&conn, &h);
	rx_unlock();
}

static void sock_setup(struct rds_sock *s, uint16_t port)
{
	memset(s, 0, sizeof(*s));
	atomic_store(&s->open, true);
	atomic_store(&s->ref, 100);
	s->had_ops = true;
	s->set_laddr.port = port;
	s->report_tail = &s->reports;
}

static void setup(void)
{
	memset(&conn, 0, sizeof(conn));
	memset(&did, 0, sizeof(did));
	os_process_start();
	rds_queue_forget();
	rds_conn_list = &conn;
	sock_setup(&sk, 1);
	sock_setup(&other, 2);
	conn.t = &transport;
	conn.ep = (struct rds_ep *)&endpoint;
	conn.queue_tail = &conn.queue;
	ck_assert(rds_ops_prepare(&conn));
	conn.next_tx = 1;
	atomic_store(&conn.state, RDS_CONN_UP);
	peer_shows();
}

static void breaks(void)
{
	rds_lock(&conn.tx);
	rx_lock();
	rds_ops_broken(&conn, true, false);
	rds_mr_remote_drop_all(&conn);
	rx_unlock();
	rds_queue_purge(&conn, true);
	rds_unlock(&conn.tx);
}

static void teardown(void)
{
	breaks();
	ck_assert(!rds_ops_first(&conn) && !conn.queue && !sk.nops && !other.nops);
	rds_queue_forget();
	free(conn.unacked);
	free(conn.rdma);
}

/* ---- what programs do ---- */

static struct rds_op *op_of(struct rds_sock *s, enum rds_wire_op_kind kind, uint64_t len)
{
	struct rds_op *op = rds_op_new(s, kind, 1);

	ck_assert_ptr_nonnull(op);
	op->rkey = RKEY;
	op->total = len;
	op->local[0] = (struct iovec){mem, len};
	rx_lock();
	op->refs++; /* the test's */
	rx_unlock();
	return op;
}

static int send_op(struct rds_op *op)
{
	int err;

	rds_lock(&conn.tx);
	err = rds_ops_xmit(&conn, op, false);
	rds_ops_put(op);
	rds_unlock(&conn.tx);
	return err;
}

static void answered(const struct rds_op *op, int status)
{
	rx_lock();
	if (op->by_device)
		rds_op_device_done(&conn, op->id, 0, 0, NULL, 0);
	else
		rds_op_recv_answer(
			&conn,
			&(struct rds_wire_op_hdr){.kind = RDS_OP_RESULT, .id = op->id, .status = (uint8_t)status}, NULL,
			0);
	rx_unlock();
}

/* Another socket's write of the same bytes, which ends well. */
static bool device_takes(void)
{
	struct rds_op *op = op_of(&other, RDS_OP_WRITE, LEN);
	unsigned posts = did.posts;

	ck_assert_int_eq(send_op(op), 0);
	ck_assert(op->by_device == (did.posts > posts));
	answered(op, RDS_RDMA_SUCCESS);
	ck_assert(op->done && op->status == RDS_RDMA_SUCCESS);
	rds_op_discard(op);
	return did.posts > posts;
}

/* sk's, by the engine, both of its pieces. */
static struct rds_op *given(void)
{
	struct rds_op *op = op_of(&sk, RDS_OP_WRITE, LEN);
	unsigned sends = did.sends;

	did.post_err = -EAGAIN;
	ck_assert_int_eq(send_op(op), 0);
	did.post_err = 0;
	ck_assert_uint_eq(did.sends, sends + 2);
	return op;
}

/* ... which wait. */
static struct rds_op *queued(void)
{
	struct rds_op *op = op_of(&sk, RDS_OP_WRITE, LEN);

	atomic_store(&conn.state, RDS_CONN_CONNECTING);
	ck_assert_int_eq(send_op(op), 0);
	atomic_store(&conn.state, RDS_CONN_UP);
	ck_assert_uint_eq(conn.queue_len, 2);
	return op;
}

static void flush(void)
{
	rds_lock(&conn.tx);
	rds_queue_flush(&conn);
	rds_unlock(&conn.tx);
	ck_assert_ptr_null(conn.queue);
}

/* ---- ways to end ---- */

static void closes(void)
{
	rx_lock();
	rds_ops_close(&sk);
	rx_unlock();
}

static struct rds_op *canceled(void)
{
	struct rds_op *op = given();

	rds_lock(&conn.tx);
	rds_queue_cancel(&conn, &sk, &(struct rds_addr){.port = 0});
	rds_unlock(&conn.tx);
	return op;
}

static struct rds_op *closed(void)
{
	struct rds_op *op = given();

	closes();
	return op;
}

static struct rds_op *left(void)
{
	struct rds_op *op = given();

	rds_ops_handoff(&sk);
	return op;
}

/* The second piece, and so the call, fails. */
static struct rds_op *taken_back(void)
{
	struct rds_op *op = op_of(&sk, RDS_OP_WRITE, LEN);

	did.post_err = -EAGAIN;
	did.err_at = did.sends + 2;
	did.send_err = -ENOMEM;
	ck_assert_int_eq(send_op(op), -ENOMEM);
	did.post_err = 0;
	return op;
}

static struct rds_op *lost(void)
{
	struct rds_op *op = given();

	rds_op_fail_unrouted(&(struct rds_queue_item){.op = op});
	return op;
}

/* The first piece has gone, the program has taken away the bytes of the second. */
static struct rds_op *not_there(void)
{
	struct rds_op *op = queued();

	did.fetch_err_at = did.fetches + 2;
	flush();
	ck_assert_uint_eq(did.sends, 1);
	return op;
}

/* The peer says so of the first piece, and has still to look at the second. */
static struct rds_op *refused(void)
{
	struct rds_op *op = given();

	answered(op, RDS_RDMA_REMOTE_ERROR);
	return op;
}

/* Another thread closes the socket: the transport is just given the second piece; ... */
static struct rds_op *closed_in_send(void)
{
	did.in_send = closes;
	return given();
}

/* ... nothing has gone to the engine yet; ... */
static struct rds_op *closed_in_post(void)
{
	did.in_post = closes;
	return given();
}

/* ... the bytes of what waited are just fetched. */
static struct rds_op *closed_in_fetch(void)
{
	struct rds_op *op = queued();

	did.in_fetch = closes;
	flush();
	ck_assert_uint_eq(did.sends, 1); /* the second is not wanted any more */
	return op;
}

static struct rds_op *(*const ways[])(void) = {canceled,  closed,  left,	   taken_back,	   lost,
					       not_there, refused, closed_in_send, closed_in_post, closed_in_fetch};
#define WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

START_TEST(test_way)
{
	struct rds_op *op = ways[_i]();
	uint64_t last = rds_queue_sent(&conn);

	ck_assert(op->done && op->status != RDS_RDMA_SUCCESS && !did.posts);
	ck_assert(!device_takes());
	did.acked = last - 1;
	ck_assert(!device_takes());
	did.acked = last; /* what came after it does not count */
	ck_assert(device_takes());
	did.acked = 0;
	ck_assert(device_takes());
	rds_op_discard(op);
}
END_TEST

/* ---- which of them ---- */

START_TEST(test_another)
{
	struct rds_op *first = canceled(), *second;
	uint64_t last;

	ck_assert(!device_takes());
	second = canceled();
	last = rds_queue_sent(&conn);
	did.acked = last - 1;
	ck_assert(!device_takes());
	did.acked = last;
	ck_assert(device_takes());
	rds_op_discard(first);
	rds_op_discard(second);
}
END_TEST

/* The peer advertises its regions again when it is done with all that the endpoint had. */
START_TEST(test_broken)
{
	struct rds_op *op = canceled();

	if (_i)
		ck_assert(!device_takes());
	breaks();
	ck_assert(!device_takes());
	peer_shows();
	ck_assert(device_takes());
	rds_op_discard(op);
}
END_TEST

static void nothing_of(struct rds_op *op)
{
	ck_assert(op->done);
	ck_assert(device_takes());
	rds_op_discard(op);
}

/* What the peer is done with, what never went, what a device has. */
START_TEST(test_no_strays)
{
	struct rds_op *op = given();

	answered(op, RDS_RDMA_SUCCESS);
	nothing_of(op);
	op = queued();
	rds_lock(&conn.tx);
	rds_queue_cancel(&conn, &sk, &(struct rds_addr){.port = 0});
	rds_unlock(&conn.tx);
	ck_assert(!conn.queue);
	nothing_of(op);
	op = op_of(&sk, RDS_OP_WRITE, LEN);
	ck_assert_int_eq(send_op(op), 0);
	ck_assert(op->by_device);
	closes();
	nothing_of(op);
	ck_assert_uint_eq(did.acked, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("strays");
	TCase *t = suite_case(s, "strays", setup, teardown);

	tcase_add_loop_test(t, test_way, 0, WAYS);
	tcase_add_test(t, test_another);
	tcase_add_loop_test(t, test_broken, 0, 2);
	tcase_add_test(t, test_no_strays);
	return suite_run(s);
}
