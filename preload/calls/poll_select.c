/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * poll_select.c - poll and select in all their forms. A set without RDS sockets goes to the real
 * call as it is.
 */
#include "preload/calls/pollset.h"
#include "preload/calls/args.h"

#include <string.h>
#include <sys/resource.h>

/* An epoll set, in which there may be sockets of other processes (all_hangups in pollset.h). */
static inline bool holds_others(uintptr_t word)
{
	return unlikely(rds_fds_word_is_epoll(word)) && rds_standby_hangup_fds(NULL, 0);
}

/* ---- poll ---- */

static bool poll_has_rds(struct pollfd *fds, nfds_t n)
{
	if (n > INT32_MAX || rds_user_writable(fds, n * sizeof(*fds)))
		return false; /* the kernel returns the right error for it */
	for (nfds_t i = 0; i < n; i++) {
		uintptr_t word = rds_fds_peek(fds[i].fd);

		if (unlikely(word >= FDS_MARKS || word == FDS_BORROWED || holds_others(word)))
			return true;
	}
	return false;
}

static int poll_once(struct pollfd *fds, nfds_t n, const struct deadline *d, struct rds_borrower_wait *owners)
{
	struct pollset ps;
	int rc = pollset_init(&ps, (unsigned)n, owners);

	if (rc)
		return rc;
	for (unsigned i = 0; i < n; i++)
		if (fds[i].fd >= 0)
			pollset_add(&ps, fds[i].fd, i, fds[i].events);
	rc = pollset_wait(&ps, d);
	for (unsigned i = 0; i < n && rc != -POLLSET_AGAIN; i++)
		fds[i].revents = 0;
	for (unsigned i = 0; rc > 0 && i < ps.n_kernel; i++)
		fds[ps.kernel_index[i]].revents = ps.kernel[i].revents;
	for (unsigned i = 0; rc > 0 && i < ps.n_rds; i++)
		fds[ps.rds[i].index].revents = ps.rds[i].revents;
	pollset_end(&ps);
	return rc;
}

static int poll_rds(struct pollfd *fds, nfds_t n, const struct deadline *d, const sigset_t *mask)
{
	struct rds_borrower_wait owners = {.before_sleep = true, .mask = mask};
	int rc;

	reentry_call_begin();
	do
		rc = poll_once(fds, n, d, &owners);
	while (unlikely(rc == -POLLSET_AGAIN));
	rds_borrower_wait_end(&owners);
	reentry_call_end();
	return rc;
}

/*
 * Not part of the wrapper, so that a foreign poll() pays for no big frame and no stack protector.
 */
static __attribute__((noinline)) int poll_ours(struct pollfd *fds, nfds_t n, int timeout)
{
	struct deadline d;

	pthread_testcancel();
	deadline_ms(&d, timeout);
	return (int)libc_result(poll_rds(fds, n, &d, NULL));
}

static inline int poll_any(struct pollfd *fds, nfds_t n, int timeout)
{
	if (likely(!rds_fds_on()) || !poll_has_rds(fds, n))
		return libc_real.poll(fds, n, timeout);
	return poll_ours(fds, n, timeout);
}

int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	return poll_any(fds, n, timeout);
}
RDS_ALIAS(__poll, poll);

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room)
{
	if (unlikely(room / sizeof(*fds) < n))
		return libc_real.__poll_chk(fds, n, timeout, room); /* ends the program */
	return poll_any(fds, n, timeout);
}

static __attribute__((noinline)) int ppoll_ours(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
						const sigset_t *mask)
{
	struct deadline d;
	int rc = 0;

	pthread_testcancel();
	if ((timeout && rds_user_readable(timeout, sizeof(*timeout))) || (mask && rds_user_readable(mask, _NSIG / 8)))
		rc = -EFAULT;
	rc = rc ? rc : deadline_ts(&d, timeout);
	return (int)libc_result(rc ? rc : poll_rds(fds, n, &d, mask));
}

