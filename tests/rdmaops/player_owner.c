/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * player_owner.c - an actor as an owner: it grants its slots as regions, and compares what comes
 * back with the log.
 */
#include <errno.h>
#include <stdlib.h>

#include "player.h"

static uint64_t region_flags(struct actor *a)
{
	uint64_t r = actor_random(a);

	return (r % 8 ? F_WRITE : 0) | (r >> 8) % 8 / 7 * F_USE_ONCE | (r >> 16) % 2 * F_INVALIDATE;
}

void owner_grant(struct actor *a, unsigned i)
{
	static struct request r;
	struct slot *s = &board->slot[a->id][i];
	uint64_t flags = region_flags(a), cookie = 0;
	unsigned how = actor_random(a) % 4, writer = actor_random(a) % actors;
	int rc;

	if (!r.payload)
		r.payload = malloc(sizeof(struct header) + 65536);
	s->gen++;
	s->writer = writer;
	s->flags = (uint32_t)flags;
	s->life = a->life;
	s->base = actor_random(a) % (POOL - SLOT_MAX);
	memcpy(a->mem[i], pool + s->base, SLOT_BYTES(i));
	memset(a->mem[i], 0, 8);
	memcpy(s->word, a->mem[i], sizeof(s->word));
	atomic_store(&s->n, 0);
	atomic_store(&s->digits, 0);
	memset(s->log, 0, sizeof(s->log));
	memset((void *)s->digit, 0, sizeof(s->digit));
	request_begin(a, &r, writer);
	r.head.hello = 1;
	r.head.slot = i;
	r.head.gen = s->gen;
	memset(&r.args, 0, sizeof(r.args));
	memset(&r.atomic, 0, sizeof(r.atomic));
	if (how < 3) {
		rc = wire->get_mr(a, a->mem[i], SLOT_BYTES(i), flags, &cookie, how == 1);
		if (rc || !(uint32_t)cookie)
			actor_fail(a, "GET_MR of %zu bytes: expected a cookie, came %d, %llx", SLOT_BYTES(i), rc,
				   (unsigned long long)cookie);
	}
	if (how >= 2) {
		request_body(a, &r, actor_random(a) % 100);
		r.cmsg = how == 2 ? CMSG_DEST : CMSG_MAP;
		r.dest = cookie;
		r.map = (struct get_mr){{(uintptr_t)a->mem[i], SLOT_BYTES(i)}, (uintptr_t)&cookie, flags};
		rc = request_send(a, &r);
		if (rc && !request_busy(rc))
			actor_fail(a, "a message with %s: expected 0, came %d", how == 2 ? "RDMA_DEST" : "RDMA_MAP",
				   rc);
		if (rc && how == 3)
			return; /* the region is gone with the message: later */
		if (!rc)
			request_sent(a, &r);
		if (!(uint32_t)cookie)
			actor_fail(a, "RDMA_MAP stored the cookie %llx", (unsigned long long)cookie);
	}
	s->cookie = cookie;
	atomic_store(&s->state, GRANTED);
	atomic_fetch_add(&board->progress, 1);
}

static void free_slot(struct actor *a, unsigned i)
{
	struct slot *s = &board->slot[a->id][i];
	uint64_t flags = mode != CALM || actor_random(a) % 2 ? F_INVALIDATE : 0;
	int rc = wire->free_mr(a, s->cookie, flags), want = 0;

	if (s->life != a->life || (s->flags & F_USE_ONCE && mode == CALM))
		want = -EINVAL; /* gone with the socket, or with its one use */
	if (rc != want && !(s->life == a->life && s->flags & F_USE_ONCE && mode != CALM && rc == -EINVAL))
		actor_fail(a, "FREE_MR of slot %u (flags %x, life %u): expected %d, came %d", i, s->flags, s->life,
			   want, rc);
	if (mode != CALM || actor_random(a) % 8 == 0) {
		rc = wire->free_mr(a, 0, 0);
		if (rc)
			actor_fail(a, "FREE_MR of cookie 0: expected 0, came %d", rc);
		flags = F_INVALIDATE;
	}
	if (flags && mode != KILL && actor_random(a) % 2)
		atomic_store(&s->stale, s->cookie);
}

void owner_take_back(struct actor *a, unsigned i)
{
	struct slot *s = &board->slot[a->id][i];
	uint64_t count;
	const char *why;

	if (mode == CALM && s->flags & F_USE_ONCE && a->final[i] != s->gen)
		/* its last message ends the region, and has not come yet */
		return;
	if (mode == KILL && s->life != a->life) { /* region and memory went with the process */
		atomic_store(&s->state, IDLE);
		return;
	}
	free_slot(a, i);
	why = slot_wrong(s, DATA, a->mem[i] + DATA, SLOT_BYTES(i) - DATA, atomic_load(&s->n), slot_done(s));
	if (why)
		actor_fail(a, "slot %u, generation %u, back from actor %u after %u writes: %s", i, s->gen, s->writer,
			   s->n, why);
	memcpy(&count, a->mem[i], 8);
	why = count_wrong(s, count, atomic_load(&s->digits), false);
	if (why)
		actor_fail(a, "slot %u, generation %u, back from actor %u: %s", i, s->gen, s->writer, why);
	if (memcmp(a->mem[i] + 8, &s->word[1], DATA - 8))
		actor_fail(a, "slot %u, generation %u, back from actor %u: the words of its atomics are wrong", i,
			   s->gen, s->writer);
	atomic_store(&s->state, IDLE);
	atomic_fetch_add(&board->progress, 1);
}
