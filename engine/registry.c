/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * registry.c - the node registry as the rest of the engine sees it: join, sockets, bind, look-up, leave.
 *
 * The other files: registry_layout.h bytes, registry_file.c the file, registry_lock.c locks and repair,
 * registry_table.c hash and entries, registry_proc.c process slots, registry_info.c snapshots and sums.
 */
#include "engine/registry.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/log.h"
#include "engine/os.h"
#include "engine/registry_impl.h"

#define LOOKUP_TRIES 256

static _Atomic pid_t opener; /* process that has the registry open: not more than once, see registry_open */

int registry_open(struct registry **out)
{
	struct registry *reg;
	pid_t pid = os_getpid();
	int ret;

	if (atomic_exchange(&opener, pid) == pid) {
		rds_error("registry: opened a second time by one process (a bug in this library)");
		return -EBUSY;
	}
	reg = calloc(1, sizeof(*reg));
	if (!reg) {
		rds_error("registry: no memory");
		atomic_store(&opener, 0);
		return -ENOMEM;
	}
	pthread_mutex_init(&reg->mutex, NULL);
	reg->pid = pid;
	reg->slot = REG_PROCS;
	os_fd_init(&reg->fds);
	ret = reg_file_open(reg);
	if (!ret) {
		ret = reg_repair(reg);
		if (!ret)
			ret = reg_proc_join(reg);
		reg_unlock(reg);
	}
	if (ret) {
		registry_abandon(reg);
		free(reg);
		atomic_store(&opener, 0);
		return ret;
	}
	*out = reg;
	return 0;
}

static void stop_counting(struct registry *reg)
{
	if (reg->f && reg->slot < REG_PROCS && atomic_load(&rds_stat_block) == reg->f->proc[reg->slot].counters)
		rds_stat_detach();
}

void registry_close(struct registry *reg)
{
	stop_counting(reg);
	/* If that fails, the next process takes us for dead and does the same. */
	if (reg_lock(reg) == 0) {
		reg_proc_leave(reg);
		reg_unlock(reg);
	}
	reg_file_close(reg);
	pthread_mutex_destroy(&reg->mutex);
	free(reg);
	atomic_store(&opener, 0);
}

/* The child may be one of a signal handler that has interrupted malloc(), so the structure is left where it is. */
void registry_abandon(struct registry *reg)
{
	stop_counting(reg);
	reg_file_close(reg);
}

struct os_fd *registry_fds(struct registry *reg)
{
	return &reg->fds;
}

const struct rds_procid *registry_self(const struct registry *reg)
{
	return &reg->id;
}

uint32_t registry_self_slot(const struct registry *reg)
{
	return reg->slot;
}

_Atomic uint64_t *registry_counters(struct registry *reg)
{
	return reg->f->proc[reg->slot].counters;
}

/* ---- sockets ---- */

int registry_sock_add(struct registry *reg, uint64_t inode, uint32_t sndbuf, uint32_t rcvbuf, uint32_t *idx)
{
	struct reg_sock *s;
	uint32_t link;
	int ret = reg_lock(reg);

	if (ret)
		return ret;
	if (!reg_load(&reg->f->h.free))
		ret = reg_file_grow(reg);
	reg_begin(reg);
	link = ret ? 0 : reg_sock_alloc(reg);
	if (link) {
		s = reg_sock_at(reg, link);
		for (int i = 0; i < 2; i++) {
			reg_store(&s->addr[i], 0);
			reg_store(&s->connected[i], 0);
			reg_store(&s->name[i], 0);
		}
		reg_store(&s->connected_port, 0);
		reg_store(&s->scope, 0);
		reg_store(&s->transport, 0);
		reg_store(&s->held, 0);
		reg_store(&s->left, 0);
		reg_store(&s->moved, 0);
		reg_store(&s->congested, 0);
		reg_store(&s->pid, reg->pid);
		reg_store(&s->proc, reg->slot);
		reg_words_store(s->id, &reg->id);
		reg_store(&s->inode, inode);
		reg_store(&s->sndbuf, sndbuf);
		reg_store(&s->rcvbuf, rcvbuf);
		reg_store(&s->order, reg_load(&reg->f->h.order));
		reg_store(&reg->f->h.order, reg_load(&s->order) + 1);
		reg_store(&s->mark, REG_SOCK_USED);
		*idx = link - 1;
	} else if (!ret) {
		ret = -EIO;
	}
	reg_end(reg);
	reg_unlock(reg);
	return ret;
}

