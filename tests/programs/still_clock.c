/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * still_clock - another preloaded library, as libfaketime is one: the time that it tells a program
 * is always the same.
 */
#include <sys/time.h>
#include <time.h>

#define STILL 1000000000

unsigned still_looks;

static time_t still(void)
{
	__atomic_add_fetch(&still_looks, 1, __ATOMIC_RELAXED);
	return STILL;
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	(void)clock;
	*ts = (struct timespec){.tv_sec = still()};
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	(void)zone;
	*tv = (struct timeval){.tv_sec = still()};
	return 0;
}

time_t time(time_t *t)
{
	time_t now = still();

	if (t)
		*t = now;
	return now;
}
