/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_info.c - rds-info of every age: each knows the record of its day, and takes from what it gets as much as it
 * knows, or as there is.  Under the preload only: no kernel has all that is asked for here.
 *
 * The offsets are those of the public tools; nothing here comes from the library's own headers.
 */
#include "program.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define SOL_RDS 276
#define SOCKETS 10006
#define SOCKETS6 10015
#define PORT 4170

struct age {
	const char *name;
	int option;
	unsigned own; /* size of its record */
	unsigned port, rcvbuf, inum, pid, cong; /* where; 0: unknown to it */
};

static const struct age ages[] = {
	{"2006-10", SOCKETS, 16, 12, 0, 0, 0, 0},	 {"2007-05", SOCKETS, 20, 12, 16, 0, 0, 0},
	{"2008-06", SOCKETS, 28, 12, 16, 20, 0, 0},	 {"2020-10", SOCKETS, 32, 12, 16, 20, 28, 0},
	{"2022-07", SOCKETS, 36, 12, 16, 20, 28, 32},	 {"2018-01, -a", SOCKETS6, 52, 36, 40, 44, 0, 0},
	{"2020-10, -a", SOCKETS6, 56, 36, 40, 44, 52, 0}, {"2022-07, -a", SOCKETS6, 60, 36, 40, 44, 52, 56},
};

static int fd;

/* The size of one, *len of all; in memory of this call's. */
static int ask(int option, char **out, socklen_t *len)
{
	int each;

	*out = NULL;
	*len = 0;
	while ((each = getsockopt(fd, SOL_RDS, option, *out, len)) < 0) {
		check(errno == ENOSPC, "option %d", option);
		*out = realloc(*out, *len);
		check(*out);
	}
	return each;
}

static uint64_t field(const unsigned char *rec, unsigned at, unsigned size)
{
	uint64_t v = 0;

	memcpy(&v, rec + at, size);
	return v;
}

/* The record of the socket that is bound to PORT, as much of it as that tool has room for. */
static void find(const struct age *a, unsigned char *rec)
{
	socklen_t len, at;
	bool found = false;
	char *all;
	int each = ask(a->option, &all, &len);

	check(each > 0 && (unsigned)each >= a->own, "%s: its record has %u bytes, this one %d", a->name, a->own, each);
	for (at = 0; at + a->own <= len && !found; at += (unsigned)each) {
		memset(rec, 0, a->own);
		memcpy(rec, all + at, a->own);
		found = ntohs((uint16_t)field(rec, a->port, 2)) == PORT;
	}
	check(found, "%s", a->name);
	free(all);
}

static void sockets(void)
{
	unsigned char rec[64];
	struct stat st;
	unsigned i;

	check(fstat(fd, &st) == 0);
	for (i = 0; i < sizeof(ages) / sizeof(ages[0]); i++) {
		const struct age *a = &ages[i];

		find(a, rec);
		check(field(rec, 0, 4) == 50000, "%s", a->name);
		check(!a->rcvbuf || field(rec, a->rcvbuf, 4) == 60000, "%s", a->name);
		check(!a->inum || field(rec, a->inum, 8) == st.st_ino, "%s", a->name);
		check(!a->pid || field(rec, a->pid, 4) == (unsigned)getpid(), "%s", a->name);
		check(!a->cong || (int32_t)field(rec, a->cong, 4) == -1, "%s", a->name);
	}
}

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int snd = 50000, rcv = 60000;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(PF_RDS, SOCK_SEQPACKET, 0);
	check(fd >= 0);
	check(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &snd, sizeof(snd)) == 0);
	check(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcv, sizeof(rcv)) == 0);
	sockets();
	printf("records of every age\n");
	return 0;
}
