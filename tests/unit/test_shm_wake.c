/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_wake.c - which thread is woken, and which is told of room (transport/shm/wake.c), with
 * both ends of a ring in one process.
 *
 * Every step of the two ends is a call here, so the test can choose each order of events: above all
 * those that once lost a wake-up.
 */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/transport/shm/shm.h"
#include "tests/slow.h"
#include "tests/unit/suite.h"

static unsigned taken, writable;

static enum rds_rx_verdict up_message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	(void)conn, (void)ep, (void)rx;
	taken++;
	return RDS_RX_DONE;
}

static void up_writable(struct rds_conn *conn)
{
	(void)conn;
	writable++;
}

static void up_pressure(void)
{
}

static const struct rds_transport_up up = {.message = up_message, .writable = up_writable, .pressure = up_pressure};

/*
 * One process: its wake-up page, its end of a ring.  The side that acts is put into rds_shm for
 * that time.
 */
struct side {
	struct shm shm;
	struct shm_peer other;
	struct shm_ep ep;
	int leader[2], helper[2], ctl; /* what wakes it, our end of the control socket */
	struct shm_inbox inbox;
};

static struct side us, they;
/* Timers stay behind: nobody runs them here but the tests themselves. */
static void become(struct side *s, struct side *from)
{
	rds_timer_cancel(&rds_shm.recheck_timer);
	rds_timer_cancel(&rds_shm.sweep_timer);
	if (from)
		from->shm = rds_shm;
	rds_shm = s->shm;
}

static void knows(struct shm_peer *p, struct side *s)
{
	shm_peer_init(p);
	atomic_store(&p->leader.fd.n[0], s->leader[1]);
	atomic_store(&p->helper.fd.n[0], s->helper[1]);
	p->leader.has_reader = p->helper.has_reader = true;
	p->inbox = &s->inbox;
}

static void pipes_of(struct side *s, struct side *other, int ctl)
{
	ck_assert_int_eq(os_pipe(s->leader, O_NONBLOCK), 0);
	ck_assert_int_eq(os_pipe(s->helper, O_NONBLOCK), 0);
	knows(&other->other, s);
	atomic_store(&other->other.fd, ctl);
	other->ep.peer = &other->other;
	other->ep.there = &s->inbox;
}

static void side_init(struct side *s, struct shm_rings *rings, unsigned out)
{
	unsigned char *data = (unsigned char *)rings + SHM_CTL_BYTES;

	memset(s, 0, sizeof(*s));
	s->shm.t.up = &up;
	s->shm.inbox = &s->inbox;
	s->shm.need_bell = true;
	s->shm.announced = RDS_ATT_HELPER;
	atomic_store(&s->inbox.attention, RDS_ATT_HELPER);
	s->shm.peers = &s->other;
	s->other.eps = &s->ep;
	s->ep.head.t = &s->shm.t;
	s->ep.size = SHM_RING_MIN;
	s->ep.tx = &rings->ctl[out];
	s->ep.rx = &rings->ctl[!out];
	s->ep.tx_data = data + (out ? SHM_RING_MIN : 0);
	s->ep.rx_data = data + (out ? 0 : SHM_RING_MIN);
	s->ep.up = true;
	become(s, NULL);
	shm_recheck_init();
	ck_assert_int_eq(shm_bell_add(&s->ep), 0);
	s->shm = rds_shm;
	s->ep.head.t = &rds_shm.t;
}

static struct shm_rings *rings;

static void setup(void)
{
	int ctl[2];

	os_process_start();
	taken = writable = 0;
	rings = calloc(1, SHM_CTL_BYTES + 2 * (size_t)SHM_RING_MIN);
	ck_assert_ptr_nonnull(rings);
	atomic_store(&rings->ctl[0].need_bell, 1);
	atomic_store(&rings->ctl[1].need_bell, 1);
	side_init(&us, rings, 0);
	side_init(&they, rings, 1);
	us.ep.bell_there = they.ep.bell_here;
	they.ep.bell_there = us.ep.bell_here;
	ck_assert_int_eq(os_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ctl), 0);
	us.ctl = ctl[0];
	they.ctl = ctl[1];
	pipes_of(&us, &they, ctl[1]);
	pipes_of(&they, &us, ctl[0]);
	become(&us, NULL);
}

