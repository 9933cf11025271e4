/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_tcp_rules.c - who connects to whom over TCP (transport/tcp/rules.c, connect.c): the smaller
 * address does, the larger one asks for it, and a connection that works is not given up for another.
 */
#include <dirent.h>
#include <netinet/tcp.h>

#include "tests/unit/tcp_helper.h"

#define MANY 1000

static struct rds_conn *const ours = &conns[0], *const theirs = &conns[2];

/* ---- we are the smaller one ---- */

/* Until the peer has said something it may still refuse. */
START_TEST(test_stands_with_the_first_byte)
{
	int door = peer_listens(LARGER), fd;

	ck_assert_int_eq(attempt(ours, LARGER), 0);
	fd = accept(door, NULL, NULL);
	ck_assert_int_ge(fd, 0);
	helper_catches_up();
	ck_assert_uint_eq(atomic_load(&ours->ups), 0);
	peer_writes(fd, "", 1);
	test_until(atomic_load(&ours->ups) == 1);
	close(fd);
	progress_until(atomic_load(&ours->downs) == 1);
	close(door);
}
END_TEST

START_TEST(test_refused)
{
	int door = peer_listens(LARGER), fd;

	ck_assert_int_eq(attempt(ours, LARGER), 0);
	fd = accept(door, NULL, NULL);
	if (_i)
		peer_resets(fd);
	else
		close(fd);
	test_until(atomic_load(&ours->downs) == 1);
	ck_assert_uint_eq(atomic_load(&ours->ups), 0);
	ck_assert_int_eq(atomic_load(&ours->why), -ECONNREFUSED);
	close(door);
}
END_TEST

static _Atomic bool unseen_stands, unseen_over;

static void unseen_connect(void)
{
	connect_do();
	atomic_store(&unseen_stands, true);
	while (!atomic_load(&unseen_over))
		usleep(100);
}

/* The helper looks when the connection has come to stand and is over already. */
static void end_unseen(const char *to, bool speaks)
{
	int door = peer_listens(to), fd;

	connect_conn = ours;
	connect_from = OURS;
	connect_to = to;
	in_helper_begin(unseen_connect);
	test_until(atomic_load(&unseen_stands));
	ck_assert_int_eq(connect_err, 0);
	fd = accept(door, NULL, NULL);
	if (speaks) {
		peer_sends_map(fd);
		peer_sends(fd, 1, 100, 0);
	}
	peer_resets(fd);
	close(door);
	atomic_store(&unseen_over, true);
	test_until(atomic_load(&work_done));
}

START_TEST(test_refused_unseen)
{
	end_unseen(LARGER, false);
	test_until(atomic_load(&ours->downs) == 1);
	ck_assert_int_eq(atomic_load(&ours->why), -ECONNREFUSED);
}
END_TEST

/* What our TCP has acknowledged, the peer does not send again. */
START_TEST(test_ended_unseen)
{
	end_unseen(LARGER, true);
	progress_until(atomic_load(&ours->downs) == 1);
	ck_assert_uint_eq(atomic_load(&ours->ups), 1);
	ck_assert_uint_eq(atomic_load(&ours->nseen), 2);
	ck_seen(ours, 1, 1, 100);
}
END_TEST

START_TEST(test_nobody_listens)
{
	const char *to = _i ? SMALLER : LARGER;
	int err = attempt(ours, to);

	if (!err) {
		test_until(atomic_load(&ours->downs) == 1);
		err = atomic_load(&ours->why);
	}
	ck_assert_int_eq(err, -ECONNREFUSED);
}
END_TEST

/* It comes from our address, and the smaller peer that it asks for a connection has one of its own. */
START_TEST(test_larger_pokes)
{
	struct in6_addr we = ip(OURS), they = ip(LARGER);
	int fd = peer_connects(LARGER);

	ck_assert(peer_is_refused(fd));
	test_until(atomic_load(&asked) == 1);
	ck_assert_uint_eq(atomic_load(&nconns), 0);
	ck_assert(rds_ip_equal(&asked_id.laddr, &we));
	ck_assert(rds_ip_equal(&asked_id.faddr, &they));
	ck_assert_uint_eq(asked_id.peer_slot, RDS_SLOT_REMOTE);
	close(fd);
}
END_TEST

