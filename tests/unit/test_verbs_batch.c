/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_batch.c - several messages in one frame: when messages are held and when they go
 * (engine/transport/batch_when.c, send.c), how such a frame is received (recv.c), and
 * peers that do not know of it.
 */
#include <endian.h>
#include <string.h>

#include "tests/mock/world.h"

static struct world_conn *const a = &world.conn[0], *const b = &world.conn[1];

static void send_n(struct world_conn *c, unsigned n, size_t len)
{
	while (n--)
		ck_assert_int_eq(world_send(c, len, 0), 0);
}

/* So many messages, then a look, and an answer. */
static void run_of(unsigned n, size_t len)
{
	send_n(a, n, len);
	world_run();
	ck_assert(world_all_came(a, b));
	send_n(b, 1, 8);
	world_run();
	ck_assert(world_all_came(b, a));
}

static void learn(void)
{
	unsigned i;

	world_pair();
	for (i = 0; i < 6; i++)
		run_of(6, 64);
	world_large(a, b);
}

/* Work requests that so many messages make, before anybody looks. */
static unsigned frames(unsigned n, size_t len)
{
	uint32_t before = world_ep(a)->wr_posted;

	send_n(a, n, len);
	ck_assert_uint_eq(world_ep(a)->nwr_listed, 0);
	return world_ep(a)->wr_posted - before;
}

/* ---- held ---- */

/* The first message goes, the others together, as soon as a thread looks. */
START_TEST(test_run)
{
	learn();
	ck_assert_uint_eq(frames(10, (size_t)_i * 13), 1);
	ck_assert_uint_eq(mock_sends_waiting(world_ep(a)->qp), 1);
	world_run();
	ck_assert(world_all_came(a, b));
	ck_assert(!world_ep(a)->held);
	ck_assert_uint_eq(frames(5, 64), 0); /* nothing has been heard: the run goes on */
}
END_TEST

/* Nothing of it without having seen long runs; nothing for one at a time, or two. */
START_TEST(test_not_learnt)
{
	unsigned i;

	world_pair();
	ck_assert_uint_eq(frames(12, 64), 12);
	world_run();
	ck_assert(world_all_came(a, b));
	send_n(b, 1, 8);
	world_run();
	for (i = 0; i < 20; i++) {
		ck_assert_uint_eq(frames((unsigned)_i, 64), (unsigned)_i);
		world_run();
		send_n(b, 1, 8);
		world_run();
	}
	ck_assert(world_all_came(a, b));
}
END_TEST

/* A run of sixteen is worth four of four: after a mistake, too. */
START_TEST(test_long_runs)
{
	world_pair();
	run_of(16, 64);
	ck_assert_uint_eq(frames(5, 64), 1);
	world_pass(3 * MS); /* nobody looks */
	run_of(1, 64);
	run_of(16, 64); /* -4 */
	run_of(16, 64); /* 0 */
	ck_assert_uint_eq(frames(5, 64), 1);
}
END_TEST

START_TEST(test_forgets)
{
	unsigned i;

	learn();
	for (i = 0; i < 4; i++)
		run_of(2, 64);
	ck_assert_uint_eq(frames(3, 64), 3);
}
END_TEST

/* What is full goes by itself. */
START_TEST(test_full)
{
	/*
	 * What fits: in a frame of 8 KiB, or in the block for eight messages of one size, which is
	 * for 16 or 32 KiB.
	 */
	unsigned kib, two;

	learn();
	kib = world_ep(a)->frame == VERBS_FRAME ? 7 : 15;
	two = world_ep(a)->frame == VERBS_FRAME ? 3 : 15;
	ck_assert_uint_eq(frames(1 + kib, 1024), 2);
	ck_assert_uint_eq(frames(kib - 1, 1024), 0);
	ck_assert_uint_eq(frames(1, 1024), 1);
	ck_assert_uint_eq(frames(two, 2048), 1);
	ck_assert_uint_eq(frames(2, 2048), 0);
	world_run();
	ck_assert(world_all_came(a, b));
}
END_TEST

