/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player_trouble.c - what can be seen from outside when nothing goes on: for a failure that may not
 * happen again.
 *
 * Prints the connections of the node and what waits on them, as rds-info would show them, and where
 * the threads of each process are, as far as the kernel tells (all of it to root only).  Goes to
 * stderr.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "player.h"
#include "rds_abi.h"

#define SHOWN 8u /* of a kind */

/* Elements of one source of information, `each` bytes long. NULL: none. */
static char *info(int fd, int what, size_t each, unsigned *n)
{
	socklen_t len = 0;
	char *all = NULL;
	int rc;

	while ((rc = getsockopt(fd, SOL_RDS, what, all, &len)) < 0 && errno == ENOSPC) {
		free(all);
		all = malloc(len);
		if (!all)
			return NULL;
	}
	*n = rc > 0 && all ? (unsigned)(len / each) : 0;
	return all;
}

static const char *ip(uint32_t be, char *to)
{
	return inet_ntop(AF_INET, &be, to, INET_ADDRSTRLEN);
}

static void connections(int fd)
{
	char a[INET_ADDRSTRLEN], b[INET_ADDRSTRLEN];
	struct rds_info_connection *c;
	unsigned i, n;
	char *all = info(fd, RDS_INFO_CONNECTIONS, sizeof(*c), &n);

	for (i = 0; i < n; i++) {
		c = (struct rds_info_connection *)(void *)(all + i * sizeof(*c));
		fprintf(stderr, "    connection %s to %s, %.16s, flags %x, next to send %llu, to come %llu\n",
			ip(c->laddr, a), ip(c->faddr, b), (const char *)c->transport, c->flags,
			(unsigned long long)c->next_tx_seq, (unsigned long long)c->next_rx_seq);
	}
	free(all);
}

static void messages(int fd, const char *name, int what)
{
	char a[INET_ADDRSTRLEN], b[INET_ADDRSTRLEN];
	struct rds_info_message *m;
	unsigned i, n;
	char *all = info(fd, what, sizeof(*m), &n);

	fprintf(stderr, "    %u messages %s\n", n, name);
	for (i = 0; i < n && i < SHOWN; i++) {
		m = (struct rds_info_message *)(void *)(all + i * sizeof(*m));
		fprintf(stderr, "        %llu: %u bytes, %s port %u to %s port %u, flags %x\n",
			(unsigned long long)m->seq, m->len, ip(m->laddr, a), ntohs(m->lport), ip(m->faddr, b),
			ntohs(m->fport), m->flags);
	}
	free(all);
}

static void counters(int fd)
{
	struct rds_info_counter *c;
	unsigned i, n;
	char *all = info(fd, RDS_INFO_COUNTERS, sizeof(*c), &n);

	fprintf(stderr, "   ");
	for (i = 0; i < n; i++) {
		c = (struct rds_info_counter *)(void *)(all + i * sizeof(*c));
		if (c->value)
			fprintf(stderr, " %.32s %llu", (const char *)c->name, (unsigned long long)c->value);
	}
	fprintf(stderr, "\n");
	free(all);
}

void trouble_connections(int fd)
{
	connections(fd);
	messages(fd, "to be sent", RDS_INFO_SEND_MESSAGES);
	messages(fd, "without an acknowledgement", RDS_INFO_RETRANS_MESSAGES);
	messages(fd, "unread", RDS_INFO_RECV_MESSAGES);
	counters(fd);
}

static void file_of(pid_t pid, const char *task, const char *name)
{
	char path[320], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/%s", (int)pid, task, name);
	f = fopen(path, "re");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f))
		fprintf(stderr, "        %s: %.*s\n", name, (int)strcspn(line, "\n"), line);
	fclose(f);
}

void trouble_process(pid_t pid)
{
	static const char *const files[] = {"comm", "wchan", "syscall", "stack"};
	char path[64];
	struct dirent *d;
	unsigned i;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		if (d->d_name[0] == '.')
			continue;
		fprintf(stderr, "    process %d, thread %s\n", (int)pid, d->d_name);
		for (i = 0; i < sizeof(files) / sizeof(files[0]); i++)
			file_of(pid, d->d_name, files[i]);
	}
	if (dir)
		closedir(dir);
}
