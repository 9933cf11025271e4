/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_lives.c - what a process has sent that has ended comes before what the next one on its port
 * sends (transport/shm/catch_up.c), also where only the helper can get it.
 *
 * The other process is the test.  It has been asked for two connections, and ends.
 */
#include <stdlib.h>

#include "engine/conn/conn.h"
#include "engine/transport/shm/cell_ep.h"
#include "tests/unit/shm_peer_helper.h"

/* Connections: over rings, over a ring of another control socket, and both ends of one over cells */
enum { EARLIER, LATER, OTHER, NEAR, FAR, ALL };

bool __real_registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id);
bool __wrap_registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id);

static _Atomic bool killed;
static _Atomic unsigned asked; /* does it live? */

bool __wrap_registry_proc_alive(struct registry *reg, uint32_t slot, const struct rds_procid *id)
{
	atomic_fetch_add(&asked, 1);
	return !atomic_load(&killed) && __real_registry_proc_alive(reg, slot, id);
}

/* ---- the engine's connections ---- */

static struct rds_conn conns[ALL];
static struct rds_ep *eps[ALL];
static unsigned came[8], ncame, ended[ALL], nended;
static uint64_t since; /* when the sockets changed whose messages are flagged */

static enum rds_rx_verdict up_message(struct rds_conn *conn, struct rds_ep *ep, const struct rds_rx *rx)
{
	(void)ep;
	if ((rx->hdr.flags & RDS_FLAG_NEW_OWNER) && !shm_catch_up(&rds_shm.t, since))
		return RDS_RX_LATER;
	came[ncame++] = (unsigned)(conn - conns);
	return RDS_RX_DONE;
}

static void up_up(struct rds_conn *conn, struct rds_ep *ep, struct rds_received there)
{
	(void)conn, (void)ep, (void)there;
}

static void up_down(struct rds_conn *conn, struct rds_ep *ep, int why, bool gone)
{
	(void)why, (void)gone;
	ended[nended++] = (unsigned)(conn - conns);
	eps[conn - conns] = NULL;
	rds_transport_ep_ops(ep)->close(ep);
}

static void up_evacuate(struct rds_conn *conn, struct rds_ep *ep)
{
	(void)conn, (void)ep;
}

static void up_nothing(struct rds_conn *conn)
{
	(void)conn;
}

static bool up_awaited(struct rds_conn *conn)
{
	(void)conn;
	return false;
}

static const struct rds_conn_id *up_id(const struct rds_conn *conn)
{
	return &conn->id;
}

static const struct rds_transport_up up = {.id = up_id,
					   .message = up_message,
					   .up = up_up,
					   .down = up_down,
					   .evacuate = up_evacuate,
					   .push_later = up_nothing,
					   .writable = up_nothing,
					   .outgrown = up_nothing,
					   .awaited = up_awaited};
static struct rds_transport transport = {.up = &up};

static void conn_init(unsigned i)
{
	struct rds_conn_id *id = &conns[i].id;

	id->peer = *registry_self(rds_node_registry);
	id->peer_slot = registry_self_slot(rds_node_registry);
	id->laddr.s6_addr[15] = i == FAR ? 2 : 1;
	id->faddr.s6_addr[15] = i == FAR ? 1 : 2;
	id->tos = i < NEAR ? (uint8_t)i : 0;
}

/* ---- the other process ---- */

static int ctl[2]; /* its control sockets: one for OTHER */
static struct shm_ep theirs[NEAR];
static uint64_t cookie[NEAR];
static unsigned which;

/* It gets the rings of connection `which`. */
static void connect_one(void)
{
	struct shm_peer *hidden = which == OTHER ? peer_of(5) : NULL; /* of two, the oldest would be found */
	struct shm_ctl_msg msg;
	int fds[OS_PASS_MAX];
	unsigned nfds;
	bool lost;

	if (hidden)
		hidden->id.b[0] ^= 1;
	ck_assert_int_eq(
		shm_connect(&transport, &conns[which].id, &conns[which], (struct rds_received){0}, &eps[which]), 0);
	if (hidden)
		hidden->id.b[0] ^= 1;
	ck_assert_int_eq(os_pass_recv(ctl[which == OTHER], &msg, sizeof(msg), fds, &nfds, &lost, 0), sizeof(msg));
	ck_assert_uint_eq(msg.op, SHM_OP_CONNECT);
	cookie[which] = msg.cookie;
	ck_assert_int_eq(shm_rings_attach(&theirs[which], msg.ring, fds[0]), 0);
	os_close(fds[0]);
}

static void connects(unsigned i)
{
	which = i;
	in_helper(connect_one);
}

static void replies(unsigned i)
{
	const struct shm_ctl_msg msg = {.magic = SHM_MAGIC,
					.version = SHM_VERSION,
					.op = SHM_OP_REPLY,
					.cookie = cookie[i],
					.ring = theirs[i].size};

	ck_assert_int_eq(os_pass_send(ctl[i == OTHER], &msg, sizeof(msg), NULL, 0, 0), 0);
}

static struct rds_wire_hdr header(bool flagged)
{
	struct rds_hdr hdr = {.seq = 1, .sport = 1, .dport = 2, .flags = flagged ? RDS_FLAG_NEW_OWNER : 0};
	struct rds_wire_hdr wire;

	rds_wire_hdr_encode(&hdr, &wire, false);
	return wire;
}

static void puts_into(unsigned i, bool flagged)
{
	struct rds_wire_hdr wire = header(flagged);
	uint64_t pos;

	ck_assert_int_eq(shm_ring_send((struct rds_ep *)&theirs[i], &wire, NULL, 0, &pos), 0);
	atomic_store(&theirs[i].tx->tail, theirs[i].tail);
}

