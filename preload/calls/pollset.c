/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * pollset.c - the wait: look at the engine first and make progress, spin a little if the engine
 * says so, and then sleep once in the kernel, on the foreign descriptors and the engine's wake-up
 * descriptor together.
 *
 * The kernel's order is kept where it shows: descriptors that are ready win over a signal, and a
 * signal wins over a timeout. The caller's signal mask is in force in the sleep only. The kernel
 * sets it there, so the change is atomic. Once an owner of a borrowed socket has been waited for,
 * signals are held back outside of the sleep (share/borrower.h).
 */
#include "preload/calls/pollset.h"

#include <stdlib.h>

#include "engine/sys/cleanup.h"
#include "engine/sys/os.h"

#define NSEC INT64_C(1000000000)
#define LOOK_AT_KERNEL_EVERY 8 /* rounds of spinning */
#define DEADLINE_EVERY 8
#define LATE_LOOK_NS 50000000 /* between looks for an owner that is late */

/* ---- deadlines ---- */

static int64_t deadline_now_ns(void)
{
	return (int64_t)os_now_ns();
}

static void deadline_in(struct deadline *d, int64_t sec, int64_t nsec)
{
	d->now = sec == 0 && nsec == 0;
	d->never = sec > INT32_MAX; /* no process gets that old */
	d->at_ns = d->now || d->never ? 0 : deadline_now_ns() + sec * NSEC + nsec;
}

void deadline_ms(struct deadline *d, int ms)
{
	if (ms < 0)
		*d = (struct deadline){.never = true};
	else
		deadline_in(d, ms / 1000, ms % 1000 * INT64_C(1000000));
}

int deadline_ts(struct deadline *d, const struct timespec *ts)
{
	*d = (struct deadline){.never = true};
	if (!ts)
		return 0;
	if (ts->tv_sec < 0 || ts->tv_nsec < 0 || ts->tv_nsec >= NSEC)
		return -EINVAL;
	deadline_in(d, ts->tv_sec, ts->tv_nsec);
	return 0;
}

struct timespec *deadline_left(const struct deadline *d, struct timespec *left)
{
	int64_t ns;

	if (d->never)
		return NULL;
	ns = d->now ? 0 : d->at_ns - deadline_now_ns();
	if (ns < 0)
		ns = 0;
	left->tv_sec = ns / NSEC;
	left->tv_nsec = ns % NSEC;
	return left;
}

struct timespec *deadline_left_late(const struct deadline *d, struct timespec *left)
{
	if (!deadline_left(d, left) || left->tv_sec || left->tv_nsec > LATE_LOOK_NS)
		*left = (struct timespec){.tv_nsec = LATE_LOOK_NS};
	return left;
}

bool late_look_is_due(uint64_t since)
{
	return os_now_ns() - since >= 2 * LATE_LOOK_NS;
}

bool deadline_expired(const struct deadline *d)
{
	return !d->never && (d->now || deadline_now_ns() >= d->at_ns);
}

/* ---- the set ---- */

int pollset_init(struct pollset *ps, unsigned n, struct rds_borrower_wait *owners)
{
	unsigned hangups = rds_standby_hangup_fds(NULL, 0);

	if (hangups > n)
		n = hangups;
	ps->room = n < POLLSET_SMALL ? POLLSET_SMALL : n;
	ps->n_rds = ps->n_kernel = ps->n_hangups = 0;
	ps->by_select = ps->looked = ps->all_hangups = ps->again = ps->late = false;
	ps->round = 0;
	ps->owners = owners;
	owners->since = 0;
	ps->refused = NONE_REFUSED;
	ps->wait = NULL;
	ps->heap = NULL;
	ps->rds = ps->small_rds;
	ps->kernel = ps->small_kernel;
	ps->kernel_index = ps->small_index;
	ps->hangup_fds = ps->small_hangup_fds;
	if (n <= POLLSET_SMALL)
		return 0;
	ps->heap = malloc(n * (sizeof(*ps->rds) + 2 * sizeof(*ps->kernel) + sizeof(*ps->kernel_index) + sizeof(int)) +
			  sizeof(*ps->kernel));
	if (!ps->heap)
		return -ENOMEM;
	ps->rds = ps->heap;
	ps->kernel = (struct pollfd *)(ps->rds + n);
	ps->kernel_index = (unsigned *)(ps->kernel + 2 * n + 1);
	ps->hangup_fds = (int *)(ps->kernel_index + n);
	return 0;
}

