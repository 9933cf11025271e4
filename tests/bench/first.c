/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * first.c - the first message to a peer, the connection it needs included; and many connections,
 * one message each.
 *
 * Both talk to the server of rtt.c.  A type of service has connections of its own, so that a kernel
 * that keeps its connections after a program has ended can be made to connect again.
 */
#include "bench.h"

#include <string.h>

static void there_and_back(struct sock *s, enum kind kind, uint64_t seq)
{
	unsigned n;

	sock_send(s, s->size, kind, 0, seq);
	n = sock_recv(s);
	if (n != s->size || sock_message(s)->kind != kind || sock_message(s)->seq != seq)
		die("wrong answer to message %llu", (unsigned long long)seq);
}

void run_first(const struct options *o)
{
	struct sock s;
	uint64_t t;

	sock_open(&s, o);
	sock_await_peer(&s);
	say("ready");
	hear("go", NULL, 0);
	t = now_ns();
	there_and_back(&s, KIND_WARM, 0);
	t = now_ns() - t;
	there_and_back(&s, KIND_END, 0);
	say("result ns=%llu", (unsigned long long)t);
	sock_close(&s);
}

/* As many sockets as there are types of service to use, 0 .. idle - 1: a connection each. */
void run_many(const struct options *o)
{
	struct options mine = *o;
	struct sockaddr_storage peer;
	socklen_t peerlen;
	struct sock s;

	if (!o->idle || o->idle > 256)
		die("1 to 256 connections");
	raise_limit(o->idle);
	sock_open(&s, o);
	sock_await_peer(&s);
	peer = s.peer;
	peerlen = s.peerlen;
	there_and_back(&s, KIND_HELLO, 0);
	for (mine.tos = 1; mine.tos < o->idle; mine.tos++) {
		sock_open(&s, &mine); /* the one before stays open */
		s.peer = peer;
		s.peerlen = peerlen;
		there_and_back(&s, KIND_HELLO, mine.tos);
	}
	say("ready");
	hear("go", NULL, 0);
	say("result msgs=%u", o->idle);
}
