/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Waiting for far sockets, and what the programs ask of threads and of the host; see far.h.  A wait
 * for sockets of one host only is made there; one for both looks at each in turn.
 */
#include "far.h"

#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

#define TURN_US 5000

int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __real_pselect(int n, fd_set *in, fd_set *out, fd_set *ex, const struct timespec *ts, const sigset_t *mask);
int __real_epoll_ctl(int ep, int op, int fd, struct epoll_event *event);
int __real_epoll_wait(int ep, struct epoll_event *events, int max, int ms);
bool __real_helper_asleep(struct helper *helper);
uint64_t __real_counter(const char *name);

/* The agent's number that is to be polled for this one. */
static int polled(int fd)
{
	return far_of(fd) >= 0 ? far_of(fd) : far_set_of(fd);
}

static long far_poll(struct pollfd *fds, nfds_t n, int ms)
{
	struct far_made *made = far_make(FAR_POLL, 0, n, ms, 0, 0, 0);

	far_memory(made, fds, n * sizeof(*fds), FAR_ARG, 0, true);
	return far_do(made);
}

/* One look at both hosts. */
static int look(struct pollfd *fds, nfds_t n)
{
	struct pollfd here[n], there[n];
	nfds_t i;
	int r;

	for (i = 0; i < n; i++) {
		here[i] = there[i] = fds[i];
		there[i].fd = polled(fds[i].fd);
		if (there[i].fd >= 0)
			here[i].fd = -1;
	}
	r = __real_poll(here, n, 0);
	if (r < 0)
		return r;
	r += far_poll(there, n, 0);
	for (i = 0; i < n; i++)
		fds[i].revents = polled(fds[i].fd) >= 0 ? there[i].revents : here[i].revents;
	return r;
}

static bool bad(const void *at)
{
	return at == conf_bad;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
	long long end = now_ms() + ms;
	nfds_t i, far = 0, near = 0;
	struct pollfd there[n + 1];
	int r;

	if (bad(fds))
		return __real_poll(fds, n, ms);
	for (i = 0; i < n; i++) {
		there[i] = fds[i];
		there[i].fd = polled(fds[i].fd);
		far += there[i].fd >= 0;
		near += there[i].fd < 0 && fds[i].fd >= 0;
	}
	if (!far)
		return __real_poll(fds, n, ms);
	if (!near) {
		r = far_poll(there, n, ms);
		for (i = 0; i < n; i++)
			fds[i].revents = there[i].revents;
		return r;
	}
	while (!(r = look(fds, n)) && (ms < 0 || now_ms() < end))
		usleep(TURN_US);
	return r;
}

static int milliseconds(const struct timespec *ts)
{
	return ts ? (int)(ts->tv_sec * 1000 + ts->tv_nsec / 1000000) : -1;
}

/* The masks are empty in all programs. */
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask)
{
	(void)mask;
	return poll(fds, n, milliseconds(ts));
}

/* ---- select: of one host at a time ---- */

static int far_numbers(int n, const fd_set *from, fd_set *to, int *highest)
{
	int fd, others = 0;

	FD_ZERO(to);
	for (fd = 0; from && fd < n; fd++) {
		if (!FD_ISSET(fd, from))
			continue;
		if (far_of(fd) < 0) {
			others++;
			continue;
		}
		FD_SET(far_of(fd), to);
		*highest = far_of(fd) > *highest ? far_of(fd) : *highest;
	}
	return others;
}

static void own_numbers(int n, fd_set *set, const fd_set *far)
{
	int fd;

	for (fd = 0; set && fd < n; fd++)
		if (FD_ISSET(fd, set) && !FD_ISSET(far_of(fd), far))
			FD_CLR(fd, set);
}

int __wrap_pselect(int n, fd_set *in, fd_set *out, fd_set *ex, const struct timespec *ts, const sigset_t *mask)
{
	struct timeval tv = {.tv_sec = ts ? ts->tv_sec : 0, .tv_usec = ts ? ts->tv_nsec / 1000 : 0};
	fd_set *sets[3] = {in, out, ex}, far[3];
	struct far_made *made;
	int i, highest = -1, others = 0;
	long r;

	for (i = 0; i < 3; i++)
		others += far_numbers(n, sets[i], &far[i], &highest);
	if (highest < 0)
		return __real_pselect(n, in, out, ex, ts, mask);
	if (others)
		far_die("select on both hosts");
	made = far_make(FAR_SELECT, highest + 1, 0, 0, 0, 0, 0);
	for (i = 0; i < 3; i++)
		far_memory(made, sets[i] ? &far[i] : NULL, sizeof(fd_set), FAR_ARG, i + 1, true);
	far_memory(made, ts ? &tv : NULL, sizeof(tv), FAR_ARG, 4, true);
	r = far_do(made);
	for (i = 0; i < 3; i++)
		own_numbers(n, sets[i], &far[i]);
	return r;
}

int __wrap_select(int n, fd_set *in, fd_set *out, fd_set *ex, struct timeval *tv)
{
	struct timespec ts = {.tv_sec = tv ? tv->tv_sec : 0, .tv_nsec = tv ? tv->tv_usec * 1000 : 0};

	return pselect(n, in, out, ex, tv ? &ts : NULL, NULL);
}

/* ---- epoll: a set has a companion at the agent, which has what is far ---- */

int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *event)
{
	struct far_made *made;

	if (far_of(fd) < 0)
		return __real_epoll_ctl(ep, op, fd, event);
	if (far_set_of(ep) < 0)
		far_set(ep, far_do(far_make(FAR_EPOLL_CREATE, 0, 0, 0, 0, 0, 0)));
	made = far_make(FAR_EPOLL_CTL, far_set_of(ep), op, far_of(fd), 0, 0, 0);
	far_memory(made, event, sizeof(*event), FAR_ARG, 3, true);
	return far_do(made);
}

static int far_epoll_wait(int ep, struct epoll_event *events, int max, int ms)
{
	struct far_made *made = far_make(FAR_EPOLL_WAIT, far_set_of(ep), 0, max, ms, 0, 0);

	far_memory(made, events, max * sizeof(*events), FAR_ARG, 1, true);
	return far_do(made);
}

/*
 * A set with a companion has nothing of this host in it, in all programs; what has, is looked at
 * for the error's sake.
 */
int __wrap_epoll_wait(int ep, struct epoll_event *events, int max, int ms)
{
	if (far_set_of(ep) < 0)
		return __real_epoll_wait(ep, events, max, ms);
	if (__real_epoll_wait(ep, events, max, 0) != 0)
		far_die("an epoll set of both hosts");
	return far_epoll_wait(ep, events, max, ms);
}

/* ---- threads, hosts ---- */

bool __wrap_helper_asleep(struct helper *helper)
{
	long long end = now_ms() + TEST_COMES;
	int r;

	/* It may be on its way to the call. */
	do {
		r = far_asleep(helper->tid);
		if (r >= 0)
			return r;
		if (r == FAR_NONE && !__real_helper_asleep(helper))
			return false; /* it has ended */
		if (r == FAR_NONE && far_asleep(helper->tid) == FAR_NONE)
			return true;
	} while (now_ms() < end && !usleep(1000));
	return false;
}

/* Of both hosts. */
uint64_t __wrap_counter(const char *name)
{
	struct far_made *made = far_make(FAR_COUNTER, 0, 0, 0, 0, 0, 0);

	far_memory(made, name, strlen(name) + 1, FAR_ARG, 0, false);
	return __real_counter(name) + far_do(made);
}
