/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_poll_eventfd.c - a descriptor that becomes readable adds one to an eventfd, once each time
 * it is set (sys/poll_eventfd.c); and what becomes of it where the kernel's part is not to be had.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/sys/poll_eventfd.h"
#include "tests/refuse.h"
#include "tests/slow.h"
#include "tests/unit/suite.h"

static struct os_poll_eventfd relay;
static int in, out, efd;

static void setup(void)
{
	int p[2];

	relay = (struct os_poll_eventfd){0};
	ck_assert_int_eq(pipe(p), 0);
	in = p[0];
	out = p[1];
	efd = eventfd(0, EFD_NONBLOCK);
	ck_assert_int_ge(efd, 0);
}

static void teardown(void)
{
	os_poll_eventfd_close(&relay);
	close(in);
	close(out);
	close(efd);
}

static void write_one(void)
{
	ck_assert_int_eq(write(out, "x", 1), 1);
}

static void read_one(void)
{
	char c;

	ck_assert_int_eq(read(in, &c, 1), 1);
}

/* The eventfd's count so far, which is taken; it waits for one. */
static uint64_t count(void)
{
	struct pollfd p = {.fd = efd, .events = POLLIN};
	uint64_t v = 0;

	ck_assert_int_eq(poll(&p, 1, TEST_COMES), 1);
	ck_assert_int_eq(read(efd, &v, sizeof(v)), sizeof(v));
	return v;
}

static void nothing(void)
{
	uint64_t v;

	ck_assert_int_eq(read(efd, &v, sizeof(v)), -1);
	ck_assert_int_eq(errno, EAGAIN);
}

START_TEST(test_once_per_time)
{
	for (unsigned i = 0; i < 1000; i++) { /* many more than the kernel has places for */
		ck_assert_int_eq(os_poll_eventfd_arm(&relay, in, efd), 0);
		ck_assert(!os_poll_eventfd_fired(&relay));
		nothing();
		write_one();
		ck_assert_uint_eq(count(), 1);
		ck_assert(os_poll_eventfd_fired(&relay));
		ck_assert(!os_poll_eventfd_fired(&relay));
		read_one();
		write_one(); /* not set: nobody is told */
		read_one();
	}
	nothing();
}
END_TEST

START_TEST(test_readable_before)
{
	write_one();
	ck_assert_int_eq(os_poll_eventfd_arm(&relay, in, efd), 0);
	ck_assert_uint_eq(count(), 1);
	ck_assert(os_poll_eventfd_fired(&relay));
}
END_TEST

/* What was readable when it was set the last time, and is not any more, does not count. */
START_TEST(test_read_since)
{
	write_one();
	ck_assert_int_eq(os_poll_eventfd_arm(&relay, in, efd), 0);
	ck_assert_uint_eq(count(), 1);
	ck_assert(os_poll_eventfd_fired(&relay));
	read_one();
	ck_assert_int_eq(os_poll_eventfd_arm(&relay, in, efd), 0);
	ck_assert(!os_poll_eventfd_fired(&relay));
	nothing();
	write_one();
	ck_assert_uint_eq(count(), 1);
}
END_TEST

START_TEST(test_set_twice)
{
	ck_assert_int_eq(os_poll_eventfd_arm(&relay, in, efd), 0);
	ck_assert_int_eq(os_poll_eventfd_arm(&relay, in, efd), 0);
	write_one();
	ck_assert_uint_eq(count(), 1);
	ck_assert(os_poll_eventfd_fired(&relay));
	nothing();
}
END_TEST

START_TEST(test_closed)
{
	uint64_t v;

	os_poll_eventfd_close(&relay); /* never opened */
	ck_assert_int_eq(os_poll_eventfd_arm(&relay, in, efd), 0);
	os_poll_eventfd_close(&relay);
	(void)!read(efd, &v, sizeof(v)); /* may count once more */
	write_one();
	ck_assert(!os_poll_eventfd_fired(&relay));
	nothing();
}
END_TEST

static void *late_writer(void *arg)
{
	uint64_t v;
	int *blocking = arg;

	/* Until the sleeper has answered n times, n + 1 are written. */
	for (unsigned i = 0; i < 200; i++) {
		write_one();
		ck_assert_int_eq(read(*blocking, &v, sizeof(v)), sizeof(v));
	}
	return NULL;
}

/* What it is for: a thread that sleeps in read(). */
START_TEST(test_sleeper)
{
	int back = eventfd(0, 0), asleep = eventfd(0, 0);
	uint64_t v, one = 1;
	pthread_t t;

	ck_assert_int_eq(os_poll_eventfd_arm(&relay, in, asleep), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, late_writer, &back), 0);
	for (unsigned i = 0; i < 200; i++) {
		ck_assert_int_eq(read(asleep, &v, sizeof(v)), sizeof(v));
		ck_assert_uint_eq(v, 1);
		ck_assert(os_poll_eventfd_fired(&relay));
		read_one();
		ck_assert_int_eq(os_poll_eventfd_arm(&relay, in, asleep), 0);
		ck_assert_int_eq(write(back, &one, sizeof(one)), sizeof(one));
	}
	pthread_join(t, NULL);
	close(back);
	close(asleep);
}
END_TEST

static const struct {
	long nr;
	unsigned error;
} refused[] = {{SYS_io_setup, ENOSYS}, {SYS_io_setup, EAGAIN}, {SYS_io_submit, EINVAL}, {SYS_io_submit, EPERM}};

static unsigned open_numbers(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 65536; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Refused once, it is not tried again, and nothing is left open. */
START_TEST(test_refused)
{
	unsigned before = open_numbers();

	ck_assert_int_eq(refuse_call(refused[_i].nr, refused[_i].error), 0);
	ck_assert_int_eq(os_poll_eventfd_arm(&relay, in, efd), -(int)refused[_i].error);
	ck_assert_int_eq(os_poll_eventfd_arm(&relay, in, efd), -ENOSYS);
	write_one();
	ck_assert(!os_poll_eventfd_fired(&relay));
	nothing();
	ck_assert_uint_eq(open_numbers(), before);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("poll_eventfd");
	TCase *tc = tcase_create("relay");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_once_per_time);
	tcase_add_test(tc, test_readable_before);
	tcase_add_test(tc, test_read_since);
	tcase_add_test(tc, test_set_twice);
	tcase_add_test(tc, test_closed);
	tcase_add_test(tc, test_sleeper);
	tcase_add_loop_test(tc, test_refused, 0, sizeof(refused) / sizeof(refused[0]));
	suite_add_tcase(s, tc);
	return suite_run(s);
}
