/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * play.c - one sequence: the seed alone chooses the next step, the process that makes it and its
 * arguments; and the checks at the end.  The steps: acts.c, traffic.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "play.h"

struct model model;
unsigned long steps_made, late_ports;

static uint64_t seed, state;
static unsigned step;
uint32_t next_id;
static jmp_buf over;
bool busy[PLACES];
static char said[200]; /* the step, in words */

void failed(const char *format, ...)
{
	va_list args;
	char why[300];

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	printf("WRONG seed %llu step %u: %s: %s\n", (unsigned long long)seed, step, said, why);
	longjmp(over, 1);
}

void slowly(const char *what)
{
	printf("seed %llu step %u: %s: %s\n", (unsigned long long)seed, step, said, what);
}

unsigned dice(unsigned n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(state >> 33) % n;
}

void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(said, sizeof(said), format, args);
	va_end(args);
	if (rules.verbose)
		printf("%4u %s\n", step, said);
}

/* ---- choosing ---- */

int any_place(void)
{
	int i, n = 0, found = -1;

	for (i = 0; i < PLACES; i++)
		if (model.proc[i].lives && !busy[i] && !dice(++n))
			found = i;
	return found;
}

static unsigned living(void)
{
	unsigned i, n = 0;

	for (i = 0; i < PLACES; i++)
		n += model.proc[i].lives;
	return n;
}

int empty_place(void)
{
	int i;

	for (i = 0; i < (int)rules.procs; i++)
		if (!model.proc[i].lives)
			return i;
	return -1;
}

/* One of its descriptors, or a number that is none; -1: there is no such thing. */
int any_slot(int place, bool open)
{
	int i, n = 0, found = -1;

	for (i = 0; i < FDS; i++)
		if ((model.proc[place].fd[i] >= 0) == open && !dice(++n))
			found = i;
	return found;
}

struct sock *sock_of(int place, int slot)
{
	return &model.sock[model.proc[place].fd[slot]];
}

/* An open one, and rather one that is bound. */
int used_slot(int place)
{
	int tries, slot = any_slot(place, true);

	for (tries = 0; tries < 3 && slot >= 0 && !sock_of(place, slot)->port; tries++)
		slot = any_slot(place, true);
	return slot;
}

bool can_be_first(int sock, int place)
{
	const struct sock *sk = &model.sock[sock];

	return rules.strict || !sk->bereaved || (sk->heirs >> place & 1);
}

bool settled(int place, int slot)
{
	int sock = model.proc[place].fd[slot], i, j;
	struct answer a;

	if (can_be_first(sock, place))
		return true;
	for (i = 0; i < PLACES; i++)
		for (j = 0; model.proc[i].lives && !busy[i] && can_be_first(sock, i) && j < FDS; j++)
			if (model.proc[i].fd[j] == sock) {
				say("before place %d uses %d place %d asks for the name of %d", place, slot, i, j);
				a = crew_do(i, &(struct order){.op = NAME, .fd = FIRST_FD + j});
				expect(&a, 0, 0);
				model.sock[sock].bereaved = false;
				return true;
			}
	return false;
}

/* owners: a process that has opened a socket which others have may do it, too. */
bool may_go(int place, bool allowed, bool carriers)
{
	return allowed && living() > 1 && (carriers || !model_carries(&model, place));
}

/* ---- comparing ---- */

void expect(const struct answer *a, int result, int error)
{
	if (a->result != result || a->error != error)
		failed("%d %s instead of %d %s", a->result, strerror(a->error), result, strerror(error));
}

void arrived(int place, int slot, const struct answer *a, bool peek)
{
	int sock = model.proc[place].fd[slot];
	const char *why;

	if (a->result < 0)
		failed("%s, where %d messages should be, %u first", strerror(a->error), model.sock[sock].queued,
		       model.sock[sock].queue[0].id);
	why = model_received(&model, sock, a->id, a->result, a->value, peek);
	if (why)
		failed("message %u of %d bytes from port %d: %s", a->id, a->result, a->value, why);
	if (!a->whole)
		failed("message %u has other bytes", a->id);
}

/* ---- the whole ---- */

static const struct {
	bool (*make)(int place);
	unsigned weight;
} kinds[] = {
	{do_fork, 7},	 {do_exec, 4}, {do_leave, 3}, {do_kill, 2},  {do_open, 6}, {do_dup, 4},	    {do_close, 5},
	{do_cloexec, 2}, {do_pass, 5}, {do_take, 5},  {do_drop, 1},  {do_bind, 9}, {do_connect, 3}, {do_names, 4},
	{do_set, 4},	 {do_get, 4},  {do_send, 24}, {do_recv, 18}, {do_poll, 8}, {do_sleep, 6},   {do_kill_asleep, 1},
};

static void one_step(void)
{
	unsigned i, all = 0, n;
	int place, tries;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		all += kinds[i].weight;
	for (tries = 0; tries < 100; tries++) {
		place = any_place();
		n = dice(all);
		for (i = 0; n >= kinds[i].weight; i++)
			n -= kinds[i].weight;
		if (kinds[i].make(place))
			break;
	}
	steps_made++;
}

/* Opens and binds a socket in two processes. */
static void begin(void)
{
	step = 0;
	do_open(0);
	do_bind(0);
	do_open(1);
	do_bind(1);
}

/* Every message that was sent and not read comes out now, and no other message. */
static void read_all(void)
{
	struct answer a;
	int i, j;

	for (i = 0; i < PLACES; i++) {
		for (j = 0; model.proc[i].lives && j < FDS; j++) {
			if (model.proc[i].fd[j] < 0)
				continue;
			if (!settled(i, j))
				failed("nobody is left who could go on with %d of place %d", j, i);
			say("at the end place %d reads all from %d", i, j);
			while (sock_of(i, j)->queued) {
				a = crew_do(i, &(struct order){.op = RECV, .fd = FIRST_FD + j, .arg = 1});
				arrived(i, j, &a, false);
			}
			a = crew_do(i, &(struct order){.op = RECV, .fd = FIRST_FD + j});
			expect(&a, -1, EAGAIN);
		}
	}
}

/* All processes have ended: a new one can bind every port. */
static void all_free(void)
{
	struct order o = {.op = BIND, .fd = FIRST_FD, .arg = FIRST_PORT};
	struct answer a;

	crew_stop();
	crew_start(1);
	for (; o.arg < FIRST_PORT + PORTS; o.arg++) {
		say("port %d at the end", o.arg);
		a = crew_do(0, &(struct order){.op = OPEN, .to = FIRST_FD});
		expect(&a, FIRST_FD, 0);
		a = bind_it(0, &o, true);
		expect(&a, 0, 0);
	}
}

bool play(uint64_t this_seed)
{
	volatile bool good = false;

	seed = this_seed;
	state = seed * 2654435761u + 1;
	next_id = 0;
	memset(busy, 0, sizeof(busy));
	model_start(&model);
	model.proc[0].lives = model.proc[1].lives = true;
	if (!setjmp(over)) {
		crew_start(2);
		begin();
		for (step = 1; step <= rules.ops; step++)
			one_step();
		read_all();
		all_free();
		good = true;
	}
	crew_stop();
	return good;
}
