/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * rtt.c - round trips: the client sends one message and waits for its echo, over and over.
 *
 * The figure is the mean, time over count, because it hides nothing; the percentiles are those of
 * batches, since reading a clock for each round trip would be a good part of a fast one.
 */
#include "bench.h"

#include <string.h>

#define BATCH 32

static void round_trip(struct sock *s, unsigned size, enum kind kind, uint64_t seq)
{
	const struct message *m = sock_message(s);
	unsigned n;

	sock_send(s, size, kind, 0, seq);
	n = sock_recv(s);
	if (n != size || m->kind != kind || m->seq != seq)
		die("echo %llu: %u bytes, kind %u, number %llu", (unsigned long long)seq, n, m->kind,
		    (unsigned long long)m->seq);
}

static void client(const struct options *o)
{
	struct samples batches = {0};
	uint64_t seq, i, start, last, end;
	struct usage u;
	struct sock s;
	unsigned idle;

	sock_open(&s, o);
	idle = open_idle_sockets(o);
	sock_await_peer(&s);
	for (seq = 0, end = now_ns() + 50000000; seq < 64 || now_ns() < end; seq++)
		round_trip(&s, o->size, KIND_WARM, seq);
	say("ready idle=%u", idle);
	hear("go", NULL, 0);

	u = usage_now();
	start = last = u.wall;
	end = start + (uint64_t)(o->seconds * 1e9);
	for (seq = 0; last < end;) {
		uint64_t now;

		for (i = 0; i < BATCH; i++)
			round_trip(&s, o->size, KIND_DATA, seq++);
		now = now_ns();
		samples_add(&batches, (now - last) / BATCH);
		last = now;
	}
	u = usage_since(u);
	round_trip(&s, o->size, KIND_END, 0);
	say("result msgs=%llu ns=%llu cpu_ns=%llu p50=%llu p99=%llu", (unsigned long long)seq,
	    (unsigned long long)(last - start), (unsigned long long)u.cpu,
	    (unsigned long long)samples_percentile(&batches, 50), (unsigned long long)samples_percentile(&batches, 99));
	samples_free(&batches);
	sock_close(&s);
}

static void server(const struct options *o)
{
	const struct message *m;
	struct usage u = {0};
	uint64_t msgs = 0;
	struct sock s;
	unsigned n, kind, idle;

	sock_open(&s, o);
	idle = open_idle_sockets(o);
	m = sock_message(&s);
	sock_announce(&s);
	say("ready idle=%u", idle);
	do {
		n = sock_recv(&s);
		kind = m->kind;
		if (n != o->size)
			die("message of %u bytes", n);
		if (kind == KIND_DATA) {
			if (m->seq != msgs)
				die("message %llu instead of %llu", (unsigned long long)m->seq,
				    (unsigned long long)msgs);
			if (!msgs++)
				u = usage_now();
		}
		sock_send(&s, n, kind, m->id, m->seq);
	} while (kind != KIND_END);
	u = usage_since(u);
	say("result msgs=%llu ns=%llu cpu_ns=%llu", (unsigned long long)msgs, (unsigned long long)u.wall,
	    (unsigned long long)u.cpu);
	sock_close(&s);
}

void run_rtt(const struct options *o)
{
	if (strcmp(o->role, "server") == 0)
		server(o);
	else
		client(o);
}
