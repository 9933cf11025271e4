/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * epoll.c - epoll stays the kernel's: sets, edges, one-shots and nesting work on the stand-ins.
 *
 * A socket that is put into a set keeps its stand-in current from then on. A wait on such a set
 * makes progress first. While it sleeps it also listens to the engine's wake-up descriptor, so that
 * arrivals need not go through the helper thread. Sets without RDS sockets, and those that hold an
 * RDS set inside, go to the real call. Not so in a process with borrowed sockets: there every wait
 * may be for one of them, at any depth, and has to notice that the owner was killed.
 */
#include "preload/calls/pollset.h"
#include "preload/calls/args.h"

#include <stdlib.h>

#include "engine/sys/cleanup.h"

static int epoll_watch_sock(struct rds_sock *sk, int ep, int fd, const struct epoll_event *event)
{
	rds_sock_watch(sk, fd, event->events & EPOLLET);
	rds_fds_mark_epoll(ep, FDS_EPOLL);
	return 0;
}

static void epoll_add_set(int ep, int fd)
{
	if (unlikely(rds_fds_word_is_epoll(rds_fds_peek(fd))) && !rds_fds_is_epoll(ep))
		rds_fds_mark_epoll(ep, FDS_NESTED);
}

int epoll_ctl(int ep, int op, int fd, struct epoll_event *event)
{
	struct rds_sock *sk = rds_fds_get(fd);
	int rc;

	rc = libc_real.epoll_ctl(ep, op, fd, event);
	if (likely(!sk)) {
		if (rc == 0 && op == EPOLL_CTL_ADD && rds_fds_on())
			epoll_add_set(ep, fd);
		return rc;
	}
	if (unlikely(sk == RDS_BORROWED)) {
		/*
		 * From here on the owner keeps the stand-in current. A thread that waits checks
		 * that an owner exists.
		 */
		if (rc == 0 && op != EPOLL_CTL_DEL) {
			(void)RDS_BORROWED_CALL(fd, rds_borrower_watch(fd, event->events & EPOLLET, NULL), now,
						epoll_watch_sock(now, ep, fd, event));
			rds_fds_mark_epoll(ep, FDS_EPOLL);
		}
		rds_fds_put(sk);
		return rc;
	}
	if (rc == 0 && op != EPOLL_CTL_DEL)
		epoll_watch_sock(sk, ep, fd, event);
	rds_fds_put(sk);
	return rc;
}

#define FEW 8 /* borrowed sockets for whose owners a thread sleeps without the heap */

struct epoll_call {
	int ep, n;
	struct epoll_event *events;
	struct rds_borrower_wait owners; /* it has the call's signal mask, too */
	struct rds_wait *wait;
	/* State of the sleep (pollset.h tells why it is not in the frame). */
	struct timespec left;
	sigset_t mask;
	struct pollfd few[FEW + 2];
	struct pollfd *many; /* on the heap, while the thread sleeps for more than FEW */
	unsigned round;
	bool late;	/* an owner has ended, and the next one does not answer */
	uint64_t since; /* when the last search was over */
};

static int epoll_harvest(const struct epoll_call *c)
{
	int rc = libc_real.epoll_wait(c->ep, c->events, c->n, 0);

	return rc < 0 ? -errno : rc;
}

/* With the program's mask, as a sleep that times out at once. */
static int epoll_look_once(const struct epoll_call *c)
{
	int rc = libc_real.epoll_pwait(c->ep, c->events, c->n, 0, reentry_sleep_is_cut() ? NULL : c->owners.mask);

	return rc < 0 ? -errno : rc;
}

static int epoll_sleep_in(struct epoll_call *c, struct pollfd *p, unsigned n, const struct timespec *left)
{
	int rc = reentry_sleep_ppoll(p, n, left, rds_borrower_wait_mask(&c->owners, &c->mask));

	return rc < 0 ? -errno : rc;
}

/* The time is over before any sleep. A signal that has come ends the call even so. */
static int epoll_time_out(struct epoll_call *c)
{
	static const struct timespec zero;

	return epoll_sleep_in(c, NULL, 0, &zero);
}

