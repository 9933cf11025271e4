/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * stream.c - messages one way, from one or many senders to one receiver.
 *
 * With a window the programs themselves keep a bounded number in flight: the receiver acknowledges
 * every half window to each sender (a message of its own), a sender that has used its window up
 * waits for the next one.  Without a window only the socket buffers bound it.  The receiver
 * measures: from the first timed message to the end mark (one sender), or over the middle of the
 * run (many senders, which do not begin and end at the same instant).
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define ACK_SIZE ((unsigned)sizeof(struct message))
#define CLOCK_EVERY 64

struct flow {
	struct sock *s;
	const struct options *o;
	unsigned in_flight;
};

static void await_ack(struct flow *f)
{
	sock_recv(f->s);
	if (sock_message(f->s)->kind != KIND_ACK)
		die("expected an acknowledgement, got kind %u", sock_message(f->s)->kind);
}

static void send_one(struct flow *f, enum kind kind, uint64_t seq)
{
	if (f->o->window && f->in_flight == f->o->window) {
		await_ack(f);
		f->in_flight -= f->o->window / 2;
	}
	sock_send(f->s, f->o->size, kind, f->o->id, seq);
	f->in_flight++;
}

/* Everything sent so far has been received when the mark's own acknowledgement is back. */
static void flush(struct flow *f, enum kind kind)
{
	unsigned acks = f->o->window ? f->in_flight / (f->o->window / 2) : 0;

	sock_send(f->s, f->o->size, kind, f->o->id, 0);
	while (acks--)
		await_ack(f);
	await_ack(f);
	f->in_flight = 0;
}

static void sender(const struct options *o)
{
	/*
	 * Look at the clock every so many messages; seldom enough to be free, often enough to end
	 * in time.
	 */
	const unsigned stride = o->size >= 65536 ? 1 : o->size >= 4096 ? 8 : 64;
	struct sock s;
	struct flow f = {&s, o, 0};
	uint64_t seq, end;
	struct usage u;

	sock_open(&s, o);
	s.next = ACK_SIZE;
	sock_await_peer(&s);
	for (seq = 0; seq < 256; seq++)
		send_one(&f, KIND_WARM, seq);
	flush(&f, KIND_HELLO);
	say("ready sndbuf=%d", sock_buffer(s.fd, SO_SNDBUF));
	hear("go", NULL, 0);

	u = usage_now();
	end = u.wall + (uint64_t)(o->seconds * 1e9);
	for (seq = 0; seq % stride || now_ns() < end; seq++)
		send_one(&f, KIND_DATA, seq);
	flush(&f, KIND_END);
	u = usage_since(u);
	say("result msgs=%llu ns=%llu cpu_ns=%llu", (unsigned long long)seq, (unsigned long long)u.wall,
	    (unsigned long long)u.cpu);
	sock_close(&s);
}

struct tally {
	uint64_t *next[KIND_ACK + 1]; /* per kind and sender: number expected next */
	uint64_t *since;	      /* per sender: messages since the last acknowledgement */
	uint64_t msgs;
	uint64_t begin, end; /* many senders: the part of the run that is counted */
	uint64_t middle;     /* messages in that part, in blocks of CLOCK_EVERY */
	struct usage u;
	unsigned ended;
};

static void tally_init(struct tally *t, unsigned senders)
{
	unsigned k;

	memset(t, 0, sizeof(*t));
	t->since = calloc(senders, sizeof(uint64_t));
	for (k = 0; k <= KIND_ACK; k++)
		t->next[k] = calloc(senders, sizeof(uint64_t));
	for (k = 0; k <= KIND_ACK; k++)
		if (!t->next[k] || !t->since)
			die("no memory");
}

static void tally_free(struct tally *t)
{
	unsigned k;

	for (k = 0; k <= KIND_ACK; k++)
		free(t->next[k]);
	free(t->since);
}

static void count(struct tally *t, const struct options *o)
{
	uint64_t now;

	if (!t->msgs) {
		t->u = usage_now();
		t->begin = t->u.wall + (uint64_t)(o->seconds * 0.1e9);
		t->end = t->u.wall + (uint64_t)(o->seconds * 0.9e9);
	}
	t->msgs++;
	if (o->senders == 1 || t->msgs % CLOCK_EVERY)
		return;
	now = now_ns();
	if (now >= t->begin && now < t->end)
		t->middle += CLOCK_EVERY;
}

static void receive_one(struct sock *s, const struct options *o, struct tally *t)
{
	const struct message *m = sock_message(s);
	unsigned n = sock_recv(s), kind = m->kind, id = m->id;
	uint64_t seq = m->seq, *next;
	bool data = kind == KIND_WARM || kind == KIND_DATA;

	if (n != o->size || id >= o->senders || kind < KIND_WARM || kind > KIND_HELLO)
		die("message of %u bytes, sender %u, kind %u", n, id, kind);
	next = &t->next[kind][id];
	if (data && seq != (*next)++)
		die("sender %u: message %llu instead of %llu", id, (unsigned long long)seq,
		    (unsigned long long)*next - 1);
	if (kind == KIND_DATA)
		count(t, o);
	if (data && o->window && ++t->since[id] == o->window / 2) {
		sock_send(s, ACK_SIZE, KIND_ACK, id, seq);
		t->since[id] = 0;
	}
	if (!data) { /* HELLO after warming up, END: the sender waits for this one */
		t->ended += kind == KIND_END;
		t->since[id] = 0;
		sock_send(s, ACK_SIZE, KIND_ACK, id, seq);
	}
}

static void receiver(const struct options *o)
{
	struct tally t;
	struct sock s;
	double ns;

	tally_init(&t, o->senders);
	sock_open(&s, o);
	sock_announce(&s);
	say("ready rcvbuf=%d", sock_buffer(s.fd, SO_RCVBUF));
	while (t.ended < o->senders)
		receive_one(&s, o, &t);
	t.u = usage_since(t.u);
	ns = o->senders == 1 ? (double)t.u.wall : (double)(t.end - t.begin);
	say("result msgs=%llu timed=%llu ns=%.0f cpu_ns=%llu", (unsigned long long)t.msgs,
	    (unsigned long long)(o->senders == 1 ? t.msgs : t.middle), ns, (unsigned long long)t.u.cpu);
	tally_free(&t);
	sock_close(&s);
}

void run_stream(const struct options *o)
{
	if (o->window == 1)
		die("a window has at least 2 messages");
	if (!o->senders || o->senders > 65536)
		die("1 to 65536 senders");
	if (strcmp(o->role, "receiver") == 0)
		receiver(o);
	else
		sender(o);
}