static int larger_is_up(void)
{
	int door = peer_listens(LARGER), fd;

	ck_assert_int_eq(attempt(ours, LARGER), 0);
	fd = accept(door, NULL, NULL);
	peer_sends_map(fd);
	test_until(atomic_load(&ours->ups) == 1);
	close(door);
	progress_until(atomic_load(&ours->nseen) == 1);
	return fd;
}

static void poke(unsigned n)
{
	int fd;

	while (n--) {
		fd = peer_connects(LARGER);
		ck_assert(peer_is_refused(fd));
		close(fd);
	}
	helper_catches_up();
}

START_TEST(test_poked_while_up)
{
	int fd = larger_is_up();

	poke(2);
	ck_assert_uint_eq(atomic_load(&asked), 1); /* not again within a second */
	peer_sends(fd, 1, 10, 0);
	progress_until(atomic_load(&ours->nseen) == 2);
	poke(2);
	ck_assert_uint_eq(atomic_load(&ours->downs), 0);
	poke(1); /* three, and it has sent nothing */
	test_until(atomic_load(&ours->downs) == 1);
	ck_assert_int_eq(atomic_load(&ours->why), -ECONNRESET);
	close(fd);
}
END_TEST

/* ---- we are the larger one ---- */

START_TEST(test_poke_refused_unseen)
{
	int fd;

	end_unseen(SMALLER, false);
	helper_catches_up();
	fd = peer_connects(SMALLER);
	test_until(atomic_load(&ours->ups) == 1);
	ck_assert_uint_eq(atomic_load(&ours->downs), 0);
	ck_assert_uint_eq(atomic_load(&nconns), 0);
	close(fd);
	progress_until(atomic_load(&ours->downs) == 1);
}
END_TEST

START_TEST(test_we_poke)
{
	int door = peer_listens(SMALLER), fd;

	ck_assert_int_eq(attempt(ours, SMALLER), 0);
	fd = accept(door, NULL, NULL);
	ck_assert(peer_is_refused(fd)); /* nothing was sent */
	close(fd);
	fd = peer_connects(SMALLER);
	test_until(atomic_load(&ours->ups) == 1);
	ck_assert_uint_eq(atomic_load(&nconns), 0);
	peer_sends_map(fd);
	progress_until(atomic_load(&ours->nseen) == 1);
	engine_sends(ours, 1, 0);
	peer_reads(fd, &(char[RDS_WIRE_HDR]){0}, RDS_WIRE_HDR);
	close(fd);
	close(door);
}
END_TEST

START_TEST(test_we_poke_in_vain)
{
	int door = peer_listens(SMALLER);

	ck_assert_int_eq(attempt(ours, SMALLER), 0);
	test_until(atomic_load(&ours->downs) == 1);
	ck_assert_int_eq(atomic_load(&ours->why), -ETIMEDOUT);
	close(door);
}
END_TEST

/* ---- another connection ---- */

START_TEST(test_second)
{
	int fd = peer_is_up(), second;

	second = peer_connects(SMALLER);
	ck_assert(peer_is_refused(second));
	helper_catches_up();
	ck_assert_uint_eq(atomic_load(&asked), 1);
	close(second);
	peer_sends(fd, 1, 100, 0);
	progress_until(atomic_load(&theirs->nseen) == 2);
	ck_assert_uint_eq(atomic_load(&theirs->downs), 0);
	close(fd);
}
END_TEST

/* The end of the first one has come, and nobody has looked. */
START_TEST(test_second_after_the_end)
{
	int fd = peer_is_up(), second;

	peer_sends(fd, 1, 100, 0);
	if (_i)
		peer_resets(fd);
	else
		close(fd);
	second = peer_connects(SMALLER);
	test_until(atomic_load(&nconns) == 2 && atomic_load(&conns[3].ups) == 1);
	ck_assert_uint_eq(atomic_load(&theirs->downs), 1);
	ck_assert_uint_eq(atomic_load(&theirs->nseen), 2);
	close(second);
}
END_TEST

