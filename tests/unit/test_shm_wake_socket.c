/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_shm_wake_socket.c - who can wake this process by a datagram (transport/shm/wake_socket.c): those
 * who were told the key, whatever strangers send.
 *
 * Datagrams are sent in the helper, which does not receive meanwhile.
 */
#include <sys/resource.h>

#include "tests/unit/shm_peer_helper.h"

#define MANY 1000 /* more than a socket takes */

void __real_shm_recheck_inbox(void);
void __wrap_shm_recheck_inbox(void);

static _Atomic unsigned looks; /* at all rings, that were asked for */

void __wrap_shm_recheck_inbox(void)
{
	atomic_fetch_add(&looks, 1);
	__real_shm_recheck_inbox();
}

static struct shm_peer self; /* this process, as others know it */
static int err;

static void look(void)
{
	err = shm_wake_socket_send(&self, true);
}

static void setup_self(void)
{
	setup();
	self.id = *registry_self(rds_node_registry);
	self.wake_key = rds_shm.wake_key;
}

static bool has_looked(void)
{
	helper_catches_up();
	return atomic_load(&looks);
}

/* The keys that a stranger may have: none, or a wrong one. */
static void strangers_at(const char *prefix)
{
	struct sockaddr_un at;
	socklen_t len = rds_node_name_address(prefix, &self.id, &at);
	const uint64_t key = self.wake_key;
	uint64_t said[4] = {0, 'l', 'l', 'l'};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	unsigned i;

	for (i = 0; i < MANY; i++) {
		said[0] = i < 64 ? key ^ UINT64_C(1) << i : i;
		sendto(fd, said, 16, 0, (struct sockaddr *)&at, len);
		said[0] = key;
		sendto(fd, said, i % 2 ? 8 + i % 8 : 17 + i % 16, 0, (struct sockaddr *)&at, len);
		sendto(fd, "l", 1, 0, (struct sockaddr *)&at, len);
	}
	close(fd);
}

static void strangers(void)
{
	strangers_at("rdspreload-wake-");
}

START_TEST(test_key)
{
	ck_assert_uint_ne(self.wake_key, 0);
	ck_assert(!has_looked());
	in_helper(look);
	ck_assert_int_eq(err, 0);
	test_until(has_looked());
}
END_TEST

static void filter_is_not_permitted(void)
{
	const int unused = 0;

	ck_assert_int_eq(setsockopt(os_fd(&rds_shm.wake), SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused)), 0);
	strangers();
}

/* Nor does any ring of theirs have to be looked at where no filter is permitted. */
START_TEST(test_strangers_wake_nobody)
{
	in_helper(_i ? filter_is_not_permitted : strangers);
	ck_assert(!has_looked());
}
END_TEST

static void strangers_first(void)
{
	struct sockaddr_un at;
	socklen_t len = rds_node_name_address("rdspreload-wake-", &self.id, &at);
	const uint64_t said[2] = {self.wake_key, 'l'};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	strangers();
	err = sendto(fd, said, sizeof(said), 0, (struct sockaddr *)&at, len) < 0 ? -errno : 0;
	close(fd);
}

START_TEST(test_strangers_take_no_room)
{
	in_helper(strangers_first);
	ck_assert_int_eq(err, 0);
	test_until(has_looked());
}
END_TEST

/* The key is told to who is let in, and kept. */
static void key_check(void)
{
	ck_assert_uint_eq(rds_shm.peers->wake_key, 77);
}

START_TEST(test_key_is_told)
{
	struct shm_ctl_msg msg = {.cookie = 5, .wake_key = 77, .self = self.id};
	struct shm_ctl_msg got;
	int fd = dial();

	ck_assert_int_eq(os_recv(fd, &got, sizeof(got), 0), sizeof(got));
	ck_assert_uint_eq(got.wake_key, self.wake_key);
	msg.slot = registry_self_slot(rds_node_registry);
	send_hello(fd, msg);
	helper_catches_up();
	in_helper(key_check);
}
END_TEST

/* ---- the leader's socket ---- */

static int own_fd; /* that thread's socket */

/* It is full of what others do not read, who are stopped. */
static void fill_own(void)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(un);
	unsigned i, sent;

	for (i = 0, sent = 1; sent; i++) {
		int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		ck_assert_int_lt(i, 900);
		un.sun_path[0] = 0;
		ck_assert_int_eq(bind(fd, (struct sockaddr *)&un, sizeof(sa_family_t)), 0);
		len = sizeof(un);
		ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&un, &len), 0);
		for (sent = 0; sendto(own_fd, "1234567", 8, MSG_DONTWAIT, (struct sockaddr *)&un, len) == 8; sent++)
			;
	}
}

static void post(void)
{
	rds_helper_leader.post_named();
}

static void post_when_full(void)
{
	own_fd = os_fd(&rds_shm.wake);
	fill_own();
	ck_assert_int_eq(shm_wake_socket_send_to(&self.id, self.wake_key, SHM_WAKE_RUN), -EAGAIN);
	post();
}

static void wake(void)
{
	ck_assert_int_eq(shm_wake_socket_send_to(&self.id, self.wake_key, SHM_WAKE_LEADER), 0);
}

static bool leader_is_woken(void)
{
	struct pollfd p = {.fd = atomic_load(atomic_load(&rds_helper_leader.named_fd)), .events = POLLIN};
	uint64_t v;

	return poll(&p, 1, 0) == 1 && read(p.fd, &v, sizeof(v)) == sizeof(v) && poll(&p, 1, 0) == 0;
}

static void more_files(void)
{
	struct rlimit most;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &most), 0);
	most.rlim_cur = most.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &most), 0);
}

/* By peers and by all threads of this process; but by no stranger. */
START_TEST(test_leader)
{
	static void (*const wakes[])(void) = {wake, post, post_when_full};

	more_files();
	ck_assert_ptr_null(atomic_load(&rds_helper_leader.named_fd));
	ck_assert_int_eq(shm_wake_socket_send_to(&self.id, self.wake_key, SHM_WAKE_RUN), 0);
	helper_catches_up();
	ck_assert_ptr_nonnull(atomic_load(&rds_helper_leader.named_fd));
	strangers_at("rdspreload-lead-");
	ck_assert(!leader_is_woken());
	wakes[_i]();
	ck_assert(leader_is_woken());
	in_helper(wakes[_i]);
	ck_assert(leader_is_woken());
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shm_wake_socket");
	TCase *t = suite_case(s, "key", setup_self, NULL);

	tcase_add_test(t, test_key);
	tcase_add_loop_test(t, test_strangers_wake_nobody, 0, 2);
	tcase_add_test(t, test_strangers_take_no_room);
	tcase_add_test(t, test_key_is_told);
	tcase_add_loop_test(t, test_leader, 0, 3);
	return suite_run(s);
}
