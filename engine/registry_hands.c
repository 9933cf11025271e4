/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * registry_hands.c - sockets that change hands: what their process gives up, another one takes, and somebody leaves there meanwhile.
 */
#include <errno.h>

#include "engine/registry_impl.h"

static void give_to(struct registry *reg, struct reg_sock *s, uint32_t proc, int32_t pid, const struct rds_procid *id)
{
	reg_begin_bindings(reg);
	reg_sock_give(s, proc, pid, id);
	reg_end_bindings(reg);
}

int registry_sock_leave(struct registry *reg, uint32_t idx, const struct rds_procid *name)
{
	struct reg_sock *s;
	bool left = false;
	int ret;

	do {
		ret = reg_lock(reg);
		if (ret)
			return ret;
		s = reg_own_sock(reg, reg->at, idx);
		if (s) {
			reg_store(&reg_area(reg)->orphans, 1);
			give_to(reg, s, REG_NOBODY, 0, name);
			left = true; /* if not ours any more the second time, it was copied */
		}
	} while (!reg_unlock(reg));
	return left ? 0 : -EIO;
}

/* An entry, whoever has it: it has that name. */
static struct reg_sock *called(struct reg_view *v, uint32_t idx, const struct rds_procid *name)
{
	struct reg_sock *s;
	uint64_t idw[2];

	memcpy(idw, name, sizeof(idw));
	if (idx >= reg_usable(v))
		return NULL;
	s = reg_sock_at(v, idx + 1);
	return reg_load(&s->mark) && reg_words_eq(s->name, idw) ? s : NULL;
}

int registry_sock_take(struct registry *reg, uint32_t idx, const struct rds_procid *name, bool sure)
{
	struct reg_sock *s;
	bool taken = false;
	int ret;

	do {
		ret = reg_lock(reg);
		if (ret)
			return ret;
		s = called(reg->at, idx, name);
		if (taken && s && reg_own_sock(reg, reg->at, idx)) /* the second time: it was copied */
			continue;
		taken = s && (sure || reg_load(&s->proc) == REG_NOBODY);
		if (taken)
			give_to(reg, s, reg->slot, reg->pid, &reg->id);
	} while (!reg_unlock(reg));
	return taken ? 0 : -ENOENT;
}

int registry_sock_where(struct registry *reg, uint32_t idx, const struct rds_procid *name, struct registry_sock *out)
{
	struct reg_sock *s = called(reg_now(reg), idx, name);

	if (!s)
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
	bool gone;

	if (reg_lock(reg))
		return false;
	s = called(reg->at, idx, name);
	gone = !s || reg_orphan_gone(s);
	reg_unlock(reg);
	return gone;
}

void registry_sock_inbox(struct registry *reg, uint32_t idx, struct registry_inbox *out)
{
	struct reg_view *v = reg_now(reg);
	struct reg_sock *s = idx < reg_usable(v) ? reg_sock_at(v, idx + 1) : NULL;

	out->left = s ? reg_load(&s->left) : 0;
	out->rcvbuf = s ? reg_load(&s->rcvbuf) : 0;
}

bool registry_still_ours(struct registry *reg)
{
	return reg_holds(reg);
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

/* It has been left, and others have gone on without us: too much is better than too little.  Who has taken the socket by now has it. */
static void count_again(struct registry *reg, const struct reg_key *key, uint32_t more)
{
	struct reg_sock *s;
	uint32_t link;

	do {
		if (reg_lock(reg))
			return;
		link = reg_find_sound(reg, key);
		s = link && link != REG_BAD ? reg_sock_at(reg->at, link) : NULL;
		if (s && reg_load(&s->proc) == REG_NOBODY)
			reg_store(&s->left, more < UINT32_MAX - reg_load(&s->left) ? reg_load(&s->left) + more : UINT32_MAX);
	} while (!reg_unlock(reg));
}

int registry_if_nobodys(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope, uint32_t left,
			uint32_t more, int (*act)(const struct rds_procid *name, void *arg), void *arg)
{
	struct reg_key key = reg_make_key(addr, port, scope);
	struct reg_sock *s;
	uint32_t link;
	int ret = port ? reg_trylock(reg) : -ENOENT;

	if (ret)
		return ret;
	link = reg_find_sound(reg, &key);
	s = link && link != REG_BAD ? reg_sock_at(reg->at, link) : NULL;
	if (!s || reg_load(&s->proc) != REG_NOBODY)
		ret = -ENOENT;
	else if (reg_load(&s->left) != left)
		ret = -EAGAIN;
	else
		ret = leave_there(s, more, act, arg);
	if (!reg_unlock(reg) && ret >= 0)
		count_again(reg, &key, more);
	return ret;
}
