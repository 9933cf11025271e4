/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * clients.c - one server and many client processes, all of which send it a message at once and wait
 * for the answer.
 *
 * Whoever has no answer in time was not served, which is a figure and not a fault.
 */
#include "bench.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static void await(const struct sock *s, short events, int ms)
{
	struct pollfd p = {.fd = s->fd, .events = events};

	if (poll(&p, 1, ms) < 0)
		die("poll: %s", strerror(errno));
}

/* Those who ask may be gone before they are answered: the server goes on. */
static void serve(struct members *m, struct member *me, struct sock *s, uint64_t end)
{
	const struct message *msg = sock_message(s);
	unsigned id;

	while (me->got < m->n - 1 && now_ns() < end) {
		await(s, POLLIN, 20);
		while (member_receive(s)) {
			id = msg->id;
			if (!id || id >= m->n || msg->seq != 1)
				die("message %llu of client %u", (unsigned long long)msg->seq, id);
			while (member_send(s, &m->all[id], 0, 2) != SENT && now_ns() < end)
				await(s, 0, 1);
			me->got++;
		}
	}
}

static void ask(struct members *m, struct member *me, struct sock *s, uint64_t end)
{
	while (member_send(s, &m->all[0], me->number, 1) != SENT)
		if (now_ns() < end)
			await(s, 0, 1);
		else
			return;
	while (!me->got && now_ns() < end) {
		await(s, POLLIN, (int)((end - now_ns()) / 1000000) + 1);
		me->got = member_receive(s);
	}
	if (!me->got)
		return;
	if (sock_message(s)->id != 0 || sock_message(s)->seq != 2)
		die("client %u has an answer that is none", me->number);
	me->got = now_ns();
}

/* The first of them is the server. */
static void server_or_client(struct members *m, struct member *me)
{
	struct sock s;
	uint64_t end;

	member_open(me, &s, m->o);
	member_wait(me);
	end = now_ns() + (uint64_t)(m->o->seconds * 1e9);
	(me->number ? ask : serve)(m, me, &s, end);
	member_wait(me);
	sock_close(&s);
}

static void all_come(struct members *m)
{
	if (!members_come(m))
		members_fail(m, "some processes do not end their part");
}

void run_clients(const struct options *o)
{
	uint64_t begin, last = 0;
	unsigned i, served = 0, fds;
	struct members m;

	members_begin(&m, o, server_or_client);
	all_come(&m);
	say("ready");
	hear("go", NULL, 0);
	begin = now_ns();
	members_go(&m);
	all_come(&m);
	fds = descriptors_of(m.all[0].pid);
	for (i = 1; i < m.n; i++) {
		served += m.all[i].got != 0;
		last = m.all[i].got > last ? m.all[i].got : last;
	}
	members_go(&m);
	members_end(&m);
	say("result served=%u ns=%llu fds=%u cpu_ns=%llu", served, (unsigned long long)(last ? last - begin : 0), fds,
	    (unsigned long long)members_cpu_ns(&m, 1));
}
