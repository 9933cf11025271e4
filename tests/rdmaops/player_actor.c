/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player_actor.c - what an actor does: as an owner it grants its slots and takes them back, as a writer it uses them, as a
 * socket it receives; everything that comes is compared with the board.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "player.h"

#define MAGIC 0x72647370
#define BODY_SIZE_MAX 8192

void actor_fail(const struct actor *a, const char *fmt, ...)
{
	static const char *const modes[] = {"calm", "cancel", "kill", "drop"};
	double now = seconds();
	va_list ap;
	unsigned i;

	fflush(stdout);
	fprintf(stderr, "player: actor %u, life %u, after %llu operations of its own: ", a->id, a->life,
		(unsigned long long)board->ops[a->id]);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n    replay: --seed %llu --mode %s --actors %u --quota %llu\n", (unsigned long long)seed,
		modes[mode], actors, (unsigned long long)quota);
	for (i = 0; i < FLIGHTS; i++)
		if (a->flight[i].token)
			fprintf(stderr,
				"    under way: token %llx, kind %d to actor %u, slot %u, generation %u, %.1f s old\n",
				(unsigned long long)a->flight[i].token, a->flight[i].what, a->flight[i].to,
				a->flight[i].slot, a->flight[i].gen, now - a->flight[i].since);
	_exit(1);
}

static uint64_t rnd(struct actor *a)
{
	return a->rng = mix(a->rng);
}

/* ---- a life begins ---- */

static void clear_connections(struct actor *a)
{
	memset(a->seq_out, 0, sizeof(a->seq_out));
	memset(a->zeros_out, 0, sizeof(a->zeros_out));
	memset(a->hello, 0, sizeof(a->hello));
	a->life = atomic_load(&board->life[a->id]);
	a->tokens = ((uint64_t)a->life & 0xff) << 56 | (uint64_t)(a->id + 1) << 48;
}

/* As a writer: what an earlier life left open may have happened or not. */
void actor_take_over(struct actor *a)
{
	unsigned o, i, e;

	for (o = 0; o < actors; o++)
		for (i = 0; i < SLOTS; i++) {
			struct slot *s = &board->slot[o][i];

			if (atomic_load(&s->state) != GRANTED || s->writer != a->id)
				continue;
			for (e = 0; e < LOG_MAX; e++) {
				uint32_t open = OPEN;

				atomic_compare_exchange_strong(&s->log[e].outcome, &open, UNSURE);
				open = OPEN;
				atomic_compare_exchange_strong(&s->digit[e], &open, UNSURE);
			}
			memset(&a->grant[o][i], 0, sizeof(a->grant[o][i]));
			atomic_store(&s->state, RELEASED);
		}
}

struct actor *actor_new(unsigned id)
{
	struct actor *a = calloc(1, sizeof(*a));
	unsigned i;

	check(a, "memory");
	a->id = id;
	a->req.payload = malloc(sizeof(struct header) + 65536);
	for (i = 0; i < SLOTS; i++)
		a->mem[i] = pages(SLOT_BYTES(i));
	a->olds = pages(OLDS * 8);
	clear_connections(a);
	a->rng = mix(seed * 1000003 + id * 7919 + a->life * 104729ull);
	wire->open(a);
	return a;
}

/* ---- as an owner ---- */

static uint64_t region_flags(struct actor *a)
{
	uint64_t r = rnd(a);

	return (r % 8 ? F_WRITE : 0) | (r >> 8) % 8 / 7 * F_USE_ONCE | (r >> 16) % 2 * F_INVALIDATE;
}

static void head(struct actor *a, struct request *r, unsigned to)
{
	r->to = to;
	r->cmsg = 0;
	r->head = (struct header){.magic = MAGIC, .from = a->id, .life = a->life};
	r->len = 0;
}

static void body(struct actor *a, struct request *r, size_t len)
{
	r->head.body = (uint32_t)len;
	r->head.key = rnd(a);
	r->len = sizeof(r->head) + len;
	pattern(r->payload + sizeof(r->head), len, r->head.key);
}

/* Numbers are given when it is sent: a message that had to wait may have been overtaken. */
static int send_request(struct actor *a, struct request *r)
{
	if (r->len) {
		r->head.seq = a->seq_out[r->to];
		r->head.zeros = a->zeros_out[r->to];
		memcpy(r->payload, &r->head, sizeof(r->head));
	}
	return wire->send(a, r);
}

static bool busy(int rc)
{
	return rc == -EAGAIN || rc == -ENOBUFS;
}

