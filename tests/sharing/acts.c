/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * acts.c - steps of processes, descriptors, names and options: each function makes the step and
 * compares the result with the model.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>

#include "../slow.h"
#include "play.h"

/* ---- processes ---- */

bool do_fork(int place)
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

static bool used_before(int ending);

bool do_exec(int place)
{
	struct answer a;

	if (!rules.exec || (!rules.carrier_exec && model_carries(&model, place)) || !used_before(place))
		return false;
	say("place %d execs", place);
	a = crew_do(place, &(struct order){.op = EXEC});
	expect(&a, 0, 0);
	model_exec(&model, place);
	return true;
}

bool do_leave(int place)
{
	struct order o = {.op = LEAVE, .arg = (int)dice(2)};

	if (!may_go(place, rules.leave, rules.carrier_leave) || !used_before(place))
		return false;
	say("place %d %s", place, o.arg ? "_exits" : "exits");
	crew_tell(place, &o);
	crew_gone(place);
	model_end(&model, place);
	return true;
}

/* The place of a process that can read from the socket; *slot: with which descriptor. */
static int reader_of(int sock, int *slot)
{
	int place;

	for (place = 0; place < PLACES; place++)
		for (*slot = 0; model.proc[place].lives && !busy[place] && can_be_first(sock, place) && *slot < FDS;
		     ++*slot)
			if (model.proc[place].fd[*slot] == sock)
				return place;
	return -1;
}

/*
 * A process that ends with messages for a socket whose owner was killed can leave them only to the
 * next owner, and a borrower becomes that by making a call.  False: no process can make one.
 */
static bool used_before(int ending)
{
	struct answer a;
	int i, j, k, slot;
	bool has;

	for (i = 0; !rules.strict && i < SOCKS; i++) {
		for (has = false, j = 0; j < model.sock[i].queued; j++)
			has |= model.sock[i].queue[j].sent_by >> ending & 1;
		if (!model.sock[i].refs || !model.sock[i].bereaved || !has)
			continue;
		k = reader_of(i, &slot);
		if (k < 0)
			return false;
		say("before place %d goes place %d asks for the name of %d", ending, k, slot);
		a = crew_do(k, &(struct order){.op = NAME, .fd = FIRST_FD + slot});
		expect(&a, 0, 0);
		model.sock[i].bereaved = false;
	}
	return true;
}

/*
 * Can a process other than the victim take over?  A socket that is only under way in a mailbox may
 * end with its owner.
 */
static bool outlives(int sock, int victim)
{
	int place, slot;

	for (place = 0; place < PLACES; place++)
		for (slot = 0; place != victim && model.proc[place].lives && can_be_first(sock, place) && slot < FDS;
		     slot++)
			if (model.proc[place].fd[slot] == sock)
				return true;
	return false;
}

/*
 * Empties the queues of messages that may be lost with a process that is killed: those that it has
 * accepted for other processes, or sent a moment ago.  False: no process can read them.
 */
bool read_before(int victim)
{
	struct answer a;
	int i, j, slot;

	for (i = 0; i < SOCKS; i++) {
		if (!model.sock[i].refs || !model_concerns(&model, i, victim))
			continue;
		if (!rules.strict && (model.sock[i].had >> victim & 1) && model_shared(&model, i, victim) &&
		    !outlives(i, victim))
			return false;
		if (model.sock[i].queued && reader_of(i, &slot) < 0)
			return false;
	}
	for (i = 0; i < SOCKS; i++) {
		if (!model.sock[i].refs || !model_concerns(&model, i, victim))
			continue;
		while (model.sock[i].queued) {
			j = reader_of(i, &slot);
			say("before place %d is killed place %d reads from %d", victim, j, slot);
			a = crew_do(j, &(struct order){.op = RECV, .fd = FIRST_FD + slot, .arg = 1});
			arrived(j, slot, &a, false);
		}
	}
	return true;
}

bool do_kill(int place)
{
	if (!may_go(place, rules.kill, rules.carrier_kill) || !read_before(place))
		return false;
	say("place %d is killed", place);
	crew_kill(place);
	crew_gone(place);
	model_killed(&model, place);
	return true;
}

/* ---- descriptors ---- */

bool do_open(int place)
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

bool do_dup(int place)
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

bool do_close(int place)
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

bool do_cloexec(int place)
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

bool do_pass(int place)
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

bool do_take(int place)
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

bool do_drop(int place)
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

/* If another process notices the last close, the port may be in use for a moment longer. */
struct answer bind_it(int place, const struct order *o, bool lately)
{
	struct answer a = crew_do(place, o);
	unsigned looks = 0;

	while (lately && !rules.strict && a.error == EADDRINUSE) {
		late_ports += !looks;
		if (looks == 64)
			slowly("the port is not free yet");
		if (looks == 1000)
			test_late("a port that is free again");
		test_pause(&looks);
		a = crew_do(place, o);
	}
	return a;
}

bool do_bind(int place)
{
	int slot = any_slot(place, true), port = FIRST_PORT + (int)dice(PORTS), error = 0;
	struct answer a;

	if (slot < 0 || !settled(place, slot))
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

bool do_connect(int place)
{
	int slot = any_slot(place, true), port = FIRST_PORT + (int)dice(PORTS);
	struct answer a;

	if (slot < 0 || !settled(place, slot))
		return false;
	say("place %d connects %d to %d", place, slot, port);
	a = crew_do(place, &(struct order){.op = CONNECT, .fd = FIRST_FD + slot, .arg = port});
	expect(&a, 0, 0);
	sock_of(place, slot)->peer = port;
	return true;
}

bool do_names(int place)
{
	int slot = used_slot(place);
	struct sock *sk;
	struct answer a;

	if (slot < 0 || !settled(place, slot))
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

bool do_set(int place)
{
	struct order o = {.op = SET, .way = (int)dice(OPTIONS), .arg = (int)dice(2)};
	int slot = any_slot(place, true);
	struct answer a;

	if (slot < 0 || !settled(place, slot))
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

bool do_get(int place)
{
	struct order o = {.op = GET, .way = (int)dice(OPTIONS)};
	int slot = any_slot(place, true), want;
	struct answer a;

	if (slot < 0 || !settled(place, slot))
		return false;
	want = sock_of(place, slot)->value[o.way];
	if (o.way == RCVBUF && !want)
		return false; /* what a new one has is not specified */
	o.fd = FIRST_FD + slot;
	say("place %d asks for option %d of %d", place, o.way, slot);
	a = crew_do(place, &o);
	expect(&a, 0, 0);
	if (a.value != want)
		failed("%d instead of %d", a.value, want);
	return true;
}