static inline int ppoll_any(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	if (likely(!rds_fds_on()) || !poll_has_rds(fds, n))
		return libc_real.ppoll(fds, n, timeout, mask);
	return ppoll_ours(fds, n, timeout, mask);
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	return ppoll_any(fds, n, timeout, mask);
}

int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t room)
{
	if (unlikely(room / sizeof(*fds) < n))
		return libc_real.__ppoll_chk(fds, n, timeout, mask, room);
	return ppoll_any(fds, n, timeout, mask);
}

/* ---- select ---- */

#define WORD_BITS ((int)(8 * sizeof(fd_mask)))
#define NSETS 3 /* readable, writable, exceptional */

struct select_sets {
	int n;
	fd_mask *set[NSETS]; /* NULL: not passed */
};

static const short select_events[NSETS] = {SELECT_IN, SELECT_OUT, SELECT_EX};
static const short select_bit[NSETS] = {POLLIN, POLLOUT, POLLPRI};

static fd_mask sets_word(const struct select_sets *s, int w)
{
	fd_mask bits = 0;

	for (int i = 0; i < NSETS; i++)
		if (s->set[i])
			bits |= s->set[i][w];
	if (s->n - w * WORD_BITS < WORD_BITS)
		bits &= (fd_mask)((1UL << (s->n - w * WORD_BITS)) - 1);
	return bits;
}

static int sets_words(int n)
{
	return (n + WORD_BITS - 1) / WORD_BITS;
}

/* Only numbers below rds_fds_top() can be RDS. */
static bool sets_have_rds(const struct select_sets *s)
{
	int top = rds_fds_top() < s->n ? rds_fds_top() : s->n;

	for (int i = 0; i < NSETS; i++)
		if (s->set[i] && rds_user_writable(s->set[i], (size_t)sets_words(top) * sizeof(fd_mask)))
			return false;
	for (int w = 0; w < sets_words(top); w++)
		for (fd_mask bits = sets_word(s, w); bits; bits &= bits - 1) {
			uintptr_t word = rds_fds_peek(w * WORD_BITS + __builtin_ctzl((unsigned long)bits));

			if (word >= FDS_MARKS || word == FDS_BORROWED || holds_others(word))
				return true;
		}
	return false;
}

/*
 * Programs may pass INT_MAX. The kernel cuts n to the size of the descriptor table; here it is cut
 * to the limit of numbers.
 */
static int sets_cut(struct select_sets *s)
{
	struct rlimit rl;

	if (s->n > FD_SETSIZE && getrlimit(RLIMIT_NOFILE, &rl) == 0 && (rlim_t)s->n > rl.rlim_cur)
		s->n = (int)rl.rlim_cur > rds_fds_top() ? (int)rl.rlim_cur : rds_fds_top();
	for (int i = 0; i < NSETS; i++)
		if (s->set[i] && rds_user_writable(s->set[i], (size_t)sets_words(s->n) * sizeof(fd_mask)))
			return -EFAULT;
	return 0;
}

static unsigned sets_count(const struct select_sets *s)
{
	unsigned n = 0;

	for (int w = 0; w < sets_words(s->n); w++)
		n += (unsigned)__builtin_popcountl((unsigned long)sets_word(s, w));
	return n;
}

static void sets_fill(const struct select_sets *s, struct pollset *ps)
{
	for (int w = 0; w < sets_words(s->n); w++) {
		for (fd_mask bits = sets_word(s, w); bits; bits &= bits - 1) {
			int bit = __builtin_ctzl((unsigned long)bits);
			short events = 0;

			for (int i = 0; i < NSETS; i++)
				if (s->set[i] && (s->set[i][w] >> bit & 1))
					events |= select_events[i];
			pollset_add(ps, w * WORD_BITS + bit, (unsigned)(w * WORD_BITS + bit), events);
		}
	}
}

static int sets_answer(const struct select_sets *s, unsigned fd, short revents)
{
	int bits = 0;

	for (int i = 0; i < NSETS; i++) {
		if (revents & select_bit[i]) {
			s->set[i][fd / WORD_BITS] |= (fd_mask)(1UL << fd % WORD_BITS);
			bits++;
		}
	}
	return bits;
}

