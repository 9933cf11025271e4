/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_tcp_wake.c - whom input over TCP wakes (transport/tcp/wake.c), also when the program has taken
 * the numbers of our descriptors.
 */
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "engine/helper/leader.h"
#include "tests/unit/tcp_helper.h"

static struct rds_conn *const conn = &conns[2];

static void attention(enum rds_attention who)
{
	rx_lock();
	rds_tcp.ops->attention(&rds_tcp, who);
	rx_unlock();
}

static bool pending(void)
{
	bool yes;

	rx_lock();
	yes = rds_tcp.ops->pending(&rds_tcp);
	rx_unlock();
	return yes;
}

/* From now on the helper's round receives, as for any transport. */
static void helper_receives(void)
{
	rx_lock();
	rds_transport_set.far[0] = &rds_tcp;
	rds_transport_set.nfar = 1;
	rx_unlock();
}

static unsigned seen(void)
{
	return atomic_load(&conn->nseen);
}

/* The engine's own attention is HELPER, which its helper renews in each round. */
START_TEST(test_helper)
{
	int fd = peer_is_up();
	uint64_t seq;

	helper_receives();
	attention(RDS_ATT_HELPER);
	for (seq = 1; seq <= 10; seq++) {
		peer_sends(fd, seq, 100, 0);
		test_until(seen() == 1 + seq);
	}
	close(fd);
	test_until(atomic_load(&conn->downs) == 1);
}
END_TEST

/* A thread of the program looks: the helper is left alone. */
START_TEST(test_polling)
{
	static const enum rds_attention whose[] = {RDS_ATT_POLLING, RDS_ATT_LAZY};
	int fd = peer_is_up();

	attention(RDS_ATT_HELPER);
	attention(whose[_i]);
	peer_sends(fd, 1, 100, 0);
	helper_catches_up();
	ck_assert(!rds_tcp_state.helper_hears);
	ck_assert_uint_eq(seen(), 1);
	ck_assert(pending());
	progress_until(seen() == 2);
	ck_assert(!pending());
	close(fd);
}
END_TEST

static int relay_open(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	ck_assert_int_ge(fd, 0);
	atomic_store(&rds_helper_leader.relay.n[0], fd);
	return fd;
}

static bool woken(int efd)
{
	uint64_t n;

	return read(efd, &n, sizeof(n)) == sizeof(n);
}

/* The kernel wakes the leader, once for each time that it goes to sleep, and nothing else does. */
START_TEST(test_leader)
{
	int fd = peer_is_up(), efd = relay_open();
	uint64_t seq;

	for (seq = 1; seq <= 10; seq++) {
		while (pending())
			progress();
		attention(RDS_ATT_LEADER);
		ck_assert(!pending());
		ck_assert(!rds_tcp_state.helper_hears);
		ck_assert(!woken(efd));
		peer_sends(fd, seq, seq % 2 ? 100 : 200000, 0);
		test_until(woken(efd));
		attention(RDS_ATT_POLLING);
		progress_until(seen() == 1 + seq);
	}
	/* also by the end of a connection */
	while (pending())
		progress();
	attention(RDS_ATT_LEADER);
	ck_assert(!pending());
	close(fd);
	test_until(woken(efd));
}
END_TEST

/* Room in a socket that was full wakes, too: who sends the rest? */
START_TEST(test_leader_pushes)
{
	int fd = peer_is_up(), efd = relay_open();
	uint64_t seq = 0, pos;
	char bytes[65536];

	while (engine_send(conn, seq + 1, 10000, &pos) == 0)
		seq++;
	engine_flush(conn);
	while (progress())
		;
	ck_assert(((struct tcp_ep *)conn->ep)->backlog);
	while (((struct tcp_ep *)conn->ep)->backlog) {
		woken(efd);
		attention(RDS_ATT_LEADER);
		if (pending()) {
			progress();
			continue;
		}
		/* it is woken for acknowledgements, too */
		while (!woken(efd))
			recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		progress();
	}
	close(fd);
}
END_TEST

/* Input that was there before. */
START_TEST(test_before)
{
	int fd = peer_is_up(), efd = relay_open();

	peer_sends(fd, 1, 100, 0);
	attention(RDS_ATT_LEADER);
	ck_assert(pending());
	progress_until(seen() == 2);
	woken(efd);
	close(fd);
}
END_TEST