#define CALLS_MAX 4

void pollset_add(struct pollset *ps, int fd, unsigned index, short events)
{
	struct rds_sock *sk = rds_fds_ref(fd);
	enum fds_owner owner;

	/*
	 * The owner shows readiness on the stand-in. All bits are right but one, which AF_UNIX
	 * always sets.
	 */
	if (unlikely(sk == RDS_BORROWED)) {
		owner = rds_fds_find_owner(fd, ps->owners);
		if (owner == FDS_OWNER_SELF)
			sk = rds_fds_ref(fd);
		else
			ps->hangup_fds[ps->n_hangups++] = rds_borrower_hangup_fd(fd);
		if (owner == FDS_OWNER_UNKNOWN)
			ps->refused = index;
		ps->late |= owner == FDS_OWNER_LATE;
		events &= ~POLLWRBAND;
	}
	if (sk && sk != RDS_BORROWED) {
		bool counted = ps->n_rds >= CALLS_MAX && rds_sock_get(sk);

		if (counted)
			rds_fds_unref(sk);
		ps->rds[ps->n_rds++] =
			(struct pollset_rds){.sk = sk, .index = index, .events = events, .counted = counted};
		return;
	}
	if (unlikely(rds_fds_word_is_epoll(rds_fds_peek(fd))))
		ps->all_hangups = true;
	ps->kernel[ps->n_kernel] = (struct pollfd){.fd = fd, .events = events};
	ps->kernel_index[ps->n_kernel++] = index;
}

void pollset_end(struct pollset *ps)
{
	if (ps->wait)
		rds_wait_end(ps->wait);
	ps->wait = NULL;
	for (unsigned i = ps->n_rds; i--;)
		(ps->rds[i].counted ? rds_sock_put : rds_fds_unref)(ps->rds[i].sk);
	ps->n_rds = 0;
	free(ps->heap);
	ps->heap = NULL;
}

/* The sleep was left. */
static void pollset_clean_up(void *arg)
{
	struct pollset *ps = arg;

	pollset_end(ps);
	rds_borrower_wait_left(ps->owners);
}

/* What select() reports of the bits that poll() reports, for the sets that the entry was in. */
static short pollset_select_bits(short events, short revents)
{
	short bits = 0;

	if ((events & POLLIN) && (revents & (SELECT_IN | POLLHUP | POLLERR)))
		bits |= POLLIN;
	if ((events & POLLOUT) && (revents & (SELECT_OUT | POLLERR)))
		bits |= POLLOUT;
	if ((events & POLLPRI) && (revents & SELECT_EX))
		bits |= POLLPRI;
	return bits | (revents & POLLNVAL);
}

/* ---- looking ---- */

static int pollset_look_rds(struct pollset *ps)
{
	int ready = 0;

	rds_progress_round();
	for (unsigned i = 0; i < ps->n_rds; i++) {
		struct pollset_rds *r = &ps->rds[i];

		r->revents = rds_call_poll(r->sk, r->events | (ps->looked ? RDS_POLL_AGAIN : 0));
		ps->again |= unlikely(r->revents & POLLNVAL) && rds_fds_exec_must_retry(r->sk);
		if (ps->by_select)
			r->revents = pollset_select_bits(r->events, r->revents);
		ready += r->revents != 0;
	}
	ps->looked = true;
	return ready;
}

/*
 * Turns the kernel's events into select()'s. A descriptor of which the kernel reports only what is
 * no event for select() is left out from now on: with a hung-up one, no further sleep would be one.
 */
static int pollset_count_selected(struct pollset *ps)
{
	int ready = 0;

	for (unsigned i = 0; i < ps->n_kernel; i++) {
		struct pollfd *p = &ps->kernel[i];

		if (!p->revents)
			continue;
		p->revents = pollset_select_bits(p->events, p->revents);
		if (p->revents)
			ready++;
		else
			p->fd = -1;
	}
	return ready;
}

/*
 * Looks at the foreign descriptors. Number of those that are ready, or -errno. With a mask, handlers
 * run as in a sleep: outside of the call.
 */
