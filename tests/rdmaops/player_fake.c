/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player_fake.c - an RDS in memory for the player's self test: all actors in one process,
 * operations done after a while and in order, and one kind of fault, now and then, if wanted.
 */
#include <errno.h>
#include <stdlib.h>

#include "player.h"

#define REGIONS 65536
#define QUEUE 256
#define EVERY 200 /* one in so many is spoilt */

enum fault {
	NONE,
	LOSE_NOTE,
	DOUBLE_NOTE,
	WRONG_STATUS,
	WRONG_BYTE,
	WRONG_READ,
	READ_TOO_FAR,
	DOUBLE_WRITE,
	LOST_WRITE,
	LATE_WRITE,
	DOUBLE_ATOMIC,
	LOSE_LETTER,
	DOUBLE_LETTER,
	SWAP_LETTERS,
	EARLY_LETTER,
	SPOIL_LETTER,
	LOSE_COOKIE,
	STALE_KEY,
	SAME_KEY_STAYS,
	BAD_DELIVERED,
	EARLY_MARK,
	LATE_MARK,
	SAME_ID,
	REFUSED_ID,
};
const char *const fake_faults[] = {"none",	    "lose-note",    "double-note",   "wrong-status", "wrong-byte",
				   "wrong-read",    "read-too-far", "double-write",  "lost-write",   "late-write",
				   "double-atomic", "lose-letter",  "double-letter", "swap-letters", "early-letter",
				   "spoil-letter",  "lose-cookie",  "stale-key",     "once-stays",   "bad-delivered",
				   "early-mark",    "late-mark",    "same-id",	     "refused-id",   NULL};

struct region {
	uint32_t key;
	unsigned owner;
	unsigned char *addr;
	size_t len;
	uint64_t flags;
	bool live;
};

struct item { /* sent, or received */
	unsigned from, to;
	size_t len;
	unsigned char *payload;
	uint64_t cookie;
	int cmsg;
	struct rdma_args args;
	struct vec *vec;
	struct atomic72 atomic;
	unsigned delay;
	uint64_t id; /* 0: none */
};

static struct region region[REGIONS];
static unsigned regions;
static struct item *sendq[ACTORS_MAX][QUEUE], *recvq[ACTORS_MAX][4 * QUEUE];
static unsigned sends[ACTORS_MAX], recvs[ACTORS_MAX];
static struct notify noteq[ACTORS_MAX][4 * QUEUE];
static unsigned notes[ACTORS_MAX];
static uint64_t last_id[ACTORS_MAX];
static unsigned still; /* so many looks nothing goes on */
static uint64_t dice = 12345;
const char *fake_fault = "none";

/* Whether this is the moment for a fault of that kind. */
static bool spoil(enum fault f)
{
	if (strcmp(fake_fault, fake_faults[f]))
		return false;
	return (dice = mix(dice)) % EVERY == 0;
}

static void item_free(struct item *it)
{
	free(it->payload);
	free(it->vec);
	free(it);
}

static void fake_open(struct actor *a)
{
	a->fd = -1;
}

static void fake_close(struct actor *a)
{
	unsigned i;

	for (i = 0; i < sends[a->id]; i++)
		item_free(sendq[a->id][i]);
	for (i = 0; i < recvs[a->id]; i++)
		item_free(recvq[a->id][i]);
	sends[a->id] = recvs[a->id] = notes[a->id] = 0;
	last_id[a->id] = 0;
	for (i = 0; i < REGIONS; i++)
		if (region[i].owner == a->id)
			region[i].live = false;
}

static int fake_get_mr(struct actor *a, void *addr, size_t len, uint64_t flags, uint64_t *cookie, bool for_dest)
{
	struct region *r = &region[++regions % REGIONS];

	(void)for_dest;
	*r = (struct region){regions, a->id, addr, len, flags, true};
	*cookie = regions;
	return 0;
}

static struct region *find(uint64_t cookie)
{
	struct region *r = &region[(uint32_t)cookie % REGIONS];

	return r->key == (uint32_t)cookie && r->key ? r : NULL;
}

