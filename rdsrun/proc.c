/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * proc.c - /proc of one process (proc.h).
 *
 * The process may end at any time, and is then not known.
 */
#include "rdsrun/proc.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *proc_open(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return fopen(path, "re");
}

static void look_status(pid_t pid, struct proc_facts *f)
{
	FILE *in = proc_open(pid, "status");
	char line[256];

	while (in && fgets(line, sizeof(line), in)) {
		if (sscanf(line, "State: %c", &f->state) == 1)
			f->known = true;
		sscanf(line, "Uid: %*d %d", &f->uid);
		sscanf(line, "Threads: %d", &f->threads);
	}
	if (in)
		fclose(in);
}

/* Arguments end with a zero byte each. */
static void look_command(pid_t pid, struct proc_facts *f)
{
	FILE *in = proc_open(pid, "cmdline");
	size_t n = in ? fread(f->command, 1, sizeof(f->command) - 1, in) : 0;

	if (in)
		fclose(in);
	while (n && !f->command[n - 1])
		n--;
	f->command[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (!f->command[i])
			f->command[i] = ' ';
}

static int count_fds(pid_t pid)
{
	char path[64];
	struct dirent *d;
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		return PROC_UNKNOWN;
	while ((d = readdir(dir)))
		n += d->d_name[0] != '.';
	closedir(dir);
	return n;
}

void proc_look(pid_t pid, struct proc_facts *f)
{
	memset(f, 0, sizeof(*f));
	f->uid = f->threads = f->fds = PROC_UNKNOWN;
	if (pid <= 0)
		return;
	look_status(pid, f);
	look_command(pid, f);
	f->fds = count_fds(pid);
}
