/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_progress.c - which thread handles arrivals while a program sends (progress/progress.c), and
 * how long a waiting thread spins (progress/spin.c).
 */
#include <check.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/conn/incoming.h"
#include "engine/helper/helper.h"
#include "engine/helper/leader.h"
#include "engine/node/registry.h"
#include "engine/node/stats.h"
#include "engine/progress/progress.h"
#include "engine/progress/state.h"
#include "engine/progress/wait.h"
#include "engine/rds.h"
#include "engine/socket/socket.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/os.h"
#include "engine/sys/process.h"
#include "engine/transport/transport.h"
#include "engine/wire/addr.h"
#include "tests/unit/suite.h"

#define MS 1000000ull
#define TICK (10 * MS)
#define WAKES 4				    /* of the helper: from then on the sends look */
#define PER_LOOK (65536u / (64 + 4096) + 1) /* messages of 64 bytes */

/* ---- the clock (rds_os_clock) and the helper's timers (--wrap) ---- */

static uint64_t now, exact; /* exact: of the other clock, which goes by itself if it is 0 */
static struct rds_timer *lease;

void __wrap_rds_timer_set(struct rds_timer *tm, uint64_t due_ns);

static int coarse_clock(clockid_t which, struct timespec *ts)
{
	uint64_t at = which == CLOCK_MONOTONIC_COARSE ? now : exact;

	if (!at)
		return clock_gettime(which, ts);
	*ts = (struct timespec){.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)};
	return 0;
}

void __wrap_rds_timer_set(struct rds_timer *tm, uint64_t due_ns)
{
	(void)due_ns;
	lease = tm;
}

static unsigned waited; /* for the helper */
static uint64_t waited_ns;

void __wrap_rds_helper_await_turn(uint64_t ns);
void __wrap_rds_helper_await_turn(uint64_t ns)
{
	waited++;
	waited_ns = ns;
}

/* A tick of the helper's, if it is to look. */
static void tick(void)
{
	struct rds_timer *tm = lease;

	now += TICK;
	lease = NULL;
	if (tm)
		tm->fn(tm);
}

/* ---- two transports that note who looks, and how often ---- */

static enum rds_attention shown;
static unsigned looks;
static bool aside; /* the last one */

static bool fake_progress(struct rds_transport *t)
{
	(void)t;
	looks++;
	aside = rds_transport_looks_aside;
	return false;
}

static bool fake_pending(struct rds_transport *t)
{
	(void)t;
	return false;
}

static bool fake_relieve(struct rds_transport *t, bool at_once)
{
	(void)t;
	(void)at_once;
	return false;
}

static enum rds_attention other_shown;

static void other_attention(struct rds_transport *t, enum rds_attention who)
{
	(void)t;
	other_shown = who;
}

static bool other_progress(struct rds_transport *t)
{
	(void)t;
	return false;
}

static void fake_attention(struct rds_transport *t, enum rds_attention who)
{
	(void)t;
	shown = who;
}

static unsigned exit_waits;

static void fake_exit_wait(struct rds_transport *t)
{
	(void)t;
	exit_waits++;
}

static const struct rds_transport_ops ops = {.progress = fake_progress,
					     .pending = fake_pending,
					     .relieve = fake_relieve,
					     .attention = fake_attention,
					     .exit_wait = fake_exit_wait};
static const struct rds_transport_ops other_ops = {
	.progress = other_progress, .pending = fake_pending, .relieve = fake_relieve, .attention = other_attention};
static struct rds_transport device = {.ops = &ops}, other = {.ops = &other_ops};

static struct rds_sock sock;

static void end_now(void)
{
	rds_progress_exit_now(false);
}

static void end_in_handler(void)
{
	rds_progress_exit_now(true);
}

static void update(void)
{
	rx_lock();
	rds_progress_attention_update();
	rx_unlock();
}

static void setup(void)
{
	memset(&sock, 0, sizeof(sock));
	os_process_start();
	atomic_store(&rds_helper_up, true);
	rds_transport_set.nfar = 1;
	rds_transport_set.shm = &other;
	rds_transport_set.far[0] = &device;
	rds_os_clock = coarse_clock;
	now = 1000 * MS;
	atomic_store(&rds_progress_attention, RDS_ATT_POLLING); /* so that a change is told */
	update();
	ck_assert_int_eq(shown, RDS_ATT_HELPER);
}

static void sends(unsigned n)
{
	while (n--)
		rds_progress_send_made(64);
}

static void wakes(unsigned n)
{
	while (n--) {
		rx_lock();
		rds_progress_helper_woken();
		rx_unlock();
	}
}

