/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_marks.c - ids of operations and marks of their destinations (socket/op_marks.c): operations
 * that finish out of order or are refused, memory that runs out, and a long run beside a model that
 * does everything the slow way.  What RDS_BARRIER makes of them is in test_barrier.c.  Linked with
 * malloc, calloc and free wrapped.
 */
#include <malloc.h>
#include <stdlib.h>

#include "tests/unit/marks_helper.h"

/* ---- memory that runs out ---- */

/*
 * Check allocates as well: these are looked at, and set, only where none of its macros is between.
 */
static int left = -1; /* allocations that succeed; -1 all */
static long held;     /* bytes; below 0: what Check frees did not all come through here */

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void __real_free(void *p);
void __wrap_free(void *p);

static void *taken(void *p)
{
	if (left > 0)
		left--;
	if (p)
		held += (long)malloc_usable_size(p);
	return p;
}

void *__wrap_malloc(size_t n)
{
	return taken(left ? __real_malloc(n) : NULL);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return taken(left ? __real_calloc(n, size) : NULL);
}

void __wrap_free(void *p)
{
	if (p)
		held -= (long)malloc_usable_size(p);
	__real_free(p);
}

#define marks(a, c)                                                                                                    \
	do {                                                                                                           \
		ck_assert_uint_eq(rds_sock_marks_get(&b, A), a);                                                       \
		ck_assert_uint_eq(rds_sock_marks_get(&b, B), c);                                                       \
	} while (0)

/* ---- ids and marks ---- */

START_TEST(before_any)
{
	marks(0, 0);
	ck_assert(!rds_sock_marks_outstanding(&b, A));
	ck_assert_uint_eq(rds_sock_marks_oldest(&b, A), 0);
	ck_assert(!rds_sock_marks_in_use(&b));
	ck_assert(!rds_sock_marks_readable(&b));
	ck_assert(!rds_sock_marks_finish(&b, A, 1));
	ck_assert(!rds_sock_marks_cancel(&b, A, 1));
	ck_assert_int_eq(call(A, 0, true, 0), 0); /* the probe of rds-stress */
	ck_assert_int_eq(call(A, 0, false, 0), 0);
	ck_assert(!rds_sock_marks_in_use(&b));
	ck_assert_ptr_null(b.dests); /* it has cost nothing */
}
END_TEST

START_TEST(one_counter)
{
	for (uint64_t i = 1; i <= 100; i++)
		ck_assert_uint_eq(begin(i % 3 ? A : B), i);
	ck_assert(rds_sock_marks_in_use(&b));
}
END_TEST

/* The mark of one destination is not moved by another's ids, lower or higher. */
START_TEST(two_destinations)
{
	begin(A); /* 1 */
	begin(B); /* 2 */
	begin(A); /* 3 */
	begin(B); /* 4 */
	ck_assert(rds_sock_marks_finish(&b, B, 2));
	marks(0, 2);
	ck_assert(rds_sock_marks_finish(&b, B, 4));
	marks(0, 4);
	ck_assert(!rds_sock_marks_outstanding(&b, B));
	ck_assert(rds_sock_marks_outstanding(&b, A));
	ck_assert(rds_sock_marks_finish(&b, A, 1));
	marks(1, 4); /* 3 is next to A: 2 is not A's */
	ck_assert(rds_sock_marks_finish(&b, A, 3));
	marks(3, 4);
	begin(A);
	marks(3, 4);
}
END_TEST

START_TEST(out_of_order)
{
	for (int i = 1; i <= 6; i++)
		begin(A);
	ck_assert(!rds_sock_marks_finish(&b, A, 2));
	ck_assert(!rds_sock_marks_finish(&b, A, 3));
	ck_assert(!rds_sock_marks_finish(&b, A, 5));
	marks(0, 0);
	ck_assert_uint_eq(rds_sock_marks_oldest(&b, A), 1);
	ck_assert(!rds_sock_marks_readable(&b)); /* nothing that the program could see */
	ck_assert(rds_sock_marks_finish(&b, A, 1));
	marks(3, 0);
	ck_assert_uint_eq(rds_sock_marks_oldest(&b, A), 4);
	ck_assert(!rds_sock_marks_finish(&b, A, 6));
	ck_assert(rds_sock_marks_finish(&b, A, 4));
	marks(6, 0);
	ck_assert_uint_eq(rds_sock_marks_oldest(&b, A), 0);
}
END_TEST

