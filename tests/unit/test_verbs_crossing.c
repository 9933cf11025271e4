/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_verbs_crossing.c - two processes ask each other for the same connection
 * (engine/transport/verbs/ep/connect.c, accept.c).  Wherever the two attempts are when they meet,
 * and whatever is lost, one connection comes of it, soon.
 *
 * Both ends are in this process, told apart by their addresses, each with an engine that does what
 * connection.c does.  The first end's process id is the smaller one, so its attempts win.
 */
#include <string.h>

#include "tests/mock/world.h"

#define BACKOFF_NS (16 * MS)

static const struct rds_transport_up *notes; /* the world's */
static struct rds_transport_up rule;

/* An end, as its engine has it. */
static struct side {
	struct rds_ep *pending;
	bool theirs, peer_asked_again;
	struct rds_timer retry;
} side[2];

static int side_of(const struct rds_conn *conn)
{
	return (const struct world_conn *)(const void *)conn == &world.conn[1];
}

static void begin(int i)
{
	struct world_conn *c = &world.conn[i];

	ck_assert_int_eq(world_connect(c, i ? US2 : US, i ? US : US2, verbs_cm.port, registry_self(rds_node_registry)),
			 0);
	side[i].pending = c->ep;
	side[i].theirs = false;
	c->ep = NULL;
}

static void retry(struct rds_timer *tm)
{
	struct side *s = container_of(tm, struct side, retry);

	if (!s->pending && !world.conn[s - side].ep)
		begin((int)(s - side));
}

static void drop(struct side *s)
{
	verbs_ep_close(s->pending);
	s->pending = NULL;
}

static struct rds_conn *accept_by_rule(struct rds_transport *t, struct rds_ep *ep, const struct rds_conn_id *id,
				       struct rds_received there, struct rds_received *here, int *why)
{
	int i = id->laddr.s6_addr[15] == 2;
	struct world_conn *c = &world.conn[i];
	struct side *s = &side[i];

	*why = -EALREADY;
	if (s->pending && !s->theirs && i == 0)
		return NULL;
	if (s->pending)
		drop(s);
	if (c->ep && !s->peer_asked_again) {
		s->peer_asked_again = true;
		return NULL;
	}
	if (c->ep)
		world_close(c);
	*why = 0;
	world.next = c;
	s->pending = ep;
	s->theirs = true;
	rds_timer_cancel(&s->retry);
	return notes->accept(t, ep, id, there, here, why);
}

static void up_by_rule(struct rds_conn *conn, struct rds_ep *ep, struct rds_received there)
{
	struct side *s = &side[side_of(conn)];

	ck_assert_ptr_eq(ep, s->pending); /* what is not has been closed */
	s->pending = NULL;
	s->peer_asked_again = false;
	notes->up(conn, ep, there);
	if (!s->theirs) /* on iWARP the other end waits for that */
		ck_assert_int_eq(world_send(&world.conn[s - side], 100, 0), 0);
}

static void down_by_rule(struct rds_conn *conn, struct rds_ep *ep, int why, bool gone)
{
	struct side *s = &side[side_of(conn)];

	ck_assert(ep == s->pending || ep == world.conn[s - side].ep);
	if (ep == s->pending)
		s->pending = NULL;
	notes->down(conn, ep, why, gone);
	rds_timer_set(&s->retry, atomic_load(&mock_now) + BACKOFF_NS);
}

static void setup(enum mock_mode mode)
{
	world_start(mode);
	ck_assert_int_eq(world_claim(US2), 1);
	memset(side, 0, sizeof(side));
	side[0].retry.fn = side[1].retry.fn = retry;
	notes = world.t->up;
	rule = *notes;
	rule.accept = accept_by_rule;
	rule.up = up_by_rule;
	rule.down = down_by_rule;
	world.t->up = &rule;
}

static void setup_ib(void)
{
	setup(MOCK_IB);
}

static void setup_iwarp(void)
{
	setup(MOCK_IWARP);
}

