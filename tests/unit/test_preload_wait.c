/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * test_preload_wait.c - poll, select and epoll of RDS sockets and foreign descriptors in one call:
 * results, timeouts, signals and masks, cancellation.  The timeouts are the kernel's, by the real
 * clock: no time that passes is held against anybody.
 */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "engine/sys/os.h"
#include "preload/fdtable/fdtable.h"
#include "test_preload_mock.h"
#include "tests/slow.h"
#include "tests/unit/suite.h"

static int a, b, p[2]; /* bound to 1000 and 2000; a pipe */

static void setup(void)
{
	a = mock_bound(1000);
	b = mock_bound(2000);
	ck_assert_int_eq(pipe(p), 0);
}

static void teardown(void)
{
	close(p[0]);
	close(p[1]);
	close(a);
	close(b);
	ck_assert_int_eq(mock.refs, 0);
	ck_assert_int_eq(mock.open, 0);
}

static void send_b(void)
{
	struct sockaddr_in to = mock_addr(2000);

	ck_assert_int_eq(sendto(a, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)), 1);
}

static void take_b(void)
{
	char c;

	ck_assert_int_eq(recv(b, &c, 1, MSG_DONTWAIT), 1);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- something happens while this thread sleeps ---- */

enum event { SEND, WRITE, SIGNAL };
static struct {
	pthread_t thread, victim;
	pid_t tid;
	int sleeps; /* so often it has been about to sleep */
	enum event what;
} later;

static void *do_later(void *arg)
{
	test_until(mock.sleeps != later.sleeps && test_asleep(later.tid));
	switch (later.what) {
	case SEND:
		send_b();
		break;
	case WRITE:
		ck_assert_int_eq(write(p[1], "x", 1), 1);
		break;
	case SIGNAL:
		pthread_kill(later.victim, SIGUSR1);
		break;
	}
	return arg;
}

static void when_asleep(enum event what)
{
	later.what = what;
	later.tid = gettid();
	later.sleeps = mock.sleeps;
	later.victim = pthread_self();
	pthread_create(&later.thread, NULL, do_later, NULL);
}

static void settled(void)
{
	pthread_join(later.thread, NULL);
}

static volatile sig_atomic_t signals;
static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

static void catch_signal(void)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	signals = 0;
	sigaction(SIGUSR1, &sa, NULL);
}

/* ---- poll ---- */

START_TEST(poll_results)
{
	struct pollfd f[6] = {{b, POLLIN, 9}, {a, POLLOUT, 9}, {p[0], POLLIN, 9},
			      {-1, POLLIN, 9}, {900, POLLIN, 9}, {b, 0, 9}};

	ck_assert_int_eq(poll(f, 1, 0), 0);
	ck_assert_int_eq(f[0].revents, 0);
	ck_assert_int_eq(poll(f, 6, -1), 2);
	ck_assert_int_eq(f[0].revents, 0);
	ck_assert_int_eq(f[1].revents, POLLOUT);
	ck_assert_int_eq(f[2].revents, 0);
	ck_assert_int_eq(f[3].revents, 0);
	ck_assert_int_eq(f[4].revents, POLLNVAL);
	ck_assert_int_eq(f[5].revents, 0);
	send_b();
	ck_assert_int_eq(write(p[1], "x", 1), 1);
	f[0].events = POLLIN | POLLRDNORM;
	ck_assert_int_eq(poll(f, 6, -1), 4);
	ck_assert_int_eq(f[0].revents, POLLIN | POLLRDNORM);
	ck_assert_int_eq(f[2].revents, POLLIN);
	take_b();
	ck_assert_int_eq(mock.sleeps, 0);
}
END_TEST

START_TEST(poll_wakes)
{
	struct pollfd f[2] = {{b, POLLIN, 0}, {p[0], POLLIN, 0}};

	when_asleep(_i ? WRITE : SEND);
	ck_assert_int_eq(poll(f, 2, TEST_COMES), 1);
	ck_assert_int_eq(f[_i].revents, POLLIN);
	ck_assert_int_eq(f[!_i].revents, 0);
	ck_assert_int_gt(mock.sleeps, 0);
	settled();
	if (!_i)
		take_b();
}
END_TEST

