/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * bindings.c - the socket entries and the hash over (address, port, scope).
 *
 * The entries are authoritative: the `mark` of an entry, which is one word, alone tells whether the
 * entry is used and which port it has. The buckets and the list of unused entries only make the
 * entries quick to find. They can be made anew from the entries at any time (reg_table_rebuild()).
 * Each link is checked against the number of reserved entries, and each walk is bounded, so damage
 * is detected and never followed. This file must not know processes. It only asks process.c whether
 * a slot and id exist, and whether a socket is open without its owner.
 */
#include "engine/sys/log.h"
#include "engine/node/registry_impl.h"

/*
 * The port is added last: neighbouring ports are in neighbouring buckets, so the search for an
 * unused port is fast.
 */
static uint32_t key_bucket(const struct reg_key *k)
{
	uint64_t h = k->addr[0] * UINT64_C(0x9e3779b97f4a7c15) ^ k->addr[1];

	h = (h ^ h >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	h = (h ^ h >> 32 ^ k->scope) * UINT64_C(0x94d049bb133111eb);
	return ((uint32_t)(h >> 32) + k->port) % REG_BUCKETS;
}

static bool entry_has_key(struct reg_sock *s, const struct reg_key *k)
{
	return reg_load(&s->mark) == (REG_SOCK_USED | k->port) && reg_words_eq(s->addr, k->addr) &&
	       reg_load(&s->scope) == k->scope;
}

static void entry_read_key(struct reg_sock *s, struct reg_key *k)
{
	reg_words_load(k->addr, s->addr);
	k->scope = reg_load(&s->scope);
	k->port = (uint16_t)reg_load(&s->mark);
}

uint32_t reg_table_find(struct reg_view *v, const struct reg_key *key)
{
	uint32_t steps = reg_usable(v), link;

	if (!steps)
		return REG_BAD;
	for (link = reg_load(&reg_load(&v->a)->bucket[key_bucket(key)]); link; steps--) {
		if (link > reg_usable(v) || !steps)
			return REG_BAD;
		if (entry_has_key(reg_sock_at(v, link), key))
			return link;
		link = reg_load(&reg_sock_at(v, link)->next);
	}
	return 0;
}

void reg_table_link(struct registry *reg, uint32_t link, const struct reg_key *key)
{
	_Atomic uint32_t *head = &reg_area(reg)->bucket[key_bucket(key)];

	reg_store(&reg_sock_at(reg->at, link)->next, reg_load(head));
	reg_store(head, link);
}

/* False if the entry is not where its key says, which means damage. */
static bool table_unlink(struct registry *reg, uint32_t link)
{
	_Atomic uint32_t *at;
	struct reg_key key;

	entry_read_key(reg_sock_at(reg->at, link), &key);
	at = &reg_area(reg)->bucket[key_bucket(&key)];
	for (uint32_t steps = reg_usable(reg->at); steps; steps--) {
		uint32_t l = reg_load(at);

		if (l == 0 || l > reg_usable(reg->at))
			return false;
		if (l == link) {
			reg_store(at, reg_load(&reg_sock_at(reg->at, link)->next));
			return true;
		}
		at = &reg_sock_at(reg->at, l)->next;
	}
	return false;
}

uint32_t reg_sock_alloc(struct registry *reg)
{
	uint32_t link = reg_load(&reg_area(reg)->free);
	struct reg_sock *s;

	if (link == 0)
		return 0;
	if (link > reg_usable(reg->at) || reg_load(&reg_sock_at(reg->at, link)->mark)) {
		reg_table_rebuild(reg);
		reg_change_begin(reg);
		link = reg_load(&reg_area(reg)->free);
		if (link == 0 || link > reg_usable(reg->at))
			return 0;
	}
	s = reg_sock_at(reg->at, link);
	reg_store(&reg_area(reg)->free, reg_load(&s->next));
	reg_store(&s->next, 0);
	return link;
}

void reg_sock_free(struct registry *reg, uint32_t link)
{
	struct reg_sock *s = reg_sock_at(reg->at, link);
	bool sound = true;

	if (reg_load(&s->mark) & 0xffff)
		sound = table_unlink(reg, link);
	reg_store(&s->mark, 0);
	if (!sound) {
		reg_table_rebuild(reg);
		reg_bindings_begin(reg);
		return;
	}
	reg_store(&s->next, reg_load(&reg_area(reg)->free));
	reg_store(&reg_area(reg)->free, link);
}

/*
 * Is the entry an orphan, or can it be made one? If a process was killed while the socket changed
 * its owner, the owner and the id may not agree. The socket's own name is always whole. If some
 * copy of the socket is still open, the entry is an orphan until a process takes it over.
 */
static bool entry_make_orphan(struct reg_sock *s)
{
	static const uint64_t none[2];
	struct rds_procid name;

	if (reg_load(&s->proc) == REG_NOBODY) {
		reg_words_load(&name, s->name);
		if (!reg_words_eq(s->name, none))
			reg_words_store(s->id, &name);
		return true;
	}
	if (!reg_sock_survives(s, &name))
		return false;
	reg_sock_set_owner(s, REG_NOBODY, 0, &name);
	return true;
}

static bool entry_is_sound(struct registry *reg, struct reg_sock *s)
{
	uint32_t mark = reg_load(&s->mark);
	uint64_t id[2];

	if ((mark & ~0xffffu) != REG_SOCK_USED || mark == (REG_SOCK_USED | 1))
		return false;
	reg_words_load(id, s->id);
	if (reg_proc_is(reg, reg->at, reg_load(&s->proc), id))
		return true;
	if (!entry_make_orphan(s))
		return false;
	reg_store(&reg_area(reg)->orphans, 1);
	return true;
}

/*
 * Rebuilds one entry. The entries are visited in descending order, so the list of unused ones is in
 * ascending order.
 */
static void table_rebuild_entry(struct registry *reg, uint32_t link)
{
	struct reg_sock *s = reg_sock_at(reg->at, link);
	struct reg_area *a = reg_area(reg);
	struct reg_key key;

	reg_heartbeat(reg);
	entry_read_key(s, &key);
	if (!entry_is_sound(reg, s) || (key.port && reg_table_find(reg->at, &key))) {
		reg_store(&s->mark, 0);
		reg_store(&s->next, reg_load(&a->free));
		reg_store(&a->free, link);
		return;
	}
	if (reg_load(&s->order) >= reg_load(&a->order))
		reg_store(&a->order, reg_load(&s->order) + 1);
	if (key.port)
		reg_table_link(reg, link, &key);
	else
		reg_store(&s->next, 0);
}

void reg_table_rebuild(struct registry *reg)
{
	reg_bindings_begin(reg);
	reg_fold_finish(reg);
	for (unsigned i = 0; i < REG_BUCKETS; i++)
		reg_store(&reg_area(reg)->bucket[i], 0);
	reg_store(&reg_area(reg)->free, 0);
	for (uint32_t link = reg_usable(reg->at); link; link--)
		table_rebuild_entry(reg, link);
	reg_bindings_end(reg);
	rds_debug("registry: the tables of %s were made anew from its entries%s", reg->path,
		  reg->suspicious ? ", as the first process always does" : "");
}

uint16_t reg_table_unused_port(struct reg_view *v, struct reg_key key, uint16_t start)
{
	key.port = start < 2 ? 2 : start;
	for (unsigned left = 65534; left; left--) {
		if (!reg_table_find(v, &key))
			return key.port;
		key.port = key.port == 65535 ? 2 : key.port + 1;
	}
	return 0;
}
