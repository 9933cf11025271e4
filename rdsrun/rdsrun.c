/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rdsrun.c - run a program with librdspreload.so in front of libc.
 *
 * Only sets the environment and execs: no process of rdsrun stays behind. Finds the library beside
 * itself, so that it works from a build tree, from a relocated installation and from where it was
 * installed. Entries that LD_PRELOAD has already are kept, behind the library: the library must be
 * the first to see a socket call. RDS_PRELOAD_DLSYM adds the second object of the library's
 * directory (preload/dlsym/dlsym.c).
 *
 * With --hold, --check-peer and --node the program that is run is rdsrun itself, which is an RDS
 * program then (hold.h, peer.h, node_show.h).
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/sys/options.h"
#include "rdsrun/check.h"
#include "rdsrun/command.h"
#include "rdsrun/hold.h"
#include "rdsrun/info.h"
#include "rdsrun/node_show.h"
#include "rdsrun/peer.h"
#include "rdsrun/ping.h"

#define LIBRARY "librdspreload.so"
#define DLSYM_LIBRARY "librdsdlsym.so"
#define TRANSPORT "RDS_PRELOAD_TRANSPORT"
#define HELPER_FDS "RDS_PRELOAD_HELPER_FDS"

/* Puts dir/below/librdspreload.so into path, if that file can be read. */
static bool there(const char *dir, const char *below, char *path, size_t len)
{
	int n = snprintf(path, len, "%s/%s/" LIBRARY, dir, below);

	return n > 0 && (size_t)n < len && access(path, R_OK) == 0;
}

/*
 * Where the library is: in the build tree, where it was installed, or in the same place below a
 * prefix that was moved.
 */
static bool locate(char *path, size_t len)
{
	static const char *const from_bin[] = {"../lib", "../lib64", ("../lib/" RDSRUN_MULTIARCH), "."};
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return there(RDSRUN_LIBDIR, ".", path, len);
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	if (there(self, "../.libs", path, len) || there(RDSRUN_LIBDIR, ".", path, len))
		return true;
	for (size_t i = 0; i < sizeof(from_bin) / sizeof(from_bin[0]); i++)
		if (there(self, from_bin[i], path, len))
			return true;
	return false;
}

/* The library's real name, checked to be fit for LD_PRELOAD. */
static int find_library(char *path, size_t len)
{
	char found[PATH_MAX], real[PATH_MAX];

	if (!locate(found, sizeof(found))) {
		fprintf(stderr, "rdsrun: %s is neither in %s nor beside rdsrun: run `make` in the build directory, or install it "
				"(`make install`)\n", LIBRARY, RDSRUN_LIBDIR);
		return -1;
	}
	if (!realpath(found, real) || (size_t)snprintf(path, len, "%s", real) >= len) {
		fprintf(stderr, "rdsrun: %s: %s\n", found, strerror(errno));
		return -1;
	}
	if (strpbrk(path, " :")) {
		fprintf(stderr, "rdsrun: %s: LD_PRELOAD cannot hold a name with a space or a colon; move the library\n", path);
		return -1;
	}
	return 0;
}

static int set_env(const char *name, const char *value)
{
	if (setenv(name, value, 1) == 0)
		return 0;
	fprintf(stderr, "rdsrun: %s: %s\n", name, strerror(errno));
	return -1;
}

/* Is `library` already an entry of LD_PRELOAD (rdsrun inside rdsrun)? */
static bool listed(const char *preload, const char *library)
{
	size_t n = strlen(library);

	for (const char *p = preload; p && *p; p += strcspn(p, " :")) {
		p += strspn(p, " :");
		if (strcspn(p, " :") == n && strncmp(p, library, n) == 0)
			return true;
	}
	return false;
}

/* Adds "key=value" to the options of a sanitizer's runtime, unless they set the key already. */
static int add_option(const char *variable, const char *key, const char *value)
{
	const char *old = getenv(variable);
	char *text;
	int rc;

	if (old && strstr(old, key))
		return 0;
	if (asprintf(&text, "%s%s%s=%s", old ? old : "", old && *old ? ":" : "", key, value) < 0)
		return -1;
	rc = set_env(variable, text);
	free(text);
	return rc;
}

/*
 * Builds with --enable-sanitizers: leaks of the program at exit are not reported, and it may fork.
 */
static int sanitizer_options(void)
{
	if (add_option("ASAN_OPTIONS", "detect_leaks", "0") < 0)
		return -1;
	return add_option("TSAN_OPTIONS", "die_after_fork", "0");
}

/*
 * A value that the library would not take means the default. The library reports it only when the
 * program uses RDS.
 */
static bool dlsym_wanted(void)
{
	const char *value = getenv("RDS_PRELOAD_DLSYM");
	char want[96];

	if (!value || !*value)
		return false;
	if (rds_options_value_ok("RDS_PRELOAD_DLSYM", value, want, sizeof(want)))
		return strcmp(value, "1") == 0;
	fprintf(stderr, "rdsrun: warning: RDS_PRELOAD_DLSYM=%s is not %s: using 0\n", value, want);
	return false;
}