/* The entry behind a number that registry_sock_add() gave out, or NULL if damage has taken it away. */
static struct reg_sock *own_sock(struct registry *reg, uint32_t idx)
{
	struct reg_sock *s;

	if (idx >= reg_usable(reg))
		return NULL;
	s = &reg->f->sock[idx];
	if (!reg_load(&s->mark) || reg_load(&s->proc) != reg->slot || !reg_words_eq(s->id, reg->idw))
		return NULL;
	return s;
}

static struct reg_key make_key(const struct in6_addr *addr, uint16_t port, uint32_t scope)
{
	struct reg_key key = {.scope = scope, .port = port};

	memcpy(key.addr, addr, sizeof(key.addr));
	return key;
}

/* Locked: reg_find that mends what it stumbles over. */
static uint32_t find_sound(struct registry *reg, const struct reg_key *key)
{
	uint32_t link = reg_find(reg, key);

	if (link == REG_BAD) {
		reg_rebuild(reg);
		link = reg_find(reg, key);
	}
	return link;
}

/* Locked: 0 if the key is to be had, now or because its owner is dead and has been cleared away. */
static int claimable(struct registry *reg, const struct reg_key *key)
{
	struct reg_dead suspect = {0};
	uint32_t link = find_sound(reg, key), slot;

	if (link == 0)
		return 0;
	if (link == REG_BAD)
		return -EIO;
	slot = reg_load(&reg_sock_at(reg, link)->proc);
	if (slot == REG_NOBODY) {
		reg_orphans_sweep(reg);
		link = find_sound(reg, key);
	}
	if (slot < REG_PROCS) {
		suspect.bits[slot / 64] |= UINT64_C(1) << slot % 64;
		if (reg_reap_locked(reg, &suspect))
			link = find_sound(reg, key);
	}
	if (link == REG_BAD)
		return -EIO;
	if (link == 0)
		return 0;
	return reg_load(&reg_sock_at(reg, link)->held) ? -EBUSY : -EADDRINUSE;
}

/* Locked: the search for a port that is unused or was the dead's. */
static uint16_t choose_port(struct registry *reg, struct reg_key key, uint16_t hint)
{
	struct reg_dead dead;
	uint16_t port;

	key.port = hint;
	if (hint && find_sound(reg, &key) == 0)
		return hint;
	port = reg_port_unused(reg, key, hint);
	if (port)
		return port;
	/* Not one: then the dead, or damaged chains, must not have the last word. */
	if (reg_find_dead(reg, &dead))
		reg_reap_locked(reg, &dead);
	reg_orphans_sweep(reg);
	reg_rebuild(reg);
	return reg_port_unused(reg, key, hint);
}

static int bind_locked(struct registry *reg, uint32_t idx, struct reg_key *key, int transport)
{
	struct reg_sock *s = own_sock(reg, idx);

	if (!s)
		return -EIO;
	if (reg_load(&s->mark) != REG_SOCK_USED)
		return -EINVAL;
	reg_begin_bindings(reg);
	for (int i = 0; i < 2; i++)
		reg_store(&s->addr[i], key->addr[i]);
	reg_store(&s->scope, key->scope);
	reg_store(&s->transport, transport);
	reg_store(&s->mark, REG_SOCK_USED | key->port);
	reg_link(reg, idx + 1, key);
	reg_end_bindings(reg);
	return 0;
}

int registry_sock_bind(struct registry *reg, uint32_t idx, const struct in6_addr *addr, uint16_t port, uint32_t scope,
		       int transport, uint16_t *bound_port)
{
	struct reg_key key = make_key(addr, port, scope);
	uint16_t start, hint = 0;
	int ret;

	if (!port) {
		/* A long search is made without the lock; under it the result is only confirmed. */
		os_random(&start, sizeof(start));
		hint = reg_port_unused(reg, key, start);
	}
	ret = reg_lock(reg);
	if (ret)
		return ret;
	if (!port) {
		key.port = choose_port(reg, key, hint);
		ret = key.port ? 0 : -EADDRINUSE;
	} else {
		ret = claimable(reg, &key);
	}
	if (!ret)
		ret = bind_locked(reg, idx, &key, transport);
	reg_unlock(reg);
	if (!ret)
		*bound_port = key.port;
	return ret;
}

void registry_sock_name(struct registry *reg, uint32_t idx, const struct rds_procid *name)
{
	struct reg_sock *s = own_sock(reg, idx);

	if (s)
		reg_words_store(s->name, name); /* half of it, if we are killed here, is no socket's */
}

