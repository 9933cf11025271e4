/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_bed.c - a leader that sleeps where the remote transport has it sleep (transport.h: sleep_on): whoever wakes it rings, no wake-up is
 * lost, and the transport is told how the sleep ended; and when the helper need not be told of anything.  The transport is
 * test_reach_fake.h's.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "engine/wait.h"
#include "tests/unit/suite.h"
#include "tests/unit/test_reach_fake.h"

static struct rds_wait *w;

static void bed_setup(bool wrapped)
{
	if (wrapped)
		far_setup_wrapped();
	else
		far_setup();
	atomic_store(&fake.bed, os_eventfd(0, 0));
	fake.has_bed = true;
	ck_assert(rds_eng->remote_leads);
}

static void setup(void)
{
	bed_setup(false);
}

static void setup_wrapped(void)
{
	bed_setup(true);
}

static void begin(void)
{
	w = rds_wait_begin_one(fake.sk, RDS_WAIT_RECV);
	ck_assert_ptr_nonnull(w);
}

static void *receives(void *arg)
{
	char text[16] = "";
	struct iovec iov = {.iov_base = text, .iov_len = sizeof(text)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	ck_assert_int_eq(rds_recvmsg(fake.sk, fake.fd, &msg, 0), *(ssize_t *)arg);
	return NULL;
}

/* From a socket of this host, by way of another thread. */
static void say_here(const char *text)
{
	struct sockaddr_in to = name_of("127.0.0.1", 4000);
	struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
	struct msghdr msg = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &iov, .msg_iovlen = 1};

	ck_assert_int_eq(rds_sendmsg(fake.sk, fake.fd, &msg, MSG_DONTWAIT), (ssize_t)iov.iov_len);
}

START_TEST(test_others_ring)
{
	ssize_t len = 5;
	unsigned i;

	for (i = 0; i < 200; i++) {
		unsigned rings = atomic_load(&fake.rings);
		pthread_t thread;

		ck_assert_int_eq(pthread_create(&thread, NULL, receives, &len), 0);
		if (i % 2) { /* else they race */
			await(rds_eng->leader && rds_eng->leader->bedded && atomic_load(&rds_eng->leader->armed));
			say_here("hello");
			ck_assert_uint_ge(atomic_load(&fake.rings), rings);
		} else {
			say_here("hello");
		}
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
	}
	ck_assert_uint_gt(atomic_load(&fake.slept[RDS_SLEPT_READ]), 0);
	ck_assert_uint_eq(atomic_load(&fake.slept[RDS_SLEPT_UNSURE]), 0);
}
END_TEST

/* A timeout comes from the helper. */
START_TEST(test_helper_rings)
{
	begin();
	ck_assert(rds_wait_arm(w));
	ck_assert(w->bedded);
	ck_assert_int_eq(rds_wait_sleep(w, os_now_ns() + 20000000), -ETIMEDOUT);
	rds_wait_end(w);
	ck_assert_uint_ge(atomic_load(&fake.rings), 1);
	ck_assert_uint_eq(atomic_load(&fake.slept[RDS_SLEPT_READ]), 1);
}
END_TEST

/* Beside a thread that spins the relay will do: what that finds must not wake this one. */
START_TEST(test_not_beside_a_spinner)
{
	begin();
	rx_lock();
	rds_poll_enter();
	rx_unlock();
	ck_assert(rds_wait_arm(w));
	ck_assert(!w->bedded);
	ck_assert_int_eq(rds_wait_fd(w), rds_relay_fd());
	rds_wait_disarm(w);
	rx_lock();
	rds_poll_leave(false);
	rx_unlock();
	ck_assert(rds_wait_arm(w));
	ck_assert(w->bedded);
	rds_wait_post(w);
	ck_assert_int_eq(rds_wait_sleep(w, 0), 0);
	rds_wait_end(w);
}
END_TEST

/* The device is gone, say: the program must not hear of it, and the transport knows that it knows nothing. */
START_TEST(test_bed_fails)
{
	int out = os_open("/dev/null", O_WRONLY, 0);

	begin();
	atomic_store(&fake.bed, out);
	ck_assert(rds_wait_arm(w));
	ck_assert_int_eq(rds_wait_sleep(w, 0), 0);
	rds_wait_end(w);
	ck_assert_uint_eq(atomic_load(&fake.slept[RDS_SLEPT_UNSURE]), 1);
}
END_TEST

static void nothing(int sig)
{
	(void)sig;
}

static void *interrupts(void *arg)
{
	while (!atomic_load(&fake.slept[RDS_SLEPT_NOT])) {
		pthread_kill(*(pthread_t *)arg, SIGUSR1);
		usleep(1000);
	}
	return NULL;
}

START_TEST(test_signal)
{
	struct sigaction sa = {.sa_handler = nothing};
	pthread_t me = pthread_self(), thread;

	sigaction(SIGUSR1, &sa, NULL);
	begin();
	ck_assert(rds_wait_arm(w));
	ck_assert_int_eq(pthread_create(&thread, NULL, interrupts, &me), 0);
	ck_assert_int_eq(rds_wait_sleep(w, 0), -EINTR);
	rds_wait_end(w);
	ck_assert_uint_eq(atomic_load(&fake.slept[RDS_SLEPT_NOT]), 1);
	pthread_join(thread, NULL);
}
END_TEST

/* It sleeps in a poll of several descriptors, not in a read: where it always did. */
START_TEST(test_poll_does_not)
{
	w = rds_wait_begin(1);
	ck_assert_ptr_nonnull(w);
	ck_assert_int_eq(rds_wait_add(w, fake.sk, POLLIN), 0);
	ck_assert(rds_wait_arm(w));
	ck_assert(!w->bedded);
	ck_assert_int_eq(rds_wait_fd(w), rds_relay_fd());
	rds_wait_end(w);
	begin(); /* the same one again */
	ck_assert(rds_wait_arm(w));
	ck_assert_int_eq(rds_wait_fd(w), atomic_load(&fake.bed));
	rds_wait_end(w);
}
END_TEST

static enum rds_attention woken(void)
{
	enum rds_attention now;

	rx_lock();
	rds_helper_woken();
	now = atomic_load(&rds_eng->attention);
	rx_unlock();
	return now;
}

/* The helper leaves a program that sends all the time alone, once it sees that; and takes over when that is over. */
START_TEST(test_busy_sender)
{
	uint64_t until = os_now_ns() + PATIENCE_NS;

	ck_assert_int_eq(woken(), RDS_ATT_HELPER); /* once is no habit */
	usleep(30000);
	ck_assert_int_eq(woken(), RDS_ATT_HELPER); /* nor is seldom */
	while (woken() != RDS_ATT_LAZY)
		ck_assert_uint_lt(os_now_ns(), until);
	await(rds_eng->attention == RDS_ATT_HELPER);
}
END_TEST

static void tests(TCase *t)
{
	tcase_add_test(t, test_others_ring);
	tcase_add_test(t, test_helper_rings);
	tcase_add_test(t, test_not_beside_a_spinner);
	tcase_add_test(t, test_bed_fails);
	tcase_add_test(t, test_signal);
	tcase_add_test(t, test_poll_does_not);
	tcase_add_test(t, test_busy_sender);
}

int main(void)
{
	Suite *s = suite_create("bed");

	tests(suite_case(s, "bed", setup, NULL, 60));
	tests(suite_case(s, "wrapped", setup_wrapped, NULL, 60));
	return suite_run(s);
}
