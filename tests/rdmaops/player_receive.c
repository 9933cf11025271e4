/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player_receive.c - an actor as a receiver: every notification once and with a status that has a
 * cause, every message in order, whole, and after its data.
 */
#include <stdlib.h>

#include "player.h"

static struct flight *flight_of(struct actor *a, uint64_t token)
{
	unsigned i;

	for (i = 0; i < FLIGHTS; i++)
		if (token && a->flight[i].token == token)
			return &a->flight[i];
	return NULL;
}

/* Which statuses an operation may have, from what was done to its peer. */
static bool permitted(const struct actor *a, const struct flight *f, int status)
{
	bool owner_ended = atomic_load(&board->life[f->to]) != f->life;

	switch (status) {
	case ST_SUCCESS:
		return f->what != BOGUS;
	case ST_REMOTE_ERROR:
		return f->what == BOGUS || owner_ended;
	case ST_CANCELED:
		return mode == CANCEL && a->cancels[f->to] != f->cancels;
	case ST_DROPPED:
		/*
		 * also if it was sent to a process of which we had not yet noticed that it is
		 * another
		 */
		return mode == DROP || (mode == KILL && (owner_ended || !f->proven));
	}
	return false;
}

static void check_read(struct actor *a, struct flight *f, struct slot *s)
{
	static unsigned char *got;
	static size_t part[PIECES_MAX];
	unsigned i, j, n = pieces(f->key, f->len, part);
	unsigned char *at = f->buf, *to;
	const char *why;

	if (!got)
		got = malloc(SLOT_MAX);
	for (i = 0, to = got; i <= n; i++) {
		for (j = 0; j < GAP; j++)
			if (*at++ != 0xa5)
				actor_fail(
					a,
					"token %llx: a read of %u bytes in %u vectors changed a byte next to vector %u",
					(unsigned long long)f->token, f->len, n, i);
		if (i == n)
			break;
		memcpy(to, at, part[i]);
		to += part[i];
		at += part[i];
	}
	why = slot_wrong(s, f->off, got, f->len, f->entry, mode == CALM ? ~0u : slot_done(s));
	if (why)
		actor_fail(a, "token %llx: a read from actor %u, slot %u, generation %u, %u vectors: %s",
			   (unsigned long long)f->token, f->to, f->slot, f->gen, n, why);
	free(f->buf);
}

static void check_done(struct actor *a, struct flight *f, struct slot *s)
{
	const char *why = NULL;

	if (f->what == READ)
		check_read(a, f, s);
	else if (f->what == COUNT)
		why = count_wrong(s, *f->old, f->entry, true);
	else if (f->what == SWAP && *f->old != f->want)
		actor_fail(a, "token %llx: an atomic on actor %u, slot %u: expected the old value %llx, came %llx",
			   (unsigned long long)f->token, f->to, f->slot, (unsigned long long)f->want,
			   (unsigned long long)*f->old);
	if (why)
		actor_fail(a, "token %llx: the old value of an atomic on actor %u, slot %u, generation %u: %s",
			   (unsigned long long)f->token, f->to, f->slot, f->gen, why);
}

/* Operations end in order: those before it that are not reported are done, too. */
static void before_it(struct slot *s, unsigned upto)
{
	unsigned i;

	for (i = 0; i < upto; i++) {
		uint32_t open = OPEN;

		atomic_compare_exchange_strong(&s->log[i].outcome, &open, DONE);
	}
}

static void noticed(struct actor *a, const struct notify *n)
{
	struct flight *f = flight_of(a, n->token);
	struct slot *s;
	struct grant *g;

	if (!f)
		actor_fail(a, "a notification, status %d, for token %llx, which is not under way: doubled or invented",
			   n->status, (unsigned long long)n->token);
	if (!permitted(a, f, n->status))
		actor_fail(a,
			   "token %llx, kind %d to actor %u: status %d is not permitted (peer's life then %u, now %u)",
			   (unsigned long long)n->token, f->what, f->to, n->status, f->life, board->life[f->to]);
	atomic_fetch_add(&board->notes, 1);
	atomic_fetch_add(&board->progress, 1);
	s = &board->slot[f->to][f->slot];
	g = &a->grant[f->to][f->slot];
	if (n->status)
		atomic_fetch_add(&board->failures, 1);
	if (f->what != BOGUS) {
		if (n->status == ST_SUCCESS) {
			if (mode == CALM && (f->what == WRITE || f->what == READ))
				before_it(s, f->entry);
			check_done(a, f, s);
			a->proven[f->to] = f->life + 1;
		} else {
			g->closing = true; /* its content is no longer certain */
		}
		if (f->what == WRITE)
			atomic_store(&s->log[f->entry].outcome, n->status ? UNSURE : DONE);
		else if (f->what == COUNT)
			atomic_store(&s->digit[f->entry], n->status ? UNSURE : DONE);
		g->flying--;
		g->reading -= f->what == READ;
	}
	marks_told(a, n->token, n->status);
	f->token = 0;
	a->flights--;
}