START_TEST(test_engine_refuses)
{
	int fd;

	atomic_store(&refuses, true);
	fd = peer_connects(SMALLER);
	ck_assert(peer_is_refused(fd));
	close(fd);
	atomic_store(&refuses, false);
	fd = peer_connects(SMALLER);
	test_until(atomic_load(&theirs->ups) == 1);
	close(fd);
}
END_TEST

START_TEST(test_own_address)
{
	int fd = peer_connects(OURS);

	ck_assert(peer_is_refused(fd));
	ck_assert_uint_eq(atomic_load(&asked), 0);
	ck_assert_uint_eq(atomic_load(&nconns), 0);
	close(fd);
}
END_TEST

static unsigned fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Descriptors are not used up, and who is connected goes on. */
START_TEST(test_many)
{
	int fd = peer_is_up(), other;
	unsigned i, before = fds();

	for (i = 1; i <= MANY; i++) {
		other = peer_connects(i % 2 ? SMALLER : LARGER);
		ck_assert(peer_is_refused(other));
		close(other);
		peer_sends(fd, i, 64, 0);
		progress();
	}
	progress_until(atomic_load(&theirs->nseen) == 1 + MANY);
	ck_assert_uint_eq(atomic_load(&theirs->downs), 0);
	helper_catches_up();
	ck_assert_uint_eq(fds(), before);
	close(fd);
}
END_TEST

/* ---- sockets ---- */

static int option(int fd, int level, int name)
{
	socklen_t len = sizeof(int);
	int value = -1;

	ck_assert_int_eq(getsockopt(fd, level, name, &value, &len), 0);
	return value;
}

static void ck_options(int fd)
{
	ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
	ck_assert_int_eq(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
	ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 5);
	ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 5);
	ck_assert_int_eq(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 5);
}

/* ---- hosts to which nothing was sent ---- */

static struct tcp_ep *ep_at(unsigned i)
{
	return (struct tcp_ep *)conns[i].ep;
}

static void time_is_over(void)
{
	struct tcp_ep *ep = ep_at(conns[2].ep ? 2 : 0);

	ck_assert(rds_timer_is_set(&ep->deadline));
	rds_timer_set(&ep->deadline, os_now_ns());
}

/* Half a header, and no more comes: not of one that connects, nor of one that we connect to. */
START_TEST(test_says_nothing)
{
	struct rds_conn *conn = _i ? ours : theirs;
	int door = _i ? peer_listens(LARGER) : -1, fd;

	if (_i)
		ck_assert_int_eq(attempt(ours, LARGER), 0);
	fd = _i ? accept(door, NULL, NULL) : peer_connects(SMALLER);
	peer_writes(fd, "abc", 3);
	progress_until(atomic_load(&conn->ups) == 1);
	in_helper(time_is_over);
	progress_until(atomic_load(&conn->downs) == 1);
	ck_assert_int_eq(atomic_load(&conn->why), -ETIMEDOUT);
	close(fd);
	if (_i)
		close(door);
}
END_TEST

START_TEST(test_says_something)
{
	int fd = peer_is_up();

	peer_writes(fd, "abc", 3);
	in_helper(time_is_over);
	helper_catches_up();
	ck_assert_uint_eq(atomic_load(&theirs->downs), 0);
	close(fd);
}
END_TEST

#define LONGEST (1u << 20)

static void peer_goes_on(int fd, const unsigned char *bytes, uint32_t n)
{
	ssize_t done;

	while (n) {
		done = send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		bytes += done > 0 ? done : 0;
		n -= done > 0 ? (uint32_t)done : 0;
		progress();
	}
}