static void sent(struct actor *a, const struct request *r)
{
	if (r->head.never)
		return;
	if (r->len)
		a->seq_out[r->to]++;
	else if (!(r->cmsg && (r->args.flags | r->atomic.flags) & F_SILENT))
		a->zeros_out[r->to]++;
	else
		return;
	if (mode == CALM)
		atomic_fetch_add(&board->sent[a->id][r->to], 1);
}

static void grant_slot(struct actor *a, unsigned i)
{
	static struct request r;
	struct slot *s = &board->slot[a->id][i];
	uint64_t flags = region_flags(a), cookie = 0;
	unsigned how = rnd(a) % 4, writer = rnd(a) % actors;
	int rc;

	if (!r.payload)
		r.payload = malloc(sizeof(struct header) + 65536);
	s->gen++;
	s->writer = writer;
	s->flags = (uint32_t)flags;
	s->life = a->life;
	s->base = rnd(a) % (POOL - SLOT_MAX);
	memcpy(a->mem[i], pool + s->base, SLOT_BYTES(i));
	memset(a->mem[i], 0, 8);
	memcpy(s->word, a->mem[i], sizeof(s->word));
	atomic_store(&s->n, 0);
	atomic_store(&s->digits, 0);
	memset(s->log, 0, sizeof(s->log));
	memset((void *)s->digit, 0, sizeof(s->digit));
	head(a, &r, writer);
	r.head.hello = 1;
	r.head.slot = i;
	r.head.gen = s->gen;
	memset(&r.args, 0, sizeof(r.args));
	memset(&r.atomic, 0, sizeof(r.atomic));
	if (how < 3) {
		rc = wire->get_mr(a, a->mem[i], SLOT_BYTES(i), flags, &cookie, how == 1);
		if (rc || !(uint32_t)cookie)
			actor_fail(a, "GET_MR of %zu bytes: expected a cookie, came %d, %llx", SLOT_BYTES(i), rc,
				   (unsigned long long)cookie);
	}
	if (how >= 2) {
		body(a, &r, rnd(a) % 100);
		r.cmsg = how == 2 ? CMSG_DEST : CMSG_MAP;
		r.dest = cookie;
		r.map = (struct get_mr){{(uintptr_t)a->mem[i], SLOT_BYTES(i)}, (uintptr_t)&cookie, flags};
		rc = send_request(a, &r);
		if (rc && !busy(rc))
			actor_fail(a, "a message with %s: expected 0, came %d", how == 2 ? "RDMA_DEST" : "RDMA_MAP",
				   rc);
		if (rc && how == 3)
			return; /* the region is gone with the message: later */
		if (!rc)
			sent(a, &r);
		if (!(uint32_t)cookie)
			actor_fail(a, "RDMA_MAP stored the cookie %llx", (unsigned long long)cookie);
	}
	s->cookie = cookie;
	atomic_store(&s->state, GRANTED);
	atomic_fetch_add(&board->progress, 1);
}

static void free_slot(struct actor *a, unsigned i)
{
	struct slot *s = &board->slot[a->id][i];
	uint64_t flags = mode != CALM || rnd(a) % 2 ? F_INVALIDATE : 0;
	int rc = wire->free_mr(a, s->cookie, flags), want = 0;

	if (s->life != a->life || (s->flags & F_USE_ONCE && mode == CALM))
		want = -EINVAL; /* gone with the socket, or with its one use */
	if (rc != want && !(s->life == a->life && s->flags & F_USE_ONCE && mode != CALM && rc == -EINVAL))
		actor_fail(a, "FREE_MR of slot %u (flags %x, life %u): expected %d, came %d", i, s->flags, s->life,
			   want, rc);
	if (mode != CALM || rnd(a) % 8 == 0) {
		rc = wire->free_mr(a, 0, 0);
		if (rc)
			actor_fail(a, "FREE_MR of cookie 0: expected 0, came %d", rc);
		flags = F_INVALIDATE;
	}
	if (flags && mode != KILL && rnd(a) % 2)
		atomic_store(&s->stale, s->cookie);
}