/* The program wants a number that is ours. */
START_TEST(test_numbers)
{
	int fd = peer_is_up(), old, efd = relay_open();

	old = sock_of(conn);
	ck_assert_int_ge(os_fd_move_internal(old), 0);
	ck_assert_int_ne(sock_of(conn), old);
	peer_sends(fd, 1, 100, 0);
	progress_until(seen() == 2);
	engine_sends(conn, 1, 10);
	peer_reads(fd, &(char[RDS_WIRE_HDR + 10]){0}, RDS_WIRE_HDR + 10);
	os_fd_move_internal(tcp_fd_here(&rds_tcp_state.set));
	os_fd_move_internal(tcp_fd_here(&rds_tcp_state.out_set));
	if (!rds_helper_has_own_table())
		os_fd_move_internal(atomic_load(&rds_tcp_state.listeners->fd));
	attention(RDS_ATT_LEADER);
	peer_sends(fd, 2, 100, 0);
	test_until(woken(efd));
	progress_until(seen() == 3);
	close(fd);
	progress_until(atomic_load(&conn->downs) == 1);
	helper_catches_up();
	ck_all_freed();
	fd = peer_connects(SMALLER);
	test_until(atomic_load(&conns[3].ups) == 1);
	close(fd);
}
END_TEST

static void push_all(void)
{
	unsigned i;

	pthread_mutex_lock(&tx);
	for (i = 0; i < 4; i++)
		if (conns[i].ep)
			rds_tcp.ops->push(conns[i].ep);
	pthread_mutex_unlock(&tx);
}

/* What the helper does in its round. */
static void helper_serves(void)
{
	rx_lock();
	rds_tcp.ops->progress(&rds_tcp);
	rx_unlock();
	push_all();
}

static unsigned fill_table(int *fds, unsigned most)
{
	unsigned n = 0;

	while (n < most && (fds[n] = dup(0)) >= 0)
		n++;
	ck_assert_uint_lt(n, most);
	return n;
}

static bool has_number(void)
{
	return os_fd(&((struct tcp_ep *)conn->ep)->sock.fd) >= 0;
}

/* The program has no number left: the helper sends and receives, until there is one. */
START_TEST(test_full_table)
{
	struct rlimit few = {.rlim_cur = 256, .rlim_max = 256};
	char bytes[RDS_WIRE_HDR + 10];
	int fd = peer_connects(SMALLER), fds[256];
	unsigned n, i;

	test_until(atomic_load(&conn->ups) == 1);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	n = fill_table(fds, 256);
	for (i = 1; i <= 20; i++) {
		peer_sends(fd, i, 100, 0);
		progress();
		in_helper(helper_serves);
		test_until((in_helper(helper_serves), seen() == i));
		engine_sends(conn, i, 10);
		in_helper(helper_serves);
		ck_assert_int_eq(recv(fd, bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
		ck_assert(!has_number());
	}
	test_until((in_helper(helper_serves), rds_tcp.ops->acked(conn->ep) == 20));
	while (n)
		close(fds[--n]);
	for (i = 21; !has_number(); i++) {
		peer_sends(fd, i, 100, 0);
		test_until((progress(), in_helper(helper_serves), seen() == i));
	}
	peer_sends(fd, i, 100, 0);
	progress_until(seen() == i);
	close(fd);
	progress_until(atomic_load(&conn->downs) == 1);
	ck_all_freed();
}
END_TEST

/* A connection that the program never uses has no number of its. */
START_TEST(test_unused)
{
	int fd = peer_connects(SMALLER);

	helper_receives();
	attention(RDS_ATT_HELPER);
	test_until(atomic_load(&conn->ups) == 1);
	peer_sends_map(fd);
	test_until(seen() == 1);
	ck_assert(!has_number());
	close(fd);
	test_until(atomic_load(&conn->downs) == 1);
	ck_all_freed();
}
END_TEST

/* setup: with either kind of table */
static void add_cases(Suite *s, void (*setup)(void))
{
	TCase *t = suite_case(s, "wake", setup, NULL);

	tcase_add_test(t, test_helper);
	tcase_add_loop_test(t, test_polling, 0, 2);
	tcase_add_test(t, test_leader);
	tcase_add_test(t, test_leader_pushes);
	tcase_add_test(t, test_before);
	tcase_add_test(t, test_numbers);
}

static Suite *suite(void)
{
	Suite *s = suite_create("tcp_wake");
	TCase *t;

	add_cases(s, tcp_setup);
	add_cases(s, tcp_setup_own);
	t = suite_case(s, "numbers", tcp_setup_own, NULL);
	tcase_add_test(t, test_full_table);
	tcase_add_test(t, test_unused);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
