/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * wakeup.c [CASE...] - the events that wake a program of 2008 that sleeps in poll, select or epoll:
 * a message, send space, an operation that is over (or the id that RDS_BARRIER has armed), and the
 * end of congestion.
 *
 * The socket is in barrier mode, with operations of that age (B1).  The other side waits until this
 * one sleeps, so the event that wakes it happens then; each event in all four ways.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "pair.h"

#define SNDBUF 32768
#define CHUNK 4096

struct barrier32 {
	uint32_t daddr, hole;
	uint64_t flags, rdma_id_addr, wait_rdma_id;
};

#define DONTWAIT 0x10

/* ---- waiting ---- */

enum how { POLL, SELECT, EPOLL, EPOLL_EDGE, HOWS };
static const char *const hows[] = {"poll", "select", "epoll", "epoll, edges"};

static enum how how;
static short wanted;
static int set = -1; /* of epoll, made before anything happens */

static void begin_wait(short events)
{
	struct epoll_event ev = {.events = (uint32_t)events | (how == EPOLL_EDGE ? (uint32_t)EPOLLET : 0)};

	wanted = events;
	if (how < EPOLL)
		return;
	set = epoll_create1(0);
	check(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, b->fd, &ev) == 0, "epoll: %m");
}

static void end_wait(void)
{
	if (how >= EPOLL)
		close(set);
}

static short select_on(int ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};
	fd_set in, out;
	int n;

	FD_ZERO(&in);
	FD_ZERO(&out);
	if (wanted & POLLIN)
		FD_SET(b->fd, &in);
	if (wanted & POLLOUT)
		FD_SET(b->fd, &out);
	n = select(b->fd + 1, &in, &out, NULL, &tv);
	check(n >= 0, "select: %m");
	return (short)(n ? (FD_ISSET(b->fd, &in) ? POLLIN : 0) | (FD_ISSET(b->fd, &out) ? POLLOUT : 0) : 0);
}

/* Which of the events are there. */
static short wait_ms(int ms)
{
	struct pollfd at = {.fd = b->fd, .events = wanted};
	struct epoll_event ev;
	int n;

	if (how == SELECT)
		return select_on(ms);
	n = how == POLL ? poll(&at, 1, ms) : epoll_wait(set, &ev, 1, ms);
	check(n >= 0, "%s: %m", hows[how]);
	return (short)(n ? (how == POLL ? (int)at.revents : (int)ev.events) & wanted : 0);
}

static void quiet(const char *what)
{
	expect(wait_ms(0), 0, "%s, %s: there must be nothing", hows[how], what);
}

static pthread_t sleeper;
static _Atomic int sleeper_id;
static short woken_by;

static void *sleep_there(void *arg)
{
	(void)arg;
	atomic_store(&sleeper_id, (int)syscall(SYS_gettid));
	woken_by = wait_ms(TEST_COMES);
	return NULL;
}

/* Another thread waits, until it is really asleep: nothing has happened yet. */
static void sleeps(void)
{
	atomic_store(&sleeper_id, 0);
	check(pthread_create(&sleeper, NULL, sleep_there, NULL) == 0, "pthread_create");
	test_until(atomic_load(&sleeper_id));
	check(test_sleeps(atomic_load(&sleeper_id)), "%s returns, and nothing has happened", hows[how]);
}

static void wakes(const char *what)
{
	check(pthread_join(sleeper, NULL) == 0, "pthread_join");
	expect(woken_by, wanted, "%s, %s", hows[how], what);
}

/* ---- operations of that age ---- */

static uint64_t last_id;

static int barrier(uint64_t wait, uint64_t *mark)
{
	struct barrier32 x = {a->name[0].sin_addr.s_addr, 0, DONTWAIT, (uintptr_t)mark, wait};

	return setsockopt(b->fd, 276, OPT_BARRIER, &x, sizeof(x)) ? -errno : 0;
}

/* Word 6 of the arguments is where the id goes. */
static void write_to(uint64_t cookie)
{
	struct op op = simple(cookie, F_WRITE);
	uint64_t id = 0;

	op.token = (uintptr_t)&id;
	expect(send_op(&op), 0, "a write");
	check(id > last_id, "the id of a write: expected one above %llu, came %llu", (unsigned long long)last_id,
	      (unsigned long long)id);
	last_id = id;
}

static void is_done(void)
{
	uint64_t mark = 0;

	expect(barrier(last_id, &mark), 0, "RDS_BARRIER for the id that poll has shown");
	expect(mark, last_id, "the mark");
}

/* Both sides know each other, and the first poll has reported the other's congestion map. */
static bool begin_old(void)
{
	struct pollfd at = {.events = POLLIN | POLLOUT | POLLWRBAND};
	double since = seconds();
	uint64_t cookie, mark = 1;

	if (!agent_can_stop()) {
		skip("the other side must stand still meanwhile");
		return false;
	}
	begin();
	expect(barrier(0, &mark), 0, "the probe");
	expect(mark, 0, "the mark of the probe");
	cookie = agent_region(a, 0, PAGE, F_WRITE);
	last_id = 0;
	write_to(cookie);
	while (barrier(last_id, &mark))
		waits(&since, "for the end of the first write");
	expect(agent_recv(a), 0, "its message");
	at.fd = b->fd;
	poll(&at, 1, 0);
	return true;
}

