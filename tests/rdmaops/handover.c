/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * handover.c - the owner of a socket ends, and a child that has the socket, too, becomes the owner.
 * Unread notifications, ids and marks go on with the socket, and the new owner makes regions and
 * operations of its own.
 *
 * The first owner uses the ABI of February 2008 for ids (56 bytes, RDS_BARRIER with 32).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "pair.h"

#define N 10
#define ROUNDS 300
#define LEVEL 276

struct args_b1 {
	uint64_t cookie;
	struct vec remote;
	uint64_t local_vec, nr_local, flags, id_addr;
};

struct barrier32 {
	uint32_t daddr, hole;
	uint64_t flags, mark_addr, wait_id;
};

static uint64_t cookie;
static int gone[2];   /* its other end closes when the owner ends */
static int report[2]; /* that it went well, and who says so, from the child */
static int done[2];   /* ... that it needs the owner no longer */

static int barrier(int fd, uint64_t wait, uint64_t *mark)
{
	struct barrier32 v = {a->name[0].sin_addr.s_addr, 0, 0, (uintptr_t)mark, wait};

	return setsockopt(fd, LEVEL, OPT_BARRIER, &v, sizeof(v)) ? -errno : 0;
}

/* A write of 64 bytes with a message, of the barrier's age: its id. */
static uint64_t numbered(int fd)
{
	uint64_t id = 0;
	struct vec v = {(uintptr_t)p, 64};
	struct args_b1 args = {.cookie = cookie,
			       .remote = {0, 64},
			       .local_vec = (uintptr_t)&v,
			       .nr_local = 1,
			       .flags = F_WRITE,
			       .id_addr = (uintptr_t)&id};
	struct out o;

	out_begin(&o, &a->name[0], "id", 2);
	out_cmsg(&o, CMSG_ARGS, &args, sizeof(args));
	expect(out_send(&o, fd, 0), 2, "a write with an id");
	check(id, "its id was not stored");
	return id;
}

static void messages(unsigned n, const char *what)
{
	while (n--)
		check(agent_recv(a) > 0, "%s: its message", what);
}

static void carrier_ends(bool killed)
{
	if (killed)
		kill(getpid(), SIGKILL);
	_exit(0);
}

static void await_end(void)
{
	char c;

	close(gone[1]);
	check(read(gone[0], &c, 1) == 0, "read: %m");
}

/* ---- what the two do ---- */

static void sends_notified(int fd)
{
	struct vec v = {(uintptr_t)p, 64};
	struct op op = {.cookie = cookie,
			.flags = F_WRITE | F_NOTIFY,
			.local = &v,
			.nr_local = 1,
			.payload = "note",
			.len = 4};

	for (op.token = 1; op.token <= N; op.token++)
		expect(op_send(fd, &a->name[0], &op), 4, "a write");
}

/* No peer knows this process's memory yet. */
static void own_operation(int fd, struct box *box)
{
	struct vec v = {(uintptr_t)p, 64};
	struct op op = {.cookie = cookie, .token = 100, .local = &v, .nr_local = 1, .payload = "own", .len = 3};

	expect(AGENT(a, AGENT_FILL, .len = PAGE, .key = 77), 0, "fill");
	op.flags = F_NOTIFY;
	expect(op_send(fd, &a->name[0], &op), 3, "a read");
	expect_status(box, 100, ST_SUCCESS, "a read of the next carrier");
	expect_bytes(p, agent_memory(a, 0, 64), 64, "what was read");
}

static void inherits_notified(int fd)
{
	struct box *box = box_new(fd);
	uint64_t t;

	for (t = 1; t <= N; t++)
		expect_status(box, t, ST_SUCCESS, "write %llu of who has ended", (unsigned long long)t);
	box_empty(box, "after its notifications");
	messages(N, "a write of who has ended");
	own_operation(fd, box);
	messages(1, "an own operation");
	box_free(box);
}

static uint64_t *shown; /* ids of the owner, in memory of both */

