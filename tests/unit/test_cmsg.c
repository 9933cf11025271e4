/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_cmsg.c - control messages of a send in the kernel's order of checks, and what a receive
 * writes.  Buffers end at an unmapped page where a step too far would matter.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/abi/cmsg.h"
#include "engine/sys/uaccess.h"
#include "rds_abi.h"
#include "tests/unit/suite.h"

#define PAGE 4096u

static unsigned char buf[1024] __attribute__((aligned(8)));
static size_t used;
static struct rds_cmsg_summary out;

static void start(void)
{
	memset(buf, 0, sizeof(buf));
	used = 0;
}

/* One control message of any announced length; len is that of the data. */
static void *push(int level, int type, const void *data, size_t len)
{
	struct cmsghdr *c = (struct cmsghdr *)(buf + used);

	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	if (data)
		memcpy(CMSG_DATA(c), data, len);
	used += CMSG_SPACE(len);
	return c;
}

static struct msghdr message(void)
{
	return (struct msghdr){.msg_control = buf, .msg_controllen = used};
}

static int scan(void)
{
	struct msghdr m = message();

	return rds_cmsg_scan(&m, &out);
}

static int check(int flags)
{
	struct msghdr m = message();
	int ret = rds_cmsg_scan(&m, &out);

	return ret ? ret : rds_cmsg_check(&m, flags, 0, &out);
}

static int refuse(void)
{
	struct msghdr m = message();

	return rds_cmsg_refuse(&m);
}

/* ---- first pass: lengths ---- */

START_TEST(none)
{
	struct msghdr m = {0};

	ck_assert_int_eq(rds_cmsg_scan(&m, &out), 0);
	ck_assert_int_eq(rds_cmsg_check(&m, 0, 0, &out), 0);
	ck_assert_int_eq(rds_cmsg_refuse(&m), 0);
	m.msg_controllen = 64; /* no pointer, and yet a length */
	ck_assert_int_eq(rds_cmsg_scan(&m, &out), 0);
	memset(buf, 0xff, sizeof(buf));
	m.msg_control = buf;
	for (size_t n = 0; n < sizeof(struct cmsghdr); n++) {
		m.msg_controllen = n;
		ck_assert_int_eq(rds_cmsg_scan(&m, &out), 0);
		ck_assert_int_eq(rds_cmsg_check(&m, 0, 0, &out), 0);
	}
	m.msg_controllen = sizeof(struct cmsghdr);
	ck_assert_int_eq(rds_cmsg_scan(&m, &out), -EINVAL);
}
END_TEST

START_TEST(impossible_lengths)
{
	static const size_t bad[] = {0, 1, 15, 41, 1024, SIZE_MAX, SIZE_MAX - 7, SIZE_MAX / 2 + 1};
	struct cmsghdr *c;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		for (int level = 0; level <= 276; level += 276) { /* of any level */
			start();
			c = push(level, 3, NULL, 24);
			ck_assert_uint_eq(used, 40);
			c->cmsg_len = bad[i];
			ck_assert_int_eq(scan(), -EINVAL);
			ck_assert_int_eq(rds_cmsg_check(&(struct msghdr){.msg_control = buf, .msg_controllen = used}, 0, 0,
							&out),
					 -EINVAL);
			ck_assert_int_eq(refuse(), -EINVAL);
		}
}
END_TEST

/* The second of two is judged as well, and a tail that is shorter than a header is not one. */
START_TEST(second_message)
{
	struct cmsghdr *c;

	start();
	push(SOL_SOCKET, 1, NULL, 4);
	c = push(SOL_SOCKET, 1, NULL, 4);
	ck_assert_int_eq(scan(), 0);
	c->cmsg_len = 3;
	ck_assert_int_eq(scan(), -EINVAL);
	used = CMSG_SPACE(4) + 15;
	ck_assert_int_eq(scan(), 0);
	/* exact length, without the padding behind the last one */
	start();
	push(SOL_SOCKET, 1, NULL, 5);
	used = CMSG_LEN(5);
	ck_assert_int_eq(scan(), 0);
	used = CMSG_LEN(5) - 1;
	ck_assert_int_eq(scan(), -EINVAL);
}
END_TEST

