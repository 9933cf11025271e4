/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * several_net.c - what the kernel of each host knows of TCP port 16385: who listens, and how many
 * connections there are.  Nothing of this is asked of the library.
 */
#include <dirent.h>

#include "several.h"

#define TCP_PORT 16385
#define ESTABLISHED 1
#define LISTENS 10

/* A process of that host: in its namespace all see the same. */
static pid_t witness(unsigned host)
{
	unsigned i;

	for (i = host * PER_HOST; i < host * PER_HOST + all->per_host; i++)
		if (pids[i] > 0)
			return pids[i];
	return 0;
}

/* How many sockets of the port are in that state, and the inode of one. */
static unsigned sockets(unsigned host, unsigned wanted, unsigned long *inode)
{
	unsigned local, near, far, state, n = 0;
	unsigned long number;
	char line[256];
	FILE *f;

	snprintf(line, sizeof(line), "/proc/%d/net/tcp", (int)witness(host));
	f = fopen(line, "r");
	if (!f)
		return 0; /* it has just ended */
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%*u: %x:%x %*x:%x %x %*x:%*x %*x:%*x %*x %*u %*u %lu", &local, &near, &far, &state,
			   &number) == 5 &&
		    state == wanted && (near == TCP_PORT || far == TCP_PORT) && (!local || local == all->addr[host])) {
			n++;
			*inode = number;
		}
	fclose(f);
	return n;
}

static bool links_to(DIR *dir, const char *name, const char *wanted)
{
	char text[64];
	ssize_t n = readlinkat(dirfd(dir), name, text, sizeof(text) - 1);

	text[n < 0 ? 0 : n] = 0;
	return strcmp(text, wanted) == 0;
}

static bool thread_has(const char *dir, const char *wanted)
{
	struct dirent *e;
	DIR *d = opendir(dir);
	bool has = false;

	while (d && !has && (e = readdir(d)))
		has = links_to(d, e->d_name, wanted);
	if (d)
		closedir(d);
	return has;
}

/* Threads may have descriptors of their own. */
static bool process_has(pid_t pid, unsigned long inode)
{
	char dir[64], path[512], wanted[64];
	struct dirent *e;
	bool has = false;
	DIR *d;

	snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
	snprintf(dir, sizeof(dir), "/proc/%d/task", (int)pid);
	d = opendir(dir);
	while (d && !has && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s/fd", dir, e->d_name);
		has = e->d_name[0] != '.' && thread_has(path, wanted);
	}
	if (d)
		closedir(d);
	return has;
}

/* The place whose process listens at the host's address; -1: none does now. */
int owner_of(unsigned host)
{
	unsigned long inode;
	unsigned i;

	if (!sockets(host, LISTENS, &inode))
		return -1;
	for (i = host * PER_HOST; i < host * PER_HOST + all->per_host; i++)
		if (pids[i] > 0 && process_has(pids[i], inode))
			return (int)i;
	return -1;
}

unsigned connections_of(unsigned host)
{
	unsigned long inode;

	return sockets(host, ESTABLISHED, &inode);
}
