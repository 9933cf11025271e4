// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * play.c - one sequence: what is done next, by the seed alone, and whether what came of it is what the model says.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "player.h"

struct model model;
unsigned long steps_made, late_ports;

static uint64_t seed, state;
static unsigned step;
static uint32_t next_id;
static jmp_buf over;
static bool busy[PLACES]; /* sleeps in a call: no other order for it */
static char said[200];	  /* the step, in words */

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

static unsigned dice(unsigned n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(state >> 33) % n;
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(said, sizeof(said), format, args);
	va_end(args);
	if (rules.verbose)
		printf("%4u %s\n", step, said);
}

/* ---- choosing ---- */

static int any_place(void)
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

static int empty_place(void)
{
	int i;

	for (i = 0; i < (int)rules.procs; i++)
		if (!model.proc[i].lives)
			return i;
	return -1;
}

/* One of its descriptors, or a number that is none; -1: there is no such thing. */
static int any_slot(int place, bool open)
{
	int i, n = 0, found = -1;

	for (i = 0; i < FDS; i++)
		if ((model.proc[place].fd[i] >= 0) == open && !dice(++n))
			found = i;
	return found;
}

static struct sock *sock_of(int place, int slot)
{
	return &model.sock[model.proc[place].fd[slot]];
}

/* An open one, and rather one that is bound. */
static int used_slot(int place)
{
	int tries, slot = any_slot(place, true);

	for (tries = 0; tries < 3 && slot >= 0 && !sock_of(place, slot)->port; tries++)
		slot = any_slot(place, true);
	return slot;
}

/* May a process go in this way?  One is left always. */
static bool may_go(int place, bool allowed, bool carriers)
{
	return allowed && living() > 1 && (carriers || !model_carries(&model, place));
}

/* ---- comparing ---- */

static void expect(const struct answer *a, int result, int error)
{
	if (a->result != result || a->error != error)
		failed("%d %s instead of %d %s", a->result, strerrorname_np(a->error), result, strerrorname_np(error));
}

static void arrived(int place, int slot, const struct answer *a, bool peek)
{
	int sock = model.proc[place].fd[slot];
	const char *why;

	if (a->result < 0)
		failed("%s, where %d messages should be, %u first", strerrorname_np(a->error), model.sock[sock].queued,
		       model.sock[sock].queue[0].id);
	why = model_received(&model, sock, a->id, a->result, a->value, peek);
	if (why)
		failed("message %u of %d bytes from port %d: %s", a->id, a->result, a->value, why);
	if (!a->whole)
		failed("message %u has other bytes", a->id);
}

/* ---- processes ---- */

static bool do_fork(int place)
{
	struct order o = {.op = FORK, .to = empty_place()};
	struct answer a;

	if (o.to < 0)
		return false;
	say("place %d forks place %d", place, o.to);
	a = crew_do(place, &o);
	expect(&a, 0, 0);
	crew_born(o.to, a.value);
	model_fork(&model, place, o.to);
	return true;
}

static bool do_exec(int place)
{
	struct answer a;

	if (!rules.exec || (!rules.carrier_exec && model_carries(&model, place)))
		return false;
	say("place %d execs", place);
	a = crew_do(place, &(struct order){.op = EXEC});
	expect(&a, 0, 0);
	model_exec(&model, place);
	return true;
}

static bool do_leave(int place)
{
	struct order o = {.op = LEAVE, .arg = (int)dice(2)};

	if (!may_go(place, rules.leave, rules.carrier_leave))
		return false;
	say("place %d %s", place, o.arg ? "_exits" : "exits");
	crew_tell(place, &o);
	crew_gone(place);
	model_end(&model, place);
	return true;
}

static bool do_kill(int place)
{
	if (!may_go(place, rules.kill, rules.carrier_kill))
		return false;
	say("place %d is killed", place);
	crew_kill(place);
	crew_gone(place);
	model_end(&model, place);
	return true;
}

/* ---- descriptors ---- */

static bool do_open(int place)
{
	int slot = any_slot(place, false);
	struct answer a;

	if (slot < 0 || model_new_sock(&model, place, slot) < 0)
		return false;
	say("place %d opens %d", place, slot);
	a = crew_do(place, &(struct order){.op = OPEN, .to = FIRST_FD + slot});
	expect(&a, FIRST_FD + slot, 0);
	return true;
}