void registry_sock_set_connected(struct registry *reg, uint32_t idx, const struct in6_addr *addr, uint16_t port)
{
	bool locked = reg_lock(reg) == 0; /* without: a snapshot may show half of it, no worse */
	struct reg_sock *s = own_sock(reg, idx);

	if (s) {
		reg_words_store(s->connected, addr);
		reg_store(&s->connected_port, port);
	}
	if (locked)
		reg_unlock(reg);
}

void registry_sock_held(struct registry *reg, uint32_t idx)
{
	struct reg_sock *s = own_sock(reg, idx);

	if (s)
		reg_store(&s->held, 1);
}

void registry_sock_set_bufs(struct registry *reg, uint32_t idx, uint32_t sndbuf, uint32_t rcvbuf)
{
	struct reg_sock *s = own_sock(reg, idx);

	if (s) {
		reg_store(&s->sndbuf, sndbuf);
		reg_store(&s->rcvbuf, rcvbuf);
	}
}

void registry_sock_set_congested(struct registry *reg, uint32_t idx, bool congested)
{
	struct reg_sock *s = own_sock(reg, idx);

	if (s)
		reg_store(&s->congested, congested);
}

void registry_sock_remove(struct registry *reg, uint32_t idx)
{
	struct reg_sock *s;

	if (reg_lock(reg)) {
		/* The owner may always withdraw its word; the lists are put right by the next one who can. */
		s = own_sock(reg, idx);
		if (s) {
			reg_store(&s->mark, 0);
			reg_store(&reg->f->h.dirty, 1);
		}
		return;
	}
	s = own_sock(reg, idx);
	if (s && reg_load(&s->mark) == REG_SOCK_USED) {
		reg_begin(reg); /* never bound: look-ups need not look again */
		reg_sock_free(reg, idx + 1);
		reg_end(reg);
	} else if (s) {
		reg_begin_bindings(reg);
		reg_sock_free(reg, idx + 1);
		reg_end_bindings(reg);
	}
	reg_unlock(reg);
}

/* ---- sockets that change hands ---- */

static void give_to(struct registry *reg, struct reg_sock *s, uint32_t proc, int32_t pid, const struct rds_procid *id)
{
	reg_begin_bindings(reg);
	reg_sock_give(s, proc, pid, id);
	reg_end_bindings(reg);
}

int registry_sock_leave(struct registry *reg, uint32_t idx, const struct rds_procid *name)
{
	struct reg_sock *s;
	int ret = reg_lock(reg);

	if (ret)
		return ret;
	s = own_sock(reg, idx);
	if (s) {
		reg_store(&reg->f->h.orphans, 1);
		give_to(reg, s, REG_NOBODY, 0, name);
	}
	reg_unlock(reg);
	return s ? 0 : -EIO;
}

int registry_sock_take(struct registry *reg, uint32_t idx, const struct rds_procid *name, bool sure)
{
	struct reg_sock *s = NULL;
	uint64_t idw[2];
	int ret = reg_lock(reg);

	if (ret)
		return ret;
	memcpy(idw, name, sizeof(idw));
	if (idx < reg_usable(reg))
		s = &reg->f->sock[idx];
	if (s && reg_load(&s->mark) && (sure || reg_load(&s->proc) == REG_NOBODY) && reg_words_eq(s->name, idw))
		give_to(reg, s, reg->slot, reg->pid, &reg->id);
	else
		ret = -ENOENT;
	reg_unlock(reg);
	return ret;
}

int registry_ready(struct registry *reg)
{
	int ret = reg_lock(reg);

	if (!ret)
		reg_unlock(reg);
	return ret;
}

int registry_sock_where(struct registry *reg, uint32_t idx, const struct rds_procid *name, struct registry_sock *out)
{
	struct reg_sock *s;
	uint64_t idw[2];

	memcpy(idw, name, sizeof(idw));
	if (idx >= reg_usable(reg))
		return -ENOENT;
	s = &reg->f->sock[idx];
	if (!reg_load(&s->mark) || !reg_words_eq(s->name, idw))
		return -ENOENT;
	memset(out, 0, sizeof(*out));
	out->sock = idx;
	out->bound_port = (uint16_t)reg_load(&s->mark);
	if (out->bound_port)
		reg_words_load(&out->bound, s->addr);
	out->scope = reg_load(&s->scope);
	out->transport = reg_load(&s->transport);
	return 0;
}

/* Locked: asking takes the name for a moment, and who asked at the same time would believe that it exists. */
bool registry_sock_gone(struct registry *reg, uint32_t idx, const struct rds_procid *name)
{
	struct reg_sock *s;
	uint64_t idw[2];
	bool gone;

	memcpy(idw, name, sizeof(idw));
	if (idx >= reg_usable(reg))
		return true;
	if (reg_lock(reg))
		return false;
	s = &reg->f->sock[idx];
	gone = !reg_load(&s->mark) || !reg_words_eq(s->name, idw) || reg_orphan_gone(s);
	reg_unlock(reg);
	return gone;
}

