/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_uaccess.c - what is usable memory and what is EFAULT.  Tests of what a busy thread remembers
 * make it busy first; the others forget where it could make a difference.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

#include "engine/sys/uaccess.h"
#include "tests/unit/suite.h"

#define PAGE 4096u
#define BIG (300 * PAGE)

static char *map(size_t len, int prot)
{
	void *p = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

#define good(how, p, len) ck_assert_int_eq(rds_user_##how##able(p, len), 0)
#define bad(how, p, len) ck_assert_int_eq(rds_user_##how##able(p, len), -EFAULT)

START_TEST(plain)
{
	static const char constant[8] = "ro data";
	static char data[8];
	char *heap = malloc(100), *m = map(BIG, PROT_READ | PROT_WRITE);
	char local[64];

	good(read, constant, 8);
	good(read, data, 8);
	good(writ, data, 8);
	good(read, heap, 100);
	good(writ, heap, 100);
	good(read, local, sizeof(local));
	good(writ, local, sizeof(local));
	good(read, m, BIG);
	good(writ, m, BIG);
	good(writ, m + 1, BIG - 1);
	good(writ, m + PAGE - 1, 2);
	errno = 4711;
	good(writ, m + 5 * PAGE - 3, 3 * PAGE);
	bad(writ, (char *)4, 10);
	ck_assert_int_eq(errno, 4711);
	free(heap);
}
END_TEST

START_TEST(nothing_is_always_good)
{
	good(read, NULL, 0);
	good(writ, NULL, 0);
	good(read, (void *)-1, 0);
}
END_TEST

START_TEST(wild_pointers)
{
	static const uintptr_t wild[] = {
		0, 1, 8, 4095, 0x7ffffffffff8, 0x800000000000, 0xdeadbeefdeadbeef, 0xffff800000000000, 0xffffffffff600000,
		UINTPTR_MAX - 4096, UINTPTR_MAX - 7, UINTPTR_MAX,
	};

	for (unsigned i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		bad(read, (void *)wild[i], 1);
		bad(writ, (void *)wild[i], 1);
		bad(writ, (void *)wild[i], 64);
		bad(read, (void *)wild[i], 2 * PAGE);
		bad(writ, (void *)wild[i], 5 * PAGE);
	}
}
END_TEST

START_TEST(wrapping)
{
	char *m = map(PAGE, PROT_READ | PROT_WRITE);
	char local[16];

	bad(read, m, SIZE_MAX);
	bad(writ, m, SIZE_MAX);
	bad(read, m + 16, SIZE_MAX - 16);
	bad(writ, local, SIZE_MAX);
	bad(read, (void *)16, SIZE_MAX - 8);
	bad(read, m, (size_t)0 - (uintptr_t)m + 1);
}
END_TEST

START_TEST(neighbours)
{
	char *m = map(6 * PAGE, PROT_READ | PROT_WRITE);

	ck_assert_int_eq(munmap(m + PAGE, PAGE), 0);
	ck_assert_int_eq(mprotect(m + 5 * PAGE, PAGE, PROT_NONE), 0);
	good(writ, m, PAGE);
	good(read, m + PAGE - 1, 1);
	bad(read, m + PAGE - 1, 2);
	bad(writ, m + PAGE - 1, 2);
	bad(read, m + PAGE, 1);
	bad(writ, m + 2 * PAGE - 1, 2);
	good(writ, m + 2 * PAGE, 3 * PAGE);
	bad(writ, m + 2 * PAGE, 3 * PAGE + 1);
	bad(read, m + 2 * PAGE, 3 * PAGE + 1);
	bad(read, m + 5 * PAGE, 1);
	bad(writ, m + 5 * PAGE, 1);
	/* an 8-byte probe at the last bytes must not reach into the hole */
	good(read, m + 5 * PAGE - 1, 1);
	good(writ, m + 5 * PAGE - 1, 1);
}
END_TEST

START_TEST(read_only)
{
	char *one = map(PAGE, PROT_READ), *many = map(BIG, PROT_READ);

	good(read, one, PAGE);
	good(read, many, BIG);
	bad(writ, one, 1);
	bad(writ, many, BIG);
	bad(writ, many + 100, 2 * PAGE);
	ck_assert_int_eq(mprotect(many, 3 * PAGE, PROT_READ | PROT_WRITE), 0);
	rds_user_forget();
	good(writ, many, 3 * PAGE);
	bad(writ, many, 3 * PAGE + 1);
}
END_TEST

START_TEST(file_beyond_its_end)
{
	char name[] = "/tmp/uaccess.XXXXXX";
	int fd = mkstemp(name);
	char *m;

	ck_assert_int_ge(fd, 0);
	unlink(name);
	ck_assert_int_eq(ftruncate(fd, PAGE + 10), 0);
	for (int how = MAP_SHARED; how <= MAP_PRIVATE; how++) {
		m = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, how, fd, 0);
		ck_assert_ptr_ne(m, MAP_FAILED);
		good(read, m, 2 * PAGE);
		good(writ, m, 2 * PAGE);
		bad(read, m + 2 * PAGE, 1);
		bad(writ, m + 2 * PAGE, 1);
		bad(read, m, 8 * PAGE);
		bad(writ, m, 8 * PAGE);
	}
	close(fd);
}
END_TEST

