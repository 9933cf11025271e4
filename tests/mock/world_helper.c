/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * world_helper.c - the helper's services in a test of the verbs transport (world.h): timers,
 * events, threads and descriptors, in an order that is always the same.
 */
#include "tests/mock/world_impl.h"

#include <poll.h>
#include <sched.h>
#include <sys/stat.h>

void __wrap_rds_timer_set(struct rds_timer *tm, uint64_t due_ns);
void __wrap_rds_timer_need(struct rds_timer *tm, uint64_t due_ns);
void __wrap_rds_timer_cancel(struct rds_timer *tm);
int __wrap_rds_helper_event_add(struct rds_helper_event *ev, const _Atomic int *slot, uint32_t events);
void __wrap_rds_helper_event_del(int fd);

/* rdma_connect may have a thread of its own. */
static pthread_mutex_t timers_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
struct rds_timer *world_timers;
static struct {
	struct rds_helper_event *ev;
	int fd;
	ino_t ino;
	uint32_t events, seen; /* seen: what an edge-triggered one was told last */
} watched[32];

void __wrap_rds_timer_cancel(struct rds_timer *tm)
{
	struct rds_timer **p;

	pthread_mutex_lock(&timers_lock);
	for (p = &world_timers; tm->queued && *p; p = &(*p)->next)
		if (*p == tm) {
			*p = tm->next;
			tm->queued = false;
			break;
		}
	ck_assert(!tm->queued);
	pthread_mutex_unlock(&timers_lock);
}

void __wrap_rds_timer_set(struct rds_timer *tm, uint64_t due_ns)
{
	struct rds_timer **p;

	pthread_mutex_lock(&timers_lock);
	__wrap_rds_timer_cancel(tm);
	tm->due_ns = due_ns;
	for (p = &world_timers; *p && (*p)->due_ns <= due_ns; p = &(*p)->next)
		;
	tm->next = *p;
	*p = tm;
	tm->queued = true;
	pthread_mutex_unlock(&timers_lock);
}

void __wrap_rds_timer_need(struct rds_timer *tm, uint64_t due_ns)
{
	pthread_mutex_lock(&timers_lock);
	if (!tm->queued)
		__wrap_rds_timer_set(tm, due_ns);
	pthread_mutex_unlock(&timers_lock);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);

/*
 * A thread that makes a call has made it, or sleeps in it, before anybody does anything else: the
 * order is always the same.
 */
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	int err = world.no_threads ? EAGAIN : __real_pthread_create(t, attr, fn, arg);

	while (!err && atomic_load(&rds_helper_extra_threads) > mock_connects_hanging() + mock_destroys_hanging())
		sched_yield();
	return err;
}

int __wrap_os_fd_adopt(int *number);
int __real_os_fd_adopt(int *number);

int __wrap_os_fd_adopt(int *number)
{
	mock_fd_moves(number);
	return __real_os_fd_adopt(number);
}

int __wrap_os_bind(int fd, const struct sockaddr *sa, socklen_t len);
int __real_os_bind(int fd, const struct sockaddr *sa, socklen_t len);

/* Of TCP's ports those are taken where the mock's siw listens. */
int __wrap_os_bind(int fd, const struct sockaddr *sa, socklen_t len)
{
	if (sa->sa_family != AF_INET && sa->sa_family != AF_INET6)
		return __real_os_bind(fd, sa, len);
	return mock_cm_listens(0, sa) ? -EADDRINUSE : 0;
}

static ino_t ino_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

int __wrap_rds_helper_event_add(struct rds_helper_event *ev, const _Atomic int *slot, uint32_t events)
{
	int fd = atomic_load(slot);
	unsigned i;

	if (world.no_event && !--world.no_event)
		return -ENOSPC;
	for (i = 0; watched[i].ev && watched[i].fd != fd; i++)
		ck_assert_uint_lt(i, 30);
	watched[i].ev = ev;
	watched[i].fd = fd;
	watched[i].ino = ino_of(fd);
	watched[i].events = events;
	watched[i].seen = 0;
	return 0;
}

void __wrap_rds_helper_event_del(int fd)
{
	unsigned i;

	for (i = 0; i < 32; i++)
		if (watched[i].ev && watched[i].fd == fd)
			watched[i].ev = NULL;
}

/* What there is to tell of the i-th that is watched. */
static uint32_t news_of(unsigned i)
{
	struct pollfd p = {.fd = watched[i].fd, .events = POLLIN | POLLRDHUP};
	uint32_t news, seen = watched[i].seen;

	/* closed: the kernel forgets it, even if another file has that number now */
	if (ino_of(p.fd) != watched[i].ino) {
		watched[i].ev = NULL;
		return 0;
	}
	news = poll(&p, 1, 0) == 1 ? (uint32_t)p.revents : 0;
	watched[i].seen = news;
	return watched[i].events & EPOLLET ? news & ~seen : news;
}

static bool is_of_device(const struct rds_helper_event *ev)
{
	struct verbs_dev *dev;

	for (dev = atomic_load(&verbs_devs.all); dev; dev = dev->next)
		if (ev == &dev->comp_ev || ev == &dev->async_ev)
			return true;
	return false;
}

/*
 * As the helper does: all events are fetched, then one after the other is handled, whatever the
 * handlers of the others did.  A device's event is handled although its descriptor is not watched
 * any more: then the device must still be there.
 */
bool world_events_run(void)
{
	struct {
		struct rds_helper_event *ev;
		uint32_t news;
		bool of_device;
	} batch[32];
	unsigned i, n = 0;

	for (i = 0; i < 32; i++) {
		batch[n].ev = watched[i].ev;
		batch[n].news = batch[n].ev ? news_of(i) : 0;
		if (!batch[n].news)
			continue;
		batch[n].of_device = is_of_device(batch[n].ev);
		n++;
	}
	for (i = 0; i < n; i++) {
		if (batch[i].of_device)
			ck_assert_msg(is_of_device(batch[i].ev), "an event of what has been freed");
		batch[i].ev->fn(batch[i].ev, batch[i].news);
	}
	return n > 0;
}

bool world_timers_run(void)
{
	struct rds_timer *tm;

	pthread_mutex_lock(&timers_lock);
	tm = world_timers && world_timers->due_ns <= atomic_load(&mock_now) ? world_timers : NULL;
	if (tm) {
		world_timers = tm->next;
		tm->queued = false;
	}
	pthread_mutex_unlock(&timers_lock);
	if (tm)
		tm->fn(tm);
	return tm != NULL;
}

bool world_timer_due(uint64_t within_ns)
{
	return world_timers && world_timers->due_ns <= atomic_load(&mock_now) + within_ns;
}