static int fake_free_mr(struct actor *a, uint64_t cookie, uint64_t flags)
{
	struct region *r = find(cookie);

	(void)flags;
	if (!cookie)
		return 0;
	if (!r || r->owner != a->id || !r->live)
		return -EINVAL;
	r->live = false;
	return 0;
}

static int fake_send(struct actor *a, struct request *q)
{
	struct item *it;

	q->id = 0;
	if (sends[a->id] == QUEUE || (dice = mix(dice)) % 50 == 0) {
		q->id = strcmp(fake_fault, "refused-id") ? 0 : last_id[a->id] + 1;
		return dice & 64 ? -EAGAIN : -ENOBUFS;
	}
	it = calloc(1, sizeof(*it));
	check(it, "memory");
	*it = (struct item){
		.from = a->id, .to = q->to, .len = q->len, .cmsg = q->cmsg, .args = q->args, .atomic = q->atomic};
	it->payload = malloc(q->len + 1);
	it->vec = malloc((q->args.nr_local + 1) * sizeof(struct vec));
	check(it->payload && it->vec, "memory");
	memcpy(it->payload, q->payload, q->len);
	memcpy(it->vec, q->vec, q->args.nr_local * sizeof(struct vec));
	if (q->cmsg >= CMSG_FADD && q->as_vendor) {
		it->atomic.u[0] = q->cmsg == CMSG_CSWP ? q->vendor.compare : q->vendor.swap_add;
		it->atomic.u[1] = q->cmsg == CMSG_CSWP ? q->vendor.swap_add : 0;
		it->atomic.flags = q->vendor.flags;
	}
	if (q->cmsg == CMSG_MAP)
		fake_get_mr(a, (void *)(uintptr_t)q->map.vec.addr, q->map.vec.bytes, q->map.flags,
			    (uint64_t *)(uintptr_t)q->map.cookie_addr, false);
	if (q->cmsg == CMSG_MAP || q->cmsg == CMSG_DEST)
		it->cookie = q->cmsg == CMSG_DEST ? q->dest : *(uint64_t *)(uintptr_t)q->map.cookie_addr;
	if (q->cmsg == CMSG_ARGS && !(q->args.flags & F_SILENT))
		q->id = it->id = last_id[a->id] += spoil(SAME_ID) ? 0 : 1;
	it->delay = (dice = mix(dice)) % 4;
	sendq[a->id][sends[a->id]++] = it;
	return 0;
}

/* ---- doing it ---- */

static unsigned char *replay_at, *replay_data;
static size_t replay_len;
static unsigned replay_after;

static void replay(void)
{
	if (replay_data && replay_after-- == 0) {
		memcpy(replay_at, replay_data, replay_len);
		free(replay_data);
		replay_data = NULL;
	}
}

static void keep_for_replay(unsigned char *at, size_t len, unsigned after)
{
	if (replay_data)
		return;
	replay_data = malloc(len);
	check(replay_data, "memory");
	memcpy(replay_data, at, len);
	replay_at = at;
	replay_len = len;
	replay_after = after;
}

static void transfer(const struct item *it, unsigned char *at)
{
	bool write = it->args.flags & F_WRITE;
	size_t len = vec_bytes(it->vec, (unsigned)it->args.nr_local);
	unsigned char *was = NULL, *to = at;
	unsigned i;

	if (write && (spoil(LOST_WRITE)))
		return;
	if (write && spoil(LATE_WRITE)) {
		was = malloc(len);
		check(was, "memory");
		memcpy(was, at, len);
	}
	for (i = 0; i < it->args.nr_local; to += it->vec[i].bytes, i++)
		memcpy(write ? to : (void *)(uintptr_t)it->vec[i].addr, write ? (void *)(uintptr_t)it->vec[i].addr : to,
		       it->vec[i].bytes);
	if (was) { /* it comes only after its notification */
		keep_for_replay(at, len, 3000);
		memcpy(at, was, len);
		free(was);
	}
	if (write && spoil(WRONG_BYTE))
		at[len / 2] ^= 1;
	if (!write && spoil(WRONG_READ))
		*(unsigned char *)(uintptr_t)it->vec[0].addr ^= 1;
	if (!write && spoil(READ_TOO_FAR))
		((unsigned char *)(uintptr_t)it->vec[0].addr)[it->vec[0].bytes] ^= 1;
	if (write && (dice = mix(dice)) % 8 == 0 && strcmp(fake_fault, "double-write") == 0)
		keep_for_replay(at, len, 1 + dice % 100);
}