START_TEST(contents_stay)
{
	char *m = map(BIG, PROT_READ | PROT_WRITE), *copy = malloc(BIG);

	srand(2);
	for (unsigned i = 0; i < BIG; i++)
		m[i] = copy[i] = (char)rand();
	for (unsigned i = 0; i < 50; i++) {
		unsigned at = (unsigned)rand() % BIG;

		rds_user_forget();
		good(writ, m + at, (unsigned)rand() % (BIG - at) + 1);
	}
	rds_user_forget();
	good(writ, m, BIG);
	ck_assert_mem_eq(m, copy, BIG);
	free(copy);
}
END_TEST

/* The write probe is an atomic operation on a word that another thread may be counting in. */
static void *count(void *arg)
{
	for (int i = 0; i < 2000000; i++)
		__atomic_fetch_add((unsigned *)arg, 1, __ATOMIC_RELAXED);
	return NULL;
}

START_TEST(no_update_is_lost)
{
	unsigned *word = (unsigned *)map(PAGE, PROT_READ | PROT_WRITE);
	pthread_t t;

	pthread_create(&t, NULL, count, word);
	for (int i = 0; i < 20000; i++) {
		rds_user_forget();
		good(writ, word, sizeof(*word));
	}
	pthread_join(t, NULL);
	ck_assert_uint_eq(*word, 2000000);
}
END_TEST

static uint64_t become_hot(void)
{
	char *m = map(BIG, PROT_READ | PROT_WRITE);
	uint64_t stamp = rds_user_stamp();

	ck_assert_int_eq(rds_user_readable_at(m, BIG, stamp), 0);
	ck_assert_uint_eq(rds_ucache.hot, stamp);
	return stamp;
}

/*
 * The memory that is about to be filled may be overwritten, its neighbours may not: before and
 * behind it, for any length, over the end of a page.
 */
START_TEST(filling_touches_nothing_else)
{
	char *m = map(5 * PAGE, PROT_READ | PROT_WRITE), was[5 * PAGE];
	const size_t lens[] = {1, 7, 8, 9, 15, 16, 100, PAGE - 8, PAGE, PAGE + 1, PAGE + 12, 2 * PAGE, 3 * PAGE};
	size_t i, at;

	for (i = 0; i < sizeof(was); i++)
		was[i] = m[i] = (char)(i * 7 + 1);
	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
		for (at = PAGE - 17; at <= PAGE + 9; at++) {
			rds_user_forget();
			good(fill, m + at, lens[i]);
			ck_assert_mem_eq(m, was, at);
			ck_assert_mem_eq(m + at + lens[i], was + at + lens[i], sizeof(was) - at - lens[i]);
			memcpy(m + at, was + at, lens[i]);
		}
}
END_TEST

