/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * stacks.c - shows where the threads of hanging processes are, in all ways that this machine has:
 * by /proc, by a debugger, and by the programs themselves, if they have a handler for that; see
 * tree.h.  It is no result, but the only trace of a hang.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "../slow.h"
#include "tree.h"

#define DEBUGGED 8 /* processes; there may be many */
#define DEBUGGER_S 30

static void show_file(pid_t pid, const char *tid, const char *file)
{
	char path[80], what[1500];
	ssize_t i, n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%.10s/%s", pid, tid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, what, sizeof(what) - 1);
		close(fd);
	}
	while (n > 0 && what[n - 1] == '\n')
		n--;
	for (i = 0; i < n; i++)
		if (!what[i])
			what[i] = ' ';
	if (n > 0)
		dprintf(2, " %s%.*s%s", strcmp(file, "stack") ? "" : "\n", (int)n, what,
			strcmp(file, "stack") ? "" : "\n");
}

/* each(pid, tid) of its threads */
static void threads(pid_t pid, void (*each)(pid_t, const char *))
{
	char path[40];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		if (*entry->d_name != '.')
			each(pid, entry->d_name);
	if (dir)
		closedir(dir);
}

static void show_thread(pid_t pid, const char *tid)
{
	dprintf(2, "  thread %s", tid);
	show_file(pid, tid, "comm");
	dprintf(2, ": state %c, wchan", thread_state(pid, tid));
	show_file(pid, tid, "wchan");
	dprintf(2, ", syscall");
	show_file(pid, tid, "syscall");
	dprintf(2, "\n");
}

static void show_kernel_stack(pid_t pid, const char *tid)
{
	dprintf(2, "  thread %s in the kernel:", tid);
	show_file(pid, tid, "stack");
	dprintf(2, "\n");
}

/* Ends within its time, or is ended; true: it was there, and has said something. */
static bool debugger(pid_t pid)
{
	char number[12];
	time_t end = time(NULL) + DEBUGGER_S * (time_t)test_slow();
	unsigned looks = 0;
	int status = 0;
	pid_t child;

	snprintf(number, sizeof(number), "%d", pid);
	child = fork();
	if (!child) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		unsetenv("LD_PRELOAD");
		setenv("DEBUGINFOD_URLS", "", 1);
		close(0);
		open("/dev/null", O_RDONLY);
		dup2(2, 1);
		execlp("gdb", "gdb", "-q", "-nx", "-batch", "-p", number, "-ex", "thread apply all backtrace 40",
		       (char *)NULL);
		execlp("eu-stack", "eu-stack", "-n", "40", "-p", number, (char *)NULL);
		_exit(127);
	}
	while (child > 0 && waitpid(child, &status, WNOHANG) == 0 && time(NULL) < end)
		test_pause(&looks);
	if (child > 0 && time(NULL) >= end) {
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
	}
	return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Has it a handler for the signal that asks? */
static bool answers(pid_t pid)
{
	unsigned long long caught = 0;
	char path[40], line[200];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "SigCgt: %llx", &caught) == 1)
			break;
	if (file)
		fclose(file);
	return caught >> (TEST_STACKS_SIGNAL - 1) & 1;
}

/* One after another, so that what they say stays apart. */
static void ask_thread(pid_t pid, const char *tid)
{
	syscall(SYS_tgkill, pid, atoi(tid), TEST_STACKS_SIGNAL);
	usleep(100000 * test_slow());
}

void tree_show(const struct tree *t, bool deep)
{
	unsigned i, n = 0;

	for (i = 0; i < t->n; i++) {
		pid_t pid = t->at[i].pid;

		dprintf(2, "process %d (%s), parent %d:", pid, t->at[i].name, t->at[i].parent);
		show_file(pid, "..", "cmdline");
		dprintf(2, "\n");
		threads(pid, show_thread);
		if (!deep)
			continue;
		threads(pid, show_kernel_stack);
		if ((n++ >= DEBUGGED || !debugger(pid)) && answers(pid))
			threads(pid, ask_thread);
	}
}
