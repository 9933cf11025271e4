/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * log.c - one line, one write, to stderr or to the file the user asked for.
 *
 * The library is a guest in somebody else's process, so it must not block, die or spoil anything when it speaks: a
 * stderr that is full or whose reader is gone is left alone (no signal, no wait for a reader who may be waiting for
 * us), and so is one that is a sequenced-packet socket, because a program can get an RDS socket as descriptor 2 and its
 * stand-in looks like that.  The log file's descriptor is checked to be the same file before each line: after a fork or
 * a close by raw system call the number may mean something else.
 * No lock, no allocation: any thread may speak at any time, also in a forked child.
 */
#include "engine/sys/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "engine/sys/os.h"

#define LINE_MAX_LEN 1024 /* below PIPE_BUF: lines of several processes never mix */
/*
 * How often a place may speak: `burst` lines at once, then one per `each_ms`.  What is off may stay off for hours, and its line is
 * known by then; what is asked for (info, debug) is wanted whole as far as that is bearable.
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

/* Written once, by rds_log_setup, before the first line that could use it. */
static char file_path[PATH_MAX];
static _Atomic bool file_wanted;

static _Atomic int file_fd = -1;
static _Atomic uint64_t file_dev, file_ino;
static atomic_flag file_missed = ATOMIC_FLAG_INIT; /* it has been said that it cannot be opened */

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

/* ---- where to ---- */

/* Would a write neither block nor raise SIGPIPE? */
static bool fd_can_write(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return os_poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
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
 * A high number, out of the way of "lowest free descriptor" logic.  It is not on the list of internal descriptors,
 * because taking that list's lock here would put it below every lock under which somebody logs; it need not be, since
 * an application that closes or replaces it costs one reopening.
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

/* Or a negative errno.  Two threads may open at once; one of them then closes its own again. */
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

/* *no_file: a negative errno if it is stderr for want of the file. */
static int log_fd_find(int *no_file)
{
	int fd = atomic_load(&file_fd);
	struct stat st;

	if (!atomic_load(&file_wanted))
		return stderr_fd_find();
	if (fd >= 0) {
		if (!os_fstat(fd, &st) && st.st_dev == atomic_load(&file_dev) && st.st_ino == atomic_load(&file_ino))
			return fd;
		/* Somebody else's by now: not ours to close. */
		atomic_compare_exchange_strong(&file_fd, &fd, -1);
	}
	fd = log_file_open();
	if (fd >= 0)
		return fd;
	*no_file = fd;
	return stderr_fd_find();
}

/*
 * Of a thread with a descriptor table of its own: what is worth a line may be that the table is full, and a line takes two numbers
 * (os_fd_dup_of_main).  So two are kept, but for the length of a line.
 */
static int log_reserve[2] = {-1, -1};
static bool has_log_reserve;

static void log_reserve_open(void)
{
	for (unsigned i = 0; has_log_reserve && i < 2; i++)
		if (log_reserve[i] < 0)
			log_reserve[i] = os_eventfd(0, 0);
}

void rds_log_reserve_fds(void)
{
	has_log_reserve = true;
	log_reserve[0] = log_reserve[1] = -1; /* of an earlier such thread, and gone with its table */
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
 * A thread with a descriptor table of its own has neither: it takes one for the length of a line.  A copy that it kept would
 * hold a pipe of the program open.  The main thread's descriptor 2 itself is best; where the kernel does not give it (a
 * filter of system calls), the same file is opened anew.  *no_file as above.
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

/* ---- what ---- */

/*
 * False: held back. *held: how many were, before this one.
 *
 * site->due: until when the lines so far are paid for, at one per each_ms; so many ahead of now as burst allows.
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

/* Appends at *used, never beyond LINE_MAX_LEN - 1 (room for the newline). */
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

/* Names and values from outside are quoted in lines: nothing in them may fake a line or drive a terminal. */
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

/* The text without a translation, for which strerror() takes locks. */
static const char *error_text(int err)
{
#ifdef HAVE_STRERRORDESC_NP
	const char *text = strerrordesc_np(err);

	return text ? text : "unknown error";
#else
	return strerror(err);
#endif
}

/* Once, in front of the first line that goes to stderr for want of the file. */
static void warn_no_file(int fd, int err)
{
	char line[LINE_MAX_LEN];
	size_t used = 0;

	if (atomic_load(&rds_log_max) < RDS_LOG_WARN || atomic_flag_test_and_set(&file_missed))
		return;
	line_start(line, &used, RDS_LOG_WARN);
	line_add(line, &used, "RDS_PRELOAD_LOG_FILE=%.800s cannot be opened: %s; lines go to standard error", file_path,
		 error_text(-err));
	line_write(fd, line, used);
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
	if (fd < 0 || !fd_can_write(fd))
		goto out;
	if (no_file)
		warn_no_file(fd, no_file);
	line_start(line, &used, level);
	va_start(ap, fmt);
	line_addv(line, &used, fmt, ap);
	va_end(ap);
	if (held)
		line_add(line, &used, " (%u more like this were held back)", held);
	line_write(fd, line, used);
out:
	if (os_fd_table) {
		if (fd >= 0)
			os_close(fd);
		log_reserve_open();
	}
	errno = saved;
}
