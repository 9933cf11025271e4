/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_recv.c - what arrives (engine/transport/verbs/ep/recv.c): hostile frames, messages
 * that find no memory, buffers that stay with the engine, completions of queue pairs that are gone.
 */
#include <endian.h>
#include <poll.h>

#include "tests/mock/world.h"

static struct world_conn *const c = &world.conn[0];
static struct peer *const p = &world.peer;

static void raw(const void *bytes, size_t len)
{
	peer_send(p, bytes, len, IBV_SEND_SIGNALED);
	world_run();
}

static void is_broken(int why)
{
	world_run();
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_int_eq(c->why, why);
	world_pass(2000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
	world_buffers_out(0);
}

/* ---- nonsense ---- */

static const unsigned char zeros[9000];

static void piece(uint64_t seq, uint32_t len, uint16_t dport, uint8_t flags, size_t n)
{
	struct rds_hdr h = {.seq = seq, .len = len, .sport = 1, .dport = dport, .flags = flags};

	world_peer_frame(&h, zeros, n);
	world_run();
}

START_TEST(test_nonsense)
{
	struct rds_wire_hdr w = {.sequence = htobe64(1), .len = htobe32(10), .sport = htobe16(1), .dport = htobe16(2)};

	switch (_i) {
	case 0: /* less than a header */
		raw(zeros, 47);
		break;
	case 1:
		raw(zeros, 0);
		break;
	case 2: /* a checksum that is not right */
		w.len = 0;
		w.csum = 0x1234;
		raw(&w, sizeof(w));
		break;
	case 3: /* longer than any message */
		piece(1, RDS_MAX_MSG + 1, 2, 0, 8192);
		break;
	case 4: /* more, less than it says */
		piece(1, 10, 2, 0, 11);
		break;
	case 5:
		piece(1, 10, 2, 0, 9);
		break;
	case 6: /* a frame that is larger than we said we take */
		piece(1, 8200, 2, 0, 8200);
		break;
	case 7: /* a first piece that is too short */
		piece(1, 20000, 2, 0, 8191);
		break;
	case 8: /* a list of congested ports that ends within one */
		piece(0, 101, 0, RDS_FLAG_CONG_BITMAP, 101);
		break;
	case 9: /* pieces of two messages */
		piece(1, 20000, 2, 0, 8192);
		piece(2, 20000, 2, 0, 8192);
		break;
	case 10:
		piece(1, 20000, 2, 0, 8192);
		piece(1, 20000, 3, 0, 8192);
		break;
	case 11:
		piece(1, 20000, 2, 0, 8192);
		piece(1, 20001, 2, 0, 8192);
		break;
	case 12: /* a last piece with too much, too little */
		piece(1, 10000, 2, 0, 8192);
		piece(1, 10000, 2, 0, 1809);
		break;
	case 13:
		piece(1, 10000, 2, 0, 8192);
		piece(1, 10000, 2, 0, 1807);
		break;
	case 14: /* another message inside of one */
		piece(1, 10000, 2, 0, 8192);
		piece(2, 0, 2, 0, 0);
		break;
	case 15: /* a packet of the device that came twice, in the middle of it */
		piece(1, 3000, 2, 0, 4024);
		break;
	case 16: /* a list that is too long, and no map */
		piece(0, 130, 0, RDS_FLAG_CONG_BITMAP, 130);
		break;
	}
	is_broken(-EPROTO);
	ck_assert_uint_eq(c->nmsgs, 0);
}
END_TEST

/* A list of congested ports is handed up, though it may be as empty as a control frame. */
START_TEST(test_ports)
{
	static const uint32_t lens[] = {0, 2, 128, 0};
	unsigned i;

	for (i = 0; i < 4; i++) {
		world_peer_frame(&(struct rds_hdr){.len = lens[i], .flags = RDS_FLAG_CONG_BITMAP}, zeros, lens[i]);
		world_run();
		ck_assert_uint_eq(c->nmsgs, i + 1);
		ck_assert_uint_eq(c->msg[i].len, lens[i]);
		ck_assert_uint_eq(c->msg[i].flags, RDS_FLAG_CONG_BITMAP);
	}
	ck_assert_uint_eq(c->downs, 0);
}
END_TEST

/* Nothing that came behind an invalid frame is taken, either. */
START_TEST(test_nothing_after_nonsense)
{
	world_peer_sends(1, 10, 0);
	peer_send(p, zeros, 5, 0);
	world_peer_sends(2, 10, 0);
	is_broken(-EPROTO);
	world_got_one(c, 1);
}
END_TEST

/* ... but what came before another kind of end is. */
START_TEST(test_taken_before_the_end)
{
	world_peer_sends(1, 10, 0);
	world_peer_sends(2, 1000, 0);
	mock_run();
	if (_i)
		vb.rdma_disconnect(p->id);
	else
		mock_fail_recv(world_ep(c)->qp, IBV_WC_LOC_PROT_ERR), world_peer_sends(3, 10, 0);
	mock_run();
	world_run();
	ck_assert_uint_eq(c->downs, 1);
	ck_assert_uint_eq(c->nmsgs, 2);
}
END_TEST

/* ---- no memory ---- */

static void no_memory_for(unsigned times, const size_t *lens, unsigned n)
{
	static unsigned char part[VERBS_FRAME];
	unsigned i;

	world.later = times;
	for (i = 0; i < n; i++) {
		size_t len = lens[i], at;
		struct rds_hdr h = {.seq = i + 1, .len = (uint32_t)len, .sport = 1, .dport = 2};

		for (at = 0; at == 0 || at < len; at += VERBS_FRAME)
			world_peer_frame(&h, part, len - at < VERBS_FRAME ? len - at : VERBS_FRAME);
	}
	do {
		world_run();
	} while (world.later);
	world_run();
	ck_assert_uint_eq(c->nmsgs, n);
	for (i = 0; i < n; i++) {
		ck_assert_uint_eq(c->msg[i].seq, i + 1);
		ck_assert_uint_eq(c->msg[i].len, lens[i]);
	}
	ck_assert_uint_eq(c->downs, 0);
	ck_assert_ptr_null(world_ep(c)->later);
}

START_TEST(test_offered_again)
{
	static const size_t lens[] = {10, 20000, 0, 1000, 8192, 8193, 300};

	no_memory_for((unsigned)_i, lens, 7);
}
END_TEST

/* It needs nobody else's event to be tried again. */
START_TEST(test_offered_again_by_itself)
{
	bool pending;

	world.later = 2;
	world_peer_sends(1, _i ? 500 : 50, 0);
	world_run();
	ck_assert_uint_eq(c->nmsgs, 0);
	rx_lock();
	pending = verbs_dev_pending(world.t);
	rx_unlock();
	ck_assert(pending || world_timer_due(100 * MS));
	world_pass(100 * MS);
	world_got_one(c, 1);
}
END_TEST

/* Closed, broken while frames wait for memory: they are dropped, their buffers come back. */
START_TEST(test_end_while_waiting)
{
	unsigned i;

	world.later = UINT32_MAX;
	for (i = 0; i < 5; i++)
		world_peer_sends(i + 1, 500, 0);
	mock_run();
	world_look();
	ck_assert_ptr_nonnull(world_ep(c)->later);
	if (_i == 0)
		world_close(c);
	else if (_i == 1)
		vb.rdma_disconnect(p->id);
	else
		peer_send(p, zeros, 3, 0);
	mock_run();
	for (i = 0; i < 10; i++)
		world_look();
	world.later = _i == 2 ? 0 : 3;
	world_pass(3000 * MS);
	ck_assert_uint_eq(c->downs, _i > 0);
	ck_assert_ptr_null(verbs_eps.all);
	world_buffers_out(0);
}
END_TEST

/* ---- buffers ---- */

/* With the engine, over the end of their endpoint. */
START_TEST(test_in_place_outlives)
{
	unsigned i;

	world.keep_inplace = true;
	for (i = 0; i < 5; i++)
		world_peer_sends(i + 1, 500, 0);
	world_run();
	ck_assert_uint_eq(world.ninplace, 5);
	world_close(c);
	world_pass(5000 * MS);
	ck_assert_ptr_nonnull(verbs_eps.all);
	world_buffers_out(5);
	world_release();
	world_run();
	ck_assert_ptr_null(verbs_eps.all);
}
END_TEST

/* At least half of the buffers are with the device, no matter how much is unread. */
START_TEST(test_half_stays)
{
	unsigned i;

	world.keep_inplace = true;
	for (i = 0; i < 300; i++) {
		world_peer_sends(i + 1, 500, 0);
		world_run();
		world_peer_drain();
	}
	ck_assert_uint_eq(c->nmsgs, 300);
	ck_assert_uint_ge(mock_recvs_posted(world_dev()->srq), world_dev()->nbufs / 2);
	ck_assert_uint_gt(world.copies, 200);
}
END_TEST

/*
 * Buffers that have come back are posted by a look that finds nothing, or when they are an eighth
 * of all buffers.
 */
START_TEST(test_posted_later)
{
	struct rds_hdr h = {.len = 10, .sport = 1, .dport = 2};
	struct verbs_dev *dev = world_dev();
	uint32_t all = dev->nbufs, eighth = all / 8, n;

	ck_assert_uint_gt(eighth, 1);
	for (n = 1; n <= eighth; n++) {
		h.seq = n;
		world_peer_frame(&h, zeros, 10);
		while (mock_step())
			;
		ck_assert(world_look());
		ck_assert_uint_eq(c->nmsgs, n);
		ck_assert_uint_eq(mock_recvs_posted(dev->srq), n < eighth ? all - n : all);
		ck_assert_uint_eq(dev->nrefill, n < eighth ? n : 0);
	}
	h.seq = n;
	world_peer_frame(&h, zeros, 10);
	while (mock_step())
		;
	ck_assert(world_look());
	ck_assert_uint_eq(dev->nrefill, 1);
	ck_assert(!world_look());
	ck_assert_uint_eq(dev->nrefill, 0);
	ck_assert_uint_eq(mock_recvs_posted(dev->srq), all);
}
END_TEST

/*
 * No buffer can be posted: it is tried again, from a timer if need be.  If a list fails half-way,
 * none of it is lost.
 */
START_TEST(test_starved)
{
	struct ibv_wc wc;
	unsigned i, n;

	peer_post(p, 30);
	for (i = 0; i < 8; i++) {
		if (_i == 1)
			mock_post_fail(1 + i % 4, ENOMEM);
		else
			mock_fail_from(MOCK_ibv_post_srq_recv, 1, ENOMEM);
		for (n = 0; n < 5; n++) /* several go back at a time */
			world_peer_sends(i * 5 + n + 1, 100, 0);
		world_run();
		while (peer_poll(p, &wc))
			;
	}
	mock_fail(MOCK_ibv_post_srq_recv, 0, 0);
	mock_post_fail(1000, ENOMEM);
	world_pass(100 * MS);
	ck_assert_uint_eq(c->nmsgs, 40);
	ck_assert_uint_eq(mock_recvs_posted(world_dev()->srq), world_dev()->posted);
	ck_assert_uint_eq(world_dev()->posted, world_dev()->nbufs);
}
END_TEST

/*
 * Completions of a queue pair that has been destroyed belong to no endpoint, but the buffers are
 * ours.
 */
START_TEST(test_stragglers)
{
	world_peer_sends(1, 500, 0);
	ck_assert_int_eq(world_send(c, 100, 0), 0);
	mock_run();
	verbs_qp_destroy(world_ep(c));
	world_run();
	ck_assert_uint_eq(c->nmsgs, 0);
	world_buffers_out(0);
}
END_TEST

/*
 * Buffers run low while the program is expected back.  The device's event wakes the helper, each
 * time they run low, but only once in a while.
 */
START_TEST(test_low)
{
	struct verbs_dev *dev = world_dev();
	struct pollfd said = {.fd = dev->ctx->async_fd, .events = POLLIN};
	unsigned i, times;
	uint64_t seq = 0;

	world_attention(RDS_ATT_LAZY);
	for (times = 1; times < 4; times++) {
		for (i = 0; i < dev->nbufs - 1; i++) {
			ck_assert_int_eq(poll(&said, 1, 0), i > dev->nbufs - dev->nbufs / 4);
			world_peer_sends(++seq, 10, 0);
			mock_run();
			world_peer_drain();
		}
		ck_assert_int_eq(poll(&said, 1, 0), 1);
		ck_assert_uint_eq(mock_recvs_posted(dev->srq), 1);
		ck_assert_uint_eq(mock_calls(MOCK_ibv_modify_srq), times);
		world_run();
		ck_assert_uint_eq(mock_recvs_posted(dev->srq), dev->nbufs);
		ck_assert_uint_eq(c->nmsgs, seq);
		ck_assert_uint_eq(mock_calls(MOCK_ibv_modify_srq), times);
		world_pass(10 * MS);
		ck_assert_uint_eq(mock_calls(MOCK_ibv_modify_srq), times + 1);
	}
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_nonsense, 0, 17);
	tcase_add_test(t, test_ports);
	tcase_add_test(t, test_nothing_after_nonsense);
	tcase_add_loop_test(t, test_taken_before_the_end, 0, 2);
	tcase_add_loop_test(t, test_offered_again, 0, 40);
	tcase_add_loop_test(t, test_offered_again_by_itself, 0, 2);
	tcase_add_loop_test(t, test_end_while_waiting, 0, 3);
	tcase_add_test(t, test_stragglers);
}

int main(void)
{
	Suite *s = suite_create("verbs_recv");

	TCase *t = world_case(s, "ib", world_ib_joined);

	tests(t);
	tcase_add_test(t, test_posted_later); /* on iWARP credits need them at once */
	tcase_add_test(t, test_in_place_outlives); /* for these three see test_verbs_credit.c */
	tcase_add_test(t, test_half_stays);
	tcase_add_loop_test(t, test_starved, 0, 2);
	tcase_add_test(t, test_low);
	tests(world_case(s, "iwarp", world_iwarp_joined));
	return suite_run(s);
}
