/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_op_device.c - the initiator of operations that devices carry out (rdma/op_device.c): when it
 * has a device do them, and in which order.  For the target see test_advertise.c.
 */
#include "tests/unit/op_device_helper.h"

static struct rds_op *op_new(enum rds_wire_op_kind kind, uint32_t rkey, uint64_t at, uint64_t len)
{
	struct rds_op *op = calloc(1, sizeof(*op) + sizeof(op->local[0]));

	op->kind = kind;
	op->rkey = rkey;
	op->remote = at;
	op->total = len;
	op->sk = &sk;
	op->id = at + 1;
	rx_lock();
	rds_op_list(conn, op);
	rx_unlock();
	return op;
}

static void op_end(struct rds_op *op)
{
	op->refs = 2;
	sk.nops++;
	rx_lock();
	rds_op_complete(op, RDS_RDMA_CANCELED);
	rx_unlock();
	free(op);
}

static void peer_shows(uint32_t rkey, uint64_t at)
{
	struct rds_wire_op_hdr h = {.kind = RDS_OP_ADVERTISED, .rkey = rkey, .value = KEY, .compare = at, .len = LEN};

	rx_lock();
	rds_mr_remote_advertised(conn, &h);
	rx_unlock();
}

static void peer_hides(uint32_t rkey)
{
	struct rds_wire_op_hdr h = {.kind = RDS_OP_REVOKED, .rkey = rkey};

	rx_lock();
	rds_mr_remote_revoked(conn, &h);
	rx_unlock();
}

static bool goes(uint32_t rkey, uint64_t at, uint64_t len)
{
	struct rds_op *op = op_new(RDS_OP_WRITE, rkey, at, len);
	unsigned before = did.post, writes = atomic_load(&conn->device_writes);
	bool went = rds_op_device_post(conn, op) == 0;

	ck_assert_uint_eq(did.post - before, went);
	ck_assert(op->started == went && op->by_device == went);
	/* (before->by_device does not count) */
	ck_assert_uint_eq(atomic_load(&conn->device_writes), writes + went);
	op_end(op);
	return went;
}

START_TEST(test_goes)
{
	ck_assert(!goes(1, 0, 1));
	peer_shows(1, AT);
	ck_assert(goes(1, 0, LEN));
	ck_assert(did.op.id == 1 && did.op.key == KEY && did.op.at == AT && did.op.len == LEN && did.op.seq == 5);
	ck_assert(goes(1, LEN - 1, 1));
	ck_assert_uint_eq(did.op.at, AT + LEN - 1);
	ck_assert(!goes(1, LEN - 1, 2)); /* the engine says what is wrong with it */
	ck_assert(!goes(1, LEN + 1, 1));
	ck_assert(!goes(1, (uint64_t)-1, 2));
	ck_assert(!goes(1, 0, 0));
	ck_assert(!goes(2, 0, 1));
	peer_shows(1, AT + 7);
	ck_assert(goes(1, 0, 1));
	ck_assert_uint_eq(did.op.at, AT + 7);
	peer_hides(2);
	peer_hides(1);
	told_of(conn, RDS_OP_REVOKE_ACK, 2); /* known or not */
	told_of(conn, RDS_OP_REVOKE_ACK, 1);
	ck_assert(!goes(1, 0, 1));
	ck_assert_uint_eq(atomic_load(&conn->rdma->nremote_mrs), 0);
}
END_TEST

START_TEST(test_not_now)
{
	struct rds_op *op;
	struct rds_queue_item q;

	peer_shows(1, AT);
	conn->queue = &q;
	ck_assert(!goes(1, 0, 1));
	conn->queue = NULL;
	atomic_store(&conn->state, RDS_CONN_CONNECTING);
	ck_assert(!goes(1, 0, 1));
	atomic_store(&conn->state, RDS_CONN_UP);
	did.post_err = -EAGAIN;
	op = op_new(RDS_OP_WRITE, 1, 0, 1);
	ck_assert_int_eq(rds_op_device_post(conn, op), -EAGAIN);
	ck_assert(!op->started && !op->by_device);
	op_end(op);
	did.post_err = 0;
	op = op_new(RDS_OP_ADD, 1, 0, 8);
	ck_assert_int_ne(rds_op_device_post(conn, op), 0);
	op_end(op);
	op = op_new(RDS_OP_WRITE, 1, 0, 1);
	op->after = 1; /* its message is held */
	ck_assert_int_eq(rds_op_device_post(conn, op), -EAGAIN);
	op_end(op);
	rx_lock();
	rds_mr_remote_drop_all(conn);
	rx_unlock();
	ck_assert(!goes(1, 0, 1));
}
END_TEST

