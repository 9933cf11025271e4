/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * traffic.c - steps of messages: sending, receiving, polling, and steps of other processes while
 * one sleeps in a call.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "play.h"

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

bool do_send(int place)
{
	int slot = used_slot(place), port, i;

	if (slot < 0 || !settled(place, slot))
		return false;
	port = FIRST_PORT + (int)dice(PORTS);
	for (i = 0; i < 3 && model.owner[port - FIRST_PORT] < 0; i++)
		port = FIRST_PORT + (int)dice(PORTS);
	return send_to_port(place, slot, dice(4) ? port : 0);
}

bool do_recv(int place)
{
	int slot = used_slot(place);
	struct order o = {.op = dice(5) ? RECV : PEEK, .fd = FIRST_FD + slot};
	struct answer a;

	if (slot < 0 || !settled(place, slot))
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

bool do_poll(int place)
{
	int slot = used_slot(place);
	struct order o = {.op = POLL, .fd = FIRST_FD + slot, .way = (int)dice(WAYS)};
	struct answer a;

	if (slot < 0 || !settled(place, slot))
		return false;
	o.arg = sock_of(place, slot)->queued > 0;
	say("place %d looks whether %d is readable, by %d", place, slot, o.way);
	a = crew_do(place, &o);
	expect(&a, o.arg, 0);
	return true;
}

/* ---- while one sleeps ---- */

/* Another process that can send; *slot: with which bound socket. */
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

/*
 * A process sleeps in a receive, or in a poll, until another one sends.  Meanwhile a third process
 * may make a step.
 */
bool do_sleep(int place)
{
	int slot = used_slot(place), sender, from, port;
	bool by_poll = dice(3) == 0;
	struct order o = {
		.op = by_poll ? POLL : RECV, .fd = FIRST_FD + slot, .arg = 1, .way = by_poll ? (int)dice(WAYS) : 1};
	struct answer a;

	if (slot < 0 || sock_of(place, slot)->queued || !sock_of(place, slot)->port)
		return false;
	if ((!by_poll && sock_of(place, slot)->value[NONBLOCK]) || !settled(place, slot))
		return false;
	busy[place] = true;
	sender = any_sender(&from);
	if (sender < 0 || !settled(sender, from)) {
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
	settled(sender, from); /* if no other process can take over, the sleeping one does */
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

/* A process that is killed in its sleep has taken no message. */
bool do_kill_asleep(int place)
{
	int slot = used_slot(place);
	struct order o = {.op = RECV, .fd = FIRST_FD + slot, .arg = 1, .way = 1};

	if (slot < 0 || sock_of(place, slot)->queued || sock_of(place, slot)->value[NONBLOCK] ||
	    !may_go(place, rules.kill, rules.carrier_kill) || !settled(place, slot) || !read_before(place))
		return false;
	say("place %d is killed while it sleeps in a receive of %d", place, slot);
	crew_tell(place, &o);
	if (dice(2))
		crew_asleep(place);
	crew_kill(place);
	crew_gone(place);
	model_killed(&model, place);
	return true;
}