static int pollset_look_kernel(struct pollset *ps, const sigset_t *mask)
{
	static const struct timespec zero;
	bool plain = !mask || reentry_sleep_is_cut();
	int rc = plain ? libc_real.ppoll(ps->kernel, ps->n_kernel, &zero, NULL)
		       : reentry_sleep_ppoll(ps->kernel, ps->n_kernel, &zero, mask);

	if (rc < 0)
		return -errno;
	return rc && ps->by_select ? pollset_count_selected(ps) : rc;
}

/* Puts the hang-up pipes behind the foreign descriptors. Returns how many. */
static unsigned pollset_add_hangups(struct pollset *ps)
{
	struct pollfd *p = ps->kernel + ps->n_kernel;
	unsigned i;

	if (unlikely(ps->all_hangups)) {
		i = rds_standby_hangup_fds(p, ps->room);
		return i < ps->room ? i : ps->room;
	}
	for (i = 0; i < ps->n_hangups; i++)
		p[i] = (struct pollfd){.fd = ps->hangup_fds[i], .events = 0};
	return i;
}

/*
 * Sleeps on the foreign descriptors, the hang-up pipes, and `extra` (the wake-up descriptor) if it is
 * not negative.
 */
static int pollset_sleep_until(struct pollset *ps, unsigned hangups, int extra, const struct timespec *left)
{
	const sigset_t *mask = rds_borrower_wait_mask(ps->owners, &ps->mask);
	unsigned n = ps->n_kernel + hangups, i, hung_up = 0;

	if (extra >= 0)
		ps->kernel[n++] = (struct pollfd){.fd = extra, .events = POLLIN};
	int rc = reentry_sleep_ppoll(ps->kernel, n, left, mask);

	ps->timed_out = rc == 0;
	if (rc < 0)
		return -errno;
	if (extra >= 0 && ps->kernel[n - 1].revents)
		rc--;
	for (i = 0; i < hangups; i++)
		hung_up += ps->kernel[ps->n_kernel + i].revents != 0;
	rc -= (int)hung_up;
	if (!rc && hung_up)
		return -POLLSET_AGAIN;
	/* Wake-ups for other sockets may cut each sleep short, also this last one. */
	ps->timed_out |= left && !left->tv_sec && !left->tv_nsec;
	return rc && ps->by_select ? pollset_count_selected(ps) : rc;
}

/*
 * An owner is late. With the hang-up pipes no sleep would be one: none would see a signal, or time
 * out. The owner is looked for again in any case, also if wake-ups for other sockets cut each sleep
 * short.
 */
static int pollset_sleep_late(struct pollset *ps, int extra, const struct deadline *d)
{
	int rc = pollset_sleep_until(ps, 0, extra, deadline_left_late(d, &ps->left));

	if (rc || deadline_expired(d))
		return rc;
	return ps->timed_out || late_look_is_due(ps->since) ? -POLLSET_AGAIN : 0;
}

/* Sleeps until the deadline, or until the set has to be filled in anew. */
static int pollset_sleep(struct pollset *ps, int extra, const struct deadline *d)
{
	int rc;

	if (unlikely(ps->late))
		return pollset_sleep_late(ps, extra, d);
	rc = pollset_sleep_until(ps, pollset_add_hangups(ps), extra, deadline_left(d, &ps->left));
	if (likely(rc != -POLLSET_AGAIN) || !ps->all_hangups || !rds_fds_find_all_owners(ps->owners))
		return rc;
	ps->since = os_now_ns();
	return pollset_sleep_late(ps, extra, d);
}

/*
 * Does not sleep: what else is ready, now that `ready` RDS sockets are? Ready descriptors win over
 * a signal.
 */
static int pollset_look_once(struct pollset *ps, int ready, const sigset_t *mask)
{
	int rc = 0;

	if (ps->n_kernel || (mask && !ready))
		rc = pollset_look_kernel(ps, ready ? NULL : mask);
	return rc < 0 && ready ? ready : rc < 0 ? rc : rc + ready;
}

/* ---- waiting ---- */

static int pollset_begin_wait(struct pollset *ps)
{
	ps->wait = rds_wait_begin(ps->n_rds);
	if (!ps->wait)
		return -ENOMEM;
	for (unsigned i = 0; i < ps->n_rds; i++) {
		int rc = rds_wait_add(ps->wait, ps->rds[i].sk, ps->rds[i].events);

		if (rc)
			return rc;
	}
	return 0;
}

