/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * registry.c - the node registry for the rest of the engine: join, add a socket, bind it, look-up,
 * leave.
 *
 * The other files of the registry are layout.h (bytes), file.c (the file), inherited.c (the file that
 * a parent, or the last program of this process, had open), file_lock.c (locks and repair), area.c
 * (going on without a stopped process), bindings.c (hash and entries), own_entry.c (what the owner
 * of a socket changes), process.c (process slots), area_lock.c (sockets that change their owner),
 * snapshot.c (snapshots and sums), others.c (processes of other users) and port_name.c (their ports).
 */
#include "engine/node/registry.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/sys/log.h"
#include "engine/sys/os.h"
#include "engine/node/registry_impl.h"

#define LOOKUP_TRIES 256

struct registry *rds_node_registry;
/* the process that has the registry open; it must not open it twice (registry_open()) */
static _Atomic pid_t opener;

/* Called locked; unlocks. */
static int join_node(struct registry *reg)
{
	int ret = reg_repair(reg);

	for (;;) {
		if (!ret)
			ret = reg_proc_join(reg);
		if (reg_unlock(reg) && ret != -EAGAIN)
			break;
		ret = reg_lock(reg);
		if (ret)
			return ret;
	}
	reg->joined = !ret;
	return ret;
}

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
		rds_error("there is no memory for the RDS engine (ulimit -v; after mlockall() ulimit -l)");
		atomic_store(&opener, 0);
		return -ENOMEM;
	}
	pthread_mutex_init(&reg->mutex, NULL);
	reg->pid = pid;
	reg->slot = REG_PROCS;
	os_fd_init(&reg->fds);
	ret = reg_file_open(reg);
	if (!ret)
		ret = join_node(reg);
	if (ret) {
		if (reg->inherited)
			reg_inherited_keep(reg);
		registry_abandon(reg);
		free(reg);
		atomic_store(&opener, 0);
		return ret;
	}
	*out = reg;
	return 0;
}

static void counters_detach(struct registry *reg)
{
	if (reg->f && reg->slot < REG_PROCS && atomic_load(&rds_stat_block) == reg->f->proc[reg->slot].counters)
		rds_stat_detach();
}

void registry_close(struct registry *reg)
{
	counters_detach(reg);
	reg->joined = false;
	/* If the lock fails, the next process takes this one for dead and does the same. */
	while (reg_lock(reg) == 0) {
		if (reg_proc_is(reg, reg->at, reg->slot, reg->idw))
			reg_proc_leave(reg);
		if (reg_unlock(reg))
			break;
	}
	reg_file_close(reg);
	pthread_mutex_destroy(&reg->mutex);
	free(reg);
	atomic_store(&opener, 0);
}

/*
 * The child may have been forked by a signal handler that interrupted malloc(), so the structure is
 * not freed.
 */
