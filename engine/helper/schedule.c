/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * schedule.c - the class and the CPUs of the helper thread.
 *
 * A thread inherits both from the thread that starts it, here the one that binds.  If that one has
 * a real-time class and a CPU of its own, and polls, a helper like it would never run again.  The
 * kernel's RDS works in ordinary threads.  So the helper takes the class with which the process
 * started, unless that is a real-time class, and runs on the CPUs with which it started, too.
 *
 * Who confines a program from outside does so before it starts (taskset), or by a cpuset: the
 * kernel never lets a thread leave that.
 *
 * A call that is refused, by the kernel or by a filter, leaves what was inherited.
 */
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/helper/helper.h"
#include "engine/sys/os.h"

#define CPU_WORDS (8192 / 64) /* no kernel has more CPUs */

struct cpus {
	uint64_t words[CPU_WORDS];
};

/* Until the constructor has run: an ordinary class, and no CPU that was not inherited. */
static struct {
	int class;
	struct cpus cpus;
} at_start = {.class = SCHED_OTHER};

static int class_of_thread(void)
{
	return (int)os_syscall(SYS_sched_getscheduler, 0, 0, 0, 0, 0, 0) & ~SCHED_RESET_ON_FORK;
}

static bool is_realtime(int class)
{
	return class == SCHED_FIFO || class == SCHED_RR || class == SCHED_DEADLINE;
}

/* The number of bytes that the kernel has for them, or -errno. */
static long cpus_of_thread(struct cpus *cpus)
{
	return os_syscall(SYS_sched_getaffinity, 0, sizeof(*cpus), (long)cpus, 0, 0, 0);
}

static void cpus_widen(void)
{
	struct cpus cpus = {0};
	long bytes = cpus_of_thread(&cpus);
	uint64_t more = 0;

	for (unsigned i = 0; i < CPU_WORDS; i++) {
		more |= at_start.cpus.words[i] & ~cpus.words[i];
		cpus.words[i] |= at_start.cpus.words[i];
	}
	if (bytes > 0 && more)
		os_syscall(SYS_sched_setaffinity, 0, bytes, (long)&cpus, 0, 0, 0);
}

/* The CPUs first: an ordinary thread may get no time on the one that it has inherited. */
void rds_helper_schedule_self(void)
{
	const struct sched_param none = {0};

	cpus_widen();
	if (class_of_thread() != at_start.class)
		os_syscall(SYS_sched_setscheduler, 0, at_start.class, (long)&none, 0, 0, 0);
}

static void __attribute__((constructor)) schedule_at_start(void)
{
	int class = class_of_thread();

	if (class >= 0 && !is_realtime(class))
		at_start.class = class;
	cpus_of_thread(&at_start.cpus);
}