static bool do_dup(int place)
{
	int slot = any_slot(place, true), to = (int)dice(FDS);
	struct answer a;

	if (slot < 0)
		return false;
	say("place %d dups %d onto %d%s", place, slot, to, model.proc[place].fd[to] >= 0 ? ", which was open" : "");
	a = crew_do(place, &(struct order){.op = DUP, .fd = FIRST_FD + slot, .to = FIRST_FD + to});
	expect(&a, FIRST_FD + to, 0);
	model_dup(&model, place, slot, to);
	return true;
}

static bool do_close(int place)
{
	int slot = any_slot(place, true);
	struct answer a;

	if (slot < 0)
		return false;
	say("place %d closes %d", place, slot);
	a = crew_do(place, &(struct order){.op = CLOSE, .fd = FIRST_FD + slot});
	expect(&a, 0, 0);
	model_close(&model, place, slot);
	return true;
}

static bool do_cloexec(int place)
{
	int slot = any_slot(place, true), on = (int)dice(2);
	struct answer a;

	if (slot < 0)
		return false;
	say("place %d close-on-exec %d: %d", place, slot, on);
	a = crew_do(place, &(struct order){.op = CLOEXEC, .fd = FIRST_FD + slot, .arg = on});
	expect(&a, 0, 0);
	model.proc[place].cloexec[slot] = on;
	return true;
}

static bool do_pass(int place)
{
	int slot = used_slot(place), to = any_place();
	struct answer a;

	if (!rules.pass || slot < 0 || model.proc[to].mails == MAIL)
		return false;
	say("place %d passes %d to place %d", place, slot, to);
	a = crew_do(place, &(struct order){.op = PASS, .fd = FIRST_FD + slot, .to = to});
	expect(&a, 1, 0);
	model_pass(&model, place, slot, to);
	return true;
}

static bool do_take(int place)
{
	int slot = any_slot(place, false), flags = dice(2) ? MSG_CMSG_CLOEXEC : 0;
	struct answer a;

	if (slot < 0 || !model.proc[place].mails)
		return false;
	say("place %d takes what was passed as %d%s", place, slot, flags ? ", close-on-exec" : "");
	a = crew_do(place, &(struct order){.op = TAKE, .to = FIRST_FD + slot, .arg = flags});
	expect(&a, FIRST_FD + slot, 0);
	model_take(&model, place, slot, flags);
	return true;
}

static bool do_drop(int place)
{
	int of = (int)dice(rules.procs);
	struct answer a;

	if (!model.proc[of].mails)
		return false;
	say("place %d drops what was passed to place %d", place, of);
	a = crew_do(place, &(struct order){.op = DROP, .to = of});
	expect(&a, 1, 0);
	model_drop(&model, of);
	return true;
}

/* ---- names ---- */

/* Where a last close is noticed by another process, a port may be taken for a moment longer. */
static struct answer bind_it(int place, const struct order *o, bool lately)
{
	struct answer a = crew_do(place, o);
	int tries;

	for (tries = 0; lately && !rules.strict && a.error == EADDRINUSE && tries < 1000; tries++) {
		late_ports += !tries;
		poll(NULL, 0, 2);
		a = crew_do(place, o);
	}
	return a;
}

static bool do_bind(int place)
{
	int slot = any_slot(place, true), port = FIRST_PORT + (int)dice(PORTS), error = 0;
	struct answer a;

	if (slot < 0)
		return false;
	if (sock_of(place, slot)->port)
		error = EINVAL;
	else if (model.owner[port - FIRST_PORT] >= 0)
		error = EADDRINUSE;
	say("place %d binds %d to %d", place, slot, port);
	a = bind_it(place, &(struct order){.op = BIND, .fd = FIRST_FD + slot, .arg = port},
		    !error && model.freed[port - FIRST_PORT]);
	expect(&a, error ? -1 : 0, error);
	if (!error)
		model_bind(&model, model.proc[place].fd[slot], port);
	return true;
}

static bool do_connect(int place)
{
	int slot = any_slot(place, true), port = FIRST_PORT + (int)dice(PORTS);
	struct answer a;

	if (slot < 0)
		return false;
	say("place %d connects %d to %d", place, slot, port);
	a = crew_do(place, &(struct order){.op = CONNECT, .fd = FIRST_FD + slot, .arg = port});
	expect(&a, 0, 0);
	sock_of(place, slot)->peer = port;
	return true;
}