START_TEST(args_size_and_sum)
{
	struct rds_rdma_args args = {.remote_vec.bytes = 1000};
	struct cmsghdr *c;

	start();
	c = push(SOL_RDS, RDS_CMSG_RDMA_ARGS, &args, sizeof(args));
	ck_assert_int_eq(scan(), 0);
	ck_assert_uint_eq(out.rdma_bytes, 1000);
	ck_assert_int_eq(out.level, SOL_RDS);
	c->cmsg_len--;
	ck_assert_int_eq(scan(), -EINVAL);
	c->cmsg_len++;
	args.remote_vec.bytes = 234;
	push(SOL_RDS_HISTORIC, RDS_CMSG_RDMA_ARGS, &args, sizeof(args));
	ck_assert_int_eq(scan(), 0);
	ck_assert_uint_eq(out.rdma_bytes, 1234);
	ck_assert_int_eq(out.level, SOL_RDS_HISTORIC);
	args.remote_vec.bytes = UINT64_MAX; /* does not come out small again */
	push(SOL_RDS, RDS_CMSG_RDMA_ARGS, &args, sizeof(args));
	ck_assert_int_eq(scan(), 0);
	ck_assert_uint_eq(out.rdma_bytes, UINT64_MAX);
	/* the eight bytes more of the 2008 layout do no harm */
	start();
	push(SOL_RDS, RDS_CMSG_RDMA_ARGS, NULL, 64);
	ck_assert_int_eq(scan(), 0);
	/* other levels may use the number as they like */
	start();
	push(SOL_SOCKET, RDS_CMSG_RDMA_ARGS, NULL, 4);
	ck_assert_int_eq(scan(), 0);
	ck_assert_int_eq(out.level, 0);
}
END_TEST

/* ---- second pass: types, vectors, mixtures ---- */

START_TEST(types)
{
	static const struct {
		int type, ret;
		unsigned present;
	} t[] = {
		{0, -EINVAL, 0}, {1, 0, RDS_HAS_ARGS}, {2, 0, RDS_HAS_DEST}, {3, 0, RDS_HAS_MAP}, {4, -EINVAL, 0},
		{5, -EINVAL, 0}, {6, 0, RDS_HAS_ATOMIC}, {7, 0, RDS_HAS_ATOMIC}, {8, 0, RDS_HAS_ATOMIC},
		{9, 0, RDS_HAS_ATOMIC}, {10, 0, RDS_HAS_ASYNC}, {11, -EINVAL, 0}, {12, 0, RDS_HAS_ZCOPY}, {13, -EINVAL, 0},
		{14, -EINVAL, 0}, {-1, -EINVAL, 0},
	};
	static const int levels[] = {SOL_RDS, SOL_RDS_HISTORIC, SOL_RDS_2006};
	struct rds_iovec v = {1, 1};
	struct rds_rdma_args args = {.local_vec_addr = (uintptr_t)&v, .nr_local = 1};

	for (unsigned l = 0; l < 3; l++)
		for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
			start();
			push(levels[l], t[i].type, &args, sizeof(args));
			ck_assert_int_eq(check(0), t[i].ret);
			if (!t[i].ret)
				ck_assert_uint_eq(out.present, t[i].present);
		}
	start();
	push(SOL_SOCKET, 77, NULL, 0);
	push(41, 1, NULL, 0);
	ck_assert_int_eq(check(0), 0);
	ck_assert_uint_eq(out.present, 0);
}
END_TEST

static int check_vectors(uintptr_t addr, uint64_t n)
{
	struct rds_rdma_args args = {.local_vec_addr = addr, .nr_local = n};

	start();
	push(SOL_RDS, RDS_CMSG_RDMA_ARGS, &args, sizeof(args));
	return check(0);
}

