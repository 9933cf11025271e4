/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * busy.c [-l] [CASE...] - a peer that writes all the time neither holds up FREE_MR with INVALIDATE
 * nor gets past it.
 *
 * Three parts: the owner has a region and receives; the writer has DEPTH writes under way, of LEN
 * bytes with a message, by turns to the owner's region and to the one of the freer; the freer makes
 * a region, lets the writer write to it, frees it, and fills the memory.  From then on nothing may
 * change it: not what was under way, and not what is sent with the dead key.
 *
 *	same-socket	the freer is another thread of the owner, on its socket
 *	other-socket	the same on a socket of its own
 *	other-program	the freer is a process of its own
 *
 * The writer is a process of its own; with -l all are threads of this one.  The parts share the
 * board and nothing else; processes are started before the first socket.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "rdma.h"

#define PORT 4400 /* the owner's, the freer's, the writer's */
#define LEN 69632 /* more than a piece: fetched, where that is possible */
#define DEPTH 8
#define ROUNDS 200 /* RDMAOPS_FREES: fewer of them */
/* of the freer, by turns: what comes late is still seen after the next round has begun */
#define AREAS 4
#define BOUND 30.0 /* seconds for all of it: no measure, only a time-out */

enum { OWNER, FREER, WRITER, PARTS };

struct board {
	_Atomic uint64_t steady;	     /* the owner's cookie */
	/* of the freer, from 1 on, times 2; and 1 when FREE_MR has returned */
	_Atomic uint64_t round;
	/* of the freer's regions; stands before the round does */
	uint64_t cookie[ROUNDS + 1];
	_Atomic unsigned hits[ROUNDS + 1];   /* writes to it that succeeded */
	/* of those that were sent when FREE_MR had returned: all fail */
	_Atomic unsigned misses[ROUNDS + 1];
	_Atomic bool freed_all, written_all;
	_Atomic uint64_t writes;
	double longest; /* FREE_MR */
};

static struct board *board;
static struct sockaddr_in name[PARTS];
static int owners_socket;
static bool shares_socket;
static unsigned rounds = ROUNDS;
static int over; /* each part writes a byte when it has ended */

/* ---- receiving ---- */

/* Not all that is there: there may always be more. */
static unsigned take_some(struct box *b)
{
	unsigned i, n = 0;

	for (i = 0; i < 64 && box_pump(b); i++)
		for (; b->letters; n++) {
			struct letter l = box_letter(b);

			check(l.len == 3 && memcmp(l.body, "imm", 3) == 0, "a message of %zu bytes", l.len);
			free(l.body);
		}
	return n;
}

/* The rest, after the last write: a message for each that succeeded, and none for the others. */
static void take_rest(struct box *b, uint64_t have, bool owners, bool freers)
{
	uint64_t want = owners ? atomic_load(&board->writes) / 2 : 0;
	double since = seconds();
	unsigned i;

	for (i = 1; freers && i <= rounds; i++)
		want += atomic_load(&board->hits[i]);
	while ((have += take_some(b)) < want) {
		waits(&since, "for %llu messages, came %llu", (unsigned long long)want, (unsigned long long)have);
		box_wait(b, 100);
	}
	expect(have, want, "messages");
	box_empty(b, "at the end");
	box_free(b);
}

/* ---- the owner ---- */

static void own(void)
{
	unsigned char *mem = pages(LEN);
	struct box *b = box_new(owners_socket);
	uint64_t cookie, have = 0;

	expect(get_mr(owners_socket, mem, LEN, F_WRITE, &cookie), 0, "GET_MR of the owner");
	atomic_store(&board->steady, cookie);
	while (!atomic_load(&board->written_all)) {
		box_wait(b, 100);
		have += take_some(b);
	}
	take_rest(b, have, true, shares_socket);
	expect(free_mr(owners_socket, cookie, F_INVALIDATE), 0, "FREE_MR of the owner");
	munmap(mem - PAGE, LEN + 2 * PAGE);
}

/* ---- the writer ---- */

struct sent {
	unsigned round; /* 0: to the owner */
	bool late;	/* FREE_MR had returned */
};

