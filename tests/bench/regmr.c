/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * regmr.c DEVICE SIZE MILLISECONDS - what registering memory costs a program that uses libibverbs
 * itself: ibv_reg_mr and ibv_dereg_mr of one buffer, over and over.  A program of its own, since
 * the worker needs libc only; it speaks the worker's lines (bench.h).
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST 1000000

static uint64_t took[MOST];

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
	printf("error %s\n", what);
	exit(1);
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (; list && *list && !ctx; list++)
		if (strcmp(ibv_get_device_name(*list), name) == 0)
			ctx = ibv_open_device(*list);
	if (!ctx)
		die("no such device");
	return ctx;
}

int main(int argc, char **argv)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	uint64_t last, end;
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	size_t size, n = 0;
	char line[16], *mem;

	if (argc != 4)
		die("usage: regmr DEVICE SIZE MILLISECONDS");
	size = strtoul(argv[2], NULL, 10);
	mem = aligned_alloc(4096, (size + 4095) & ~4095ul);
	pd = ibv_alloc_pd(open_device(argv[1]));
	if (!pd || !mem)
		die("no protection domain or no memory");
	memset(mem, 0x5a, size);
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	last = now_ns();
	end = last + strtoull(argv[3], NULL, 10) * 1000000u;
	while ((last < end || !n) && n < MOST) {
		uint64_t now;

		mr = ibv_reg_mr(pd, mem, size, access);
		if (!mr || ibv_dereg_mr(mr))
			die("ibv_reg_mr or ibv_dereg_mr");
		now = now_ns();
		took[n++] = now - last;
		last = now;
	}
	qsort(took, n, sizeof(took[0]), compare);
	printf("result ps=%llu\n", (unsigned long long)took[n / 2] * 1000);
	return 0;
}