/* Everything else goes behind it: larger ones, what asks for an answer, a map. */
START_TEST(test_order)
{
	learn();
	ck_assert_uint_eq(frames(4, 64), 1);
	switch (_i) {
	case 0:
		ck_assert_uint_eq(frames(1, world_ep(a)->frame / 4 + 1), 2);
		break;
	case 1:
		ck_assert_uint_eq(frames(1, 2 * world_ep(a)->frame + 1), 4);
		break;
	case 2:
		ck_assert_int_eq(world_send(a, 64, RDS_FLAG_ACK_REQUIRED), 0);
		break;
	case 3:
		ck_assert(!verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep)));
		break;
	case 4:
		verbs_ep_flush(a->ep, true);
		break;
	case 5: /* does not fit */
		frames(50, 100);
		ck_assert_uint_eq(frames(1, 2000), 1);
		break;
	}
	ck_assert(world_ep(a)->held == (_i == 5));
	ck_assert_uint_eq(world_ep(a)->nwr_listed, 0);
	frames(3, 64);
	world_run();
	ck_assert(world_all_came(a, b));
	ck_assert_uint_eq(a->downs + b->downs, 0);
}
END_TEST

static void handled(void)
{
	while (mock_step())
		;
}

/* Before a thread sleeps. */
START_TEST(test_before_sleep)
{
	learn();
	ck_assert_uint_eq(frames(4, 64), 1);
	world_attention(_i ? RDS_ATT_LEADER : RDS_ATT_HELPER);
	ck_assert(a->speak);
	verbs_ep_push(a->ep);
	ck_assert(!world_ep(a)->held);
	world_run();
	ck_assert(world_all_came(a, b));
}
END_TEST

/* Nobody looks: it goes after two pulses (of 1 ms) at most, and next time the endpoint knows better. */
START_TEST(test_unattended)
{
	unsigned i;

	learn();
	ck_assert_uint_eq(frames(4, 64), 1);
	world_tick(MS);
	ck_assert(world_ep(a)->held);
	ck_assert_uint_eq(frames(1, 64), 0);
	world_tick(MS);
	if (_i) { /* the program is at it, just slow */
		ck_assert_uint_eq(frames(1, 64), 0);
		world_tick(MS);
		ck_assert(!a->speak);
	}
	world_tick(MS);
	ck_assert(a->speak);
	a->speak = false;
	verbs_ep_push(a->ep);
	ck_assert(!world_ep(a)->held);
	handled();
	world_run();
	ck_assert(world_all_came(a, b));
	send_n(b, 1, 8);
	world_run();
	for (i = 0; i < 7; i++) {
		ck_assert_uint_eq(frames(5, 64), 5);
		run_of(1, 64);
	}
	run_of(5, 64);
	ck_assert_uint_eq(frames(5, 64), 1); /* eight long ones since */
	world_pass(10 * MS);
	ck_assert(!world_timer_due(100 * MS)); /* nothing ticks for ever */
}
END_TEST

/* One that adds a message now and then waits no longer, and its next ones do not wait. */
START_TEST(test_slow_speaker)
{
	unsigned i;

	learn();
	ck_assert_uint_eq(frames(4, 64), 1);
	for (i = 0; i < 5 && !a->speak; i++) {
		world_tick(MS);
		ck_assert_uint_eq(frames(1, 64), 0);
	}
	ck_assert_uint_eq(i, 5);
	ck_assert(a->speak);
	world_run();
	ck_assert(world_all_came(a, b));
	run_of(1, 64);
	ck_assert_uint_eq(frames(5, 64), 5);
}
END_TEST

/* So many segments may go now, for all that the peer has told. */
static void may_go(struct verbs_ep *ep, uint32_t n)
{
	/* the last is for credits */
	atomic_store(&ep->known_told, atomic_load(&ep->known_used) + n + 1);
}

/*
 * On devices where frames are counted, a frame costs one credit.  A frame that waits for credits
 * takes more messages until they come.
 */