static void teardown(void)
{
	free(us.ep.slots);
	free(they.ep.slots);
	free(rings);
}

/*
 * A message from the one that is at it: what it wants of room, so that the peer has something to
 * acknowledge.
 */
static int give(struct side *s, size_t len)
{
	static char bytes[SHM_RING_MIN];
	struct rds_hdr hdr = {.seq = 1, .len = (uint32_t)len, .sport = 1, .dport = 2};
	struct iovec iov = {.iov_base = bytes, .iov_len = len};
	struct rds_wire_hdr wire;
	uint64_t pos;

	rds_wire_hdr_encode(&hdr, &wire, false);
	return shm_ring_send((struct rds_ep *)&s->ep, &wire, &iov, len, &pos);
}

static void flush(struct side *s)
{
	shm_flush((struct rds_ep *)&s->ep, false);
}

static void wish(struct side *s)
{
	shm_want_room((struct rds_ep *)&s->ep, 0);
}

/* ---- room ---- */

START_TEST(test_room_is_told_once)
{
	ck_assert_int_eq(give(&us, 100), 0);
	flush(&us);
	wish(&us);
	become(&they, &us);
	ck_assert(shm_progress(&rds_shm.t));
	ck_assert_uint_eq(taken, 1);
	become(&us, &they);
	shm_progress(&rds_shm.t);
	ck_assert_uint_eq(writable, 1);
	shm_bell_ring_own(&us.ep);
	shm_progress(&rds_shm.t); /* a bell for something else */
	ck_assert_uint_eq(writable, 1);
}
END_TEST

START_TEST(test_no_wish_no_answer)
{
	ck_assert_int_eq(give(&us, 100), 0);
	flush(&us);
	become(&they, &us);
	ck_assert(shm_progress(&rds_shm.t));
	become(&us, &they);
	ck_assert(!shm_pending(&rds_shm.t));
	shm_progress(&rds_shm.t);
	ck_assert_uint_eq(writable, 0);
}
END_TEST

/*
 * Two threads of ours: one sleeps for room, the peer reads everything and says so; before anybody
 * looks at the bell, the other is about to sleep and wishes, too.  The peer has nothing left to
 * read and will say nothing more.
 */
static void two_wishes(void)
{
	while (give(&us, 100000) == 0)
		;
	flush(&us);
	wish(&us);
	become(&they, &us);
	ck_assert(shm_progress(&rds_shm.t)); /* all of it: answered, bell rung */
	become(&us, &they);
	wish(&us);
	shm_progress(&rds_shm.t);
}

START_TEST(test_wish_does_not_take_answer_away)
{
	two_wishes();
	ck_assert_uint_eq(writable, 1);
}
END_TEST

START_TEST(test_later_wish_is_answered_later)
{
	two_wishes();
	ck_assert_int_eq(give(&us, 100), 0);
	flush(&us);
	become(&they, &us);
	ck_assert(shm_progress(&rds_shm.t));
	become(&us, &they);
	shm_progress(&rds_shm.t);
	ck_assert_uint_eq(writable, 2);
}
END_TEST

/* ---- who is woken ---- */

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return os_poll(&p, 1, 0) == 1;
}

static uint32_t who(const struct side *s)
{
	return atomic_load(&s->inbox.attention) & SHM_ATT_WHO;
}

static void announce(struct side *s, enum rds_attention a)
{
	become(s, NULL);
	shm_attention(&rds_shm.t, a);
	s->shm = rds_shm;
}

/* They send us something. */
static void they_send(void)
{
	become(&they, NULL);
	ck_assert_int_eq(give(&they, 100), 0);
	flush(&they);
	they.shm = rds_shm;
}