static void atomically(const struct item *it, unsigned char *at)
{
	const struct atomic72 *t = &it->atomic;
	unsigned times = spoil(DOUBLE_ATOMIC) ? 2 : 1;
	uint64_t old, v;

	while (times--) {
		memcpy(&old, at, 8);
		v = old;
		if (it->cmsg == CMSG_FADD)
			v = old + t->u[0];
		else if (it->cmsg == CMSG_CSWP && old == t->u[0])
			v = t->u[1];
		else if (it->cmsg == CMSG_MASKED_CSWP && ((old ^ t->u[0]) & t->u[2]) == 0)
			v = (old & ~t->u[3]) | (t->u[1] & t->u[3]);
		memcpy(at, &v, 8);
	}
	*(uint64_t *)(uintptr_t)t->local_addr = old;
}

static void note(const struct item *it, int status)
{
	bool args = it->cmsg == CMSG_ARGS;
	unsigned times = spoil(LOSE_NOTE) ? 0 : spoil(DOUBLE_NOTE) ? 2 : 1;

	if (!((args ? it->args.flags : it->atomic.flags) & F_NOTIFY))
		return;
	if (spoil(WRONG_STATUS))
		status = status ? 0 : ST_DROPPED;
	while (times--)
		noteq[it->from][notes[it->from]++] =
			(struct notify){args ? it->args.token : it->atomic.token, status, 0};
}

static void deliver(struct item *it)
{
	unsigned to = it->to;
	struct region *r = it->cmsg == CMSG_ARGS ? find(it->args.cookie) : NULL;
	struct item *twin;

	if (r && r->owner == to && r->flags & F_USE_ONCE && !spoil(SAME_KEY_STAYS))
		r->live = false;
	if (spoil(LOSE_LETTER)) {
		item_free(it);
		return;
	}
	if (spoil(SPOIL_LETTER) && it->len)
		it->payload[it->len - 1] ^= 1;
	if (spoil(LOSE_COOKIE))
		it->cookie = 0;
	recvq[to][recvs[to]++] = it;
	if (spoil(DOUBLE_LETTER)) {
		twin = calloc(1, sizeof(*twin));
		*twin = *it;
		twin->payload = malloc(it->len + 1);
		memcpy(twin->payload, it->payload, it->len);
		twin->vec = NULL;
		recvq[to][recvs[to]++] = twin;
	}
	if (recvs[to] >= 2 && spoil(SWAP_LETTERS)) {
		struct item **q = &recvq[to][recvs[to] - 2];

		if (q[0]->from == q[1]->from) {
			twin = q[0];
			q[0] = q[1];
			q[1] = twin;
		}
	}
}

/* The oldest that this actor sent. */
static void execute(unsigned from)
{
	struct item *it = sendq[from][0];
	uint64_t cookie = it->cmsg == CMSG_ARGS ? it->args.cookie : it->atomic.cookie;
	uint64_t remote = it->cmsg == CMSG_ARGS ? it->args.remote.addr : it->atomic.remote_addr;
	uint64_t len = it->cmsg == CMSG_ARGS ? it->args.remote.bytes : 8;
	uint64_t flags = it->cmsg == CMSG_ARGS ? it->args.flags : it->atomic.flags;
	bool op = it->cmsg == CMSG_ARGS || it->cmsg >= CMSG_FADD, bad = false;
	struct region *r = op ? find(cookie) : NULL;

	if (recvs[it->to] >= 3 * QUEUE || notes[from] >= 3 * QUEUE || it->delay-- > 0)
		return;
	replay();
	memmove(&sendq[from][0], &sendq[from][1], --sends[from] * sizeof(it));
	if (op) {
		bad = !r || remote > r->len || len > r->len - remote || (!r->live && !spoil(STALE_KEY));
		if (!bad && it->cmsg == CMSG_ARGS && !(it->len && sends[from] && spoil(EARLY_LETTER)))
			transfer(it, r->addr + remote);
		else if (!bad && it->cmsg == CMSG_ARGS)
			/* its data come never: the letter is there too early */
			sendq[from][0]->delay += 5;
		else if (!bad)
			atomically(it, r->addr + remote);
		note(it, bad ? ST_REMOTE_ERROR : ST_SUCCESS);
	}
	if ((bad && !spoil(BAD_DELIVERED)) || (op && !it->len && flags & F_SILENT)) {
		item_free(it);
		return;
	}
	deliver(it);
}