static void take_back(struct actor *a, unsigned i)
{
	struct slot *s = &board->slot[a->id][i];
	uint64_t count;
	const char *why;

	if (mode == CALM && s->flags & F_USE_ONCE && a->final[i] != s->gen)
		return;				  /* its last message ends the region, and has not come yet */
	if (mode == KILL && s->life != a->life) { /* region and memory went with the process */
		atomic_store(&s->state, IDLE);
		return;
	}
	free_slot(a, i);
	why = slot_wrong(s, DATA, a->mem[i] + DATA, SLOT_BYTES(i) - DATA, atomic_load(&s->n), slot_done(s));
	if (why)
		actor_fail(a, "slot %u, generation %u, back from actor %u after %u writes: %s", i, s->gen, s->writer,
			   s->n, why);
	memcpy(&count, a->mem[i], 8);
	why = count_wrong(s, count, atomic_load(&s->digits), false);
	if (why)
		actor_fail(a, "slot %u, generation %u, back from actor %u: %s", i, s->gen, s->writer, why);
	if (memcmp(a->mem[i] + 8, &s->word[1], DATA - 8))
		actor_fail(a, "slot %u, generation %u, back from actor %u: the words of its atomics are wrong", i,
			   s->gen, s->writer);
	atomic_store(&s->state, IDLE);
	atomic_fetch_add(&board->progress, 1);
}

/* ---- as a receiver ---- */

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
		/* also if it was sent to a process of which we had not yet noticed that it is another */
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
		actor_fail(a, "a damaged message from actor %u: %zu bytes, from %u, body %u", in->from, in->len, h.from,
			   h.body);
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

static bool receive(struct actor *a)
{
	struct arrival in;
	bool any = false;
	unsigned i;

	for (i = 0; i < 64 && wire->recv(a, &in); i++) {
		any = true;
		while (in.notes) /* newest first */
			noticed(a, &in.note[--in.notes]);
		if (in.letter)
			received(a, &in);
	}
	return any;
}

/* ---- as a writer ---- */

static bool try_send(struct actor *a)
{
	struct flight *f = NULL;
	unsigned i;
	int rc;

	if (a->next.token) { /* before it is sent: the answer may come at once */
		for (i = 0; a->flight[i].token; i++)
			;
		f = &a->flight[i];
		*f = a->next;
		f->since = seconds();
		f->cancels = a->cancels[f->to];
		f->proven = a->proven[f->to] == f->life + 1;
	}
	rc = send_request(a, &a->req);
	if (rc && !busy(rc))
		actor_fail(a, "sendmsg to actor %u, cmsg %d: expected success, EAGAIN or ENOBUFS, came %d (%s)",
			   a->req.to, a->req.cmsg, rc, strerror(-rc));
	a->pending = rc != 0;
	if (rc) {
		if (f)
			f->token = 0;
		return false;
	}
	sent(a, &a->req);
	a->flights += f != NULL;
	atomic_fetch_add(&board->ops[a->id], 1);
	atomic_fetch_add(&board->progress, 1);
	return true;
}

static void begin_request(struct actor *a, unsigned to)
{
	memset(&a->next, 0, sizeof(a->next));
	memset(&a->req.args, 0, sizeof(a->req.args));
	memset(&a->req.atomic, 0, sizeof(a->req.atomic));
	head(a, &a->req, to);
	a->next.to = to;
	a->next.life = atomic_load(&board->life[to]);
}

static void plain(struct actor *a)
{
	uint64_t r = rnd(a);

	begin_request(a, r % actors);
	r >>= 8;
	if (r % 8)
		body(a, &a->req, (r >> 8) % (r % 32 == 1 ? 60000 : r % 4 ? 200 : BODY_SIZE_MAX));
}

static uint32_t length(struct actor *a, uint32_t most)
{
	uint64_t r = rnd(a);
	uint32_t len;

	switch (r % 16) {
	case 0 ... 6:
		len = 1 + (uint32_t)(r >> 8) % 64;
		break;
	case 7 ... 11:
		len = 1 + (uint32_t)(r >> 8) % 4200;
		break;
	case 12:
		len = PAGE - 1 + (uint32_t)(r >> 8) % 3;
		break;
	case 15:
		len = 1 + (uint32_t)(r >> 8) % most;
		break;
	default:
		len = 1 + (uint32_t)(r >> 8) % 20000;
	}
	return len > most ? most : len;
}

static void args(struct actor *a, uint64_t cookie, uint64_t remote, uint64_t flags, unsigned n)
{
	a->req.cmsg = CMSG_ARGS;
	a->req.args = (struct rdma_args){.cookie = cookie,
					 .remote = {remote, vec_bytes(a->req.vec, n)},
					 .local_vec = (uintptr_t)a->req.vec,
					 .nr_local = n,
					 .flags = flags | (rnd(a) % 4 ? 0 : F_FENCE)};
	if (flags & F_NOTIFY)
		a->req.args.token = a->next.token = ++a->tokens;
}