static void sends_numbered(int fd)
{
	uint64_t mark;
	unsigned i;

	expect(barrier(fd, 0, &mark), 0, "the probe, which shows how old the program is");
	for (i = 0; i < N; i++)
		*shown = numbered(fd);
}

static void inherits_numbered(int fd)
{
	uint64_t mark = 0, id;

	expect(barrier(fd, *shown, &mark), 0, "the barrier for the last id of who has ended");
	check(mark >= *shown, "the mark: %llu, its last id: %llu", (unsigned long long)mark,
	      (unsigned long long)*shown);
	id = numbered(fd);
	check(id > *shown, "an id after %llu: %llu", (unsigned long long)*shown, (unsigned long long)id);
	expect(barrier(fd, id, &mark), 0, "the barrier for an own id");
	check(mark == id, "the mark: expected %llu, came %llu", (unsigned long long)id, (unsigned long long)mark);
}

/*
 * The owner's own thread receives what is for the child's memory, which only its helper can
 * reach.
 */
static void polls(int fd)
{
	int own = rds_bound(address(0), INIT_PORT + 1);
	struct pollfd child = {.fd = done[0], .events = POLLIN};
	double until = seconds() + deadline();
	char buf[64];

	(void)fd;
	while (poll(&child, 1, 0) == 0 && seconds() < until)
		for (unsigned i = 0; i < 100; i++)
			recv(own, buf, sizeof(buf), MSG_DONTWAIT);
	close(own);
}

static void is_written(int fd)
{
	struct sockaddr_in me = name_of(address(0), INIT_PORT);
	uint64_t region, old = 0;
	unsigned i;

	expect(get_mr(fd, p, PAGE, F_WRITE, &region), 0, "GET_MR of who does not carry");
	for (i = 0; i < ROUNDS; i++) {
		expect(AGENT(a, AGENT_FILL, .len = 64, .key = i + 1), 0, "fill");
		expect(AGENT(a, AGENT_WRITE, .len = 64, .cookie = region, .remote = i % 64 * 64, .to = me), 0,
		       "write %u", i);
		expect_bytes(p + i % 64 * 64, agent_memory(a, 0, 64), 64, "what was written, %u", i);
		expect(AGENT(a, AGENT_FADD, .flags = 1, .cookie = region, .remote = i % 64 * 64, .count = 1, .to = me),
		       0, "atomic %u", i);
		memcpy(&old, p + i % 64 * 64, sizeof(old));
		check(old == *(const uint64_t *)(const void *)agent_memory(a, 0, 8) + 1, "atomic %u: came %llu", i,
		      (unsigned long long)old);
	}
	expect(free_mr(fd, region, 0), 0, "FREE_MR");
	expect(AGENT(a, AGENT_WRITE, .len = 64, .cookie = region, .to = me), ST_REMOTE_ERROR, "a write to what was freed");
	check(write(done[1], "", 1) == 1, "write: %m");
}

/* Regions of the child's, opened with an owner that ends, and how they are afterwards. */
static uint64_t region, freed_region;

static _Atomic int sleeper_id;

static void *receives(void *fd)
{
	char buf[64];

	sleeper_id = gettid();
	recv(*(int *)fd, buf, sizeof(buf), 0);
	return NULL;
}

/* While another thread sleeps at the owner, so over more than one channel. */
static void opens(int fd)
{
	static int same;
	pthread_t sleeper;

	same = fd;
	check(!pthread_create(&sleeper, NULL, receives, &same), "pthread_create");
	test_until(sleeper_id);
	check(test_sleeps(sleeper_id), "a receive that returns");
	expect(get_mr(fd, p, PAGE, F_WRITE, &region), 0, "GET_MR of who does not carry");
	expect(get_mr(fd, p, PAGE, F_WRITE, &freed_region), 0, "GET_MR of another one");
	expect(free_mr(fd, freed_region, 0), 0, "its FREE_MR");
	check(write(done[1], "", 1) == 1, "write: %m");
	await_end();
}

