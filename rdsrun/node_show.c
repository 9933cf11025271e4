/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * node_show.c - shows the node once, or again and again (node_show.h).
 *
 * What is shown again is a screen if stdout is a terminal, else one block or line after the other.
 * Signals that end the process, or stop it, are blocked and waited for: so the terminal is as it was
 * before they act.
 */
#include "rdsrun/node_show.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rdsrun/node.h"

#define WHAT "rdsrun: --node: "
#define MEASURE_S 0.5 /* for the rates of a node that is shown once */

/* An own screen, without a cursor; and back. */
#define SCREEN_BEGIN "\033[?1049h\033[?25l"
#define SCREEN_END "\033[?25h\033[?1049l"
#define SCREEN_TOP "\033[H"
#define LINE_END "\033[K\n"
#define SCREEN_REST "\033[J"

static int complain(const char *what, int err)
{
	fprintf(stderr, WHAT "%s: %s\n", what, strerror(err));
	return EXIT_FAILURE;
}

/* What could not be done, if it was that. */
static const char *what_failed(const struct node_wanted *want, bool looked)
{
	return !looked ? "the node cannot be asked" : want->metrics ? want->metrics : "output";
}

/* ---- signals ---- */

static void signals_block(sigset_t *set, bool screen)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct sigaction old;

	sigemptyset(set);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaddset(set, ends[i]);
	if (screen)
		sigaddset(set, SIGTSTP);
	sigprocmask(SIG_BLOCK, set, NULL);
}

static double clock_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* The signal that has come, or 0 when it is time. */
static int signals_wait(const sigset_t *set, double until)
{
	struct timespec ts;
	double left;
	int sig;

	do {
		left = until - clock_now();
		left = left > 0 ? left : 0;
		ts.tv_sec = (time_t)left;
		ts.tv_nsec = (long)((left - (double)ts.tv_sec) * 1e9);
		sig = sigtimedwait(set, NULL, &ts);
	} while (sig < 0 && errno == EINTR);
	return sig > 0 ? sig : 0;
}

/* ---- one look ---- */

static int print_file(const char *path, const struct node *node)
{
	char *tmp;
	int fd, err = 0;
	FILE *out;

	if (asprintf(&tmp, "%s.XXXXXX", path) < 0)
		return ENOMEM;
	fd = mkstemp(tmp);
	out = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (!out) {
		err = errno;
		if (fd >= 0) {
			close(fd);
			unlink(tmp);
		}
		free(tmp);
		return err;
	}
	node_print_metrics(out, node);
	if (fflush(out) || ferror(out) || fchmod(fd, 0644))
		err = errno;
	if (fclose(out) && !err)
		err = errno;
	if (!err && rename(tmp, path))
		err = errno;
	if (err)
		unlink(tmp);
	free(tmp);
	return err;
}

/* As much of the text as the terminal has room for. */
static void print_screen(char *text)
{
	struct winsize size;
	unsigned row = 0;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row || !size.ws_col)
		size = (struct winsize){.ws_row = 24, .ws_col = 80};
	fputs(SCREEN_TOP, stdout);
	for (char *line = strtok(text, "\n"); line && row + 1 < size.ws_row; line = strtok(NULL, "\n"), row++)
		printf("%.*s" LINE_END, size.ws_col, line);
	fputs(SCREEN_REST, stdout);
}

static int print_live(const struct node *node)
{
	static const struct node_style style = {.bars = true};
	char *text = NULL, when[32];
	time_t now = (time_t)node->wall;
	struct tm tm;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return ENOMEM;
	strftime(when, sizeof(when), "%H:%M:%S", localtime_r(&now, &tm));
	fprintf(out, "%s  %zu processes; end with ^C\n", when, node->nprocs);
	node_print(out, node, &style);
	if (fclose(out)) {
		free(text);
		return ENOMEM;
	}
	print_screen(text);
	free(text);
	return 0;
}

/* 0 or an errno, as of the others. */
static int print(const struct node_wanted *want, const struct node *node, bool screen)
{
	static const struct node_style plain, bars = {.bars = true};
	int err = 0;

	if (want->metrics)
		err = print_file(want->metrics, node);
	else if (want->json)
		node_print_json(stdout, node);
	else if (screen)
		err = print_live(node);
	else
		node_print(stdout, node, want->watch ? &bars : &plain);
	if (want->watch && !want->json && !want->metrics && !screen)
		putchar('\n');
	if (fflush(stdout) && !err)
		err = errno;
	return err ? err : ferror(stdout) ? EIO : 0;
}

/* ---- again and again ---- */

static void screen_put(const char *text)
{
	fputs(text, stdout);
	fflush(stdout);
}

/* The shell is to find the terminal as it was; it stops us, and wakes us again. */
static void stop_here(void)
{
	screen_put(SCREEN_END);
	raise(SIGSTOP);
	screen_put(SCREEN_BEGIN);
}

static int watch(int fd, const struct node_wanted *want)
{
	bool screen = isatty(STDOUT_FILENO) && !want->json && !want->metrics;
	struct node node = {0}, before = {0};
	bool looked;
	int sig = 0, err;
	sigset_t set;

	signals_block(&set, screen);
	if (screen)
		screen_put(SCREEN_BEGIN);
	do {
		double next = clock_now() + want->interval;

		err = node_look(fd, before.n ? &before : NULL, &node);
		looked = !err;
		if (looked)
			err = print(want, &node, screen);
		node_free(&before);
		before = node;
		while (!err && (sig = signals_wait(&set, next)) == SIGTSTP)
			stop_here();
	} while (!err && !sig);
	node_free(&before);
	if (screen)
		screen_put(SCREEN_END);
	return err ? complain(what_failed(want, looked), err) : EXIT_SUCCESS;
}

static int once(int fd, const struct node_wanted *want)
{
	const struct timespec measure = {.tv_nsec = (long)(MEASURE_S * 1e9)};
	struct node before, node;
	int err = node_look(fd, NULL, &node);
	bool looked;

	if (!err && !want->metrics && node.nprocs) {
		before = node;
		nanosleep(&measure, NULL);
		err = node_look(fd, &before, &node);
		node_free(&before);
	}
	looked = !err;
	if (looked) {
		err = print(want, &node, false);
		node_free(&node);
	}
	return err ? complain(what_failed(want, looked), err) : EXIT_SUCCESS;
}

int node_show(const struct node_wanted *want)
{
	int fd = socket(PF_RDS, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), status;

	if (fd < 0)
		return complain("no RDS socket", errno);
	status = want->watch ? watch(fd, want) : once(fd, want);
	close(fd);
	return status;
}