START_TEST(poll_timeouts)
{
	struct pollfd f[2] = {{b, POLLIN, 0}, {p[0], POLLIN, 0}};
	struct timespec ts = {0, 30500000};
	double start = now();

	ck_assert_int_eq(poll(f, 2, 30), 0);
	ck_assert(now() - start >= 0.03);
	start = now();
	ck_assert_int_eq(ppoll(f, 1, &ts, NULL), 0);
	ck_assert(now() - start >= 0.0305);
	ck_assert_int_eq(ts.tv_nsec, 30500000);
	ts.tv_nsec = 1000000000;
	ck_fails(ppoll(f, 1, &ts, NULL), EINVAL);
	ts = (struct timespec){-1, 0};
	ck_fails(ppoll(f, 1, &ts, NULL), EINVAL);
}
END_TEST

START_TEST(poll_signal)
{
	struct pollfd f[2] = {{b, POLLIN, 0}, {p[0], POLLIN, 0}};
	sigset_t block, old;
	struct timespec zero = {0, 0};

	catch_signal();
	when_asleep(SIGNAL);
	ck_fails(poll(f, 2, TEST_COMES), EINTR); /* even with SA_RESTART */
	settled();
	ck_assert_int_eq(signals, 1);

	/* The mask is in force in the sleep, and only there. */
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &block, &old);
	raise(SIGUSR1);
	ck_assert_int_eq(poll(f, 1, 10), 0);
	ck_assert_int_eq(signals, 1);
	send_b();
	ck_assert_int_eq(ppoll(f, 1, NULL, &old), 1); /* what is ready wins */
	ck_assert_int_eq(ppoll(f, 2, NULL, &old), 1);
	ck_assert_int_eq(signals, 1);
	take_b();
	ck_fails(ppoll(f, 1, _i ? &zero : NULL, &old), EINTR);
	ck_assert_int_eq(signals, 2);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}
END_TEST

START_TEST(poll_many)
{
	enum { N = 300 };
	struct pollfd f[N];

	for (int i = 0; i < N; i++)
		f[i] = (struct pollfd){i % 3 ? dup(p[0]) : dup(b), POLLIN, 0};
	send_b();
	ck_assert_int_eq(poll(f, N, TEST_COMES), N / 3);
	take_b();
	when_asleep(WRITE);
	ck_assert_int_eq(poll(f, N, TEST_COMES), N - N / 3);
	settled();
	for (int i = 0; i < N; i++) {
		ck_assert_int_eq(f[i].revents, i % 3 ? POLLIN : 0);
		close(f[i].fd);
	}
}
END_TEST

/* ---- select ---- */

static double seconds(const struct timeval *tv)
{
	return (double)tv->tv_sec + (double)tv->tv_usec / 1e6;
}

/* Of `all` there is left what has not passed since then. */
static void ck_left(const struct timeval *tv, const struct timeval *all, double since)
{
	double least = seconds(all) - (now() - since) - 2e-6;

	ck_assert(seconds(tv) >= (least > 0 ? least : 0));
}

START_TEST(select_results)
{
	fd_set r, w, e;
	struct timeval tv = {5, 250}, all = tv;
	double start = now();

	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_ZERO(&e);
	FD_SET(b, &r), FD_SET(b, &w), FD_SET(b, &e), FD_SET(p[0], &r), FD_SET(p[1], &w), FD_SET(p[1], &e);
	ck_assert_int_eq(select(FD_SETSIZE, &r, &w, &e, &tv), 2);
	ck_assert(!FD_ISSET(b, &r) && FD_ISSET(b, &w) && !FD_ISSET(b, &e));
	ck_assert(!FD_ISSET(p[0], &r) && FD_ISSET(p[1], &w));
	ck_assert(!timercmp(&tv, &all, >));
	ck_left(&tv, &all, start);
	send_b();
	FD_SET(b, &r);
	ck_assert_int_eq(select(b + 1, &r, NULL, NULL, NULL), 1);
	ck_assert(FD_ISSET(b, &r));
	take_b();

	FD_ZERO(&r);
	FD_SET(b, &r), FD_SET(900, &r);
	ck_fails(select(FD_SETSIZE, &r, NULL, NULL, NULL), EBADF);
	ck_assert(FD_ISSET(b, &r) && FD_ISSET(900, &r)); /* untouched */
	tv = (struct timeval){-1, 0};
	ck_fails(select(b + 1, &r, NULL, NULL, &tv), EINVAL);
	ck_fails(select(-1, &r, NULL, NULL, NULL), EINVAL);
}
END_TEST