static bool we_look(void)
{
	bool moved;

	become(&us, NULL);
	moved = shm_progress(&rds_shm.t);
	us.shm = rds_shm;
	return moved;
}

START_TEST(test_leader_is_woken_once)
{
	announce(&us, RDS_ATT_LEADER);
	they_send();
	ck_assert(readable(us.leader[0]));
	ck_assert_uint_eq(who(&us), RDS_ATT_LAZY);
	ck_assert_int_eq(os_read(us.leader[0], (char[64]){0}, 64), 8);
	they_send();
	ck_assert(!readable(us.leader[0]));
	ck_assert(!they.shm.recheck_armed); /* we have done it ourselves: no doubt about it */
	ck_assert(we_look());
	ck_assert_uint_eq(taken, 2);
	announce(&us, RDS_ATT_LEADER);
	they_send();
	ck_assert(readable(us.leader[0]));
	ck_assert(!us.shm.sweep_armed);
}
END_TEST

START_TEST(test_helper_is_woken_once)
{
	announce(&us, RDS_ATT_HELPER);
	they_send();
	they_send();
	ck_assert(!readable(us.leader[0]));
	ck_assert_int_eq(os_read(us.helper[0], (char[64]){0}, 64), 8); /* one wake-up */
	ck_assert_uint_eq(who(&us), RDS_ATT_LAZY);
}
END_TEST

/* A wake-up that cannot be sent is not claimed: others may manage. */
START_TEST(test_failed_wake_is_not_claimed)
{
	struct shm_wake_fd *w = _i ? &they.other.helper : &they.other.leader;
	enum rds_attention a = _i ? RDS_ATT_HELPER : RDS_ATT_LEADER;
	int gone[2];

	ck_assert_int_eq(os_pipe(gone, O_NONBLOCK), 0);
	os_close(gone[0]);
	atomic_store(&w->fd.n[0], gone[1]);
	w->has_reader = false; /* nobody reads it: this must not be a SIGPIPE, either */
	announce(&us, a);
	they_send();
	ck_assert_uint_eq(who(&us), a);
	ck_assert(they.shm.recheck_armed);
}
END_TEST

static void their_helper(void)
{
	become(&they, NULL);
	rds_helper_deferred_run_own();
	they.shm = rds_shm;
}

/*
 * No number in the program's table, as before the first time: their helper wakes us, and only then
 * it is claimed.
 */
START_TEST(test_helper_wakes_for_the_program)
{
	struct shm_wake_fd *w = _i ? &they.other.helper : &they.other.leader;
	enum rds_attention a = _i ? RDS_ATT_HELPER : RDS_ATT_LEADER;
	int in = _i ? us.helper[0] : us.leader[0], out = os_fd(&w->fd);

	atomic_store(&w->fd.n[0], -1);
	announce(&us, a);
	they_send();
	they_send();
	ck_assert(!readable(in));
	ck_assert_uint_eq(who(&us), a);
	atomic_store(&w->fd.n[0], out); /* the helper has one */
	their_helper();
	ck_assert_int_eq(os_read(in, (char[64]){0}, 64), 8);
	ck_assert_uint_eq(who(&us), RDS_ATT_LAZY);
	their_helper();
	ck_assert(!readable(in));
	they_send();
	ck_assert(!readable(in));
	ck_assert(!they.shm.recheck_armed);
	ck_assert(we_look());
	ck_assert_uint_eq(taken, 3);
}
END_TEST

/* ... unless we have been awake and gone to sleep again in the meantime, for another reason. */
START_TEST(test_helper_finds_us_elsewhere)
{
	int out = os_fd(&they.other.leader.fd);

	atomic_store(&they.other.leader.fd.n[0], -1);
	announce(&us, RDS_ATT_LEADER);
	they_send();
	announce(&us, RDS_ATT_HELPER);
	atomic_store(&they.other.leader.fd.n[0], out);
	their_helper();
	ck_assert_uint_eq(who(&us), RDS_ATT_HELPER);
}
END_TEST