static bool do_names(int place)
{
	int slot = used_slot(place);
	struct sock *sk;
	struct answer a;

	if (slot < 0)
		return false;
	sk = sock_of(place, slot);
	say("place %d asks for the names of %d", place, slot);
	a = crew_do(place, &(struct order){.op = NAME, .fd = FIRST_FD + slot});
	expect(&a, 0, 0);
	if (a.value != sk->port)
		failed("bound to %d instead of %d", a.value, sk->port);
	a = crew_do(place, &(struct order){.op = PEER, .fd = FIRST_FD + slot});
	expect(&a, sk->peer ? 0 : -1, sk->peer ? 0 : ENOTCONN);
	if (a.value != sk->peer)
		failed("connected to %d instead of %d", a.value, sk->peer);
	return true;
}

static bool do_set(int place)
{
	struct order o = {.op = SET, .way = (int)dice(OPTIONS), .arg = (int)dice(2)};
	int slot = any_slot(place, true);
	struct answer a;

	if (slot < 0)
		return false;
	if (o.way == RCVBUF)
		o.arg = 20000 + (int)dice(40000);
	if (o.way == SNDTIMEO)
		o.arg = 1 + (int)dice(100);
	o.fd = FIRST_FD + slot;
	say("place %d sets option %d of %d: %d", place, o.way, slot, o.arg);
	a = crew_do(place, &o);
	expect(&a, 0, 0);
	sock_of(place, slot)->value[o.way] = o.way == RCVBUF ? 2 * o.arg : o.arg;
	return true;
}

static bool do_get(int place)
{
	struct order o = {.op = GET, .way = (int)dice(OPTIONS)};
	int slot = any_slot(place, true), want;
	struct answer a;

	if (slot < 0)
		return false;
	want = sock_of(place, slot)->value[o.way];
	if (o.way == RCVBUF && !want)
		return false; /* what a new one has is nobody's promise */
	o.fd = FIRST_FD + slot;
	say("place %d asks for option %d of %d", place, o.way, slot);
	a = crew_do(place, &o);
	expect(&a, 0, 0);
	if (a.value != want)
		failed("%d instead of %d", a.value, want);
	return true;
}

/* ---- messages ---- */

static uint32_t some_length(void)
{
	switch (dice(12)) {
	case 0:
		return 20000 + dice(50000);
	case 1:
		return 4000 + dice(5000);
	default:
		return 4 + dice(300);
	}
}

static bool has_room(int port, uint32_t len)
{
	int owner = model.owner[port - FIRST_PORT];

	return owner < 0 || (model.sock[owner].queued < QUEUE && model.sock[owner].bytes + len < QUEUE_BYTES);
}

/* To this port, or (0) to the default peer. */
static bool send_to_port(int place, int slot, int port)
{
	struct sock *sk = sock_of(place, slot);
	struct order o = {.op = SEND, .fd = FIRST_FD + slot, .arg = port, .id = ++next_id, .len = some_length()};
	int to = port ? port : sk->peer;
	struct answer a;

	if (to && !has_room(to, o.len))
		return false;
	say("place %d sends %u, %u bytes, from %d to %d%s", place, o.id, o.len, slot, to, port ? "" : " (its peer)");
	a = crew_do(place, &o);
	if (!to || !sk->port) {
		expect(&a, -1, ENOTCONN);
		return true;
	}
	expect(&a, (int)o.len, 0);
	model_send(&model, model.proc[place].fd[slot], to, o.id, o.len);
	return true;
}

static bool do_send(int place)
{
	int slot = used_slot(place), port, i;

	if (slot < 0)
		return false;
	port = FIRST_PORT + (int)dice(PORTS);
	for (i = 0; i < 3 && model.owner[port - FIRST_PORT] < 0; i++)
		port = FIRST_PORT + (int)dice(PORTS);
	return send_to_port(place, slot, dice(4) ? port : 0);
}