void registry_abandon(struct registry *reg)
{
	counters_detach(reg);
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

static void entry_fill(struct registry *reg, struct reg_sock *s, uint64_t inode, uint32_t sndbuf, uint32_t rcvbuf)
{
	struct reg_area *a = reg_area(reg);

	for (int i = 0; i < 2; i++) {
		reg_store(&s->addr[i], 0);
		reg_store(&s->connected[i], 0);
		reg_store(&s->name[i], 0);
	}
	reg_store(&s->connected_port, 0);
	reg_store(&s->scope, 0);
	reg_store(&s->transport, 0);
	reg_store(&s->shared, 0);
	reg_store(&s->mailbox_bytes, 0);
	reg_store(&s->moved, 0);
	reg_store(&s->congested, 0);
	reg_store(&s->pid, reg->pid);
	reg_store(&s->proc, reg->slot);
	reg_words_store(s->id, &reg->id);
	reg_store(&s->inode, inode);
	reg_store(&s->sndbuf, sndbuf);
	reg_store(&s->rcvbuf, rcvbuf);
	reg_store(&s->order, reg_load(&a->order));
	reg_store(&a->order, reg_load(&s->order) + 1);
	reg_store(&s->mark, REG_SOCK_USED);
}

/* Locked: entries of the dead are used before the file grows. */
static bool reap_for_entries(struct registry *reg)
{
	struct reg_dead dead;

	if (reg_proc_find_dead(reg, reg->at, &dead))
		reg_proc_reap(reg, &dead);
	return reg_load(&reg_area(reg)->free) != 0;
}

int registry_sock_add(struct registry *reg, uint64_t inode, uint32_t sndbuf, uint32_t rcvbuf, uint32_t *idx)
{
	uint32_t link = 0;
	int ret;

	do {
		ret = reg_lock(reg);
		if (ret)
			return ret;
		/* The second time the entry may be there already, whole or in part. */
		if (!link || !reg_sock_own(reg, reg->at, link - 1)) {
			if (!reg_load(&reg_area(reg)->free) && !reap_for_entries(reg))
				ret = reg_file_grow(reg);
			reg_change_begin(reg);
			link = ret ? 0 : reg_sock_alloc(reg);
		}
		reg_change_begin(reg);
		if (link)
			entry_fill(reg, reg_sock_at(reg->at, link), inode, sndbuf, rcvbuf);
		reg_change_end(reg);
	} while (!reg_unlock(reg));
	*idx = link - 1;
	return link || ret ? ret : -EIO;
}

struct reg_key reg_key_make(const struct in6_addr *addr, uint16_t port, uint32_t scope)
{
	struct reg_key key = {.scope = scope, .port = port};

	memcpy(key.addr, addr, sizeof(key.addr));
	return key;
}

uint32_t reg_table_find_repaired(struct registry *reg, const struct reg_key *key)
{
	uint32_t link = reg_table_find(reg->at, key);

	if (link == REG_BAD) {
		reg_table_rebuild(reg);
		link = reg_table_find(reg->at, key);
	}
	return link;
}

/* Locked: 0 if the key is free, either now or because its owner is dead and has been cleared up. */
static int key_claim(struct registry *reg, const struct reg_key *key)
{
	struct reg_dead suspect = {0};
	uint32_t link = reg_table_find_repaired(reg, key), slot;

	if (link == 0)
		return 0;
	if (link == REG_BAD)
		return -EIO;
	slot = reg_load(&reg_sock_at(reg->at, link)->proc);
	if (slot == REG_NOBODY) {
		reg_orphan_sweep(reg);
		link = reg_table_find_repaired(reg, key);
	}
	if (slot < REG_PROCS) {
		suspect.bits[slot / 64] |= UINT64_C(1) << slot % 64;
		if (reg_proc_reap(reg, &suspect))
			link = reg_table_find_repaired(reg, key);
	}
	if (link == REG_BAD)
		return -EIO;
	if (link == 0)
		return 0;
	return reg_load(&reg_sock_at(reg->at, link)->shared) ? -EBUSY : -EADDRINUSE;
}

/* Locked: searches for a port that is unused or belonged to a dead process. */
static uint16_t choose_port(struct registry *reg, struct reg_key key, uint16_t hint)
{
	struct reg_dead dead;
	uint16_t port;

	key.port = hint;
	if (hint && reg_table_find_repaired(reg, &key) == 0)
		return hint;
	port = reg_table_unused_port(reg->at, key, hint);
	if (port)
		return port;
	/*
	 * No port is free. Before that is the answer, dead processes and damaged chains are cleared
	 * up.
	 */
	if (reg_proc_find_dead(reg, reg->at, &dead))
		reg_proc_reap(reg, &dead);
	reg_orphan_sweep(reg);
	reg_table_rebuild(reg);
	return reg_table_unused_port(reg->at, key, hint);
}

static int bind_locked(struct registry *reg, struct reg_sock *s, uint32_t idx, struct reg_key *key, int transport)
{
	reg_bindings_begin(reg);
	for (int i = 0; i < 2; i++)
		reg_store(&s->addr[i], key->addr[i]);
	reg_store(&s->scope, key->scope);
	reg_store(&s->transport, transport);
	reg_store(&s->mark, REG_SOCK_USED | key->port);
	reg_table_link(reg, idx + 1, key);
	reg_bindings_end(reg);
	return 0;
}

struct claim {
	struct reg_key key;
	uint16_t hint; /* where the search begins; 0: key.port is what is wanted */
	int transport;
	int hold;   /* gets the name of the port (port_name.c); -1: none is needed */
	bool held;  /* ... and has it: it cannot have another one */
	bool taken; /* another socket has it, but the port is free here */
	bool again; /* the change was made once and did not count, but it may have been copied */
};

/* Locked: a port that is free here, and of which no other user has the name. */
static int claim_port(struct registry *reg, struct claim *c)
{
	int ret = 0;

	for (unsigned left = 65534; left; left--) {
		if (c->hint && !c->held)
			c->key.port = choose_port(reg, c->key, c->hint);
		else
			ret = key_claim(reg, &c->key);
		if (ret || !c->key.port)
			return ret ? ret : -EADDRINUSE;
		if (!c->held)
			ret = reg_port_hold(reg, &c->key, c->hold);
		c->held |= !ret;
		c->taken = ret == -EADDRINUSE;
		if (ret != -EADDRINUSE || !c->hint)
			return ret;
		reg_heartbeat(reg);
		c->hint = c->key.port == 65535 ? 2 : c->key.port + 1;
		ret = 0;
	}
	return -EADDRINUSE;
}

static int try_bind(struct registry *reg, uint32_t idx, struct claim *c)
{
	struct reg_sock *s;
	int ret;

	s = reg_sock_own(reg, reg->at, idx);
	if (s && c->again && reg_load(&s->mark) != REG_SOCK_USED) {
		c->key.port = (uint16_t)reg_load(&s->mark);
		return 0;
	}
	ret = claim_port(reg, c);
	if (ret)
		return ret;
	s = reg_sock_own(reg, reg->at, idx); /* the repair may have removed this entry */
	if (!s)
		return -EIO;
	return reg_load(&s->mark) != REG_SOCK_USED ? -EINVAL : bind_locked(reg, s, idx, &c->key, c->transport);
}

int registry_sock_claim(struct registry *reg, uint32_t idx, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			int transport, int hold, uint16_t *bound_port)
{
	struct claim c = {.key = reg_key_make(addr, port, scope), .transport = transport, .hold = hold};
	int ret;

	if (!port) {
		/*
		 * A long search is made without the lock; under the lock its result is only
		 * confirmed.
		 */
		os_random(&c.hint, sizeof(c.hint));
		c.hint = reg_table_unused_port(reg_view_current(reg), c.key, c.hint);
		c.hint = c.hint ? c.hint : 2;
	}
	do {
		ret = reg_lock(reg);
		if (ret)
			return ret;
		ret = try_bind(reg, idx, &c);
		c.again = !ret;
	} while (!reg_unlock(reg));
	if (!ret)
		*bound_port = c.key.port;
	/* its last owner may be about to end, or to close its copy of the name */
	if (ret == -EADDRINUSE && port && c.taken && !reg_port_is_anothers(reg, &c.key))
		ret = -EBUSY;
	return ret;
}

int registry_sock_bind(struct registry *reg, uint32_t idx, const struct in6_addr *addr, uint16_t port, uint32_t scope,
		       int transport, uint16_t *bound_port)
{
	return registry_sock_claim(reg, idx, addr, port, scope, transport, -1, bound_port);
}

int registry_check_lock(struct registry *reg)
{
	int ret = reg_lock(reg);

	if (!ret)
		reg_unlock(reg);
	return ret;
}

uint64_t registry_sock_order(struct registry *reg, uint32_t idx)
{
	struct reg_view *v = reg_view_current(reg);

	return idx < reg_usable(v) ? reg_load(&reg_sock_at(v, idx + 1)->order) : 0;
}

/* ---- look-up ---- */

static void owner_read(struct reg_view *v, uint32_t link, struct registry_owner *out)
{
	struct reg_sock *s = reg_sock_at(v, link);

	out->sock = link - 1;
	out->proc = reg_load(&s->proc);
	out->pid = reg_load(&s->pid);
	out->transport = reg_load(&s->transport);
	out->moved = reg_load(&s->moved);
	reg_words_load(&out->procid, s->id);
	out->order = reg_load(&s->order);
}

/*
 * A writer died or hangs in the middle of a change, or the chain is damaged. Taking the lock
 * repairs that.
 */
static int lookup_with_lock(struct registry *reg, const struct reg_key *key, struct registry_owner *out)
{
	uint32_t link;
	int ret = reg_lock(reg);

	if (ret)
		return ret;
	link = reg_table_find_repaired(reg, key);
	if (link == REG_BAD)
		ret = -EIO;
	else if (link)
		owner_read(reg->at, link, out);
	else
		ret = -ENOENT;
	reg_unlock(reg);
	return ret;
}

/*
 * -EIO: the chain is damaged, or the area cannot be read. -EAGAIN: a process is changing the
 * bindings, or has died or hangs in the middle of a change.
 */
static int lookup_unlocked(struct registry *reg, const struct reg_key *key, struct registry_owner *out)
{
	_Atomic uint64_t *t = &reg->f->h.term;

	for (unsigned tries = 0; tries < LOOKUP_TRIES; tries++) {
		uint64_t term = reg_load(t), before;
		struct reg_view *v = reg_view_of(reg, term);
		struct reg_area *a = reg_load(&v->a);
		uint32_t link;

		if (!reg_usable(v))
			return -EIO;
		before = reg_load(&a->seq);
		if (before & 1)
			continue;
		link = reg_table_find(v, key);
		if (link && link != REG_BAD)
			owner_read(v, link, out);
		if (atomic_load_explicit(&a->seq, memory_order_relaxed) != before || reg_load(t) != term)
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
	struct reg_key key = reg_key_make(addr, port, scope);
	int ret = port ? lookup_unlocked(reg, &key, out) : -ENOENT;

	return ret == 0 || ret == -ENOENT ? ret : lookup_with_lock(reg, &key, out);
}

int registry_lookup_nowait(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			   struct registry_owner *out)
{
	struct reg_key key = reg_key_make(addr, port, scope);

	return port ? lookup_unlocked(reg, &key, out) : -ENOENT;
}