static void send_one(int fd, const unsigned char *data, uint64_t token, struct sent *s)
{
	uint64_t now = atomic_load(&board->round);
	struct vec v = {(uintptr_t)data, LEN};
	struct op op = {
		.flags = F_WRITE | F_NOTIFY, .token = token, .local = &v, .nr_local = 1, .payload = "imm", .len = 3};

	s->round = token % 2 ? (unsigned)(now / 2) : 0;
	s->late = now % 2;
	op.cookie = s->round ? board->cookie[s->round] : atomic_load(&board->steady);
	expect(op_send(fd, &name[s->round ? FREER : OWNER], &op), 3, "write number %llu", (unsigned long long)token);
}

static void judge(const struct sent *s, int status, uint64_t token)
{
	if (!s->round) {
		expect(status, ST_SUCCESS, "write number %llu, to a region that stays", (unsigned long long)token);
	} else if (s->late) {
		expect(status, ST_REMOTE_ERROR, "write number %llu, sent after FREE_MR number %u returned",
		       (unsigned long long)token, s->round);
		atomic_fetch_add(&board->misses[s->round], 1);
	} else if (status == ST_SUCCESS) {
		atomic_fetch_add(&board->hits[s->round], 1);
	} else {
		expect(status, ST_REMOTE_ERROR, "write number %llu, while FREE_MR number %u runs",
		       (unsigned long long)token, s->round);
	}
}

static void write_on(void)
{
	int fd = rds_bound(name[WRITER].sin_addr.s_addr, ntohs(name[WRITER].sin_port));
	struct sent sent[DEPTH];
	struct box *b = box_new(fd);
	unsigned char *data = pages(LEN);
	uint64_t token = 0, done = 0;

	pattern(data, LEN, 1);
	while (!atomic_load(&board->steady) || !atomic_load(&board->round))
		usleep(1000);
	while (!atomic_load(&board->freed_all) || done < token) {
		if (!atomic_load(&board->freed_all)) {
			token++;
			send_one(fd, data, token, &sent[token % DEPTH]);
			if (token - done < DEPTH)
				continue;
		}
		done++;
		judge(&sent[done % DEPTH], box_status(b, done), done);
	}
	box_empty(b, "at the writer's end");
	atomic_store(&board->writes, done);
	atomic_store(&board->written_all, true);
	close(fd);
	box_free(b);
	munmap(data - PAGE, LEN + 2 * PAGE);
}

/* ---- the freer ---- */

static struct box *own_box; /* NULL: the owner receives for this part */
static uint64_t received;

static void receive(void)
{
	if (own_box)
		received += take_some(own_box);
	usleep(100);
}

static void await_count(_Atomic unsigned *count, unsigned want)
{
	while (atomic_load(count) < want)
		receive();
}

static void filled(const unsigned char *mem, unsigned char with, unsigned round)
{
	unsigned i;

	for (i = 0; i < LEN; i++)
		check(mem[i] == with, "byte %u has changed after FREE_MR number %u returned", i, round);
}

static void free_one(int fd, unsigned round, unsigned char *mem)
{
	double start, took;

	expect(get_mr(fd, mem, LEN, F_WRITE, &board->cookie[round]), 0, "GET_MR number %u", round);
	atomic_store(&board->round, 2 * round);
	if (round % 4) /* else it is freed when the first write is on its way, or before */
		await_count(&board->hits[round], round % 4);
	start = seconds();
	expect(free_mr(fd, board->cookie[round], F_INVALIDATE), 0, "FREE_MR number %u", round);
	took = seconds() - start;
	memset(mem, (unsigned char)round, LEN);
	if (took > board->longest)
		board->longest = took;
	atomic_store(&board->round, 2 * round + 1);
	/*
	 * The writer takes its notifications in order: then nothing from before is under way any
	 * more.
	 */
	await_count(&board->misses[round], DEPTH);
	filled(mem, (unsigned char)round, round);
}

static void free_all(void)
{
	int fd = shares_socket ? owners_socket : rds_bound(name[FREER].sin_addr.s_addr, ntohs(name[FREER].sin_port));
	unsigned char *mem = pages(AREAS * LEN);
	unsigned round;

	own_box = shares_socket ? NULL : box_new(fd);
	received = 0;
	memset(mem, 0, AREAS * LEN);
	while (!atomic_load(&board->steady))
		usleep(1000);
	for (round = 1; round <= rounds; round++) {
		unsigned char *at = mem + round % AREAS * LEN;

		if (round > AREAS)
			filled(at, (unsigned char)(round - AREAS), round - AREAS);
		free_one(fd, round, at);
	}
	atomic_store(&board->freed_all, true);
	while (!atomic_load(&board->written_all))
		receive();
	for (round = rounds + 1 - AREAS; round <= rounds; round++)
		filled(mem + round % AREAS * LEN, (unsigned char)round, round);
	if (own_box) {
		take_rest(own_box, received, false, true);
		close(fd);
	}
	munmap(mem - PAGE, AREAS * LEN + 2 * PAGE);
}

