/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * watch [--name NAME] [--limit SECONDS] [--quiet SECONDS] [--alone] -- COMMAND ARGS...
 * watch --measure
 *
 * Runs the command in a session of its own and checks whether it makes progress: whether it prints
 * something (to a file, on stdout or stderr), or any process below it gets processor time.  A limit
 * measures progress, not time:
 *
 *	no progress for --quiet seconds		HANG: status 124; prints where all of its
 *	(default 20)				threads are.  LATE: status 75, if a process of it
 *						has said so (test_late()) and others wait for it
 *	busy for --limit seconds		LATE: status 75
 *	(default: no limit)
 *	it ends					its own status; 128 + N for signal N, which is
 *						named
 *
 * Both are seconds of an idle machine, multiplied by TEST_SLOW.  After a hang, a limit, or a signal
 * to this program, all processes below it are killed, and no others.  Processes that a command
 * leaves behind when it ends by itself go on, as with a shell; with --alone they are killed, too,
 * and the status is at least 1.
 *
 * A process that could run, and gets no processor, does not hang.  A thread of the library that
 * wakes up at each tick is no progress: less than a thousandth of the time does not count, or
 * TEST_SLOW times that, since such a thread takes that much longer.  If one of these programs is
 * below another one, the nearer one looks for hangs.
 *
 * --measure prints TEST_SLOW: how much longer two processes on one processor take here to exchange
 * messages than on an idle machine; measured for 200 ms.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../slow.h"
#include "tree.h"

#if !__GLIBC_PREREQ(2, 32)
#define sigabbrev_np(sig) ((const char *)NULL)
#endif

#define HANG 124
#define QUIET_S 20
#define LOOKS 20	 /* in the shorter one of both times */
#define ROUND_TRIP_US 12 /* of an idle machine */
#define SLOW_MAX 50

static const char *name;
static double limit, quiet = QUIET_S;
static bool alone;

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- how slow ---- */