/* The program's sets are only written when there is an answer. */
static int sets_read_out(const struct select_sets *s, const struct pollset *ps)
{
	int bits = 0;

	for (unsigned i = 0; i < ps->n_kernel; i++)
		if (ps->kernel[i].revents & POLLNVAL)
			return -EBADF;
	for (int i = 0; i < NSETS; i++)
		if (s->set[i])
			memset(s->set[i], 0, (size_t)sets_words(s->n) * sizeof(fd_mask));
	for (unsigned i = 0; i < ps->n_kernel; i++)
		bits += sets_answer(s, ps->kernel_index[i], ps->kernel[i].revents);
	for (unsigned i = 0; i < ps->n_rds; i++)
		bits += sets_answer(s, ps->rds[i].index, ps->rds[i].revents);
	return bits;
}

static int select_once(struct select_sets *s, const struct deadline *d, struct rds_borrower_wait *owners)
{
	struct pollset ps;
	int rc = pollset_init(&ps, sets_count(s), owners);

	if (rc)
		return rc;
	ps.by_select = true;
	sets_fill(s, &ps);
	rc = pollset_wait(&ps, d);
	if (rc >= 0)
		rc = sets_read_out(s, &ps);
	pollset_end(&ps);
	return rc;
}

static int select_rds(struct select_sets *s, const struct deadline *d, const sigset_t *mask)
{
	struct rds_borrower_wait owners = {.before_sleep = true, .mask = mask};
	int rc = sets_cut(s);

	if (rc)
		return rc;
	reentry_call_begin();
	do
		rc = select_once(s, d, &owners);
	while (unlikely(rc == -POLLSET_AGAIN));
	rds_borrower_wait_end(&owners);
	reentry_call_end();
	return rc;
}

static __attribute__((noinline)) int select_ours(struct select_sets *s, struct timeval *timeout)
{
	struct timespec ts = {0}, *left;
	struct deadline d = {.never = true};
	int rc = 0;

	pthread_testcancel();
	if (timeout && rds_user_readable(timeout, sizeof(*timeout)))
		return (int)libc_result(-EFAULT);
	if (timeout) {
		if (timeout->tv_sec < 0 || timeout->tv_usec < 0)
			return (int)libc_result(-EINVAL);
		ts.tv_sec = timeout->tv_usec / 1000000;
		ts.tv_sec = timeout->tv_sec < INT32_MAX ? timeout->tv_sec + ts.tv_sec : INT64_C(1) + INT32_MAX;
		ts.tv_nsec = timeout->tv_usec % 1000000 * 1000;
		rc = deadline_ts(&d, &ts);
	}
	rc = rc ? rc : select_rds(s, &d, NULL);
	left = deadline_left(&d, &ts);
	if (left && !rds_user_writable(timeout, sizeof(*timeout))) {
		timeout->tv_sec = left->tv_sec;
		timeout->tv_usec = left->tv_nsec / 1000;
	}
	return (int)libc_result(rc);
}

int select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *timeout)
{
	struct select_sets s = {n, {(fd_mask *)r, (fd_mask *)w, (fd_mask *)e}};

	if (likely(!rds_fds_on()) || n <= 0 || !sets_have_rds(&s))
		return libc_real.select(n, r, w, e, timeout);
	return select_ours(&s, timeout);
}
RDS_ALIAS(__select, select);

int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *timeout, const sigset_t *mask)
{
	struct select_sets s = {n, {(fd_mask *)r, (fd_mask *)w, (fd_mask *)e}};
	struct deadline d;
	int rc = 0;

	if (likely(!rds_fds_on()) || n <= 0 || !sets_have_rds(&s))
		return libc_real.pselect(n, r, w, e, timeout, mask);
	pthread_testcancel();
	if ((timeout && rds_user_readable(timeout, sizeof(*timeout))) || (mask && rds_user_readable(mask, _NSIG / 8)))
		rc = -EFAULT;
	rc = rc ? rc : deadline_ts(&d, timeout);
	return (int)libc_result(rc ? rc : select_rds(&s, &d, mask));
}
