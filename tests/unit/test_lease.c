/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_lease.c - the page with a socket's names and options (share/lease.c): at any time it has all
 * that the next owner has to know, and once the socket is parked this process does not write it.
 */
#include <pthread.h>
#include <sys/resource.h>

#include "engine/sys/patience.h"
#include "tests/unit/handoff_helper.h"

static void ck_saved(struct rds_sock *sk, uint64_t mask, uint64_t notify, bool seen)
{
	struct rds_share_state st;

	ck_assert_int_eq(rds_standby_read_lease(os_fd(&sk->lease_fd), &st), 0);
	ck_assert_uint_eq(st.sock.cong_mask, mask);
	ck_assert_uint_eq(st.sock.cong_notify, notify);
	ck_assert_int_eq(st.sock.seen_congestion || st.sock.cong_attached, seen);
}

/*
 * At any time the lease has all that the owner's successor has to know: of an owner that is killed
 * it has nothing else.
 */
START_TEST(congestion_is_in_the_lease)
{
	static char bytes[5000];
	struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
	struct msghdr to = {.msg_iov = &iov, .msg_iovlen = 1}, in = {.msg_iov = &iov, .msg_iovlen = 1};
	struct sockaddr_in name, unused;
	uint64_t bit, ports;
	struct rds_sock *s, *d;
	int s_fd, d_fd;

	s = bound_over_tcp(&s_fd, &unused);
	d = bound_over_tcp(&d_fd, &name);
	ck_assert_int_eq(rds_call_setsockopt(s, s_fd, SOL_RDS, RDS_CONG_MONITOR, &(int){1}, 4), 0);
	ck_assert_int_eq(rds_call_setsockopt(d, d_fd, SOL_SOCKET, SO_RCVBUF, &(int){4096}, 4), 0);
	rds_share_begin();
	to.msg_name = &name;
	to.msg_namelen = sizeof(name);
	bit = 1ull << ntohs(name.sin_port) % 64;
	ck_assert_int_eq(rds_call_sendmsg(s, s_fd, &to, MSG_DONTWAIT), sizeof(bytes));
	ck_saved(s, 0, 0, false);
	ck_assert_int_eq(rds_call_sendmsg(s, s_fd, &to, MSG_DONTWAIT), -ENOBUFS);
	ck_saved(s, bit, 0, true);
	ck_assert_int_eq(rds_call_recvmsg(d, d_fd, &in, MSG_DONTWAIT), sizeof(bytes));
	ck_saved(s, 0, bit, true);
	ck_assert_int_eq(rds_call_poll(s, POLLIN), POLLIN);
	ck_assert_int_eq(told(s, s_fd, &ports, sizeof(ports)), RDS_CMSG_CONG_UPDATE);
	ck_assert_uint_eq(ports, bit);
	ck_saved(s, 0, 0, true); /* the poll was under way when the update came */
	ck_assert_int_eq(rds_call_poll(s, POLLIN), 0);
	ck_saved(s, 0, 0, false);
}
END_TEST

static int number_of(struct rds_sock *sk)
{
	return sk == warm ? warm_fd : standin;
}

/* The helper may close the socket at the end, and writes the page under this lock then. */
static struct rds_lease_page page_of(struct rds_sock *sk)
{
	struct rds_lease_page page;

	rx_lock();
	memcpy(&page, atomic_load(&sk->lease), sizeof(page));
	rx_unlock();
	return page;
}

static struct rds_sock_state lease_of(struct rds_sock *sk)
{
	struct rds_lease_page page = page_of(sk);

	return page.st[page.which].sock;
}

/*
 * An update of congestion comes without a call, and is reported to the program.  If the owner is
 * killed then, the next owner has to know what the program waits for, and what it knows.
 */
START_TEST(congestion_in_the_lease)
{
	char room[256];
	struct msghdr msg = {.msg_control = room, .msg_controllen = sizeof(room)};
	struct sockaddr_in name;
	struct rds_sock *sk = bound_here(&standin, &name);
	const uint64_t bit = 1 << 5; /* of a port */
	int on = 1;

	rds_share_begin();
	ck_assert_int_eq(rds_call_setsockopt(sk, standin, SOL_RDS, RDS_CONG_MONITOR, &on, sizeof(on)), 0);
	rx_lock();
	RDS_SOCK_SET(sk, cong_mask, bit);
	rds_cong_updated(~bit);
	rx_unlock();
	ck_assert_uint_eq(lease_of(sk).cong_mask, bit);
	rx_lock();
	rds_cong_updated(bit);
	rx_unlock();
	ck_assert_uint_eq(lease_of(sk).cong_mask, 0);
	ck_assert_uint_eq(lease_of(sk).cong_notify, bit);
	ck_assert_int_eq(rds_call_recvmsg(sk, standin, &msg, MSG_DONTWAIT), 0);
	ck_assert_uint_eq(lease_of(sk).cong_notify, 0);
	end(sk);
}
END_TEST

