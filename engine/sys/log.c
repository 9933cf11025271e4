/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * log.c - one line, one write, to stderr or to the file that the user asked for.
 *
 * The library is a guest in a program's process, so a log line must not block, end the process or
 * spoil anything. A stderr that is full, or whose reader is gone, gets nothing: no signal, and no
 * wait for a reader that may itself be waiting for this process. A stderr that is a
 * sequenced-packet socket gets nothing either, because a program can get an RDS socket as
 * descriptor 2, and its stand-in looks like that.
 *
 * Before each line the log file's descriptor is checked to be still the same file: after a fork, or
 * a close by a raw system call, the number may mean another file. The log takes no lock and
 * allocates nothing: any thread may log at any time, also in a forked child.
 */
#include "engine/sys/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>

#include "engine/sys/compiler.h"
#include "engine/sys/os.h"

#define LINE_MAX_LEN 1024 /* below PIPE_BUF, so lines of several processes never mix */
/*
 * How often a call site may log: `burst` lines at once, then one line per `each_ms`. An error or a
 * warning may last for hours, and after some lines the user knows it. Lines that the user asked for
 * (info, debug) are printed completely, as far as their number is bearable.
 */
static const struct {
	uint64_t burst, each_ms;
} pace[] = {[RDS_LOG_ERROR] = {20, 5000},
	    [RDS_LOG_WARN] = {20, 5000},
	    [RDS_LOG_INFO] = {10, 100},
	    [RDS_LOG_DEBUG] = {10, 100}};

#define STDERR 2

_Static_assert(LINE_MAX_LEN < PIPE_BUF, "one line is one atomic write");

_Atomic int rds_log_max = RDS_LOG_WARN;

/* Written once, by rds_log_setup(), before the first line that could use it. */
static char file_path[PATH_MAX] RDS_TABLE;
static _Atomic bool file_wanted;

static _Atomic int file_fd = -1;
static _Atomic uint64_t file_dev, file_ino;
/* a line has said that the file cannot be opened */
static atomic_flag file_missed = ATOMIC_FLAG_INIT;

static const char *const level_names[] = {"error", "warning", "info", "debug"};

void rds_log_setup(int level, const char *path)
{
	size_t len = path ? strlen(path) : 0;

	atomic_store(&file_wanted, false);
	if (len && len < sizeof(file_path)) {
		memcpy(file_path, path, len + 1);
		atomic_store(&file_wanted, true);
	}
	atomic_store(&rds_log_max, level);
}

/* ---- the descriptor ---- */

/* As fd_can_write(), where the program may have no descriptor at all: poll() is refused then. */
static bool fd_can_write_select(int fd)
{
	const struct timespec now = {0};
	fd_set set;

	if (fd >= FD_SETSIZE)
		return false;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	return os_syscall(SYS_pselect6, fd + 1, 0, (long)&set, 0, (long)&now, 0) == 1;
}

/* Would a write neither block nor raise SIGPIPE? */
static bool fd_can_write(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int n = os_poll(&p, 1, 0);

	return n == -EINVAL ? fd_can_write_select(fd) : n == 1 && p.revents == POLLOUT;
}

static bool fd_takes_lines(int fd)
{
	struct stat st;
	int type = 0;
	socklen_t len = sizeof(type);

	if (os_fstat(fd, &st))
		return false;
	return !S_ISSOCK(st.st_mode) || (os_getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type != SOCK_SEQPACKET);
}

static int stderr_fd_find(void)
{
	return fd_takes_lines(STDERR) ? STDERR : -1;
}

/*
 * Moves the descriptor to a high number, away from programs that rely on the lowest free
 * descriptor. The number is not on the list of internal descriptors. Registering it takes that
 * list's lock, which would then be below every lock under which a thread logs. It need not be on
 * the list: if the program closes or replaces it, the cost is one reopening.
 */
static int fd_move_high(int fd)
{
	for (int base = 8192; base >= 64; base /= 2) {
		int high = os_fcntl(fd, F_DUPFD_CLOEXEC, base);

		if (high >= 0) {
			os_close(fd);
			return high;
		}
	}
	return fd;
}

