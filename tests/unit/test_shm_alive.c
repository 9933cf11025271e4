/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_alive.c - cold peers that end (transport/shm/alive.c): it is soon found of one for which
 * something waits, and an idle process does not wake up for the others.
 */
#include <stdlib.h>

#include "tests/unit/shm_peer_helper.h"

#define SECOND UINT64_C(1000000000)

bool __real_registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id);
bool __wrap_registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id);

static _Atomic bool killed;    /* the other process */
static _Atomic unsigned asked; /* does it live? */

bool __wrap_registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id)
{
	atomic_fetch_add(&asked, 1);
	return !atomic_load(&killed) && __real_registry_proc_alive(reg, slot, id);
}

/* ---- a connection with it ---- */

static _Atomic bool awaited = true;
static _Atomic unsigned downs;

static bool up_awaited(struct rds_conn *conn)
{
	(void)conn;
	return atomic_load(&awaited);
}

static void up_evacuate(struct rds_conn *conn, struct rds_ep *ep)
{
	(void)conn, (void)ep;
}

static void up_down(struct rds_conn *conn, struct rds_ep *ep, int why, bool gone)
{
	(void)conn, (void)why;
	ck_assert(gone);
	shm_close(ep);
	atomic_fetch_add(&downs, 1);
}

static const struct rds_transport_up up = {.awaited = up_awaited, .evacuate = up_evacuate, .down = up_down};
static struct rds_transport transport = {.up = &up};
static struct shm_ring_ctl ctl[2]; /* the other process has noticed all that is there */
static struct shm_ep *ep;

static void connect_5(void)
{
	ep = calloc(1, sizeof(*ep));
	ck_assert_ptr_nonnull(ep);
	ep->head.t = &transport;
	ep->up = true;
	ep->tx = &ctl[0];
	ep->rx = &ctl[1];
	ep->bell_here = SHM_BELLS - 1;
	ep->peer = peer_of(5);
	ep->peer->eps = ep;
}

/* The look that comes when all is quiet does not come. */
static void no_look(void)
{
	rds_timer_set(&rds_shm.look_timer, os_now_ns() + 3600 * SECOND);
}

static void sent_something(void)
{
	shm_recheck_later(ep);
}

static void got_something(void)
{
	shm_watch((struct rds_ep *)ep);
}

/* ---- each message is rechecked, also one for which the other process is not woken ---- */

static _Atomic bool watched;

static void find_watched(void)
{
	atomic_store(&watched, ep->watched);
}

static bool is_watched(void)
{
	in_helper(find_watched);
	return watched;
}

START_TEST(test_watched)
{
	int fd = comes(5, SHM_SESSION_NEW);

	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	in_helper(connect_5);
	ck_assert(!is_watched());
	say_op(fd, SHM_OP_COOL);
	close(fd);
	ck_assert_int_eq(warmth_of(5), SHM_COLD);
	ck_assert(is_watched());
	comes(5, SHM_SESSION_MINE);
	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	ck_assert(!is_watched());
}
END_TEST

/* ---- one that is awaited ---- */

static unsigned nawaited;

static void count_awaited(void)
{
	nawaited = rds_shm.queue[SHM_AWAITED].n;
}

static bool any_is_awaited(void)
{
	in_helper(count_awaited);
	return nawaited;
}

static void (*const begin_to_wait[])(void) = {sent_something, got_something};

/* The look that comes when it becomes cold is over, and has found nothing that waits. */
START_TEST(test_wait_begins)
{
	atomic_store(&awaited, false);
	becomes_cold();
	in_helper(connect_5);
	in_helper(no_look);
	test_until(!any_is_awaited());
	atomic_store(&awaited, true);
	atomic_store(&killed, true);
	in_helper(begin_to_wait[_i]);
	test_until(atomic_load(&downs));
	ck_assert_int_eq(warmth_of(5), -1);
}
END_TEST

START_TEST(test_becomes_cold_while_awaited)
{
	int fd = comes(5, SHM_SESSION_NEW);

	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	in_helper(connect_5);
	say_op(fd, SHM_OP_COOL);
	close(fd);
	ck_assert_int_eq(warmth_of(5), SHM_COLD);
	in_helper(no_look);
	atomic_store(&killed, true);
	test_until(atomic_load(&downs));
}
END_TEST

