/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * snapshot.c - the state of the whole node: counters, sockets, processes; for rds-info and the
 * like. Copies are made under the lock; which processes are alive is checked afterwards without it.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/node/registry_impl.h"
#include "engine/node/socket_name.h"

static void counters_add_up(struct registry *reg, struct reg_view *v, uint64_t out[RDS_STATS])
{
	struct reg_area *a = reg_load(&v->a);

	memset(out, 0, RDS_STATS * sizeof(*out));
	if (!reg_usable(v))
		return;
	for (int i = 0; i < RDS_STATS; i++)
		out[i] = reg_load(&a->dead[i]);
	for (uint32_t slot = 0; slot < REG_PROCS; slot++) {
		if (!reg_load(&a->state[slot]))
			continue;
		for (int i = 0; i < RDS_STATS; i++)
			out[i] += reg_load(&reg->f->proc[slot].counters[i]);
	}
}

void registry_counters_sum(struct registry *reg, uint64_t out[RDS_STATS])
{
	do {
		if (reg_lock(reg)) {
			/*
			 * A fold may be counted in part; that is still better than no counters at
			 * all.
			 */
			counters_add_up(reg, reg_view_of(reg, reg_load(&reg->f->h.term)), out);
			return;
		}
		counters_add_up(reg, reg->at, out);
	} while (!reg_unlock(reg));
}

static void snapshot_entry(struct registry *reg, uint32_t link, struct registry_sock *out)
{
	struct reg_sock *s = reg_sock_at(reg->at, link);

	memset(out, 0, sizeof(*out));
	out->sock = link - 1;
	reg_words_load(&out->bound, s->addr);
	reg_words_load(&out->connected, s->connected);
	reg_words_load(&out->procid, s->id);
	out->scope = reg_load(&s->scope);
	out->bound_port = (uint16_t)reg_load(&s->mark);
	out->connected_port = (uint16_t)reg_load(&s->connected_port);
	out->sndbuf = reg_load(&s->sndbuf);
	out->rcvbuf = reg_load(&s->rcvbuf);
	out->inode = reg_load(&s->inode);
	out->order = reg_load(&s->order);
	out->transport = reg_load(&s->transport);
	out->proc = reg_load(&s->proc);
	out->pid = reg_load(&s->pid);
	out->congested = reg_load(&s->congested);
}

static int compare_order(const void *a, const void *b)
{
	const struct registry_sock *x = a, *y = b;

	return x->order < y->order ? -1 : x->order > y->order;
}

/* Makes one system call per process instead of one per socket. */
struct living {
	uint8_t asked[REG_PROCS]; /* 0 not yet, 1 lives, 2 dead */
};

static bool entry_is_alive(struct registry *reg, struct living *l, const struct registry_sock *s)
{
	if (s->proc >= REG_PROCS)
		return s->proc == REG_NOBODY && !registry_sock_is_gone(reg, s->sock, &s->procid);
	if (!l->asked[s->proc])
		l->asked[s->proc] = registry_proc_alive(reg, s->proc, &s->procid) ? 1 : 2;
	return l->asked[s->proc] == 1;
}

int registry_socks(struct registry *reg, struct registry_sock **out, unsigned *n)
{
	struct living living = { 0 };
	unsigned found = 0, kept = 0;
	struct registry_sock *v;
	uint32_t link, used = 0;
	int ret = reg_lock(reg);

	if (ret)
		return ret;
	for (link = reg_usable(reg->at); link; link--)
		used += reg_load(&reg_sock_at(reg->at, link)->mark) != 0;
	v = calloc(used + 1, sizeof(*v));
	for (link = 1; v && link <= reg_usable(reg->at) && found < used; link++) {
		if (reg_load(&reg_sock_at(reg->at, link)->mark))
			snapshot_entry(reg, link, &v[found++]);
	}
	reg_unlock(reg);
	if (!v)
		return -ENOMEM;
	for (unsigned i = 0; i < found; i++) {
		if (entry_is_alive(reg, &living, &v[i]))
			v[kept++] = v[i];
	}
	qsort(v, kept, sizeof(*v), compare_order);
	*out = v;
	*n = kept;
	return 0;
}

int registry_procs(struct registry *reg, struct registry_proc **out, unsigned *n)
{
	struct registry_proc *v = calloc(REG_PROCS, sizeof(*v));
	unsigned found = 0, kept = 0;
	int ret;

	if (!v)
		return -ENOMEM;
	ret = reg_lock(reg);
	if (ret) {
		free(v);
		return ret;
	}
	for (uint32_t slot = 0; slot < REG_PROCS; slot++) {
		struct reg_proc *p = &reg->f->proc[slot];

		if (!reg_load(&reg_area(reg)->state[slot]))
			continue;
		v[found].slot = slot;
		v[found].pid = reg_load(&p->pid);
		reg_words_load(&v[found].id, p->id);
		reg_words_load(v[found].comm, p->comm);
		v[found].comm[sizeof(v[found].comm) - 1] = 0;
		found++;
	}
	reg_unlock(reg);
	for (unsigned i = 0; i < found; i++) {
		if (registry_proc_alive(reg, v[i].slot, &v[i].id))
			v[kept++] = v[i];
	}
	*out = v;
	*n = kept;
	return 0;
}
