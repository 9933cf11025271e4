/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_full.c - peers become cold, or come back, while their first HELLO has not been read and no
 * descriptor is free (transport/shm/cold.c): HELLO would lose its descriptors, and the peer with it.
 * And there are so many that are stopped that others have to make way for another connect.
 */
#include <sys/resource.h>

#include "tests/unit/shm_peer_helper.h"

#define FEW 64

static struct rds_conn_id other = {.peer_slot = 7}; /* its address is of this test alone */
static struct shm_peer *peer;
static int its_end; /* of the helper's table, as all that follow */
static int taken[FEW];
static unsigned ntaken;

static void setup_few(void)
{
	const struct rlimit few = {FEW, FEW};

	setup();
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	os_random(&other.peer, sizeof(other.peer));
}

static int door_of(const struct rds_conn_id *id)
{
	struct sockaddr_un un;
	socklen_t len = rds_node_name_address("rdspreload-shm-", &id->peer, &un);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&un, len), 0);
	ck_assert_int_eq(listen(fd, 8), 0);
	return fd;
}

/* This process has connected, and what the other one has said is not read. */
static void hello_lies_there(void)
{
	int door = door_of(&other);

	ck_assert_int_eq(shm_peer_get(&other, &peer), 0);
	its_end = accept(door, NULL, NULL);
	peer->id = *registry_self(rds_node_registry); /* which lives */
	peer->slot = registry_self_slot(rds_node_registry);
	say_session(its_end, 0, SHM_SESSION_NEW);
}

static void take_all_but(unsigned left)
{
	int fd;

	while (ntaken < FEW && (fd = fcntl(rds_shm.listen_fd, F_DUPFD_CLOEXEC, 0)) >= 0)
		taken[ntaken++] = fd;
	while (left--)
		close(taken[--ntaken]);
}

static void give_back(void)
{
	while (ntaken)
		close(taken[--ntaken]);
}

static bool made;

static void make_room(void)
{
	hello_lies_there();
	take_all_but(0);
	made = shm_cold_make_room(NULL, true);
	give_back();
}

static void peer_check(void)
{
	ck_assert(!peer->dead);
	ck_assert(peer->known);
	ck_assert_uint_eq(peer->warmth, SHM_WARM);
}

START_TEST(test_does_not_make_way)
{
	in_helper(make_room);
	ck_assert(!made);
	helper_catches_up();
	in_helper(peer_check);
}
END_TEST

static int new_end;

static void come_back(void)
{
	new_end = dial();
	say_session(new_end, peer->session, SHM_SESSION_YOURS);
}

/* It has made this process cold, and comes back. */
static void leaves_and_returns(void)
{
	hello_lies_there();
	say_op(its_end, SHM_OP_COOL);
	close(its_end);
	come_back();
	take_all_but(4); /* the new socket, and its HELLO */
	rds_shm.listener.fn(&rds_shm.listener, EPOLLIN);
	give_back();
	ck_assert(!peer->dead);
}

START_TEST(test_comes_back_later)
{
	in_helper(leaves_and_returns);
	helper_catches_up();
	in_helper(come_back);
	helper_catches_up();
	in_helper(peer_check);
}
END_TEST

/* ---- half of the sockets are for processes that are stopped ---- */

#define STOPPED 4 /* half of an eighth of FEW */

static bool reserve_is_left;
static int err;

static void dial_one_more(void)
{
	struct rds_conn_id id = other;
	struct shm_peer *p;
	unsigned i;

	for (i = 0; i < STOPPED; i++) {
		id.peer.b[0]++;
		door_of(&id);
		ck_assert_int_eq(shm_peer_get(&id, &p), 0);
		p->opened_at = 0; /* long ago, as the last answer of anybody */
	}
	rds_shm.answered_at = 0;
	if (!reserve_is_left)
		rds_helper_reserve_release();
	door_of(&other);
	take_all_but(2);
	err = shm_peer_get(&other, &peer);
	give_back();
}

/* One of them makes way.  For what it may have said there must be room, for which a settled one does. */
START_TEST(test_stopped_ones_make_way)
{
	reserve_is_left = _i;
	comes(5, SHM_SESSION_NEW);
	ck_assert_int_eq(warmth_of(5), SHM_WARM);
	in_helper(dial_one_more);
	ck_assert_int_eq(err, 0);
	ck_assert_int_eq(warmth_of(5), reserve_is_left ? SHM_WARM : SHM_COLD);
}
END_TEST

/* ---- it has come, gone and come again ---- */

/* It has connected, left and come back, and its first HELLO could not be read meanwhile. */
static const unsigned free_then[] = {2 * 4, 4};
static unsigned nfree;
static int heard;

static void connects_leaves_and_returns(void)
{
	its_end = dial();
	say_session(its_end, 5, SHM_SESSION_NEW);
	say_op(its_end, SHM_OP_COOL);
	close(its_end);
	rds_helper_reserve_release();
	take_all_but(2); /* the socket */
	rds_shm.listener.fn(&rds_shm.listener, EPOLLIN);
	give_back();
	new_end = dial();
	say_session(new_end, 5, SHM_SESSION_MINE);
	take_all_but(nfree);
	rds_shm.listener.fn(&rds_shm.listener, EPOLLIN);
	give_back();
	ck_assert_int_eq(hear(new_end, MSG_DONTWAIT), SHM_OP_HELLO);
	heard = hear(new_end, MSG_DONTWAIT);
}

START_TEST(test_hello_is_read_late)
{
	nfree = free_then[_i];
	in_helper(connects_leaves_and_returns);
	ck_assert_int_eq(heard, _i ? 0 : SHM_OP_WARM);
	test_until(warmth_of(5) == (_i ? SHM_COLD : SHM_WARM));
}
END_TEST

/* Two that say to have a session which nobody knows: each has the other one read. */
static void two_strange_ones(void)
{
	int a, b = dial();

	rds_shm.listener.fn(&rds_shm.listener, EPOLLIN);
	a = dial();
	say_session(a, 5, SHM_SESSION_MINE);
	say_session(a, 5, SHM_SESSION_NEW);
	say_op(a, SHM_OP_COOL);
	close(a);
	say_session(b, 6, SHM_SESSION_MINE);
	rds_shm.listener.fn(&rds_shm.listener, EPOLLIN);
}

static void open_check(void)
{
	const struct shm_peer *p;
	unsigned n = 0;

	for (p = rds_shm.open; p; p = p->open_next, n++)
		ck_assert(!p->dead && p->fd >= 0);
	ck_assert_uint_eq(n, rds_shm.nopen);
	ck_assert_uint_le(rds_shm.ncold, 1);
}

START_TEST(test_two_strange_ones)
{
	in_helper(two_strange_ones);
	in_helper(open_check);
	helper_catches_up();
	in_helper(open_check);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_full");
	TCase *t = suite_case(s, "full", setup_few, NULL);

	tcase_add_test(t, test_does_not_make_way);
	tcase_add_test(t, test_comes_back_later);
	tcase_add_loop_test(t, test_stopped_ones_make_way, 0, 2);
	tcase_add_loop_test(t, test_hello_is_read_late, 0, 2);
	tcase_add_test(t, test_two_strange_ones);
	return suite_run(s);
}