/* No time was left: the sleep was the last one, even if a wake-up for other sockets has cut it short. */
static bool epoll_is_over(const struct epoll_call *c, const struct deadline *d)
{
	return !d->never && !c->left.tv_sec && !c->left.tv_nsec;
}

/* However long this takes, a sleep follows, which shows a signal that has come. */
static int epoll_find_owners(struct epoll_call *c)
{
	c->late = rds_fds_find_all_owners(&c->owners);
	c->since = os_now_ns();
	return 1;
}

/*
 * An owner is late. With the hang-up pipes no sleep would be one: none would see a signal, or time
 * out.
 */
static int epoll_sleep_late(struct epoll_call *c, int wake, const struct deadline *d)
{
	int rc;

	c->few[0] = (struct pollfd){.fd = c->ep, .events = POLLIN};
	c->few[1] = (struct pollfd){.fd = wake, .events = POLLIN};
	rc = epoll_sleep_in(c, c->few, 2, deadline_left_late(d, &c->left));
	if (rc < 0)
		return rc;
	if (rc ? epoll_is_over(c, d) : deadline_expired(d))
		return 0;
	/* a wake-up for other sockets does not put off the next search */
	if (rc && (c->few[0].revents || !late_look_is_due(c->since)))
		return 1;
	return epoll_find_owners(c);
}

/*
 * Sleeps until the set or the wake-up descriptor (-1: none) is ready or an owner of a borrowed
 * socket hangs up. 1, 0 for a timeout, or -errno.
 */
static int epoll_sleep(struct epoll_call *c, int wake, const struct deadline *d)
{
	unsigned n, room = FEW, i;
	struct pollfd *p = c->few;
	bool hung_up;
	int rc;

	if (unlikely(c->late))
		return epoll_sleep_late(c, wake, d);
	n = rds_standby_hangup_fds(c->few + 2, FEW);

	if (unlikely(n > FEW) && (c->many = malloc((n + 2) * sizeof(*p)))) {
		p = c->many;
		room = n;
		n = rds_standby_hangup_fds(p + 2, room);
	}
	if (n > room)
		n = room;
	p[0] = (struct pollfd){.fd = c->ep, .events = POLLIN};
	p[1] = (struct pollfd){.fd = wake, .events = POLLIN};
	rc = epoll_sleep_in(c, p, n + 2, deadline_left(d, &c->left));
	rc = rc < 0 ? rc : rc > 0;
	for (i = 2; rc > 0 && i < n + 2 && !p[i].revents; i++)
		;
	hung_up = rc > 0 && i < n + 2;
	free(c->many);
	c->many = NULL;
	if (unlikely(hung_up))
		return epoll_find_owners(c);
	return rc > 0 && unlikely(epoll_is_over(c, d)) ? 0 : rc;
}

/*
 * No engine here, all RDS sockets are borrowed or in an inner set, or no memory or descriptors to
 * wait with: the helper keeps the stand-ins current, only slower.
 */
static int epoll_wait_borrowed(struct epoll_call *c, const struct deadline *d)
{
	bool timed_out;
	int rc;

	for (;;) {
		rc = epoll_sleep(c, -1, d);
		if (rc < 0)
			return rc;
		timed_out = rc == 0;
		rc = epoll_harvest(c);
		if (rc || timed_out)
			return rc;
	}
}

static int epoll_wait_loop(struct epoll_call *c, const struct deadline *d)
{
	int rc;

	for (;;) {
		/* Signals that are held back for the search would not end a spin. */
		while (likely(!c->owners.held) && deadline_spin(d, c->wait, &c->round)) {
			rc = rds_progress_round() ? epoll_harvest(c) : 0;
			if (rc)
				return rc;
		}
		if (!rds_wait_arm(c->wait)) {
			rds_progress_round();
			rc = epoll_harvest(c);
			if (rc)
				return rc;
			if (deadline_expired(d))
				return epoll_time_out(c);
			continue;
		}
		rc = rds_wait_interrupted(c->wait) ? -EINTR : epoll_sleep(c, rds_wait_fd(c->wait), d);
		rds_wait_disarm(c->wait);
		if (rc < 0)
			return rc;
		bool timed_out = rc == 0;

		rds_progress_round();
		rc = epoll_harvest(c);
		if (rc || timed_out)
			return rc;
	}
}

