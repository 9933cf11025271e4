/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * churn - sockets are closed while other threads use them.  Threads send, receive and poll on
 * numbers that another thread closes and replaces by other sockets and a pipe; further threads are
 * cancelled in blocked calls; and the process forks all the time.  Meanwhile one thread exchanges
 * messages with another process over sockets that no other thread touches, and loses nothing.  At
 * the end every port can be bound again: no finished call has kept a socket, and no socket has gone
 * while it was open.
 */
#include "program.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

#define SLOTS 4
#define FIRST 100 /* their numbers; nothing else is opened there */
#define PORTS 65536
#define MILLISECONDS 2000

struct note {
	unsigned number, check, fill[30];
};

/*
 * Which threads are in a call on which slots (a bit each), and which slots hold no socket.  A call
 * must not begin on a number that is no socket when it begins and is one when it sleeps: the
 * outcome of that is the fault of the program alone.
 */
enum { USERS = 5 };
static _Atomic unsigned at[USERS];
static _Atomic int empty[SLOTS];

static _Atomic int stop;
static _Atomic unsigned short port_of[SLOTS];
static unsigned char opened[PORTS];
static _Atomic unsigned sent, got, reopened, cancels, forks, rounds;

static unsigned rnd(unsigned *seed, unsigned n)
{
	*seed = *seed * 1664525 + 1013904223;
	return (*seed >> 8) % n;
}

static void pause_us(unsigned us)
{
	struct timespec ts = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&ts, NULL);
}

static void take(const struct note *n, ssize_t len)
{
	if (len < 0)
		return;
	check(len == sizeof(*n) && n->check == ~n->number && n->fill[29] == n->number, "a message of %zd bytes, %u", len, n->number);
	atomic_fetch_add(&got, 1);
}

/* What is wrong with a number that has just been taken away is no fault, everything else is. */
static void excused(const char *what)
{
	static const int fine[] = {EBADF, ENOTSOCK, ENOTCONN, EAGAIN, ETIMEDOUT, EINTR, EINVAL, ENOBUFS};

	for (unsigned i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
		if (errno == fine[i])
			return;
	check(0, "%s", what);
}

/*
 * Those of these slots that hold a socket: until leave() it may go, but no other comes where there
 * is none.
 */
static unsigned enter(unsigned user, unsigned slots)
{
	unsigned i;

	atomic_store(&at[user], slots);
	for (i = 0; i < SLOTS; i++)
		if (atomic_load(&empty[i]))
			slots &= ~(1u << i);
	atomic_store(&at[user], slots);
	return slots;
}

static void leave(unsigned user)
{
	atomic_store(&at[user], 0);
}

static void await_leave(unsigned slot)
{
	for (unsigned i = 0; i < USERS; i++)
		while (atomic_load(&at[i]) & 1u << slot)
			pause_us(20);
}

static void send_to_slot(unsigned *seed, unsigned user)
{
	struct note n = {.number = rnd(seed, 1u << 24)};
	unsigned from = rnd(seed, SLOTS), to = rnd(seed, SLOTS);
	struct sockaddr_in sin = loopback(atomic_load(&port_of[to]));

	n.check = ~n.number;
	n.fill[29] = n.number;
	if (!enter(user, 1u << from))
		return;
	if (sendto(FIRST + (int)from, &n, sizeof(n), rnd(seed, 2) ? MSG_DONTWAIT : 0, (struct sockaddr *)&sin, sizeof(sin)) < 0)
		excused("sendto");
	else
		atomic_fetch_add(&sent, 1);
	leave(user);
}

static void *sender(void *arg)
{
	unsigned user = (unsigned)(size_t)arg, seed = user;

	while (!atomic_load(&stop)) {
		send_to_slot(&seed, user);
		if (rnd(&seed, 16) == 0)
			pause_us(100);
	}
	return NULL;
}

static void *receiver(void *arg)
{
	unsigned user = (unsigned)(size_t)arg, seed = user, slot, slots, i;
	struct pollfd p[SLOTS];
	struct note n;
	ssize_t len;

	while (!atomic_load(&stop)) {
		slot = rnd(&seed, SLOTS);
		if (enter(user, 1u << slot)) {
			len = recv(FIRST + (int)slot, &n, sizeof(n), rnd(&seed, 2) ? MSG_DONTWAIT : 0);
			if (len < 0)
				excused("recv");
			take(&n, len);
		}
		if (rnd(&seed, 4) == 0) {
			slots = enter(user, (1u << SLOTS) - 1);
			for (i = 0; i < SLOTS; i++)
				p[i] = (struct pollfd){.fd = slots & 1u << i ? FIRST + (int)i : -1, .events = POLLIN};
			check(poll(p, SLOTS, 3) >= 0, "poll");
		}
		leave(user);
	}
	return NULL;
}

/* A new socket at this number; what stood there is closed by that. */
static void open_slot(unsigned slot)
{
	static const struct timeval soon = {.tv_usec = 3000};
	struct sockaddr_in sin;
	int fd = bound(&sin);

	opened[sin.sin_port] = 1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon));
	if (atomic_load(&empty[slot]))
		await_leave(slot);
	check(dup2(fd, FIRST + (int)slot) == FIRST + (int)slot, "dup2");
	close(fd);
	atomic_store(&port_of[slot], sin.sin_port);
	atomic_store(&empty[slot], 0);
}