/* So many bytes of a message of the longest kind */
static void peer_begins(int fd, uint64_t seq, uint32_t n)
{
	struct rds_wire_hdr w = wire(seq, LONGEST, 0);
	unsigned char *data = filled(seq, LONGEST);

	peer_writes(fd, &w, sizeof(w));
	peer_goes_on(fd, data, n);
	free(data);
}

static void two_are_up(int fd[2])
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		fd[i] = peer_connects(i ? "127.0.0.6" : SMALLER);
		test_until(atomic_load(&conns[2 + i].ups) == 1);
		peer_sends_map(fd[i]);
		progress_until(atomic_load(&conns[2 + i].nseen) == 1);
	}
}

static size_t held(void)
{
	size_t n;

	rx_lock();
	n = rds_tcp_state.strangers.held;
	rx_unlock();
	return n;
}

static void long_ago(void)
{
	rx_lock();
	ck_assert_ptr_nonnull(ep_at(2)->in.from);
	ep_at(2)->in.since = 1;
	rx_unlock();
}

/* There is memory for one long message: the other waits, and whoever does not come to an end has to go. */
START_TEST(test_memory)
{
	int fd[2];

	rds_tcp_state.strangers.most = LONGEST + 100;
	two_are_up(fd);
	peer_begins(fd[0], 1, 1000);
	progress_until(held() == LONGEST);
	peer_begins(fd[1], 1, 1000);
	helper_catches_up();
	ck_assert_uint_eq(held(), LONGEST);
	in_helper(long_ago);
	progress_until(atomic_load(&conns[2].downs) == 1);
	ck_assert_int_eq(atomic_load(&conns[2].why), -ETIMEDOUT);
	progress_until(held() == LONGEST);
	close(fd[1]);
	progress_until(atomic_load(&conns[3].downs) == 1);
	ck_assert_uint_eq(held(), 0);
	close(fd[0]);
}
END_TEST

/* It goes on where it was refused, and so does one to which something was sent. */
START_TEST(test_memory_again)
{
	unsigned char *rest = filled(1, LONGEST), *got = malloc(RDS_WIRE_HDR + 10);
	int fd[2];

	rds_tcp_state.strangers.most = LONGEST + 100;
	two_are_up(fd);
	peer_begins(fd[0], 1, LONGEST / 2);
	progress_until(held() == LONGEST);
	peer_begins(fd[1], 1, 100000);
	helper_catches_up();
	ck_assert_ptr_null(ep_at(3)->in.block);
	if (_i) {
		engine_sends(&conns[3], 1, 10);
		peer_reads(fd[1], got, RDS_WIRE_HDR + 10);
		progress_until(ep_at(3)->in.block);
		ck_assert_uint_eq(held(), LONGEST);
	}
	peer_goes_on(fd[0], rest + LONGEST / 2, LONGEST / 2);
	progress_until(atomic_load(&conns[2].nseen) == 2);
	ck_seen(&conns[2], 1, 1, LONGEST);
	progress_until(ep_at(3)->in.block);
	peer_goes_on(fd[1], rest + 100000, LONGEST - 100000);
	progress_until(atomic_load(&conns[3].nseen) == 2);
	ck_seen(&conns[3], 1, 1, LONGEST);
	ck_assert_uint_eq(held(), 0);
	ck_assert_uint_eq(atomic_load(&conns[2].downs) + atomic_load(&conns[3].downs), 0);
	free(rest);
	free(got);
	close(fd[0]);
	close(fd[1]);
}
END_TEST

/* Far more tries than a test takes. */
#define NEVER (1u << 30)

static void refused_long_ago(void)
{
	rx_lock();
	ck_assert_uint_ne(ep_at(2)->refused_since, 0);
	ep_at(2)->refused_since = 1;
	rx_unlock();
}

/* ... and its end is known. */
static bool is_refused(void)
{
	bool is;

	rx_lock();
	is = ep_at(2)->refused_since && ep_at(2)->at_end;
	rx_unlock();
	return is;
}