/* ---- all of them ---- */

struct part {
	void (*run)(void);
	pid_t pid;
	pthread_t thread;
};

static void *run_part(void *arg)
{
	struct part *p = arg;

	p->run();
	check(write(over, "", 1) == 1, "write: %m");
	return NULL;
}

static void start(struct part *p, bool process)
{
	if (!process) {
		check(pthread_create(&p->thread, NULL, run_part, p) == 0, "pthread_create");
		return;
	}
	fflush(NULL);
	p->pid = fork();
	check(p->pid >= 0, "fork: %m");
	if (p->pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	run_part(p);
	_exit(0);
}

static void too_late(double bound)
{
	uint64_t round = atomic_load(&board->round);

	test_late("not over within %.0f s: round %llu of %u, FREE_MR has%s returned, %u writes succeeded, %u failed "
		  "since",
		  bound, (unsigned long long)round / 2, rounds, round % 2 ? "" : " not",
		  atomic_load(&board->hits[round / 2]), atomic_load(&board->misses[round / 2]));
}

static void ended(struct part *p, int flags)
{
	int status = 0;

	if (p->pid && waitpid(p->pid, &status, flags) == p->pid) {
		p->pid = 0;
		check(status == 0, "a part failed: %x", (unsigned)status);
	}
}

/* Each part ends in time; one that fails ends its process. */
static void await_parts(int fd, struct part *parts)
{
	double bound = BOUND * test_slow(), until = seconds() + bound;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	unsigned n = 0, i;
	char byte;

	while (n < PARTS) {
		if (poll(&p, 1, 200) == 1 && read(fd, &byte, 1) == 1)
			n++;
		for (i = 0; i < PARTS; i++)
			ended(&parts[i], WNOHANG);
		if (seconds() > until)
			too_late(bound);
	}
	for (i = 0; i < PARTS; i++) {
		ended(&parts[i], 0);
		if (parts[i].thread)
			check(pthread_join(parts[i].thread, NULL) == 0, "pthread_join");
	}
}

static void all(bool one_socket, bool freer_apart)
{
	struct part parts[PARTS] = {[OWNER] = {.run = own}, [FREER] = {.run = free_all}, [WRITER] = {.run = write_on}};
	unsigned i;
	int ends[2];

	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(board != MAP_FAILED && pipe(ends) == 0, "%m");
	over = ends[1];
	shares_socket = one_socket;
	for (i = 0; i < PARTS; i++)
		name[i] = name_of(address(i == WRITER ? 1 : i == FREER && freer_apart ? 2 : 0), PORT + i);
	if (one_socket)
		name[FREER] = name[OWNER];
	start(&parts[WRITER], !same_process);
	if (freer_apart)
		start(&parts[FREER], !same_process);
	owners_socket = rds_bound(name[OWNER].sin_addr.s_addr, ntohs(name[OWNER].sin_port));
	start(&parts[OWNER], false);
	if (!freer_apart)
		start(&parts[FREER], false);
	await_parts(ends[0], parts);
	printf("%llu writes; the longest FREE_MR took %.2f ms\n", (unsigned long long)board->writes,
	       board->longest * 1000);
	close(owners_socket);
	close(ends[0]);
	close(ends[1]);
	munmap(board, sizeof(*board));
}

static void same_socket(void)
{
	all(true, false);
}

static void other_socket(void)
{
	all(false, false);
}

static void other_program(void)
{
	all(false, true);
}

static const struct test_case cases[] = {
	{"same-socket", same_socket},
	{"other-socket", other_socket},
	{"other-program", other_program},
};

int main(int argc, char **argv)
{
	const char *frees = getenv("RDMAOPS_FREES");

	if (frees)
		rounds = (unsigned)strtoul(frees, NULL, 10);
	check(rounds > AREAS && rounds <= ROUNDS, "RDMAOPS_FREES=%s", frees);
	return cases_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