static void lay_pipe(unsigned slot)
{
	int ends[2];

	check(pipe2(ends, O_NONBLOCK) == 0, "pipe2");
	check(dup2(ends[0], FIRST + (int)slot) >= 0, "dup2");
	close(ends[0]);
	close(ends[1]);
}

static void *reopener(void *arg)
{
	unsigned seed = (unsigned)(size_t)arg;

	while (!atomic_load(&stop)) {
		unsigned slot = rnd(&seed, SLOTS), other = rnd(&seed, SLOTS), how = rnd(&seed, 8);

		if (atomic_load(&empty[slot])) {
			open_slot(slot);
		} else if (how == 0 && !atomic_load(&empty[other])) {
			check(dup2(FIRST + (int)other, FIRST + (int)slot) >= 0, "dup2");
		} else if (how < 3) {
			atomic_store(&empty[slot], 1);
			lay_pipe(slot);
		} else if (how < 5) {
			atomic_store(&empty[slot], 1);
			check(close(FIRST + (int)slot) == 0, "close");
		} else {
			open_slot(slot);
		}
		atomic_fetch_add(&reopened, 1);
		pause_us(rnd(&seed, 300));
	}
	return NULL;
}

static void *blocked(void *arg)
{
	unsigned seed = (unsigned)(size_t)arg, slot = rnd(&seed, SLOTS);
	struct pollfd p = {.fd = FIRST + (int)slot, .events = POLLPRI};
	struct note n;

	for (;;) {
		if (!enter(USERS - 1, 1u << slot))
			pause_us(50);
		else if (seed & 256)
			poll(&p, 1, -1);
		else
			take(&n, recv(p.fd, &n, sizeof(n), 0));
		leave(USERS - 1);
		pthread_testcancel();
	}
	return NULL;
}

static void *canceller(void *arg)
{
	unsigned seed = (unsigned)(size_t)arg;
	pthread_t t;
	void *result;

	while (!atomic_load(&stop)) {
		check(pthread_create(&t, NULL, blocked, (void *)(size_t)rnd(&seed, 1u << 16)) == 0, "pthread_create");
		pause_us(rnd(&seed, 2000));
		pthread_cancel(t);
		check(pthread_join(t, &result) == 0 && result == PTHREAD_CANCELED, "cancelled");
		leave(USERS - 1);
		atomic_fetch_add(&cancels, 1);
	}
	return NULL;
}

/* Copies of all sockets are in the child for as long as it lives; it has one of its own, too. */
static void child(int use)
{
	struct sockaddr_in sin;
	char c = 0;
	int fd;

	alarm(test_alarm(60));
	if (use) {
		fd = bound(&sin);
		check(sendto(fd, "c", 1, 0, (struct sockaddr *)&sin, sizeof(sin)) == 1, "sendto in a child");
		check(recv(fd, &c, 1, 0) == 1 && c == 'c', "recv in a child");
	}
	_exit(0);
}

/*
 * Other than libc's allocator, AddressSanitizer's does not look after its locks at a fork: such a
 * child must not allocate.
 */
