/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_poll.c - what the stand-in of a watched socket shows to the kernel is what rds_call_poll()
 * says, and comes and goes with it (engine/socket/standin.c).
 */
#include <check.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/rdma/rdma.h"
#include "tests/unit/suite.h"

#define LIMIT 1000 /* of bytes sent and not acknowledged */

static struct rds_sock sock;
static int standin;

static void setup(void)
{
	struct stat st;
	int sv[2];

	memset(&sock, 0, sizeof(sock));
	os_process_start();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	standin = sv[0];
	ck_assert_int_eq(fstat(standin, &st), 0);
	os_fd_init(&sock.pair);
	atomic_store(&sock.pair.n[0], sv[1]);
	sock.inode = st.st_ino;
	sock.rx_tail = &sock.rx_head;
	atomic_store(&sock.ref, 1);
	atomic_store(&sock.open, true);
	RDS_SOCK_SET(&sock, sndbuf, 2 * LIMIT);
}

static void teardown(void)
{
	close(standin);
	close(sock.pair.n[0]);
}

static unsigned nsent;
static int emptied = -1; /* what is sent is read there at once */

ssize_t __real_os_send(int fd, const void *buf, size_t len, int flags);
ssize_t __wrap_os_send(int fd, const void *buf, size_t len, int flags);

ssize_t __wrap_os_send(int fd, const void *buf, size_t len, int flags)
{
	ssize_t n = __real_os_send(fd, buf, len, flags);
	char c;

	nsent++;
	if (emptied >= 0)
		ck_assert_int_eq(recv(emptied, &c, 1, MSG_DONTWAIT), 1);
	return n;
}

static bool shown(void)
{
	struct pollfd p = {.fd = standin, .events = POLLOUT};

	return poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
}

static bool truth(void)
{
	return rds_call_poll(&sock, POLLOUT) == POLLOUT;
}

/*
 * A message is admitted as long as there is any room, so what is sent may be much more than the
 * limit.
 */
START_TEST(test_room_is_shown_when_there_is_some)
{
	rds_sock_watch(&sock, standin, _i);
	ck_assert(shown() && truth());
	rds_sock_snd_add(&sock, 10);
	rds_sock_snd_add(&sock, 10);
	rds_sock_snd_add(&sock, 5 * LIMIT);
	rds_sock_show_refused(&sock, standin);
	ck_assert(!shown() && !truth());
	rds_sock_snd_sub(&sock, 1, 10);
	ck_assert(!shown() && !truth());
	rds_sock_snd_sub(&sock, 1, 10);
	ck_assert(!shown() && !truth());
	rds_sock_snd_sub(&sock, 1, 5 * LIMIT);
	ck_assert(shown() && truth());
}
END_TEST

/* Watched when it is full already, and by a limit that is raised. */
START_TEST(test_limit_is_raised)
{
	rds_sock_snd_add(&sock, 3 * LIMIT);
	rds_sock_watch(&sock, standin, _i);
	ck_assert(!shown() && !truth());
	RDS_SOCK_SET(&sock, sndbuf, 4 * LIMIT);
	rds_sock_wake(&sock, POLLOUT | POLLWRNORM);
	ck_assert(!shown() && !truth());
	RDS_SOCK_SET(&sock, sndbuf, 8 * LIMIT);
	rds_sock_wake(&sock, POLLOUT | POLLWRNORM);
	ck_assert(shown() && truth());
}
END_TEST

/* What became of an operation can be read. */
START_TEST(test_notification_is_shown)
{
	struct pollfd p = {.fd = standin, .events = POLLIN};
	struct rds_op op = {.sk = &sock};

	sock.report_tail = &sock.reports;
	rds_sock_watch(&sock, standin, _i);
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	rx_lock();
	rds_notify_queue(&op);
	rx_unlock();
	ck_assert_int_eq(poll(&p, 1, 0), 1);
	ck_assert_int_eq(rds_call_poll(&sock, POLLIN), POLLIN);
}
END_TEST

/* Who shares the socket has its other end as well, and may read there what is to fill it. */
START_TEST(test_reader_at_the_other_end)
{
	char c;

	rds_sock_snd_add(&sock, 3 * LIMIT);
	emptied = sock.pair.n[0];
	rds_sock_watch(&sock, standin, false);
	ck_assert(sock.hidden_out);
	ck_assert_uint_gt(nsent, 1);
	ck_assert_uint_le(nsent, RDS_EVENT_MAX);
	ck_assert_int_lt(recv(emptied, &c, 1, MSG_DONTWAIT), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("poll");
	TCase *t = suite_case(s, "poll", setup, teardown);

	tcase_add_loop_test(t, test_room_is_shown_when_there_is_some, 0, 2);
	tcase_add_loop_test(t, test_limit_is_raised, 0, 2);
	tcase_add_loop_test(t, test_notification_is_shown, 0, 2);
	tcase_add_test(t, test_reader_at_the_other_end);
	return suite_run(s);
}
