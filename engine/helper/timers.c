/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * timers.c - the helper's timers, and the clock by which a thread of the program sets one.
 *
 * The timers are a list by due time.  The helper looks at it before it sleeps.  A thread of the
 * program with a timer that is due earlier than the helper wakes does not wake it: it sets the
 * clock, a timerfd in the helper's epoll set.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/helper/helper.h"
#include "engine/helper/timers.h"
#include "engine/sys/os.h"

#define LOOK_SHARE 10 /* a look, and the time by which it is late, take no more than so much of all time, ... */
#define LOOK_PAUSE_MAX_NS (160 * 1000000ull) /* ... but it comes as often as that */

static struct {
	struct os_fd clock;
	struct rds_helper_event rung;
	pthread_mutex_t lock;
	struct rds_timer *first; /* by due time */
	/* lock: the first timer when the helper last slept, UINT64_MAX none */
	uint64_t sleep_until;
	uint64_t rings_at; /* lock: when the clock expires, UINT64_MAX never */
	uint64_t was_due;  /* helper: when the timer was due that runs now; any thread may have set it anew */
} timers = {.clock = OS_FD_NONE, .lock = PTHREAD_MUTEX_INITIALIZER};

static void timer_unlink(struct rds_timer *tm)
{
	struct rds_timer **p;

	if (!tm->queued)
		return;
	for (p = &timers.first; *p; p = &(*p)->next)
		if (*p == tm) {
			*p = tm->next;
			break;
		}
	tm->queued = false;
}

/* lock held */
static void timer_link(struct rds_timer *tm, uint64_t due_ns)
{
	struct rds_timer **p;

	tm->due_ns = due_ns;
	for (p = &timers.first; *p && (*p)->due_ns <= due_ns; p = &(*p)->next)
		;
	tm->next = *p;
	*p = tm;
	tm->queued = true;
	/* The helper itself looks at its timers before it sleeps. */
	if (!rds_helper_is_self && due_ns < timers.sleep_until && due_ns < timers.rings_at) {
		timers.rings_at = due_ns;
		/* the program has closed the clock */
		if (os_timerfd_set(os_fd(&timers.clock), due_ns) < 0) {
			timers.rings_at = UINT64_MAX;
			rds_helper_kick();
		}
	}
}

void rds_timer_set(struct rds_timer *tm, uint64_t due_ns)
{
	pthread_mutex_lock(&timers.lock);
	timer_unlink(tm);
	timer_link(tm, due_ns);
	pthread_mutex_unlock(&timers.lock);
}

void rds_timer_need(struct rds_timer *tm, uint64_t due_ns)
{
	pthread_mutex_lock(&timers.lock);
	if (!tm->queued)
		timer_link(tm, due_ns);
	pthread_mutex_unlock(&timers.lock);
}

bool rds_timer_by(struct rds_timer *tm, uint64_t due_ns)
{
	bool later;

	pthread_mutex_lock(&timers.lock);
	later = !tm->queued || tm->due_ns > due_ns;
	if (later) {
		timer_unlink(tm);
		timer_link(tm, due_ns);
	}
	pthread_mutex_unlock(&timers.lock);
	return later;
}

uint64_t rds_timer_pause(uint64_t least_ns)
{
	uint64_t pause = LOOK_SHARE * (os_now_ns() - timers.was_due);

	pause = pause < LOOK_PAUSE_MAX_NS ? pause : LOOK_PAUSE_MAX_NS;
	return pause < least_ns ? least_ns : pause;
}

bool rds_timer_is_set(const struct rds_timer *tm)
{
	bool set;

	pthread_mutex_lock(&timers.lock);
	set = tm->queued;
	pthread_mutex_unlock(&timers.lock);
	return set;
}

void rds_timer_cancel(struct rds_timer *tm)
{
	pthread_mutex_lock(&timers.lock);
	timer_unlink(tm);
	pthread_mutex_unlock(&timers.lock);
}

void rds_timers_run_due(void)
{
	uint64_t now = os_now_ns();
	struct rds_timer *tm;

	for (;;) {
		pthread_mutex_lock(&timers.lock);
		tm = timers.first;
		if (tm && tm->due_ns <= now) {
			timers.first = tm->next;
			timers.was_due = tm->due_ns;
			tm->queued = false;
		} else {
			tm = NULL;
		}
		pthread_mutex_unlock(&timers.lock);
		if (!tm)
			return;
		tm->fn(tm);
	}
}

/*
 * Milliseconds until the next timer, rounded up; -1: none, or the clock expires by then.  Stores
 * the time, so that a program's thread with an earlier timer sets the clock.
 */
int rds_timers_timeout(void)
{
	uint64_t now = os_now_ns(), due;

	pthread_mutex_lock(&timers.lock);
	due = timers.first ? timers.first->due_ns : UINT64_MAX;
	timers.sleep_until = due;
	if (due >= timers.rings_at || due == UINT64_MAX)
		due = 0;
	pthread_mutex_unlock(&timers.lock);
	if (!due)
		return -1;
	if (due <= now)
		return 0;
	due = (due - now + 999999) / 1000000;
	return due > 3600000 ? 3600000 : (int)due;
}

/* ---- the clock ---- */

int rds_timers_open(void)
{
	int err = os_dup_high_slot(os_timerfd(), &timers.clock.n[0]);

	timers.rings_at = UINT64_MAX;
	return err;
}

void rds_timers_close(void)
{
	os_close_slot(&timers.clock.n[0]);
}

const struct os_fd *rds_timers_fd(void)
{
	return &timers.clock;
}

void rds_timers_exported(int fd)
{
	atomic_store(&timers.clock.n[os_fd_table], fd);
}

static void clock_event(struct rds_helper_event *ev, uint32_t events)
{
	uint64_t times;

	(void)ev;
	(void)events;
	pthread_mutex_lock(&timers.lock);
	os_read(os_fd(&timers.clock), &times, sizeof(times));
	timers.rings_at = UINT64_MAX;
	pthread_mutex_unlock(&timers.lock);
}

int rds_timers_watch(void)
{
	timers.rung.fn = clock_event;
	return rds_helper_event_add(&timers.rung, os_fd_slot(&timers.clock), EPOLLIN);
}

void rds_timers_forget(void)
{
	pthread_mutex_init(&timers.lock, NULL);
	timers.first = NULL;
	os_fd_init(&timers.clock);
}
