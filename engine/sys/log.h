/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * log.h - writes one line to stderr (or to RDS_PRELOAD_LOG_FILE) that says what happened and what
 * to do about it.
 *
 * The first function that detects an error logs it; its callers pass the error on. The levels are:
 * error: the user can fix it; warn: something is wrong but work goes on; info: events that happen
 * once per life; debug: events of a connection. No line is logged per message. Each call site is
 * limited (pace[] in log.c); the next line of that site says how many lines were held back. The log
 * never allocates, never writes to stdout, and writes each line by one write(2).
 */
#ifndef ENGINE_SYS_LOG_H
#define ENGINE_SYS_LOG_H

#include <stdatomic.h>
#include <stdint.h>

enum rds_log_level { RDS_LOG_ERROR, RDS_LOG_WARN, RDS_LOG_INFO, RDS_LOG_DEBUG };

struct rds_log_site {
	_Atomic uint64_t due; /* in milliseconds (site_admit() in log.c) */
	_Atomic uint32_t held;
};

/*
 * Sets level and file; options.c calls it once the environment is read. path "" or NULL means
 * stderr. The file is opened with the first line. If it cannot be opened, one warning says so and
 * lines go to stderr. Nothing is printed while stderr is closed, full, without a reader, or a
 * sequenced-packet socket (it may be the program's RDS socket).
 */
void rds_log_setup(int level, const char *path);

/* The highest level that is printed; RDS_LOG_WARN until the options are read. */
extern _Atomic int rds_log_max;

/*
 * A thread calls it when it has just got a descriptor table of its own. From then on the thread can
 * log even when that table is full. Not if the limit was lowered below all numbers (setrlimit()):
 * then one line is left until a thread with the program's table calls rds_log_write_left(), which
 * left() has to bring about. left: or NULL.
 */
void rds_log_reserve_fds(void (*left)(void));
void rds_log_write_left(void);

void rds_log_at(struct rds_log_site *site, enum rds_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define rds_log(level, ...)                                                                                            \
	do {                                                                                                           \
		static struct rds_log_site rds_log_site_;                                                              \
		if ((int)(level) <= atomic_load_explicit(&rds_log_max, memory_order_relaxed))                         \
			rds_log_at(&rds_log_site_, (level), __VA_ARGS__);                                              \
	} while (0)
/* What the user can do about EMFILE; the manual has the exact numbers ("Two descriptors"). */
#define RDS_LOG_EMFILE "raise `ulimit -n`: a process needs two per RDS socket and about 60 more"

#define rds_error(...) rds_log(RDS_LOG_ERROR, __VA_ARGS__)
#define rds_warn(...) rds_log(RDS_LOG_WARN, __VA_ARGS__)
#define rds_info(...) rds_log(RDS_LOG_INFO, __VA_ARGS__)
#define rds_debug(...) rds_log(RDS_LOG_DEBUG, __VA_ARGS__)
/* The same, but once in the life of the process. */
#define rds_warn_once(...)                                                                                             \
	do {                                                                                                           \
		static atomic_flag rds_once_ = ATOMIC_FLAG_INIT;                                                       \
		if (!atomic_flag_test_and_set(&rds_once_))                                                             \
			rds_warn(__VA_ARGS__);                                                                         \
	} while (0)

#endif
