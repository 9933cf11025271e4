/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * command.c - rdsrun's options (command.h).
 *
 * They are in one table, from which they are parsed and the usage is printed; a check at build holds
 * the completion of shells against what is printed.
 */
#include "rdsrun/command.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sys/options.h"

#define FIRST_VALUE 256 /* what getopt_long() returns for an option without a letter */
#define HELP_AT 26	/* the column of the help in the usage */

struct row {
	const char *name;
	char letter;
	bool optional;
	const char *arg;      /* its value; NULL: it takes none */
	const char *variable; /* which it sets */
	/* of struct command; 0: none. */
	uint16_t flag, text;
	enum command_mode mode; /* which it chooses */
	unsigned of;		/* OF(mode) of those without which it means nothing; 0: it always does */
	const char *help;
};

#define OF(mode) (1u << (mode))
#define FIELD(name) ((uint16_t)offsetof(struct command, name))

static const struct row rows[] = {
	{"log", 'l', .arg = "LEVEL", .variable = "RDS_PRELOAD_LOG", .help = "error, warn, info or debug"},
	{"registry-dir", 'r', .arg = "DIR", .variable = "RDS_PRELOAD_REGISTRY_DIR",
	 .help = "where the processes of this node meet"},
	{"spin", 's', .arg = "US", .variable = "RDS_PRELOAD_SPIN_US",
	 .help = "longest spin before sleeping, in microseconds; 0 = never"},
	{"check", .arg = "PROGRAM", .text = FIELD(program), .mode = COMMAND_CHECK,
	 .help = "say whether PROGRAM's calls can be intercepted; runs nothing"},
	{"hold", .mode = COMMAND_HOLD,
	 .help = "keep the RDS connections over TCP of these addresses of this host,\n"
		 "so that programs can come and go"},
	{"check-peer", .mode = COMMAND_CHECK_PEER,
	 .help = "say whether RDS answers at the address of another host, or why not"},
	{"from", .arg = "ADDRESS", .text = FIELD(from), .of = OF(COMMAND_CHECK_PEER) | OF(COMMAND_PING),
	 .help = "from this address of this host"},
	{"ping", .mode = COMMAND_PING, .help = "send pings to an address, one each second, as rds-ping does"},
	{"count", .arg = "N", .text = FIELD(count), .of = OF(COMMAND_PING), .help = "so many, and end"},
	{"node", .mode = COMMAND_NODE, .help = "show the RDS processes of this host, their sockets and connections"},
	{"json", .flag = FIELD(json), .of = OF(COMMAND_NODE), .help = "for scripts"},
	{"watch", .optional = true, .arg = "SECONDS", .flag = FIELD(watch), .text = FIELD(interval),
	 .of = OF(COMMAND_NODE), .help = "again and again"},
	{"metrics", .arg = "FILE", .text = FIELD(metrics), .of = OF(COMMAND_NODE),
	 .help = "into a file for Prometheus"},
	{"info", .optional = true, .arg = "TABLES", .text = FIELD(tables), .mode = COMMAND_INFO,
	 .help = "the tables of rds-info, or some of them: letters of ckrsntTI"},
	{"library", .mode = COMMAND_LIBRARY, .help = "print the file that would be preloaded"},
	{"options", .mode = COMMAND_OPTIONS,
	 .help = "print all RDS_PRELOAD_* variables, their values and where they come from"},
	{"help", 'h', .mode = COMMAND_HELP, .help = "this text"},
	{"version", 'V', .mode = COMMAND_VERSION, .help = "version"},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* ---- usage ---- */

static void usage_row(FILE *out, const struct row *r)
{
	char name[64];
	int n = r->letter ? snprintf(name, sizeof(name), "  -%c, --%s", r->letter, r->name)
			  : snprintf(name, sizeof(name), "      --%s", r->name);

	if (r->arg)
		n += snprintf(name + n, sizeof(name) - (size_t)n, r->optional ? "[=%s]" : " %s", r->arg);
	fprintf(out, "%-*s", HELP_AT, name);
	if (n >= HELP_AT)
		fprintf(out, "\n%*s", HELP_AT, "");
	for (const char *p = r->help; *p; p++) {
		fputc(*p, out);
		if (*p == '\n')
			fprintf(out, "%*s", HELP_AT, "");
	}
	fputc('\n', out);
}

void command_usage(FILE *out)
{
	fputs("Usage: rdsrun [OPTION]... PROGRAM [ARGUMENT]...\n"
	      "  or:  rdsrun [OPTION]... --hold ADDRESS...\n"
	      "  or:  rdsrun [OPTION]... --check-peer [--from ADDRESS] ADDRESS\n"
	      "  or:  rdsrun [OPTION]... --ping [--from ADDRESS] [--count N] ADDRESS\n"
	      "  or:  rdsrun [OPTION]... --node [--watch[=SECONDS]] [--json | --metrics FILE]\n"
	      "  or:  rdsrun [OPTION]... --info[=TABLES]\n"
	      "Run PROGRAM with RDS sockets (PF_RDS) provided by librdspreload.so.\n"
	      "\n",
	      out);
	for (size_t i = 0; i < ROWS; i++)
		usage_row(out, &rows[i]);
	fputs("\n"
	      "The options set RDS_PRELOAD_* variables; see rdsrun(1) and librdspreload(7).\n",
	      out);
}

/* ---- parsing ---- */

static const char *mode_name(enum command_mode mode)
{
	for (size_t i = 0; i < ROWS; i++)
		if (mode != COMMAND_RUN && rows[i].mode == mode)
			return rows[i].name;
	return "";
}

/* 0 or an exit status, as below. */
static int set_variable(const struct row *r, const char *value)
{
	char want[96];

	if (!rds_options_value_ok(r->variable, value, want, sizeof(want))) {
		fprintf(stderr, "rdsrun: --%s: '%s' is not %s\n", r->name, value, want);
		return COMMAND_USAGE;
	}
	if (setenv(r->variable, value, 1) == 0)
		return 0;
	fprintf(stderr, "rdsrun: %s: %s\n", r->variable, strerror(errno));
	return COMMAND_CANNOT_RUN;
}

static int set_row(const struct row *r, const char *value, struct command *c)
{
	if (r->variable)
		return set_variable(r, value);
	if (r->flag)
		*(bool *)((char *)c + r->flag) = true;
	if (r->text && value)
		*(const char **)((char *)c + r->text) = value;
	if (r->mode == COMMAND_RUN || r->mode == c->mode)
		return 0;
	if (c->mode != COMMAND_RUN) {
		fprintf(stderr, "rdsrun: --%s and --%s do not go together\n", mode_name(c->mode), r->name);
		return COMMAND_USAGE;
	}
	c->mode = r->mode;
	return 0;
}

static void explain_of(const struct row *r)
{
	const char *join = "is for";

	fprintf(stderr, "rdsrun: --%s", r->name);
	for (size_t i = 0; i < ROWS; i++)
		if (r->of & OF(rows[i].mode)) {
			fprintf(stderr, " %s --%s", join, rows[i].name);
			join = "or";
		}
	fputc('\n', stderr);
}

/* Rows that are set, and mean nothing without their mode. */
static int check_rows(const struct command *c)
{
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *r = &rows[i];
		const char *at = (const char *)c;

		if (!r->of || (r->of & OF(c->mode)) ||
		    !((r->flag && *(const bool *)(at + r->flag)) || (r->text && *(const char *const *)(at + r->text))))
			continue;
		explain_of(r);
		return COMMAND_USAGE;
	}
	return COMMAND_GO_ON;
}

static const struct row *row_of(int opt)
{
	if (opt >= FIRST_VALUE)
		return &rows[opt - FIRST_VALUE];
	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].letter && rows[i].letter == opt)
			return &rows[i];
	return NULL;
}

int command_parse(int argc, char **argv, struct command *out)
{
	struct option longs[ROWS + 1] = {0};
	char shorts[2 + 2 * ROWS] = "+", *s = shorts + 1;
	const struct row *r;
	int opt, rc;

	for (size_t i = 0; i < ROWS; i++) {
		longs[i].name = rows[i].name;
		longs[i].has_arg = rows[i].optional ? optional_argument : rows[i].arg ? required_argument : no_argument;
		longs[i].val = FIRST_VALUE + (int)i;
		if (rows[i].letter)
			*s++ = rows[i].letter;
		if (rows[i].letter && rows[i].arg)
			*s++ = ':';
	}
	while ((opt = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		r = row_of(opt);
		if (!r) {
			command_usage(stderr);
			return COMMAND_USAGE;
		}
		rc = set_row(r, optarg, out);
		if (rc)
			return rc;
	}
	return check_rows(out);
}
