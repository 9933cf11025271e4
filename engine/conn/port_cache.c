/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * port_cache.c - the table behind port_cache.h: a hash, and a list by age.
 *
 * Bounded: a new entry replaces the one that was written longest ago.  A lost entry costs one more
 * question.  Entries whose answer is outstanding stay.  Must not know connections or messages.
 */
#include "engine/conn/port_cache.h"

#include <stdlib.h>
#include <string.h>

#include "engine/sys/compiler.h"
#include "engine/sys/os.h"
#include "engine/sys/process.h"

#define BUCKETS 4096u
#define KNOWN_MAX 65536u
#define ASKED_MAX 64u
#define ABSENT_NS (100 * 1000000ull)

struct port_entry {
	struct port_entry *hash_next;
	struct port_entry *older, *newer;
	struct rds_addr addr;
	enum rds_route_port_state state;
	bool moved;	/* `was` is valid */
	uint64_t until; /* valid with ABSENT */
	struct rds_route_port_owner owner;
	struct rds_procid was;
};

static struct port_entry *buckets[BUCKETS] RDS_TABLE;
static struct {
	struct port_entry *oldest, *newest;
	unsigned n, asked;
} port_cache;

static unsigned port_hash(const struct rds_addr *a)
{
	uint32_t h = a->ip.s6_addr32[3] * 2654435761u ^ a->ip.s6_addr32[2] * 40503u ^ a->scope;

	return (h ^ h >> 16 ^ a->port * 40503u) % BUCKETS;
}

static bool port_same_addr(const struct rds_addr *a, const struct rds_addr *b)
{
	return a->port == b->port && a->scope == b->scope && rds_ip_equal(&a->ip, &b->ip);
}

static bool procid_equal(const struct rds_procid *a, const struct rds_procid *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static struct port_entry *port_find(const struct rds_addr *dst)
{
	struct port_entry *e;

	for (e = buckets[port_hash(dst)]; e; e = e->hash_next)
		if (port_same_addr(&e->addr, dst))
			return e;
	return NULL;
}

static void port_age_unlink(struct port_entry *e)
{
	*(e->older ? &e->older->newer : &port_cache.oldest) = e->newer;
	*(e->newer ? &e->newer->older : &port_cache.newest) = e->older;
}

static void port_age_append(struct port_entry *e)
{
	e->newer = NULL;
	e->older = port_cache.newest;
	*(port_cache.newest ? &port_cache.newest->newer : &port_cache.oldest) = e;
	port_cache.newest = e;
}

static void port_drop(struct port_entry *e)
{
	struct port_entry **p = &buckets[port_hash(&e->addr)];

	while (*p != e)
		p = &(*p)->hash_next;
	*p = e->hash_next;
	port_age_unlink(e);
	port_cache.n--;
	free(e);
}

static void port_make_room(void)
{
	struct port_entry *e = port_cache.oldest;

	while (e && e->state == RDS_PORT_ASKED)
		e = e->newer;
	if (e)
		port_drop(e);
}

static void port_set_state(struct port_entry *e, enum rds_route_port_state state)
{
	port_cache.asked -= e->state == RDS_PORT_ASKED;
	port_cache.asked += state == RDS_PORT_ASKED;
	e->state = state;
	port_age_unlink(e);
	port_age_append(e);
}

static struct port_entry *port_find_or_make(const struct rds_addr *dst)
{
	struct port_entry *e = port_find(dst);

	if (e)
		return e;
	if (port_cache.n >= KNOWN_MAX)
		port_make_room();
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->addr = *dst;
	e->hash_next = buckets[port_hash(dst)];
	buckets[port_hash(dst)] = e;
	port_age_append(e);
	port_cache.n++;
	return e;
}

enum rds_route_port_state rds_route_port_get(const struct rds_addr *dst, struct rds_route_port_owner *owner)
{
	struct port_entry *e = port_find(dst);

	if (!e)
		return RDS_PORT_UNKNOWN;
	if (e->state == RDS_PORT_ABSENT && os_now_ns() >= e->until)
		return RDS_PORT_UNKNOWN;
	if (e->state == RDS_PORT_FOUND)
		*owner = e->owner;
	return e->state;
}

bool rds_route_port_previous(const struct rds_addr *dst, struct rds_procid *was)
{
	struct port_entry *e = port_find(dst);

	if (!e || !e->moved)
		return false;
	*was = e->was;
	return true;
}

bool rds_route_port_ask(const struct rds_addr *dst)
{
	struct port_entry *e = port_cache.asked < ASKED_MAX ? port_find_or_make(dst) : NULL;

	if (!e)
		return false;
	port_set_state(e, RDS_PORT_ASKED);
	return true;
}

void rds_route_port_found(const struct rds_addr *dst, const struct rds_route_port_owner *owner)
{
	struct port_entry *e = port_find_or_make(dst);

	if (!e)
		return;
	e->owner = *owner;
	if (e->moved && procid_equal(&e->was, &owner->proc))
		e->moved = false; /* the port has moved back */
	port_set_state(e, RDS_PORT_FOUND);
}

void rds_route_port_absent(const struct rds_addr *dst)
{
	struct port_entry *e = port_find_or_make(dst);

	if (!e)
		return;
	e->until = os_now_ns() + ABSENT_NS;
	port_set_state(e, RDS_PORT_ABSENT);
}

void rds_route_port_failed(const struct rds_addr *dst)
{
	struct port_entry *e = port_find(dst);

	if (!e || e->state != RDS_PORT_ASKED)
		return;
	port_set_state(e, RDS_PORT_UNKNOWN);
	if (!e->moved)
		port_drop(e);
}

void rds_route_port_moved(const struct rds_addr *dst, const struct rds_procid *from)
{
	struct port_entry *e = port_find(dst);

	/* Another connection may have reported it before, and the new answer may be here. */
	if (!e || e->state != RDS_PORT_FOUND || !procid_equal(&e->owner.proc, from))
		return;
	e->moved = true;
	e->was = *from;
	port_set_state(e, RDS_PORT_UNKNOWN);
}

void rds_route_ports_drop_proc(const struct rds_procid *proc)
{
	struct port_entry *e, *next;

	for (e = port_cache.oldest; e; e = next) {
		next = e->newer;
		if (e->moved && procid_equal(&e->was, proc))
			e->moved = false;
		if (e->state == RDS_PORT_FOUND && procid_equal(&e->owner.proc, proc))
			port_drop(e);
	}
}

unsigned rds_route_ports_count(void)
{
	return port_cache.n;
}

void rds_route_ports_forget(void)
{
	/* no walk: a thread of the parent may have been in the middle of a change */
	os_fork_zero(buckets, sizeof(buckets));
	memset(&port_cache, 0, sizeof(port_cache));
}
