/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * own_entry.c - what a process changes of the entries of its own sockets: name, sizes, flags, peer,
 * and their end.
 *
 * Only the owner writes these words, so most of them need no lock. But other processes may go on in
 * a copy of the area (area.c), and a change that comes after the copying of its entry would be
 * lost. store_own() makes the change again with the lock, for which it may wait. store_nowait()
 * does not wait: it writes into the copy as well.
 */
#include "engine/sys/fence.h"
#include "engine/node/registry_impl.h"

#define NOWAIT_TRIES 16

struct reg_sock *reg_sock_own(struct registry *reg, struct reg_view *v, uint32_t idx)
{
	struct reg_sock *s;

	if (idx >= reg_usable(v))
		return NULL;
	s = reg_sock_at(v, idx + 1);
	if (!reg_load(&s->mark) || reg_load(&s->proc) != reg->slot || !reg_words_eq(s->id, reg->idw))
		return NULL;
	return s;
}

/* Without the lock. If other processes are about to go on in another area, again with the lock. */
static void store_own(struct registry *reg, uint32_t idx, void (*store)(struct reg_sock *s, const void *what),
		      const void *what)
{
	_Atomic uint64_t *t = &reg->f->h.term;
	uint64_t term = reg_load(t);
	struct reg_sock *s = reg_sock_own(reg, reg_view_of(reg, term), idx);

	if (s) {
		store(s, what);
		if (!(term & REG_TERM_COPYING) && atomic_fetch_add_explicit(t, 0, memory_order_acq_rel) == term)
			return;
	}
	do {
		if (reg_lock(reg))
			return;
		s = reg_sock_own(reg, reg->at, idx);
		if (s)
			store(s, what);
	} while (!reg_unlock(reg));
}

static void store_name(struct reg_sock *s, const void *name)
{
	/* if this process is killed here, half a name belongs to no socket */
	reg_words_store(s->name, name);
}

static void store_shared(struct reg_sock *s, const void *what)
{
	(void)what;
	reg_store(&s->shared, 1);
}

static void store_bufs(struct reg_sock *s, const void *what)
{
	const uint32_t *bufs = what;

	reg_store(&s->sndbuf, bufs[0]);
	reg_store(&s->rcvbuf, bufs[1]);
}

static void store_mailbox_empty(struct reg_sock *s, const void *what)
{
	(void)what;
	reg_store(&s->mailbox_bytes, 0);
}

static void store_unused(struct reg_sock *s, const void *what)
{
	(void)what;
	reg_store(&s->mark, 0);
}

void registry_sock_set_name(struct registry *reg, uint32_t idx, const struct rds_procid *name)
{
	store_own(reg, idx, store_name, name);
}

void registry_sock_set_shared(struct registry *reg, uint32_t idx)
{
	store_own(reg, idx, store_shared, NULL);
}

void registry_sock_set_bufs(struct registry *reg, uint32_t idx, uint32_t sndbuf, uint32_t rcvbuf)
{
	uint32_t bufs[2] = {sndbuf, rcvbuf};

	store_own(reg, idx, store_bufs, bufs);
}

void registry_sock_mailbox_clear(struct registry *reg, uint32_t idx)
{
	store_own(reg, idx, store_mailbox_empty, NULL);
}

void registry_sock_set_connected(struct registry *reg, uint32_t idx, const struct in6_addr *addr, uint16_t port)
{
	bool locked, done;

	do {
		/* without the lock, a snapshot may show half of the change, no worse */
		locked = reg_lock(reg) == 0;
		struct reg_sock *s =
			reg_sock_own(reg, locked ? reg->at : reg_view_of(reg, reg_load(&reg->f->h.term)), idx);

		if (s) {
			reg_words_store(s->connected, addr);
			reg_store(&s->connected_port, port);
		}
		done = !locked || reg_unlock(reg);
	} while (!done);
}

/*
 * A copy that is being made may contain the entry already. The loop repeats if other processes have
 * gone on meanwhile.
 */
static void store_nowait(struct registry *reg, uint32_t idx,
			 void (*store)(struct reg_view *v, struct reg_sock *s, bool what), bool what)
{
	_Atomic uint64_t *t = &reg->f->h.term;
	struct reg_view *v;
	struct reg_sock *s;
	unsigned tries = 0;
	uint64_t term;

	do {
		term = reg_load(t);
		v = reg_view_of(reg, term);
		if ((s = reg_sock_own(reg, v, idx)))
			store(v, s, what);
		rds_fence(); /* see entry_copy() */
		v = reg_view_of(reg, REG_TERM_AREA(term));
		if (term & REG_TERM_COPYING && (s = reg_sock_own(reg, v, idx)))
			store(v, s, what);
	} while (atomic_fetch_add_explicit(t, 0, memory_order_acq_rel) != term && ++tries < NOWAIT_TRIES);
}

static void store_congested(struct reg_view *v, struct reg_sock *s, bool congested)
{
	(void)v;
	reg_store(&s->congested, congested);
}

/*
 * Under rx, so it does not wait for the lock. A process that copies the entry at this very moment
 * may leave the earlier value in the copy: rds-info shows it until the next change.
 */
void registry_sock_set_congested(struct registry *reg, uint32_t idx, bool congested)
{
	store_nowait(reg, idx, store_congested, congested);
}

/*
 * The owner may always clear the entry's `mark`; the next process that has the lock repairs the
 * lists.
 */
static void store_withdrawn(struct reg_view *v, struct reg_sock *s, bool unused)
{
	(void)unused;
	store_unused(s, NULL);
	reg_store(&reg_load(&v->a)->dirty, 1);
}

void registry_sock_remove(struct registry *reg, uint32_t idx)
{
	struct reg_sock *s;

	do {
		if (reg_lock(reg)) {
			store_nowait(reg, idx, store_withdrawn, true);
			return;
		}
		s = reg_sock_own(reg, reg->at, idx);
		if (s && reg_load(&s->mark) == REG_SOCK_USED) {
			reg_change_begin(reg); /* never bound, so look-ups need not repeat */
			reg_sock_free(reg, idx + 1);
			reg_change_end(reg);
		} else if (s) {
			reg_bindings_begin(reg);
			reg_sock_free(reg, idx + 1);
			reg_bindings_end(reg);
		}
	} while (!reg_unlock(reg));
}