START_TEST(select_timeouts)
{
	fd_set r;
	struct timeval tv = {0, 30500}, all = {TEST_COMES / 1000, 0};
	struct timespec ts = {0, 30500000};
	double start = now();

	FD_ZERO(&r);
	FD_SET(b, &r);
	ck_assert_int_eq(select(b + 1, &r, NULL, NULL, &tv), 0);
	ck_assert(now() - start >= 0.0305);
	ck_assert(!FD_ISSET(b, &r) && tv.tv_sec == 0 && tv.tv_usec == 0);
	FD_SET(b, &r);
	start = now();
	ck_assert_int_eq(pselect(b + 1, &r, NULL, NULL, &ts, NULL), 0);
	ck_assert(now() - start >= 0.0305 && ts.tv_nsec == 30500000);

	FD_SET(b, &r), FD_SET(p[0], &r);
	tv = all;
	start = now();
	when_asleep(_i ? WRITE : SEND);
	ck_assert_int_eq(select(FD_SETSIZE, &r, NULL, NULL, &tv), 1);
	ck_assert(!!FD_ISSET(b, &r) == !_i && !!FD_ISSET(p[0], &r) == _i);
	ck_assert(timercmp(&tv, &all, <));
	ck_left(&tv, &all, start);
	settled();
	if (!_i)
		take_b();
}
END_TEST

/*
 * A descriptor that only hangs up is no event for a write set: neither an answer nor a reason to
 * spin.
 */
START_TEST(select_hangup)
{
	fd_set r, e;
	struct timeval tv = {0, 100000};
	struct timespec cpu[2];

	close(p[1]);
	FD_ZERO(&r);
	FD_ZERO(&e);
	FD_SET(b, &r), FD_SET(p[0], &e);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[0]);
	ck_assert_int_eq(select(FD_SETSIZE, &r, NULL, &e, &tv), 0);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[1]);
	ck_assert(tv.tv_sec == 0 && tv.tv_usec == 0);
	ck_assert_int_lt(cpu[1].tv_nsec - cpu[0].tv_nsec, 20000000);
	p[1] = dup(0);
}
END_TEST

/* ---- epoll ---- */

static int epoll_of(int fd, unsigned events)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = {.events = events, .data.fd = fd};

	ck_assert_int_eq(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
	return ep;
}

START_TEST(epoll_level)
{
	int ep = epoll_of(b, EPOLLIN);
	struct epoll_event ev[4], in = {.events = EPOLLIN, .data.fd = p[0]};
	double start;

	ck_assert_int_eq(mock.watched, 1);
	ck_fails(epoll_ctl(ep, EPOLL_CTL_ADD, b, &in), EEXIST);
	ck_assert_int_eq(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &in), 0);
	ck_assert_int_eq(epoll_wait(ep, ev, 4, 0), 0);
	start = now();
	ck_assert_int_eq(epoll_wait(ep, ev, 4, 30), 0);
	ck_assert(now() - start >= 0.03);
	when_asleep(SEND);
	ck_assert_int_eq(epoll_wait(ep, ev, 4, TEST_COMES), 1);
	ck_assert_int_eq(ev[0].data.fd, b);
	settled();
	ck_assert_int_eq(epoll_wait(ep, ev, 4, TEST_COMES), 1); /* still */
	take_b();
	ck_assert_int_eq(epoll_wait(ep, ev, 4, 0), 0);
	when_asleep(WRITE);
	ck_assert_int_eq(epoll_pwait(ep, ev, 4, -1, NULL), 1);
	ck_assert_int_eq(ev[0].data.fd, p[0]);
	settled();
	ck_fails(epoll_wait(ep, ev, 0, 0), EINVAL);
	ck_assert_int_eq(epoll_ctl(ep, EPOLL_CTL_DEL, b, NULL), 0);
	close(ep);
}
END_TEST