/*
 * Once the socket is parked, the page belongs to the next owner, even if calls are still under way
 * here.  It belongs to this process again if no other process has taken the socket.
 */
START_TEST(what_changes_too_late)
{
	struct rds_lease_page before, after;
	struct sockaddr_in name;
	struct rds_sock *sk = bound_here(&standin, &name);
	int bytes = 50000;

	rds_hook_number = number_of;
	rds_share_begin();
	ck_assert_uint_eq(rds_handoff_out(is_new), 1);
	before = page_of(sk);
	ck_assert_int_eq(rds_call_setsockopt(sk, standin, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
	after = page_of(sk);
	ck_assert(!memcmp(&before, &after, sizeof(before)));
	rds_handoff_cancel();
	ck_assert(atomic_load(&sk->open));
	ck_assert_uint_eq(lease_of(sk).rcvbuf, 100000);
	rds_hook_number = NULL;
	end(sk);
}
END_TEST

/* ---- a thread that has begun to write the lease when the socket is parked ---- */

static struct rds_sock *written;
static _Atomic bool writer_inside, released, released_early;

void __real_rds_share_state_fill(const struct rds_sock *sk, struct rds_share_state *st);
void __wrap_rds_share_state_fill(const struct rds_sock *sk, struct rds_share_state *st);
int __real_os_lock(int fd, short type, off_t start, off_t n, bool wait);
int __wrap_os_lock(int fd, short type, off_t start, off_t n, bool wait);

/* It takes its time: enough for whoever does not wait for it. */
void __wrap_rds_share_state_fill(const struct rds_sock *sk, struct rds_share_state *st)
{
	unsigned ms;

	if (sk == written && !atomic_exchange(&writer_inside, true)) {
		test_until(atomic_load(&sk->accepts_nothing));
		for (ms = 0; ms < 100 && !atomic_load(&released); ms++)
			usleep(1000);
		atomic_store(&released_early, atomic_load(&released));
	}
	__real_rds_share_state_fill(sk, st);
}

int __wrap_os_lock(int fd, short type, off_t start, off_t n, bool wait)
{
	if (written && type == F_UNLCK && fd == atomic_load(&written->lease_fd.n[0]))
		atomic_store(&released, true);
	return __real_os_lock(fd, type, start, n, wait);
}

static void *write_lease(void *sk)
{
	rds_sock_changed(sk);
	return NULL;
}

START_TEST(what_is_being_written)
{
	struct sockaddr_in name;
	struct rds_sock *sk = bound_here(&standin, &name);
	pthread_t writer;

	rds_hook_number = number_of;
	rds_share_begin();
	atomic_store(&rds_patience_factor, 1000); /* the writer may be late on a busy machine */
	written = sk;
	ck_assert_int_eq(pthread_create(&writer, NULL, write_lease, sk), 0);
	test_until(atomic_load(&writer_inside));
	ck_assert_uint_eq(rds_handoff_out(is_new), 1);
	pthread_join(writer, NULL);
	ck_assert(atomic_load(&released) && !atomic_load(&released_early));
	written = NULL;
	rds_handoff_cancel();
	rds_hook_number = NULL;
	end(sk);
}
END_TEST

/* The lowest number that is free, and with it every higher one, is not to be had. */
static struct rlimit no_numbers(void)
{
	struct rlimit before, none;
	int lowest = dup(standin);

	ck_assert_int_ge(lowest, 0);
	close(lowest);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){.rlim_cur = (rlim_t)lowest, .rlim_max = before.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	return before;
}

/* The lease is given up all the same: the next owner goes on with what it says then. */
START_TEST(what_cannot_be_saved)
{
	struct rds_lease_page before, after;
	struct sockaddr_in name;
	struct rds_sock *sk = bound_here(&standin, &name);
	struct rlimit limit;
	int bytes = 50000;

	rds_share_begin();
	limit = no_numbers();
	ck_assert_uint_eq(rds_handoff_out(is_new), 1);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert(!rds_handoff_is_parked(standin));
	before = page_of(sk);
	ck_assert_int_eq(rds_call_setsockopt(sk, standin, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
	after = page_of(sk);
	ck_assert(!memcmp(&before, &after, sizeof(before)));
	ck_assert(atomic_load(&sk->accepts_nothing));
	rds_handoff_cancel();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lease");
	TCase *t = suite_case(s, "lease", setup, NULL);

	tcase_add_test(t, congestion_is_in_the_lease);
	tcase_add_test(t, congestion_in_the_lease);
	tcase_add_test(t, what_changes_too_late);
	tcase_add_test(t, what_is_being_written);
	tcase_add_test(t, what_cannot_be_saved);
	return suite_run(s);
}