START_TEST(local_vectors)
{
	unsigned char *m = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rds_iovec v[2] = {{PAGE, 1}, {PAGE, 1}}, *many = (struct rds_iovec *)m;

	ck_assert_int_eq(check_vectors((uintptr_t)v, 2), 0);
	ck_assert_int_eq(check_vectors((uintptr_t)v, 0), -EINVAL);
	ck_assert_int_eq(check_vectors(0, 0), -EINVAL);
	ck_assert_int_eq(check_vectors(0, 1), -EFAULT);
	ck_assert_int_eq(check_vectors(0, 1025), -EMSGSIZE);
	ck_assert_int_eq(check_vectors((uintptr_t)v, UINT64_MAX), -EMSGSIZE);
	ck_assert_int_eq(check_vectors(UINTPTR_MAX - 20, 2), -EFAULT);
	v[1].bytes = 0;
	ck_assert_int_eq(check_vectors((uintptr_t)v, 1), 0);
	ck_assert_int_eq(check_vectors((uintptr_t)v, 2), -EINVAL);
	v[1].bytes = UINT32_MAX;
	ck_assert_int_eq(check_vectors((uintptr_t)v, 2), 0);
	v[1].bytes++;
	ck_assert_int_eq(check_vectors((uintptr_t)v, 2), -EINVAL);
	v[1] = (struct rds_iovec){UINT64_MAX, 1};
	ck_assert_int_eq(check_vectors((uintptr_t)v, 2), -EINVAL);
	v[1] = (struct rds_iovec){UINT64_MAX - 1, 1};
	ck_assert_int_eq(check_vectors((uintptr_t)v, 2), 0);
	/* as many as there may be, ending at a hole; and one more than is mapped */
	munmap(m + 5 * PAGE, PAGE);
	for (unsigned i = 0; i < 5 * PAGE / 16; i++)
		many[i] = (struct rds_iovec){PAGE, 1};
	ck_assert_int_eq(check_vectors((uintptr_t)m + PAGE, 1024), 0);
	ck_assert_int_eq(check_vectors((uintptr_t)m + PAGE + 16, 1024), -EFAULT);
	ck_assert_int_eq(check_vectors((uintptr_t)m + PAGE + 1, 1024), -EFAULT);
}
END_TEST

START_TEST(mixtures)
{
	static const int ops[] = {1, 6, 7, 8, 9}, extras[] = {2, 3, 12};
	struct rds_iovec v = {PAGE, 1};
	struct rds_rdma_args args = {.local_vec_addr = (uintptr_t)&v, .nr_local = 1};

	for (unsigned i = 0; i < 5; i++)
		for (unsigned j = 0; j < 3; j++) {
			start();
			push(SOL_RDS, ops[i], &args, sizeof(args));
			push(SOL_RDS, extras[j], NULL, 32);
			ck_assert_int_eq(check(0), -EINVAL);
			start();
			push(SOL_RDS, extras[j], NULL, 32);
			push(SOL_RDS_HISTORIC, ops[i], &args, sizeof(args));
			ck_assert_int_eq(check(0), -EINVAL);
		}
	start();
	push(SOL_RDS, 1, &args, sizeof(args));
	push(SOL_RDS, 6, &args, sizeof(args));
	ck_assert_int_eq(check(0), 0);
	start();
	push(SOL_RDS, 2, NULL, 8);
	push(SOL_RDS, 3, NULL, 32);
	push(SOL_RDS, 12, NULL, 4);
	ck_assert_int_eq(check(0), 0);
	ck_assert_uint_eq(out.present, RDS_HAS_DEST | RDS_HAS_MAP | RDS_HAS_ZCOPY);
}
END_TEST