/* A key that nobody gave, one that was freed, or an address behind the region: costs itself alone. */
static void bogus(struct actor *a, unsigned to, uint64_t cookie, size_t behind)
{
	uint64_t r = rnd(a), stale = atomic_load(&board->slot[to][r % SLOTS].stale);
	size_t len = 1 + (r >> 8) % 300;

	begin_request(a, to);
	a->next.what = BOGUS;
	if (!cookie || r % 3 == 0) {
		cookie = stale && r % 2 ? stale : (r >> 20 | 1);
		behind = 0;
	}
	a->req.vec[0] = (struct vec){(uintptr_t)pool + (r >> 12) % (POOL - 300), len};
	args(a, cookie, behind ? behind - (r >> 40) % len : 0, F_WRITE | F_NOTIFY, 1);
	a->req.head.never = 1;
	if (r >> 50 & 1)
		body(a, &a->req, 10);
	else
		a->req.args.flags |= F_SILENT; /* an empty message has no mark that it must not come */
}

static void atomic_op(struct actor *a, struct slot *s, bool count)
{
	struct atomic72 *t = &a->req.atomic;
	uint64_t r = rnd(a), old, x = rnd(a), y = rnd(a);
	unsigned w = 1 + r % (WORDS - 1);

	/* one that was canceled may still be written: none is used again soon */
	a->next.old = &a->olds[a->tokens % OLDS];
	*a->next.old = ~0ull;
	*t = (struct atomic72){.cookie = s->cookie,
			       .local_addr = (uintptr_t)a->next.old,
			       .flags = F_NOTIFY,
			       .token = a->next.token = ++a->tokens};
	a->req.as_vendor = r >> 8 & 1;
	a->next.what = count ? COUNT : SWAP;
	if (count) {
		a->req.cmsg = CMSG_FADD;
		a->next.entry = atomic_load(&s->digits);
		t->u[0] = 1ull << 2 * a->next.entry;
		atomic_fetch_add(&s->digits, 1);
	} else {
		t->remote_addr = 8 * w;
		a->next.want = old = s->word[w];
		if (r >> 9 & 1) {
			a->req.cmsg = CMSG_MASKED_CSWP;
			a->req.as_vendor = false;
			t->u[0] = r >> 10 & 1 ? old : x;
			t->u[1] = y;
			t->u[2] = x;
			t->u[3] = ~y ^ x << 7;
			if (((old ^ t->u[0]) & t->u[2]) == 0)
				s->word[w] = (old & ~t->u[3]) | (t->u[1] & t->u[3]);
		} else if (r >> 10 & 1) {
			a->req.cmsg = CMSG_FADD;
			t->u[0] = x;
			s->word[w] = old + x;
		} else {
			a->req.cmsg = CMSG_CSWP;
			t->u[0] = r >> 11 & 1 ? old : x;
			t->u[1] = y;
			if (old == t->u[0])
				s->word[w] = y;
		}
	}
	a->req.vendor = (struct atomic56){t->cookie,
					  t->local_addr,
					  t->remote_addr,
					  a->req.cmsg == CMSG_CSWP ? t->u[1] : t->u[0],
					  a->req.cmsg == CMSG_CSWP ? t->u[0] : 0,
					  t->flags,
					  t->token};
}

static void read_op(struct actor *a, struct slot *s, uint32_t most, uint64_t flags)
{
	static size_t part[PIECES_MAX];
	struct flight *f = &a->next;
	unsigned char *at;
	unsigned i, n;

	f->what = READ;
	f->len = length(a, most);
	f->off = DATA + rnd(a) % (most - f->len + 1);
	f->key = rnd(a);
	f->entry = atomic_load(&s->n);
	n = pieces(f->key, f->len, part);
	f->buf = at = malloc(f->len + (n + 1) * GAP);
	check(at, "memory");
	memset(at, 0xa5, f->len + (n + 1) * GAP);
	for (i = 0; i < n; i++) {
		at += GAP;
		a->req.vec[i] = (struct vec){(uintptr_t)at, part[i]};
		at += part[i];
	}
	args(a, s->cookie, f->off, flags | F_NOTIFY, n);
}