static void reached(int fd, const char *when)
{
	struct sockaddr_in me = name_of(address(0), INIT_PORT);

	(void)fd;
	expect(AGENT(a, AGENT_FILL, .len = 64, .key = 9), 0, "fill");
	expect(AGENT(a, AGENT_WRITE, .len = 64, .cookie = region, .remote = 128, .to = me), 0, "a write %s", when);
	expect_bytes(p + 128, agent_memory(a, 0, 64), 64, "what was written");
	expect(AGENT(a, AGENT_WRITE, .len = 64, .cookie = freed_region, .to = me), ST_REMOTE_ERROR,
	       "a write to what was freed before");
}

static void ends_when_told(int fd)
{
	char c;

	(void)fd;
	check(read(done[0], &c, 1) == 1, "read: %m");
}

/* The owner frees the other one's: who has opened it cannot know. */
static void frees_and_ends(int fd)
{
	ends_when_told(fd);
	expect(free_mr(fd, *shown, 0), 0, "FREE_MR of another process's");
}

static void has_none(int fd)
{
	char c = 0;

	expect(get_mr(fd, p, PAGE, F_WRITE, shown), 0, "GET_MR of who does not carry");
	check(write(done[1], &c, 1) == 1, "write: %m");
	await_end();
	expect(setsockopt(fd, SOL_RDS, OPT_RECVERR, &(int){1}, sizeof(int)), 0, "a call on the socket");
	expect(AGENT(a, AGENT_WRITE, .len = 64, .cookie = *shown, .to = name_of(address(0), INIT_PORT)),
	       ST_REMOTE_ERROR, "a write to what was freed by another process");
}

/* This process owns the socket now. */
static void keeps_region(int fd)
{
	opens(fd);
	expect(setsockopt(fd, SOL_RDS, OPT_RECVERR, &(int){1}, sizeof(int)), 0, "a call on the socket");
	reached(fd, "when its process carries the socket");
	expect(free_mr(fd, region, 0), 0, "FREE_MR");
	expect(AGENT(a, AGENT_WRITE, .len = 64, .cookie = region, .to = name_of(address(0), INIT_PORT)),
	       ST_REMOTE_ERROR, "a write to what was freed");
}

static void frees_first(int fd)
{
	opens(fd);
	expect(free_mr(fd, region, 0), 0, "FREE_MR, the first call after the carrier's end");
	expect(AGENT(a, AGENT_WRITE, .len = 64, .cookie = region, .to = name_of(address(0), INIT_PORT)),
	       ST_REMOTE_ERROR, "a write to what was freed");
	expect(free_mr(fd, region, 0), -EINVAL, "FREE_MR once more");
}

/* Another child is quicker, and owns it. */
static void keeps_region_away(int fd)
{
	int first[2], status;
	char c;
	pid_t pid;

	check(pipe(first) == 0, "pipe: %m");
	pid = fork();
	if (!pid) {
		close(first[0]);
		await_end();
		expect(setsockopt(fd, SOL_RDS, OPT_RECVERR, &(int){1}, sizeof(int)), 0, "a call of the first");
		check(write(first[1], "", 1) == 1, "write: %m");
		check(read(done[0], &c, 1) == 1, "read: %m"); /* it owns the socket */
		_exit(0);
	}
	close(first[1]);
	opens(fd);
	check(read(first[0], &c, 1) == 1, "the first has failed");
	expect(setsockopt(fd, SOL_RDS, OPT_RECVERR, &(int){1}, sizeof(int)), 0, "a call on the socket");
	reached(fd, "when another process carries the socket");
	expect(free_mr(fd, region, 0), 0, "FREE_MR");
	expect(AGENT(a, AGENT_WRITE, .len = 64, .cookie = region, .to = name_of(address(0), INIT_PORT)),
	       ST_REMOTE_ERROR, "a write to what was freed");
	check(write(done[1], "", 1) == 1, "write: %m");
	check(waitpid(pid, &status, 0) == pid && !status, "the first: %x", (unsigned)status);
}