START_TEST(zero_copy_rules)
{
	uint32_t cookie = 0xabcd1234;

	start();
	ck_assert_int_eq(check(MSG_ZEROCOPY), -EINVAL);
	push(SOL_RDS, RDS_CMSG_RDMA_DEST, NULL, 8);
	ck_assert_int_eq(check(MSG_ZEROCOPY), -EINVAL);
	start();
	push(SOL_RDS, RDS_CMSG_ZCOPY_COOKIE, &cookie, 4);
	ck_assert_int_eq(check(MSG_ZEROCOPY | MSG_DONTWAIT), 0);
	ck_assert_uint_eq(out.zcopy_cookie, cookie);
	ck_assert_int_eq(check(0), 0); /* refused later, when it is executed */
	ck_assert_int_eq(refuse(), -EINVAL);
}
END_TEST

/*
 * An unknown type comes before the vectors of a later message, and after those of an earlier one.
 */
START_TEST(order_of_errors)
{
	struct rds_rdma_args args = {.nr_local = 1025};

	start();
	push(SOL_RDS, 99, NULL, 0);
	push(SOL_RDS, 1, &args, sizeof(args));
	ck_assert_int_eq(check(0), -EINVAL);
	start();
	push(SOL_RDS, 1, &args, sizeof(args));
	push(SOL_RDS, 99, NULL, 0);
	ck_assert_int_eq(check(0), -EMSGSIZE);
}
END_TEST

/* ---- third pass: execution without RDMA ---- */

static int refuse_one(int type, const void *data, size_t len)
{
	start();
	push(SOL_SOCKET, 1, NULL, 4);
	push(SOL_RDS, type, data, len);
	return refuse();
}

START_TEST(refusals)
{
	struct rds_iovec v[2] = {{(uintptr_t)buf, 100}, {(uintptr_t)buf, 100}};
	struct rds_rdma_args args = {.local_vec_addr = (uintptr_t)v, .nr_local = 2, .remote_vec.bytes = 200};
	struct rds_atomic_args at = {.local_addr = (uintptr_t)buf};

	ck_assert_int_eq(refuse_one(RDS_CMSG_RDMA_ARGS, &args, sizeof(args)), -EOPNOTSUPP);
	args.remote_vec.bytes = 199;
	ck_assert_int_eq(refuse_one(RDS_CMSG_RDMA_ARGS, &args, sizeof(args)), -EINVAL);
	args.remote_vec.bytes = 1 << 20;
	ck_assert_int_eq(refuse_one(RDS_CMSG_RDMA_ARGS, &args, sizeof(args)), -EOPNOTSUPP);
	v[1].addr = 8;
	ck_assert_int_eq(refuse_one(RDS_CMSG_RDMA_ARGS, &args, sizeof(args)), -EFAULT);
	v[1].addr = (uintptr_t)"read only";
	v[1].bytes = 8;
	ck_assert_int_eq(refuse_one(RDS_CMSG_RDMA_ARGS, &args, sizeof(args)), -EFAULT);
	args.flags = RDS_RDMA_READWRITE;
	ck_assert_int_eq(refuse_one(RDS_CMSG_RDMA_ARGS, &args, sizeof(args)), -EOPNOTSUPP);
	push(SOL_RDS, RDS_CMSG_RDMA_ARGS, &args, sizeof(args));
	ck_assert_int_eq(refuse(), -EINVAL);

	ck_assert_int_eq(refuse_one(RDS_CMSG_RDMA_MAP, NULL, 31), -EINVAL);
	ck_assert_int_eq(refuse_one(RDS_CMSG_RDMA_MAP, NULL, 32), -EOPNOTSUPP);
	ck_assert_int_eq(refuse_one(RDS_CMSG_RDMA_DEST, NULL, 7), -EINVAL);
	ck_assert_int_eq(refuse_one(RDS_CMSG_RDMA_DEST, NULL, 8), -EINVAL);
	ck_assert_int_eq(refuse_one(RDS_CMSG_ATOMIC_FADD, &at, sizeof(at)), -EOPNOTSUPP);
	ck_assert_int_eq(refuse_one(RDS_CMSG_ATOMIC_CSWP, &at, sizeof(at) - 1), -EINVAL);
	push(SOL_RDS, RDS_CMSG_ATOMIC_FADD, &at, sizeof(at));
	ck_assert_int_eq(refuse(), -EINVAL);
	at.local_addr += 4;
	ck_assert_int_eq(refuse_one(RDS_CMSG_MASKED_ATOMIC_FADD, &at, sizeof(at)), -EFAULT);
	at.local_addr = 8;
	ck_assert_int_eq(refuse_one(RDS_CMSG_MASKED_ATOMIC_CSWP, &at, sizeof(at)), -EFAULT);
	start();
	push(SOL_SOCKET, 1, NULL, 4);
	ck_assert_int_eq(refuse(), 0);
}
END_TEST

