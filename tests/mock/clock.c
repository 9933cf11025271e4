/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * clock.c - the clock that a test turns (clock.h).
 */
#include "tests/mock/clock.h"

#include <check.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/sys/os.h"
#include "tests/slow.h"

#define MS_NS 1000000ull
#define NEVER UINT64_MAX
/* a look at one's own clock, so that who looks again and again comes to an end */
#define LOOK_NS 1000

_Atomic uint64_t mock_now;
static __thread struct {
	uint64_t now; /* 0: everybody's */
	unsigned silent;
} own;

uint64_t __real_os_now_ns(void);
uint64_t __wrap_os_now_ns(void);
int __real_os_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_os_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
long __real_os_syscall(long nr, long a, long b, long c, long d, long e, long f);
long __wrap_os_syscall(long nr, long a, long b, long c, long d, long e, long f);
int __real_os_timerfd_set(int fd, uint64_t due_ns);
int __wrap_os_timerfd_set(int fd, uint64_t due_ns);
int __real_os_epoll_wait(int ep, struct epoll_event *evs, int n, int timeout_ms);
int __wrap_os_epoll_wait(int ep, struct epoll_event *evs, int n, int timeout_ms);

static struct {
	pthread_mutex_t lock;
	int ep, alarm;		/* what it sleeps in; readable: its sleep has lasted long enough */
	int ring;		/* its timerfd */
	uint64_t wakes;		/* when the sleep ends by itself */
	uint64_t rings;		/* when the timerfd does */
	_Atomic unsigned turns; /* odd: it sleeps */
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER, .ep = -1, .alarm = -1, .ring = -1, .wakes = NEVER, .rings = NEVER};

void mock_clock_stop(void)
{
	atomic_store(&mock_now, __real_os_now_ns());
}

uint64_t __wrap_os_now_ns(void)
{
	uint64_t now = atomic_load(&mock_now);

	if (own.now)
		return own.now += LOOK_NS;
	return now ? now : __real_os_now_ns();
}

/* ---- a thread that waits ---- */

void mock_clock_own(unsigned silent)
{
	own.now = __wrap_os_now_ns();
	own.silent = silent;
}

void mock_clock_common(void)
{
	own.now = 0;
}

int __wrap_os_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	int ready;

	if (timeout_ms <= 0 || !own.now)
		return __real_os_poll(fds, n, timeout_ms);
	ready = __real_os_poll(fds, n, n > own.silent ? -1 : 0);
	if (!ready)
		own.now += (uint64_t)timeout_ms * MS_NS;
	return ready;
}

long __wrap_os_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	const struct timespec *ts = (const void *)a;

	if (nr != SYS_nanosleep || !own.now)
		return __real_os_syscall(nr, a, b, c, d, e, f);
	own.now += (uint64_t)ts->tv_sec * 1000 * MS_NS + (uint64_t)ts->tv_nsec;
	return 0;
}

/* ---- the helper ---- */

int __wrap_os_timerfd_set(int fd, uint64_t due_ns)
{
	uint64_t now = atomic_load(&mock_now);
	int err;

	if (!now)
		return __real_os_timerfd_set(fd, due_ns);
	pthread_mutex_lock(&helper.lock);
	helper.ring = fd;
	helper.rings = due_ns > now ? due_ns : NEVER;
	err = __real_os_timerfd_set(fd, due_ns > now ? INT64_MAX : 1);
	pthread_mutex_unlock(&helper.lock);
	return err;
}

/*
 * Looked at first, and then fetched: a thread that finds nothing there, and the helper asleep,
 * knows that the helper is at rest.
 */
int __wrap_os_epoll_wait(int ep, struct epoll_event *evs, int n, int timeout_ms)
{
	struct pollfd p[2] = {{.fd = ep, .events = POLLIN}, {.events = POLLIN}};
	uint64_t now = atomic_load(&mock_now), many;

	if (!now || !timeout_ms)
		return __real_os_epoll_wait(ep, evs, n, timeout_ms);
	pthread_mutex_lock(&helper.lock);
	if (helper.alarm < 0)
		helper.alarm = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p[1].fd = helper.alarm;
	helper.ep = ep;
	helper.wakes = timeout_ms < 0 ? NEVER : now + (uint64_t)timeout_ms * MS_NS;
	atomic_fetch_add(&helper.turns, 1);
	pthread_mutex_unlock(&helper.lock);
	__real_os_poll(p, 2, -1);
	pthread_mutex_lock(&helper.lock);
	atomic_fetch_add(&helper.turns, 1);
	helper.wakes = NEVER;
	os_read(helper.alarm, &many, sizeof(many));
	pthread_mutex_unlock(&helper.lock);
	return __real_os_epoll_wait(ep, evs, n, 0);
}

/* lock held */
static bool at_rest(void)
{
	struct pollfd p[2] = {{.fd = helper.ep, .events = POLLIN}, {.fd = helper.alarm, .events = POLLIN}};

	return helper.ep < 0 || (atomic_load(&helper.turns) % 2 && __real_os_poll(p, 2, 0) == 0);
}

/* lock held, at rest */
static uint64_t next_due(void)
{
	return helper.wakes < helper.rings ? helper.wakes : helper.rings;
}

static void turn_to(uint64_t now)
{
	const uint64_t one = 1;

	atomic_store(&mock_now, now);
	if (helper.rings <= now) {
		helper.rings = NEVER;
		ck_assert_int_eq(__real_os_timerfd_set(helper.ring, 1), 0);
	}
	if (helper.wakes <= now)
		ck_assert_int_eq(os_write(helper.alarm, &one, sizeof(one)), sizeof(one));
}

bool mock_clock_next(void)
{
	bool will;

	pthread_mutex_lock(&helper.lock);
	will = at_rest() && next_due() != NEVER;
	if (will)
		turn_to(next_due());
	pthread_mutex_unlock(&helper.lock);
	return will;
}

static void pass(uint64_t ns, bool at_once)
{
	uint64_t end = atomic_load(&mock_now) + ns;
	unsigned looks = 0;
	bool rests;

	do {
		pthread_mutex_lock(&helper.lock);
		rests = at_rest();
		if (rests && atomic_load(&mock_now) < end) {
			turn_to(at_once || end < next_due() ? end : next_due());
			looks = 0;
			rests = false;
		}
		pthread_mutex_unlock(&helper.lock);
		if (!rests)
			test_pause(&looks);
	} while (!rests);
}

void mock_clock_pass(uint64_t ns)
{
	pass(ns, false);
}

void mock_clock_leap(uint64_t ns)
{
	pass(ns, true);
}
