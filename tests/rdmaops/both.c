/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * both.c [WRITES [BYTES]] - an operation and its message arrive both or neither, as far as the writer can
 * know.  Connections break all the time (the fault transport).  Each write that is reported as
 * successful brings its message, once, in order, and behind its bytes.
 *
 * Of a dropped write nothing is known: it may have arrived, too.  A plain PF_RDS program.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rdma.h"

#define PORT 4450
#define SLOTS 12u /* a region has 1 MiB at most */
#define WINDOW 8u
#define MAX 100000u

static unsigned writes = 10000;
static size_t len = 4096;
static struct shared {
	uint64_t cookie;
	_Atomic bool open;
	signed char status[MAX];
	bool came[MAX];
} * shared;

/* A slot's first word is the number of the write, plus 1, that was the last one there. */
static void owner(void)
{
	int fd = rds_bound(address(0), PORT);
	unsigned char *region = pages(SLOTS * len);
	struct box *b = box_new(fd);
	unsigned i, next = 0;
	uint64_t word;

	expect(get_mr(fd, region, SLOTS * len, F_WRITE, &shared->cookie), 0, "GET_MR");
	atomic_store(&shared->open, true);
	for (;;) {
		struct letter l = box_letter(b);

		check(l.len == sizeof(i), "%zu bytes", l.len);
		memcpy(&i, l.body, sizeof(i));
		free(l.body);
		check(i >= next && i <= writes, "message %u, %u was next", i, next);
		if (i == writes)
			break;
		word = *(volatile uint64_t *)(void *)(region + i % SLOTS * len);
		check(word > i, "message %u before its bytes", i);
		shared->came[i] = true;
		next = i + 1;
	}
	exit(0);
}

static void send_write(int fd, const struct sockaddr_in *to, unsigned char *from, unsigned i)
{
	*(uint64_t *)(void *)from = i + 1;
	write_numbered(fd, to, (struct op){.cookie = shared->cookie, .remote_addr = i % SLOTS * len},
		       (struct vec){(uintptr_t)from, len}, i);
}

static void writer(void)
{
	struct sockaddr_in to = name_of(address(0), PORT);
	int fd = rds_bound(address(1), PORT + 1);
	unsigned char *local = pages(SLOTS * len);
	struct box *b = box_new(fd);
	struct out o;
	unsigned i;

	for (i = 0; i < writes + WINDOW; i++) {
		if (i < writes)
			send_write(fd, &to, local + i % SLOTS * len, i);
		if (i >= WINDOW)
			shared->status[i - WINDOW] = (signed char)box_status(b, i - WINDOW + 1);
	}
	out_begin(&o, &to, &writes, sizeof(writes));
	expect(out_send(&o, fd, 0), sizeof(writes), "the last message");
}

int main(int argc, char **argv)
{
	unsigned i, dropped = 0, unknown = 0;
	int status;
	pid_t other;

	if (argc > 1)
		writes = (unsigned)strtoul(argv[1], NULL, 0);
	if (argc > 2)
		len = strtoul(argv[2], NULL, 0);
	check(writes <= MAX, "at most %u", MAX);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shared != MAP_FAILED, "%m");
	other = fork();
	if (!other)
		owner();
	while (!atomic_load(&shared->open)) {
		check(waitpid(other, &status, WNOHANG) == 0, "the owner failed");
		usleep(1000);
	}
	writer();
	check(waitpid(other, &status, 0) == other && status == 0, "the owner failed");
	for (i = 0; i < writes; i++) {
		check(shared->status[i] == ST_SUCCESS || shared->status[i] == ST_DROPPED, "write %u: status %d", i,
		      shared->status[i]);
		check(shared->status[i] != ST_SUCCESS || shared->came[i], "write %u has succeeded, its message is lost",
		      i);
		dropped += shared->status[i] == ST_DROPPED;
		unknown += shared->status[i] == ST_DROPPED && shared->came[i];
	}
	printf("ok %u writes, %u dropped, of which %u have arrived\n", writes, dropped, unknown);
	return 0;
}