static int log_file_open_once(void)
{
	return os_open(file_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
}

/*
 * Returns the descriptor or a negative errno. Two threads may open the file at once; one of them
 * then closes its own descriptor again.
 */
static int log_file_open(void)
{
	int none = -1, fd;
	struct stat st;

	fd = log_file_open_once();
	if (fd < 0)
		return fd;
	fd = fd_move_high(fd);
	if (os_fstat(fd, &st)) {
		os_close(fd);
		return -1;
	}
	atomic_store(&file_dev, st.st_dev);
	atomic_store(&file_ino, st.st_ino);
	if (atomic_compare_exchange_strong(&file_fd, &none, fd))
		return fd;
	os_close(fd);
	return none;
}

/* *no_file: a negative errno if the result is stderr because the file cannot be opened. */
static int log_fd_find(int *no_file)
{
	int fd = atomic_load(&file_fd);
	struct stat st;

	if (!atomic_load(&file_wanted))
		return stderr_fd_find();
	if (fd >= 0) {
		if (!os_fstat(fd, &st) && st.st_dev == atomic_load(&file_dev) && st.st_ino == atomic_load(&file_ino))
			return fd;
		/* By now the number belongs to the program, so it is not closed here. */
		atomic_compare_exchange_strong(&file_fd, &fd, -1);
	}
	fd = log_file_open();
	if (fd >= 0)
		return fd;
	*no_file = fd;
	return stderr_fd_find();
}

enum { NONE, WRITTEN, LEFT };

/* The line that waits for a thread with the program's table. */
static struct {
	_Atomic int state;
	size_t used;
	char line[LINE_MAX_LEN];
} waiting;

/*
 * For a thread with a descriptor table of its own. The line to be logged may be that the table is
 * full, and a line needs two numbers (os_fd_dup_of_main()). So two numbers are reserved, and freed
 * only while a line is written.
 */
static int log_reserve[2] = {-1, -1};
static bool has_log_reserve;
static void (*log_left)(void);

static void log_reserve_open(void)
{
	for (unsigned i = 0; has_log_reserve && i < 2; i++)
		if (log_reserve[i] < 0)
			log_reserve[i] = os_eventfd(0, 0);
}

void rds_log_reserve_fds(void (*left)(void))
{
	has_log_reserve = true;
	log_left = left;
	/* of an earlier such thread, and gone with its table; or of a parent's */
	log_reserve[0] = log_reserve[1] = -1;
	atomic_store(&waiting.state, NONE);
	log_reserve_open();
}

static void log_reserve_close(void)
{
	for (unsigned i = 0; i < 2; i++) {
		if (log_reserve[i] >= 0)
			os_close(log_reserve[i]);
		log_reserve[i] = -1;
	}
}

/*
 * A thread with a descriptor table of its own has neither stderr nor the file in it. It opens one
 * of them for each line: a copy that it kept would hold a pipe of the program open. The main
 * thread's descriptor 2 itself is best. Where the kernel refuses that (a filter of system calls),
 * the same file is opened anew. *no_file as above.
 */
static int log_fd_open_own(int *no_file)
{
	int fd = -1;

	log_reserve_close();
	if (atomic_load(&file_wanted)) {
		fd = log_file_open_once();
		if (fd >= 0)
			return fd;
		*no_file = fd;
	}
	fd = os_fd_dup_of_main(STDERR);
	if (fd < 0)
		fd = os_open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
	if (fd >= 0 && !fd_takes_lines(fd)) {
		os_close(fd);
		fd = -1;
	}
	return fd;
}

/* ---- the line ---- */

/*
 * False: the line is held back. *held: how many lines were held back before this one.
 *
 * site->due is the time up to which the lines so far are paid for, at one line per each_ms. It may
 * be ahead of now by as many lines as burst allows.
 */
static bool site_admit(struct rds_log_site *site, enum rds_log_level level, uint32_t *held)
{
	uint64_t now = os_now_ns() / 1000000, due = atomic_load_explicit(&site->due, memory_order_relaxed), from;

	do {
		from = due > now ? due : now;
		if (from - now > (pace[level].burst - 1) * pace[level].each_ms) {
			atomic_fetch_add_explicit(&site->held, 1, memory_order_relaxed);
			return false;
		}
	} while (!atomic_compare_exchange_weak(&site->due, &due, from + pace[level].each_ms));
	*held = atomic_exchange_explicit(&site->held, 0, memory_order_relaxed);
	return true;
}

/* Appends at *used, never beyond LINE_MAX_LEN - 1 (which leaves room for the newline). */
static void __attribute__((format(printf, 3, 0))) line_addv(char *line, size_t *used, const char *fmt, va_list ap)
{
	size_t room = LINE_MAX_LEN - 1 - *used;
	int n = vsnprintf(line + *used, room, fmt, ap);

	if (n > 0)
		*used += (size_t)n < room ? (size_t)n : room - 1;
}

static void __attribute__((format(printf, 3, 4))) line_add(char *line, size_t *used, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	line_addv(line, used, fmt, ap);
	va_end(ap);
}

/* Lines quote names and values from outside: these must not fake a line or control a terminal. */
static void make_printable(char *line, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
}

static void line_start(char *line, size_t *used, enum rds_log_level level)
{
	line_add(line, used, "rdspreload[%d] %.32s: %s: ", (int)os_getpid(), program_invocation_short_name,
		 level_names[level]);
}

static void line_write(int fd, char *line, size_t used)
{
	make_printable(line, used);
	line[used++] = '\n';
	os_write_quiet(fd, line, used);
}

static void line_leave(const char *line, size_t used)
{
	int none = NONE;

	if (!log_left || !atomic_compare_exchange_strong(&waiting.state, &none, WRITTEN))
		return;
	memcpy(waiting.line, line, used);
	waiting.used = used;
	atomic_store(&waiting.state, LEFT);
	log_left();
}

/* The text without a translation. strerror() takes locks to translate. */
static const char *error_text(int err)
{
#ifdef HAVE_STRERRORDESC_NP
	const char *text = strerrordesc_np(err);

	return text ? text : "unknown error";
#else
	return strerror(err);
#endif
}

static void __attribute__((format(printf, 2, 3))) line_warn(int fd, const char *fmt, ...)
{
	char line[LINE_MAX_LEN];
	size_t used = 0;
	va_list ap;

	line_start(line, &used, RDS_LOG_WARN);
	va_start(ap, fmt);
	line_addv(line, &used, fmt, ap);
	va_end(ap);
	line_write(fd, line, used);
}

/* Logged once, before the first line that goes to stderr because the file cannot be opened. */
static void warn_no_file(int fd, int err)
{
	if (atomic_load(&rds_log_max) >= RDS_LOG_WARN && !atomic_flag_test_and_set(&file_missed))
		line_warn(fd, "RDS_PRELOAD_LOG_FILE=%.800s cannot be opened: %s; lines go to standard error", file_path,
			  error_text(-err));
}

void rds_log_at(struct rds_log_site *site, enum rds_log_level level, const char *fmt, ...)
{
	char line[LINE_MAX_LEN];
	int saved = errno, no_file = 0, fd;
	size_t used = 0;
	uint32_t held;
	va_list ap;

	if (!site_admit(site, level, &held))
		return;
	fd = os_fd_table ? log_fd_open_own(&no_file) : log_fd_find(&no_file);
	if (fd != -EMFILE && (fd < 0 || !fd_can_write(fd)))
		goto out;
	if (no_file && fd >= 0)
		warn_no_file(fd, no_file);
	line_start(line, &used, level);
	va_start(ap, fmt);
	line_addv(line, &used, fmt, ap);
	va_end(ap);
	if (held)
		line_add(line, &used, " (%u more like this were held back)", held);
	if (fd < 0)
		line_leave(line, used);
	else
		line_write(fd, line, used);
out:
	if (os_fd_table) {
		if (fd >= 0)
			os_close(fd);
		log_reserve_open();
	}
	errno = saved;
}

/* The callers take turns: this is a deferred call. */
void rds_log_write_left(void)
{
	int saved = errno, no_file = 0, fd;

	if (atomic_load(&waiting.state) != LEFT)
		return;
	fd = log_fd_find(&no_file);
	if (fd >= 0 && fd_can_write(fd)) {
		if (no_file)
			warn_no_file(fd, no_file);
		line_write(fd, waiting.line, waiting.used);
	}
	atomic_store(&waiting.state, NONE);
	errno = saved;
}
