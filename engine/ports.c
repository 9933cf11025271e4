/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * ports.c - the table behind ports.h: a hash, and a list by age.
 *
 * Bounded: the entry that was written longest ago makes room.  Forgetting one costs a question and nothing else, except that
 * an answer under way is still needed: those entries stay.  Must not know connections or messages.
 */
#include "engine/ports.h"

#include <stdlib.h>

#include "engine/os.h"

#define BUCKETS 4096u
#define KNOWN_MAX 65536u
#define ASKED_MAX 64u
#define ABSENT_NS (100 * 1000000ull)

struct entry {
	struct entry *hash_next;
	struct entry *older, *newer;
	struct rds_addr addr;
	enum rds_port_state state;
	bool moved;	/* `was` is valid */
	uint64_t until; /* ABSENT */
	struct rds_port_owner owner;
	struct rds_procid was;
};

static struct {
	struct entry *bucket[BUCKETS];
	struct entry *oldest, *newest;
	unsigned n, asked;
} known;

static unsigned hash(const struct rds_addr *a)
{
	uint32_t h = a->ip.s6_addr32[3] * 2654435761u ^ a->ip.s6_addr32[2] * 40503u ^ a->scope;

	return (h ^ h >> 16 ^ a->port * 40503u) % BUCKETS;
}

static bool same(const struct rds_addr *a, const struct rds_addr *b)
{
	return a->port == b->port && a->scope == b->scope && rds_ip_equal(&a->ip, &b->ip);
}

static bool same_proc(const struct rds_procid *a, const struct rds_procid *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static struct entry *find(const struct rds_addr *dst)
{
	struct entry *e;

	for (e = known.bucket[hash(dst)]; e; e = e->hash_next)
		if (same(&e->addr, dst))
			return e;
	return NULL;
}

static void age_unlink(struct entry *e)
{
	*(e->older ? &e->older->newer : &known.oldest) = e->newer;
	*(e->newer ? &e->newer->older : &known.newest) = e->older;
}

static void age_append(struct entry *e)
{
	e->newer = NULL;
	e->older = known.newest;
	*(known.newest ? &known.newest->newer : &known.oldest) = e;
	known.newest = e;
}

static void drop(struct entry *e)
{
	struct entry **p = &known.bucket[hash(&e->addr)];

	while (*p != e)
		p = &(*p)->hash_next;
	*p = e->hash_next;
	age_unlink(e);
	known.n--;
	free(e);
}

static void make_room(void)
{
	struct entry *e = known.oldest;

	while (e && e->state == RDS_PORT_ASKED)
		e = e->newer;
	if (e)
		drop(e);
}

static void set_state(struct entry *e, enum rds_port_state state)
{
	known.asked -= e->state == RDS_PORT_ASKED;
	known.asked += state == RDS_PORT_ASKED;
	e->state = state;
	age_unlink(e);
	age_append(e);
}

static struct entry *find_or_make(const struct rds_addr *dst)
{
	struct entry *e = find(dst);

	if (e)
		return e;
	if (known.n >= KNOWN_MAX)
		make_room();
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->addr = *dst;
	e->hash_next = known.bucket[hash(dst)];
	known.bucket[hash(dst)] = e;
	age_append(e);
	known.n++;
	return e;
}

enum rds_port_state rds_port_look(const struct rds_addr *dst, struct rds_port_owner *owner)
{
	struct entry *e = find(dst);

	if (!e)
		return RDS_PORT_UNKNOWN;
	if (e->state == RDS_PORT_ABSENT && os_now_ns() >= e->until)
		return RDS_PORT_UNKNOWN;
	if (e->state == RDS_PORT_FOUND)
		*owner = e->owner;
	return e->state;
}

bool rds_port_was(const struct rds_addr *dst, struct rds_procid *was)
{
	struct entry *e = find(dst);

	if (!e || !e->moved)
		return false;
	*was = e->was;
	return true;
}

bool rds_port_ask(const struct rds_addr *dst)
{
	struct entry *e = known.asked < ASKED_MAX ? find_or_make(dst) : NULL;

	if (!e)
		return false;
	set_state(e, RDS_PORT_ASKED);
	return true;
}

void rds_port_found(const struct rds_addr *dst, const struct rds_port_owner *owner)
{
	struct entry *e = find_or_make(dst);

	if (!e)
		return;
	e->owner = *owner;
	if (e->moved && same_proc(&e->was, &owner->proc))
		e->moved = false; /* it is back */
	set_state(e, RDS_PORT_FOUND);
}

void rds_port_absent(const struct rds_addr *dst)
{
	struct entry *e = find_or_make(dst);

	if (!e)
		return;
	e->until = os_now_ns() + ABSENT_NS;
	set_state(e, RDS_PORT_ABSENT);
}

void rds_port_failed(const struct rds_addr *dst)
{
	struct entry *e = find(dst);

	if (!e || e->state != RDS_PORT_ASKED)
		return;
	set_state(e, RDS_PORT_UNKNOWN);
	if (!e->moved)
		drop(e);
}

void rds_port_moved(const struct rds_addr *dst, const struct rds_procid *from)
{
	struct entry *e = find(dst);

	/* Somebody else may have learnt it, and the new answer, before. */
	if (!e || e->state != RDS_PORT_FOUND || !same_proc(&e->owner.proc, from))
		return;
	e->moved = true;
	e->was = *from;
	set_state(e, RDS_PORT_UNKNOWN);
}

void rds_ports_of_dead(const struct rds_procid *proc)
{
	struct entry *e, *next;

	for (e = known.oldest; e; e = next) {
		next = e->newer;
		if (e->moved && same_proc(&e->was, proc))
			e->moved = false;
		if (e->state == RDS_PORT_FOUND && same_proc(&e->owner.proc, proc))
			drop(e);
	}
}

unsigned rds_ports_known(void)
{
	return known.n;
}

void rds_ports_forget(void)
{
	memset(&known, 0, sizeof(known)); /* a thread of the parent may have been in the middle of a change */
}