/* One connection, with two ends, which are each other's. */
static void is_one(void)
{
	struct rds_ep_device d[2];
	unsigned n = 0, i;
	struct verbs_ep *ep;

	for (ep = verbs_eps.all; ep; ep = ep->next)
		n += !ep->closed;
	ck_assert_uint_eq(n, 2);
	for (i = 0; i < 2; i++) {
		ck_assert_ptr_null(side[i].pending);
		ck_assert_ptr_nonnull(world.conn[i].ep);
		ck_assert_uint_eq(world.conn[i].ups, 1);
		world.t->ops->describe(world.conn[i].ep, &d[i]);
	}
	ck_assert_uint_eq(d[0].dst_qp_num, d[1].qp_num);
	ck_assert_uint_eq(d[1].dst_qp_num, d[0].qp_num);
	ck_assert_uint_eq(world.conn[0].nmsgs + world.conn[1].nmsgs, 1);
}

/* The newest event that is held comes: that of the end which has acted last. */
static void next_of_last(void)
{
	ck_assert_uint_gt(mock_cm_waiting(), 0);
	ck_assert(mock_cm_pick(mock_cm_waiting() - 1));
	world_run();
}

/*
 * How far an attempt is: not begun (it waits for its time), the address asked for, the route asked
 * for, the request under way.
 */
enum far { WAITS, ADDRESS, ROUTE, REQUEST, STAGES };

static void go(int i, enum far far)
{
	unsigned n;

	if (far == WAITS)
		return;
	begin(i);
	for (n = ADDRESS; n < far; n++)
		next_of_last();
}

/*
 * Every pair of stages, either end first.  Then all events that were held come, in their order or
 * the newest first.
 */
#define PAIRS (STAGES * STAGES * 4)

START_TEST(test_r6_r9_every_pair)
{
	int first = _i & 1;
	bool newest = _i & 2;
	enum far a = (enum far)(_i / 4 % STAGES), b = (enum far)(_i / 4 / STAGES);

	mock_cm_hold(true);
	go(first, a);
	go(!first, b);
	while (newest && mock_cm_waiting() > 1)
		next_of_last();
	mock_cm_hold(false);
	if (a == WAITS && b == WAITS)
		begin(first);
	world_run();
	world_pass(200 * MS);
	is_one();
	world_pass(20000 * MS);
	is_one();
}
END_TEST

/*
 * The winner's attempt never gets what it has asked for: an address, a route, an answer.  The
 * loser's requests come through meanwhile, and neither side waits for long.
 */
START_TEST(test_r6a_lost)
{
	mock_cm_hold(true);
	go(0, (enum far)(ADDRESS + _i));
	ck_assert(mock_cm_drop(mock_cm_waiting() - 1));
	mock_cm_hold(false);
	begin(1);
	world_pass(1500 * MS);
	ck_assert_uint_eq(world.conn[0].ups, 0);
	world_pass(700 * MS);
	is_one();
	world_pass(20000 * MS);
	is_one();
}
END_TEST

/*
 * The connection is up, and the other end has lost it without notice: it is refused once, then its
 * attempt is taken.
 */
START_TEST(test_r6_lost_by_one)
{
	begin(_i);
	world_run();
	is_one();
	world.ours->cut = world.ours2->cut = true;
	world_close(&world.conn[!_i]);
	world_pass(2000 * MS);
	mock_timeout();
	world.ours->cut = world.ours2->cut = false;
	world.conn[0].ups = world.conn[1].ups = world.conn[0].nmsgs = world.conn[1].nmsgs = 0;
	if (!world.conn[_i].ep)
		rds_timer_cancel(&side[_i].retry);
	begin(!_i);
	world_pass(200 * MS);
	is_one();
}
END_TEST

static void end(void)
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		rds_timer_cancel(&side[i].retry);
		if (side[i].pending)
			drop(&side[i]);
	}
	world.t->up = notes;
	world_end();
}

static void tests(TCase *t, int losses)
{
	tcase_add_loop_test(t, test_r6_r9_every_pair, 0, PAIRS);
	tcase_add_loop_test(t, test_r6a_lost, 0, losses);
	tcase_add_loop_test(t, test_r6_lost_by_one, 0, 2);
}

int main(void)
{
	Suite *s = suite_create("verbs_crossing");

	tests(suite_case(s, "ib", setup_ib, end), 3);
	tests(suite_case(s, "iwarp", setup_iwarp, end), 2); /* TCP loses no request */
	return suite_run(s);
}