/* Told twice, of the wrong destination, or of an id that is not out yet: nothing moves. */
START_TEST(wrong_ids)
{
	begin(A);
	begin(B);
	begin(A);
	ck_assert(!rds_sock_marks_finish(&b, A, 2));
	ck_assert(!rds_sock_marks_finish(&b, A, 4));
	ck_assert(!rds_sock_marks_finish(&b, A, 0));
	ck_assert(!rds_sock_marks_finish(&b, 7, 1));
	ck_assert(!rds_sock_marks_finish(&b, A, 3));
	ck_assert(!rds_sock_marks_finish(&b, A, 3));
	ck_assert(!rds_sock_marks_cancel(&b, A, 3));
	marks(0, 0);
	ck_assert(rds_sock_marks_finish(&b, A, 1));
	ck_assert(!rds_sock_marks_finish(&b, A, 1));
	ck_assert(!rds_sock_marks_cancel(&b, A, 1));
	marks(3, 0);
	ck_assert(rds_sock_marks_outstanding(&b, B));
}
END_TEST

/*
 * One operation that never ends while thousands come and go behind it: the ring holds what is
 * unfinished.
 */
START_TEST(stuck)
{
	uint64_t first = begin(A), id, before = 0;
	long was = held, is;
	int rises = 0;

	for (int i = 0; i < 100000; i++) {
		if (rds_sock_marks_begin(&b, A, &id) < 0)
			abort();
		if (before)
			rises += rds_sock_marks_finish(&b, A, before);
		before = id;
	}
	is = held;
	ck_assert_int_le(is, was + 256);
	ck_assert_int_eq(rises, 0);
	marks(0, 0);
	ck_assert(rds_sock_marks_finish(&b, A, first));
	marks(before - 1, 0);
	ck_assert(rds_sock_marks_finish(&b, A, before));
	marks(before, 0);
}
END_TEST

/* What a burst took is given back when it is over. */
START_TEST(burst)
{
	long was, peak, is;
	uint64_t id;
	int rises = 0;

	begin(A);
	rds_sock_marks_finish(&b, A, 1);
	was = held;
	for (int i = 0; i < 5000; i++)
		if (rds_sock_marks_begin(&b, A, &id) < 0)
			abort();
	peak = held;
	for (id = 5001; id > 1; id--)
		rises += rds_sock_marks_finish(&b, A, id);
	is = held;
	ck_assert_int_eq(rises, 1);
	marks(5001, 0);
	ck_assert_int_ge(peak, was + 5000 * 8);
	ck_assert_int_le(is, was);
	ck_assert_uint_eq(begin(A), 5002);
	ck_assert(rds_sock_marks_finish(&b, A, 5002));
	marks(5002, 0);
}
END_TEST

START_TEST(many_destinations)
{
	for (uint32_t i = 0; i < 1000; i++)
		ck_assert_uint_eq(begin(A + (i << 24) + (i << 8)), i + 1);
	for (uint32_t i = 0; i < 1000; i += 2)
		ck_assert(rds_sock_marks_finish(&b, A + (i << 24) + (i << 8), i + 1));
	for (uint32_t i = 0; i < 1000; i++) {
		uint32_t daddr = A + (i << 24) + (i << 8);

		ck_assert_uint_eq(rds_sock_marks_get(&b, daddr), i % 2 ? 0 : i + 1);
		ck_assert_int_eq(rds_sock_marks_outstanding(&b, daddr), i % 2);
	}
	/* Addresses that are numbers like any other. */
	ck_assert_uint_eq(begin(0), 1001);
	ck_assert_uint_eq(begin(UINT32_MAX), 1002);
	ck_assert(rds_sock_marks_finish(&b, 0, 1001));
	ck_assert_uint_eq(rds_sock_marks_get(&b, 0), 1001);
	ck_assert_uint_eq(rds_sock_marks_get(&b, UINT32_MAX), 0);
}
END_TEST

/* ---- operations that sendmsg refuses after all ---- */