/* Its last message is refused, and it goes. */
static void peer_is_refused_and_goes(int fd, uint32_t len)
{
	atomic_store(&conns[2].later, NEVER);
	if (len == LONGEST) {
		peer_begins(fd, 1, LONGEST);
		progress_until(held() == LONGEST);
	} else {
		peer_sends(fd, 1, len, 0);
	}
	close(fd);
	progress_until(is_refused());
	ck_assert_uint_eq(atomic_load(&conns[2].downs), 0);
}

/* A whole message that is refused keeps the memory that others need, but not for ever. */
START_TEST(test_memory_unread)
{
	int fd[2];

	rds_tcp_state.strangers.most = LONGEST + 100;
	two_are_up(fd);
	peer_is_refused_and_goes(fd[0], LONGEST);
	peer_begins(fd[1], 1, 1000);
	helper_catches_up();
	ck_assert_uint_eq(held(), LONGEST);
	in_helper(long_ago);
	progress_until(atomic_load(&conns[2].downs) == 1);
	progress_until(held() == LONGEST && ep_at(3)->in.block);
	close(fd[1]);
}
END_TEST

/* So it is with a place. */
START_TEST(test_place_unread)
{
	int fd[2], another;

	two_are_up(fd);
	peer_is_refused_and_goes(fd[0], 100);
	atomic_store(&refuses, true);
	another = peer_connects("127.0.0.7");
	ck_assert(peer_is_refused(another));
	close(another);
	helper_catches_up();
	ck_assert_uint_eq(atomic_load(&conns[2].downs), 0);
	in_helper(refused_long_ago);
	another = peer_connects("127.0.0.7");
	progress_until(atomic_load(&conns[2].downs) == 1);
	close(another);
	close(fd[1]);
}
END_TEST

START_TEST(test_options)
{
	int small = peer_is_up(), large = larger_is_up();

	ck_options(sock_of(theirs));
	ck_options(sock_of(ours));
	close(small);
	close(large);
}
END_TEST

START_TEST(test_port_is_taken)
{
	struct in6_addr a = ip(SMALLER);
	int door = peer_listens(SMALLER);

	ck_assert_int_eq(claims(SMALLER), -EADDRINUSE);
	close(door);
	claim(SMALLER);
	claim(SMALLER);
	ck_assert_int_eq(rds_tcp.ops->claims(&rds_tcp, &a, 0), 0); /* a loopback address */
}
END_TEST

/* setup: with either kind of table */
static void add_cases(Suite *s, void (*setup)(void))
{
	TCase *t = suite_case(s, "smaller", setup, NULL);

	tcase_add_test(t, test_stands_with_the_first_byte);
	tcase_add_loop_test(t, test_refused, 0, 2);
	tcase_add_test(t, test_refused_unseen);
	tcase_add_test(t, test_ended_unseen);
	tcase_add_loop_test(t, test_nobody_listens, 0, 2);
	tcase_add_test(t, test_larger_pokes);
	tcase_add_test(t, test_poked_while_up);
	t = suite_case(s, "larger", setup, NULL);
	tcase_add_test(t, test_we_poke);
	tcase_add_test(t, test_poke_refused_unseen);
	tcase_add_test(t, test_we_poke_in_vain);
	t = suite_case(s, "another", setup, NULL);
	tcase_add_test(t, test_second);
	tcase_add_loop_test(t, test_second_after_the_end, 0, 2);
	tcase_add_test(t, test_engine_refuses);
	tcase_add_test(t, test_own_address);
	tcase_add_test(t, test_many);
	t = suite_case(s, "sockets", setup, NULL);
	tcase_add_loop_test(t, test_says_nothing, 0, 2);
	tcase_add_test(t, test_says_something);
	tcase_add_test(t, test_memory);
	tcase_add_loop_test(t, test_memory_again, 0, 2);
	tcase_add_test(t, test_memory_unread);
	tcase_add_test(t, test_place_unread);
	tcase_add_test(t, test_options);
	tcase_add_test(t, test_port_is_taken);
}

static Suite *suite(void)
{
	Suite *s = suite_create("tcp_rules");

	add_cases(s, tcp_setup);
	add_cases(s, tcp_setup_own);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