/* Is on the board before it is sent. */
static void write_op(struct actor *a, struct slot *s, uint32_t most, uint64_t flags)
{
	unsigned i = atomic_load(&s->n), n;
	struct entry *e = &s->log[i];

	e->len = length(a, most);
	e->off = (uint32_t)(DATA + rnd(a) % (most - e->len + 1));
	e->key = rnd(a);
	a->next.what = WRITE;
	a->next.entry = i;
	write_vecs(e, a->req.vec, &n);
	args(a, s->cookie, e->off, flags | F_WRITE, n);
	if (!(flags & F_NOTIFY))
		atomic_store(&e->outcome, mode == CALM ? OPEN : UNSURE);
	a->req.head.entry = i + 1;
	atomic_fetch_add(&s->n, 1);
}

/* One operation on a slot that is granted to us. */
static void use(struct actor *a, unsigned o, unsigned i, struct grant *g)
{
	struct slot *s = &board->slot[o][i];
	uint64_t r = rnd(a), flags = F_NOTIFY;
	uint32_t most = (uint32_t)(SLOT_BYTES(i) - DATA);
	bool last = ++g->ops >= g->target, once = s->flags & F_USE_ONCE;
	unsigned kind = r % 100;

	begin_request(a, o);
	a->next.slot = a->req.head.slot = i;
	a->next.gen = a->req.head.gen = s->gen;
	a->next.life = s->life;
	if (kind < 15 && !(once && last)) {
		atomic_op(a, s, mode != CALM || r >> 8 & 1);
		flags = 0;
	} else if (kind < 45 || (g->reading && (kind & 1 || once))) {
		read_op(a, s, most, once ? F_FENCE : 0);
		g->reading++;
	} else if (g->reading) { /* no write beside a read: their order is not promised */
		g->ops--;
		return plain(a);
	} else {
		if (!last && r >> 9 & 1)
			flags = 0;
		write_op(a, s, most, flags | (once ? F_FENCE : 0)); /* its message ends the region */
	}
	g->untold = a->next.what == WRITE && !flags;
	g->flying += a->next.token != 0;
	g->closing |= last;
	if (once && !last) {
		a->req.args.flags |= F_SILENT;
		a->req.atomic.flags |= F_SILENT;
		a->req.vendor.flags |= F_SILENT;
	} else if (once || r >> 12 & 3) {
		a->req.head.final = once;
		body(a, &a->req, (r >> 16) % (r >> 14 & 7 ? 100 : BODY_SIZE_MAX));
	} else if (r >> 15 & 1) {
		a->req.args.flags |= F_SILENT;
		a->req.atomic.flags |= F_SILENT;
		a->req.vendor.flags |= F_SILENT;
	}
}

static bool give_back(struct actor *a, struct slot *s, struct grant *g)
{
	unsigned i;

	(void)a;
	for (i = 0; i < LOG_MAX; i++) {
		uint32_t open = OPEN;

		atomic_compare_exchange_strong(&s->log[i].outcome, &open, mode == CALM ? DONE : UNSURE);
		open = OPEN;
		atomic_compare_exchange_strong(&s->digit[i], &open, mode == CALM ? DONE : UNSURE);
	}
	g->begun = false;
	atomic_store(&s->state, RELEASED);
	atomic_fetch_add(&board->progress, 1);
	return true;
}

/* Finds a slot of ours and uses it, or gives it back; false: there is none. */
static bool work(struct actor *a, bool finishing)
{
	unsigned first = (unsigned)(rnd(a) % (actors * SLOTS)), k;

	for (k = 0; k < actors * SLOTS; k++) {
		unsigned n = (first + k) % (actors * SLOTS), o = n / SLOTS, i = n % SLOTS;
		struct slot *s = &board->slot[o][i];
		struct grant *g = &a->grant[o][i];

		if (atomic_load(&s->state) != GRANTED || s->writer != a->id)
			continue;
		if (g->gen != s->gen || !g->begun)
			*g = (struct grant){.gen = s->gen, .begun = true, .target = 1 + rnd(a) % 20};
		if (a->hello[o][i].gen == s->gen && a->hello[o][i].cookie != s->cookie && s->life == board->life[o] &&
		    mode == CALM)
			actor_fail(a, "the cookie of actor %u's slot %u: expected %llx, came %llx", o, i,
				   (unsigned long long)s->cookie, (unsigned long long)a->hello[o][i].cookie);
		if (s->life != atomic_load(&board->life[o]) && mode != CALM)
			g->closing = true;
		if (finishing && !(s->flags & F_USE_ONCE && mode == CALM))
			g->closing = true;
		if (g->closing && g->flying)
			continue;
		if (g->closing && !(g->untold && mode == CALM))
			return give_back(a, s, g);
		if (g->closing)
			g->target = g->ops + 1; /* one more, to be told of all before it */
		if (a->flights >= FLIGHTS)
			continue;
		if (!g->closing && !(s->flags & F_USE_ONCE) && rnd(a) % 64 == 0) {
			bogus(a, o, s->cookie, SLOT_BYTES(i));
			a->next.life = s->life;
		} else {
			use(a, o, i, g);
		}
		try_send(a);
		return true;
	}
	return false;
}