/* ---- cases ---- */

static bool from_the_beginning(void (*inherits)(int fd))
{
	return inherits == is_written || inherits == keeps_region || inherits == keeps_region_away ||
	       inherits == has_none || inherits == frees_first;
}

static void carrier(void (*sends)(int fd), void (*inherits)(int fd), bool killed)
{
	int fd = rds_bound(address(0), INIT_PORT);

	p = pages(PAGE);
	pattern(p, PAGE, 5);
	if (!fork()) {
		pid_t me = getpid();

		if (!from_the_beginning(inherits))
			await_end();
		inherits(fd);
		check(write(report[1], &me, sizeof(me)) == sizeof(me), "write: %m");
		_exit(0);
	}
	sends(fd);
	carrier_ends(killed);
}

static void handed_over(void (*sends)(int fd), void (*inherits)(int fd), bool killed)
{
	int status;
	pid_t pid;

	check(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, "prctl: %m");
	a = agent_start(0);
	cookie = agent_region(a, 0, PAGE, F_WRITE);
	shown = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shown != MAP_FAILED, "mmap: %m");
	check(pipe(gone) == 0 && pipe(report) == 0 && pipe(done) == 0, "pipe: %m");
	pid = fork();
	check(pid >= 0, "fork: %m");
	if (!pid)
		carrier(sends, inherits, killed);
	close(gone[1]);
	close(report[1]);
	check(waitpid(pid, &status, 0) == pid, "waitpid: %m");
	check(killed ? WIFSIGNALED(status) : WIFEXITED(status) && !WEXITSTATUS(status), "the carrier: %x",
	      (unsigned)status);
	check(read(report[0], &pid, sizeof(pid)) == sizeof(pid), "the child has failed");
	/* the next case wants its port */
	check(waitpid(pid, &status, 0) == pid && status == 0, "the child's end: %x", (unsigned)status);
	close(gone[0]);
	close(report[0]);
	close(done[0]);
	close(done[1]);
	agent_end(a);
}

static void notifications(void)
{
	handed_over(sends_notified, inherits_notified, false);
}

static void marks(void)
{
	handed_over(sends_numbered, inherits_numbered, false);
}

static void marks_of_the_killed(void)
{
	handed_over(sends_numbered, inherits_numbered, true);
}

static void busy_carrier(void)
{
	handed_over(polls, is_written, false);
}

static void regions(void)
{
	handed_over(ends_when_told, keeps_region, false);
}

static void regions_killed(void)
{
	handed_over(ends_when_told, keeps_region, true);
}

static void regions_away(void)
{
	handed_over(ends_when_told, keeps_region_away, false);
}

static void regions_freed_first(void)
{
	handed_over(ends_when_told, frees_first, false);
}

static void regions_freed_first_killed(void)
{
	handed_over(ends_when_told, frees_first, true);
}

static void regions_freed(void)
{
	handed_over(frees_and_ends, has_none, false);
}

static void regions_freed_killed(void)
{
	handed_over(frees_and_ends, has_none, true);
}

static void regions_away_killed(void)
{
	handed_over(ends_when_told, keeps_region_away, true);
}

static const struct test_case cases[] = {{"busy-carrier", busy_carrier},
					 {"regions", regions},
					 {"regions-of-the-killed", regions_killed},
					 {"regions-elsewhere", regions_away},
					 {"regions-of-the-killed-elsewhere", regions_away_killed},
					 {"regions-freed-first", regions_freed_first},
					 {"regions-freed-first-of-the-killed", regions_freed_first_killed},
					 {"regions-freed", regions_freed},
					 {"regions-freed-by-the-killed", regions_freed_killed},
					 {"notifications", notifications},
					 {"marks", marks},
					 {"marks-of-the-killed", marks_of_the_killed}};

int main(int argc, char **argv)
{
	return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