/* A spin that finds something, or not. */
static void spins(bool found)
{
	rx_lock();
	rds_progress_spin_enter();
	rds_progress_spin_leave(found);
	rx_unlock();
}

/* Attention may be LAZY for other reasons: then only threads that wait look. */
static void sends_do_not_look(void)
{
	spins(true);
	ck_assert_int_eq(shown, RDS_ATT_LAZY);
	looks = 0;
	sends(PER_LOOK * 2);
	ck_assert_uint_eq(looks, 0);
}

static void sends_and_wakes(unsigned n)
{
	while (n--) {
		sends(1);
		wakes(1);
	}
}

/* ---- sends that look ---- */

START_TEST(test_sends_take_over)
{
	sends_and_wakes(WAKES - 1);
	ck_assert_int_eq(shown, RDS_ATT_HELPER);
	ck_assert_uint_eq(looks, 0);
	sends_and_wakes(1);
	ck_assert_int_eq(shown, RDS_ATT_LAZY);
	sends(PER_LOOK - 1);
	ck_assert_uint_eq(looks, 0);
	sends(1);
	ck_assert_uint_eq(looks, 1);
	rds_progress_send_made(65536); /* at once */
	ck_assert_uint_eq(looks, 2);
}
END_TEST

/* As long as they come: a whole tick without one, and the helper is back. */
START_TEST(test_lease)
{
	unsigned i;

	sends_and_wakes(WAKES);
	tick(); /* what happened in the one that has begun does not count against it */
	for (i = 0; i < 5; i++) {
		sends(PER_LOOK);
		tick();
		ck_assert_int_eq(shown, RDS_ATT_LAZY);
	}
	tick();
	ck_assert_int_eq(shown, RDS_ATT_HELPER);
	sends(PER_LOOK * 2);
	ck_assert_ptr_null(lease);
	sends_do_not_look();
	tick();
	tick();
	ck_assert_int_eq(shown, RDS_ATT_HELPER);
	sends_and_wakes(WAKES); /* and again */
	ck_assert_int_eq(shown, RDS_ATT_LAZY);
	looks = 0;
	sends(PER_LOOK);
	ck_assert_uint_eq(looks, 1);
}
END_TEST

/* Woken again and again, but the program does not send; or seldom. */
START_TEST(test_others_are_helped)
{
	unsigned i;

	wakes(100);
	sends(1);
	wakes(100);
	ck_assert_int_eq(shown, RDS_ATT_HELPER);
	for (i = 0; i < 10; i++) {
		now += TICK + MS;
		sends_and_wakes(1);
	}
	ck_assert_int_eq(shown, RDS_ATT_HELPER);
}
END_TEST

/*
 * For a thread that sleeps in the kernel, the stand-in shows input as soon as it is there; _i: even
 * if the sends look already.
 */
START_TEST(test_kernel_watches)
{
	if (_i)
		sends_and_wakes(WAKES);
	rx_lock();
	rds_progress_others_watch();
	rx_unlock();
	ck_assert_int_eq(shown, RDS_ATT_HELPER);
	sends_and_wakes(10 * WAKES);
	ck_assert_int_eq(shown, RDS_ATT_HELPER);
	ck_assert_uint_eq(looks, 0);
}
END_TEST

/*
 * A message comes while no thread waits, and its program sleeps in the kernel by a call that is not
 * interposed, or the socket is borrowed; _i: the helper itself has received it, and does not set a
 * timer for that.
 */
START_TEST(test_unread_is_shown)
{
	struct rds_inc message = {.next = NULL};
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	os_fd_init(&sock.pair);
	atomic_store(&sock.pair.n[0], pair[1]);
	atomic_store(&sock.ref, 1);
	atomic_store(&sock.open, true);
	sock.rx_head = &message;
	rds_helper_is_self = _i;
	rx_lock();
	rds_sock_wake(&sock, POLLIN);
	rx_unlock();
	ck_assert_int_eq(lease == NULL, _i);
	if (_i)
		rds_progress_helper_round();
	else
		tick();
	ck_assert_int_eq(poll(&(struct pollfd){.fd = pair[0], .events = POLLIN}, 1, 0), 1);
	ck_assert_ptr_null(lease);
}
END_TEST

/*
 * Every end of the process is the transport's concern, too: it may have to wait although no message
 * does.  Not that of a process that has no helper, nor that of one without a device.
 */
START_TEST(test_exit_waits)
{
	void (*const end[])(void) = {rds_progress_exit, end_now, end_in_handler};

	rds_engine_join();
	end[_i]();
	ck_assert_uint_eq(exit_waits, 1);
	atomic_store(&rds_helper_up, false);
	end[_i]();
	atomic_store(&rds_helper_up, true);
	rds_transport_set.nfar = 0;
	end[_i]();
	ck_assert_uint_eq(exit_waits, 1);
}
END_TEST