/* The message of a write: what it wrote is there. */
static void check_write(struct actor *a, const struct header *h)
{
	static unsigned char *copy;
	struct slot *s = &board->slot[a->id][h->slot];
	const struct entry *e = &s->log[h->entry - 1];
	uint32_t done;
	const char *why;

	if (s->gen != h->gen || atomic_load(&s->state) == IDLE || s->life != a->life)
		return; /* it is long back */
	if (!copy)
		copy = malloc(SLOT_MAX);
	/* what is done before the copy is in it; what is in it was logged before */
	done = slot_done(s) | 1u << (h->entry - 1) | (mode == CALM ? (1u << h->entry) - 1 : 0);
	memcpy(copy, a->mem[h->slot] + e->off, e->len);
	why = slot_wrong(s, e->off, copy, e->len, atomic_load(&s->n), done);
	if (why)
		actor_fail(a, "slot %u, generation %u: the message of actor %u's write %u is there, its data not: %s",
			   h->slot, h->gen, h->from, h->entry - 1, why);
}

static bool in_order(struct actor *a, const struct header *h)
{
	unsigned from = h->from;

	if (h->never)
		actor_fail(a, "the message of an operation with a bad key came (from actor %u)", from);
	if (mode != CALM) {
		if ((int32_t)(h->life - a->life_in[from]) < 0)
			return false;
		if (h->life == a->life_in[from] && (int32_t)(h->seq - a->seq_in[from]) < 0)
			actor_fail(a, "message %u of actor %u, life %u, came after %u: doubled or out of order", h->seq,
				   from, h->life, a->seq_in[from] - 1);
	} else if (h->seq != a->seq_in[from] || h->zeros != a->zeros_in[from]) {
		actor_fail(a, "from actor %u: expected message %u after %u empty ones, came message %u after %u", from,
			   a->seq_in[from], a->zeros_in[from], h->seq, h->zeros);
	}
	a->life_in[from] = h->life;
	a->seq_in[from] = h->seq + 1;
	return true;
}

static void cookie_came(struct actor *a, const struct header *h, uint64_t cookie)
{
	struct slot *s = &board->slot[h->from][h->slot];

	if (!(uint32_t)cookie)
		actor_fail(a, "a message with RDMA_DEST or RDMA_MAP of actor %u came without its cookie", h->from);
	if (s->gen == h->gen && atomic_load(&s->state) != IDLE && s->cookie != cookie && s->gen == h->gen)
		actor_fail(a, "the cookie of actor %u's slot %u: expected %llx, came %llx", h->from, h->slot,
			   (unsigned long long)s->cookie, (unsigned long long)cookie);
	a->hello[h->from][h->slot].gen = h->gen;
	a->hello[h->from][h->slot].cookie = cookie;
}

/* Says what there is to say: where in it a header lies, or whose body it is. */
__attribute__((noreturn)) static void damaged(struct actor *a, const struct arrival *in, const struct header *h)
{
	uint32_t magic = MAGIC;
	const unsigned char *at;
	size_t i;

	fprintf(stderr, "player: begins with");
	for (i = 0; i < 32 && i < in->len; i++)
		fprintf(stderr, " %02x", in->body[i]);
	for (i = 0; i + 4 <= in->len && memcmp(in->body + i, &magic, 4); i++)
		;
	fprintf(stderr, i + 4 <= in->len ? ", a header lies at %zu\n" : ", no header in it\n", i);
	at = in->len >= 16 ? memmem(pool, POOL, in->body, 16) : NULL;
	if (at)
		fprintf(stderr, "player: that is data of a write or a read (pool %zu)\n", (size_t)(at - pool));
	actor_fail(a, "a damaged message from actor %u: %zu bytes, from %u, body %u", in->from, in->len, h->from,
		   h->body);
}

static void received(struct actor *a, const struct arrival *in)
{
	static unsigned char *want;
	struct header h;

	atomic_fetch_add(&board->letters, 1);
	atomic_fetch_add(&board->progress, 1);
	if (in->from >= actors)
		actor_fail(a, "a message of %zu bytes from nobody", in->len);
	if (mode == CALM)
		atomic_fetch_add(&board->received[in->from][a->id], 1);
	if (in->len == 0) {
		a->zeros_in[in->from]++;
		return;
	}
	if (in->len < sizeof(h))
		actor_fail(a, "a message of %zu bytes from actor %u", in->len, in->from);
	memcpy(&h, in->body, sizeof(h));
	if (h.magic != MAGIC || h.from != in->from || in->len != sizeof(h) + h.body || h.body > 65536 ||
	    h.slot >= SLOTS || h.entry > LOG_MAX)
		damaged(a, in, &h);
	if (!want)
		want = malloc(65536);
	pattern(want, h.body, h.key);
	if (memcmp(want, in->body + sizeof(h), h.body))
		actor_fail(a, "message %u of actor %u: its %u bytes are damaged", h.seq, h.from, h.body);
	if (!in_order(a, &h))
		return;
	if (h.hello)
		cookie_came(a, &h, in->cookie);
	else if (in->cookie)
		actor_fail(a, "message %u of actor %u came with a cookie that it had not", h.seq, h.from);
	if (h.entry)
		check_write(a, &h);
	if (h.final)
		a->final[h.slot] = h.gen;
}

static void take(struct actor *a, struct arrival *in)
{
	while (in->notes) /* newest first */
		noticed(a, &in->note[--in->notes]);
	if (in->letter)
		received(a, in);
}

bool actor_receive(struct actor *a)
{
	struct arrival in;
	bool any = false;
	unsigned i;

	for (i = 0; i < 64 && wire->recv(a, &in); i++) {
		any = true;
		take(a, &in);
	}
	return any;
}

/* Notifications come before messages. */
bool actor_told(struct actor *a)
{
	struct arrival in;

	if (!wire->recv(a, &in))
		return false;
	take(a, &in);
	return !in.letter;
}
