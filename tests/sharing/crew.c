/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * crew.c - the processes of the player, in places, and the lines: socket pairs for orders and
 * answers.  A process has ended when its pidfd is readable: its descriptors are closed then.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../slow.h"
#include "player.h"

#define OUR_LINE(place) (240 + (place))
#define SOON_MS test_deadline_ms(5000) /* after that the log says what the crew waits for */

_Static_assert(OUR_LINE(0) > MAIL_OUT(PLACES - 1), "numbers of their own");

static int pidfds[PLACES];
static pid_t pids[PLACES];

static void two_ends(int one, int other, int type)
{
	int ends[2];

	if (socketpair(AF_UNIX, type, 0, ends) || dup2(ends[0], one) < 0 || dup2(ends[1], other) < 0)
		failed("no lines: %s", strerror(errno));
	close(ends[0]);
	close(ends[1]);
}

void crew_born(int place, pid_t pid)
{
	pids[place] = pid;
	pidfds[place] = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfds[place] < 0)
		failed("process %d in place %d is gone at once", pid, place);
}

/* The child closes our ends of the lines: so they hang up when we end, and all processes end. */
static void begin(int place)
{
	int i;

	for (i = 0; i < PLACES; i++)
		close(OUR_LINE(i));
	worker(place, rules.address, false);
}

void crew_start(unsigned procs)
{
	unsigned i;
	pid_t pid;

	for (i = 0; i < PLACES; i++) {
		two_ends(OUR_LINE(i), LINE(i), SOCK_SEQPACKET);
		two_ends(MAIL_IN(i), MAIL_OUT(i), SOCK_STREAM);
		fcntl(OUR_LINE(i), F_SETFD, FD_CLOEXEC);
		pidfds[i] = -1;
	}
	for (i = 0; i < procs; i++) {
		pid = fork();
		if (!pid)
			begin((int)i);
		crew_born((int)i, pid);
	}
}

/* Discards orders and answers of a process that has ended. */
static void forget(int place)
{
	char bytes[sizeof(struct order)];

	while (recv(LINE(place), bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	while (recv(OUR_LINE(place), bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	close(pidfds[place]);
	pidfds[place] = -1;
}

/* Waits until one of these descriptors is ready, which has to happen. */
static void happens(struct pollfd *pfds, nfds_t n, const char *what)
{
	if (poll(pfds, n, SOON_MS) > 0)
		return;
	slowly(what);
	if (poll(pfds, n, TEST_COMES) <= 0)
		test_late("%s", what);
}

void crew_gone(int place)
{
	struct pollfd pfd = {.fd = pidfds[place], .events = POLLIN};

	happens(&pfd, 1, "the end of a process");
	forget(place);
}

void crew_kill(int place)
{
	kill(pids[place], SIGKILL);
}

void crew_stop(void)
{
	int i;

	for (i = 0; i < PLACES; i++) {
		if (pidfds[i] < 0)
			continue;
		kill(pids[i], SIGKILL);
		poll(&(struct pollfd){.fd = pidfds[i], .events = POLLIN}, 1, TEST_COMES);
		forget(i);
	}
}

void crew_tell(int place, const struct order *o)
{
	if (send(OUR_LINE(place), o, sizeof(*o), 0) != sizeof(*o))
		failed("place %d cannot be told: %s", place, strerror(errno));
}

struct answer crew_hear(int place)
{
	struct pollfd pfds[2] = {{.fd = OUR_LINE(place), .events = POLLIN}, {.fd = pidfds[place], .events = POLLIN}};
	struct answer a;

	happens(pfds, 2, "an answer");
	if (recv(OUR_LINE(place), &a, sizeof(a), MSG_DONTWAIT) != sizeof(a))
		failed("place %d has died", place);
	return a;
}

struct answer crew_do(int place, const struct order *o)
{
	crew_tell(place, o);
	return crew_hear(place);
}

/* Waits until the process sleeps: it has read its order, and is in the call or has answered. */
void crew_asleep(int place)
{
	char path[40], line[300], *state;
	int fd, n, looks, seen = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", pids[place]);
	for (looks = 0; seen < 2 && looks < 2000; looks++) {
		fd = open(path, O_RDONLY);
		n = fd < 0 ? 0 : (int)read(fd, line, sizeof(line) - 1);
		if (fd >= 0)
			close(fd);
		line[n > 0 ? n : 0] = 0;
		state = strrchr(line, ')');
		seen = state && state[2] == 'S' ? seen + 1 : 0;
		poll(NULL, 0, 1);
	}
}
