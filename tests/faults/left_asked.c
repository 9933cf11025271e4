/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * left_asked.c - a process ends, or executes another program, while its messages fill the way to a
 * stopped receiver and the socket's send buffer, as in left.c.  Another process asks for the socket
 * meanwhile: then the first one does not wait for the receiver.  If that was for an exec that
 * fails, the first one's threads that sleep in calls go on, as those of a borrower.
 *
 * A plain PF_RDS program.  The runner gives the library a far longer time to wait for the receiver
 * than this program waits.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>

#include "left.h"

#define SENT 40 /* by a process that stays until the receiver has them */

enum how { EXIT, EXEC, EXEC_FAILS, CASES };

/* It is in the send when the other one leaves, or comes then. */
static void asks(int fd, int go, int count)
{
	int all, i;

	alarm(test_alarm(60));
	check(read(go, &all, sizeof(all)) == sizeof(all));
	for (i = 0; i < NEW; i++)
		check(put(fd, all++, 0) == sizeof(buf));
	check(write(count, &all, sizeof(all)) == sizeof(all));
	check(put(fd, LAST, 0) == sizeof(buf));
	check(read(go, &i, sizeof(i)) == 0); /* all has arrived */
	_exit(0);
}

static _Atomic int sleepers[3]; /* threads that are to sleep in a call */

static void *sends(void *fd)
{
	sleepers[0] = gettid();
	if (put(*(int *)fd, LATE, 0) != sizeof(buf))
		fail("a send that slept: %s", strerror(errno));
	return NULL;
}

static void *receives(void *fd)
{
	char c;

	sleepers[1] = gettid();
	if (recv(*(int *)fd, &c, 1, 0) != 1)
		fail("a receive that slept: %s", strerror(errno));
	return NULL;
}

static int interrupted;

/* It must not wait for what it has interrupted. */
static void interrupts(int sig)
{
	const int saved = errno;

	(void)sig;
	send(interrupted, NULL, 0, MSG_DONTWAIT); /* no peer: nothing is sent */
	errno = saved;
}

static _Atomic bool exec_failed;

static void *disturbs(void *main)
{
	unsigned looks;

	for (looks = 0; !exec_failed; test_pause(&looks))
		check(pthread_kill(*(pthread_t *)main, SIGUSR1) == 0);
	return NULL;
}

/* libc goes through so many directories that the other one has the socket before this fails. */
static void exec_fails_late(void)
{
	const size_t dirs = 300000;
	char *path = malloc(3 * dirs + 1);
	size_t i;

	check(path);
	for (i = 0; i < dirs; i++)
		memcpy(path + 3 * i, "/x:", 3);
	path[3 * dirs - 1] = 0;
	check(setenv("PATH", path, 1) == 0);
	free(path);
	execlp("nonexistent", "nonexistent", NULL);
	check(errno == ENOENT);
}

static void *polls(void *fd)
{
	struct pollfd p = {.fd = *(int *)fd, .events = POLLIN};
	char c;

	sleepers[2] = gettid();
	do {
		if (poll(&p, 1, -1) != 1 || p.revents & ~POLLIN)
			fail("a poll that slept: %#x", (unsigned)p.revents);
	} while (recv(p.fd, &c, 1, MSG_DONTWAIT) != 1);
	return NULL;
}