/*
 * A peer that is stopped while it wakes us - here by a pipe that takes nothing, so that we know
 * exactly where.  What others send must wake us all the same.
 */
static int stuck[2];

static void stop_them_in_write(void)
{
	char page[4096] = {0};

	ck_assert_int_eq(os_pipe(stuck, O_NONBLOCK), 0);
	while (os_write(stuck[1], page, sizeof(page)) > 0)
		;
	ck_assert_int_eq(os_fcntl(stuck[1], F_SETFL, 0), 0);
	atomic_store(&they.other.leader.fd.n[0], stuck[1]);
}

static _Atomic pid_t waker;

static void *stopped_waker(void *arg)
{
	(void)arg;
	atomic_store(&waker, gettid());
	flush(&they);
	return NULL;
}

static struct shm_ep third;
static struct shm_peer to_us;

/* A third process, as far as it takes to wake us. */
static void third_sends(void)
{
	static struct shm_ring_ctl ctl;

	memset(&third, 0, sizeof(third));
	atomic_store(&ctl.need_bell, 1);
	memset(&to_us, 0, sizeof(to_us));
	knows(&to_us, &us);
	third.peer = &to_us;
	third.there = &us.inbox;
	third.tx = third.rx = &ctl;
	third.bell_there = 17;
	third.tail = 64;
	shm_flush((struct rds_ep *)&third, false);
}

/* The waker sleeps in its write: nothing is in its way before that. */
static pthread_t stopped(void)
{
	pthread_t t;

	stop_them_in_write();
	ck_assert_int_eq(give(&they, 100), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, stopped_waker, NULL), 0);
	test_until(atomic_load(&us.inbox.summary));   /* until it has rung the bell ... */
	test_until(test_asleep(atomic_load(&waker))); /* ... and has come to what follows */
	return t;
}

static void go_on(pthread_t t)
{
	char page[65536];

	while (os_read(stuck[0], page, sizeof(page)) > 0)
		;
	pthread_join(t, NULL);
}

START_TEST(test_stopped_waker_does_not_stop_others)
{
	pthread_t t;

	announce(&us, RDS_ATT_LEADER);
	t = stopped();
	third_sends();
	ck_assert(readable(us.leader[0]));
	go_on(t);
}
END_TEST

START_TEST(test_late_claim_fails)
{
	pthread_t t;

	announce(&us, RDS_ATT_LEADER);
	t = stopped();
	third_sends();
	ck_assert(we_look());
	announce(&us, RDS_ATT_LEADER); /* asleep again */
	go_on(t);
	ck_assert_uint_eq(who(&us), RDS_ATT_LEADER);
}
END_TEST

/* ---- nonsense in the inbox ---- */

/* A tick later: they doubt, and say so on the control socket. True if we were asked to look. */
static bool they_ask(void)
{
	struct shm_ctl_msg msg;
	bool asked;

	become(&they, NULL);
	if (rds_shm.recheck_armed)
		rds_shm.recheck_timer.fn(&rds_shm.recheck_timer);
	they.shm = rds_shm;
	become(&us, NULL);
	asked = os_recv(us.ctl, &msg, sizeof(msg), MSG_DONTWAIT) == sizeof(msg) && msg.op == SHM_OP_LOOK;
	if (asked)
		shm_on_look(&us.other, msg.peer_bell);
	us.shm = rds_shm;
	return asked;
}

static const uint32_t lies[] = {RDS_ATT_POLLING, RDS_ATT_LAZY, 7, 0xdeadbee8 | RDS_ATT_LAZY, 0xffffffff};

START_TEST(test_false_attention_costs_a_tick)
{
	announce(&us, RDS_ATT_LEADER);
	atomic_store(&us.inbox.attention, lies[_i]);
	they_send();
	ck_assert(!readable(us.leader[0]));
	atomic_store(&us.inbox.summary, 0);
	ck_assert(they_ask());
	ck_assert(we_look());
	ck_assert_uint_eq(taken, 1);
	ck_assert(!they_ask());
}
END_TEST

