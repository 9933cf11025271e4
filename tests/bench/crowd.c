/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * crowd.c - many processes, each of which sends to all others and receives from all others.
 *
 * One event loop on one non-blocking socket.  First each pair has one message in each direction,
 * which is first contact, then so many more.  Each message's number is checked, which is that of
 * its pair, so that none is lost, doubled, or out of order.
 */
#include "bench.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH 32 /* messages between two looks for input */

struct party {
	struct members *m;
	struct member *me;
	struct sock s;
	uint64_t *sent, *came; /* messages to and from each other one */
	uint64_t goal;	       /* of each */
	uint64_t unsent;
	unsigned next; /* whose turn it is */
};

/*
 * Some messages, to one after the other, until one has no room; how the last one went.  To try all
 * others then costs AF_UNIX most of its speed: whoever is full has not run for a while.
 */
static enum sent send_some(struct party *p)
{
	enum sent last = SENT;
	unsigned done = 0, to;

	while (p->unsent && done < BATCH && last == SENT) {
		to = p->next;
		if (to != p->me->number && p->sent[to] < p->goal) {
			last = member_send(&p->s, &p->m->all[to], p->me->number, p->sent[to]);
			p->sent[to] += last == SENT;
			p->unsent -= last == SENT;
			done++;
		}
		if (last != SENT_NO_ROOM)
			p->next = (to + 1) % p->m->n;
	}
	return last;
}

static void receive_all(struct party *p)
{
	const struct message *msg = sock_message(&p->s);

	while (member_receive(&p->s)) {
		if (msg->id >= p->m->n || msg->id == p->me->number || msg->seq != p->came[msg->id])
			die("member %u: message %llu of member %u, of whom %llu have come", p->me->number,
			    (unsigned long long)msg->seq, msg->id,
			    (unsigned long long)(msg->id < p->m->n ? p->came[msg->id] : 0));
		p->came[msg->id]++;
		p->me->got++;
	}
}

/*
 * Nothing tells a socket of many destinations when one of them takes more.  So whoever finds one
 * full waits for input, and goes on after a millisecond.
 */
static void exchange(struct party *p, unsigned each)
{
	const uint64_t others = p->m->n - 1;
	struct pollfd pfd = {.fd = p->s.fd};
	enum sent last = SENT;

	p->goal += each;
	p->unsent = each * others;
	while (p->unsent || p->me->got < p->goal * others) {
		pfd.events = POLLIN | (p->unsent && last != SENT_PEER_FULL ? POLLOUT : 0);
		if (poll(&pfd, 1, p->unsent && last == SENT_PEER_FULL ? 1 : -1) < 0)
			die("poll: %s", strerror(errno));
		if (pfd.revents & POLLIN)
			receive_all(p);
		if (p->unsent && (last == SENT_PEER_FULL || pfd.revents & POLLOUT))
			last = send_some(p);
	}
}

static void party(struct members *m, struct member *me)
{
	struct party p = {.m = m, .me = me, .next = (me->number + 1) % m->n};

	p.sent = calloc(m->n, sizeof(*p.sent));
	p.came = calloc(m->n, sizeof(*p.came));
	if (!p.sent || !p.came)
		die("no memory");
	member_open(me, &p.s, m->o);
	member_wait(me);
	exchange(&p, 1);
	member_wait(me);
	exchange(&p, m->o->window);
	member_wait(me);
	sock_close(&p.s);
}

static void all_come(struct members *m, uint64_t goal)
{
	uint64_t missing = goal * m->n * (m->n - 1);
	char text[80];
	unsigned i;

	if (members_come(m))
		return;
	for (i = 0; i < m->n; i++)
		missing -= m->all[i].got;
	snprintf(text, sizeof(text), "%llu of %llu messages are missing", (unsigned long long)missing,
		 (unsigned long long)(goal * m->n * (m->n - 1)));
	members_fail(m, text);
}

/* All exchange messages until each has `goal` of each other; how long it took. */
static uint64_t part(struct members *m, uint64_t goal)
{
	uint64_t begin;

	hear("go", NULL, 0);
	begin = now_ns();
	members_go(m);
	all_come(m, goal);
	return now_ns() - begin;
}

/* Of the one that has most of them, standard input and output included. */
static unsigned most_descriptors(const struct members *m)
{
	unsigned i, n, most = 0;

	for (i = 0; i < m->n; i++) {
		n = descriptors_of(m->all[i].pid);
		most = n > most ? n : most;
	}
	return most;
}

void run_crowd(const struct options *o)
{
	uint64_t begin = now_ns(), ready, contact, rate;
	struct members m;

	members_begin(&m, o, party);
	all_come(&m, 0);
	ready = now_ns() - begin;
	say("ready ns=%llu kib=%llu", (unsigned long long)ready, (unsigned long long)members_kib(&m));
	contact = part(&m, 1);
	say("contact ns=%llu kib=%llu", (unsigned long long)contact, (unsigned long long)members_kib(&m));
	rate = part(&m, 1 + o->window);
	say("rate ns=%llu kib=%llu fds=%u", (unsigned long long)rate, (unsigned long long)members_kib(&m),
	    most_descriptors(&m));
	hear("go", NULL, 0);
	members_go(&m);
	members_end(&m);
	say("result start_ns=%llu contact_ns=%llu rate_ns=%llu", (unsigned long long)members_cpu_ns(&m, 0),
	    (unsigned long long)members_cpu_ns(&m, 1), (unsigned long long)members_cpu_ns(&m, 2));
}
