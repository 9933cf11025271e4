/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * options.c - the environment variables RDS_PRELOAD_*, read once.
 *
 * The program may change its environment at any time and from any thread. So a constructor copies
 * the variables before main, and only the copy is read: the environment at the start of the process
 * is what counts. The copy is static: a program that never opens an RDS socket pays one walk over
 * its environment and no allocation.
 *
 * A bad value is one warning and the default; it never stops the library. The warnings come after
 * the log itself has been set up from the same variables.
 */
#include "engine/sys/options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "engine/sys/compiler.h"
#include "engine/sys/log.h"
#include "engine/sys/options_table.h"
#include "engine/sys/patience.h"

#define PREFIX "RDS_PRELOAD_"
#define PREFIX_LEN (sizeof(PREFIX) - 1)
#define COPY_BYTES 16384
#define NAME_MAX_LEN 40 /* a longer name is not a typing error */

enum kind { INT, SIZE, POW2, ENUM, STR, FILE_PATH, DIR_PATH, FAMILY };
#define KIND_INT INT
#define KIND_SIZE SIZE
#define KIND_POW2 POW2
#define KIND_ENUM ENUM
#define KIND_STR STR
#define KIND_FILE FILE_PATH
#define KIND_DIR DIR_PATH
#define KIND_FAMILY FAMILY

/* The field must have the type in which values of its kind are stored. */
#define FIELD_TYPE(k) ((k) == ENUM ? 1 : (k) < ENUM ? 2 : 3)
#define FIELD_IS(f) _Generic(((struct rds_options *)0)->f, int: 1, int64_t: 2, const char *: 3)
#define X(f, kind, ...) _Static_assert(FIELD_IS(f) == FIELD_TYPE(KIND_##kind), "kind of " #f);
RDS_OPTIONS_TABLE(X)
#undef X

static const struct option {
	const char *name, *dflt, *choices, *help;
	int64_t min, max;
	size_t field;
	enum kind kind;
} table[] = {
#define X(f, k, n, d, lo, hi, c, h)                                                                                   \
	{n, d, c, h, lo, hi, offsetof(struct rds_options, f), KIND_##k},
	RDS_OPTIONS_TABLE(X)
#undef X
};
#define OPTIONS (sizeof(table) / sizeof(table[0]))

static char copy[COPY_BYTES] RDS_TABLE; /* "NAME=value\0" without the prefix; an empty string ends the list */
static bool copied, copy_overflow;

static struct rds_options options;
static bool from_env[OPTIONS]; /* the value in force came from the environment */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool ready;
_Atomic unsigned rds_patience_factor = 1;

extern char **environ;

/* NULL: no option has that name. */
static const struct option *option_by_name(const char *name, size_t n)
{
	for (unsigned i = 0; i < OPTIONS; i++)
		if (strlen(table[i].name) == n && !strncmp(table[i].name, name, n))
			return &table[i];
	return NULL;
}

/* ---- the copy ---- */

static void environment_copy(void)
{
	size_t used = 0;

	copied = true;
	copy_overflow = false;
	for (char **e = environ; e && *e; e++) {
		size_t len;

		if (strncmp(*e, PREFIX, PREFIX_LEN))
			continue;
		len = strlen(*e + PREFIX_LEN) + 1;
		if (len > sizeof(copy) - 1 - used) {
			copy_overflow = true;
			continue;
		}
		memcpy(copy + used, *e + PREFIX_LEN, len);
		used += len;
	}
	copy[used] = '\0';
}

/*
 * NULL: the variable is not set, or is empty, which means the same. The first of several variables
 * with that name counts, as for getenv().
 */
static const char *option_value_text(const char *name)
{
	size_t len = strlen(name);

	for (const char *p = copy; *p; p += strlen(p) + 1)
		if (!strncmp(p, name, len) && p[len] == '=')
			return p[len + 1] ? p + len + 1 : NULL;
	return NULL;
}

/* ---- values ---- */

static bool parse_option_number(const char *text, bool suffix, int64_t *out)
{
	static const char units[] = "kmg";
	const char *unit;
	char *end;
	int64_t v;

	if (!isdigit((unsigned char)text[*text == '-']))
		return false;
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno)
		return false;
	if (suffix && *end && (unit = strchr(units, tolower((unsigned char)*end)))) {
		if (__builtin_mul_overflow(v, INT64_C(1) << 10 * (unit - units + 1), &v))
			return false;
		end++;
	}
	*out = v;
	return !*end;
}

/* Index of text in "a|b|c", or -1. */
static int parse_choice(const char *text, const char *choices)
{
	size_t len = strlen(text);

	for (int i = 0;; i++) {
		size_t n = strcspn(choices, "|");

		if (n == len && !strncmp(text, choices, n))
			return i;
		if (!choices[n])
			return -1;
		choices += n + 1;
	}
}

