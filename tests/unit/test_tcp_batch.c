/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_tcp_batch.c - which small messages wait for others, until when, and what a mistake costs.
 *
 * While messages are counted the helper waits, so that no pulse comes in between.
 */
#include "tests/unit/tcp_helper.h"

#define SIZE 64
#define FRAME (RDS_WIRE_HDR + SIZE)

static struct rds_conn *const conn = &conns[2];
static uint64_t seq, answers;
static _Atomic bool helper_goes_on;
static bool helper_closes;

static void helper_waits(void)
{
	test_until(atomic_load(&helper_goes_on));
	if (!helper_closes)
		return;
	rds_tcp.ops->close(conn->ep);
	conn->ep = NULL;
}

static void helper_stops(void)
{
	atomic_store(&helper_goes_on, false);
	in_helper_begin(helper_waits);
}

static void helper_runs(void)
{
	atomic_store(&helper_goes_on, true);
	test_until(atomic_load(&work_done));
}

static struct tcp_ep *ep(void)
{
	return (struct tcp_ep *)conn->ep;
}

/* Bytes that the kernel is given while so many messages are sent. */
static uint64_t given(unsigned n, uint32_t len)
{
	uint64_t before = atomic_load(&ep()->out.written);

	while (n--)
		engine_sends(conn, ++seq, len);
	return atomic_load(&ep()->out.written) - before;
}

static void all_given(void)
{
	ck_assert_uint_eq(atomic_load(&ep()->out.written), ep()->out.queued);
}

static void peer_answers(int fd)
{
	unsigned n = atomic_load(&conn->nseen);

	peer_sends(fd, ++answers, 8, 0);
	progress_until(atomic_load(&conn->nseen) > n);
	all_given();
}

/* Up, and as many long runs have been seen as it takes. */
static int learnt(void)
{
	int fd = peer_is_up();
	unsigned i;

	helper_stops();
	for (i = 0; i < 4; i++) {
		ck_assert_uint_eq(given(4, SIZE), 4 * FRAME);
		peer_answers(fd);
	}
	return fd;
}

/* The first of a run goes; the others when the program looks, together and in order. */
START_TEST(test_held)
{
	unsigned char *bytes = malloc(21 * FRAME);
	struct rds_hdr h;
	int fd = learnt();
	unsigned i;

	ck_assert_uint_eq(given(5, SIZE), FRAME);
	progress();
	all_given();
	peer_reads(fd, bytes, 21 * FRAME);
	for (i = 0; i < 21; i++) {
		ck_assert_int_eq(rds_wire_hdr_decode_node(bytes + i * FRAME, &h), 0);
		ck_assert_uint_eq(h.seq, i + 1);
	}
	helper_runs();
	free(bytes);
	close(fd);
}
END_TEST

/* Nothing for messages that are answered one by one, or two by two. */
START_TEST(test_not_learnt)
{
	int fd = peer_is_up();
	unsigned i;

	helper_stops();
	for (i = 0; i < 20; i++) {
		ck_assert_uint_eq(given((unsigned)_i, SIZE), (unsigned)_i * FRAME);
		peer_answers(fd);
	}
	helper_runs();
	close(fd);
}
END_TEST

static void room_wanted(void)
{
	rds_tcp.ops->flush(conn->ep, true);
	rds_tcp.ops->want_room(conn->ep, UINT64_MAX);
}

/* What else makes them go. */
START_TEST(test_goes)
{
	int fd = learnt();

	ck_assert_uint_eq(given(3, SIZE), FRAME);
	switch (_i) {
	case 0: /* a large one behind them */
		ck_assert_uint_eq(given(1, 8192), 2 * FRAME + RDS_WIRE_HDR + 8192);
		break;
	case 1: /* they have become many */
		ck_assert_uint_ge(given(40, SIZE), 30 * FRAME);
		progress();
		break;
	case 2:
		pthread_mutex_lock(&tx);
		room_wanted();
		pthread_mutex_unlock(&tx);
		break;
	case 3: /* nobody looks from now on */
		rx_lock();
		rds_tcp.ops->attention(&rds_tcp, RDS_ATT_HELPER);
		rx_unlock();
		ck_assert_uint_eq(atomic_load(&conn->pushes), 1);
		progress();
		break;
	}
	all_given();
	helper_runs();
	close(fd);
}
END_TEST

/* Nobody looks: they go all the same, and the next ones do not wait. */
START_TEST(test_unattended)
{
	int fd = learnt();

	ck_assert_uint_eq(given(5, SIZE), FRAME);
	ck_assert_uint_eq(atomic_load(&conn->pushes), 0);
	helper_runs();
	test_until(atomic_load(&conn->pushes) == 1);
	helper_stops();
	progress();
	all_given();
	ck_assert_uint_eq(given(5, SIZE), 5 * FRAME);
	peer_answers(fd);
	ck_assert_uint_eq(given(5, SIZE), 5 * FRAME);
	helper_runs();
	close(fd);
}
END_TEST

START_TEST(test_end_while_held)
{
	int fd = learnt();

	ck_assert_uint_eq(given(5, SIZE), FRAME);
	ck_assert_ptr_eq(rds_transport_batches, &ep()->batch);
	helper_closes = true;
	helper_runs();
	ck_assert_ptr_null(rds_transport_batches);
	ck_all_freed();
	close(fd);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("tcp_batch");
	TCase *t = suite_case(s, "hold", tcp_setup_own, NULL);

	tcase_add_test(t, test_held);
	tcase_add_loop_test(t, test_not_learnt, 1, 3);
	tcase_add_loop_test(t, test_goes, 0, 4);
	tcase_add_test(t, test_unattended);
	tcase_add_test(t, test_end_while_held);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