START_TEST(filling_what_cannot_be)
{
	char *m = map(6 * PAGE, PROT_READ | PROT_WRITE), *ro = map(PAGE, PROT_READ);
	uint64_t stamp;

	ck_assert_int_eq(mprotect(m + 5 * PAGE, PAGE, PROT_READ), 0);
	good(fill, m + 5 * PAGE - 20, 20);
	bad(fill, m + 5 * PAGE - 20, 21);
	bad(fill, m + 5 * PAGE - 20, 40);
	bad(fill, m, 6 * PAGE);
	bad(fill, ro, 8);
	bad(fill, ro + 1, 3);
	bad(fill, NULL, 8);
	bad(fill, (char *)4, 100);
	bad(fill, (char *)UINTPTR_MAX - 7, 8);
	good(fill, NULL, 0);
	/* what it has proved is proved for writing and reading, and the other way round */
	stamp = become_hot();
	ck_assert_int_eq(rds_user_fillable(m, 100), 0);
	if (rds_user_stamp() == stamp) {
		munmap(m, PAGE);
		ck_assert_int_eq(rds_user_writable_at(m + 200, 8, stamp), 0);
		ck_assert_int_eq(rds_user_readable_at(m + 200, 8, stamp), 0);
	}
}
END_TEST

START_TEST(memory_is_faulted_in)
{
	char *m = map(BIG, PROT_READ | PROT_WRITE);
	unsigned char in[BIG / PAGE];

	good(writ, m, BIG);
	ck_assert_int_eq(mincore(m, BIG, in), 0);
	for (unsigned i = 0; i < BIG / PAGE; i++)
		ck_assert(in[i] & 1);
}
END_TEST

/* Spends the budget under a stamp of its own, so that no turn of the clock comes in between. */
START_TEST(remembered_until_forgotten)
{
	char *m = map(PAGE, PROT_READ | PROT_WRITE);
	uint64_t stamp = become_hot();

	ck_assert_int_eq(rds_user_writable_at(m, 10, stamp), 0);
	munmap(m, PAGE);
	/* the same tick: known, by the contract */
	ck_assert_int_eq(rds_user_writable_at(m, 10, stamp), 0);
	ck_assert_int_eq(rds_user_readable_at(m, 10, stamp), 0);
	/* elsewhere in the page too, but not beyond */
	ck_assert_int_eq(rds_user_readable_at(m + PAGE - 1, 1, stamp), 0);
	ck_assert_int_eq(rds_user_readable_at(m + PAGE - 1, 2, stamp), -EFAULT);
	rds_user_forget();
	bad(writ, m, 10);
	bad(read, m, 10);
}
END_TEST

/* Neighbours are remembered as one, but nothing that lies between. */
START_TEST(ranges_grow_together)
{
	char *m = map(40 * PAGE, PROT_READ | PROT_WRITE);
	uint64_t stamp = become_hot();

	for (unsigned i = 0; i < 18; i++)
		ck_assert_int_eq(rds_user_writable_at(m + 2 * i * PAGE + 50, 2 * PAGE, stamp), 0);
	ck_assert_int_eq(rds_user_readable_at(m + 38 * PAGE, 10, stamp), 0);
	munmap(m, 40 * PAGE);
	ck_assert_int_eq(rds_user_readable_at(m, 37 * PAGE, stamp), 0);
	ck_assert_int_eq(rds_user_writable_at(m, 37 * PAGE, stamp), 0);
	ck_assert_int_eq(rds_user_readable_at(m, 38 * PAGE, stamp), -EFAULT);
	ck_assert_int_eq(rds_user_readable_at(m + 37 * PAGE, 1, stamp), -EFAULT);
	ck_assert_int_eq(rds_user_readable_at(m + 38 * PAGE, PAGE, stamp), 0);
	ck_assert_int_eq(rds_user_writable_at(m + 38 * PAGE, PAGE, stamp), -EFAULT);
	ck_assert_int_eq(rds_user_readable_at(m + 39 * PAGE, 1, stamp), -EFAULT);
}
END_TEST

