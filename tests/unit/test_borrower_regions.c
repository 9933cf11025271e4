/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_borrower_regions.c - the regions that a process has opened with the owners of its sockets
 * (share/borrower_regions.c): each owner is told once, a freed region does not come back, and
 * threads do not lose each other's.  The test plays the owner and the engine's regions.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "engine/share/borrower_impl.h"
#include "engine/rdma/mr.h"
#include "engine/socket/socket.h"
#include "tests/unit/suite.h"

#define INODE 7u
#define BASE 0x10000u
#define THREADS 4
#define ROUNDS 3000

static struct borrower_channel slot;
static pthread_mutex_t did_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	unsigned asked, regions, memory, again, freed;
	struct rds_mr_region last;
	int memory_err, ask_err, again_err;
	uint32_t free_in_again; /* freed while it is looked at, as by a signal handler */
	uint32_t free_in_ask;	/* freed while the owner is asked, as by another thread */
} did;

int __wrap_borrower_memory_grant(int fd, struct borrower_channel *s, struct borrower_call *c);
int __wrap_borrower_memory_grant(int fd, struct borrower_channel *s, struct borrower_call *c)
{
	int err;

	(void)fd, (void)s, (void)c;
	pthread_mutex_lock(&did_lock);
	did.memory++;
	err = did.memory_err;
	pthread_mutex_unlock(&did_lock);
	return err;
}

static void freed(const struct borrower_call *c)
{
	const struct rds_free_mr_args *args = c->data->iov_base;

	ck_assert(c->q.level == SOL_RDS && c->q.opt == RDS_FREE_MR && c->q.data_len == sizeof(*args));
	did.last.rkey = rds_cookie_rkey(args->cookie);
	did.freed++;
}

static void told_of(const struct borrower_call *c)
{
	const struct rds_mr_region *r = c->data->iov_base;
	struct borrower_region was;

	ck_assert_int_eq(c->q.op, RDS_SHARE_REGIONS);
	ck_assert_uint_eq(c->q.data_len % sizeof(*r), 0);
	did.asked++;
	did.regions += (unsigned)(c->q.data_len / sizeof(*r));
	did.last = r[0];
	if (did.free_in_ask)
		ck_assert(borrower_region_freed(INODE, did.free_in_ask, &was));
}

int __wrap_borrower_channel_ask(int fd, struct borrower_channel *s, struct borrower_call *c);
int __wrap_borrower_channel_ask(int fd, struct borrower_channel *s, struct borrower_call *c)
{
	int err;

	(void)fd, (void)s;
	ck_assert_uint_eq(c->q.data_len, c->data->iov_len);
	pthread_mutex_lock(&did_lock);
	if (c->q.op == RDS_SHARE_SETOPT)
		freed(c);
	else
		told_of(c);
	err = did.ask_err;
	pthread_mutex_unlock(&did_lock);
	return err;
}

int __wrap_rds_mr_restore(struct rds_sock *sk, const struct rds_mr_region *region, struct rds_foreign_memory *memory);
int __wrap_rds_mr_restore(struct rds_sock *sk, const struct rds_mr_region *region, struct rds_foreign_memory *memory)
{
	struct borrower_region was;

	ck_assert_ptr_null(memory);
	ck_assert_uint_eq(sk->inode, INODE);
	did.again++;
	did.last = *region;
	if (did.free_in_again)
		ck_assert(borrower_region_freed(INODE, did.free_in_again, &was));
	return did.again_err;
}

static void start(void)
{
	memset(&did, 0, sizeof(did));
	slot = (struct borrower_channel){.inode = INODE, .owner_id = 1};
	rds_borrower_regions_forget();
}

static void made(uint32_t rkey, uint64_t flags)
{
	borrower_region_add(&slot, rkey, &(struct rds_mr_request){.addr = BASE + 100, .bytes = 4096, .flags = flags});
}

static int told_to(struct borrower_channel *s)
{
	struct borrower_call c = {.inode = INODE};

	return borrower_regions_send(3, s, &c);
}

static unsigned adopted(bool all_there)
{
	static struct rds_sock sk;

	sk.inode = INODE;
	did.again = 0;
	rds_borrower_regions_to_socket(&sk, all_there);
	return did.again;
}

START_TEST(test_freed)
{
	struct borrower_region was;

	made(1000, 0);
	made(1001, RDS_RDMA_READWRITE);
	ck_assert(!borrower_region_freed(INODE, 999, &was));
	ck_assert(!borrower_region_freed(INODE + 1, 1000, &was));
	ck_assert(borrower_region_freed(INODE, 1001, &was));
	ck_assert(!borrower_region_freed(INODE, 1001, &was));
	ck_assert_uint_eq(adopted(true), 1);
	ck_assert(did.last.rkey == 1000 && did.last.base == BASE && did.last.len == 8192 && !did.last.flags);
	ck_assert_uint_eq(adopted(true), 0);
	borrower_region_keep(&was); /* FREE_MR was not made after all */
	ck_assert_uint_eq(adopted(true), 1);
	ck_assert(did.last.rkey == 1001 && did.last.flags == RDS_RDMA_READWRITE);
}
END_TEST

