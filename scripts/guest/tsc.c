/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * How fast this machine's time stamp counter runs: kHz, one line.  The emulator hands it to guests as it is.  A guest would find that out when it starts
 * by comparing it with an emulated timer for some milliseconds; where others want this machine's processors at that moment, it finds a few hundred MHz
 * instead of some thousand, and its clock is many times too fast for all of its life.
 * Each of the two moments counts whose clock was read while least time passed: who is interrupted there reads again.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

#define APART_NS 100000000
#define READS 1000

struct moment {
	int64_t ns;
	uint64_t ticks;
};

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static struct moment moment(void)
{
	int64_t least = INT64_MAX, before, after;
	struct moment m = {0};
	uint64_t ticks;

	for (int i = 0; i < READS; i++) {
		before = now_ns();
		ticks = __rdtsc();
		after = now_ns();
		if (after - before >= least)
			continue;
		least = after - before;
		m = (struct moment){before + least / 2, ticks};
	}
	return m;
}

int main(void)
{
	const struct timespec apart = {.tv_nsec = APART_NS};
	struct moment from = moment(), to;

	nanosleep(&apart, NULL);
	to = moment();
	printf("%.0f\n", (double)(to.ticks - from.ticks) * 1e6 / (double)(to.ns - from.ns));
	return 0;
}
