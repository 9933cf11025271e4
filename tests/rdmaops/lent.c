/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * lent.c CASE - writes whose bytes may be taken from the writer's memory after sendmsg: what that
 * must not show.  The owner of the region is stopped while they are sent, but for the last two
 * cases.
 *
 *         exit    the writer ends, in an orderly way: all of them arrive, from its memory or not
 *         kill    it is killed, after long and short ones in turn: each arrives whole or not at
 * all,
 *                 none without those before it, and the owner goes on with another writer
 *         gone    it unmaps the bytes of the first: either it had its bytes already, or it fails
 * and
 *                 costs only itself
 *         cancel  it cancels them and puts other bytes there: none arrives with those
 *         close   it closes its socket, which does not take long, and puts other bytes there: the
 * same
 *         closes  the owner is not stopped: all of them arrive
 *         forbid  a filter forbids the owner to read other memory: one is dropped at most
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/refuse.h"
#include "rdma.h"

#define PORT 4400
#define LEN ((size_t)128 << 10) /* more than a piece: fetched, where that is possible */
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

static bool is(const char *what, const char *name)
{
	return strcmp(what, name) == 0;
}

/* The owner waits for all writes of the first writer, and the second one begins after that. */
static bool all_come(const char *what)
{
	return is(what, "exit") || is(what, "closes");
}

/* A short one needs nothing of the writer once it is sent. */
static size_t length(const char *what, unsigned i)
{
	return is(what, "kill") && i % 2 ? 64 : LEN;
}

/* ---- the owner ---- */

static void forbid(void)
{
	check(refuse_call(SYS_process_vm_readv, EPERM) == 0, "%m");
}

/*
 * Receives messages up to the one that says "last" (exit, closes: up to the last one itself).  Each
 * names its write, which must have been made.  Returns how many came.
 *
 * "last" is the second writer's, which begins when the first has ended.  On a socket that another
 * process owns, what is under way goes on for a moment after that, in no particular order with the
 * second writer's: so what then comes of the first is not counted (port).
 */
static unsigned receive(struct box *b, const unsigned char *region, const char *what, unsigned port)
{
	bool gaps = is(what, "gone") || is(what, "cancel") || is(what, "close") || is(what, "forbid");
	unsigned char *want = malloc(LEN);
	unsigned n = 0;

	while (!all_come(what) || n < WRITES) {
		struct letter l = box_letter(b);
		unsigned i = *(unsigned *)(void *)l.body;

		free(l.body);
		if (i >= WRITES)
			break;
		if (port && ntohs(l.from.sin_port) != port)
			continue;
		check(gaps || i == n, "write %u came, %u was next", i, n);
		pattern(want, length(what, i), i);
		expect_bytes(region + i * LEN, want, length(what, i), "write %u, whose message came", i);
		if (!n++ && is(what, "forbid")) {
			forbid();
			tell(to_parent, 0);
		}
	}
	free(want);
	return n;
}

static void owner(const char *what)
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
	tell(to_parent, receive(b, region, what, 0));
	/* from the second one, which does as any other does */
	tell(to_parent, receive(b, region, "second", PORT + 2));
}

/* ---- writers ---- */

static void send_write(int fd, const struct sockaddr_in *to, uint64_t cookie, unsigned char *from, size_t len, unsigned i)
{
	pattern(from, len, i);
	write_numbered(fd, to, (struct op){.cookie = cookie}, (struct vec){(uintptr_t)from, len}, i);
}

static void last(int fd, const struct sockaddr_in *to)
{
	unsigned end = WRITES;
	struct out o;

	out_begin(&o, to, &end, sizeof(end));
	expect(out_send(&o, fd, 0), sizeof(end), "the last message");
}

/* The program has its memory back, and uses it. */
static void taken_back(const char *what, int fd, const struct sockaddr_in *to, unsigned char *local)
{
	double since = seconds();
	unsigned i;

	if (is(what, "cancel"))
		expect(setsockopt(fd, 276, 1, to, sizeof(*to)), 0, "CANCEL_SENT_TO");
	else
		expect(close(fd), 0, "close");
	if ((seconds() - since) * 1000 > test_bound_ms(5000))
		test_late("it took %.1f s", seconds() - since);
	for (i = 1; i < WRITES; i++)
		pattern(local + i * LEN, LEN, 100 + i);
}