START_TEST(refused_last)
{
	ck_assert_uint_eq(begin(A), 1);
	ck_assert(!rds_sock_marks_cancel(&b, A, 1));
	ck_assert(!rds_sock_marks_in_use(&b)); /* nothing was sent */
	ck_assert(!rds_sock_marks_readable(&b));
	ck_assert(!rds_sock_marks_outstanding(&b, A));
	ck_assert_uint_eq(begin(A), 1);
	ck_assert(rds_sock_marks_finish(&b, A, 1));
	ck_assert_int_eq(call(A, 0, true, 1), 0);
	ck_assert_uint_eq(begin(A), 2);
	ck_assert_uint_eq(begin(B), 3);
	ck_assert(!rds_sock_marks_cancel(&b, B, 3));
	ck_assert_uint_eq(begin(A), 3);
	ck_assert(!rds_sock_marks_finish(&b, A, 3));
	ck_assert_uint_eq(begin(A), 4);
	ck_assert(!rds_sock_marks_cancel(&b, A, 4)); /* behind one that is finished */
	ck_assert(!rds_sock_marks_readable(&b));
	marks(1, 0);
	ck_assert_uint_eq(begin(A), 4);
	ck_assert(rds_sock_marks_finish(&b, A, 2));
	marks(3, 0);
}
END_TEST

/* Another thread has taken ids since: the hole is never a mark, and does not hold one back. */
START_TEST(refused_between)
{
	for (int i = 1; i <= 7; i++)
		begin(A);
	ck_assert(!rds_sock_marks_cancel(&b, A, 4));
	ck_assert(!rds_sock_marks_cancel(&b, A, 3));
	ck_assert_uint_eq(begin(B), 8);
	ck_assert(rds_sock_marks_finish(&b, A, 1));
	ck_assert(rds_sock_marks_finish(&b, A, 2));
	marks(2, 0);
	ck_assert_uint_eq(rds_sock_marks_oldest(&b, A), 5);
	ck_assert(!rds_sock_marks_finish(&b, A, 6));
	ck_assert(!rds_sock_marks_cancel(&b, A, 7));
	marks(2, 0);
	ck_assert_int_eq(call(A, 0, true, 2), 0);
	ck_assert(rds_sock_marks_cancel(&b, A, 5)); /* what held back 6 */
	marks(6, 0);
	ck_assert(rds_sock_marks_readable(&b));
	ck_assert_uint_eq(begin(A), 9);
}
END_TEST

/* ---- no memory ---- */

static int begin_with(int allocations, uint64_t *id)
{
	int ret;

	left = allocations;
	ret = rds_sock_marks_begin(&b, A, id);
	left = -1;
	return ret;
}

START_TEST(no_memory)
{
	uint64_t id = UNTOUCHED, n = 0;

	for (; begin_with(n, &id) < 0; n++) {
		ck_assert_uint_eq(id, UNTOUCHED);
		ck_assert(!rds_sock_marks_in_use(&b));
		marks(0, 0);
	}
	ck_assert_uint_ge(n, 2); /* table and ring */
	ck_assert_uint_eq(id, 1);
	while (!begin_with(0, &id))
		;
	ck_assert_int_eq(begin_with(0, &id), -ENOMEM);
	n = id;
	/* Half of them gone, there is room again without any. */
	for (uint64_t i = 2; i <= n / 2 + 1; i++)
		ck_assert(!rds_sock_marks_finish(&b, A, i));
	ck_assert_int_eq(begin_with(0, &id), 0);
	ck_assert_uint_eq(id, n + 1);
	ck_assert(rds_sock_marks_finish(&b, A, 1));
	marks(n / 2 + 1, 0);
}
END_TEST

/* ---- a long run beside a model ---- */

#define DESTS 5
#define IDS 20000

static struct {
	uint8_t dest;
	enum { FREE, OUT, FINISHED, CANCELLED } state;
} model[IDS + 1];
static uint64_t last_id;

/* Highest id such that it and all lower ones to there are finished. */
static uint64_t model_mark(unsigned dest, uint64_t from)
{
	uint64_t mark = from;

	for (uint64_t id = from + 1; id <= last_id; id++) {
		if (model[id].dest != dest || model[id].state == CANCELLED || model[id].state == FREE)
			continue;
		if (model[id].state == OUT)
			break;
		mark = id;
	}
	return mark;
}

static uint64_t model_oldest(unsigned dest, uint64_t mark)
{
	for (uint64_t id = mark + 1; id <= last_id; id++)
		if (model[id].dest == dest && model[id].state == OUT)
			return id;
	return 0;
}

/* Some unfinished one, or 0; old ones more often than young ones. */
static uint64_t model_pick(uint64_t from)
{
	uint64_t span = rand() % 3 ? 20 : 400;

	for (int tries = 0; tries < 20; tries++) {
		uint64_t id = from + 1 + rand() % span;

		if (id <= last_id && model[id].state == OUT)
			return id;
	}
	return 0;
}