static bool do_recv(int place)
{
	int slot = used_slot(place);
	struct order o = {.op = dice(5) ? RECV : PEEK, .fd = FIRST_FD + slot};
	struct answer a;

	if (slot < 0)
		return false;
	o.arg = sock_of(place, slot)->queued > 0;
	o.way = o.op == RECV && o.arg && !sock_of(place, slot)->value[NONBLOCK] && dice(2);
	say("place %d %s %d%s", place, o.op == RECV ? "receives from" : "peeks into", slot,
	    o.way ? ", and would sleep" : "");
	a = crew_do(place, &o);
	if (o.arg)
		arrived(place, slot, &a, o.op == PEEK);
	else
		expect(&a, -1, EAGAIN);
	return true;
}

static bool do_poll(int place)
{
	int slot = used_slot(place);
	struct order o = {.op = POLL, .fd = FIRST_FD + slot, .way = (int)dice(WAYS)};
	struct answer a;

	if (slot < 0)
		return false;
	o.arg = sock_of(place, slot)->queued > 0;
	say("place %d looks whether %d is readable, by %d", place, slot, o.way);
	a = crew_do(place, &o);
	expect(&a, o.arg, 0);
	return true;
}

/* ---- while one sleeps ---- */

/* Somebody else, who could send to this port. */
static int any_sender(int *slot)
{
	int place = any_place(), i;

	if (place < 0)
		return -1;
	for (i = 0; i < FDS; i++)
		if (model.proc[place].fd[i] >= 0 && sock_of(place, i)->port) {
			*slot = i;
			return place;
		}
	return -1;
}

static void in_between(void)
{
	static bool (*const steps[])(int) = {do_fork, do_exec, do_leave, do_kill, do_close, do_dup, do_open};
	int place = any_place();

	if (place >= 0)
		steps[dice(sizeof(steps) / sizeof(steps[0]))](place);
}

/* A process sleeps in a receive, or in a poll, until another one sends; in between others may come and go. */
static bool do_sleep(int place)
{
	int slot = used_slot(place), sender, from, port;
	bool by_poll = dice(3) == 0;
	struct order o = {
		.op = by_poll ? POLL : RECV, .fd = FIRST_FD + slot, .arg = 1, .way = by_poll ? (int)dice(WAYS) : 1};
	struct answer a;

	if (slot < 0 || sock_of(place, slot)->queued || !sock_of(place, slot)->port)
		return false;
	if (!by_poll && sock_of(place, slot)->value[NONBLOCK])
		return false;
	busy[place] = true;
	sender = any_sender(&from);
	if (sender < 0) {
		busy[place] = false;
		return false;
	}
	busy[sender] = true;
	port = sock_of(place, slot)->port;
	say("place %d sleeps in %s of %d", place, by_poll ? "a poll" : "a receive", slot);
	crew_tell(place, &o);
	if (dice(2))
		crew_asleep(place);
	if (!dice(3))
		in_between();
	if (!send_to_port(sender, from, port))
		failed("no room in an empty queue");
	busy[sender] = busy[place] = false;
	say("place %d is woken, %s of %d", place, by_poll ? "poll" : "receive", slot);
	a = crew_hear(place);
	if (by_poll)
		expect(&a, 1, 0);
	else
		arrived(place, slot, &a, false);
	return true;
}

/* What is killed in its sleep has taken nothing. */
static bool do_kill_asleep(int place)
{
	int slot = used_slot(place);
	struct order o = {.op = RECV, .fd = FIRST_FD + slot, .arg = 1, .way = 1};

	if (slot < 0 || sock_of(place, slot)->queued || sock_of(place, slot)->value[NONBLOCK] ||
	    !may_go(place, rules.kill, rules.carrier_kill))
		return false;
	say("place %d is killed while it sleeps in a receive of %d", place, slot);
	crew_tell(place, &o);
	if (dice(2))
		crew_asleep(place);
	crew_kill(place);
	crew_gone(place);
	model_end(&model, place);
	return true;
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

/* Two processes that have something. */
static void begin(void)
{
	step = 0;
	do_open(0);
	do_bind(0);
	do_open(1);
	do_bind(1);
}

/* Everything that has been sent and not read comes out now, and nothing more. */
static void read_all(void)
{
	struct answer a;
	int i, j;

	for (i = 0; i < PLACES; i++) {
		for (j = 0; model.proc[i].lives && j < FDS; j++) {
			if (model.proc[i].fd[j] < 0)
				continue;
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

/* Nobody has anything: one who comes now can have every port. */
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
