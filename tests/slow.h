/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * slow.h - time and chance in all test programs: how slow this machine is, how a program ends that
 * has waited for too long and seen nothing wrong, and random numbers.  It needs nothing of the
 * project.
 *
 * A program that waits for something that has to come waits long, and asleep.  If it never comes,
 * that is a hang, which the watch (tests/watch) sees much sooner.  So a lost wake-up is not taken
 * for a slow machine, nor a slow machine for a lost wake-up.
 */
#ifndef TESTS_SLOW_H
#define TESTS_SLOW_H

#include <execinfo.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TEST_LATE 75		   /* exit status: a limit has passed, and nothing wrong was seen */
/* says to a program that has a handler for it where it hangs (watch/stacks.c) */
#define TEST_STACKS_SIGNAL SIGXCPU

/* So many times slower than an idle machine is this one (TEST_SLOW). */
static inline unsigned test_slow(void)
{
	const char *text = getenv("TEST_SLOW");
	unsigned n = text ? (unsigned)strtoul(text, NULL, 10) : 1;

	return n ? n : 1;
}

/* What an idle machine does in ms milliseconds takes less than this here. */
static inline int test_deadline_ms(int ms)
{
	return ms * (int)test_slow();
}

/* For what has to come: more than anybody watches a program that hangs. */
#define TEST_COMES test_deadline_ms(120000)

/*
 * What must not take more than ms milliseconds is late after this.  Who tries again alone what was
 * late has more patience, but does not change what was promised.
 */
static inline int test_bound_ms(int ms)
{
	const char *text = getenv("TEST_TIMES");
	int times = text ? atoi(text) : 1;

	return test_deadline_ms(ms) / (times > 0 ? times : 1);
}

/* What the library waits for ms milliseconds (its manual: RDS_PRELOAD_PATIENCE). */
static inline int test_patience_ms(int ms)
{
	const char *text = getenv("RDS_PRELOAD_PATIENCE");
	int times = text ? atoi(text) : 1;

	return ms * (times > 0 ? times : 1);
}

/* Nothing wrong was seen, but what is named has not come. */
#define test_late(...)                                                                                                 \
	do {                                                                                                           \
		fprintf(stderr, "LATE ");                                                                              \
		fprintf(stderr, __VA_ARGS__);                                                                          \
		fputc('\n', stderr);                                                                                   \
		_exit(TEST_LATE);                                                                                      \
	} while (0)

/*
 * Between two looks: longer each time, so that many who look in vain use no processor time to
 * speak of: the watch is to see that nothing goes on.
 */
static inline int test_pause_ms(unsigned *looks)
{
	int ms = *looks < 80 ? 1 << *looks / 8 : 1024 * (int)test_slow();

	++*looks;
	return ms;
}

static inline void test_pause(unsigned *looks)
{
	usleep(1000 * (unsigned)test_pause_ms(looks));
}

/* For what has to come, without a limit of its own. */
#define test_until(cond)                                                                                               \
	do {                                                                                                           \
		for (unsigned looks_ = 0; !(cond);)                                                                    \
			test_pause(&looks_);                                                                           \
	} while (0)

#define TEST_LOOKS 82 /* so many take some 10 seconds of an idle machine */

/* The same, and says once, when that takes long, for what: a hang alone does not tell it. */
#define test_await(cond, ...)                                                                                          \
	do {                                                                                                           \
		for (unsigned looks_ = 0; !(cond); test_pause(&looks_)) {                                              \
			if (looks_ != TEST_LOOKS)                                                                      \
				continue;                                                                              \
			fprintf(stderr, "%s:%d: pid %d still waits: ", __FILE__, __LINE__, (int)getpid());             \
			fprintf(stderr, __VA_ARGS__);                                                                  \
			fputc('\n', stderr);                                                                           \
		}                                                                                                      \
	} while (0)

/* What the kernel says of a thread (the first one of a process has its number); 0: it is gone. */
static inline char test_state(int tid)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(f);
	return state;
}

/* It sleeps in the kernel. */
static inline bool test_asleep(int tid)
{
	return test_state(tid) == 'S';
}

/*
 * Until it sleeps in its call: in several looks one after another, so not for a lock or a page.
 * False: it has ended.
 */
static inline bool test_sleeps(int tid)
{
	unsigned looks = 0, seen = 0;
	char state;

	while (seen < 8) {
		state = test_state(tid);
		if (!state || state == 'Z')
			return false;
		seen = state == 'S' ? seen + 1 : 0;
		test_pause(&looks);
	}
	return true;
}

/* The program is about to be killed: nothing that it would do after this is of any use. */
static inline void test_stack(int sig)
{
	void *frames[50];

	(void)sig;
	dprintf(2, "thread %d of %d:\n", (int)gettid(), (int)getpid());
	backtrace_symbols_fd(frames, backtrace(frames, 50), 2);
	for (;;)
		pause();
}

/* Each thread that hangs will say where, if the program's watch asks. */
static inline void test_shows_stacks(void)
{
	void *frame;

	backtrace(&frame, 1); /* loads what it needs */
	signal(TEST_STACKS_SIGNAL, test_stack);
}

/* What is random follows from this (TEST_SEED), so that it comes again. */
static inline unsigned test_seed(void)
{
	const char *text = getenv("TEST_SEED");

	return text ? (unsigned)strtoul(text, NULL, 0) : 1;
}

/*
 * For alarm(): the watch of a program ends it long before, also if its limit is that of a long run
 * in the soak; this is for a process that is not watched.
 */
static inline unsigned test_alarm(unsigned seconds)
{
	return 20 * seconds * test_slow();
}

#endif