static void on_one_processor(void)
{
	cpu_set_t all, one;
	int i;

	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	for (i = 0; !CPU_ISSET(i, &all); i++)
		;
	CPU_ZERO(&one);
	CPU_SET(i, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

static void echo(int from, int to)
{
	char byte;

	while (read(from, &byte, 1) == 1 && write(to, &byte, 1) == 1)
		;
	_exit(0);
}

static int measure(void)
{
	double began, us;
	unsigned n = 0, slow;
	int to[2], from[2];
	char byte = 0;

	on_one_processor();
	if (pipe(to) || pipe(from))
		return 1;
	if (!fork()) {
		close(to[1]);
		echo(to[0], from[1]);
	}
	began = seconds();
	do {
		if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
			return 1;
		n++;
	} while (seconds() - began < 0.2);
	us = (seconds() - began) / n * 1e6;
	slow = us > SLOW_MAX * ROUND_TRIP_US ? SLOW_MAX : (unsigned)(us / ROUND_TRIP_US) + 1;
	printf("%u\n", slow);
	return 0;
}

/* ---- the command ---- */

static pid_t start(char **command, const sigset_t *mask)
{
	pid_t us = getpid(), pid = fork();

	if (pid < 0) {
		perror("watch: fork");
		exit(99);
	}
	if (pid)
		return pid;
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* who kills this program wants all of it to end */
	if (getppid() != us)
		_exit(99);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(command[0], command);
	fprintf(stderr, "watch: %s: %s\n", command[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

/* Orphans end here, too. */
static bool reaped(pid_t command, int *status)
{
	bool ended = false;
	int other;
	pid_t pid;

	while ((pid = waitpid(-1, &other, WNOHANG)) > 0) {
		if (pid != command)
			continue;
		ended = true;
		*status = other;
	}
	return ended;
}

static int verdict(int status)
{
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	fprintf(stderr, "watch: %s: signal %d (SIG%s)\n", name, WTERMSIG(status),
		sigabbrev_np(WTERMSIG(status)) ?: "?");
	return 128 + WTERMSIG(status);
}

static void end_all(struct tree *t)
{
	unsigned left = tree_kill(t), i;

	for (i = 0; i < left; i++)
		fprintf(stderr, "watch: %s: process %d (%s) cannot be killed\n", name, t->at[i].pid, t->at[i].name);
}

static int ended(int status)
{
	struct tree left = {NULL, 0, 0};
	bool behind = false;
	unsigned i;

	status = verdict(status);
	if (!alone)
		return status;
	tree_look(&left);
	for (i = 0; i < left.n; i++) {
		if (process_ends(left.at[i].pid))
			continue;
		behind = true;
		fprintf(stderr, "watch: %s: process %d (%s) is left behind\n", name, left.at[i].pid, left.at[i].name);
	}
	end_all(&left);
	free(left.at);
	return status ? status : behind;
}

/* ---- does it go on? ---- */

/*
 * All times are sums of short ones: where this program did not run itself, the others may not have,
 * either.
 */
static struct {
	struct tree now, before;
	double at, total, still; /* still: since it was seen to go on */
	unsigned long used;	 /* ticks, in that time */
	off_t said;
	off_t from; /* what is before this in the file on stderr is not of this command */
} seen;

/* Bytes in the file on fd; no file: 0. */
static off_t said_in_file(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) ? st.st_size : 0;
}

static off_t said(void)
{
	return said_in_file(1) + said_in_file(2);
}

static void look(double period)
{
	double now = seconds(), passed = now - seen.at;
	double share = test_slow() < 20 ? test_slow() / 1000.0 : 0.02;
	unsigned long enough = (unsigned long)(quiet * share * (double)sysconf(_SC_CLK_TCK));
	struct tree swap = seen.before;
	off_t size = said();

	if (passed > 2 * period)
		passed = 2 * period;
	seen.at = now;
	seen.total += passed;
	seen.before = seen.now;
	seen.now = swap;
	tree_look(&seen.now);
	seen.used += tree_used(&seen.before, &seen.now);
	if (size != seen.said || seen.used >= (enough > 2 ? enough : 2) ||
	    tree_has(&seen.now, program_invocation_short_name)) {
		seen.said = size;
		seen.still = 0;
		seen.used = 0;
	} else if (!tree_runs(&seen.now)) {
		seen.still += passed;
	}
}

/*
 * Has a process said that it is late?  It has ended without a word to the others, so that these
 * wait for it for ever: that says no more than its line does.
 */
static bool late_was_said(void)
{
	FILE *f = fopen("/proc/self/fd/2", "r");
	bool found = false;
	char *line = NULL;
	size_t size = 0;

	if (f && !fseeko(f, seen.from, SEEK_SET))
		while (!found && getline(&line, &size, f) > 0)
			found = !strncmp(line, "LATE ", 5);
	if (f)
		fclose(f);
	free(line);
	return found;
}

static int hangs(void)
{
	bool waits = said_in_file(2) > seen.from && late_was_said();

	fprintf(stderr, "watch: %s: nothing for %.1f s; here it is:\n", name, seen.still);
	tree_show(&seen.now, !waits);
	end_all(&seen.now);
	if (waits)
		return TEST_LATE;
	fprintf(stderr, "watch: %s: HANG: nothing for %.1f s\n", name, seen.still);
	return HANG;
}

static int late(void)
{
	fprintf(stderr, "watch: %s: still busy:\n", name);
	tree_show(&seen.now, false);
	end_all(&seen.now);
	fprintf(stderr, "LATE %s %.1f s busy, TEST_SLOW %u\n", name, seen.total, test_slow());
	return TEST_LATE;
}

static int watch(pid_t command, const sigset_t *set)
{
	double period = (limit && limit < quiet ? limit : quiet) / LOOKS, wait;
	int status, sig;

	seen.at = seconds();
	seen.said = said();
	for (;;) {
		wait = seen.at + period - seconds();
		if (wait < 0)
			wait = 0;
		sig = sigtimedwait(set, NULL,
				   &(struct timespec){(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)});
		if (reaped(command, &status))
			return ended(status);
		if (sig > 0 && sig != SIGCHLD) {
			end_all(&seen.now);
			return 128 + sig;
		}
		if (seconds() - seen.at < period)
			continue;
		look(period);
		if (seen.still >= quiet)
			return hangs();
		if (limit && seen.total >= limit)
			return late();
	}
}

static double time_of(const char *text)
{
	double n = strtod(text, NULL);

	if (n <= 0) {
		fprintf(stderr, "watch: %s is no time\n", text);
		exit(2);
	}
	return n * test_slow();
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"name", required_argument, NULL, 'n'},	 {"limit", required_argument, NULL, 'l'},
		{"quiet", required_argument, NULL, 'q'}, {"alone", no_argument, NULL, 'a'},
		{"measure", no_argument, NULL, 'm'},	 {NULL, 0, NULL, 0}};
	sigset_t set, old;
	int c;

	quiet = QUIET_S * test_slow();
	while ((c = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		if (c == 'm')
			return measure();
		else if (c == 'a')
			alone = true;
		else if (c == 'n')
			name = optarg;
		else if (c == 'l')
			limit = time_of(optarg);
		else if (c == 'q')
			quiet = time_of(optarg);
		else
			return 2;
	}
	if (optind == argc) {
		fprintf(stderr, "watch: what is to be run comes after --\n");
		return 2;
	}
	if (!name)
		name = argv[optind];
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, &old);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	seen.from = said_in_file(2); /* before it begins: it may be late at once */
	return watch(start(argv + optind, &old), &set);
}