uint64_t registry_sock_order(const struct registry *reg, uint32_t idx)
{
	return reg_load(&reg->f->sock[idx].order);
}

/* ---- look-up ---- */

static void owner_of(struct registry *reg, uint32_t link, struct registry_owner *out)
{
	struct reg_sock *s = reg_sock_at(reg, link);

	out->sock = link - 1;
	out->proc = reg_load(&s->proc);
	out->pid = reg_load(&s->pid);
	out->transport = reg_load(&s->transport);
	out->moved = reg_load(&s->moved);
	reg_words_load(&out->procid, s->id);
	out->order = reg_load(&s->order);
}

/* A writer died or hangs in the middle, or the chain is damaged: take the lock, which repairs. */
static int lookup_locked(struct registry *reg, const struct reg_key *key, struct registry_owner *out)
{
	uint32_t link;
	int ret = reg_lock(reg);

	if (ret)
		return ret;
	link = find_sound(reg, key);
	if (link == REG_BAD)
		ret = -EIO;
	else if (link)
		owner_of(reg, link, out);
	else
		ret = -ENOENT;
	reg_unlock(reg);
	return ret;
}

/* -EIO: the chain is damaged; -EAGAIN: somebody is changing it, or has died or hangs in the middle of that. */
static int look(struct registry *reg, const struct reg_key *key, struct registry_owner *out)
{
	_Atomic uint64_t *seq = &reg->f->h.seq;

	for (unsigned tries = 0; tries < LOOKUP_TRIES; tries++) {
		uint64_t before = reg_load(seq);
		uint32_t link;

		if (before & 1)
			continue;
		link = reg_find(reg, key);
		if (link && link != REG_BAD)
			owner_of(reg, link, out);
		if (atomic_load_explicit(seq, memory_order_relaxed) != before)
			continue;
		if (link == REG_BAD)
			return -EIO;
		return link ? 0 : -ENOENT;
	}
	return -EAGAIN;
}

int registry_lookup(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
		    struct registry_owner *out)
{
	struct reg_key key = make_key(addr, port, scope);
	int ret = port ? look(reg, &key, out) : -ENOENT;

	return ret == 0 || ret == -ENOENT ? ret : lookup_locked(reg, &key, out);
}

int registry_look(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
		  struct registry_owner *out)
{
	struct reg_key key = make_key(addr, port, scope);

	return port ? look(reg, &key, out) : -ENOENT;
}

void registry_sock_inbox(struct registry *reg, uint32_t idx, struct registry_inbox *out)
{
	struct reg_sock *s = idx < reg_usable(reg) ? &reg->f->sock[idx] : NULL;

	out->left = s ? reg_load(&s->left) : 0;
	out->rcvbuf = s ? reg_load(&s->rcvbuf) : 0;
}

void registry_sock_emptied(struct registry *reg, uint32_t idx)
{
	struct reg_sock *s = own_sock(reg, idx);

	if (s)
		reg_store(&s->left, 0);
}

/* Counted first: who is killed in between has it counted, and has not left it. */
static int leave_there(struct reg_sock *s, uint32_t more, int (*act)(const struct rds_procid *name, void *arg),
		       void *arg)
{
	uint32_t left = reg_load(&s->left);
	struct rds_procid name;
	int ret;

	reg_words_load(&name, s->id);
	reg_store(&s->left, more < UINT32_MAX - left ? left + more : UINT32_MAX);
	ret = act(&name, arg);
	if (ret < 0)
		reg_store(&s->left, left);
	return ret;
}

int registry_if_nobodys(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope, uint32_t left,
			uint32_t more, int (*act)(const struct rds_procid *name, void *arg), void *arg)
{
	struct reg_key key = make_key(addr, port, scope);
	struct reg_sock *s;
	uint32_t link;
	int ret = port ? reg_trylock(reg) : -ENOENT;

	if (ret)
		return ret;
	link = find_sound(reg, &key);
	s = link && link != REG_BAD ? reg_sock_at(reg, link) : NULL;
	if (!s || reg_load(&s->proc) != REG_NOBODY)
		ret = -ENOENT;
	else if (reg_load(&s->left) != left)
		ret = -EAGAIN;
	else
		ret = leave_there(s, more, act, arg);
	reg_unlock(reg);
	return ret;
}