/* Few calls: nothing is believed, not even within the same tick. */
START_TEST(exact_while_cold)
{
	char *m = map(2 * PAGE, PROT_READ | PROT_WRITE);
	uint64_t stamp = rds_user_stamp();

	/* three pages each, and one is asked for below */
	for (unsigned i = 0; i < RDS_UBUDGET / 3 - 1; i++) {
		ck_assert_int_eq(rds_user_writable_at(m, 10, stamp), 0);
		ck_assert_int_eq(rds_user_readable_at(m, 2 * PAGE, stamp), 0);
	}
	mprotect(m, PAGE, PROT_READ);
	ck_assert_int_eq(rds_user_writable_at(m, 10, stamp), -EFAULT);
	ck_assert_int_eq(rds_user_readable_at(m, 10, stamp), 0);
	munmap(m, 2 * PAGE);
	ck_assert_int_eq(rds_user_readable_at(m, 10, stamp), -EFAULT);
	ck_assert_int_eq(rds_user_readable_at(m, 2 * PAGE, stamp), -EFAULT);
}
END_TEST

/* By the kernel's own clock: two of its ticks are enough, and more do not harm. */
START_TEST(forgotten_by_itself)
{
	char *m = map(4 * PAGE, PROT_READ | PROT_WRITE);
	struct timespec res, tick;

	become_hot();
	good(writ, m, 10);
	good(writ, m, 4 * PAGE);
	munmap(m, 4 * PAGE);
	clock_getres(CLOCK_MONOTONIC_COARSE, &res);
	tick = (struct timespec){.tv_nsec = 2 * res.tv_nsec};
	nanosleep(&tick, NULL);
	bad(writ, m, 10);
	bad(read, m, 4 * PAGE);
	ck_assert_int_le(res.tv_nsec, 10000000); /* what the header promises */
}
END_TEST

START_TEST(reading_does_not_prove_writing)
{
	char *m = map(4 * PAGE, PROT_READ);

	become_hot();
	good(read, m, 1);
	bad(writ, m, 1);
	good(read, m, 4 * PAGE);
	bad(writ, m, 4 * PAGE);
	bad(writ, m + PAGE, 1);
}
END_TEST

/* ---- stacks ---- */

static void __attribute__((noinline)) check_above(char *buf, size_t len)
{
	good(read, buf, len);
	good(writ, buf, len);
	bad(writ, (char *)-4096, 8);
}

static void __attribute__((noinline)) check_below(void)
{
	/* far below the stack pointer there is no stack yet, or the guard */
	struct rlimit rl;
	char here;

	getrlimit(RLIMIT_STACK, &rl);
	if (rl.rlim_cur != RLIM_INFINITY)
		bad(read, &here - rl.rlim_cur - PAGE, 1);
}

START_TEST(main_stack)
{
	char buf[3 * PAGE];

	memset(buf, 0, sizeof(buf));
	check_above(buf, sizeof(buf));
	check_below();
}
END_TEST

static void *thread_stack(void *arg)
{
	char buf[3 * PAGE];

	(void)arg;
	memset(buf, 0, sizeof(buf));
	check_above(buf, sizeof(buf));
	ck_assert(rds_ucache.stack_hi > (uintptr_t)buf && rds_ucache.stack_lo < (uintptr_t)buf);
	/* the page above the stack's top is not the stack's */
	bad(read, (char *)rds_ucache.stack_hi - 8, 1u << 30);
	return NULL;
}

START_TEST(stack_of_a_thread)
{
	pthread_t t;

	pthread_create(&t, NULL, thread_stack, NULL);
	pthread_join(t, NULL);
}
END_TEST

/*
 * A coroutine's stack lies below other memory that is not in use: being on it says nothing of what
 * is above its page.  The page above is unmapped here, and the thread's own bounds must not be
 * believed either.
 */
static ucontext_t back, coroutine;
static char *co_stack;

static void on_coroutine(void)
{
	char buf[256];

	memset(buf, 0, sizeof(buf));
	check_above(buf, sizeof(buf));
	bad(read, co_stack + 16 * PAGE, 1);
	bad(writ, co_stack + 16 * PAGE - 8, 16);
	bad(writ, co_stack + 16 * PAGE - 8, 32 * PAGE);
}