static bool fake_recv(struct actor *a, struct arrival *in)
{
	static unsigned char body[sizeof(struct header) + 65536];
	unsigned i, n;
	struct item *it;

	for (i = 0; i < actors && !(still && still--); i++)
		if (sends[i] && (dice = mix(dice)) % 3 == 0)
			execute(i);
	*in = (struct arrival){.body = body};
	if (notes[a->id]) {
		n = notes[a->id] > 4 ? 4 : notes[a->id];
		for (i = 0; i < n; i++)
			in->note[n - 1 - i] = noteq[a->id][i];
		in->notes = n;
		notes[a->id] -= n;
		memmove(&noteq[a->id][0], &noteq[a->id][n], notes[a->id] * sizeof(struct notify));
		return true;
	}
	if (!recvs[a->id])
		return false;
	it = recvq[a->id][0];
	memmove(&recvq[a->id][0], &recvq[a->id][1], --recvs[a->id] * sizeof(it));
	in->letter = true;
	in->from = it->from;
	in->len = it->len;
	in->cookie = it->cookie;
	memcpy(body, it->payload, it->len);
	item_free(it);
	return true;
}

/* What was not done yet is canceled; half of it had been done all the same. */
static int fake_cancel(struct actor *a, unsigned to)
{
	unsigned i, kept = 0, n = sends[a->id];

	for (i = 0; i < n; i++) {
		struct item *it = sendq[a->id][i];
		struct region *r = it->cmsg == CMSG_ARGS ? find(it->args.cookie) : NULL;

		if (it->to != to) {
			sendq[a->id][kept++] = it;
			continue;
		}
		if (r && r->live && (dice = mix(dice)) & 1 && it->args.remote.addr <= r->len &&
		    it->args.remote.bytes <= r->len - it->args.remote.addr)
			transfer(it, r->addr + it->args.remote.addr);
		if (it->cmsg == CMSG_ARGS || it->cmsg >= CMSG_FADD)
			note(it, ST_CANCELED);
		item_free(it);
	}
	sends[a->id] = kept;
	return 0;
}

static void fake_wait(struct actor *const *a, unsigned n, int ms)
{
	(void)a;
	(void)n;
	(void)ms;
}

/* All have one address, and operations are done in order, or canceled. */
static unsigned fake_place(unsigned to)
{
	(void)to;
	return 0;
}

static int fake_mark(struct actor *a, unsigned to, uint64_t wait, uint64_t *mark)
{
	unsigned i, n = sends[a->id];

	(void)to;
	*mark = last_id[a->id];
	for (i = n; i--;)
		if (sendq[a->id][i]->id)
			*mark = sendq[a->id][i]->id - 1;
	if (*mark < last_id[a->id] && spoil(EARLY_MARK)) {
		*mark = last_id[a->id];
		still = 100;
	}
	if (*mark && spoil(LATE_MARK))
		--*mark;
	return *mark >= wait ? 0 : -EAGAIN;
}

bool fake_marks(unsigned fault)
{
	return fault == NONE || fault >= EARLY_MARK;
}

const struct wire fake_wire = {
	fake_open, fake_close,	fake_get_mr, fake_free_mr, fake_send,
	fake_recv, fake_cancel, fake_wait,   fake_place,   fake_mark,
};