/*
 * The object beside the library that RDS_PRELOAD_DLSYM asks for; "" if it asks for none. -1: that
 * object is missing.
 */
static int dlsym_library(const char *library, char *path, size_t len)
{
	int dir = (int)(strrchr(library, '/') + 1 - library);

	*path = '\0';
	if (!dlsym_wanted())
		return 0;
	if ((size_t)snprintf(path, len, "%.*s" DLSYM_LIBRARY, dir, library) < len && access(path, R_OK) == 0)
		return 0;
	fprintf(stderr, "rdsrun: RDS_PRELOAD_DLSYM: " DLSYM_LIBRARY " is not beside %s: %s\n", library, strerror(errno));
	return -1;
}

/* Puts `first` in front of LD_PRELOAD, or `last` behind it. "" adds nothing. */
static int add_preload(const char *first, const char *last)
{
	const char *old = getenv("LD_PRELOAD") ?: "", *after_first = *first && *old ? ":" : "";
	const char *before_last = *last && (*first || *old) ? ":" : "";
	char *value;
	int rc;

	if (asprintf(&value, "%s%s%s%s%s", first, after_first, old, before_last, last) < 0)
		return -1;
	rc = set_env("LD_PRELOAD", value);
	free(value);
	return rc;
}

/*
 * A sanitizer's runtime (empty except in builds with --enable-sanitizers) has to be the very first.
 * ThreadSanitizer's must not be: it ignores locks while it is inside its own poll(). Our code would
 * run unwatched there, and ThreadSanitizer would report races.
 */
static int set_preload(const char *library)
{
	const char *old = getenv("LD_PRELOAD"), *runtime = RDSRUN_SANITIZER_PRELOAD;
	bool behind = strstr(runtime, "libtsan") != NULL, loaded = listed(old, library);
	char dlsym[PATH_MAX];

	if (dlsym_library(library, dlsym, sizeof(dlsym)) < 0)
		return -1;
	if (*dlsym && !listed(old, dlsym) && add_preload("", dlsym) < 0)
		return -1;
	if (loaded)
		return 0;
	if (*runtime && sanitizer_options() < 0)
		return -1;
	if (add_preload(behind ? runtime : library, "") < 0)
		return -1;
	return add_preload(behind ? library : runtime, "");
}

static int report(const char *program)
{
	char library[PATH_MAX], path[PATH_MAX], why[2 * PATH_MAX + 256];
	enum check_verdict v;
	int rc;

	if (find_library(library, sizeof(library)) < 0)
		return COMMAND_USAGE;
	rc = check_find(program, path, sizeof(path));
	if (rc < 0) {
		fprintf(stderr, "rdsrun: %s: %s\n", program, strerror(-rc));
		return COMMAND_USAGE;
	}
	v = check_program(path, library, why, sizeof(why));
	printf("%s: %s\n", v == CHECK_OK ? "yes" : v == CHECK_PARTLY ? "partly" : v == CHECK_NO ? "no" : "unknown", why);
	return v == CHECK_OK || v == CHECK_PARTLY ? EXIT_SUCCESS : v == CHECK_NO ? EXIT_FAILURE : COMMAND_USAGE;
}

/* file: what is executed; NULL: argv[0] */
static int run(const char *file, char **argv)
{
	char library[PATH_MAX], path[PATH_MAX], why[2 * PATH_MAX + 256];

	if (find_library(library, sizeof(library)) < 0)
		return COMMAND_CANNOT_RUN;
	/*
	 * Tells why sockets will be missing, but runs the program: it may start programs that can
	 * use them.
	 */
	file = file ?: argv[0];
	if (check_find(file, path, sizeof(path)) == 0) {
		enum check_verdict v = check_program(path, library, why, sizeof(why));

		if (v == CHECK_NO || v == CHECK_PARTLY)
			fprintf(stderr, "rdsrun: warning: %s\n", why);
	}
	if (set_preload(library) < 0)
		return COMMAND_CANNOT_RUN;
	execvp(file, argv);
	fprintf(stderr, "rdsrun: %s: %s\n", file, strerror(errno));
	return errno == ENOENT ? COMMAND_NOT_FOUND : COMMAND_CANNOT_RUN;
}

/* Runs rdsrun itself again, with the library. */
static int run_self(char **argv)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1); /* ps shows that name */

	if (n < 0) {
		fprintf(stderr, "rdsrun: /proc/self/exe: %s\n", strerror(errno));
		return COMMAND_CANNOT_RUN;
	}
	self[n] = '\0';
	return run(self, argv);
}