static void epoll_wait_end(struct epoll_call *c)
{
	if (c->wait)
		rds_wait_end(c->wait);
	free(c->many);
}

static void epoll_wait_left(void *arg)
{
	struct epoll_call *c = arg;

	epoll_wait_end(c);
	rds_borrower_wait_left(&c->owners);
}

/* Signals that were held back are for the sleep. A call that does not sleep comes after them. */
static void epoll_reclaim(struct epoll_call *c, const struct deadline *d)
{
	rds_fds_reclaim_all(&c->owners);
	if (d->now)
		rds_borrower_wait_end(&c->owners);
}

static int epoll_rds(struct epoll_call *c, const struct deadline *d)
{
	int rc;

	pthread_testcancel();
	if (unlikely(atomic_load_explicit(&rds_fds_handed_off, memory_order_relaxed)))
		epoll_reclaim(c, d);
	if (rds_fds_is_epoll(c->ep))
		rds_progress_round();
	rc = d->now ? epoll_look_once(c) : epoll_harvest(c);
	if (!rc && d->now && rds_fds_is_epoll(c->ep))
		rds_progress_found_nothing();
	if (rc || d->now)
		return rc;
	c->wait = rds_fds_is_epoll(c->ep) && os_process_is_started() ? rds_wait_begin(0) : NULL;
	rds_cleanup_push(epoll_wait_left, c);
	rc = c->wait ? epoll_wait_loop(c, d) : epoll_wait_borrowed(c, d);
	rds_cleanup_pop(0);
	epoll_wait_end(c);
	return rc;
}

static bool epoll_ours(int ep)
{
	return rds_fds_on() && (unlikely(rds_fds_peek(ep) == FDS_EPOLL) || unlikely(rds_standby_hangup_fds(NULL, 0))) &&
	       !os_process_inherited();
}

/*
 * A wait that a handler interrupts ends with EINTR, as the kernel's does: SA_RESTART does not have
 * it made again.
 */
static int epoll_inside(struct epoll_call *c, const struct deadline *d)
{
	int rc;

	reentry_call_begin();
	rc = epoll_rds(c, d);
	rds_borrower_wait_end(&c->owners);
	reentry_call_end();
	return rc;
}

static int epoll_ms(int ep, struct epoll_event *events, int n, int timeout, const sigset_t *mask)
{
	struct epoll_call c = {.ep = ep, .n = n, .events = events, .owners = {.before_sleep = true, .mask = mask}};
	struct deadline d;

	if (mask && rds_user_readable(mask, _NSIG / 8))
		return (int)libc_result(-EFAULT);
	deadline_ms(&d, timeout);
	return (int)libc_result(epoll_inside(&c, &d));
}

int epoll_wait(int ep, struct epoll_event *events, int n, int timeout)
{
	if (likely(!epoll_ours(ep)))
		return libc_real.epoll_wait(ep, events, n, timeout);
	return epoll_ms(ep, events, n, timeout, NULL);
}

int epoll_pwait(int ep, struct epoll_event *events, int n, int timeout, const sigset_t *mask)
{
	if (likely(!epoll_ours(ep)))
		return libc_real.epoll_pwait(ep, events, n, timeout, mask);
	return epoll_ms(ep, events, n, timeout, mask);
}

int epoll_pwait2(int ep, struct epoll_event *events, int n, const struct timespec *timeout, const sigset_t *mask)
{
	struct epoll_call c = {.ep = ep, .n = n, .events = events, .owners = {.before_sleep = true, .mask = mask}};
	struct deadline d;
	int rc = 0;

	if (likely(!epoll_ours(ep)))
		return libc_real.epoll_pwait2(ep, events, n, timeout, mask);
	if (timeout && rds_user_readable(timeout, sizeof(*timeout)))
		rc = -EFAULT;
	rc = rc ? rc : deadline_ts(&d, timeout);
	if (!rc && mask && rds_user_readable(mask, _NSIG / 8))
		rc = -EFAULT;
	return (int)libc_result(rc ? rc : epoll_inside(&c, &d));
}