static bool parse_families(const char *text, const char *choices)
{
	char one[8];

	if (!strcmp(text, "auto"))
		return true;
	for (;; text++) {
		size_t n = strcspn(text, ",");

		if (!n || n >= sizeof(one))
			return false;
		memcpy(one, text, n);
		one[n] = '\0';
		if (parse_choice(one, choices) < 0)
			return false;
		text += n;
		if (!*text)
			return true;
	}
}

static bool parse_integer(const struct option *o, const char *text, int64_t *out)
{
	int64_t v;

	if (!parse_option_number(text, o->kind != INT, &v))
		return false;
	if (v < o->min || v > o->max || (o->kind == POW2 && v & (v - 1)))
		return false;
	*out = v;
	return true;
}

/* Stores the value into the field; or returns false and leaves the field alone. */
static bool option_store(const struct option *o, const char *text, struct rds_options *into)
{
	char *field = (char *)into + o->field;
	int choice;

	switch (o->kind) {
	case INT:
	case SIZE:
	case POW2:
		return parse_integer(o, text, (int64_t *)field);
	case ENUM:
		choice = parse_choice(text, o->choices);
		if (choice >= 0)
			*(int *)field = choice;
		return choice >= 0;
	case FAMILY:
		if (!parse_families(text, o->choices))
			return false;
		break;
	case DIR_PATH:
		if (*text != '/')
			return false;
		/* fallthrough */
	case FILE_PATH:
		if (strlen(text) >= PATH_MAX)
			return false;
		break;
	case STR:
		break;
	}
	*(const char **)field = text;
	return true;
}

/* The caller of a privileged program must not choose where the program writes. */
static bool option_is_path(const struct option *o)
{
	return o->kind == FILE_PATH || o->kind == DIR_PATH;
}

/* ---- descriptions and warnings ---- */

static void option_describe(const struct option *o, char *buf, size_t size)
{
	switch (o->kind) {
	case INT:
		snprintf(buf, size, "a number from %lld to %lld", (long long)o->min, (long long)o->max);
		break;
	case SIZE:
		snprintf(buf, size, "a size from %lld to %lld bytes (K, M, G allowed)", (long long)o->min, (long long)o->max);
		break;
	case POW2:
		snprintf(buf, size, "a power of two from %lldM to %lldM", (long long)o->min >> 20,
			 (long long)o->max >> 20);
		break;
	case ENUM:
		snprintf(buf, size, "one of %s", o->choices);
		break;
	case FAMILY:
		snprintf(buf, size, "auto, or some of %s with commas between", o->choices);
		break;
	case DIR_PATH:
		snprintf(buf, size, "an absolute path");
		break;
	default:
		snprintf(buf, size, "a path");
	}
}

static void warn_bad(const struct option *o, const char *text)
{
	char want[96];

	option_describe(o, want, sizeof(want));
	rds_warn(PREFIX "%s=%.100s is not %s: using %s", o->name, text, want, *o->dflt ? o->dflt : "none");
}

/*
 * Edit distance between a known name and n bytes of an unknown one; both are at most NAME_MAX_LEN
 * long.
 */