/* Has it the library, and over TCP if that matters?  COMMAND_GO_ON; else it has been run again. */
static int self_has_rds(char **argv, bool tcp)
{
	const char *transport = getenv(TRANSPORT), *files = getenv(HELPER_FDS);
	bool chosen = transport && *transport, shared = files && !strcmp(files, "shared");
	char library[PATH_MAX];

	if (find_library(library, sizeof(library)) < 0)
		return COMMAND_CANNOT_RUN;
	/* a listener in a table of the helper's own would not be seen (hold.c) */
	if (((chosen && shared) || !tcp) && listed(getenv("LD_PRELOAD"), library))
		return COMMAND_GO_ON;
	if (tcp && (set_env(HELPER_FDS, "shared") < 0 || (!chosen && set_env(TRANSPORT, "tcp") < 0)))
		return COMMAND_CANNOT_RUN;
	return run_self(argv);
}

/* argv from the first operand on, as below */
static int over_tcp(char **all, char **argv, const struct command *c)
{
	const bool hold = c->mode == COMMAND_HOLD;
	int status;

	if (!argv[0] || (!hold && argv[1])) {
		fprintf(stderr, "rdsrun: %s\n",
			hold ? "--hold needs addresses of this host"
			     : "--check-peer needs the address of one other host");
		return COMMAND_USAGE;
	}
	status = self_has_rds(all, true);
	if (status != COMMAND_GO_ON)
		return status;
	return hold ? hold_addresses(argv) : peer_check(argv[0], c->from);
}

static int ping(char **all, char **argv, const struct command *c)
{
	int status;

	if (!argv[0] || argv[1]) {
		fputs("rdsrun: --ping needs one address\n", stderr);
		return COMMAND_USAGE;
	}
	status = self_has_rds(all, false);
	return status == COMMAND_GO_ON ? ping_show(argv[0], c->from, c->count) : status;
}

static int show_node(char **all, const struct command *c)
{
	struct node_wanted want = {.json = c->json, .watch = c->watch, .interval = 1, .metrics = c->metrics};
	char *end = NULL;
	int status;

	if (c->interval)
		want.interval = strtod(c->interval, &end);
	if ((end && (*end || end == c->interval)) || !(want.interval >= 0.1 && want.interval <= 86400)) {
		fprintf(stderr, "rdsrun: --watch: '%s' is not a number from 0.1 to 86400\n", c->interval);
		return COMMAND_USAGE;
	}
	if (want.json && want.metrics) {
		fputs("rdsrun: --json and --metrics do not go together\n", stderr);
		return COMMAND_USAGE;
	}
	status = self_has_rds(all, false);
	return status == COMMAND_GO_ON ? node_show(&want) : status;
}

static int show_info(char **all, const struct command *c)
{
	int status;

	if (!info_is_sound(c->tables)) {
		fprintf(stderr, "rdsrun: --info: '%s' is not letters of ckrsntTI\n", c->tables);
		return COMMAND_USAGE;
	}
	status = self_has_rds(all, false);
	return status == COMMAND_GO_ON ? info_show(c->tables) : status;
}

static int print_library(void)
{
	char library[PATH_MAX];

	if (find_library(library, sizeof(library)) < 0)
		return COMMAND_CANNOT_RUN;
	return puts(library) < 0;
}

static int print_options(void)
{
	rds_options_print(stdout);
	return fflush(stdout) ? COMMAND_CANNOT_RUN : EXIT_SUCCESS;
}

/* Nothing but a program, and its arguments, or addresses, may be an operand. */
static int check_operands(char **argv, const struct command *c)
{
	static const char *const alone[] = {[COMMAND_CHECK] = "--check",
					    [COMMAND_OPTIONS] = "--options",
					    [COMMAND_NODE] = "--node",
					    [COMMAND_INFO] = "--info",
					    [COMMAND_VERSION] = NULL};

	if (!alone[c->mode] || !argv[0])
		return COMMAND_GO_ON;
	fprintf(stderr, "rdsrun: nothing is run with %s: what is \"%s\" for?\n", alone[c->mode], argv[0]);
	return COMMAND_USAGE;
}

static int run_program(char **argv)
{
	if (argv[0])
		return run(NULL, argv);
	command_usage(stderr);
	return COMMAND_USAGE;
}

int main(int argc, char **argv)
{
	struct command c = {0};
	int status = command_parse(argc, argv, &c);

	if (status == COMMAND_GO_ON)
		status = check_operands(argv + optind, &c);
	if (status != COMMAND_GO_ON)
		return status;
	switch (c.mode) {
	case COMMAND_RUN:
		return run_program(argv + optind);
	case COMMAND_CHECK:
		return report(c.program);
	case COMMAND_HOLD:
	case COMMAND_CHECK_PEER:
		return over_tcp(argv, argv + optind, &c);
	case COMMAND_PING:
		return ping(argv, argv + optind, &c);
	case COMMAND_NODE:
		return show_node(argv, &c);
	case COMMAND_INFO:
		return show_info(argv, &c);
	case COMMAND_LIBRARY:
		return print_library();
	case COMMAND_OPTIONS:
		return print_options();
	case COMMAND_HELP:
		command_usage(stdout);
		return EXIT_SUCCESS;
	case COMMAND_VERSION:
		puts("rdsrun (rdspreload) " PACKAGE_VERSION);
		return EXIT_SUCCESS;
	}
	return COMMAND_USAGE;
}