START_TEST(test_waits_for_credits)
{
	struct verbs_ep *ep;
	uint32_t told;

	learn();
	ep = world_ep(a);
	ck_assert_uint_eq(frames(20, 64), 1);
	world_run();
	send_n(b, 1, 8);
	world_run();
	if (!ep->dev->caps.credits)
		return;
	ck_assert_uint_ge(verbs_credit_count(ep), 3);
	told = atomic_load(&ep->known_told);
	may_go(ep, 0);
	ck_assert_int_eq(world_send(a, 64, 0), 0);
	ck_assert_int_eq(world_send(a, 64, 0), -EAGAIN);
	may_go(ep, 1);
	send_n(a, 3, 64); /* held */
	may_go(ep, 0);
	verbs_ep_push(a->ep);
	ck_assert_uint_eq(ep->unfinished, 1);
	send_n(a, 3, 64);
	ck_assert_uint_eq(ep->unfinished, 1);
	ck_assert_int_eq(world_send(a, ep->frame / 4 + 1, 0), -EAGAIN);
	atomic_store(&ep->known_told, told);
	world_run();
	verbs_ep_push(a->ep);
	world_run();
	ck_assert(world_all_came(a, b));
}
END_TEST

/* Kept for the next connection, or dropped; what is freed is the mock's to check. */
START_TEST(test_end_while_held)
{
	struct rds_ep *kept = NULL;

	learn();
	ck_assert_uint_eq(frames(5, 64), 1);
	if (_i) {
		kept = a->ep;
		verbs_ep_keep(kept, true);
	}
	world_close(a);
	world_pass(3000 * MS);
	if (kept)
		verbs_ep_keep(kept, false);
	world_close(b);
	world_pass(3000 * MS);
	ck_assert_ptr_null(verbs_eps.all);
	ck_assert_ptr_null(rds_transport_batches);
}
END_TEST

/* All of a group stays until its last message is acknowledged. */
START_TEST(test_retained)
{
	struct iovec iov;
	struct rds_wire_hdr w;
	unsigned char bytes[600];
	uint64_t pos[20];
	unsigned i;

	learn();
	for (i = 0; i < 20; i++) {
		world_fill(a->tx_seq + 1, bytes, sizeof(bytes));
		rds_wire_hdr_encode(&(struct rds_hdr){.seq = a->tx_seq + 1, .len = 600, .sport = 1, .dport = 2}, &w,
				    false);
		iov = (struct iovec){bytes, sizeof(bytes)};
		ck_assert_int_eq(verbs_ep_send(a->ep, &w, &iov, sizeof(bytes), &pos[i]), 0);
		a->tx_seq++;
	}
	for (i = 0; i < 20; i++)
		ck_assert(world_intact(a->tx_seq - 19 + i, verbs_ep_retained(a->ep, pos[i]), sizeof(bytes)));
	verbs_ep_want_room(a->ep, verbs_ep_acked(a->ep));
	world_run();
	ck_assert_uint_eq(verbs_ep_acked(a->ep), a->tx_seq);
	ck_assert(world_all_came(a, b));
}
END_TEST

/* ---- received ---- */

static unsigned char frame[PEER_BUF];
static size_t frame_len;

/* Behind what is there; len: what its header says. */
static void add(uint64_t seq, uint32_t len, size_t bytes, uint8_t flags)
{
	frame_len = VERBS_ALIGN(frame_len);
	rds_wire_hdr_encode(&(struct rds_hdr){.seq = seq, .len = len, .sport = 1, .dport = 2, .flags = flags},
			    (struct rds_wire_hdr *)(void *)(frame + frame_len), false);
	world_fill(seq, frame + frame_len + VERBS_HDR, bytes);
	frame_len += VERBS_HDR + bytes;
}

static void joined(void)
{
	world_up_by(a, 32);
	add(1, 1, 1, 0);
	add(2, 0, 0, 0);
	add(3, 500, 500, 0);
}

static void came(unsigned n)
{
	unsigned i;

	ck_assert_uint_eq(a->nmsgs, n);
	for (i = 0; i < n; i++) {
		ck_assert_uint_eq(a->msg[i].seq, i + 1);
		ck_assert(a->msg[i].intact);
	}
}

