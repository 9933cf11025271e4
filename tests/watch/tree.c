/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * tree.c - which processes are below this one, what processor time they use, and their end; see
 * tree.h.  A look is one pass over /proc.
 */
#define _GNU_SOURCE
#include "tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../slow.h"

#define PF_EXITING 4 /* of the flags in /proc/PID/stat; linux/sched.h, which is the kernel's own */

/* The line of /proc/PID/stat; false: it is gone. */
static bool read_process(const char *number, struct process *p)
{
	unsigned long used[4];
	char path[40], line[600], *open, *end;
	size_t n;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%.10s/stat", number);
	file = fopen(path, "r");
	if (!file)
		return false;
	n = fread(line, 1, sizeof(line) - 1, file);
	fclose(file);
	line[n] = 0;
	open = strchr(line, '(');
	end = strrchr(line, ')');
	if (!open || !end)
		return false;
	*end = 0;
	snprintf(p->name, sizeof(p->name), "%.19s", open + 1);
	p->pid = (pid_t)strtol(number, NULL, 10);
	if (sscanf(end + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %lu %lu %*d %*d %*d %*d %llu",
		   &p->state, &p->parent, &used[0], &used[1], &used[2], &used[3], &p->began) != 7)
		return false;
	p->ticks = used[0] + used[1] + used[2] + used[3];
	return true;
}

static struct process *another(struct tree *t)
{
	if (t->n == t->room) {
		t->room = t->room ? 2 * t->room : 256;
		t->at = realloc(t->at, t->room * sizeof(*t->at));
		if (!t->at)
			abort();
	}
	return &t->at[t->n];
}

static bool is_ours(const struct tree *t, pid_t pid)
{
	unsigned i;

	for (i = 0; i < t->n; i++)
		if (t->at[i].pid == pid)
			return t->at[i].ours;
	return false;
}

void tree_look(struct tree *t)
{
	DIR *dir = opendir("/proc");
	pid_t self = getpid();
	struct dirent *entry;
	bool more = true;
	unsigned i, n = 0;

	t->n = 0;
	while (dir && (entry = readdir(dir)))
		if (*entry->d_name >= '1' && *entry->d_name <= '9' && read_process(entry->d_name, another(t)))
			t->n++;
	if (dir)
		closedir(dir);
	for (i = 0; i < t->n; i++)
		t->at[i].ours = t->at[i].parent == self;
	while (more) {
		more = false;
		for (i = 0; i < t->n; i++)
			if (!t->at[i].ours && is_ours(t, t->at[i].parent))
				more = t->at[i].ours = true;
	}
	for (i = 0; i < t->n; i++)
		if (t->at[i].ours)
			t->at[n++] = t->at[i];
	t->n = n;
}

/* A new process is worth a tick: to make one takes something. */
unsigned long tree_used(const struct tree *before, const struct tree *now)
{
	unsigned long sum = 0, was;
	unsigned i, k;

	for (i = 0; i < now->n; i++) {
		for (k = 0; k < before->n; k++)
			if (before->at[k].pid == now->at[i].pid && before->at[k].began == now->at[i].began)
				break;
		was = k < before->n ? before->at[k].ticks : 0;
		sum += now->at[i].ticks > was ? now->at[i].ticks - was : 0;
		sum += k == before->n;
	}
	return sum;
}

char thread_state(pid_t pid, const char *tid)
{
	char path[60], line[300] = "", *end;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%.10s/stat", pid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, line, sizeof(line) - 1) <= 0)
		line[0] = 0;
	if (fd >= 0)
		close(fd);
	end = strrchr(line, ')');
	return end && end[1] ? end[2] : '?';
}

/* A thread that is gone ends, too. */
static bool thread_ends(pid_t pid, const char *tid)
{
	char path[60], line[300] = "", *end;
	unsigned long flags;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%.10s/stat", pid, tid);
	file = fopen(path, "r");
	if (!file || !fgets(line, sizeof(line), file))
		line[0] = 0;
	if (file)
		fclose(file);
	end = strrchr(line, ')');
	return !end || sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags) != 1 || flags & PF_EXITING;
}

bool process_ends(pid_t pid)
{
	struct dirent *entry;
	bool ends = true;
	char path[40];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && ends && (entry = readdir(dir)))
		ends = *entry->d_name == '.' || thread_ends(pid, entry->d_name);
	if (dir)
		closedir(dir);
	return ends;
}

bool tree_runs(const struct tree *t)
{
	bool runs = false;
	char path[40];
	unsigned i;

	for (i = 0; i < t->n && !runs; i++) {
		struct dirent *entry;
		DIR *dir;

		snprintf(path, sizeof(path), "/proc/%d/task", t->at[i].pid);
		dir = opendir(path);
		while (dir && !runs && (entry = readdir(dir)))
			runs = *entry->d_name != '.' && thread_state(t->at[i].pid, entry->d_name) == 'R';
		if (dir)
			closedir(dir);
	}
	return runs;
}

bool tree_has(const struct tree *t, const char *name)
{
	unsigned i;

	for (i = 0; i < t->n; i++)
		if (!strcmp(t->at[i].name, name))
			return true;
	return false;
}

unsigned tree_kill(struct tree *t)
{
	unsigned i, tries, looks = 0;

	for (tries = 0; tries < 100; tries++) {
		tree_look(t);
		if (!t->n)
			break;
		for (i = 0; i < t->n; i++)
			kill(t->at[i].pid, SIGKILL);
		test_pause(&looks);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
	return t->n;
}