static void setup_two(void)
{
	setenv("RDS_PRELOAD_HELPER_FDS", "shared", 1); /* the helper is the other process, too */
	rds_options_reset();
	setup();
	transport.ops = rds_shm.t.ops;
	for (unsigned i = 0; i < ALL; i++)
		conn_init(i);
	ctl[0] = comes(5, SHM_SESSION_NEW);
	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	connects(EARLIER);
	connects(LATER);
	replies(LATER);
	helper_catches_up();
	ck_assert(((struct shm_ep *)eps[LATER])->up);
}

static void ends_in_the_middle(void)
{
	puts_into(EARLIER, false);
	atomic_store(&killed, true);
	since = os_now_ns();
}

/* ---- tests; each of these steps is one of the helper ---- */

static void tick(void)
{
	rx_lock();
	shm_bell_ring_own((struct shm_ep *)eps[LATER]);
	shm_progress(&rds_shm.t);
	rx_unlock();
	ck_assert_uint_eq(ncame, 0);
	rds_shm.sweep_timer.fn(&rds_shm.sweep_timer);
}

/* It has not sent its REPLY, and somebody else holds its end of the control socket open. */
START_TEST(nobody_hangs_up)
{
	ends_in_the_middle();
	puts_into(LATER, true);
	in_helper(tick);
	helper_catches_up();
	ck_assert_uint_eq(nended, 2);
	ck_assert_uint_eq(ncame, 1);
	ck_assert_uint_eq(came[0], LATER);
}
END_TEST

static void reply_comes_late(void)
{
	bool pending;

	rx_lock();
	shm_bell_ring_own((struct shm_ep *)eps[LATER]);
	shm_progress(&rds_shm.t);
	pending = shm_pending(&rds_shm.t);
	rx_unlock();
	ck_assert(!pending);
	ck_assert_uint_eq(ncame, 0);
	replies(EARLIER);
	shm_peer_read_all(peer_of(5));
	ck_assert_uint_eq(ncame, 2);
	ck_assert_uint_eq(came[0], EARLIER);
}

/* Nobody stays awake for a message that waits for the helper, and it does not wait longer. */
START_TEST(reply_is_read_late)
{
	ends_in_the_middle();
	puts_into(LATER, true);
	in_helper(reply_comes_late);
}
END_TEST

static bool catch_up(unsigned times)
{
	bool all = true;

	rx_lock();
	while (times--)
		all &= shm_catch_up(&rds_shm.t, since);
	rx_unlock();
	return all;
}

/* Whether the process lives is asked once, and again for sockets that have changed since. */
static void asks(void)
{
	since = os_now_ns();
	atomic_store(&asked, 0);
	ck_assert(catch_up(100));
	ck_assert_uint_eq(asked, 1);
	since = os_now_ns();
	ck_assert(catch_up(100));
	ck_assert_uint_eq(asked, 2);
	atomic_store(&killed, true);
	ck_assert(catch_up(1)); /* it had given up the socket by then */
	since = os_now_ns();
	ck_assert(!catch_up(100));
	ck_assert_uint_eq(asked, 3);
}

START_TEST(is_asked_once)
{
	puts_into(EARLIER, false);
	in_helper(asks);
}
END_TEST

/* Both have ended: one waits for the other one, whose end is yet to be noticed. */
static void end_both(void)
{
	replies(EARLIER);
	close(ctl[0]);
	shm_peer_dead(peer_of(6), -EPIPE);
	ck_assert_uint_eq(ncame, 2);
	ck_assert_uint_eq(came[0], EARLIER);
	ck_assert_uint_eq(ended[0], OTHER); /* not in the middle of it, on the same stack */
	ck_assert_uint_eq(nended, 1);
}

START_TEST(ends_one_after_the_other)
{
	ctl[1] = comes(6, SHM_SESSION_NEW);
	ck_assert_int_eq(warmth_of(6), SHM_WARM);
	connects(OTHER);
	replies(OTHER);
	helper_catches_up();
	puts_into(OTHER, true);
	ends_in_the_middle();
	in_helper(end_both);
	helper_catches_up();
	ck_assert_uint_eq(nended, 3);
}
END_TEST

static void cell_waits(void)
{
	struct rds_wire_hdr wire = header(true);
	uint64_t pos;

	shm_cell_transport.up = &up;
	ck_assert_int_eq(shm_open_cells(&transport, &conns[NEAR].id, &conns[NEAR], &eps[NEAR]), 0);
	ck_assert_int_eq(shm_open_cells(&transport, &conns[FAR].id, &conns[FAR], &eps[FAR]), 0);
	ck_assert_int_eq(shm_cell_transport.ops->send(eps[NEAR], &wire, NULL, 0, &pos), 0);
	replies(EARLIER);
	rds_shm.t.ops->meet(&rds_shm.t, false);
	ck_assert_uint_eq(ncame, 0);
	rds_shm.t.ops->meet(&rds_shm.t, true);
	ck_assert_uint_eq(ncame, 2);
	ck_assert_uint_eq(came[0], EARLIER);
	ck_assert_uint_eq(came[1], FAR);
}

/* The FIRST endpoint over which it has come is about to be closed, and its sender may have ended. */
START_TEST(endpoint_is_closed_meanwhile)
{
	ends_in_the_middle();
	in_helper(cell_waits);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_lives");
	TCase *t = suite_case(s, "lives", setup_two, NULL);

	tcase_add_test(t, nobody_hangs_up);
	tcase_add_test(t, reply_is_read_late);
	tcase_add_test(t, is_asked_once);
	tcase_add_test(t, ends_one_after_the_other);
	tcase_add_test(t, endpoint_is_closed_meanwhile);
	return suite_run(s);
}
