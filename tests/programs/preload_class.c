/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_class - a thread of another class, on a CPU of its own, binds: the library's helper
 * thread has the class and the CPUs with which the program started, and never a real-time class.
 * On kernel RDS there is no helper.
 */
#include "program.h"

#include <sched.h>
#include <stdbool.h>

static char self[] = "/proc/self/exe";

static cpu_set_t cpus_of(int thread)
{
	cpu_set_t set;

	check(sched_getaffinity(thread, sizeof(set), &set) == 0, "sched_getaffinity");
	return set;
}

/* As far as this process may; true: it has a real-time class. */
static bool set_class(int class)
{
	struct sched_param param = {.sched_priority = class == SCHED_FIFO ? 1 : 0};

	if (sched_setscheduler(0, class, &param) == 0)
		return class == SCHED_FIFO;
	check(class == SCHED_FIFO && errno == EPERM, "class %d", class);
	return false;
}

static void pin(void)
{
	cpu_set_t have = cpus_of(0), one;

	CPU_ZERO(&one);
	for (int i = CPU_SETSIZE - 1; i >= 0 && !CPU_COUNT(&one); i--)
		if (CPU_ISSET(i, &have))
			CPU_SET(i, &one);
	check(sched_setaffinity(0, sizeof(one), &one) == 0, "sched_setaffinity");
}

static void binds(int class, const cpu_set_t *cpus)
{
	struct sockaddr_in sin;
	int thread;

	bound(&sin);
	thread = helper_thread();
	if (!thread)
		return;
	check(sched_getscheduler(thread) == class, "class %d", sched_getscheduler(thread));
	cpu_set_t has = cpus_of(thread);
	check(CPU_EQUAL(&has, cpus), "%d CPUs of %d", CPU_COUNT(&has), CPU_COUNT(cpus));
}

static void pins_itself(void *arg)
{
	cpu_set_t cpus = cpus_of(0);

	pin();
	set_class(*(int *)arg);
	binds(SCHED_OTHER, &cpus);
	works();
}

/* The program starts anew, pinned and in that class, as by taskset(1) and chrt(1). */
static void pinned_from_outside(void *arg)
{
	char class[8];

	snprintf(class, sizeof(class), "%d", set_class(*(int *)arg) ? SCHED_OTHER : sched_getscheduler(0));
	pin();
	execl(self, self, class, NULL);
	check(false, "exec");
}

int main(int argc, char **argv)
{
	int classes[] = {SCHED_OTHER, SCHED_BATCH, SCHED_FIFO};
	cpu_set_t cpus = cpus_of(0);

	if (argc > 1) {
		binds(atoi(argv[1]), &cpus);
		works();
		return 0;
	}
	check(sched_getscheduler(0) == SCHED_OTHER, "this test wants an ordinary class");
	for (unsigned i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
		finished(start(pins_itself, &classes[i]));
		finished(start(pinned_from_outside, &classes[i]));
	}
	printf("%d CPUs\n", CPU_COUNT(&cpus));
	return 0;
}