/* ---- disturbances ---- */

static void socket_again(struct actor *a)
{
	unsigned i;

	atomic_fetch_add(&board->life[a->id], 1);
	wire->close(a);
	actor_take_over(a);
	for (i = 0; i < FLIGHTS; i++)
		a->flight[i].token = 0; /* their buffers are left alone */
	a->flights = 0;
	a->pending = false;
	a->olds = pages(OLDS * 8);
	memset(a->grant, 0, sizeof(a->grant));
	clear_connections(a);
	wire->open(a);
}

static void disturb(struct actor *a)
{
	uint64_t r = rnd(a);
	unsigned to = (r >> 16) % actors;
	int rc;

	if (r % 100 == 0) {
		a->cancels[to]++;
		rc = wire->cancel(a, to);
		if (rc)
			actor_fail(a, "RDS_CANCEL_SENT_TO: expected 0, came %d", rc);
	} else if (r % 1500 == 1) {
		socket_again(a);
	}
}

/* ---- one step ---- */

static bool all(const _Atomic uint32_t *flag)
{
	unsigned i;

	for (i = 0; i < actors; i++)
		if (!atomic_load(&flag[i]))
			return false;
	return true;
}

static bool own_slots(struct actor *a, bool finishing)
{
	bool any = false;
	unsigned i;

	for (i = 0; i < SLOTS; i++) {
		struct slot *s = &board->slot[a->id][i];

		if (atomic_load(&s->state) == RELEASED) {
			take_back(a, i);
			any |= atomic_load(&s->state) == IDLE;
		} else if (atomic_load(&s->state) == IDLE && !finishing) {
			grant_slot(a, i);
			any |= atomic_load(&s->state) == GRANTED;
		}
	}
	return any;
}

static void look_at_age(struct actor *a)
{
	double now = seconds();
	unsigned i;

	for (i = 0; i < FLIGHTS; i++)
		if (a->flight[i].token && now - a->flight[i].since > patience)
			actor_fail(a, "token %llx, kind %d to actor %u: its notification did not come within %.0f s",
				   (unsigned long long)a->flight[i].token, a->flight[i].what, a->flight[i].to,
				   patience);
}

bool actor_step(struct actor *a)
{
	bool enough = atomic_load(&board->ops[a->id]) >= quota, finishing = enough && all(board->reached);
	bool any = receive(a);

	if (enough)
		atomic_store(&board->reached[a->id], 1);
	any |= own_slots(a, finishing);
	if (a->flights && rnd(a) % 64 == 0)
		look_at_age(a);
	if (a->pending)
		return try_send(a) || any;
	if (mode == CANCEL && !enough)
		disturb(a);
	if (rnd(a) % 100 < 15 && !enough) {
		plain(a);
		return try_send(a) || any;
	}
	if (rnd(a) % 100 < 2 && !enough && a->flights < FLIGHTS) {
		bogus(a, rnd(a) % actors, 0, 0);
		return try_send(a) || any;
	}
	return work(a, finishing) || any;
}

bool actor_ready(struct actor *a)
{
	unsigned o, i;

	if (!all(board->reached) || a->flights || a->pending)
		return false;
	for (o = 0; o < actors; o++)
		for (i = 0; i < SLOTS; i++)
			if (atomic_load(&board->slot[o][i].state) != IDLE &&
			    (o == a->id || board->slot[o][i].writer == a->id))
				return false;
	return true;
}

/* Everybody is ready: in calm weather every message that was sent must come, then nothing more. */
void actor_last_look(struct actor *a)
{
	double until = seconds() + patience;
	unsigned from;

	for (from = 0; from < actors && mode == CALM; from++)
		while (board->received[from][a->id] != board->sent[from][a->id]) {
			if (board->received[from][a->id] > board->sent[from][a->id] || seconds() > until)
				actor_fail(a, "actor %u sent %llu messages, %llu came", from,
					   (unsigned long long)board->sent[from][a->id],
					   (unsigned long long)board->received[from][a->id]);
			if (!receive(a))
				wire->wait(&a, 1);
		}
	receive(a);
}
