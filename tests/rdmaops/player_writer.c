/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player_writer.c - an actor as a writer: it makes messages and operations, and logs each write
 * before it is sent.
 */
#include <stdlib.h>

#include "player.h"

#define BODY_SIZE_MAX 8192

bool writer_send(struct actor *a)
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
	rc = request_send(a, &a->req);
	if (rc && !request_busy(rc))
		actor_fail(a, "sendmsg to actor %u, cmsg %d: expected success, EAGAIN or ENOBUFS, came %d (%s)",
			   a->req.to, a->req.cmsg, rc, strerror(-rc));
	a->pending = rc != 0;
	marks_sent(a, &a->req, rc != 0);
	if (rc) {
		if (f)
			f->token = 0;
		return false;
	}
	request_sent(a, &a->req);
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
	request_begin(a, &a->req, to);
	a->next.to = to;
	a->next.life = atomic_load(&board->life[to]);
}

void writer_plain(struct actor *a)
{
	uint64_t r = actor_random(a);

	begin_request(a, r % actors);
	r >>= 8;
	if (r % 8)
		request_body(a, &a->req, (r >> 8) % (r % 32 == 1 ? 60000 : r % 4 ? 200 : BODY_SIZE_MAX));
}

static uint32_t length(struct actor *a, uint32_t most)
{
	uint64_t r = actor_random(a);
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
					 .flags = flags | (actor_random(a) % 4 ? 0 : F_FENCE)};
	if (flags & F_NOTIFY)
		a->req.args.token = a->next.token = ++a->tokens;
}

/*
 * A key that was never given out, one that was freed, or an address behind the region: it costs
 * itself alone.
 */
void writer_bogus(struct actor *a, unsigned to, uint64_t cookie, size_t behind)
{
	uint64_t r = actor_random(a), stale = atomic_load(&board->slot[to][r % SLOTS].stale);
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
		request_body(a, &a->req, 10);
	else
		/* an empty message has no mark that it must not come */
		a->req.args.flags |= F_SILENT;
}

static void atomic_op(struct actor *a, struct slot *s, bool count)
{
	struct atomic72 *t = &a->req.atomic;
	uint64_t r = actor_random(a), old, x = actor_random(a), y = actor_random(a);
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
	f->off = DATA + actor_random(a) % (most - f->len + 1);
	f->key = actor_random(a);
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
	e->off = (uint32_t)(DATA + actor_random(a) % (most - e->len + 1));
	e->key = actor_random(a);
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
	uint64_t r = actor_random(a), flags = F_NOTIFY;
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
		return writer_plain(a);
	} else {
		if (!last && r >> 9 & 1)
			flags = 0;
		/* its message ends the region */
		write_op(a, s, most, flags | (once ? F_FENCE : 0));
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
		request_body(a, &a->req, (r >> 16) % (r >> 14 & 7 ? 100 : BODY_SIZE_MAX));
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
bool writer_work(struct actor *a, bool finishing)
{
	unsigned first = (unsigned)(actor_random(a) % (actors * SLOTS)), k;

	for (k = 0; k < actors * SLOTS; k++) {
		unsigned n = (first + k) % (actors * SLOTS), o = n / SLOTS, i = n % SLOTS;
		struct slot *s = &board->slot[o][i];
		struct grant *g = &a->grant[o][i];

		if (atomic_load(&s->state) != GRANTED || s->writer != a->id)
			continue;
		if (g->gen != s->gen || !g->begun)
			*g = (struct grant){.gen = s->gen, .begun = true, .target = 1 + actor_random(a) % 20};
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
			/* one more, whose notification covers all before it */
			g->target = g->ops + 1;
		if (a->flights >= FLIGHTS)
			continue;
		if (!g->closing && !(s->flags & F_USE_ONCE) && actor_random(a) % 64 == 0) {
			writer_bogus(a, o, s->cookie, SLOT_BYTES(i));
			a->next.life = s->life;
		} else {
			use(a, o, i, g);
		}
		writer_send(a);
		return true;
	}
	return false;
}