/* Nothing of it without a device: the other transport's peers know whom they need not wake. */
START_TEST(test_no_device)
{
	rds_transport_set.nfar = 0;
	update();
	sends_and_wakes(10 * WAKES);
	ck_assert(!atomic_load(&progress_state.sent));
	ck_assert_int_eq(shown, RDS_ATT_HELPER);
}
END_TEST

/* A spin that brought nothing: the thread is about to sleep, and what comes wakes a thread. */
START_TEST(test_spin_fails)
{
	sends_and_wakes(WAKES);
	spins(false);
	ck_assert_int_eq(shown, RDS_ATT_HELPER);
	sends_do_not_look();
}
END_TEST

static unsigned posted;

static void post(void)
{
	posted++;
}

/* Where the leader sleeps when what came last is of a peer that finds its socket by name; _i: or not. */
START_TEST(test_leader_by_name)
{
	static _Atomic int named;
	struct rds_wait *w = rds_wait_begin(0);
	int fds[2], pair[2];

	ck_assert(pipe2(fds, O_CLOEXEC) == 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0);
	atomic_store(&rds_helper_leader.fd, fds[0]);
	atomic_store(&rds_helper_leader.post.n[0], fds[1]);
	atomic_store(&named, pair[0]);
	atomic_store(&rds_helper_leader.named_fd, &named);
	rds_helper_leader.post_named = post;
	rds_helper_leader.by_name = !_i;
	ck_assert(rds_wait_arm(w));
	ck_assert_int_eq(other_shown, _i ? RDS_ATT_LEADER : RDS_ATT_NAMED);
	ck_assert_int_eq(shown, RDS_ATT_HELPER);
	ck_assert_int_eq(rds_wait_fd(w), _i ? fds[0] : pair[0]);
	rds_wait_wake(w);
	rds_wait_wake(w);
	ck_assert_uint_eq(posted, !_i);
	ck_assert_int_eq(poll(&(struct pollfd){.fd = fds[0], .events = POLLIN}, 1, 0), _i);
	rds_wait_end(w);
	ck_assert_int_eq(other_shown, RDS_ATT_HELPER);
}
END_TEST

/* What a send's look finds held back, for others to go with, stays so. */
START_TEST(test_aside)
{
	sends_and_wakes(WAKES);
	sends(PER_LOOK);
	ck_assert_uint_eq(looks, 1);
	ck_assert(aside);
	ck_assert(!rds_transport_looks_aside);
}
END_TEST

/* ---- a program that only looks, and a helper that may have no processor ---- */

#define MAKES_WAY 16 /* calls in vain */
#define LATE (20 * MS)
#define WAY MS

static void finds_nothing(unsigned n)
{
	while (n--)
		rds_progress_found_nothing();
}

/* The helper ticks as long as there are such calls, and nothing waits for it. */
START_TEST(test_in_time)
{
	unsigned i;

	finds_nothing(MAKES_WAY - 1);
	ck_assert_ptr_null(lease);
	for (i = 0; i < 20; i++) {
		finds_nothing(MAKES_WAY);
		ck_assert_ptr_nonnull(lease);
		now += LATE - MS;
		finds_nothing(10 * MAKES_WAY);
		tick();
		ck_assert_ptr_nonnull(lease); /* no call sets the timer again */
	}
	tick();
	ck_assert_ptr_null(lease);
	ck_assert_int_eq(shown, RDS_ATT_HELPER);
	ck_assert_uint_eq(waited, 0);
}
END_TEST

/* _i: it has other reasons to tick. */
START_TEST(test_late)
{
	exact = now;
	if (_i)
		spins(true);
	finds_nothing(MAKES_WAY);
	now += TICK + LATE;
	finds_nothing(MAKES_WAY);
	ck_assert_uint_eq(waited, 1);
	ck_assert_uint_eq(waited_ns, WAY);
	exact += WAY; /* in vain */
	finds_nothing(10 * MAKES_WAY);
	ck_assert_uint_eq(waited, 1);
	now += LATE;
	finds_nothing(MAKES_WAY);
	ck_assert_uint_eq(waited, 2);
	ck_assert_uint_eq(waited_ns, WAY);
	tick();
	finds_nothing(10 * MAKES_WAY);
	ck_assert_uint_eq(waited, 2);
}
END_TEST

