/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * measure.c - CPU time, context switches, percentiles.
 */
#include "bench.h"

#include <stdlib.h>

static uint64_t timeval_ns(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
}

struct usage usage_now(void)
{
	struct rusage all, self;

	/* every thread of the process: a library's helper counts too */
	getrusage(RUSAGE_SELF, &all);
	getrusage(RUSAGE_THREAD, &self);
	return (struct usage){.wall = now_ns(),
			      .cpu = timeval_ns(all.ru_utime) + timeval_ns(all.ru_stime),
			      .sleeps = (uint64_t)self.ru_nvcsw};
}

struct usage usage_since(struct usage start)
{
	struct usage end = usage_now();

	return (struct usage){
		.wall = end.wall - start.wall, .cpu = end.cpu - start.cpu, .sleeps = end.sleeps - start.sleeps};
}

void samples_add(struct samples *s, uint64_t v)
{
	if (s->n == s->cap) {
		s->cap = s->cap ? s->cap * 2 : 4096;
		s->v = realloc(s->v, s->cap * sizeof(*s->v));
		if (!s->v)
			die("no memory for samples");
	}
	s->v[s->n++] = v;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

uint64_t samples_percentile(struct samples *s, unsigned percent)
{
	if (!s->n)
		die("no samples");
	qsort(s->v, s->n, sizeof(*s->v), compare);
	return s->v[(s->n - 1) * percent / 100];
}

void samples_free(struct samples *s)
{
	free(s->v);
	*s = (struct samples){0};
}