/* ---- what wakes ---- */

static void message(void)
{
	struct letter l;

	if (!begin_old())
		return;
	for (how = 0; how < HOWS; how++) {
		begin_wait(POLLIN);
		quiet("before a message");
		sleeps();
		agent_ask(a, &(struct agent_cmd){
				     .what = AGENT_SEND, .to = name_of(address(0), INIT_PORT), .len = 9, .key = how});
		wakes("a message");
		l = box_letter(b);
		expect(l.len, 9, "the message");
		free(l.body);
		expect(agent_answer(a), 9, "the other side's sendmsg");
		quiet("after the message");
		end_wait();
	}
	end();
}

/* A region that no device knows yet, so that the other side has to do it. */
static void operation(bool arm)
{
	uint64_t cookie, mark;

	if (!begin_old())
		return;
	for (how = 0; how < HOWS; how++) {
		cookie = agent_region(a, (how + 1) * PAGE, PAGE, F_WRITE);
		begin_wait(POLLIN);
		agent_stop(a);
		write_to(cookie);
		if (arm)
			expect(barrier(last_id, &mark), -EAGAIN, "RDS_BARRIER for an operation that cannot be over");
		quiet("before the operation is over");
		sleeps();
		agent_go_on(a);
		wakes("an operation is over");
		if (how != EPOLL_EDGE)
			expect(wait_ms(0), POLLIN, "%s, again before RDS_BARRIER", hows[how]);
		is_done();
		quiet("after RDS_BARRIER");
		expect(agent_recv(a), 0, "its message");
		end_wait();
	}
	end();
}

static void unarmed(void)
{
	operation(false);
}

static void armed(void)
{
	operation(true);
}

static char chunk[CHUNK];

static int send_chunk(void)
{
	struct out o;

	out_begin(&o, &a->name[0], chunk, sizeof(chunk));
	return out_send(&o, b->fd, MSG_DONTWAIT);
}

static void space(void)
{
	int size = SNDBUF, rc;
	long n;

	if (!begin_old())
		return;
	check(setsockopt(b->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0, "SO_SNDBUF: %m");
	for (how = 0; how < HOWS; how++) {
		agent_stop(a);
		for (n = 0; (rc = send_chunk()) == CHUNK; n++)
			;
		expect(rc, -EAGAIN, "a message to a peer that stands still, after %ld", n);
		begin_wait(POLLOUT);
		quiet("before there is send space");
		sleeps();
		agent_go_on(a);
		wakes("send space");
		expect(send_chunk(), CHUNK, "a message then");
		for (n++; n; n--)
			expect(agent_recv(a), CHUNK, "a message at the other side");
		end_wait();
	}
	end();
}

static void nothing_to_receive(void)
{
	expect(recv(b->fd, chunk, 1, MSG_DONTWAIT) < 0 ? -errno : 0, -EAGAIN, "recv after news of a congestion map");
}

/*
 * Waits until the map has come, which the first poll of any socket reports, and then, as programs
 * do, looks what there is.  A socket that was never refused is not woken by it, so this looks again
 * and again.
 */
static void news(int other)
{
	struct pollfd at = {.fd = other, .events = POLLIN | POLLWRBAND};
	double since = seconds();

	while (poll(&at, 1, 1) == 0)
		waits(&since, "for the news of congestion");
	at.fd = b->fd;
	poll(&at, 1, 0);
	nothing_to_receive();
}

/*
 * The socket has to have been refused before: one that has not met congestion is not woken by its
 * end.
 */
static void congestion(void)
{
	struct pollfd at = {.events = POLLIN | POLLWRBAND};
	int rc, other, size = 3 * CHUNK + CHUNK / 2;
	unsigned n;

	if (address(0) == htonl(INADDR_LOOPBACK)) {
		skip("sockets at 127.0.0.1 never congest, and there is no other address");
		return;
	}
	if (!begin_old())
		return;
	other = rds_bound(address(0), INIT_PORT + 1);
	expect(AGENT(a, AGENT_RCVBUF, .len = (uint64_t)size), 0, "SO_RCVBUF of the other side");
	for (how = 0; how < HOWS; how++) {
		at.fd = other;
		poll(&at, 1, 0);
		for (n = 0; n < 4; n++) /* as much as its buffer has: not refused yet */
			expect(send_chunk(), CHUNK, "message %u", n);
		news(other);
		rc = send_chunk();
		expect(rc, -ENOBUFS, "a message to a port that is congested");
		begin_wait(POLLIN);
		/* (A poll before that would report nothing, and count the refusal as seen.) */
		sleeps();
		for (; n; n--)
			agent_ask(a, &(struct agent_cmd){.what = AGENT_RECV});
		wakes("the end of congestion");
		for (n = 0; n < 4; n++)
			expect(agent_answer(a), CHUNK, "a message at the other side");
		nothing_to_receive();
		quiet("after that");
		expect(send_chunk(), CHUNK, "a message then");
		expect(agent_recv(a), CHUNK, "a message at the other side");
		end_wait();
	}
	close(other);
	end();
}

static const struct test_case cases[] = {
	{"message", message}, {"unarmed", unarmed}, {"armed", armed}, {"space", space}, {"congestion", congestion},
};

int main(int argc, char **argv)
{
	return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