START_TEST(epoll_signal)
{
	int ep = epoll_of(b, EPOLLIN), copy = dup(ep);
	struct epoll_event ev;
	struct timespec ts = {TEST_COMES / 1000, 0};
	sigset_t block, old;

	catch_signal();
	when_asleep(SIGNAL);
	ck_fails(epoll_wait(copy, &ev, 1, TEST_COMES), EINTR);
	settled();
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &block, &old);
	raise(SIGUSR1);
	ck_assert_int_eq(epoll_wait(ep, &ev, 1, 10), 0);
	ck_fails(epoll_pwait2(ep, &ev, 1, &ts, &old), EINTR);
	ck_assert_int_eq(signals, 2);
	ts.tv_nsec = -1;
	ck_fails(epoll_pwait2(ep, &ev, 1, &ts, NULL), EINVAL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	close(copy);
	close(ep);
}
END_TEST

/* ---- a socket of another process whose next owner does not answer ---- */

#define LOOK_NS 5000000 /* the time goes on by so much whenever it is looked at */
#define LONG_MS 10000

static uint64_t passed;

static int running_clock(clockid_t clock, struct timespec *ts)
{
	(void)clock;
	passed += LOOK_NS;
	if (passed > LONG_MS * UINT64_C(2000000))
		mock.wakes = 0; /* the call has missed its timeout */
	*ts = (struct timespec){(time_t)(passed / 1000000000), (long)(passed % 1000000000)};
	return 0;
}

/* A descriptor that comes over a socket. */
static int borrowed(void)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u = {.align = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
	struct iovec iov = {&(char){0}, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof(u.buf)};
	int pair[2], line[2], fd;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, line), 0);
	memcpy(CMSG_DATA(&u.align), &pair[0], sizeof(fd));
	ck_assert_int_eq(sendmsg(line[0], &msg, 0), 1);
	ck_assert_int_eq(recvmsg(line[1], &msg, 0), 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	close(line[0]);
	close(line[1]);
	return fd;
}

/*
 * It is looked for again, though no sleep lasts: something for other sockets cuts each short. And the
 * call times out all the same.
 */
START_TEST(late_owner)
{
	struct pollfd f[2] = {{borrowed(), POLLIN, 0}, {b, POLLIN, 0}};
	int ep = epoll_of(b, EPOLLIN), looks, ends[2];
	struct epoll_event ev;

	ck_assert_int_eq(pipe(ends), 0);
	close(ends[1]);
	mock.hung_up = ends[0];
	mock.wakes = 1;
	mock.late = INT32_MAX;
	rds_os_clock = running_clock;
	looks = mock.looks;
	ck_assert_int_eq(_i ? epoll_wait(ep, &ev, 1, LONG_MS) : poll(f, 2, LONG_MS), 0);
	/* Every tenth of a second, and some time passes in the looks. */
	ck_assert_int_gt(mock.looks - looks, 30);
	ck_assert_int_lt(mock.looks - looks, 110);
	ck_assert_int_eq(mock.wakes, 1);
	ck_assert_int_eq(mock.held, 0);
	mock.hung_up = mock.wakes = mock.late = 0;
	close(ends[0]);
	close(ep);
}
END_TEST

/* Without such an owner, too. */
START_TEST(woken_in_vain)
{
	struct pollfd f = {b, POLLIN, 0};
	int ep = epoll_of(b, EPOLLIN);
	struct epoll_event ev;

	mock.wakes = 1;
	rds_os_clock = running_clock;
	ck_assert_int_eq(_i ? epoll_wait(ep, &ev, 1, LONG_MS) : poll(&f, 1, LONG_MS), 0);
	ck_assert_int_eq(mock.wakes, 1);
	mock.wakes = 0;
	close(ep);
}
END_TEST

/*
 * The search for it may take longer than the timeout, which may be over before there is any: a
 * signal that has come ends the call even so.
 */