/*
 * A device does not overtake what the peer's engine has yet to carry out on the same bytes,
 * whatever key the region has.
 */
START_TEST(test_order)
{
	struct rds_op *before;

	peer_shows(1, AT);
	peer_shows(2, AT + 4096);
	before = op_new(RDS_OP_ADD, 1, 8192, 8);
	ck_assert(goes(1, 0, 8192));
	ck_assert(!goes(1, 0, 8193));
	ck_assert(!goes(1, 8199, 1));
	ck_assert(goes(1, 8200, 1));
	ck_assert(!goes(2, 4096, 1));
	ck_assert(goes(2, 4096 + 8, 1));
	ck_assert(goes(2, 0, 4096));
	before->by_device = true;
	ck_assert(goes(1, 8192, 8));
	before->by_device = false;
	before->rkey = 3; /* it may lie anywhere */
	ck_assert(!goes(1, 0, 1));
	op_end(before);
	ck_assert(goes(1, 0, 1));
}
END_TEST

/* What changes bytes that a device still reads, and what was asked to, waits. */
START_TEST(test_fence)
{
	struct rds_op *read, *op;
	uint64_t at;

	peer_shows(1, AT);
	peer_shows(2, AT + 4096);
	read = op_new(RDS_OP_READ, 1, 8192, 100);
	ck_assert_int_eq(rds_op_device_post(conn, read), 0);
	ck_assert(did.op.read && did.op.at == AT + 8192);
	rds_ops_fence(conn, read);
	ck_assert_uint_eq(did.fence, 0);
	read->fence = true;
	rds_ops_fence(conn, read);
	ck_assert_uint_eq(did.fence, 1);
	for (at = 0; at < 16384; at += 4096) {
		op = op_new(RDS_OP_WRITE, 2, at, 4096);
		did.fence = 0;
		rds_op_fence_conflict(conn, op);
		ck_assert_uint_eq(did.fence, at == 4096);
		op_end(op);
	}
	op = op_new(RDS_OP_ADD, 3, 0, 8);
	rds_op_fence_conflict(conn, op);
	ck_assert_uint_eq(did.fence, 1);
	op_end(op);
	op = op_new(RDS_OP_READ, 1, 8192, 100);
	rds_op_fence_conflict(conn, op);
	did.post_err = -EAGAIN;
	ck_assert_int_eq(rds_op_device_post(conn, op), -EAGAIN);
	ck_assert_uint_eq(did.fence, 1);
	ck_assert_uint_eq(atomic_load(&conn->rdma->device_reads), 1);
	op_end(op);
	op_end(read);
	ck_assert_uint_eq(atomic_load(&conn->rdma->device_reads), 0);
	rds_op_fence_conflict(conn, NULL); /* nobody reads: it is not looked at */
	ck_assert_uint_eq(did.fence, 1);
}
END_TEST

static void answers_go(void)
{
	rds_lock(&conn->tx);
	rds_op_answers_flush(conn);
	rds_unlock(&conn->tx);
}

/*
 * A device may still read a region.  The peer learns that it is revoked when the read is over, even
 * if no operation waits for the read any more.
 */
START_TEST(test_gone_behind_reads)
{
	struct rds_op *read;

	peer_shows(1, AT);
	peer_shows(2, AT + LEN);
	ck_assert(goes(2, 0, 4096));
	read = op_new(RDS_OP_READ, 1, 8192, 100);
	ck_assert_int_eq(rds_op_device_post(conn, read), 0);
	if (_i)
		op_end(read);
	peer_hides(2); /* was written only, and that is in order */
	answers_go();
	ck_assert_uint_eq(did.fence, 0);
	peer_hides(1);
	ck_assert_uint_eq(did.nsent[0], 1);
	answers_go();
	ck_assert_uint_eq(did.fence, 1);
	told_of(conn, RDS_OP_REVOKE_ACK, 2);
	told_of(conn, RDS_OP_REVOKE_ACK, 1);
	peer_hides(1);
	answers_go();
	ck_assert_uint_eq(did.fence, 1);
	if (!_i)
		op_end(read);
}
END_TEST

/* On its way, by the device or not; it is the test's, too. */
static struct rds_op *op_started(enum rds_wire_op_kind kind, uint64_t at, bool alone, bool native)
{
	struct rds_op *op = op_new(kind, 1, at, 8);

	op->alone = alone;
	op->refs = 2;
	sk.nops++;
	if (native)
		ck_assert_int_eq(rds_op_device_post(conn, op), 0);
	op->started = true;
	return op;
}