/*
 * Another thread rewrites lengths and numbers all the time: wrong answers are fine, leaving the
 * buffer is not.  (Not under the thread sanitizer: the race is what is tested.)
 */
#ifndef __SANITIZE_THREAD__
static _Atomic bool stop;
/* bytes of the two messages; their headers are hit */
#define TWO (2 * CMSG_SPACE(sizeof(struct rds_rdma_args)))

static void *scribble(void *arg)
{
	unsigned char *p = arg;
	unsigned seed = 1;

	while (!atomic_load(&stop)) {
		seed = seed * 1103515245 + 12345;
		*(volatile unsigned char *)&p[(seed >> 12) % 2 * TWO / 2 + (seed >> 8) % 16] = (unsigned char)(seed >> 24);
	}
	return NULL;
}

START_TEST(changing_memory)
{
	unsigned char *m = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct msghdr msg = {.msg_control = m + PAGE - TWO, .msg_controllen = TWO};
	struct rds_rdma_args args = {0};
	pthread_t t;
	long answers = 0;

	munmap(m + PAGE, PAGE);
	pthread_create(&t, NULL, scribble, m + PAGE - TWO);
	for (int i = 0; i < 100000; i++) {
		start();
		push(i & 1 ? SOL_SOCKET : SOL_RDS, i % 14, &args, sizeof(args));
		push(SOL_RDS, 6, &args, sizeof(args));
		memcpy(msg.msg_control, buf, used);
		answers += rds_cmsg_scan(&msg, &out) == 0;
		answers += rds_cmsg_check(&msg, 0, 0, &out) == 0;
		answers += rds_cmsg_refuse(&msg) == 0;
	}
	atomic_store(&stop, true);
	pthread_join(t, NULL);
	ck_assert_int_gt(answers, 0);
}
END_TEST
#endif

/* ---- out ---- */

static struct rds_cmsg_out into(void *p, size_t len)
{
	struct msghdr m = {.msg_control = p, .msg_controllen = len};
	struct rds_cmsg_out o;

	memset(buf, 0xee, sizeof(buf));
	memset(&o, 0xee, sizeof(o));
	rds_cmsg_out_init(&o, &m);
	return o;
}

START_TEST(put_fits)
{
	struct rds_cmsg_out o = into(buf, 64);
	struct cmsghdr *c = (struct cmsghdr *)buf;

	ck_assert_int_eq(rds_cmsg_put(&o, SOL_RDS, 2, "12345678", 8), 0);
	ck_assert_uint_eq(o.used, 24);
	ck_assert_uint_eq(c->cmsg_len, 24);
	ck_assert_int_eq(c->cmsg_level, SOL_RDS);
	ck_assert_int_eq(c->cmsg_type, 2);
	ck_assert_mem_eq(CMSG_DATA(c), "12345678", 8);
	ck_assert_uint_eq(buf[24], 0xee);
	ck_assert_int_eq(rds_cmsg_put(&o, SOL_SOCKET, 29, "abcde", 5), 0);
	c = (struct cmsghdr *)(buf + 24);
	ck_assert_uint_eq(c->cmsg_len, 21);
	ck_assert_uint_eq(o.used, 48);
	ck_assert_uint_eq(buf[45], 0xee); /* padding is not written */
	ck_assert_int_eq(o.flags, 0);
	/* 16 left: a header, all data cut off */
	ck_assert_int_eq(rds_cmsg_put(&o, SOL_RDS, 5, "12345678", 8), 0);
	c = (struct cmsghdr *)(buf + 48);
	ck_assert_uint_eq(c->cmsg_len, 16);
	ck_assert_int_eq(c->cmsg_type, 5);
	ck_assert_uint_eq(o.used, 64);
	ck_assert_int_eq(o.flags, MSG_CTRUNC);
	ck_assert_uint_eq(buf[64], 0xee);
	/* nothing left */
	ck_assert_int_eq(rds_cmsg_put(&o, SOL_RDS, 5, "12345678", 8), 0);
	ck_assert_uint_eq(o.used, 64);
}
END_TEST

