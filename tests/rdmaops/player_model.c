/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player_model.c - what the memory of a slot may hold.
 *
 * Every byte has a set of candidates: its first content and the writes of the log.  A write that is
 * done leaves itself alone; one that may or may not have happened adds itself.  So nothing old
 * comes back after a later write is known done.
 */
#include <stdlib.h>

#include "player.h"

#define BASE (1u << 31)

/* Cuts len into parts that follow from key; returns how many. */
unsigned pieces(uint64_t key, size_t len, size_t *part)
{
	uint64_t r = mix(key ^ 0x9e37);
	unsigned n = r % 8 < 4 ? 1 : r % 8 < 7 ? 2 + (unsigned)(r >> 8) % 9 : 1 + (unsigned)(r >> 8) % PIECES_MAX, i;
	size_t left = len;

	if (n > len)
		n = (unsigned)len;
	for (i = 0; i < n; i++) {
		size_t avg = left / (n - i), most = left - (n - i - 1);

		part[i] = i + 1 == n ? left : 1 + mix(key + i) % (2 * avg - 1) % most;
		left -= part[i];
	}
	return n;
}

static size_t source(uint64_t key, unsigned i)
{
	return mix(key ^ ((uint64_t)i << 32 | 0xabcd)) % (POOL - SLOT_MAX);
}

void write_vecs(const struct entry *e, struct vec *v, unsigned *n)
{
	static size_t part[PIECES_MAX];
	unsigned i;

	*n = pieces(e->key, e->len, part);
	for (i = 0; i < *n; i++)
		v[i] = (struct vec){(uintptr_t)(pool + source(e->key, i)), part[i]};
}

static void content(const struct entry *e, unsigned char *to)
{
	static size_t part[PIECES_MAX];
	unsigned i, n = pieces(e->key, e->len, part);

	for (i = 0; i < n; to += part[i], i++)
		memcpy(to, pool + source(e->key, i), part[i]);
}

/* Bytes of slot offset [off, off+len) that entry e is about, into `to` at their place. */
static bool overlap(const struct entry *e, uint32_t off, size_t len, size_t *from, size_t *to)
{
	*from = e->off > off ? e->off : off;
	*to = e->off + e->len < off + len ? e->off + e->len : off + len;
	return *from < *to;
}

/* The writes that are known to be done: a mask. */
uint32_t slot_done(const struct slot *s)
{
	uint32_t mask = 0;
	unsigned i;

	for (i = 0; i < LOG_MAX; i++)
		mask |= (atomic_load(&s->log[i].outcome) == DONE ? 1u : 0u) << i;
	return mask;
}

static const char *candidates(const struct slot *s, uint32_t off, const unsigned char *got, size_t len, unsigned upto,
			      uint32_t done)
{
	static unsigned char *data[LOG_MAX];
	static uint32_t *set;
	static char why[160];
	size_t from, to, b, bad = 0, first = 0;
	unsigned i;

	if (!set)
		set = malloc(SLOT_MAX * sizeof(*set));
	for (i = 0; i < LOG_MAX && !data[i]; i++)
		data[i] = malloc(SLOT_MAX);
	for (b = 0; b < len; b++)
		set[b] = BASE;
	for (i = 0; i < upto; i++) {
		if (!overlap(&s->log[i], off, len, &from, &to))
			continue;
		content(&s->log[i], data[i]);
		for (b = from - off; b < to - off; b++)
			set[b] = done & 1u << i ? 1u << i : set[b] | 1u << i;
	}
	for (b = 0; b < len; b++) {
		bool right = set[b] & BASE && got[b] == pool[s->base + off + b];

		for (i = 0; i < upto && !right; i++)
			right = set[b] & 1u << i && got[b] == data[i][off + b - s->log[i].off];
		if (!right && !bad++)
			first = b;
	}
	if (!bad)
		return NULL;
	b = (size_t)snprintf(why, sizeof(why),
			     "%zu bytes of [%u, %zu) are wrong, the first at %zu: came %02x, expected", bad, off,
			     off + len, off + first, got[first]);
	if (set[first] & BASE)
		b += (size_t)snprintf(why + b, sizeof(why) - b, " %02x (base)", pool[s->base + off + first]);
	for (i = 0; i < upto && b < sizeof(why); i++)
		if (set[first] & 1u << i)
			b += (size_t)snprintf(why + b, sizeof(why) - b, " %02x (write %u)",
					      data[i][off + first - s->log[i].off], i);
	return why;
}

/* upto: so many of the log were sent; done: a mask of those that are known to be done. */
const char *slot_wrong(const struct slot *s, uint32_t off, const unsigned char *got, size_t len, unsigned upto,
		       uint32_t done)
{
	static unsigned char *want, *one;
	size_t from, to;
	unsigned i;

	if (!want) {
		want = malloc(SLOT_MAX);
		one = malloc(SLOT_MAX);
	}
	memcpy(want, pool + s->base + off, len);
	for (i = 0; i < upto; i++) {
		if (!overlap(&s->log[i], off, len, &from, &to))
			continue;
		if (!(done & 1u << i))
			return candidates(s, off, got, len, upto, done);
		content(&s->log[i], one);
		memcpy(want + (from - off), one + (from - s->log[i].off), to - from);
	}
	return memcmp(want, got, len) ? candidates(s, off, got, len, upto, done) : NULL;
}

/*
 * The counting word: a digit of two bits per operation, 1 if it was done, 0 if not; never 2, never
 * 3.
 */
const char *count_wrong(const struct slot *s, uint64_t word, unsigned digits, bool before)
{
	static char why[120];
	unsigned i, digit, outcome;

	for (i = 0; i < 32; i++) {
		digit = word >> 2 * i & 3;
		outcome = i < digits ? atomic_load(&s->digit[i]) : OPEN;
		/*
		 * before: the old value of the next operation; in calm weather all before it are
		 * done by then
		 */
		if (i < digits ? digit <= 1 && (digit == 1 || (outcome != DONE && !(before && mode == CALM)))
			       : digit == 0)
			continue;
		snprintf(why, sizeof(why), "counting word %llx: operation %u of %u was done %u times, expected %s",
			 (unsigned long long)word, i, digits, digit,
			 i >= digits			   ? "0"
			 : outcome == DONE || mode == CALM ? "1"
							   : "0 or 1");
		return why;
	}
	return NULL;
}