START_TEST(late_and_signal)
{
	const struct timespec ts = {.tv_nsec = _i / 2 * LOOK_NS + LOOK_NS / 2};
	struct pollfd f[2] = {{borrowed(), POLLIN, 0}, {b, POLLIN, 0}};
	struct sigaction sa = {.sa_handler = on_signal};
	int ep = epoll_of(b, EPOLLIN), ends[2];
	struct epoll_event ev;
	sigset_t none, usr1;

	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigaction(SIGUSR1, &sa, NULL);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	pthread_kill(pthread_self(), SIGUSR1);
	ck_assert_int_eq(pipe(ends), 0);
	close(ends[1]);
	mock.hung_up = ends[0];
	mock.late = INT32_MAX;
	rds_os_clock = running_clock;
	ck_fails(_i % 2 ? epoll_pwait2(ep, &ev, 1, &ts, &none) : ppoll(f, 2, &ts, &none), EINTR);
	mock.hung_up = mock.late = 0;
	close(ends[0]);
	close(ep);
}
END_TEST

/* An event that is there ends the wait before any sleep: signals are held back no longer, either. */
START_TEST(late_and_ready)
{
	int away = borrowed(), ep = epoll_of(p[0], EPOLLIN);
	struct pollfd f[2] = {{away, POLLIN, 0}, {p[0], POLLIN, 0}};
	struct epoll_event ev;

	ck_assert_int_eq(epoll_ctl(ep, EPOLL_CTL_ADD, b, &(struct epoll_event){.events = EPOLLIN}), 0);
	ck_assert_int_eq(write(p[1], "x", 1), 1);
	rds_fds_handed_off = true;
	mock.late = INT32_MAX;
	ck_assert_int_eq(_i ? epoll_wait(ep, &ev, 1, -1) : poll(f, 2, -1), 1);
	ck_assert_int_lt(mock.late, INT32_MAX);
	ck_assert_int_eq(mock.held, 0);
	mock.late = 0;
	close(ep);
}
END_TEST

/* ---- cancellation: nothing of the call is left ---- */

static void *blocked(void *how)
{
	struct pollfd f = {b, POLLIN, 0};
	struct epoll_event ev;
	fd_set r;
	char c;

	FD_ZERO(&r);
	FD_SET(b, &r);
	switch (*(int *)how) {
	case 0:
		recv(b, &c, 1, 0);
		break;
	case 1:
		poll(&f, 1, -1);
		break;
	case 2:
		select(b + 1, &r, NULL, NULL, NULL);
		break;
	case 3:
		epoll_wait(*((int *)how + 1), &ev, 1, -1);
		break;
	}
	return NULL;
}

START_TEST(cancelled)
{
	int arg[2] = {_i, epoll_of(b, EPOLLIN)};
	pthread_t thread;
	void *result;

	pthread_create(&thread, NULL, blocked, arg);
	test_until(mock.sleeps);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert_int_eq(mock.refs, 0);
	close(arg[1]);
}
END_TEST

static _Atomic int told;

static void *blocked_when_told(void *how)
{
	int old;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	while (!told)
		sched_yield();
	pthread_setcancelstate(old, NULL);
	return blocked(how);
}

/* The request is there before the call: it acts on entry, though there is a message to be had. */
START_TEST(cancelled_on_entry)
{
	int arg[2] = {_i, epoll_of(b, EPOLLIN)};
	pthread_t thread;
	void *result;

	send_b();
	told = 0;
	pthread_create(&thread, NULL, blocked_when_told, arg);
	pthread_cancel(thread);
	told = 1;
	pthread_join(thread, &result);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert_int_eq(mock.refs, 0);
	take_b(); /* not used up */
	close(arg[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("preload_wait");
	TCase *t = tcase_create("wait");

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, poll_results);
	tcase_add_loop_test(t, poll_wakes, 0, 2);
	tcase_add_test(t, poll_timeouts);
	tcase_add_loop_test(t, poll_signal, 0, 2);
	tcase_add_test(t, poll_many);
	tcase_add_test(t, select_results);
	tcase_add_loop_test(t, select_timeouts, 0, 2);
	tcase_add_test(t, select_hangup);
	tcase_add_test(t, epoll_level);
	tcase_add_test(t, epoll_signal);
	tcase_add_loop_test(t, late_owner, 0, 2);
	tcase_add_loop_test(t, woken_in_vain, 0, 2);
	tcase_add_loop_test(t, late_and_signal, 0, 4);
	tcase_add_loop_test(t, late_and_ready, 0, 2);
	tcase_add_loop_test(t, cancelled, 0, 4);
	tcase_add_loop_test(t, cancelled_on_entry, 0, 4);
	return suite_run(s);
}