/* A second thread, on the same processor: both sleep until the same time. */
START_TEST(test_both_make_way)
{
	exact = now;
	finds_nothing(MAKES_WAY);
	now += TICK + LATE;
	finds_nothing(MAKES_WAY);
	exact += WAY / 4;
	finds_nothing(MAKES_WAY);
	ck_assert_uint_eq(waited, 2);
	ck_assert_uint_eq(waited_ns, WAY - WAY / 4);
	exact += WAY - WAY / 4;
	finds_nothing(10 * MAKES_WAY);
	ck_assert_uint_eq(waited, 2);
}
END_TEST

/* The helper calls for other processes (rds_call_recv_proxy()). */
START_TEST(test_helper_finds_nothing)
{
	finds_nothing(MAKES_WAY);
	now += TICK + LATE;
	rds_helper_is_self = true;
	finds_nothing(10 * MAKES_WAY);
	ck_assert_uint_eq(waited, 0);
}
END_TEST

/* ---- how long to spin ---- */

static uint64_t would_spin(void)
{
	struct rds_wait *w = rds_wait_begin(0);
	uint64_t ns;

	ck_assert_ptr_nonnull(w);
	w->n = 0;
	ck_assert(rds_wait_spin(w));
	ns = w->spin_until - w->spin_start;
	rds_wait_spin_end(w);
	rds_wait_end(w);
	return ns;
}

static void sleeps_cost(unsigned n, uint64_t ns)
{
	while (n--)
		rds_wait_spin_sleep_cost(ns);
}

#define FIRST 8

/*
 * What the very first sleeps cost is no measure: they bring in code and memory.  Before there are
 * enough of them none is.
 */
START_TEST(test_first_sleeps)
{
	uint64_t least = would_spin();

	ck_assert(rds_wait_spin_measures());
	rds_wait_spin_sleep_cost(4 * MS);
	rds_wait_spin_sleep_cost(MS / 2);
	rds_wait_spin_sleep_cost(MS / 20);
	sleeps_cost(FIRST - 4, MS / 10);
	ck_assert_uint_eq(would_spin(), least);
	/* one that was about to sleep, and did not, does not count */
	ck_assert(rds_wait_spin_measures());
	sleeps_cost(1, MS / 10);
	ck_assert_uint_eq(would_spin(), 12 * MS / 20);
}
END_TEST

/* Of the later ones every 16th is measured. */
START_TEST(test_measured)
{
	unsigned i, n = 0;

	sleeps_cost(FIRST, MS / 10);
	for (i = 0; i < 160; i++)
		n += rds_wait_spin_measures();
	ck_assert_uint_eq(n, 10);
}
END_TEST

/*
 * Later neither the quickest count, which were none, nor the slow ones of a busy machine: what a
 * fifth stays below.
 */
START_TEST(test_most_sleeps)
{
	unsigned i;

	sleeps_cost(FIRST, MS / 10);
	for (i = 0; i < 50; i++) {
		sleeps_cost(1, MS / 100);
		sleeps_cost(5, MS / 10);
		sleeps_cost(4, 20 * MS);
	}
	ck_assert_uint_ge(would_spin(), 12 * MS / 10 * 3 / 4);
	ck_assert_uint_le(would_spin(), 12 * MS / 10 * 4 / 3);
	sleeps_cost(50, MS / 50); /* the machine has become quicker */
	ck_assert_uint_le(would_spin(), 12 * MS / 50 * 4 / 3);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("progress");
	TCase *t = tcase_create("sends"), *vain = tcase_create("vain"), *spin = tcase_create("spin");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, test_sends_take_over);
	tcase_add_test(t, test_lease);
	tcase_add_test(t, test_others_are_helped);
	tcase_add_loop_test(t, test_kernel_watches, 0, 2);
	tcase_add_loop_test(t, test_unread_is_shown, 0, 2);
	tcase_add_loop_test(t, test_exit_waits, 0, 3);
	tcase_add_test(t, test_no_device);
	tcase_add_test(t, test_spin_fails);
	tcase_add_test(t, test_aside);
	tcase_add_loop_test(t, test_leader_by_name, 0, 2);
	suite_add_tcase(s, t);
	tcase_add_checked_fixture(vain, setup, NULL);
	tcase_add_test(vain, test_in_time);
	tcase_add_loop_test(vain, test_late, 0, 2);
	tcase_add_test(vain, test_both_make_way);
	tcase_add_test(vain, test_helper_finds_nothing);
	suite_add_tcase(s, vain);
	tcase_add_checked_fixture(spin, setup, NULL);
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1) { /* with one, nobody spins */
		tcase_add_test(spin, test_first_sleeps);
		tcase_add_test(spin, test_measured);
		tcase_add_test(spin, test_most_sleeps);
	}
	suite_add_tcase(s, spin);
	return suite_run(s);
}