/* One after the other: how many of them are dropped? */
static unsigned dropped(int fd, const struct sockaddr_in *to, const uint64_t *cookie, unsigned char *local,
			struct box *b)
{
	unsigned i, n = 0;
	int status;

	for (i = 1; i < WRITES; i++) {
		send_write(fd, to, cookie[i], local, LEN, i);
		status = box_status(b, i + 1);
		check(status == ST_SUCCESS || status == ST_DROPPED, "write %u: status %d", i, status);
		n += status == ST_DROPPED;
	}
	return n;
}

/* Up to the first status it is sure that they know each other. */
static void writer(const char *what, const uint64_t *cookie)
{
	struct sockaddr_in to = name_of(address(0), PORT);
	int fd = rds_bound(address(1), PORT + 1), status;
	unsigned char *local = pages(WRITES * LEN);
	struct box *b = box_new(fd);
	unsigned i;

	send_write(fd, &to, cookie[0], local, LEN, 0);
	expect(box_status(b, 1), ST_SUCCESS, "write 0");
	tell(to_parent, 0);
	hear(to_writer); /* the owner is stopped */
	if (is(what, "forbid")) {
		tell(to_parent, 1 - dropped(fd, &to, cookie, local, b));
		exit(0);
	}
	for (i = 1; i < WRITES; i++)
		send_write(fd, &to, cookie[i], local + i * LEN, length(what, i), i);
	if (is(what, "gone"))
		check(munmap(local + LEN, LEN) == 0, "%m");
	else if (!is(what, "exit") && !is(what, "kill"))
		taken_back(what, fd, &to, local);
	tell(to_parent, 0);
	if (is(what, "kill"))
		pause();
	if (!is(what, "gone"))
		exit(0);
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
		send_write(fd, &to, cookie[i], local, LEN, i);
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
	bool killed = is(what, "kill"), gone = is(what, "gone"), back = is(what, "cancel") || is(what, "close");
	bool running = is(what, "closes") || is(what, "forbid");
	uint64_t cookie[WRITES], had = 1, closed;
	unsigned i, came = 0;
	pid_t one;

	for (i = 0; i < WRITES; i++)
		cookie[i] = hear(to_parent);
	one = fork();
	if (!one)
		writer(what, cookie);
	/* if the others end, hear() must not wait for ourselves */
	check(close(to_parent[1]) == 0, "%m");
	hear(to_parent);
	if (is(what, "forbid"))
		hear(to_parent);
	if (!running)
		stopped(mine);
	tell(to_writer, 0);
	closed = had = hear(to_parent);
	if (!is(what, "forbid"))
		had = 1;
	if (running) {
		; /* it need not be woken */
	} else if (killed) {
		check(kill(one, SIGKILL) == 0, "%m");
		ended(one, SIGKILL, "the first writer");
	} else if (!gone && !back) {
		usleep(200000); /* a writer that does not wait for the owner ends now */
	}
	if (!running)
		check(kill(mine, SIGCONT) == 0, "%m");
	if (gone) {
		tell(to_writer, 0);
		had = hear(to_parent);
	}
	if (gone || is(what, "exit"))
		came = (unsigned)hear(to_parent);
	/* the writer says 0 when it has closed, the owner how many have come: in any order */
	if (is(what, "closes"))
		came = (unsigned)(closed + hear(to_parent));
	if (!killed)
		ended(one, 0, "the first writer");
	one = fork();
	if (!one)
		second(cookie, gone || all_come(what));
	if (!gone && !all_come(what))
		came = (unsigned)hear(to_parent);
	if (!killed && !back)
		expect(came, WRITES - !had, "writes of the first writer that came");
	expect(hear(to_parent), WRITES, "writes of the second writer that came");
	ended(one, 0, "the second writer");
	printf("ok: %u of %d writes came\n", came, WRITES);
}

int main(int argc, char **argv)
{
	pid_t mine;
	static const char *const names[] = {"exit", "kill", "gone", "cancel", "close", "closes", "forbid"};
	unsigned i, known = 0;

	for (i = 0; argc == 2 && i < sizeof(names) / sizeof(names[0]); i++)
		known += is(argv[1], names[i]);
	check(known, "lent exit|kill|gone|cancel|close|closes|forbid");
	check(pipe(to_writer) == 0 && pipe(to_parent) == 0, "%m");
	mine = fork();
	if (!mine) {
		owner(argv[1]);
		return 0;
	}
	story(argv[1], mine);
	return 0;
}
