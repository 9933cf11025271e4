/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * hangs.c HOW - what the test of watch has watched; see test.sh.
 *
 *	poll		sleeps for ever
 *	grandchild	the same in a child's child, whose parent has ended; this process waits for
 *			a pipe that it has
 *	ticks		a thread that wakes up now and then, as the library's does, beside one that
 *			sleeps for ever
 *	stops		waits for a child that has been stopped
 *	burns		processor time without end
 *	says		a line now and then, until it ends
 *	works		uses some processor time now and then, until it ends
 *	killed		by a signal
 *	late		has waited for too long, and says so
 *	waits		for ever, and does not know that its child was late
 *	leaves		ends, and leaves a child behind that ends a moment later
 *	dies		ends as soon as a child has closed its end of a pipe, by its death, which
 *			takes longer
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "../slow.h"

#define TIMES 30

static void *ticks(void *arg)
{
	for (;;)
		usleep(100000);
	return arg;
}

static void burn(unsigned ms)
{
	clock_t end = clock() + (clock_t)ms * (CLOCKS_PER_SEC / 1000);

	for (;;) /* a loop that may be taken for one that ends would be left out */
		if (ms && clock() >= end)
			break;
}

static void grandchild(void)
{
	int ends[2];
	char byte;

	if (pipe(ends))
		_exit(1);
	if (!fork()) {
		if (!fork()) {
			pause();
			_exit(0);
		}
		_exit(0);
	}
	close(ends[1]);
	wait(NULL);
	_exit(read(ends[0], &byte, 1) != 1);
}

static void stops(void)
{
	pid_t pid = fork();

	if (!pid) {
		raise(SIGSTOP);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

/* A child is late, and its parent does not look at how it ended. */
static void waits(void)
{
	if (!fork())
		test_late("%s", "a child of it");
	poll(NULL, 0, -1);
}

static void big_file(int fd)
{
	int file = memfd_create("", 0);

	if (file < 0 || fallocate(file, 0, 0, 128 << 20) || dup2(file, fd) != fd || close(file))
		_exit(1);
}

/*
 * Two large files are given up as well, in either order: after the pipe, at least one of them takes
 * a while.
 */
static int dies(void)
{
	int ends[2];
	char byte;

	if (pipe(ends))
		return 1;
	if (!fork()) {
		big_file(0);
		big_file(100);
		_exit(0);
	}
	close(ends[1]);
	return read(ends[0], &byte, 1) != 0;
}

static int slowly(const char *how)
{
	int i;

	for (i = 0; i < TIMES; i++) {
		usleep(50000);
		if (!strcmp(how, "says"))
			dprintf(1, "%d\n", i);
		else
			burn(10);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	pthread_t thread;

	test_shows_stacks();
	if (!strcmp(how, "says") || !strcmp(how, "works"))
		return slowly(how);
	if (!strcmp(how, "burns"))
		burn(0);
	if (!strcmp(how, "killed"))
		raise(SIGKILL);
	if (!strcmp(how, "late"))
		test_late("%s", "a message that was sent");
	if (!strcmp(how, "ticks"))
		pthread_create(&thread, NULL, ticks, NULL);
	if (!strcmp(how, "dies"))
		return dies();
	if (!strcmp(how, "leaves"))
		return fork() ? 0 : poll(NULL, 0, 300);
	if (!strcmp(how, "stops"))
		stops();
	else if (!strcmp(how, "waits"))
		waits();
	else if (!strcmp(how, "grandchild"))
		grandchild();
	else if (!strcmp(how, "poll") || !strcmp(how, "ticks"))
		poll(NULL, 0, -1);
	return 3;
}