static void ends(const struct rds_op *op, int err)
{
	rx_lock();
	if (op->by_device)
		rds_op_device_done(conn, op->id, err, 0, NULL, 0);
	else
		rds_op_recv_answer(conn, &(struct rds_wire_op_hdr){.kind = RDS_OP_RESULT, .id = op->id}, NULL, 0);
	rx_unlock();
}

/*
 * Some operations are carried out by the engine, some by a device.  In both cases the report of one
 * means that all before it have ended.
 */
START_TEST(test_turns)
{
	struct rds_op *op[3];
	unsigned i;

	peer_shows(1, AT);
	op[0] = op_started(RDS_OP_WRITE, 0, true, _i % 2);
	op[1] = op_started(RDS_OP_WRITE, 8, true, !(_i % 2));
	op[2] = op_started(RDS_OP_WRITE, 16, true, _i / 2);
	ends(op[1], 0);
	ck_assert(op[1]->over && !op[1]->done);
	ends(op[1], 0); /* changes nothing */
	ends(op[2], op[2]->by_device ? -EACCES : 0);
	ck_assert(op[2]->over && !op[2]->done);
	ck_assert(goes(1, 8, 8)); /* ... but it blocks no other */
	ends(op[0], 0);
	for (i = 0; i < 3; i++) {
		ck_assert(op[i]->done && op[i]->refs == 1);
		ck_assert_int_eq(op[i]->status, i == 2 && op[i]->by_device ? RDS_RDMA_REMOTE_ERROR : RDS_RDMA_SUCCESS);
		free(op[i]);
	}
	ck_assert(!conn->rdma->ops && !conn->rdma->nover && !sk.nops);
}
END_TEST

/* Of a quiet write it may not be known for long that it is over. */
START_TEST(test_quiet_turn)
{
	struct rds_op *quiet, *op;

	peer_shows(1, AT);
	quiet = op_started(RDS_OP_WRITE, 0, false, true);
	ck_assert(did.op.quiet);
	op = op_started(RDS_OP_WRITE, 8, true, _i);
	ends(op, 0);
	ck_assert(op->done && !quiet->over);
	ends(quiet, 0);
	ck_assert(quiet->done && !conn->rdma->ops);
	free(op);
	free(quiet);
}
END_TEST

/* What had ended well before the connection broke has. */
START_TEST(test_turns_broken)
{
	struct rds_op *before, *op;

	peer_shows(1, AT);
	before = op_started(RDS_OP_WRITE, 0, true, false);
	op = op_started(RDS_OP_WRITE, 8, true, true);
	ends(op, 0);
	rx_lock();
	if (_i == 0)
		rds_ops_broken(conn, false, false);
	else if (_i == 1)
		rds_ops_cancel(conn, &sk, 0);
	else
		rds_op_relist(&conn[1], before, NULL);
	rx_unlock();
	ck_assert(op->done && !conn->rdma->ops && !conn->rdma->nover && !conn[1].rdma->nover);
	ck_assert_int_eq(op->status, RDS_RDMA_SUCCESS);
	if (_i < 2)
		ck_assert_int_eq(before->status, _i ? RDS_RDMA_CANCELED : RDS_RDMA_DROPPED);
	ck_assert_int_eq(before->done, _i < 2);
	free(op);
	free(before);
}
END_TEST

/*
 * Sent, not acknowledged, and so on a connection that breaks with the operation with that number: 0
 * a piece.
 */
static void message_sent(uint64_t op)
{
	if (!conn->unacked) {
		conn->unacked = calloc(32, sizeof(*conn->unacked));
		conn->cap = 32;
		conn->busy = true;
		conn->queue_tail = &conn->queue;
	}
	conn->unacked[conn->count] =
		(struct rds_queue_unacked){.seq = 100 + conn->count, .len = 1, .once = true, .op = op};
	conn->count++;
}

/* It breaks: these go again, and no others. */
static void breaks(const uint64_t *seqs, unsigned n)
{
	struct rds_queue_item *q;

	rds_lock(&conn->tx);
	rx_lock();
	rds_ops_judge(conn);
	rds_ops_broken(conn, false, false);
	rx_unlock();
	ck_assert(rds_queue_requeue(conn, conn->ep));
	rds_unlock(&conn->tx);
	for (; (q = conn->queue); n--, seqs++) {
		ck_assert_uint_gt(n, 0);
		ck_assert_uint_eq(q->u.seq, *seqs);
		ck_assert(q->hdr.flags & RDS_FLAG_RETRANSMITTED);
		ck_assert(q->u.again && !q->u.op); /* no matter what fails later */
		conn->queue = q->next;
		free(q);
	}
	ck_assert_uint_eq(n, 0);
	conn->queue_len = 0;
	conn->queue_tail = &conn->queue;
}