static unsigned edit_distance(const char *known, const char *name, size_t n)
{
	unsigned row[NAME_MAX_LEN + 1];

	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 1; known[i - 1]; i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (unsigned j = 1; j <= n; j++) {
			unsigned best = diagonal + (known[i - 1] != toupper((unsigned char)name[j - 1]));

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[n];
}

static void warn_unknown(const char *name, size_t n)
{
	const char *nearest = NULL;
	/* A third of the letters may be wrong. Beyond that a suggestion would be a guess. */
	unsigned best = (n < 8 ? (n + 1) / 3 : 3) + 1;

	for (unsigned i = 0; n <= NAME_MAX_LEN && i < OPTIONS; i++) {
		unsigned d = edit_distance(table[i].name, name, n);

		if (d < best) {
			best = d;
			nearest = table[i].name;
		}
	}
	if (nearest)
		rds_warn("unknown option " PREFIX "%.*s ignored; did you mean " PREFIX "%s?", (int)(n < 100 ? n : 100),
			 name, nearest);
	else
		rds_warn("unknown option " PREFIX "%.*s ignored; `rdsrun --options` lists those that exist",
			 (int)(n < 100 ? n : 100), name);
}

/* ---- at the start ---- */

/*
 * The factor is set here, because a process that only uses other processes' sockets may never call
 * rds_options(), and signal handlers must not parse the options.
 */
static void __attribute__((constructor)) environment_take(void)
{
	const char *text;
	int64_t factor;

	environment_copy();
	text = option_value_text("PATIENCE");
	if (!text || !parse_integer(option_by_name("PATIENCE", strlen("PATIENCE")), text, &factor))
		factor = 1; /* the warning comes with all others */
	atomic_store(&rds_patience_factor, (unsigned)factor);
}

/* ---- all options ---- */

/*
 * The values are parsed twice on purpose: the log could not be used while its own options were
 * being read.
 */
static void warn_all(bool privileged)
{
	for (const char *p = copy; *p; p += strlen(p) + 1) {
		size_t n = strcspn(p, "=");

		if (!option_by_name(p, n))
			warn_unknown(p, n);
	}
	for (unsigned i = 0; i < OPTIONS; i++) {
		const char *text = option_value_text(table[i].name);

		if (!text || from_env[i])
			continue;
		if (privileged && option_is_path(&table[i]))
			rds_warn(PREFIX "%s ignored: the program runs with raised privileges", table[i].name);
		else
			warn_bad(&table[i], text);
	}
	if (copy_overflow)
		rds_warn("some " PREFIX "* variables ignored: more than %d bytes of them", COPY_BYTES);
}

static void options_check_pairs(void)
{
	if (options.reconnect_min_ms <= options.reconnect_max_ms)
		return;
	rds_warn(PREFIX "RECONNECT_MIN_MS=%lld is more than " PREFIX "RECONNECT_MAX_MS=%lld: using the larger for both",
		 (long long)options.reconnect_min_ms, (long long)options.reconnect_max_ms);
	options.reconnect_max_ms = options.reconnect_min_ms;
}

/*
 * The time of an orderly exit has its own option. RDS_PRELOAD_PATIENCE multiplies its default, as
 * it does all other times.
 */
static void multiply_default(void)
{
	if (!from_env[option_by_name("LINGER_MS", strlen("LINGER_MS")) - table])
		options.linger_ms *= options.patience;
}

static void options_parse(void)
{
	bool privileged = getauxval(AT_SECURE);
	int saved = errno;

	if (!copied) /* called by another library's constructor before ours */
		environment_take();
	for (unsigned i = 0; i < OPTIONS; i++) {
		const struct option *o = &table[i];
		const char *text = option_value_text(o->name);

		if (!option_store(o, o->dflt,
				  /* Only FILE and STR have an empty default, and they accept it. */
				  &options))
			abort();
		from_env[i] = text && !(privileged && option_is_path(o)) && option_store(o, text, &options);
	}
	rds_log_setup(options.log, options.log_file);
	warn_all(privileged);
	options_check_pairs();
	multiply_default();
	atomic_store_explicit(&ready, true, memory_order_release);
	errno = saved;
}

const struct rds_options *rds_options(void)
{
	if (!atomic_load_explicit(&ready, memory_order_acquire))
		pthread_once(&once, options_parse);
	return &options;
}

void rds_options_reset(void)
{
	atomic_store(&ready, false);
	once = (pthread_once_t)PTHREAD_ONCE_INIT;
	environment_take();
}

bool rds_options_value_ok(const char *name, const char *value, char *want, size_t size)
{
	const struct option *o = option_by_name(name + PREFIX_LEN, strlen(name + PREFIX_LEN));
	struct rds_options unused;

	if (!o)
		abort(); /* a name that is not in the table: a bug of the caller */
	option_describe(o, want, size);
	return option_store(o, value, &unused);
}

static void print_value(FILE *out, const struct option *o)
{
	const char *field = (const char *)&options + o->field, *choice = o->choices;

	switch (o->kind) {
	case INT:
	case SIZE:
	case POW2:
		fprintf(out, "%lld", (long long)*(const int64_t *)field);
		break;
	case ENUM:
		for (int i = *(const int *)field; i > 0; i--)
			choice += strcspn(choice, "|") + 1;
		fprintf(out, "%.*s", (int)strcspn(choice, "|"), choice);
		break;
	default:
		fputs(*(const char *const *)field, out);
	}
}

void rds_options_print(FILE *out)
{
	rds_options();
	for (unsigned i = 0; i < OPTIONS; i++) {
		const struct option *o = &table[i];
		const char *dflt = *o->dflt ? o->dflt : "none";
		char want[96];

		fprintf(out, PREFIX "%s=", o->name);
		print_value(out, o);
		fprintf(out, "  (%s)\n", from_env[i] ? "environment" : "default");
		option_describe(o, want, sizeof(want));
		if (o->kind == STR)
			fprintf(out, "    %s; default %s\n", o->help, dflt);
		else
			fprintf(out, "    %s; %s, default %s\n", o->help, want, dflt);
	}
}