START_TEST(test_not_kept)
{
	made(1000, RDS_RDMA_USE_ONCE);
	ck_assert_uint_eq(adopted(true), 0);
	made(1001, 0);
	ck_assert_uint_eq(adopted(false), 0); /* some may be none any more */
	ck_assert_uint_eq(adopted(true), 0);
	made(1002, 0);
	rds_borrower_regions_drop(INODE + 1);
	rds_borrower_regions_drop(INODE);
	ck_assert_uint_eq(adopted(true), 0);
}
END_TEST

START_TEST(test_told)
{
	struct borrower_channel other = {.inode = INODE, .owner_id = 2},
				elsewhere = {.inode = INODE + 1, .owner_id = 3};
	unsigned i;

	ck_assert_int_eq(told_to(&slot), 0);
	for (i = 0; i < 200; i++)
		made(1000 + i, 0);
	ck_assert_int_eq(told_to(&slot), 0);
	ck_assert_int_eq(told_to(&elsewhere), 0);
	ck_assert_uint_eq(did.asked, 0);
	ck_assert_int_eq(told_to(&other), 0);
	ck_assert(did.regions == 200 && did.memory == did.asked);
	ck_assert_int_eq(told_to(&other), 0);
	other.regions = 0; /* another channel to the same */
	ck_assert_int_eq(told_to(&other), 0);
	ck_assert_uint_eq(did.regions, 200);
	slot.owner_id = 4;
	slot.regions = 0;
	made(3000, 0);
	ck_assert_int_eq(told_to(&slot), 0);
	ck_assert_uint_eq(did.regions, 400);
}
END_TEST

/* An owner that could not be told is told before the next call, by any channel. */
START_TEST(test_not_told)
{
	struct borrower_channel a = {.inode = INODE, .owner_id = 2}, b = a;

	made(1000, 0);
	did.memory_err = _i ? -ECONNRESET : 0;
	did.ask_err = _i ? 0 : -ECONNRESET;
	ck_assert_int_eq(told_to(&a), -ECONNRESET);
	ck_assert_int_eq(told_to(&b), -ECONNRESET);
	did.memory_err = did.ask_err = 0;
	ck_assert_int_eq(told_to(&b), 0);
	ck_assert_uint_eq(did.last.rkey, 1000);
	did.asked = 0;
	ck_assert_int_eq(told_to(&a), 0);
	ck_assert_uint_eq(did.asked, 0);
}
END_TEST

START_TEST(test_freed_meanwhile)
{
	made(1000, 0);
	did.free_in_again = 1000;
	ck_assert_uint_eq(adopted(true), 1);
	did.free_in_again = 0;
	made(1001, 0);
	ck_assert_uint_eq(adopted(true), 1);
	ck_assert_uint_eq(did.last.rkey, 1001);
}
END_TEST

/* The owner may have opened it behind its end. */
START_TEST(test_freed_while_told)
{
	struct borrower_channel other = {.inode = INODE, .owner_id = 2};

	made(1000, 0);
	made(1001, 0);
	made(1002, 0);
	did.free_in_ask = 1001;
	ck_assert_int_eq(told_to(&other), 0);
	ck_assert(did.regions == 3 && did.freed == 1 && did.last.rkey == 1001);
	did.free_in_ask = 0;
	ck_assert_int_eq(told_to(&other), 0);
	ck_assert_uint_eq(did.freed, 1);
	ck_assert_uint_eq(adopted(true), 2);
}
END_TEST

static void *makes_and_frees(void *arg)
{
	struct borrower_channel s = {.inode = INODE, .owner_id = 5};
	uint32_t first = 1u << 20 | (uint32_t)(uintptr_t)arg << 16, i;
	struct borrower_region was;

	for (i = 0; i < ROUNDS; i++) {
		borrower_region_add(&s, first + i, &(struct rds_mr_request){.addr = BASE, .bytes = 1});
		s.owner_id = 5 + i % 7;
		if (i % 3 == 0 && told_to(&s))
			return arg;
		if (i >= 8 && (!borrower_region_freed(INODE, first + i - 8, &was) || was.region.rkey != first + i - 8))
			return arg;
	}
	return NULL;
}

START_TEST(test_threads)
{
	pthread_t thread[THREADS];
	uintptr_t i;
	void *bad;

	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, makes_and_frees, (void *)(i + 1)), 0);
	for (i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(thread[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
	ck_assert_uint_eq(adopted(true), THREADS * 8);
	ck_assert_uint_eq(adopted(true), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("borrower_regions");
	TCase *tc = suite_case(s, "regions", start, NULL);

	tcase_add_test(tc, test_freed);
	tcase_add_test(tc, test_not_kept);
	tcase_add_test(tc, test_told);
	tcase_add_loop_test(tc, test_not_told, 0, 2);
	tcase_add_test(tc, test_freed_meanwhile);
	tcase_add_test(tc, test_freed_while_told);
	tcase_add_test(tc, test_threads);
	return suite_run(s);
}
