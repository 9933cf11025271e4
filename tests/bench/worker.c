/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * worker.c - main of the benchmark worker: options, processors, the line protocol with
 * tests/bench/run.
 */
#include "bench.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

void die(const char *fmt, ...)
{
	va_list ap;

	fputs("error ", stdout);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	exit(1);
}

void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

void hear(const char *word, char *rest, size_t size)
{
	char line[256];
	size_t len = strlen(word);

	if (!fgets(line, sizeof(line), stdin))
		die("end of input while waiting for '%s'", word);
	line[strcspn(line, "\n")] = '\0';
	if (strncmp(line, word, len) != 0)
		die("expected '%s', heard '%s'", word, line);
	if (rest)
		snprintf(rest, size, "%s", line + len + (line[len] == ' '));
}

static unsigned number(const char *key, const char *text)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(text, &end, 10);
	if (errno || *end || end == text || v > 1u << 30)
		die("bad number %s=%s", key, text);
	return (unsigned)v;
}

static void set_option(struct options *o, char *arg)
{
	const struct {
		const char *key;
		const char **text;
		unsigned *num;
		bool *flag;
	} table[] = {
		{"role", &o->role, NULL, NULL},	      {"host", &o->host, NULL, NULL},
		{"what", &o->what, NULL, NULL},	      {"cpus", &o->cpus, NULL, NULL},
		{"size", NULL, &o->size, NULL},	      {"window", NULL, &o->window, NULL},
		{"senders", NULL, &o->senders, NULL}, {"id", NULL, &o->id, NULL},
		{"gap_us", NULL, &o->gap_us, NULL},   {"idle", NULL, &o->idle, NULL},
		{"buffer", NULL, &o->buffer, NULL},   {"limit", NULL, &o->limit, NULL},
		{"rds", NULL, NULL, &o->rds},	      {"spin", NULL, NULL, &o->spin},
		{"reply", NULL, NULL, &o->reply},     {"tos", NULL, &o->tos, NULL},
		{"read", NULL, NULL, &o->read},	      {"map", NULL, NULL, &o->map},
		{"files", NULL, &o->files, NULL},     {"tcp", NULL, NULL, &o->tcp},
	};
	char *value = strchr(arg, '=');
	size_t i;

	if (!value)
		die("expected key=value, got '%s'", arg);
	*value++ = '\0';
	if (strcmp(arg, "seconds") == 0) {
		o->seconds = number(arg, value) / 1000.0; /* given in milliseconds */
		return;
	}
	if (strcmp(arg, "fd") == 0) {
		o->fd = (int)number(arg, value);
		return;
	}
	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (strcmp(arg, table[i].key) != 0)
			continue;
		if (table[i].text)
			*table[i].text = value;
		else if (table[i].num)
			*table[i].num = number(arg, value);
		else
			*table[i].flag = number(arg, value) != 0;
		return;
	}
	die("unknown option '%s'", arg);
}

static void pin(const char *cpus)
{
	cpu_set_t set;
	const char *p = cpus;

	if (!*cpus)
		return;
	CPU_ZERO(&set);
	while (*p) {
		char *end;
		unsigned long cpu = strtoul(p, &end, 10);

		if (end == p || cpu >= CPU_SETSIZE)
			die("bad list of processors '%s'", cpus);
		CPU_SET(cpu, &set);
		p = *end == ',' ? end + 1 : end;
	}
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		die("sched_setaffinity %s: %s", cpus, strerror(errno));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(const struct options *);
	} modes[] = {
		{"rtt", run_rtt},	{"stream", run_stream},	  {"paced", run_paced},	  {"other", run_other},
		{"poll", run_poll},	{"herd", run_herd},	  {"peer", run_peer},	  {"hog", run_hog},
		{"first", run_first},	{"many", run_many},	  {"copy", run_copy},	  {"call", run_call},
		{"rdmaop", run_rdmaop}, {"ping", run_ping},	  {"starts", run_starts}, {"forked", run_forked},
		{"crowd", run_crowd},	{"clients", run_clients},
	};
	struct options o = {.role = "",
			    .host = "127.0.0.1",
			    .what = "",
			    .cpus = "",
			    .fd = -1,
			    .size = 64,
			    .senders = 1,
			    .limit = 60,
			    .seconds = 1};
	size_t i;
	int a;

	/* The starter may be killed; nothing that it started stays behind. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	o.mode = argc > 1 ? argv[1] : "";
	for (a = 2; a < argc; a++)
		set_option(&o, argv[a]);
	if (o.size < sizeof(struct message))
		die("a message has at least %zu bytes", sizeof(struct message));
	pin(o.cpus);
	alarm(o.limit);
	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(o.mode, modes[i].name) == 0) {
			modes[i].run(&o);
			return 0;
		}
	}
	die("unknown mode '%s'", o.mode);
}
