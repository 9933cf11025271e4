/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * standstill.c CASE - two processes whose operations wait for each other's answers: all of them have to end.
 *
 *	crossing	both read more from each other at once than may be under way
 *	cut		writes of many pieces with a wrong key, while there is often no room (RDS_PRELOAD_FAULT=send=2): each is
 *			reported, also when the answer comes after a part of it has gone and before the rest has
 *	full		the peer is stopped and writes to it have taken all the room there is: a message that the send buffer has
 *			room for does not keep its sender waiting; when the peer goes on, all of it comes, in order
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rdma.h"

#define PORT 4300
#define READS 40
#define WRITES 100
#define PLAIN 3000u /* together too many for each to wait a little */
#define FULL 12	  /* writes of 1 MiB: more than any ring or send queue takes */
#define PIECES 12 /* of 64 KiB each, as far as that matters */

static int to_other, from_other, fd;
static unsigned me;

static uint64_t exchange(uint64_t word)
{
	uint64_t other;

	check(write(to_other, &word, sizeof(word)) == sizeof(word));
	check(read(from_other, &other, sizeof(other)) == sizeof(other), "the other process has ended");
	return other;
}

static void all_end(struct box *b, unsigned n, int want)
{
	unsigned i;

	for (i = 0; i < n; i++)
		expect(box_status(b, i + 1), want, "process %u, operation %u of %u", me, i + 1, n);
}

static void crossing(struct box *b, const struct sockaddr_in *to)
{
	unsigned char *region = pages(MIB), *local = pages(MIB), *want = malloc(MIB);
	struct vec v = {(uintptr_t)local, MIB};
	uint64_t cookie, theirs;
	unsigned i;

	pattern(region, MIB, me);
	pattern(want, MIB, !me);
	expect(get_mr(fd, region, MIB, F_WRITE, &cookie), 0, "GET_MR");
	theirs = exchange(cookie);
	for (i = 0; i < READS; i++) {
		struct op op = {.cookie = theirs, .flags = F_NOTIFY, .token = i + 1, .local = &v, .nr_local = 1};

		expect(op_send(fd, to, &op), 0, "read %u", i);
	}
	all_end(b, READS, ST_SUCCESS);
	expect_bytes(local, want, MIB, "what was read");
	exchange(0); /* it is read from until the other one has all */
	free(want);
}

static void cut(struct box *b, const struct sockaddr_in *to)
{
	size_t len = PIECES * 65536;
	unsigned char *local = pages(len);
	struct vec v = {(uintptr_t)local, len};
	unsigned i;

	for (i = 0; i < WRITES; i++) {
		struct op op = {.cookie = 0x12345678,
				.flags = F_WRITE | F_NOTIFY | F_SILENT,
				.token = i + 1,
				.local = &v,
				.nr_local = 1};

		expect(op_send(fd, to, &op), 0, "write %u", i);
		expect(box_status(b, i + 1), ST_REMOTE_ERROR, "write %u of %u", i + 1, WRITES);
	}
}

static void stopped(void)
{
	unsigned char *region = pages(MIB), text[16];
	uint64_t cookie;
	unsigned i, n = 0;

	expect(get_mr(fd, region, MIB, F_WRITE, &cookie), 0, "GET_MR");
	exchange(cookie);
	expect(recv(fd, text, sizeof(text), 0), 1, "the first message");
	check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl: %m");
	raise(SIGSTOP);
	for (i = 0; i < FULL + PLAIN; i++) { /* those of the writes have no bytes */
		ssize_t len = recv(fd, text, sizeof(text), 0);

		if (len > 0)
			check(i == FULL + n && len == 1 && text[0] == (unsigned char)n,
			      "message %u: came %zd bytes, %u", i, len, text[0]);
		n += len > 0;
	}
	expect(n, PLAIN, "messages with bytes");
}

static void full(struct box *b, const struct sockaddr_in *to, pid_t peer)
{
	unsigned char *local = pages(MIB);
	struct vec v = {(uintptr_t)local, MIB};
	uint64_t theirs = exchange(0);
	int status;
	unsigned i;

	expect(sendto(fd, "0", 1, 0, (const struct sockaddr *)to, sizeof(*to)), 1,
	       "a message that makes the connection");
	check(waitpid(peer, &status, WUNTRACED) == peer && WIFSTOPPED(status), "the other process did not stop");
	for (i = 0; i < FULL; i++) {
		struct op op = {
			.cookie = theirs, .flags = F_WRITE | F_NOTIFY, .token = i + 1, .local = &v, .nr_local = 1};

		expect(op_send(fd, to, &op), 0, "write %u", i);
	}
	alarm((unsigned)deadline());
	for (i = 0; i < PLAIN; i++) {
		char c = (char)i;

		expect(sendto(fd, &c, 1, 0, (const struct sockaddr *)to, sizeof(*to)), 1,
		       "a blocking send to a process that is stopped");
	}
	alarm(0);
	check(kill(peer, SIGCONT) == 0);
	all_end(b, FULL, ST_SUCCESS);
}

int main(int argc, char **argv)
{
	int there[2], back[2];
	struct sockaddr_in to;
	struct box *b;
	pid_t other;

	check(argc == 2, "standstill crossing|cut|full");
	check(pipe(there) == 0 && pipe(back) == 0);
	other = fork();
	me = !other;
	to_other = me ? back[1] : there[1];
	from_other = me ? there[0] : back[0];
	close(me ? there[1] : back[1]); /* so that a read ends when the other process does */
	fd = rds_bound(address(me), PORT + me);
	to = name_of(address(!me), PORT + !me);
	b = box_new(fd);
	exchange(0);
	if (strcmp(argv[1], "crossing") == 0)
		crossing(b, &to);
	else if (strcmp(argv[1], "full") == 0 && me)
		stopped();
	else if (strcmp(argv[1], "full") == 0)
		full(b, &to, other);
	else if (!me)
		cut(b, &to);
	if (strcmp(argv[1], "crossing") != 0)
		exchange(0);
	if (me)
		return 0;
	check(waitpid(other, &there[0], 0) == other && there[0] == 0, "the other process failed");
	printf("ok\n");
	return 0;
}
