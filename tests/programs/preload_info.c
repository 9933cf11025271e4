/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * preload_info.c - rds-info of every age: each knows the record of its day, and takes from what it
 * gets as much as it knows, or as there is.  Under the preload only: no kernel has all that is
 * asked for here.
 *
 * The offsets are those of the public tools; nothing here comes from the library's own headers.
 */
#include "program.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

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

/* Who knows Linux's header steps by its own structures, and may have room for exactly so many. */
static void lengths(bool uek)
{
	static const struct {
		int option, plain, uek;
	} rows[] = {{10000, 40, 40}, {10001, 42, 42}, {10003, 26, 26}, {10006, 28, 36}, {10007, 41, 41}, {10008, 68, 176},
		   {10011, 65, 66}, {10012, 50, 50}, {10015, 52, 60}, {10016, 64, 64}, {10017, 92, 200}};
	char rec[64];
	unsigned i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		socklen_t len;
		char *bytes;
		int each = ask(rows[i].option, &bytes, &len), want = uek ? rows[i].uek : rows[i].plain;

		check(each == want, "option %d: %d bytes", rows[i].option, each);
		free(bytes);
	}
	for (i = 0; i < 2 && !uek; i++) {
		socklen_t len = i ? 52 : 28;

		check(getsockopt(fd, SOL_RDS, i ? SOCKETS6 : SOCKETS, rec, &len) == (int)len, "room for one");
	}
}

/*
 * The record of the socket that is bound to PORT, as much of it as that tool has room for, and
 * there is.
 */
static void find(const struct age *a, unsigned char *rec)
{
	socklen_t len, at;
	bool found = false;
	char *all;
	int each = ask(a->option, &all, &len);

	check(each > 0);
	for (at = 0; at + (unsigned)each <= len && !found; at += (unsigned)each) {
		memset(rec, 0, a->own);
		memcpy(rec, all + at, a->own < (unsigned)each ? a->own : (unsigned)each);
		found = ntohs((uint16_t)field(rec, a->port, 2)) == PORT;
	}
	check(found, "%s", a->name);
	free(all);
}

static void sockets(bool uek)
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
		check(!a->pid || field(rec, a->pid, 4) == (uek ? (unsigned)getpid() : 0), "%s", a->name);
		check(!a->cong || (int32_t)field(rec, a->cong, 4) == (uek ? -1 : 0), "%s", a->name);
	}
}

#define PATHS 10020
#define PATHS6 10021
#define DEVICES 10008
#define DEVICES6 10017
#define MAPPED_LOOPBACK "\0\0\0\0\0\0\0\0\0\0\377\377\177\0\0\1"

/*
 * Who reads only rds-info's first path and who goes on while there is room (PCP, unless the number
 * of paths is 0) see the same.  Transport and flags of all are counted: bit 0 a connection to
 * itself, bit 1 one with another process.
 */
static unsigned paths(int option, time_t begin)
{
	socklen_t len, at;
	unsigned seen = 0;
	char *all;
	int each = ask(option, &all, &len);

	check(each == 50 + 37, "%d", each);
	for (at = 0; at < len; at += 87) {
		const unsigned char *rec = (unsigned char *)all + at, *path = rec + 50;
		const char *transport = (const char *)rec + 32;
		int64_t attempt = (int64_t)field(path, 0, 8), connect = (int64_t)field(path, 8, 8);

		check(memcmp(rec, MAPPED_LOOPBACK, 16) == 0 && memcmp(rec + 16, MAPPED_LOOPBACK, 16) == 0);
		check(memchr(transport, 0, 16) && rec[48] == 0 && rec[49] == 0);
		check(attempt >= begin && attempt <= time(NULL));
		check(connect >= attempt && connect <= time(NULL));
		check(field(path, 16, 8) == 0 && field(path, 24, 4) == 0, "it has not been down");
		check(field(path, 28, 4) >= 1 && field(path, 32, 4) == 0 && path[36] == 4, "up at the first path");
		seen |= strcmp(transport, "loopback") ? 2 : 1;
	}
	free(all);
	return seen;
}

/* No RDMA device is in use: nothing, but not an error, which PCP's reader dies of. */
static void devices(void)
{
	socklen_t len;
	char *all;

	check(ask(DEVICES, &all, &len) > 0 && len == 0);
	check(ask(DEVICES6, &all, &len) > 0 && len == 0);
}

/*
 * ---- the first rds-info (2006-09): connections as long as it knows them, whatever it is told ----
 */

static int number(const char *name)
{
	char path[64], text[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/sys/net/rds/%s", name);
	f = fopen(path, "r");
	check(f && fgets(text, sizeof(text), f) && strchr(text, '\n'), "%s", path);
	fclose(f);
	return atoi(text);
}

/* It looks the numbers up at each use. */
static void first_tool(unsigned connections)
{
	socklen_t len = 0, i;
	char *all = NULL;
	int s = socket(number("pf_rds"), SOCK_SEQPACKET, 0);

	check(s >= 0);
	while (getsockopt(s, number("sol_rds"), 10001, all, &len) < 0) {
		check(errno == ENOSPC);
		all = realloc(all, len);
		check(all);
	}
	check(len / 40 == connections, "%u bytes", len);
	for (i = 0; i < len / 40; i++) {
		const unsigned char *rec = (unsigned char *)all + 40 * i;

		check(field(rec, 16, 4) == htonl(INADDR_LOOPBACK) && field(rec, 20, 4) == htonl(INADDR_LOOPBACK));
		check(memchr(rec + 24, 0, 15), "the transport's name");
		check((rec[39] & 0x30) == 0x10, "flags %x: not 'connected'", rec[39]);
	}
	free(all);
	close(s);
}

static void child(void *arg)
{
	struct sockaddr_in at, to = loopback(htons(PORT));
	char c;

	/* a message to a port that nobody has would be kept by a connection to itself */
	hear(*(int *)arg, &c, 1);
	fd = bound(&at);
	check(sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
	check(recv(fd, &c, 1, 0) == 1);
}

static void connections(const struct sockaddr_in *at, time_t begin)
{
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	char c;

	check(recvfrom(fd, &c, 1, 0, (struct sockaddr *)&from, &len) == 1);
	check(paths(PATHS, begin) == 2 && paths(PATHS6, begin) == 2);
	check(sendto(fd, "x", 1, 0, (const struct sockaddr *)at, sizeof(*at)) == 1);
	check(paths(PATHS, begin) == 3 && paths(PATHS6, begin) == 3);
	first_tool(3); /* to itself, and with the other process as each of the two knows it */
	check(sendto(fd, "x", 1, 0, (struct sockaddr *)&from, len) == 1);
}

int main(void)
{
	struct sockaddr_in at = loopback(htons(PORT));
	int snd = 50000, rcv = 60000, go[2];
	time_t begin = time(NULL);
	pid_t pid;

	check(pipe(go) == 0);
	pid = start(child, &go[0]);
	fd = socket(PF_RDS, SOCK_SEQPACKET, 0);
	check(fd >= 0);
	check(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &snd, sizeof(snd)) == 0);
	check(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcv, sizeof(rcv)) == 0);
	lengths(false);
	sockets(false);
	devices();
	tell(go[1], "x", 1);
	connections(&at, begin); /* among them paths, which only Oracle's tools know */
	lengths(true);
	sockets(true);
	finished(pid);
	printf("records of every age\n");
	return 0;
}
