/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * area_lock.c - sockets that change their owner: the owner gives a socket up, another process takes
 * it over, and senders leave messages for it meanwhile.
 */
#include <errno.h>

#include "engine/node/registry_impl.h"

static void entry_change_owner(struct registry *reg, struct reg_sock *s, uint32_t proc, int32_t pid,
			       const struct rds_procid *id)
{
	reg_bindings_begin(reg);
	reg_sock_set_owner(s, proc, pid, id);
	reg_bindings_end(reg);
}

int registry_sock_orphan(struct registry *reg, uint32_t idx, const struct rds_procid *name)
{
	struct reg_sock *s;
	bool left = false;
	int ret;

	do {
		ret = reg_lock(reg);
		if (ret)
			return ret;
		s = reg_sock_own(reg, reg->at, idx);
		if (s) {
			reg_store(&reg_area(reg)->orphans, 1);
			entry_change_owner(reg, s, REG_NOBODY, 0, name);
			/* if it is not ours any more the second time, the change was copied */
			left = true;
		}
	} while (!reg_unlock(reg));
	return left ? 0 : -EIO;
}

/* The entry of that name, whichever process owns it. */
static struct reg_sock *entry_by_name(struct reg_view *v, uint32_t idx, const struct rds_procid *name)
{
	struct reg_sock *s;
	uint64_t idw[2];

	memcpy(idw, name, sizeof(idw));
	if (idx >= reg_usable(v))
		return NULL;
	s = reg_sock_at(v, idx + 1);
	return reg_load(&s->mark) && reg_words_eq(s->name, idw) ? s : NULL;
}

int registry_sock_take_over(struct registry *reg, uint32_t idx, const struct rds_procid *name, bool sure)
{
	struct reg_sock *s;
	bool taken = false;
	int ret;

	do {
		ret = reg_lock(reg);
		if (ret)
			return ret;
		s = entry_by_name(reg->at, idx, name);
		/* the second time: the change was copied */
		if (taken && s && reg_sock_own(reg, reg->at, idx))
			continue;
		taken = s && (sure || reg_load(&s->proc) == REG_NOBODY);
		if (taken)
			entry_change_owner(reg, s, reg->slot, reg->pid, &reg->id);
	} while (!reg_unlock(reg));
	return taken ? 0 : -ENOENT;
}

int registry_sock_get_binding(struct registry *reg, uint32_t idx, const struct rds_procid *name,
			      struct registry_sock *out)
{
	struct reg_sock *s = entry_by_name(reg_view_current(reg), idx, name);

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

/*
 * Locked, because the check takes the name for a moment: another process that checked at the same
 * time would believe that the socket exists.
 */
bool registry_sock_is_gone(struct registry *reg, uint32_t idx, const struct rds_procid *name)
{
	struct reg_sock *s;
	bool gone;

	if (reg_lock(reg))
		return false;
	s = entry_by_name(reg->at, idx, name);
	gone = !s || reg_orphan_gone(s);
	reg_unlock(reg);
	return gone;
}

void registry_sock_mailbox(struct registry *reg, uint32_t idx, struct registry_mailbox *out)
{
	struct reg_view *v = reg_view_current(reg);
	struct reg_sock *s = idx < reg_usable(v) ? reg_sock_at(v, idx + 1) : NULL;

	out->mailbox_bytes = s ? reg_load(&s->mailbox_bytes) : 0;
	out->rcvbuf = s ? reg_load(&s->rcvbuf) : 0;
}

bool registry_lock_is_ours(struct registry *reg)
{
	return reg_lock_is_ours(reg);
}

/*
 * The bytes are counted first. If the process is killed in between, they are counted and not left
 * there.
 */
static int mailbox_act(struct reg_sock *s, uint32_t more, int (*act)(const struct rds_procid *name, void *arg),
		       void *arg)
{
	uint32_t left = reg_load(&s->mailbox_bytes);
	struct rds_procid name;
	int ret;

	reg_words_load(&name, s->id);
	reg_store(&s->mailbox_bytes, more < UINT32_MAX - left ? left + more : UINT32_MAX);
	ret = act(&name, arg);
	if (ret < 0)
		reg_store(&s->mailbox_bytes, left);
	return ret;
}

/*
 * The messages have been left, and others have gone on without this process. A count that is too
 * high is better than one that is too low. A process that has taken the socket over by now has the
 * messages.
 */
static void mailbox_recount(struct registry *reg, const struct reg_key *key, uint32_t more)
{
	struct reg_sock *s;
	uint32_t link;

	do {
		if (reg_lock(reg))
			return;
		link = reg_table_find_repaired(reg, key);
		s = link && link != REG_BAD ? reg_sock_at(reg->at, link) : NULL;
		if (s && reg_load(&s->proc) == REG_NOBODY)
			reg_store(&s->mailbox_bytes, more < UINT32_MAX - reg_load(&s->mailbox_bytes)
							     ? reg_load(&s->mailbox_bytes) + more
							     : UINT32_MAX);
	} while (!reg_unlock(reg));
}

int registry_orphan_act(struct registry *reg, const struct in6_addr *addr, uint16_t port, uint32_t scope, uint32_t left,
			uint32_t more, int (*act)(const struct rds_procid *name, void *arg), void *arg)
{
	struct reg_key key = reg_key_make(addr, port, scope);
	struct reg_sock *s;
	uint32_t link;
	int ret = port ? reg_trylock(reg) : -ENOENT;

	if (ret)
		return ret;
	link = reg_table_find_repaired(reg, &key);
	s = link && link != REG_BAD ? reg_sock_at(reg->at, link) : NULL;
	if (!s || reg_load(&s->proc) != REG_NOBODY)
		ret = -ENOENT;
	else if (reg_load(&s->mailbox_bytes) != left)
		ret = -EAGAIN;
	else
		ret = mailbox_act(s, more, act, arg);
	if (!reg_unlock(reg) && ret >= 0)
		mailbox_recount(reg, &key, more);
	return ret;
}
