/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Locks with a bias (engine/sys/lock.h) and threads' records (engine/sys/thread_record.h): mutual
 * exclusion while biases are given and withdrawn at every point, trylock beside them, threads that
 * come and go.  What is counted is changed without atomics, so that any two threads inside at once
 * lose counts.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/sys/lock.h"
#include "tests/refuse.h"
#include "tests/unit/suite.h"

#define OWNER_ROUNDS 2000000u
#define VISITS 20000u

static rds_lock_t lock, other;
static volatile uint64_t counted, nested;
static _Atomic bool stop;
static _Atomic unsigned biased_seen;

static void once(void)
{
	volatile unsigned i;
	uint64_t v;

	rds_lock(&lock);
	v = counted;
	for (i = 0; i < 8; i++) /* long enough for another one to come in between */
		;
	counted = v + 1;
	lock.reluctance = 0; /* so that biases come and go all the time */
	rds_unlock(&lock);
}

static void *owner(void *arg)
{
	unsigned i;

	for (i = 0; i < OWNER_ROUNDS; i++) {
		once();
		if (atomic_load_explicit(&lock.bias, memory_order_relaxed) == rds_thread &&
		    rds_thread != &rds_thread_none)
			atomic_fetch_add_explicit(&biased_seen, 1, memory_order_relaxed);
	}
	return arg;
}

static void *busy_owner(void *arg)
{
	uint64_t *n = arg;

	for (; !atomic_load_explicit(&stop, memory_order_relaxed); ++*n)
		once();
	return NULL;
}

static void *visitor(void *arg)
{
	unsigned i, pause = *(unsigned *)arg;
	volatile unsigned k;

	for (i = 0; i < VISITS; i++) {
		once();
		for (k = 0; k < pause; k++)
			;
	}
	return NULL;
}

static void *tryer(void *arg)
{
	uint64_t *got = arg, v;
	volatile unsigned k;

	while (!atomic_load(&stop)) {
		for (k = 0; k < 3000; k++) /* in between, biases are given */
			;
		if (rds_trylock(&lock)) {
			v = counted;
			atomic_signal_fence(memory_order_seq_cst);
			counted = v + 1;
			rds_unlock(&lock);
			++*got;
		} else {
			sched_yield();
		}
	}
	return NULL;
}

static void setup(void)
{
	rds_thread_records_start();
	rds_lock_init(&lock, RDS_LOCK_RX);
	rds_lock_init(&other, RDS_LOCK_RX);
	counted = nested = 0;
	atomic_store(&stop, false);
	atomic_store(&biased_seen, 0);
}

START_TEST(one_thread_gets_the_bias)
{
	unsigned i;

	for (i = 0; i < 1000; i++)
		once();
	ck_assert_uint_eq(counted, 1000);
	if (!rds_thread_records_on()) /* no membarrier(2), or ThreadSanitizer: an ordinary lock */
		return;
	ck_assert_ptr_eq(atomic_load(&lock.bias), rds_thread);
	ck_assert(rds_trylock(&lock)); /* our own bias is no obstacle, but it is gone */
	ck_assert_ptr_null(atomic_load(&lock.bias));
	ck_assert(!rds_trylock(&lock));
	rds_unlock(&lock);
}
END_TEST

START_TEST(trylock_finds_the_holder_by_bias)
{
	unsigned i;

	for (i = 0; i < 1000; i++)
		once();
	rds_lock(&lock);
	ck_assert(!rds_trylock(&lock)); /* as a signal handler would */
	rds_unlock(&lock);
	once();
	ck_assert_uint_eq(counted, 1001);
}
END_TEST

/* Two locks of one kind at once: the second is taken by its word. */
START_TEST(two_of_a_kind)
{
	unsigned i;

	for (i = 0; i < 1000; i++) {
		rds_lock(&lock);
		rds_unlock(&lock);
		rds_lock(&other);
		rds_unlock(&other);
	}
	rds_lock(&lock);
	rds_lock(&other);
	ck_assert(!rds_trylock(&other));
	rds_unlock(&lock);
	ck_assert(!rds_trylock(&other));
	ck_assert(rds_trylock(&lock));
	rds_unlock(&lock);
	rds_unlock(&other);
	ck_assert(rds_trylock(&other));
	rds_unlock(&other);
}
END_TEST

static unsigned pauses[] = {500, 1000, 2000};
#define NPAUSES (sizeof(pauses) / sizeof(pauses[0]))

START_TEST(nobody_is_inside_with_another)
{
	uint64_t tried = 0;
	pthread_t own, try, visit;

	ck_assert_int_eq(pthread_create(&own, NULL, owner, NULL), 0);
	ck_assert_int_eq(pthread_create(&try, NULL, tryer, &tried), 0);
	ck_assert_int_eq(pthread_create(&visit, NULL, visitor, &pauses[_i]), 0);
	pthread_join(visit, NULL);
	pthread_join(own, NULL);
	atomic_store(&stop, true);
	pthread_join(try, NULL);
	ck_assert_uint_eq(counted, OWNER_ROUNDS + VISITS + tried);
}
END_TEST

static void refuse_membarrier(void)
{
	ck_assert_int_eq(refuse_call(SYS_membarrier, EPERM), 0);
	ck_assert_int_eq(syscall(SYS_membarrier, 0, 0, 0), -1);
}

/*
 * As a rule, and after the program has put up a filter of system calls, when biases are in use
 * already.
 */
START_TEST(barrier)
{
	uint64_t owned = 0;
	pthread_t own, visit;
	unsigned i;

	if (_i)
		refuse_membarrier();
	ck_assert_int_eq(pthread_create(&own, NULL, busy_owner, &owned), 0);
	for (i = 0; i < (_i ? 8 : 40); i++) {
		ck_assert_int_eq(pthread_create(&visit, NULL, visitor, &pauses[2]), 0);
		pthread_join(visit, NULL);
	}
	atomic_store(&stop, true);
	pthread_join(own, NULL);
	ck_assert_uint_eq(counted, owned + i * VISITS);
}
END_TEST

/* A thread that ends leaves its bias behind, and its record to the next one. */
START_TEST(threads_come_and_go)
{
	unsigned i, none = 0;
	pthread_t t;

	for (i = 0; i < 50; i++) {
		ck_assert_int_eq(pthread_create(&t, NULL, visitor, &none), 0);
		pthread_join(t, NULL);
	}
	ck_assert_uint_eq(counted, 50 * VISITS);
}
END_TEST

/*
 * An owner at full speed and a visitor now and then, as a program's thread and the helper: the bias
 * is there most of the time.
 */
START_TEST(bias_comes_back)
{
	static unsigned seldom = 2000;
	pthread_t own, visit;

	ck_assert_int_eq(pthread_create(&visit, NULL, visitor, &seldom), 0);
	ck_assert_int_eq(pthread_create(&own, NULL, owner, NULL), 0);
	pthread_join(own, NULL);
	pthread_join(visit, NULL);
	ck_assert_uint_eq(counted, OWNER_ROUNDS + VISITS);
	if (rds_thread_records_on())
		ck_assert_uint_gt(biased_seen, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lock");
	TCase *tc = tcase_create("bias");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, one_thread_gets_the_bias);
	tcase_add_test(tc, trylock_finds_the_holder_by_bias);
	tcase_add_test(tc, two_of_a_kind);
	tcase_add_loop_test(tc, nobody_is_inside_with_another, 0, (int)NPAUSES);
	tcase_add_loop_test(tc, barrier, 0, 2);
	tcase_add_test(tc, threads_come_and_go);
	tcase_add_test(tc, bias_comes_back);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