START_TEST(test_no_question_if_noticed)
{
	announce(&us, RDS_ATT_POLLING);
	they_send();
	ck_assert(they.shm.recheck_armed);
	ck_assert(we_look());
	ck_assert(!they_ask());
}
END_TEST

START_TEST(test_answer_to_wish_is_not_lost)
{
	become(&us, NULL);
	ck_assert_int_eq(give(&us, 100), 0);
	flush(&us);
	wish(&us);
	shm_attention(&rds_shm.t, RDS_ATT_LEADER);
	us.shm = rds_shm;
	atomic_store(&us.inbox.attention, lies[_i]);
	become(&they, NULL);
	ck_assert(shm_progress(&rds_shm.t));
	they.shm = rds_shm;
	atomic_store(&us.inbox.summary, 0);
	ck_assert(they_ask());
	we_look();
	ck_assert_uint_eq(writable, 1);
	ck_assert(!they_ask());
}
END_TEST

START_TEST(test_wiped_bell_costs_a_tick)
{
	unsigned i;

	announce(&us, _i ? RDS_ATT_LEADER : RDS_ATT_HELPER);
	they_send();
	atomic_store(&us.inbox.summary, 0);
	for (i = 0; i < SHM_BELLS / 64; i++)
		atomic_store(&us.inbox.words[i], 0);
	ck_assert(!we_look());
	announce(&us, RDS_ATT_HELPER);
	ck_assert(us.shm.sweep_armed);
	become(&us, NULL);
	rds_shm.sweep_timer.fn(&rds_shm.sweep_timer);
	us.shm = rds_shm;
	ck_assert(we_look());
	ck_assert_uint_eq(taken, 1);
}
END_TEST

START_TEST(test_bells_of_nobody)
{
	unsigned i;

	for (i = 0; i < SHM_BELLS / 64; i++)
		atomic_store(&us.inbox.words[i], UINT64_MAX);
	atomic_store(&us.inbox.summary, UINT64_MAX);
	ck_assert(!we_look());
	ck_assert(!shm_pending(&rds_shm.t));
	shm_on_look(&us.other, SHM_BELLS);
	shm_on_look(&us.other, 17);
	shm_on_look(&they.other, us.ep.bell_here); /* not its bell */
	ck_assert(!shm_pending(&rds_shm.t));
	they_send();
	ck_assert(we_look());
}
END_TEST

static TCase *case_of(Suite *s, const char *name)
{
	TCase *t = tcase_create(name);

	tcase_add_checked_fixture(t, setup, teardown);
	suite_add_tcase(s, t);
	return t;
}

int main(void)
{
	Suite *s = suite_create("shm_wake");
	TCase *t = case_of(s, "room");

	tcase_add_test(t, test_room_is_told_once);
	tcase_add_test(t, test_no_wish_no_answer);
	tcase_add_test(t, test_wish_does_not_take_answer_away);
	tcase_add_test(t, test_later_wish_is_answered_later);
	t = case_of(s, "wake");
	tcase_add_test(t, test_leader_is_woken_once);
	tcase_add_test(t, test_helper_is_woken_once);
	tcase_add_loop_test(t, test_failed_wake_is_not_claimed, 0, 2);
	tcase_add_loop_test(t, test_helper_wakes_for_the_program, 0, 2);
	tcase_add_test(t, test_helper_finds_us_elsewhere);
	tcase_add_test(t, test_stopped_waker_does_not_stop_others);
	tcase_add_test(t, test_late_claim_fails);
	t = case_of(s, "nonsense");
	tcase_add_loop_test(t, test_false_attention_costs_a_tick, 0, (int)(sizeof(lies) / sizeof(lies[0])));
	tcase_add_loop_test(t, test_answer_to_wish_is_not_lost, 0, (int)(sizeof(lies) / sizeof(lies[0])));
	tcase_add_loop_test(t, test_wiped_bell_costs_a_tick, 0, 2);
	tcase_add_test(t, test_no_question_if_noticed);
	tcase_add_test(t, test_bells_of_nobody);
	return suite_run(s);
}