static int children_allocate(void)
{
	const char *preload = getenv("LD_PRELOAD");

	return !preload || !strstr(preload, "libasan");
}

static void *forker(void *arg)
{
	unsigned seed = (unsigned)(size_t)arg;
	int use = children_allocate();
	pid_t pid;

	while (!atomic_load(&stop)) {
		pid = fork();
		check(pid >= 0, "fork");
		if (pid == 0)
			child(use && rnd(&seed, 2));
		finished(pid);
		atomic_fetch_add(&forks, 1);
		pause_us(rnd(&seed, 3000));
	}
	return NULL;
}

/* ---- what nothing of that may disturb ---- */

static void echo(void *arg)
{
	const int *ends = arg;
	struct sockaddr_in sin, from;
	socklen_t len;
	unsigned number;
	int fd = bound(&sin);

	alarm(test_alarm(60)); /* if the other one fails */
	tell(ends[1], &sin, sizeof(sin));
	do {
		len = sizeof(from);
		check(recvfrom(fd, &number, sizeof(number), 0, (struct sockaddr *)&from, &len) == sizeof(number), "recvfrom");
		check(sendto(fd, &number, sizeof(number), 0, (struct sockaddr *)&from, len) == sizeof(number), "sendto");
	} while (number);
}

static void *steady(void *arg)
{
	const struct sockaddr_in *to = arg;
	struct sockaddr_in sin;
	unsigned i, number, batch, last;
	int fd = bound(&sin);

	for (i = 1; !atomic_load(&stop); i = last) {
		last = i + 1 + i % 7;
		for (batch = i; batch < last; batch++)
			check(sendto(fd, &batch, sizeof(batch), 0, (const struct sockaddr *)to, sizeof(*to)) == sizeof(batch), "sendto");
		for (; i < last; i++)
			check(recv(fd, &number, sizeof(number), 0) == sizeof(number) && number == i, "message %u instead of %u",
			      number, i);
		atomic_fetch_add(&rounds, 1);
	}
	number = 0;
	check(sendto(fd, &number, sizeof(number), 0, (const struct sockaddr *)to, sizeof(*to)) == sizeof(number), "the end");
	check(recv(fd, &number, sizeof(number), 0) == sizeof(number) && number == 0, "the end");
	close(fd);
	return NULL;
}

int main(void)
{
	/* the first are the users of slots */
	static void *(*const roles[])(void *) = {sender, sender, receiver, receiver, reopener, canceller, forker};
	enum { ROLES = sizeof(roles) / sizeof(roles[0]) };
	pthread_t threads[ROLES], talk;
	struct sockaddr_in peer;
	struct sockaddr_in at;
	unsigned i, ports = 0;
	int ends[2];
	pid_t pid;

	alarm(test_alarm(60));
	check(pipe(ends) == 0, "pipe");
	pid = start(echo, ends);
	hear(ends[0], &peer, sizeof(peer));
	for (i = 0; i < USERS; i++)
		leave(i);
	for (i = 0; i < SLOTS; i++)
		open_slot(i);
	check(pthread_create(&talk, NULL, steady, &peer) == 0, "pthread_create");
	for (i = 0; i < ROLES; i++)
		check(pthread_create(&threads[i], NULL, roles[i], (void *)(size_t)i) == 0, "pthread_create");
	pause_us(MILLISECONDS * 1000);
	atomic_store(&stop, 1);
	for (i = 0; i < ROLES; i++)
		check(pthread_join(threads[i], NULL) == 0, "pthread_join");
	check(pthread_join(talk, NULL) == 0, "pthread_join");
	finished(pid);
	for (i = 0; i < SLOTS; i++)
		close(FIRST + (int)i);
	for (i = 0; i < PORTS; i++)
		if (opened[i]) {
			at = loopback((unsigned short)i);
			close(bound_again(&at)); /* its last copy may have been a child's */
			ports++;
		}
	check(sent && got && reopened && cancels && forks && rounds, "nothing was done");
	printf("%u rounds with a peer; meanwhile %u sent, %u received, %u sockets opened, %u changes, %u threads cancelled, %u forks\n",
	       rounds, sent, got, ports, reopened, cancels, forks);
	return 0;
}