static uint64_t marked[DESTS];

/* One operation may begin, one may end. */
static void step(unsigned depth)
{
	uint64_t lowest = last_id, id;
	unsigned dest;
	bool rose, cancel;

	for (unsigned i = 0; i < DESTS; i++)
		if (marked[i] < lowest)
			lowest = marked[i];
	if ((unsigned)rand() % 1000 < depth) {
		dest = rand() % DESTS;
		id = begin(A + dest);
		ck_assert_uint_eq(id, ++last_id);
		model[id].dest = dest;
		model[id].state = OUT;
	}
	cancel = rand() % 8 == 0;
	id = cancel && rand() % 2 ? last_id : model_pick(lowest);
	if (!id || model[id].state != OUT)
		return;
	dest = model[id].dest;
	if (cancel)
		rose = rds_sock_marks_cancel(&b, A + dest, id);
	else
		rose = rds_sock_marks_finish(&b, A + dest, id);
	model[id].state = cancel ? CANCELLED : FINISHED;
	if (cancel && id == last_id) {
		model[id].state = FREE;
		last_id--;
	}
	ck_assert_int_eq(rose, model_mark(dest, marked[dest]) > marked[dest]);
	marked[dest] = model_mark(dest, marked[dest]);
}

START_TEST(random_run)
{
	srand(_i);
	last_id = 0;
	memset(model, 0, sizeof(model));
	memset(marked, 0, sizeof(marked));
	for (int i = 0; i < 20000 && last_id < IDS; i++) {
		step(i / 4000 % 2 ? 300 : 900); /* fills, drains, fills again */
		for (unsigned dest = 0; dest < DESTS; dest++) {
			uint64_t oldest = rds_sock_marks_oldest(&b, A + dest);

			ck_assert_uint_eq(rds_sock_marks_get(&b, A + dest), marked[dest]);
			if (i % 64 == 0)
				ck_assert_uint_eq(oldest, model_oldest(dest, marked[dest]));
			ck_assert_int_eq(rds_sock_marks_outstanding(&b, A + dest), oldest != 0);
		}
	}
	ck_assert_uint_gt(last_id, 5000);
}
END_TEST

/* Ids of a process that had the socket before: all over, wherever they went. */
START_TEST(goes_on)
{
	uint64_t id, mark = UNTOUCHED;
	struct rds_barrier_request req = {.daddr = A, .wait_id = 100};

	rds_sock_marks_resume(&b, 100);
	ck_assert_uint_eq(rds_sock_marks_get(&b, A), 100);
	ck_assert_int_eq(rds_sock_marks_request(&b, &req, false, &mark), 0);
	ck_assert_uint_eq(mark, 100);
	ck_assert_int_eq(rds_sock_marks_begin(&b, A, &id), 0);
	ck_assert_uint_eq(id, 101);
	ck_assert_uint_eq(rds_sock_marks_get(&b, A), 100);
	req.wait_id = id;
	ck_assert_int_eq(rds_sock_marks_request(&b, &req, false, &mark), 1);
	ck_assert(rds_sock_marks_finish(&b, A, id));
	ck_assert_int_eq(rds_sock_marks_request(&b, &req, false, &mark), 0);
	ck_assert_uint_eq(mark, 101);
	ck_assert_uint_eq(rds_sock_marks_get(&b, B), 100);
	ck_assert_int_eq(rds_sock_marks_begin(&b, A, &id), 0);
	ck_assert(!rds_sock_marks_cancel(&b, A, id));
	ck_assert_uint_eq(rds_sock_marks_get(&b, A), 101);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("marks");
	TCase *t = suite_case(s, "marks", start, end);

	tcase_add_test(t, before_any);
	tcase_add_test(t, one_counter);
	tcase_add_test(t, two_destinations);
	tcase_add_test(t, out_of_order);
	tcase_add_test(t, wrong_ids);
	tcase_add_test(t, stuck);
	tcase_add_test(t, burst);
	tcase_add_test(t, many_destinations);
	tcase_add_test(t, refused_last);
	tcase_add_test(t, refused_between);
	tcase_add_test(t, no_memory);
	tcase_add_test(t, goes_on);
	t = suite_case(s, "model", start, end);
	tcase_add_loop_test(t, random_run, 1, 7);
	return suite_run(s);
}