START_TEST(test_several_come)
{
	joined();
	add(4, 3, 3, 0);
	add(5, 1000, 1000, 0);
	world.later = (unsigned)_i; /* no memory, in the midst of it, too */
	peer_send(&world.peer, frame, frame_len, IBV_SEND_SIGNALED);
	do {
		world_run();
	} while (world.later);
	world_run();
	came(5);
	world_buffers_out(0);
}
END_TEST

/* No memory for the n-th, and then the end. */
START_TEST(test_end_within)
{
	joined();
	world.keep_inplace = true;
	add(4, 300, 300, 0);
	add(5, 300, 300, 0);
	peer_send(&world.peer, frame, frame_len, IBV_SEND_SIGNALED);
	mock_run();
	world.refuse_from = (unsigned)_i + 1;
	world_look();
	came((unsigned)_i);
	world_close(a);
	world.refuse_from = 0;
	world_pass(3000 * MS);
	world_buffers_out(world.ninplace > 0);
	world_release();
	world_pass(100 * MS);
	world_buffers_out(0);
	ck_assert_ptr_null(verbs_eps.all);
}
END_TEST

/* The buffer goes back with the last of its messages. */
START_TEST(test_in_place)
{
	unsigned i, n;

	joined();
	add(4, 1000, 1000, 0);
	add(5, 10, 10, 0);
	world.keep_inplace = true;
	peer_send(&world.peer, frame, frame_len, IBV_SEND_SIGNALED);
	world_run();
	came(5);
	ck_assert_uint_eq(n = world.ninplace, 2);
	for (i = 0; i < n; i++) {
		world_buffers_out(1);
		rx_lock();
		verbs_ep_release(world.inplace[i].ep, world.inplace[i].token);
		rx_unlock();
	}
	world.ninplace = 0;
	world_buffers_out(0);
}
END_TEST

/* Nothing of such a frame is taken, not even what stands before it and looks well. */
START_TEST(test_nonsense)
{
	joined();
	switch (_i) {
	case 0: /* not all of a header */
		memset(frame + frame_len, 0, 100);
		frame_len = VERBS_ALIGN(frame_len) + VERBS_HDR - 1;
		break;
	case 1: /* a length beyond the end */
		add(4, 100, 99, 0);
		break;
	case 2: /* the padding alone */
		add(4, 5, 5, 0);
		frame_len += 3;
		break;
	case 3: /* a piece of a larger one */
		add(4, 20000, 4000, 0);
		break;
	case 4:
		add(4, UINT32_MAX, 4000, 0);
		break;
	case 5: /* a wrong checksum */
		add(4, 0, 0, 0);
		((struct rds_wire_hdr *)(void *)(frame + frame_len - VERBS_HDR))->csum = 0x1234;
		break;
	}
	peer_send(&world.peer, frame, frame_len, IBV_SEND_SIGNALED);
	world_run();
	came(0);
	ck_assert_uint_eq(a->downs, 1);
	ck_assert_int_eq(a->why, -EPROTO);
	world_pass(2000 * MS);
	world_buffers_out(0);
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_loop_test(t, test_run, 0, 17);
	tcase_add_loop_test(t, test_not_learnt, 1, 3);
	tcase_add_test(t, test_long_runs);
	tcase_add_test(t, test_forgets);
	tcase_add_test(t, test_full);
	tcase_add_loop_test(t, test_order, 0, 6);
	tcase_add_loop_test(t, test_before_sleep, 0, 2);
	tcase_add_loop_test(t, test_unattended, 0, 2);
	tcase_add_test(t, test_slow_speaker);
	tcase_add_test(t, test_waits_for_credits);
	tcase_add_loop_test(t, test_end_while_held, 0, 2);
	tcase_add_test(t, test_retained);
	tcase_add_loop_test(t, test_several_come, 0, 12);
	tcase_add_loop_test(t, test_end_within, 0, 5);
	tcase_add_loop_test(t, test_nonsense, 0, 6);
}

int main(void)
{
	Suite *s = suite_create("verbs_batch");

	TCase *ib = world_case(s, "ib", world_ib);

	tests(ib);
	tcase_add_test(ib, test_in_place); /* on iWARP such small ones are copied */
	tests(world_case(s, "iwarp", world_iwarp));
	return suite_run(s);
}