/* An operation and its message arrive both or neither, as far as the program is told. */
START_TEST(test_message_goes_again)
{
	struct rds_op *op[5];
	unsigned i;

	peer_shows(1, AT);
	for (i = 0; i < 5; i++) {
		op[i] = op_started(RDS_OP_WRITE, 8 * i, true, (int)(i % 2) == _i);
		op[i]->message = op[i]->id;
		message_sent(0); /* its piece */
		message_sent(op[i]->id);
	}
	ends(op[0], 0);
	ends(op[1], 0);
	rx_lock();
	rds_op_end(op[2], RDS_RDMA_REMOTE_ERROR);
	rx_unlock();
	ends(op[4], 0); /* its turn is not come */
	breaks((const uint64_t[]){101, 103, 109}, 3);
	ck_assert_int_eq(op[3]->status, RDS_RDMA_DROPPED);
	ck_assert_int_eq(op[4]->status, RDS_RDMA_SUCCESS);
	for (i = 0; i < 5; i++)
		free(op[i]);
	message_sent(77); /* what failed before is forgotten: of this one all has ended well */
	message_sent(0);
	breaks((const uint64_t[]){100}, 1);
}
END_TEST

/* More fail than are written down: in doubt a message does not go again. */
START_TEST(test_many_have_failed)
{
	struct rds_op *op;
	unsigned i;

	message_sent(1);
	for (i = 1; i <= 20; i++) {
		op = op_started(RDS_OP_WRITE, i, true, false);
		op->message = op->id;
		message_sent(op->id);
		rx_lock();
		rds_op_end(op, RDS_RDMA_REMOTE_ERROR);
		rx_unlock();
		free(op);
	}
	message_sent(50);
	breaks((const uint64_t[]){121}, 1);
}
END_TEST

/* A peer that advertises very many regions: those beyond the limit are ignored. */
START_TEST(test_table)
{
	uint32_t i;

	for (i = 1; i <= 2000; i++)
		peer_shows(i, AT);
	ck_assert_uint_lt(atomic_load(&conn->rdma->nremote_mrs), 2000);
	ck_assert(goes(1, 0, 1));
	ck_assert(!goes(2000, 0, 1));
	peer_hides(1);
	peer_shows(2000, AT);
	ck_assert(goes(2000, 0, 1));
}
END_TEST

/*
 * A peer that takes no answers is not served while it asks for more, whatever it sends; later it is
 * served again.
 */
START_TEST(test_hides_and_takes_nothing)
{
	struct rds_wire_op_hdr h = {.kind = RDS_OP_REVOKED, .rkey = 1};
	unsigned char piece[RDS_OP_HDR];
	struct rds_rx rx = {.hdr = {.len = sizeof(piece), .flags = RDS_FLAG_OP}, .data = piece};
	unsigned n;

	rds_wire_op_encode(&h, piece);
	rx_lock();
	for (n = 0; rds_op_recv_piece(conn, conn->ep, &rx) == RDS_RX_DONE; n++)
		ck_assert_uint_lt(n, 1000000);
	ck_assert_uint_ge(n, 10000);
	ck_assert_uint_le(n * sizeof(struct rds_queue_item), 65 << 20);
	ck_assert_uint_eq(atomic_load(&conn->nanswers), n);
	rds_op_answers_drop(conn);
	ck_assert_uint_eq(atomic_load(&conn->answer_bytes), 0);
	ck_assert_int_eq(rds_op_recv_piece(conn, conn->ep, &rx), RDS_RX_DONE);
	rx_unlock();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("op_device");
	TCase *t = suite_case(s, "initiator", setup, teardown);

	tcase_add_test(t, test_goes);
	tcase_add_test(t, test_not_now);
	tcase_add_test(t, test_order);
	tcase_add_test(t, test_fence);
	tcase_add_loop_test(t, test_gone_behind_reads, 0, 2);
	tcase_add_loop_test(t, test_turns, 0, 4);
	tcase_add_loop_test(t, test_quiet_turn, 0, 2);
	tcase_add_loop_test(t, test_turns_broken, 0, 3);
	tcase_add_loop_test(t, test_message_goes_again, 0, 2);
	tcase_add_test(t, test_many_have_failed);
	tcase_add_test(t, test_table);
	tcase_add_test(t, test_hides_and_takes_nothing);
	return suite_run(s);
}