/* May the thread go on spinning? A spin outlasts the caller's timeout by a few looks at most. */
bool deadline_spin(const struct deadline *d, struct rds_wait *w, unsigned *round)
{
	if (++*round % DEADLINE_EVERY == 0 && deadline_expired(d))
		return false;
	return rds_wait_spin(w);
}

/* One sleep.  Number of foreign descriptors that are ready, or -errno. */
static int pollset_sleep_once(struct pollset *ps, const struct deadline *d)
{
	int rc = rds_wait_interrupted(ps->wait) ? -EINTR : pollset_sleep(ps, rds_wait_fd(ps->wait), d);

	rds_wait_disarm(ps->wait);
	return rc;
}

static int pollset_wait_loop(struct pollset *ps, const struct deadline *d)
{
	for (;;) {
		int ready = pollset_look_rds(ps), rc;

		if (ready)
			return pollset_look_once(ps, ready, NULL);
		/* Signals that are held back for the search would not end a spin. */
		if (likely(!ps->owners->held) && deadline_spin(d, ps->wait, &ps->round)) {
			if (!ps->n_kernel || ps->round % LOOK_AT_KERNEL_EVERY)
				continue;
			rc = pollset_look_once(ps, 0, NULL);
			if (rc)
				return rc;
			continue;
		}
		if (!rds_wait_arm(ps->wait)) {
			if (deadline_expired(d))
				return pollset_look_once(ps, pollset_look_rds(ps),
							 rds_borrower_wait_mask(ps->owners, &ps->mask));
			continue;
		}
		rc = pollset_sleep_once(ps, d);
		if (rc < 0)
			return rc;
		if (rc > 0 || ps->timed_out)
			return rc + pollset_look_rds(ps);
	}
}

/* Since the caller looked, the sockets have gone or have turned out to be borrowed. */
static int pollset_wait_kernel(struct pollset *ps, const struct deadline *d)
{
	int rc;

	do
		rc = pollset_sleep(ps, -1, d);
	while (rc == 0 && !ps->timed_out);
	return rc;
}

static int pollset_run(struct pollset *ps, int ready, const struct deadline *d)
{
	static const struct deadline at_once = {.now = true};
	int rc;

	if (unlikely(ps->refused != NONE_REFUSED))
		d = &at_once;
	if (unlikely(!ps->n_rds))
		return pollset_wait_kernel(ps, d);
	if (ready || d->now) {
		rc = pollset_look_once(ps, ready, rds_borrower_wait_mask(ps->owners, &ps->mask));
		if (!rc)
			rds_progress_found_nothing();
		return rc;
	}
	if (ps->n_kernel) {
		rc = pollset_look_once(ps, 0, NULL);
		if (rc)
			return rc;
	}
	rc = pollset_begin_wait(ps);
	return rc ? rc : pollset_wait_loop(ps, d);
}

/* Reports POLLERR for the refused socket: the program's own call on it then gives the error. */
static int pollset_add_refused(struct pollset *ps, int rc)
{
	unsigned i;

	for (i = 0; i < ps->n_kernel && ps->kernel_index[i] != ps->refused; i++)
		;
	if (rc < 0 || i == ps->n_kernel)
		return rc;
	struct pollfd *p = &ps->kernel[i];
	short bits = ps->by_select ? pollset_select_bits(p->events, POLLERR) : POLLERR;

	if (!p->revents && bits)
		rc++;
	p->revents |= bits;
	return rc;
}

int pollset_wait(struct pollset *ps, const struct deadline *d)
{
	int ready = ps->n_rds ? pollset_look_rds(ps) : 0, rc;

	if (ready && !ps->n_kernel)
		/* Nothing so far is a cancellation point. */
		return unlikely(ps->again) ? -POLLSET_AGAIN : ready;
	if (unlikely(ps->late))
		ps->since = os_now_ns();
	rds_cleanup_push(pollset_clean_up, ps);
	rc = pollset_run(ps, ready, d);
	rds_cleanup_pop(0);
	if (unlikely(ps->again) && rc != -EINTR)
		return -POLLSET_AGAIN;
	return unlikely(ps->refused != NONE_REFUSED) ? pollset_add_refused(ps, rc) : rc;
}