static void run_coroutine(void)
{
	co_stack = map(18 * PAGE, PROT_READ | PROT_WRITE);
	munmap(co_stack + 16 * PAGE, 2 * PAGE);
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = co_stack;
	coroutine.uc_stack.ss_size = 16 * PAGE;
	coroutine.uc_link = &back;
	makecontext(&coroutine, on_coroutine, 0);
	swapcontext(&back, &coroutine);
}

static void *coroutine_in_thread(void *arg)
{
	run_coroutine();
	return arg;
}

START_TEST(stack_of_a_coroutine)
{
	pthread_t t;

	run_coroutine();
	pthread_create(&t, NULL, coroutine_in_thread, NULL);
	pthread_join(t, NULL);
}
END_TEST

static char *alt;
static volatile sig_atomic_t handled;

static void on_signal(int sig)
{
	char buf[256];

	(void)sig;
	memset(buf, 0, sizeof(buf));
	handled = rds_user_writable(buf, sizeof(buf)) == 0 && rds_user_readable(alt + 16 * PAGE, 1) == -EFAULT &&
		  rds_user_writable(alt + 16 * PAGE - 1, 2) == -EFAULT;
}

START_TEST(signal_stack)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
	stack_t ss = {.ss_size = 16 * PAGE};

	alt = map(17 * PAGE, PROT_READ | PROT_WRITE);
	munmap(alt + 16 * PAGE, PAGE);
	ss.ss_sp = alt;
	ck_assert_int_eq(sigaltstack(&ss, NULL), 0);
	sigaction(SIGUSR1, &sa, NULL);
	raise(SIGUSR1);
	ck_assert(handled);
}
END_TEST

/* ---- vectors ---- */

START_TEST(vectors)
{
	char *m = map(2 * PAGE, PROT_READ | PROT_WRITE), *ro = map(PAGE, PROT_READ);
	struct iovec v[] = {{m, 10}, {NULL, 0}, {ro, 20}, {m + PAGE, PAGE}, {(void *)8, 1}};

	ck_assert_int_eq(rds_user_iov_readable(v, 0), 0);
	ck_assert_int_eq(rds_user_iov_readable(v, 4), 0);
	ck_assert_int_eq(rds_user_iov_readable(v, 5), -EFAULT);
}
END_TEST

/* Only the bytes that are asked for are touched: the rest of a large buffer stays unbacked. */
START_TEST(no_more_than_asked)
{
	char *m = map(BIG, PROT_READ | PROT_WRITE);
	unsigned char in[BIG / PAGE];

	ck_assert_int_eq(rds_user_writable(m, 64), 0);
	ck_assert_int_eq(mincore(m, BIG, in), 0);
	ck_assert(in[0] & 1);
	for (unsigned i = 1; i < BIG / PAGE; i++)
		ck_assert(!(in[i] & 1));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("uaccess");
	TCase *c = tcase_create("ranges"), *st = tcase_create("stacks");

	suite_add_tcase(s, c);
	suite_add_tcase(s, st);
	tcase_add_test(c, plain);
	tcase_add_test(c, nothing_is_always_good);
	tcase_add_test(c, wild_pointers);
	tcase_add_test(c, wrapping);
	tcase_add_test(c, neighbours);
	tcase_add_test(c, read_only);
	tcase_add_test(c, file_beyond_its_end);
	tcase_add_test(c, contents_stay);
	tcase_add_test(c, no_update_is_lost);
	tcase_add_test(c, filling_touches_nothing_else);
	tcase_add_test(c, filling_what_cannot_be);
	tcase_add_test(c, memory_is_faulted_in);
	tcase_add_test(c, remembered_until_forgotten);
	tcase_add_test(c, ranges_grow_together);
	tcase_add_test(c, exact_while_cold);
	tcase_add_test(c, forgotten_by_itself);
	tcase_add_test(c, reading_does_not_prove_writing);
	tcase_add_test(c, vectors);
	tcase_add_test(c, no_more_than_asked);
	tcase_add_test(st, main_stack);
	tcase_add_test(st, stack_of_a_thread);
	tcase_add_test(st, stack_of_a_coroutine);
	tcase_add_test(st, signal_stack);
	return suite_run(s);
}