static void is_asked(enum how how, bool later, bool threads, unsigned port, pid_t to, int go[2], int count, int gone)
{
	int fd = rds_bound(home(), port), size = 1 << 23, n = 0, i;
	pthread_t thread[4], self = pthread_self();
	pid_t heir;
	char c;

	child_begins();
	check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
	check(put(fd, HELLO, 0) == sizeof(buf) && recv(fd, &c, 1, 0) == 1);
	heir = fork();
	check(heir >= 0);
	if (!heir) {
		close(go[1]);
		close(gone);
		asks(fd, go[0], count);
	}
	check(fcntl(gone, F_SETFD, FD_CLOEXEC) == 0);
	check(kill(to, SIGSTOP) == 0);
	while (put(fd, n, MSG_DONTWAIT) == sizeof(buf))
		n++;
	check(errno == EAGAIN);
	if (threads) {
		check(pthread_create(&thread[0], NULL, sends, &fd) == 0);
		check(pthread_create(&thread[1], NULL, receives, &fd) == 0);
		check(pthread_create(&thread[2], NULL, polls, &fd) == 0);
		for (i = 0; i < 3; i++) { /* else it finds that the socket has gone */
			test_until(sleepers[i]);
			check(test_sleeps(sleepers[i]));
		}
	}
	check(write(go[1], &n, sizeof(n)) == sizeof(n));
	if (later) { /* it has taken that, and sleeps: in its send */
		test_until(ioctl(go[0], FIONREAD, &i) == 0 && i == 0);
		check(test_sleeps(heir));
	}
	if (how == EXIT)
		_exit(0);
	if (threads) {
		interrupted = fd;
		signal(SIGUSR1, interrupts);
		check(pthread_create(&thread[3], NULL, disturbs, &self) == 0);
		exec_fails_late();
	}
	execlp(how == EXEC ? "sleep" : "/nonexistent", "sleep", "0", NULL);
	check(how == EXEC_FAILS);
	exec_failed = true;
	close(gone);
	for (i = 0; threads && i < 4; i++)
		check(pthread_join(thread[i], NULL) == 0);
	close(go[1]);
	has_ended(heir);
	_exit(0);
}

/* Another program has it and makes no call: then it is this one that must not go. */
static void stays(unsigned port, pid_t to, int count)
{
	int fd = rds_bound(home(), port), size = 1 << 23, n;
	char c;

	child_begins();
	check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
	check(put(fd, HELLO, 0) == sizeof(buf) && recv(fd, &c, 1, 0) == 1);
	check(kill(to, SIGSTOP) == 0);
	for (n = 0; n < SENT; n++)
		check(put(fd, n, MSG_DONTWAIT) == sizeof(buf));
	check(put(fd, LAST, MSG_DONTWAIT) == sizeof(buf));
	check(write(count, &n, sizeof(n)) == sizeof(n));
	if (!fork()) {
		child_begins();
		execlp("sleep", "sleep", "60", NULL);
		_exit(99);
	}
	_exit(0);
}

static void not_asked(unsigned port)
{
	int ready[2], counts[2];
	pid_t to, from;

	check(pipe(ready) == 0 && pipe(counts) == 0);
	to = start_receiver(ready, counts[0]);
	from = fork();
	check(from >= 0);
	if (!from)
		stays(port, to, counts[1]);
	usleep(300000 * test_slow());
	check(waitpid(from, NULL, WNOHANG) == 0);
	check(kill(to, SIGCONT) == 0);
	has_ended(to);
	has_ended(from);
	close(ready[0]), close(ready[1]), close(counts[0]), close(counts[1]);
}

static void asked(enum how how, bool later, bool threads, unsigned port)
{
	int ready[2], counts[2], go[2], gone[2];
	struct pollfd p;
	pid_t to, from;
	char c;

	check(pipe(ready) == 0 && pipe(counts) == 0 && pipe(go) == 0 && pipe(gone) == 0);
	to = fork();
	check(to >= 0);
	if (!to) {
		close(go[1]);
		close(gone[1]);
		receiver(ready[1], counts[0], threads);
	}
	check(read(ready[0], &c, 1) == 1);
	from = fork();
	check(from >= 0);
	if (!from)
		is_asked(how, later, threads, port, to, go, counts[1], gone[1]);
	close(gone[1]);
	close(go[1]);
	p = (struct pollfd){.fd = gone[0], .events = POLLIN};
	if (poll(&p, 1, TEST_COMES) != 1)
		test_late("its end: it waits for the receiver, although another one asks for the socket");
	check(kill(to, SIGCONT) == 0);
	has_ended(to);
	has_ended(from);
	close(ready[0]), close(ready[1]), close(counts[0]), close(counts[1]), close(go[0]), close(gone[0]);
}

int main(void)
{
	enum how how;

	alarm(test_alarm(60));
	not_asked(PORT + 30);
	for (how = EXIT; how < CASES; how++) {
		asked(how, false, false, PORT + 10 + how);
		asked(how, true, false, PORT + 20 + how);
	}
	asked(EXEC_FAILS, true, true, PORT + 31);
	printf("ok: who was asked for a socket has gone without waiting\n");
	return 0;
}