START_TEST(put_cut)
{
	struct rds_cmsg_out o = into(buf, 20);
	struct cmsghdr *c = (struct cmsghdr *)buf;

	ck_assert_int_eq(rds_cmsg_put(&o, SOL_RDS, 4, "12345678", 8), 0);
	ck_assert_uint_eq(c->cmsg_len, 20);
	ck_assert_uint_eq(o.used, 20);
	ck_assert_int_eq(o.flags, MSG_CTRUNC);
	ck_assert_mem_eq(buf + 16, "1234\xee", 5);
	o = into(buf, 15);
	ck_assert_int_eq(rds_cmsg_put(&o, SOL_RDS, 4, "12345678", 8), 0);
	ck_assert_uint_eq(o.used, 0);
	ck_assert_int_eq(o.flags, MSG_CTRUNC);
	ck_assert_uint_eq(buf[0], 0xee);
	o = into(NULL, 64);
	ck_assert_int_eq(rds_cmsg_put(&o, SOL_RDS, 4, "12345678", 8), 0);
	ck_assert_uint_eq(o.used, 0);
	ck_assert_int_eq(o.flags, MSG_CTRUNC);
	/* exactly the length, no room for the padding: whole, and all of the buffer is used up */
	o = into(buf, 21);
	ck_assert_int_eq(rds_cmsg_put(&o, SOL_RDS, 4, "12345", 5), 0);
	ck_assert_uint_eq(o.used, 21);
	ck_assert_int_eq(o.flags, 0);
}
END_TEST

START_TEST(put_fault)
{
	unsigned char *m = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rds_cmsg_out o = into((void *)64, 64);

	ck_assert_int_eq(rds_cmsg_put(&o, SOL_RDS, 4, "12345678", 8), -EFAULT);
	munmap(m + PAGE, PAGE);
	o = into(m + PAGE - 24, 64);
	ck_assert_int_eq(rds_cmsg_put(&o, SOL_RDS, 4, "12345678", 8), 0);
	ck_assert_int_eq(rds_cmsg_put(&o, SOL_RDS, 4, "12345678", 8), -EFAULT);
	o = into(m + PAGE - 23, 64);
	ck_assert_int_eq(rds_cmsg_put(&o, SOL_RDS, 4, "12345678", 8), -EFAULT);
	mprotect(m, PAGE, PROT_READ);
	rds_user_forget();
	o = into(m, 64);
	ck_assert_int_eq(rds_cmsg_put(&o, SOL_RDS, 4, "12345678", 8), -EFAULT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cmsg");
	TCase *in = tcase_create("in"), *o = tcase_create("out");

	suite_add_tcase(s, in);
	suite_add_tcase(s, o);
	tcase_add_test(in, none);
	tcase_add_test(in, impossible_lengths);
	tcase_add_test(in, second_message);
	tcase_add_test(in, args_size_and_sum);
	tcase_add_test(in, types);
	tcase_add_test(in, local_vectors);
	tcase_add_test(in, mixtures);
	tcase_add_test(in, zero_copy_rules);
	tcase_add_test(in, order_of_errors);
	tcase_add_test(in, refusals);
#ifndef __SANITIZE_THREAD__
	tcase_add_test(in, changing_memory);
#endif
	tcase_add_test(o, put_fits);
	tcase_add_test(o, put_cut);
	tcase_add_test(o, put_fault);
	return suite_run(s);
}
