/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lent.c CASE - writes whose writer does not wait for their end.  The owner of the region is stopped while they are sent.
 *
 *	exit	the writer ends, in an orderly way: all of them arrive, whoever carries the bytes
 *	kill	it is killed: each arrives whole or not at all, and the owner goes on with another writer
 *	gone	it unmaps the bytes of the first: either it had its bytes already, or it fails and costs only itself
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rdma.h"

#define PORT 4400
#define LEN ((size_t)64 << 10)
#define WRITES 10

static int to_writer[2], to_parent[2]; /* pipes */

static void tell(const int pipe[2], uint64_t word)
{
	check(write(pipe[1], &word, sizeof(word)) == sizeof(word), "%m");
}

static uint64_t hear(const int pipe[2])
{
	uint64_t word;

	check(read(pipe[0], &word, sizeof(word)) == sizeof(word), "a process has ended");
	return word;
}

/* ---- the owner ---- */

/* Messages up to the one that says "last"; each names its write, which must have been made. How many. */
static unsigned receive(struct box *b, const unsigned char *region, bool all)
{
	unsigned char *want = malloc(LEN);
	unsigned n = 0;

	for (;;) {
		struct letter l = box_letter(b);
		unsigned i = *(unsigned *)(void *)l.body;

		free(l.body);
		if (i >= WRITES)
			break;
		check(!all || i == n, "write %u came, %u was next", i, n);
		pattern(want, LEN, i);
		expect_bytes(region + i * LEN, want, LEN, "write %u, whose message came", i);
		n++;
	}
	free(want);
	return n;
}

static void owner(bool all)
{
	unsigned char *region = pages(WRITES * LEN);
	int fd = rds_bound(address(0), PORT);
	struct box *b = box_new(fd);
	uint64_t cookie[WRITES];
	unsigned i;

	for (i = 0; i < WRITES; i++) {
		expect(get_mr(fd, region + i * LEN, LEN, F_WRITE, &cookie[i]), 0, "GET_MR");
		tell(to_parent, cookie[i]);
	}
	tell(to_parent, receive(b, region, all));
	tell(to_parent, receive(b, region, true)); /* from the second one */
}

/* ---- writers ---- */

static void send_write(int fd, const struct sockaddr_in *to, uint64_t cookie, unsigned char *from, unsigned i)
{
	struct vec v = {(uintptr_t)from, LEN};
	struct op op = {.cookie = cookie,
			.flags = F_WRITE | F_NOTIFY,
			.token = i + 1,
			.local = &v,
			.nr_local = 1,
			.payload = &i,
			.len = sizeof(i)};

	pattern(from, LEN, i);
	expect(op_send(fd, to, &op), sizeof(i), "write %u", i);
}

static void last(int fd, const struct sockaddr_in *to)
{
	unsigned end = WRITES;
	struct out o;

	out_begin(&o, to, &end, sizeof(end));
	expect(out_send(&o, fd, 0), sizeof(end), "the last message");
}

/* Up to the first status it is sure that they know each other. */
static void writer(const char *what, const uint64_t *cookie)
{
	struct sockaddr_in to = name_of(address(0), PORT);
	int fd = rds_bound(address(1), PORT + 1), status;
	unsigned char *local = pages(WRITES * LEN);
	struct box *b = box_new(fd);
	unsigned i;

	send_write(fd, &to, cookie[0], local, 0);
	expect(box_status(b, 1), ST_SUCCESS, "write 0");
	tell(to_parent, 0);
	hear(to_writer); /* the owner is stopped */
	for (i = 1; i < WRITES; i++)
		send_write(fd, &to, cookie[i], local + i * LEN, i);
	if (strcmp(what, "gone") == 0)
		check(munmap(local + LEN, LEN) == 0, "%m");
	tell(to_parent, 0);
	if (strcmp(what, "exit") == 0)
		exit(0);
	if (strcmp(what, "kill") == 0)
		pause();
	hear(to_writer); /* it goes on */
	status = box_status(b, 2);
	check(status == ST_SUCCESS || status == ST_OTHER, "write 1, whose bytes are gone: status %d", status);
	tell(to_parent, (uint64_t)(status == ST_SUCCESS));
	for (i = 2; i < WRITES; i++)
		expect(box_status(b, i + 1), ST_SUCCESS, "write %u, behind one whose bytes are gone", i);
	last(fd, &to);
	exit(0);
}

/* Does as any other does. */
static void second(const uint64_t *cookie, bool first_said_it)
{
	struct sockaddr_in to = name_of(address(0), PORT);
	int fd = rds_bound(address(1), PORT + 2);
	unsigned char *local = pages(LEN);
	struct box *b = box_new(fd);
	unsigned i;

	if (!first_said_it)
		last(fd, &to);
	for (i = 0; i < WRITES; i++) {
		send_write(fd, &to, cookie[i], local, i);
		expect(box_status(b, i + 1), ST_SUCCESS, "write %u of the second writer", i);
	}
	last(fd, &to);
	exit(0);
}

/* ---- the story ---- */

static void ended(pid_t pid, int signal, const char *who)
{
	int status;

	check(waitpid(pid, &status, 0) == pid, "%m");
	check(signal ? WIFSIGNALED(status) && WTERMSIG(status) == signal : status == 0, "%s: status %x", who,
	      (unsigned)status);
}

static void stopped(pid_t pid)
{
	int status;

	check(kill(pid, SIGSTOP) == 0 && waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "%m");
}

static void story(const char *what, pid_t mine)
{
	bool killed = strcmp(what, "kill") == 0, gone = strcmp(what, "gone") == 0;
	uint64_t cookie[WRITES], had = 1;
	unsigned i, came = 0;
	pid_t one;

	for (i = 0; i < WRITES; i++)
		cookie[i] = hear(to_parent);
	one = fork();
	if (!one)
		writer(what, cookie);
	hear(to_parent);
	stopped(mine);
	tell(to_writer, 0);
	hear(to_parent);
	if (killed) {
		check(kill(one, SIGKILL) == 0, "%m");
		ended(one, SIGKILL, "the first writer");
	} else if (!gone) {
		usleep(200000); /* a writer that does not wait for the owner ends now */
	}
	check(kill(mine, SIGCONT) == 0, "%m");
	if (gone) {
		tell(to_writer, 0);
		had = hear(to_parent);
	}
	if (gone)
		came = (unsigned)hear(to_parent);
	if (!killed)
		ended(one, 0, "the first writer");
	one = fork();
	if (!one)
		second(cookie, gone);
	if (!gone)
		came = (unsigned)hear(to_parent);
	if (!killed)
		expect(came, WRITES - !had, "writes of the first writer that came");
	expect(hear(to_parent), WRITES, "writes of the second writer that came");
	ended(one, 0, "the second writer");
	printf("ok: %u of %d writes came\n", came, WRITES);
}

int main(int argc, char **argv)
{
	pid_t mine;
	bool ok = argc == 2 && (!strcmp(argv[1], "exit") || !strcmp(argv[1], "kill") || !strcmp(argv[1], "gone"));

	check(ok, "lent exit|kill|gone");
	check(pipe(to_writer) == 0 && pipe(to_parent) == 0, "%m");
	mine = fork();
	if (!mine) {
		owner(strcmp(argv[1], "exit") == 0);
		return 0;
	}
	story(argv[1], mine);
	return 0;
}