static uint64_t waited, looked_after, looked_before, due; /* 0: no look is due */

static void wait_on(void)
{
	rds_timer_cancel(&rds_shm.await_timer);
	looked_after = os_now_ns();
	rds_shm.await_since = looked_after - waited;
	rds_shm.await_timer.fn(&rds_shm.await_timer);
	looked_before = os_now_ns();
	due = rds_timer_is_set(&rds_shm.await_timer) ? rds_shm.await_timer.due_ns : 0;
}

/* The next look comes when the wait has lasted as long again. */
START_TEST(test_wait_goes_on)
{
	const uint64_t ms[][2] = {{0, 10}, {100, 100}, {500, 500}, {5000, 1000}};
	unsigned i;

	becomes_cold();
	in_helper(connect_5);
	in_helper(sent_something);
	test_until(any_is_awaited());
	for (i = 0; i < 4; i++) {
		waited = ms[i][0] * 1000000;
		in_helper(wait_on);
		ck_assert_uint_ge(due, looked_after + ms[i][1] * 1000000);
		/* the look itself takes time, by which the wait is longer */
		ck_assert_uint_le(due, looked_before + ms[i][1] * 1000000 + (looked_before - looked_after));
	}
	atomic_store(&awaited, false);
	in_helper(wait_on);
	ck_assert_uint_eq(due, 0);
}
END_TEST

/* ---- others ---- */

static uint64_t pause_ns;

static void look(void)
{
	rds_timer_cancel(&rds_shm.look_timer);
	rds_shm.look_timer.fn(&rds_shm.look_timer);
	pause_ns = rds_timer_is_set(&rds_shm.look_timer) ? rds_shm.look_timer.due_ns - os_now_ns() : 0;
}

START_TEST(test_idle)
{
	uint64_t last = SECOND;
	unsigned i;

	becomes_cold();
	for (i = 0; i < 8; i++) {
		in_helper(look);
		ck_assert_uint_gt(pause_ns, last);
		last = pause_ns + pause_ns / 2 < 3500 * SECOND ? pause_ns + pause_ns / 2 : 3500 * SECOND;
	}
	ck_assert_uint_lt(pause_ns, 3601 * SECOND);
	ck_assert_uint_lt(atomic_load(&asked), 16);
}
END_TEST

static void look_at_all(void)
{
	unsigned i;

	for (i = 0; i < 100 && rds_shm.looks; i++)
		look();
}

/* Where one ends the others are looked at, and what they have left is freed. */
START_TEST(test_many_end)
{
	const unsigned many = 12; /* 16 are all that one process may have */
	unsigned i;
	int fd;

	for (i = 0; i < many; i++) {
		fd = comes(i + 1, SHM_SESSION_NEW);
		ck_assert_int_eq(warmth_of(i + 1), SHM_WARM);
		say_op(fd, SHM_OP_COOL);
		close(fd);
		ck_assert_int_eq(warmth_of(i + 1), SHM_COLD);
	}
	in_helper(look_at_all);
	ck_assert_uint_eq(rds_shm.ncold, many);
	fd = comes(many + 1, SHM_SESSION_NEW);
	ck_assert_int_eq(warmth_of(many + 1), SHM_WARM);
	atomic_store(&killed, true);
	close(fd);
	test_until(warmth_of(many + 1) < 0);
	in_helper(look_at_all);
	helper_catches_up();
	ck_assert_uint_eq(rds_shm.ncold, 0);
	ck_assert_ptr_null(rds_shm.peers);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_alive");
	TCase *t = suite_case(s, "awaited", setup, NULL);

	tcase_add_test(t, test_watched);
	tcase_add_loop_test(t, test_wait_begins, 0, 2);
	tcase_add_test(t, test_becomes_cold_while_awaited);
	tcase_add_test(t, test_wait_goes_on);
	t = suite_case(s, "others", setup, NULL);
	tcase_add_test(t, test_idle);
	tcase_add_test(t, test_many_end);
	return suite_run(s);
}
